//! Threads that only accept, which servers with several workers have: what mistakes 16, 17 and 19 of
//! defects_test.zig say must hold for them too. On loopback; all threads' work is done in this one.
const std = @import("std");
const per = @import("peregrine");
const alike = @import("alike.zig");
const loopback = @import("loopback.zig");
const refusal = @import("refusal.zig");
const linux = std.os.linux;
const testing = std.testing;

const Greeter = struct {
    allocator: std.mem.Allocator,

    pub fn init(allocator: std.mem.Allocator) !*Greeter {
        const self = try allocator.create(Greeter);
        self.* = .{ .allocator = allocator };
        return self;
    }

    pub fn deinit(self: *Greeter) void {
        self.allocator.destroy(self);
    }

    pub fn handleRequest(_: *Greeter, _: *per.Request, response: *per.Response) void {
        _ = response.setBody("hello") catch unreachable;
    }
};
const Server = per.Server(alike.Kind(Greeter));

/// On a kernel without io_uring the second backend is the same as the first.
const backends = [_]per.io.Backend{ .native, .uring };
const worker_count = 3;

const How = struct { io: per.io.Backend, acceptors: usize = 1, no_delay: bool = true };

fn create(how: How) !*Server {
    return alike.serve(Greeter, testing.allocator, 0, .{
        .ip = "127.0.0.1",
        .worker_thread_count = worker_count,
        .accept_thread_count = how.acceptors,
        .tcp_nodelay = how.no_delay,
        .io = how.io,
        .handle_signals = false,
        .limits = .{ .accept_pause_ms = 20 },
    });
}

/// How many connections each worker has.
fn loads(server: *Server) [worker_count]u32 {
    var counts: [worker_count]u32 = undefined;
    switch (server.running) {
        inline else => |running| for (running.units, &counts) |*unit, *count| {
            count.* = unit.worker.transports.count;
        },
    }
    return counts;
}

fn total(server: *Server) u32 {
    var sum: u32 = 0;
    for (loads(server)) |load| sum += load;
    return sum;
}

fn round(server: *Server) !void {
    _ = try server.poll(0);
    testing.io.sleep(.fromMilliseconds(1), .awake) catch unreachable;
}

/// Polls until the workers have this many connections together.
fn expectTotal(server: *Server, wanted: u32) !void {
    for (0..2000) |_| {
        if (total(server) == wanted) break;
        try round(server);
    } else return testing.expectEqual(wanted, total(server));
}

/// A client, and the worker that serves it.
const Held = struct {
    fd: i32,
    worker: usize,

    fn connect(server: *Server) !Held {
        const before = loads(server);
        const fd = try loopback.connect(server.port());
        errdefer _ = linux.close(fd);
        try expectTotal(server, total(server) + 1);
        for (before, loads(server), 0..) |had, has, worker| {
            if (has != had) return .{ .fd = fd, .worker = worker };
        }
        unreachable; // the total has grown
    }

    fn close(held: Held) void {
        _ = linux.close(held.fd);
    }
};

test "a connection goes to the worker that has the fewest, whichever it is" {
    for (backends) |backend| for (0..worker_count) |emptied| {
        const server = try create(.{ .io = backend });
        defer server.deinit();
        var held: [4 * worker_count]Held = undefined;
        for (&held) |*one| one.* = try .connect(server);
        try testing.expectEqual([_]u32{ 4, 4, 4 }, loads(server));
        for (held) |one| if (one.worker == emptied) one.close();
        try expectTotal(server, held.len - 4);
        for (&held) |*one| if (one.worker == emptied) {
            one.* = try .connect(server);
            try testing.expectEqual(emptied, one.worker);
        };
        for (held) |one| one.close();
        try expectTotal(server, 0);
    };
}

test "accepting goes on when there are descriptors again" {
    testing.log_level = .err; // the warning belongs there
    for (backends) |backend| for ([_]usize{ 0, 1, 2 }) |acceptors| {
        const server = try create(.{ .io = backend, .acceptors = acceptors });
        defer server.deinit();
        const client = try loopback.connect(server.port());
        defer _ = linux.close(client);
        {
            const limits = try std.posix.getrlimit(.NOFILE);
            try std.posix.setrlimit(.NOFILE, .{ .cur = 0, .max = limits.max });
            defer std.posix.setrlimit(.NOFILE, limits) catch unreachable;
            for (0..10) |_| try round(server);
            try testing.expectEqual(0, total(server));
        }
        try expectTotal(server, 1);
    };
}

/// The server's end of a client's connection, found among the descriptors of this process.
fn acceptedFrom(client: i32) !i32 {
    const port = try loopback.localPort(client);
    for (0..1024) |fd| if (loopback.peerPort(@intCast(fd)) == port) return @intCast(fd);
    return error.NotAccepted;
}

test "accepted sockets send small packets at once unless told otherwise, and are closed on exec" {
    for (backends) |backend| for ([_]usize{ 0, 1, 2 }) |acceptors| for ([_]bool{ true, false }) |no_delay| {
        const server = try create(.{ .io = backend, .acceptors = acceptors, .no_delay = no_delay });
        defer server.deinit();
        var clients: [8]i32 = undefined;
        for (&clients) |*client| client.* = try loopback.connect(server.port());
        defer for (clients) |client| {
            _ = linux.close(client);
        };
        try expectTotal(server, clients.len);
        for (clients) |client| {
            const fd = try acceptedFrom(client);
            var value: c_int = 0;
            var length: linux.socklen_t = @sizeOf(c_int);
            try testing.expectEqual(
                0,
                linux.getsockopt(fd, linux.IPPROTO.TCP, linux.TCP.NODELAY, @ptrCast(&value), &length),
            );
            try testing.expectEqual(no_delay, value != 0);
            try testing.expect(linux.fcntl(fd, linux.F.GETFD, 0) & linux.FD_CLOEXEC != 0);
        }
    };
}

/// Whether accepting pauses, in a worker or an acceptor.
fn isPaused(server: *Server) bool {
    switch (server.running) {
        inline else => |running| {
            for (running.units) |*unit| if (unit.worker.accepting.short_until != null) return true;
            for (running.acceptors) |*acceptor| if (acceptor.resume_at != 0) return true;
        },
    }
    return false;
}

fn pollWithoutAccept(server: *Server, code: linux.E, paused: *bool) void {
    refusal.refuse(.accept4, code) catch unreachable;
    for (0..10) |_| {
        round(server) catch unreachable;
        paused.* = paused.* or isPaused(server);
    }
}

test "a client that left before it was accepted delays nobody; running out of descriptors does" {
    if (!refusal.isPossible()) return error.SkipZigTest;
    testing.log_level = .err; // the warning belongs there
    inline for (.{ .{ .CONNABORTED, false }, .{ .MFILE, true } }) |case| for ([_]usize{ 0, 1 }) |acceptors| {
        // Under io_uring the kernel accepts by itself; src/io/uring/listener.zig has that test.
        const server = try create(.{ .io = .native, .acceptors = acceptors });
        defer server.deinit();
        const client = try loopback.connect(server.port());
        defer _ = linux.close(client);
        var paused = false;
        const thread: std.Thread = try .spawn(.{}, pollWithoutAccept, .{ server, case[0], &paused });
        thread.join();
        try testing.expectEqual(0, total(server));
        try testing.expectEqual(case[1], paused);
        try expectTotal(server, 1);
    };
}
