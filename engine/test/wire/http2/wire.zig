//! Wire fixtures for HTTP/2: header blocks, what a client sends, what it is answered.
test {
    _ = @import("hpack.zig");
    _ = @import("fixtures.zig");
    _ = @import("commands.zig");
    _ = @import("attacks.zig");
}
