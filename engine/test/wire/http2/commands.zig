//! Commands for streams, and the order in which their frames leave: responses, flow control both ways,
//! priorities, the end of a connection. RFC 9113 sections 5.2, 6.8, 6.9 and 8; RFC 9218 section 10.
const std = @import("std");
const b = @import("bytes.zig");
const harness = @import("harness.zig");
const protocol = @import("protocol");
const frame = protocol.http2.frame;
const hpack = protocol.http2.hpack;
const session_file = protocol.http2.session;
const Field = protocol.http.Field;
const Harness = harness.Harness;
const flag = b.flag;
const testing = std.testing;

const chunk = 16_384;

/// A harness behind the first settings, which has got `wire`.
fn open(h: *Harness, with: *const session_file.Config, wire: []const u8) !void {
    h.init(with, &.{});
    errdefer h.deinit();
    try h.feed(b.hello);
    try h.feed(wire);
    h.sent.clearRetainingCapacity();
    h.heard.end = 0;
    h.in_body = 0;
}

/// Starts a response, and sends its head.
fn start(h: *Harness, stream: u32, response: session_file.Response) !void {
    var out: [40_000]u8 = undefined;
    const room = out[0 .. session_file.startSize(response.fields) + response.content.len];
    const started = try h.session.start(stream, response, room);
    h.session.invariants();
    try h.sent.appendSlice(testing.allocator, out[0..started.len]);
    if (started.queued) queue(h, stream, response.content);
}

fn queue(h: *Harness, stream: u32, text: []const u8) void {
    const q = &h.queues[stream];
    const len = @min(text.len, q.bytes.len - q.len);
    @memcpy(q.bytes[q.len..][0..len], text[0..len]);
    q.len += len;
}

fn body(h: *Harness, stream: u32, text: []const u8, last: bool) !void {
    const plan = try h.session.planBody(stream, .{ .len = text.len, .last = last });
    if (plan.payload) queue(h, stream, text);
    h.session.apply(stream, plan);
    h.session.invariants();
}

/// A body of `len` bytes "x".
fn big(h: *Harness, stream: u32, len: u64, last: bool) !void {
    h.session.apply(stream, try h.session.planBody(stream, .{ .len = len, .last = last }));
    h.session.invariants();
}

fn end(h: *Harness, stream: u32, trailers: []const Field) !void {
    var out: [40_000]u8 = undefined;
    const plan = try h.session.planEnd(stream, trailers, out[0..session_file.endSize(trailers)]);
    queue(h, stream, out[0..plan.len]);
    h.session.apply(stream, plan);
}

/// The fields of the first block that was sent.
fn expectFields(h: *Harness, decoder: *hpack.Decoder, expected: []const u8) !void {
    var block_bytes: [40_000]u8 = undefined;
    var len: usize = 0;
    var at: usize = 0;
    while (true) {
        const f: frame.Header = .parse(h.sent.items[at..][0..9]);
        const payload = h.sent.items[at + 9 ..][0..f.len];
        at += 9 + f.len;
        if (f.kind != .headers and f.kind != .continuation) continue;
        @memcpy(block_bytes[len..][0..payload.len], payload);
        len += payload.len;
        if (f.has(flag.end_headers)) break;
    }
    var out: [40_000]u8 = undefined;
    var writer: std.Io.Writer = .fixed(&out);
    var room: [40_000]u8 = undefined;
    var bench: hpack.Bench = undefined;
    var block = decoder.begin(block_bytes[0..len], &bench);
    while (try block.next(&room)) |field| try writer.print("{s}={s};", .{ field.name, field.value });
    try testing.expectEqualStrings(expected, writer.buffered());
}

test "settings go first" {
    var h: Harness = undefined;
    h.init(&harness.config, &.{});
    defer h.deinit();
    h.restart(&harness.config, harness.config.streams_max);
    var head: session_file.Head = .{ .storage = &h.storage };
    const wire = comptime b.hello ++ b.get(1);
    try testing.expectEqual(session_file.Event.control, h.session.feed(wire, &head).event);
    var out: [session_file.emission_bytes_max]u8 = undefined;
    const emission = h.session.emit(&out, 1).?;
    try testing.expectEqual(frame.Kind.settings, frame.Header.parse(out[0..9]).kind);
    try testing.expectEqual(9 + 5 * 6 + 13, emission.head);
    try testing.expectEqual(session_file.Event.request, h.session.feed(wire, &head).event);
}

