//! Job: memory for received bytes: buffers that the kernel fills at any time, and pieces that wait for their
//! reader. Does not know: sockets. A piece returns to the kernel as soon as it was read. If the reader is
//! slow, the piece is copied, so that a paused reader occupies no buffers of others.
const std = @import("std");
const linux = std.os.linux;
const IoUring = linux.IoUring;
const sys = @import("../sys.zig");
const assert = std.debug.assert;

/// Received bytes.
pub const Piece = struct {
    next: ?*Piece = null,
    bytes: []u8 = &.{},
    /// The kernel's buffer with the bytes; null: the bytes lie behind this struct.
    buffer: ?u16,
};

/// The pieces of one socket, oldest first.
pub const Pieces = struct {
    head: ?*Piece = null,
    tail: ?*Piece = null,
    count: u32 = 0,

    pub fn append(pieces: *Pieces, piece: *Piece) void {
        piece.next = null;
        if (pieces.tail) |last| last.next = piece else pieces.head = piece;
        pieces.tail = piece;
        pieces.count += 1;
    }

    /// Removes and returns the first piece; null: there is none.
    pub fn pop(pieces: *Pieces) ?*Piece {
        const first = pieces.head orelse return null;
        pieces.head = first.next;
        if (first.next == null) pieces.tail = null;
        pieces.count -= 1;
        return first;
    }
};

/// The buffers that the kernel fills, which all sockets share.
pub const Buffers = struct {
    gpa: std.mem.Allocator,
    ring_fd: sys.Fd,
    shared: *align(std.heap.page_size_min) linux.io_uring_buf_ring,
    memory: []u8,
    /// A piece for each buffer.
    pieces: []Piece,
    /// The number of buffers that the kernel does not have at present.
    held: u32 = 0,

    /// The number of this group of buffers in operations.
    pub const group = 0;

    /// Reasons why buffers cannot be made.
    pub const InitError = error{ OutOfMemory, Unsupported };

    /// Makes `count` buffers (a power of two) of `bytes_each` bytes.
    pub fn init(gpa: std.mem.Allocator, ring_fd: sys.Fd, count: u16, bytes_each: u32) InitError!Buffers {
        const memory = try gpa.alloc(u8, @as(usize, count) * bytes_each);
        errdefer gpa.free(memory);
        const pieces = try gpa.alloc(Piece, count);
        errdefer gpa.free(pieces);
        const mapped = IoUring.setup_buf_ring(ring_fd, count, group, .{ .inc = false });
        const shared = mapped catch |err| return switch (err) {
            error.OutOfMemory => error.OutOfMemory,
            else => error.Unsupported,
        };
        IoUring.buf_ring_init(shared);
        var buffers: Buffers = .{
            .gpa = gpa,
            .ring_fd = ring_fd,
            .shared = shared,
            .memory = memory,
            .pieces = pieces,
            .held = count,
        };
        for (pieces, 0..) |*piece, id| {
            piece.* = .{ .buffer = @intCast(id) };
            buffers.give(piece);
        }
        return buffers;
    }

    /// Frees the buffers. The ring must be closed before, because the kernel could still write.
    pub fn deinit(buffers: *Buffers) void {
        const shared: [*]align(std.heap.page_size_min) u8 = @ptrCast(buffers.shared);
        std.posix.munmap(shared[0 .. buffers.pieces.len * @sizeOf(linux.io_uring_buf)]);
        buffers.gpa.free(buffers.pieces);
        buffers.gpa.free(buffers.memory);
    }

    /// Whether the kernel has buffers to fill.
    pub fn available(buffers: *const Buffers) bool {
        return buffers.held < buffers.pieces.len;
    }

    /// Returns the piece for buffer `id`, into which the kernel has put `len` bytes.
    pub fn take(buffers: *Buffers, id: u16, len: usize) *Piece {
        buffers.held += 1;
        const piece = &buffers.pieces[id];
        piece.bytes = buffers.memoryOf(id)[0..len];
        return piece;
    }

    fn memoryOf(buffers: *Buffers, id: u16) []u8 {
        const size = buffers.memory.len / buffers.pieces.len;
        return buffers.memory[id * size ..][0..size];
    }

    /// Returns the buffer of a piece to the kernel, or frees the piece if it is a copy.
    pub fn give(buffers: *Buffers, piece: *Piece) void {
        const id = piece.buffer orelse {
            const memory: [*]align(@alignOf(Piece)) u8 = @ptrCast(piece);
            return buffers.gpa.free(memory[0 .. @sizeOf(Piece) + piece.bytes.len]);
        };
        assert(buffers.held > 0);
        buffers.held -= 1;
        const mask = IoUring.buf_ring_mask(@intCast(buffers.pieces.len));
        IoUring.buf_ring_add(buffers.shared, buffers.memoryOf(id), id, mask, 0);
        IoUring.buf_ring_advance(buffers.shared, 1);
    }

    /// Copies the bytes of all pieces out of the kernel's buffers.
    pub fn keep(buffers: *Buffers, pieces: *Pieces) error{OutOfMemory}!void {
        var kept: Pieces = .{};
        errdefer {
            // The copied pieces are older than the others.
            while (pieces.pop()) |piece| kept.append(piece);
            pieces.* = kept;
        }
        while (pieces.head) |piece| {
            const own = if (piece.buffer == null) piece else try buffers.copy(piece);
            _ = pieces.pop();
            if (own != piece) buffers.give(piece);
            kept.append(own);
        }
        pieces.* = kept;
    }

    fn copy(buffers: *Buffers, piece: *const Piece) error{OutOfMemory}!*Piece {
        const memory = try buffers.gpa.alignedAlloc(u8, .of(Piece), @sizeOf(Piece) + piece.bytes.len);
        const own: *Piece = @ptrCast(memory.ptr);
        own.* = .{ .buffer = null, .bytes = memory[@sizeOf(Piece)..] };
        @memcpy(own.bytes, piece.bytes);
        return own;
    }

    /// Removes all pieces and returns their buffers.
    pub fn drop(buffers: *Buffers, pieces: *Pieces) void {
        while (pieces.pop()) |piece| buffers.give(piece);
    }
};

test "pieces keep their order when they move to memory of their own" {
    var pieces: Pieces = .{};
    var texts = [_][3]u8{ "one".*, "two".*, "six".* };
    var ring: [3]Piece = undefined;
    var buffers: Buffers = undefined;
    buffers.gpa = std.testing.allocator;
    for (&ring, &texts) |*piece, *text| {
        piece.* = .{ .buffer = null, .bytes = text };
        pieces.append(try buffers.copy(piece));
    }
    try buffers.keep(&pieces);
    try std.testing.expectEqual(3, pieces.count);
    for (texts) |text| {
        const piece = pieces.pop().?;
        try std.testing.expectEqualStrings(&text, piece.bytes);
        buffers.give(piece);
    }
    try std.testing.expectEqual(null, pieces.pop());
}
