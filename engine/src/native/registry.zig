//! Numbers for open WebSockets, so that any thread can name a WebSocket without holding on to it:
//! `writeMessage(number, …)` has nothing but the number. One table per process, because a number has to find
//! its server by itself; it is empty unless WebSockets are open. A number is no descriptor, and is not given
//! out again before two thousand million others were: a late message cannot reach another WebSocket. Does not
//! know: what is sent.
const std = @import("std");
const assert = std.debug.assert;
const Inbox = @import("server").Inbox;
const Ticket = @import("server").Ticket;

/// The number of an open WebSocket. It has the type of a socket, because that is what handlers of the
/// package's first shape take.
pub const Id = std.posix.socket_t;

/// The inbox of a WebSocket's worker, and its ticket there.
pub const Place = struct { inbox: *Inbox, ticket: Ticket };

/// For all threads; the program's own allocator would not do, because the table outlives servers.
const gpa = std.heap.smp_allocator;

var busy: std.atomic.Value(bool) = .init(false);
var places: std.AutoHashMapUnmanaged(Id, Place) = .empty;
var last: u31 = 0;

/// A number for a WebSocket that has just opened. The place holds no reference: `remove` it
/// before the inbox goes.
pub fn add(place: Place) error{OutOfMemory}!Id {
    lock();
    defer unlock();
    try places.ensureUnusedCapacity(gpa, 1);
    while (true) {
        last +%= 1;
        if (last == 0 or places.contains(last)) continue;
        places.putAssumeCapacityNoClobber(last, place);
        return last;
    }
}

/// Forgets a WebSocket that has ended.
pub fn remove(id: Id) void {
    lock();
    defer unlock();
    const known = places.remove(id);
    assert(known);
    if (places.count() == 0) places.clearAndFree(gpa);
}

/// The place of a WebSocket, with a reference to its inbox that the caller releases; null if it has ended.
pub fn find(id: Id) ?Place {
    lock();
    defer unlock();
    const place = places.get(id) orelse return null;
    place.inbox.retain();
    return place;
}

/// Takes the lock, which is held only while the table is read or changed.
fn lock() void {
    while (busy.swap(true, .acquire)) std.Thread.yield() catch {};
}

fn unlock() void {
    busy.store(false, .release);
}

test "a number is found until it is removed, and is not used again at once" {
    const silent: Inbox.Waker = .{ .context = undefined, .wake = undefined };
    const inbox: *Inbox = try .create(std.testing.allocator, silent, 0);
    defer inbox.release();
    const first = try add(.{ .inbox = inbox, .ticket = .none });
    const found = find(first).?;
    try std.testing.expectEqual(inbox, found.inbox);
    found.inbox.release();
    remove(first);
    try std.testing.expectEqual(null, find(first));
    const second = try add(.{ .inbox = inbox, .ticket = .none });
    defer remove(second);
    try std.testing.expect(second != first);
    try std.testing.expect(second > 0);
}
