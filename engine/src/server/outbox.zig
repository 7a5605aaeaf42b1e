//! A connection's ordered output: bytes in blocks and buffers of the worker's pool, bytes that their owner
//! lends, and file ranges. Does not know: sockets, and the meaning of the bytes. An empty outbox holds no
//! memory.
const std = @import("std");
const assert = std.debug.assert;
const Held = @import("loan.zig").Held;
const Loan = @import("loan.zig").Loan;
const Pool = @import("pool.zig").Pool;

/// A range of an open file. The outbox's user gets `fd` back from `popFile`, and closes it.
pub const FileRange = struct {
    fd: i32,
    offset: u64,
    len: u64,
    /// A range behind this one has the same descriptor, which is closed after that range.
    shares: bool = false,
    /// The file's storage may be slow: only bytes that are known to be in memory are read from it
    /// (worker/storage.zig).
    asks: bool = false,
    /// A thread reads the next piece of the range, which stays at the front of its queue meanwhile.
    reading: bool = false,
    /// The file's system does not tell whether bytes are in memory.
    is_dumb: bool = false,
    /// A thread has read the file, because bytes were not in memory, or the file's owner calls it slow.
    /// Closing may block, too, so a thread also closes the descriptor.
    was_slow: bool = false,
    /// Bytes from `offset` on that are known to be in memory.
    ready: u32 = 0,

    /// Drops the first `len` bytes of the range, which were read.
    pub fn advance(range: *FileRange, len: u64) void {
        assert(len <= range.len and !range.reading);
        range.offset += len;
        range.len -= len;
        range.ready -|= @intCast(@min(len, std.math.maxInt(u32)));
    }
};

const Node = struct {
    next: ?*Node,
    /// The whole buffer, this header included.
    buffer: Pool.Buffer,
    /// Another outbox has parts of this content. The node is moved there when its last part is moved, or when
    /// its rest will not be sent, because the owner must not get its bytes back before all parts are sent.
    parted: bool = false,
    content: union(enum) {
        /// Unsent bytes are buffer[start..end].
        bytes: struct { start: u32, end: u32 },
        /// Unsent bytes are whole[start..end], which is a buffer of the pool, too.
        owned: struct { whole: Pool.Buffer, start: usize, end: usize },
        /// Bytes that their owner lends; the first `sent` of them were sent.
        lent: struct { bytes: []const u8, sent: usize, loan: *Loan },
        /// Like `lent`, for bytes with a holder.
        held: struct { body: Held, sent: usize },
        /// A part of the bytes of a later block; the first `sent` of them were sent.
        part: struct { bytes: []const u8, sent: usize },
        file: FileRange,
    },

    /// The file range of a node that must have one.
    pub fn fileRange(node: *Node) *FileRange {
        return &node.content.file;
    }

    /// The unsent bytes; null: the node is a file range.
    pub fn unsent(node: *const Node) ?[]const u8 {
        return switch (node.content) {
            .bytes => |span| node.buffer[span.start..span.end],
            .owned => |owned| owned.whole[owned.start..owned.end],
            .lent => |lent| lent.bytes[lent.sent..],
            .held => |held| held.body.bytes[held.sent..],
            .part => |part| part.bytes[part.sent..],
            .file => null,
        };
    }

    /// Drops the first `len` unsent bytes of a node that is no file range.
    fn advance(node: *Node, len: usize) void {
        switch (node.content) {
            .bytes => |*span| span.start += @intCast(len),
            .owned => |*owned| owned.start += len,
            .lent => |*lent| lent.sent += len,
            .held => |*held| held.sent += len,
            .part => |*part| part.sent += len,
            .file => unreachable,
        }
    }
};