test "places come when they are asked for, and without them streams are refused" {
    var more: [4]session_file.Stream = undefined;
    for ([_]bool{ true, false }) |gives| {
        var h: Harness = undefined;
        h.init(&harness.config, &.{});
        defer h.deinit();
        h.restart(&harness.config, 1);
        h.more_places = if (gives) &more else &.{};
        try h.feed(b.hello);
        h.sent.clearRetainingCapacity();
        const all = comptime b.post(1) ++ b.post(3) ++ b.of(.headers, 0, 5, "\x83\x86") ++
            b.of(.continuation, flag.end_headers, 5, "\x84\x01\x01a") ++ b.last(1, "abc");
        const used = try h.feedPart(all[0..40]);
        _ = try h.feedPart(all[used..]);
        const one = "1 POST / chunked host=a\n";
        const rest = "1 body abc\n1 end\n";
        if (gives) {
            try h.expectHeard(one ++ "3 POST / chunked host=a\n5 POST / chunked host=a\n" ++ rest);
            try h.expectSent("");
        } else {
            try h.expectHeard(one ++ rest);
            try h.expectSent("3 rst_stream refused_stream\n5 rst_stream refused_stream\n");
        }
    }
}

test "a peer owes frames until they have come" {
    var h: Harness = undefined;
    h.init(&harness.config, &.{});
    defer h.deinit();
    const owes = struct {
        fn expect(of: *Harness, bytes: []const u8, debt: session_file.Debt) !void {
            const used = try of.feedPart(bytes);
            try testing.expectEqual(debt, of.session.owes(bytes.len - used));
        }
    };
    try testing.expectEqual(session_file.Debt.opening, h.session.owes(0));
    try owes.expect(&h, b.preface[0..20], .opening);
    try owes.expect(&h, b.preface, .opening);
    try owes.expect(&h, b.of(.settings, 0, 0, ""), .acknowledgement);
    try owes.expect(&h, b.of(.settings, flag.ack, 0, ""), .nothing);
    const post = b.post(1);
    try owes.expect(&h, post[0 .. post.len - 1], .frame);
    try owes.expect(&h, post, .nothing);
    const piece = b.data(1, "abc");
    try owes.expect(&h, piece[0..10], .content);
    try owes.expect(&h, piece[10..], .nothing);
    try owes.expect(&h, b.of(.headers, 0, 3, b.get_block), .frame);
    _ = try h.feedPart(comptime b.of(.headers, 0, 3, b.get_block) ++ b.of(.ping, 0, 0, "12345678"));
    try testing.expect(h.failed);
    try testing.expectEqual(session_file.Debt.nothing, h.session.owes(0));
}

const stamp = "Sun, 06 Nov 1994 08:49:37 GMT";

test "responses" {
    const fields = [_]Field{ .init("X-A", "1"), .init("Connection", "close"), .init("Upgrade", "x") };
    const length = [_]Field{.init("Content-Length", "2")};
    for ([_]struct { []const u8, session_file.Response, []const u8, []const u8 }{
        .{
            b.get(1),
            .{ .status = 200, .content = "ok", .end = true },
            ":status=200;content-length=2;",
            "1 data 1 ok\n",
        },
        .{
            b.get(1),
            .{ .status = 404, .content = "ok", .end = true, .fields = &fields, .date = stamp },
            ":status=404;x-a=1;date=" ++ stamp ++ ";content-length=2;",
            "1 data 1 ok\n",
        },
        .{
            b.get(1),
            .{ .status = 200, .content = "ok", .fields = &length },
            ":status=200;content-length=2;",
            "1 data ok\n",
        },
        .{
            b.get(1),
            .{ .status = 204, .content = "ok", .end = true, .fields = &length },
            ":status=204;",
            "",
        },
        .{ b.get(1), .{ .status = 205, .end = true }, ":status=205;content-length=0;", "" },
        .{ b.get(1), .{ .status = 200, .end = true }, ":status=200;content-length=0;", "" },
        .{
            b.get(1),
            .{ .status = 304, .end = true, .fields = &length },
            ":status=304;content-length=2;",
            "",
        },
        .{
            b.of(.headers, 5, 1, b.field(":method", "HEAD") ++ b.get_block[1..]),
            .{ .status = 200, .content = "ok", .end = true, .fields = &length },
            ":status=200;content-length=2;",
            "",
        },
        .{
            b.post(1),
            .{ .status = 200, .end = true },
            ":status=200;content-length=0;",
            "1 window_update 196609\n",
        },
    }) |case| {
        const wire, const response, const head, const rest = case;
        var h: Harness = undefined;
        try open(&h, &harness.config, wire);
        defer h.deinit();
        try start(&h, 1, response);
        try h.emitAll(1000);
        var decoder: hpack.Decoder = .{};
        try expectFields(&h, &decoder, head);
        var out: [256]u8 = undefined;
        var writer: std.Io.Writer = .fixed(&out);
        try h.sentText(&writer);
        const sent = writer.buffered();
        const line = std.mem.indexOfScalar(u8, sent, '\n').? + 1;
        try testing.expectEqualStrings(rest, sent[line..]);
        // The head says that nothing follows, exactly if that is so.
        const bare = rest.len == 0 or std.mem.indexOf(u8, rest, "window") != null;
        try testing.expectEqual(bare, std.mem.startsWith(u8, sent, "1 headers 5"));
        const left = h.session.streams.find(1);
        const is_over = left == null or left.?.input == .lingering;
        try testing.expectEqual(response.end, is_over);
    }
}

