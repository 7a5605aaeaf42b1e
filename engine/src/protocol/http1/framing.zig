//! The rules of message framing in both directions: the end of content, and the persistence of the connection
//! (RFC 9112 sections 3.2, 6, 7 and 9.3; RFC 9110 sections 6.5, 7.8, 10.1.1). Does not know: how fields are
//! read, and how messages are written. Ambiguous messages are refused, because a guess would allow request
//! smuggling (RFC 9112 section 11.2).
const std = @import("std");
const assert = std.debug.assert;
const header = @import("../http/header.zig");
const syntax = @import("../http/syntax.zig");
const target = @import("../http/target.zig");
const Refusal = @import("../event.zig").Refusal;
const FieldSpan = header.FieldSpan;

/// Limits for a peer, from the server's configuration; all except the count are in bytes.
pub const Limits = struct {
    /// The request line without its CRLF; longer: 414.
    request_line_bytes_max: u32,
    /// The whole head, from the request line through the blank line; longer: 431.
    head_bytes_max: u32,
    /// The number of fields in a head or in a trailer section; more: 431.
    header_count_max: u16,
    /// The content; more: 413. 0: no limit.
    body_bytes_max: u64,
    /// A trailer section including its blank line; longer: 431.
    trailer_bytes_max: u32,
    /// The line before a chunk, including size, extensions and CRLF; longer: 400.
    chunk_line_bytes_max: u32,

    /// The extensions of all chunks of a body together may have this many times `chunk_line_bytes_max`, and
    /// one byte more for each byte of content; more: 400 (RFC 9112 section 7.1.1).
    pub const extensions_ratio = 64;
};

/// Protocol versions; the numbers are part of the C API.
pub const Version = enum(u8) { http_1_0 = 10, http_1_1 = 11, http_2 = 20 };

/// The end of a request's content. A content length of zero is `.none`.
pub const BodyKind = union(enum) { none, counted: u64, chunked };

/// The framing and persistence of a request, from its fields.
pub const Request = struct {
    body: BodyKind = .none,
    /// The client allows the connection to persist.
    keep_alive: bool,
    /// The client waits for 100 (Continue) before it sends the content.
    expect_continue: bool = false,
    /// The client offers to switch protocols.
    upgrade: bool = false,
    /// The Host field; null: none.
    host: ?*const FieldSpan = null,
    /// The request has more than one Content-Length, all with the same number.
    length_repeated: bool = false,
};

/// The result of the rules for a request.
pub const Outcome = union(enum) { accepted: Request, refused: Refusal };

/// Applies the rules to the fields of a request. `text`: the text of the spans.
pub fn request(version: Version, text: []const u8, fields: []const FieldSpan, body_bytes_max: u64) Outcome {
    var facts: Facts = .{};
    for (fields) |*field| {
        // Only a few fields concern framing. Their ids are the lowest, so that one comparison finds them.
        if (!Facts.concerns(field.id)) continue;
        if (facts.note(field, field.value(text))) |refusal| return .{ .refused = refusal };
    }
    return facts.judge(version, body_bytes_max);
}

