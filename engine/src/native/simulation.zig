//! A server and its clients inside one test: no sockets, no threads, no waiting; a network that splits,
//! delays and blocks, and the same again from the same seed.
//!
//!     var simulation: per.Simulation(Handler) = try .init(std.testing.allocator, .{}, .{ .seed = 1 });
//!     defer simulation.deinit();
//!     const answer = try simulation.request(.{ .target = "/?name=Ada" });
//!     try std.testing.expectEqual(200, answer.status);
//!     try std.testing.expectEqualStrings("Ada", answer.body);
//!
//! Does not know: what the bytes mean (answer.zig).
const std = @import("std");
const io = @import("io");
const Answer = @import("answer.zig").Answer;
const Question = @import("answer.zig").Question;
const contract = @import("handler.zig");
const server_file = @import("server.zig");
const ServerConfig = @import("settings.zig").ServerConfig;
const SimulatedWebSocket = @import("simulated_websocket.zig").SimulatedWebSocket;

/// A server for `Handler` on a simulated network, with one worker.
pub fn Simulation(comptime Handler: type) type {
    return struct {
        const Self = @This();

        gpa: std.mem.Allocator,
        server: *Server,
        clients: std.ArrayList(*Client) = .empty,
        /// Memory of answers.
        arena: std.heap.ArenaAllocator,
        running: bool = true,

        /// The server that is tested.
        pub const Server = server_file.ServerOn(io.Sim, Handler);

        /// Rounds in which nothing happens before the network counts as quiet: more than any
        /// delay that it makes up.
        const quiet_rounds = 8;
        /// The most rounds of one step: far more than any exchange of a test takes.
        const rounds_max = 1_000_000;

        /// `options`: the seed and the character of the network, see io.Sim.Options.
        pub fn init(gpa: std.mem.Allocator, config: ServerConfig, options: io.Sim.Options) !Self {
            comptime contract.checkInit(Handler);
            return create(gpa, config, options, {});
        }

        /// Like `init`, with a handler that the test has made, as `Server.initWith`.
        pub fn initWith(
            gpa: std.mem.Allocator,
            config: ServerConfig,
            options: io.Sim.Options,
            value: Handler,
        ) !Self {
            comptime contract.checkValue(Handler);
            return create(gpa, config, options, value);
        }

        fn create(
            gpa: std.mem.Allocator,
            config: ServerConfig,
            options: io.Sim.Options,
            given: Server.Given,
        ) !Self {
            var quiet = config;
            quiet.worker_thread_count = 1;
            return .{
                .gpa = gpa,
                .server = try .initOn(gpa, 0, quiet, options, given),
                .arena = .init(gpa),
            };
        }

        /// Cuts open connections, and frees clients and server.
        pub fn deinit(self: *Self) void {
            self.server.deinit();
            for (self.clients.items) |client| {
                client.received.deinit(self.gpa);
                self.gpa.destroy(client);
            }
            self.clients.deinit(self.gpa);
            self.arena.deinit();
            self.* = undefined;
        }

        /// The server's handler.
        pub fn handler(self: *Self) *Handler {
            return self.server.handler;
        }

        /// The network.
        pub fn network(self: *Self) *io.Sim {
            return &self.server.units[0].worker.io;
        }

        /// The only worker of the simulated server, for its counters and sizes.
        pub fn worker(self: *Self) *@TypeOf(self.server.units[0].worker) {
            return &self.server.units[0].worker;
        }

        /// A new client, connected to the first listener. Lives as long as the simulation.
        pub fn connect(self: *Self) !*Client {
            try self.clients.ensureUnusedCapacity(self.gpa, 1);
            const client = try self.gpa.create(Client);
            errdefer self.gpa.destroy(client);
            client.* = .{ .simulation = self, .peer = try self.network().connect(0) };
            self.clients.appendAssumeCapacity(client);
            return client;
        }

        /// Sends a request over a connection of its own; returns all bytes that came back when the network
        /// has fallen quiet. Valid until the simulation ends.
        pub fn exchange(self: *Self, bytes: []const u8) ![]const u8 {
            const client = try self.connect();
            try client.send(bytes);
            try self.settle();
            return client.text();
        }

        /// Sends a request over a connection of its own, and parses what comes back when the network has
        /// fallen quiet; `error.NoResponse` if that is no whole response. Valid until the simulation ends.
        pub fn request(self: *Self, question: Question) !Answer {
            const client = try self.connect();
            return client.request(question);
        }

        /// Opens a WebSocket over a connection of its own, with the target and the headers of `question`;
        /// `error.Refused` if the server does not switch protocols.
        pub fn openWebSocket(self: *Self, question: Question) !*WebSocket {
            return .open(try self.connect(), question);
        }

        /// A client's WebSocket.
        pub const WebSocket = SimulatedWebSocket(Client);

        /// Runs a round of the server, and lets all clients read. True if anything came in or went out, or
        /// will in the next round.
        pub fn step(self: *Self) !bool {
            if (self.running) self.running = try self.server.poll(0);
            var moved = false;
            for (self.clients.items) |client| {
                if (client.paused) continue;
                const bytes = client.peer.read();
                moved = moved or bytes.len > 0;
                try client.received.appendSlice(self.gpa, bytes);
            }
            return moved or self.network().readable() or (self.running and self.worker().isUrgent());
        }

        /// Runs until nothing happens any more without time passing or a client sending.
        pub fn settle(self: *Self) !void {
            var quiet: usize = 0;
            for (0..rounds_max) |_| {
                quiet = if (try self.step()) 0 else quiet + 1;
                if (quiet == quiet_rounds) return;
            }
            return error.NeverQuiet;
        }

        /// Lets time pass, then runs until nothing happens any more.
        pub fn advance(self: *Self, ms: u64) !void {
            self.network().advance(ms);
            try self.settle();
        }

        /// A client of the server: the other end of a simulated connection.
        pub const Client = struct {
            simulation: *Self,
            peer: io.SimPeer,
            received: std.ArrayList(u8) = .empty,
            /// Bytes of `received` that `nextAnswer` has taken.
            taken: usize = 0,
            /// The client does not read, as if it was slow.
            paused: bool = false,

            /// Sends all bytes, running the server while the way is full. Bytes for a dead connection are
            /// dropped.
            pub fn send(client: *Client, bytes: []const u8) !void {
                var rest = bytes;
                for (0..rounds_max) |_| {
                    rest = rest[try client.peer.write(rest)..];
                    if (rest.len == 0 or client.isDead()) return;
                    _ = try client.simulation.step();
                }
                return error.NeverQuiet;
            }

            fn isDead(client: *const Client) bool {
                return client.peer.ended() == .reset;
            }

            /// All bytes that the client has received so far.
            pub fn text(client: *const Client) []const u8 {
                return client.received.items;
            }

            /// Sends a request over this connection, and parses its response, as `Simulation.request` does.
            pub fn request(client: *Client, question: Question) !Answer {
                var bytes: std.Io.Writer.Allocating = .init(client.simulation.gpa);
                defer bytes.deinit();
                try question.write(&bytes.writer);
                try client.send(bytes.written());
                try client.simulation.settle();
                const has_body = !std.mem.eql(u8, question.method, "HEAD");
                return try client.nextAnswer(has_body) orelse error.NoResponse;
            }

            /// The next response that has come; null if it is not complete. `has_body`: it does not answer a
            /// HEAD.
            pub fn nextAnswer(client: *Client, has_body: bool) Answer.Error!?Answer {
                const arena = client.simulation.arena.allocator();
                // A copy, because `received` moves when it grows.
                const bytes = try arena.dupe(u8, client.received.items[client.taken..]);
                const found = try Answer.read(arena, bytes, has_body, client.ended() != null) orelse
                    return null;
                client.taken += found.len;
                return found.answer;
            }

            /// Forgets the bytes that came so far.
            pub fn clear(client: *Client) void {
                client.received.clearRetainingCapacity();
                client.taken = 0;
            }

            /// How the server ended the connection; null if it has not, or if there is more to read.
            pub fn ended(client: *const Client) ?io.Ended {
                return client.peer.ended();
            }

            /// Closes the connection.
            pub fn close(client: *Client) void {
                client.peer.close();
            }
        };
    };
}

