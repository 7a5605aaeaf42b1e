//! `load arrive`: each connection is a WebSocket that says nothing but perhaps a first message. Messages name
//! the time when they were due, as those of `load rate` with `bytes` do; a run measures how much later they
//! come. Does not know: sockets, and the publisher, which may be another process of this machine.
const std = @import("std");
const request = @import("request.zig");
const websocket = @import("websocket.zig");
const Driver = @import("driver.zig").Driver(Arrive);
const Histogram = @import("histogram.zig");
const Opening = @import("driver.zig").Opening;

/// The beginning of a time in a message: nanoseconds of the monotonic clock follow.
pub const mark = "due=";

/// Time without a message after which a run is over, and the longest time that messages may take beyond it.
const quiet_ns = std.time.ns_per_s;
const grace_ns = 20 * std.time.ns_per_s;

pub const Arrive = struct {
    pub const Options = struct {
        port: u16 = 0,
        path: []const u8 = "/",
        connections: usize = 64,
        ramp: usize = 64,
        /// The message that a connection begins with; none if it is empty.
        says: []const u8 = "",
    };

    pub const State = struct { reader: websocket.Reader = .{}, time: Time = .{} };

    /// `last_s`: seconds of the run until the last message came.
    pub const Result = struct { messages: u64, last_s: f64, p50_us: f64, p99_us: f64, max_us: f64 };

    options: *const Options,
    handshake: []const u8,
    first: []const u8 = "",
    until: u64 = 0,
    /// When the run began; messages that were due before belong to another one.
    begun: u64 = 0,
    last: u64 = 0,
    latency: Histogram = .{},

    pub fn init(arena: std.mem.Allocator, options: *const Options) !Arrive {
        var load: Arrive = .{
            .options = options,
            .handshake = try request.upgrade(arena, options.path, ""),
        };
        if (options.says.len == 0) return load;
        const frame = try arena.alloc(u8, websocket.head_bytes_max + options.says.len);
        load.first = frame[0..websocket.encode(.text, options.says, frame)];
        return load;
    }

    pub fn opening(load: *Arrive) Opening {
        return .{ .request = .{ .bytes = load.handshake, .status = 101, .until = .end } };
    }

    pub fn prepare(load: *Arrive, driver: *Driver, peer: *Driver.Peer) !void {
        if (load.first.len > 0) try driver.send(peer, load.first);
    }

    pub fn begin(load: *Arrive, _: *Driver, now: u64, until: u64) !void {
        load.begun = now;
        load.last = now;
        load.until = until;
        load.latency = .{};
    }

    pub fn received(load: *Arrive, _: *Driver, peer: *Driver.Peer, bytes: []const u8, now: u64) !void {
        var rest = bytes;
        while (rest.len > 0) {
            const step = try peer.state.reader.feed(rest);
            rest = rest[step.consumed..];
            if (step.opcode == .close) return error.ClosedByServer;
            peer.state.time.read(step.payload);
            if (!step.last or @backingInt(step.opcode) > @backingInt(websocket.Opcode.binary)) continue;
            const due = peer.state.time.take() orelse continue;
            if (due < load.begun) continue;
            load.latency.add(now - due);
            load.last = now;
        }
    }

    pub fn lost(_: *Arrive, _: *Driver.Peer) void {}

    /// A run goes on while messages come, as a server may be behind its publishers.
    pub fn tick(load: *Arrive, _: *Driver, now: u64) !?u64 {
        const until = @max(load.until, @min(load.last + quiet_ns, load.until + grace_ns));
        return if (now < until) until else null;
    }

    pub fn result(load: *Arrive, _: f64) Result {
        return .{
            .messages = load.latency.count,
            .last_s = @as(f64, @floatFromInt(load.last - load.begun)) / std.time.ns_per_s,
            .p50_us = load.latency.permille(500) / 1000,
            .p99_us = load.latency.permille(990) / 1000,
            .max_us = @as(f64, @floatFromInt(load.latency.max)) / 1000,
        };
    }
};

/// Finds the time in a message that comes in any pieces.
const Time = struct {
    matched: usize = 0,
    digits: usize = 0,
    is_over: bool = false,
    value: u64 = 0,

    fn read(time: *Time, piece: []const u8) void {
        for (piece) |byte| {
            if (time.is_over) return;
            if (time.matched < mark.len) {
                const goes_on = byte == mark[time.matched];
                time.matched = if (goes_on) time.matched + 1 else @intFromBool(byte == mark[0]);
            } else if (std.ascii.isDigit(byte) and time.digits < 19) {
                time.value = time.value * 10 + (byte - '0');
                time.digits += 1;
            } else {
                time.is_over = true;
            }
        }
    }

    /// The message has ended: its time, null where it named none.
    fn take(time: *Time) ?u64 {
        defer time.* = .{};
        return if (time.digits > 0) time.value else null;
    }
};

test "a message's time is found wherever pieces end" {
    const text = "42[\"news\",\"ddue=1234567 due=9\"]";
    for (0..text.len + 1) |split| {
        var time: Time = .{};
        time.read(text[0..split]);
        time.read(text[split..]);
        try std.testing.expectEqual(1234567, time.take());
        try std.testing.expectEqual(null, time.take());
    }
}
