//! A request whose host hears of it when its body is complete: head, trailer section, and the body in memory
//! or, if it is too long, in a temporary file. Does not know: connections, hosts, and when bytes are written
//! (worker/gathering.zig).
const std = @import("std");
const assert = std.debug.assert;
const io = @import("io");
const Head = @import("protocol").Head;
const FieldSpan = @import("protocol").http.FieldSpan;
const Input = @import("input.zig").Input;
const Pool = @import("pool.zig").Pool;
const kept_head = @import("kept_head.zig");
const Ticket = @import("slab.zig").Ticket;
const Upload = @import("admission.zig").Upload;

/// A request with its body. It lies in a buffer of the worker's pool, with its head behind it.
pub const Intake = struct {
    /// The body's file, and the bytes that the writer works on.
    job: io.SpoolJob = .{},
    /// The exchange whose body is gathered here.
    ticket: Ticket,
    head: Head,
    /// The trailer section of a chunked body; null: there is none.
    trailers: ?Head = null,
    /// Bytes of the body that were not given to the writer.
    memory: Input = .{},
    /// Bytes of the body that the writer works on.
    writing: Input = .{},
    /// Bytes of this body that count for the worker's quota of files.
    file_bytes: u64 = 0,
    /// The part of `file_bytes` that takes memory, because the file system keeps files in memory.
    resident_bytes: u64 = 0,
    /// The body's share in the count of its client's address, until the body is complete.
    upload: Upload = .{},
    mapping: io.file.Mapping = &.{},
    buffer: Pool.Buffer,
    trailer_buffer: ?Pool.Buffer = null,

    const trusted_bytes_max = @import("config.zig").worker_limits.trusted_length_bytes_max;

    /// Creates an intake for an exchange whose request begins with `head`, which is copied.
    pub fn create(pool: *Pool, ticket: Ticket, head: *const Head) error{OutOfMemory}!*Intake {
        const buffer = try pool.take(@sizeOf(Intake) + kept_head.copySize(head));
        errdefer pool.give(buffer);
        const intake: *Intake = @ptrCast(@alignCast(buffer.ptr));
        const same = kept_head.copyHead(head, buffer[@sizeOf(Intake)..]);
        intake.* = .{ .ticket = ticket, .head = same, .buffer = buffer };
        switch (head.body) {
            .counted => |length| {
                _ = try intake.memory.reserve(pool, @intCast(@min(length, trusted_bytes_max)));
            },
            .chunked, .none => {},
        }
        return intake;
    }

    comptime {
        assert(@sizeOf(Intake) % @alignOf(FieldSpan) == 0);
        assert(@alignOf(Intake) <= Pool.alignment.toByteUnits());
    }

    /// Frees the intake and closes its file. The writer must not be at work on it.
    pub fn destroy(intake: *Intake, pool: *Pool) void {
        assert(!intake.isWriting());
        if (intake.mapping.len > 0) io.file.unmap(intake.mapping);
        if (intake.job.fd >= 0) io.file.close(intake.job.fd);
        intake.memory.deinit(pool);
        if (intake.trailer_buffer) |buffer| pool.give(buffer);
        pool.give(intake.buffer);
    }

    /// Copies the trailer section.
    pub fn keepTrailers(intake: *Intake, pool: *Pool, trailers: *const Head) error{OutOfMemory}!void {
        assert(intake.trailers == null);
        const buffer = try pool.take(kept_head.copySize(trailers));
        intake.trailer_buffer = buffer;
        intake.trailers = kept_head.copyHead(trailers, buffer);
    }

    /// Room for the next piece of the body, at most `most` bytes, into which it may be received before
    /// `append`. The room is valid until another call changes the intake.
    pub fn room(intake: *Intake, pool: *Pool, most: usize) error{OutOfMemory}![]u8 {
        const least = @min(most, trusted_bytes_max);
        const has_room = intake.memory.room() >= least;
        const all = try intake.memory.reserve(pool, if (has_room) least else intake.wanted(least));
        return all[0..@min(all.len, most)];
    }

    /// Appends the next piece of the body. A piece that was received into the intake's own room is not
    /// copied.
    pub fn append(intake: *Intake, pool: *Pool, piece: []const u8) error{OutOfMemory}!void {
        if (intake.memory.isBehind(piece)) return intake.memory.commit(piece.len);
        if (intake.memory.room() < piece.len) _ = try intake.memory.reserve(pool, intake.wanted(piece.len));
        try intake.memory.append(pool, piece);
    }

    /// The size of the room to make for `len` bytes. A body with an announced length gets room for later
    /// bytes, too, which saves copies when memory grows, but at most four times the bytes that have come.
    fn wanted(intake: *const Intake, len: usize) usize {
        const announced = switch (intake.head.body) {
            .counted => |length| length,
            .chunked, .none => return len,
        };
        const pending = intake.pendingBytes();
        const left = announced -| (intake.file_bytes + pending);
        return @max(len, @as(usize, @intCast(@min(left, 3 * pending, Pool.size_max -| pending))));
    }

    /// Bytes of the body that were not given to the writer yet.
    pub fn pendingBytes(intake: *const Intake) usize {
        return intake.memory.unread().len;
    }

    /// Bytes of the body that have come.
    pub fn bytesCame(intake: *const Intake) u64 {
        return intake.file_bytes + intake.pendingBytes();
    }

    /// Memory that the body takes.
    pub fn heldBytes(intake: *const Intake) usize {
        return intake.memory.unread().len + intake.writing.unread().len;
    }

    /// Whether the body's beginning is in a file, or is being written to one.
    pub fn isLong(intake: *const Intake) bool {
        // While the writer has the job its descriptor is the writer's.
        return intake.isWriting() or intake.job.fd >= 0;
    }

    /// Whether the writer is at work on a part of the body.
    pub fn isWriting(intake: *const Intake) bool {
        return intake.writing.buffer != null;
    }

    /// Moves all pending bytes to `writing`. The caller gives the job to the writer.
    pub fn beginWriting(intake: *Intake) void {
        assert(!intake.isWriting() and !intake.memory.isEmpty());
        intake.writing = intake.memory;
        intake.memory = .{};
        intake.job.bytes = intake.writing.unread();
    }

    /// Notes that the writer has finished the job.
    pub fn endWriting(intake: *Intake, pool: *Pool) void {
        assert(intake.isWriting());
        intake.job.bytes = "";
        intake.writing.deinit(pool);
    }

    /// The whole body.
    pub const Body = union(enum) {
        memory: []const u8,
        file: struct { fd: i32, len: u64 },
    };

    /// The whole body, in memory or in its file; valid as long as the intake.
    pub fn body(intake: *const Intake) Body {
        assert(!intake.isWriting());
        if (intake.job.fd < 0) return .{ .memory = intake.memory.unread() };
        assert(intake.memory.isEmpty());
        return .{ .file = .{ .fd = intake.job.fd, .len = intake.job.written } };
    }

    /// Gives the buffer with the body to the caller; null: the body is empty.
    pub fn surrenderMemory(intake: *Intake) ?Pool.Buffer {
        assert(!intake.isLong());
        const buffer = intake.memory.buffer;
        intake.memory = .{};
        return buffer;
    }

    /// Hands the file over to the caller, who closes it. The worker's quota of files counts it until the
    /// intake ends.
    pub fn surrenderFile(intake: *Intake) i32 {
        assert(intake.isLong() and !intake.isWriting() and intake.mapping.len == 0);
        defer intake.job.fd = -1;
        return intake.job.fd;
    }

    /// The whole body as bytes in memory. A file is mapped for that. Valid as long as the intake.
    pub fn bytes(intake: *Intake) error{OutOfMemory}![]const u8 {
        switch (intake.body()) {
            .memory => |memory| return memory,
            .file => |file| {
                const len = std.math.cast(usize, file.len) orelse return error.OutOfMemory;
                if (intake.mapping.len == 0) intake.mapping = try io.file.map(file.fd, len);
                return intake.mapping;
            },
        }
    }
};
