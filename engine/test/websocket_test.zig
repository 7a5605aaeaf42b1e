//! WebSockets of the Zig face over the simulated network: both shapes of hooks, other threads' messages, and
//! defects 22 to 25 of the list in defects_test.zig.
const std = @import("std");
const per = @import("peregrine");
const alike = @import("alike.zig");
const testing = std.testing;
const gpa = testing.allocator;

const handshake = "GET /ws HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" ++
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
const accepted = "HTTP/1.1 101 Switching Protocols\r\n";

/// A frame as a client sends it, masked.
fn frame(buffer: []u8, first: u8, payload: []const u8) []const u8 {
    const key = [4]u8{ 1, 2, 3, 4 };
    buffer[0] = first;
    var len: usize = 2;
    if (payload.len < 126) {
        buffer[1] = 0x80 | @as(u8, @intCast(payload.len));
    } else if (payload.len <= std.math.maxInt(u16)) {
        buffer[1] = 0x80 | 126;
        std.mem.writeInt(u16, buffer[2..4], @intCast(payload.len), .big);
        len = 4;
    } else {
        buffer[1] = 0x80 | 127;
        std.mem.writeInt(u64, buffer[2..10], payload.len, .big);
        len = 10;
    }
    @memcpy(buffer[len..][0..4], &key);
    for (payload, 0..) |byte, i| buffer[len + 4 + i] = byte ^ key[i % 4];
    return buffer[0 .. len + 4 + payload.len];
}

const text_frame = 0x81;
const close_frame = 0x88;
const ping_frame = 0x89;
const pong_frame = 0x8a;

/// The seed's shape: numbers, and `writeMessage`.
const ByNumber = struct {
    allocator: std.mem.Allocator,
    opened: usize = 0,
    ended: usize = 0,
    last: std.posix.socket_t = 0,
    drained: std.posix.socket_t = 0,

    pub fn init(allocator: std.mem.Allocator) !*ByNumber {
        const self = try allocator.create(ByNumber);
        self.* = .{ .allocator = allocator };
        return self;
    }

    pub fn deinit(self: *ByNumber) void {
        self.allocator.destroy(self);
    }

    pub fn handleRequest(self: *ByNumber, req: *per.Request, resp: *per.Response) void {
        if (std.mem.eql(u8, req.getPath(), "/ws")) {
            per.ws.upgrader.handleUpgrade(self.allocator, req, resp) catch {
                resp.status = .bad_request;
            };
            resp.addNewHeader("X-Extra", "1") catch {};
        }
    }

    pub fn handleWSConn(self: *ByNumber, fd: std.posix.socket_t) void {
        self.opened += 1;
        self.last = fd;
    }

    pub fn handleWSDisconn(self: *ByNumber, fd: std.posix.socket_t) void {
        self.ended += 1;
        // Too late to say anything.
        testing.expectError(error.NotOpen, per.ws.writer.writeMessage(fd, "x", false)) catch unreachable;
    }

    pub fn handleWSFrame(_: *ByNumber, fd: std.posix.socket_t, message: *per.ws.Frame) void {
        var buffer: [70_000]u8 = undefined;
        const text = std.fmt.bufPrint(&buffer, "echo: {s}", .{message.getPayload()}) catch unreachable;
        per.ws.writer.writeMessage(fd, text, message.opcode == .binary) catch unreachable;
    }

    pub fn handleWSDrain(self: *ByNumber, fd: std.posix.socket_t) void {
        self.drained = fd;
    }
};

