//! The promises of peregrine_use_interpreters (peregrine.h) about several interpreters behind an engine, with
//! processes that are forked and killed, and with threads, on real sockets.
const std = @import("std");
const abi = @import("abi");
const listen = @import("abi_listener.zig").listen;
const loopback = @import("loopback.zig");
const c = std.c;
const linux = std.os.linux;
const types = abi.types;
const Code = types.Code;
const Event = types.Event;
const assert = std.debug.assert;
const testing = std.testing;

const Engine = struct {
    handle: *abi.Handle,
    port: u16,
    /// The interpreters' end.
    join_socket: c.fd_t,
    /// The end of the interpreters of a group that gets the requests for /shop; -1: there is none.
    shop_socket: c.fd_t = -1,
    /// The hub's end; -1: there is none.
    hub_socket: c.fd_t = -1,

    const How = struct {
        exchanges: u32 = 1,
        handed: u32 = 0,
        whole: bool = true,
        shop: bool = false,
        /// Limits of the shop's interpreters alone.
        own: types.Interpreters = .{ .size = @sizeOf(types.Interpreters) },
        /// The engine delivers topics, of a hub that never answers.
        topics: bool = false,
        limits: []const struct { [*:0]const u8, i64 } = &.{},
    };

    fn start(how: How) !Engine {
        const config = abi.peregrine_config_new().?;
        defer abi.peregrine_config_free(config);
        for (how.limits) |limit| {
            try testing.expectEqual(Code.ok, abi.peregrine_config_set(config, limit[0], limit[1]));
        }
        const handle = abi.peregrine_worker_new(config).?;
        errdefer abi.peregrine_worker_free(handle);
        var sockets: [2]c.fd_t = undefined;
        try testing.expectEqual(0, c.socketpair(c.AF.UNIX, c.SOCK.SEQPACKET, 0, &sockets));
        const wanted: types.Interpreters = .{
            .size = @sizeOf(types.Interpreters),
            .join_socket = sockets[0],
            .exchanges = how.exchanges,
            .handed = how.handed,
        };
        const shop: types.Route = .{ .size = @sizeOf(types.Route), .path = "/shop", .group = 1 };
        if (how.shop) try testing.expectEqual(1, abi.serving.peregrine_add_route(handle, @ptrCast(&shop)));
        const route: types.Route = .{ .size = @sizeOf(types.Route), .flags = types.RouteFlag.whole_body };
        const number: c_int = if (how.shop) 2 else 1;
        if (how.whole) {
            try testing.expectEqual(number, abi.serving.peregrine_add_route(handle, @ptrCast(&route)));
        }
        const used = abi.interpreters.peregrine_use_interpreters(handle, @ptrCast(&wanted));
        try testing.expectEqual(Code.ok, used);
        _ = c.close(sockets[0]);
        var shop_sockets: [2]c.fd_t = .{ -1, -1 };
        if (how.shop) {
            try testing.expectEqual(0, c.socketpair(c.AF.UNIX, c.SOCK.SEQPACKET, 0, &shop_sockets));
            var group = how.own;
            group.join_socket = shop_sockets[0];
            group.exchanges = how.exchanges;
            try testing.expectEqual(1, abi.interpreters.peregrine_add_group(handle, @ptrCast(&group)));
            _ = c.close(shop_sockets[0]);
        }
        var hub_sockets: [2]c.fd_t = .{ -1, -1 };
        if (how.topics) {
            try testing.expectEqual(0, c.socketpair(c.AF.UNIX, c.SOCK.SEQPACKET, 0, &hub_sockets));
            const history: types.History = .{ .size = @sizeOf(types.History) };
            const delivers = abi.interpreters.peregrine_deliver_topics;
            try testing.expectEqual(Code.ok, delivers(handle, hub_sockets[0], @ptrCast(&history)));
            try testing.expectEqual(Code.out_of_order, delivers(handle, hub_sockets[0], @ptrCast(&history)));
            _ = c.close(hub_sockets[0]);
        }
        const port = try listen(handle);
        var events: [*]const Event = undefined;
        try testing.expectEqual(0, abi.peregrine_poll(handle, 0, &events));
        return .{
            .handle = handle,
            .port = port,
            .join_socket = sockets[1],
            .shop_socket = shop_sockets[1],
            .hub_socket = hub_sockets[1],
        };
    }

    fn stop(engine: *const Engine) void {
        abi.peregrine_worker_free(engine.handle);
        _ = c.close(engine.join_socket);
        if (engine.shop_socket >= 0) _ = c.close(engine.shop_socket);
        if (engine.hub_socket >= 0) _ = c.close(engine.hub_socket);
    }

    fn stats(engine: *const Engine) types.Stats {
        var found: types.Stats = .{ .size = @sizeOf(types.Stats), .ledger = 0 };
        abi.peregrine_worker_stats(engine.handle, @ptrCast(&found));
        return found;
    }

    /// Waits until this many interpreters have joined and not gone.
    fn expectInterpreters(engine: *const Engine, count: u32) !void {
        for (0..3000) |_| {
            if (engine.stats().interpreters == count) return;
            sleep(10);
        }
        return error.NotSoManyInterpreters;
    }

    /// Waits until a number of the engine's is what is wanted; `memory_bytes` may be more.
    fn expectStat(engine: *const Engine, comptime name: []const u8, wanted: u64) !void {
        for (0..3000) |_| {
            const found: u64 = @field(engine.stats(), name);
            if (found == wanted or found > wanted and std.mem.eql(u8, name, "memory_bytes")) return;
            sleep(10);
        }
        return error.NumberDiffers;
    }

    /// Prints the engine's notices, which say why a test has failed.
    fn printNotices(engine: *const Engine) void {
        var events: [*]const Event = undefined;
        const count = abi.peregrine_poll(engine.handle, 0, &events);
        if (count <= 0) return;
        for (events[0..@intCast(count)]) |event| {
            if (event.kind == .notice) std.debug.print("notice: {s}\n", .{event.bytes[0..event.len]});
        }
    }

    fn expectWaiting(engine: *const Engine, count: u32) !void {
        for (0..3000) |_| {
            if (engine.stats().waiting == count) return;
            sleep(10);
        }
        return error.NotSoManyWait;
    }

    fn connect(engine: *const Engine) !Client {
        return .{ .fd = try loopback.connect(engine.port) };
    }
};

fn sleep(ms: u32) void {
    var watched: [1]c.pollfd = .{.{ .fd = -1, .events = 0, .revents = 0 }};
    _ = c.poll(&watched, 1, @intCast(ms));
}

const Client = struct {
    fd: c.fd_t,
    bytes: [32 * 1024]u8 = undefined,
    len: usize = 0,

    fn close(client: *const Client) void {
        _ = c.close(client.fd);
    }

    /// Closes the connection so that the engine cannot take it for one that waits for its answer.
    fn reset(client: *const Client) void {
        const linger: extern struct { on: c_int, seconds: c_int } = .{ .on = 1, .seconds = 0 };
        _ = c.setsockopt(client.fd, c.SOL.SOCKET, c.SO.LINGER, &linger, @sizeOf(@TypeOf(linger)));
        client.close();
    }

    fn say(client: *const Client, text: []const u8) !void {
        var rest = text;
        while (rest.len > 0) {
            const sent = c.send(client.fd, rest.ptr, rest.len, c.MSG.NOSIGNAL);
            if (sent <= 0) return error.Closed;
            rest = rest[@intCast(sent)..];
        }
    }

    fn get(client: *Client, comptime path: []const u8) !void {
        try client.say("GET " ++ path ++ " HTTP/1.1\r\nHost: h\r\n\r\n");
    }

    /// The next response with a Content-Length, whole; valid until the next one. What there is, if the
    /// connection ends.
    fn hear(client: *Client) ![]const u8 {
        client.len = 0;
        while (true) {
            const text = client.bytes[0..client.len];
            if (std.mem.find(u8, text, "\r\n\r\n")) |end| {
                const mark = "Content-Length: ";
                const at = std.ascii.findIgnoreCase(text[0..end], mark) orelse return text;
                const digits = std.mem.sliceTo(text[at + mark.len ..], '\r');
                if (text.len >= end + 4 + try std.fmt.parseInt(usize, digits, 10)) return text;
            }
            const len = c.read(client.fd, client.bytes[client.len..].ptr, client.bytes.len - client.len);
            if (len < 0) return error.NothingCame;
            if (len == 0) return text;
            client.len += @intCast(len);
        }
    }

    fn expect(client: *Client, status: []const u8, end: []const u8) !void {
        const text = try client.hear();
        errdefer std.debug.print("heard: {s}\n", .{text});
        try testing.expect(std.mem.startsWith(u8, text, "HTTP/1.1 "));
        try testing.expectEqualStrings(status, text["HTTP/1.1 ".len..][0..3]);
        try testing.expect(std.mem.endsWith(u8, text, end));
    }

    /// A response with these bytes.
    fn expectLong(client: *Client, content: *const [700_000]u8) !void {
        client.len = 0;
        const end = while (true) {
            const len = c.read(client.fd, client.bytes[client.len..].ptr, client.bytes.len - client.len);
            if (len <= 0) return error.NothingCame;
            client.len += @intCast(len);
            if (std.mem.find(u8, client.bytes[0..client.len], "\r\n\r\n")) |end| break end + 4;
        };
        var piece: []const u8 = client.bytes[end..client.len];
        var seen: usize = 0;
        while (true) {
            try testing.expectEqualStrings(content[seen..][0..piece.len], piece);
            seen += piece.len;
            if (seen == content.len) return;
            // The next response may be there already.
            const most = @min(client.bytes.len, content.len - seen);
            const len = c.read(client.fd, &client.bytes, most);
            if (len <= 0) return error.NothingCame;
            piece = client.bytes[0..@intCast(len)];
        }
    }

    fn expectEnd(client: *Client) !void {
        var byte: [1]u8 = undefined;
        try testing.expect(c.read(client.fd, &byte, 1) <= 0);
    }

    /// The end of the connection, perhaps behind a part of a response.
    fn expectCut(client: *Client) !void {
        var bytes: [1024]u8 = undefined;
        const last = while (true) {
            const len = c.read(client.fd, &bytes, bytes.len);
            if (len <= 0) break len;
        };
        try testing.expect(last == 0 or c.errno(last) == .CONNRESET);
    }
};

/// While it is held, this process gets no further descriptor.
const Shortage = struct {
    before: std.posix.rlimit,

    fn begin() !Shortage {
        const before = try std.posix.getrlimit(.NOFILE);
        // Calls that wait for a descriptor may name no more than the limit.
        try std.posix.setrlimit(.NOFILE, .{ .cur = 3, .max = before.max });
        return .{ .before = before };
    }

    fn end(shortage: *const Shortage) void {
        std.posix.setrlimit(.NOFILE, shortage.before) catch unreachable;
    }
};

/// An answer that is too long for a ring.
const long: [700_000]u8 = @splat('a');

/// Another one.
const loud: [700_000]u8 = @splat('b');