/// Output in order: blocks of the pool, some of which stand for bytes that lie elsewhere or for a file range.
pub const Outbox = struct {
    first: ?*Node = null,
    last: ?*Node = null,
    /// Queued bytes in memory; file ranges do not count.
    bytes: usize = 0,

    const node_bytes = std.mem.alignForward(usize, @sizeOf(Node), Pool.alignment.toByteUnits());
    /// The smallest block fits a short response with its head. Larger output takes blocks of at most 16 KiB:
    /// a block goes back when all of it is sent, so a slow peer holds little more memory than it has unread
    /// bytes.
    const block_min = 1024;
    const block_max = 16 * 1024;
    /// The size up to which `move` copies bytes, because two blocks would cost more.
    const part_min = 2048;

    /// Whether nothing is queued.
    pub fn isEmpty(outbox: *const Outbox) bool {
        return outbox.first == null;
    }

    /// Whether a thread reads the next piece of the file range at the front.
    pub fn isReading(outbox: *const Outbox) bool {
        const node = outbox.first orelse return false;
        return node.content == .file and node.content.file.reading;
    }

    /// Returns at least `len` contiguous bytes to write to. `commit` adds those that were written. The slice
    /// is valid until the next call on this outbox.
    pub fn reserve(outbox: *Outbox, pool: *Pool, len: usize) error{OutOfMemory}![]u8 {
        if (outbox.last != null and outbox.tailRoom() >= len) {
            const node = outbox.last.?;
            return node.buffer[node.content.bytes.end..];
        }
        // Behind unsent output blocks are large: less of them is wasted at their ends, and a long queue needs
        // few system calls.
        const smallest: usize = if (outbox.first == null) block_min else block_max;
        const node = try outbox.push(pool, @max(len + node_bytes, smallest));
        return node.buffer[node_bytes..];
    }

    /// Adds the first `len` bytes of the last `reserve` to the output.
    pub inline fn commit(outbox: *Outbox, len: usize) void {
        const span = &outbox.last.?.content.bytes;
        span.end += @intCast(len);
        assert(span.end <= outbox.last.?.buffer.len);
        outbox.bytes += len;
    }

    /// Undoes a `reserve` that was not committed.
    pub fn cancel(outbox: *Outbox, pool: *Pool) void {
        const node = outbox.first orelse return;
        // Behind other output an empty block is freed when sending passes it. Alone it would make the outbox
        // look full.
        if (node.next == null and node.content == .bytes and
            node.content.bytes.start == node.content.bytes.end)
        {
            outbox.pop(pool);
        }
    }

    /// Copies a header and the bytes that follow it to the end. Without memory nothing is copied.
    pub fn append2(
        outbox: *Outbox,
        pool: *Pool,
        header: []const u8,
        bytes: []const u8,
    ) error{OutOfMemory}!void {
        assert(header.len < block_min - node_bytes);
        const space = try outbox.reserve(pool, header.len);
        @memcpy(space[0..header.len], header);
        // The header is committed first, so that the bytes go behind it; it is removed again if the bytes
        // find no memory.
        outbox.commit(header.len);
        errdefer {
            const node = outbox.last.?;
            node.content.bytes.end -= @intCast(header.len);
            outbox.bytes -= header.len;
            outbox.cancel(pool);
        }
        try outbox.append(pool, bytes);
    }

    /// Copies bytes to the end. Without memory nothing is copied.
    pub fn append(outbox: *Outbox, pool: *Pool, bytes: []const u8) error{OutOfMemory}!void {
        const room = @min(outbox.tailRoom(), bytes.len);
        var chain: Outbox = .{};
        errdefer chain.deinit(pool);
        var rest = bytes[room..];
        while (rest.len > 0) {
            const node = try chain.push(pool, @max(@min(rest.len + node_bytes, block_max), block_min));
            const part = @min(node.buffer.len - node_bytes, rest.len);
            @memcpy(node.buffer[node_bytes..][0..part], rest[0..part]);
            chain.commit(part);
            rest = rest[part..];
        }
        if (room > 0) {
            const node = outbox.last.?;
            @memcpy(node.buffer[node.content.bytes.end..][0..room], bytes[0..room]);
            outbox.commit(room);
        }
        outbox.take(&chain);
    }

    /// Links all blocks of `other`, which come from the same pool, behind the end. `other` is empty
    /// afterwards.
    pub fn take(outbox: *Outbox, other: *Outbox) void {
        const first = other.first orelse return;
        if (outbox.last) |last| last.next = first else outbox.first = first;
        outbox.last = other.last;
        outbox.bytes += other.bytes;
        other.* = .{};
    }

    /// Queues bytes without a copy, in a buffer of the pool, which the outbox owns from then on. It goes back
    /// to the pool when the bytes were sent or dropped.
    pub fn appendBuffer(
        outbox: *Outbox,
        pool: *Pool,
        buffer: Pool.Buffer,
        bytes: []const u8,
    ) error{OutOfMemory}!void {
        const start = @intFromPtr(bytes.ptr) - @intFromPtr(buffer.ptr);
        assert(bytes.len > 0 and start + bytes.len <= buffer.len);
        const node = try outbox.push(pool, node_bytes);
        node.content = .{ .owned = .{ .whole = buffer, .start = start, .end = start + bytes.len } };
        outbox.bytes += bytes.len;
    }

    /// Queues bytes without a copy. Their owner gets the loan back when they were sent or dropped.
    pub fn lend(outbox: *Outbox, pool: *Pool, bytes: []const u8, loan: *Loan) error{OutOfMemory}!void {
        const node = try outbox.push(pool, node_bytes);
        node.content = .{ .lent = .{ .bytes = bytes, .sent = 0, .loan = loan } };
        outbox.bytes += bytes.len;
        pool.loans.begin(bytes.len);
    }

    /// Undoes a `lend` or a `hold` after an error. The owner is not told, because the caller knows.
    pub fn cancelLoan(outbox: *Outbox, pool: *Pool) void {
        const node = outbox.first.?;
        const len = node.unsent().?.len;
        if (node.content == .held) pool.loans.unuse(&node.content.held.body) else pool.loans.cancel(len);
        outbox.bytes -= len;
        node.content = .{ .bytes = .{ .start = node_bytes, .end = node_bytes } };
        outbox.pop(pool);
    }

    /// Queues bytes without a copy, whose holder is told when they were sent or dropped.
    pub fn hold(outbox: *Outbox, pool: *Pool, body: Held) error{OutOfMemory}!void {
        const node = try outbox.push(pool, node_bytes);
        node.content = .{ .held = .{ .body = body, .sent = 0 } };
        outbox.bytes += body.bytes.len;
        pool.loans.use(&body);
    }

    /// Queues a file range. The outbox's user gets the descriptor back from `popFile` when the range is at
    /// the front and was sent.
    pub fn appendFile(outbox: *Outbox, pool: *Pool, range: FileRange) error{OutOfMemory}!void {
        const node = try outbox.push(pool, node_bytes);
        node.content = .{ .file = range };
    }

    /// Whether no file range is among the first `len` bytes, which must be queued.
    pub fn isInMemory(outbox: *const Outbox, len: usize) bool {
        var left = len;
        var node = outbox.first;
        while (left > 0) : (node = node.?.next) left -|= (node.?.unsent() orelse return false).len;
        return true;
    }

    /// Moves the first `len` bytes of `from` behind a header at the end; large parts are not copied. The
    /// bytes are in memory, in blocks of the same pool. `follow` must be called before the rest of `from` is
    /// dropped. After an error a part of the bytes may have been moved.
    pub fn move(
        outbox: *Outbox,
        pool: *Pool,
        header: []const u8,
        from: *Outbox,
        len: usize,
    ) error{OutOfMemory}!void {
        try outbox.appendClose(pool, header);
        var left = len;
        while (left > 0) {
            const node = from.first.?;
            const unsent = node.unsent().?;
            const part = unsent[0..@min(unsent.len, left)];
            const is_all = part.len == unsent.len;
            if (is_all and (node.parted or part.len >= part_min)) {
                from.unlink();
                outbox.link(node);
                outbox.bytes += part.len;
                from.bytes -= part.len;
            } else if (part.len < part_min) {
                try outbox.appendClose(pool, part);
                from.consume(pool, part.len);
            } else {
                const ahead = try outbox.push(pool, node_bytes);
                ahead.content = .{ .part = .{ .bytes = part, .sent = 0 } };
                outbox.bytes += part.len;
                node.parted = true;
                node.advance(part.len);
                from.bytes -= part.len;
            }
            left -= part.len;
        }
        // An empty block that `cancel` has left behind other output would make `from` look full.
        from.consume(pool, 0);
    }

    /// Moves a block whose parts are in `other` there, because its rest will not be sent.
    pub fn follow(outbox: *Outbox, pool: *Pool, other: *Outbox) void {
        const node = outbox.first orelse return;
        if (!node.parted) return;
        const left = node.unsent().?.len;
        outbox.bytes -= left;
        node.advance(left);
        outbox.unlink();
        other.link(node);
        if (other.first == node) other.pop(pool);
    }

    /// Copies a few bytes to the end, in a block that is no larger than they need.
    fn appendClose(outbox: *Outbox, pool: *Pool, bytes: []const u8) error{OutOfMemory}!void {
        if (outbox.last == null or outbox.tailRoom() < bytes.len) {
            _ = try outbox.push(pool, node_bytes + bytes.len);
        }
        const node = outbox.last.?;
        @memcpy(node.buffer[node.content.bytes.end..][0..bytes.len], bytes);
        outbox.commit(bytes.len);
    }

    /// Removes the first block from the list.
    fn unlink(outbox: *Outbox) void {
        outbox.first = outbox.first.?.next;
        if (outbox.first == null) outbox.last = null;
    }

    /// Adds a block at the end of the list.
    fn link(outbox: *Outbox, node: *Node) void {
        node.next = null;
        if (outbox.last) |last| last.next = node else outbox.first = node;
        outbox.last = node;
    }

    /// Copies the first `out.len` bytes, which must be queued, to `out` and removes them. `file`: a file
    /// range is in the way, and this number of bytes before it were copied. `other`: the outbox with moved
    /// parts.
    pub fn fill(outbox: *Outbox, pool: *Pool, out: []u8, other: *Outbox) union(enum) { done, file: usize } {
        var filled: usize = 0;
        while (filled < out.len) {
            const node = outbox.first.?;
            const bytes = node.unsent() orelse return .{ .file = filled };
            const part = @min(bytes.len, out.len - filled);
            @memcpy(out[filled..][0..part], bytes[0..part]);
            filled += part;
            if (part < bytes.len or !node.parted) {
                outbox.consume(pool, part);
            } else outbox.follow(pool, other);
        }
        return .done;
    }

    /// All queued bytes if they lie in one block; null: they do not, or nothing is queued.
    pub fn only(outbox: *const Outbox) ?[]const u8 {
        const node = outbox.first orelse return null;
        if (node.next != null) return null;
        const bytes = node.unsent() orelse return null;
        return if (bytes.len > 0) bytes else null;
    }

    /// The kind of output that is sent next.
    pub const Front = union(enum) { nothing, bytes: usize, file: *FileRange };

    /// Fills `slices` with the bytes before the next file range. A file range at the front is returned
    /// instead.
    pub fn front(outbox: *Outbox, slices: [][]const u8) Front {
        var count: usize = 0;
        var node = outbox.first;
        while (node) |n| : (node = n.next) {
            const bytes = n.unsent() orelse {
                if (count == 0) return .{ .file = &n.content.file };
                break;
            };
            if (count == slices.len) break;
            if (bytes.len == 0) continue;
            slices[count] = bytes;
            count += 1;
        }
        return if (count == 0) .nothing else .{ .bytes = count };
    }

    /// Removes the first `len` bytes, which were sent.
    pub fn consume(outbox: *Outbox, pool: *Pool, len: usize) void {
        var rest = len;
        assert(rest <= outbox.bytes);
        outbox.bytes -= rest;
        // Nearly always one block is queued, and all of it is sent.
        if (outbox.bytes == 0 and outbox.first == outbox.last and len > 0) return outbox.pop(pool);
        while (outbox.first) |node| {
            const bytes = node.unsent() orelse break;
            const part = @min(rest, bytes.len);
            node.advance(part);
            rest -= part;
            if (part < bytes.len) break;
            outbox.pop(pool);
        }
        assert(rest == 0);
    }

    /// Copies bytes that were read from the file range at the front to a block before the range.
    pub fn prepend(outbox: *Outbox, pool: *Pool, bytes: []const u8) error{OutOfMemory}!void {
        const buffer = try pool.take(node_bytes + bytes.len);
        const node: *Node = @ptrCast(buffer.ptr);
        const end: u32 = @intCast(node_bytes + bytes.len);
        node.* = .{
            .next = outbox.first,
            .buffer = buffer,
            .content = .{ .bytes = .{ .start = node_bytes, .end = end } },
        };
        @memcpy(buffer[node_bytes..end], bytes);
        outbox.first = node;
        if (outbox.last == null) outbox.last = node;
        outbox.bytes += bytes.len;
    }

    /// All lent and held bytes in the queue.
    pub fn lentParts(outbox: *const Outbox) Lent {
        return .{ .node = outbox.first };
    }

    /// An iterator over lent and held bytes.
    pub const Lent = struct {
        node: ?*const Node,

        /// Lent bytes as a whole, and the number of them that this outbox has not sent.
        pub const Part = struct {
            whole: []const u8,
            unsent: usize,

            fn of(whole: []const u8, sent: usize) Part {
                return .{ .whole = whole, .unsent = whole.len - sent };
            }
        };

        /// The next lent bytes; null: the iterator is at its end.
        pub fn next(it: *Lent) ?Part {
            while (it.node) |node| {
                it.node = node.next;
                switch (node.content) {
                    .lent => |one| return .of(one.bytes, one.sent),
                    .held => |one| return .of(one.body.bytes, one.sent),
                    .bytes, .owned, .part, .file => {},
                }
            }
            return null;
        }
    };

    /// Whether held bytes for which `isMeant` returns true are queued.
    pub fn holdsAny(outbox: *const Outbox, isMeant: *const fn (held: *const Held) bool) bool {
        var node = outbox.first;
        while (node) |one| : (node = one.next) switch (one.content) {
            .held => |*held| if (isMeant(&held.body)) return true,
            .bytes, .owned, .lent, .part, .file => {},
        };
        return false;
    }

    /// Sets for all file ranges whether their storage may be slow.
    pub fn setAsking(outbox: *Outbox, asks: bool) void {
        var node = outbox.first;
        while (node) |one| : (node = one.next) if (one.content == .file) {
            one.content.file.asks = asks;
        };
    }

    /// Whether a file range is queued whose storage may be slow.
    pub fn isAsking(outbox: *const Outbox) bool {
        var node = outbox.first;
        while (node) |one| : (node = one.next) {
            if (one.content == .file and one.content.file.asks) return true;
        }
        return false;
    }

    /// Notes for all ranges of a file that its storage is slow.
    pub fn noteSlow(outbox: *Outbox, fd: i32) void {
        var node = outbox.first;
        while (node) |one| : (node = one.next) if (one.content == .file and one.content.file.fd == fd) {
            one.content.file.was_slow = true;
        };
    }

    /// Removes the file range at the front. The caller closes the descriptor of the returned range; null: a
    /// later range has the same descriptor.
    pub fn popFile(outbox: *Outbox, pool: *Pool) ?FileRange {
        const range = outbox.first.?.content.file;
        outbox.pop(pool);
        return if (range.shares) null else range;
    }

    /// Gives all blocks back, and passes file ranges to `closer.closeFile(FileRange)`.
    pub fn discard(outbox: *Outbox, pool: *Pool, closer: anytype) void {
        var slices: [1][]const u8 = undefined;
        while (true) switch (outbox.front(&slices)) {
            .nothing => break,
            .bytes => outbox.consume(pool, slices[0].len),
            .file => if (outbox.popFile(pool)) |range| closer.closeFile(range),
        };
        outbox.deinit(pool);
    }

    /// Gives all blocks back. File ranges must have been removed by `popFile`, or their descriptors leak.
    pub fn deinit(outbox: *Outbox, pool: *Pool) void {
        while (outbox.first) |node| {
            assert(node.content != .file);
            outbox.pop(pool);
        }
        outbox.* = .{};
    }

    pub fn invariants(outbox: *const Outbox) void {
        assert((outbox.first == null) == (outbox.last == null));
        var bytes: usize = 0;
        var node = outbox.first;
        while (node) |one| : (node = one.next) {
            bytes += if (one.unsent()) |unsent| unsent.len else 0;
            if (one.next == null) assert(one == outbox.last);
        }
        assert(bytes == outbox.bytes);
    }

    /// Free bytes at the end of the last block.
    fn tailRoom(outbox: *const Outbox) usize {
        const node = outbox.last orelse return 0;
        return switch (node.content) {
            .bytes => |span| node.buffer.len - span.end,
            .owned, .lent, .held, .part, .file => 0,
        };
    }

    /// Adds a block of at least `bytes` bytes, with its header.
    fn push(outbox: *Outbox, pool: *Pool, bytes: usize) error{OutOfMemory}!*Node {
        const buffer = try pool.take(bytes);
        const node: *Node = @ptrCast(buffer.ptr);
        node.* = .{
            .next = null,
            .buffer = buffer,
            .content = .{ .bytes = .{ .start = node_bytes, .end = node_bytes } },
        };
        outbox.link(node);
        return node;
    }

    fn pop(outbox: *Outbox, pool: *Pool) void {
        const node = outbox.first.?;
        outbox.unlink();
        switch (node.content) {
            .owned => |owned| pool.give(owned.whole),
            .lent => |lent| pool.loans.end(lent.loan, lent.bytes.len),
            .held => |held| {
                pool.loans.unuse(&held.body);
                held.body.release(held.body.holder);
            },
            .bytes, .part, .file => {},
        }
        pool.give(node.buffer);
    }
};

