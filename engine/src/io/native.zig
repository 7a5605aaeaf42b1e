//! Job: the io of a Linux server, chosen when it is created: epoll, or io_uring if that was asked for and the kernel agrees.
//! Refuses to know: what either of them does. One jump per call, always to the same side.
const std = @import("std");
const io = @import("io.zig");
const sys = @import("sys.zig");
const Address = io.Address;
const Socket = io.Socket;

/// `Epoll` or `Uring`, see there.
pub const Native = struct {
    backend: Backend,
    /// Why it is not the one that was asked for.
    refusal: ?Refusal = null,

    const Backend = union(enum) { epoll: io.Epoll, uring: io.Uring };

    /// What a kernel has against io_uring.
    pub const Refusal = error{ AccessDenied, Unsupported };

    pub const Options = io.Options;

    /// Why there is no io.
    pub const InitError = io.Epoll.InitError;

    /// Creates what `options.backend` asks for, or else epoll.
    pub fn init(gpa: std.mem.Allocator, options: Options) InitError!Native {
        var refusal: ?Refusal = null;
        if (options.backend == .uring) {
            if (io.Uring.init(gpa, options)) |uring| return .{ .backend = .{ .uring = uring } } else |err| switch (err) {
                error.AccessDenied => refusal = error.AccessDenied,
                error.Unsupported => refusal = error.Unsupported,
                else => |other| return other,
            }
        }
        return .{ .backend = .{ .epoll = try .init(gpa, options) }, .refusal = refusal };
    }

    pub fn deinit(self: *Native) void {
        switch (self.backend) {
            inline else => |*backend| backend.deinit(),
        }
    }

    /// A descriptor that a host loop may watch for reading.
    pub fn fd(self: *Native) i32 {
        return switch (self.backend) {
            inline else => |*backend| backend.fd(),
        };
    }

    /// Milliseconds of the monotonic clock.
    pub fn now(_: *const Native) u64 {
        return sys.monotonicMs();
    }

    /// Seconds since 1970 (UTC), up to one kernel tick (1 to 10 ms) late.
    pub fn wallSeconds(_: *const Native) u64 {
        return sys.wallSeconds();
    }

    /// Why an address cannot be listened at.
    pub const ListenError = io.Epoll.ListenError;

    /// Listens at an address and begins to accept; the listener's id.
    pub fn listen(self: *Native, address: Address, options: io.ListenOptions) ListenError!u32 {
        return switch (self.backend) {
            inline else => |*backend| backend.listen(address, options),
        };
    }

    /// Takes over a socket that listens already.
    pub fn adoptListener(self: *Native, listener: sys.Fd) ListenError!u32 {
        return switch (self.backend) {
            inline else => |*backend| backend.adoptListener(listener),
        };
    }

    /// Where a listener listens; after listening at port 0, with the real port.
    pub fn listenerAddress(self: *const Native, id: u32) Address {
        return switch (self.backend) {
            inline else => |*backend| backend.listenerAddress(id),
        };
    }

    /// How many listeners there are, closed ones included; they are numbered from 0 on.
    pub fn listenerCount(self: *const Native) u32 {
        return switch (self.backend) {
            inline else => |*backend| @intCast(backend.listeners.items.len),
        };
    }

    /// A listener's descriptor, which stays the io's own.
    pub fn listenerFd(self: *const Native, id: u32) sys.Fd {
        return switch (self.backend) {
            inline else => |*backend| backend.listeners.items[id].fd,
        };
    }

    /// Sockets that are accepted from now on send small packets when they have waited for more (Nagle's algorithm).
    pub fn gatherPackets(self: *Native) void {
        for (0..self.listenerCount()) |id| {
            // A Unix socket has no such option, and no such delay.
            sys.setOption(self.listenerFd(@intCast(id)), .no_delay, 0) catch {};
        }
    }

    /// Accepts no more for now.
    pub fn pauseAccept(self: *Native, id: u32) void {
        switch (self.backend) {
            inline else => |*backend| backend.pauseAccept(id),
        }
    }

    /// Accepts again. After an error it is still paused: try again later.
    pub fn resumeAccept(self: *Native, id: u32) sys.ResourceError!void {
        return switch (self.backend) {
            inline else => |*backend| backend.resumeAccept(id),
        };
    }

    /// Closes all listeners for good. Connections live on.
    pub fn closeListeners(self: *Native) void {
        switch (self.backend) {
            inline else => |*backend| backend.closeListeners(),
        }
    }

    /// Why a socket cannot be looked after.
    pub const AddError = io.Epoll.AddError;

    /// Begins to deliver the events of an accepted socket, with this token.
    pub fn add(self: *Native, socket: Socket, token: io.Token) AddError!void {
        return switch (self.backend) {
            inline else => |*backend| backend.add(socket, token),
        };
    }

    /// Closes a socket, added or not. None of its events is delivered from now on.
    pub fn close(self: *Native, socket: Socket) void {
        switch (self.backend) {
            inline else => |*backend| backend.close(socket),
        }
    }

    /// Closes with a reset.
    pub fn reset(self: *Native, socket: Socket) void {
        switch (self.backend) {
            inline else => |*backend| backend.reset(socket),
        }
    }

    /// Delivers no bytes of a socket until `resumeReading`.
    pub fn pause(self: *Native, socket: Socket) void {
        switch (self.backend) {
            inline else => |*backend| backend.pause(socket),
        }
    }

    /// Delivers again, first what came meanwhile.
    pub fn resumeReading(self: *Native, socket: Socket) void {
        switch (self.backend) {
            inline else => |*backend| backend.resumeReading(socket),
        }
    }

    /// Sends slices in order, as far as they go at once.
    pub fn send(self: *Native, socket: Socket, slices: []const io.Slice, more: bool) io.SendResult {
        return switch (self.backend) {
            inline else => |*backend| backend.send(socket, slices, more),
        };
    }

    /// Sends from a file, as far as it goes at once.
    pub fn sendFile(self: *Native, socket: Socket, file: sys.Fd, offset: u64, len: u64) io.SendResult {
        return switch (self.backend) {
            inline else => |*backend| backend.sendFile(socket, file, offset, len),
        };
    }

    /// Ends our sending side.
    pub fn shutdownSend(self: *Native, socket: Socket) void {
        switch (self.backend) {
            inline else => |*backend| backend.shutdownSend(socket),
        }
    }

    /// Makes the kernel ask a silent peer whether it is still there.
    pub fn probe(self: *Native, socket: Socket) void {
        switch (self.backend) {
            inline else => |*backend| backend.probe(socket),
        }
    }

    /// The address that the peer connected to; null if the kernel does not tell.
    pub fn localAddress(self: *Native, socket: Socket) ?Address {
        return switch (self.backend) {
            inline else => |*backend| backend.localAddress(socket),
        };
    }

    /// Ends a `wait` and lets `next` deliver `woken`. From any thread.
    pub fn wake(self: *Native) void {
        switch (self.backend) {
            inline else => |*backend| backend.wake(),
        }
    }

    /// For host loops, as the last call before control goes back.
    pub fn alarm(self: *Native, at_ms: ?u64) sys.ResourceError!void {
        return switch (self.backend) {
            inline else => |*backend| backend.alarm(at_ms),
        };
    }

    /// Begins a round; about how many things `next` will look at.
    pub fn wait(self: *Native, timeout_ms: i32) io.WaitError!usize {
        return switch (self.backend) {
            inline else => |*backend| backend.wait(timeout_ms),
        };
    }

    /// The next event of this round, or null at its end.
    pub fn next(self: *Native) ?io.Event {
        return switch (self.backend) {
            inline else => |*backend| backend.next(),
        };
    }
};

test {
    std.testing.refAllDecls(Native);
}
