//! The ring pair that a host's events go through, as the host knows it: how far they are in the ring, the
//! table that the application sees, and some questions for the engine's end (engine_end.zig). Does not know:
//! how the ring pair works.
const platform = @import("platform");
const Slots = @import("slots.zig").Slots;
const types = @import("types.zig");
const Atomic = platform.Atomic;

/// The host's part of an engine's end.
pub const Link = struct {
    slots: *const Slots,
    /// The number of events of the host's last batch that are in the ring.
    delivered: usize = 0,
    /// Requests that were given up for want of memory. The application reads this.
    shed: Atomic(u32) = .init(0),
    calls: *const Calls,

    /// The functions of the engine's end, described in engine_end.zig.
    pub const Calls = struct {
        patience: *const fn (link: *Link, wanted_ms: i32) i32,
        waited: *const fn (link: *Link) void,
        owesMessages: *const fn (link: *Link, ticket: types.Ticket) bool,
        isHeard: *const fn (link: *Link) bool,
    };

    /// Notes in memory that the application reads, too, that a request was given up for want of memory. The
    /// application can free its own memory at once, while the event of the request's end is still behind
    /// other events.
    pub fn noteShed(link: *Link, ticket: types.Ticket) void {
        link.slots.noteShed(ticket);
        _ = link.shed.fetchAdd(1, .release);
    }
};
