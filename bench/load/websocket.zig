//! The client's side of RFC 6455, as much as an echo needs: masked frames out, frames in. Compressed messages
//! (RFC 7692) stay compressed.
//! Does not know: sockets and the handshake's response beyond its status.
const std = @import("std");

/// The longest frame head: masked, with eight bytes of length.
pub const head_bytes_max = 14;
pub const control_bytes_max = 125;
/// Masking protects proxies (section 10.3), not servers under measurement: one key does.
const mask = [4]u8{ 0x37, 0xfa, 0x21, 0x3d };
/// The key of the handshake; nothing here depends on its being random.
pub const key = "dGhlIHNhbXBsZSBub25jZQ==";

pub const Opcode = enum(u4) { continuation = 0, text = 1, binary = 2, close = 8, ping = 9, pong = 10, _ };

/// Writes a whole, masked frame into `out`; how many bytes it takes.
pub fn encode(opcode: Opcode, payload: []const u8, out: []u8) usize {
    out[0] = 0x80 | @as(u8, @backingInt(opcode));
    var at: usize = 2;
    if (payload.len <= 125) {
        out[1] = 0x80 | @as(u8, @intCast(payload.len));
    } else if (payload.len <= std.math.maxInt(u16)) {
        out[1] = 0x80 | 126;
        std.mem.writeInt(u16, out[2..4], @intCast(payload.len), .big);
        at = 4;
    } else {
        out[1] = 0x80 | 127;
        std.mem.writeInt(u64, out[2..10], payload.len, .big);
        at = 10;
    }
    out[at..][0..4].* = mask;
    at += 4;
    for (payload, out[at..][0..payload.len], 0..) |byte, *masked, i| masked.* = byte ^ mask[i % 4];
    return at + payload.len;
}

/// The frames of one connection.
pub const Reader = struct {
    opcode: Opcode = .continuation,
    head: [10]u8 = undefined,
    head_length: u8 = 0,
    in_payload: bool = false,
    /// Compression was offered.
    allows_compressed: bool = false,
    remaining: u64 = 0,

    pub const Step = struct {
        consumed: usize,
        /// A piece of the payload of the frame with `opcode`, borrowed from what was fed.
        payload: []const u8 = "",
        opcode: Opcode = .continuation,
        /// The frame has ended; `last`: and with it the message.
        complete: bool = false,
        last: bool = false,
    };

    /// Takes the rest of a frame's head, or a piece of its payload.
    pub fn feed(r: *Reader, bytes: []const u8) error{Malformed}!Step {
        std.debug.assert(bytes.len > 0);
        if (r.in_payload) {
            const piece = bytes[0..@min(bytes.len, r.remaining)];
            r.remaining -= piece.len;
            return r.stepOf(piece.len, piece);
        }
        const part = bytes[0..@min(bytes.len, r.headBytes() - r.head_length)];
        @memcpy(r.head[r.head_length..][0..part.len], part);
        r.head_length += @intCast(part.len);
        if (r.head_length < r.headBytes()) return .{ .consumed = part.len };
        r.opcode = @fromBackingInt(@intCast(@as(u4, @truncate(r.head[0]))));
        r.remaining = switch (r.head[1]) {
            0...125 => |length| length,
            126 => std.mem.readInt(u16, r.head[2..4], .big),
            127 => std.mem.readInt(u64, r.head[2..10], .big),
            else => return error.Malformed, // a server must not mask
        };
        const reserved: u8 = if (r.allows_compressed) 0x30 else 0x70;
        if (r.head[0] & reserved != 0) return error.Malformed; // no such extension was offered
        r.in_payload = true;
        return r.stepOf(part.len, "");
    }

    fn stepOf(r: *Reader, consumed: usize, piece: []const u8) Step {
        const complete = r.remaining == 0;
        if (complete) {
            r.in_payload = false;
            r.head_length = 0;
        }
        const last = complete and r.head[0] & 0x80 != 0;
        return .{
            .consumed = consumed,
            .payload = piece,
            .opcode = r.opcode,
            .complete = complete,
            .last = last,
        };
    }

    /// Whether the frame that was fed last begins a compressed message.
    pub fn isCompressed(r: *const Reader) bool {
        return r.head[0] & 0x40 != 0;
    }

    /// Bytes of the frame's head, as far as it is known.
    fn headBytes(r: *const Reader) usize {
        if (r.head_length < 2) return 2;
        return switch (r.head[1]) {
            126 => 4,
            127 => 10,
            else => 2,
        };
    }
};

test "a frame is masked, and its length has the shortest form" {
    var out: [head_bytes_max + 70_000]u8 = undefined;
    const payload = @as([70_000]u8, @splat('x'));
    for ([_][2]usize{ .{ 0, 6 }, .{ 125, 6 }, .{ 126, 8 }, .{ 65_535, 8 }, .{ 65_536, 14 } }) |case| {
        const length = encode(.text, payload[0..case[0]], &out);
        try std.testing.expectEqual(case[0] + case[1], length);
        for (out[case[1]..length], 0..) |byte, i| try std.testing.expectEqual('x', byte ^ mask[i % 4]);
    }
    try std.testing.expectEqualSlices(u8, &.{ 0x81, 0x80 | 5 }, out[0..encode(.text, "hello", &out)][0..2]);
}

test "frames are found wherever reads end" {
    const long = @as([300]u8, @splat('y'));
    const stream = "\x01\x02he" ++ "\x89\x01p" ++ "\x80\x03llo" ++ "\x82\x7e\x01\x2c" ++ long ++ "\x81\x00";
    for (0..stream.len + 1) |split| {
        var reader: Reader = .{};
        var data: usize = 0;
        var messages: usize = 0;
        var pings: usize = 0;
        for ([_][]const u8{ stream[0..split], stream[split..] }) |piece| {
            var rest = piece;
            while (rest.len > 0) {
                const step = try reader.feed(rest);
                rest = rest[step.consumed..];
                if (step.opcode == .ping) {
                    pings += @intFromBool(step.complete);
                } else {
                    data += step.payload.len;
                    messages += @intFromBool(step.last);
                }
            }
        }
        try std.testing.expectEqual(5 + long.len, data);
        try std.testing.expectEqual(3, messages);
        try std.testing.expectEqual(1, pings);
    }
}

test "a masked or extended frame from a server is malformed" {
    var reader: Reader = .{};
    try std.testing.expectError(error.Malformed, reader.feed("\x81\x85"));
    reader = .{};
    try std.testing.expectError(error.Malformed, reader.feed("\xc1\x05"));
    reader = .{ .allows_compressed = true };
    _ = try reader.feed("\xc1\x00");
    try std.testing.expect(reader.isCompressed());
    try std.testing.expectError(error.Malformed, reader.feed("\xa1\x00"));
}
