//! Clients that go while a hook of the handler runs, so that what the hook sends fails under its hands:
//! nothing is used afterwards that went with the client, the handler is told once, and nothing is left.
const std = @import("std");
const wanted = @import("wanted");
const per = @import("peregrine");
const testing = std.testing;
const gpa = testing.allocator;

const piece: [10_000]u8 = @splat('p');
const get = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";

/// Streams without an end; its client resets the connection in the middle of the hook that is named.
const Streamer = struct {
    allocator: std.mem.Allocator,
    client: ?per.io.SimPeer = null,
    leaves_in: Hook = .drain,
    detaches: bool = false,
    detached: ?per.Detached = null,
    left: bool = false,
    aborts: usize = 0,
    disconnects: usize = 0,

    const Hook = enum { request, body, drain, connect, frame, frame_drain };

    pub fn init(allocator: std.mem.Allocator) !*Streamer {
        const self = try allocator.create(Streamer);
        self.* = .{ .allocator = allocator };
        return self;
    }

    pub fn deinit(self: *Streamer) void {
        self.allocator.destroy(self);
    }

    fn in(self: *Streamer, hook: Hook) void {
        if (hook != self.leaves_in or self.left) return;
        self.left = true;
        self.client.?.reset();
    }

    fn pour(response: *per.Response) void {
        while ((response.write(&piece) catch return) == .ready) {}
    }

    pub fn handleRequest(self: *Streamer, request: *per.Request, response: *per.Response) void {
        self.in(.request);
        if (self.detaches) {
            self.detached = response.detach() catch unreachable;
            return;
        }
        if (per.ws.upgrader.accept(request, response, .{})) return else |_| {}
        if (request.method != .POST) pour(response);
    }

    pub fn handleBody(
        self: *Streamer,
        _: *per.Request,
        response: *per.Response,
        _: []const u8,
        _: bool,
    ) void {
        self.in(.body);
        pour(response);
    }

    pub fn handleDrain(self: *Streamer, _: *per.Request, response: *per.Response) void {
        self.in(.drain);
        pour(response);
    }

    pub fn handleAbort(self: *Streamer, _: *per.Request, _: per.Reason) void {
        self.aborts += 1;
    }

    fn send(socket: *per.ws.WebSocket) void {
        while ((socket.send(.binary, &piece) catch return) == .ready) {}
    }

    pub fn handleWSConn(self: *Streamer, socket: *per.ws.WebSocket) void {
        self.in(.connect);
        send(socket);
    }

    pub fn handleWSFrame(self: *Streamer, socket: *per.ws.WebSocket, _: *per.ws.Frame) void {
        self.in(.frame);
        send(socket);
    }

    pub fn handleWSDrain(self: *Streamer, socket: *per.ws.WebSocket) void {
        self.in(.frame_drain);
        send(socket);
    }

    pub fn handleWSDisconn(self: *Streamer, _: *per.ws.WebSocket) void {
        self.disconnects += 1;
    }
};

/// A server whose client sends `parts`, over a small window, so that drains come early and often.
fn play(seed: u64, leaves_in: Streamer.Hook, detaches: bool, parts: []const []const u8) !void {
    var simulation: per.Simulation(Streamer) = try .init(gpa, .{}, .{ .seed = seed, .window_bytes = 20_000 });
    defer simulation.deinit();
    const client = try simulation.connect();
    const handler = simulation.handler();
    handler.client = client.peer;
    handler.leaves_in = leaves_in;
    handler.detaches = detaches;
    for (parts) |part| {
        try client.send(part);
        try simulation.settle();
    }
    if (handler.detached) |detached| {
        try detached.start(.{});
        // Later pieces wait until the client has taken some bytes, and are sent when the worker tells
        // that.
        for (0..40) |_| try detached.write(&piece);
        for (0..3 + seed % 20) |_| _ = try simulation.step();
        // The first send to a closed socket succeeds, the next one does not.
        client.close();
        try simulation.settle();
        detached.drop();
        try simulation.settle();
    } else try testing.expect(handler.left);
    try testing.expectEqual(0, simulation.worker().transports.count);
    try testing.expectEqual(0, simulation.worker().exchanges.count);
    try testing.expectEqual(0, simulation.worker().pool.taken_bytes);
    const over_socket = std.mem.startsWith(u8, parts[0], upgrade);
    try testing.expectEqual(@intFromBool(!over_socket), handler.aborts);
    try testing.expectEqual(@intFromBool(over_socket), handler.disconnects);
}

const upgrade = "GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" ++
    "Sec-WebSocket-Version: 13\r\n" ++
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
/// A masked frame of text, "a".
const message = "\x81\x81\x00\x00\x00\x00a";
const post = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n";

/// The seed of a simulation decides at which moment the client goes.
fn seedCount() u64 {
    return if (wanted.isBrief()) 5 else 20;
}

test "a client that goes while a hook of its request writes" {
    for (0..seedCount()) |seed| {
        try play(seed, .request, false, &.{get});
        try play(seed, .drain, false, &.{get});
        try play(seed, .body, false, &.{ post, "12345", "67890" });
    }
}

test "a client that goes while a hook of its WebSocket sends" {
    for (0..seedCount()) |seed| {
        try play(seed, .connect, false, &.{upgrade});
        try play(seed, .frame_drain, false, &.{upgrade});
        try play(seed, .frame, false, &.{ upgrade, message });
    }
}

test "a client that goes while a detached stream is sent" {
    for (0..5 * seedCount()) |seed| try play(seed, .drain, true, &.{get});
}
