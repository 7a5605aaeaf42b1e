//! Fuzz target `websocket`: frames as a session reads them, whole and in pieces, against a decoder that has
//! all of the bytes at once. The input's first byte chooses the role, compression and limits.
const std = @import("std");
const cuts_file = @import("cuts.zig");
const Cuts = cuts_file.Cuts;
const websocket = @import("protocol").websocket;
const testing = std.testing;

const wire_max = 4096;

/// A digest of all that an application sees, in order, with the pieces of each message joined.
const Digest = struct {
    hash: std.hash.Wyhash = .init(0),
    messages: usize = 0,
    ended: enum { open, closed, failed } = .open,

    fn note(digest: *Digest, tag: []const u8, payload: []const u8) void {
        digest.hash.update(tag);
        digest.hash.update(std.mem.asBytes(&payload.len));
        digest.hash.update(payload);
    }

    fn message(digest: *Digest, kind: websocket.Kind, compressed: bool, payload: []const u8) void {
        digest.messages += 1;
        digest.note(if (compressed) "compressed" else @tagName(kind), payload);
    }

    fn close(digest: *Digest, code: u16, reason: []const u8) void {
        digest.ended = .closed;
        digest.note("close", reason);
        digest.hash.update(std.mem.asBytes(&code));
    }

    fn fail(digest: *Digest, code: u16) void {
        digest.ended = .failed;
        digest.note("fail", std.mem.asBytes(&code));
    }
};

pub fn run(input: []const u8) !void {
    if (input.len == 0 or input.len > wire_max) return;
    const options: websocket.Options = .{
        .role = if (input[0] & 1 == 0) .server else .client,
        .deflate = input[0] & 2 != 0,
        .limits = switch (input[0] >> 2 & 3) {
            0 => .{ .frame_bytes_max = 0, .message_bytes_max = 0 },
            1 => .{ .frame_bytes_max = 20, .message_bytes_max = 0 },
            2 => .{ .frame_bytes_max = 0, .message_bytes_max = 30 },
            else => .{ .frame_bytes_max = 200, .message_bytes_max = 300 },
        },
    };
    const wire = input[1..];
    var expected: Digest = .{};
    decode(wire, options, &expected);
    for ([_]Cuts{ .whole, .seeded(std.hash.Wyhash.hash(0, input)), .bytes }) |cuts| {
        if (cuts == .bytes and wire.len > cuts_file.bytewise_max) continue;
        var digest: Digest = .{};
        try read(wire, options, cuts, &digest);
        try testing.expectEqual(expected.ended, digest.ended);
        try testing.expectEqual(expected.messages, digest.messages);
        try testing.expectEqual(expected.hash.final(), digest.hash.final());
    }
}

fn read(wire: []const u8, options: websocket.Options, way: Cuts, digest: *Digest) !void {
    var cuts = way;
    var session: websocket.Session = .init(options);
    // Unmasking writes into the input.
    var space: [wire_max]u8 = undefined;
    const bytes = space[0..wire.len];
    @memcpy(bytes, wire);
    var message: [wire_max]u8 = undefined;
    var message_len: usize = 0;
    var at: usize = 0;
    var arrived: usize = 0;
    while (digest.ended == .open) {
        arrived += cuts.next(wire.len - arrived);
        while (digest.ended == .open) {
            const step = session.feed(bytes[at..arrived]);
            at += step.consumed;
            switch (step.event) {
                .need_more => {
                    try testing.expectEqual(arrived, at);
                    break;
                },
                .data => |data| {
                    try testing.expect(data.bytes.len > 0 or data.last);
                    if (data.first) message_len = 0;
                    @memcpy(message[message_len..][0..data.bytes.len], data.bytes);
                    message_len += data.bytes.len;
                    if (data.last) digest.message(data.kind, data.compressed, message[0..message_len]);
                },
                .ping => |payload| digest.note("ping", payload),
                .pong => |payload| digest.note("pong", payload),
                .close => |close| digest.close(close.code, close.reason),
                .failed => |failure| {
                    try testing.expect(failure.reason.len <= websocket.close_reason_bytes_max);
                    digest.fail(failure.code);
                },
            }
        }
        if (arrived == wire.len) return;
    }
}

/// The header of a frame (RFC 6455 section 5.2).
const Header = struct {
    fin: bool,
    rsv: u3,
    opcode: u4,
    mask: ?[4]u8,
    len: u64,
};

