//! The question of an authority by TLS whether a server has a name (RFC 8737), and the path of the
//! certificate that answers it. Does not know: OpenSSL, what is in the certificate.
const std = @import("std");

/// The only protocol (ALPN) that such a client offers.
pub const protocol = "acme-tls/1";

/// The ending of files with such certificates, behind the name of a host.
pub const ending = ".alpn";

/// The longest name of a host, in bytes (RFC 1035 §2.3.4).
const host_name_bytes_max = 255;

/// Room for a path, with its zero.
pub const path_bytes_max = std.fs.max_path_bytes;

/// Whether a client's extension for ALPN (RFC 7301 §3.1) offers the protocol and nothing else.
pub fn isAsked(extension: []const u8) bool {
    const whole = [_]u8{ 0, protocol.len + 1, protocol.len } ++ protocol;
    return std.mem.eql(u8, extension, whole);
}

/// The name in a client's extension for it (RFC 6066 §3), borrowed from the extension.
pub fn hostName(extension: []const u8) ?[]const u8 {
    const host_name = 0;
    if (extension.len < 5 or extension[2] != host_name) return null;
    const list_len = std.mem.readInt(u16, extension[0..2], .big);
    const len = std.mem.readInt(u16, extension[3..5], .big);
    if (list_len != extension.len - 2 or len != extension.len - 5) return null;
    return extension[5..];
}

/// The path of the certificate for a name. Null: no host has this name, which could lead out of the folder.
pub fn pathFor(buffer: *[path_bytes_max]u8, folder: []const u8, name: []const u8) ?[:0]const u8 {
    if (name.len == 0 or name.len > host_name_bytes_max or name[0] == '.') return null;
    for (name) |byte| switch (byte) {
        'a'...'z', 'A'...'Z', '0'...'9', '-', '.' => {},
        else => return null,
    };
    var lower: [host_name_bytes_max]u8 = undefined;
    return std.fmt.bufPrintSentinel(
        buffer,
        "{s}/{s}" ++ ending,
        .{ folder, std.ascii.lowerString(&lower, name) },
        0,
    ) catch null;
}

test "the protocol alone is the question of an authority" {
    try std.testing.expect(isAsked("\x00\x0b\x0aacme-tls/1"));
    for ([_][]const u8{
        "",                             "\x00\x0b\x0aacme-tls/2",
        "\x00\x0b\x0aacme-tls/1\x02h2", "\x00\x0e\x0aacme-tls/1\x02h2",
        "\x00\x0e\x02h2\x0aacme-tls/1", "\x00\x0b\x0aacme-tls/",
        "\x00\x03\x02h2",               "\x01\x0b\x0aacme-tls/1",
    }) |other| try std.testing.expect(!isAsked(other));
}

test "the name of a host is read where the lengths agree" {
    try std.testing.expectEqualStrings("a.example", hostName("\x00\x0c\x00\x00\x09a.example").?);
    for ([_][]const u8{
        "",                              "\x00\x0c\x00\x00",
        "\x00\x0d\x00\x00\x09a.example", "\x00\x0c\x00\x00\x08a.example",
        "\x00\x0c\x01\x00\x09a.example", "\x00\x0c\x00\x00\x0aa.example",
    }) |other| try std.testing.expectEqual(null, hostName(other));
}

test "a path stays in the folder" {
    var buffer: [path_bytes_max]u8 = undefined;
    try std.testing.expectEqualStrings("/f/a.example.alpn", pathFor(&buffer, "/f", "A.Example").?);
    const long: [256]u8 = @splat('a');
    for ([_][]const u8{ "", ".", "..", "../a", "a/../b", ".a", "a\x00b", "a b", &long }) |name| {
        try std.testing.expectEqual(null, pathFor(&buffer, "/f", name));
    }
}
