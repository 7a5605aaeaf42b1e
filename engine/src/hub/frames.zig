//! Frames of entries, which are made once for all readers of one variant. Does not know: readers, and how far
//! they are.
const std = @import("std");
const assert = std.debug.assert;
const protocol = @import("protocol");
const Lingering = @import("lingering.zig").Lingering;
const Segment = @import("segment.zig").Segment;
const position = @import("position.zig");
const frame = protocol.websocket.frame;
const Deflater = protocol.websocket.deflate.Deflater;
const Allocator = std.mem.Allocator;

/// The form in which entries are framed.
pub const Variant = union(enum) {
    /// One WebSocket message for each entry.
    websocket: protocol.websocket.Kind,
    /// Like `websocket`, compressed where that is shorter (RFC 7692), without references to other messages.
    /// Readers with context takeover can get these frames if their history is forgotten afterwards.
    deflated: Deflated,
    /// One event of an event stream for each entry, with the entry's position as id.
    event,
    /// Like `event`, with each event in a chunk of HTTP/1.
    event_chunk,
    /// The content of WebSocket messages, without frames.
    content: protocol.websocket.Kind,

    pub const Deflated = struct {
        kind: protocol.websocket.Kind,
        /// log2 of the reader's window, 8..15.
        window_bits: u4 = 15,
    };

    /// The variant to use for a segment, so that equal frames are made once: a window as long as the longest
    /// message gives the same bytes as a longer one, and a segment of short messages is not compressed.
    pub fn canonical(variant: Variant, segment: *const Segment, deflate_bytes_min: u32) Variant {
        const deflated = switch (variant) {
            .deflated => |deflated| deflated,
            else => return variant,
        };
        const window = @as(usize, 1) << deflated.window_bits;
        var start: u32 = 0;
        var longest: u32 = 0;
        for (segment.entries.items) |entry| {
            longest = @max(longest, entry.end - start);
            start = entry.end;
        }
        if (longest < deflate_bytes_min) return .{ .websocket = deflated.kind };
        return if (longest > window) variant else .{ .deflated = .{ .kind = deflated.kind } };
    }
};

/// The frames of a segment in one variant. The segment holds one reference, and each connection one for each
/// use.
pub const Frames = struct {
    gpa: Allocator,
    references: u32 = 1,
    variant: Variant,
    bytes: []u8,
    /// The end of each entry's frame in `bytes`.
    ends: []u32,
    /// The list that counts frames which only connections hold; null: they are not counted.
    lingering: ?*Lingering,
    /// The frames' place in that list.
    place: std.DoublyLinkedList.Node = .{},
    lingers: bool = false,
    /// Connections that hold these frames are to be cut.
    is_overdue: bool = false,

    pub fn retain(frames: *Frames) *Frames {
        frames.references += 1;
        return frames;
    }

    /// Gives a reference back. With the last one the frames are freed.
    pub fn release(frames: *Frames) void {
        frames.references -= 1;
        if (frames.references > 0) return;
        if (frames.lingers) if (frames.lingering) |lingering| lingering.remove(frames);
        const gpa = frames.gpa;
        gpa.free(frames.bytes);
        gpa.free(frames.ends);
        gpa.destroy(frames);
    }

    /// Releases the reference that the segment had to these frames. If connections still have references, the
    /// frames linger.
    pub fn part(frames: *Frames) void {
        assert(!frames.lingers);
        if (frames.references > 1) if (frames.lingering) |lingering| lingering.add(frames);
        frames.release();
    }

    /// The memory of the frames, in bytes.
    pub fn size(frames: *const Frames) usize {
        return frames.bytes.len + frames.ends.len * @sizeOf(u32) + @sizeOf(Frames);
    }

    /// The number of entries whose frames end at or before `at`.
    pub fn entriesBefore(frames: *const Frames, at: u32) usize {
        return std.sort.upperBound(u32, frames.ends, at, struct {
            fn compare(wanted: u32, end: u32) std.math.Order {
                return std.math.order(wanted, end);
            }
        }.compare);
    }

    /// The beginning of an entry's frame in `bytes`.
    pub fn start(frames: *const Frames, index: usize) u32 {
        return if (index == 0) 0 else frames.ends[index - 1];
    }
};

