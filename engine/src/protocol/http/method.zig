//! Request methods (RFC 9110 section 9, RFC 5789).
//! Does not know: the effect of a method on framing (http1/framing.zig).
const std = @import("std");
const Refusal = @import("../event.zig").Refusal;

/// A request method. Any token without lower-case letters is allowed (see `refusal`); methods without a name
/// here are `.other`, with their text in `Head.method_text`. The numbers are part of the C API (peregrine.h):
/// append only.
pub const Method = enum(u8) {
    other = 0,
    GET = 1,
    HEAD = 2,
    POST = 3,
    PUT = 4,
    DELETE = 5,
    CONNECT = 6,
    OPTIONS = 7,
    TRACE = 8,
    PATCH = 9,

    /// Returns the method of `token`, which the caller has checked to be a token. Methods are case-sensitive:
    /// `get` is `.other`.
    pub fn parse(token: []const u8) Method {
        return switch (token.len) {
            3 => if (eql(token, "GET")) .GET else if (eql(token, "PUT")) .PUT else .other,
            4 => if (eql(token, "POST")) .POST else if (eql(token, "HEAD")) .HEAD else .other,
            5 => if (eql(token, "PATCH")) .PATCH else if (eql(token, "TRACE")) .TRACE else .other,
            6 => if (eql(token, "DELETE")) .DELETE else .other,
            7 => if (eql(token, "OPTIONS")) .OPTIONS else if (eql(token, "CONNECT")) .CONNECT else .other,
            else => .other,
        };
    }

    /// The reason why requests with this method are refused (501); null: they are not. `token` is the method
    /// as received. Methods are case-sensitive (RFC 9110 section 9.1), and all registered ones are upper
    /// case: an application that treats `head` as HEAD, or only compares with DELETE, would see another
    /// method than framing did.
    pub inline fn refusal(method: Method, token: []const u8) ?Refusal {
        return switch (method) {
            .other => for (token) |byte| {
                if (std.ascii.isLower(byte)) break .{ .status = 501, .detail = "method in lower case" };
            } else null,
            // The engine is no proxy (RFC 9110 section 9.3.6).
            .CONNECT => .{ .status = 501, .detail = "CONNECT is not supported" },
            else => null,
        };
    }

    /// The method in wire form; "" for `.other`, whose text is in the head.
    pub fn text(method: Method) []const u8 {
        return if (method == .other) "" else @tagName(method);
    }
};

/// The literal's length is known at compile time, so this compiles to one or two comparisons of words.
inline fn eql(token: []const u8, comptime literal: []const u8) bool {
    return std.mem.eql(u8, token[0..literal.len], literal);
}

test "every named method parses to itself" {
    inline for (.{ .GET, .HEAD, .POST, .PUT, .DELETE, .CONNECT, .OPTIONS, .TRACE, .PATCH }) |tag| {
        const method: Method = tag;
        try std.testing.expectEqual(method, Method.parse(method.text()));
    }
}

test "which methods are served" {
    for ([_][]const u8{ "GET", "OPTIONS", "M-SEARCH", "VERSION-CONTROL", "PURGE", "X2", "A.B~C!" }) |token| {
        try std.testing.expectEqual(null, Method.parse(token).refusal(token));
    }
    for ([_][]const u8{ "CONNECT", "head", "delete", "Get", "GEt", "PRI-x", "connect" }) |token| {
        try std.testing.expectEqual(501, Method.parse(token).refusal(token).?.status);
    }
}

test "unknown and differently spelled methods are other" {
    for ([_][]const u8{ "get", "GE", "GETT", "PURGE", "M-SEARCH", "PRI", "PROPFIND", "other", "X" }) |token| {
        try std.testing.expectEqual(Method.other, Method.parse(token));
    }
    try std.testing.expectEqualStrings("", Method.other.text());
}
