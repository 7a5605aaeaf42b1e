//! A server that listens at Unix sockets and inherited descriptors, on real sockets, with a worker that is
//! polled from here.
const std = @import("std");
const per = @import("peregrine");
const alike = @import("alike.zig");
const io = per.io;
const linux = std.os.linux;
const testing = std.testing;

const Where = struct {
    gpa: std.mem.Allocator,
    const Self = @This();

    pub fn init(gpa: std.mem.Allocator) !*Self {
        const self = try gpa.create(Self);
        self.gpa = gpa;
        return self;
    }

    pub fn deinit(self: *Self) void {
        self.gpa.destroy(self);
    }

    pub fn handleRequest(_: *Self, request: *per.Request, response: *per.Response) void {
        const text = std.fmt.allocPrint(request.arena, "peer {s}{s}", .{
            if (request.peer.len == 0) "none" else request.peer,
            if (request.isSecure()) " secure" else "",
        }) catch unreachable;
        _ = response.setBody(text) catch unreachable;
    }
};
const Server = per.Server(alike.Kind(Where));

/// A bare client on any kind of address.
const Client = struct {
    fd: i32,

    fn connect(address: *const io.Address) !Client {
        const rc = linux.socket(address.family(), linux.SOCK.STREAM | linux.SOCK.NONBLOCK, 0);
        try testing.expectEqual(linux.E.SUCCESS, linux.errno(rc));
        const client: Client = .{ .fd = @intCast(rc) };
        errdefer client.close();
        var storage: std.c.sockaddr.storage = undefined;
        const length = address.toSystem(@ptrCast(&storage));
        return switch (linux.errno(linux.connect(client.fd, @ptrCast(&storage), length))) {
            .SUCCESS, .INPROGRESS => client,
            else => error.Refused,
        };
    }

    fn close(client: Client) void {
        _ = linux.close(client.fd);
    }

    fn send(client: Client, bytes: []const u8) !void {
        for (0..200) |_| {
            const rc = linux.write(client.fd, bytes.ptr, bytes.len);
            if (linux.errno(rc) == .SUCCESS) return testing.expectEqual(bytes.len, rc);
            var room: linux.pollfd = .{ .fd = client.fd, .events = linux.POLL.OUT, .revents = 0 };
            _ = linux.poll(@ptrCast(&room), 1, 5);
        }
        return error.Blocked;
    }

    /// Sends a request and polls the server until the answer ends so.
    fn expectAnswer(client: Client, server: *Server, ending: []const u8) !void {
        return client.expectAnswerTo(server, "", ending);
    }

    /// Like `expectAnswer`, with these lines in the request's head.
    fn expectAnswerTo(client: Client, server: *Server, lines: []const u8, ending: []const u8) !void {
        var head: [256]u8 = undefined;
        const request = try std.fmt.bufPrint(&head, "GET / HTTP/1.1\r\nHost: h\r\n{s}\r\n", .{lines});
        var buffer: [1024]u8 = undefined;
        var len: usize = 0;
        var sent = false;
        for (0..200) |_| {
            _ = try server.poll(5);
            if (!sent) sent = linux.errno(linux.write(client.fd, request.ptr, request.len)) == .SUCCESS;
            const rc = linux.read(client.fd, buffer[len..].ptr, buffer.len - len);
            switch (linux.errno(rc)) {
                .SUCCESS => if (rc == 0) return error.Closed else {
                    len += rc;
                },
                .CONNRESET => return error.Closed,
                else => {},
            }
            if (std.mem.endsWith(u8, buffer[0..len], ending)) return;
        }
        try testing.expectEqualStrings(ending, buffer[0..len]);
    }
};

fn pathOf(buffer: *[64]u8, name: []const u8) ![]const u8 {
    return std.fmt.bufPrint(buffer, "/tmp/peregrine-{s}-{d}.sock", .{ name, linux.getpid() });
}

fn modeOf(path: []const u8) !?u16 {
    const terminated = try std.posix.toPosixPath(path);
    var status: linux.Statx = undefined;
    const rc = linux.statx(
        linux.AT.FDCWD,
        &terminated,
        linux.AT.SYMLINK_NOFOLLOW,
        .{ .MODE = true },
        &status,
    );
    return if (linux.errno(rc) == .SUCCESS) status.mode & 0o7777 else null;
}

