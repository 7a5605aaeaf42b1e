//! A connection with its socket, as the worker holds it.
const std = @import("std");
const io_layer = @import("io");
const admission = @import("admission.zig");
const Connection = @import("connection.zig").Connection;

/// A connection that has a socket of its own.
pub const Transport = struct {
    connection: Connection,
    /// `none` once it is closed.
    socket: io_layer.Socket,
    entry: admission.Entry = .{},

    /// Asserts that the connection is no stream.
    pub inline fn of(connection: anytype) switch (@TypeOf(connection)) {
        *Connection => *Transport,
        *const Connection => *const Transport,
        else => unreachable,
    } {
        std.debug.assert(connection.carrier == null);
        return @alignCast(@fieldParentPtr("connection", connection));
    }

    comptime {
        // All that an idle keep-alive connection holds: it has no buffer (test/sim/sim_test.zig).
        std.debug.assert(@sizeOf(Transport) <= 1024 - 16);
    }
};
