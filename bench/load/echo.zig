//! `load echo`: each WebSocket sends a text message, waits for it to come back, checks every byte, and sends
//! it again. Without a run the connections are idle WebSockets. Does not know: sockets.
const std = @import("std");
const request = @import("request.zig");
const websocket = @import("websocket.zig");
const Driver = @import("driver.zig").Driver(Echo);
const Histogram = @import("histogram.zig");
const Opening = @import("driver.zig").Opening;

pub const Echo = struct {
    pub const Options = struct {
        port: u16 = 0,
        path: []const u8 = "/",
        connections: usize = 64,
        /// Connections that are being opened at the same time.
        ramp: usize = 64,
        /// Bytes of a message.
        bytes: usize = 64,
    };

    pub const State = struct {
        reader: websocket.Reader = .{},
        /// The message, and the frame that carries it.
        message: []u8 = "",
        frame: []const u8 = "",
        /// How much of the message has come back; `sent_at` is 0 when it is not under way.
        received: usize = 0,
        sent_at: u64 = 0,
        control: [websocket.control_bytes_max]u8 = undefined,
        control_length: usize = 0,
        pong: [websocket.head_bytes_max + websocket.control_bytes_max]u8 = undefined,
    };

    pub const Result = struct { messages: u64, rate: f64, p50_us: f64, p99_us: f64, max_us: f64 };

    arena: std.mem.Allocator,
    options: *const Options,
    handshake: []const u8,
    until: u64 = 0,
    latency: Histogram = .{},

    pub fn init(arena: std.mem.Allocator, options: *const Options) !Echo {
        if (options.bytes < 1) return error.MessageTooShort;
        return .{
            .arena = arena,
            .options = options,
            .handshake = try request.upgrade(arena, options.path, ""),
        };
    }

    pub fn opening(load: *Echo) Opening {
        return .{ .request = .{ .bytes = load.handshake, .status = 101, .until = .end } };
    }

    /// Each connection has a message of its own, so that an echo that goes astray is noticed.
    pub fn prepare(load: *Echo, _: *Driver, peer: *Driver.Peer) !void {
        const message = try load.arena.alloc(u8, load.options.bytes);
        for (message, 0..) |*byte, i| byte.* = 'a' + @as(u8, @intCast((i + peer.number) % 26));
        var digits: [20]u8 = undefined;
        const number = std.fmt.bufPrint(&digits, "{d} ", .{peer.number}) catch unreachable;
        const shown = @min(number.len, message.len);
        @memcpy(message[0..shown], number[0..shown]);
        const frame = try load.arena.alloc(u8, websocket.head_bytes_max + message.len);
        peer.state.message = message;
        peer.state.frame = frame[0..websocket.encode(.text, message, frame)];
    }

    pub fn begin(load: *Echo, driver: *Driver, now: u64, until: u64) !void {
        load.latency = .{};
        load.until = until;
        for (driver.peers) |*peer| {
            if (peer.phase == .open and peer.state.sent_at == 0) try say(driver, peer, now);
        }
    }

    fn say(driver: *Driver, peer: *Driver.Peer, now: u64) !void {
        peer.state.sent_at = now;
        peer.state.received = 0;
        try driver.send(peer, peer.state.frame);
    }

    pub fn received(load: *Echo, driver: *Driver, peer: *Driver.Peer, bytes: []const u8, now: u64) !void {
        var rest = bytes;
        while (rest.len > 0) {
            const step = try peer.state.reader.feed(rest);
            rest = rest[step.consumed..];
            switch (step.opcode) {
                .text, .continuation => try load.takeData(driver, peer, step, now),
                .ping, .pong, .close => try takeControl(driver, peer, step),
                else => return error.Malformed,
            }
        }
    }

    fn takeData(
        load: *Echo,
        driver: *Driver,
        peer: *Driver.Peer,
        step: websocket.Reader.Step,
        now: u64,
    ) !void {
        const state = &peer.state;
        const left = state.message[state.received..];
        if (state.sent_at == 0 and step.complete) return error.Unasked;
        if (!std.mem.startsWith(u8, left, step.payload)) return error.Different;
        state.received += step.payload.len;
        if (!step.last) return;
        if (state.received != state.message.len) return error.Short;
        load.latency.add(now - state.sent_at);
        state.sent_at = 0;
        if (now < load.until) try say(driver, peer, now);
    }

    fn takeControl(driver: *Driver, peer: *Driver.Peer, step: websocket.Reader.Step) !void {
        const state = &peer.state;
        if (state.control_length + step.payload.len > state.control.len) return error.Malformed;
        @memcpy(state.control[state.control_length..][0..step.payload.len], step.payload);
        state.control_length += step.payload.len;
        if (!step.complete) return;
        const payload = state.control[0..state.control_length];
        state.control_length = 0;
        if (step.opcode == .close) return error.ClosedByServer;
        if (step.opcode == .ping) {
            try driver.send(peer, state.pong[0..websocket.encode(.pong, payload, &state.pong)]);
        }
    }

    pub fn lost(_: *Echo, _: *Driver.Peer) void {}

    pub fn tick(load: *Echo, _: *Driver, now: u64) !?u64 {
        return if (now < load.until) load.until else null;
    }

    pub fn result(load: *Echo, seconds: f64) Result {
        return .{
            .messages = load.latency.count,
            .rate = @as(f64, @floatFromInt(load.latency.count)) / seconds,
            .p50_us = load.latency.permille(500) / 1000,
            .p99_us = load.latency.permille(990) / 1000,
            .max_us = @as(f64, @floatFromInt(load.latency.max)) / 1000,
        };
    }
};
