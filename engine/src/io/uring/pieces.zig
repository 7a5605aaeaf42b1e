//! Job: memory for bytes that came in: buffers that the kernel fills in its own time, and pieces that
//! wait for their reader. Does not know: sockets. A piece goes back to the kernel as soon as it was
//! read; one whose reader takes long moves to memory of its own, so that a reader who pauses takes
//! nothing away from the others.
const std = @import("std");
const linux = std.os.linux;
const IoUring = linux.IoUring;
const sys = @import("../sys.zig");
const assert = std.debug.assert;

/// Bytes that came in, in the kernel's order.
pub const Piece = struct {
    next: ?*Piece = null,
    bytes: []u8 = &.{},
    /// The buffer of the ring that the bytes lie in, or null: they lie behind this struct.
    buffer: ?u16,
};

/// The pieces of one socket.
pub const Pieces = struct {
    head: ?*Piece = null,
    tail: ?*Piece = null,
    count: u32 = 0,

    /// Appends a received piece.
    pub fn append(pieces: *Pieces, piece: *Piece) void {
        piece.next = null;
        if (pieces.tail) |last| last.next = piece else pieces.head = piece;
        pieces.tail = piece;
        pieces.count += 1;
    }

    /// Takes the first piece out.
    pub fn pop(pieces: *Pieces) ?*Piece {
        const first = pieces.head orelse return null;
        pieces.head = first.next;
        if (first.next == null) pieces.tail = null;
        pieces.count -= 1;
        return first;
    }
};

/// The buffers that the kernel fills.
pub const Buffers = struct {
    gpa: std.mem.Allocator,
    ring_fd: sys.Fd,
    shared: *align(std.heap.page_size_min) linux.io_uring_buf_ring,
    memory: []u8,
    /// A piece for each buffer.
    pieces: []Piece,
    /// Buffers that are with us and not with the kernel.
    held: u32 = 0,

    /// The group that operations name.
    pub const group = 0;

    /// Why buffers for the kernel cannot be made.
    pub const InitError = error{ OutOfMemory, Unsupported };

    /// `count` is a power of two.
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

    /// The ring must be gone, or the kernel would go on writing.
    pub fn deinit(buffers: *Buffers) void {
        const shared: [*]align(std.heap.page_size_min) u8 = @ptrCast(buffers.shared);
        std.posix.munmap(shared[0 .. buffers.pieces.len * @sizeOf(linux.io_uring_buf)]);
        buffers.gpa.free(buffers.pieces);
        buffers.gpa.free(buffers.memory);
    }

    /// Whether the kernel has buffers left to fill.
    pub fn available(buffers: *const Buffers) bool {
        return buffers.held < buffers.pieces.len;
    }

    /// The kernel has put `len` bytes into a buffer.
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

    /// Takes back the buffer of a piece that was read, or is not wanted.
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

    /// Moves the bytes of all pieces out of the kernel's buffers.
    pub fn keep(buffers: *Buffers, pieces: *Pieces) error{OutOfMemory}!void {
        var kept: Pieces = .{};
        errdefer {
            // In order: what is kept comes first.
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

    /// Gives the buffers of all pieces back.
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