test "a command that is refused changes nothing" {
    var h: Harness = undefined;
    try open(&h, &harness.config, b.get(1));
    defer h.deinit();
    const bad_name = [_]Field{ .init("X", "1"), .init("a b", "1") };
    const bad_value = [_]Field{.init("X", "a\r\nb")};
    const length = [_]Field{.init("Content-Length", "2")};
    for ([_]struct { anyerror, u32, session_file.Response }{
        .{ error.OutOfOrder, 3, .{ .status = 200 } },
        .{ error.InvalidStatus, 1, .{ .status = 199 } },
        .{ error.InvalidStatus, 1, .{ .status = 600 } },
        .{ error.InvalidFieldName, 1, .{ .status = 200, .fields = &bad_name } },
        .{ error.InvalidFieldValue, 1, .{ .status = 200, .fields = &bad_value } },
        .{ error.TooShort, 1, .{ .status = 200, .fields = &length, .end = true } },
        .{ error.TooLong, 1, .{ .status = 200, .fields = &length, .content = "abc" } },
    }) |case| {
        const before = .{ h.session.encoder, h.sent_fields };
        try testing.expectError(case[0], start(&h, case[1], case[2]));
        try testing.expectEqual(before, .{ h.session.encoder, h.sent_fields });
    }
    try testing.expectError(error.InvalidStatus, h.session.informational(1, 101, &.{}, &h.room));
    try testing.expectError(error.OutOfOrder, body(&h, 1, "a", false));
    try testing.expectError(error.OutOfOrder, end(&h, 1, &.{}));
    try testing.expectError(error.OutOfOrder, h.session.switchProtocols(1, &.{}, stamp, &h.room));
    try start(&h, 1, .{ .status = 200 });
    try testing.expectError(error.OutOfOrder, start(&h, 1, .{ .status = 200 }));
    try testing.expectError(error.OutOfOrder, h.session.informational(1, 103, &.{}, &h.room));
    try testing.expectError(error.InvalidFieldName, end(&h, 1, &bad_name));
    try testing.expectEqual(1, h.session.bad_field);
    try end(&h, 1, &.{});
    try h.emitAll(100);
    try h.expectSent("1 headers 4 1\n1 data 1 \n");
}

test "content in pieces, and trailers" {
    var h: Harness = undefined;
    try open(&h, &harness.config, b.get(1) ++ b.get(3));
    defer h.deinit();
    try start(&h, 1, .{ .status = 200 });
    try body(&h, 1, "hello ", false);
    try h.emitAll(4);
    try h.expectSent("1 headers 4 1\n1 data hell\n1 data o \n");
    try body(&h, 1, "world", false);
    const trailers = [_]Field{ .init("X-Sum", "5"), .init("Content-Length", "5") };
    try end(&h, 1, &trailers);
    try testing.expect(h.session.droppedField(1));
    try h.emitAll(1000);
    var out: [256]u8 = undefined;
    var writer: std.Io.Writer = .fixed(&out);
    try h.sentText(&writer);
    try testing.expectEqualStrings("1 data world\n1 headers 5 9\n", writer.buffered());
    try testing.expectEqual(null, h.session.streams.find(1));
    // A last piece ends it.
    try start(&h, 3, .{ .status = 200 });
    try body(&h, 3, "ab", true);
    try h.emitAll(1);
    try h.expectSent("3 headers 4 1\n3 data a\n3 data 1 b\n");
}

test "heads and trailers that do not fit into a frame" {
    var h: Harness = undefined;
    try open(&h, &harness.config, b.get(1));
    defer h.deinit();
    var value: [20_000]u8 = @splat('\\'); // a byte whose code is longer
    const fields = [_]Field{.init("X", &value)};
    try start(&h, 1, .{ .status = 200, .fields = &fields });
    var decoder: hpack.Decoder = .{};
    var expected: [20_100]u8 = undefined;
    try expectFields(&h, &decoder, try std.fmt.bufPrint(&expected, ":status=200;x={s};", .{value}));
    try h.expectSent("1 headers 16384\n1 continuation 4 3624\n");
    try end(&h, 1, &fields);
    try h.emitAll(10);
    try h.expectSent("1 headers 1 16384\n1 continuation 4 3623\n");
}

