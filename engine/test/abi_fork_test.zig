//! The promises of peregrine.h to C programs that fork: a child has none of a worker's descriptors, and every
//! call answers GONE there, while the parent goes on as if nothing had happened.
const std = @import("std");
const abi = @import("abi");
const listen = @import("abi_listener.zig").listen;
const loopback = @import("loopback.zig");
const c = std.c;
const Code = abi.types.Code;
const testing = std.testing;

const request = "GET / HTTP/1.1\r\nHost: here\r\n\r\n";

const Server = struct {
    handle: *abi.Handle,
    client: c.fd_t,

    fn start() !Server {
        const config = abi.peregrine_config_new().?;
        defer abi.peregrine_config_free(config);
        const handle = abi.peregrine_worker_new(config).?;
        const port = try listen(handle);
        return .{ .handle = handle, .client = try loopback.connect(port) };
    }

    fn stop(server: *const Server) void {
        abi.peregrine_worker_free(server.handle);
        _ = c.close(server.client);
    }

    /// The ticket of the client's next request.
    fn ask(server: *const Server) !abi.types.Ticket {
        try testing.expectEqual(@as(isize, request.len), c.write(server.client, request, request.len));
        for (0..100) |_| {
            var events: [*]const abi.types.Event = undefined;
            const count = abi.peregrine_poll(server.handle, 100, &events);
            if (count > 0 and events[0].kind == .request) return events[0].ticket;
        }
        return error.NoRequest;
    }

    fn answer(server: *const Server, ticket: abi.types.Ticket) !void {
        try testing.expectEqual(Code.done, respond(server.handle, ticket));
        var events: [*]const abi.types.Event = undefined;
        try testing.expect(abi.peregrine_poll(server.handle, 0, &events) >= 0);
        var buffer: [1024]u8 = undefined;
        const len = c.read(server.client, &buffer, buffer.len);
        try testing.expect(len > 0);
        const response = buffer[0..@intCast(len)];
        try testing.expect(std.mem.startsWith(u8, response, "HTTP/1.1 204 "));
        try testing.expectEqual(1, std.mem.count(u8, response, "HTTP/1.1"));
    }
};

fn respond(handle: *abi.Handle, ticket: abi.types.Ticket) c_int {
    const response: abi.types.Response = .{
        .size = @sizeOf(abi.types.Response),
        .status = 204,
        .flags = abi.types.RespondFlag.end,
    };
    return abi.peregrine_respond(handle, ticket, @ptrCast(&response));
}

/// Sockets among the descriptors of this process, except one.
fn socketsBeside(other: c.fd_t) usize {
    var count: usize = 0;
    for (3..1024) |number| {
        const fd: c.fd_t = @intCast(number);
        var kind: c_int = 0;
        var len: c.socklen_t = @sizeOf(c_int);
        if (fd != other and c.getsockopt(fd, c.SOL.SOCKET, c.SO.TYPE, &kind, &len) == 0) count += 1;
    }
    return count;
}

/// The status of a child that runs a function, which returns the number of the first thing
/// that was wrong, or 0.
fn inChild(context: anytype, comptime run: fn (@TypeOf(context)) u8) !u8 {
    const pid = c.fork();
    try testing.expect(pid >= 0);
    if (pid == 0) c._exit(run(context));
    var status: c_int = 0;
    try testing.expectEqual(pid, c.waitpid(pid, &status, 0));
    try testing.expectEqual(0, status & 0x7f);
    return @intCast(status >> 8 & 0xff);
}

test "a child has nothing of a worker, and its parent goes on" {
    const before = socketsBeside(-1);
    const server: Server = try .start();
    defer server.stop();
    const ticket = try server.ask();
    const Context = struct { server: *const Server, ticket: abi.types.Ticket, sockets: usize };
    const context: Context = .{ .server = &server, .ticket = ticket, .sockets = before };
    try testing.expectEqual(0, try inChild(context, struct {
        fn run(given: Context) u8 {
            const handle = given.server.handle;
            if (socketsBeside(given.server.client) != given.sockets) return 1;
            if (abi.peregrine_forks() != 1) return 2;
            var events: [*]const abi.types.Event = undefined;
            if (abi.peregrine_poll(handle, 0, &events) != Code.gone) return 3;
            if (respond(handle, given.ticket) != Code.gone) return 4;
            if (abi.peregrine_abort(handle, given.ticket) != Code.gone) return 5;
            if (abi.peregrine_set_user(handle, given.ticket, null) != Code.gone) return 6;
            if (abi.peregrine_buffered(handle, given.ticket) != 0) return 7;
            if (abi.peregrine_listen(handle, "127.0.0.1", 0, 16, 0) != Code.gone) return 8;
            if (abi.peregrine_fd(handle) != Code.gone) return 9;
            abi.peregrine_wake(handle);
            abi.peregrine_drain(handle);
            abi.peregrine_cut(handle);
            abi.peregrine_access_log_reopen(handle);
            abi.peregrine_worker_free(handle);
            // The child may make a server of its own.
            const own = Server.start() catch return 10;
            own.answer(own.ask() catch return 11) catch return 12;
            own.stop();
            return if (socketsBeside(given.server.client) == given.sockets) 0 else 13;
        }
    }.run));
    try testing.expectEqual(0, abi.peregrine_forks());
    try server.answer(ticket);
    try server.answer(try server.ask());
}

