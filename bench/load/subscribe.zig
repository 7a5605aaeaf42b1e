//! `load subscribe`: each connection is a subscriber of an event stream (HTML standard, "Server-sent
//! events"); a run counts the events that come. Does not know: sockets, and what the events say.
const std = @import("std");
const http = @import("http.zig");
const request = @import("request.zig");
const Shares = @import("shares.zig").Shares;
const Driver = @import("driver.zig").Driver(Subscribe);
const Opening = @import("driver.zig").Opening;

pub const Subscribe = struct {
    pub const Options = struct {
        port: u16 = 0,
        path: []const u8 = "/",
        connections: usize = 64,
        ramp: usize = 64,
        /// Events that each connection gets at least, if all get the same ones: a run goes on until then.
        /// 0: connections get different ones.
        alike: usize = 0,
    };

    pub const State = struct { stream: Stream = .{}, events: u64 = 0 };

    /// `fewest` and `most`: events of a single subscriber.
    pub const Result = struct { events: u64, rate: f64, fewest: u64, most: u64 };

    pub const reader: http.Reader = .{ .ends_with_connection = true };

    options: *const Options,
    get: []const u8,
    until: u64 = 0,
    peers: []const Driver.Peer = &.{},

    pub fn init(arena: std.mem.Allocator, options: *const Options) !Subscribe {
        return .{
            .options = options,
            .get = try request.get(arena, options.path, "Accept: text/event-stream\r\n"),
        };
    }

    pub fn opening(load: *Subscribe) Opening {
        return .{ .request = .{ .bytes = load.get, .status = 200, .until = .head } };
    }

    pub fn prepare(_: *Subscribe, _: *Driver, _: *Driver.Peer) !void {}

    pub fn begin(load: *Subscribe, driver: *Driver, _: u64, until: u64) !void {
        load.until = until;
        load.peers = driver.peers;
        for (driver.peers) |*peer| peer.state.events = 0;
    }

    pub fn received(_: *Subscribe, _: *Driver, peer: *Driver.Peer, bytes: []const u8, _: u64) !void {
        var rest = bytes;
        while (rest.len > 0) {
            const step = try peer.http.feed(rest);
            rest = rest[step.consumed..];
            peer.state.events += peer.state.stream.count(step.body);
            if (step.complete) return error.StreamEnded;
        }
    }

    pub fn lost(_: *Subscribe, _: *Driver.Peer) void {}

    pub fn tick(load: *Subscribe, _: *Driver, now: u64) !?u64 {
        return Shares.goesOn(load.peers, "events", load.options.alike, now, load.until);
    }

    pub fn result(load: *Subscribe, seconds: f64) Result {
        const shares: Shares = .of(load.peers, "events");
        return .{
            .events = shares.total,
            .rate = @as(f64, @floatFromInt(shares.total)) / seconds,
            .fewest = shares.fewest,
            .most = shares.most,
        };
    }
};

/// Finds the events in a stream that comes in any pieces.
const Stream = struct {
    /// Bytes of the line so far, without its end.
    line_length: usize = 0,
    /// The line's first byte, and whether the event has a line of data: without one it is no event.
    begins: u8 = 0,
    has_data: bool = false,

    /// Events that ended in this piece.
    fn count(stream: *Stream, piece: []const u8) u64 {
        var events: u64 = 0;
        for (piece) |byte| switch (byte) {
            '\n' => {
                if (stream.line_length == 0) {
                    events += @intFromBool(stream.has_data);
                    stream.has_data = false;
                } else if (stream.begins == 'd') {
                    stream.has_data = true;
                }
                stream.line_length = 0;
            },
            '\r' => {},
            else => {
                if (stream.line_length == 0) stream.begins = byte;
                stream.line_length += 1;
            },
        };
        return events;
    }
};

test "events are counted once, wherever pieces end; comments and empty lines are none" {
    const text = ": hi\n\nevent: x\ndata: 1\ndata: 2\n\n\nid: 7\n\ndata\r\n\r\ndata: not finished\n";
    for (0..text.len + 1) |split| {
        var stream: Stream = .{};
        try std.testing.expectEqual(2, stream.count(text[0..split]) + stream.count(text[split..]));
    }
}