/// Facts about a request's framing, collected in one pass over its fields.
const Facts = struct {
    host: ?*const FieldSpan = null,
    content_length: ?u64 = null,
    length_repeated: bool = false,
    coding: enum { absent, empty, chunked, unknown, unknown_then_chunked } = .absent,
    close: bool = false,
    keep_alive: bool = false,
    connection_upgrade: bool = false,
    upgrade: bool = false,
    expect_continue: bool = false,

    fn concerns(id: header.Id) bool {
        return @backingInt(id) -% 1 < @backingInt(header.Id.upgrade);
    }

    comptime {
        for (.{ .host, .connection, .content_length, .transfer_encoding, .expect, .upgrade }) |id| {
            assert(concerns(id));
        }
        assert(!concerns(.other) and !concerns(.cookie));
    }

    fn note(facts: *Facts, field: *const FieldSpan, value: []const u8) ?Refusal {
        switch (field.id) {
            .host => {
                if (facts.host != null) return bad("repeated Host field");
                facts.host = field;
                if (!target.isAuthority(value)) return bad("malformed Host field");
            },
            .content_length => return facts.noteContentLength(value),
            .transfer_encoding => return facts.noteTransferEncoding(value),
            .connection => {
                // Nearly all clients send this single word, which needs no list.
                if (syntax.equalsFolded(value, "keep-alive")) {
                    facts.keep_alive = true;
                    return null;
                }
                var list: syntax.List = .init(value);
                while (list.next()) |option| {
                    if (syntax.equalsFolded(option, "keep-alive")) {
                        facts.keep_alive = true;
                    } else if (syntax.equalsFolded(option, "close")) {
                        facts.close = true;
                    } else if (syntax.equalsFolded(option, "upgrade")) {
                        facts.connection_upgrade = true;
                    }
                }
            },
            .upgrade => facts.upgrade = facts.upgrade or value.len != 0,
            .expect => facts.expect_continue = facts.expect_continue or
                syntax.List.has(value, "100-continue"),
            else => unreachable,
        }
        return null;
    }

    /// Accepts a repeated length only if all mentions, also those in lists, are the same number (RFC 9112
    /// section 6.3).
    fn noteContentLength(facts: *Facts, value: []const u8) ?Refusal {
        var mentions = std.mem.splitScalar(u8, value, ',');
        while (mentions.next()) |mention| {
            const length = syntax.parseDecimal(syntax.trim(mention)) catch |err| return switch (err) {
                error.NotANumber => bad("malformed Content-Length"),
                error.Overflow => .{ .status = 413, .detail = "Content-Length too large" },
            };
            if (facts.content_length) |earlier| {
                if (earlier != length) return bad("contradictory Content-Length");
                facts.length_repeated = true;
            }
            facts.content_length = length;
        }
        return null;
    }

    /// Repeated fields are one list. No coding may follow chunked, not even another chunked.
    fn noteTransferEncoding(facts: *Facts, value: []const u8) ?Refusal {
        if (facts.coding == .absent) facts.coding = .empty;
        var list: syntax.List = .init(value);
        while (list.next()) |member| {
            const name = syntax.trim(member[0 .. std.mem.indexOfScalar(u8, member, ';') orelse member.len]);
            if (!syntax.isToken(name)) return bad("malformed Transfer-Encoding");
            const chunked = syntax.equalsFolded(name, "chunked");
            if (chunked and name.len != member.len) return bad("parameters on transfer coding chunked");
            facts.coding = switch (facts.coding) {
                .absent, .empty => if (chunked) .chunked else .unknown,
                .unknown => if (chunked) .unknown_then_chunked else .unknown,
                .chunked, .unknown_then_chunked => return bad("transfer coding after chunked"),
            };
        }
        return null;
    }

    fn judge(facts: *const Facts, version: Version, body_bytes_max: u64) Outcome {
        const modern = version != .http_1_0;
        if (modern and facts.host == null) return refuse(400, "missing Host field");
        var body: BodyKind = .none;
        if (facts.coding != .absent) {
            if (!modern) return refuse(400, "Transfer-Encoding in HTTP/1.0");
            if (facts.content_length != null) return refuse(400, "both Transfer-Encoding and Content-Length");
            switch (facts.coding) {
                .absent => unreachable,
                .empty => return refuse(400, "empty Transfer-Encoding"),
                .unknown => return refuse(400, "chunked is not the last transfer coding"),
                .unknown_then_chunked => return refuse(501, "unknown transfer coding"),
                .chunked => body = .chunked,
            }
        } else if (facts.content_length) |length| {
            if (body_bytes_max != 0 and length > body_bytes_max) return refuse(413, "content too large");
            if (length != 0) body = .{ .counted = length };
        }
        return .{
            .accepted = .{
                .body = body,
                .keep_alive = !facts.close and (modern or facts.keep_alive),
                // In HTTP/1.0 both Expect and Upgrade must be ignored (RFC 9110 sections 10.1.1 and 7.8).
                .expect_continue = modern and facts.expect_continue and body != .none,
                .upgrade = modern and facts.upgrade and facts.connection_upgrade,
                .host = facts.host,
                .length_repeated = facts.length_repeated,
            },
        };
    }
};

