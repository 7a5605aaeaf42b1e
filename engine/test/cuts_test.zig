//! Responses that end before they are complete: their clients can always tell. The last chunk is missing or
//! the length is short, and the connection ends with a reset, since the end alone says nothing where it is
//! the end of the response (HTTP/1.0).
const std = @import("std");
const per = @import("peregrine");
const alike = @import("alike.zig");
const linux = std.os.linux;
const testing = std.testing;
const gpa = testing.allocator;

/// A handler whose responses go wrong in the way that the path names.
const Cutter = struct {
    allocator: std.mem.Allocator,
    detached: ?per.Detached = null,
    fd: i32,
    drained: usize = 0,
    strange: usize = 0,

    const too_much: [200_000]u8 = @splat('t');

    pub fn init(allocator: std.mem.Allocator) !*Cutter {
        const self = try allocator.create(Cutter);
        self.* = .{ .allocator = allocator, .fd = @intCast(linux.memfd_create("peregrine-test", 0)) };
        return self;
    }

    pub fn deinit(self: *Cutter) void {
        per.io.file.close(self.fd);
        self.allocator.destroy(self);
    }

    const Way = enum {
        abort,
        abort_counted,
        abort_unstarted,
        abort_ended,
        fail,
        fail_counted,
        fail_unstarted,
        fail_ended,
        fail_detached,
        refused_piece,
        refused_and_replaced,
        drop,
        shrunk_file,
        pending,
        drain,
    };

    pub fn handleRequest(self: *Cutter, request: *per.Request, response: *per.Response) !void {
        switch (std.meta.stringToEnum(Way, request.getPath()[1..]).?) {
            .abort => {
                _ = try response.write("some");
                response.abort();
                try testing.expectError(error.Closed, response.write("more"));
                response.abort();
            },
            .abort_counted => {
                try response.addNewHeader("Content-Length", "5");
                _ = try response.write("some");
                response.abort();
            },
            .abort_unstarted => response.abort(),
            .abort_ended => {
                _ = try response.write("whole");
                try response.end();
                response.abort();
            },
            .fail => {
                _ = try response.write("some");
                return error.Broken;
            },
            .fail_counted => {
                try response.addNewHeader("Content-Length", "5");
                _ = try response.write("some");
                return error.Broken;
            },
            .fail_unstarted => {
                _ = try response.setBody("nothing that anybody sees");
                return error.Broken;
            },
            .fail_ended => {
                _ = try response.write("whole");
                try response.end();
                return error.Broken;
            },
            .fail_detached => {
                self.detached = try response.detach();
                return error.Broken;
            },
            .refused_piece => {
                _ = try response.write("some");
                try testing.expectError(error.ResponseBodyBufferTooSmall, response.write(&too_much));
            },
            .refused_and_replaced => {
                try testing.expectError(error.ResponseBodyBufferTooSmall, response.write(&too_much));
                _ = try response.write("whole");
            },
            .drop, .pending => {
                self.detached = try response.detach();
                try self.detached.?.start(.{});
                try self.detached.?.write("some");
            },
            .shrunk_file => {
                _ = linux.ftruncate(self.fd, 1_000_000);
                try response.setFile(.{ .fd = self.fd, .len = 1_000_000, .ownership = .borrowed });
            },
            .drain => while (try response.write(too_much[0..5000]) == .ready) {},
        }
    }

    pub fn handleDrain(self: *Cutter, request: *per.Request, response: *per.Response) !void {
        self.drained += 1;
        if (!std.mem.eql(u8, request.getPath(), "/drain")) self.strange += 1;
        if (self.drained < 5) while (try response.write(too_much[0..5000]) == .ready) {};
        if (self.drained == 5) return error.Broken;
    }
};

const Simulation = alike.Simulation(Cutter);

const Scene = struct {
    simulation: Simulation,

    fn init(seed: u64) !Scene {
        testing.log_level = .err; // the warnings are expected
        var config: per.ServerConfig = .{ .response_body_buffer_size = 100_000 };
        config.limits.request_idle_ms = 5000;
        return .{ .simulation = try .init(gpa, config, .{ .seed = seed }) };
    }

    fn ask(scene: *Scene, way: Cutter.Way, version: []const u8) !*Simulation.Client {
        const client = try scene.simulation.connect();
        var buffer: [100]u8 = undefined;
        try client.send(try std.fmt.bufPrint(
            &buffer,
            "GET /{t} HTTP/{s}\r\nHost: h\r\n\r\n",
            .{ way, version },
        ));
        try scene.simulation.settle();
        return client;
    }

    fn finish(scene: *Scene) !void {
        try testing.expectEqual(0, scene.simulation.worker().exchanges.count);
        scene.simulation.deinit();
    }
};

const versions = [_][]const u8{ "1.1", "1.0" };

/// Expects a reset. The client may have lost bytes by it, but has not got the end of a chunked response.
fn expectCut(client: *Simulation.Client) !void {
    try testing.expectEqual(.reset, client.ended());
    try testing.expect(!std.mem.endsWith(u8, client.text(), "\r\n0\r\n\r\n"));
    try testing.expect(std.mem.find(u8, client.text(), "more") == null);
}

test "a response that its handler cuts, or leaves with an error, is cut" {
    for (0..10) |seed| for (versions) |version| for ([_]Cutter.Way{
        .abort, .abort_counted, .abort_unstarted, .fail, .fail_counted, .refused_piece,
    }) |way| {
        var scene: Scene = try .init(seed);
        try expectCut(try scene.ask(way, version));
        try scene.finish();
    };
}

