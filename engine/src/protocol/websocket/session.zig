//! The state machine of a WebSocket: unread bytes in, at most one event out; commands in, frame bytes out
//! (RFC 6455 sections 5 to 8). Does not know: sockets, time, the maker of messages, joining the pieces of a
//! message, and compression except its header bit. A session keeps no payload except that of a control frame,
//! so an idle WebSocket needs only the size of `Session` (less than 320 bytes).
const std = @import("std");
const assert = std.debug.assert;

pub const handshake = @import("handshake.zig");
pub const frame = @import("frame.zig");
pub const utf8 = @import("utf8.zig");
pub const deflate = @import("deflate.zig");

/// The end of the connection that the session has. A client masks its frames and refuses masked ones; a
/// server does the opposite.
pub const Role = enum { server, client };

/// The type of a message.
pub const Kind = enum { text, binary };

/// Limits for the peer. 0: no limit.
pub const Limits = struct {
    /// The payload of one frame, in bytes.
    frame_bytes_max: u64,
    /// The payload of all frames of a message, in bytes. For a compressed message the limit applies to its
    /// inflated size (`deflate.Inflater`); here its compressed bytes are limited to the size that a message
    /// within the limit may need.
    message_bytes_max: u64,
};

/// Facts that are known at the end of the handshake.
pub const Options = struct {
    role: Role = .server,
    limits: Limits,
    /// permessage-deflate was agreed, so RSV1 may mark a message as compressed.
    deflate: bool = false,
};

/// An event that the session found in the peer's bytes.
pub const Event = union(enum) {
    /// All bytes are consumed; more are needed.
    need_more,
    data: Data,
    /// A whole ping, whose payload must be sent back by `encodePong`. Valid until the next `feed`.
    ping: []const u8,
    /// A whole pong, solicited or not. Valid until the next `feed`.
    pong: []const u8,
    /// The peer closes. No more is read. A close frame must be sent in return (`encodeClose`), unless
    /// `closeSent`.
    close: Close,
    /// The peer broke a rule. No more is read. A close frame must be sent (`encodeClose`), unless
    /// `closeSent`, before the connection is closed.
    failed: Failure,
};

/// A piece of a message, unmasked. The pieces of a message come in order; control frames may come between
/// them.
pub const Data = struct {
    /// A part of the fed bytes, valid as long as they are. Empty only if `last`.
    bytes: []u8,
    kind: Kind,
    /// The message must be inflated (`deflate.Inflater`). Its text was not checked, so the inflated text must
    /// be checked by a `utf8.Validator`.
    compressed: bool,
    /// The first piece of its message.
    first: bool,
    /// The last piece of its message.
    last: bool,
};

/// The content of a close frame.
pub const Close = struct {
    /// The close code; `close_code_absent`: none.
    code: u16,
    /// Valid UTF-8, at most 123 bytes, valid until the next `feed`.
    reason: []const u8,
};

/// The reason why a connection must fail (RFC 6455 section 7.1.7).
pub const Failure = struct {
    /// 1002, 1007 or 1009.
    code: u16,
    /// Static text for a close frame.
    reason: []const u8,
};

/// The result of one call of `feed`.
pub const Step = struct {
    /// The number of leading bytes that were read. All of them for the events `need_more`, `close` and
    /// `failed`.
    consumed: usize,
    event: Event,
};

/// Stands for "no code" (RFC 6455 section 7.4.1). Never sent.
pub const close_code_absent = 1005;
/// The maximum length of a close frame's reason, in bytes.
pub const close_reason_bytes_max = frame.control_payload_bytes_max - 2;

/// Whether a close frame may have `code` (RFC 6455 section 7.4 and the IANA registry).
pub fn closeCodeValid(code: u16) bool {
    return switch (code) {
        1000...1003, 1007...1014, 3000...4999 => true,
        else => false,
    };
}

/// The progress of the closing handshake.
pub const Closing = union(enum) {
    open,
    /// We have sent a close frame and wait for the peer's.
    sent,
    /// The peer has sent a close frame, and ours must follow.
    received,
    /// Both close frames were sent, so a server closes the connection. The value is the side whose frame came
    /// first.
    complete: enum { us, peer },
};

/// The part of a frame to which the next byte of input belongs.
const Input = union(enum) {
    /// A frame header; this many bytes of it are in `header_buffer`.
    header: u8,
    payload: Payload,
    control: Control,
    /// The input has ended with a close frame or a failure.
    ended,
};

