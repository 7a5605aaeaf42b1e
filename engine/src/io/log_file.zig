//! A file to which a thread appends lines, so that writers never wait for a disk, a pipe or a terminal. Does
//! not know: the content of a line.
//!
//! The owner puts lines into a ring (`reserve`, `put`..., `commit`). The thread writes them when there are
//! many, or half a second after the first one. A line without room in the ring is dropped and counted. When
//! the file cannot be written, the thread tries again later. If a full disk took a part of a line, the rest
//! follows when there is room, so that no byte is lost or written twice.
const std = @import("std");
const sys = @import("sys.zig");
const log_calls = @import("sys/log.zig");
const thread = @import("thread.zig");
const assert = std.debug.assert;
const Atomic = std.atomic.Value;

/// The destination of the lines.
pub const Target = union(enum) {
    /// An open descriptor, which the log duplicates.
    fd: sys.Fd,
    /// The path of a file, which is created if there is none, and opened again by `reopen`.
    path: []const u8,
};

/// Changes of the file's state since the owner was last told.
pub const News = struct {
    /// The errno of the last write; 0: it succeeded.
    errno: u16 = 0,
    /// The errno of a failed attempt to open the file again, after which the old file is used; 0: none
    /// failed.
    reopen_errno: u16 = 0,
    /// Lines that were dropped since the last news.
    dropped: u64 = 0,
};

/// Bytes that arrive in one piece at the other end of a pipe or socket, without bytes of other processes
/// between them: PIPE_BUF of POSIX.1.
const together_bytes = 4096;

/// Reasons why a log cannot be opened.
pub const OpenError = error{ OutOfMemory, CannotOpen, CannotStartThread };

/// Milliseconds that a line waits for further lines. With the time for writing, it is in the file within a
/// second.
const gather_ms = 500;
/// Milliseconds between two attempts to write to a file that could not be written.
const retry_ms = 1000;
/// Milliseconds that `close` waits for a file that does not take the last lines.
const close_wait_ms = 2000;

