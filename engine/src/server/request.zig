//! What a Zig handler sees of a request. Borrowed: valid until the handler returns.
const std = @import("std");
const protocol = @import("protocol");
const http1 = protocol.http1;
const Ticket = @import("slab.zig").Ticket;

pub const Request = struct {
    head: *const http1.Head,
    method: protocol.http.Method,
    version: http1.Version,
    /// The whole body; empty if there is none.
    body: []const u8 = "",
    /// The peer's numeric address and port; empty and 0 over a Unix socket.
    peer: []const u8 = "",
    peer_port: u16 = 0,

    /// The path of the target as received, still percent-encoded, without the query.
    pub fn getPath(request: *const Request) []const u8 {
        return request.head.path.of(request.head.text);
    }

    /// What follows the '?', still percent-encoded; empty if there is none.
    pub fn getQuery(request: *const Request) []const u8 {
        return request.head.query.of(request.head.text);
    }

    /// The first field of that name, compared without case.
    pub fn findHeader(request: *const Request, name: []const u8) ?[]const u8 {
        for (request.head.fields) |span| {
            if (std.ascii.eqlIgnoreCase(span.name(request.head.text), name)) return span.value(request.head.text);
        }
        return null;
    }
};
