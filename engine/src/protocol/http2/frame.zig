//! Frames (RFC 9113 sections 4, 6 and 7; RFC 9218 section 7): their layout, and faults that do not depend on
//! other frames. Does not know: streams, and the effects of frames on them.
const std = @import("std");
const assert = std.debug.assert;

/// The number of bytes before a frame's payload.
pub const header_bytes = 9;

/// The longest payload that is always allowed, in bytes. DATA frames may be longer, in both directions, if
/// the receiver's settings allow it; other frames that we send are not.
pub const payload_bytes_max = 16_384;

/// The first bytes from a client (RFC 9113 section 3.4).
pub const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Kinds of frames; unknown ones are ignored.
pub const Kind = enum(u8) {
    data = 0x0,
    headers = 0x1,
    priority = 0x2,
    rst_stream = 0x3,
    settings = 0x4,
    push_promise = 0x5,
    ping = 0x6,
    goaway = 0x7,
    window_update = 0x8,
    continuation = 0x9,
    priority_update = 0x10,
    _,
};

/// The reason why a stream or a connection ends (RFC 9113 section 7).
pub const Code = enum(u32) {
    no_error = 0x0,
    protocol_error = 0x1,
    internal_error = 0x2,
    flow_control_error = 0x3,
    settings_timeout = 0x4,
    stream_closed = 0x5,
    frame_size_error = 0x6,
    refused_stream = 0x7,
    cancel = 0x8,
    compression_error = 0x9,
    connect_error = 0xa,
    enhance_your_calm = 0xb,
    inadequate_security = 0xc,
    http_1_1_required = 0xd,
    _,
};

/// The flags of frames; the meaning of a flag depends on the kind of frame.
pub const flag = struct {
    pub const end_stream = 0x1;
    pub const ack = 0x1;
    pub const end_headers = 0x4;
    pub const padded = 0x8;
    pub const priority = 0x20;
};

/// The highest stream number, and the largest window.
pub const max_31 = std.math.maxInt(u31);

/// A rule that a peer has broken. After a connection error no more is read; a stream error ends only its
/// stream (RFC 9113 section 5.4).
pub const Fault = struct {
    scope: enum { stream, connection },
    code: Code,
    /// Static plain text, for the peer's developers and for a log.
    detail: []const u8,

    pub fn connection(code: Code, detail: []const u8) Fault {
        return .{ .scope = .connection, .code = code, .detail = detail };
    }

    pub fn stream(code: Code, detail: []const u8) Fault {
        return .{ .scope = .stream, .code = code, .detail = detail };
    }
};

