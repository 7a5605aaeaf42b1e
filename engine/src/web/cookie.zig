//! Cookies (RFC 6265bis): reads those of a request, and writes Set-Cookie fields.
//! Does not know: what cookies mean, sessions, signatures.
const std = @import("std");
const testing = std.testing;

/// Walks the pairs of a Cookie field. Nothing is decoded, nothing is copied.
pub const Cookies = struct {
    rest: []const u8,

    pub const Pair = struct { name: []const u8, value: []const u8 };

    pub fn init(field: []const u8) Cookies {
        return .{ .rest = field };
    }

    /// The next pair, or null at the end. Pieces without "=" or without a name are passed over.
    pub fn next(cookies: *Cookies) ?Pair {
        while (cookies.rest.len > 0) {
            const end = std.mem.findScalar(u8, cookies.rest, ';') orelse cookies.rest.len;
            const piece = cookies.rest[0..end];
            cookies.rest = cookies.rest[@min(end + 1, cookies.rest.len)..];
            const split = std.mem.findScalar(u8, piece, '=') orelse continue;
            const name = std.mem.trim(u8, piece[0..split], " \t");
            if (name.len == 0) continue;
            return .{ .name = name, .value = unquoted(std.mem.trim(u8, piece[split + 1 ..], " \t")) };
        }
        return null;
    }

    fn unquoted(value: []const u8) []const u8 {
        if (value.len < 2 or value[0] != '"' or value[value.len - 1] != '"') return value;
        return value[1 .. value.len - 1];
    }
};

/// A cookie to be set. By default scripts do not see it, and other sites' pages do not send it along, but for
/// links that lead here.
pub const Cookie = struct {
    name: []const u8,
    value: []const u8 = "",
    /// The cookie is sent to paths below this one.
    path: ?[]const u8 = "/",
    /// The domain to whose hosts browsers send the cookie; null: this host alone.
    domain: ?[]const u8 = null,
    /// Seconds for which the cookie is kept; null: as long as the browser runs; 0: it is deleted.
    max_age_s: ?u32 = null,
    /// Whether the cookie is sent over TLS only.
    secure: bool = false,
    /// Whether scripts of a page cannot read the cookie.
    http_only: bool = true,
    same_site: ?SameSite = .lax,
    /// Whether browsers keep the cookie apart for each site that embeds this one.
    partitioned: bool = false,

    pub const SameSite = enum { strict, lax, none };

    /// The cookie could not be written so that browsers read it back, or they would drop it.
    pub const Error = error{InvalidCookie};

    /// Writes the value of a Set-Cookie field.
    pub fn write(cookie: *const Cookie, writer: *std.Io.Writer) (Error || std.Io.Writer.Error)!void {
        try cookie.check();
        try writer.print("{s}={s}", .{ cookie.name, cookie.value });
        if (cookie.path) |path| try writer.print("; Path={s}", .{path});
        if (cookie.domain) |domain| try writer.print("; Domain={s}", .{domain});
        if (cookie.max_age_s) |seconds| try writer.print("; Max-Age={d}", .{seconds});
        if (cookie.secure) try writer.writeAll("; Secure");
        if (cookie.http_only) try writer.writeAll("; HttpOnly");
        if (cookie.same_site) |same_site| try writer.writeAll(switch (same_site) {
            .strict => "; SameSite=Strict",
            .lax => "; SameSite=Lax",
            .none => "; SameSite=None",
        });
        if (cookie.partitioned) try writer.writeAll("; Partitioned");
    }

    fn check(cookie: *const Cookie) Error!void {
        if (cookie.name.len == 0) return error.InvalidCookie;
        for (cookie.name) |byte| if (!isTokenByte(byte)) return error.InvalidCookie;
        for (cookie.value) |byte| if (!isValueByte(byte)) return error.InvalidCookie;
        for ([_]?[]const u8{ cookie.path, cookie.domain }) |attribute| for (attribute orelse "") |byte| {
            if (byte < ' ' or byte > '~' or byte == ';') return error.InvalidCookie;
        };
        const needs_tls = cookie.partitioned or cookie.same_site == .none;
        if (needs_tls and !cookie.secure) return error.InvalidCookie;
        // Rules of browsers for names with a prefix (RFC 6265bis section 4.1.3).
        const is_host = std.ascii.startsWithIgnoreCase(cookie.name, "__Host-");
        if (is_host or std.ascii.startsWithIgnoreCase(cookie.name, "__Secure-")) {
            if (!cookie.secure) return error.InvalidCookie;
        }
        if (!is_host) return;
        if (cookie.domain != null or !std.mem.eql(u8, cookie.path orelse "", "/")) return error.InvalidCookie;
    }

    fn isTokenByte(byte: u8) bool {
        return std.ascii.isAlphanumeric(byte) or std.mem.findScalar(u8, "!#$%&'*+-.^_`|~", byte) != null;
    }

    fn isValueByte(byte: u8) bool {
        return byte > ' ' and byte <= '~' and std.mem.findScalar(u8, "\",;\\", byte) == null;
    }
};