/// The other shape; everybody hears what one says.
const Chat = struct {
    allocator: std.mem.Allocator,
    sockets: std.ArrayList(*per.ws.WebSocket) = .empty,
    codes: std.ArrayList(u16) = .empty,
    drains: usize = 0,
    waits: usize = 0,

    pub fn init(allocator: std.mem.Allocator) !*Chat {
        const self = try allocator.create(Chat);
        self.* = .{ .allocator = allocator };
        return self;
    }

    pub fn deinit(self: *Chat) void {
        self.sockets.deinit(self.allocator);
        self.codes.deinit(self.allocator);
        self.allocator.destroy(self);
    }

    pub fn handleRequest(self: *Chat, request: *per.Request, response: *per.Response) void {
        per.ws.upgrader.handleUpgrade(self.allocator, request, response) catch {};
    }

    pub fn handleWSConn(self: *Chat, socket: *per.ws.WebSocket) void {
        self.sockets.append(self.allocator, socket) catch unreachable;
    }

    pub fn handleWSFrame(self: *Chat, from: *per.ws.WebSocket, message: *per.ws.Frame) void {
        if (std.mem.eql(u8, message.payload, "bye")) return from.close(1000, "bye") catch unreachable;
        for (self.sockets.items) |socket| {
            const flow = socket.send(.text, message.payload) catch continue;
            if (flow == .wait) self.waits += 1;
        }
    }

    pub fn handleWSDrain(self: *Chat, _: *per.ws.WebSocket) void {
        self.drains += 1;
    }

    pub fn handleWSDisconn(self: *Chat, socket: *per.ws.WebSocket) void {
        self.codes.append(self.allocator, socket.close_code) catch unreachable;
        const index = std.mem.findScalar(*per.ws.WebSocket, self.sockets.items, socket).?;
        _ = self.sockets.swapRemove(index);
    }
};

fn opened(simulation: anytype) !*@TypeOf(simulation.*).Client {
    const client = try simulation.connect();
    try client.send(handshake);
    try simulation.settle();
    try testing.expect(std.mem.startsWith(u8, client.text(), accepted));
    client.clear();
    return client;
}

test "defect 22: several frames in one read, a frame in pieces, and what comes along with the handshake" {
    var space: [100]u8 = undefined;
    for (0..10) |seed| {
        var simulation: per.Simulation(ByNumber) = try .init(gpa, .{}, .{ .seed = seed });
        defer simulation.deinit();
        const client = try simulation.connect();
        var stream: std.ArrayList(u8) = .empty;
        defer stream.deinit(gpa);
        try stream.appendSlice(gpa, handshake);
        for ([_][]const u8{ "one", "two", "three" }) |text| {
            try stream.appendSlice(gpa, frame(&space, text_frame, text));
        }
        if (seed % 2 == 0) try client.send(stream.items) else for (stream.items) |byte| {
            try client.send(&.{byte});
            _ = try simulation.step();
        }
        try simulation.settle();
        try testing.expect(std.mem.startsWith(u8, client.text(), accepted));
        try testing.expect(std.mem.find(u8, client.text(), "X-Extra: 1\r\n") != null);
        try testing.expect(std.mem.endsWith(
            u8,
            client.text(),
            "\x81\x09echo: one\x81\x09echo: two\x81\x0becho: three",
        ));
        try testing.expectEqual(1, simulation.handler().opened);
    }
}

test "defect 22: a message that is too large gets its close code" {
    var simulation: per.Simulation(ByNumber) = try .init(
        gpa,
        .{ .websocket_buffer_size = 1000 },
        .{ .seed = 1 },
    );
    defer simulation.deinit();
    var space: [2000]u8 = undefined;
    const large: [1001]u8 = @splat('x');
    const client = try opened(&simulation);
    try client.send(frame(&space, text_frame, large[0..1000]));
    try simulation.settle();
    try testing.expectEqual(4 + 6 + 1000, client.text().len);
    client.clear();
    try client.send(frame(&space, text_frame, &large));
    try simulation.settle();
    try testing.expectEqualStrings("\x88", client.text()[0..1]);
    try testing.expectEqual(1009, std.mem.readInt(u16, client.text()[2..4], .big));
    try testing.expectEqual(1, simulation.handler().ended);
}

test "a message may be as large as websocket_buffer_size says, in one frame" {
    var simulation: per.Simulation(ByNumber) = try .init(
        gpa,
        .{ .websocket_buffer_size = 69_000 },
        .{ .seed = 1 },
    );
    defer simulation.deinit();
    var space: [69_014]u8 = undefined;
    const large: [69_000]u8 = @splat('x');
    const client = try opened(&simulation);
    try client.send(frame(&space, text_frame, &large));
    try simulation.settle();
    try testing.expectEqualStrings("\x81\x7f", client.text()[0..2]);
    try testing.expectEqual(10 + "echo: ".len + large.len, client.text().len);
}

