//! A server that is HTTP/2's state machine and a socket, nothing else: what outside judges (h2spec) and
//! clients are pointed at to see the protocol layer alone. `http2-judged PORT` listens on 127.0.0.1, answers
//! GET with a greeting, or with as many bytes as the path says (/1000000), and everything else with the
//! length of what it was sent. One thread, a few connections, no limits on time: no server for anybody else.
const std = @import("std");
const linux = std.os.linux;
const protocol = @import("protocol");
const http2 = protocol.http2;
const session_file = http2.session;
const Session = session_file.Session;

const limits: session_file.Limits = .{
    .request_line_bytes_max = 8192,
    .head_bytes_max = 65_536,
    .header_count_max = 100,
    .body_bytes_max = 0,
    .trailer_bytes_max = 8192,
    .chunk_line_bytes_max = 4096,
};
const config: session_file.Config = .{};
const connections_max = 256;

/// What waits for the socket beyond this is not added to, in bytes.
const wire_bytes_max = 64 * 1024;

const Connection = struct {
    fd: i32 = -1,
    session: Session,
    places: [config.streams_max]session_file.Stream,
    /// Of each stream, how much content has come.
    bodies: [config.streams_max]Body,
    input: std.ArrayList(u8),
    wire: std.ArrayList(u8),

    const Body = struct { stream: u32 = 0, len: u64 = 0, reply: u64 = 0 };

    fn open(c: *Connection, fd: i32, room: []u8) void {
        c.fd = fd;
        c.bodies = @splat(.{});
        c.input = .empty;
        c.wire = .empty;
        c.session = .init(&limits, &config, &c.places, room);
    }

    fn close(c: *Connection, gpa: std.mem.Allocator) void {
        _ = linux.close(c.fd);
        c.input.deinit(gpa);
        c.wire.deinit(gpa);
        c.fd = -1;
    }

    fn bodyOf(c: *Connection, stream: u32) *Body {
        for (&c.bodies) |*body| if (body.stream == stream) return body;
        for (&c.bodies) |*body| if (body.stream == 0 or c.session.streams.find(body.stream) == null) {
            body.* = .{ .stream = stream };
            return body;
        };
        unreachable;
    }
};

