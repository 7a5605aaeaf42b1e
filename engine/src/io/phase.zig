//! Job: how far a connection is, for every io that looks after descriptors of a kernel.
//! Does not know: the kernel, and what else an io remembers.
const io = @import("io.zig");
const sys = @import("sys.zig");

/// How far a connection is.
pub const Phase = union(enum) {
    /// The place has no socket.
    vacant,
    open,
    /// The peer's end was delivered.
    eof,
    /// The socket has failed with this errno, and the event is not delivered yet.
    dying: u16,
    /// The reset was delivered.
    dead,

    /// The phase after this end was delivered.
    pub fn after(how: io.Ended) Phase {
        return switch (how) {
            .eof => .eof,
            .reset => .dead,
        };
    }

    /// Why nothing can be sent, or null if it can.
    pub fn deathErrno(phase: Phase) ?u16 {
        return switch (phase) {
            .vacant => unreachable,
            .open, .eof => null,
            .dying => |errno| errno,
            .dead => sys.number(.PIPE),
        };
    }
};
