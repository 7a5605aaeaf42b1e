//! Whole servers on the kernel's ios, epoll and io_uring, under blocking clients in threads of their own:
//! every byte arrives, both ways, and afterwards no descriptor is left. What one io promises is in
//! src/io/contract_test.zig; this is about all of it together.
const std = @import("std");
const per = @import("peregrine");
const loopback = @import("loopback.zig");
const refusal = @import("refusal.zig");
const websocket = @import("protocol").websocket;
const linux = std.os.linux;
const testing = std.testing;
const gpa = std.heap.smp_allocator;

const Backend = per.io.Backend;
const large_bytes = 600_000;

fn pattern(buffer: []u8, from: usize) void {
    for (buffer, from..) |*byte, at| byte.* = @truncate(at *% 31 ^ at >> 9);
}

const Handler = struct {
    allocator: std.mem.Allocator,
    file: i32,

    pub fn init(allocator: std.mem.Allocator) !*Handler {
        const self = try allocator.create(Handler);
        const content = try allocator.alloc(u8, large_bytes);
        defer allocator.free(content);
        pattern(content, 0);
        const file: i32 = @intCast(linux.memfd_create("peregrine-backends", linux.MFD.CLOEXEC));
        var written: usize = 0;
        while (written < content.len) {
            written += linux.write(file, content.ptr + written, content.len - written);
        }
        self.* = .{ .allocator = allocator, .file = file };
        return self;
    }

    pub fn deinit(self: *Handler) void {
        _ = linux.close(self.file);
        self.allocator.destroy(self);
    }

    pub fn handleRequest(self: *Handler, request: *per.Request, response: *per.Response) void {
        self.respond(request, response) catch |err| expectGone(err);
    }

    fn respond(self: *Handler, request: *per.Request, response: *per.Response) !void {
        const path = request.getPath();
        if (std.mem.eql(u8, path, "/small")) {
            _ = try response.setBody("small");
        } else if (std.mem.eql(u8, path, "/echo")) {
            _ = try response.setBody(request.body);
        } else if (std.mem.eql(u8, path, "/file")) {
            try response.setFile(.{
                .fd = self.file,
                .offset = 0,
                .len = large_bytes,
                .ownership = .borrowed,
            });
        } else if (std.mem.eql(u8, path, "/stream")) {
            // the number of eighths that were sent, plus one, since null would be no context
            request.context = @ptrFromInt(8);
            try self.goOn(request, response);
        } else try per.ws.upgrader.handleUpgrade(self.allocator, request, response);
    }

    pub fn handleDrain(self: *Handler, request: *per.Request, response: *per.Response) void {
        self.goOn(request, response) catch |err| expectGone(err);
    }

    /// Some clients go in the middle.
    fn expectGone(err: anyerror) void {
        if (err != error.Closed) std.debug.panic("a handler fails: {t}", .{err});
    }

    fn goOn(_: *Handler, request: *per.Request, response: *per.Response) !void {
        var sent = @intFromPtr(request.context.?) / 8 - 1;
        while (sent < large_bytes) {
            var piece: [50_000]u8 = undefined;
            pattern(&piece, sent);
            sent += piece.len;
            request.context = @ptrFromInt((sent + 1) * 8);
            if (try response.write(&piece) == .wait) return;
        }
        try response.end();
    }

    pub fn handleWSConn(_: *Handler, _: *per.ws.WebSocket) void {}

    pub fn handleWSFrame(_: *Handler, socket: *per.ws.WebSocket, frame: *per.ws.Frame) void {
        _ = socket.send(.binary, frame.payload) catch |err| std.debug.panic("message: {t}", .{err});
    }

    pub fn handleWSDisconn(_: *Handler, _: *per.ws.WebSocket) void {}
};