const Payload = struct {
    left: u64,
    /// The number of bytes of this payload that were read: the phase of the masking key.
    offset: u64 = 0,
    mask: ?frame.MaskKey,
    fin: bool,
};

const Control = struct {
    opcode: enum { close, ping, pong },
    len: u8,
    /// The number of bytes of the payload in `control_buffer`.
    got: u8 = 0,
    mask: ?frame.MaskKey,
};

/// A message that has begun and not ended.
const Message = struct {
    kind: Kind,
    compressed: bool,
    /// No piece of the message was delivered yet.
    untouched: bool = true,
    /// The number of bytes of payload that frame headers have announced so far.
    bytes: u64 = 0,
    /// The check of an uncompressed text message, over its pieces.
    validator: utf8.Validator = .{},
};

const protocol_error = 1002;
const invalid_data = 1007;
const too_big = 1009;

/// The state of one WebSocket. No deinit: it owns nothing.
pub const Session = struct {
    role: Role,
    limits: Limits,
    deflate: bool,
    input: Input = .{ .header = 0 },
    message: ?Message = null,
    /// The kind of our message that was begun and not ended; null: none.
    sending: ?Kind = null,
    closing: Closing = .open,
    header_buffer: [frame.header_bytes_max]u8 = undefined,
    control_buffer: [frame.control_payload_bytes_max]u8 = undefined,

    pub fn init(options: Options) Session {
        const unlimited = std.math.maxInt(u64);
        const limits = options.limits;
        return .{
            .role = options.role,
            .deflate = options.deflate,
            .limits = .{
                .frame_bytes_max = if (limits.frame_bytes_max == 0) unlimited else limits.frame_bytes_max,
                .message_bytes_max = if (limits.message_bytes_max == 0)
                    unlimited
                else
                    limits.message_bytes_max,
            },
        };
    }

    /// Asserts the invariants of the session.
    pub fn invariants(s: *const Session) void {
        switch (s.input) {
            .header => |got| assert(got < frame.header_bytes_max),
            .payload => |p| assert(p.left > 0 and s.message != null),
            .control => |c| assert(c.got < c.len and c.len <= frame.control_payload_bytes_max),
            .ended => {},
        }
        switch (s.closing) {
            .received => assert(s.input == .ended),
            .complete => assert(s.input == .ended and s.sending == null),
            .sent => assert(s.sending == null),
            .open => {},
        }
    }

    /// Reads from the unread bytes, and unmasks them in place. Must be called again with the rest until it
    /// returns `need_more`.
    pub fn feed(s: *Session, bytes: []u8) Step {
        s.invariants();
        defer s.invariants();
        var at: usize = 0;
        while (true) {
            const event: ?Event = switch (s.input) {
                .header => s.feedHeader(bytes, &at),
                .payload => s.feedPayload(bytes, &at),
                .control => s.feedControl(bytes, &at),
                .ended => .need_more,
            };
            const seen = event orelse continue;
            const consumed = if (s.input == .ended) bytes.len else at;
            assert(seen != .need_more or consumed == bytes.len);
            return .{ .consumed = consumed, .event = seen };
        }
    }

    /// Whether a close frame of ours was encoded. After that nothing may be sent.
    pub fn closeSent(s: *const Session) bool {
        return s.closing == .sent or s.closing == .complete;
    }

    /// Whether the peer's close frame was read.
    pub fn closeReceived(s: *const Session) bool {
        return s.closing == .received or s.closing == .complete;
    }

    /// Reads the bytes of a frame header. Null: a frame has begun, and its payload follows.
    fn feedHeader(s: *Session, bytes: []const u8, at: *usize) ?Event {
        const kept = s.input.header;
        const rest = bytes[at.*..];
        // Usually the whole header is in the input; otherwise it is collected byte by byte.
        const from_input = kept == 0 and rest.len >= 2;
        if (from_input) switch (frame.decode(rest)) {
            .need => {},
            else => |decoded| {
                if (decoded == .header) at.* += decoded.header.bytes;
                return s.beginFrame(decoded);
            },
        };
        var got = kept;
        while (at.* < bytes.len) {
            s.header_buffer[got] = bytes[at.*];
            got += 1;
            at.* += 1;
            const decoded = frame.decode(s.header_buffer[0..got]);
            if (decoded != .need) return s.beginFrame(decoded);
        }
        s.input = .{ .header = got };
        return .need_more;
    }

    fn beginFrame(s: *Session, decoded: frame.Decoded) ?Event {
        const header = switch (decoded) {
            .need => unreachable, // the caller would have asked for more bytes
            .header => |h| h.value,
            .length_not_minimal => return s.fail(protocol_error, "frame length not in its shortest form"),
            .length_too_big => return s.fail(protocol_error, "frame length past 2^63"),
        };
        if (header.rsv2 or header.rsv3) return s.fail(protocol_error, "reserved bit set");
        if (header.opcode.isReserved()) return s.fail(protocol_error, "reserved opcode");
        if ((header.mask != null) != (s.role == .server)) {
            return s.fail(protocol_error, if (s.role == .server) "frame not masked" else "frame masked");
        }
        return if (header.opcode.isControl()) s.beginControl(header) else s.beginData(header);
    }

    fn beginControl(s: *Session, header: frame.Header) ?Event {
        if (header.rsv1) return s.fail(protocol_error, "reserved bit set on a control frame");
        if (!header.fin) return s.fail(protocol_error, "control frame fragmented");
        if (header.payload_len > frame.control_payload_bytes_max) {
            return s.fail(protocol_error, "control frame too long");
        }
        const control: Control = .{
            .opcode = switch (header.opcode) {
                .close => .close,
                .ping => .ping,
                .pong => .pong,
                else => unreachable, // isControl and not isReserved
            },
            .len = @intCast(header.payload_len),
            .mask = header.mask,
        };
        if (control.opcode == .close and control.len == 1) {
            return s.fail(protocol_error, "close code cut short");
        }
        s.input = .{ .control = control };
        return null;
    }

    fn beginData(s: *Session, header: frame.Header) ?Event {
        if (s.message == null) {
            if (header.opcode == .continuation) return s.fail(protocol_error, "nothing to continue");
            if (header.rsv1 and !s.deflate) return s.fail(protocol_error, "reserved bit set");
            s.message = .{
                .kind = if (header.opcode == .text) .text else .binary,
                .compressed = header.rsv1,
            };
        } else {
            if (header.opcode != .continuation) return s.fail(protocol_error, "message within a message");
            if (header.rsv1) return s.fail(protocol_error, "reserved bit set on a continuation");
        }
        const message = &s.message.?;
        if (header.payload_len > s.limits.frame_bytes_max) return s.fail(too_big, "frame too big");
        const limit = s.limits.message_bytes_max;
        const wire_limit = if (message.compressed) limit +| (limit / 8 + compressed_slack_bytes) else limit;
        message.bytes +|= header.payload_len;
        if (message.bytes > wire_limit) return s.fail(too_big, "message too big");
        const payload: Payload = .{ .left = header.payload_len, .mask = header.mask, .fin = header.fin };
        if (payload.left == 0) return s.endPayload(payload, &.{});
        s.input = .{ .payload = payload };
        return null;
    }

    /// Compression may enlarge incompressible data, and a sender may flush after each small piece (5 bytes
    /// each time).
    const compressed_slack_bytes = 1024;

    fn feedPayload(s: *Session, bytes: []u8, at: *usize) ?Event {
        const payload = &s.input.payload;
        const len: usize = @intCast(@min(payload.left, bytes.len - at.*));
        if (len == 0) return .need_more;
        const piece = bytes[at.*..][0..len];
        if (payload.mask) |key| frame.mask(piece, key, payload.offset);
        at.* += len;
        payload.offset += len;
        payload.left -= len;
        return s.endPayload(payload.*, piece);
    }

    /// Returns a piece after checking its text; ends the frame and the message at their last bytes. Null: an
    /// empty fragment.
    fn endPayload(s: *Session, payload: Payload, piece: []u8) ?Event {
        const message = &s.message.?;
        const last = payload.fin and payload.left == 0;
        if (message.kind == .text and !message.compressed) {
            if (message.validator.feed(piece) != null) return s.fail(invalid_data, "text is not UTF-8");
            if (last and !message.validator.complete()) {
                return s.fail(invalid_data, "text ends within a character");
            }
        }
        if (payload.left == 0) s.input = .{ .header = 0 };
        if (piece.len == 0 and !last) return null;
        const data: Data = .{
            .bytes = piece,
            .kind = message.kind,
            .compressed = message.compressed,
            .first = message.untouched,
            .last = last,
        };
        message.untouched = false;
        if (last) s.message = null;
        return .{ .data = data };
    }

    fn feedControl(s: *Session, bytes: []const u8, at: *usize) ?Event {
        const control = &s.input.control;
        const len: u8 = @intCast(@min(control.len - control.got, bytes.len - at.*));
        @memcpy(s.control_buffer[control.got..][0..len], bytes[at.*..][0..len]);
        at.* += len;
        control.got += len;
        if (control.got < control.len) return .need_more;
        return s.endControl(control.*);
    }

    fn endControl(s: *Session, control: Control) ?Event {
        assert(control.got == control.len);
        const payload = s.control_buffer[0..control.len];
        if (control.mask) |key| frame.mask(payload, key, 0);
        s.input = .{ .header = 0 };
        return switch (control.opcode) {
            .ping => .{ .ping = payload },
            .pong => .{ .pong = payload },
            .close => s.endClose(payload),
        };
    }

    fn endClose(s: *Session, payload: []const u8) Event {
        assert(payload.len != 1);
        var close: Close = .{ .code = close_code_absent, .reason = "" };
        if (payload.len > 0) {
            close = .{ .code = std.mem.readInt(u16, payload[0..2], .big), .reason = payload[2..] };
            if (!closeCodeValid(close.code)) return s.fail(protocol_error, "close code not allowed");
            if (!utf8.valid(close.reason)) return s.fail(invalid_data, "close reason is not UTF-8");
        }
        s.input = .ended;
        s.closing = switch (s.closing) {
            .open => .received,
            .sent => .{ .complete = .us },
            .received, .complete => unreachable, // the input of the session has ended before
        };
        return .{ .close = close };
    }

    /// Refuses the last message: it does not inflate, or not to text. Afterwards the session is in the same
    /// state as after `failed`.
    pub fn refuse(s: *Session, code: u16, reason: []const u8) Failure {
        return s.fail(code, reason).failed;
    }

    fn fail(s: *Session, code: u16, reason: []const u8) Event {
        assert(closeCodeValid(code) and reason.len <= close_reason_bytes_max);
        s.input = .ended;
        s.message = null;
        return .{ .failed = .{ .code = code, .reason = reason } };
    }

    /// A piece of an outgoing message: one frame.
    pub const Piece = struct {
        /// The kind of the message, equal for all of its pieces.
        kind: Kind,
        len: u64,
        /// The payload of the message was compressed by `deflate.Deflater`. Used only in the first piece.
        compressed: bool = false,
        /// The last piece of the message.
        fin: bool = true,
    };

    /// Writes the header of a data frame, after which the caller sends `piece.len` bytes of payload; returns
    /// the number of bytes in `out`. `mask`: null for a server; a client must mask the payload itself
    /// (`frame.mask`). Must not be called after `closeSent`; after `closeReceived` it may be called until our
    /// close frame is sent (RFC 6455 section 5.5.1).
    pub fn encodeHeader(
        s: *Session,
        piece: Piece,
        mask: ?frame.MaskKey,
        out: *[frame.header_bytes_max]u8,
    ) u8 {
        assert(!s.closeSent());
        assert((mask != null) == (s.role == .client));
        if (s.sending) |kind| assert(kind == piece.kind);
        assert(!piece.compressed or s.deflate);
        const opcode: frame.Opcode = if (s.sending != null) .continuation else switch (piece.kind) {
            .text => .text,
            .binary => .binary,
        };
        const rsv1 = piece.compressed and s.sending == null;
        s.sending = if (piece.fin) null else piece.kind;
        return frame.encode(
            .{ .fin = piece.fin, .rsv1 = rsv1, .opcode = opcode, .mask = mask, .payload_len = piece.len },
            out,
        );
    }

    /// Writes a ping with at most 125 bytes of payload. Must not be called after `closeSent`.
    pub fn encodePing(
        s: *Session,
        payload: []const u8,
        mask: ?frame.MaskKey,
        out: *[frame.control_bytes_max]u8,
    ) u8 {
        assert(!s.closeSent());
        return s.encodeControl(.ping, payload, mask, out);
    }

    /// Writes a pong with at most 125 bytes of payload. Must not be called after `closeSent`.
    pub fn encodePong(
        s: *Session,
        payload: []const u8,
        mask: ?frame.MaskKey,
        out: *[frame.control_bytes_max]u8,
    ) u8 {
        assert(!s.closeSent());
        return s.encodeControl(.pong, payload, mask, out);
    }

    /// Reasons why an application's close frame is refused.
    pub const CloseError = error{
        CodeNotAllowed,
        ReasonTooLong,
        ReasonNotUtf8,
        ReasonWithoutCode,
        AlreadyClosed,
    };

    /// Writes a close frame and records that it was sent. `close_code_absent`: it has no code, and must have
    /// no reason. Also for use after `failed` and `close`; an unfinished message of ours is cut short. After
    /// an error nothing has changed.
    pub fn encodeClose(
        s: *Session,
        code: u16,
        reason: []const u8,
        mask: ?frame.MaskKey,
        out: *[frame.control_bytes_max]u8,
    ) CloseError!u8 {
        if (s.closeSent()) return error.AlreadyClosed;
        try checkClose(code, reason);
        var payload: [frame.control_payload_bytes_max]u8 = undefined;
        var len: usize = 0;
        if (code != close_code_absent) {
            std.mem.writeInt(u16, payload[0..2], code, .big);
            @memcpy(payload[2..][0..reason.len], reason);
            len = 2 + reason.len;
        }
        s.sending = null;
        s.closing = if (s.closing == .received) .{ .complete = .peer } else .sent;
        return s.encodeControl(.close, payload[0..len], mask, out);
    }

    /// Checks the code and the reason of a close frame that is to be sent.
    pub fn checkClose(code: u16, reason: []const u8) CloseError!void {
        if (code == close_code_absent) return if (reason.len > 0) error.ReasonWithoutCode;
        if (!closeCodeValid(code)) return error.CodeNotAllowed;
        if (reason.len > close_reason_bytes_max) return error.ReasonTooLong;
        if (!utf8.valid(reason)) return error.ReasonNotUtf8;
    }

    fn encodeControl(
        s: *const Session,
        opcode: frame.Opcode,
        payload: []const u8,
        mask: ?frame.MaskKey,
        out: *[frame.control_bytes_max]u8,
    ) u8 {
        assert(payload.len <= frame.control_payload_bytes_max);
        assert((mask != null) == (s.role == .client));
        const header: frame.Header = .{
            .fin = true,
            .opcode = opcode,
            .mask = mask,
            .payload_len = payload.len,
        };
        const at = frame.encode(header, out[0..frame.header_bytes_max]);
        const body = out[at..][0..payload.len];
        @memcpy(body, payload);
        if (mask) |key| frame.mask(body, key, 0);
        return at + @as(u8, @intCast(payload.len));
    }
};