test "interim responses, and clients that wait" {
    var h: Harness = undefined;
    const expecting = b.of(.headers, flag.end_headers, 1, b.post_block ++ b.field("expect", "100-continue"));
    try open(&h, &harness.config, expecting);
    defer h.deinit();
    var out: [256]u8 = undefined;
    const len = h.session.takeContinue(1, out[0..session_file.continue_bytes_max]);
    try testing.expectEqualStrings(comptime b.of(.headers, flag.end_headers, 1, "\x08\x03100"), out[0..len]);
    try testing.expectEqual(0, h.session.takeContinue(1, &out));
    const link = [_]Field{.init("Link", "</a>")};
    const hint = try h.session.informational(1, 103, &link, out[0..session_file.startSize(&link)]);
    try h.sent.appendSlice(testing.allocator, out[0..hint]);
    var decoder: hpack.Decoder = .{};
    try expectFields(&h, &decoder, ":status=103;link=</a>;");
    try testing.expect(!h.session.responseStarted(1));
    try h.feed(b.last(1, "x"));
    try start(&h, 1, .{ .status = 200, .end = true });
    // A client that sends its content no longer waits for 100.
    const again = b.of(.headers, flag.end_headers, 3, b.post_block ++ b.field("expect", "100-continue"));
    try h.feed(again ++ b.data(3, "a"));
    try testing.expectEqual(0, h.session.takeContinue(3, &out));
}

test "windows hold content back, and settings move them" {
    var h: Harness = undefined;
    try open(&h, &harness.config, b.of(.settings, 0, 0, b.setting(4, 10)) ++ b.get(1) ++ b.get(3));
    defer h.deinit();
    try start(&h, 1, .{ .status = 200 });
    try big(&h, 1, 100, true);
    try h.emitAll(1000);
    try h.expectSent("1 headers 4 1\n1 data xxxxxxxxxx\n");
    try h.feed(b.window(1, 5));
    try h.emitAll(1000);
    try h.expectSent("1 data xxxxx\n");
    // Less than nothing: it has to come back first.
    try h.feed(b.of(.settings, 0, 0, b.setting(4, 3)) ++ b.window(1, 6));
    try h.emitAll(1000);
    try h.expectSent("0 settings 1\n");
    try testing.expectEqual(-1, h.session.streams.find(1).?.send_window);
    try h.feed(b.window(1, 3));
    try h.emitAll(1000);
    try h.expectSent("1 data xx\n");
    try h.feed(b.of(.settings, 0, 0, b.setting(4, 103)));
    try h.emitAll(1000);
    try h.expectSent("0 settings 1\n1 data 1 83\n");
    // A response without content needs no window.
    try h.feed(b.of(.settings, 0, 0, b.setting(4, 0)) ++ b.get(5));
    h.sent.clearRetainingCapacity();
    try start(&h, 5, .{ .status = 200 });
    try end(&h, 5, &.{});
    try h.emitAll(1000);
    try h.expectSent("5 headers 4 1\n5 data 1 \n");
}

test "the connection's window is everybody's, and trailers do not need it" {
    var h: Harness = undefined;
    try open(&h, &harness.config, b.of(.settings, 0, 0, b.setting(4, 1 << 20)) ++ b.get(1) ++ b.get(3));
    defer h.deinit();
    try start(&h, 1, .{ .status = 200 });
    try start(&h, 3, .{ .status = 200 });
    try big(&h, 1, 65_535 + 7, true);
    try h.emitAll(1 << 20);
    h.sent.clearRetainingCapacity();
    try testing.expect(!h.session.wantsToEmit());
    try end(&h, 3, &.{.init("a", "b")});
    try testing.expect(h.session.wantsToEmit());
    try h.emitAll(1 << 20);
    try h.expectSent("3 headers 5 5\n");
    try h.feed(b.window(0, 5));
    try h.emitAll(1 << 20);
    try h.expectSent("1 data xxxxx\n");
    try h.feed(b.window(0, 50));
    try h.emitAll(1 << 20);
    try h.expectSent("1 data 1 xx\n");
}