const testing = std.testing;

fn drainTo(outbox: *Outbox, pool: *Pool, out: *std.ArrayList(u8), step: usize) !void {
    var slices: [4][]const u8 = undefined;
    while (true) switch (outbox.front(&slices)) {
        .nothing => return,
        .bytes => |count| {
            var left = step;
            for (slices[0..count]) |slice| {
                const part = slice[0..@min(slice.len, left)];
                try out.appendSlice(testing.allocator, part);
                left -= part.len;
            }
            outbox.consume(pool, step - left);
        },
        .file => |range| {
            try out.print(testing.allocator, "[{d}+{d}]", .{ range.offset, range.len });
            try testing.expectEqual(7, outbox.popFile(pool).?.fd);
        },
    };
}

test "bytes come out in the order in which they went in, however they are cut" {
    var pool: Pool = .init(testing.allocator);
    defer pool.deinit();
    for ([_]usize{ 1, 3, 1000, 100_000 }) |step| {
        var outbox: Outbox = .{};
        var expected: std.ArrayList(u8) = .empty;
        defer expected.deinit(testing.allocator);
        var random: std.Random.DefaultPrng = .init(step);
        for (0..50) |i| {
            var bytes: [9000]u8 = undefined;
            random.random().bytes(&bytes);
            const part = bytes[0 .. i * i * 3];
            if (i % 3 == 0) {
                const space = try outbox.reserve(&pool, part.len);
                @memcpy(space[0..part.len], part);
                outbox.commit(part.len);
            } else {
                try outbox.append(&pool, part);
            }
            try expected.appendSlice(testing.allocator, part);
            if (i % 10 == 9) {
                try outbox.appendFile(&pool, .{ .fd = 7, .offset = i, .len = 5 });
                try expected.print(testing.allocator, "[{d}+5]", .{i});
            }
        }
        var out: std.ArrayList(u8) = .empty;
        defer out.deinit(testing.allocator);
        try drainTo(&outbox, &pool, &out, step);
        try testing.expectEqualSlices(u8, expected.items, out.items);
        try testing.expect(outbox.isEmpty());
        try testing.expectEqual(0, pool.taken_bytes);
    }
}

