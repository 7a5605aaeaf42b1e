//! The header of a WebSocket frame in both directions, and masking (RFC 6455 section 5). Does not know: the
//! order of frames, roles, limits and messages (session.zig).
const std = @import("std");
const assert = std.debug.assert;

/// The longest header: two fixed bytes, eight of extended length, four of masking key.
pub const header_bytes_max = 14;
/// The maximum payload of a control frame, in bytes, RFC 6455 section 5.5.
pub const control_payload_bytes_max = 125;
/// The maximum length of a masked control frame, in bytes.
pub const control_bytes_max = 2 + 4 + control_payload_bytes_max;

/// Kinds of frames, RFC 6455 section 5.2. Values without a name are reserved.
pub const Opcode = enum(u4) {
    continuation = 0x0,
    text = 0x1,
    binary = 0x2,
    close = 0x8,
    ping = 0x9,
    pong = 0xA,
    _,

    /// Control opcodes have the highest bit set, reserved ones included.
    pub fn isControl(opcode: Opcode) bool {
        return @backingInt(opcode) & 0x8 != 0;
    }

    /// Whether RFC 6455 defines no meaning for the opcode.
    pub fn isReserved(opcode: Opcode) bool {
        return switch (opcode) {
            .continuation, .text, .binary, .close, .ping, .pong => false,
            _ => true,
        };
    }
};

/// The key that is XORed over the payload again and again, from its first byte.
pub const MaskKey = [4]u8;

/// A frame header as a value.
pub const Header = struct {
    fin: bool,
    rsv1: bool = false,
    rsv2: bool = false,
    rsv3: bool = false,
    opcode: Opcode,
    mask: ?MaskKey,
    /// The number of bytes of payload; below 2^63.
    payload_len: u64,

    /// The number of bytes that `encode` writes: 2..14.
    pub fn encodedLen(header: Header) u8 {
        const extended: u8 = if (header.payload_len < 126) 0 else if (header.payload_len <= 0xFFFF) 2 else 8;
        return 2 + extended + @as(u8, if (header.mask != null) 4 else 0);
    }
};

/// The result of decoding a frame's header.
pub const Decoded = union(enum) {
    /// The header is not complete: it needs at least this many bytes (2..14).
    need: u8,
    header: struct { value: Header, bytes: u8 },
    /// The length is not in its shortest form (RFC 6455 section 5.2).
    length_not_minimal,
    /// The most significant bit of a 64-bit length is set (RFC 6455 section 5.2).
    length_too_big,
};

/// Decodes a frame's header at the start of `bytes`, which may have fewer or more bytes.
pub fn decode(bytes: []const u8) Decoded {
    if (bytes.len < 2) return .{ .need = 2 };
    const masked = bytes[1] & 0x80 != 0;
    const short: u8 = bytes[1] & 0x7F;
    const extended: u8 = switch (short) {
        126 => 2,
        127 => 8,
        else => 0,
    };
    const key_at = 2 + extended;
    const total = key_at + @as(u8, if (masked) 4 else 0);
    if (bytes.len < total) return .{ .need = total };
    const len: u64 = switch (extended) {
        0 => short,
        2 => std.mem.readInt(u16, bytes[2..4], .big),
        else => std.mem.readInt(u64, bytes[2..10], .big),
    };
    if (extended == 2 and len < 126) return .length_not_minimal;
    if (extended == 8 and len <= 0xFFFF) return .length_not_minimal;
    if (len >> 63 != 0) return .length_too_big;
    const header: Header = .{
        .fin = bytes[0] & 0x80 != 0,
        .rsv1 = bytes[0] & 0x40 != 0,
        .rsv2 = bytes[0] & 0x20 != 0,
        .rsv3 = bytes[0] & 0x10 != 0,
        .opcode = @fromBackingInt(@intCast(@as(u4, @truncate(bytes[0])))),
        .mask = if (masked) bytes[key_at..][0..4].* else null,
        .payload_len = len,
    };
    assert(header.encodedLen() == total);
    return .{ .header = .{ .value = header, .bytes = total } };
}

/// Writes `header` in its shortest form; returns the number of bytes.
pub fn encode(header: Header, out: *[header_bytes_max]u8) u8 {
    assert(header.payload_len >> 63 == 0);
    out[0] = @as(u8, @backingInt(header.opcode)) |
        (@as(u8, @intFromBool(header.fin)) << 7) |
        (@as(u8, @intFromBool(header.rsv1)) << 6) |
        (@as(u8, @intFromBool(header.rsv2)) << 5) |
        (@as(u8, @intFromBool(header.rsv3)) << 4);
    var at: u8 = 2;
    if (header.payload_len < 126) {
        out[1] = @intCast(header.payload_len);
    } else if (header.payload_len <= 0xFFFF) {
        out[1] = 126;
        std.mem.writeInt(u16, out[2..4], @intCast(header.payload_len), .big);
        at = 4;
    } else {
        out[1] = 127;
        std.mem.writeInt(u64, out[2..10], header.payload_len, .big);
        at = 10;
    }
    if (header.mask) |key| {
        out[1] |= 0x80;
        out[at..][0..4].* = key;
        at += 4;
    }
    assert(at == header.encodedLen());
    return at;
}

const lanes = @max(4, std.simd.suggestVectorLength(u8) orelse 16);
const Lanes = @Vector(lanes, u8);