fn bad(comptime detail: []const u8) Refusal {
    return .{ .status = 400, .detail = detail };
}

fn refuse(status: u16, comptime detail: []const u8) Outcome {
    return .{ .refused = .{ .status = status, .detail = detail } };
}

/// Whether a field concerns only the connection. The engine manages that, so it drops such fields from an
/// application's responses.
pub fn isHopByHop(id: header.Id) bool {
    return switch (id) {
        .transfer_encoding, .connection, .keep_alive, .proxy_connection, .upgrade, .te => true,
        else => false,
    };
}

/// Whether a field is dropped from trailer sections in both directions, because it frames, routes or
/// authenticates the message, or tells how to read it (RFC 9110 section 6.5.1).
pub fn isForbiddenTrailer(id: header.Id) bool {
    return switch (id) {
        .content_length, .host, .trailer, .expect, .range, .content_type, .cache_control, .pragma => true,
        .authorization, .cookie, .origin => true,
        .if_none_match, .if_match, .if_range, .if_modified_since, .if_unmodified_since => true,
        .forwarded, .x_forwarded_for, .x_forwarded_host, .x_forwarded_proto => true,
        else => isHopByHop(id),
    };
}

const Line = struct { []const u8, []const u8 };

/// Writes `lines` in the form of a head and applies the rules.
fn judged(version: Version, lines: []const Line, body_bytes_max: u64) Outcome {
    var text: [512]u8 = undefined;
    var spans: [8]FieldSpan = undefined;
    var len: usize = 0;
    for (lines, spans[0..lines.len]) |line, *span| {
        const name, const value = line;
        @memcpy(text[len..][0..name.len], name);
        @memcpy(text[len + name.len ..][0..value.len], value);
        span.* = .{
            .name_at = @intCast(len),
            .name_len = @intCast(name.len),
            .value_at = @intCast(len + name.len),
            .value_len = @intCast(value.len),
            .id = .fromName(name),
        };
        len += name.len + value.len;
    }
    return request(version, text[0..len], spans[0..lines.len], body_bytes_max);
}

const host: Line = .{ "Host", "a.example" };

test "request content" {
    const cases = [_]struct { []const Line, BodyKind }{
        .{ &.{}, .none },
        .{ &.{.{ "Content-Length", "0" }}, .none },
        .{ &.{.{ "Content-Length", "5" }}, .{ .counted = 5 } },
        .{ &.{ .{ "Content-Length", "5" }, .{ "content-length", "5" } }, .{ .counted = 5 } },
        .{ &.{.{ "Content-Length", "5 , 05" }}, .{ .counted = 5 } },
        .{ &.{.{ "Content-Length", "1000" }}, .{ .counted = 1000 } },
        .{ &.{.{ "Transfer-Encoding", "Chunked" }}, .chunked },
        .{ &.{.{ "Transfer-Encoding", " , chunked," }}, .chunked },
    };
    for (cases) |case| {
        const lines, const expected = case;
        var all: [4]Line = undefined;
        all[0] = host;
        @memcpy(all[1..][0..lines.len], lines);
        try std.testing.expectEqual(expected, judged(.http_1_1, all[0 .. lines.len + 1], 1000).accepted.body);
    }
}