test "blocks change their owner without a copy" {
    var pool: Pool = .init(testing.allocator);
    defer pool.deinit();
    var outbox: Outbox = .{};
    defer outbox.deinit(&pool);
    var other: Outbox = .{};
    outbox.take(&other);
    try testing.expect(outbox.isEmpty());
    const large: [100_000]u8 = @splat('x');
    try other.append(&pool, &large);
    const first = other.first;
    try outbox.append(&pool, "head");
    outbox.take(&other);
    try testing.expect(other.isEmpty() and other.bytes == 0);
    try testing.expectEqual(4 + large.len, outbox.bytes);
    try testing.expectEqual(first, outbox.first.?.next);
    try outbox.append(&pool, "tail");
    try testing.expectEqual(4 + large.len + 4, outbox.bytes);
}

test "a buffer goes out where it is, and back to the pool" {
    var pool: Pool = .init(testing.allocator);
    defer pool.deinit();
    for ([_]usize{ 1, 7, 100_000 }) |step| {
        var outbox: Outbox = .{};
        const buffer = try pool.take(100);
        @memcpy(buffer[10..19], "somewhere");
        try outbox.append(&pool, "head ");
        try outbox.appendBuffer(&pool, buffer, buffer[10..19]);
        try outbox.append(&pool, " tail");
        outbox.invariants();
        var slices: [4][]const u8 = undefined;
        try testing.expectEqual(3, outbox.front(&slices).bytes);
        try testing.expectEqual(&buffer[10], &slices[1][0]);
        var out: std.ArrayList(u8) = .empty;
        defer out.deinit(testing.allocator);
        try drainTo(&outbox, &pool, &out, step);
        try testing.expectEqualStrings("head somewhere tail", out.items);
        try testing.expectEqual(0, pool.taken_bytes);
    }
    var outbox: Outbox = .{};
    const buffer = try pool.take(1);
    try outbox.appendBuffer(&pool, buffer, buffer[0..1]);
    outbox.deinit(&pool);
    try testing.expectEqual(0, pool.taken_bytes);
}

