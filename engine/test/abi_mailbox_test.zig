//! The promises of peregrine_post (peregrine.h): other threads answer, whatever the engine's placement, and
//! nothing they say is lost but what nobody waits for.
const std = @import("std");
const linux = std.os.linux;
const abi = @import("abi");
const listen = @import("abi_listener.zig").listen;
const loopback = @import("loopback.zig");
const Code = abi.types.Code;
const mailbox = abi.mailbox;
const testing = std.testing;

/// A worker, and the thread that answers what comes to it.
const World = struct {
    handle: *abi.Handle,
    port: u16,

    fn start(on_thread: bool) !World {
        const config = abi.peregrine_config_new().?;
        defer abi.peregrine_config_free(config);
        const handle = abi.peregrine_worker_new(config).?;
        if (on_thread) try testing.expectEqual(Code.ok, abi.peregrine_use_thread(handle));
        return .{ .handle = handle, .port = try listen(handle) };
    }

    fn stop(world: *const World) void {
        abi.peregrine_worker_free(world.handle);
    }

    /// A connection on which a request has been sent.
    fn client(world: *const World) !i32 {
        const fd = try loopback.connect(world.port);
        errdefer _ = std.c.close(fd);
        try loopback.send(fd, "GET / HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n");
        return fd;
    }

    /// The ticket of the next request.
    fn request(world: *const World) !abi.types.Ticket {
        var events: [*]const abi.types.Event = undefined;
        for (0..100) |_| {
            const count = abi.peregrine_poll(world.handle, 60_000, &events);
            try testing.expect(count >= 0);
            if (count > 0) return events[0].ticket;
        }
        return error.NoRequest;
    }
};

const Answerer = struct {
    box: *mailbox.Mailbox,
    ticket: abi.types.Ticket,
    response: abi.types.Response,
    code: c_int = 0,

    fn run(answerer: *Answerer) void {
        answerer.code = mailbox.peregrine_post(answerer.box, answerer.ticket, @ptrCast(&answerer.response));
    }
};

fn answerOf(response: abi.types.Response, on_thread: bool, space: []u8) ![]const u8 {
    const world: World = try .start(on_thread);
    defer world.stop();
    const box = mailbox.peregrine_mailbox_new(world.handle).?;
    defer mailbox.peregrine_mailbox_free(box);
    const client = try world.client();
    defer _ = std.c.close(client);
    var answerer: Answerer = .{ .box = box, .ticket = try world.request(), .response = response };
    const thread = try std.Thread.spawn(.{}, Answerer.run, .{&answerer});
    // The wait without bound ends because of the post, and the next poll sends.
    var events: [*]const abi.types.Event = undefined;
    _ = abi.peregrine_poll(world.handle, -1, &events);
    thread.join();
    try testing.expectEqual(Code.ok, answerer.code);
    _ = abi.peregrine_poll(world.handle, 0, &events);
    const answer = try loopback.receive(client, space);
    // A second answer is too late, and harms nobody.
    try testing.expectEqual(Code.ok, mailbox.peregrine_post(box, answerer.ticket, @ptrCast(&response)));
    _ = abi.peregrine_poll(world.handle, 0, &events);
    return answer;
}

test "a thread answers a request, in each placement" {
    const body = "from a thread";
    for ([_]bool{ false, true }) |on_thread| {
        var space: [1024]u8 = undefined;
        const answer = try answerOf(.{
            .size = @sizeOf(abi.types.Response),
            .status = 201,
            .body = body,
            .body_len = body.len,
        }, on_thread, &space);
        try testing.expect(std.mem.startsWith(u8, answer, "HTTP/1.1 201 "));
        try testing.expect(std.mem.endsWith(u8, answer, "\r\n\r\n" ++ body));
    }
}