test "defect 23: what has ended is closed, and its number reaches nobody" {
    var simulation: per.Simulation(ByNumber) = try .init(gpa, .{}, .{ .seed = 2 });
    defer simulation.deinit();
    const first = try opened(&simulation);
    const number = simulation.handler().last;
    try per.ws.writer.writeMessage(number, "hi", true);
    try simulation.settle();
    try testing.expectEqualStrings("\x82\x02hi", first.text());
    first.peer.reset();
    try simulation.settle();
    try testing.expectEqual(1, simulation.handler().ended);
    try testing.expectEqual(0, simulation.worker().transports.count);
    try testing.expectEqual(0, simulation.worker().websockets.count);
    const second = try opened(&simulation);
    try testing.expectError(error.NotOpen, per.ws.writer.writeMessage(number, "for the first", false));
    try simulation.settle();
    try testing.expectEqualStrings("", second.text());
}

test "defect 24: masks, opcodes and UTF-8 are checked; pings and closes are answered" {
    var space: [140]u8 = undefined;
    const Case = struct { []const u8, u16 };
    const cases = [_]Case{
        .{ "\x81\x02hi", 1002 }, // not masked
        .{ frame(space[0..20], 0xc1, "x"), 1002 }, // a reserved bit,
        .{ frame(space[100..120], 0xa1, "x"), 1002 }, // another,
        .{ frame(space[120..140], 0x91, "x"), 1002 }, // and the third
        .{ frame(space[20..40], 0x83, "x"), 1002 }, // a reserved opcode
        .{ frame(space[40..60], text_frame, "\xff"), 1007 },
        .{ frame(space[60..80], close_frame, "\x03\xe8"), 1000 },
        .{ frame(space[80..100], close_frame, "\x0f\xa0enough"), 4000 },
    };
    for (cases) |case| {
        var simulation: per.Simulation(ByNumber) = try .init(gpa, .{}, .{ .seed = 3 });
        defer simulation.deinit();
        const client = try opened(&simulation);
        var buffer: [20]u8 = undefined;
        try client.send(frame(&buffer, ping_frame, "p"));
        try simulation.settle();
        try testing.expectEqualStrings("\x8a\x01p", client.text());
        client.clear();
        try client.send(case[0]);
        try simulation.settle();
        try testing.expectEqual(close_frame, client.text()[0]);
        try testing.expectEqual(case[1], std.mem.readInt(u16, client.text()[2..4], .big));
        if (case[1] == 4000) try testing.expectEqualStrings("enough", client.text()[4..]);
        try testing.expectEqual(1, simulation.handler().ended);
    }
    var simulation: per.Simulation(ByNumber) = try .init(gpa, .{}, .{ .seed = 4 });
    defer simulation.deinit();
    const old = try simulation.exchange(
        "GET /ws HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" ++
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 12\r\n\r\n",
    );
    try testing.expect(std.mem.startsWith(u8, old, "HTTP/1.1 426 "));
    // RFC 9110 sections 7.8 and 15.5.22: what to upgrade to, and that Connection names the field.
    try testing.expect(std.mem.indexOf(u8, old, "\r\nupgrade: websocket\r\n") != null);
    try testing.expect(std.mem.indexOf(u8, old, "\r\nConnection: close, Upgrade\r\n") != null);
    // A proxy should not have to read chunks for one sentence.
    try testing.expect(std.mem.indexOf(u8, old, "\r\ncontent-length: 41\r\n") != null);
    const plain = try simulation.exchange("GET /ws HTTP/1.1\r\nHost: h\r\n\r\n");
    try testing.expect(std.mem.startsWith(u8, plain, "HTTP/1.1 400 "));
}

