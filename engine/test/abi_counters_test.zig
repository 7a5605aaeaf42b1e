//! The promises of peregrine_use_counters (peregrine.h): each word counts what its description says, whether
//! the engine runs on a thread of its own or not.
const std = @import("std");
const abi = @import("abi");
const listen = @import("abi_listener.zig").listen;
const loopback = @import("loopback.zig");
const c = std.c;
const types = abi.types;
const Code = types.Code;
const Event = types.Event;
const testing = std.testing;

const words_max = 256;

const Server = struct {
    handle: *abi.Handle,
    port: u16,
    words: *[words_max]u64,

    fn start(words: *[words_max]u64, threaded: bool) !Server {
        const config = abi.peregrine_config_new().?;
        defer abi.peregrine_config_free(config);
        const handle = abi.peregrine_worker_new(config).?;
        errdefer abi.peregrine_worker_free(handle);
        if (threaded) try testing.expectEqual(Code.ok, abi.peregrine_use_thread(handle));
        words.* = @splat(0);
        const count = wordCount();
        try testing.expectEqual(Code.range, abi.peregrine_use_counters(handle, words, count - 1));
        try testing.expectEqual(Code.ok, abi.peregrine_use_counters(handle, words, words_max));
        const port = try listen(handle);
        return .{ .handle = handle, .port = port, .words = words };
    }

    fn stop(server: *Server) void {
        abi.peregrine_worker_free(server.handle);
    }

    fn connect(server: *const Server) !c.fd_t {
        return loopback.connect(server.port);
    }

    /// The next event of a kind; others are passed over.
    fn wait(server: *Server, kind: types.Kind) !Event {
        for (0..300) |_| for (try server.poll(100)) |event| if (event.kind == kind) return event;
        return error.NoSuchEvent;
    }

    fn poll(server: *Server, timeout_ms: c_int) ![]const Event {
        var events: [*]const Event = undefined;
        const count = abi.peregrine_poll(server.handle, timeout_ms, &events);
        try testing.expect(count >= 0);
        return if (count == 0) &.{} else events[0..@intCast(count)];
    }

    /// Waits until a word has a value.
    fn expect(server: *Server, name: []const u8, value: []const u8, expected: u64) !void {
        for (0..300) |_| {
            if (server.word(name, value) == expected) return;
            _ = try server.poll(100);
        }
        try testing.expectEqual(expected, server.word(name, value));
    }

    fn word(server: *const Server, name: []const u8, value: []const u8) u64 {
        return @atomicLoad(u64, &server.words[find(name, value)], .monotonic);
    }

    /// How many a histogram has counted.
    fn total(server: *const Server, name: []const u8) u64 {
        var sum: u64 = 0;
        for (0..wordCount()) |at| {
            const counter = abi.peregrine_counter_at(at).?;
            if (counter.kind == 3 and std.mem.eql(u8, std.mem.span(counter.name), name)) {
                sum += server.words[at];
            }
        }
        return sum;
    }

    fn answer(server: *Server, ticket: types.Ticket, status: u16, body: []const u8) c_int {
        const response: types.Response = .{
            .size = @sizeOf(types.Response),
            .status = status,
            .flags = types.RespondFlag.end,
            .body = body.ptr,
            .body_len = body.len,
        };
        return abi.peregrine_respond(server.handle, ticket, @ptrCast(&response));
    }
};

fn wordCount() usize {
    var count: usize = 0;
    while (abi.peregrine_counter_at(count) != null) count += 1;
    return count;
}

/// The word of that name and value; the sum of a histogram, whose value is empty.
fn find(name: []const u8, value: []const u8) usize {
    for (0..wordCount()) |at| {
        const counter = abi.peregrine_counter_at(at).?;
        if (std.mem.eql(u8, std.mem.span(counter.name), name) and
            std.mem.eql(u8, std.mem.span(counter.value), value))
        {
            return at;
        }
    }
    unreachable; // a test names what there is
}

fn say(client: c.fd_t, text: []const u8) !void {
    try testing.expectEqual(@as(isize, @intCast(text.len)), c.write(client, text.ptr, text.len));
}

/// Polls until the client has got this many bytes that end so; how many there were.
fn hear(server: *Server, client: c.fd_t, end: []const u8) !usize {
    var text: [4096]u8 = undefined;
    var len: usize = 0;
    for (0..300) |_| {
        const got = c.recv(client, text[len..].ptr, text.len - len, c.MSG.DONTWAIT);
        if (got > 0) len += @intCast(got);
        if (std.mem.endsWith(u8, text[0..len], end)) return len;
        _ = try server.poll(10);
    }
    return error.NoAnswer;
}

