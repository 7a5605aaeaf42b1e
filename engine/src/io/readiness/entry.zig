//! Job: what a readiness io remembers of one descriptor.
//! Does not know: the kernel.
const std = @import("std");
const io = @import("../io.zig");
const Phase = @import("../phase.zig").Phase;
const assert = std.debug.assert;

/// The label that the kernel gives back with a report: it names the entry that the report is about.
pub const Label = packed struct(u64) {
    index: u32,
    generation: u30,
    kind: enum(u2) { socket, listener, waker, timer },
};

/// The state of a descriptor that is watched.
pub const Entry = struct {
    token: io.Token,
    /// The next in the queue, if `flags.queued` and not the last.
    next: u32,
    /// Counts closes, so that reports of an earlier owner of this number are recognised.
    generation: u30,
    phase: Phase,
    flags: Flags,

    /// Facts that are independent of the phase.
    pub const Flags = packed struct(u16) {
        /// The socket waits in the queue for its turn.
        queued: bool = false,
        /// The caller wants no bytes of this socket for now.
        paused: bool = false,
        /// A receive may find something: bytes, the end or an error.
        readable: bool = false,
        /// The kernel reported an end or an error, which it will not report again.
        ending: bool = false,
        /// An `ending` was delivered.
        ending_told: bool = false,
        /// The kernel reported an error.
        failed: bool = false,
        /// A send was cut short and the kernel has not reported room since.
        blocked: bool = false,
        /// A `sent` event is to be delivered.
        sent_due: bool = false,
        /// The poller also reports when the socket has room for output.
        watches_room: bool = false,
        /// Our sending side is ended.
        send_shut: bool = false,
        /// The caller is to be asked where the next bytes are to be received.
        asks_first: bool = false,
        _: u5 = 0,
    };

    /// The label by which the kernel reports about the entry at `index`.
    pub fn label(self: *const Entry, index: u32) Label {
        return .{ .kind = .socket, .index = index, .generation = self.generation };
    }

    /// Turns to the phase after this end, and makes the event that says so.
    pub fn end(self: *Entry, how: io.Ended, errno: u16) io.Event {
        self.phase = .after(how);
        self.flags.readable = false;
        return .{ .ended = .{ .token = self.token, .how = how, .errno = errno } };
    }

    /// The event by which a paused socket announces an end that the kernel has reported: delivered once,
    /// before the end itself.
    pub fn takeEnding(self: *Entry) ?io.Event {
        if (self.phase != .open or !self.flags.ending or self.flags.ending_told) return null;
        self.flags.ending_told = true;
        return .{ .ending = .{ .token = self.token } };
    }

    comptime {
        assert(@sizeOf(Entry) == 24); // 10 000 connections: 240 kB
    }
};
