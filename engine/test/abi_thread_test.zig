//! The promises of peregrine_use_thread (peregrine.h) to C programs whose engine runs on a thread of its own:
//! calls return the same as without a thread, and work that needs no answer of the program goes on while the
//! program does something else.
const std = @import("std");
const abi = @import("abi");
const listen = @import("abi_listener.zig").listen;
const loopback = @import("loopback.zig");
const c = std.c;
const types = abi.types;
const Code = types.Code;
const Event = types.Event;
const testing = std.testing;

const Server = struct {
    handle: *abi.Handle,
    port: u16,
    /// Events of the last poll that were not looked at yet.
    rest: []const Event = &.{},

    fn start() !Server {
        return startWith(&.{});
    }

    fn startWith(limits: []const struct { [*:0]const u8, i64 }) !Server {
        const config = abi.peregrine_config_new().?;
        defer abi.peregrine_config_free(config);
        for (limits) |limit| {
            try testing.expectEqual(Code.ok, abi.peregrine_config_set(config, limit[0], limit[1]));
        }
        const handle = abi.peregrine_worker_new(config).?;
        errdefer abi.peregrine_worker_free(handle);
        try testing.expectEqual(Code.ok, abi.peregrine_use_thread(handle));
        try testing.expectEqual(Code.ok, abi.peregrine_health_path(handle, "/health"));
        const port = try listen(handle);
        var server: Server = .{ .handle = handle, .port = port };
        try testing.expectEqual(0, (try server.poll(0)).len);
        return server;
    }

    fn stop(server: *Server) void {
        abi.peregrine_worker_free(server.handle);
    }

    fn connect(server: *const Server) !c.fd_t {
        return loopback.connect(server.port);
    }

    fn poll(server: *Server, timeout_ms: c_int) ![]const Event {
        var events: [*]const Event = undefined;
        const count = abi.peregrine_poll(server.handle, timeout_ms, &events);
        try testing.expect(count >= 0);
        return if (count == 0) &.{} else events[0..@intCast(count)];
    }

    /// The next event of a kind; others are passed over.
    fn wait(server: *Server, kind: types.Kind) !Event {
        const begun = std.Io.Clock.awake.now(testing.io);
        while (begun.untilNow(testing.io, .awake).toSeconds() < 30) {
            while (server.rest.len > 0) {
                const event = server.rest[0];
                server.rest = server.rest[1..];
                if (event.kind == kind) return event;
            }
            // Comes back at once while there are large strings to be freed.
            server.rest = try server.poll(100);
        }
        return error.NoSuchEvent;
    }

    fn ask(server: *Server, client: c.fd_t, request: []const u8) !types.Ticket {
        try say(client, request);
        return (try server.wait(.request)).ticket;
    }
};

fn say(client: c.fd_t, text: []const u8) !void {
    try testing.expectEqual(@as(isize, @intCast(text.len)), c.write(client, text.ptr, text.len));
}

/// Reads until the text ends so, or the connection; "": until the connection ends.
fn hear(client: c.fd_t, gpa: std.mem.Allocator, end: []const u8) ![]u8 {
    var text: std.ArrayList(u8) = .empty;
    errdefer text.deinit(gpa);
    while (end.len == 0 or !std.mem.endsWith(u8, text.items, end)) {
        var buffer: [64 * 1024]u8 = undefined;
        const len = c.read(client, &buffer, buffer.len);
        if (len <= 0) break;
        try text.appendSlice(gpa, buffer[0..@intCast(len)]);
    }
    return text.toOwnedSlice(gpa);
}

fn expectHeard(client: c.fd_t, end: []const u8) !void {
    const text = try hear(client, testing.allocator, end);
    defer testing.allocator.free(text);
    try testing.expect(std.mem.endsWith(u8, text, end));
}

fn respond(server: *const Server, ticket: types.Ticket, body: []const u8, flags: u16) c_int {
    const response: types.Response = .{
        .size = @sizeOf(types.Response),
        .status = 200,
        .flags = flags,
        .body = body.ptr,
        .body_len = body.len,
    };
    return abi.peregrine_respond(server.handle, ticket, @ptrCast(&response));
}

const get = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";

