//! The phase of a connection, for all ios over descriptors of a kernel. Does not know: the kernel, and the
//! rest of an io's state.
const io = @import("io.zig");
const sys = @import("sys.zig");

pub const Phase = union(enum) {
    /// The place has no socket.
    vacant,
    open,
    /// The peer's eof was delivered.
    eof,
    /// The socket has failed with this errno, and the reset was not delivered yet.
    dying: u16,
    /// The reset was delivered.
    dead,

    /// The phase after the end `how` was delivered.
    pub fn after(how: io.Ended) Phase {
        return switch (how) {
            .eof => .eof,
            .reset => .dead,
        };
    }

    /// The errno because of which nothing can be sent; null: sending is possible.
    pub fn deathErrno(phase: Phase) ?u16 {
        return switch (phase) {
            .vacant => unreachable,
            .open, .eof => null,
            .dying => |errno| errno,
            .dead => sys.number(.PIPE),
        };
    }
};