pub const LogFile = struct {
    gpa: std.mem.Allocator,
    /// Bytes that wait for the thread. The length is a power of two.
    ring: []u8,
    fd: sys.Fd,
    /// The file is no regular one, so that only short writes stay in one piece.
    shared_by_pieces: bool,
    /// The file's path; empty: there is only a descriptor.
    path: [:0]const u8,
    thread: std.Thread,
    /// The process of the thread. A forked child has no such thread.
    pid: std.posix.pid_t,

    // State of the writer. Positions only grow; their low bits are indices of the ring.
    at: u64 = 0,
    tail_seen: u64 = 0,
    dropped: u64 = 0,
    errno_told: u16 = 0,

    // State that the writer and the thread share.
    head: Atomic(u64) align(std.atomic.cache_line) = .init(0),
    tail: Atomic(u64) align(std.atomic.cache_line) = .init(0),
    /// A count that grows when the thread has something to do.
    wakeups: Atomic(u32) = .init(0),
    mood: Atomic(u8) = .init(@backingInt(Mood.busy)),
    wish: Atomic(Wish) = .init(.none),
    errno: Atomic(u16) = .init(0),
    reopen_errno: Atomic(u16) = .init(0),
    /// 1 when the thread has ended.
    ended: Atomic(u32) = .init(0),
    /// The writer and the thread. The last one of them frees the log.
    holders: Atomic(u8) = .init(2),

    const Mood = enum(u8) {
        busy,
        /// The thread sleeps until the first line.
        idle,
        /// The thread sleeps until many lines have come.
        gathering,
        /// The thread sleeps because the file cannot be written.
        stuck,
    };
    const Wish = enum(u8) { none, reopen, close };

    /// Opens the file and starts the thread. `ring_bytes` bounds the waiting lines, and is rounded up to a
    /// power of two. After CannotOpen, `errno` has the reason.
    pub fn open(gpa: std.mem.Allocator, target: Target, ring_bytes: usize, errno: *u16) OpenError!*LogFile {
        const log = try gpa.create(LogFile);
        errdefer gpa.destroy(log);
        const path = try gpa.dupeSentinel(u8, switch (target) {
            .fd => "",
            .path => |path| path,
        }, 0);
        errdefer gpa.free(path);
        const ring = try gpa.alloc(u8, std.math.ceilPowerOfTwoAssert(usize, @max(ring_bytes, 4096)));
        errdefer gpa.free(ring);
        const opened = switch (target) {
            .fd => |fd| sys.duplicate(fd),
            .path => log_calls.openAppend(path),
        };
        const fd: sys.Fd = switch (opened) {
            .done => |fd| @intCast(fd),
            .blocked => unreachable,
            .failed => |code| {
                errno.* = sys.number(code);
                return error.CannotOpen;
            },
        };
        errdefer sys.close(fd);
        log.* = .{
            .gpa = gpa,
            .ring = ring,
            .fd = fd,
            .shared_by_pieces = isSharedByPieces(fd),
            .path = path,
            .thread = undefined,
            .pid = sys.processId(),
        };
        log.thread = try thread.spawn(run, .{log});
        return log;
    }

    // ---- The writer

    /// Whether a line of up to `len` bytes has room. If not, it counts as dropped.
    pub fn reserve(log: *LogFile, len: usize) bool {
        if (log.at + len - log.tail_seen > log.ring.len) {
            log.tail_seen = log.tail.load(.acquire);
            if (log.at + len - log.tail_seen > log.ring.len) {
                log.dropped += 1;
                return false;
            }
        }
        return true;
    }

    /// Contiguous room for a line of up to `len` bytes, which was reserved, for writers of many small pieces.
    /// Null: the room is divided by the ring's end.
    pub fn straight(log: *LogFile, len: usize) ?[]u8 {
        const index: usize = @intCast(log.at & (log.ring.len - 1));
        return if (len <= log.ring.len - index) log.ring[index..][0..len] else null;
    }

    /// Adds `len` bytes that were written to the room of `straight`.
    pub fn advance(log: *LogFile, len: usize) void {
        log.at += len;
    }

    /// Adds a piece to the line.
    pub fn put(log: *LogFile, bytes: []const u8) void {
        const index: usize = @intCast(log.at & (log.ring.len - 1));
        const first = @min(bytes.len, log.ring.len - index);
        @memcpy(log.ring[index..][0..first], bytes[0..first]);
        if (first < bytes.len) @memcpy(log.ring[0 .. bytes.len - first], bytes[first..]);
        log.at += bytes.len;
    }

    /// Ends the line, which the thread may write from now on.
    pub fn commit(log: *LogFile) void {
        assert(log.at - log.tail_seen <= log.ring.len);
        log.head.store(log.at, .release);
    }

    /// Wakes the thread if it must learn of new lines. One call after several lines suffices.
    pub fn announce(log: *LogFile) void {
        // Both sides change `mood` before they look for lines: either the thread changes it later and sees
        // these lines, or its change is seen here.
        switch (@as(Mood, @fromBackingInt(log.mood.fetchOr(0, .acq_rel)))) {
            .busy, .stuck => {},
            .idle => log.wakeThread(),
            .gathering => if (log.at - log.tail.load(.monotonic) >= log.ring.len / 4) log.wakeThread(),
        }
    }

    /// Opens the path again after the waiting lines were written, because the file was moved away. Without a
    /// path nothing happens.
    pub fn reopen(log: *LogFile) void {
        if (log.path.len == 0) return;
        log.wish.store(.reopen, .release);
        log.wakeThread();
    }

    /// Changes of the file's state since the last call; null: there are none.
    pub fn news(log: *LogFile) ?News {
        const errno = log.errno.load(.monotonic);
        const reopen_errno = log.reopen_errno.load(.monotonic);
        if (errno == log.errno_told and reopen_errno == 0 and log.dropped == 0) return null;
        defer log.dropped = 0;
        log.errno_told = errno;
        return .{
            .errno = errno,
            .reopen_errno = log.reopen_errno.swap(0, .monotonic),
            .dropped = log.dropped,
        };
    }

    /// Writes the remaining lines and ends the thread. A file that takes no bytes gets some time; then the
    /// thread is detached. Returns the last news, in which unwritten lines count as dropped.
    pub fn close(log: *LogFile) News {
        // A forked child has no thread, and the parent writes the remaining lines.
        if (sys.processId() != log.pid) {
            log.free();
            return .{};
        }
        log.wish.store(.close, .release);
        log.wakeThread();
        log_calls.sleepOn(&log.ended, 0, close_wait_ms);
        if (log.ended.load(.acquire) != 0) log.thread.join() else log.thread.detach();
        const lost = log.linesPending();
        var told = log.news() orelse News{};
        // The reason is given again if lines were lost.
        if (lost > 0) told.errno = log.errno.load(.monotonic);
        told.dropped += lost;
        log.letGo();
        return told;
    }

    /// The number of lines that were not written as a whole.
    fn linesPending(log: *const LogFile) u64 {
        var count: u64 = 0;
        var at = log.tail.load(.monotonic);
        while (at != log.at) : (at += 1) {
            count += @intFromBool(log.ring[@intCast(at & (log.ring.len - 1))] == '\n');
        }
        return count;
    }

    fn letGo(log: *LogFile) void {
        if (log.holders.fetchSub(1, .acq_rel) == 1) log.free();
    }

    fn free(log: *LogFile) void {
        sys.close(log.fd);
        log.gpa.free(log.ring);
        log.gpa.free(log.path);
        log.gpa.destroy(log);
    }

    fn wakeThread(log: *LogFile) void {
        _ = log.wakeups.fetchAdd(1, .release);
        log_calls.wakeAll(&log.wakeups);
    }

    // ---- The thread

    fn run(log: *LogFile) void {
        var gathered = false;
        while (true) {
            const wish = log.wish.swap(.none, .acquire);
            if (wish == .none) {
                const waiting = log.pending();
                if (waiting == 0) {
                    log.sleep(.idle, null);
                    continue;
                }
                if (!gathered and waiting < log.ring.len / 4) {
                    log.sleep(.gathering, gather_ms);
                    gathered = true;
                    continue;
                }
            }
            gathered = false;
            const works = log.writeAll();
            if (wish == .close) break;
            if (wish == .reopen) log.openAgain();
            if (!works) log.sleep(.stuck, retry_ms);
        }
        log.ended.store(1, .release);
        log_calls.wakeAll(&log.ended);
        log.letGo();
    }

    fn pending(log: *const LogFile) u64 {
        return log.head.load(.acquire) - log.tail.load(.monotonic);
    }

    /// Sleeps until the thread is woken or the time is over, unless there are lines already.
    fn sleep(log: *LogFile, mood: Mood, timeout_ms: ?u32) void {
        const heard = log.wakeups.load(.acquire);
        _ = log.mood.swap(@backingInt(mood), .acq_rel);
        defer _ = log.mood.swap(@backingInt(Mood.busy), .acq_rel);
        if (log.wish.load(.acquire) != .none) return;
        if (mood == .idle and log.pending() > 0) return;
        log_calls.sleepOn(&log.wakeups, heard, timeout_ms);
    }

    /// Writes all lines. False: the file does not take them.
    fn writeAll(log: *LogFile) bool {
        var waited = false;
        while (log.pending() > 0) {
            const tail = log.tail.load(.monotonic);
            const index: usize = @intCast(tail & (log.ring.len - 1));
            const pending_bytes: usize = @intCast(log.pending());
            const len = if (log.shared_by_pieces) log.pieceAt(tail, pending_bytes) else pending_bytes;
            const first = @min(len, log.ring.len - index);
            const slices = [2]sys.Slice{
                .{ .base = log.ring.ptr + index, .len = first },
                .{ .base = log.ring.ptr, .len = len - first },
            };
            switch (log_calls.write(log.fd, &slices)) {
                .done => |count| {
                    log.tail.store(tail + count, .release);
                    log.errno.store(0, .monotonic);
                    waited = false;
                },
                .blocked => {
                    if (waited) return false;
                    waited = true;
                    log_calls.waitWritable(log.fd, retry_ms);
                },
                .failed => |code| {
                    log.errno.store(sys.number(code), .monotonic);
                    return false;
                },
            }
        }
        return true;
    }

    fn isSharedByPieces(fd: sys.Fd) bool {
        const found = sys.look(fd) orelse return false;
        return found.kind != .regular;
    }

    /// The length of whole lines of at most `together_bytes`, so that lines of several workers do not mix, or
    /// of one longer line.
    fn pieceAt(log: *const LogFile, from: u64, len: usize) usize {
        if (len <= together_bytes) return len;
        var at: usize = together_bytes;
        while (at > 0) : (at -= 1) if (log.endsAt(from, at)) return at;
        at = together_bytes + 1;
        while (at < len and !log.endsAt(from, at)) at += 1;
        return at;
    }

    /// Whether the first `len` bytes from `from` on end with a whole line.
    fn endsAt(log: *const LogFile, from: u64, len: usize) bool {
        return log.ring[@intCast((from + len - 1) & (log.ring.len - 1))] == '\n';
    }

    fn openAgain(log: *LogFile) void {
        switch (log_calls.openAppend(log.path)) {
            .done => |fd| {
                sys.close(log.fd);
                log.fd = @intCast(fd);
            },
            .blocked => unreachable,
            // The old file is used until the next attempt.
            .failed => |code| log.reopen_errno.store(sys.number(code), .monotonic),
        }
    }
};

