//! A thread that only accepts: it has listeners and an io of its own, and gives each connection away at once.
//! Does not know: who serves connections, and how the worker of a connection is chosen.
const std = @import("std");
const io = @import("io");

/// Accepts connections with one io, for all workers. `Receiver` has `connected(*Receiver, listener: usize,
/// io.Socket, peer: io.Address) bool`, which takes the socket over unless it answers false, and
/// `isStopping(*Receiver) bool`.
pub fn Acceptor(comptime Io: type, comptime Receiver: type) type {
    return struct {
        const Self = @This();

        io: Io,
        receiver: *Receiver,
        /// Pause after descriptors ran out, in milliseconds.
        pause_ms: u32,
        thread: ?std.Thread = null,
        /// When accepting goes on, in milliseconds; 0: it is not paused.
        resume_at: u64 = 0,

        pub fn init(gpa: std.mem.Allocator, receiver: *Receiver, pause_ms: u32) !Self {
            // The acceptor's io receives connections only.
            return .{
                .io = try .init(gpa, .{ .receive_buffer_bytes = 1 }),
                .receiver = receiver,
                .pause_ms = pause_ms,
            };
        }

        pub fn deinit(self: *Self) void {
            self.io.deinit();
        }

        /// Listens; returns the bound address. Listeners are numbered in the order of these calls.
        pub fn listen(self: *Self, address: io.Address, options: io.ListenOptions) !io.Address {
            return self.io.listenerAddress(try self.io.listen(address, options));
        }

        /// Takes over a socket that listens already; returns its address.
        pub fn adopt(self: *Self, fd: i32) !io.Address {
            return self.io.listenerAddress(try self.io.adoptListener(fd));
        }

        /// Shares the listeners of another acceptor, under the same numbers.
        pub fn share(self: *Self, other: *const Self) !void {
            for (other.io.listeners.items) |listener| {
                const fd = try io.file.duplicate(listener.fd);
                errdefer io.file.close(fd);
                _ = try self.io.adoptListener(fd);
            }
        }

        /// Accepts until the receiver stops.
        pub fn run(self: *Self) void {
            while (!self.receiver.isStopping()) self.round(-1);
            self.io.closeListeners();
        }

        /// Waits once, and accepts the connections that are there.
        pub fn round(self: *Self, timeout_ms: i32) void {
            // On real kernels waiting never fails.
            _ = self.io.wait(if (self.resume_at == 0) timeout_ms else @intCast(self.pause_ms)) catch return;
            while (self.io.next()) |event| switch (event) {
                .accepted => |accepted| {
                    const taken = self.receiver.connected(accepted.listener, accepted.socket, accepted.peer);
                    if (!taken) self.io.close(accepted.socket);
                },
                .accept_failed => |failure| self.pause(failure.errno),
                .woken => {},
                .arrived, .received, .ending, .ended, .sent => unreachable, // no socket was added
            };
            self.tryResume();
        }

        fn pause(self: *Self, errno: u16) void {
            if (self.resume_at == 0) std.log.scoped(.peregrine).warn("accepting pauses: errno {d}", .{errno});
            self.resume_at = self.io.now() + self.pause_ms;
        }

        fn tryResume(self: *Self) void {
            if (self.resume_at == 0 or self.io.now() < self.resume_at) return;
            self.resume_at = 0;
            for (0..self.io.listeners.items.len) |id| self.io.resumeAccept(@intCast(id)) catch {
                self.resume_at = self.io.now() + self.pause_ms;
            };
        }
    };
}
