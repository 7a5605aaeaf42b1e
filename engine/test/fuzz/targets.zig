//! The fuzz targets: for each name a function that takes any bytes and checks that the engine does the right
//! thing with them. A target fails by an error or by a panic. libfuzzer.zig runs the targets on inputs that a
//! fuzzer makes up (script/fuzz), replay_test.zig on the corpus. Does not know: where the bytes come from.
const std = @import("std");

/// script/fuzz takes the name of a target; test/corpus/NAME.seeds and test/corpus/NAME/ are its inputs.
pub const Target = enum {
    /// The first request head of a connection, against a second parser that is written the plain way.
    head,
    /// Everything that one HTTP/1 connection says, cut in any way, against the rules of message framing.
    framing,
    /// A chunked body and its trailers, against a second decoder.
    chunked,
    /// Header blocks of HTTP/2, against a second decoder; and what we encode ourselves.
    hpack,
    /// Everything that one HTTP/2 connection says, cut in any way.
    http2,
    /// WebSocket frames, against a second decoder.
    websocket,
    /// UTF-8 in pieces, against the standard library's.
    utf8,
    /// DEFLATE in pieces, against the standard library's; and what we compress ourselves.
    inflate,
    /// The header of the PROXY protocol, against a second parser that sees all of it.
    proxy,
    /// Fields in which proxies name clients: nothing that a client writes hides what its proxy adds.
    forwarded,
    /// Bytes that claim to be a command from another thread or process.
    command,
    /// A multipart form cut in any way, against a reader that sees all of it.
    multipart,
    /// A form of pairs, against a second decoder.
    urlencoded,
    /// The cookies of a request, and cookies that are set.
    cookie,
    /// A ring pair into which an application writes anything.
    ring,
    /// Answers of Redis cut in any way, against a reader that sees all of them.
    resp,
    /// A Redis that answers anything, and the log of a topic in it.
    redis,
    /// Bytes into a whole server over a simulated network.
    connection,

    /// Runs the target on one input.
    pub fn run(target: Target, input: []const u8) anyerror!void {
        return switch (target) {
            inline else => |which| @field(rooms, @tagName(which)).run(input),
        };
    }
};

const rooms = struct {
    const head = @import("head.zig");
    const framing = @import("framing.zig");
    const chunked = @import("chunked.zig");
    const hpack = @import("hpack.zig");
    const http2 = @import("http2.zig");
    const websocket = @import("websocket.zig");
    const utf8 = @import("utf8.zig");
    const inflate = @import("inflate.zig");
    const proxy = @import("proxy.zig");
    const forwarded = @import("forwarded.zig");
    const command = @import("command.zig");
    const multipart = @import("multipart.zig");
    const urlencoded = @import("urlencoded.zig");
    const cookie = @import("cookie.zig");
    const ring = @import("ring.zig");
    const resp = @import("resp.zig");
    const redis = @import("redis.zig");
    const connection = @import("connection.zig");
};