test "defect 25: messages of several threads arrive whole, to slow readers as well" {
    const Sender = struct {
        fn run(number: std.posix.socket_t, letter: u8) void {
            const text: [100]u8 = @splat(letter);
            for (0..200) |_| per.ws.writer.writeMessage(number, &text, false) catch unreachable;
        }
    };
    var simulation: per.Simulation(ByNumber) = try .init(
        std.heap.smp_allocator,
        .{},
        .{ .seed = 5, .window_bytes = 300 },
    );
    defer simulation.deinit();
    const client = try opened(&simulation);
    var threads: [3]std.Thread = undefined;
    for (&threads, "abc") |*thread, letter| {
        thread.* = try .spawn(.{}, Sender.run, .{ simulation.handler().last, letter });
    }
    for (threads) |thread| thread.join();
    try simulation.settle();
    var rest = client.text();
    var counts: [3]usize = @splat(0);
    while (rest.len > 0) : (rest = rest[102..]) {
        try testing.expectEqualStrings("\x81\x64", rest[0..2]);
        for (rest[2..102]) |letter| try testing.expectEqual(rest[2], letter);
        counts[rest[2] - 'a'] += 1;
    }
    try testing.expectEqual(.{ 200, 200, 200 }, counts);
}

test "everybody hears everybody, and those that go in the middle are told afterwards" {
    for (0..10) |seed| {
        var simulation: alike.Simulation(Chat) = try .init(gpa, .{}, .{ .seed = seed });
        defer simulation.deinit();
        var clients: [4]*alike.Simulation(Chat).Client = undefined;
        for (&clients) |*client| client.* = try opened(&simulation);
        var space: [20_000]u8 = undefined;
        try clients[0].send(frame(&space, text_frame, "hello"));
        try simulation.settle();
        for (clients) |client| try testing.expectEqualStrings("\x81\x05hello", client.text());
        // A client has died, which the server notices when it sends a large message.
        clients[2].peer.reset();
        const large: [15_000]u8 = @splat('y');
        for (0..3) |_| try clients[1].send(frame(&space, text_frame, &large));
        try simulation.settle();
        try testing.expectEqual(3, simulation.handler().sockets.items.len);
        try testing.expectEqual(5 + 2 + 3 * (4 + large.len), clients[3].text().len);
        clients[0].clear();
        try clients[0].send(frame(&space, text_frame, "bye"));
        try simulation.settle();
        try testing.expectEqualStrings("\x88\x05\x03\xe8bye", clients[0].text());
        try clients[0].send(frame(&space, close_frame, "\x03\xe8"));
        try simulation.settle();
        try testing.expectEqualSlices(u16, &.{ 1006, 1000 }, simulation.handler().codes.items);
        try testing.expectEqual(2, simulation.handler().sockets.items.len);
    }
}

test "a slow reader: .wait, then handleWSDrain; what is too much cuts it" {
    var simulation: alike.Simulation(Chat) = try .init(
        gpa,
        .{ .response_body_buffer_size = 300_000 },
        .{ .seed = 6 },
    );
    defer simulation.deinit();
    const slow = try opened(&simulation);
    const talker = try opened(&simulation);
    slow.paused = true;
    var space: [20_000]u8 = undefined;
    const large: [15_000]u8 = @splat('z');
    for (0..12) |_| {
        try talker.send(frame(&space, text_frame, &large));
        try simulation.settle();
    }
    try testing.expect(simulation.handler().waits > 0);
    try testing.expectEqual(0, simulation.handler().drains);
    slow.paused = false;
    try simulation.settle();
    try testing.expect(simulation.handler().drains > 0);
    try testing.expectEqual(12 * (4 + large.len), slow.text().len);
    slow.paused = true;
    const id = simulation.handler().sockets.items[0].id;
    for (0..40) |_| {
        per.ws.writer.writeMessage(id, &large, false) catch |err| {
            try testing.expectEqual(error.NotOpen, err);
            break;
        };
        try simulation.settle();
    } else return error.NeverCut;
    try testing.expectEqual(1, simulation.handler().sockets.items.len);
}

