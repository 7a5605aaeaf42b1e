//! The promises of peregrine_host_loop (peregrine.h) to a host whose own loop waits in peregrine_poll().
const std = @import("std");
const abi = @import("abi");
const listen = @import("abi_listener.zig").listen;
const loopback = @import("loopback.zig");
const c = std.c;
const linux = std.os.linux;
const Code = abi.types.Code;
const testing = std.testing;

/// Long enough that whoever waits so long has not been woken.
const for_ever_ms = 60_000;

const World = struct {
    handle: *abi.Handle,
    /// The descriptor that the host's loop watches: readable once it was raised.
    host: c.fd_t,

    /// The places of an engine that a host's loop can wait in.
    const Place = enum { here, thread };
    const places = [_]Place{ .here, .thread };

    fn start(place: Place) !World {
        const config = abi.peregrine_config_new().?;
        defer abi.peregrine_config_free(config);
        const handle = abi.peregrine_worker_new(config).?;
        if (place == .thread) try testing.expectEqual(Code.ok, abi.peregrine_use_thread(handle));
        return .{
            .handle = handle,
            .host = @intCast(linux.eventfd(0, linux.EFD.CLOEXEC | linux.EFD.NONBLOCK)),
        };
    }

    fn stop(world: *const World) void {
        abi.peregrine_worker_free(world.handle);
        _ = c.close(world.host);
    }

    fn raise(world: *const World) void {
        const one: u64 = 1;
        _ = c.write(world.host, std.mem.asBytes(&one), @sizeOf(u64));
    }

    fn poll(world: *const World, timeout_ms: c_int) ![]const abi.types.Event {
        var events: [*]const abi.types.Event = undefined;
        const count = abi.peregrine_poll(world.handle, timeout_ms, &events);
        try testing.expect(count >= 0);
        return if (count == 0) &.{} else events[0..@intCast(count)];
    }
};

test "the host's descriptor ends each wait for as long as it is readable" {
    for (World.places) |place| {
        const world: World = try .start(place);
        defer world.stop();
        try testing.expectEqual(Code.ok, abi.loop.peregrine_host_loop(world.handle, world.host, null));
        try testing.expectEqual(0, (try world.poll(10)).len);
        try testing.expectEqual(0, abi.loop.peregrine_host_loop_due(world.handle));
        world.raise();
        for (0..2) |_| {
            try testing.expectEqual(0, (try world.poll(for_ever_ms)).len);
            try testing.expectEqual(1, abi.loop.peregrine_host_loop_due(world.handle));
            try testing.expectEqual(0, abi.loop.peregrine_host_loop_due(world.handle));
        }
        try testing.expectEqual(Code.ok, abi.loop.peregrine_host_loop(world.handle, -1, null));
        try testing.expectEqual(0, (try world.poll(10)).len);
        try testing.expectEqual(0, abi.loop.peregrine_host_loop_due(world.handle));
    }
}

/// Signals that were caught.
var caught: u32 = 0;

fn catchSignal(_: linux.SIG) callconv(.c) void {
    caught += 1;
}

test "signals that are blocked otherwise end the wait, and only that" {
    for (World.places) |place| {
        const world: World = try .start(place);
        defer world.stop();
        var blocked = std.posix.sigemptyset();
        std.posix.sigaddset(&blocked, .USR2);
        var before: std.posix.sigset_t = undefined;
        std.posix.sigprocmask(linux.SIG.BLOCK, &blocked, &before);
        defer std.posix.sigprocmask(linux.SIG.SETMASK, &before, null);
        const action: std.posix.Sigaction = .{
            .handler = .{ .handler = catchSignal },
            .mask = std.posix.sigemptyset(),
            .flags = 0,
        };
        std.posix.sigaction(.USR2, &action, null);
        caught = 0;
        const none: u64 = 0;
        try testing.expectEqual(Code.ok, abi.loop.peregrine_host_loop(world.handle, world.host, &none));
        try std.posix.raise(.USR2);
        try testing.expectEqual(0, caught);
        try testing.expectEqual(0, (try world.poll(for_ever_ms)).len);
        try testing.expectEqual(1, caught);
        try testing.expectEqual(1, abi.loop.peregrine_host_loop_due(world.handle));
        try std.posix.raise(.USR2);
        try testing.expectEqual(Code.ok, abi.loop.peregrine_host_loop(world.handle, -1, null));
        try testing.expectEqual(0, (try world.poll(10)).len);
        try testing.expectEqual(1, caught);
    }
}

test "answers are sent when the host says so" {
    const world: World = try .start(.here);
    defer world.stop();
    try testing.expectEqual(Code.ok, abi.loop.peregrine_host_loop(world.handle, world.host, null));
    const client = try loopback.connect(try listen(world.handle));
    defer _ = c.close(client);
    // The second request comes with the first one, and their answers leave together.
    const request = "GET / HTTP/1.1\r\nHost: here\r\n\r\n";
    try loopback.send(client, request ++ request);
    for ([_]c_int{ 1, 0 }) |more| {
        const ticket = for (0..100) |_| {
            const events = try world.poll(100);
            if (events.len > 0 and events[0].kind == .request) break events[0].ticket;
        } else return error.NoRequest;
        const response: abi.types.Response = .{
            .size = @sizeOf(abi.types.Response),
            .status = 204,
            .flags = abi.types.RespondFlag.end,
        };
        const said = abi.peregrine_respond(world.handle, ticket, @ptrCast(&response));
        try testing.expectEqual(Code.done, said);
        try testing.expectEqual(more, abi.loop.peregrine_goes_on(world.handle));
    }
    abi.loop.peregrine_send_all(world.handle);
    var space: [512]u8 = undefined;
    const answers = try loopback.receive(client, &space);
    try testing.expectEqual(2, std.mem.count(u8, answers, "HTTP/1.1 204 "));
}

test "an engine on a thread leaves connections to others while the host is in its own loop" {
    try leaveConnections(.until_the_loop_ends);
}

test "an engine on a thread that leaves connections to others accepts when there are no others" {
    try leaveConnections(.until_it_is_alone);
}

fn leaveConnections(comptime how: enum { until_the_loop_ends, until_it_is_alone }) !void {
    const world: World = try .start(.thread);
    defer world.stop();
    try testing.expectEqual(Code.ok, abi.peregrine_worker_set(world.handle, "accept_yield_ms", 1));
    try testing.expectEqual(Code.ok, abi.loop.peregrine_host_loop(world.handle, world.host, null));
    const port = try listen(world.handle);
    _ = try world.poll(50);
    abi.loop.peregrine_loop_works(world.handle, 1);
    // The engine sleeps by then.
    _ = linux.poll(&.{}, 0, 50);
    const client = try loopback.connect(port);
    defer _ = c.close(client);
    try loopback.send(client, "GET / HTTP/1.1\r\nHost: here\r\n\r\n");
    // The engine would give the request within a moment.
    try testing.expectEqual(0, (try world.poll(200)).len);
    switch (how) {
        .until_the_loop_ends => abi.loop.peregrine_loop_works(world.handle, 0),
        .until_it_is_alone => {
            const code = abi.peregrine_worker_set(world.handle, "accept_yield_ms", 0);
            try testing.expectEqual(Code.ok, code);
        },
    }
    for (0..100) |_| {
        const events = try world.poll(100);
        if (events.len > 0 and events[0].kind == .request) return;
    }
    return error.NoRequest;
}
