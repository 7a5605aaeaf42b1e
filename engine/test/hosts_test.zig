//! Two hosts behind one listener: a Zig handler, which pushes, and the C API's host, which pulls. Each
//! request goes where its route says, and neither host sees or slows the other, but for the order of answers
//! on one connection.
const std = @import("std");
const abi = @import("abi");
const per = @import("peregrine");
const loopback = @import("loopback.zig");
const socket_client = @import("websocket_client.zig");
const testing = std.testing;
const gpa = testing.allocator;

/// Answers at once, or when a test says so.
const Handler = struct {
    allocator: std.mem.Allocator,
    later: ?per.Detached = null,
    aborts: usize = 0,
    disconnects: usize = 0,

    pub fn init(allocator: std.mem.Allocator) !*Handler {
        const self = try allocator.create(Handler);
        self.* = .{ .allocator = allocator };
        return self;
    }

    pub fn deinit(self: *Handler) void {
        self.allocator.destroy(self);
    }

    pub fn handleRequest(self: *Handler, request: *per.Request, response: *per.Response) !void {
        if (per.ws.upgrader.accept(request, response, .{})) return else |_| {}
        if (std.mem.eql(u8, request.getPath(), "/later")) {
            self.later = try response.detach();
            return;
        }
        _ = try response.setBody(if (request.body.len > 0) request.body else "from Zig");
    }

    pub fn handleAbort(self: *Handler, _: *per.Request, _: per.Reason) void {
        self.aborts += 1;
    }

    pub fn handleWSFrame(_: *Handler, socket: *per.ws.WebSocket, frame: *per.ws.Frame) !void {
        _ = try socket.send(.binary, frame.getPayload());
    }

    pub fn handleWSDisconn(self: *Handler, _: *per.ws.WebSocket) void {
        self.disconnects += 1;
    }
};

/// A worker with both hosts.
fn Bench(comptime Io: type) type {
    return struct {
        const Self = @This();
        const ZigHost = per.NativeHost(Self, Handler);
        const Hosts = per.Hosts(&.{ ZigHost, abi.Host });
        pub const HostWorker = per.Worker(Io, Hosts);

        handler: *Handler,
        inbox: *per.Inbox,
        zig: ZigHost,
        c: abi.Host,
        hosts: Hosts,
        worker: HostWorker,
        program: Program,
        port: u16,

        /// `/c` and below it is the C program's, and so is everything of c.example.
        const routes = [_]per.Route{ .{ .path = "/c", .to = 1 }, .{ .host = "c.example", .to = 1 } };

        fn init(self: *Self, config: per.Config, io_options: HostWorker.IoOptions) !void {
            self.handler = try .init(gpa);
            self.inbox = try .create(gpa, .{ .context = &self.worker, .wake = wake }, 1 << 20);
            self.zig = .init(gpa, self.handler, &self.worker, self.inbox, .{
                .ping_ms = 0,
                .queued_bytes_max = 10 << 20,
            });
            self.c = try .init(gpa);
            self.hosts = .init(.{ &self.zig, &self.c }, &routes);
            self.worker = try .init(gpa, config, &self.hosts, io_options);
            self.program = .{};
            const listener = try self.worker.listen(try per.io.Address.parse("127.0.0.1", 0), .{});
            self.port = self.worker.listenerAddress(listener).port().?;
        }

        fn deinit(self: *Self) void {
            self.inbox.close();
            self.zig.deinit();
            self.c.deinit(&self.worker.pool);
            self.worker.deinit();
            self.inbox.release();
            self.handler.deinit();
            self.program.jobs.deinit(gpa);
            for (self.program.bodies.items) |*body| body.deinit(gpa);
            self.program.bodies.deinit(gpa);
        }

        fn wake(context: *anyopaque) void {
            const worker: *HostWorker = @ptrCast(@alignCast(context));
            worker.io.wake();
        }

        /// Runs a round of both hosts, as their owner does.
        fn round(self: *Self, timeout_ms: i32) !void {
            self.c.release(&self.worker.pool);
            try self.worker.poll(timeout_ms);
            self.worker.invariants();
            var mail = self.inbox.take();
            while (mail.pop()) |message| self.zig.receive(message);
            self.zig.sockets.tellEnded();
            for (self.c.take()) |*event| try self.program.take(&self.worker, event);
            self.worker.invariants();
        }

        /// Rounds until nothing can happen any more, on a simulated network.
        fn settle(self: *Self) !void {
            for (0..60) |_| try self.round(0);
        }

        fn connect(self: *Self) !Peer {
            return .{ .bench = self, .end = try self.worker.io.connect(0) };
        }

        /// A client on the simulated network.
        const Peer = struct {
            bench: *Self,
            end: per.io.SimPeer,
            got: std.ArrayList(u8) = .empty,

            fn deinit(peer: *Peer) void {
                peer.got.deinit(gpa);
            }

            /// Sends as much as the server takes, and reads what has come of it; what is left is answered.
            fn offer(peer: *Peer, bytes: []const u8) ![]const u8 {
                var rest = bytes;
                for (0..bytes.len / 1000 + 60) |_| {
                    rest = rest[try peer.end.write(rest)..];
                    try peer.bench.round(0);
                    try peer.got.appendSlice(gpa, peer.end.read());
                }
                return rest;
            }

            fn send(peer: *Peer, bytes: []const u8) !void {
                try testing.expectEqual(0, (try peer.offer(bytes)).len);
            }

            fn read(peer: *Peer) ![]const u8 {
                _ = try peer.offer("");
                return peer.got.items;
            }
        };
    };
}