test "requests are answered, one after the other" {
    var server: Server = try .start();
    defer server.stop();
    const client = try server.connect();
    defer _ = c.close(client);
    for (0..100) |_| {
        const ticket = try server.ask(client, get);
        try testing.expectEqual(Code.done, respond(&server, ticket, "hello\n", types.RespondFlag.end));
        try testing.expectEqual(Code.gone, respond(&server, ticket, "", types.RespondFlag.end));
        try expectHeard(client, "hello\n");
    }
    var stats: types.Stats = undefined;
    stats.size = @sizeOf(types.Stats);
    abi.peregrine_worker_stats(server.handle, @ptrCast(&stats));
    try testing.expectEqual(100, stats.requests);
    try testing.expectEqual(Code.out_of_order, useTooLate());
}

fn useTooLate() c_int {
    const config = abi.peregrine_config_new().?;
    defer abi.peregrine_config_free(config);
    const handle = abi.peregrine_worker_new(config).?;
    defer abi.peregrine_worker_free(handle);
    var events: [*]const Event = undefined;
    _ = abi.peregrine_poll(handle, 0, &events);
    return abi.peregrine_use_thread(handle);
}

test "while the program sleeps, others are refused, told that we live, and heard" {
    var server: Server = try .start();
    defer server.stop();
    const busy = try server.connect();
    defer _ = c.close(busy);
    const ticket = try server.ask(busy, get);
    // No thread polls from here on.
    const wrong = try server.connect();
    defer _ = c.close(wrong);
    try say(wrong, "GET / HTTP/1.1\r\n\r\n");
    const refusal = try hear(wrong, testing.allocator, "");
    defer testing.allocator.free(refusal);
    try testing.expect(std.mem.startsWith(u8, refusal, "HTTP/1.1 400 "));
    const healthy = try server.connect();
    defer _ = c.close(healthy);
    try say(healthy, "GET /health HTTP/1.1\r\nHost: h\r\n\r\n");
    try expectHeard(healthy, "ok\n");
    // An answer after that goes out as well.
    try testing.expectEqual(Code.done, respond(&server, ticket, "at last\n", types.RespondFlag.end));
    try expectHeard(busy, "at last\n");
}