const Server = struct {
    gpa: std.mem.Allocator,
    connections: []Connection,
    head: session_file.Head,
    /// Of all sessions.
    room: []u8,
    now_ms: u64 = 0,

    fn take(server: *Server, c: *Connection) !void {
        c.session.wait(server.now_ms);
        while (true) {
            const step = c.session.feed(c.input.items, &server.head);
            const rest = c.input.items[step.consumed..];
            switch (step.event) {
                .request => {
                    if (c.session.inputComplete(step.stream)) try server.answer(c, step.stream, true);
                },
                .body => |piece| {
                    c.bodyOf(step.stream).len += piece.len;
                    c.session.release(step.stream, @intCast(piece.len));
                },
                .end => try server.answer(c, step.stream, false),
                .refused => |refusal| {
                    try server.start(c, step.stream, .{ .status = refusal.status, .end = true });
                },
                .control => try server.send(c),
                .trailers, .reset, .failed, .places => {},
                .need_more => {
                    std.mem.copyForwards(u8, c.input.items[0..rest.len], rest);
                    c.input.shrinkRetainingCapacity(rest.len);
                    return server.send(c);
                },
            }
            std.mem.copyForwards(u8, c.input.items[0..rest.len], rest);
            c.input.shrinkRetainingCapacity(rest.len);
        }
    }

    const greeting = "Hello, World!\n";

    fn answer(server: *Server, c: *Connection, stream: u32, with_head: bool) !void {
        const fields = [_]protocol.http.Field{.init("Content-Type", "text/plain")};
        const date = "Sun, 06 Nov 1994 08:49:37 GMT";
        var text: [24]u8 = undefined;
        if (with_head) {
            const path = server.head.path.of(server.head.text);
            const len = std.fmt.parseUnsigned(u64, path[1..], 10) catch 0;
            if (len > 0) {
                try server.start(c, stream, .{ .status = 200, .fields = &fields, .date = date });
                const plan = c.session.planBody(stream, .{ .len = len, .last = true }) catch return;
                return c.session.apply(stream, plan);
            }
        }
        const content = if (with_head)
            greeting
        else
            std.fmt.bufPrint(&text, "{d}\n", .{c.bodyOf(stream).len}) catch unreachable;
        try server.start(c, stream, .{
            .status = 200,
            .fields = &fields,
            .date = date,
            .content = content,
            .end = true,
        });
    }

    fn start(server: *Server, c: *Connection, stream: u32, response: session_file.Response) !void {
        const size = session_file.startSize(response.fields) + response.content.len;
        const out = try c.wire.addManyAsSlice(server.gpa, size);
        const before = c.wire.items.len - size;
        const started = c.session.start(stream, response, out) catch {
            c.wire.shrinkRetainingCapacity(before);
            return;
        };
        c.wire.shrinkRetainingCapacity(before + started.len);
    }

    /// Frames what may leave, and hands it to the kernel. Content that does not leave at once is zeros.
    fn send(server: *Server, c: *Connection) !void {
        while (true) {
            while (c.wire.items.len < wire_bytes_max or c.session.continuing != 0) {
                const out = try c.wire.addManyAsSlice(server.gpa, session_file.emission_bytes_max);
                const before = c.wire.items.len - out.len;
                const emission = c.session.emit(out, 16_384) orelse {
                    c.wire.shrinkRetainingCapacity(before);
                    break;
                };
                c.wire.shrinkRetainingCapacity(before + emission.head);
                try c.wire.appendNTimes(server.gpa, 0, emission.content);
            }
            if (c.wire.items.len == 0) return;
            const sent = linux.sendto(c.fd, c.wire.items.ptr, c.wire.items.len, linux.MSG.NOSIGNAL, null, 0);
            if (linux.errno(sent) != .SUCCESS) return;
            const rest = c.wire.items[sent..];
            std.mem.copyForwards(u8, c.wire.items[0..rest.len], rest);
            c.wire.shrinkRetainingCapacity(rest.len);
            if (rest.len > 0) return;
        }
    }

    /// False: the peer has gone.
    fn receive(server: *Server, c: *Connection) !bool {
        var bytes: [16 * 1024]u8 = undefined;
        const len = linux.recvfrom(c.fd, &bytes, bytes.len, 0, null, null);
        switch (linux.errno(len)) {
            .SUCCESS => {},
            .AGAIN => return true,
            else => return false,
        }
        if (len == 0) return false;
        try c.input.appendSlice(server.gpa, bytes[0..len]);
        try server.take(c);
        return !(c.session.isDone() and c.wire.items.len == 0);
    }

    fn run(server: *Server, listener: i32) !void {
        var fds: [connections_max + 1]linux.pollfd = undefined;
        while (true) {
            fds[0] = .{ .fd = listener, .events = linux.POLL.IN, .revents = 0 };
            for (server.connections, fds[1..]) |*c, *fd| {
                const writes: i16 = if (c.fd >= 0 and c.wire.items.len > 0) linux.POLL.OUT else 0;
                fd.* = .{ .fd = c.fd, .events = linux.POLL.IN | writes, .revents = 0 };
            }
            _ = linux.poll(&fds, fds.len, -1);
            var time: linux.timespec = undefined;
            _ = linux.clock_gettime(.MONOTONIC, &time);
            server.now_ms = @intCast(time.sec * 1000 + @divTrunc(time.nsec, 1_000_000));
            if (fds[0].revents != 0) server.accept(listener);
            for (server.connections, fds[1..]) |*c, fd| {
                if (fd.fd < 0 or fd.revents == 0) continue;
                if (fd.revents & linux.POLL.OUT != 0) try server.send(c);
                if (!try server.receive(c)) c.close(server.gpa);
            }
        }
    }

    fn accept(server: *Server, listener: i32) void {
        const fd = linux.accept4(listener, null, null, linux.SOCK.NONBLOCK | linux.SOCK.CLOEXEC);
        if (linux.errno(fd) != .SUCCESS) return;
        const on: i32 = 1;
        _ = linux.setsockopt(@intCast(fd), linux.IPPROTO.TCP, linux.TCP.NODELAY, std.mem.asBytes(&on), 4);
        for (server.connections) |*c| if (c.fd < 0) return c.open(@intCast(fd), server.room);
        _ = linux.close(@intCast(fd));
    }
};

pub fn main(init: std.process.Init) !void {
    const args = try init.minimal.args.toSlice(init.arena.allocator());
    const port = try std.fmt.parseInt(u16, args[1], 10);
    const arena = init.arena.allocator();
    const connections = try arena.alloc(Connection, connections_max);
    for (connections) |*c| c.fd = -1;
    var server: Server = .{
        .gpa = init.gpa,
        .connections = connections,
        .head = .{ .storage = try arena.alloc(protocol.http.FieldSpan, limits.header_count_max) },
        .room = try arena.alloc(u8, session_file.roomBytes(&config)),
    };
    const listener: i32 = @intCast(linux.socket(linux.AF.INET, linux.SOCK.STREAM | linux.SOCK.CLOEXEC, 0));
    const on: i32 = 1;
    _ = linux.setsockopt(listener, linux.SOL.SOCKET, linux.SO.REUSEADDR, std.mem.asBytes(&on), 4);
    var address: linux.sockaddr.in = .{
        .port = std.mem.nativeToBig(u16, port),
        .addr = std.mem.nativeToBig(u32, 0x7f000001),
    };
    if (linux.errno(linux.bind(listener, @ptrCast(&address), @sizeOf(linux.sockaddr.in))) != .SUCCESS) {
        return error.CannotBind;
    }
    _ = linux.listen(listener, 128);
    var len: linux.socklen_t = @sizeOf(linux.sockaddr.in);
    _ = linux.getsockname(listener, @ptrCast(&address), &len);
    std.debug.print("listening on 127.0.0.1:{d}\n", .{std.mem.bigToNative(u16, address.port)});
    try server.run(listener);
}
