//! A request that waits for an interpreter, or was offered to one that has not taken it yet: what is to be
//! told of it, so that it can be told to another one.
const std = @import("std");
const peregrine = @import("peregrine");
const Batch = @import("batch.zig").Batch;
const encoded_event = @import("encoded_event.zig");
const Seat = @import("seat.zig").Seat;
const types = @import("types.zig");
const Exchange = peregrine.Exchange;

/// One such request. It is used again for others.
pub const Offer = struct {
    /// In the pool's queue, in the list of a seat, or among the spare ones.
    node: std.DoublyLinkedList.Node = .{},
    /// Its head, with the beginning of its body; its trailers.
    batch: Batch,
    ticket: peregrine.Ticket = undefined,
    /// Its place in the order of arrival.
    arrival: u64 = 0,
    arrived_at: u64 = 0,
    /// To whom it was offered; null: it waits.
    seat: ?*Seat = null,

    /// The offer of an exchange that nobody has taken; null: somebody has.
    pub fn of(exchange: *const Exchange) ?*Offer {
        return @ptrCast(@alignCast(exchange.user));
    }

    /// The offer of a node in one of the lists.
    pub fn at(node: *std.DoublyLinkedList.Node) *Offer {
        return @fieldParentPtr("node", node);
    }

    /// Puts a body that is too long for a ring into a file, which goes with the request.
    pub fn keepAsFile(offer: *Offer, event: *types.Event) error{OutOfMemory}!void {
        try offer.batch.with_files.ensureUnusedCapacity(offer.batch.gpa, 1);
        const request: *types.Request = @constCast(event.request.?);
        const bytes = event.bytes[0..event.len];
        request.body_fd = peregrine.io.sharing.fileOf(bytes) catch return error.OutOfMemory;
        offer.batch.with_files.appendAssumeCapacity(request);
        event.len = 0;
    }

    /// Bytes that it takes in a ring.
    pub fn size(offer: *const Offer) usize {
        var sum: usize = 0;
        for (offer.batch.events.items) |*event| {
            sum += encoded_event.size(event, Batch.factsOf(event));
        }
        return sum;
    }
};