/// A client with one connection, which blocks.
const Client = struct {
    fd: i32,
    buffer: [64 * 1024]u8 = undefined,
    start: usize = 0,
    end: usize = 0,

    fn connect(port: u16) !Client {
        return .{ .fd = try loopback.connect(port) };
    }

    fn close(client: *Client) void {
        _ = linux.close(client.fd);
    }

    fn send(client: *Client, bytes: []const u8) !void {
        try loopback.send(client.fd, bytes);
    }

    /// At least one byte more, or the end.
    fn fill(client: *Client) !void {
        if (client.start == client.end) {
            client.start = 0;
            client.end = 0;
        }
        if (client.end == client.buffer.len) {
            std.mem.copyForwards(u8, &client.buffer, client.buffer[client.start..client.end]);
            client.end -= client.start;
            client.start = 0;
        }
        const received = loopback.receive(client.fd, client.buffer[client.end..]) catch return error.Ended;
        if (received.len == 0) return error.Ended;
        client.end += received.len;
    }

    fn readHead(client: *Client) ![]const u8 {
        while (true) {
            const rest = client.buffer[client.start..client.end];
            if (std.mem.find(u8, rest, "\r\n\r\n")) |at| {
                client.start += at + 4;
                return rest[0 .. at + 4];
            }
            try client.fill();
        }
    }

    fn readLine(client: *Client) ![]const u8 {
        while (true) {
            const rest = client.buffer[client.start..client.end];
            if (std.mem.find(u8, rest, "\r\n")) |at| {
                client.start += at + 2;
                return rest[0..at];
            }
            try client.fill();
        }
    }

    /// Reads `len` bytes, which must be those of the pattern.
    fn expectPattern(client: *Client, from: usize, len: usize) !void {
        var done: usize = 0;
        while (done < len) {
            if (client.start == client.end) try client.fill();
            const count = @min(client.end - client.start, len - done);
            var expected: [64 * 1024]u8 = undefined;
            pattern(expected[0..count], from + done);
            try testing.expectEqualSlices(u8, expected[0..count], client.buffer[client.start..][0..count]);
            client.start += count;
            done += count;
        }
    }

    fn get(client: *Client, path: []const u8, extra: []const u8) ![]const u8 {
        var request: [200]u8 = undefined;
        try client.send(try std.fmt.bufPrint(
            &request,
            "GET {s} HTTP/1.1\r\nHost: h\r\n{s}\r\n",
            .{ path, extra },
        ));
        const head = try client.readHead();
        try testing.expect(std.mem.startsWith(u8, head, "HTTP/1.1 "));
        return head;
    }
};

fn small(port: u16) !void {
    var client: Client = try .connect(port);
    defer client.close();
    for (0..100) |_| {
        _ = try client.get("/small", "");
        while (client.end - client.start < 5) try client.fill();
        try testing.expectEqualStrings("small", client.buffer[client.start..][0..5]);
        client.start += 5;
    }
    for (0..20) |_| try client.send("GET /small HTTP/1.1\r\nHost: h\r\n\r\n");
    for (0..20) |_| {
        _ = try client.readHead();
        while (client.end - client.start < 5) try client.fill();
        client.start += 5;
    }
}

fn closing(port: u16) !void {
    for (0..30) |_| {
        var client: Client = try .connect(port);
        defer client.close();
        _ = try client.get("/small", "Connection: close\r\n");
        while (true) client.fill() catch break;
        try testing.expectEqualStrings("small", client.buffer[client.start..client.end]);
    }
}

fn download(port: u16) !void {
    var client: Client = try .connect(port);
    defer client.close();
    for (0..3) |_| {
        _ = try client.get("/file", "");
        try client.expectPattern(0, large_bytes);
    }
}

fn stream(port: u16) !void {
    var client: Client = try .connect(port);
    defer client.close();
    for (0..2) |_| {
        _ = try client.get("/stream", "");
        var at: usize = 0;
        while (true) {
            const size = try std.fmt.parseInt(usize, try client.readLine(), 16);
            try client.expectPattern(at, size);
            try testing.expectEqual(0, (try client.readLine()).len);
            if (size == 0) break;
            at += size;
        }
        try testing.expectEqual(large_bytes, at);
    }
}

fn echo(port: u16) !void {
    var client: Client = try .connect(port);
    defer client.close();
    const body = try gpa.alloc(u8, 900_000);
    defer gpa.free(body);
    pattern(body, 0);
    for ([_]usize{ 1, 5_000, 16_384, 16_385, 900_000 }) |len| {
        var head: [100]u8 = undefined;
        try client.send(try std.fmt.bufPrint(
            &head,
            "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: {d}\r\n\r\n",
            .{len},
        ));
        try client.send(body[0..len]);
        _ = try client.readHead();
        try client.expectPattern(0, len);
    }
}

fn messages(port: u16) !void {
    var client: Client = try .connect(port);
    defer client.close();
    const upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\n" ++
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n";
    _ = try client.get("/ws", upgrade);
    for ([_]usize{ 0, 3, 125, 126, 30_000, 10, 30_000 }) |len| {
        var frame: [40_000]u8 = undefined;
        const size = websocket.frame.encode(
            .{ .opcode = .binary, .fin = true, .mask = @splat(0), .payload_len = len },
            frame[0..14],
        );
        pattern(frame[size..][0..len], 0);
        try client.send(frame[0 .. size + len]);
        const back = try expectFrame(&client);
        try testing.expectEqual(len, back);
    }
}

