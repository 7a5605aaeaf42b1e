//! The URL of a Redis: `redis://`, `rediss://` or `unix:`. Does not know: host names, sockets, TLS.
const std = @import("std");

/// A Redis server with the login, and the prefix of the keys of this program's server.
pub const Url = struct {
    place: Place,
    /// The user; null: the default user.
    user: ?[]const u8 = null,
    password: ?[]const u8 = null,
    database: u16 = 0,
    /// The prefix of all keys and channels.
    prefix: []const u8 = "peregrine:",

    pub const Place = union(enum) {
        tcp: struct { host: [:0]const u8, port: u16, tls: ?Tls = null },
        /// The path of a Unix socket.
        unix: []const u8,
    };

    pub const Tls = struct {
        /// Trusted authorities; null: those of the system.
        ca: ?[:0]const u8 = null,
        /// The server's certificate for Redis, and its key; null: there is none, and the key is in the
        /// certificate's file.
        cert: ?[:0]const u8 = null,
        key: ?[:0]const u8 = null,

        /// Whether a file is named.
        pub fn areNamed(files: *const Tls) bool {
            return files.ca != null or files.cert != null;
        }
    };

    pub const ParseError = error{
        /// The scheme is none of `redis`, `rediss` and `unix`.
        UnknownScheme,
        NoHost,
        BadPort,
        /// A percent sign without two hexadecimal digits.
        BadEscape,
        BadDatabase,
        /// The URL has another parameter than `prefix`, `db`, `ca`, `cert` and `key`.
        UnknownParameter,
        /// A file for TLS with a scheme without TLS.
        NotTls,
        /// A key without a certificate.
        KeyAlone,
        /// `memory` is shorter than the text, or the text is longer than a URL may be.
        TooLong,
    };

    /// The length of the longest URL.
    pub const text_bytes_max = 2048;
    const default_port = 6379;

    /// Reads `redis://[user[:password]@]host[:port][/database][?prefix=…]`, or `rediss:` with files for TLS
    /// as further parameters, or `unix:[//[user[:password]@]]/path[?db=…&prefix=…]`. Parts are unescaped into
    /// `memory`, which must be as long as the text and live as long as the result.
    pub fn parse(text: []const u8, memory: []u8) ParseError!Url {
        if (text.len > text_bytes_max or memory.len < text.len) return error.TooLong;
        var room: Room = .{ .memory = memory };
        const colon = std.mem.findScalar(u8, text, ':') orelse return error.UnknownScheme;
        const Scheme = enum { redis, rediss, unix };
        const scheme = std.meta.stringToEnum(Scheme, text[0..colon]) orelse return error.UnknownScheme;
        var rest = text[colon + 1 ..];
        var query: []const u8 = "";
        if (std.mem.findScalar(u8, rest, '?')) |at| {
            query = rest[at + 1 ..];
            rest = rest[0..at];
        }
        var url: Url = .{ .place = undefined };
        const has_authority = std.mem.startsWith(u8, rest, "//");
        if (!has_authority and scheme != .unix) return error.NoHost;
        var authority: []const u8 = "";
        if (has_authority) {
            const end = std.mem.findScalarPos(u8, rest, 2, '/') orelse rest.len;
            authority = rest[2..end];
            rest = rest[end..];
        }
        if (std.mem.findScalarLast(u8, authority, '@')) |at| {
            try url.readUser(authority[0..at], &room);
            authority = authority[at + 1 ..];
        }
        if (scheme == .unix) {
            if (authority.len > 0 or rest.len < 2) return error.NoHost;
            url.place = .{ .unix = try room.unescape(rest) };
        } else {
            url.place = try readHost(authority, scheme == .rediss, &room);
            if (rest.len > 1) url.database = try readDatabase(rest[1..]);
        }
        try url.readQuery(query, &room);
        return url;
    }

    fn readUser(url: *Url, text: []const u8, room: *Room) ParseError!void {
        const end = std.mem.findScalar(u8, text, ':') orelse text.len;
        if (end > 0) url.user = try room.unescape(text[0..end]);
        if (end < text.len) url.password = try room.unescape(text[end + 1 ..]);
    }

    fn readHost(text: []const u8, is_tls: bool, room: *Room) ParseError!Place {
        var host = text;
        var port: ?[]const u8 = null;
        if (std.mem.startsWith(u8, text, "[")) {
            const end = std.mem.findScalar(u8, text, ']') orelse return error.NoHost;
            host = text[1..end];
            if (end + 1 < text.len) {
                if (text[end + 1] != ':') return error.BadPort;
                port = text[end + 2 ..];
            }
        } else if (std.mem.findScalar(u8, text, ':')) |at| {
            host = text[0..at];
            port = text[at + 1 ..];
        }
        if (host.len == 0) return error.NoHost;
        const number = if (port) |digits|
            std.fmt.parseInt(u16, digits, 10) catch return error.BadPort
        else
            default_port;
        if (number == 0) return error.BadPort;
        return .{ .tcp = .{
            .host = try room.unescapeZ(host),
            .port = number,
            .tls = if (is_tls) .{} else null,
        } };
    }

    fn readDatabase(text: []const u8) ParseError!u16 {
        return std.fmt.parseInt(u16, text, 10) catch error.BadDatabase;
    }

    fn readQuery(url: *Url, query: []const u8, room: *Room) ParseError!void {
        var pairs = std.mem.tokenizeScalar(u8, query, '&');
        while (pairs.next()) |pair| {
            const end = std.mem.findScalar(u8, pair, '=') orelse return error.UnknownParameter;
            const value = pair[end + 1 ..];
            const Name = enum { db, prefix, ca, cert, key };
            switch (std.meta.stringToEnum(Name, pair[0..end]) orelse return error.UnknownParameter) {
                .db => url.database = try readDatabase(value),
                .prefix => url.prefix = try room.unescape(value),
                .ca => (try url.filesOfTls()).ca = try room.unescapeZ(value),
                .cert => (try url.filesOfTls()).cert = try room.unescapeZ(value),
                .key => (try url.filesOfTls()).key = try room.unescapeZ(value),
            }
        }
        const files = url.filesOfTls() catch return;
        if (files.key != null and files.cert == null) return error.KeyAlone;
    }

    fn filesOfTls(url: *Url) error{NotTls}!*Tls {
        return switch (url.place) {
            .tcp => |*place| if (place.tls) |*files| files else error.NotTls,
            .unix => error.NotTls,
        };
    }

    /// Memory for parts. Each part has a delimiter in the text, whose place the zero behind the part takes.
    const Room = struct {
        memory: []u8,
        len: usize = 0,

        /// Unescapes a part, which may contain no zero, and writes a zero behind it.
        fn unescapeZ(room: *Room, text: []const u8) ParseError![:0]const u8 {
            const part = try room.unescape(text);
            if (std.mem.findScalar(u8, part, 0) != null) return error.BadEscape;
            room.memory[room.len] = 0;
            room.len += 1;
            return part.ptr[0..part.len :0];
        }

        fn unescape(room: *Room, text: []const u8) ParseError![]const u8 {
            const start = room.len;
            var at: usize = 0;
            while (at < text.len) : (at += 1) {
                var byte = text[at];
                if (byte == '%') {
                    if (text.len - at < 3) return error.BadEscape;
                    const digits = text[at + 1 ..][0..2];
                    for (digits) |digit| if (!std.ascii.isHex(digit)) return error.BadEscape;
                    byte = std.fmt.parseInt(u8, digits, 16) catch unreachable;
                    at += 2;
                }
                room.memory[room.len] = byte;
                room.len += 1;
            }
            return room.memory[start..room.len];
        }
    };
};