/// The C program: takes events, answers by ticket.
const Program = struct {
    jobs: std.ArrayList(Job) = .empty,
    bodies: std.ArrayList(std.ArrayList(u8)) = .empty,
    /// The program asks for the rest of a body.
    reads: bool = true,
    requests: usize = 0,
    body_events: usize = 0,
    aborts: usize = 0,
    reason: u32 = 0,
    stopped: bool = false,
    /// Requests for /c/later that wait.
    later: ?per.Ticket = null,

    /// An upload.
    const Job = struct { ticket: u64, body: usize };

    fn take(program: *Program, worker: anytype, event: *const abi.types.Event) !void {
        const Flag = abi.types.EventFlag;
        const ticket: per.Ticket = @fromBackingInt(event.ticket);
        const last = event.flags & Flag.last != 0;
        switch (event.kind) {
            .request => {
                program.requests += 1;
                const path = event.request.?.text[event.request.?.path.at..][0..event.request.?.path.len];
                if (event.flags & Flag.handshake != 0) {
                    _ = try worker.apply(ticket, .{ .accept = .{} });
                } else if (std.mem.eql(u8, path, "/c/later")) {
                    program.later = ticket;
                } else if (std.mem.eql(u8, path, "/c/echo")) {
                    try program.jobs.append(gpa, .{
                        .ticket = event.ticket,
                        .body = program.bodies.items.len,
                    });
                    try program.bodies.append(gpa, .empty);
                    try program.addBody(worker, event, last);
                } else try answer(worker, ticket, "from C");
            },
            .body => {
                program.body_events += 1;
                try program.addBody(worker, event, last);
            },
            .message => {
                const bytes = event.bytes[0..event.len];
                _ = try worker.apply(ticket, .{ .message = .{ .kind = .binary, .bytes = bytes } });
            },
            .aborted, .closed => {
                program.aborts += 1;
                program.reason = event.code;
            },
            .stopped => program.stopped = true,
            .finished, .drained, .flushed, .half_closed, .notice, .lines => {},
        }
    }

    fn addBody(program: *Program, worker: anytype, event: *const abi.types.Event, last: bool) !void {
        const ticket: per.Ticket = @fromBackingInt(event.ticket);
        const job = for (program.jobs.items) |*job| {
            if (job.ticket == event.ticket) break job;
        } else unreachable; // an upload of the other host
        const body = &program.bodies.items[job.body];
        try body.appendSlice(gpa, event.bytes[0..event.len]);
        if (last) return answer(worker, ticket, body.items);
        if (program.reads) _ = try worker.apply(ticket, .read);
    }

    fn answer(worker: anytype, ticket: per.Ticket, body: []const u8) !void {
        var text: [24]u8 = undefined;
        const length = try std.fmt.bufPrint(&text, "{d}", .{body.len});
        _ = try worker.apply(ticket, .{ .start = .{
            .status = 200,
            .fields = &.{.init("Content-Length", length)},
            .body = body,
            .end = true,
        } });
    }
};

