//! Facts about a connection's TLS for the access log, with the names and values of Apache's mod_ssl. Does not
//! know: lines, and how values are escaped.
const std = @import("std");
const tls = @import("tls");
const Tls = @import("format.zig").Tls;
const Tunnel = @import("../tunnel.zig").Tunnel;

const failed = "FAILED:";
pub const value_bytes_max = @import("../config.zig").worker_limits.log_tls_value_bytes_max;

/// The value of a fact; empty if there is none. It may lie in `buffer`, or is valid as long as the
/// connection.
pub fn value(what: Tls, tunnel: *Tunnel, buffer: *[value_bytes_max]u8) error{OutOfMemory}![]const u8 {
    const session = &tunnel.session;
    // A connection may be refused before its handshake has ended.
    if (!session.hasAgreed()) return "";
    return switch (what) {
        .SSL_PROTOCOL => protocolName(session.agreement().version),
        .SSL_CIPHER => session.agreement().cipher,
        .SSL_TLS_SNI => session.agreement().server_name orelse "",
        .SSL_SESSION_RESUMED => if (session.agreement().resumed) "Resumed" else "Initial",
        .SSL_CLIENT_VERIFY => verdict(try tunnel.clientCertificate(), buffer),
        .SSL_CLIENT_S_DN => verified(try tunnel.clientCertificate()),
    };
}

fn protocolName(version: u16) []const u8 {
    return switch (version) {
        @backingInt(tls.Version.tls1_2) => "TLSv1.2",
        @backingInt(tls.Version.tls1_3) => "TLSv1.3",
        else => unreachable, // all protocols are in tls.Version
    };
}

fn verdict(peer: *const tls.Peer, buffer: *[value_bytes_max]u8) []const u8 {
    if (peer.chain.len == 0) return "NONE";
    const reason = peer.verify_error orelse return "SUCCESS";
    const len = @min(reason.len, buffer.len - failed.len);
    @memcpy(buffer[0..failed.len], failed);
    @memcpy(buffer[failed.len..][0..len], reason[0..len]);
    return buffer[0 .. failed.len + len];
}

/// The subject of a verified certificate. Anybody can write a name into a certificate that is not verified.
fn verified(peer: *const tls.Peer) []const u8 {
    return if (peer.verify_error == null) peer.subject orelse "" else "";
}

test "the verdict about a client's certificate" {
    var buffer: [value_bytes_max]u8 = undefined;
    var peer: tls.Peer = .{
        .arena = .init(std.testing.allocator),
        .chain = &.{},
        .subject = null,
        .verify_error = null,
    };
    try std.testing.expectEqualStrings("NONE", verdict(&peer, &buffer));
    try std.testing.expectEqualStrings("", verified(&peer));
    peer.chain = &.{"PEM"};
    peer.subject = "CN=somebody";
    try std.testing.expectEqualStrings("SUCCESS", verdict(&peer, &buffer));
    try std.testing.expectEqualStrings("CN=somebody", verified(&peer));
    peer.verify_error = "certificate has expired";
    try std.testing.expectEqualStrings("FAILED:certificate has expired", verdict(&peer, &buffer));
    try std.testing.expectEqualStrings("", verified(&peer));
}
