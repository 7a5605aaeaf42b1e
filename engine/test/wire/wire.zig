//! The fixtures of bytes on the wire, of each protocol.
test {
    _ = @import("http1/http1_test.zig");
    _ = @import("http2/wire.zig");
    _ = @import("proxy/proxy_test.zig");
    _ = @import("websocket/wire.zig");
}
