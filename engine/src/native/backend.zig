//! Job: on which io a server runs. It is compiled once for each that this system has, and the choice is made
//! when a server is created: after that nothing on the way of a request asks again.
//! Does not know: what a server does (server.zig), and how an io does it.
const std = @import("std");
const io = @import("io");
const ServerConfig = @import("settings.zig").ServerConfig;
const Stats = @import("server").Stats;
const ServerOn = @import("server.zig").ServerOn;

const contract = @import("handler.zig");
const complaints = @import("complain.zig");

const log = std.log.scoped(.peregrine);

/// A server for `Handler` on the io that its configuration names; see handler.zig for what a
/// handler has to have.
pub fn Server(comptime Handler: type) type {
    return struct {
        const Self = @This();
        const Native = ServerOn(io.Native, Handler);
        const Rings = if (io.has_rings) *ServerOn(io.Uring, Handler) else noreturn;

        gpa: std.mem.Allocator,
        running: Running,

        const Given = Native.Given;

        /// The one that was created.
        pub const Running = union(io.Backend) { native: *Native, uring: Rings };

        /// Creates the handler, opens the listeners (port 0: any free one, see `port`) and prepares the
        /// workers. `start` makes them run. `gpa` has to be safe for threads if there are several. On an
        /// error everything is undone, and a line in the log says what went wrong.
        pub fn init(gpa: std.mem.Allocator, port_number: u16, config: ServerConfig) !*Self {
            comptime contract.checkInit(Handler);
            const before = complaints.count;
            return create(gpa, port_number, config, {}) catch |err| complaints.cannotStart(before, err);
        }

        /// The same with a handler that the program has made: a struct that holds pools, connections to
        /// databases, configuration. The server keeps the value where it stays, see `handler`, and calls its
        /// `deinit`, if it has one, when it is freed; on an error it does not.
        pub fn initWith(
            gpa: std.mem.Allocator,
            port_number: u16,
            config: ServerConfig,
            value: Handler,
        ) !*Self {
            comptime contract.checkValue(Handler);
            const before = complaints.count;
            return create(gpa, port_number, config, value) catch |err| complaints.cannotStart(before, err);
        }

        fn create(gpa: std.mem.Allocator, port_number: u16, config: ServerConfig, given: Given) !*Self {
            const self = try gpa.create(Self);
            errdefer gpa.destroy(self);
            self.* = .{ .gpa = gpa, .running = switch (try choose(gpa, config.io)) {
                .native => .{ .native = try .initOn(gpa, port_number, config, .{}, given) },
                .uring => if (io.has_rings)
                    .{ .uring = try ServerOn(io.Uring, Handler).initOn(gpa, port_number, config, .{}, given) }
                else
                    unreachable,
            } };
            return self;
        }

        /// The handler that answers, shared by all worker threads. Until the server is freed.
        pub fn handler(self: *Self) *Handler {
            return switch (self.running) {
                inline else => |server| server.handler,
            };
        }

        /// What was asked for, unless the kernel refuses.
        fn choose(gpa: std.mem.Allocator, wanted: io.Backend) !io.Backend {
            if (wanted == .native) return .native;
            if (!io.has_rings) {
                log.warn("this system has no io_uring: serving with its native io", .{});
                return .native;
            }
            io.Uring.rehearse(gpa) catch |err| switch (err) {
                error.AccessDenied, error.Unsupported => {
                    log.warn("io_uring cannot be used here, epoll is instead: {t}", .{err});
                    return .native;
                },
                else => return err,
            };
            return .uring;
        }

        /// The io that it runs on; after `.io = .uring` this may be `.native`.
        pub fn backend(self: *const Self) io.Backend {
            return self.running;
        }

        /// The first bound port; 0 if there are only Unix sockets.
        pub fn port(self: *const Self) u16 {
            return switch (self.running) {
                inline else => |server| server.port(),
            };
        }

        /// Serves until `shutdown` or a signal, in this thread and in those that it starts. Then frees
        /// everything, the server included. On an error a line in the log says what went wrong.
        pub fn start(self: *Self) !void {
            defer self.gpa.destroy(self);
            switch (self.running) {
                inline else => |server| try server.start(),
            }
        }

        /// Stops accepting, lets requests finish (as long as `stop_ms` allows), and makes `start`
        /// return. From any thread.
        pub fn shutdown(self: *Self) void {
            switch (self.running) {
                inline else => |server| server.shutdown(),
            }
        }

        /// One round of every worker, in this thread, instead of `start`: for tests and for programs with a
        /// loop of their own. False when the server has stopped. `timeout_ms` as in `Worker.poll`; with
        /// several workers only 0 makes sense.
        pub fn poll(self: *Self, timeout_ms: i32) !bool {
            return switch (self.running) {
                inline else => |server| server.poll(timeout_ms),
            };
        }

        /// Counters and sizes of all workers together: each worker's as of its last round, its memory as of
        /// the last second in which it did something. From any thread.
        pub fn statistics(self: *const Self) Stats {
            return switch (self.running) {
                inline else => |server| server.statistics(),
            };
        }

        /// The file of the access log was moved away: lines go to a new one of that name. From any thread.
        pub fn reopenAccessLog(self: *Self) void {
            switch (self.running) {
                inline else => |server| server.reopenAccessLog(),
            }
        }

        /// Frees a server that was never started; `start` does it otherwise. Connections are cut.
        pub fn deinit(self: *Self) void {
            switch (self.running) {
                inline else => |server| server.deinit(),
            }
            self.gpa.destroy(self);
        }
    };
}
