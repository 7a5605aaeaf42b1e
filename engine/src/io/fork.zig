//! Closes descriptors that a forked child must not keep: of listeners, connections, epoll instances, logs. A
//! child's copies would keep ports bound and connections open, and share the kernel's side of an epoll
//! instance. Does not know: the purpose of a descriptor.
//!
//! Functions that make descriptors (sys.zig, `adoptListener`) note them here. In a forked child all copies of
//! noted descriptors are closed before any other code runs. That needs no lock and reads no data of other
//! threads, which may have been changing it: the notes are bits in pages that are never freed. Closing a copy
//! takes nothing from the parent, whose connections, watches and listeners live as long as its own
//! descriptors.
//!
//! This works after `watch`, which C hosts get with their first worker, and for forks by libc only.
const std = @import("std");
const builtin = @import("builtin");
const pipe = @import("sys/pipe.zig");
const sys = @import("sys.zig");
const Atomic = std.atomic.Value;

const Word = Atomic(usize);
const word_bits = @bitSizeOf(usize);
/// A page of notes, 4 KiB.
const Page = [4096 / @sizeOf(Word)]Word;
const page_bits = 4096 * 8;
/// The number of pages, for 33 million descriptors. Linux allows a process one million unless fs.nr_open is
/// raised.
const pages_max = 1024;

const Notes = struct {
    pages: [pages_max]Atomic(?*Page) = @splat(.init(null)),

    fn add(notes: *Notes, fd: sys.Fd) void {
        const index: usize = @intCast(fd);
        // Without memory for a page, or beyond the last page, the descriptor is not noted, and a child keeps
        // its copy.
        const page = notes.pageOf(index) orelse return;
        _ = page[index % page_bits / word_bits].fetchOr(bit(index), .monotonic);
    }

    fn remove(notes: *Notes, fd: sys.Fd) void {
        const index: usize = @intCast(fd);
        if (index / page_bits >= pages_max) return;
        const page = notes.pages[index / page_bits].load(.acquire) orelse return;
        const word = &page[index % page_bits / word_bits];
        if (word.load(.monotonic) & bit(index) != 0) _ = word.fetchAnd(~bit(index), .monotonic);
    }

    fn bit(index: usize) usize {
        return @as(usize, 1) << @intCast(index % word_bits);
    }

    fn pageOf(notes: *Notes, index: usize) ?*Page {
        if (index / page_bits >= pages_max) return null;
        const slot = &notes.pages[index / page_bits];
        if (slot.load(.acquire)) |page| return page;
        const page = std.heap.page_allocator.create(Page) catch return null;
        page.* = @splat(.init(0));
        const other = slot.cmpxchgStrong(null, page, .acq_rel, .acquire) orelse return page;
        std.heap.page_allocator.destroy(page);
        return other;
    }

    /// Takes the next run of noted descriptors from `from` on; null: there is none.
    fn takeRun(notes: *Notes, from: usize) ?struct { first: usize, end: usize } {
        const first = notes.next(from) orelse return null;
        var end = first;
        while (end < pages_max * page_bits and notes.has(end)) : (end += 1) notes.remove(@intCast(end));
        return .{ .first = first, .end = end };
    }

    fn has(notes: *const Notes, index: usize) bool {
        const page = notes.pages[index / page_bits].load(.acquire) orelse return false;
        return page[index % page_bits / word_bits].load(.monotonic) & bit(index) != 0;
    }

    fn next(notes: *const Notes, from: usize) ?usize {
        var index = from;
        while (index < pages_max * page_bits) {
            const page = notes.pages[index / page_bits].load(.acquire) orelse {
                index = (index / page_bits + 1) * page_bits;
                continue;
            };
            const word = page[index % page_bits / word_bits].load(.monotonic) >> @intCast(index % word_bits);
            if (word != 0) return index + @ctz(word);
            index = (index / word_bits + 1) * word_bits;
        }
        return null;
    }
};

var owned: Notes = .{};
var shielded: Notes = .{};
var forks: u32 = 0;
var watched: Atomic(bool) = .init(false);

/// Notes a descriptor whose copy is closed in children. `sys.close` forgets it.
pub fn own(fd: sys.Fd) void {
    owned.add(fd);
}

/// Notes a descriptor that other code uses by its number. A child's copy becomes the read end of a pipe
/// without a writer, which is readable, at its end, and can be watched by epoll (/dev/null cannot). The note
/// must be forgotten before the descriptor is closed.
pub fn shield(fd: sys.Fd) void {
    shielded.add(fd);
}

/// Forgets a descriptor that is about to be closed, or that children may have. It need not have been noted.
pub fn forget(fd: sys.Fd) void {
    owned.remove(fd);
    shielded.remove(fd);
}

/// The number of forks between the process that called `watch` first and this one. Objects that were made
/// under another number belong to another process.
pub fn count() u32 {
    return forks;
}

/// Begins to watch for forks. Has no effect without libc.
pub fn watch() void {
    if (!builtin.link_libc) return;
    if (watched.swap(true, .acq_rel)) return;
    // The call fails only without memory; then forked children keep their copies.
    _ = pthread_atfork(null, null, inChild);
}

extern "c" fn pthread_atfork(
    prepare: ?*const fn () callconv(.c) void,
    parent: ?*const fn () callconv(.c) void,
    child: ?*const fn () callconv(.c) void,
) c_int;

/// Runs first in a child, on its only thread, and makes only system calls.
fn inChild() callconv(.c) void {
    forks += 1;
    var at: usize = 0;
    while (owned.takeRun(at)) |run| : (at = run.end) sys.closeRun(run.first, run.end);
    const nothing = if (shielded.next(0) != null) openNothing() else null;
    at = 0;
    while (shielded.takeRun(at)) |run| : (at = run.end) {
        for (run.first..run.end) |fd| sys.replace(@intCast(fd), nothing);
    }
    if (nothing) |fd| sys.close(fd);
}

fn openNothing() ?sys.Fd {
    const ends = pipe.Ends.open() catch return null;
    sys.close(ends.write);
    return ends.read;
}

const testing = std.testing;

test "runs of noted descriptors, across words and pages" {
    var notes: Notes = .{};
    defer for (&notes.pages) |*page| if (page.raw) |p| std.heap.page_allocator.destroy(p);
    for ([_]sys.Fd{ 3, 4, 5, 63, 64, 65, page_bits - 1, page_bits, 2 * page_bits + 7 }) |fd| notes.add(fd);
    notes.add(9);
    notes.remove(9);
    notes.remove(10);
    notes.remove(3 * page_bits);
    const expected = [_][2]usize{
        .{ 3, 6 }, .{ 63, 66 }, .{ page_bits - 1, page_bits + 1 }, .{ 2 * page_bits + 7, 2 * page_bits + 8 },
    };
    var at: usize = 0;
    for (expected) |run| {
        const taken = notes.takeRun(at).?;
        try testing.expectEqual(run[0], taken.first);
        try testing.expectEqual(run[1], taken.end);
        at = taken.end;
    }
    try testing.expectEqual(null, notes.takeRun(at));
    try testing.expectEqual(null, notes.next(0));
}

test "a descriptor beyond the last page is not noted" {
    owned.add(pages_max * page_bits);
    try testing.expectEqual(null, owned.next((pages_max - 1) * page_bits));
    owned.remove(pages_max * page_bits);
}
