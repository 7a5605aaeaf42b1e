//! Byte transcripts of WebSocket connections: one file for each group of the Autobahn test suite's classes.
//! Root of the wire tests; needs the module `protocol`.
test {
    _ = @import("frames.zig");
    _ = @import("text.zig");
    _ = @import("closing.zig");
    _ = @import("limits.zig");
    _ = @import("compression.zig");
}
