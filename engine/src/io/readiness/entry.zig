//! Job: the state that a readiness io keeps for one descriptor. Does not know: the kernel.
const std = @import("std");
const io = @import("../io.zig");
const Phase = @import("../phase.zig").Phase;
const assert = std.debug.assert;

/// The label that the kernel returns with a report; it identifies the report's entry.
pub const Label = packed struct(u64) {
    index: u32,
    generation: u30,
    kind: enum(u2) { socket, listener, waker, timer },
};

/// The state of a watched descriptor.
pub const Entry = struct {
    token: io.Token,
    /// The next entry in the queue; valid if `flags.queued` and it is not the last.
    next: u32,
    /// The number of closes of this descriptor, by which reports for an earlier owner are recognised.
    generation: u30,
    phase: Phase,
    flags: Flags,

    /// Facts that do not depend on the phase.
    pub const Flags = packed struct(u16) {
        /// The socket is in the queue.
        queued: bool = false,
        /// The caller wants no bytes of this socket at present.
        paused: bool = false,
        /// A receive may find bytes, the end or an error.
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
        /// The next bytes are announced by `arrived`, so that the caller may receive them itself.
        asks_first: bool = false,
        _: u5 = 0,
    };

    /// Returns the kernel's label of the entry at `index`.
    pub fn label(self: *const Entry, index: u32) Label {
        return .{ .kind = .socket, .index = index, .generation = self.generation };
    }

    /// Changes to the phase after an end, and returns the event of that end.
    pub fn end(self: *Entry, how: io.Ended, errno: u16) io.Event {
        self.phase = .after(how);
        self.flags.readable = false;
        return .{ .ended = .{ .token = self.token, .how = how, .errno = errno } };
    }

    /// Returns the event that announces an end to the owner of a paused socket, once and before the end
    /// itself; null: none.
    pub fn takeEnding(self: *Entry) ?io.Event {
        if (self.phase != .open or !self.flags.ending or self.flags.ending_told) return null;
        self.flags.ending_told = true;
        return .{ .ending = .{ .token = self.token } };
    }

    comptime {
        assert(@sizeOf(Entry) == 24); // 10 000 connections: 240 kB
    }
};