/// The streams of the next frames, at most `most` of them.
fn orderOf(h: *Harness, budget: usize, out: []u8) ![]const u8 {
    var bytes: [session_file.emission_bytes_max]u8 = undefined;
    var len: usize = 0;
    while (len < out.len) {
        const emission = h.session.emit(&bytes, budget) orelse break;
        h.session.invariants();
        if (emission.stream == 0) continue;
        out[len] = '0' + @as(u8, @intCast(emission.stream));
        len += 1;
    }
    return out[0..len];
}

fn download(h: *Harness, stream: u32, len: u64) !void {
    try start(h, stream, .{ .status = 200 });
    try big(h, stream, len, true);
}

test "without priorities all take turns; with them, the urgent come first, and others one by one" {
    const wide = b.of(.settings, 0, 0, b.setting(4, 1 << 20)) ++ b.window(0, 1 << 24);
    const all = b.get(1) ++ b.get(3) ++ b.get(5);
    for ([_]struct { []const u8, []const u8 }{
        .{ all, "135135135" },
        .{ b.of(.priority_update, 0, 0, "\x00\x00\x00\x05u=1") ++ all, "555111333" },
        .{ b.of(.priority_update, 0, 0, "\x00\x00\x00\x01u=7") ++ all, "333555111" },
        .{
            b.get(1) ++ b.get(3) ++ b.of(.headers, 5, 5, b.get_block ++ b.field("priority", "u=0")),
            "555111333",
        },
        .{ all ++ b.of(.priority_update, 0, 0, "\x00\x00\x00\x03u=0,i"), "333111555" },
        .{
            all ++ b.of(.priority_update, 0, 0, "\x00\x00\x00\x01i") ++
                b.of(.priority_update, 0, 0, "\x00\x00\x00\x05i"),
            "133351515"[0..1] ++ "33351515",
        },
    }) |case| {
        var h: Harness = undefined;
        try open(&h, &harness.config, wide);
        defer h.deinit();
        try h.feed(case[0]);
        for ([_]u32{ 1, 3, 5 }) |stream| try download(&h, stream, 3 * chunk);
        var out: [9]u8 = undefined;
        try testing.expectEqualStrings(case[1], try orderOf(&h, chunk, &out));
    }
}

test "an urgent answer passes a download that is on its way" {
    var h: Harness = undefined;
    try open(
        &h,
        &harness.config,
        b.of(.settings, 0, 0, b.setting(4, 1 << 30)) ++ b.window(0, 1 << 30) ++ b.get(1),
    );
    defer h.deinit();
    try download(&h, 1, 100 << 20);
    var out: [8]u8 = undefined;
    try testing.expectEqualStrings("11111111", try orderOf(&h, chunk, &out));
    try h.feed(b.of(.headers, 5, 3, b.get_block ++ b.field("priority", "u=1")));
    try start(&h, 3, .{ .status = 200, .content = b.times("y", 1000), .end = true });
    try testing.expectEqualStrings("31111111", try orderOf(&h, chunk, &out));
    // A client changes a priority.
    try h.feed(b.get(5));
    try start(&h, 5, .{ .status = 200, .content = b.times("y", 1000), .end = true });
    try testing.expectEqualStrings("11", try orderOf(&h, chunk, out[0..2]));
    try h.feed(b.of(.priority_update, 0, 0, "\x00\x00\x00\x05u=0"));
    try testing.expectEqualStrings("51", try orderOf(&h, chunk, out[0..2]));
}

/// Feeds DATA of `len` bytes.
fn sendData(h: *Harness, stream: u32, len: usize, flags: u8) !void {
    var payload: [chunk]u8 = @splat('x');
    var out: [chunk + 9]u8 = undefined;
    h.quiet = true;
    try h.feed(b.write(.data, flags, stream, payload[0..len], &out));
    h.quiet = false;
}

test "a peer sends what its readers take" {
    var h: Harness = undefined;
    try open(&h, &harness.config, b.post(1) ++ b.post(3));
    defer h.deinit();
    h.releases = .never;
    for (0..3) |_| try sendData(&h, 1, chunk, 0);
    try h.expectSent("");
    // Nothing is told of a little.
    h.session.release(1, 32_767);
    try h.emitAll(1);
    try h.expectSent("");
    h.session.release(1, 1);
    try h.emitAll(1);
    try h.expectSent("1 window_update 32768\n");
    for (0..2) |_| try sendData(&h, 1, chunk, 0);
    // The client sends more than its window allows.
    try sendData(&h, 1, chunk, 0);
    try h.expectSent("1 rst_stream flow_control_error\n");
    // The other streams are not concerned, and they get what the first one held.
    h.releases = .at_once;
    for (0..12) |_| try sendData(&h, 3, chunk / 2, 0);
    try testing.expect(h.session.streams.find(3) != null);
    try testing.expect(!h.failed);
}

