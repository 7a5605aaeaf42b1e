//! The programs that the first Peregrine's README showed, with no other change than the table in
//! engine/README.md names. `zig build check -Dprogram=first.zig` compiles them, `zig build test
//! -Dprogram=first.zig` asks them.
const std = @import("std");
const per = @import("peregrine");
const posix = std.posix;

const Handler = struct {
    const Self = @This();

    allocator: std.mem.Allocator,

    pub fn init(allocator: std.mem.Allocator) !*Self {
        const self = try allocator.create(Self);
        self.allocator = allocator;
        return self;
    }

    pub fn deinit(self: *Self) void {
        self.allocator.destroy(self);
    }

    pub fn handleRequest(_: *Self, _: *per.Request, resp: *per.Response) void {
        _ = resp.setBody("Kawww\n") catch {};
        resp.addNewHeader("Content-Length", "6") catch {};
    }
};

pub fn main() !void {
    var gpa: std.heap.DebugAllocator(.{}) = .init;
    defer _ = gpa.deinit();
    const srv = try per.Server(Handler).init(gpa.allocator(), 3000, .{});
    std.debug.print("listening on 0.0.0.0:3000\n", .{});
    try srv.start(); // Blocks if there is no error
}

const Sockets = struct {
    const Self = @This();

    allocator: std.mem.Allocator,
    dirServer: *per.util.DirServer,

    pub fn init(allocator: std.mem.Allocator) !*Self {
        const self = try allocator.create(Self);
        errdefer allocator.destroy(self);
        self.* = .{ .allocator = allocator, .dirServer = try .init(allocator, "/tmp", .{}) };
        return self;
    }

    pub fn deinit(self: *Self) void {
        self.dirServer.deinit();
        self.allocator.destroy(self);
    }

    pub fn handleRequest(self: *Self, req: *per.Request, resp: *per.Response) void {
        if (std.mem.eql(u8, req.getPath(), "/ws")) {
            // You must explicitly handle the upgrade to support websockets.
            per.ws.upgrader.handleUpgrade(self.allocator, req, resp) catch {};
            return;
        }
        self.dirServer.serve(req, resp) catch {};
    }

    pub fn handleWSConn(_: *Self, fd: posix.socket_t) void {
        std.debug.print("handle ws conn... {d}\n", .{fd});
    }

    pub fn handleWSDisconn(_: *Self, fd: posix.socket_t) void {
        std.debug.print("handle ws disconn... {d}\n", .{fd});
    }

    pub fn handleWSFrame(_: *Self, fd: posix.socket_t, frame: *per.ws.Frame) void {
        _ = frame;
        // Reply to the client
        per.ws.writer.writeMessage(fd, "Hello client!", false) catch |err| {
            std.debug.print("error writing websocket: {any}\n", .{err});
        };
    }
};

const Queries = struct {
    allocator: std.mem.Allocator,

    pub fn init(allocator: std.mem.Allocator) !*Queries {
        const self = try allocator.create(Queries);
        self.allocator = allocator;
        return self;
    }

    pub fn deinit(self: *Queries) void {
        self.allocator.destroy(self);
    }

    pub fn handleRequest(_: *Queries, req: *per.Request, resp: *per.Response) void {
        answer(req, resp) catch {};
    }

    fn answer(req: *per.Request, resp: *per.Response) !void {
        if (try req.parseQuery()) |query| {
            // use query hash map
            std.debug.assert(query.count() == 1);
        }
        if (req.query.get("some-key")) |value| {
            // it's safe to access the map directly after calling parseQuery
            _ = try resp.setBody(value);
        }
    }
};

test "the handler answers" {
    var simulation: per.Simulation(Handler) = try .init(std.testing.allocator, .{}, .{ .seed = 1 });
    defer simulation.deinit();
    const answer = try simulation.exchange("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    try std.testing.expect(std.mem.find(u8, answer, "\r\nContent-Length: 6\r\n") != null);
    try std.testing.expect(std.mem.endsWith(u8, answer, "\r\n\r\nKawww\n"));
}

test "queries" {
    var simulation: per.Simulation(Queries) = try .init(std.testing.allocator, .{}, .{ .seed = 1 });
    defer simulation.deinit();
    const answer = try simulation.exchange("GET /?some-key=value HTTP/1.1\r\nHost: h\r\n\r\n");
    try std.testing.expect(std.mem.endsWith(u8, answer, "\r\n\r\nvalue"));
}

test "WebSockets" {
    var simulation: per.Simulation(Sockets) = try .init(std.testing.allocator, .{}, .{ .seed = 1 });
    defer simulation.deinit();
    const client = try simulation.connect();
    try client.send("GET /ws HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" ++
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n");
    try client.send("\x81\x82\x00\x00\x00\x00hi"); // a text message, masked with zeros
    try simulation.settle();
    try std.testing.expect(std.mem.startsWith(u8, client.text(), "HTTP/1.1 101 "));
    try std.testing.expect(std.mem.endsWith(u8, client.text(), "\x81\x0dHello client!"));
}