/// The nine bytes before a payload.
pub const Header = struct {
    /// The length of the payload, in bytes.
    len: u32,
    kind: Kind,
    flags: u8 = 0,
    /// The number of the stream; 0: the connection.
    stream: u32 = 0,

    /// Reads a frame header; the reserved bit is ignored.
    pub inline fn parse(bytes: *const [header_bytes]u8) Header {
        return .{
            .len = std.mem.readInt(u24, bytes[0..3], .big),
            .kind = @fromBackingInt(bytes[3]),
            .flags = bytes[4],
            .stream = std.mem.readInt(u32, bytes[5..9], .big) & max_31,
        };
    }

    pub inline fn write(header: Header, out: *[header_bytes]u8) void {
        assert(header.stream <= max_31);
        std.mem.writeInt(u24, out[0..3], @intCast(header.len), .big);
        out[3] = @backingInt(header.kind);
        out[4] = header.flags;
        std.mem.writeInt(u32, out[5..9], header.stream, .big);
    }

    pub fn has(header: Header, comptime one: u8) bool {
        return header.flags & one != 0;
    }

    /// The fault in a frame header that does not depend on earlier frames; null: none. The payload of DATA
    /// may have `data_bytes_max` bytes. Payloads are checked elsewhere, for each kind of frame.
    pub fn fault(header: Header, data_bytes_max: u32) ?Fault {
        const most = if (header.kind == .data) data_bytes_max else payload_bytes_max;
        // A connection error, because header blocks and settings concern all streams.
        if (header.len > most) return .connection(.frame_size_error, "frame too long");
        switch (header.kind) {
            .data, .headers, .continuation => {
                if (header.stream == 0) return .connection(.protocol_error, "frame on stream 0");
                var least: u32 = 0;
                if (header.kind != .continuation and header.has(flag.padded)) least += 1;
                if (header.kind == .headers and header.has(flag.priority)) least += priority_bytes;
                if (header.len < least) return .connection(.frame_size_error, "frame shorter than its flags");
            },
            .priority => {
                if (header.stream == 0) return .connection(.protocol_error, "PRIORITY on stream 0");
                if (header.len != priority_bytes) {
                    return .stream(.frame_size_error, "PRIORITY of wrong length");
                }
            },
            .rst_stream => {
                if (header.len != 4) return .connection(.frame_size_error, "RST_STREAM of wrong length");
                if (header.stream == 0) return .connection(.protocol_error, "RST_STREAM on stream 0");
            },
            .settings => {
                if (header.stream != 0) return .connection(.protocol_error, "SETTINGS on a stream");
                const wrong = if (header.has(flag.ack)) header.len != 0 else header.len % setting_bytes != 0;
                if (wrong) return .connection(.frame_size_error, "SETTINGS of wrong length");
            },
            .push_promise => return .connection(.protocol_error, "PUSH_PROMISE from a client"),
            .ping => {
                if (header.stream != 0) return .connection(.protocol_error, "PING on a stream");
                if (header.len != ping_bytes) return .connection(.frame_size_error, "PING of wrong length");
            },
            .goaway => {
                if (header.stream != 0) return .connection(.protocol_error, "GOAWAY on a stream");
                if (header.len < goaway_bytes) return .connection(.frame_size_error, "GOAWAY too short");
            },
            .window_update => {
                if (header.len != 4) return .connection(.frame_size_error, "WINDOW_UPDATE of wrong length");
            },
            .priority_update => {
                if (header.stream != 0) return .connection(.protocol_error, "PRIORITY_UPDATE on a stream");
                if (header.len < 4) return .connection(.frame_size_error, "PRIORITY_UPDATE too short");
            },
            _ => {},
        }
        return null;
    }
};

/// The number of bytes in a PING's payload.
pub const ping_bytes = 8;
/// The number of bytes in a GOAWAY's payload before its text.
pub const goaway_bytes = 8;
/// The number of bytes of one setting in a SETTINGS frame.
pub const setting_bytes = 6;
/// The number of bytes of a dependency in HEADERS or PRIORITY.
pub const priority_bytes = 5;

/// Reads a number of 31 bits and ignores the reserved bit before it.
pub inline fn number31(bytes: *const [4]u8) u31 {
    return @truncate(std.mem.readInt(u32, bytes, .big));
}

/// The fault of a stream's dependency (RFC 7540 section 5.3.1), which is otherwise ignored; null: none.
pub fn dependencyFault(stream: u32, bytes: *const [priority_bytes]u8) ?Fault {
    if (number31(bytes[0..4]) != stream) return null;
    return .stream(.protocol_error, "stream depends on itself");
}

/// Returns the payload of HEADERS without dependency and padding.
pub fn fragment(header: Header, payload: []const u8) union(enum) { bytes: []const u8, fault: Fault } {
    assert(header.kind == .headers and payload.len == header.len and header.fault(0) == null);
    var start: usize = 0;
    var padding: usize = 0;
    if (header.has(flag.padded)) {
        padding = payload[0];
        start = 1;
    }
    if (header.has(flag.priority)) start += priority_bytes;
    if (padding > payload.len - start) return .{ .fault = .connection(.protocol_error, too_much_padding) };
    return .{ .bytes = payload[start .. payload.len - padding] };
}

/// The text of the fault of padding that is longer than its frame.
pub const too_much_padding = "padding longer than its frame";

/// Settings (RFC 9113 section 6.5.2, RFC 8441 section 3, RFC 9218 section 2.1); unknown ones are ignored.
pub const Setting = enum(u16) {
    header_table_size = 0x1,
    enable_push = 0x2,
    max_concurrent_streams = 0x3,
    initial_window_size = 0x4,
    max_frame_size = 0x5,
    max_header_list_size = 0x6,
    enable_connect_protocol = 0x8,
    no_rfc7540_priorities = 0x9,
    _,

    /// The fault of the setting's value from a client; null: none.
    pub fn fault(setting: Setting, value: u32) ?Fault {
        switch (setting) {
            .enable_push, .enable_connect_protocol, .no_rfc7540_priorities => if (value > 1) {
                return .connection(.protocol_error, "setting is neither 0 nor 1");
            },
            .initial_window_size => if (value > max_31) {
                return .connection(.flow_control_error, "initial window too large");
            },
            .max_frame_size => if (value < payload_bytes_max or value > std.math.maxInt(u24)) {
                return .connection(.protocol_error, "maximum frame size out of range");
            },
            else => {},
        }
        return null;
    }
};

