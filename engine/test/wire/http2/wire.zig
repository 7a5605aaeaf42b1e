//! Wire fixtures for HTTP/2: header blocks.
test {
    _ = @import("hpack.zig");
}
