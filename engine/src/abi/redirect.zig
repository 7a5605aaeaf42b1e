//! The way to https: requests that came in the clear are answered with 308 and the same URL under https
//! (RFC 9110 section 15.4.9). Does not know: what is asked before and after it (asides.zig).
const std = @import("std");
const peregrine = @import("peregrine");
const Exchange = peregrine.Exchange;
const Head = peregrine.Head;

/// Sends clients to https.
pub const Redirect = struct {
    /// The port of https for clients that name a port. Clients that name none came to port 80, and are sent
    /// to 443: a server behind a port mapping need not know the ports outside.
    port: u16,

    const https_port = 443;

    /// Whether a request is to be sent to https. A peer on a Unix socket is a proxy, and a proxy that ends
    /// TLS would be sent in circles: its word that the client has https counts, whether the proxy is
    /// trusted or not.
    pub fn concerns(worker: anytype, exchange: *const Exchange, head: *const Head) bool {
        if (worker.clients.current.secure or exchange.lane.peerAddress().len == 0) return false;
        for (head.fields) |field| {
            const value = field.value(head.text);
            switch (field.id) {
                .x_forwarded_proto => if (std.ascii.endsWithIgnoreCase(value, "https")) return false,
                .forwarded => if (isForwardedHttps(value)) return false,
                else => {},
            }
        }
        return true;
    }

    /// Whether a value of Forwarded names https (RFC 7239 section 5.4).
    fn isForwardedHttps(value: []const u8) bool {
        for ([_][]const u8{ "proto=https", "proto=\"https\"" }) |pair| {
            if (std.ascii.findIgnoreCase(value, pair) != null) return true;
        }
        return false;
    }

    /// Called by `aside.answer`. A request without an authority (HTTP/1.0) is a 400: its URL under https is
    /// unknown.
    pub fn answer(
        redirect: Redirect,
        request: *const peregrine.Request,
        response: *peregrine.Response,
    ) !bool {
        const authority = request.getHost();
        const literal_end = if (std.mem.findScalar(u8, authority, ']')) |at| at + 1 else 0;
        const name_end = std.mem.findScalarPos(u8, authority, literal_end, ':') orelse authority.len;
        if (name_end == 0) {
            response.status = .bad_request;
            return true;
        }
        const port = authority[@min(name_end + 1, authority.len)..];
        const is_plain_port = port.len == 0 or std.mem.eql(u8, port, "80");
        var buffer: [6]u8 = undefined;
        const suffix = if (is_plain_port or redirect.port == https_port)
            ""
        else
            std.fmt.bufPrint(&buffer, ":{d}", .{redirect.port}) catch unreachable;
        const target = if (request.path_and_query.len == 0) "/" else request.path_and_query;
        const location = try std.mem.concat(
            request.arena,
            u8,
            &.{ "https://", authority[0..name_end], suffix, target },
        );
        response.status = .permanent_redirect;
        try response.addHeader(try .init("location", location));
        return true;
    }
};

test "Forwarded names https with and without quotes" {
    for ([_][]const u8{ "proto=https", "for=1.2.3.4;PROTO=HTTPS", "proto=\"https\";by=x" }) |value| {
        try std.testing.expect(Redirect.isForwardedHttps(value));
    }
    for ([_][]const u8{ "", "for=https", "for=1.2.3.4;proto=http" }) |value| {
        try std.testing.expect(!Redirect.isForwardedHttps(value));
    }
}
