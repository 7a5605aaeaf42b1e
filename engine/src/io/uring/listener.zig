//! Job: one listening socket of `Uring`: the kernel accepts connections by itself, and they wait here for
//! their round. Does not know: the use of connections.
const std = @import("std");
const linux = std.os.linux;
const io = @import("../io.zig");
const sys = @import("../sys.zig");
const Label = @import("ring.zig").Label;
const Ring = @import("ring.zig").Ring;

pub const Listener = struct {
    fd: sys.Fd,
    address: io.Address,
    state: enum { watched, paused, closed } = .watched,
    /// The kernel has an accept operation.
    armed: bool = false,
    /// Accepted connections, oldest first; those from `held_at` on were not delivered yet.
    held: std.ArrayList(sys.Fd) = .empty,
    held_at: usize = 0,
    /// The errno of a failed accept, delivered after the connections in `held`.
    failure: ?linux.E = null,
    /// Connections that the listener may still deliver in this round.
    budget: u16 = 0,

    fn label(id: u32) Label {
        return .{ .index = id, .kind = .accept };
    }

    /// Begins a round, in which the listener may deliver `budget` connections.
    pub fn begin(listener: *Listener, ring: *Ring, id: u32, budget: u16) void {
        listener.budget = budget;
        if (listener.state != .watched or listener.armed or listener.failure != null) return;
        listener.armed = true;
        ring.accept(listener.fd, label(id));
    }

    /// Handles a completion of the accept operation.
    pub fn note(listener: *Listener, gpa: std.mem.Allocator, result: i32, code: linux.E, more: bool) void {
        if (!more) listener.armed = false;
        if (result >= 0) {
            if (listener.state == .closed) return refuse(result);
            return listener.held.append(gpa, result) catch refuse(result);
        }
        if (code == .CANCELED or sys.isTransientAccept(code)) return;
        listener.failure = code;
    }

    /// Resets an accepted connection that is not delivered.
    fn refuse(fd: sys.Fd) void {
        sys.resetOnClose(fd);
        sys.close(fd);
    }

    /// Whether `next` has an event, in this round or the next.
    pub fn hasNews(listener: *const Listener) bool {
        return listener.state == .watched and
            (listener.held_at < listener.held.items.len or listener.failure != null);
    }

    /// Returns the next connection, or the failure after the last one. A failure pauses the listener. Null:
    /// neither.
    pub fn next(listener: *Listener, id: u32) ?io.Event {
        while (listener.state == .watched and listener.budget > 0 and
            listener.held_at < listener.held.items.len)
        {
            listener.budget -= 1;
            const fd = listener.held.items[listener.held_at];
            listener.held_at += 1;
            if (listener.held_at == listener.held.items.len) {
                listener.held.clearRetainingCapacity();
                listener.held_at = 0;
            }
            var storage: sys.sockaddr.storage = undefined;
            var length: sys.socklen_t = undefined;
            sys.getpeername(fd, &storage, &length) catch {
                sys.close(fd); // the peer is gone already
                continue;
            };
            const peer = io.Address.fromSystem(&storage, length).?;
            return .{ .accepted = .{ .listener = id, .socket = @fromBackingInt(fd), .peer = peer } };
        }
        if (listener.state != .watched or listener.budget == 0) return null;
        const code = listener.failure orelse return null;
        listener.failure = null;
        listener.state = .paused;
        return .{ .accept_failed = .{
            .listener = id,
            .exhausted = sys.isExhaustion(code),
            .errno = sys.number(code),
        } };
    }

    /// Stops accepting; has no effect on a paused or closed listener.
    pub fn pause(listener: *Listener, ring: *Ring, id: u32) void {
        if (listener.state != .watched) return;
        listener.state = .paused;
        if (listener.armed) ring.cancel(label(id));
    }

    /// Accepts again; has no effect unless the listener is paused.
    pub fn unpause(listener: *Listener) void {
        if (listener.state == .paused) listener.state = .watched;
    }

    /// Closes the listener, and resets the connections that it holds.
    pub fn close(listener: *Listener, ring: *Ring, id: u32) void {
        if (listener.state == .closed) return;
        if (listener.armed and listener.state == .watched) ring.cancel(label(id));
        listener.dropHeld();
        listener.state = .closed;
        ring.close(listener.fd);
    }

    /// Closes the listener without the ring, and frees its memory.
    pub fn deinit(listener: *Listener, gpa: std.mem.Allocator) void {
        listener.dropHeld();
        if (listener.state != .closed) sys.close(listener.fd);
        listener.held.deinit(gpa);
    }

    fn dropHeld(listener: *Listener) void {
        for (listener.held.items[listener.held_at..]) |fd| refuse(fd);
        listener.held.clearRetainingCapacity();
        listener.held_at = 0;
        listener.failure = null;
    }
};

test "a client that went before it was accepted is no failure, running out of descriptors is one" {
    const gpa = std.testing.allocator;
    var listener: Listener = .{
        .fd = -1,
        .address = try .parse("127.0.0.1", 0),
        .state = .watched,
        .budget = 1,
    };
    defer listener.held.deinit(gpa);
    listener.note(gpa, -1, .CONNABORTED, true);
    try std.testing.expectEqual(null, listener.next(0));
    listener.note(gpa, -1, .MFILE, false);
    try std.testing.expect(listener.next(0).?.accept_failed.exhausted);
    try std.testing.expectEqual(.paused, listener.state);
}