/// Masks or unmasks `bytes` in place (the operation is its own inverse). `offset`: the position of the first
/// byte in the frame's payload, so that a payload may come in any pieces.
pub fn mask(bytes: []u8, key: MaskKey, offset: u64) void {
    // Then the phase of the mask is the same for every vector and for the rest.
    comptime assert(lanes % 4 == 0);
    const phased = rotate(key, offset);
    const pattern: Lanes = @bitCast(@as([lanes / 4]MaskKey, @splat(phased)));
    var at: usize = 0;
    while (bytes.len - at >= lanes) : (at += lanes) {
        const block: Lanes = bytes[at..][0..lanes].*;
        bytes[at..][0..lanes].* = block ^ pattern;
    }
    maskScalar(bytes[at..], phased, 0);
}

/// The scalar twin of `mask`: the same result. Also used for the rest that is shorter than a vector.
pub fn maskScalar(bytes: []u8, key: MaskKey, offset: u64) void {
    const phased = rotate(key, offset);
    for (bytes, 0..) |*byte, at| byte.* ^= phased[at % 4];
}

/// Returns the key for bytes from `offset` on.
fn rotate(key: MaskKey, offset: u64) MaskKey {
    var phased: MaskKey = undefined;
    for (&phased, 0..) |*byte, at| byte.* = key[@intCast((offset + at) % 4)];
    return phased;
}

const testing = std.testing;

test "headers come back as they went out, and ask for exactly the bytes they need" {
    const lengths = [_]u64{ 0, 1, 125, 126, 127, 0xFFFF, 0x10000, 0x7FFF_FFFF_FFFF_FFFF };
    for (lengths) |len| for ([_]?MaskKey{ null, .{ 1, 2, 3, 4 } }) |key| for (0..256) |first| {
        const header: Header = .{
            .fin = first & 0x80 != 0,
            .rsv1 = first & 0x40 != 0,
            .rsv2 = first & 0x20 != 0,
            .rsv3 = first & 0x10 != 0,
            .opcode = @fromBackingInt(@intCast(@as(u4, @truncate(first)))),
            .mask = key,
            .payload_len = len,
        };
        var out: [header_bytes_max]u8 = undefined;
        const bytes = encode(header, &out);
        try testing.expectEqual(first, out[0]);
        for (0..bytes) |cut| {
            const need = decode(out[0..cut]).need;
            try testing.expect(need > cut and need <= bytes);
        }
        const decoded = decode(out[0..bytes]).header;
        try testing.expectEqual(bytes, decoded.bytes);
        try testing.expectEqualDeep(header, decoded.value);
        // Bytes after the header do not matter.
        try testing.expectEqualDeep(Decoded{ .header = decoded }, decode(&out));
    };
}

test "lengths that are not minimal or use the highest bit are refused" {
    try testing.expectEqual(.length_not_minimal, decode("\x82\x7e\x00\x7d"));
    try testing.expectEqual(.length_not_minimal, decode("\x82\x7e\x00\x00"));
    try testing.expectEqual(.length_not_minimal, decode("\x82\x7f\x00\x00\x00\x00\x00\x00\xff\xff"));
    try testing.expectEqual(.length_too_big, decode("\x82\x7f\x80\x00\x00\x00\x00\x00\x00\x00"));
    try testing.expectEqual(@as(u64, 126), decode("\x82\x7e\x00\x7e").header.value.payload_len);
    try testing.expectEqual(
        @as(u64, 0x10000),
        decode("\x82\x7f\x00\x00\x00\x00\x00\x01\x00\x00").header.value.payload_len,
    );
}

test "the largest frames have the sizes that are promised for them" {
    const key: MaskKey = .{ 1, 2, 3, 4 };
    const control: Header = .{
        .fin = true,
        .opcode = .ping,
        .mask = key,
        .payload_len = control_payload_bytes_max,
    };
    try testing.expectEqual(control_bytes_max, control.encodedLen() + control.payload_len);
    const data: Header = .{
        .fin = true,
        .opcode = .binary,
        .mask = key,
        .payload_len = std.math.maxInt(u63),
    };
    try testing.expectEqual(header_bytes_max, data.encodedLen());
}

test "masking: vector, scalar and any split agree at every phase and length" {
    var random = std.Random.DefaultPrng.init(0x3a5c);
    const key: MaskKey = .{ 0x37, 0xfa, 0x21, 0x3d };
    var plain: [3 * lanes + 7]u8 = undefined;
    random.random().bytes(&plain);
    for (0..plain.len + 1) |len| for (0..8) |offset| {
        var scalar = plain;
        maskScalar(scalar[0..len], key, offset);
        var vector = plain;
        mask(vector[0..len], key, offset);
        try testing.expectEqualSlices(u8, &scalar, &vector);
        const cut = len / 3;
        var split = plain;
        mask(split[0..cut], key, offset);
        mask(split[cut..len], key, offset + cut);
        try testing.expectEqualSlices(u8, &scalar, &split);
        mask(vector[0..len], key, offset);
        try testing.expectEqualSlices(u8, &plain, &vector);
    };
}

test "the masked Hello of RFC 6455 section 5.7" {
    var bytes = "\x7f\x9f\x4d\x51\x58".*;
    mask(&bytes, .{ 0x37, 0xfa, 0x21, 0x3d }, 0);
    try testing.expectEqualStrings("Hello", &bytes);
}