fn expectPairs(field: []const u8, expected: []const [2][]const u8) !void {
    var cookies: Cookies = .init(field);
    for (expected) |pair| {
        const found = cookies.next().?;
        try testing.expectEqualStrings(pair[0], found.name);
        try testing.expectEqualStrings(pair[1], found.value);
    }
    try testing.expectEqual(null, cookies.next());
}

test "the cookies of a request" {
    try expectPairs("", &.{});
    try expectPairs("a=1; b=2", &.{ .{ "a", "1" }, .{ "b", "2" } });
    try expectPairs(";a = 1 ;;b=\"x y\";", &.{ .{ "a", "1" }, .{ "b", "x y" } });
    try expectPairs("flag; =x; a=b=c; e=", &.{ .{ "a", "b=c" }, .{ "e", "" } });
    try expectPairs("q=\"", &.{.{ "q", "\"" }});
}

fn expectWritten(expected: []const u8, cookie: Cookie) !void {
    var buffer: [200]u8 = undefined;
    var writer: std.Io.Writer = .fixed(&buffer);
    try cookie.write(&writer);
    try testing.expectEqualStrings(expected, writer.buffered());
}

test "a cookie is set with its attributes" {
    try expectWritten("a=1; Path=/; HttpOnly; SameSite=Lax", .{ .name = "a", .value = "1" });
    try expectWritten("a=; Max-Age=0", .{
        .name = "a",
        .path = null,
        .max_age_s = 0,
        .http_only = false,
        .same_site = null,
    });
    try expectWritten("a=1; Path=/x; Domain=h.example; Secure; HttpOnly; SameSite=None; Partitioned", .{
        .name = "a",
        .value = "1",
        .path = "/x",
        .domain = "h.example",
        .secure = true,
        .same_site = .none,
        .partitioned = true,
    });
    try expectWritten("__Host-a=1; Path=/; Secure; HttpOnly; SameSite=Lax", .{
        .name = "__Host-a",
        .value = "1",
        .secure = true,
    });
}

test "cookies that would say something else, or that browsers drop" {
    for ([_]Cookie{
        .{ .name = "" },
        .{ .name = "a b" },
        .{ .name = "a=b" },
        .{ .name = "a", .value = "x; Domain=evil" },
        .{ .name = "a", .value = "x\r\nX: y" },
        .{ .name = "a", .value = "\xc3\xa4" },
        .{ .name = "a", .path = "/;Secure" },
        .{ .name = "a", .domain = "h\n" },
        .{ .name = "a", .same_site = .none },
        .{ .name = "a", .partitioned = true },
        .{ .name = "__Secure-a" },
        .{ .name = "__Host-a", .secure = true, .path = "/x" },
        .{ .name = "__host-a", .secure = true, .domain = "h" },
    }) |cookie| {
        var buffer: [200]u8 = undefined;
        var writer: std.Io.Writer = .fixed(&buffer);
        try testing.expectError(error.InvalidCookie, cookie.write(&writer));
        try testing.expectEqual(0, writer.end);
    }
}
