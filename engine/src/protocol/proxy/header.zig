//! The header by which a proxy tells, before all other bytes, whose connection it forwards: the PROXY
//! protocol, versions 1 and 2 (haproxy.org, doc/proxy-protocol.txt). Does not know: which proxies are
//! trusted, and the bytes after the header.
const std = @import("std");
const endpoint = @import("endpoint.zig");
const Endpoint = endpoint.Endpoint;

/// The maximum number of bytes that `parse` needs at once: the longest line of version 1. (The addresses of
/// version 2 are shorter; the rest of its header is `Header.rest`, which the caller skips.)
pub const bytes_max = 107;

/// The content of a header.
pub const Header = struct {
    /// The header's length without `rest`, in bytes.
    len: u16,
    /// The number of further bytes of the header, which are not used (TLVs, addresses of other families).
    rest: u16 = 0,
    /// The client and the address to which it connected. Null: the proxy speaks for itself (LOCAL, as in
    /// health checks) or does not know (UNKNOWN, UNSPEC, Unix sockets); then the addresses of this connection
    /// are valid.
    ends: ?Ends = null,

    /// The two ends of the connection that the proxy has accepted.
    pub const Ends = struct { source: Endpoint, destination: Endpoint };
};

/// The result of parsing a connection's first bytes.
pub const Verdict = union(enum) {
    /// The beginning of a header, with less than `bytes_max` bytes: more are needed.
    need_more,
    header: Header,
    /// There is no header; the reason, as the end of a sentence.
    malformed: []const u8,
};

/// Parses the first bytes of a connection.
pub fn parse(bytes: []const u8) Verdict {
    if (bytes.len == 0) return .need_more;
    return switch (bytes[0]) {
        signature_v1[0] => parseLine(bytes),
        signature_v2[0] => parseBinary(bytes),
        else => no_header,
    };
}

const no_header: Verdict = .{ .malformed = "there is no header" };

// ---- Version 1: a line of text

const signature_v1 = "PROXY ";

fn parseLine(bytes: []const u8) Verdict {
    if (!begins(bytes, signature_v1)) return no_header;
    const seen = bytes[0..@min(bytes.len, bytes_max)];
    const end = std.mem.findScalar(u8, seen, '\n') orelse {
        return if (bytes.len < bytes_max)
            .need_more
        else
            .{ .malformed = "the line of version 1 does not end" };
    };
    if (end < signature_v1.len or seen[end - 1] != '\r') {
        return .{ .malformed = "the line of version 1 does not end with CR LF" };
    }
    const ends = parseWords(seen[signature_v1.len .. end - 1]) catch
        return .{ .malformed = "the line of version 1 has no valid addresses" };
    return .{ .header = .{ .len = @intCast(end + 1), .ends = ends } };
}

fn parseWords(line: []const u8) error{Malformed}!?Header.Ends {
    var words = std.mem.splitScalar(u8, line, ' ');
    const family = words.first();
    // Words after UNKNOWN must be ignored.
    if (std.mem.eql(u8, family, "UNKNOWN")) return null;
    const is_v4 = std.mem.eql(u8, family, "TCP4");
    if (!is_v4 and !std.mem.eql(u8, family, "TCP6")) return error.Malformed;
    var ends: Header.Ends = undefined;
    inline for (.{ "source", "destination" }) |name| {
        const text = words.next() orelse return error.Malformed;
        @field(ends, name).address = try if (is_v4) endpoint.parseV4(text) else endpoint.parseV6(text);
    }
    inline for (.{ "source", "destination" }) |name| {
        @field(ends, name).port = try endpoint.parsePort(words.next() orelse return error.Malformed);
    }
    return if (words.next() == null) ends else error.Malformed;
}

// ---- Version 2: binary

const signature_v2 = "\r\n\r\n\x00\r\nQUIT\n";
/// The length of signature, version and command, family and transport, and length field, in bytes.
const fixed_bytes = signature_v2.len + 4;

fn parseBinary(bytes: []const u8) Verdict {
    if (!begins(bytes, signature_v2)) return no_header;
    if (bytes.len > signature_v2.len and (bytes[12] >> 4 != 2 or bytes[12] & 0xf > 1)) {
        return .{ .malformed = "version 2 has an unknown version or command" };
    }
    if (bytes.len > signature_v2.len + 1 and (bytes[13] >> 4 > 3 or bytes[13] & 0xf > 2)) {
        return .{ .malformed = "version 2 has an unknown address family or transport" };
    }
    if (bytes.len < fixed_bytes) return .need_more;
    const len = std.mem.readInt(u16, bytes[14..16], .big);
    const proxied = bytes[12] & 0xf == 1;
    return switch (bytes[13]) {
        0x11 => if (proxied) withAddresses(bytes, len, "v4", 4) else ownEnds(len),
        0x21 => if (proxied) withAddresses(bytes, len, "v6", 16) else ownEnds(len),
        else => ownEnds(len),
    };
}

fn ownEnds(len: u16) Verdict {
    return .{ .header = .{ .len = fixed_bytes, .rest = len } };
}

/// Reads two addresses and two ports of TCP over an address family.
fn withAddresses(bytes: []const u8, len: u16, comptime family: []const u8, comptime size: usize) Verdict {
    const block_bytes: u16 = 2 * size + 4;
    comptime std.debug.assert(fixed_bytes + block_bytes <= bytes_max);
    if (len < block_bytes) return .{ .malformed = "version 2 is too short for its addresses" };
    if (bytes.len < fixed_bytes + block_bytes) return .need_more;
    const block = bytes[fixed_bytes..][0..block_bytes];
    return .{ .header = .{
        .len = fixed_bytes + block_bytes,
        .rest = len - block_bytes,
        .ends = .{
            .source = .{
                .address = @unionInit(endpoint.Address, family, block[0..size].*),
                .port = std.mem.readInt(u16, block[2 * size ..][0..2], .big),
            },
            .destination = .{
                .address = @unionInit(endpoint.Address, family, block[size..][0..size].*),
                .port = std.mem.readInt(u16, block[2 * size + 2 ..][0..2], .big),
            },
        },
    } };
}

/// Whether the bytes begin with `text`, or are the beginning of `text`.
fn begins(bytes: []const u8, text: []const u8) bool {
    const len = @min(bytes.len, text.len);
    return std.mem.eql(u8, bytes[0..len], text[0..len]);
}