test "content that is moved between outboxes lies where it was until it is sent" {
    var pool: Pool = .init(testing.allocator);
    defer pool.deinit();
    var random: std.Random.DefaultPrng = .init(3);
    for (0..300) |round| {
        var from: Outbox = .{};
        var outbox: Outbox = .{};
        var loan: Loan = .{};
        var expected: std.ArrayList(u8) = .empty;
        defer expected.deinit(testing.allocator);
        var content: [50_000]u8 = undefined;
        random.random().bytes(&content);
        const buffer = try pool.take(20_000);
        @memcpy(buffer[0..20_000], content[10_000..30_000]);
        try from.append(&pool, content[0..10_000]);
        try from.appendBuffer(&pool, buffer, buffer[0..20_000]);
        try from.lend(&pool, content[30_000..40_000], &loan);
        var uses: Uses = .{};
        try from.hold(&pool, uses.begin(content[40_000..]));
        var out: std.ArrayList(u8) = .empty;
        defer out.deinit(testing.allocator);
        var moved: usize = 0;
        const enough = random.random().uintAtMost(usize, content.len);
        while (moved < enough) {
            const len = @min(random.random().uintAtMost(usize, 17_000), content.len - moved);
            try testing.expect(from.isInMemory(len));
            try outbox.move(&pool, "head", &from, len);
            try expected.print(testing.allocator, "head{s}", .{content[moved..][0..len]});
            moved += len;
            outbox.invariants();
            from.invariants();
            try testing.expectEqual(content.len - moved, from.bytes);
            if (random.random().boolean()) try drainTo(&outbox, &pool, &out, 1 + moved % 20_000);
        }
        // The rest of `from` is dropped unsent.
        if (round % 2 == 0) {
            from.follow(&pool, &outbox);
            from.deinit(&pool);
            if (!outbox.isEmpty()) try testing.expect(outbox.bytes > 0);
        }
        outbox.invariants();
        try drainTo(&outbox, &pool, &out, 1000);
        try testing.expectEqualSlices(u8, expected.items, out.items);
        try testing.expect(outbox.isEmpty());
        from.follow(&pool, &outbox);
        from.deinit(&pool);
        try testing.expect(outbox.isEmpty());
        try testing.expectEqual(&loan, pool.loans.take().?);
        try testing.expectEqual(0, uses.count);
        try testing.expectEqual(0, pool.loans.bytes + pool.taken_bytes);
    }
}