const testing = std.testing;

test {
    testing.refAllDecls(@This());
}

const test_key: frame.MaskKey = .{ 0x11, 0x22, 0x33, 0x44 };

fn testSession(options: struct {
    role: Role = .server,
    frame_max: u64 = 0,
    message_max: u64 = 0,
    deflate: bool = false,
}) Session {
    return .init(.{
        .role = options.role,
        .limits = .{ .frame_bytes_max = options.frame_max, .message_bytes_max = options.message_max },
        .deflate = options.deflate,
    });
}

fn expectFailure(code: u16, s: *Session, bytes: []const u8) !void {
    var copy: [64]u8 = undefined;
    @memcpy(copy[0..bytes.len], bytes);
    const step = s.feed(copy[0..bytes.len]);
    try testing.expectEqual(code, step.event.failed.code);
    try testing.expectEqual(bytes.len, step.consumed);
    try testing.expectEqual(.need_more, s.feed(copy[0..1]).event);
}

test "a session stays small" {
    try testing.expect(@sizeOf(Session) <= 320);
}

test "the examples of RFC 6455 section 5.7" {
    var client = testSession(.{ .role = .client });
    var hello = "\x81\x05Hello".*;
    const data = client.feed(&hello).event.data;
    try testing.expectEqualStrings("Hello", data.bytes);
    try testing.expect(data.kind == .text and data.first and data.last and !data.compressed);

    var server = testSession(.{});
    var masked = "\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58".*;
    const step = server.feed(&masked);
    try testing.expectEqual(masked.len, step.consumed);
    try testing.expectEqualStrings("Hello", step.event.data.bytes);

    var parts = "\x01\x03Hel\x89\x05Hello\x80\x02lo".*;
    const first = client.feed(&parts);
    try testing.expect(first.event.data.first and !first.event.data.last);
    const ping = client.feed(parts[first.consumed..]);
    try testing.expectEqualStrings("Hello", ping.event.ping);
    const second = client.feed(parts[first.consumed + ping.consumed ..]);
    try testing.expectEqualStrings("lo", second.event.data.bytes);
    try testing.expect(!second.event.data.first and second.event.data.last);
}