/// Makes frames. All topics of a thread may share one framer.
pub const Framer = struct {
    /// Compresses with a window of 15 bits, without context takeover; null: nothing is compressed.
    deflater: ?*Deflater,
    /// The length in bytes from which messages are compressed.
    deflate_bytes_min: u32,
    /// The list of frames that only connections hold; null: none is kept.
    lingering: ?*Lingering = null,

    /// Frames a sealed segment.
    pub fn make(
        framer: Framer,
        gpa: Allocator,
        segment: *const Segment,
        epoch: position.Epoch,
        variant: Variant,
    ) Allocator.Error!*Frames {
        assert(segment.place == .sealed);
        const ends = try gpa.alloc(u32, segment.entries.items.len);
        errdefer gpa.free(ends);
        var out: std.Io.Writer.Allocating = .init(gpa);
        defer out.deinit();
        for (ends, segment.before.offset + 1..) |*end, offset| {
            const bytes = segment.bytes(offset);
            const written = switch (variant) {
                .websocket => |kind| message(&out.writer, kind, bytes),
                .deflated => |how| framer.deflated(&out, how, bytes),
                .event => event(&out.writer, epoch, segment.mark(offset), bytes),
                .event_chunk => eventChunk(&out.writer, epoch, segment.mark(offset), bytes),
                .content => |kind| content(&out.writer, kind, bytes),
            };
            written catch return error.OutOfMemory;
            end.* = @intCast(out.written().len);
        }
        const frames = try gpa.create(Frames);
        errdefer gpa.destroy(frames);
        frames.* = .{
            .gpa = gpa,
            .variant = variant,
            .bytes = try out.toOwnedSlice(),
            .ends = ends,
            .lingering = framer.lingering,
        };
        return frames;
    }

    fn deflated(
        framer: Framer,
        out: *std.Io.Writer.Allocating,
        how: Variant.Deflated,
        bytes: []const u8,
    ) std.Io.Writer.Error!void {
        const writer = &out.writer;
        if (bytes.len < framer.deflate_bytes_min or !isSendable(how.kind, bytes)) {
            return message(writer, how.kind, bytes);
        }
        const deflater = framer.deflater.?;
        assert(!deflater.takeover);
        deflater.limitWindow(how.window_bits);
        const room = frame.header_bytes_max + Deflater.outputBytesMax(bytes.len);
        const space = try writer.writableSliceGreedy(room);
        // The header contains the length, so it is written last.
        const body = space[frame.header_bytes_max..];
        const len = deflater.deflate(bytes, true, body);
        if (len >= bytes.len) return message(writer, how.kind, bytes);
        var head: [frame.header_bytes_max]u8 = undefined;
        const head_len = frame.encode(header(how.kind, len, true), &head);
        @memcpy(space[0..head_len], head[0..head_len]);
        @memmove(space[head_len..][0..len], body[0..len]);
        writer.advance(head_len + len);
    }
};

fn header(kind: protocol.websocket.Kind, len: usize, compressed: bool) frame.Header {
    return .{
        .fin = true,
        .rsv1 = compressed,
        .opcode = switch (kind) {
            .text => .text,
            .binary => .binary,
        },
        .mask = null,
        .payload_len = len,
    };
}

/// Whether bytes may be sent as they are. A text message that is no UTF-8 would end the reader's WebSocket.
fn isSendable(kind: protocol.websocket.Kind, bytes: []const u8) bool {
    return kind == .binary or std.unicode.utf8ValidateSlice(bytes);
}

fn message(
    writer: *std.Io.Writer,
    kind: protocol.websocket.Kind,
    bytes: []const u8,
) std.Io.Writer.Error!void {
    var head: [frame.header_bytes_max]u8 = undefined;
    if (isSendable(kind, bytes)) {
        const head_len = frame.encode(header(kind, bytes.len, false), &head);
        try writer.writeAll(head[0..head_len]);
        return writer.writeAll(bytes);
    }
    // Bytes that are no UTF-8 become U+FFFD, as in browsers.
    const replaced = std.unicode.fmtUtf8(bytes);
    const head_len = frame.encode(header(kind, std.fmt.count("{f}", .{replaced}), false), &head);
    try writer.writeAll(head[0..head_len]);
    try writer.print("{f}", .{replaced});
}

fn content(
    writer: *std.Io.Writer,
    kind: protocol.websocket.Kind,
    bytes: []const u8,
) std.Io.Writer.Error!void {
    if (isSendable(kind, bytes)) return writer.writeAll(bytes);
    return writer.print("{f}", .{std.unicode.fmtUtf8(bytes)});
}

fn event(
    writer: *std.Io.Writer,
    epoch: position.Epoch,
    mark: position.Mark,
    bytes: []const u8,
) std.Io.Writer.Error!void {
    var id: [position.Position.text_bytes_max]u8 = undefined;
    const place: position.Position = .{ .epoch = epoch, .mark = mark };
    const whole: protocol.http.event_stream.Event = .{ .data = bytes, .id = place.print(&id) };
    return whole.write(writer);
}

fn eventChunk(
    writer: *std.Io.Writer,
    epoch: position.Epoch,
    mark: position.Mark,
    bytes: []const u8,
) std.Io.Writer.Error!void {
    var counter: std.Io.Writer.Discarding = .init(&.{});
    event(&counter.writer, epoch, mark, bytes) catch unreachable; // the counter takes all bytes
    var prefix: [protocol.chunk_prefix_bytes_max]u8 = undefined;
    try writer.writeAll(protocol.chunkPrefix(counter.fullCount(), &prefix));
    try event(writer, epoch, mark, bytes);
    try writer.writeAll("\r\n");
}