/// An application that does what paths say, in whatever process or thread it runs.
const Application = struct {
    handle: *abi.Handle,
    kind: Kind = .first,
    /// The gate: `/wait` writes a byte to it, and reads a byte before it answers.
    gate: c.fd_t = -1,
    file: c.fd_t = -1,
    /// Of the request whose body is being read.
    read: usize = 0,
    sum: u64 = 0,
    stopped: bool = false,
    aborted: u32 = 0,

    /// How an interpreter gets its requests.
    const Kind = enum {
        first,
        handed,

        fn join(kind: Kind, join_socket: c.fd_t, timeout_ms: c_int) ?*abi.Handle {
            return switch (kind) {
                .first => abi.interpreters.peregrine_join(join_socket, timeout_ms),
                .handed => abi.interpreters.peregrine_join_for_handed(join_socket, timeout_ms),
            };
        }
    };

    fn run(join_socket: c.fd_t, gate: c.fd_t, file: c.fd_t) u8 {
        return runAs(.first, join_socket, gate, file);
    }

    fn runAs(kind: Kind, join_socket: c.fd_t, gate: c.fd_t, file: c.fd_t) u8 {
        const handle = kind.join(join_socket, 20_000) orelse return 1;
        var application: Application = .{ .handle = handle, .kind = kind, .gate = gate, .file = file };
        while (!application.stopped) {
            var events: [*]const Event = undefined;
            const count = abi.peregrine_poll(handle, 20_000, &events);
            if (count < 0) return 2;
            for (events[0..@intCast(count)]) |*event| application.take(event);
        }
        abi.peregrine_worker_free(handle);
        return 0;
    }

    fn take(application: *Application, event: *const Event) void {
        switch (event.kind) {
            .request => application.request(event),
            .body => application.body(event),
            .message => {
                const handle = application.handle;
                _ = abi.peregrine_send_message(handle, event.ticket, event.bytes, event.len, 0);
            },
            .topic => {
                var text: [32]u8 = undefined;
                const told = std.fmt.bufPrint(&text, "told {d}", .{event.code}) catch unreachable;
                _ = abi.peregrine_write(application.handle, event.ticket, told.ptr, told.len, 0);
            },
            .stopped => application.stopped = true,
            .aborted => application.aborted += 1,
            else => {},
        }
    }

    fn request(application: *Application, event: *const Event) void {
        const handle = application.handle;
        if (abi.peregrine_take(handle, event.ticket) != Code.ok) return;
        const head = event.request.?;
        var path = head.text[head.path.at..][0..head.path.len];
        if (std.mem.startsWith(u8, path, "/hand/")) {
            if (application.kind == .first) return application.handOver(event.ticket, path["/hand".len..]);
            path = path["/hand".len..];
        }
        if (std.mem.startsWith(u8, path, "/shop/")) path = path["/shop".len..];
        if (std.mem.eql(u8, path, "/wait")) {
            var byte: [1]u8 = .{'x'};
            _ = c.write(application.gate, &byte, 1);
            _ = c.read(application.gate, &byte, 1);
        } else if (std.mem.eql(u8, path, "/held")) {
            application.readLate(event);
        } else if (std.mem.eql(u8, path, "/die")) {
            die();
        } else if (std.mem.eql(u8, path, "/leaver")) {
            while (abi.peregrine_has_left(handle, event.ticket) == 0) sleep(1);
        } else if (std.mem.eql(u8, path, "/begin")) {
            _ = application.respond(event.ticket, "begun", 0);
            _ = abi.peregrine_flush(handle, event.ticket);
            return;
        } else if (application.sendsFile(event.ticket, path)) {
            return;
        } else if (std.mem.eql(u8, path, "/shortage")) {
            _ = Shortage.begin() catch die();
        } else if (std.mem.eql(u8, path, "/turns")) {
            abi.interpreters.peregrine_take_turns(handle, 1);
        } else if (std.mem.eql(u8, path, "/no-turns")) {
            abi.interpreters.peregrine_take_turns(handle, 0);
        } else if (std.mem.eql(u8, path, "/leave")) {
            abi.peregrine_drain(handle);
        } else if (std.mem.eql(u8, path, "/garbage")) {
            return application.writeGarbage();
        } else if (std.mem.eql(u8, path, "/stay")) {
            application.writeGarbage();
            while (true) sleep(60_000);
        } else if (std.mem.eql(u8, path, "/steal")) {
            application.forge(event.ticket);
            return;
        } else if (std.mem.eql(u8, path, "/wish")) {
            return application.say(event.ticket, .{ .topic = .{ .number = 1, .wish = "no wish" } });
        } else if (std.mem.eql(u8, path, "/hold")) {
            application.say(event.ticket, .{ .hold = "no wish" });
            return;
        } else if (std.mem.eql(u8, path, "/follow")) {
            return application.follow(event.ticket);
        } else if (std.mem.eql(u8, path, "/outside")) {
            application.sayOutside(event.ticket);
            return;
        } else if (std.mem.eql(u8, path, "/late")) {
            return application.answerLate(event.ticket);
        } else if (std.mem.eql(u8, path, "/long") or std.mem.eql(u8, path, "/loud")) {
            const text = if (path[3] == 'n') &long else &loud;
            _ = application.respond(event.ticket, text, types.RespondFlag.end);
            return;
        } else if (std.mem.eql(u8, path, "/socket")) {
            _ = abi.peregrine_accept_websocket(handle, event.ticket, null, 0, null, 0);
            return;
        } else if (std.mem.eql(u8, path, "/body")) {
            application.read = 0;
            application.sum = 0;
            return application.body(event);
        }
        var text: [32]u8 = undefined;
        const pid = std.fmt.bufPrint(&text, "pid {d}", .{c.getpid()}) catch unreachable;
        _ = application.respond(event.ticket, pid, types.RespondFlag.end);
    }

    /// Answers with a file, if the path says so.
    fn sendsFile(application: *Application, ticket: types.Ticket, path: []const u8) bool {
        const handle = application.handle;
        const is_far = std.mem.eql(u8, path, "/far");
        if (is_far or std.mem.eql(u8, path, "/file")) {
            const fields = [_]@import("peregrine").Field{.init("Content-Length", "9")};
            const response: types.Response = .{
                .size = @sizeOf(types.Response),
                .status = 200,
                .fields = &fields,
                .field_count = 1,
                .body = "far away.",
                .body_len = if (is_far) 9 else 0,
            };
            const offset: u64 = if (is_far) std.math.maxInt(u64) else 0;
            _ = abi.peregrine_respond(handle, ticket, @ptrCast(&response));
            _ = abi.peregrine_write_file(handle, ticket, application.file, offset, -1);
        } else if (std.mem.eql(u8, path, "/beyond/length")) {
            application.sendBeyond(ticket, 0, std.math.maxInt(u64));
        } else if (std.mem.eql(u8, path, "/beyond/offset")) {
            application.sendBeyond(ticket, std.math.maxInt(u64) - 5, 1);
        } else if (std.mem.eql(u8, path, "/gate")) {
            // A socket is sent in place of a file.
            _ = application.respond(ticket, "begun", 0);
            assert(handle.home.joined.sendFile(application.gate));
            application.say(ticket, .{ .file = .{ .fd = -1, .offset = 0, .length = 9 } });
        } else return false;
        return true;
    }

    /// A head that is longer than the engine keeps back, and content in the annex, for a client that is gone.
    fn answerLate(application: *Application, ticket: types.Ticket) void {
        const Field = @import("peregrine").Field;
        while (abi.peregrine_has_left(application.handle, ticket) == 0) sleep(1);
        application.say(ticket, .{ .inform = .{ .status = 103, .fields = &.{} } });
        const large: [20_000]u8 = @splat('h');
        const fields = [_]Field{ .init("Content-Length", "700000"), .init("X-Large", &large) };
        const response: types.Response = .{
            .size = @sizeOf(types.Response),
            .status = 200,
            .flags = types.RespondFlag.end,
            .fields = &fields,
            .field_count = fields.len,
            .body = &long,
            .body_len = long.len,
        };
        _ = abi.peregrine_respond(application.handle, ticket, @ptrCast(&response));
    }

    /// Looks at a body, which lies in the depot, when the gate has opened, and tells whether it is all 3.
    fn readLate(application: *Application, event: *const Event) void {
        const depot = application.handle.home.joined.depot.?.bytes;
        const whole = event.bytes[0..event.len];
        assert(@intFromPtr(whole.ptr) -% @intFromPtr(depot.ptr) < depot.len);
        var byte: [1]u8 = .{'x'};
        _ = c.write(application.gate, &byte, 1);
        _ = c.read(application.gate, &byte, 1);
        byte[0] = if (std.mem.findNone(u8, whole, "3") == null) 'x' else '!';
        _ = c.write(application.gate, &byte, 1);
    }

    fn handOver(application: *Application, ticket: types.Ticket, path: []const u8) void {
        const handle = application.handle;
        if (std.mem.eql(u8, path, "/late")) _ = abi.peregrine_read(handle, ticket);
        if (std.mem.eql(u8, path, "/twice")) {
            // The engine sees both at the same time, before another interpreter can answer.
            application.put(ticket, .hand_over);
            return application.say(ticket, .hand_over);
        }
        const code = abi.interpreters.peregrine_hand_over(handle, ticket);
        if (code != Code.ok) {
            var text: [32]u8 = undefined;
            const answer = std.fmt.bufPrint(&text, "refused {d}", .{code}) catch unreachable;
            _ = application.respond(ticket, answer, types.RespondFlag.end);
            return;
        }
        // Nothing is said any more about what is another's.
        const again = application.respond(ticket, "mine", types.RespondFlag.end);
        if (again != Code.gone) die();
    }

    /// Content that would lie where the annex ends.
    fn sayOutside(application: *Application, ticket: types.Ticket) void {
        const end = application.handle.end().?;
        const said: abi.spoken.Spoken = .{ .ticket = ticket, .command = .{ .body = .{ .bytes = &long } } };
        const space = (end.commands.reserve(abi.spoken.sizeApart(&said)) catch unreachable).?;
        abi.spoken.encodeApart(&said, abi.spoken.annex.bytes - long.len + 1, space);
        end.commands.commit(.whole);
        _ = end.commands.publish();
        application.handle.home.joined.wakeEngine();
    }

    /// A command that no ledger has seen.
    fn say(application: *Application, ticket: types.Ticket, command: @import("peregrine").Command) void {
        application.put(ticket, command);
        _ = application.handle.end().?.commands.publish();
        application.handle.home.joined.wakeEngine();
    }

    /// Writes a command that the engine sees with the next one.
    fn put(application: *Application, ticket: types.Ticket, command: @import("peregrine").Command) void {
        const commands = &application.handle.end().?.commands;
        const said: abi.spoken.Spoken = .{ .ticket = ticket, .command = command };
        const space = (commands.reserve(abi.spoken.size(&said)) catch unreachable).?;
        abi.spoken.encode(&said, space);
        commands.commit(.whole);
    }

    /// A range of a file that no file has.
    fn sendBeyond(application: *Application, ticket: types.Ticket, offset: u64, length: u64) void {
        _ = application.respond(ticket, "begun", 0);
        assert(application.handle.home.joined.sendFile(application.file));
        application.say(ticket, .{ .file = .{ .fd = -1, .offset = offset, .length = length } });
    }

    /// Writes over the ring of commands.
    fn writeGarbage(application: *Application) void {
        const interpreter = application.handle.home.joined;
        @memset(interpreter.shared.commands[0..8], 0xAA);
        interpreter.wakeEngine();
    }

    /// Commands that no ledger has seen, for exchanges of other interpreters.
    fn forge(application: *Application, own: types.Ticket) void {
        for (0..16) |slot| for (0..16) |turn| {
            const ticket = slot + ((2 * turn + 1) << 27);
            if (ticket == own) continue;
            application.say(ticket, .abort);
        };
    }

    fn body(application: *Application, event: *const Event) void {
        if (event.request) |head| if (head.body_fd >= 0) {
            var bytes: [4096]u8 = undefined;
            while (true) {
                const len = c.pread(head.body_fd, &bytes, bytes.len, @intCast(application.read));
                if (len <= 0) break;
                application.read += @intCast(len);
                for (bytes[0..@intCast(len)]) |byte| application.sum += byte;
            }
        };
        application.read += event.len;
        for (event.bytes[0..event.len]) |byte| application.sum += byte;
        if (event.flags & types.EventFlag.last == 0) {
            _ = abi.peregrine_read(application.handle, event.ticket);
            return;
        }
        var text: [96]u8 = undefined;
        const answer = std.fmt.bufPrint(&text, "{d} {d}", .{ application.read, application.sum });
        _ = application.respond(event.ticket, answer catch unreachable, types.RespondFlag.end);
    }

    /// Begins an event stream that reads a topic.
    fn follow(application: *Application, ticket: types.Ticket) void {
        var node: ?*abi.node.Node = null;
        if (abi.node.peregrine_node_new(&node) != Code.ok) return;
        defer abi.node.peregrine_node_free(node);
        const ask: types.NodeFollowAsk = .{
            .size = @sizeOf(types.NodeFollowAsk),
            .as = types.NodeAs.as_events,
            .mailbox = 1,
            .name = "news",
            .name_len = 4,
        };
        _ = application.respond(ticket, "begun ", 0);
        _ = abi.interpreters.peregrine_follow(application.handle, ticket, 1, node.?, @ptrCast(&ask));
    }

    fn respond(application: *Application, ticket: types.Ticket, text: []const u8, flags: u16) c_int {
        const response: types.Response = .{
            .size = @sizeOf(types.Response),
            .status = 200,
            .flags = flags,
            .body = text.ptr,
            .body_len = text.len,
        };
        return abi.peregrine_respond(application.handle, ticket, @ptrCast(&response));
    }

    fn die() noreturn {
        _ = c.kill(c.getpid(), .KILL);
        unreachable;
    }
};