test "handleWSDrain may take the number, too" {
    var simulation: per.Simulation(ByNumber) = try .init(
        gpa,
        .{ .websocket_buffer_size = 60_000 },
        .{ .seed = 6 },
    );
    defer simulation.deinit();
    const slow = try opened(&simulation);
    slow.paused = true;
    var space: [60_000]u8 = undefined;
    const large: [50_000]u8 = @splat('z');
    for (0..4) |_| {
        try slow.send(frame(&space, text_frame, &large));
        try simulation.settle();
    }
    try testing.expectEqual(0, simulation.handler().drained);
    slow.paused = false;
    try simulation.settle();
    try testing.expectEqual(simulation.handler().last, simulation.handler().drained);
}

test "pings come at their interval to a client that answers them" {
    const interval_ms = 1000;
    // A deadline is looked at once per tick of the timers.
    const late_ms_max = 100;
    var simulation: alike.Simulation(Chat) = try .init(
        gpa,
        .{ .websocket_ping_ms = interval_ms },
        .{ .seed = 8 },
    );
    defer simulation.deinit();
    const client = try opened(&simulation);
    var space: [100]u8 = undefined;
    for (0..4) |_| {
        var waited_ms: u64 = 0;
        while (client.text().len == 0 and waited_ms < 2 * interval_ms) : (waited_ms += 1) {
            try simulation.advance(1);
        }
        try testing.expectEqualStrings("\x89\x00", client.text());
        try testing.expect(waited_ms >= interval_ms);
        try testing.expect(waited_ms <= interval_ms + late_ms_max);
        client.clear();
        try client.send(frame(&space, pong_frame, ""));
    }
    try testing.expectEqual(0, simulation.handler().codes.items.len);
}

test "a client that answers no pings is gone, and a stop says good-bye" {
    var simulation: alike.Simulation(Chat) = try .init(gpa, .{ .websocket_ping_ms = 1000 }, .{ .seed = 7 });
    defer simulation.deinit();
    const silent = try opened(&simulation);
    try simulation.advance(1100);
    try testing.expectEqualStrings("\x89\x00", silent.text());
    try simulation.advance(1100);
    try testing.expectEqual(1, simulation.handler().codes.items.len);
    const other = try opened(&simulation);
    simulation.server.shutdown();
    try simulation.settle();
    try testing.expectEqual(close_frame, other.text()[0]);
    try testing.expectEqual(1001, std.mem.readInt(u16, other.text()[2..4], .big));
    try simulation.advance(simulation.server.config.limits.close_ms + 1000);
    try testing.expect(!simulation.simulation.running);
    try testing.expectEqual(2, simulation.handler().codes.items.len);
}

/// Two rooms: a WebSocket hears those of its own only, because it knows which one it has asked for.
const Rooms = struct {
    rooms: [2]Room = .{ .{ .name = "/a" }, .{ .name = "/b" } },
    origins: per.ws.upgrader.Origins = .any,
    /// Returns an error behind `accept`, or has prepared what no WebSocket can be opened with.
    fails: bool = false,
    hinders: bool = false,
    disconnects: usize = 0,
    connects: usize = 0,
    last_code: u16 = 0,

    const Room = struct {
        name: []const u8,
        members: [8]?*per.ws.WebSocket = @splat(null),
    };

    pub fn handleRequest(self: *Rooms, request: *per.Request, response: *per.Response) !void {
        for (&self.rooms) |*room| {
            if (!std.mem.eql(u8, room.name, request.getPath())) continue;
            try per.ws.upgrader.accept(request, response, .{ .context = room, .origins = self.origins });
            if (self.hinders) try response.addNewHeader("Sec-WebSocket-Accept", "mine");
            return if (self.fails) error.Conflict;
        }
        return error.NotFound;
    }

    pub fn handleWSConn(self: *Rooms, socket: *per.ws.WebSocket) void {
        self.connects += 1;
        for (&socket.contextAs(Room).members) |*place| if (place.* == null) {
            place.* = socket;
            return;
        };
    }

    pub fn handleWSFrame(_: *Rooms, socket: *per.ws.WebSocket, message: *per.ws.Frame) !void {
        for (socket.contextAs(Room).members) |member| {
            if (member) |one| _ = try one.send(.text, message.getPayload());
        }
    }

    pub fn handleWSDisconn(self: *Rooms, socket: *per.ws.WebSocket) void {
        self.disconnects += 1;
        self.last_code = socket.close_code;
        for (&socket.contextAs(Room).members) |*place| if (place.* == socket) {
            place.* = null;
        };
    }
};