test "loans of a parent are neither sent nor told of in a child" {
    const server: Server = try .start();
    defer server.stop();
    const large = try testing.allocator.alloc(u8, 64 * 1024 * 1024);
    defer testing.allocator.free(large);
    @memset(large, 'l');
    const ticket = try server.ask();
    const response: abi.types.Response = .{ .size = @sizeOf(abi.types.Response), .status = 200 };
    try testing.expect(abi.peregrine_respond(server.handle, ticket, @ptrCast(&response)) >= 0);
    // The first loan has come back before the fork, the second has not.
    var loans: [2]abi.types.Loan = @splat(.{});
    try testing.expect(abi.peregrine_lend(server.handle, ticket, large.ptr, 50_000, 0, &loans[0]) >= 0);
    const code = abi.peregrine_lend(
        server.handle,
        ticket,
        large.ptr,
        large.len,
        abi.types.RespondFlag.end,
        &loans[1],
    );
    try testing.expectEqual(Code.blocked, code);
    const Context = struct { server: *const Server, ticket: abi.types.Ticket };
    try testing.expectEqual(0, try inChild(Context{ .server = &server, .ticket = ticket }, struct {
        fn run(given: Context) u8 {
            const handle = given.server.handle;
            var own: abi.types.Loan = .{};
            if (abi.peregrine_lend(handle, given.ticket, "own", 3, 0, &own) != Code.gone) return 1;
            if (abi.peregrine_lend_message(handle, given.ticket, "own", 3, 0, &own) != Code.gone) return 2;
            if (abi.peregrine_returned(handle) != null) return 3;
            abi.peregrine_worker_free(handle);
            return 0;
        }
    }.run));
    try testing.expectEqual(&loans[0], abi.peregrine_returned(server.handle).?);
    try testing.expectEqual(null, loans[0].next);
    var rest: usize = large.len + 50_000;
    var buffer: [256 * 1024]u8 = undefined;
    while (rest > 0) {
        var events: [*]const abi.types.Event = undefined;
        try testing.expect(abi.peregrine_poll(server.handle, 0, &events) >= 0);
        const len = c.read(server.client, &buffer, buffer.len);
        try testing.expect(len > 0);
        rest -|= std.mem.count(u8, buffer[0..@intCast(len)], "l");
    }
    try testing.expectEqual(&loans[1], abi.peregrine_returned(server.handle).?);
    try testing.expectEqual(null, loans[1].next);
}

test "a loan without a mark is copied, and a worker may end with loans out" {
    const server: Server = try .start();
    const large: [100_000]u8 = @splat('l');
    var loan: abi.types.Loan = .{};
    const ticket = try server.ask();
    const response: abi.types.Response = .{ .size = @sizeOf(abi.types.Response), .status = 200 };
    try testing.expect(abi.peregrine_respond(server.handle, ticket, @ptrCast(&response)) >= 0);
    try testing.expect(abi.peregrine_lend(server.handle, ticket, &large, large.len, 0, null) >= 0);
    try testing.expectEqual(null, abi.peregrine_returned(server.handle));
    var pieces: usize = 0;
    while (abi.peregrine_lend(server.handle, ticket, &large, large.len, 0, &loan) >= 0) : (pieces += 1) {
        if (abi.peregrine_returned(server.handle) == null) break;
        try testing.expect(pieces < 10_000);
    }
    server.stop();
}

/// By epoll, where there is one.
fn canBeWatched(fd: c.fd_t) bool {
    if (@import("builtin").os.tag != .linux) return true;
    const linux = std.os.linux;
    const epoll: i32 = @intCast(linux.epoll_create1(0));
    defer _ = c.close(epoll);
    var wanted: linux.epoll_event = .{ .events = linux.EPOLL.IN, .data = .{ .fd = fd } };
    if (linux.errno(linux.epoll_ctl(epoll, linux.EPOLL.CTL_ADD, fd, &wanted)) != .SUCCESS) return false;
    var ready: [1]linux.epoll_event = undefined;
    return linux.epoll_wait(epoll, &ready, 1, 0) == 1;
}

test "a hidden descriptor is at its end in a child, and may be watched" {
    const server: Server = try .start();
    defer server.stop();
    const Pair = struct { hidden: c.fd_t, shown: c.fd_t };
    const pair: Pair = .{ .hidden = c.dup(server.client), .shown = c.dup(server.client) };
    defer for ([_]c.fd_t{ pair.hidden, pair.shown }) |fd| {
        _ = c.close(fd);
    };
    abi.peregrine_hide_from_forks(pair.hidden, 1);
    abi.peregrine_hide_from_forks(pair.shown, 1);
    abi.peregrine_hide_from_forks(pair.shown, 0);
    abi.peregrine_hide_from_forks(-1, 1);
    defer abi.peregrine_hide_from_forks(pair.hidden, 0);
    try testing.expectEqual(0, try inChild(pair, struct {
        fn run(given: Pair) u8 {
            var byte: [1]u8 = undefined;
            if (c.read(given.hidden, &byte, 1) != 0) return 1;
            if (c.fcntl(given.hidden, c.F.GETFD) != c.FD_CLOEXEC) return 2;
            if (!canBeWatched(given.hidden)) return 4;
            var kind: c_int = 0;
            var len: c.socklen_t = @sizeOf(c_int);
            return if (c.getsockopt(given.shown, c.SOL.SOCKET, c.SO.TYPE, &kind, &len) == 0) 0 else 3;
        }
    }.run));
}