/// A process that runs the application.
const Process = struct {
    pid: c.pid_t,
    /// Opens the process's gate.
    gate: c.fd_t,

    fn start(engine: *const Engine, file: c.fd_t) !Process {
        return startAs(engine, .first, file);
    }

    fn startAs(engine: *const Engine, kind: Application.Kind, file: c.fd_t) !Process {
        return startAt(engine.join_socket, kind, file);
    }

    fn startAt(join_socket: c.fd_t, kind: Application.Kind, file: c.fd_t) !Process {
        var gates: [2]c.fd_t = undefined;
        try testing.expectEqual(0, c.socketpair(c.AF.UNIX, c.SOCK.STREAM, 0, &gates));
        const pid = c.fork();
        try testing.expect(pid >= 0);
        if (pid == 0) {
            // A test that fails leaves nobody behind.
            _ = alarm(60);
            _ = c.close(gates[1]);
            c._exit(Application.runAs(kind, join_socket, gates[0], file));
        }
        _ = c.close(gates[0]);
        return .{ .pid = pid, .gate = gates[1] };
    }

    /// A process that sends messages that are no request to join, as fast as it can.
    fn startFlood(engine: *const Engine) !Process {
        const pid = c.fork();
        try testing.expect(pid >= 0);
        if (pid == 0) {
            _ = alarm(60);
            while (true) _ = c.send(engine.join_socket, "x", 1, c.MSG.NOSIGNAL);
        }
        return .{ .pid = pid, .gate = -1 };
    }

    extern "c" fn alarm(seconds: c_uint) c_uint;

    /// Waits until the process waits at its gate.
    fn expectAtGate(process: *const Process) !void {
        var byte: [1]u8 = undefined;
        try testing.expectEqual(1, c.read(process.gate, &byte, 1));
    }

    fn open(process: *const Process) !void {
        try testing.expectEqual(1, c.write(process.gate, "x", 1));
    }

    fn kill(process: *const Process) !void {
        try testing.expectEqual(0, c.kill(process.pid, .KILL));
        _ = try process.wait();
    }

    /// For a test that has failed: ends the process, if it has not been waited for.
    fn abandon(process: *const Process) void {
        var status: c_int = 0;
        if (c.waitpid(process.pid, &status, c.W.NOHANG) == 0) process.kill() catch {};
    }

    /// Whether the process becomes the engine's only interpreter. A process that cannot join ends.
    fn joins(process: *const Process, engine: *const Engine) !bool {
        for (0..30_000) |_| {
            if (engine.stats().interpreters == 1) return true;
            var status: c_int = 0;
            if (c.waitpid(process.pid, &status, c.W.NOHANG) == process.pid) {
                _ = c.close(process.gate);
                try testing.expectEqual(1 << 8, status);
                return false;
            }
            sleep(1);
        }
        return error.NeitherJoinsNorEnds;
    }

    /// The wait status of the process.
    fn wait(process: *const Process) !c_int {
        var status: c_int = 0;
        try testing.expectEqual(process.pid, c.waitpid(process.pid, &status, 0));
        _ = c.close(process.gate);
        return status;
    }
};

test "requests go to whoever is idle, and never stay behind one that is busy" {
    const engine: Engine = try .start(.{});
    defer engine.stop();
    const busy: Process = try .start(&engine, -1);
    errdefer busy.abandon();
    try engine.expectInterpreters(1);
    var slow = try engine.connect();
    defer slow.close();
    try slow.get("/wait");
    try busy.expectAtGate();
    // The next requests are offered to the busy interpreter, which is the only one.
    var early: [3]Client = undefined;
    for (&early) |*client| {
        client.* = try engine.connect();
        try client.get("/");
    }
    defer for (&early) |*client| client.close();
    const idle: Process = try .start(&engine, -1);
    errdefer idle.abandon();
    for (&early) |*client| try client.expect("200", "");
    var client = try engine.connect();
    defer client.close();
    var text: [32]u8 = undefined;
    const expected = try std.fmt.bufPrint(&text, "pid {d}", .{idle.pid});
    for (0..50) |_| {
        try client.get("/");
        try client.expect("200", expected);
    }
    try busy.open();
    try slow.expect("200", try std.fmt.bufPrint(&text, "pid {d}", .{busy.pid}));
    try busy.kill();
    try idle.kill();
    try engine.expectInterpreters(0);
}

test "a group of interpreters gets the requests of its routes alone, and keeps back none of others" {
    const engine: Engine = try .start(.{ .shop = true, .limits = &.{.{ "queue_ms", 1500 }} });
    defer engine.stop();
    const site: Process = try .start(&engine, -1);
    errdefer site.abandon();
    try engine.expectInterpreters(1);
    // Its interpreters may be another user's: they see no memory in which bodies of others lie.
    try testing.expectEqual(null, engine.handle.home.thread.local.depot);
    var text: [32]u8 = undefined;
    const of_site = try std.fmt.bufPrint(&text, "pid {d}", .{site.pid});
    // The shop has no interpreter: its requests wait, and are refused. Those of others do not wait.
    var waiting: [3]Client = undefined;
    for (&waiting) |*client| {
        client.* = try engine.connect();
        try client.get("/shop/x");
    }
    defer for (&waiting) |*client| client.close();
    try engine.expectWaiting(3);
    var client = try engine.connect();
    defer client.close();
    for (0..20) |_| {
        try client.get("/");
        try client.expect("200", of_site);
    }
    for (&waiting) |*late| try late.expect("503", "");
    const shop: Process = try .startAt(engine.shop_socket, .first, -1);
    errdefer shop.abandon();
    try engine.expectInterpreters(2);
    var shop_text: [32]u8 = undefined;
    const of_shop = try std.fmt.bufPrint(&shop_text, "pid {d}", .{shop.pid});
    for (0..20) |_| {
        try client.get("/");
        try client.expect("200", of_site);
        try client.get("/shop");
        try client.expect("200", of_shop);
    }
    // The shop's interpreter goes, and the site's gets none of its requests.
    try shop.kill();
    try engine.expectInterpreters(1);
    try waiting[0].get("/shop");
    try engine.expectWaiting(1);
    try client.get("/");
    try client.expect("200", of_site);
    // An interpreter that is stuck at the site keeps back no request of the shop.
    const again: Process = try .startAt(engine.shop_socket, .first, -1);
    errdefer again.abandon();
    try waiting[0].expect("200", "");
    try client.get("/wait");
    try site.expectAtGate();
    const expected = try std.fmt.bufPrint(&shop_text, "pid {d}", .{again.pid});
    for (0..20) |_| {
        try waiting[1].get("/shop");
        try waiting[1].expect("200", expected);
    }
    try site.open();
    try client.expect("200", of_site);
    try site.kill();
    try again.kill();
}

test "a group without topics has no delivery, whatever its interpreters say" {
    // The reader stays while the impostor asks.
    const engine: Engine = try .start(.{ .exchanges = 2, .shop = true, .topics = true, .own = .{
        .size = @sizeOf(types.Interpreters),
        .no_topics = 1,
    } });
    defer engine.stop();
    const site: Process = try .start(&engine, -1);
    errdefer site.abandon();
    const shop: Process = try .startAt(engine.shop_socket, .first, -1);
    errdefer shop.abandon();
    try engine.expectInterpreters(2);
    const delivery = engine.handle.home.thread.local.pool.?.delivery.?;
    var client = try engine.connect();
    defer client.close();
    try client.get("/shop/follow");
    try expectTold(&client, types.NodeResult.unavailable);
    const Look = struct {
        fn generation(of: *const @TypeOf(delivery.*)) u64 {
            return of.node.generation;
        }
    };
    const pair = engine.handle.home.thread;
    try testing.expectEqual(0, pair.call(Look.generation, .{delivery}));
    var reader = try engine.connect();
    defer reader.close();
    try reader.get("/follow");
    for (0..3000) |_| {
        if (pair.call(Look.generation, .{delivery}) == 1) break;
        sleep(10);
    } else return error.NoDelivery;
    try site.kill();
    try shop.kill();
}

/// The application has heard this result of a wish.
fn expectTold(client: *Client, result: u32) !void {
    var text: [32]u8 = undefined;
    const told = try std.fmt.bufPrint(&text, "told {d}", .{result});
    while (std.mem.find(u8, client.bytes[0..client.len], told) == null) {
        const len = c.read(client.fd, client.bytes[client.len..].ptr, client.bytes.len - client.len);
        if (len <= 0) return error.NothingCame;
        client.len += @intCast(len);
    }
}

test "a group reads its own topics, and an interpreter reads for the first node that it has named" {
    // The reader stays while the impostor asks.
    const engine: Engine = try .start(.{ .exchanges = 2, .shop = true, .topics = true, .own = .{
        .size = @sizeOf(types.Interpreters),
        .topics = "other.",
    } });
    defer engine.stop();
    const site: Process = try .start(&engine, -1);
    errdefer site.abandon();
    const shop: Process = try .startAt(engine.shop_socket, .first, -1);
    errdefer shop.abandon();
    try engine.expectInterpreters(2);
    var client = try engine.connect();
    defer client.close();
    try client.get("/shop/follow");
    try expectTold(&client, types.NodeResult.forbidden);
    // Each wish of the application is that of another node.
    var reader = try engine.connect();
    defer reader.close();
    try reader.get("/follow");
    const delivery = engine.handle.home.thread.local.pool.?.delivery.?;
    // Neither group's copies cost the other its own.
    const shares = &delivery.node.readers.shares;
    try testing.expectEqual(2, shares.count());
    try testing.expectEqualStrings("other.", shares.at(shares.ownerOf("other.x")).prefix);
    const Look = struct {
        fn subscribers(of: *const @TypeOf(delivery.*)) u32 {
            return of.subscribers;
        }
    };
    for (0..3000) |_| {
        if (engine.handle.home.thread.call(Look.subscribers, .{delivery}) == 1) break;
        sleep(10);
    } else return error.NoDelivery;
    var impostor = try engine.connect();
    defer impostor.close();
    try impostor.get("/follow");
    try expectTold(&impostor, types.NodeResult.forbidden);
    try site.kill();
    try shop.kill();
}

/// How the engine's thread sees its interpreters.
const Standing = struct {
    /// Whether all have done what they were given, and are ready for the next request.
    fn areIdle(pool: *Pool) bool {
        return for (pool.seats) |place| {
            const seat = place orelse continue;
            if (seat.state != .open or seat.busyWith() > 0) break false;
            if ((seat.end.events.released() catch unreachable) != seat.end.events.at) break false;
        } else true;
    }

    /// Whether the last request was offered to more than one of them, because the system let one wait.
    fn hasMoved(pool: *Pool) bool {
        var offered: u32 = 0;
        for (pool.seats) |place| if (place) |seat| {
            offered += @intFromBool(seat.last_offer == pool.arrivals);
        };
        return offered > 1;
    }

    fn expectIdle(engine: *const Engine) !void {
        for (0..30_000) |_| {
            if (engine.handle.call(areIdle, .{engine.handle.ownEngine().?.pool.?})) return;
            sleep(1);
        }
        return error.NotIdle;
    }
};

/// Which of two idle processes answers how many of requests that come one after another.
fn countAnswers(
    engine: *const Engine,
    client: *Client,
    first: *const Process,
    second: *const Process,
) ![2]u32 {
    var counts: [2]u32 = .{ 0, 0 };
    var text: [32]u8 = undefined;
    for (0..40) |_| {
        const answer = for (0..1000) |_| {
            try Standing.expectIdle(engine);
            try client.get("/");
            const answer = try client.hear();
            if (!engine.handle.call(Standing.hasMoved, .{engine.handle.ownEngine().?.pool.?})) break answer;
        } else return error.EachHasMoved;
        for ([_]*const Process{ first, second }, &counts) |process, *count| {
            const expected = try std.fmt.bufPrint(&text, "pid {d}", .{process.pid});
            count.* += @intFromBool(std.mem.endsWith(u8, answer, expected));
        }
    }
    return counts;
}

/// Answers at least so many of a series each. On a busy machine a series may find an interpreter late.
fn expectShares(
    engine: *const Engine,
    client: *Client,
    first: *const Process,
    second: *const Process,
    least: [2]u32,
) !void {
    for (0..10) |_| {
        const counts = try countAnswers(engine, client, first, second);
        if (counts[0] >= least[0] and counts[1] >= least[1]) return;
    }
    return error.TestUnexpectedResult;
}

