//! A request that waits for an interpreter, or was offered to one that has not taken it yet. An offer keeps
//! the request's events, so that they can go to another interpreter.
//! Does not know: when an offer changes hands (claim.zig).
const std = @import("std");
const assert = std.debug.assert;
const peregrine = @import("peregrine");
const Batch = @import("batch.zig").Batch;
const encoded_event = @import("encoded_event.zig");
const types = @import("types.zig");

/// The events of a request and its place in a queue. A free offer serves the next request.
pub const Offer = struct {
    /// An offer is in the pool's queue, in the list of a seat, or among the spare offers.
    node: std.DoublyLinkedList.Node = .{},
    /// The request's head, with the beginning of its body, and its trailers.
    batch: Batch,
    ticket: peregrine.Ticket = undefined,
    /// The request's place in the order of arrival.
    arrival: u64 = 0,
    /// When the request began to wait, in milliseconds.
    arrived_at: u64 = 0,
    /// The interpreters that the request waits for.
    takers: Takers = .first,
    /// The group of interpreters that get requests first.
    group: u8 = 0,
    /// The work of the interpreter that may take the request; null: none may, yet. Written by claim.zig.
    work: ?*Work = null,

    /// Puts a body that is too long for a ring into a file, which goes with the request.
    pub fn keepAsFile(offer: *Offer, event: *types.Event) error{OutOfMemory}!void {
        try offer.batch.with_files.ensureUnusedCapacity(offer.batch.gpa, 1);
        const request: *types.Request = @constCast(event.request.?);
        assert(request.body_fd < 0 and event.len > 0);
        const bytes = event.bytes[0..event.len];
        request.body_fd = peregrine.io.sharing.fileOf(bytes) catch return error.OutOfMemory;
        offer.batch.with_files.appendAssumeCapacity(request);
        event.len = 0;
    }

    /// Bytes that an event of the offer takes in a ring, its body included.
    pub fn sizeAt(offer: *const Offer, index: usize) usize {
        const event = &offer.batch.events.items[index];
        return encoded_event.size(event, Batch.factsOf(event));
    }
};

/// A kind of interpreters. Requests wait in a queue for interpreters of one kind.
pub const Takers = enum {
    /// Interpreters that get every request first, as it comes.
    first,
    /// Interpreters that get the requests that others hand over. They work on one request at a time, because
    /// their applications may block.
    handed,
};

/// Requests that interpreters have handed over, and that wait for other interpreters.
pub const Handed = struct {
    queue: Offers = .{},
    count: u64 = 0,

    /// A request waits anew, behind those that were handed over before.
    pub fn wait(handed: *Handed, offer: *Offer, now: u64) void {
        handed.count += 1;
        offer.takers = .handed;
        offer.arrival = handed.count;
        offer.arrived_at = now;
        handed.queue.append(offer);
    }

    /// A request that an interpreter has given back waits again, by its order.
    pub fn waitAgain(handed: *Handed, offer: *Offer) void {
        assert(offer.takers == .handed);
        handed.queue.insert(offer);
    }
};

/// The requests of one interpreter. Written by claim.zig.
pub const Work = struct {
    /// Offers that the interpreter was not seen to take, the oldest first.
    offered: Offers = .{},
    /// Exchanges that the interpreter works on or was offered (`Claim.isLoad`).
    load: u32 = 0,
    /// The most that `load` ever was.
    load_max: u32 = 0,

    pub fn invariants(work: *const Work) void {
        assert(work.offered.count <= work.load and work.load <= work.load_max);
    }
};

/// A list of offers, with its length.
pub const Offers = struct {
    list: std.DoublyLinkedList = .{},
    count: u32 = 0,

    fn at(node: *std.DoublyLinkedList.Node) *Offer {
        return @fieldParentPtr("node", node);
    }

    pub fn first(offers: *const Offers) ?*Offer {
        return at(offers.list.first orelse return null);
    }

    pub fn last(offers: *const Offers) ?*Offer {
        return at(offers.list.last orelse return null);
    }

    pub fn append(offers: *Offers, offer: *Offer) void {
        offers.list.append(&offer.node);
        offers.count += 1;
    }

    pub fn prepend(offers: *Offers, offer: *Offer) void {
        assert(offer.work == null);
        offers.list.prepend(&offer.node);
        offers.count += 1;
    }

    /// Adds an offer where it belongs by the order of arrival. An offer that comes back is older than most.
    pub fn insert(offers: *Offers, offer: *Offer) void {
        assert(offer.work == null);
        var next = offers.list.first;
        while (next) |node| : (next = node.next) if (at(node).arrival > offer.arrival) {
            offers.list.insertBefore(node, &offer.node);
            offers.count += 1;
            return;
        };
        offers.append(offer);
    }

    pub fn remove(offers: *Offers, offer: *Offer) void {
        assert(offers.count > 0);
        offers.list.remove(&offer.node);
        offers.count -= 1;
    }

    pub fn pop(offers: *Offers) ?*Offer {
        const offer = offers.first() orelse return null;
        offers.remove(offer);
        return offer;
    }

    /// Asserts what always holds. Looks at every offer: for tests.
    pub fn invariants(offers: *const Offers) void {
        assert(offers.list.len() == offers.count);
        assert((offers.list.first == null) == (offers.count == 0));
    }
};

test "offers come back in the order of their arrival" {
    var waiting: Offers = .{};
    var all: [4]Offer = undefined;
    for (&all, 1..) |*offer, arrival| offer.* = .{ .batch = undefined, .arrival = arrival };
    for ([_]usize{ 1, 3, 0, 2 }) |index| waiting.insert(&all[index]);
    waiting.invariants();
    try std.testing.expectEqual(&all[3], waiting.last().?);
    for (&all) |*offer| try std.testing.expectEqual(offer, waiting.pop().?);
    try std.testing.expectEqual(null, waiting.first());
    try std.testing.expectEqual(0, waiting.count);
}
