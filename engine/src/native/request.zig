//! A request as a Zig handler sees it. Everything here is borrowed: valid until the handler returns, or,
//! for a request whose body is streamed or that was detached, until its response is complete or
//! `handleAbort` has returned.
//! Does not know: sockets, and how the response is sent.
const std = @import("std");
const protocol = @import("protocol");
const Head = protocol.Head;
const Limits = protocol.Limits;
const Session = protocol.Single;
const Version = protocol.http.Version;
const tls = @import("tls");
const query_file = @import("query.zig");
const Tunnel = @import("server").Tunnel;

/// A request as a Zig handler sees it. All slices are borrowed: see engine/README.md.
pub const Request = struct {
    /// `.other` for a method without a name of its own; then see `methodText`.
    method: protocol.http.Method,
    /// The version of the protocol, as the request line has it.
    version: Version,
    /// The client allows the connection to be used again. Informative: the server manages connections.
    keep_alive: bool,
    /// The target from its path on, as received: percent-encoded, with the query. An absolute-form target may
    /// have no path, see `getPath`.
    path_and_query: []const u8,
    /// The whole body; empty if there is none, or if it is streamed (`handleBody`).
    body: []const u8,
    /// The pairs that the last `parseQuery` found; empty before.
    query: std.StringHashMap([]const u8),
    /// The client's numeric address: that of the connection, or what a trusted proxy says; empty
    /// over a Unix socket.
    peer: []const u8,
    /// The peer's port; 0 over a Unix socket, and where a proxy does not tell.
    peer_port: u16,
    /// The result of `isSecure`.
    secure: bool,
    /// When the round of its worker's loop began in which the request was read, in microseconds of
    /// the monotonic clock.
    round_us: u64,
    /// Memory that lives as long as the request. Costs no heap allocation after warm-up; nothing
    /// needs to be freed.
    arena: std.mem.Allocator,
    /// A pointer of the handler's own, kept between the hooks that are called for one request.
    context: ?*anyopaque,
    /// A pointer of the router's own.
    routed: ?*anyopaque,
    /// Whether the body is put together, see `gatherBody`.
    gathers: bool,
    /// The most bytes that are gathered; null: as many as the server's settings say.
    gather_max: ?usize,
    /// The TLS layer of the connection, see `security`; null: it has none.
    tunnel: ?*Tunnel,
    /// The parsed head, for handlers that need more than the functions below.
    head: *const Head,
    /// Fields behind a chunked body; null if there are none.
    trailers: ?*const Head,

    /// The method as received: "GET", "PROPFIND".
    pub fn methodText(request: *const Request) []const u8 {
        return request.head.method_text.of(request.head.text);
    }

    /// Whether the client speaks TLS: with us, or with a trusted proxy that says so.
    pub fn isSecure(request: *const Request) bool {
        return request.secure;
    }

    /// Whether a body comes with the request, which may turn out to be empty if it is chunked. `handleBody`
    /// is called for these requests only, and for each of them a last time.
    pub fn hasBody(request: *const Request) bool {
        return request.head.body != .none;
    }

    /// For handlers with `handleBody`, in `handleRequest`: the body of this request is put together, as those
    /// of all requests are for other handlers. `handleBody` is called once, with the whole body, which is in
    /// `body` as well. It lies in memory; a body that is larger than the server's `request_buffer_size` (1
    /// MiB if that is null) is refused (413).
    pub fn gatherBody(request: *Request) void {
        request.gathers = true;
    }

    /// Like `gatherBody`, with a bound of its own, in bytes, in place of `request_buffer_size`.
    pub fn gatherBodyUpTo(request: *Request, bytes_max: usize) void {
        request.gathers = true;
        request.gather_max = bytes_max;
    }

    /// The agreement of the TLS handshake: version, cipher suite, server name and more; null without TLS.
    pub fn security(request: *const Request) ?tls.Agreement {
        const tunnel = request.tunnel orelse return null;
        return tunnel.session.agreement();
    }

    /// The client's certificate, with an empty chain if it showed none; null without TLS.
    pub fn clientCertificate(request: *const Request) error{OutOfMemory}!?*const tls.Peer {
        const tunnel = request.tunnel orelse return null;
        return try tunnel.clientCertificate();
    }

    /// The path of the target as received, still percent-encoded, without the query.
    pub fn getPath(request: *const Request) []const u8 {
        return request.head.path.of(request.head.text);
    }

    /// The host that the request is for, with the port if the client names one: that of an absolute-form
    /// target, else the value of the Host header, which says the same then (RFC 9112 section 3.2.2). Empty
    /// only if an HTTP/1.0 client, or an empty Host header, names none.
    pub fn getHost(request: *const Request) []const u8 {
        return request.head.authority.of(request.head.text);
    }

    /// The query behind the "?", still percent-encoded; empty if there is none.
    pub fn getQuery(request: *const Request) []const u8 {
        return request.head.query.of(request.head.text);
    }

    /// The value of the first header of that name, compared without case.
    pub fn findHeader(request: *const Request, name: []const u8) ?[]const u8 {
        return find(request.head, name);
    }

    /// The values of all headers of that name as one list (RFC 9110 section 5.3): several lines are joined,
    /// with memory of the arena. Not for headers that are no lists.
    pub fn findList(request: *const Request, name: []const u8) error{OutOfMemory}!?[]const u8 {
        const text = request.head.text;
        var list: ?[]const u8 = null;
        for (request.head.fields) |span| {
            if (!std.ascii.eqlIgnoreCase(span.name(text), name)) continue;
            const value = span.value(text);
            list = if (list) |before|
                try std.mem.concat(request.arena, u8, &.{ before, ", ", value })
            else
                value;
        }
        return list;
    }

    /// The value of the first trailer field of that name, compared without case; known when
    /// the body is complete.
    pub fn findTrailer(request: *const Request, name: []const u8) ?[]const u8 {
        return find(request.trailers orelse return null, name);
    }

    fn find(head: *const Head, name: []const u8) ?[]const u8 {
        for (head.fields) |span| {
            if (std.ascii.eqlIgnoreCase(span.name(head.text), name)) return span.value(head.text);
        }
        return null;
    }

    /// The header fields, in the order in which they came.
    pub fn headers(request: *const Request) Headers {
        return .{ .head = request.head };
    }

    /// Walks the header fields.
    pub const Headers = struct {
        head: *const Head,
        at: usize = 0,

        /// A name as the client spelled it, and a value without the blanks around it.
        pub const Pair = struct { name: []const u8, value: []const u8 };

        /// The next header, or null at the end.
        pub fn next(it: *Headers) ?Pair {
            if (it.at == it.head.fields.len) return null;
            const span = it.head.fields[it.at];
            it.at += 1;
            return .{ .name = span.name(it.head.text), .value = span.value(it.head.text) };
        }
    };

    /// Fills `query` with the pairs of the query, as received: nothing is decoded, and of several values the
    /// last one counts. Null, and an empty map, if there is no "?" or if a pair lacks its "="; see `param`
    /// for a reader that is less strict.
    pub fn parseQuery(request: *Request) error{OutOfMemory}!?std.StringHashMap([]const u8) {
        request.query.clearRetainingCapacity();
        if (!request.head.has_query) return null;
        errdefer request.query.clearRetainingCapacity();
        var pairs: query_file.Pairs = .init(request.getQuery());
        while (pairs.next()) |pair| {
            const value = pair.value orelse {
                request.query.clearRetainingCapacity();
                return null;
            };
            try request.query.put(pair.name, value);
        }
        return request.query;
    }

    /// The pairs of the query as received, without a map.
    pub fn queryPairs(request: *const Request) query_file.Pairs {
        return .init(request.getQuery());
    }

    /// The decoded value of the first pair whose decoded name is `name`; "" for a bare name, null if there is
    /// none. "+" is a space. A value that needed decoding lives in `arena`.
    pub fn param(request: *const Request, name: []const u8) error{OutOfMemory}!?[]const u8 {
        var pairs = request.queryPairs();
        while (pairs.next()) |pair| {
            if (!query_file.equals(pair.name, name)) continue;
            const value = pair.value orelse return "";
            if (!query_file.isEncoded(value)) return value;
            return query_file.decode(value, try request.arena.alloc(u8, value.len));
        }
        return null;
    }

    /// The path with each "%xx" decoded, in `arena` if anything was encoded. Segments are not touched:
    /// "/a/../b" stays as it is.
    pub fn decodedPath(request: *const Request) error{OutOfMemory}![]const u8 {
        const path = request.getPath();
        if (std.mem.findScalar(u8, path, '%') == null) return path;
        return protocol.http.target.percentDecode(path, try request.arena.alloc(u8, path.len));
    }

    /// For the server: takes everything but `arena` and `query`'s allocator from a fresh head.
    pub fn begin(request: *Request, head: *const Head) void {
        request.method = head.method;
        request.version = head.version;
        request.keep_alive = head.keep_alive;
        request.body = "";
        request.context = null;
        request.routed = null;
        request.gathers = false;
        request.gather_max = null;
        request.trailers = null;
        request.query = .init(request.arena);
        request.setHead(head);
    }

    /// For the server: the head lies elsewhere from now on.
    pub fn setHead(request: *Request, head: *const Head) void {
        request.head = head;
        const target = head.target.of(head.text);
        // Of an absolute-form target the authority is passed over; the rest is path and query.
        const skipped = switch (head.target_form) {
            .origin, .asterisk => 0,
            .absolute => head.authority.at + head.authority.len - head.target.at,
        };
        request.path_and_query = target[skipped..];
    }
};

