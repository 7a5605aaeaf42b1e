//! Room `server`: connections, exchanges and workers; joins `protocol` and `io`. Here: the server for Zig handlers, one worker per thread.
//! Refuses to know: C, Perl.
const std = @import("std");
const io = @import("io");

pub const Worker = @import("worker.zig").Worker;
pub const Config = @import("config.zig").Config;
pub const Exchange = @import("exchange.zig").Exchange;
pub const Start = @import("exchange.zig").Start;
pub const StartError = @import("exchange.zig").StartError;
pub const BodyError = @import("exchange.zig").BodyError;
pub const Ticket = @import("slab.zig").Ticket;
pub const Reason = @import("types.zig").Reason;
pub const Level = @import("types.zig").Level;
pub const Stats = @import("types.zig").Stats;
pub const WebSocketKind = @import("websocket.zig").Kind;
pub const WebSocketClose = @import("websocket.zig").Close;
pub const Request = @import("request.zig").Request;
pub const Response = @import("response.zig").Response;
const NativeHost = @import("handler.zig").NativeHost;

/// What a server needs besides its port.
pub const ServerConfig = struct {
    /// Numeric IPv4 or IPv6 address.
    ip: []const u8 = "0.0.0.0",
    /// Threads that serve requests; 0: one per core.
    worker_thread_count: usize = 0,
    /// Stack of each such thread, in bytes.
    worker_stack_size: usize = 1024 * 1024,
    /// Connections that the kernel holds ready for `accept`.
    backlog: u31 = 2048,
    /// Limits and deadlines of each worker.
    limits: Config = .{},
};

/// A server for `Handler`; see handler.zig for what a handler has to have.
pub fn Server(comptime Handler: type) type {
    return ServerOn(io.Native, Handler);
}

/// The same over another io, for tests without sockets.
pub fn ServerOn(comptime Io: type, comptime Handler: type) type {
    return struct {
        const Self = @This();
        const Host = NativeHost(Handler);
        const ServerWorker = Worker(Io, Host);

        /// One thread's share. Never moves: sessions point into it.
        const Unit = struct {
            host: Host,
            worker: ServerWorker,
            thread: ?std.Thread = null,
        };

        gpa: std.mem.Allocator,
        config: ServerConfig,
        handler: *Handler,
        units: []Unit,
        stop: std.atomic.Value(bool) = .init(false),

        /// Creates the handler, opens the listener (port 0: any free one, see `port`), and prepares the workers. `start` makes them run.
        pub fn init(gpa: std.mem.Allocator, port_number: u16, config: ServerConfig) !*Self {
            const self = try gpa.create(Self);
            errdefer gpa.destroy(self);
            const handler = try Handler.init(gpa);
            errdefer handler.deinit();
            const count = if (config.worker_thread_count > 0) config.worker_thread_count else try std.Thread.getCpuCount();
            const units = try gpa.alloc(Unit, count);
            errdefer gpa.free(units);
            self.* = .{ .gpa = gpa, .config = config, .handler = handler, .units = units };
            var ready: usize = 0;
            errdefer for (units[0..ready]) |*unit| deinitUnit(unit);
            for (units) |*unit| {
                unit.* = .{ .host = .init(gpa, handler), .worker = undefined };
                unit.worker = ServerWorker.init(gpa, config.limits, &unit.host, .{}) catch |err| {
                    unit.host.deinit();
                    return err;
                };
                ready += 1;
                // Each worker listens for itself; the kernel spreads connections over them.
                const where = try io.Address.parse(config.ip, if (ready == 1) port_number else self.port());
                _ = try unit.worker.listen(where, .{ .backlog = config.backlog, .reuse_port = count > 1 });
            }
            return self;
        }

        /// The bound port.
        pub fn port(self: *Self) u16 {
            return self.units[0].worker.listenerAddress(0).port().?;
        }

        /// Serves until `shutdown`, in this thread and the other workers'. Then frees everything, the server included.
        pub fn start(self: *Self) !void {
            defer self.destroy();
            for (self.units[1..]) |*unit| {
                unit.thread = try std.Thread.spawn(.{ .stack_size = self.config.worker_stack_size }, serve, .{ self, unit });
            }
            serve(self, &self.units[0]);
            for (self.units[1..]) |*unit| unit.thread.?.join();
        }

        /// Stops accepting, lets requests finish, and makes `start` return. From any thread or signal handler.
        pub fn shutdown(self: *Self) void {
            self.stop.store(true, .release);
            for (self.units) |*unit| unit.worker.io.wake();
        }

        fn serve(self: *Self, unit: *Unit) void {
            const worker = &unit.worker;
            while (!unit.host.ended) {
                worker.poll(-1) catch |err| {
                    std.log.err("a worker stops: {t}", .{err});
                    return;
                };
                if (self.stop.load(.acquire)) worker.drain();
            }
        }

        fn deinitUnit(unit: *Unit) void {
            unit.worker.deinit();
            unit.host.deinit();
        }

        fn destroy(self: *Self) void {
            for (self.units) |*unit| deinitUnit(unit);
            self.handler.deinit();
            self.gpa.free(self.units);
            self.gpa.destroy(self);
        }
    };
}

test {
    _ = @import("config.zig");
    _ = @import("connection.zig");
    _ = @import("exchange.zig");
    _ = @import("input.zig");
    _ = @import("outbox.zig");
    _ = @import("pool.zig");
    _ = @import("slab.zig");
    _ = @import("stall.zig");
    _ = @import("timer.zig");
    _ = @import("websocket.zig");
    _ = @import("worker.zig");
}
