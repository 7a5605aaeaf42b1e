//! The tests of TLS over simulated networks: sessions alone, and whole servers.
test {
    _ = @import("server_test.zig");
    _ = @import("tls_test.zig");
}
