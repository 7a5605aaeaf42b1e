//! The heap of the C library, from which Perl's strings come. Does not know: who fills it.
const std = @import("std");
const builtin = @import("builtin");

/// Makes glibc take large blocks from its heap, in a process that will have bodies, and the strings that they
/// become. glibc maps such a block anew, with pages that the kernel has to clear, until a block of that size
/// was freed: from then on such blocks come from the heap, and twice as much stays there when it is free
/// (mallopt(3), M_MMAP_THRESHOLD and M_TRIM_THRESHOLD). Without that a megabyte that each request takes and
/// frees is a hundred and more page faults of each request.
pub fn prepare() void {
    if (!builtin.target.isGnuLibC()) return;
    const block = std.c.malloc(large_block_bytes);
    std.mem.doNotOptimizeAway(block);
    std.c.free(block);
}

const large_block_bytes = 4 * 1024 * 1024;

/// Gives the free memory of a burst back to the system.
pub fn giveBack() void {
    if (builtin.target.isGnuLibC()) _ = malloc_trim(0);
}

extern "c" fn malloc_trim(pad: usize) c_int;