test "frames that a session writes are read by its opposite" {
    var server = testSession(.{ .deflate = true });
    var client = testSession(.{ .role = .client, .deflate = true });
    var out: [frame.control_bytes_max]u8 = undefined;
    var len = client.encodePing("are you there", test_key, &out);
    try testing.expectEqualStrings("are you there", server.feed(out[0..len]).event.ping);
    len = server.encodePong("are you there", null, &out);
    try testing.expectEqualStrings("are you there", client.feed(out[0..len]).event.pong);

    len = server.encodeHeader(
        .{ .kind = .binary, .len = 1, .compressed = true, .fin = false },
        null,
        out[0..14],
    );
    try testing.expectEqualStrings("\x42\x01", out[0..len]);
    len = server.encodeHeader(.{ .kind = .binary, .len = 300, .compressed = true }, null, out[0..14]);
    try testing.expectEqualStrings("\x80\x7e\x01\x2c", out[0..len]);
    len = server.encodeHeader(.{ .kind = .text, .len = 0 }, null, out[0..14]);
    try testing.expectEqualStrings("\x81\x00", out[0..len]);

    len = try client.encodeClose(1001, "bye", test_key, &out);
    try testing.expect(client.closeSent() and !client.closeReceived());
    const close = server.feed(out[0..len]).event.close;
    try testing.expectEqual(1001, close.code);
    try testing.expectEqualStrings("bye", close.reason);
    try testing.expectEqual(.received, server.closing);
    try testing.expect(server.closeReceived() and !server.closeSent());
    len = try server.encodeClose(close.code, "", null, &out);
    try testing.expectEqual(Closing{ .complete = .peer }, server.closing);
    try testing.expectEqual(1001, client.feed(out[0..len]).event.close.code);
    try testing.expectEqual(Closing{ .complete = .us }, client.closing);
    try testing.expectError(error.AlreadyClosed, server.encodeClose(1000, "", null, &out));
}

