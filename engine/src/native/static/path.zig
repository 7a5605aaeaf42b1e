//! Makes a request's path a name below a folder. The name has no "..", no empty or "." segment, no NUL byte,
//! and no leading slash. Does not know: whether such a file exists.
const std = @import("std");
const percentDecode = @import("protocol").http.target.percentDecode;

/// The longest name, in bytes, with the suffixes that callers put behind it.
pub const bytes_max = 4096;
/// Room that `clean` leaves for suffixes ("/index.html", ".zst").
const reserve_bytes = 512;

/// A name that cannot lead out of its folder.
pub const Clean = struct {
    /// Empty: the folder itself. Lies in the buffer that was given to `clean`.
    name: []u8,
    /// Whether the path ended with a slash: then only a folder is meant.
    folder: bool,
};

/// Decodes and checks a path (still percent-encoded). Null: the path names nothing that may be served.
/// `dotfiles`: names that begin with a dot may be served.
pub fn clean(path: []const u8, buffer: *[bytes_max]u8, dotfiles: bool) ?Clean {
    if (path.len > buffer.len - reserve_bytes) return null;
    const decoded = percentDecode(path, buffer);
    if (std.mem.findScalar(u8, decoded, 0) != null) return null;
    var len: usize = 0;
    var segments = std.mem.tokenizeScalar(u8, decoded, '/');
    while (segments.next()) |segment| {
        if (std.mem.eql(u8, segment, ".")) continue;
        if (std.mem.eql(u8, segment, "..")) return null;
        if (segment[0] == '.' and !dotfiles and !(len == 0 and isWellKnown(segment))) return null;
        if (len > 0) {
            buffer[len] = '/';
            len += 1;
        }
        // The writing index is never ahead of the reading one: each segment had at least as many bytes before
        // it.
        std.mem.copyForwards(u8, buffer[len..][0..segment.len], segment);
        len += segment.len;
    }
    const folder = decoded.len == 0 or isFolder(path);
    return .{ .name = buffer[0..len], .folder = folder };
}

/// Whether a segment is the public place of RFC 8615, where certificate authorities look for answers.
fn isWellKnown(segment: []const u8) bool {
    return std.mem.eql(u8, segment, ".well-known");
}

/// Whether a path ends with a slash or a segment ".": as received, since the buffer was overwritten.
fn isFolder(path: []const u8) bool {
    if (std.mem.endsWith(u8, path, "/") or std.ascii.endsWithIgnoreCase(path, "%2f")) return true;
    return std.mem.endsWith(u8, path, "/.") or std.ascii.endsWithIgnoreCase(path, "/%2e");
}

/// The rest of a path behind `prefix`, which is not encoded; the rest still is. Null if the path does not lie
/// below `prefix`. A slash at the prefix's end makes no difference, and "/static" does not cover "/statics".
pub fn below(path: []const u8, prefix: []const u8) ?[]const u8 {
    var rest = path;
    for (std.mem.trimEnd(u8, prefix, "/")) |byte| {
        if (rest.len == 0 or byte != take(&rest)) return null;
    }
    const found = rest;
    return if (rest.len == 0 or take(&rest) == '/') found else null;
}

/// The next byte of a path, decoded.
fn take(rest: *[]const u8) u8 {
    const text = rest.*;
    if (text[0] == '%' and text.len >= 3) if (std.fmt.parseInt(u8, text[1..3], 16)) |byte| {
        rest.* = text[3..];
        return byte;
    } else |_| {};
    rest.* = text[1..];
    return text[0];
}

const testing = std.testing;

test "paths become names" {
    const cases = [_]struct { []const u8, []const u8, bool }{
        .{ "/", "", true },                .{ "", "", true },           .{ "/a", "a", false },
        .{ "/a/b.txt", "a/b.txt", false }, .{ "/a/", "a", true },       .{ "//a///b", "a/b", false },
        .{ "/./a/.", "a", true },          .{ "/a%20b", "a b", false },
        .{ "/%C3%A9", "é", false },
        .{ "/a%2Fb", "a/b", false },       .{ "/a%2f", "a", true },     .{ "/...", "...", false },
        .{ "/%2541", "%41", false },       .{ "/a..b", "a..b", false },
    };
    for (cases) |case| {
        errdefer std.debug.print("{s}\n", .{case[0]});
        var buffer: [bytes_max]u8 = undefined;
        const got = clean(case[0], &buffer, true).?;
        try testing.expectEqualStrings(case[1], got.name);
        try testing.expectEqual(case[2], got.folder);
    }
}

test "no way out, no NUL, no dotfiles unless asked, nothing endless" {
    var buffer: [bytes_max]u8 = undefined;
    for ([_][]const u8{
        "/..", "/../etc/passwd", "/a/../b", "/%2e%2e/x", "/..%2fx", "/a/%2E./", "/a%00.txt",
    }) |path| {
        try testing.expectEqual(null, clean(path, &buffer, true));
        try testing.expectEqual(null, clean(path, &buffer, false));
    }
    for ([_][]const u8{ "/.git/config", "/a/.htaccess", "/%2egit", "/..." }) |path| {
        try testing.expect(clean(path, &buffer, true) != null);
        try testing.expectEqual(null, clean(path, &buffer, false));
    }
    try testing.expectEqualStrings(
        ".well-known/x",
        clean("/.well-known/x", &buffer, false).?.name,
    );
    try testing.expectEqual(null, clean("/.well-known/.x", &buffer, false));
    try testing.expectEqual(null, clean("/a/.well-known/x", &buffer, false));
    const long: [bytes_max]u8 = @splat('a');
    try testing.expectEqual(null, clean(&long, &buffer, true));
}

test "prefixes" {
    try testing.expectEqualStrings("/x", below("/static/x", "/static").?);
    try testing.expectEqualStrings("/x", below("/static/x", "/static/").?);
    try testing.expectEqualStrings("", below("/static", "/static/").?);
    try testing.expectEqual(null, below("/statics", "/static"));
    try testing.expectEqual(null, below("/stat", "/static"));
    try testing.expectEqualStrings("/x", below("/x", "/").?);
    try testing.expectEqualStrings("/x", below("/x", "").?);
    try testing.expectEqualStrings("/%78", below("/a%20%62/%78", "/a b/").?);
    try testing.expectEqualStrings("%2Fx", below("/%61%2Fx", "/a").?);
    try testing.expectEqual(null, below("/a%2", "/a"));
    try testing.expectEqual(null, below("/a%", "/a%b"));
}