test "all streams together stay within the connection's window" {
    var narrow = harness.config;
    narrow.connection_window_bytes = 65_535;
    var h: Harness = undefined;
    try open(&h, &narrow, b.post(1) ++ b.post(3));
    defer h.deinit();
    h.releases = .never;
    for (0..2) |_| try sendData(&h, 1, chunk, 0);
    try sendData(&h, 3, chunk, 0);
    try sendData(&h, 3, chunk - 2, 0);
    try sendData(&h, 3, 1, 0);
    try testing.expect(!h.failed);
    try h.expectSent("");
    // A stream that is reset gives back its part of the connection's window.
    h.session.reset(1, .cancel);
    try h.emitAll(1);
    try h.expectSent("0 window_update 32768\n1 rst_stream cancel\n");
    try sendData(&h, 3, chunk, 0);
    try sendData(&h, 3, chunk, 0);
    try testing.expect(!h.failed);
    try h.feed(b.get(5));
    try sendData(&h, 3, 1, 0);
    try h.expectSent("0 goaway 5 flow_control_error\n");
}

test "a window that is smaller than the default counts when the peer knows of it" {
    var with = harness.config;
    with.stream_window_bytes = 100;
    var h: Harness = undefined;
    try open(&h, &with, b.post(1));
    defer h.deinit();
    h.releases = .never;
    try sendData(&h, 1, 1000, 0);
    try h.feed(b.of(.settings, flag.ack, 0, "") ++ b.post(3));
    try sendData(&h, 3, 100, 0);
    try h.expectSent("");
    try sendData(&h, 3, 1, 0);
    try h.expectSent("3 rst_stream flow_control_error\n");
    // The first stream has a negative window.
    try testing.expectEqual(100 - 1000, h.session.streams.find(1).?.receive_window);
}

test "frames of content may be longer than others where that is announced" {
    const len = 20_000;
    var with = harness.config;
    with.frame_bytes_max = len;
    var h: Harness = undefined;
    h.init(&with, &.{});
    defer h.deinit();
    h.restart(&with, with.streams_max);
    var head: session_file.Head = .{ .storage = &h.storage };
    try testing.expectEqual(session_file.Event.control, h.session.feed(b.hello, &head).event);
    var settings: [session_file.emission_bytes_max]u8 = undefined;
    const emission = h.session.emit(&settings, 1).?;
    // SETTINGS_MAX_FRAME_SIZE
    try testing.expect(std.mem.find(u8, settings[0..emission.head], b.setting(5, len)) != null);
    try h.feed(b.hello ++ b.post(1));
    h.sent.clearRetainingCapacity();
    const payload: [len + 1]u8 = @splat('x');
    var out: [len + 10]u8 = undefined;
    h.quiet = true;
    try h.feed(b.write(.data, 0, 1, payload[0..len], &out));
    h.quiet = false;
    try h.expectSent("");
    try testing.expectEqual(len, h.session.streams.find(1).?.received);
    try h.feed(b.write(.data, 0, 1, &payload, &out));
    try h.expectSent("0 goaway 1 frame_size_error\n");
}

test "content that is longer than there may be is refused, and read over" {
    var h: Harness = undefined;
    try open(&h, &harness.config, b.post(1));
    defer h.deinit();
    h.releases = .at_once;
    for (0..6) |_| try sendData(&h, 1, chunk, 0);
    var payload: [chunk]u8 = @splat('x');
    var out: [chunk + 9]u8 = undefined;
    try h.feed(b.write(.data, 0, 1, &payload, &out));
    try h.expectHeard("1 refused 413 content too large\n");
    try testing.expect(h.session.inputComplete(1));
    h.sent.clearRetainingCapacity();
    try start(&h, 1, .{ .status = 413, .content = "no", .end = true });
    try h.emitAll(100);
    var text: [256]u8 = undefined;
    var writer: std.Io.Writer = .fixed(&text);
    try h.sentText(&writer);
    try testing.expect(std.mem.indexOf(u8, writer.buffered(), "1 data 1 no\n1 window_update ") != null);
    // Content that was on its way is thrown away.
    try h.feed(b.data(1, "abc") ++ b.last(1, "def"));
    try h.expectHeard("");
    try testing.expectEqual(0, h.session.streams.count);
}