test "close frames that an application must not send" {
    var s = testSession(.{});
    var out: [frame.control_bytes_max]u8 = undefined;
    const long: [close_reason_bytes_max + 1]u8 = @splat('x');
    for ([_]u16{ 0, 999, 1004, 1006, 1015, 1016, 2999, 5000, 65535 }) |code| {
        try testing.expectError(error.CodeNotAllowed, s.encodeClose(code, "", null, &out));
    }
    try testing.expectError(error.ReasonTooLong, s.encodeClose(1000, &long, null, &out));
    try testing.expectError(error.ReasonNotUtf8, s.encodeClose(1000, "\xff", null, &out));
    try testing.expectError(error.ReasonWithoutCode, s.encodeClose(close_code_absent, "x", null, &out));
    try testing.expectEqual(.open, s.closing);
    try testing.expectEqual(4 + 123, try s.encodeClose(4999, long[1..], null, &out));
    s = testSession(.{});
    try testing.expectEqualStrings("\x88\x00", out[0..try s.encodeClose(close_code_absent, "", null, &out)]);
}

test "a client that does not mask is told so" {
    var server = testSession(.{});
    var plain = "\x81\x00".*;
    try testing.expectEqualStrings("frame not masked", server.feed(&plain).event.failed.reason);
    var client = testSession(.{ .role = .client });
    var masked = "\x81\x80\x00\x00\x00\x00".*;
    try testing.expectEqualStrings("frame masked", client.feed(&masked).event.failed.reason);
}

