//! The Zig face: servers for handlers, requests and responses, WebSockets, files. Imports the
//! engine (`server`).
//! Does not know: bytes on the wire, C, Perl.
const backend = @import("backend.zig");
const response = @import("response.zig");
const server = @import("server.zig");

pub const Server = backend.Server;
pub const ServerOn = server.ServerOn;
/// The native host, for workers with other hosts beside it.
pub const NativeHost = @import("host.zig").NativeHost;
pub const ServerConfig = @import("settings.zig").ServerConfig;
/// A server and its clients in one test.
pub const Simulation = @import("simulation.zig").Simulation;
pub const Answer = @import("answer.zig").Answer;
pub const Question = @import("answer.zig").Question;

/// Native answers for workers of other hosts.
pub const aside = @import("aside.zig");

pub const Request = @import("request.zig").Request;
pub const Response = response.Response;
pub const Header = response.Header;
pub const Status = @import("status.zig").Status;
pub const Detached = @import("detached.zig").Detached;
pub const Event = @import("event_stream.zig").Event;
pub const EventStream = @import("event_stream.zig").EventStream;
pub const Threads = @import("threads.zig").Threads;
/// A std.Io.Writer for a response's body.
pub const BodyWriter = @import("body_writer.zig").BodyWriter;
pub const ErrorPage = response.ErrorPage;
pub const FileBody = response.FileBody;
pub const Flow = response.Flow;
pub const HeaderError = response.HeaderError;
pub const SendError = response.SendError;
pub const SetBodyError = response.BodyError;
pub const SharedBody = response.SharedBody;
pub const query = @import("query.zig");
pub const ws = @import("ws.zig");
pub const static = @import("static.zig");

test {
    _ = @import("acceptor.zig");
    _ = @import("answer.zig");
    _ = @import("arena.zig");
    _ = @import("call.zig");
    _ = @import("detached.zig");
    _ = @import("event_stream.zig");
    _ = @import("handler.zig");
    _ = @import("job.zig");
    _ = @import("host.zig");
    _ = @import("metrics.zig");
    _ = @import("query.zig");
    _ = @import("registry.zig");
    _ = @import("request.zig");
    _ = @import("response.zig");
    _ = @import("settings.zig");
    _ = @import("signals.zig");
    _ = @import("simulated_websocket.zig");
    _ = @import("simulation.zig");
    _ = @import("status_page.zig");
    _ = @import("sockets.zig");
    _ = @import("static.zig");
    _ = @import("status.zig");
    _ = @import("threads.zig");
    _ = @import("ws.zig");
}
