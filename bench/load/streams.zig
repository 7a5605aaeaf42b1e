//! `load streams`: each connection asks for a response, reads it to its end and asks again, until the time
//! has come; then what is under way ends. Does not know: sockets.
const std = @import("std");
const request = @import("request.zig");
const Driver = @import("driver.zig").Driver(Streams);
const Histogram = @import("histogram.zig");
const Opening = @import("driver.zig").Opening;

/// Time after the run for streams that are under way.
const grace_ns = 20 * std.time.ns_per_s;

pub const Streams = struct {
    pub const Options = struct {
        port: u16 = 0,
        path: []const u8 = "/",
        connections: usize = 64,
        ramp: usize = 64,
        /// Bytes of each response's body; other lengths are errors. 0: any.
        bytes: u64 = 0,
    };

    pub const State = struct { under_way: bool = false, asked_at: u64 = 0 };

    pub const Result = struct {
        responses: u64,
        unfinished: u64,
        rate: f64,
        mean_us: f64,
        p50_us: f64,
        p99_us: f64,
        max_us: f64,
    };

    options: *const Options,
    get: []const u8,
    until: u64 = 0,
    under_way: usize = 0,
    latency: Histogram = .{},

    pub fn init(arena: std.mem.Allocator, options: *const Options) !Streams {
        return .{ .options = options, .get = try request.get(arena, options.path, "") };
    }

    pub fn opening(_: *Streams) Opening {
        return .nothing;
    }

    pub fn prepare(_: *Streams, _: *Driver, _: *Driver.Peer) !void {}

    pub fn begin(load: *Streams, driver: *Driver, now: u64, until: u64) !void {
        load.* = .{ .options = load.options, .get = load.get, .until = until };
        for (driver.peers) |*peer| {
            if (peer.phase == .open) try load.ask(driver, peer, now);
        }
    }

    fn ask(load: *Streams, driver: *Driver, peer: *Driver.Peer, now: u64) !void {
        peer.state = .{ .under_way = true, .asked_at = now };
        load.under_way += 1;
        try driver.send(peer, load.get);
    }

    pub fn received(load: *Streams, driver: *Driver, peer: *Driver.Peer, bytes: []const u8, now: u64) !void {
        var rest = bytes;
        while (rest.len > 0) {
            const step = try peer.http.feed(rest);
            rest = rest[step.consumed..];
            if (!step.complete) continue;
            if (peer.http.status != 200) return error.Status;
            if (load.options.bytes != 0 and peer.http.body_bytes != load.options.bytes) return error.Length;
            if (!peer.state.under_way) return error.Unasked;
            load.latency.add(now - peer.state.asked_at);
            load.lost(peer);
            if (now < load.until) try load.ask(driver, peer, now);
        }
    }

    /// The connection has ended, and its requests with it.
    pub fn lost(load: *Streams, peer: *Driver.Peer) void {
        load.under_way -= @intFromBool(peer.state.under_way);
        peer.state.under_way = false;
    }

    pub fn tick(load: *Streams, _: *Driver, now: u64) !?u64 {
        return if (load.under_way > 0 and now < load.until + grace_ns) now + std.time.ns_per_s else null;
    }

    pub fn result(load: *Streams, seconds: f64) Result {
        return .{
            .responses = load.latency.count,
            .unfinished = load.under_way,
            .rate = @as(f64, @floatFromInt(load.latency.count)) / seconds,
            .mean_us = load.latency.mean() / 1000,
            .p50_us = load.latency.permille(500) / 1000,
            .p99_us = load.latency.permille(990) / 1000,
            .max_us = @as(f64, @floatFromInt(load.latency.max)) / 1000,
        };
    }
};