const testing = std.testing;
const linux = std.os.linux;

fn line(log: *LogFile, text: []const u8) void {
    if (!log.reserve(text.len)) return;
    // A line is put in two pieces, as in real use.
    log.put(text[0 .. text.len / 2]);
    log.put(text[text.len / 2 ..]);
    log.commit();
    log.announce();
}

fn contents(fd: sys.Fd, buffer: []u8) []const u8 {
    var at: usize = 0;
    while (true) switch (sys.readFileAt(fd, buffer[at..], at)) {
        .done => |count| if (count == 0) return buffer[0..at] else {
            at += count;
        },
        else => unreachable,
    };
}

test "many more lines than the ring holds arrive whole and in order" {
    const memory: sys.Fd = @intCast(linux.memfd_create("log", 0));
    defer sys.close(memory);
    var errno: u16 = 0;
    const log: *LogFile = try .open(testing.allocator, .{ .fd = memory }, 4096, &errno);
    var expected: std.ArrayList(u8) = .empty;
    defer expected.deinit(testing.allocator);
    for (0..2000) |i| {
        var buffer: [64]u8 = undefined;
        const text = try std.fmt.bufPrint(
            &buffer,
            "line {d} {s}\n",
            .{ i, "xxxxxxxxxxxxxxxxxxxx"[0 .. i % 20] },
        );
        const dropped = log.dropped;
        line(log, text);
        if (log.dropped == dropped) {
            try expected.appendSlice(testing.allocator, text);
        } else {
            try std.Thread.yield();
        }
    }
    _ = log.close();
    const buffer = try testing.allocator.alloc(u8, 128 * 1024);
    defer testing.allocator.free(buffer);
    try testing.expectEqualStrings(expected.items, contents(memory, buffer));
    try testing.expect(expected.items.len >= 4000);
}

