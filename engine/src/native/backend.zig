//! The choice of the io on which a server runs. A server is compiled for each io that this system has, and
//! the choice is made when a server is created: after that no request asks again.
//! Does not know: what a server does (server.zig), and how an io does it.
const std = @import("std");
const io = @import("io");
const ServerConfig = @import("settings.zig").ServerConfig;
const Stats = @import("server").Stats;
const ServerOn = @import("server.zig").ServerOn;
const metrics = @import("metrics.zig");
const status_page = @import("status_page.zig");

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

        running: Running,
        /// The server behind `running` is freed. This struct lies in a page of its own, which `deinit` alone
        /// gives back: a `shutdown` that comes after the end of `start` finds it and sees that.
        is_freed: std.atomic.Value(bool) = .init(false),
        /// The number of calls by other threads that use `running`, which is not freed meanwhile.
        visitors: std.atomic.Value(u32) = .init(0),

        const Given = Native.Given;

        /// The server that was created, for the io that was chosen.
        pub const Running = union(io.Backend) { native: *Native, uring: Rings };

        /// Creates the handler, opens the listeners (port 0: any free one, see `port`) and prepares the
        /// workers. `start` makes them serve. `gpa` has to be safe for threads if there are several. On an
        /// error everything is undone, and a line in the log says what went wrong.
        pub fn init(gpa: std.mem.Allocator, port_number: u16, config: ServerConfig) !*Self {
            comptime contract.checkInit(Handler);
            const before = complaints.count;
            return create(gpa, port_number, config, {}) catch |err| complaints.cannotStart(before, err);
        }

        /// Like `init`, with a handler that the program has made: a struct that holds pools, connections to
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
            const self = try shells.create(Self);
            errdefer shells.destroy(self);
            self.* = .{ .running = switch (try choose(gpa, config.io)) {
                .native => .{ .native = try .initOn(gpa, port_number, config, .{}, given) },
                .uring => if (io.has_rings)
                    .{ .uring = try ServerOn(io.Uring, Handler).initOn(gpa, port_number, config, .{}, given) }
                else
                    unreachable,
            } };
            return self;
        }

        const shells = std.heap.page_allocator;

        /// The handler that answers, shared by all worker threads. Valid until the server is freed.
        pub fn handler(self: *Self) *Handler {
            return switch (self.running) {
                inline else => |server| server.handler,
            };
        }

        /// The io that was asked for, unless the kernel refuses it.
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

        /// The io that the server runs on; after `.io = .uring` this may be `.native`.
        pub fn backend(self: *const Self) io.Backend {
            return self.running;
        }

        /// The first bound port; 0 if there are only Unix sockets, or when the server is freed.
        pub fn port(self: *Self) u16 {
            if (!self.enter()) return 0;
            defer self.leave();
            return switch (self.running) {
                inline else => |server| server.port(),
            };
        }

        /// Serves until `shutdown` or a signal, in this thread and in those that it starts. Then frees
        /// everything but the few bytes that a late `shutdown` looks at, which are `deinit`'s. On an error
        /// a line in the log says what went wrong.
        pub fn start(self: *Self) !void {
            defer self.free();
            try self.run();
        }

        /// Serves as `start` does, and frees nothing: handler and statistics are there until `deinit`.
        pub fn run(self: *Self) !void {
            switch (self.running) {
                inline else => |server| try server.run(),
            }
        }

        /// Stops accepting, lets requests finish (as long as `stop_ms` allows), and makes `start` or `run`
        /// return. From any thread, at any time before `deinit`, as often as you like.
        pub fn shutdown(self: *Self) void {
            if (!self.enter()) return;
            defer self.leave();
            switch (self.running) {
                inline else => |server| server.shutdown(),
            }
        }

        /// Runs a round of every worker in this thread, instead of `start`: for tests and for programs with a
        /// loop of their own. False when the server has stopped. `timeout_ms` as in `Worker.poll`; with
        /// several workers only 0 makes sense.
        pub fn poll(self: *Self, timeout_ms: i32) !bool {
            return switch (self.running) {
                inline else => |server| server.poll(timeout_ms),
            };
        }

        /// Counters and sizes of all workers together: each worker's as of its last round, its memory as of
        /// the last second in which it did something. From any thread; zeros when `start` has returned.
        pub fn statistics(self: *Self) Stats {
            if (!self.enter()) return .{};
            defer self.leave();
            return switch (self.running) {
                inline else => |server| server.statistics(),
            };
        }

        /// Writes what the workers have counted, with `metrics`, as text for Prometheus. From any thread.
        /// `error.NotCounted`: without `metrics`, and when `start` has returned.
        pub fn writeMetrics(self: *Self, out: *std.Io.Writer) error{ NotCounted, WriteFailed }!void {
            const counted = self.totals() orelse return error.NotCounted;
            return metrics.write(out, &counted);
        }

        /// Writes the counters as a page for people, with a row for each worker: HTML without scripts, which
        /// a browser loads anew every five seconds. From any thread. Errors as in `writeMetrics`.
        pub fn writeStatusPage(self: *Self, out: *std.Io.Writer) error{ NotCounted, WriteFailed }!void {
            const counted = self.totals() orelse return error.NotCounted;
            try status_page.begin(out);
            var number: usize = 0;
            while (self.workerStatistics(number)) |stats| : (number += 1) {
                try status_page.writeWorker(out, number, &stats);
            }
            return status_page.end(out, &counted);
        }

        /// The statistics of a worker; null: there is no such worker.
        fn workerStatistics(self: *Self, number: usize) ?Stats {
            if (!self.enter()) return null;
            defer self.leave();
            return switch (self.running) {
                inline else => |server| server.workerStatistics(number),
            };
        }

        fn totals(self: *Self) ?metrics.Totals {
            if (!self.enter()) return null;
            defer self.leave();
            return switch (self.running) {
                inline else => |server| server.totals(),
            };
        }

        /// Opens the access log's file anew, after the old file was moved away. From any thread.
        pub fn reopenAccessLog(self: *Self) void {
            if (!self.enter()) return;
            defer self.leave();
            switch (self.running) {
                inline else => |server| server.reopenAccessLog(),
            }
        }

        /// Frees the server: after `run`, or when it was never started. Connections that are left are cut.
        /// After `start` only a few bytes are left to be freed; a program that ends anyway leaves them.
        pub fn deinit(self: *Self) void {
            self.free();
            shells.destroy(self);
        }

        fn free(self: *Self) void {
            if (self.is_freed.swap(true, .seq_cst)) return;
            while (self.visitors.load(.seq_cst) > 0) std.atomic.spinLoopHint();
            switch (self.running) {
                inline else => |server| server.deinit(),
            }
        }

        /// Whether the server is not freed. If so, `leave` has to follow.
        fn enter(self: *Self) bool {
            // Either this sees `is_freed`, or `free` sees this visitor and waits.
            _ = self.visitors.fetchAdd(1, .seq_cst);
            if (!self.is_freed.load(.seq_cst)) return true;
            self.leave();
            return false;
        }

        fn leave(self: *Self) void {
            _ = self.visitors.fetchSub(1, .release);
        }
    };
}