test "a response ends before its request: a short rest is thrown away" {
    var config = harness.config;
    config.linger_bytes_max = 70_000;
    config.streams_max = 8;
    var h: Harness = undefined;
    try open(&h, &config, b.post(1) ++ b.post(3) ++ b.post(5) ++ b.post(7) ++ b.post(9));
    defer h.deinit();
    h.releases = .never;
    try sendData(&h, 3, chunk, 0);
    var payload: [chunk]u8 = @splat('x');
    var out: [chunk + 9]u8 = undefined;
    const whole = b.write(.data, frame.flag.end_stream, 5, &payload, &out);
    try h.feed(whole[0..500]);
    h.heard.end = 0;
    h.in_body = 0;
    for ([_]u32{ 1, 3, 5, 7, 9 }) |stream| {
        try start(&h, stream, .{ .status = 200, .content = "ok", .end = true });
    }
    h.sent.clearRetainingCapacity();
    try h.emitAll(100);
    // Each may send as much as is thrown away, beside what is on its way.
    try h.expectSent("1 window_update 4465\n3 window_update 20849\n5 window_update 20849\n" ++
        "7 window_update 4465\n9 window_update 4465\n");
    try testing.expectEqual(5, h.session.lingering);
    // A lingering stream that comes to its end, with trailers, from the middle of a frame on, or reset by the
    // peer: no host hears of it.
    try h.feed(whole[500..]);
    try h.feed(b.last(1, "a") ++ b.of(.headers, 5, 3, "\x40\x01x\x01y"));
    try h.emitAll(100);
    try h.expectSent("0 ping all said\n0 ping all said\n0 ping all said\n");
    try h.feed(b.of(.rst_stream, 0, 7, "\x00\x00\x00\x08"));
    try testing.expectEqual(1, h.session.lingering);
    try h.feed(b.of(.headers, 5, 11, b.get_block ++ "\xbe"));
    try h.expectHeard("11 GET / none x=y host=a\n");
    // More than that is an offence.
    for (0..4) |_| try h.feed(b.write(.data, 0, 9, &payload, &out));
    try h.feed(b.write(.data, 0, 9, payload[0 .. 70_000 - 4 * chunk], &out));
    h.sent.clearRetainingCapacity();
    try h.feed(b.data(9, "x"));
    try h.emitAll(100);
    try h.expectSent("9 rst_stream flow_control_error\n");
    try testing.expectEqual(0, h.session.lingering);
    try testing.expectEqual(
        config.connection_window_bytes,
        h.session.receive_window + h.session.unannounced,
    );
}

test "a request whose rest is too long is reset as soon as its response is out" {
    const fields = b.post_block ++ b.field("content-length", "90000");
    var config = harness.config;
    config.linger_bytes_max = 299_999;
    for ([_]u32{ 89_999, 90_000 }) |most| {
        config.linger_bytes_max = most;
        var h: Harness = undefined;
        try open(&h, &config, b.of(.headers, 4, 1, fields));
        defer h.deinit();
        try start(&h, 1, .{ .status = 200, .end = true });
        h.sent.clearRetainingCapacity();
        try h.emitAll(100);
        try h.expectSent(if (most == 90_000) "1 window_update 24465\n" else "1 rst_stream no_error\n");
    }
}

test "a response that is cut: what is queued goes out first" {
    var h: Harness = undefined;
    try open(&h, &harness.config, b.post(1) ++ b.get(3));
    defer h.deinit();
    for ([_]u32{ 1, 3 }) |stream| try start(&h, stream, .{ .status = 200 });
    h.sent.clearRetainingCapacity();
    h.session.cut(1, .internal_error);
    try body(&h, 3, "begun", false);
    h.session.cut(3, .internal_error);
    try testing.expect(h.session.streams.find(3) != null);
    try h.emitAll(3);
    try h.expectSent("1 rst_stream internal_error\n3 data beg\n3 data un\n3 rst_stream internal_error\n");
    h.session.cut(3, .internal_error);
    try testing.expectEqual(0, h.session.streams.count);
    try h.emitAll(3);
    try h.expectSent("");
}

test "a request that does not end after its response is reset after a while" {
    var h: Harness = undefined;
    try open(&h, &harness.config, b.post(1) ++ b.post(3));
    defer h.deinit();
    try start(&h, 1, .{ .status = 200, .end = true });
    h.session.endLingering();
    try start(&h, 3, .{ .status = 200, .end = true });
    try h.emitAll(100);
    h.sent.clearRetainingCapacity();
    h.session.endLingering();
    try h.emitAll(100);
    try h.expectSent("1 rst_stream no_error\n");
    h.session.endLingering();
    try h.emitAll(100);
    try h.expectSent("3 rst_stream no_error\n");
}