/// Counts the holders of the same bytes.
const Uses = struct {
    count: usize = 0,

    fn begin(uses: *Uses, bytes: []const u8) Held {
        uses.count += 1;
        return .{ .bytes = bytes, .holder = uses, .release = end };
    }

    fn end(holder: *anyopaque) void {
        const uses: *Uses = @ptrCast(@alignCast(holder));
        uses.count -= 1;
    }
};

test "large blocks and lent bytes are moved without a copy" {
    var pool: Pool = .init(testing.allocator);
    defer pool.deinit();
    var from: Outbox = .{};
    var outbox: Outbox = .{};
    var loan: Loan = .{};
    const content: [40_000]u8 = @splat('x');
    try from.append(&pool, content[0..16_000]);
    try from.lend(&pool, &content, &loan);
    const block = from.first.?;
    try outbox.move(&pool, "1", &from, 16_000);
    try testing.expectEqual(block, outbox.last.?);
    for (0..2) |_| try outbox.move(&pool, "2", &from, 20_000);
    var slices: [8][]const u8 = undefined;
    // The second header fits behind the block.
    try testing.expectEqual(5, outbox.front(&slices).bytes);
    try testing.expectEqual(&content[0], &slices[2][0]);
    try testing.expectEqual(&content[20_000], &slices[4][0]);
    try testing.expect(from.isEmpty());
    // The loan comes back after its last part was sent, not before.
    outbox.consume(&pool, outbox.bytes - 1);
    try testing.expectEqual(null, pool.loans.take());
    outbox.consume(&pool, 1);
    try testing.expectEqual(&loan, pool.loans.take().?);
    try testing.expectEqual(0, pool.taken_bytes);
    // A range of a file is not in memory.
    try from.append(&pool, "a");
    try from.appendFile(&pool, .{ .fd = 7, .offset = 0, .len = 5 });
    try testing.expect(from.isInMemory(1) and !from.isInMemory(2));
    from.consume(&pool, 1);
    try testing.expectEqual(7, from.popFile(&pool).?.fd);
    // The unsent rest of a block is moved with its parts, although some of it is copied.
    try from.append(&pool, content[0..4_000]);
    try from.appendFile(&pool, .{ .fd = 7, .offset = 0, .len = 5 });
    try outbox.move(&pool, "3", &from, 3_000);
    var rest: [1_001]u8 = undefined;
    try testing.expectEqual(1_000, from.fill(&pool, &rest, &outbox).file);
    try testing.expectEqual(7, from.popFile(&pool).?.fd);
    try testing.expect(from.isEmpty() and pool.taken_bytes > 4_000);
    outbox.consume(&pool, 3_001);
    try testing.expect(outbox.isEmpty());
    try testing.expectEqual(0, pool.taken_bytes);
}