const testing = std.testing;

/// A request as the engine would make it, for tests. `storage` holds its fields.
fn parsed(head: *Head, text: []const u8) !Request {
    const limits: Limits = .{
        .request_line_bytes_max = 1000,
        .head_bytes_max = 4000,
        .header_count_max = 16,
        .body_bytes_max = 1000,
        .trailer_bytes_max = 100,
        .chunk_line_bytes_max = 32,
    };
    var session: Session = .init(&limits);
    const step = session.feed(text, head);
    if (step.event != .request) return error.TestUnexpectedResult;
    var request: Request = undefined;
    request.arena = testing.allocator;
    request.begin(head);
    return request;
}

test "path, query and headers" {
    var storage: [16]protocol.http.FieldSpan = undefined;
    var head: Head = .{ .storage = &storage };
    var request = try parsed(
        &head,
        "GET /a%20b/c?x=1&y=a%2Bb+c&bare HTTP/1.1\r\nHost: h\r\nX-Thing:  v \r\n\r\n",
    );
    defer request.query.deinit();
    try testing.expectEqualStrings("/a%20b/c", request.getPath());
    try testing.expectEqualStrings("/a%20b/c?x=1&y=a%2Bb+c&bare", request.path_and_query);
    try testing.expectEqualStrings("v", request.findHeader("x-thing").?);
    try testing.expectEqual(null, request.findHeader("x-thin"));
    const path = try request.decodedPath();
    defer testing.allocator.free(path.ptr[0.."/a%20b/c".len]);
    try testing.expectEqualStrings("/a b/c", path);
    try testing.expectEqualStrings("1", (try request.param("x")).?);
    try testing.expectEqualStrings("", (try request.param("bare")).?);
    try testing.expectEqual(null, try request.param("z"));
    const y = (try request.param("y")).?;
    defer testing.allocator.free(y.ptr[0.."a%2Bb+c".len]);
    try testing.expectEqualStrings("a+b c", y);
    var headers = request.headers();
    try testing.expectEqualStrings("Host", headers.next().?.name);
    try testing.expectEqualStrings("v", headers.next().?.value);
    try testing.expectEqual(null, headers.next());
}

