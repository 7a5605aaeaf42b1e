//! Bytes as a client sends them: the preface, frames, and header blocks that are written out.
const std = @import("std");
const frame = @import("protocol").http2.frame;
const Kind = frame.Kind;
pub const flag = frame.flag;

pub const preface = frame.preface;

/// A frame of any kind.
pub inline fn of(
    comptime kind: Kind,
    comptime flags: u8,
    comptime stream: u32,
    comptime payload: []const u8,
) []const u8 {
    return comptime made: {
        var bytes: [frame.header_bytes + payload.len]u8 = undefined;
        const header: frame.Header = .{ .len = payload.len, .kind = kind, .flags = flags, .stream = stream };
        header.write(bytes[0..frame.header_bytes]);
        @memcpy(bytes[frame.header_bytes..], payload);
        const frozen = bytes;
        break :made &frozen;
    };
}

/// The first bytes of every client.
pub const hello = preface ++ of(.settings, 0, 0, "");

/// `GET / HTTP/2` over http with the authority "a".
pub const get_block = "\x82\x86\x84\x01\x01a";
pub const post_block = "\x83\x86\x84\x01\x01a";

/// A request without content.
pub inline fn get(comptime stream: u32) []const u8 {
    return comptime of(.headers, flag.end_headers | flag.end_stream, stream, get_block);
}

/// A request whose content follows.
pub inline fn post(comptime stream: u32) []const u8 {
    return comptime of(.headers, flag.end_headers, stream, post_block);
}

pub inline fn data(comptime stream: u32, comptime text: []const u8) []const u8 {
    return comptime of(.data, 0, stream, text);
}

/// The last content of a request.
pub inline fn last(comptime stream: u32, comptime text: []const u8) []const u8 {
    return comptime of(.data, flag.end_stream, stream, text);
}

/// A literal field that is not indexed.
pub inline fn field(comptime name: []const u8, comptime value: []const u8) []const u8 {
    return comptime "\x00" ++ [_]u8{name.len} ++ name ++ [_]u8{value.len} ++ value;
}

/// A setting.
pub inline fn setting(comptime number: u16, comptime value: u32) []const u8 {
    return comptime &(big(u16, number) ++ big(u32, value));
}

/// A number in network order.
pub fn big(comptime T: type, comptime value: T) [@sizeOf(T)]u8 {
    var bytes: [@sizeOf(T)]u8 = undefined;
    std.mem.writeInt(T, &bytes, value, .big);
    return bytes;
}

pub inline fn window(comptime stream: u32, comptime bytes: u32) []const u8 {
    return comptime of(.window_update, 0, stream, &big(u32, bytes));
}

pub inline fn reset(comptime stream: u32) []const u8 {
    return comptime of(.rst_stream, 0, stream, &big(u32, 8));
}

/// A frame of any kind, of bytes that are known when it runs; `out` holds it.
pub fn write(kind: Kind, flags: u8, stream: u32, payload: []const u8, out: []u8) []const u8 {
    const header: frame.Header = .{
        .len = @intCast(payload.len),
        .kind = kind,
        .flags = flags,
        .stream = stream,
    };
    header.write(out[0..frame.header_bytes]);
    @memcpy(out[frame.header_bytes..][0..payload.len], payload);
    return out[0 .. frame.header_bytes + payload.len];
}

/// Text a few times.
pub inline fn times(comptime text: []const u8, comptime count: usize) []const u8 {
    return comptime made: {
        @setEvalBranchQuota(20_000);
        var all: [text.len * count]u8 = undefined;
        for (0..count) |index| @memcpy(all[index * text.len ..][0..text.len], text);
        const frozen = all;
        break :made &frozen;
    };
}