const SimBench = Bench(per.io.Sim);

/// The bodies of the answers in `text`, which has nothing else, as one string with a "|" behind each.
fn bodiesOf(text: []const u8) ![]const u8 {
    var all: std.ArrayList(u8) = .empty;
    errdefer all.deinit(gpa);
    var rest = text;
    while (rest.len > 0) {
        const head_end = (std.mem.find(u8, rest, "\r\n\r\n") orelse return error.HeadIncomplete) + 4;
        try testing.expectStringStartsWith(rest, "HTTP/1.1 200 ");
        const name = "Content-Length: ";
        const at = std.mem.find(u8, rest[0..head_end], name).? + name.len;
        const len = try std.fmt.parseInt(usize, rest[at..std.mem.findPos(u8, rest, at, "\r\n").?], 10);
        if (rest.len < head_end + len) return error.BodyIncomplete;
        try all.appendSlice(gpa, rest[head_end..][0..len]);
        try all.append(gpa, '|');
        rest = rest[head_end + len ..];
    }
    return all.toOwnedSlice(gpa);
}

fn expectBodies(expected: []const u8, text: []const u8) !void {
    const bodies = try bodiesOf(text);
    defer gpa.free(bodies);
    try testing.expectEqualStrings(expected, bodies);
}

inline fn get(comptime path: []const u8) []const u8 {
    return "GET " ++ path ++ " HTTP/1.1\r\nHost: h\r\n\r\n";
}

inline fn post(comptime path: []const u8, comptime length: []const u8) []const u8 {
    return "POST " ++ path ++ " HTTP/1.1\r\nHost: h\r\nContent-Length: " ++ length ++ "\r\n\r\n";
}

const handshake = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n" ++
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

test "one connection alternates between the hosts, one request after the other and pipelined" {
    for (0..20) |seed| {
        var bench: SimBench = undefined;
        const network: per.io.Sim.Options = .{
            .seed = seed,
            .short_read_permille = 400,
            .late_permille = 300,
        };
        try bench.init(.{ .pipeline_pass_max = 3 }, network);
        defer bench.deinit();
        var peer = try bench.connect();
        defer peer.deinit();
        const by_name = "GET /anything HTTP/1.1\r\nHost: C.example:80\r\n\r\n";
        const requests = [_][]const u8{ get("/"), get("/c/"), get("/cc"), get("/%63/x"), by_name, get("/") };
        for (requests) |request| try peer.send(request);
        try expectBodies("from Zig|from C|from Zig|from C|from C|from Zig|", try peer.read());
        peer.got.clearRetainingCapacity();
        const pipeline = get("/") ++ get("/c") ++ get("/c") ++ get("/") ++
            post("/", "3") ++ "zig" ++ post("/c/echo", "1") ++ "c" ++ get("/");
        try peer.send(pipeline ++ pipeline ++ pipeline);
        for (0..20) |_| _ = try peer.read();
        const once = "from Zig|from C|from C|from Zig|zig|c|from Zig|";
        try expectBodies(once ++ once ++ once, try peer.read());
        try testing.expectEqual(3 + 9, bench.program.requests);
    }
}

test "uploads to both at a time: one is read as it comes, the other when its host asks" {
    const size = 300_000;
    const body = try gpa.alloc(u8, size);
    defer gpa.free(body);
    var prng: std.Random.DefaultPrng = .init(1);
    prng.random().bytes(body);
    var bench: SimBench = undefined;
    try bench.init(.{}, .{ .seed = 1 });
    defer bench.deinit();
    bench.program.reads = false;
    var to_c = try bench.connect();
    defer to_c.deinit();
    var to_zig = try bench.connect();
    defer to_zig.deinit();
    try to_c.send(post("/c/echo", "300000"));
    const rest = try to_c.offer(body);
    // The program has asked for the first pieces only: the peer has to wait.
    try testing.expect(rest.len > size / 2);
    const events = bench.program.body_events;
    try to_zig.send(post("/", "300000"));
    try to_zig.send(body);
    try expectEnd(try to_zig.read(), body);
    try testing.expectEqual(rest.len, (try to_c.offer(rest)).len);
    try testing.expectEqual(events, bench.program.body_events);
    bench.program.reads = true;
    _ = try bench.worker.apply(@fromBackingInt(bench.program.jobs.items[0].ticket), .read);
    try to_c.send(rest);
    try expectEnd(try to_c.read(), body);
}

