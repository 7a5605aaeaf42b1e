//! The limits and the size of this process's memory. Does not know: the use of the memory, and what happens
//! at a limit.
const std = @import("std");
const builtin = @import("builtin");
const sys = @import("sys.zig");
const cgroup = @import("memory/cgroup.zig");

const is_linux = builtin.os.tag == .linux;

/// The system's limits of memory, in bytes; null: no limit.
pub const Limits = struct {
    /// The limit of the process's control group (of a container) or of a group around it. Linux only.
    group: ?u64 = null,
    /// The limit RLIMIT_AS (`ulimit -v`).
    address_space: ?u64 = null,
};

/// The present limits of this process.
pub fn limits() Limits {
    return .{
        .group = if (is_linux) cgroup.limit("/proc/self/cgroup", "/sys/fs/cgroup") else null,
        .address_space = addressSpaceLimit(),
    };
}

fn addressSpaceLimit() ?u64 {
    if (!@hasField(std.posix.rlimit_resource, "AS")) return null;
    const limit = std.posix.getrlimit(.AS) catch return null;
    return if (limit.cur == std.posix.RLIM.INFINITY) null else limit.cur;
}

/// The memory of the process, in bytes.
pub const Usage = struct {
    /// Bytes of the process in physical memory.
    resident: u64,
    /// Bytes of address space that are mapped.
    address_space: u64,
    heap: ?Heap = null,
};

/// The memory of the C library's heap.
pub const Heap = struct {
    /// Bytes that the heap has taken from the system.
    held: u64,
    /// The unused part of `held`, which later allocations use and the system does not get.
    free: u64,
};

/// Reads the kernel's numbers from /proc, in some microseconds. Null: there is no /proc.
pub fn usage() ?Usage {
    if (!is_linux) return null;
    var buffer: [128]u8 = undefined;
    const text = sys.readWhole("/proc/self/statm", &buffer) orelse return null;
    var words = std.mem.tokenizeScalar(u8, text, ' ');
    const size = std.fmt.parseInt(u64, words.next() orelse return null, 10) catch return null;
    const resident = std.fmt.parseInt(u64, words.next() orelse return null, 10) catch return null;
    const page_bytes = std.heap.pageSize();
    return .{ .resident = resident * page_bytes, .address_space = size * page_bytes };
}

/// The bytes of resident memory that belong to other processes, if each shared page counts in equal parts for
/// the processes that have it. The kernel visits all pages, which takes it up to a millisecond for 20 MB.
/// Null: the kernel does not tell.
pub fn shared() ?u64 {
    if (!is_linux) return null;
    var buffer: [4096]u8 = undefined;
    const text = sys.readWhole("/proc/self/smaps_rollup", &buffer) orelse return null;
    const resident = kibibytesOf(text, "\nRss:") orelse return null;
    const part = kibibytesOf(text, "\nPss:") orelse return null;
    return (resident -| part) * 1024;
}

fn kibibytesOf(text: []const u8, name: []const u8) ?u64 {
    const at = std.mem.find(u8, text, name) orelse return null;
    var words = std.mem.tokenizeAny(u8, text[at + name.len ..], " \n");
    return std.fmt.parseInt(u64, words.next() orelse return null, 10) catch null;
}

/// Gives whole pages of this process's own memory back. They read as zeros afterwards.
pub fn giveBack(pages: []align(std.heap.page_size_min) u8) void {
    if (is_linux) {
        _ = std.os.linux.madvise(pages.ptr, pages.len, std.os.linux.MADV.DONTNEED);
    } else @memset(pages, 0);
}

/// Asks the C library, which counts free pieces for up to a millisecond. Null: it is not glibc, or an old
/// one.
pub fn heap() ?Heap {
    if (!has_mallinfo) return null;
    const info = mallinfo2();
    return .{ .held = info.arena + info.hblkhd, .free = info.fordblks };
}

const has_mallinfo = builtin.link_libc and builtin.target.isGnuLibC() and
    builtin.os.version_range.linux.glibc.order(.{ .major = 2, .minor = 33, .patch = 0 }) != .lt;

/// The struct of man 3 mallinfo2.
const MallInfo = extern struct {
    arena: usize,
    ordblks: usize,
    smblks: usize,
    hblks: usize,
    hblkhd: usize,
    usmblks: usize,
    fsmblks: usize,
    uordblks: usize,
    fordblks: usize,
    keepcost: usize,
};

extern "c" fn mallinfo2() callconv(.c) MallInfo;

test "a process has memory, and more when it takes some" {
    if (!is_linux) return error.SkipZigTest;
    const bytes = 32 * 1024 * 1024;
    const before = usage().?;
    const taken = try std.heap.page_allocator.alloc(u8, bytes);
    @memset(taken, 1);
    const after = usage().?;
    std.heap.page_allocator.free(taken);
    try std.testing.expect(before.resident > 0 and before.resident <= before.address_space);
    try std.testing.expect(after.address_space >= before.address_space + bytes);
    // Only half is tested, because other tests may free memory at the same time, and the kernel counts in
    // batches.
    try std.testing.expect(after.resident >= before.resident + bytes / 2);
    if (heap()) |found| try std.testing.expect(found.free <= found.held);
}

test "memory that a child has not changed belongs to its parent, too" {
    if (!is_linux) return error.SkipZigTest;
    const bytes = 32 * 1024 * 1024;
    const taken = try std.heap.page_allocator.alloc(u8, bytes);
    defer std.heap.page_allocator.free(taken);
    @memset(taken, 1);
    const before = shared() orelse return error.SkipZigTest;
    const child = std.c.fork();
    if (child < 0) return error.CannotFork;
    if (child == 0) {
        // Ends alone where this program is killed.
        _ = std.c.poll(&.{}, 0, 60_000);
        std.c._exit(0);
    }
    defer {
        _ = std.c.kill(child, .KILL);
        _ = std.c.waitpid(child, null, 0);
    }
    // Half of 32 MiB, and some for what other tests free at the same time.
    try std.testing.expect(shared().? >= before + bytes / 2 - 4 * 1024 * 1024);
}

test {
    _ = cgroup;
}