fn expectUnixSocket(backend: io.Backend) !void {
    var buffer: [64]u8 = undefined;
    const path = try pathOf(&buffer, "listeners");
    const server = try alike.serve(Where, testing.allocator, 0, .{
        .ip = "127.0.0.1",
        .worker_thread_count = 1,
        .io = backend,
        .listeners = &.{.{ .unix = .{ .path = path, .access = .{ .mode = 0o620 } } }},
    });
    {
        defer server.deinit();
        try testing.expectEqual(0o620, try modeOf(path));
        const over_unix: Client = try .connect(&try .unixPath(path));
        defer over_unix.close();
        try over_unix.expectAnswer(server, "\r\n\r\npeer none");
        const over_tcp: Client = try .connect(&try .parse("127.0.0.1", server.port()));
        defer over_tcp.close();
        try over_tcp.expectAnswer(server, "\r\n\r\npeer 127.0.0.1");
    }
    try testing.expectEqual(null, try modeOf(path));
}

test "a Unix socket beside a port, on every io: its file has the wanted mode and goes with the server" {
    try expectUnixSocket(.native);
    try expectUnixSocket(.uring);
}

test "a proxy says whose connection it is; nobody else may, and a list of proxies is checked" {
    const port: u16 = 0;
    var config: per.ServerConfig = .{
        .ip = "",
        .worker_thread_count = 1,
        .listeners = &.{.{ .ip = .{ .address = "127.0.0.1", .port = port, .proxies = "127.0.0.0/8" } }},
    };
    const server = try alike.serve(Where, testing.allocator, 0, config);
    defer server.deinit();
    const client: Client = try .connect(&try .parse("127.0.0.1", server.port()));
    defer client.close();
    try client.send("PROXY TCP6 2001:db8::7 ::1 1 2\r\n");
    try client.expectAnswer(server, "\r\n\r\npeer 2001:db8::7");

    config.listeners = &.{.{ .ip = .{
        .address = "127.0.0.1",
        .port = port,
        .proxies = "10.0.0.0/8, unix",
    } }};
    const strict = try alike.serve(Where, testing.allocator, 0, config);
    defer strict.deinit();
    const stranger: Client = try .connect(&try .parse("127.0.0.1", strict.port()));
    defer stranger.close();
    testing.log_level = .err; // the log is told of it
    defer testing.log_level = .warn;
    try stranger.send("PROXY TCP6 2001:db8::7 ::1 1 2\r\n");
    try testing.expectError(error.Closed, stranger.expectAnswer(strict, "peer 2001:db8::7"));
}

test "a trusted proxy says whose request it is, each time anew; over a Unix socket, too" {
    var buffer: [64]u8 = undefined;
    const path = try pathOf(&buffer, "trusted");
    var config: per.ServerConfig = .{
        .ip = "127.0.0.1",
        .worker_thread_count = 1,
        .listeners = &.{.{ .unix = .{ .path = path } }},
        .trusted_proxies = "127.0.0.0/8, 10.0.0.0/8, unix",
    };
    const server = try alike.serve(Where, testing.allocator, 0, config);
    defer server.deinit();
    for ([_]io.Address{ try .parse("127.0.0.1", server.port()), try .unixPath(path) }) |address| {
        const own = if (address == .unix) "peer none" else "peer 127.0.0.1";
        const client: Client = try .connect(&address);
        defer client.close();
        try client.expectAnswerTo(
            server,
            "X-Forwarded-For: 198.51.100.9, 2001:db8::7\r\nX-Forwarded-For: 10.0.0.1\r\n",
            "peer 2001:db8::7",
        );
        try client.expectAnswer(server, own);
        try client.expectAnswerTo(
            server,
            "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\n",
            "peer 192.0.2.1 secure",
        );
        try client.expectAnswerTo(server, "Forwarded: for=192.0.2.1\r\n", own);
    }

    config.listeners = &.{};
    config.forwarded_header = .forwarded;
    const modern = try alike.serve(Where, testing.allocator, 0, config);
    defer modern.deinit();
    const client: Client = try .connect(&try .parse("127.0.0.1", modern.port()));
    defer client.close();
    try client.expectAnswerTo(
        modern,
        "Forwarded: for=\"[2001:db8::7]:80\";proto=https, for=10.0.0.1\r\n",
        "peer 2001:db8::7 secure",
    );
    try client.expectAnswerTo(
        modern,
        "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\n",
        "peer 127.0.0.1",
    );

    config.trusted_proxies = "10.0.0.0/8";
    const strict = try alike.serve(Where, testing.allocator, 0, config);
    defer strict.deinit();
    const stranger: Client = try .connect(&try .parse("127.0.0.1", strict.port()));
    defer stranger.close();
    try stranger.expectAnswerTo(strict, "Forwarded: for=192.0.2.1;proto=https\r\n", "peer 127.0.0.1");
}

