//! Bytes that a client may or may not send behind the preface, the events that they cause, and the frames
//! that the session sends by itself. Each fixture runs whole, byte by byte and cut at every place. RFC 9113,
//! RFC 9218, RFC 8441.
const std = @import("std");
const b = @import("bytes.zig");
const Harness = @import("harness.zig").Harness;
const config = @import("harness.zig").config;
const frame = @import("protocol").http2.frame;
const flag = b.flag;
const testing = std.testing;

/// `raw`: the preface is part of it. `sent`: behind the acknowledgement of the first settings.
const Fixture = struct {
    name: []const u8,
    raw: bool = false,
    wire: []const u8,
    heard: []const u8 = "",
    sent: []const u8 = "",
};

const headers_end = flag.end_headers | flag.end_stream;
const a = "host=a\n";

const fixtures = [_]Fixture{
    .{ .name = "nothing", .wire = "" },
    .{
        .name = "not the preface",
        .raw = true,
        .wire = "GET / HTTP/1.1\r\n",
        .heard = "failed protocol_error: not the preface of HTTP/2\n",
        .sent = "0 goaway 0 protocol_error\n",
    },
    .{
        .name = "first frame is not SETTINGS",
        .raw = true,
        .wire = b.preface ++ b.get(1),
        .heard = "failed protocol_error: first frame is not SETTINGS\n",
        .sent = "0 goaway 0 protocol_error\n",
    },
    .{
        .name = "... and not an acknowledgement",
        .raw = true,
        .wire = b.preface ++ b.of(.settings, flag.ack, 0, ""),
        .heard = "failed protocol_error: first frame is not SETTINGS\n",
        .sent = "0 goaway 0 protocol_error\n",
    },
    // Requests.
    .{ .name = "a request", .wire = b.get(1), .heard = "1 GET / none " ++ a },
    .{
        .name = "content, trailers",
        .wire = b.post(1) ++ b.data(1, "abc") ++ b.data(1, "def") ++
            b.of(.headers, headers_end, 1, b.field("x", "1")),
        .heard = "1 POST / chunked " ++ a ++ "1 body abcdef\n1 trailers x=1\n1 end\n",
    },
    .{
        .name = "streams take turns",
        .wire = b.post(1) ++ b.post(3) ++ b.data(1, "a") ++ b.last(3, "b") ++ b.last(1, "c"),
        .heard = "1 POST / chunked " ++ a ++ "3 POST / chunked " ++ a ++
            "1 body a\n3 body b\n3 end\n1 body c\n1 end\n",
    },
    .{
        .name = "padding, everywhere",
        .wire = b.of(.headers, flag.padded | flag.end_headers, 1, "\x03" ++ b.post_block ++ "PPP") ++
            b.of(.data, flag.padded, 1, "\x02abPP") ++ b.of(.data, flag.padded, 1, "\x00c") ++
            b.of(.data, flag.padded | flag.end_stream, 1, "\x01P"),
        .heard = "1 POST / chunked " ++ a ++ "1 body abc\n1 end\n",
    },
    .{
        .name = "padding longer than its frame",
        .wire = b.post(1) ++ b.of(.data, flag.padded, 1, "\x03PP"),
        .heard = "1 POST / chunked " ++ a ++ "failed protocol_error: padding longer than its frame\n",
        .sent = "0 goaway 1 protocol_error\n",
    },
    .{
        .name = "padding longer than its header block",
        .wire = b.of(.headers, flag.padded | headers_end, 1, "\x09" ++ b.get_block),
        .heard = "failed protocol_error: padding longer than its frame\n",
        .sent = "0 goaway 0 protocol_error\n",
    },
    .{
        .name = "content as long as it says",
        .wire = b.of(.headers, flag.end_headers, 1, b.post_block ++ b.field("content-length", "3")) ++
            b.data(1, "ab") ++ b.last(1, "c"),
        .heard = "1 POST / counted content-length=3 " ++ a ++ "1 body abc\n1 end\n",
    },
    .{
        .name = "content longer than it says",
        .wire = b.of(.headers, flag.end_headers, 1, b.post_block ++ b.field("content-length", "3")) ++
            b.data(1, "ab") ++ b.data(1, "cd") ++ b.last(1, "e"),
        .heard = "1 POST / counted content-length=3 " ++ a ++ "1 body ab\n1 reset by us protocol_error\n",
        .sent = "1 rst_stream protocol_error\n",
    },
    .{
        .name = "content shorter than it says",
        .wire = b.of(.headers, flag.end_headers, 1, b.post_block ++ b.field("content-length", "3")) ++
            b.last(1, "ab"),
        .heard = "1 POST / counted content-length=3 " ++ a ++ "1 reset by us protocol_error\n",
        .sent = "1 rst_stream protocol_error\n",
    },
    .{
        .name = "content shorter than it says, with trailers",
        .wire = b.of(.headers, flag.end_headers, 1, b.post_block ++ b.field("content-length", "3")) ++
            b.data(1, "ab") ++ b.of(.headers, headers_end, 1, ""),
        .heard = "1 POST / counted content-length=3 " ++ a ++ "1 body ab\n1 reset by us protocol_error\n",
        .sent = "1 rst_stream protocol_error\n",
    },
    .{
        .name = "a block in many frames",
        .wire = b.of(.headers, flag.end_stream, 1, "\x82\x86") ++ b.of(.continuation, 0, 1, "") ++
            b.of(.continuation, 0, 1, "\x84\x41") ++ b.of(.continuation, flag.end_headers, 1, "\x01a") ++
            b.get(3),
        .heard = "1 GET / none " ++ a ++ "3 GET / none " ++ a,
    },
    .{
        .name = "a block in frames, padded and with a dependency",
        .wire = b.of(.headers, 0x29, 1, "\x02\x00\x00\x00\x00\x10\x82PP") ++
            b.of(.continuation, flag.end_headers, 1, "\x86\x84\x41\x01a"),
        .heard = "1 GET / none " ++ a,
    },
    .{
        .name = "a block that is interrupted",
        .wire = b.of(.headers, flag.end_stream, 1, "\x82\x86") ++ b.of(.ping, 0, 0, "12345678"),
        .heard = "failed protocol_error: header block interrupted\n",
        .sent = "0 goaway 0 protocol_error\n",
    },
    .{
        .name = "a block that another stream goes on with",
        .wire = b.of(.headers, flag.end_stream, 1, "\x82\x86") ++
            b.of(.continuation, flag.end_headers, 3, "\x84\x41\x01a"),
        .heard = "failed protocol_error: header block interrupted\n",
        .sent = "0 goaway 0 protocol_error\n",
    },
    .{
        .name = "a frame of an unknown kind in a block",
        .wire = b.of(.headers, flag.end_stream, 1, "\x82\x86") ++ b.of(@fromBackingInt(0x42), 0, 1, ""),
        .heard = "failed protocol_error: header block interrupted\n",
        .sent = "0 goaway 0 protocol_error\n",
    },
    .{
        .name = "CONTINUATION alone",
        .wire = b.of(.continuation, flag.end_headers, 1, b.get_block),
        .heard = "failed protocol_error: CONTINUATION without a header block\n",
        .sent = "0 goaway 0 protocol_error\n",
    },
    .{
        .name = "CONTINUATION behind the end of a block",
        .wire = b.post(1) ++ b.of(.continuation, flag.end_headers, 1, ""),
        .heard = "1 POST / chunked " ++ a ++ "failed protocol_error: CONTINUATION without a header block\n",
        .sent = "0 goaway 1 protocol_error\n",
    },
    .{
        .name = "a block that cannot be decoded",
        .wire = b.of(.headers, headers_end, 1, "\x82\xff\xff\xff\xff\xff\xff"),
        .heard = "failed compression_error: header block cannot be decoded\n",
        .sent = "0 goaway 1 compression_error\n",
    },
    .{
        .name = "a malformed request, and one that uses its fields",
        .wire = b.of(.headers, headers_end, 1, "\x82\x86\x84\x40\x01a\x01b\x40\x01B\x01c") ++
            b.of(.headers, headers_end, 3, b.get_block ++ "\xbf"),
        .heard = "3 GET / none a=b " ++ a,
        .sent = "1 rst_stream protocol_error\n",
    },
    .{
        .name = "a header section that is too large, and one that uses its fields",
        .wire = b.of(.headers, headers_end, 1, b.get_block ++ "\x40\x01b\x7f\x01" ++ b.times("v", 128) ++
            b.times("\xbe", 8)) ++ b.get(3) ++ b.of(.headers, headers_end, 5, b.get_block ++ "\xbe"),
        .heard = "1 refused 431 header section too large\n3 GET / none " ++ a ++ "5 GET / none b=" ++
            b.times("v", 128) ++ " " ++ a,
    },
    .{
        .name = "a refused request with content",
        .wire = b.of(.headers, flag.end_headers, 1, b.post_block ++ b.field("content-length", "100001")) ++
            b.data(1, "abc") ++ b.last(1, "def") ++ b.get(3),
        .heard = "1 refused 413 content too large\n3 GET / none " ++ a,
    },
    // Numbers and states of streams.
    .{
        .name = "an even number",
        .wire = b.get(2),
        .heard = "failed protocol_error: stream with an even number\n",
        .sent = "0 goaway 0 protocol_error\n",
    },
    .{
        .name = "a number lower than one before",
        .wire = b.get(5) ++ b.get(3),
        .heard = "5 GET / none " ++ a ++ "failed protocol_error: stream number lower than one before\n",
        .sent = "0 goaway 5 protocol_error\n",
    },
    .{
        .name = "frames on idle streams: DATA",
        .wire = b.data(1, "a"),
        .heard = "failed protocol_error: DATA on an idle stream\n",
        .sent = "0 goaway 0 protocol_error\n",
    },
    .{
        .name = "... RST_STREAM",
        .wire = b.reset(1),
        .heard = "failed protocol_error: RST_STREAM on an idle stream\n",
        .sent = "0 goaway 0 protocol_error\n",
    },
    .{
        .name = "... WINDOW_UPDATE",
        .wire = b.window(1, 1),
        .heard = "failed protocol_error: WINDOW_UPDATE on an idle stream\n",
        .sent = "0 goaway 0 protocol_error\n",
    },
    .{
        .name = "... PRIORITY may be",
        .wire = b.of(.priority, 0, 7, "\x00\x00\x00\x01\x10") ++ b.get(1),
        .heard = "1 GET / none " ++ a,
    },
    .{
        .name = "half-closed: DATA",
        .wire = b.get(1) ++ b.data(1, "a") ++ b.data(1, "b") ++ b.get(3),
        .heard = "1 GET / none " ++ a ++ "1 reset by us stream_closed\n3 GET / none " ++ a,
        .sent = "1 rst_stream stream_closed\n",
    },
    .{
        .name = "half-closed: HEADERS",
        .wire = b.get(1) ++ b.get(1) ++ b.get(3),
        .heard = "1 GET / none " ++ a ++ "1 reset by us stream_closed\n3 GET / none " ++ a,
        .sent = "1 rst_stream stream_closed\n",
    },
    .{
        .name = "half-closed: WINDOW_UPDATE, PRIORITY and RST_STREAM may be",
        .wire = b.get(1) ++ b.window(1, 5) ++ b.of(.priority, 0, 1, "\x00\x00\x00\x00\x10") ++ b.reset(1),
        .heard = "1 GET / none " ++ a ++ "1 reset by peer cancel\n",
    },
    .{
        .name = "reset by the peer: DATA",
        .wire = b.post(1) ++ b.reset(1) ++ b.data(1, "a") ++ b.get(3),
        .heard = "1 POST / chunked " ++ a ++ "1 reset by peer cancel\n3 GET / none " ++ a,
        .sent = "1 rst_stream stream_closed\n",
    },
    .{
        .name = "reset by the peer: HEADERS, which the table needs",
        .wire = b.post(1) ++ b.reset(1) ++ b.of(.headers, headers_end, 1, "\x40\x01x\x01y") ++
            b.of(.headers, headers_end, 3, b.get_block ++ "\xbe"),
        .heard = "1 POST / chunked " ++ a ++ "1 reset by peer cancel\n3 GET / none x=y " ++ a,
        .sent = "1 rst_stream stream_closed\n",
    },
    .{
        .name = "reset by the peer: the rest may be",
        .wire = b.post(1) ++ b.reset(1) ++ b.window(1, 1) ++ b.reset(1) ++ b.window(1, 0) ++
            b.of(.priority, 0, 1, "\x00\x00\x00\x00\x10"),
        .heard = "1 POST / chunked " ++ a ++ "1 reset by peer cancel\n",
    },
    .{
        .name = "trailers without an end",
        .wire = b.post(1) ++ b.of(.headers, flag.end_headers, 1, b.field("x", "1")) ++ b.last(1, "a"),
        .heard = "1 POST / chunked " ++ a ++ "1 reset by us protocol_error\n",
        .sent = "1 rst_stream protocol_error\n",
    },
    .{
        .name = "trailers with a pseudo-header field",
        .wire = b.post(1) ++ b.of(.headers, headers_end, 1, "\x84"),
        .heard = "1 POST / chunked " ++ a ++ "1 reset by us protocol_error\n",
        .sent = "1 rst_stream protocol_error\n",
    },
    .{
        .name = "more streams than there may be",
        .wire = b.post(1) ++ b.post(3) ++ b.post(5) ++ b.post(7) ++ b.post(9) ++ b.data(9, "a") ++
            b.reset(3) ++ b.get(11),
        .heard = "1 POST / chunked " ++ a ++ "3 POST / chunked " ++ a ++ "5 POST / chunked " ++ a ++
            "7 POST / chunked " ++ a ++ "3 reset by peer cancel\n11 GET / none " ++ a,
        .sent = "9 rst_stream refused_stream\n",
    },
    // Flow control.
    .{
        .name = "WINDOW_UPDATE by nothing",
        .wire = b.post(1) ++ b.window(1, 0) ++ b.get(3) ++ b.window(0, 0),
        .heard = "1 POST / chunked " ++ a ++ "1 reset by us protocol_error\n3 GET / none " ++ a ++
            "failed protocol_error: WINDOW_UPDATE by 0\n",
        .sent = "1 rst_stream protocol_error\n0 goaway 3 protocol_error\n",
    },
    .{
        .name = "WINDOW_UPDATE by too much",
        .wire = b.post(1) ++ b.window(1, frame.max_31) ++ b.window(0, frame.max_31),
        .heard = "1 POST / chunked " ++ a ++ "1 reset by us flow_control_error\n" ++
            "failed flow_control_error: window too large\n",
        .sent = "1 rst_stream flow_control_error\n0 goaway 1 flow_control_error\n",
    },
    .{
        .name = "a window that settings make too large",
        .wire = b.post(1) ++ b.window(1, frame.max_31 - 65_535) ++
            b.of(.settings, 0, 0, b.setting(4, 65_536)),
        .heard = "1 POST / chunked " ++ a ++ "failed flow_control_error: window too large\n",
        .sent = "0 goaway 1 flow_control_error\n",
    },
    // Frames of the connection.
    .{
        .name = "settings, known and unknown",
        .wire = b.of(.settings, 0, 0, b.setting(1, 0) ++ b.setting(2, 0) ++ b.setting(3, 0) ++
            b.setting(4, 1) ++ b.setting(5, 16_384) ++ b.setting(6, 9) ++ b.setting(8, 1) ++
            b.setting(9, 1) ++ b.setting(0x4242, 7)),
        .sent = "0 settings 1\n",
    },
    .{
        .name = "settings out of range",
        .wire = b.of(.settings, 0, 0, b.setting(5, 16_383)),
        .heard = "failed protocol_error: maximum frame size out of range\n",
        .sent = "0 goaway 0 protocol_error\n",
    },
    .{
        .name = "PING and its answer",
        .wire = b.of(.ping, 0, 0, "12345678") ++ b.of(.ping, flag.ack, 0, "abcdefgh"),
        .sent = "0 ping 1 12345678\n",
    },
    .{
        .name = "GOAWAY, and requests behind it",
        .wire = b.of(.goaway, 0, 0, "\x00\x00\x00\x00\x00\x00\x00\x00bye") ++ b.get(1),
        .heard = "1 GET / none " ++ a,
    },
    .{
        .name = "unknown kinds and flags",
        .wire = b.of(@fromBackingInt(0xee), 0xff, 9, "whatever") ++
            b.of(.headers, 0xd0 | headers_end, 1, b.get_block) ++ b.of(@fromBackingInt(0xef), 0, 0, ""),
        .heard = "1 GET / none " ++ a,
    },
    .{
        .name = "PUSH_PROMISE",
        .wire = b.of(.push_promise, flag.end_headers, 1, "\x00\x00\x00\x02" ++ b.get_block),
        .heard = "failed protocol_error: PUSH_PROMISE from a client\n",
        .sent = "0 goaway 0 protocol_error\n",
    },
    .{
        .name = "a frame that is too long",
        .wire = b.post(1) ++ "\x00\x40\x01\x00\x00\x00\x00\x00\x01",
        .heard = "1 POST / chunked " ++ a ++ "failed frame_size_error: frame too long\n",
        .sent = "0 goaway 1 frame_size_error\n",
    },
    // Priorities.
    .{
        .name = "a stream that depends on itself",
        .wire = b.of(.headers, headers_end | flag.priority, 1, "\x00\x00\x00\x01\x10" ++ b.get_block) ++
            b.get(3) ++ b.of(.priority, 0, 3, "\x80\x00\x00\x03\x10"),
        .heard = "3 GET / none " ++ a ++ "3 reset by us protocol_error\n",
        .sent = "1 rst_stream protocol_error\n3 rst_stream protocol_error\n",
    },
    .{
        .name = "PRIORITY of a wrong length",
        .wire = b.get(1) ++ b.of(.priority, 0, 1, "\x00\x00\x00\x03") ++ b.get(3),
        .heard = "1 GET / none " ++ a ++ "1 reset by us frame_size_error\n3 GET / none " ++ a,
        .sent = "1 rst_stream frame_size_error\n",
    },
    .{
        .name = "PRIORITY_UPDATE, before and after",
        .wire = b.of(.priority_update, 0, 0, "\x00\x00\x00\x01u=1") ++ b.get(1) ++
            b.of(.priority_update, 0, 0, "\x00\x00\x00\x01u=7, i"),
        .heard = "1 GET / none " ++ a,
    },
    .{
        .name = "PRIORITY_UPDATE for nobody",
        .wire = b.of(.priority_update, 0, 0, "\x00\x00\x00\x00u=1"),
        .heard = "failed protocol_error: PRIORITY_UPDATE for stream 0\n",
        .sent = "0 goaway 0 protocol_error\n",
    },
};

/// How the bytes arrive.
const Cut = union(enum) { whole, bytes, at: usize };

fn run(fixture: Fixture, cut: Cut) !void {
    errdefer std.debug.print("{s}, {any}\n", .{ fixture.name, cut });
    var h: Harness = undefined;
    h.init(&config, &.{});
    defer h.deinit();
    if (!fixture.raw) {
        try h.feed(b.hello);
        try h.expectSent("0 settings 1\n");
    }
    const wire = fixture.wire;
    var done: usize = 0;
    var arrived: usize = 0;
    var first = true;
    while (true) {
        arrived = switch (cut) {
            .whole => wire.len,
            .bytes => @min(wire.len, arrived + 1),
            .at => |at| if (first) at else wire.len,
        };
        first = false;
        done += try h.feedPart(wire[done..arrived]);
        if (arrived == wire.len) break;
    }
    try testing.expectEqual(wire.len, done);
    try h.expectHeard(fixture.heard);
    try h.expectSent(fixture.sent);
}

test "fixtures, at every place where they may be cut" {
    for (fixtures) |fixture| {
        try run(fixture, .whole);
        try run(fixture, .bytes);
        for (0..fixture.wire.len) |at| try run(fixture, .{ .at = at });
    }
}