const testing = std.testing;

test "URLs of servers" {
    var memory: [Url.text_bytes_max]u8 = undefined;
    const plain = try Url.parse("redis://localhost", &memory);
    try testing.expectEqualDeep(Url{
        .place = .{ .tcp = .{ .host = "localhost", .port = 6379 } },
    }, plain);
    try testing.expectEqualDeep(Url{
        .place = .{ .tcp = .{ .host = "::1", .port = 7000, .tls = .{} } },
        .user = "ann",
        .password = "s@c:et",
        .database = 3,
        .prefix = "my app:",
    }, try Url.parse("rediss://ann:s%40c:et@[::1]:7000/3?prefix=my%20app:", &memory));
    try testing.expectEqualDeep(Url{
        .place = .{ .tcp = .{ .host = "h", .port = 6379 } },
        .password = "p",
    }, try Url.parse("redis://:p@h/", &memory));
    try testing.expectEqualDeep(Url{
        .place = .{ .tcp = .{ .host = "h", .port = 6379, .tls = .{
            .ca = "/a b.pem",
            .cert = "c",
            .key = "k",
        } } },
        .prefix = "p",
    }, try Url.parse("rediss://h?ca=/a%20b.pem&cert=c&key=k&prefix=p", &memory));
    try testing.expectEqualDeep(
        Url{ .place = .{ .unix = "/run/redis.sock" } },
        try Url.parse("unix:/run/redis.sock", &memory),
    );
    try testing.expectEqualDeep(
        Url{ .place = .{ .unix = "/run/r.sock" }, .user = "u", .password = "", .database = 2, .prefix = "" },
        try Url.parse("unix://u:@/run/r.sock?db=2&prefix=", &memory),
    );
}

test "texts that are no URL of a server" {
    var memory: [Url.text_bytes_max]u8 = undefined;
    const long: [Url.text_bytes_max + 1]u8 = @splat('a');
    for ([_]struct { []const u8, Url.ParseError }{
        .{ "", error.UnknownScheme },
        .{ "localhost:6379", error.UnknownScheme },
        .{ "http://h", error.UnknownScheme },
        .{ "redis:h", error.NoHost },
        .{ "redis://", error.NoHost },
        .{ "redis://u@", error.NoHost },
        .{ "redis://[::1", error.NoHost },
        .{ "redis://h:", error.BadPort },
        .{ "redis://h:0", error.BadPort },
        .{ "redis://h:65536", error.BadPort },
        .{ "redis://[::1]7", error.BadPort },
        .{ "redis://h/x", error.BadDatabase },
        .{ "redis://h%4", error.BadEscape },
        .{ "redis://u:%zz@h", error.BadEscape },
        .{ "redis://h?timeout=1", error.UnknownParameter },
        .{ "redis://h?prefix", error.UnknownParameter },
        .{ "redis://h?ca=/ca.pem", error.NotTls },
        .{ "unix:/run/redis.sock?cert=c", error.NotTls },
        .{ "rediss://h?key=k", error.KeyAlone },
        .{ "rediss://h?ca=a%00b", error.BadEscape },
        .{ "redis://h%00", error.BadEscape },
        .{ "unix:", error.NoHost },
        .{ "unix://host/path", error.NoHost },
        .{ &long, error.TooLong },
    }) |case| {
        errdefer std.debug.print("{s}\n", .{case[0]});
        try testing.expectError(case[1], Url.parse(case[0], &memory));
    }
}