fn expectEnd(text: []const u8, end: []const u8) !void {
    try testing.expect(std.mem.endsWith(u8, text, end));
}

test "who waits for one host waits for nobody else" {
    var bench: SimBench = undefined;
    try bench.init(.{}, .{ .seed = 3 });
    defer bench.deinit();
    var slow = try bench.connect();
    defer slow.deinit();
    var fast = try bench.connect();
    defer fast.deinit();
    // Requests behind a slow answer on the same connection wait for it.
    try slow.send(get("/c/later") ++ get("/") ++ get("/later") ++ get("/c"));
    try fast.send(get("/") ++ get("/c") ++ get("/"));
    try expectBodies("from Zig|from C|from Zig|", try fast.read());
    try expectBodies("", try slow.read());
    try Program.answer(&bench.worker, bench.program.later.?, "at last");
    try expectBodies("at last|from Zig|", try slow.read());
    try fast.send(get("/c"));
    try expectBodies("from Zig|from C|from Zig|from C|", try fast.read());
    try bench.handler.later.?.answer(.{ .body = "Zig, too" });
    try expectBodies("at last|from Zig|Zig, too|from C|", try slow.read());
}

test "a WebSocket at either host" {
    for ([_][]const u8{ "/", "/c" }) |path| {
        var bench: SimBench = undefined;
        try bench.init(.{}, .{ .seed = 4 });
        defer bench.deinit();
        var peer = try bench.connect();
        defer peer.deinit();
        const request = try std.fmt.allocPrint(gpa, "GET {s} HTTP/1.1\r\nHost: h\r\n" ++ handshake, .{path});
        defer gpa.free(request);
        try peer.send(request);
        const client = try socket_client.Client.create(gpa);
        defer client.destroy();
        var taken: usize = 0;
        for (0..3) |n| {
            try client.send(.binary, "hello", .{});
            if (n == 2) try client.close(1000);
            try peer.send(client.out.items);
            client.out.clearRetainingCapacity();
            const got = try peer.read();
            try client.take(got[taken..]);
            taken = got.len;
        }
        try testing.expectEqual(3, client.messages.items.len);
        for (client.messages.items) |message| try testing.expectEqualStrings("hello", message.bytes);
        try testing.expectEqual(1000, client.closed);
        try testing.expectEqual(@intFromBool(path.len > 1), bench.program.aborts);
        try testing.expectEqual(@intFromBool(path.len == 1), bench.handler.disconnects);
    }
}

test "a part of something that is still to come keeps no worker busy" {
    const parts = [_][]const u8{
        // The trailer section of a chunked body, a chunk's size, its end.
        "5\r\nhello\r\n0\r\nX-Sum: 9\r\n\r",
        "5\r\nhello\r\n1",
        "5\r\nhello\r",
    };
    for ([_][]const u8{ "/", "/c/echo" }) |path| for (parts) |part| {
        var bench: SimBench = undefined;
        try bench.init(.{}, .{ .seed = 8 });
        defer bench.deinit();
        var peer = try bench.connect();
        defer peer.deinit();
        const format = "POST {s} HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n{s}";
        const request = try std.fmt.allocPrint(gpa, format, .{ path, part });
        defer gpa.free(request);
        try peer.send(request);
        try bench.settle();
        try testing.expect(!bench.worker.isUrgent());
        // The rest of it may come, or the end.
        peer.end.shutdown();
        try bench.settle();
        try testing.expect(peer.end.ended() != null);
    };
    const frames = [_][]const u8{ "\x82", "\x82\xfe\x01", "\x82\x85\x01\x02" };
    for ([_][]const u8{ "/", "/c" }) |path| for (frames) |part| {
        var bench: SimBench = undefined;
        try bench.init(.{}, .{ .seed = 9 });
        defer bench.deinit();
        var peer = try bench.connect();
        defer peer.deinit();
        const request = try std.fmt.allocPrint(gpa, "GET {s} HTTP/1.1\r\nHost: h\r\n" ++ handshake, .{path});
        defer gpa.free(request);
        try peer.send(request);
        try bench.settle();
        try peer.send(part);
        try bench.settle();
        try testing.expect(!bench.worker.isUrgent());
        peer.end.shutdown();
        try bench.settle();
        try testing.expect(peer.end.ended() != null);
    };
}