test "parseQuery: as documented, and nothing stale remains" {
    var storage: [16]protocol.http.FieldSpan = undefined;
    var head: Head = .{ .storage = &storage };
    var request = try parsed(&head, "GET /?a=1&b=%20&a=2 HTTP/1.1\r\nHost: h\r\n\r\n");
    defer request.query.deinit();
    const query = (try request.parseQuery()).?;
    try testing.expectEqualStrings("2", query.get("a").?);
    try testing.expectEqualStrings("%20", request.query.get("b").?);
    for ([_][]const u8{
        "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /?a=1&bare HTTP/1.1\r\nHost: h\r\n\r\n",
    }) |text| {
        var other = try parsed(&head, text);
        other.query = request.query;
        defer request.query = other.query;
        try testing.expectEqual(null, try other.parseQuery());
        try testing.expectEqual(0, other.query.count());
    }
    var empty = try parsed(&head, "GET /? HTTP/1.1\r\nHost: h\r\n\r\n");
    defer empty.query.deinit();
    try testing.expectEqual(0, (try empty.parseQuery()).?.count());
}

test "targets of other forms" {
    var storage: [16]protocol.http.FieldSpan = undefined;
    var head: Head = .{ .storage = &storage };
    const cases = [_][3][]const u8{
        .{ "GET http://h/p?q HTTP/1.1\r\nHost: other\r\n\r\n", "/p", "/p?q" },
        .{ "GET http://h?q/x HTTP/1.1\r\nHost: h\r\n\r\n", "/", "?q/x" },
        .{ "GET http://h HTTP/1.1\r\nHost: other\r\n\r\n", "/", "" },
        .{ "GET http://h HTTP/1.0\r\n\r\n", "/", "" },
        .{ "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", "*", "*" },
    };
    for (cases) |case| {
        var request = try parsed(&head, case[0]);
        defer request.query.deinit();
        try testing.expectEqualStrings(case[1], request.getPath());
        try testing.expectEqualStrings(case[2], request.path_and_query);
        try testing.expectEqualStrings("h", request.getHost());
        try testing.expectEqualStrings("h", request.findHeader("host").?);
        try testing.expectEqualStrings("h", (try request.findList("HOST")).?);
        var headers = request.headers();
        const only = headers.next().?;
        try testing.expect(std.ascii.eqlIgnoreCase("host", only.name));
        try testing.expectEqualStrings("h", only.value);
        try testing.expectEqual(null, headers.next());
    }
    const nobody = try parsed(&head, "GET / HTTP/1.0\r\n\r\n");
    try testing.expectEqualStrings("", nobody.getHost());
    try testing.expectEqual(null, nobody.findHeader("host"));
}
