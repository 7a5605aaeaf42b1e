//! Job: what `Uring` knows about one descriptor.
//! Does not know: the ring.
const assert = @import("std").debug.assert;
const io = @import("../io.zig");
const Phase = @import("../phase.zig").Phase;
const Block = @import("outgoing.zig").Block;
const Label = @import("ring.zig").Label;
const Pieces = @import("pieces.zig").Pieces;

/// The state of a descriptor.
pub const Entry = struct {
    token: io.Token = 0,
    /// The next in the queue, if `flags.queued` and not the last.
    next: u32 = 0,
    /// Counts closes, so that completions for an earlier owner of this number are recognised.
    generation: u28 = 0,
    phase: Phase = .vacant,
    flags: Flags = .{},
    /// Received bytes that are not delivered yet.
    pieces: Pieces = .{},
    /// The end of the input, to be delivered after the pieces.
    end: End = .none,
    /// Bytes that the kernel goes on sending when it has room.
    block: ?*Block = null,
    /// The number of the socket's send in the batch, if it has one (see `Outgoing.holds`).
    send: u16 = 0,
    /// The round in which it last delivered bytes.
    round: u32 = 0,

    comptime {
        // A line of the processor's cache.
        assert(@sizeOf(Entry) <= 64);
    }

    /// How the peer stopped sending.
    pub const End = union(enum) { none, eof, reset: u16 };

    /// Facts that are independent of the phase.
    pub const Flags = packed struct(u16) {
        /// The socket waits in the queue for its turn.
        queued: bool = false,
        /// The caller wants no bytes for now.
        paused: bool = false,
        /// A receive for this socket is with the kernel.
        receives: bool = false,
        /// The kernel was told to end the receive that is under way.
        stopping: bool = false,
        /// The socket found no receive buffer, and waits in `Uring.starved`.
        starved: bool = false,
        /// A send was refused or cut short.
        blocked: bool = false,
        /// The kernel will tell when there is room.
        awaits_room: bool = false,
        /// A `sent` event is to be delivered.
        sent_due: bool = false,
        /// Our sending side is ended, or will be as soon as the block is sent.
        send_shut: bool = false,
        /// The kernel will tell of errors.
        watches_trouble: bool = false,
        /// The kernel said that the peer has ended its sending side, before the end itself is received.
        peer_shut: bool = false,
        /// An `ending` was delivered.
        ending_told: bool = false,
        /// Bytes were sent on the socket.
        has_sent: bool = false,
        /// The kernel's table of files has the descriptor.
        attached: bool = false,
        _: u2 = 0,
    };

    /// The label of an operation on this descriptor.
    pub fn label(entry: *const Entry, index: u32, kind: Label.Kind) Label {
        return .{ .index = index, .generation = entry.generation, .kind = kind };
    }

    /// Turns to the phase after this end, and makes the event that says so.
    pub fn finish(entry: *Entry, how: io.Ended, errno: u16) io.Event {
        entry.phase = .after(how);
        return .{ .ended = .{ .token = entry.token, .how = how, .errno = errno } };
    }
};