fn pause(ms: i32) void {
    var nothing: [0]c.pollfd = .{};
    _ = c.poll(&nothing, 0, ms);
}

const get = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";

fn countRequests(threaded: bool) !void {
    var words: [words_max]u64 = undefined;
    var server: Server = try .start(&words, threaded);
    defer server.stop();
    const client = try server.connect();
    defer _ = c.close(client);

    try say(client, get);
    const slow = (try server.wait(.request)).ticket;
    pause(30);
    try server.expect("requests_open", "waiting", 1);
    try testing.expectEqual(Code.ok, abi.peregrine_take(server.handle, slow));
    pause(60);
    try server.expect("requests_open", "working", 1);
    try testing.expectEqual(Code.done, server.answer(slow, 200, "hello\n"));
    var heard = try hear(&server, client, "hello\n");
    try say(client, get);
    const wrong = (try server.wait(.request)).ticket;
    try testing.expectEqual(Code.ok, abi.peregrine_take(server.handle, wrong));
    try testing.expectEqual(Code.done, server.answer(wrong, 404, "none\n"));
    heard += try hear(&server, client, "none\n");

    try server.expect("connections", "idle", 1);
    try testing.expectEqual(0, server.word("requests_open", "working"));
    try testing.expectEqual(1, server.word("connections_accepted", ""));
    try testing.expectEqual(1, server.word("requests", "2xx"));
    try testing.expectEqual(1, server.word("requests", "4xx"));
    try testing.expectEqual(0, server.word("requests_refused", "malformed"));
    try testing.expectEqual(2 * get.len, server.word("network_bytes", "in"));
    try testing.expectEqual(heard, server.word("network_bytes", "out"));
    const queue, const work, const write = .{
        server.word("queue_time", ""), server.word("application_time", ""), server.word("write_time", ""),
    };
    try testing.expect(queue >= 30_000);
    try testing.expect(work >= 60_000);
    try testing.expectEqual(queue + work + write, server.word("request_time", ""));
    for ([_][]const u8{ "request_time", "queue_time", "application_time", "write_time" }) |name|
        try testing.expectEqual(2, server.total(name));

    try say(client, get);
    _ = try server.wait(.request);
    try say(client, "no request\r\n\r\n");
    const other = try server.connect();
    try say(other, "no request\r\n\r\n");
    _ = try hear(&server, other, "\n");
    _ = c.close(other);
    try server.expect("requests_refused", "malformed", 1);
    try testing.expectEqual(2, server.word("requests", "4xx"));
}

test "requests, their times, bytes and connections" {
    try countRequests(false);
}

test "words count the same with the engine on a thread of its own" {
    try countRequests(true);
}

fn countEnds(threaded: bool) !void {
    var words: [words_max]u64 = undefined;
    var server: Server = try .start(&words, threaded);
    defer server.stop();
    const client = try server.connect();
    try say(client, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nab");
    try testing.expectEqual(Code.ok, abi.peregrine_read(server.handle, (try server.wait(.request)).ticket));
    _ = c.close(client);
    try server.expect("requests_aborted", "client_closed", 1);
    try testing.expectEqual(1, server.word("requests", "none"));
    try testing.expectEqual(0, server.total("request_time"));

    const websocket = try server.connect();
    defer _ = c.close(websocket);
    try say(websocket, "GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" ++
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n");
    const ticket = (try server.wait(.request)).ticket;
    try testing.expectEqual(Code.ok, abi.peregrine_accept_websocket(server.handle, ticket, null, 0, null, 0));
    try testing.expectEqual(
        Code.ok,
        abi.peregrine_send_message(server.handle, ticket, "hi", 2, types.EventFlag.text),
    );
    try say(websocket, "\x81\x82\x00\x00\x00\x00ok");
    _ = try server.wait(.message);
    try server.expect("connections", "websocket", 1);
    try testing.expectEqual(1, server.word("websockets", ""));
    try testing.expectEqual(1, server.word("websocket_messages", "in"));
    try testing.expectEqual(1, server.word("websocket_messages", "out"));
    // The counts stay after the worker has stopped counting.
    try testing.expectEqual(Code.ok, abi.peregrine_use_counters(server.handle, null, 0));
    try testing.expectEqual(
        Code.ok,
        abi.peregrine_send_message(server.handle, ticket, "hi", 2, types.EventFlag.text),
    );
    try testing.expectEqual(1, server.word("websocket_messages", "out"));
}

test "requests that end early, and WebSockets" {
    try countEnds(false);
}

test "counters count as well with the engine on a thread of its own" {
    try countEnds(true);
}