test "the file of another server stays, also when the start fails half way" {
    var buffer: [64]u8 = undefined;
    const path = try pathOf(&buffer, "first");
    const place: []const per.ServerConfig.Place = &.{.{ .unix = .{ .path = path } }};
    const first = try alike.serve(Where, testing.allocator, 0, .{
        .ip = "",
        .worker_thread_count = 1,
        .listeners = place,
    });
    defer first.deinit();
    var other_buffer: [64]u8 = undefined;
    const other = try pathOf(&other_buffer, "second");
    testing.log_level = .err; // the log says which one
    defer testing.log_level = .warn;
    try testing.expectError(error.AddressInUse, alike.serve(Where, testing.allocator, 0, .{
        .ip = "",
        .worker_thread_count = 1,
        .listeners = &.{ .{ .unix = .{ .path = other } }, .{ .unix = .{ .path = path } } },
    }));
    try testing.expect(try modeOf(path) != null);
    try testing.expectEqual(null, try modeOf(other));
}

test "an inherited socket is served, by all workers, and its file is not ours to remove" {
    var buffer: [64]u8 = undefined;
    const path = try pathOf(&buffer, "inherited");
    const address: io.Address = try .unixPath(path);
    for ([_]usize{ 1, 2 }) |workers| for ([_]usize{ 0, 1 }) |acceptors| {
        const descriptor = try io.listenSocket(&address, .{});
        const file = io.SocketFile.of(&address).?;
        defer file.remove();
        const server = try alike.serve(Where, testing.allocator, 0, .{
            .ip = "",
            .worker_thread_count = workers,
            .accept_thread_count = acceptors,
            .listeners = &.{.{ .inherited = .{ .descriptor = descriptor } }},
        });
        defer server.deinit();
        const client: Client = try .connect(&address);
        defer client.close();
        // With several workers only a round without waiting makes sense.
        if (workers == 1) try client.expectAnswer(server, "\r\n\r\npeer none");
    };
    try testing.expectEqual(null, try modeOf(path));
}

test "a configuration's strings may be freed when the server is made" {
    var path_buffer: [64]u8 = undefined;
    const path = try pathOf(&path_buffer, "borrowed");
    var ip = "127.0.0.1".*;
    var unix_buffer: [64]u8 = undefined;
    const unix = unix_buffer[0..path.len];
    @memcpy(unix, path);
    var health = "/health".*;
    var trusted = "127.0.0.0/8".*;
    var places = [_]per.ServerConfig.Place{.{ .unix = .{ .path = unix } }};
    const server = try alike.serve(Where, testing.allocator, 0, .{
        .ip = &ip,
        .worker_thread_count = 1,
        .listeners = &places,
        .health_path = &health,
        .trusted_proxies = &trusted,
    });
    for ([_][]u8{ &ip, unix, &health, &trusted, std.mem.asBytes(&places) }) |bytes| @memset(bytes, 0xaa);
    {
        defer server.deinit();
        const over_unix: Client = try .connect(&try .unixPath(path));
        defer over_unix.close();
        try over_unix.expectAnswer(server, "peer none");
        const over_tcp: Client = try .connect(&try .parse("127.0.0.1", server.port()));
        defer over_tcp.close();
        try over_tcp.expectAnswerTo(server, "X-Forwarded-For: 192.0.2.1\r\n", "peer 192.0.2.1");
    }
    try testing.expectEqual(null, try modeOf(path));
}

test "the thread that called start may use all its cores again afterwards" {
    const server = try alike.serve(Where, testing.allocator, 0, .{
        .ip = "127.0.0.1",
        .worker_thread_count = 1,
        .accept_thread_count = 0,
        .cpu_affinity = true,
        .handle_signals = false,
    });
    var before: linux.cpu_set_t = undefined;
    try testing.expectEqual(
        linux.E.SUCCESS,
        linux.errno(linux.sched_getaffinity(0, @sizeOf(linux.cpu_set_t), &before)),
    );
    defer server.deinit();
    server.shutdown();
    try server.start();
    var after: linux.cpu_set_t = undefined;
    try testing.expectEqual(
        linux.E.SUCCESS,
        linux.errno(linux.sched_getaffinity(0, @sizeOf(linux.cpu_set_t), &after)),
    );
    try testing.expectEqual(linux.CPU_COUNT(before), linux.CPU_COUNT(after));
}