test "bodies that are longer than the ring, both ways" {
    var server: Server = try .start();
    defer server.stop();
    const client = try server.connect();
    defer _ = c.close(client);
    const len = 3_000_000;
    const body = try testing.allocator.alloc(u8, len);
    defer testing.allocator.free(body);
    for (body, 0..) |*byte, i| byte.* = @truncate(i *% 31 >> 4);
    const ticket = try server.ask(client, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3000000\r\n\r\n");
    const sender: std.Thread = try .spawn(.{}, sendAll, .{ client, body });
    var got: usize = 0;
    while (true) {
        try testing.expectEqual(Code.ok, abi.peregrine_read(server.handle, ticket));
        const event = try server.wait(.body);
        try testing.expectEqualSlices(u8, body[got..][0..event.len], event.bytes[0..event.len]);
        got += event.len;
        if (event.flags & types.EventFlag.last != 0) break;
    }
    sender.join();
    try testing.expectEqual(len, got);
    const reader: std.Thread = try .spawn(.{}, expectAll, .{ client, body });
    try testing.expectEqual(Code.blocked, respond(&server, ticket, body, types.RespondFlag.end));
    try testing.expectEqual(ticket, (try server.wait(.finished)).ticket);
    reader.join();
}

fn sendAll(client: c.fd_t, body: []const u8) void {
    var rest = body;
    while (rest.len > 0) {
        const len = c.write(client, rest.ptr, rest.len);
        if (len <= 0) return;
        rest = rest[@intCast(len)..];
    }
}

fn expectAll(client: c.fd_t, body: []const u8) void {
    const text = hear(client, std.heap.smp_allocator, body[body.len - 100 ..]) catch unreachable;
    defer std.heap.smp_allocator.free(text);
    std.debug.assert(std.mem.endsWith(u8, text, body));
}

/// Begins a response, and lends its whole content.
fn lend(server: *const Server, ticket: types.Ticket, body: []const u8, loan: *types.Loan) !c_int {
    try testing.expectEqual(Code.ok, respond(server, ticket, "", types.RespondFlag.hold));
    const end = types.RespondFlag.end;
    return abi.peregrine_lend(server.handle, ticket, body.ptr, body.len, end, loan);
}

/// Polls until the loan is back, which has to be the only one.
fn expectBack(server: *Server, loan: *types.Loan) !void {
    for (0..300) |_| {
        const back = abi.peregrine_returned(server.handle) orelse {
            _ = try server.poll(100);
            continue;
        };
        try testing.expectEqual(loan, back);
        try testing.expectEqual(null, back.next);
        return;
    }
    return error.LoanIsNotBack;
}

test "lent content is sent from where it is, and comes back when it was sent" {
    var server: Server = try .start();
    defer server.stop();
    const client = try server.connect();
    defer _ = c.close(client);
    const body = try testing.allocator.alloc(u8, 64 * 1024 * 1024);
    defer testing.allocator.free(body);
    @memset(body, 'l');
    var loan: types.Loan = .{};
    const ticket = try server.ask(client, get);
    try testing.expectEqual(Code.blocked, try lend(&server, ticket, body, &loan));
    try expectHeard(client, "lllll");
    // The client has got less than the kernel keeps for it, so most of the content is still lent.
    try testing.expectEqual(null, abi.peregrine_returned(server.handle));
    @memset(body[body.len - 10 ..], 'n');
    const reader: std.Thread = try .spawn(.{}, expectEnd, .{ client, "lnnnnnnnnnn" });
    defer reader.join();
    try testing.expectEqual(ticket, (try server.wait(.finished)).ticket);
    // With the event the loan is back.
    try testing.expectEqual(&loan, abi.peregrine_returned(server.handle).?);
    try testing.expectEqual(null, loan.next);
    try testing.expectEqual(null, abi.peregrine_returned(server.handle));
}

fn expectEnd(client: c.fd_t, end: []const u8) void {
    const text = hear(client, std.heap.smp_allocator, end) catch unreachable;
    std.heap.smp_allocator.free(text);
}

/// A server that was lent a large string, and a client that reads the string to its end.
const Large = struct {
    server: Server,
    body: []u8 = &.{},
    loan: types.Loan = .{},
    client: c.fd_t = -1,
    reader: ?std.Thread = null,

    fn lendAndRead(large: *Large) !void {
        errdefer large.stop();
        large.client = try large.server.connect();
        large.body = try testing.allocator.alloc(u8, 2 * 1024 * 1024);
        @memset(large.body, 'l');
        large.body[large.body.len - 1] = '\n';
        const ticket = try large.server.ask(large.client, get);
        // No event follows, as the response is done for the program.
        try testing.expectEqual(Code.done, try lend(&large.server, ticket, large.body, &large.loan));
        large.reader = try .spawn(.{}, expectEnd, .{ large.client, "l\n" });
    }

    fn stop(large: *Large) void {
        if (large.reader) |reader| reader.join();
        large.server.stop();
        testing.allocator.free(large.body);
        if (large.client >= 0) _ = c.close(large.client);
    }
};

test "a program that sleeps over large strings that were sent is woken to free them" {
    var large: Large = .{ .server = try .startWith(&.{.{ "write_high_bytes", 4 * 1024 * 1024 }}) };
    try large.lendAndRead();
    defer large.stop();
    const server = &large.server;
    const fd = abi.peregrine_fd(server.handle);
    while (true) {
        try testing.expectEqual(0, (try server.poll(0)).len);
        if (abi.peregrine_returned(server.handle) != null) break;
        var wakeup: [1]c.pollfd = .{.{ .fd = fd, .events = c.POLL.IN, .revents = 0 }};
        try testing.expectEqual(1, c.poll(&wakeup, 1, 30_000));
    }
}

test "a program does not begin to sleep over large strings that were sent" {
    var large: Large = .{ .server = try .startWith(&.{.{ "write_high_bytes", 4 * 1024 * 1024 }}) };
    try large.lendAndRead();
    defer large.stop();
    const server = &large.server;
    while (!server.handle.home.thread.engine.returned.isLarge()) _ = c.poll(&.{}, 0, 10);
    // The engine wakes no program that is awake, so this one would sleep for ever.
    try testing.expectEqual(0, (try server.poll(-1)).len);
    try testing.expectEqual(&large.loan, abi.peregrine_returned(server.handle).?);
}

test "a loan comes back when its client leaves, and when its command comes too late" {
    var server: Server = try .start();
    defer server.stop();
    const body = try testing.allocator.alloc(u8, 64 * 1024 * 1024);
    defer testing.allocator.free(body);
    @memset(body, 'l');
    var loan: types.Loan = .{};
    const slow = try server.connect();
    const ticket = try server.ask(slow, get);
    try testing.expectEqual(Code.blocked, try lend(&server, ticket, body, &loan));
    try expectHeard(slow, "lllll");
    try testing.expectEqual(null, abi.peregrine_returned(server.handle));
    _ = c.close(slow);
    try expectBack(&server, &loan);

    const client = try server.connect();
    const late = try server.ask(client, get);
    try leave(&server, client, 0);
    // As the program sees it that speaks just before the engine hears of the client's end.
    const slots = &server.handle.home.thread.slots;
    slots.begin(late, .{ .bytes = 0, .stuck = false });
    defer slots.end(late);
    try testing.expectEqual(Code.blocked, try lend(&server, late, body, &loan));
    try expectBack(&server, &loan);
}

test "a program may end while the engine has loans" {
    var server: Server = try .start();
    const client = try server.connect();
    defer _ = c.close(client);
    const body = try testing.allocator.alloc(u8, 64 * 1024 * 1024);
    defer testing.allocator.free(body);
    @memset(body, 'l');
    var loan: types.Loan = .{};
    const ticket = try server.ask(client, get);
    try testing.expectEqual(Code.blocked, try lend(&server, ticket, body, &loan));
    try expectHeard(client, "lllll");
    server.stop();
}

test "content of 16 KiB and more lies beside the ring, and shorter content in it" {
    var server: Server = try .start();
    defer server.stop();
    const client = try server.connect();
    defer _ = c.close(client);
    const body: [16 * 1024]u8 = @splat('x');
    for ([_][]const u8{ body[1..], &body }, 0..) |content, beside| {
        const ticket = try server.ask(client, get);
        try testing.expectEqual(Code.done, respond(&server, ticket, content, types.RespondFlag.end));
        try testing.expectEqual(beside, server.handle.home.thread.application.commands_annex.count);
        try expectHeard(client, content);
    }
}

test "a response of 64 KiB is complete when it is said, and nobody waits for it" {
    var server: Server = try .start();
    defer server.stop();
    const client = try server.connect();
    defer _ = c.close(client);
    const body = try testing.allocator.alloc(u8, 64 * 1024);
    defer testing.allocator.free(body);
    @memset(body, 'x');
    body[body.len - 1] = '\n';
    for (0..3) |_| {
        const ticket = try server.ask(client, get);
        const reader: std.Thread = try .spawn(.{}, expectAll, .{ client, body });
        defer reader.join();
        try testing.expectEqual(Code.done, respond(&server, ticket, body, types.RespondFlag.end));
    }
}

/// The content of the connection's last response, in one piece: with its length, or as a chunk.
fn expectLast(client: c.fd_t, content: []const u8) !void {
    const text = try hear(client, testing.allocator, "");
    defer testing.allocator.free(text);
    const end = std.mem.indexOf(u8, text, "\r\n\r\n").? + 4;
    if (std.mem.indexOf(u8, text[0..end], "ontent-Length: ") != null) {
        return testing.expectEqualStrings(content, text[end..]);
    }
    var buffer: [64]u8 = undefined;
    const chunk = try std.fmt.bufPrint(&buffer, "{x}\r\n{s}\r\n0\r\n\r\n", .{ content.len, content });
    try testing.expectEqualStrings(chunk, text[end..]);
}

test "a head that waits goes with the body behind it, and with that of its own response only" {
    var server: Server = try .start();
    defer server.stop();
    var clients: [4]c.fd_t = undefined;
    var tickets: [4]types.Ticket = undefined;
    for (&clients, &tickets) |*client, *ticket| {
        client.* = try server.connect();
        ticket.* = try server.ask(client.*, get);
    }
    defer for (clients) |client| {
        _ = c.close(client);
    };
    const hold = types.RespondFlag.hold;
    const last = types.RespondFlag.end | types.RespondFlag.close;
    // The second one's body is not the first one's; the third one's first piece is not its last. The engine
    // may see any number of these calls in one round, and a head whose round has ended has no length.
    for (tickets[0..3]) |ticket| try testing.expectEqual(Code.ok, respond(&server, ticket, "", hold));
    try testing.expectEqual(Code.ok, abi.peregrine_write(server.handle, tickets[2], "one ", 4, 0));
    try testing.expectEqual(Code.done, abi.peregrine_write(server.handle, tickets[0], "first", 5, last));
    try testing.expectEqual(Code.done, abi.peregrine_write(server.handle, tickets[1], "second", 6, last));
    try testing.expectEqual(Code.done, abi.peregrine_write(server.handle, tickets[2], "two", 3, last));
    try expectLast(clients[0], "first");
    try expectLast(clients[1], "second");
    try expectHeard(clients[2], "4\r\none \r\n3\r\ntwo\r\n0\r\n\r\n");
    // If nothing comes between them, head and body go out together.
    try testing.expectEqual(Code.ok, respond(&server, tickets[3], "", hold));
    try testing.expectEqual(Code.done, abi.peregrine_write(server.handle, tickets[3], "whole", 5, last));
    const text = try hear(clients[3], testing.allocator, "");
    defer testing.allocator.free(text);
    try testing.expect(std.mem.indexOf(u8, text, "ontent-Length: 5\r\n") != null);
    try testing.expect(std.mem.indexOf(u8, text, "onnection: close\r\n") != null);
    try testing.expect(std.mem.endsWith(u8, text, "\r\n\r\nwhole"));
}

test "a head that waits goes before a command that is no content" {
    var server: Server = try .start();
    defer server.stop();
    const client = try server.connect();
    defer _ = c.close(client);
    const ticket = try server.ask(client, get);
    try testing.expectEqual(Code.ok, respond(&server, ticket, "", types.RespondFlag.hold));
    try testing.expectEqual(Code.done, abi.peregrine_finish(server.handle, ticket, null, 0));
    const text = try hear(client, testing.allocator, "\r\n\r\n");
    defer testing.allocator.free(text);
    try testing.expect(std.mem.startsWith(u8, text, "HTTP/1.1 200 "));
}

test "bytes that the client has got are no longer on their way" {
    var server: Server = try .start();
    defer server.stop();
    const client = try server.connect();
    defer _ = c.close(client);
    const ticket = try server.ask(client, get);
    try testing.expectEqual(Code.ok, respond(&server, ticket, "", 0));
    const piece: [1000]u8 = @splat('x');
    try testing.expectEqual(Code.ok, abi.peregrine_write(server.handle, ticket, &piece, piece.len, 0));
    try testing.expect(abi.peregrine_buffered(server.handle, ticket) >= 1000);
    try expectHeard(client, "x\r\n");
    for (0..3000) |_| {
        try testing.expectEqual(0, (try server.poll(10)).len);
        if (abi.peregrine_buffered(server.handle, ticket) == 0) return;
    }
    return error.TestUnexpectedResult;
}

test "a file for a client that has left is closed" {
    var server: Server = try .start();
    defer server.stop();
    const client = try server.connect();
    const ticket = try server.ask(client, get);
    try leave(&server, client, 0);
    const file = c.open("/proc/self/exe", .{});
    try testing.expect(file >= 0);
    defer _ = c.close(file);
    const free = freeDescriptor();
    // As the program sees it that speaks just before the engine hears of the client's end.
    const slots = &server.handle.home.thread.slots;
    slots.begin(ticket, .{ .bytes = 0, .stuck = false });
    defer slots.end(ticket);
    try testing.expectEqual(Code.ok, respond(&server, ticket, "", 0));
    try testing.expectEqual(Code.blocked, abi.peregrine_write_file(server.handle, ticket, file, 0, 10));
    try expectExchanges(&server, 0);
    try testing.expectEqual(free, freeDescriptor());
}

/// The number that the next descriptor gets.
fn freeDescriptor() c.fd_t {
    const next = c.dup(0);
    _ = c.close(next);
    return next;
}

test "mistakes are told at once, and nothing is sent" {
    var server: Server = try .start();
    defer server.stop();
    const client = try server.connect();
    defer _ = c.close(client);
    const ticket = try server.ask(client, get);
    const handle = server.handle;
    try testing.expectEqual(Code.out_of_order, abi.peregrine_write(handle, ticket, "x", 1, 0));
    try testing.expectEqual(
        Code.not_websocket,
        abi.peregrine_accept_websocket(handle, ticket, null, 0, null, 0),
    );
    try testing.expectEqual(
        Code.range,
        abi.peregrine_accept_websocket_as(handle, ticket, 3, null, 0, null, 0),
    );
    try testing.expectEqual(Code.ok, respond(&server, ticket, "", 0));
    try testing.expectEqual(Code.out_of_order, respond(&server, ticket, "", 0));
    // No file has such a range, and the descriptor stays the caller's.
    const file = c.open("/proc/self/exe", .{});
    const most: u64 = std.math.maxInt(i64);
    const all = std.math.maxInt(u64);
    for ([_][2]u64{ .{ 0, most + 1 }, .{ most, 1 }, .{ 1, all }, .{ all, all } }) |range| {
        const code = abi.peregrine_write_slow_file(handle, ticket, file, range[0], range[1]);
        try testing.expectEqual(Code.range, code);
    }
    try testing.expectEqual(0, c.close(file));
    try testing.expectEqual(Code.done, abi.peregrine_write(handle, ticket, "end", 3, types.RespondFlag.end));
    try expectHeard(client, "0\r\n\r\n");
    try testing.expectEqual(Code.gone, abi.peregrine_read(handle, 12345));
    try testing.expectEqual(Code.gone, abi.peregrine_set_user(handle, ticket, null));
}

test "a client that leaves ends its exchange, and what was said for it is dropped" {
    var server: Server = try .start();
    defer server.stop();
    const client = try server.connect();
    const ticket = try server.ask(client, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n");
    var mark: u8 = 0;
    try testing.expectEqual(Code.ok, abi.peregrine_set_user(server.handle, ticket, &mark));
    try testing.expectEqual(Code.ok, abi.peregrine_read(server.handle, ticket));
    _ = c.close(client);
    const event = try server.wait(.aborted);
    try testing.expectEqual(ticket, event.ticket);
    try testing.expectEqual(@as(?*anyopaque, &mark), event.user);
    try testing.expectEqual(@as(?*anyopaque, &mark), abi.peregrine_user(server.handle, ticket));
    try testing.expectEqual(Code.gone, respond(&server, ticket, "", types.RespondFlag.end));
    server.rest = try server.poll(0);
    try testing.expectEqual(null, abi.peregrine_user(server.handle, ticket));
}

test "a request that the application gives up is answered by the engine" {
    var server: Server = try .start();
    defer server.stop();
    const client = try server.connect();
    defer _ = c.close(client);
    try say(client, get);
    const ticket = (try server.wait(.request)).ticket;
    try testing.expectEqual(Code.ok, abi.peregrine_take(server.handle, ticket));
    try testing.expectEqual(Code.ok, abi.peregrine_give_up(server.handle, ticket));
    try expectHeard(client, "The application takes too long.\n");
    // The program's late answer goes nowhere.
    _ = respond(&server, ticket, "late\n", types.RespondFlag.end);
    try say(client, get);
    const next = (try server.wait(.request)).ticket;
    try testing.expectEqual(Code.done, respond(&server, next, "next\n", types.RespondFlag.end));
    const heard = try hear(client, testing.allocator, "next\n");
    defer testing.allocator.free(heard);
    try testing.expectEqual(null, std.mem.find(u8, heard, "late"));
    // A response that has begun is cut.
    const other = try server.connect();
    defer _ = c.close(other);
    try say(other, get);
    const begun = (try server.wait(.request)).ticket;
    try testing.expectEqual(Code.ok, respond(&server, begun, "hel", types.RespondFlag.flush));
    try expectHeard(other, "hel\r\n");
    try testing.expectEqual(Code.ok, abi.peregrine_give_up(server.handle, begun));
    const rest = try hear(other, testing.allocator, "");
    defer testing.allocator.free(rest);
    try testing.expectEqual(null, std.mem.find(u8, rest, "0\r\n\r\n"));
}

test "a request whose client has left before it was taken is never worked on" {
    var server: Server = try .start();
    defer server.stop();
    const early = try server.connect();
    try say(early, get);
    try expectExchanges(&server, 1);
    try leave(&server, early, 0);
    var clients: [2]c.fd_t = undefined;
    for (&clients) |*client| {
        client.* = try server.connect();
        try say(client.*, get);
    }
    defer _ = c.close(clients[0]);
    try expectExchanges(&server, 2);
    // The first client stays, the second one leaves.
    const first = try server.wait(.request);
    const second = try server.wait(.request);
    try testing.expectEqual(1, first.request.?.number);
    try testing.expectEqual(Code.ok, abi.peregrine_take(server.handle, first.ticket));
    try leave(&server, clients[1], 1);
    try testing.expectEqual(Code.gone, abi.peregrine_take(server.handle, second.ticket));
    try testing.expectEqual(Code.gone, respond(&server, second.ticket, "", types.RespondFlag.end));
    // Taken by the answer.
    try testing.expectEqual(Code.ok, abi.peregrine_take(server.handle, first.ticket));
    try testing.expectEqual(Code.done, respond(&server, first.ticket, "hello\n", types.RespondFlag.end));
    try expectHeard(clients[0], "hello\n");
    try testing.expectEqual(Code.gone, abi.peregrine_take(server.handle, first.ticket));
    for (server.rest) |event| try testing.expect(event.kind != .aborted);
    for (try server.poll(0)) |event| try testing.expect(event.kind != .request and event.kind != .aborted);
    var stats: types.Stats = undefined;
    stats.size = @sizeOf(types.Stats);
    abi.peregrine_worker_stats(server.handle, @ptrCast(&stats));
    try testing.expectEqual(0, stats.ledger);
}

test "more clients that leave than a poll has events are passed over, and the next one is heard" {
    var server: Server = try .start();
    defer server.stop();
    for (0..6) |_| {
        var clients: [100]c.fd_t = undefined;
        for (&clients) |*client| {
            client.* = try server.connect();
            try say(client.*, get);
        }
        try expectExchanges(&server, clients.len);
        for (clients) |client| try reset(client);
        try expectExchanges(&server, 0);
    }
    const client = try server.connect();
    defer _ = c.close(client);
    try say(client, get);
    try expectExchanges(&server, 1);
    const ticket = (try server.wait(.request)).ticket;
    try testing.expectEqual(Code.done, respond(&server, ticket, "hello\n", types.RespondFlag.end));
    try expectHeard(client, "hello\n");
}

/// Closes a connection, and waits until the engine has this many exchanges left.
fn leave(server: *const Server, client: c.fd_t, left: u32) !void {
    try reset(client);
    try expectExchanges(server, left);
}

fn reset(client: c.fd_t) !void {
    const linger: extern struct { on: c_int, seconds: c_int } = .{ .on = 1, .seconds = 0 };
    const rc = c.setsockopt(client, c.SOL.SOCKET, c.SO.LINGER, &linger, @sizeOf(@TypeOf(linger)));
    try testing.expectEqual(0, rc);
    _ = c.close(client);
}

fn expectExchanges(server: *const Server, count: u32) !void {
    var stats: types.Stats = undefined;
    stats.size = @sizeOf(types.Stats);
    for (0..3000) |_| {
        abi.peregrine_worker_stats(server.handle, @ptrCast(&stats));
        if (stats.exchanges == count) return;
        var nothing: [0]c.pollfd = .{};
        _ = c.poll(&nothing, 0, 10);
    }
    return error.TestUnexpectedResult;
}

test "draining lets exchanges end, cutting does not" {
    var server: Server = try .start();
    defer server.stop();
    const client = try server.connect();
    defer _ = c.close(client);
    const ticket = try server.ask(client, get);
    abi.peregrine_drain(server.handle);
    try testing.expectEqual(Code.done, respond(&server, ticket, "bye\n", types.RespondFlag.end));
    try expectHeard(client, "bye\n");
    _ = try server.wait(.stopped);

    var other: Server = try .start();
    defer other.stop();
    const cut = try other.connect();
    defer _ = c.close(cut);
    const open = try other.ask(cut, get);
    abi.peregrine_cut(other.handle);
    try testing.expectEqual(open, (try other.wait(.aborted)).ticket);
    _ = try other.wait(.stopped);
}

test "a program whose head is kept hears of room, though nothing leaves before it says more" {
    var server: Server = try .startWith(&.{ .{ "write_high_bytes", 1 }, .{ "write_low_bytes", 1 } });
    defer server.stop();
    const client = try server.connect();
    defer _ = c.close(client);
    const ticket = try server.ask(client, get);
    try testing.expectEqual(Code.ok, abi.peregrine_keep_head(server.handle, ticket, 1));
    try testing.expectEqual(Code.blocked, respond(&server, ticket, "", types.RespondFlag.hold));
    try testing.expectEqual(ticket, (try server.wait(.drained)).ticket);
    try testing.expect(abi.peregrine_write(server.handle, ticket, "end", 3, types.RespondFlag.end) >= 0);
    try expectHeard(client, "\r\n\r\nend");
}

test "lines of the access log that the program does not read take no more memory than they may" {
    const bytes_max = 64 * 1024;
    const config = abi.peregrine_config_new().?;
    defer abi.peregrine_config_free(config);
    try testing.expectEqual(Code.ok, abi.peregrine_config_set(config, "access_log_bytes", bytes_max));
    const handle = abi.peregrine_worker_new(config).?;
    defer abi.peregrine_worker_free(handle);
    try testing.expectEqual(Code.ok, abi.peregrine_use_thread(handle));
    // The engine answers by itself.
    try testing.expectEqual(Code.ok, abi.serving.peregrine_redirect_to_https(handle, 443));
    const log: types.AccessLog = .{ .size = @sizeOf(types.AccessLog) };
    try testing.expectEqual(Code.ok, abi.peregrine_access_log_open(handle, @ptrCast(&log)));
    var server: Server = .{ .handle = handle, .port = try listen(handle) };
    try testing.expectEqual(0, (try server.poll(0)).len);
    const client = try server.connect();
    try say(client, get);
    var bytes: [64 * 1024]u8 = undefined;
    const answer_len = (try loopback.receive(client, &bytes)).len;
    const together = 100;
    const requests: [together * get.len]u8 = @bitCast(@as([together][get.len]u8, @splat(get.*)));
    for (0..200) |_| {
        try loopback.send(client, &requests);
        var left = together * answer_len;
        while (left > 0) left -= (try loopback.receive(client, bytes[0..@min(left, bytes.len)])).len;
    }
    _ = c.close(client);
    abi.peregrine_drain(handle);
    var lines_len: usize = 0;
    var is_told = false;
    var is_over = false;
    while (!is_over) for (try server.poll(1000)) |event| switch (event.kind) {
        .lines => lines_len += event.len,
        .notice => if (std.mem.find(u8, event.bytes[0..event.len], "dropped") != null) {
            is_told = true;
        },
        .stopped => is_over = true,
        else => {},
    };
    // A full ring, what waits for room there, and what is yet to be handed over.
    const ring_bytes = abi.spoken.ring.bytes_min;
    try testing.expect(lines_len > bytes_max and lines_len < ring_bytes + 4 * bytes_max);
    try testing.expect(is_told);
}

test "the ring pair of a program that writes garbage into it ends, and the engine goes on" {
    var server: Server = try .start();
    defer server.stop();
    const client = try server.connect();
    defer _ = c.close(client);
    const ticket = try server.ask(client, get);
    const commands = &server.handle.home.thread.application.commands;
    const space = (try commands.reserve(100)).?;
    @memset(space, 0xEE);
    commands.commit(.whole);
    try testing.expectEqual(Code.gone, abi.peregrine_abort(server.handle, ticket +% (1 << 30)));
    _ = commands.publish();
    server.handle.ownEngine().?.worker.io.wake();
    const notice = try server.wait(.notice);
    const said = notice.bytes[0..notice.len];
    try testing.expect(std.mem.endsWith(u8, said, "a command of its application cannot be read (Malformed)"));
    try testing.expectEqual(ticket, (try server.wait(.aborted)).ticket);
    _ = try server.wait(.stopped);
    try testing.expectEqual(Code.gone, respond(&server, ticket, "", types.RespondFlag.end));
}