fn expectFrame(client: *Client) !usize {
    while (true) switch (websocket.frame.decode(client.buffer[client.start..client.end])) {
        .need => try client.fill(),
        .header => |header| {
            client.start += header.bytes;
            try client.expectPattern(0, @intCast(header.value.payload_len));
            return @intCast(header.value.payload_len);
        },
        else => return error.NotAFrame,
    };
}

/// Goes in the middle of things.
fn leaving(port: u16) !void {
    for ([_][]const u8{ "/stream", "/file", "/small" }) |path| {
        var client: Client = try .connect(port);
        defer client.close();
        _ = try client.get(path, "");
    }
    var half: Client = try .connect(port);
    try half.send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\nbegun");
    half.close();
}

fn attend(port: u16, visit: *const fn (u16) anyerror!void, failed: *std.atomic.Value(bool)) void {
    visit(port) catch |err| {
        std.debug.print("a client fails: {t}\n", .{err});
        failed.store(true, .release);
    };
}

fn descriptors() usize {
    var count: usize = 0;
    for (0..1024) |fd| {
        count += @intFromBool(linux.errno(linux.fcntl(@intCast(fd), linux.F.GETFD, 0)) == .SUCCESS);
    }
    return count;
}

const Server = per.Server(Handler);

fn serve(server: *Server) void {
    server.start() catch |err| std.debug.panic("{t}", .{err});
}

fn expectServes(config: per.ServerConfig) !void {
    const before = descriptors();
    const server: *Server = try .init(gpa, 0, config);
    if (server.backend() != config.io) {
        server.deinit();
        return error.SkipZigTest;
    }
    const port = server.port();
    const thread: std.Thread = try .spawn(.{}, serve, .{server});
    var failed: std.atomic.Value(bool) = .init(false);
    const visits = [_]*const fn (u16) anyerror!void{
        small, closing, download, stream, echo, messages, leaving,
    };
    var clients: [2 * visits.len]std.Thread = undefined;
    for (&clients, 0..) |*client, i| {
        client.* = try .spawn(.{}, attend, .{ port, visits[i % visits.len], &failed });
    }
    for (clients) |client| client.join();
    server.shutdown();
    thread.join();
    try testing.expect(!failed.load(.acquire));
    try testing.expectEqual(before, descriptors());
}

test "every backend serves every kind of client, and leaves no descriptor behind" {
    for ([_]Backend{ .native, .uring }) |backend| {
        for ([_]usize{ 0, 1 }) |accepting| {
            try expectServes(.{
                .ip = "127.0.0.1",
                .worker_thread_count = 2,
                .accept_thread_count = accepting,
                .io = backend,
                .handle_signals = false,
            });
        }
    }
}

fn attendAndSay(port: u16, failed: *std.atomic.Value(bool), done: *std.atomic.Value(bool)) void {
    attend(port, small, failed);
    done.store(true, .release);
}

fn serveWithoutRings(failed: *std.atomic.Value(bool)) void {
    tryWithoutRings() catch |err| {
        std.debug.print("without rings: {t}\n", .{err});
        failed.store(true, .release);
    };
}

fn tryWithoutRings() !void {
    try refusal.refuse(.io_uring_setup, .PERM);
    const server: *Server = try .init(gpa, 0, .{
        .ip = "127.0.0.1",
        .worker_thread_count = 1,
        .io = .uring,
        .handle_signals = false,
    });
    defer server.deinit();
    try testing.expectEqual(.native, server.backend());
    var failed: std.atomic.Value(bool) = .init(false);
    var done: std.atomic.Value(bool) = .init(false);
    const client: std.Thread = try .spawn(.{}, attendAndSay, .{ server.port(), &failed, &done });
    while (!done.load(.acquire)) _ = try server.poll(1);
    client.join();
    try testing.expect(!failed.load(.acquire));
}

test "epoll serves if io_uring is forbidden, and the log says so" {
    if (!refusal.isPossible()) return error.SkipZigTest;
    testing.log_level = .err; // the warning belongs there
    var failed: std.atomic.Value(bool) = .init(false);
    const thread: std.Thread = try .spawn(.{}, serveWithoutRings, .{&failed});
    thread.join();
    try testing.expect(!failed.load(.acquire));
}