pub const SettingValue = struct {
    setting: Setting,
    value: u32,

    pub fn parse(bytes: *const [setting_bytes]u8) SettingValue {
        return .{
            .setting = @fromBackingInt(std.mem.readInt(u16, bytes[0..2], .big)),
            .value = std.mem.readInt(u32, bytes[2..6], .big),
        };
    }

    pub fn write(pair: SettingValue, out: *[setting_bytes]u8) void {
        std.mem.writeInt(u16, out[0..2], @backingInt(pair.setting), .big);
        std.mem.writeInt(u32, out[2..6], pair.value, .big);
    }
};

const testing = std.testing;

test "headers survive" {
    for ([_]Header{
        .{ .len = 0, .kind = .data },
        .{ .len = 0xffffff, .kind = .continuation, .flags = 0xff, .stream = max_31 },
        .{ .len = 0x010203, .kind = @fromBackingInt(0xfe), .flags = 0x55, .stream = 0x01020304 },
    }) |header| {
        var bytes: [header_bytes]u8 = undefined;
        header.write(&bytes);
        try testing.expectEqual(header, Header.parse(&bytes));
        bytes[5] |= 0x80;
        try testing.expectEqual(header, Header.parse(&bytes));
    }
}

test "frame headers that break the rules are refused" {
    const ok: ?Code = null;
    const size: ?Code = .frame_size_error;
    const rule: ?Code = .protocol_error;
    for ([_]struct { ?Code, Header }{
        .{ ok, .{ .len = payload_bytes_max, .kind = .data, .stream = 1 } },
        .{ size, .{ .len = payload_bytes_max + 1, .kind = .data, .stream = 1 } },
        .{ size, .{ .len = payload_bytes_max + 1, .kind = @fromBackingInt(0x77) } },
        .{ ok, .{ .len = 3, .kind = @fromBackingInt(0x77), .flags = 0xff, .stream = 8 } },
        .{ rule, .{ .len = 1, .kind = .data } },
        .{ size, .{ .len = 0, .kind = .data, .flags = flag.padded, .stream = 1 } },
        .{ ok, .{ .len = 1, .kind = .data, .flags = flag.padded, .stream = 1 } },
        .{ rule, .{ .len = 1, .kind = .headers } },
        .{ size, .{ .len = 5, .kind = .headers, .flags = flag.padded | flag.priority, .stream = 1 } },
        .{ ok, .{ .len = 6, .kind = .headers, .flags = flag.padded | flag.priority, .stream = 1 } },
        .{ size, .{ .len = 4, .kind = .headers, .flags = flag.priority, .stream = 1 } },
        .{ rule, .{ .len = 5, .kind = .priority } },
        .{ size, .{ .len = 4, .kind = .priority, .stream = 1 } },
        .{ ok, .{ .len = 5, .kind = .priority, .stream = 1 } },
        .{ rule, .{ .len = 4, .kind = .rst_stream } },
        .{ size, .{ .len = 5, .kind = .rst_stream, .stream = 1 } },
        .{ ok, .{ .len = 4, .kind = .rst_stream, .stream = 1 } },
        .{ rule, .{ .len = 6, .kind = .settings, .stream = 1 } },
        .{ size, .{ .len = 7, .kind = .settings } },
        .{ size, .{ .len = 6, .kind = .settings, .flags = flag.ack } },
        .{ ok, .{ .len = 0, .kind = .settings, .flags = flag.ack } },
        .{ ok, .{ .len = 12, .kind = .settings } },
        .{ rule, .{ .len = 4, .kind = .push_promise, .stream = 1 } },
        .{ rule, .{ .len = 8, .kind = .ping, .stream = 1 } },
        .{ size, .{ .len = 7, .kind = .ping } },
        .{ ok, .{ .len = 8, .kind = .ping } },
        .{ rule, .{ .len = 8, .kind = .goaway, .stream = 1 } },
        .{ size, .{ .len = 7, .kind = .goaway } },
        .{ ok, .{ .len = 9, .kind = .goaway } },
        .{ size, .{ .len = 3, .kind = .window_update, .stream = 1 } },
        .{ ok, .{ .len = 4, .kind = .window_update } },
        .{ rule, .{ .len = 0, .kind = .continuation } },
        .{ ok, .{ .len = 0, .kind = .continuation, .flags = 0xff, .stream = 1 } },
        .{ rule, .{ .len = 4, .kind = .priority_update, .stream = 1 } },
        .{ size, .{ .len = 3, .kind = .priority_update } },
        .{ ok, .{ .len = 4, .kind = .priority_update } },
    }) |case| {
        const expected, const header = case;
        errdefer std.debug.print("{any}\n", .{header});
        const fault = header.fault(payload_bytes_max);
        try testing.expectEqual(expected, if (fault) |one| one.code else null);
        // A wrong dependency is a stream error, all other faults are connection errors.
        if (fault) |one| try testing.expectEqual(
            header.kind == .priority and header.stream != 0,
            one.scope == .stream,
        );
    }
}

