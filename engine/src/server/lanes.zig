//! All lanes of a worker, of transports and of streams.
const Lane = @import("lane.zig").Lane;
const slab = @import("slab.zig");
const Stream = @import("stream.zig").Stream;
const Transport = @import("transport.zig").Transport;

/// An iterator over the lanes of transports, then over those of streams. Lanes may end meanwhile.
pub const Lanes = struct {
    transports: slab.Slab(Transport).Iterator,
    open_streams: slab.Slab(Stream).Iterator,

    /// The next lane, or null at the end.
    pub fn next(lanes: *Lanes) ?*Lane {
        if (lanes.transports.next()) |transport| return &transport.lane;
        return if (lanes.open_streams.next()) |stream| &stream.lane else null;
    }
};
