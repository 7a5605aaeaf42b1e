//! Layer `tls` with OpenSSL 3.0 or newer: the names of the files behind tls.zig, no logic.
//!
//! transport.zig  OpenSSL's view of the wire: one slice in, one sink out
//! session.zig    one connection
//! context.zig    what threads share, and how it is replaced
//! retained.zig   a configuration kept for that, and how its files look
//! generation.zig one loaded configuration: certificates by name, policy
//! validation.zig the question of an authority for a name
//! certificate.zig PEM files into certificates and keys, with errors in words
//! libssl.zig     what is used of OpenSSL, declared by hand
const std = @import("std");
const ssl = @import("libssl.zig");

/// Certificates and policy, shared between threads.
pub const Context = @import("context.zig").Context;
/// A digest of the status of a client's files.
pub const lookOf = @import("retained.zig").lookOf;
/// The state machine of one connection.
pub const Session = @import("session.zig").Session;
/// A session ticket, which a client keeps in order to shorten its next handshake.
pub const Resumption = @import("session.zig").Resumption;

/// The name and version of the loaded library, which may be newer than the one at link time.
pub fn library() [:0]const u8 {
    return std.mem.span(ssl.OpenSSL_version(ssl.OPENSSL_VERSION));
}

test "the library names itself" {
    try std.testing.expect(std.mem.startsWith(u8, library(), "OpenSSL 3."));
}

test {
    _ = @import("certificate.zig");
    _ = @import("context.zig");
    _ = @import("directory.zig");
    _ = @import("generation.zig");
    _ = @import("retained.zig");
    _ = @import("session.zig");
    _ = @import("staple.zig");
    _ = @import("transport.zig");
    _ = @import("validation.zig");
}