test "only DATA may be longer than everybody's frames" {
    for ([_]Kind{ .data, .headers, .continuation, @fromBackingInt(0x77) }) |kind| {
        const header: Header = .{ .len = payload_bytes_max + 1, .kind = kind, .stream = 1 };
        try testing.expectEqual(kind == .data, header.fault(payload_bytes_max + 1) == null);
    }
}

test "fragments of header blocks" {
    for ([_]struct { u8, []const u8, ?[]const u8 }{
        .{ 0, "block", "block" },
        .{ 0, "", "" },
        .{ flag.padded, "\x02blockPP", "block" },
        .{ flag.padded, "\x05PPPPP", "" },
        .{ flag.padded, "\x06PPPPP", null },
        .{ flag.priority, "\x80\x00\x00\x09\x10block", "block" },
        .{ flag.padded | flag.priority, "\x01\x80\x00\x00\x09\x10blockP", "block" },
        .{ flag.padded | flag.priority, "\x01\x80\x00\x00\x09\x10", null },
    }) |case| {
        const flags, const payload, const expected = case;
        const header: Header = .{
            .len = @intCast(payload.len),
            .kind = .headers,
            .flags = flags,
            .stream = 1,
        };
        switch (fragment(header, payload)) {
            .bytes => |bytes| try testing.expectEqualStrings(expected.?, bytes),
            .fault => |fault| {
                try testing.expectEqual(null, expected);
                try testing.expectEqual(Code.protocol_error, fault.code);
            },
        }
    }
}

test "settings and their ranges" {
    for ([_]struct { Setting, u32, ?Code }{
        .{ .header_table_size, std.math.maxInt(u32), null },
        .{ .enable_push, 1, null },
        .{ .enable_push, 2, .protocol_error },
        .{ .max_concurrent_streams, 0, null },
        .{ .initial_window_size, max_31, null },
        .{ .initial_window_size, max_31 + 1, .flow_control_error },
        .{ .max_frame_size, payload_bytes_max - 1, .protocol_error },
        .{ .max_frame_size, payload_bytes_max, null },
        .{ .max_frame_size, 0xffffff, null },
        .{ .max_frame_size, 0x1000000, .protocol_error },
        .{ .enable_connect_protocol, 2, .protocol_error },
        .{ .no_rfc7540_priorities, 2, .protocol_error },
        .{ @fromBackingInt(0x7777), 99, null },
    }) |case| {
        const setting, const value, const expected = case;
        var bytes: [setting_bytes]u8 = undefined;
        const pair: SettingValue = .{ .setting = setting, .value = value };
        pair.write(&bytes);
        try testing.expectEqual(pair, SettingValue.parse(&bytes));
        const fault = setting.fault(value);
        try testing.expectEqual(expected, if (fault) |one| one.code else null);
    }
    try testing.expect(dependencyFault(5, "\x80\x00\x00\x05\xff") != null);
    try testing.expect(dependencyFault(5, "\x00\x00\x00\x03\xff") == null);
}
