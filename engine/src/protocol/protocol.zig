//! Layer `protocol`: bytes become events, commands become bytes. Imports std only.
//! Does not know: sockets, clocks, allocators, logs, threads and every other layer.
const response_fields = @import("http1/response_fields.zig");
const framing = @import("http1/framing.zig");
const encode = @import("http1/encode.zig");
pub const event = @import("event.zig");
pub const http = struct {
    pub const Method = @import("http/method.zig").Method;
    pub const status = @import("http/status.zig");
    pub const header = @import("http/header.zig");
    pub const accept = @import("http/accept.zig");
    pub const syntax = @import("http/syntax.zig");
    pub const target = @import("http/target.zig");
    pub const field_check = @import("http/field_check.zig");
    pub const order = @import("http/order.zig");
    pub const date = @import("http/date.zig");
    pub const event_stream = @import("http/event_stream.zig");
    pub const Version = framing.Version;
    pub const Lines = response_fields.Lines;
    pub const Field = header.Field;
    pub const FieldSpan = header.FieldSpan;
};
pub const Refusal = event.Refusal;
pub const early = @import("early.zig");
/// The operations that are common to all protocols of a connection, and the choice of a protocol.
pub const session = @import("session.zig");
pub const Session = session.Session;
pub const Single = session.Single;
pub const Multiplexed = session.Multiplexed;
pub const Head = session.Head;
pub const Limits = session.Limits;
pub const Stream = session.Stream;
/// Only for tests and benchmarks of HTTP/1: the server uses `Session`.
pub const http1 = @import("http1/session.zig");
pub const http2 = @import("http2/http2.zig");
/// The line before a chunk, for content that is framed once for many responses.
pub const chunkPrefix = encode.chunkPrefix;
pub const chunk_prefix_bytes_max = encode.chunk_prefix_bytes_max;
/// Facts from proxies: the header before a connection, and fields of requests.
pub const proxy = @import("proxy/proxy.zig");
pub const websocket = @import("websocket/session.zig");

test {
    @import("std").testing.refAllDecls(@This());
    @import("std").testing.refAllDecls(http);
}