test "limits are known from the header, before any payload" {
    var s = testSession(.{ .frame_max = 10 });
    try expectFailure(1009, &s, "\x82\x8b\x11\x22\x33\x44");
    s = testSession(.{ .message_max = 3 });
    try expectFailure(1009, &s, "\x82\x84\x11\x22\x33\x44");
    s = testSession(.{ .message_max = 3 });
    var two = "\x02\x82\x00\x00\x00\x00ab".*;
    try testing.expectEqualStrings("ab", s.feed(&two).event.data.bytes);
    try expectFailure(1009, &s, "\x80\x82\x00\x00\x00\x00");
    s = testSession(.{ .message_max = 1000, .deflate = true });
    try expectFailure(1009, &s, "\xc2\xfe\x10\x00\x00\x00\x00\x00");
}

test "messages of just the size of a limit pass" {
    var s = testSession(.{ .frame_max = 2, .message_max = 3 });
    var parts = "\x02\x82\x00\x00\x00\x00ab\x80\x81\x00\x00\x00\x00c".*;
    const first = s.feed(&parts);
    try testing.expectEqualStrings("ab", first.event.data.bytes);
    const second = s.feed(parts[first.consumed..]).event.data;
    try testing.expectEqualStrings("c", second.bytes);
    try testing.expect(second.last);
    // The length of the next message is counted from zero.
    try testing.expectEqualStrings("ab", s.feed(parts[0..first.consumed]).event.data.bytes);
}

