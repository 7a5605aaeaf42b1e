//! `load listen`: each connection is a WebSocket that says nothing but perhaps a first message; a run counts
//! the messages that come. Does not know: sockets, and what the messages say.
const std = @import("std");
const request = @import("request.zig");
const Shares = @import("shares.zig").Shares;
const websocket = @import("websocket.zig");
const Driver = @import("driver.zig").Driver(Listen);
const Opening = @import("driver.zig").Opening;

pub const Listen = struct {
    pub const Options = struct {
        port: u16 = 0,
        path: []const u8 = "/",
        connections: usize = 64,
        ramp: usize = 64,
        /// Messages that each connection gets at least, if all get the same ones: a run goes on until then.
        /// 0: connections get different ones.
        alike: usize = 0,
        /// The message that a connection begins with; none if it is empty.
        says: []const u8 = "",
        /// Whether compression is offered, as browsers do.
        offer: enum { nothing, deflate } = .nothing,
    };

    pub const State = struct { reader: websocket.Reader = .{}, messages: u64 = 0, compressed: u64 = 0 };

    /// `fewest` and `most`: messages of a single connection. `compressed`: messages of all.
    pub const Result = struct { messages: u64, rate: f64, fewest: u64, most: u64, compressed: u64 };

    options: *const Options,
    handshake: []const u8,
    first: []const u8 = "",
    until: u64 = 0,
    peers: []const Driver.Peer = &.{},

    pub fn init(arena: std.mem.Allocator, options: *const Options) !Listen {
        var load: Listen = .{
            .options = options,
            .handshake = try request.upgrade(arena, options.path, switch (options.offer) {
                .nothing => "",
                .deflate => "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n",
            }),
        };
        if (options.says.len == 0) return load;
        const frame = try arena.alloc(u8, websocket.head_bytes_max + options.says.len);
        load.first = frame[0..websocket.encode(.text, options.says, frame)];
        return load;
    }

    pub fn opening(load: *Listen) Opening {
        return .{ .request = .{ .bytes = load.handshake, .status = 101, .until = .end } };
    }

    pub fn prepare(load: *Listen, driver: *Driver, peer: *Driver.Peer) !void {
        peer.state.reader.allows_compressed = load.options.offer == .deflate;
        if (load.first.len > 0) try driver.send(peer, load.first);
    }

    pub fn begin(load: *Listen, driver: *Driver, _: u64, until: u64) !void {
        load.until = until;
        load.peers = driver.peers;
        for (driver.peers) |*peer| {
            peer.state.messages = 0;
            peer.state.compressed = 0;
        }
    }

    pub fn received(_: *Listen, _: *Driver, peer: *Driver.Peer, bytes: []const u8, _: u64) !void {
        var rest = bytes;
        while (rest.len > 0) {
            const step = try peer.state.reader.feed(rest);
            rest = rest[step.consumed..];
            if (step.opcode == .close) return error.ClosedByServer;
            if (!step.last or @backingInt(step.opcode) > @backingInt(websocket.Opcode.binary)) continue;
            peer.state.messages += 1;
            peer.state.compressed += @intFromBool(peer.state.reader.isCompressed());
        }
    }

    pub fn lost(_: *Listen, _: *Driver.Peer) void {}

    pub fn tick(load: *Listen, _: *Driver, now: u64) !?u64 {
        return Shares.goesOn(load.peers, "messages", load.options.alike, now, load.until);
    }

    pub fn result(load: *Listen, seconds: f64) Result {
        const shares: Shares = .of(load.peers, "messages");
        return .{
            .messages = shares.total,
            .rate = @as(f64, @floatFromInt(shares.total)) / seconds,
            .fewest = shares.fewest,
            .most = shares.most,
            .compressed = Shares.of(load.peers, "compressed").total,
        };
    }
};