test "a stream ends in the middle of a frame" {
    var h: Harness = undefined;
    try open(&h, &harness.config, b.post(1));
    defer h.deinit();
    const wire = comptime b.data(1, "abcdef") ++ b.get(3);
    const used = try h.feedPart(wire[0..12]);
    h.session.reset(1, .cancel);
    _ = try h.feedPart(wire[used..]);
    try h.expectHeard("1 body abc\n3 GET / none host=a\n");
    try h.expectSent("1 rst_stream cancel\n");
    h.session.reset(1, .cancel);
    try h.emitAll(1);
    try h.expectSent("");
}

test "the end of a connection, in two steps" {
    var h: Harness = undefined;
    try open(&h, &harness.config, b.get(1));
    defer h.deinit();
    try testing.expect(h.session.persists());
    h.session.drain();
    try h.emitAll(1);
    try h.expectSent("0 goaway 2147483647 no_error\n0 ping draining\n");
    // The request was on its way.
    try h.feed(b.get(3));
    try h.expectHeard("3 GET / none host=a\n");
    try h.feed(b.of(.ping, flag.ack, 0, "draining"));
    try h.expectSent("0 goaway 3 no_error\n");
    try h.feed(b.of(.headers, 5, 5, b.get_block ++ "\x40\x01x\x01y") ++ b.get(7));
    try h.expectHeard("");
    // The last stream that GOAWAY has named does not grow.
    try h.feed(b.window(0, 0));
    try h.expectSent("0 goaway 3 protocol_error\n");
    try h.expectHeard("failed protocol_error: WINDOW_UPDATE by 0\n");
}

test "the last streams of a connection" {
    var h: Harness = undefined;
    try open(&h, &harness.config, b.get(1) ++ b.get(3));
    defer h.deinit();
    h.session.drain();
    h.session.drain();
    try h.emitAll(1);
    h.sent.clearRetainingCapacity();
    try testing.expect(!h.session.isDone());
    for ([_]u32{ 1, 3 }) |stream| try start(&h, stream, .{ .status = 200, .end = true });
    try testing.expect(h.session.isDone());
    // A second call does not wait for the peer.
    var second: Harness = undefined;
    try open(&second, &harness.config, b.get(1));
    defer second.deinit();
    second.session.drain();
    second.session.drain();
    try second.emitAll(1);
    try second.expectSent("0 goaway 2147483647 no_error\n0 ping draining\n0 goaway 1 no_error\n");
}

test "CONNECT with a protocol: bytes both ways" {
    const connect = comptime b.of(.headers, flag.end_headers, 1, b.field(":method", "CONNECT") ++
        b.field(":protocol", "websocket") ++ b.post_block[1..]);
    var h: Harness = undefined;
    h.init(&harness.config, &.{});
    defer h.deinit();
    try h.feed(b.hello ++ connect);
    try h.expectHeard("1 CONNECT / chunked host=a\n");
    h.sent.clearRetainingCapacity();
    var out: [256]u8 = undefined;
    const fields = [_]Field{.init("Sec-WebSocket-Protocol", "chat")};
    const len = try h.session.switchProtocols(1, &fields, stamp, &out);
    try h.sent.appendSlice(testing.allocator, out[0..len]);
    var decoder: hpack.Decoder = .{};
    try expectFields(&h, &decoder, ":status=200;sec-websocket-protocol=chat;date=" ++ stamp ++ ";");
    h.sent.clearRetainingCapacity();
    queue(&h, 1, "down");
    h.session.pour(1, 4, false);
    try h.emitAll(100);
    try h.expectSent("1 data down\n");
    try h.feed(b.data(1, "up") ++ b.last(1, ""));
    try h.expectHeard("1 body up\n1 end\n");
    h.session.pour(1, 0, true);
    try h.emitAll(100);
    try h.expectSent("1 data 1 \n");
    try testing.expectEqual(0, h.session.streams.count);
}

test "many streams end at once, and more come: nobody is forgotten" {
    var h: Harness = undefined;
    try open(&h, &harness.config, b.post(1) ++ b.post(3) ++ b.post(5) ++ b.post(7));
    defer h.deinit();
    for ([_]u32{ 1, 3, 5, 7 }) |stream| h.session.reset(stream, .internal_error);
    var head: session_file.Head = .{ .storage = &h.storage };
    // The places of streams that we have reset are taken until the peer knows.
    const step = h.session.feed(b.get(9), &head);
    try testing.expectEqual(session_file.Event.need_more, step.event);
    try h.emitAll(1);
    try h.expectSent("9 rst_stream refused_stream\n" ++
        "1 rst_stream internal_error\n3 rst_stream internal_error\n" ++
        "5 rst_stream internal_error\n7 rst_stream internal_error\n");
    try h.feed(b.get(11));
    try h.expectHeard("11 GET / none host=a\n");
}
