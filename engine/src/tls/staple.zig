//! An OCSP response from a file, which a server shows beside its certificate (RFC 6066 §8, RFC 6960). Does
//! not know: sessions, whether the response's signature verifies: that is the client's part.
const std = @import("std");
const c = @import("libssl.zig");
const certificate = @import("certificate.zig");
const retained = @import("retained.zig");
const tls = @import("tls.zig");

/// An OCSP response for the clients of a certificate.
pub const Staple = struct {
    der: []const u8,
    /// When the response expires, in seconds since 1970.
    next_update_s: i64 = std.math.maxInt(i64),
};

/// Bytes that an OCSP response may have; longer files are an error.
pub const bytes_max = 64 * 1024;

/// The path of the OCSP response for a certificate: the certificate's, with ".ocsp" in place of ".pem" or
/// ".crt", or behind any other name. Owned by `arena`.
pub fn pathFor(arena: std.mem.Allocator, cert_file: []const u8) error{OutOfMemory}![:0]const u8 {
    const ending = std.fs.path.extension(cert_file);
    const known = std.mem.eql(u8, ending, ".pem") or std.mem.eql(u8, ending, ".crt");
    const stem = if (known) cert_file[0 .. cert_file.len - ending.len] else cert_file;
    return std.mem.concatWithSentinel(arena, u8, &.{ stem, ".ocsp" }, 0);
}

/// Reads the response for `leaf`; owned by `arena`. Null: there is no file. A file without a response is an
/// error, as is a response for another certificate, one that does not call it good, or an old one.
pub fn load(
    arena: std.mem.Allocator,
    path: [:0]const u8,
    leaf: *c.X509,
    diagnostic: *tls.Diagnostic,
) error{ OutOfMemory, InvalidFile }!?Staple {
    if (retained.statusOf(path).errno == @backingInt(std.posix.E.NOENT)) return null;
    defer c.ERR_clear_error();
    var staple: Staple = .{ .der = try read(arena, path, diagnostic) };
    var next: [*]const u8 = staple.der.ptr;
    const response = c.d2i_OCSP_RESPONSE(null, &next, @intCast(staple.der.len)) orelse
        return refuse(diagnostic, path, "is no response in DER");
    defer c.OCSP_RESPONSE_free(response);
    if (c.OCSP_response_status(response) != 0) return refuse(diagnostic, path, "is the responder's refusal");
    const basic = c.OCSP_response_get1_basic(response) orelse
        return refuse(diagnostic, path, "is of an unknown kind");
    defer c.OCSP_BASICRESP_free(basic);
    const single = answerFor(basic, leaf) orelse
        return refuse(diagnostic, path, "is about another certificate");
    var next_update: ?*c.ASN1_STRING = null;
    if (c.OCSP_single_get0_status(single, null, null, null, &next_update) != 0) {
        return refuse(diagnostic, path, "does not say that the certificate is good");
    }
    if (next_update) |when| {
        staple.next_update_s = certificate.secondsSince1970(when) orelse
            return refuse(diagnostic, path, "has a date that cannot be read");
    }
    if (staple.next_update_s <= c.wallSeconds()) return refuse(diagnostic, path, "is too old");
    return staple;
}

fn refuse(diagnostic: *tls.Diagnostic, path: []const u8, why: []const u8) error{InvalidFile} {
    diagnostic.set("OCSP response is not shown: {s} {s}", .{ path, why });
    return error.InvalidFile;
}

fn read(
    arena: std.mem.Allocator,
    path: [:0]const u8,
    diagnostic: *tls.Diagnostic,
) error{ OutOfMemory, InvalidFile }![]const u8 {
    const file = c.BIO_new_file(path, "r") orelse return refuse(diagnostic, path, "cannot be read");
    defer _ = c.BIO_free(file);
    const buffer = try arena.alloc(u8, bytes_max + 1);
    var len: usize = 0;
    while (len < buffer.len) {
        const count = c.BIO_read(file, buffer.ptr + len, @intCast(buffer.len - len));
        if (count <= 0) break;
        len += @intCast(count);
    }
    if (len > bytes_max) return refuse(diagnostic, path, "is too long");
    return buffer[0..len];
}

fn answerFor(basic: *c.OCSP_BASICRESP, leaf: *c.X509) ?*c.OCSP_SINGLERESP {
    const serial = c.X509_get0_serialNumber(leaf);
    var index: c_int = 0;
    while (index < c.OCSP_resp_count(basic)) : (index += 1) {
        const single = c.OCSP_resp_get0(basic, index) orelse continue;
        var about: ?*c.ASN1_STRING = null;
        const id = c.OCSP_SINGLERESP_get0_id(single) orelse continue;
        if (c.OCSP_id_get0_info(null, null, null, &about, id) != 1) continue;
        if (c.ASN1_INTEGER_cmp(about orelse continue, serial) == 0) return single;
    }
    return null;
}

test "a response is looked for beside the certificate" {
    var arena: std.heap.ArenaAllocator = .init(std.testing.allocator);
    defer arena.deinit();
    for ([_][2][]const u8{
        .{ "/a.b/c.pem", "/a.b/c.ocsp" }, .{ "c.crt", "c.ocsp" }, .{ "/a.pem/c", "/a.pem/c.ocsp" },
    }) |case| try std.testing.expectEqualStrings(case[1], try pathFor(arena.allocator(), case[0]));
}