test "an error before the response has started is a 500, and the connection goes on" {
    for ([_]Cutter.Way{ .fail_unstarted, .fail_detached }) |way| {
        var scene: Scene = try .init(1);
        const client = try scene.ask(way, "1.1");
        try testing.expectStringStartsWith(client.text(), "HTTP/1.1 500 ");
        try testing.expect(std.mem.find(u8, client.text(), "anybody") == null);
        try testing.expectEqual(null, client.ended());
        if (scene.simulation.handler().detached) |detached| {
            detached.drop();
            try scene.simulation.settle();
        }
        try scene.finish();
    }
}

test "an error behind a whole response does not touch the response" {
    for ([_]Cutter.Way{ .abort_ended, .fail_ended, .refused_and_replaced }) |way| {
        var scene: Scene = try .init(2);
        const client = try scene.ask(way, "1.1");
        try testing.expectStringEndsWith(client.text(), "5\r\nwhole\r\n0\r\n\r\n");
        try testing.expectEqual(null, client.ended());
        try scene.finish();
    }
}

test "a detached stream that is dropped, and one that is quiet for too long, are cut" {
    for (0..10) |seed| for (versions) |version| for ([_]Cutter.Way{ .drop, .pending }) |way| {
        var scene: Scene = try .init(seed);
        const client = try scene.ask(way, version);
        try testing.expectEqual(null, client.ended());
        const detached = scene.simulation.handler().detached.?;
        if (way == .drop) detached.drop() else try scene.simulation.advance(6000);
        try scene.simulation.settle();
        try expectCut(client);
        if (way == .pending) detached.drop();
        try scene.simulation.settle();
        try scene.finish();
    };
}

test "a server that stops cuts what is not complete" {
    for (versions) |version| {
        var scene: Scene = try .init(3);
        const client = try scene.ask(.pending, version);
        scene.simulation.worker().cut();
        try scene.simulation.settle();
        try expectCut(client);
        scene.simulation.handler().detached.?.drop();
        try scene.finish();
    }
}

test "a file that becomes shorter is cut" {
    for (0..10) |seed| for (versions) |version| {
        var scene: Scene = try .init(seed);
        const client = try scene.simulation.connect();
        client.paused = true;
        var buffer: [100]u8 = undefined;
        try client.send(try std.fmt.bufPrint(
            &buffer,
            "GET /shrunk_file HTTP/{s}\r\nHost: h\r\n\r\n",
            .{version},
        ));
        try scene.simulation.settle();
        _ = linux.ftruncate(scene.simulation.handler().fd, 10);
        client.paused = false;
        try scene.simulation.settle();
        try expectCut(client);
        try scene.finish();
    };
}

test "handleDrain reads the request that it is about, and its error cuts the response" {
    for (0..10) |seed| {
        var scene: Scene = try .init(seed);
        const client = try scene.simulation.connect();
        client.paused = true;
        try client.send("GET /drain HTTP/1.1\r\nHost: h\r\n\r\n");
        try scene.simulation.settle();
        // Other requests come meanwhile, and use the same memory.
        for (0..3) |_| _ = try scene.ask(.abort_ended, "1.1");
        client.paused = false;
        try scene.simulation.settle();
        const handler = scene.simulation.handler();
        try testing.expectEqual(5, handler.drained);
        try testing.expectEqual(0, handler.strange);
        try expectCut(client);
        try scene.finish();
    }
}

/// Fails at the second piece of a request's body; `GET /` leaves WebSockets and their hooks.
const Uploads = struct {
    allocator: std.mem.Allocator,

    pub fn init(allocator: std.mem.Allocator) !*Uploads {
        const self = try allocator.create(Uploads);
        self.* = .{ .allocator = allocator };
        return self;
    }

    pub fn deinit(self: *Uploads) void {
        self.allocator.destroy(self);
    }

    pub fn handleRequest(_: *Uploads, request: *per.Request, response: *per.Response) !void {
        if (per.ws.upgrader.accept(request, response, .{})) return else |_| {}
        if (std.mem.eql(u8, request.getPath(), "/begun")) _ = try response.write("some");
    }

    pub fn handleBody(_: *Uploads, _: *per.Request, _: *per.Response, piece: []const u8, last: bool) !void {
        if (last or std.mem.eql(u8, piece, "67890")) return error.Broken;
    }

    pub fn handleWSFrame(_: *Uploads, _: *per.ws.WebSocket, _: *per.ws.Frame) !void {
        return error.Broken;
    }
};

test "an error of handleBody: a 500, or a cut once the response has started" {
    testing.log_level = .err;
    for ([_][]const u8{ "/", "/begun" }) |path| {
        var simulation: per.Simulation(Uploads) = try .init(
            gpa,
            .{},
            .{ .seed = 4, .short_read_permille = 0 },
        );
        defer simulation.deinit();
        const client = try simulation.connect();
        var buffer: [100]u8 = undefined;
        try client.send(try std.fmt.bufPrint(
            &buffer,
            "POST {s} HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n",
            .{path},
        ));
        for ([_][]const u8{ "12345", "67890" }) |piece| {
            try client.send(piece);
            try simulation.settle();
        }
        if (path.len > 1) {
            try testing.expectEqual(.reset, client.ended());
        } else try testing.expectStringStartsWith(client.text(), "HTTP/1.1 500 ");
        try testing.expectEqual(0, simulation.worker().exchanges.count);
    }
}

test "an error of a WebSocket's hook closes it with 1011" {
    testing.log_level = .err;
    var simulation: per.Simulation(Uploads) = try .init(gpa, .{}, .{ .seed = 5 });
    defer simulation.deinit();
    const client = try simulation.connect();
    try client.send(
        "GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" ++
            "Sec-WebSocket-Version: 13\r\n" ++
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    );
    try simulation.settle();
    try client.send("\x81\x81\x00\x00\x00\x00a");
    try simulation.settle();
    try testing.expectStringEndsWith(client.text(), "\x88\x02\x03\xf3");
}