test "a client that goes is told to the host that it waited for" {
    var bench: SimBench = undefined;
    try bench.init(.{}, .{ .seed = 5 });
    defer bench.deinit();
    var to_c = try bench.connect();
    defer to_c.deinit();
    try to_c.send(get("/c/later"));
    var to_zig = try bench.connect();
    defer to_zig.deinit();
    try to_zig.send(get("/later"));
    to_c.end.reset();
    try bench.settle();
    try testing.expectEqual(1, bench.program.aborts);
    try testing.expectEqual(0, bench.handler.aborts);
    to_zig.end.reset();
    try bench.settle();
    try testing.expectEqual(1, bench.program.aborts);
    try testing.expectEqual(1, bench.handler.aborts);
    bench.handler.later.?.drop();
    try bench.settle();
    try testing.expectEqual(0, bench.worker.exchanges.count);
}

test "limits hold for both: sizes, and deadlines of what each waits for" {
    var bench: SimBench = undefined;
    try bench.init(.{ .body_bytes_max = 10, .body_ms = 1000 }, .{ .seed = 6 });
    defer bench.deinit();
    for ([_][]const u8{ "/", "/c/echo" }) |path| {
        var peer = try bench.connect();
        defer peer.deinit();
        const format = "POST {s} HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\n\r\n";
        const request = try std.fmt.allocPrint(gpa, format, .{path});
        defer gpa.free(request);
        try peer.send(request);
        try testing.expectStringStartsWith(try peer.read(), "HTTP/1.1 413 ");
    }
    try testing.expectEqual(0, bench.program.requests);
    bench.program.reads = false;
    var unread = try bench.connect();
    defer unread.deinit();
    try unread.send(post("/c/echo", "9") ++ "half");
    bench.program.reads = true;
    var stalled: [2]SimBench.Peer = .{ try bench.connect(), try bench.connect() };
    defer for (&stalled) |*peer| peer.deinit();
    try stalled[0].send(post("/", "9") ++ "half");
    try stalled[1].send(post("/c/echo", "9") ++ "half");
    bench.worker.io.advance(1100);
    for (&stalled) |*peer| try testing.expectStringStartsWith(try peer.read(), "HTTP/1.1 408 ");
    // The C program has not asked for the rest of this one, so its peer is not late.
    try testing.expectEqual(0, (try unread.read()).len);
    try testing.expectEqual(1, bench.program.aborts);
    try testing.expectEqual(@backingInt(per.Reason.client_timeout), bench.program.reason);
    // The handler has not heard of its own.
    try testing.expectEqual(0, bench.handler.aborts);
}

test "a worker that stops lets both hosts finish, and tells both" {
    var bench: SimBench = undefined;
    try bench.init(.{}, .{ .seed = 7 });
    defer bench.deinit();
    var to_c = try bench.connect();
    defer to_c.deinit();
    try to_c.send(get("/c/later"));
    var to_zig = try bench.connect();
    defer to_zig.deinit();
    try to_zig.send(get("/later"));
    var idle = try bench.connect();
    defer idle.deinit();
    try idle.send(get("/") ++ get("/c"));
    bench.worker.drain();
    try bench.settle();
    try testing.expect(idle.end.ended() != null);
    try testing.expect(!bench.program.stopped and !bench.zig.ended);
    try Program.answer(&bench.worker, bench.program.later.?, "last of C");
    try bench.settle();
    try testing.expect(!bench.program.stopped and !bench.zig.ended);
    try bench.handler.later.?.answer(.{ .body = "last of Zig" });
    try expectBodies("last of C|", try to_c.read());
    try expectBodies("last of Zig|", try to_zig.read());
    to_c.end.close();
    to_zig.end.close();
    idle.end.close();
    try bench.settle();
    try testing.expect(bench.program.stopped and bench.zig.ended);
}

