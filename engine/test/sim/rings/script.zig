//! A history that is told by hand: a function in place of the application, one client, and a schedule of
//! which only the seed is left open.
const std = @import("std");
const abi = @import("abi");
const peregrine = @import("peregrine");
const platform = @import("platform");
const asleep = @import("asleep.zig");
const types = abi.types;
const Code = types.Code;
const Schedule = platform.schedule.Schedule;
const frame = @import("protocol").websocket.frame;
const testing = std.testing;

/// The application and the client that a script's function controls.
pub const Script = struct {
    handle: *abi.Handle,
    schedule: Schedule = undefined,
    peer: peregrine.io.SimPeer = undefined,
    /// Bytes that the client has yet to send.
    unsent: []const u8 = "",
    body: *const fn (*Script) anyerror!void,
    rest: []const types.Event = &.{},
    ended: bool = false,
    failure: ?anyerror = null,

    /// Choices of the schedule: far more than any of these takes.
    const steps_max = 200_000;

    /// Plays the script with a seed. `limits`: of the worker.
    pub fn play(
        seed: u64,
        limits: []const struct { [*:0]const u8, i64 },
        body: *const fn (*Script) anyerror!void,
    ) !void {
        var prng: std.Random.DefaultPrng = .init(seed);
        const config = abi.peregrine_config_new().?;
        defer abi.peregrine_config_free(config);
        for (limits) |limit| try expectOk(abi.peregrine_config_set(config, limit[0], limit[1]));
        const handle = abi.peregrine_worker_new(config).?;
        const sim = &handle.ownEngine().?.worker.io;
        sim.waiter = &platform.waiter;
        sim.options = .{
            .window_bytes = 1 << 20,
            .short_read_permille = 0,
            .late_permille = 0,
            .block_permille = 0,
            .partial_send_permille = 0,
        };
        var script: Script = .{ .handle = handle, .body = body };
        try script.schedule.init(testing.allocator, prng.random(), .{ .run_max = 50 }, &sim.now_ms);
        try expectOk(abi.peregrine_use_thread(handle));
        try testing.expectEqual(0, abi.peregrine_listen(handle, "127.0.0.1", 80, 16, 0));
        script.peer = try sim.connect(0);
        _ = script.schedule.spawn(run, &script);
        script.drive() catch |err| {
            // The threads are in the middle of something.
            Schedule.present = null;
            return err;
        };
        abi.peregrine_worker_free(handle);
        script.schedule.deinit();
        if (script.failure) |failure| return failure;
    }

    fn run(argument: *anyopaque) void {
        const script: *Script = @ptrCast(@alignCast(argument));
        script.body(script) catch |err| {
            script.failure = err;
        };
        script.ended = true;
    }

    fn drive(script: *Script) !void {
        const sim = &script.handle.ownEngine().?.worker.io;
        var steps: usize = 0;
        while (!script.ended or !script.schedule.threads[0].fiber.finished) : (steps += 1) {
            if (steps > steps_max) return error.NeverEnds;
            script.unsent = script.unsent[try script.peer.write(script.unsent)..];
            _ = script.peer.read();
            if (script.schedule.step()) continue;
            try asleep.check(script.handle.home.thread);
            sim.elapse();
            sim.advance(1);
        }
        while (script.schedule.step()) {}
    }

    /// The next event of a kind; others are passed over.
    pub fn wait(script: *Script, kind: types.Kind) !types.Event {
        for (0..200) |_| {
            while (script.rest.len > 0) {
                const event = script.rest[0];
                script.rest = script.rest[1..];
                if (event.kind == kind) return event;
            }
            var events: [*]const types.Event = undefined;
            const count = abi.peregrine_poll(script.handle, 10, &events);
            if (count > 0) script.rest = events[0..@intCast(count)];
        }
        return error.NoSuchEvent;
    }

    /// For so long the application does something else.
    pub fn compute(script: *Script, ms: u64) void {
        script.schedule.waitFor(
            .{ .context = script, .isOver = never, .until = script.schedule.clock.* + ms },
        );
    }

    fn never(_: *anyopaque) bool {
        return false;
    }

    /// A WebSocket that the client has asked for.
    pub fn accept(script: *Script) !types.Ticket {
        script.unsent = "GET / HTTP/1.1\r\nHost: sim\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" ++
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        const ticket = (try script.wait(.request)).ticket;
        try expectOk(abi.peregrine_accept_websocket(script.handle, ticket, null, 0, null, 0));
        return ticket;
    }
};

fn expectOk(code: c_int) !void {
    try testing.expectEqual(@as(c_int, Code.ok), code);
}

/// A message of zeros, in a frame as clients send it.
pub fn message(comptime len: usize) [frameBytes(len)]u8 {
    var bytes: [frameBytes(len)]u8 = @splat(0);
    _ = frame.encode(headerOf(len), bytes[0..frame.header_bytes_max]);
    return bytes;
}

fn headerOf(len: usize) frame.Header {
    return .{ .fin = true, .opcode = .binary, .mask = @splat(0), .payload_len = len };
}

fn frameBytes(comptime len: usize) usize {
    return headerOf(len).encodedLen() + len;
}