const testing = std.testing;

const Greeter = struct {
    allocator: std.mem.Allocator,
    served: usize = 0,

    pub fn init(allocator: std.mem.Allocator) !*Greeter {
        const self = try allocator.create(Greeter);
        self.* = .{ .allocator = allocator };
        return self;
    }

    pub fn deinit(self: *Greeter) void {
        self.allocator.destroy(self);
    }

    pub fn handleRequest(
        self: *Greeter,
        request: *@import("request.zig").Request,
        response: *@import("response.zig").Response,
    ) void {
        self.served += 1;
        const name = (request.param("name") catch null) orelse "nobody";
        _ = response.setBody(name) catch return;
    }
};

test "a handler is tested without sockets, on many networks" {
    for (0..20) |seed| {
        var simulation: Simulation(Greeter) = try .init(
            testing.allocator,
            .{},
            .{ .seed = seed, .window_bytes = 40 },
        );
        defer simulation.deinit();
        const answer = try simulation.exchange(
            "GET /?name=J%C3%BCrgen HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
        );
        try testing.expect(std.mem.startsWith(u8, answer, "HTTP/1.1 200 OK\r\n"));
        try testing.expect(std.mem.endsWith(u8, answer, "\r\n\r\nJürgen"));
        try testing.expectEqual(1, simulation.handler().served);
        const parsed = try simulation.request(.{ .target = "/?name=Ada" });
        try testing.expectEqual(200, parsed.status);
        try testing.expectEqualStrings("Ada", parsed.body);
        try testing.expectEqualStrings("3", parsed.header("content-length").?);
        const client = try simulation.connect();
        for (0..3) |_| {
            try testing.expectEqual(200, (try client.request(.{ .method = "HEAD" })).status);
            try testing.expectEqualStrings("nobody", (try client.request(.{})).body);
        }
        simulation.server.shutdown();
        // The client has not closed its end yet; the server gives it time, and then goes.
        try simulation.advance(simulation.server.config.limits.linger_ms + 1000);
        try testing.expect(!simulation.running);
    }
}
