//! The heads of responses: header blocks, and the frames around them. Does not know: which fields are sent
//! (response_fields.zig), and if a response may begin (session.zig).
const std = @import("std");
const assert = std.debug.assert;
const date = @import("../http/date.zig");
const encoder_file = @import("hpack/encoder.zig");
const frame = @import("frame.zig");
const header = @import("../http/header.zig");
const response_fields = @import("../http1/response_fields.zig");
const Encoder = encoder_file.Encoder;
const Field = header.Field;
const Shape = @import("../http/order.zig").Shape;

/// The maximum number of bytes that `start` (without lines and content), `informational` and
/// `switchProtocols` write for these fields.
pub fn startSize(fields: []const Field) usize {
    return startSizeOf(fieldsSize(fields));
}

/// Like `startSize`, for fields whose lines would have this many bytes in HTTP/1.
pub fn startSizeOf(fields_bytes: usize) usize {
    const block = fields_bytes + encoder_file.block_overhead + date_bytes_max + length_bytes_max;
    const frames = block / frame.payload_bytes_max + 1;
    // A frame of content may directly follow.
    return block + (frames + 1) * frame.header_bytes;
}

const date_bytes_max = "date".len + date.bytes_len + encoder_file.field_overhead;
const length_bytes_max = "content-length".len + 20 + encoder_file.field_overhead;

/// The maximum number of bytes that `planEnd` writes for these trailers.
pub fn endSize(trailers: []const Field) usize {
    return fieldsSize(trailers);
}

fn fieldsSize(fields: []const Field) usize {
    var size: usize = 0;
    for (fields) |field| size += field.name_len + field.value_len + encoder_file.field_overhead;
    return size;
}

/// Writes a header block and the frames around it.
pub const Writer = struct {
    encoder: *Encoder,
    out: []u8,
    len: usize,

    /// Begins a block with its status. `out` must have room for the whole block (`startSize`).
    pub fn begin(encoder: *Encoder, out: []u8, code: u16) Writer {
        var len: usize = frame.header_bytes;
        len += encoder.begin(out[len..]);
        len += Encoder.putStatus(code, out[len..]);
        return .{ .encoder = encoder, .out = out, .len = len };
    }

    /// Writes a field that was checked before.
    pub inline fn put(writer: *Writer, id: header.Id, name: []const u8, value: []const u8) void {
        writer.len += writer.encoder.put(id, name, value, writer.out[writer.len..]);
    }

    /// Writes those of an application's fields that are to be sent. They were checked before.
    pub fn putFields(writer: *Writer, fields: []const Field, policy: response_fields.Policy) void {
        var found: response_fields.Found = .{};
        for (fields) |field| {
            const name, const value = .{ field.name(), field.value() };
            const goes = response_fields.goesOut(name, value, policy, &found) catch unreachable;
            if (goes) writer.put(.fromName(name), name, value);
        }
    }

    /// Writes fields that were checked when they were added to `lines`.
    pub fn putLines(writer: *Writer, lines: *const response_fields.Lines, shape: Shape) void {
        var it = lines.iterator();
        while (it.next()) |field| writer.put(.fromName(field.name()), field.name(), field.value());
        if (lines.found.content_length) |length| if (shape.passesLength()) writer.putLength(length);
    }

    pub fn putLength(writer: *Writer, length: u64) void {
        var digits: [20]u8 = undefined;
        var at: usize = digits.len;
        var rest = length;
        while (true) {
            at -= 1;
            digits[at] = '0' + @as(u8, @intCast(rest % 10));
            rest /= 10;
            if (rest == 0) break;
        }
        writer.put(.content_length, "content-length", digits[at..]);
    }

    /// Writes the frames around the block and returns the number of bytes. Blocks that are too long for one
    /// frame are rare.
    pub fn finish(writer: *Writer, id: u32, ends: bool) usize {
        const block = writer.len - frame.header_bytes;
        const out = writer.out;
        const frames = @max(1, (block + frame.payload_bytes_max - 1) / frame.payload_bytes_max);
        var index = frames;
        while (index > 0) {
            index -= 1;
            const from = frame.header_bytes + index * frame.payload_bytes_max;
            const to = from + index * frame.header_bytes;
            const len = @min(frame.payload_bytes_max, writer.len - from);
            if (index > 0) @memmove(out[to..][0..len], out[from..][0..len]);
            var flags: u8 = if (index + 1 == frames) frame.flag.end_headers else 0;
            if (index == 0 and ends) flags |= frame.flag.end_stream;
            const header_of: frame.Header = .{
                .len = @intCast(len),
                .kind = if (index == 0) .headers else .continuation,
                .flags = flags,
                .stream = id,
            };
            header_of.write(out[to - frame.header_bytes ..][0..frame.header_bytes]);
        }
        return writer.len + (frames - 1) * frame.header_bytes;
    }
};