test "an empty block behind content that was moved does not stay" {
    var pool: Pool = .init(testing.allocator);
    defer pool.deinit();
    const large: [20_000]u8 = @splat('x');
    var from: Outbox = .{};
    try from.append(&pool, &large);
    _ = try from.reserve(&pool, from.tailRoom() + 1);
    from.cancel(&pool);
    var outbox: Outbox = .{};
    defer outbox.deinit(&pool);
    try outbox.move(&pool, "1", &from, 15_000);
    try testing.expect(!from.isEmpty());
    try outbox.move(&pool, "2", &from, 5_000);
    try testing.expect(from.isEmpty());
    outbox.invariants();
}

test "lent bytes go out in their place, and come back when they are gone" {
    var pool: Pool = .init(testing.allocator);
    defer pool.deinit();
    for ([_]usize{ 1, 7, 100_000 }) |step| {
        var outbox: Outbox = .{};
        var loans: [2]Loan = @splat(.{});
        try outbox.append(&pool, "head ");
        try outbox.lend(&pool, "lent", &loans[0]);
        try outbox.append(&pool, " between ");
        try outbox.lend(&pool, "and lent", &loans[1]);
        try testing.expectEqual(12, pool.loans.bytes);
        try testing.expectEqual(26, outbox.bytes);
        var out: std.ArrayList(u8) = .empty;
        defer out.deinit(testing.allocator);
        try drainTo(&outbox, &pool, &out, step);
        try testing.expectEqualStrings("head lent between and lent", out.items);
        try testing.expectEqual(0, pool.loans.bytes);
        try testing.expectEqual(&loans[1], pool.loans.take().?);
        try testing.expectEqual(&loans[0], loans[1].next.?);
    }
    var outbox: Outbox = .{};
    var loan: Loan = .{};
    try outbox.lend(&pool, "never sent", &loan);
    outbox.deinit(&pool);
    try testing.expectEqual(&loan, pool.loans.take().?);
    try outbox.lend(&pool, "not taken", &loan);
    outbox.cancelLoan(&pool);
    try testing.expect(outbox.isEmpty() and outbox.bytes == 0);
    try testing.expectEqual(null, pool.loans.take());
    var uses: Uses = .{};
    try outbox.hold(&pool, uses.begin("not taken either"));
    outbox.cancelLoan(&pool);
    try testing.expect(outbox.isEmpty() and uses.count == 1);
    var shared = uses.begin("charged to none");
    shared.is_shared = true;
    for (0..2) |_| try outbox.hold(&pool, shared);
    outbox.cancelLoan(&pool);
    try testing.expectEqual(0, pool.loans.bytes);
    outbox.deinit(&pool);
    try testing.expect(pool.loans.bytes == 0 and uses.count == 1);
}