test "a compressed message may be an eighth and 1024 bytes longer on the wire than its limit, and no more" {
    for ([_]struct { []const u8, bool }{ .{ "\x08\x65", true }, .{ "\x08\x66", false } }) |case| {
        const length, const passes = case;
        var s = testSession(.{ .message_max = 1000, .deflate = true });
        var head = "\xc2\xfe..\x00\x00\x00\x00".*;
        head[2..4].* = length[0..2].*;
        const step = s.feed(&head);
        if (passes) {
            try testing.expectEqual(.need_more, step.event);
        } else try testing.expectEqualStrings("message too big", step.event.failed.reason);
    }
}

test "control frames: 125 bytes pass in any pieces, what is longer or a close code of one byte does not" {
    for ([_]u8{ 0x89, 0x8a }) |first| for ([_]usize{ 1, 7, 125, 131 }) |piece| {
        var s = testSession(.{});
        var bytes: [frame.control_bytes_max]u8 = @splat('x');
        bytes[0..6].* = .{ first, 0x80 | 125, 0, 0, 0, 0 };
        var rest: []u8 = &bytes;
        while (rest.len > piece) {
            try testing.expectEqual(.need_more, s.feed(rest[0..piece]).event);
            rest = rest[piece..];
        }
        const payload: []const u8 = switch (s.feed(rest).event) {
            .ping => |payload| if (first == 0x89) payload else return error.TestUnexpectedResult,
            .pong => |payload| if (first == 0x8a) payload else return error.TestUnexpectedResult,
            else => return error.TestUnexpectedResult,
        };
        try testing.expectEqualStrings(&@as([125]u8, @splat('x')), payload);
    };
    var s = testSession(.{});
    try expectFailure(1002, &s, "\x89\xfe\x00\x7e\x00\x00\x00\x00");
    s = testSession(.{});
    try expectFailure(1002, &s, "\x88\x81\x00\x00\x00\x00\x00");
    s = testSession(.{});
    try expectFailure(1002, &s, "\x09\x80\x00\x00\x00\x00");
}

test "bytes after a close frame are not read" {
    var s = testSession(.{});
    var bytes = "\x88\x80\x00\x00\x00\x00\x89\x80\x00\x00\x00\x00".*;
    const step = s.feed(&bytes);
    try testing.expectEqual(close_code_absent, step.event.close.code);
    try testing.expectEqual(bytes.len, step.consumed);
    try testing.expectEqual(.need_more, s.feed(&bytes).event);
}

test "random bytes never trip a session" {
    var random = std.Random.DefaultPrng.init(0xf2a3e);
    var bytes: [64]u8 = undefined;
    for (0..60_000) |round| {
        var s = testSession(.{
            .role = if (round % 5 == 0) .client else .server,
            .frame_max = if (round % 3 == 0) 40 else 0,
            .message_max = if (round % 7 == 0) 90 else 0,
            .deflate = round % 2 == 0,
        });
        for (0..4) |_| {
            random.random().bytes(&bytes);
            // Mostly plausible first bytes, so that deep states are reached.
            if (round % 4 != 0) {
                bytes[0] = ([_]u8{
                    0x81, 0x01, 0x80, 0x00, 0x89, 0x88, 0xC1, 0x82,
                })[random.random().uintLessThan(usize, 8)];
            }
            if (round % 4 != 0) bytes[1] = 0x80 | random.random().uintLessThan(u8, 60);
            var rest: []u8 = bytes[0..random.random().uintAtMost(usize, bytes.len)];
            while (true) {
                const step = s.feed(rest);
                rest = rest[step.consumed..];
                if (step.event == .need_more) break;
            }
            try testing.expectEqual(0, rest.len);
        }
    }
}