// ---- Hosts that are behind

/// Takes WebSocket messages, unless it is behind.
const Listener = struct {
    pub const demand: per.Demand = .pull;

    /// With so many it is behind.
    messages_max: usize = 1000,
    opened: usize = 0,
    messages: usize = 0,
    bytes: usize = 0,

    pub fn request(host: *Listener, worker: anytype, exchange: *per.Exchange, _: *const per.Head) void {
        host.opened += 1;
        worker.acceptWebSocket(exchange, null, &.{}) catch unreachable;
    }
    pub fn body(_: *Listener, _: anytype, _: *per.Exchange, _: []const u8) void {}
    pub fn trailers(_: *Listener, _: anytype, _: *per.Exchange, _: *const per.Head) void {}
    pub fn bodyEnd(_: *Listener, _: anytype, _: *per.Exchange) void {}
    pub fn drained(_: *Listener, _: anytype, _: *per.Exchange) void {}
    pub fn finished(_: *Listener, _: anytype, _: *per.Exchange) void {}
    pub fn aborted(_: *Listener, _: anytype, _: *per.Exchange, _: per.Reason) void {}
    pub fn message(
        host: *Listener,
        _: anytype,
        _: *per.Exchange,
        _: per.WebSocketKind,
        bytes: []const u8,
    ) void {
        host.messages += 1;
        host.bytes += bytes.len;
    }
    pub fn closed(_: *Listener, _: anytype, _: *per.Exchange, _: per.WebSocketClose, _: ?per.Reason) void {}
    pub fn halfClosed(_: *Listener, _: anytype, _: *per.Exchange) void {}
    pub fn stopped(_: *Listener, _: anytype) void {}
    pub fn notice(_: *Listener, _: anytype, _: ?*per.Exchange, _: per.Level, _: []const u8) void {}
    pub fn waiting(_: *const Listener) bool {
        return false;
    }
    pub fn isBehind(host: *const Listener, _: *const per.Exchange) bool {
        return host.messages >= host.messages_max;
    }
};

test "a host that is behind holds back its own WebSockets only, those that wait to be inflated included" {
    const Pair = per.Hosts(&.{ Listener, Listener });
    for ([_]bool{ false, true }) |compressed| {
        var hosts: [2]Listener = .{ .{ .messages_max = 1 }, .{} };
        var both: Pair = .init(
            .{ &hosts[0], &hosts[1] },
            &.{.{ .upgrade = .websocket, .host = "b", .to = 1 }},
        );
        const config: per.Config = .{ .frame_bytes_max = 1 << 20 };
        var worker: per.Worker(per.io.Sim, Pair) = try .init(gpa, config, &both, .{ .seed = 1 });
        defer worker.deinit();
        const listener = try worker.listen(try per.io.Address.parse("127.0.0.1", 80), .{});
        const clients: [3]*socket_client.Client = .{ try .create(gpa), try .create(gpa), try .create(gpa) };
        defer for (clients) |client| client.destroy();
        var ends: [clients.len]per.io.SimPeer = undefined;
        for (&ends, [_][]const u8{ "a", "a", "b" }, clients) |*end, name, client| {
            end.* = try worker.io.connect(listener);
            var space: [300]u8 = undefined;
            const request = try std.fmt.bufPrint(&space, "GET / HTTP/1.1\r\nHost: {s}\r\n" ++
                "Sec-WebSocket-Extensions: permessage-deflate\r\n" ++ handshake, .{name});
            try testing.expectEqual(request.len, try end.write(request));
            for (0..20) |_| try worker.poll(0);
            try client.take(end.read());
        }
        try testing.expectEqual(2, hosts[0].opened);
        try testing.expectEqual(1, hosts[1].opened);
        // All three have come before the first is inflated, after which its host is behind.
        const size: usize = if (compressed) 8 << 20 else 300_000;
        const zeros = try gpa.alloc(u8, size);
        defer gpa.free(zeros);
        @memset(zeros, 0);
        var rest: [clients.len][]const u8 = undefined;
        for (clients, &rest) |client, *bytes| {
            try client.send(.binary, zeros, .{ .compressed = compressed });
            bytes.* = client.out.items;
        }
        for (0..100) |_| {
            for (ends, &rest) |end, *bytes| {
                bytes.* = bytes.*[try end.write(bytes.*)..];
                try worker.poll(0);
            }
        }
        try testing.expectEqual(1, hosts[0].messages);
        try testing.expectEqual(size, hosts[1].bytes);
        try testing.expect(!worker.isUrgent());
        // Messages that wait for a host that is behind are not inflated.
        if (compressed) try testing.expect(worker.pool.taken_bytes < size / 8);
        hosts[0].messages_max = 2;
        worker.unpark();
        for (0..100) |_| try worker.poll(0);
        try testing.expectEqual(2 * size, hosts[0].bytes);
        worker.invariants();
    }
}