const Closed = struct {
    list: std.ArrayList(i32) = .empty,

    pub fn closeFile(closed: *Closed, range: FileRange) void {
        closed.list.append(testing.allocator, range.fd) catch unreachable;
    }
};

test "a descriptor that several ranges share is closed once, behind the last of them" {
    var closed: Closed = .{};
    defer closed.list.deinit(testing.allocator);
    var pool: Pool = .init(testing.allocator);
    defer pool.deinit();
    var outbox: Outbox = .{};
    try outbox.append(&pool, "first");
    try outbox.appendFile(&pool, .{ .fd = 7, .offset = 0, .len = 1, .shares = true });
    try outbox.append(&pool, "second");
    try outbox.appendFile(&pool, .{ .fd = 7, .offset = 5, .len = 1 });
    try outbox.appendFile(&pool, .{ .fd = 8, .offset = 5, .len = 1 });
    outbox.consume(&pool, 5);
    try testing.expectEqual(null, outbox.popFile(&pool));
    outbox.discard(&pool, &closed);
    try testing.expectEqualSlices(i32, &.{ 7, 8 }, closed.list.items);
    try testing.expect(outbox.isEmpty());
    try testing.expectEqual(0, pool.taken_bytes);
}

test "bytes that were read of a file go before the rest of it" {
    var pool: Pool = .init(testing.allocator);
    defer pool.deinit();
    var outbox: Outbox = .{};
    try outbox.prepend(&pool, "first ");
    try outbox.appendFile(&pool, .{ .fd = 7, .offset = 0, .len = 10, .shares = true });
    try outbox.append(&pool, " between ");
    try outbox.appendFile(&pool, .{ .fd = 7, .offset = 20, .len = 5 });
    outbox.consume(&pool, 6);
    try testing.expect(!outbox.isAsking());
    outbox.setAsking(true);
    try testing.expect(outbox.isAsking());
    outbox.noteSlow(8);
    try testing.expect(!outbox.first.?.fileRange().was_slow);
    outbox.noteSlow(7);
    const range = outbox.first.?.fileRange();
    range.ready = 6;
    range.advance(4);
    try testing.expectEqual(2, range.ready);
    try outbox.prepend(&pool, "read");
    outbox.invariants();
    var closed: Closed = .{};
    defer closed.list.deinit(testing.allocator);
    outbox.consume(&pool, 4);
    try testing.expectEqual(null, outbox.popFile(&pool));
    outbox.consume(&pool, 9);
    const last = outbox.first.?.fileRange();
    try testing.expect(last.asks and last.was_slow);
    outbox.discard(&pool, &closed);
    try testing.expectEqualSlices(i32, &.{7}, closed.list.items);
    try testing.expectEqual(0, pool.taken_bytes);
}

test "append without memory changes nothing" {
    var failing: std.testing.FailingAllocator = .init(testing.allocator, .{ .fail_index = 2 });
    var pool: Pool = .init(failing.allocator());
    defer pool.deinit();
    var outbox: Outbox = .{};
    defer outbox.deinit(&pool);
    try outbox.append(&pool, "kept");
    const large: [200_000]u8 = @splat('x');
    try testing.expectError(error.OutOfMemory, outbox.append(&pool, &large));
    var slices: [4][]const u8 = undefined;
    try testing.expectEqual(1, outbox.front(&slices).bytes);
    try testing.expectEqualStrings("kept", slices[0]);
}