test "a reader that does not read costs lines, never time" {
    var ends: [2]sys.Fd = undefined;
    try testing.expectEqual(.SUCCESS, linux.errno(linux.pipe2(&ends, .{ .NONBLOCK = true })));
    defer sys.close(ends[0]);
    var errno: u16 = 0;
    const log: *LogFile = try .open(testing.allocator, .{ .fd = ends[1] }, 4096, &errno);
    sys.close(ends[1]);
    const text: [1000]u8 = @splat('x');
    // A pipe holds 64 KiB, and the ring 4 KiB.
    for (0..100_000) |_| {
        line(log, &text);
        if (log.dropped > 0) break;
    }
    const news = log.news().?;
    try testing.expect(news.dropped > 0);
    try testing.expectEqual(null, log.news());
    _ = log.close();
}

test "lines of several writers do not mix in a pipe" {
    var ends: [2]sys.Fd = undefined;
    try testing.expectEqual(.SUCCESS, linux.errno(linux.pipe2(&ends, .{})));
    defer sys.close(ends[0]);
    // The pipe holds one page, so that a longer write takes several steps.
    _ = linux.fcntl(ends[0], linux.F.SETPIPE_SZ, 4096);
    var errno: u16 = 0;
    var logs: [3]*LogFile = undefined;
    for (&logs) |*log| log.* = try .open(testing.allocator, .{ .fd = ends[1] }, 64 * 1024, &errno);
    sys.close(ends[1]);
    const count = 300;
    for (logs, 'a'..) |log, letter| {
        const text: [120]u8 = @splat(@intCast(letter));
        for (0..count) |i| {
            var whole: [128]u8 = undefined;
            line(log, try std.fmt.bufPrint(&whole, "{s}\n", .{text[0 .. 80 + i % 40]}));
        }
    }
    for (logs) |log| log.wakeThread();
    var got: std.ArrayList(u8) = .empty;
    defer got.deinit(testing.allocator);
    while (std.mem.countScalar(u8, got.items, '\n') < logs.len * count) {
        var buffer: [1000]u8 = undefined;
        const read: isize = @bitCast(linux.read(ends[0], &buffer, buffer.len));
        try testing.expect(read > 0);
        try got.appendSlice(testing.allocator, buffer[0..@intCast(read)]);
    }
    for (logs) |log| try testing.expectEqual(0, log.close().dropped);
    var lines = std.mem.splitScalar(u8, got.items[0 .. got.items.len - 1], '\n');
    while (lines.next()) |text| {
        try testing.expect(text.len >= 80);
        for (text) |letter| try testing.expectEqual(text[0], letter);
    }
}