test "few requests go to the first of idle interpreters, or to all in turns if one wants that" {
    const engine: Engine = try .start(.{});
    defer engine.stop();
    const first: Process = try .start(&engine, -1);
    errdefer first.abandon();
    try engine.expectInterpreters(1);
    const second: Process = try .start(&engine, -1);
    errdefer second.abandon();
    try engine.expectInterpreters(2);
    var client = try engine.connect();
    defer client.close();
    try expectShares(&engine, &client, &first, &second, .{ 30, 0 });
    try client.get("/turns");
    try client.expect("200", "");
    try expectShares(&engine, &client, &first, &second, .{ 15, 15 });
    // The first interpreter has wanted it; the wish is taken back by whichever one gets the request.
    for (0..2) |_| {
        try client.get("/no-turns");
        try client.expect("200", "");
    }
    try expectShares(&engine, &client, &first, &second, .{ 30, 0 });
    try first.kill();
    try second.kill();
}

test "of one that is killed only what it had taken fails, and its connections serve on" {
    const engine: Engine = try .start(.{ .exchanges = 4 });
    defer engine.stop();
    const first: Process = try .start(&engine, -1);
    errdefer first.abandon();
    try engine.expectInterpreters(1);
    var begun = try engine.connect();
    defer begun.close();
    try begun.get("/begin");
    while (std.mem.find(u8, begun.bytes[0..begun.len], "begun") == null) {
        const len = c.read(begun.fd, begun.bytes[begun.len..].ptr, 100);
        try testing.expect(len > 0);
        begun.len += @intCast(len);
    }
    var socket = try engine.connect();
    defer socket.close();
    try socket.say("GET /socket HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" ++
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n");
    try socket.expect("101", "");
    var slow = try engine.connect();
    defer slow.close();
    try slow.get("/wait");
    try first.expectAtGate();
    // A second request waits behind the first one, and is not taken.
    var offered = try engine.connect();
    defer offered.close();
    try offered.get("/");
    const second: Process = try .start(&engine, -1);
    errdefer second.abandon();
    try offered.expect("200", "");
    try first.kill();
    try slow.expect("502", "failed.\n");
    try begun.expectEnd();
    try testing.expect(std.mem.find(u8, try hearFrame(&socket), "\x88\x02\x03\xf3") != null);
    try engine.expectInterpreters(1);
    var text: [32]u8 = undefined;
    const expected = try std.fmt.bufPrint(&text, "pid {d}", .{second.pid});
    for ([_]*Client{ &slow, &offered }) |client| {
        try client.get("/");
        try client.expect("200", expected);
    }
    try second.kill();
}

fn hearFrame(client: *Client) ![]const u8 {
    const len = c.read(client.fd, &client.bytes, client.bytes.len);
    try testing.expect(len > 0);
    return client.bytes[0..@intCast(len)];
}

test "requests wait for an interpreter in order, and are refused when they are too many or too old" {
    const engine: Engine = try .start(.{ .limits = &.{ .{ "queue_max", 2 }, .{ "queue_ms", 400 } } });
    defer engine.stop();
    var clients: [3]Client = undefined;
    for (&clients, 0..) |*client, number| {
        client.* = try engine.connect();
        try client.get("/");
        if (number < 2) try engine.expectWaiting(@intCast(number + 1));
    }
    defer for (&clients) |*client| client.close();
    try clients[2].expect("503", "busy.\n");
    const refused = clients[2].bytes[0..clients[2].len];
    try testing.expect(std.ascii.findIgnoreCase(refused, "\r\nRetry-After: 5\r\n") != null);
    for (clients[0..2]) |*client| try client.expect("503", "busy.\n");
    try engine.expectWaiting(0);
    // A client that leaves waits no longer.
    var gone = try engine.connect();
    try gone.get("/");
    try engine.expectWaiting(1);
    gone.reset();
    try engine.expectWaiting(0);
    try clients[0].get("/");
    const process: Process = try .start(&engine, -1);
    errdefer process.abandon();
    try clients[0].expect("200", "");
    try process.kill();
}

test "requests that no interpreter has taken are refused when the time of a stop is over" {
    // Requests of the shop, and requests that are handed over, wait by limits of their own.
    const engine: Engine = try .start(.{ .shop = true, .whole = false, .exchanges = 0, .handed = 1, .own = .{
        .size = @sizeOf(types.Interpreters),
        .own = types.Own.queue_ms,
        .queue_ms = for_ever_ms,
    }, .limits = &.{.{ "queue_ms", for_ever_ms }} });
    defer engine.stop();
    const site: Process = try .start(&engine, -1);
    errdefer site.abandon();
    try engine.expectInterpreters(1);
    var handed = try engine.connect();
    defer handed.close();
    try handed.get("/hand/");
    try engine.expectWaiting(1);
    var taken = try engine.connect();
    defer taken.close();
    try taken.get("/wait");
    try site.expectAtGate();
    // The site's only interpreter may have been offered the request already.
    var behind = try engine.connect();
    defer behind.close();
    try behind.get("/");
    var clients: [2]Client = undefined;
    for (&clients) |*client| client.* = try engine.connect();
    defer for (&clients) |*client| client.close();
    try clients[0].get("/shop");
    try clients[1].say("POST /shop HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nsome");
    try engine.expectStat("exchanges", 5);
    abi.peregrine_drain(engine.handle);
    try testing.expectEqual(4, abi.interpreters.peregrine_refuse_waiting(engine.handle));
    for (&clients) |*client| try client.expect("503", "busy.\n");
    for ([_]*Client{ &handed, &behind }) |client| try client.expect("503", "busy.\n");
    try testing.expectEqual(0, abi.interpreters.peregrine_refuse_waiting(engine.handle));
    try site.open();
    try taken.expect("200", "");
    try site.kill();
}

test "requests that come after those that were refused wait no more, even where nothing stops" {
    const engine: Engine = try .start(.{ .shop = true });
    defer engine.stop();
    var client = try engine.connect();
    defer client.close();
    try client.say("GET /shop HTTP/1.1\r\nHost: h\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n");
    try engine.expectWaiting(1);
    try testing.expect(abi.interpreters.peregrine_refuse_waiting(engine.handle) > 0);
    try client.expect("503", "busy.\n");
    // Both answers may have come together.
    const answers = std.mem.count(u8, client.bytes[0..client.len], "HTTP/1.1 503 ");
    if (answers < 2) try client.expect("503", "busy.\n");
    try engine.expectWaiting(0);
}

test "requests of one group are refused, and those of another one wait" {
    const engine: Engine = try .start(.{ .shop = true });
    defer engine.stop();
    var clients: [2]Client = undefined;
    for (&clients) |*client| client.* = try engine.connect();
    defer for (&clients) |*client| client.close();
    try clients[0].get("/shop");
    try clients[1].get("/");
    try engine.expectWaiting(2);
    for ([_]c_int{ -1, 2, 300 }) |none| {
        try testing.expectEqual(0, abi.interpreters.peregrine_refuse_group(engine.handle, none));
    }
    try testing.expectEqual(1, abi.interpreters.peregrine_refuse_group(engine.handle, 1));
    try clients[0].expect("503", "busy.\n");
    try engine.expectWaiting(1);
    // Later ones do not wait.
    try clients[0].get("/shop");
    try clients[0].expect("503", "busy.\n");
    try engine.expectWaiting(1);
}

test "a group has limits of its own, and takes no places of others" {
    const Own = types.Own;
    var refusals: u64 = 0;
    const engine: Engine = try .start(.{
        .shop = true,
        .own = .{
            .size = @sizeOf(types.Interpreters),
            .refused = &refusals,
            .seats = 1,
            .own = Own.queue_max | Own.queue_ms | Own.request_idle_ms,
            .queue_max = 2,
            // Long enough for a look at the requests that wait.
            .queue_ms = 1500,
            .request_idle_ms = 2000,
        },
        .limits = &.{.{ "queue_max", 1000 }},
    });
    defer engine.stop();
    var clients: [4]Client = undefined;
    for (&clients) |*client| client.* = try engine.connect();
    defer for (&clients) |*client| client.close();
    // Requests that find no room in the group's queue, or have waited as long as they may there.
    for (clients[0..3]) |*client| try client.get("/shop");
    try engine.expectWaiting(2);
    for (clients[0..3]) |*client| try client.expect("503", "busy.\n");
    try testing.expectEqual(3, @atomicLoad(u64, &refusals, .monotonic));
    // A request at the site waits longer: the engine's limits hold for it.
    try clients[3].get("/");
    sleep(1800);
    try engine.expectWaiting(1);
    const site: Process = try .start(&engine, -1);
    errdefer site.abandon();
    try clients[3].expect("200", "");
    // The second interpreter finds no place, whatever places the engine has.
    const shop: Process = try .startAt(engine.shop_socket, .first, -1);
    errdefer shop.abandon();
    try engine.expectInterpreters(2);
    const refused: Process = try .startAt(engine.shop_socket, .first, -1);
    errdefer refused.abandon();
    try testing.expectEqual(1 << 8, try refused.wait());
    try engine.expectInterpreters(2);
    // Nothing moves on this request.
    try clients[0].get("/shop/begin");
    try clients[0].expectCut();
    try shop.kill();
    try site.kill();
}

test "an interpreter that does not keep to the rules is shut out alone" {
    const engine: Engine = try .start(.{ .topics = true });
    defer engine.stop();
    for ([_][]const u8{ "/garbage", "/steal", "/outside", "/wish", "/hold" }) |path| {
        const honest: Process = try .start(&engine, -1);
        errdefer honest.abandon();
        try engine.expectInterpreters(1);
        var other = try engine.connect();
        defer other.close();
        try other.get("/wait");
        try honest.expectAtGate();
        const rogue: Process = try .start(&engine, -1);
        errdefer rogue.abandon();
        try engine.expectInterpreters(2);
        var client = try engine.connect();
        defer client.close();
        var text: [100]u8 = undefined;
        try client.say(try std.fmt.bufPrint(&text, "GET {s} HTTP/1.1\r\nHost: h\r\n\r\n", .{path}));
        try client.expect("502", "failed.\n");
        try engine.expectInterpreters(1);
        // The interpreter is told that the ring pair is closed, and leaves in order.
        try testing.expectEqual(0, try rogue.wait());
        try honest.open();
        try other.expect("200", "");
        try client.get("/");
        try client.expect("200", "");
        try honest.kill();
        try engine.expectInterpreters(0);
    }
}

test "an interpreter that breaks the rules and stays is shut out, and killed" {
    const engine: Engine = try .start(.{});
    defer engine.stop();
    const rogue: Process = try .start(&engine, -1);
    errdefer rogue.abandon();
    try engine.expectInterpreters(1);
    var client = try engine.connect();
    defer client.close();
    try client.get("/stay");
    try client.expect("502", "failed.\n");
    try engine.expectInterpreters(0);
    try testing.expectEqual(@backingInt(c.SIG.KILL), @as(u32, @intCast(try rogue.wait())));
}

test "a range that no file has shuts its interpreter out, and ends no engine" {
    const engine: Engine = try .start(.{});
    defer engine.stop();
    const file = c.memfd_create("answer", 0);
    defer _ = c.close(file);
    try testing.expectEqual(9, c.write(file, "from file", 9));
    for ([_][]const u8{ "/beyond/length", "/beyond/offset" }) |path| {
        const rogue: Process = try .start(&engine, file);
        errdefer rogue.abandon();
        try engine.expectInterpreters(1);
        var client = try engine.connect();
        defer client.close();
        var text: [100]u8 = undefined;
        try client.say(try std.fmt.bufPrint(&text, "GET {s} HTTP/1.1\r\nHost: h\r\n\r\n", .{path}));
        try client.expectCut();
        try engine.expectInterpreters(0);
        try testing.expectEqual(0, try rogue.wait());
    }
    // An application may ask for what is behind the end of a file, which is nothing.
    const honest: Process = try .start(&engine, file);
    errdefer honest.abandon();
    var client = try engine.connect();
    defer client.close();
    try client.get("/far");
    try client.expect("200", "\r\n\r\nfar away.");
    try engine.expectInterpreters(1);
    try honest.kill();
    try engine.expectInterpreters(0);
}

test "a file for which the engine has no descriptor fails alone" {
    const engine: Engine = try .start(.{ .exchanges = 4 });
    defer engine.stop();
    errdefer engine.printNotices();
    const file = c.memfd_create("answer", 0);
    defer _ = c.close(file);
    try testing.expectEqual(9, c.write(file, "from file", 9));
    const process: Process = try .start(&engine, file);
    errdefer process.abandon();
    var clients: [3]Client = undefined;
    for (&clients) |*client| client.* = try engine.connect();
    defer for (&clients) |*client| client.close();
    var text: [32]u8 = undefined;
    const name = try std.fmt.bufPrint(&text, "\r\n\r\npid {d}", .{process.pid});
    for (&clients) |*client| {
        try client.get("/");
        try client.expect("200", name);
    }
    {
        const shortage: Shortage = try .begin();
        defer shortage.end();
        try clients[0].get("/file");
        try clients[0].expectCut();
        try clients[1].get("/");
        try clients[1].expect("200", name);
    }
    // No descriptor of an earlier command is left.
    try clients[2].get("/file");
    try clients[2].expect("200", "from file");
    // Files on storage of other machines may be gone when the engine looks.
    try clients[1].get("/gate");
    try clients[1].expectCut();
    try clients[2].get("/");
    try clients[2].expect("200", name);
    try process.kill();
    try engine.expectInterpreters(0);
}

test "a body's file for which an interpreter has no descriptor is refused, and nothing else" {
    const engine: Engine = try .start(.{
        .exchanges = 4,
        .limits = &.{.{ "body_memory_bytes_max", 10_000 }},
    });
    defer engine.stop();
    errdefer engine.printNotices();
    const process: Process = try .start(&engine, -1);
    errdefer process.abandon();
    var clients: [2]Client = undefined;
    for (&clients) |*client| client.* = try engine.connect();
    defer for (&clients) |*client| client.close();
    var text: [32]u8 = undefined;
    const name = try std.fmt.bufPrint(&text, "\r\n\r\npid {d}", .{process.pid});
    // The exchange is open while the interpreter has no descriptors.
    try clients[1].get("/begin");
    try clients[0].get("/shortage");
    try clients[0].expect("200", name);
    const body: [20_000]u8 = @splat('b');
    for (0..2) |_| {
        try clients[0].say("POST /body HTTP/1.1\r\nHost: h\r\nContent-Length: 20000\r\n\r\n");
        try clients[0].say(&body);
        try clients[0].expect("503", "no descriptors left.\n");
        try clients[0].get("/");
        try clients[0].expect("200", name);
    }
    try engine.expectInterpreters(1);
    try process.kill();
    try engine.expectInterpreters(0);
}

test "messages that break the rules keep no interpreter from joining" {
    const engine: Engine = try .start(.{});
    defer engine.stop();
    // The engine's thread reads none of the messages before all are there.
    engine.handle.call(sendNonsense, .{engine.join_socket});
    const process: Process = try .start(&engine, -1);
    errdefer process.abandon();
    try engine.expectInterpreters(1);
    try process.kill();
    try engine.expectInterpreters(0);
}

fn sendNonsense(join_socket: c.fd_t) void {
    const sharing = @import("peregrine").io.sharing;
    for (0..4) |_| {
        assert(sharing.send(join_socket, "x", &.{ join_socket, join_socket }) == .sent);
        assert(c.send(join_socket, "", 0, c.MSG.NOSIGNAL) == 0);
    }
}

test "an interpreter that goes on speaking while it goes holds nobody" {
    const engine: Engine = try .start(.{});
    defer engine.stop();
    const handle = abi.interpreters.peregrine_join(engine.join_socket, 60_000).?;
    defer abi.peregrine_worker_free(handle);
    try engine.expectInterpreters(1);
    const peer = &engine.handle.ownEngine().?.pool.?.seats[0].?.peer;
    var calls = peer.calls.*;
    calls.raise = Chatter.goOn;
    Chatter.prepare(handle.home.joined.shared.commands);
    engine.handle.call(Chatter.use, .{ peer, &calls });
    Chatter.begin();
    abi.peregrine_cut(handle);
    try engine.expectInterpreters(0);
    try testing.expect(Chatter.times.load(.monotonic) < 100);
}

/// Says more whenever the engine has heard something, for a thousand times.
const Chatter = struct {
    var header: *ring.Header = undefined;
    var times: std.atomic.Value(u32) = .init(0);

    const ring = abi.spoken.ring;
    const sleeping = 1;
    const Seat = std.meta.Child(std.meta.Child(@typeInfo(@FieldType(Pool, "seats")).array.child));
    const Peer = @FieldType(Seat, "peer");

    fn use(peer: *Peer, calls: @FieldType(Peer, "calls")) void {
        peer.calls = calls;
    }

    /// Fills a ring with commands of no bytes, before the engine's thread knows of it.
    fn prepare(memory: []align(std.atomic.cache_line) u8) void {
        header = @ptrCast(memory.ptr);
        const words: []u32 = @ptrCast(@alignCast(memory[@sizeOf(ring.Header)..]));
        for (words, 0..) |*word, at| word.* = if (at % 2 == 0) 0 else @backingInt(ring.Record.Part.whole);
    }

    fn begin() void {
        header.writer.store(sleeping, .monotonic);
        header.tail.store(ring.bytes_min, .release);
    }

    fn goOn(_: *Peer) void {
        if (times.fetchAdd(1, .monotonic) + 1 == 1000) return;
        header.tail.store(header.head.load(.monotonic) + ring.bytes_min, .release);
        header.writer.store(sleeping, .monotonic);
    }
};

const OwnEngine = std.meta.Child(std.meta.Child(
    @typeInfo(@TypeOf(abi.Handle.ownEngine)).@"fn".return_type.?,
));
const Pool = std.meta.Child(std.meta.Child(@FieldType(OwnEngine, "pool")));
const Interpreters = @FieldType(Pool, "interpreters");
const EngineEnd = @FieldType(std.meta.Child(@FieldType(@FieldType(abi.Handle, "home"), "thread")), "engine");

/// For the engine's thread.
fn useCalls(several: *Interpreters, calls: @FieldType(Interpreters, "calls")) void {
    several.calls = calls;
}

test "the owner of an engine is heard while interpreters always have something to say" {
    const engine: Engine = try .start(.{});
    defer engine.stop();
    const pool = engine.handle.ownEngine().?.pool.?;
    const Busy = struct {
        const turns_max = 1000;

        var end: *EngineEnd = undefined;
        /// Turns that have begun while the owner waited.
        var turns: u32 = 0;

        fn turn(_: *Interpreters) bool {
            turns += @intFromBool(end.task.load(.monotonic) != null);
            return turns < turns_max;
        }
    };
    const before = pool.interpreters.calls;
    var busy = before.*;
    busy.turn = Busy.turn;
    Busy.end = &engine.handle.home.thread.engine;
    engine.handle.call(useCalls, .{ &pool.interpreters, &busy });
    engine.handle.call(useCalls, .{ &pool.interpreters, before });
    try testing.expect(Busy.turns < Busy.turns_max);
}

test "an engine takes no short waits while an interpreter is at one request" {
    const engine: Engine = try .start(.{});
    defer engine.stop();
    const pool = engine.handle.ownEngine().?.pool.?;
    const handle = abi.interpreters.peregrine_join(engine.join_socket, 60_000).?;
    defer abi.peregrine_worker_free(handle);
    try engine.expectInterpreters(1);
    const ring = abi.spoken.ring;
    const Watch = struct {
        var commands: *ring.Header = undefined;
        var original: @FieldType(Interpreters, "calls") = undefined;
        var waits: std.atomic.Value(u32) = .init(0);
        var short: std.atomic.Value(u32) = .init(0);

        fn patience(several: *Interpreters, wanted_ms: i32) i32 {
            const ms = original.patience(several, wanted_ms);
            const state = commands.reader.load(.monotonic);
            if (state == @backingInt(ring.State.pausing)) _ = short.fetchAdd(1, .monotonic);
            _ = waits.fetchAdd(1, .monotonic);
            return ms;
        }
    };
    var events: [*]const Event = undefined;
    // An interpreter is awake until it polls for the first time.
    try testing.expectEqual(0, abi.peregrine_poll(handle, 0, &events));
    Watch.commands = @ptrCast(handle.home.joined.shared.commands.ptr);
    Watch.original = pool.interpreters.calls;
    var watched = Watch.original.*;
    watched.patience = Watch.patience;
    engine.handle.call(useCalls, .{ &pool.interpreters, &watched });
    defer engine.handle.call(useCalls, .{ &pool.interpreters, Watch.original });
    var client = try engine.connect();
    defer client.close();
    var application: Application = .{ .handle = handle };
    for (0..20) |_| {
        // The interpreter sleeps until the request comes.
        while (abi.peregrine_poll(handle, 0, &events) != 0) {}
        try client.get("/");
        while (abi.peregrine_poll(handle, 1000, &events) == 0) {}
        // The engine looks around, and waits again, while the interpreter works.
        for (0..10) |_| try testing.expect(!engine.handle.call(Standing.areIdle, .{pool}));
        _ = application.respond(events[0].ticket, "done", types.RespondFlag.end);
        try client.expect("200", "done");
    }
    try testing.expect(Watch.waits.load(.monotonic) > 20);
    try testing.expectEqual(0, Watch.short.load(.monotonic));
}

test "a head that names its length wakes the engine with its body, or at the next poll" {
    const engine: Engine = try .start(.{});
    defer engine.stop();
    const handle = abi.interpreters.peregrine_join(engine.join_socket, 60_000).?;
    defer abi.peregrine_worker_free(handle);
    try engine.expectInterpreters(1);
    const commands = &handle.home.joined.end.commands;
    const Shown = struct {
        fn isAll(writer: *abi.spoken.ring.Writer) bool {
            return writer.shared.header.tail.load(.monotonic) == writer.at;
        }
    };
    var client = try engine.connect();
    defer client.close();
    const fields = [_]@import("peregrine").Field{.init("Content-Length", "4")};
    const response: types.Response = .{
        .size = @sizeOf(types.Response),
        .status = 200,
        .flags = types.RespondFlag.hold,
        .fields = &fields,
        .field_count = fields.len,
    };
    var events: [*]const Event = undefined;
    for ([_]bool{ false, true }) |polls| {
        try client.get("/");
        while (abi.peregrine_poll(handle, 1000, &events) == 0) {}
        const ticket = events[0].ticket;
        try testing.expectEqual(Code.ok, abi.peregrine_respond(handle, ticket, @ptrCast(&response)));
        try testing.expect(!Shown.isAll(commands));
        if (polls) {
            _ = abi.peregrine_poll(handle, 0, &events);
            try testing.expect(Shown.isAll(commands));
        }
        const end = types.RespondFlag.end;
        try testing.expectEqual(Code.done, abi.peregrine_write(handle, ticket, "done", 4, end));
        try testing.expect(Shown.isAll(commands));
        try client.expect("200", "done");
    }
}

test "an interpreter that asks for answers and reads none is shut out" {
    const engine: Engine = try .start(.{});
    defer engine.stop();
    const handle = abi.interpreters.peregrine_join(engine.join_socket, 60_000).?;
    defer abi.peregrine_worker_free(handle);
    try engine.expectInterpreters(1);
    var client = try engine.connect();
    defer client.close();
    try client.get("/");
    var application: Application = .{ .handle = handle };
    const ticket = while (true) {
        var events: [*]const Event = undefined;
        const count = abi.peregrine_poll(handle, 1000, &events);
        if (count > 0) break events[0].ticket;
    };
    _ = application.respond(ticket, "begun", 0);
    const limit = @import("peregrine").api_limits.unread_events_max;
    const interpreter = handle.home.joined;
    const commands = &interpreter.end.commands;
    const said: abi.spoken.Spoken = .{ .ticket = ticket, .command = .flush, .awaits = true };
    for (0..2 * limit) |_| {
        const space = while (!interpreter.isDeaf()) {
            if (commands.reserve(abi.spoken.size(&said)) catch unreachable) |free| break free;
            _ = commands.publish();
            interpreter.wakeEngine();
            sleep(1);
        } else break;
        abi.spoken.encode(&said, space);
        commands.commit(.whole);
    } else return error.NeverShutOut;
    try client.expectCut();
    try engine.expectInterpreters(0);
}

/// Memory that fails, as the engine's thread sees it.
const Shortfall = struct {
    fn has(failing: *const testing.FailingAllocator) bool {
        return failing.has_induced_failure;
    }

    /// The allocation after so many others fails.
    fn failBehind(failing: *testing.FailingAllocator, count: usize) void {
        failing.fail_index = failing.alloc_index +| count;
    }

    /// The batches of the only interpreter. For the engine's thread, which has made them.
    fn batches(pool: *Pool) *@FieldType(abi.Host, "batches") {
        return &pool.seats[0].?.host.batches;
    }

    /// The events for an interpreter get their memory from `gpa` from now on.
    fn use(own: *@FieldType(abi.Host, "batches"), gpa: std.mem.Allocator) void {
        for (own) |*batch| {
            batch.events.clearAndFree(batch.gpa);
            batch.gpa = gpa;
        }
    }
};

test "a request that cannot be given to an interpreter for want of memory is offered again" {
    const engine: Engine = try .start(.{ .limits = &.{.{ "queue_ms", 60_000 }} });
    defer engine.stop();
    const process: Process = try .start(&engine, -1);
    errdefer process.abandon();
    try engine.expectInterpreters(1);
    var client = try engine.connect();
    defer client.close();
    const batches = engine.handle.call(Shortfall.batches, .{engine.handle.ownEngine().?.pool.?});
    var failing: testing.FailingAllocator = .init(batches[0].gpa, .{ .fail_index = 0 });
    engine.handle.call(Shortfall.use, .{ batches, failing.allocator() });
    try client.get("/");
    for (0..30_000) |_| {
        if (engine.handle.call(Shortfall.has, .{&failing})) break;
        sleep(1);
    } else return error.NothingFailed;
    engine.handle.call(Shortfall.failBehind, .{ &failing, std.math.maxInt(usize) });
    try client.expect("200", "");
    try process.kill();
    try engine.expectInterpreters(0);
}

test "an interpreter is buried without memory, and one that cannot join leaves nothing behind" {
    const engine: Engine = try .start(.{});
    defer engine.stop();
    const pool = engine.handle.ownEngine().?.pool.?;
    var failing: testing.FailingAllocator = .init(pool.gpa, .{ .fail_index = 0 });
    const Short = struct {
        fn use(place: *std.mem.Allocator, gpa: std.mem.Allocator) void {
            place.* = gpa;
        }
    };
    const process: Process = try .start(&engine, -1);
    errdefer process.abandon();
    try engine.expectInterpreters(1);
    var client = try engine.connect();
    defer client.close();
    try client.get("/wait");
    try process.expectAtGate();
    engine.handle.call(Short.use, .{ &pool.gpa, failing.allocator() });
    try process.kill();
    try client.expect("502", "failed.\n");
    try engine.expectInterpreters(0);
    var before: usize = 0;
    for (0..100) |index| {
        engine.handle.call(Shortfall.failBehind, .{ &failing, index });
        const next: Process = try .start(&engine, -1);
        errdefer next.abandon();
        if (try next.joins(&engine)) {
            try testing.expect(index > 0);
            try next.kill();
            try engine.expectInterpreters(0);
            break;
        }
        if (index == 0) before = openDescriptors();
        try testing.expectEqual(before, openDescriptors());
    } else return error.NeverJoins;
    engine.handle.call(Short.use, .{ &pool.gpa, failing.internal_allocator });
}

test "requests to join that do not end hold nobody" {
    const engine: Engine = try .start(.{});
    defer engine.stop();
    const honest: Process = try .start(&engine, -1);
    errdefer honest.abandon();
    try engine.expectInterpreters(1);
    var rogues: [3]Process = undefined;
    for (&rogues) |*rogue| rogue.* = try .startFlood(&engine);
    errdefer for (&rogues) |*rogue| rogue.abandon();
    var client = try engine.connect();
    defer client.close();
    for (0..200) |_| {
        try client.get("/");
        try client.expect("200", "");
    }
    for (&rogues) |*rogue| try rogue.kill();
    try honest.kill();
    try engine.expectInterpreters(0);
}

test "whole bodies, in memory and in files, and files as answers" {
    const engine: Engine = try .start(.{ .limits = &.{.{ "body_memory_bytes_max", 150_000 }} });
    defer engine.stop();
    const file = c.memfd_create("answer", 0);
    defer _ = c.close(file);
    try testing.expectEqual(9, c.write(file, "from file", 9));
    const process: Process = try .start(&engine, file);
    errdefer process.abandon();
    var client = try engine.connect();
    defer client.close();
    const bytes = try testing.allocator.alloc(u8, 1_000_000);
    defer testing.allocator.free(bytes);
    @memset(bytes, 3);
    var text: [200]u8 = undefined;
    for ([_]usize{ 0, 1, 64 * 1024, 64 * 1024 + 1, 150_000, 150_001, 1_000_000 }) |len| {
        const head = "POST /body HTTP/1.1\r\nHost: h\r\nContent-Length: {d}\r\n\r\n";
        try client.say(try std.fmt.bufPrint(&text, head, .{len}));
        try client.say(bytes[0..len]);
        try client.expect("200", try std.fmt.bufPrint(&text, "\r\n\r\n{d} {d}", .{ len, 3 * len }));
        try client.say("POST /body HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
        if (len > 0) {
            try client.say(try std.fmt.bufPrint(&text, "{x}\r\n", .{len}));
            try client.say(bytes[0..len]);
            try client.say("\r\n");
        }
        try client.say("0\r\n\r\n");
        try client.expect("200", try std.fmt.bufPrint(&text, "\r\n\r\n{d} {d}", .{ len, 3 * len }));
    }
    for (0..300) |_| {
        try client.get("/file");
        try client.expect("200", "from file");
    }
    try process.kill();
}

test "long bodies come whole, however many wait, and long answers go" {
    const engine: Engine = try .start(.{
        .exchanges = 64,
        .limits = &.{.{ "body_memory_bytes_max", 5_000_000 }},
    });
    defer engine.stop();
    const process: Process = try .start(&engine, -1);
    errdefer process.abandon();
    var slow = try engine.connect();
    defer slow.close();
    try slow.get("/wait");
    try process.expectAtGate();
    const bytes = try testing.allocator.alloc(u8, 4_500_000);
    defer testing.allocator.free(bytes);
    @memset(bytes, 3);
    var text: [200]u8 = undefined;
    // Together they are longer than the annex, and the last one is by itself.
    const lengths = [_]usize{ 1_500_000, 100_000, 1_500_001, 1_600_000, 70_000, 1_400_003, 4_500_000 };
    var clients: [lengths.len]Client = undefined;
    for (&clients, lengths) |*client, len| {
        client.* = try engine.connect();
        const head = "POST /body HTTP/1.1\r\nHost: h\r\nContent-Length: {d}\r\n\r\n";
        try client.say(try std.fmt.bufPrint(&text, head, .{len}));
        try client.say(bytes[0..len]);
    }
    defer for (&clients) |*client| client.close();
    try process.open();
    try slow.expect("200", "");
    for (0..2) |_| {
        for (&clients, lengths) |*client, len| {
            try client.expect("200", try std.fmt.bufPrint(&text, "\r\n\r\n{d} {d}", .{ len, 3 * len }));
            try client.get("/long");
        }
        for (&clients, lengths) |*client, len| {
            try client.expectLong(&long);
            const head = "POST /body HTTP/1.1\r\nHost: h\r\nContent-Length: {d}\r\n\r\n";
            try client.say(try std.fmt.bufPrint(&text, head, .{len}));
            try client.say(bytes[0..len]);
        }
    }
    try process.kill();
}

test "a body stays as it is for as long as an interpreter reads it, though its client has left" {
    // An engine that lets requests be handed over keeps them for longer.
    for ([_]u32{ 0, 4, 0, 4 }, [_]bool{ false, false, true, true }) |handed, sees| {
        const engine: Engine = try .start(.{ .handed = handed });
        defer engine.stop();
        const process: Process = try .start(&engine, -1);
        errdefer process.abandon();
        var body: [200_000]u8 = @splat('3');
        const head = "POST {s} HTTP/1.1\r\nHost: h\r\nContent-Length: 200000\r\n\r\n";
        var text: [100]u8 = undefined;
        var leaver = try engine.connect();
        try leaver.say(try std.fmt.bufPrint(&text, head, .{"/held"}));
        try leaver.say(&body);
        try process.expectAtGate();
        // A further request has the engine see that the first one was taken, in half of the rounds.
        var next = try engine.connect();
        defer next.close();
        if (sees) try next.get("/");
        if (sees) try engine.expectStat("requests", 2);
        leaver.reset();
        try engine.expectStat("connections", 1);
        @memset(&body, 5);
        var others: [4]Client = undefined;
        for (&others) |*other| {
            other.* = try engine.connect();
            try other.say(try std.fmt.bufPrint(&text, head, .{"/body"}));
            try other.say(&body);
        }
        defer for (&others) |*other| other.close();
        try engine.expectStat("memory_bytes", others.len * body.len);
        try process.open();
        var verdict: [1]u8 = undefined;
        try testing.expectEqual(1, c.read(process.gate, &verdict, 1));
        try testing.expectEqualStrings("x", &verdict);
        if (sees) try next.expect("200", "");
        for (&others) |*other| try other.expect("200", "\r\n\r\n200000 1000000");
        try process.kill();
    }
}

test "an answer that waits for its client stays as it is, holds up no other, and outlives its interpreter" {
    const engine: Engine = try .start(.{ .exchanges = 64 });
    defer engine.stop();
    const process: Process = try .start(&engine, -1);
    errdefer process.abandon();
    var slow = try engine.connect();
    defer slow.close();
    const few: c_int = 64 * 1024;
    _ = c.setsockopt(slow.fd, c.SOL.SOCKET, c.SO.RCVBUF, &few, @sizeOf(c_int));
    // More than the kernel takes for a client that reads nothing.
    for (0..16) |_| try slow.get("/long");
    var quick = try engine.connect();
    defer quick.close();
    for (0..20) |_| {
        try quick.get("/loud");
        try quick.expectLong(&loud);
    }
    try process.kill();
    try engine.expectInterpreters(0);
    const next: Process = try .start(&engine, -1);
    errdefer next.abandon();
    for (0..16) |_| try slow.expectLong(&long);
    try next.kill();
}

test "the client of a long answer may be gone when its head is sent" {
    const engine: Engine = try .start(.{ .exchanges = 64 });
    defer engine.stop();
    const process: Process = try .start(&engine, -1);
    errdefer process.abandon();
    for (0..5) |_| {
        var gone = try engine.connect();
        try gone.get("/late");
        gone.close();
        var client = try engine.connect();
        defer client.close();
        try client.get("/");
        try client.expect("200", "");
    }
    try process.kill();
}

test "bodies that just fit a record, or just do not, come whole wherever the ring stands" {
    const engine: Engine = try .start(.{ .exchanges = 64 });
    defer engine.stop();
    const process: Process = try .start(&engine, -1);
    errdefer process.abandon();
    const bytes: [66_600]u8 = @splat(3);
    var text: [200]u8 = undefined;
    var clients: [24]Client = undefined;
    for (&clients) |*client| client.* = try engine.connect();
    defer for (&clients) |*client| client.close();
    for (0..40) |round| {
        // Nothing is taken out of the ring while the offers come.
        try testing.expectEqual(0, c.kill(process.pid, .STOP));
        var lengths: [clients.len]usize = undefined;
        for (&clients, &lengths, 0..) |*client, *len, index| {
            // Three leave less room than any record may need, the next one just fits a record.
            len.* = if (index % 4 < 3) 54_000 + (round * 977 + index * 403) % 7_000 else 65_600;
            const head = "POST /body HTTP/1.1\r\nHost: h\r\nContent-Length: {d}\r\n\r\n";
            try client.say(try std.fmt.bufPrint(&text, head, .{len.*}));
            try client.say(bytes[0..len.*]);
        }
        sleep(30);
        try testing.expectEqual(0, c.kill(process.pid, .CONT));
        for (&clients, lengths) |*client, len| {
            try client.expect("200", try std.fmt.bufPrint(&text, "\r\n\r\n{d} {d}", .{ len, 3 * len }));
        }
    }
    try process.kill();
}

test "an interpreter that is at work can ask whether its client has left" {
    const engine: Engine = try .start(.{});
    defer engine.stop();
    const process: Process = try .start(&engine, -1);
    errdefer process.abandon();
    var half = try engine.connect();
    defer half.close();
    try half.get("/leaver");
    try testing.expectEqual(0, c.shutdown(half.fd, c.SHUT.WR));
    try half.expect("200", "");
    var gone = try engine.connect();
    try gone.get("/leaver");
    gone.close();
    var client = try engine.connect();
    defer client.close();
    try client.get("/");
    try client.expect("200", "");
    try process.kill();
}

test "bodies as they come, for interpreters that want them so" {
    const engine: Engine = try .start(.{ .whole = false, .exchanges = 10 });
    defer engine.stop();
    const process: Process = try .start(&engine, -1);
    errdefer process.abandon();
    var client = try engine.connect();
    defer client.close();
    const bytes: [200_000]u8 = @splat(1);
    for (0..3) |_| {
        try client.say("POST /body HTTP/1.1\r\nHost: h\r\nContent-Length: 200000\r\n\r\n");
        try client.say(&bytes);
        try client.expect("200", "\r\n\r\n200000 200000");
    }
    try process.kill();
}

test "an interpreter that leaves gets nothing more, and ends the requests that it has" {
    const engine: Engine = try .start(.{});
    defer engine.stop();
    const leaving: Process = try .start(&engine, -1);
    errdefer leaving.abandon();
    try engine.expectInterpreters(1);
    var client = try engine.connect();
    defer client.close();
    try client.get("/leave");
    try client.expect("200", "");
    try testing.expectEqual(0, try leaving.wait());
    try engine.expectInterpreters(0);
    try client.get("/");
    const next: Process = try .start(&engine, -1);
    errdefer next.abandon();
    try client.expect("200", "");
    try next.kill();
}

test "when the engine goes its interpreters are told" {
    const engine: Engine = try .start(.{});
    const process: Process = try .start(&engine, -1);
    errdefer process.abandon();
    try engine.expectInterpreters(1);
    var client = try engine.connect();
    defer client.close();
    try client.get("/wait");
    try process.expectAtGate();
    engine.stop();
    try process.open();
    try testing.expectEqual(0, try process.wait());
    // No engine is at the other end.
    try testing.expectEqual(null, abi.interpreters.peregrine_join(engine.join_socket, 1000));
}

/// An interpreter in the thread of its test, and a client to which it sends an answer without end.
const Answering = struct {
    engine: Engine,
    handle: *abi.Handle,
    client: Client,
    ticket: types.Ticket,

    fn start() !Answering {
        const engine: Engine = try .start(.{});
        errdefer engine.stop();
        const handle = abi.interpreters.peregrine_join(engine.join_socket, 1000).?;
        errdefer abi.peregrine_worker_free(handle);
        var client = try engine.connect();
        errdefer client.close();
        try client.get("/");
        const event = try nextEvent(handle);
        try testing.expectEqual(.request, event.kind);
        try testing.expectEqual(Code.ok, abi.peregrine_take(handle, event.ticket));
        var application: Application = .{ .handle = handle, .kind = .first, .gate = -1, .file = -1 };
        _ = application.respond(event.ticket, "begun", 0);
        const answering: Answering = .{
            .engine = engine,
            .handle = handle,
            .client = client,
            .ticket = event.ticket,
        };
        try answering.expectPiece("begun");
        return answering;
    }

    fn stop(answering: *const Answering) void {
        answering.client.close();
        abi.peregrine_worker_free(answering.handle);
        answering.engine.stop();
    }

    fn nextEvent(handle: *abi.Handle) !Event {
        var events: [*]const Event = undefined;
        const begun = std.Io.Clock.awake.now(testing.io);
        while (true) {
            const left_ms = event_ms - begun.untilNow(testing.io, .awake).toMilliseconds();
            if (left_ms <= 0) return error.NoEvent;
            // An interpreter may be woken without an event.
            const count = abi.peregrine_poll(handle, @intCast(left_ms), &events);
            if (count == 0) continue;
            try testing.expectEqual(1, count);
            return events[0];
        }
    }

    /// The longest time for an event to come, on a busy machine.
    const event_ms = 30_000;

    fn expectEnding(answering: *const Answering) !void {
        try testing.expectEqual(.ending, (try nextEvent(answering.handle)).kind);
    }

    /// The engine passes a piece of the answer on, and has no event for the interpreter.
    fn expectNoEvent(answering: *const Answering, comptime piece: []const u8) !void {
        _ = abi.peregrine_write(answering.handle, answering.ticket, piece.ptr, piece.len, 0);
        try answering.expectPiece(piece);
        var events: [*]const Event = undefined;
        try testing.expectEqual(0, abi.peregrine_poll(answering.handle, 0, &events));
    }

    fn expectPiece(answering: *const Answering, comptime piece: []const u8) !void {
        var events: [*]const Event = undefined;
        try testing.expectEqual(0, abi.peregrine_poll(answering.handle, 0, &events));
        var bytes: [1024]u8 = undefined;
        var len: usize = 0;
        while (std.mem.find(u8, bytes[0..len], piece) == null) {
            const more = c.read(answering.client.fd, bytes[len..].ptr, bytes.len - len);
            if (more <= 0) return error.NothingCame;
            len += @intCast(more);
        }
    }
};

test "an interpreter is told once that its engine drains" {
    const answering: Answering = try .start();
    defer answering.stop();
    try answering.expectNoEvent("one");
    abi.peregrine_drain(answering.engine.handle);
    try answering.expectEnding();
    try answering.expectNoEvent("two");
}

test "an interpreter is told of an engine that retires when WebSockets end, and not before" {
    const answering: Answering = try .start();
    defer answering.stop();
    abi.peregrine_retire(answering.engine.handle);
    try answering.expectNoEvent("one");
    abi.peregrine_end_websockets(answering.engine.handle);
    try answering.expectEnding();
    try answering.expectNoEvent("two");
}

test "an interpreter that cannot be told of the end for want of memory is told later" {
    const answering: Answering = try .start();
    defer answering.stop();
    const engine = answering.engine.handle;
    const batches = engine.call(Shortfall.batches, .{engine.ownEngine().?.pool.?});
    var failing: testing.FailingAllocator = .init(batches[0].gpa, .{ .fail_index = 0 });
    engine.call(Shortfall.use, .{ batches, failing.allocator() });
    abi.peregrine_drain(engine);
    for (0..30_000) |_| {
        if (engine.call(Shortfall.has, .{&failing})) break;
        sleep(1);
    } else return error.NothingFailed;
    engine.call(Shortfall.failBehind, .{ &failing, std.math.maxInt(usize) });
    try answering.expectEnding();
}

test "the loop of an interpreter waits on when the engine has gone" {
    const engine: Engine = try .start(.{});
    const handle = abi.interpreters.peregrine_join(engine.join_socket, 1000).?;
    defer abi.peregrine_worker_free(handle);
    const host: c.fd_t = @intCast(linux.eventfd(0, linux.EFD.CLOEXEC | linux.EFD.NONBLOCK));
    defer _ = c.close(host);
    try testing.expectEqual(Code.ok, abi.loop.peregrine_host_loop(handle, host, null));
    engine.stop();
    var events: [*]const Event = undefined;
    while (true) {
        const count = abi.peregrine_poll(handle, for_ever_ms, &events);
        try testing.expect(count > 0);
        if (events[@intCast(count - 1)].kind == .stopped) break;
    }
    const begun = std.Io.Clock.awake.now(testing.io);
    try testing.expectEqual(0, abi.peregrine_poll(handle, 20, &events));
    try testing.expect(begun.untilNow(testing.io, .awake).toMilliseconds() >= 19);
    try testing.expectEqual(0, abi.loop.peregrine_host_loop_due(handle));
    const one: u64 = 1;
    _ = c.write(host, std.mem.asBytes(&one), @sizeOf(u64));
    try testing.expectEqual(0, abi.peregrine_poll(handle, for_ever_ms, &events));
    try testing.expectEqual(1, abi.loop.peregrine_host_loop_due(handle));
}

/// Long enough that whoever waits so long has not been woken.
const for_ever_ms = 60_000;

test "a request that is handed over is another's, whatever is said and whoever dies" {
    const engine: Engine = try .start(.{ .exchanges = 4, .handed = 1, .whole = false });
    defer engine.stop();
    errdefer engine.printNotices();
    const first: Process = try .start(&engine, -1);
    errdefer first.abandon();
    try engine.expectInterpreters(1);
    const blocking: Process = try .startAs(&engine, .handed, -1);
    errdefer blocking.abandon();
    try engine.expectInterpreters(2);
    var texts: [2][32]u8 = undefined;
    const from_first = try std.fmt.bufPrint(&texts[0], "pid {d}", .{first.pid});
    const from_blocking = try std.fmt.bufPrint(&texts[1], "pid {d}", .{blocking.pid});
    var client = try engine.connect();
    defer client.close();
    for (0..20) |_| {
        try client.get("/hand/");
        try client.expect("200", from_blocking);
        try client.get("/");
        try client.expect("200", from_first);
    }
    try client.get("/hand/late");
    try client.expect("200", "refused -2");
    // The body goes from the client to the interpreter that has the request now.
    try client.say("POST /hand/body HTTP/1.1\r\nHost: h\r\nContent-Length: 300000\r\n\r\n");
    const piece: [10_000]u8 = @splat('a');
    for (0..30) |_| try client.say(&piece);
    try client.expect("200", "300000 29100000");
    // An interpreter that blocks keeps back what is handed over, and nothing else.
    var slow = try engine.connect();
    defer slow.close();
    try slow.get("/hand/wait");
    try blocking.expectAtGate();
    var late = try engine.connect();
    defer late.close();
    try late.get("/hand/");
    try engine.expectWaiting(1);
    try client.get("/hand/");
    try client.expect("503", "busy.\n");
    try client.get("/");
    try client.expect("200", from_first);
    // A client that leaves while its request waits makes room.
    late.reset();
    late = try engine.connect();
    try engine.expectWaiting(0);
    try late.get("/hand/");
    try engine.expectWaiting(1);
    try blocking.kill();
    try slow.expect("502", "failed.\n");
    try engine.expectInterpreters(1);
    try engine.expectWaiting(1);
    const other: Process = try .startAs(&engine, .handed, -1);
    errdefer other.abandon();
    try late.expect("200", try std.fmt.bufPrint(&texts[1], "pid {d}", .{other.pid}));
    // The request of an interpreter that breaks the rules is another's by then.
    try client.get("/hand/twice");
    try client.expect("200", try std.fmt.bufPrint(&texts[1], "pid {d}", .{other.pid}));
    try engine.expectInterpreters(1);
    try first.kill();
    try other.kill();
    try engine.expectInterpreters(0);
}

test "a long body that came with its request is handed over with it" {
    const engine: Engine = try .start(.{ .exchanges = 4, .handed = 4 });
    defer engine.stop();
    errdefer engine.printNotices();
    const first: Process = try .start(&engine, -1);
    errdefer first.abandon();
    const blocking: Process = try .startAs(&engine, .handed, -1);
    errdefer blocking.abandon();
    try engine.expectInterpreters(2);
    const piece: [10_000]u8 = @splat('a');
    var clients: [3]Client = undefined;
    for (&clients) |*client| client.* = try engine.connect();
    defer for (&clients) |*client| client.close();
    for (&clients) |*client| {
        try client.say("POST /hand/body HTTP/1.1\r\nHost: h\r\nContent-Length: 300000\r\n\r\n");
        for (0..30) |_| try client.say(&piece);
    }
    for (&clients) |*client| try client.expect("200", "300000 29100000");
    try first.kill();
    try blocking.kill();
    try engine.expectInterpreters(0);
}

test "an engine that is not told how many may be handed over lets none" {
    const engine: Engine = try .start(.{});
    defer engine.stop();
    const process: Process = try .start(&engine, -1);
    errdefer process.abandon();
    var client = try engine.connect();
    defer client.close();
    try client.get("/hand/");
    try client.expect("200", "refused -2");
    try process.kill();
    try engine.expectInterpreters(0);
}

test "threads are interpreters like processes, and come and go without a trace" {
    const engine: Engine = try .start(.{});
    defer engine.stop();
    var client = try engine.connect();
    defer client.close();
    errdefer engine.printNotices();
    var before: usize = 0;
    for (0..20) |round| {
        const one = try std.Thread.spawn(.{}, Application.run, .{ engine.join_socket, -1, -1 });
        const other = try std.Thread.spawn(.{}, Application.run, .{ engine.join_socket, -1, -1 });
        for (0..2) |_| {
            try client.get("/");
            try client.expect("200", "");
            try client.get("/leave");
            try client.expect("200", "");
        }
        one.join();
        other.join();
        try engine.expectInterpreters(0);
        if (round == 0) before = openDescriptors();
    }
    try testing.expectEqual(before, openDescriptors());
}

fn openDescriptors() usize {
    var count: usize = 0;
    for (0..1000) |fd| count += @intFromBool(c.fcntl(@intCast(fd), c.F.GETFD) >= 0);
    return count;
}

test "many clients and interpreters that are killed all the time: nothing is lost but what they had" {
    const engine: Engine = try .start(.{});
    defer engine.stop();
    var processes: [3]Process = undefined;
    for (&processes) |*process| process.* = try .start(&engine, -1);
    try engine.expectInterpreters(3);
    var threads: [4]std.Thread = undefined;
    var tallies: [4]Tally = @splat(.{});
    for (&threads, &tallies) |*thread, *tally| thread.* = try .spawn(.{}, Tally.run, .{ tally, &engine });
    for (0..20) |round| {
        sleep(20);
        const process = &processes[round % processes.len];
        try process.kill();
        process.* = try .start(&engine, -1);
    }
    for (&tallies) |*tally| tally.done.store(true, .release);
    for (&threads) |*thread| thread.join();
    for (&tallies) |*tally| {
        try testing.expectEqual(0, tally.closed);
        try testing.expect(tally.answered > 0 and tally.failed <= 20);
    }
    for (&processes) |*process| try process.kill();
    try engine.expectInterpreters(0);
}

/// The answers that a client got on its connection.
const Tally = struct {
    answered: u32 = 0,
    failed: u32 = 0,
    closed: u32 = 0,
    done: std.atomic.Value(bool) = .init(false),

    fn run(tally: *Tally, engine: *const Engine) void {
        var client = engine.connect() catch return;
        defer client.close();
        // On a busy machine a client's first answer may come after everything else is over.
        while (!tally.done.load(.acquire) or tally.answered == 0) {
            client.get("/") catch return tally.lose();
            const text = client.hear() catch return tally.lose();
            if (std.mem.startsWith(u8, text, "HTTP/1.1 200")) {
                tally.answered += 1;
            } else if (std.mem.startsWith(u8, text, "HTTP/1.1 502")) {
                tally.failed += 1;
            } else return tally.lose();
        }
    }

    fn lose(tally: *Tally) void {
        tally.closed += 1;
    }
};

test "each request is taken once at most and answered once, by the right interpreter, whatever they do" {
    for ([_]u64{ 1, 2, 3, 4 }) |seed| {
        const engine: Engine = try .start(.{ .exchanges = 2, .handed = 100 });
        var history: History = .{ .engine = engine, .prng = .init(seed) };
        defer history.engine.stop();
        errdefer std.debug.print("seed {d}\n", .{seed});
        errdefer history.engine.printNotices();
        defer history.end();
        for (0..1000) |_| try history.step();
        try history.settle();
    }
}

/// Clients and interpreters that do what chance wants, one thing after another; the engine is as it is. What
/// becomes of a request is known from what was done with it.
const History = struct {
    engine: Engine,
    prng: std.Random.DefaultPrng,
    visitors: [6]Visitor = @splat(.{}),
    places: [6]Place = @as([4]Place, @splat(.{})) ++ @as([2]Place, @splat(.{ .kind = .handed })),
    fates: [requests_max]Fate = @splat(.asked),
    /// Requests that were handed over.
    handed: [requests_max]bool = @splat(false),
    count: u32 = 0,

    const requests_max = 2000;

    const Fate = enum {
        asked,
        /// An interpreter works on it.
        taken,
        answered,
        /// The request's interpreter has died, or
        failed,
        /// will never come back to it.
        given_up,
        /// The client has left.
        left,
    };

    const Visitor = struct {
        client: ?Client = null,
        /// The number of the request that it waits for; null: none.
        asks: ?u32 = null,
    };

    const Request = struct {
        ticket: types.Ticket,
        number: u32,
        is_taken: bool,
        /// The body, which stays as it is until the interpreter polls again.
        body: []const u8,

        fn expectBody(request: *const Request) !void {
            try testing.expectEqual(bodyLen(request.number), request.body.len);
            const byte = [1]u8{bodyByte(request.number)};
            try testing.expectEqual(null, std.mem.findNone(u8, request.body, &byte));
        }
    };

    /// Bodies that go in a record, that lie in the depot, and that do so in more than one place.
    fn bodyLen(number: u32) usize {
        return ([_]usize{ 0, 0, 0, 100, 20_000, 40_000, 200_000 })[number % 7];
    }

    fn bodyByte(number: u32) u8 {
        return @intCast('a' + number % 26);
    }

    /// Whether the answer is long, so that it lies in the annex of its interpreter until its client takes it.
    fn isLong(number: u32) bool {
        return number % 5 == 0;
    }

    const Place = struct {
        handle: ?*abi.Handle = null,
        kind: Application.Kind = .first,
        /// Is at something for ever.
        is_stuck: bool = false,
        /// Requests that were offered to it, and that it has taken.
        has: [64]Request = undefined,
        len: usize = 0,

        fn remove(place: *Place, at: usize) Request {
            const request = place.has[at];
            place.len -= 1;
            for (at..place.len) |index| place.has[index] = place.has[index + 1];
            return request;
        }
    };

    fn chance(history: *History, below: usize) usize {
        return history.prng.random().uintLessThan(usize, below);
    }

    fn step(history: *History) !void {
        const visitor = &history.visitors[history.chance(history.visitors.len)];
        const place = &history.places[history.chance(history.places.len)];
        switch (history.chance(100)) {
            0...19 => try history.ask(visitor),
            20...39 => try history.hear(visitor),
            40 => history.leave(visitor),
            41...59 => try history.poll(place),
            60...79 => try history.take(place),
            80...89 => try history.answer(place),
            90...91 => try history.handOver(place),
            92 => try history.giveBack(place),
            93 => history.die(place),
            94 => history.giveUp(place),
            else => history.join(place),
        }
    }

    fn ask(history: *History, visitor: *Visitor) !void {
        if (visitor.asks != null or history.count == requests_max) return;
        if (visitor.client == null) visitor.client = try history.engine.connect();
        var text: [100]u8 = undefined;
        const number = history.count;
        const len = bodyLen(number);
        const head = "POST /{d} HTTP/1.1\r\nHost: h\r\nContent-Length: {d}\r\n\r\n";
        try visitor.client.?.say(try std.fmt.bufPrint(&text, head, .{ number, len }));
        var body: [200_000]u8 = undefined;
        @memset(body[0..len], bodyByte(number));
        try visitor.client.?.say(body[0..len]);
        visitor.asks = number;
        history.count += 1;
    }

    /// Hears a visitor's answer, if it is known that an answer comes, and which.
    fn hear(history: *History, visitor: *Visitor) !void {
        const number = visitor.asks orelse return;
        var text: [16]u8 = undefined;
        const client = &visitor.client.?;
        switch (history.fates[number]) {
            .answered => if (isLong(number)) try client.expectLong(&long) else {
                const wanted = try std.fmt.bufPrint(&text, "\r\n\r\n{d}", .{number});
                try client.expect("200", wanted);
            },
            .failed => try client.expect("502", "failed.\n"),
            .given_up => try client.expect("504", "long.\n"),
            .asked, .taken => return,
            .left => unreachable,
        }
        visitor.asks = null;
    }

    fn leave(history: *History, visitor: *Visitor) void {
        const number = visitor.asks orelse return;
        history.fates[number] = .left;
        visitor.client.?.reset();
        visitor.* = .{};
    }

    fn join(history: *History, place: *Place) void {
        if (place.handle != null) return;
        place.* = .{ .handle = place.kind.join(history.engine.join_socket, 60_000), .kind = place.kind };
    }

    fn poll(history: *History, place: *Place) !void {
        const handle = place.handle orelse return;
        // An offer is as good as taken for an interpreter that has no room for it.
        if (place.len > 0) return;
        var events: [*]const Event = undefined;
        const count = abi.peregrine_poll(handle, 1, &events);
        try testing.expect(count >= 0);
        for (events[0..@intCast(count)]) |*event| if (event.kind == .request) {
            const head = event.request.?;
            const path = head.text[head.path.at + 1 ..][0 .. head.path.len - 1];
            const number = try std.fmt.parseInt(u32, path, 10);
            try testing.expect(number < history.count and place.len < place.has.len);
            place.has[place.len] = .{
                .ticket = event.ticket,
                .number = number,
                .is_taken = false,
                .body = event.bytes[0..event.len],
            };
            place.len += 1;
        };
    }

    fn take(history: *History, place: *Place) !void {
        if (place.is_stuck) return;
        const at = for (place.has[0..place.len], 0..) |*request, index| {
            if (!request.is_taken) break index;
        } else return;
        const request = &place.has[at];
        if (abi.peregrine_take(place.handle.?, request.ticket) != Code.ok) {
            _ = place.remove(at); // another interpreter has the request, or its client has left
            return;
        }
        request.is_taken = true;
        const fate = &history.fates[request.number];
        if (fate.* == .left) return;
        try testing.expectEqual(.asked, fate.*);
        try testing.expectEqual(history.handed[request.number], place.kind == .handed);
        fate.* = .taken;
    }

    /// The interpreter leaves a request to one of the other kind.
    fn handOver(history: *History, place: *Place) !void {
        const call = abi.interpreters.peregrine_hand_over;
        const number = try history.passOn(place, .first, call) orelse return;
        history.handed[number] = true;
    }

    /// The interpreter has a request too many, which goes back to its kind.
    fn giveBack(history: *History, place: *Place) !void {
        _ = try history.passOn(place, .handed, abi.interpreters.peregrine_give_back);
    }

    /// A request is for another interpreter to take, by a call that interpreters of one kind may make. The
    /// request's number; null: its client has left, or nothing was passed on.
    fn passOn(
        history: *History,
        place: *Place,
        kind: @FieldType(Place, "kind"),
        call: *const fn (*abi.Handle, types.Ticket) callconv(.c) c_int,
    ) !?usize {
        if (place.is_stuck) return null;
        const at = for (place.has[0..place.len], 0..) |*request, index| {
            if (request.is_taken) break index;
        } else return null;
        const request = place.has[at];
        const code = call(place.handle.?, request.ticket);
        if (place.kind != kind) {
            try testing.expect(code == Code.out_of_order);
            return null;
        }
        _ = place.remove(at);
        const fate = &history.fates[request.number];
        if (fate.* == .left) return null;
        try testing.expectEqual(.taken, fate.*);
        try testing.expectEqual(Code.ok, code);
        fate.* = .asked;
        return request.number;
    }

    fn answer(history: *History, place: *Place) !void {
        if (place.is_stuck) return;
        const at = for (place.has[0..place.len], 0..) |*request, index| {
            if (request.is_taken) break index;
        } else return;
        const request = place.remove(at);
        try request.expectBody();
        var text: [16]u8 = undefined;
        const number = try std.fmt.bufPrint(&text, "{d}", .{request.number});
        const body: []const u8 = if (isLong(request.number)) &long else number;
        var application: Application = .{ .handle = place.handle.? };
        const code = application.respond(request.ticket, body, types.RespondFlag.end);
        const fate = &history.fates[request.number];
        if (fate.* == .left) return;
        try testing.expectEqual(.taken, fate.*);
        try testing.expect(code >= 0);
        fate.* = .answered;
    }

    fn die(history: *History, place: *Place) void {
        const handle = place.handle orelse return;
        history.fail(place);
        abi.peregrine_worker_free(handle);
        place.* = .{ .kind = place.kind };
    }

    fn fail(history: *History, place: *Place) void {
        for (place.has[0..place.len]) |*request| {
            const fate = &history.fates[request.number];
            if (request.is_taken and fate.* == .taken) fate.* = .failed;
        }
        place.len = 0;
    }

    /// The interpreter's process would be killed, or its thread left alone.
    fn giveUp(history: *History, place: *Place) void {
        const at = for (place.has[0..place.len], 0..) |*request, index| {
            if (request.is_taken) break index;
        } else return;
        const request = place.remove(at);
        _ = abi.peregrine_give_up(place.handle.?, request.ticket);
        const fate = &history.fates[request.number];
        if (fate.* == .taken) fate.* = .given_up;
        history.fail(place);
        place.is_stuck = true;
    }

    /// From now on interpreters do their work.
    fn settle(history: *History) !void {
        for (&history.places) |*place| if (place.is_stuck) history.die(place);
        for ([_]usize{ 0, 4 }) |first| history.join(&history.places[first]);
        for (0..6000) |_| {
            var waiting: usize = 0;
            for (&history.visitors) |*visitor| {
                try history.hear(visitor);
                waiting += @intFromBool(visitor.asks != null);
            }
            if (waiting == 0) break;
            for (&history.places) |*place| if (place.handle != null) {
                try history.poll(place);
                while (place.len > 0) {
                    try history.take(place);
                    try history.answer(place);
                }
            };
            sleep(1);
        } else return error.NotAnswered;
        try history.engine.expectWaiting(0);
        for (&history.places) |*place| history.die(place);
        try history.engine.expectInterpreters(0);
    }

    fn end(history: *History) void {
        for (&history.places) |*place| history.die(place);
        for (&history.visitors) |*visitor| if (visitor.client) |*client| client.close();
    }
};