test "requests that are refused" {
    const length = "Content-Length";
    const coding = "Transfer-Encoding";
    const cases = [_]struct { u16, Version, []const Line }{
        .{ 400, .http_1_1, &.{} },
        .{ 400, .http_1_1, &.{ host, host } },
        .{ 400, .http_1_0, &.{ host, host } },
        .{ 400, .http_1_1, &.{.{ "Host", "a b" }} },
        .{ 400, .http_1_0, &.{.{ "Host", "a/b" }} },
        .{ 400, .http_1_1, &.{ host, .{ length, "5" }, .{ length, "6" } } },
        .{ 400, .http_1_1, &.{ host, .{ length, "6" }, .{ length, "5" } } },
        .{ 400, .http_1_1, &.{ host, .{ length, "5" }, .{ length, "0" } } },
        .{ 400, .http_1_1, &.{ host, .{ length, "5, 6" } } },
        .{ 400, .http_1_1, &.{ host, .{ length, "6, 5" } } },
        .{ 400, .http_1_1, &.{ host, .{ length, "5, 6, 5" } } },
        .{ 400, .http_1_1, &.{ host, .{ length, "5," } } },
        .{ 400, .http_1_1, &.{ host, .{ length, "" } } },
        .{ 400, .http_1_1, &.{ host, .{ length, "+5" } } },
        .{ 400, .http_1_1, &.{ host, .{ length, "5 5" } } },
        .{ 400, .http_1_1, &.{ host, .{ length, "0x5" } } },
        .{ 413, .http_1_1, &.{ host, .{ length, "1001" } } },
        .{ 413, .http_1_1, &.{ host, .{ length, "18446744073709551616" } } },
        .{ 400, .http_1_1, &.{ host, .{ length, "5" }, .{ coding, "chunked" } } },
        .{ 400, .http_1_1, &.{ host, .{ coding, "chunked" }, .{ length, "0" } } },
        .{ 400, .http_1_0, &.{.{ coding, "chunked" }} },
        .{ 400, .http_1_1, &.{ host, .{ coding, "" } } },
        .{ 400, .http_1_1, &.{ host, .{ coding, "chunked, chunked" } } },
        .{ 400, .http_1_1, &.{ host, .{ coding, "chunked" }, .{ coding, "chunked" } } },
        .{ 400, .http_1_1, &.{ host, .{ coding, "chunked, gzip" } } },
        .{ 400, .http_1_1, &.{ host, .{ coding, "chunked;x=1" } } },
        .{ 400, .http_1_1, &.{ host, .{ coding, "identity" } } },
        .{ 400, .http_1_1, &.{ host, .{ coding, "gzip" } } },
        .{ 400, .http_1_1, &.{ host, .{ coding, "gzip, deflate" } } },
        .{ 400, .http_1_1, &.{ host, .{ coding, "gz ip, chunked" } } },
        .{ 400, .http_1_1, &.{ host, .{ coding, "\x0bchunked" } } },
        .{ 400, .http_1_1, &.{ host, .{ coding, "\"chunked\"" } } },
        .{ 501, .http_1_1, &.{ host, .{ coding, "gzip, chunked" } } },
        .{ 501, .http_1_1, &.{ host, .{ coding, "gzip;q=1" }, .{ coding, "chunked" } } },
    };
    for (cases, 0..) |case, number| {
        const status, const version, const lines = case;
        switch (judged(version, lines, 1000)) {
            .accepted => {
                std.debug.print("case {d} was accepted\n", .{number});
                return error.TestUnexpectedResult;
            },
            .refused => |refusal| try std.testing.expectEqual(status, refusal.status),
        }
    }
}

