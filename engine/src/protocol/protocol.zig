//! Room `protocol`: bytes become events, commands become bytes. Imports std only.
//! Refuses to know: sockets, clocks, allocators, logs, threads and every other room.
pub const event = @import("event.zig");
pub const http = struct {
    pub const Method = @import("http/method.zig").Method;
    pub const status = @import("http/status.zig");
    pub const header = @import("http/header.zig");
    pub const accept = @import("http/accept.zig");
    pub const syntax = @import("http/syntax.zig");
    pub const target = @import("http/target.zig");
    pub const date = @import("http/date.zig");
    pub const Field = header.Field;
    pub const FieldSpan = header.FieldSpan;
};
pub const http1 = @import("http1/session.zig");
/// What proxies say: the header before a connection, and fields of requests.
pub const proxy = @import("proxy/proxy.zig");
pub const websocket = @import("websocket/session.zig");

test {
    @import("std").testing.refAllDecls(@This());
    @import("std").testing.refAllDecls(http);
}