test "a poll that delivers a post does not wait" {
    for ([_]bool{ false, true }) |on_thread| {
        const world: World = try .start(on_thread);
        defer world.stop();
        const box = mailbox.peregrine_mailbox_new(world.handle).?;
        defer mailbox.peregrine_mailbox_free(box);
        const client = try world.client();
        defer _ = std.c.close(client);
        const response: abi.types.Response = .{ .size = @sizeOf(abi.types.Response), .status = 204 };
        const ticket = try world.request();
        try testing.expectEqual(Code.ok, mailbox.peregrine_post(box, ticket, @ptrCast(&response)));
        var events: [*]const abi.types.Event = undefined;
        try testing.expect(abi.peregrine_poll(world.handle, -1, &events) >= 0);
        try testing.expect(try isAnswered(&world, client));
    }
}

// Whether a post comes at the moment between delivery and wait is chance: hence so many tries.
test "a post that meets a poll is delivered to a loop that calls when the descriptor is readable" {
    for ([_]bool{ false, true }) |on_thread| {
        for (0..50) |_| {
            const world: World = try .start(on_thread);
            defer world.stop();
            const box = mailbox.peregrine_mailbox_new(world.handle).?;
            defer mailbox.peregrine_mailbox_free(box);
            const client = try world.client();
            defer _ = std.c.close(client);
            var answerer: Answerer = .{
                .box = box,
                .ticket = try world.request(),
                .response = .{ .size = @sizeOf(abi.types.Response), .status = 204 },
            };
            const thread = try std.Thread.spawn(.{}, Answerer.run, .{&answerer});
            var events: [*]const abi.types.Event = undefined;
            _ = abi.peregrine_poll(world.handle, 0, &events);
            thread.join();
            try testing.expect(try isAnswered(&world, client));
        }
    }
}

/// Calls the worker each time that its descriptor is readable, until the client has something to read.
fn isAnswered(world: *const World, client: i32) !bool {
    var watched = [_]linux.pollfd{
        .{ .fd = abi.peregrine_fd(world.handle), .events = linux.POLL.IN, .revents = 0 },
        .{ .fd = client, .events = linux.POLL.IN, .revents = 0 },
    };
    var events: [*]const abi.types.Event = undefined;
    for (0..1000) |_| {
        if (linux.poll(&watched, watched.len, 20_000) == 0) return false;
        if (watched[1].revents != 0) return true;
        try testing.expect(abi.peregrine_poll(world.handle, 0, &events) >= 0);
    }
    return false;
}

test "an answer that cannot be sent is a 500" {
    var space: [1024]u8 = undefined;
    const bad: [1]@import("peregrine").Field = .{.init("a", "b\r\nc: d")};
    const answer = try answerOf(.{
        .size = @sizeOf(abi.types.Response),
        .status = 200,
        .fields = &bad,
        .field_count = 1,
    }, false, &space);
    try testing.expect(std.mem.startsWith(u8, answer, "HTTP/1.1 500 "));
}

test "a command that can never be sent is refused, and so is any command after the worker's end" {
    const world: World = try .start(false);
    const box = mailbox.peregrine_mailbox_new(world.handle).?;
    defer mailbox.peregrine_mailbox_free(box);
    const size = @sizeOf(abi.types.Response);
    const refused = [_]struct { c_int, abi.types.Response }{
        .{ Code.status, .{ .size = size, .status = 99 } },
        .{ Code.status, .{ .size = size, .status = 600 } },
        .{ Code.range, .{ .size = size, .status = 200, .field_count = 257 } },
        .{ Code.utf8, .{ .size = size, .flags = abi.types.EventFlag.text, .body = "\xff", .body_len = 1 } },
        .{ Code.ok, .{ .size = size, .status = 200 } }, // an event for no exchange
    };
    for (refused) |row| {
        try testing.expectEqual(row[0], mailbox.peregrine_post(box, 7, @ptrCast(&row[1])));
    }
    world.stop();
    try testing.expectEqual(Code.gone, mailbox.peregrine_post(box, 7, @ptrCast(&refused[4][1])));
}
