//! The socket of a connection to Redis, plain or within TLS. Does not know: what goes through it.
const std = @import("std");
const assert = std.debug.assert;
const peregrine = @import("peregrine");
const hub = @import("hub");
const platform = @import("platform");
const io = peregrine.io;
const polling = io.polling;
const tls = peregrine.tls;
const Insecure = hub.redis.joined.Insecure;
const gpa = platform.gpa;

/// The result of a receipt.
pub const Received = union(enum) {
    done: usize,
    blocked,
    /// The other end is gone.
    ended,
    /// TLS could not be agreed on with the other end.
    insecure: Insecure,
};

/// A socket, which owns its descriptor.
pub const Socket = union(enum) {
    plain: i32,
    secure: *Secure,

    pub fn fd(socket: Socket) i32 {
        return switch (socket) {
            .plain => |own| own,
            .secure => |secure| secure.fd,
        };
    }

    pub fn close(socket: Socket) void {
        const own = socket.fd();
        switch (socket) {
            .plain => {},
            .secure => |secure| secure.destroy(),
        }
        io.file.close(own);
    }

    /// Whether content can be sent: there is no TLS, or its handshake is done.
    pub fn isOpen(socket: Socket) bool {
        return switch (socket) {
            .plain => true,
            .secure => |secure| secure.session.isHandshakeDone(),
        };
    }

    /// Whether bytes that were given to `send` wait until the kernel takes more.
    pub fn hasUnsent(socket: Socket) bool {
        return switch (socket) {
            .plain => false,
            .secure => |secure| secure.unsent().len > 0,
        };
    }

    /// Receives content, or takes the next step of a handshake. To be called until it is blocked.
    pub fn receive(socket: Socket, buffer: []u8) Received {
        return switch (socket) {
            .plain => |own| switch (polling.receive(own, buffer)) {
                .done => |count| .{ .done = count },
                .blocked => .blocked,
                .ended => .ended,
            },
            .secure => |secure| secure.receive(buffer),
        };
    }

    /// Sends some of the bytes, after bytes that wait already; `bytes` may be empty.
    pub fn send(socket: Socket, bytes: []const u8) polling.Outcome {
        return switch (socket) {
            .plain => |own| polling.send(own, bytes),
            .secure => |secure| secure.send(bytes),
        };
    }
};

/// A session of TLS over a socket.
pub const Secure = struct {
    fd: i32,
    session: tls.Session,
    input: [input_bytes]u8 = undefined,
    /// The part of `input` that the session has yet to read.
    start: usize = 0,
    end: usize = 0,
    output: std.ArrayList(u8) = .empty,
    /// Bytes of `output` that the kernel has taken.
    sent: usize = 0,

    const input_bytes = 32 << 10;
    /// The most bytes that are encrypted at once.
    const sent_max = 64 << 10;
    /// The most bytes that wait for the server to read them. A server can make the TLS session answer without
    /// end.
    const unsent_max = 256 << 10;

    /// Owns the descriptor when it has succeeded. The context stays the caller's.
    pub fn create(fd: i32, host: [:0]const u8, context: *tls.Context) error{OutOfMemory}!*Secure {
        const secure = try gpa.create(Secure);
        errdefer gpa.destroy(secure);
        secure.* = .{ .fd = fd, .session = try .initClient(context, host, null) };
        return secure;
    }

    fn destroy(secure: *Secure) void {
        if (secure.session.isHandshakeDone()) {
            // Expected: the server has gone, and hears nothing any more.
            secure.session.shutdown(secure.sink()) catch {};
            _ = secure.flush();
        }
        secure.session.deinit();
        secure.output.deinit(gpa);
        gpa.destroy(secure);
    }

    fn sink(secure: *Secure) tls.Sink {
        return .{ .context = secure, .appendFn = append };
    }

    fn append(context: *anyopaque, bytes: []const u8) tls.Sink.Error!void {
        const secure: *Secure = @ptrCast(@alignCast(context));
        return secure.output.appendSlice(gpa, bytes);
    }

    fn unsent(secure: *const Secure) []const u8 {
        assert(secure.sent <= secure.output.items.len);
        return secure.output.items[secure.sent..];
    }

    fn receive(secure: *Secure, buffer: []u8) Received {
        while (true) {
            assert(secure.start <= secure.end);
            const got = secure.session.receive(secure.input[secure.start..secure.end], buffer, secure.sink());
            secure.start += got.consumed;
            if (secure.flush() == .ended or secure.unsent().len > unsent_max) return .ended;
            switch (got.event) {
                .plaintext => |count| return .{ .done = count },
                .want_more => {},
                .closed => return .ended,
                .plain_http => unreachable, // only servers get this event
                .failed => return .{ .insecure = secure.fault() },
            }
            switch (polling.receive(secure.fd, &secure.input)) {
                .done => |count| {
                    secure.start = 0;
                    secure.end = count;
                },
                .blocked => return .blocked,
                .ended => return .ended,
            }
        }
    }

    fn fault(secure: *const Secure) Insecure {
        return switch (secure.session.distrust() orelse return .no_agreement) {
            .other_name => .other_name,
            .dates => .dates,
            .unknown_authority => .unknown_authority,
        };
    }

    /// Sends waiting bytes. `done`: none are left.
    fn flush(secure: *Secure) polling.Outcome {
        while (secure.unsent().len > 0) switch (polling.send(secure.fd, secure.unsent())) {
            .done => |count| secure.sent += count,
            .blocked => return .blocked,
            .ended => return .ended,
        };
        secure.output.clearRetainingCapacity();
        secure.sent = 0;
        return .{ .done = 0 };
    }

    fn send(secure: *Secure, bytes: []const u8) polling.Outcome {
        switch (secure.flush()) {
            .done => {},
            .blocked => return .blocked,
            .ended => return .ended,
        }
        const part = bytes[0..@min(bytes.len, sent_max)];
        secure.session.write(part, secure.sink()) catch return .ended;
        return if (secure.flush() == .ended) .ended else .{ .done = part.len };
    }
};

test "a socket within TLS is closed with its session" {
    if (!tls.enabled) return error.SkipZigTest;
    const both = try io.streams.pair();
    defer io.file.close(both[0]);
    var diagnostic: tls.Diagnostic = .{};
    const context: *tls.Context = try .initClient(gpa, .{ .authorities = .system }, &diagnostic);
    defer context.deinit();
    const socket: Socket = .{ .secure = try .create(both[1], "localhost", context) };
    socket.close();
    var buffer: [1]u8 = undefined;
    try std.testing.expect(polling.receive(both[0], &buffer) == .ended);
}