test "persistence, expectation, upgrade" {
    const cases = [_]struct { Version, []const Line, Request }{
        .{ .http_1_1, &.{host}, .{ .keep_alive = true } },
        .{ .http_1_1, &.{ host, .{ "Connection", "foo, Close" } }, .{ .keep_alive = false } },
        .{
            .http_1_1,
            &.{ host, .{ "Connection", "keep-alive" }, .{ "Connection", "close" } },
            .{ .keep_alive = false },
        },
        .{ .http_1_0, &.{}, .{ .keep_alive = false } },
        .{ .http_1_0, &.{.{ "Connection", "Keep-Alive" }}, .{ .keep_alive = true } },
        .{ .http_1_0, &.{.{ "Connection", "Keep-Alive, close" }}, .{ .keep_alive = false } },
        .{ .http_1_0, &.{.{ "Connection", "foo, Keep-Alive" }}, .{ .keep_alive = true } },
        .{ .http_1_0, &.{.{ "Connection", "foo" }}, .{ .keep_alive = false } },
        .{
            .http_1_1,
            &.{ host, .{ "Content-Length", "1" } },
            .{ .keep_alive = true, .body = .{ .counted = 1 } },
        },
        .{ .http_1_1, &.{ host, .{ "Expect", "100-Continue" } }, .{ .keep_alive = true } },
        .{
            .http_1_1,
            &.{ host, .{ "Expect", "100-Continue" }, .{ "Content-Length", "1" } },
            .{ .keep_alive = true, .expect_continue = true, .body = .{ .counted = 1 } },
        },
        .{
            .http_1_0,
            &.{ .{ "Expect", "100-continue" }, .{ "Content-Length", "1" } },
            .{ .keep_alive = false, .body = .{ .counted = 1 } },
        },
        .{ .http_1_1, &.{ host, .{ "Upgrade", "websocket" } }, .{ .keep_alive = true } },
        .{ .http_1_1, &.{ host, .{ "Connection", "Upgrade" } }, .{ .keep_alive = true } },
        .{
            .http_1_1,
            &.{ host, .{ "Upgrade", "websocket" }, .{ "Connection", "foo" } },
            .{ .keep_alive = true },
        },
        .{ .http_1_1, &.{ host, .{ "Upgrade", "" }, .{ "Connection", "Upgrade" } }, .{ .keep_alive = true } },
        .{
            .http_1_1,
            &.{ host, .{ "Upgrade", "x" }, .{ "Connection", "Upgrade" } },
            .{ .keep_alive = true, .upgrade = true },
        },
        .{
            .http_1_1,
            &.{ host, .{ "Upgrade", "websocket" }, .{ "Connection", "keep-alive, Upgrade" } },
            .{ .keep_alive = true, .upgrade = true },
        },
        .{
            .http_1_0,
            &.{ .{ "Upgrade", "websocket" }, .{ "Connection", "Upgrade" } },
            .{ .keep_alive = false },
        },
    };
    for (cases) |case| {
        const version, const lines, const expected = case;
        var found = judged(version, lines, 0).accepted;
        try std.testing.expectEqual(version == .http_1_1, found.host != null);
        found.host = null;
        try std.testing.expectEqual(expected, found);
    }
}

test "versions have the numbers that peregrine.h gives them" {
    for ([_]Version{ .http_1_0, .http_1_1, .http_2 }, [_]u8{ 10, 11, 20 }) |version, number| {
        try std.testing.expectEqual(number, @backingInt(version));
    }
}

test "trailers may not frame, route or authenticate a message, nor say how to read it" {
    const forbidden = [_][]const u8{
        "Content-Length",   "Transfer-Encoding", "TE",                "Trailer",
        "Host",             "Connection",        "Keep-Alive",        "Proxy-Connection",
        "Upgrade",          "Expect",            "Range",             "Content-Type",
        "Cache-Control",    "Pragma",            "Authorization",     "Cookie",
        "Origin",           "If-None-Match",     "If-Match",          "If-Range",
        "Forwarded",        "X-Forwarded-For",   "If-Modified-Since", "If-Unmodified-Since",
        "X-Forwarded-Host", "X-Forwarded-Proto",
    };
    for (forbidden) |name| {
        errdefer std.debug.print("{s}\n", .{name});
        try std.testing.expect(isForbiddenTrailer(.fromName(name)));
    }
    for ([_][]const u8{ "Digest", "Server-Timing", "X-Checksum", "Date" }) |name| {
        try std.testing.expect(!isForbiddenTrailer(.fromName(name)));
    }
}
