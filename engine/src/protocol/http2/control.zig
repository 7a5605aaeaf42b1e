//! Frames that a session must send by itself, until they are taken: settings, acknowledgements, credit,
//! resets. Small and of fixed size, so the owner must take them before it feeds more bytes. Does not know:
//! the reasons for frames.
const std = @import("std");
const assert = std.debug.assert;
const frame = @import("frame.zig");
const Header = frame.Header;
const SettingValue = frame.SettingValue;

/// The maximum number of queued bytes.
pub const bytes_max = 320;

/// The maximum output that one frame of the peer can cause, in bytes: a reset, credit twice, and a GOAWAY.
pub const reserve_bytes = 128;

/// The maximum output that the owner causes by two calls, in bytes: the announcement of the end, and the end.
const drain_bytes = 3 * frame.header_bytes + 2 * frame.goaway_bytes + frame.ping_bytes;

/// The maximum length of the text in a GOAWAY, in bytes; the rest is cut off.
const detail_bytes_max = 48;

/// The queue of frames.
pub const Control = struct {
    bytes: [bytes_max]u8 = undefined,
    len: u16 = 0,
    /// The number of resets queued so far.
    resets: u32 = 0,
    /// The code of the GOAWAY by which the peer must open no further streams; null: none was queued.
    ending: ?frame.Code = null,

    /// Whether the session must stop reading until the queued frames are taken.
    pub fn isFull(control: *const Control) bool {
        return control.len > bytes_max - drain_bytes - reserve_bytes;
    }

    /// Whether there is room for one more frame with a payload of this many bytes.
    pub fn takes(control: *const Control, payload_bytes: usize) bool {
        return control.len + frame.header_bytes + payload_bytes <= bytes_max;
    }

    /// Moves all queued frames to `out`, which has at least bytes_max bytes; returns the number of bytes.
    pub fn take(control: *Control, out: []u8) usize {
        const len = control.len;
        @memcpy(out[0..len], control.bytes[0..len]);
        control.len = 0;
        return len;
    }

    fn put(control: *Control, header: Header) []u8 {
        assert(control.takes(header.len));
        header.write(control.bytes[control.len..][0..frame.header_bytes]);
        const payload = control.bytes[control.len + frame.header_bytes ..][0..header.len];
        control.len += @intCast(frame.header_bytes + header.len);
        return payload;
    }

    /// Queues a SETTINGS frame with our settings.
    pub fn settings(control: *Control, pairs: []const SettingValue) void {
        const payload = control.put(.{ .len = @intCast(pairs.len * frame.setting_bytes), .kind = .settings });
        for (pairs, 0..) |pair, index| {
            pair.write(payload[index * frame.setting_bytes ..][0..frame.setting_bytes]);
        }
    }

    pub fn settingsAck(control: *Control) void {
        _ = control.put(.{ .len = 0, .kind = .settings, .flags = frame.flag.ack });
    }

    pub fn ping(control: *Control, flags: u8, payload: *const [frame.ping_bytes]u8) void {
        @memcpy(control.put(.{ .len = frame.ping_bytes, .kind = .ping, .flags = flags }), payload);
    }

    pub fn reset(control: *Control, stream: u32, code: frame.Code) void {
        const payload = control.put(.{ .len = 4, .kind = .rst_stream, .stream = stream });
        std.mem.writeInt(u32, payload[0..4], @backingInt(code), .big);
        control.resets +%= 1;
    }

    pub fn credit(control: *Control, stream: u32, bytes: u31) void {
        const payload = control.put(.{ .len = 4, .kind = .window_update, .stream = stream });
        std.mem.writeInt(u32, payload[0..4], bytes, .big);
    }

    /// Queues a GOAWAY with the last stream that was handled and the reason why no further one is; `detail`
    /// is for developers.
    pub fn goaway(control: *Control, last: u32, code: frame.Code, detail: []const u8) void {
        const text = detail[0..@min(detail.len, detail_bytes_max)];
        const payload = control.put(.{ .len = @intCast(frame.goaway_bytes + text.len), .kind = .goaway });
        std.mem.writeInt(u32, payload[0..4], last, .big);
        std.mem.writeInt(u32, payload[4..8], @backingInt(code), .big);
        @memcpy(payload[8..], text);
        control.ending = code;
    }
};

comptime {
    assert(reserve_bytes >= frame.header_bytes * 4 + 4 * 3 + frame.goaway_bytes + detail_bytes_max);
}