/// The decoder. A session fails as soon as a frame's header is there, or at the first byte
/// that can be no text.
fn decode(wire: []const u8, options: websocket.Options, digest: *Digest) void {
    var rest = wire;
    var message: [wire_max]u8 = undefined;
    var message_len: usize = 0;
    var announced: u64 = 0;
    var open: ?struct { kind: websocket.Kind, compressed: bool } = null;
    while (header(&rest)) |maybe| {
        const frame = maybe orelse return digest.fail(1002);
        if (frame.rsv & 3 != 0 or (frame.mask != null) != (options.role == .server)) return digest.fail(1002);
        const control = frame.opcode >= 8;
        switch (frame.opcode) {
            0 => if (open == null or frame.rsv != 0) return digest.fail(1002),
            1, 2 => {
                if (open != null or (frame.rsv != 0 and !options.deflate)) return digest.fail(1002);
                open = .{ .kind = if (frame.opcode == 1) .text else .binary, .compressed = frame.rsv != 0 };
                message_len = 0;
                announced = 0;
            },
            8, 9, 10 => if (frame.rsv != 0 or !frame.fin or frame.len > 125 or
                (frame.opcode == 8 and frame.len == 1)) return digest.fail(1002),
            else => return digest.fail(1002),
        }
        if (!control) {
            const frame_max = options.limits.frame_bytes_max;
            if (frame_max != 0 and frame.len > frame_max) return digest.fail(1009);
            announced +|= frame.len;
            const most = options.limits.message_bytes_max;
            const slack = if (open.?.compressed) most / 8 + 1024 else 0;
            if (most != 0 and announced > most + slack) return digest.fail(1009);
        }
        var payload: [wire_max]u8 = undefined;
        const there: usize = @intCast(@min(frame.len, rest.len));
        for (rest[0..there], payload[0..there], 0..) |byte, *plain, i| {
            plain.* = byte ^ if (frame.mask) |key| key[i % 4] else 0;
        }
        rest = rest[there..];
        if (control) {
            if (there < frame.len) return;
            if (frame.opcode == 8) return endOf(payload[0..there], digest);
            digest.note(if (frame.opcode == 9) "ping" else "pong", payload[0..there]);
            continue;
        }
        @memcpy(message[message_len..][0..there], payload[0..there]);
        message_len += there;
        const complete = there == frame.len and frame.fin;
        const text = message[0..message_len];
        if (open.?.kind == .text and !open.?.compressed and !isText(text, complete)) return digest.fail(1007);
        if (there < frame.len) return;
        if (!complete) continue;
        digest.message(open.?.kind, open.?.compressed, text);
        open = null;
    }
}

/// Null: the wire ends before the header does. Null within: the length is not as it should be.
fn header(rest: *[]const u8) ?(?Header) {
    const bytes = rest.*;
    if (bytes.len < 2) return null;
    const short: u7 = @truncate(bytes[1]);
    const extra: usize = switch (short) {
        126 => 2,
        127 => 8,
        else => 0,
    };
    if (bytes.len < 2 + extra) return null;
    const len: u64 = switch (extra) {
        0 => short,
        2 => std.mem.readInt(u16, bytes[2..4], .big),
        else => std.mem.readInt(u64, bytes[2..10], .big),
    };
    const masked = bytes[1] & 0x80 != 0;
    const size = 2 + extra + @as(usize, if (masked) 4 else 0);
    if (bytes.len < size) return null;
    if ((extra == 2 and len < 126) or (extra == 8 and len <= 0xffff) or len >> 63 != 0) {
        return @as(?Header, null);
    }
    rest.* = bytes[size..];
    return .{
        .fin = bytes[0] & 0x80 != 0,
        .rsv = @truncate(bytes[0] >> 4),
        .opcode = @truncate(bytes[0]),
        .mask = if (masked) bytes[size - 4 ..][0..4].* else null,
        .len = len,
    };
}

fn endOf(payload: []const u8, digest: *Digest) void {
    if (payload.len == 0) return digest.close(websocket.close_code_absent, "");
    const code = std.mem.readInt(u16, payload[0..2], .big);
    const allowed = (code >= 1000 and code <= 1003) or (code >= 1007 and code <= 1014) or
        (code >= 3000 and code <= 4999);
    if (!allowed) return digest.fail(1002);
    if (!std.unicode.utf8ValidateSlice(payload[2..])) return digest.fail(1007);
    digest.close(code, payload[2..]);
}

/// Whether `text` is UTF-8, or, if it is not complete, can become so. The target `utf8` sees to
/// the validator itself.
fn isText(text: []const u8, complete: bool) bool {
    if (complete) return std.unicode.utf8ValidateSlice(text);
    var validator: websocket.utf8.Validator = .{};
    return validator.feed(text) == null;
}
