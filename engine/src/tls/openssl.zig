//! Layer `tls` with OpenSSL 3.0 or newer: a map of the files behind the room's contract, no logic.
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

/// See context.zig.
pub const Context = @import("context.zig").Context;
/// See retained.zig.
pub const lookOf = @import("retained.zig").lookOf;
/// See session.zig.
pub const Session = @import("session.zig").Session;
/// See session.zig.
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