test "a line that is longer than what stays together arrives as well" {
    var ends: [2]sys.Fd = undefined;
    try testing.expectEqual(.SUCCESS, linux.errno(linux.pipe2(&ends, .{})));
    defer sys.close(ends[0]);
    var errno: u16 = 0;
    const log: *LogFile = try .open(testing.allocator, .{ .fd = ends[1] }, 64 * 1024, &errno);
    sys.close(ends[1]);
    const long: [5000]u8 = @splat('x');
    const expected = "short\n" ++ long ++ "\nshort\n";
    line(log, "short\n");
    line(log, long ++ "\n");
    line(log, "short\n");
    _ = log.close();
    var buffer: [6000]u8 = undefined;
    var len: usize = 0;
    while (len < expected.len) {
        const read: isize = @bitCast(linux.read(ends[0], buffer[len..].ptr, buffer.len - len));
        try testing.expect(read > 0);
        len += @intCast(read);
    }
    try testing.expectEqualStrings(expected, buffer[0..len]);
}

test "lines that are left at the end are counted" {
    var errno: u16 = 0;
    const log: *LogFile = try .open(testing.allocator, .{ .path = "/dev/full" }, 4096, &errno);
    for (0..3) |_| line(log, "lost\n");
    const news = log.close();
    try testing.expectEqual(3, news.dropped);
    try testing.expectEqual(@backingInt(linux.E.NOSPC), news.errno);
}

test "after reopen, lines go to a new file of the same name" {
    var tmp = testing.tmpDir(.{});
    defer tmp.cleanup();
    var path_buffer: [256]u8 = undefined;
    const path = try std.fmt.bufPrint(&path_buffer, ".zig-cache/tmp/{s}/access.log", .{tmp.sub_path});
    var errno: u16 = 0;
    const log: *LogFile = try .open(testing.allocator, .{ .path = path }, 4096, &errno);
    line(log, "first\n");
    try tmp.dir.rename("access.log", tmp.dir, "access.log.1", testing.io);
    log.reopen();
    while (true) if (tmp.dir.access(testing.io, "access.log", .{})) |_| break else |_| try std.Thread.yield();
    line(log, "second\n");
    try testing.expectEqual(0, log.close().dropped);
    var buffer: [64]u8 = undefined;
    try testing.expectEqualStrings("first\n", try tmp.dir.readFile(testing.io, "access.log.1", &buffer));
    try testing.expectEqualStrings("second\n", try tmp.dir.readFile(testing.io, "access.log", &buffer));
    try testing.expectError(
        error.CannotOpen,
        LogFile.open(testing.allocator, .{ .path = "/no/such/folder/log" }, 4096, &errno),
    );
    try testing.expectEqual(@backingInt(linux.E.NOENT), errno);
}