fn knock(simulation: anytype, path: []const u8, fields: []const u8) !*@TypeOf(simulation.*).Client {
    const client = try simulation.connect();
    var buffer: [500]u8 = undefined;
    const rest = std.mem.find(u8, handshake, "Upgrade:").?;
    try client.send(try std.fmt.bufPrint(&buffer, "GET {s} HTTP/1.1\r\nHost: h:8080\r\n{s}{s}", .{
        path, fields, handshake[rest..],
    }));
    try simulation.settle();
    return client;
}

test "a WebSocket knows what its handshake asked for: two rooms are two" {
    var simulation: alike.Simulation(Rooms) = try .initWith(gpa, .{}, .{ .seed = 1 }, .{});
    defer simulation.deinit();
    var buffer: [100]u8 = undefined;
    const first = try knock(&simulation, "/a", "");
    const second = try knock(&simulation, "/a", "");
    const other = try knock(&simulation, "/b", "");
    try first.send(frame(&buffer, text_frame, "to a"));
    try simulation.settle();
    try testing.expect(std.mem.endsWith(u8, second.text(), "to a"));
    try testing.expect(std.mem.find(u8, other.text(), "to a") == null);
    second.peer.reset();
    try simulation.settle();
    try testing.expectEqual(1, simulation.handler().disconnects);
    try first.send(frame(&buffer, text_frame, "again"));
    try simulation.settle();
    try testing.expect(std.mem.endsWith(u8, first.text(), "again"));
}

test "the context comes back when its WebSocket never opens, unless the hook has failed" {
    var simulation: alike.Simulation(Rooms) = try .initWith(gpa, .{}, .{ .seed = 1 }, .{});
    defer simulation.deinit();
    const rooms = simulation.handler();
    rooms.fails = true;
    const refused = try knock(&simulation, "/a", "");
    try testing.expect(std.mem.startsWith(u8, refused.text(), "HTTP/1.1 409 "));
    try testing.expectEqual(0, rooms.disconnects);
    rooms.fails = false;
    rooms.hinders = true;
    const hindered = try knock(&simulation, "/a", "");
    try testing.expect(std.mem.startsWith(u8, hindered.text(), "HTTP/1.1 500 "));
    try testing.expectEqual(0, rooms.connects);
    try testing.expectEqual(1, rooms.disconnects);
    try testing.expectEqual(1006, rooms.last_code);
    try testing.expectEqual(0, simulation.worker().exchanges.count);
}

test "a handshake of another site's page is refused, one of no page is not" {
    var simulation: alike.Simulation(Rooms) = try .initWith(gpa, .{}, .{ .seed = 1 }, .{});
    defer simulation.deinit();
    const rooms = simulation.handler();
    for ([_]struct { per.ws.upgrader.Origins, []const u8, bool }{
        .{ .any, "Origin: https://evil.example\r\n", true },
        .{ .same, "", true },
        .{ .same, "Origin: http://H:8080\r\n", true },
        .{ .same, "Origin: http://h\r\n", false },
        .{ .same, "Origin: null\r\n", false },
        .{ .same, "Origin: http://h:8080\r\nOrigin: http://h:8080\r\n", false },
        .{ .same, "Origin: https://evil.example\r\n", false },
        .{ .{ .listed = &.{"https://a.example"} }, "Origin: https://a.example\r\n", true },
        .{ .{ .listed = &.{"https://a.example"} }, "Origin: https://a.example.evil\r\n", false },
    }) |case| {
        rooms.origins = case[0];
        const client = try knock(&simulation, "/a", case[1]);
        try testing.expect(std.mem.startsWith(u8, client.text(), if (case[2]) accepted else "HTTP/1.1 403 "));
        client.peer.reset();
        try simulation.settle();
    }
}
