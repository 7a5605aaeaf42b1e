//! What connections may speak, by the names that TLS agrees on (ALPN, RFC 7301).
const tls = @import("tls");

/// In order of preference.
pub const protocols = [_]tls.Protocol{ .{ .name = "http/1.1" }, .{ .name = "http/1.0" } };
