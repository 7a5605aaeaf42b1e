//! A client's end of a connection: that of the network, or a session of TLS upon it. Does not know: the
//! meaning of the plaintext.
const per = @import("peregrine");
const Secured = @import("secured.zig").Secured;

pub const Wire = union(enum) {
    plain: per.io.SimPeer,
    secured: *Secured,

    pub fn deinit(wire: Wire) void {
        switch (wire) {
            .plain => {},
            .secured => |secured| secured.destroy(),
        }
    }

    /// The end that the network knows.
    pub fn peer(wire: Wire) per.io.SimPeer {
        return switch (wire) {
            .plain => |own| own,
            .secured => |secured| secured.peer,
        };
    }

    /// Sends bytes; the number of those that were taken.
    pub fn write(wire: Wire, bytes: []const u8) !usize {
        return switch (wire) {
            inline else => |one| one.write(bytes),
        };
    }

    /// Bytes that have come since the last call. Valid until the next one.
    pub fn read(wire: Wire) ![]const u8 {
        return switch (wire) {
            inline else => |one| one.read(),
        };
    }

    /// Ends the sending side behind what was written.
    pub fn shutdown(wire: Wire) !void {
        return switch (wire) {
            inline else => |one| one.shutdown(),
        };
    }

    /// Goes, as a program does that ends.
    pub fn close(wire: Wire) !void {
        return switch (wire) {
            inline else => |one| one.close(),
        };
    }

    /// How the connection has ended; null while there may be more to read.
    pub fn ended(wire: Wire) ?per.io.Ended {
        return switch (wire) {
            inline else => |one| one.ended(),
        };
    }

    /// Whether the client has broken the rules of TLS, or cut its own words short.
    pub fn isSpoiled(wire: Wire) bool {
        return switch (wire) {
            .plain => false,
            .secured => |secured| secured.spoiled,
        };
    }

    /// Whether the server has said the end, where the end of a connection has to be said.
    pub fn hasSaidEnd(wire: Wire) bool {
        return switch (wire) {
            .plain => true,
            .secured => |secured| secured.end == .said,
        };
    }
};