// ---- Over the loopback

const Native = Bench(per.io.Native);

/// Runs the worker until both hosts have heard of its end, which has to be soon after `stop`.
fn serve(bench: *Native, stop: *std.atomic.Value(bool), failed: *std.atomic.Value(bool)) void {
    var stopped_at: ?u64 = null;
    while (!bench.program.stopped or !bench.zig.ended) {
        bench.round(50) catch return failed.store(true, .seq_cst);
        if (!stop.load(.seq_cst)) continue;
        bench.worker.drain();
        const now = bench.worker.io.now();
        if (stopped_at == null) stopped_at = now;
        if (now - stopped_at.? > patience_ms) return failed.store(true, .seq_cst);
    }
}

/// Far longer than a worker takes to stop.
const patience_ms = 60_000;

fn many(comptime count: usize, comptime text: []const u8) []const u8 {
    return if (count == 0) "" else many(count - 1, text) ++ text;
}

/// Reads from `fd` until so many bytes of bodies have come, each in an answer of its own.
fn expectAnswers(fd: i32, expected: []const u8, count: usize) !void {
    var text: std.ArrayList(u8) = .empty;
    defer text.deinit(gpa);
    while (true) {
        if (bodiesOf(text.items)) |bodies| {
            defer gpa.free(bodies);
            if (std.mem.count(u8, bodies, "|") == count) return testing.expectEqualStrings(expected, bodies);
        } else |_| {}
        var space: [65536]u8 = undefined;
        const got = try loopback.receive(fd, &space);
        if (got.len == 0) return error.EndedEarly;
        try text.appendSlice(gpa, got);
    }
}

test "both hosts over real sockets: alternating, pipelined, with uploads, to the end" {
    var bench: Native = undefined;
    try bench.init(.{}, .{});
    defer bench.deinit();
    var stop: std.atomic.Value(bool) = .init(false);
    var failed: std.atomic.Value(bool) = .init(false);
    const thread: std.Thread = try .spawn(.{}, serve, .{ &bench, &stop, &failed });
    {
        defer thread.join();
        defer stop.store(true, .seq_cst);
        const fd = try loopback.connect(bench.port);
        defer _ = std.os.linux.close(fd);
        for (0..50) |_| {
            try loopback.send(fd, get("/"));
            try expectAnswers(fd, "from Zig|", 1);
            try loopback.send(fd, get("/c"));
            try expectAnswers(fd, "from C|", 1);
        }
        const pairs = 50;
        try loopback.send(fd, comptime many(pairs, get("/c") ++ get("/")));
        try expectAnswers(fd, comptime many(pairs, "from C|from Zig|"), 2 * pairs);
        const body: [200_000]u8 = @splat('b');
        try loopback.send(fd, post("/c/echo", "200000"));
        try loopback.send(fd, &body);
        try expectAnswers(fd, body ++ "|", 1);
        try loopback.send(fd, post("/", "200000"));
        try loopback.send(fd, &body);
        try expectAnswers(fd, body ++ "|", 1);
    }
    try testing.expect(!failed.load(.seq_cst));
    try testing.expectEqual(50 + 50 + 1, bench.program.requests);
}
