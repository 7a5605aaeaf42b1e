//! Job: the state that a `Uring` keeps for one descriptor. Does not know: the ring.
const assert = @import("std").debug.assert;
const io = @import("../io.zig");
const Phase = @import("../phase.zig").Phase;
const Block = @import("outgoing.zig").Block;
const Label = @import("ring.zig").Label;
const Pieces = @import("pieces.zig").Pieces;

pub const Entry = struct {
    token: io.Token = 0,
    /// The next entry in the queue; valid if `flags.queued` and it is not the last.
    next: u32 = 0,
    /// The number of closes of this descriptor, by which completions for an earlier owner are recognised.
    generation: u28 = 0,
    phase: Phase = .vacant,
    flags: Flags = .{},
    /// Received bytes that are not delivered yet.
    pieces: Pieces = .{},
    /// The end of the input, to be delivered after the pieces.
    end: End = .none,
    /// Bytes that the kernel had no room for and sends when it has.
    block: ?*Block = null,
    /// The number of the socket's send in the batch, if there is one (see `Outgoing.holds`).
    send: u16 = 0,
    /// The round in which the socket last delivered bytes.
    round: u32 = 0,

    comptime {
        // One line of the processor's cache.
        assert(@sizeOf(Entry) <= 64);
    }

    /// The way in which the peer stopped sending; `reset` has the errno.
    pub const End = union(enum) { none, eof, reset: u16 };

    /// Facts that do not depend on the phase.
    pub const Flags = packed struct(u16) {
        /// The socket is in the queue.
        queued: bool = false,
        /// The caller wants no bytes of this socket at present.
        paused: bool = false,
        /// The kernel has a receive operation for this socket.
        receives: bool = false,
        /// The kernel was told to end that receive operation.
        stopping: bool = false,
        /// The kernel had no free buffer for the socket, which is in `Uring.starved`.
        starved: bool = false,
        /// A send was refused or cut short.
        blocked: bool = false,
        /// The kernel will report when there is room.
        awaits_room: bool = false,
        /// A `sent` event is to be delivered.
        sent_due: bool = false,
        /// Our sending side has ended, or will when the block is sent.
        send_shut: bool = false,
        /// The kernel will report errors.
        watches_trouble: bool = false,
        /// The kernel reported the end of the peer's sending side, before a receive has found it.
        peer_shut: bool = false,
        /// An `ending` was delivered.
        ending_told: bool = false,
        /// Bytes were sent on the socket before.
        has_sent: bool = false,
        /// The descriptor is in the kernel's table of files.
        attached: bool = false,
        _: u2 = 0,
    };

    /// Returns the label of an operation on this descriptor.
    pub fn label(entry: *const Entry, index: u32, kind: Label.Kind) Label {
        return .{ .index = index, .generation = entry.generation, .kind = kind };
    }

    /// Changes to the phase after an end, and returns the event of that end.
    pub fn finish(entry: *Entry, how: io.Ended, errno: u16) io.Event {
        entry.phase = .after(how);
        return .{ .ended = .{ .token = entry.token, .how = how, .errno = errno } };
    }
};
