//! Peregrine's public face: a map of what a Zig program uses. No logic here.
const server = @import("server");
const protocol = @import("protocol");

/// The io backends and addresses: `io.Native` is this platform's, `io.Sim` the simulated network.
pub const io = @import("io");
/// A server for a handler type: `Server(Handler).init(allocator, port, .{})`.
pub const Server = server.Server;
pub const ServerConfig = server.ServerConfig;
pub const Request = server.Request;
pub const Response = server.Response;
pub const Method = protocol.http.Method;
pub const Version = protocol.http1.Version;

// For embedding the engine into something else than a Zig handler, as the C door does.
/// One thread's loop over an io and a host; see server/worker.zig for the host's contract.
pub const Worker = server.Worker;
pub const Exchange = server.Exchange;
pub const Start = server.Start;
pub const Config = server.Config;
pub const Ticket = server.Ticket;
pub const Reason = server.Reason;
pub const Level = server.Level;
pub const Stats = server.Stats;
pub const StartError = server.StartError;
pub const BodyError = server.BodyError;
pub const WebSocketKind = server.WebSocketKind;
pub const WebSocketClose = server.WebSocketClose;
pub const Head = protocol.http1.Head;
pub const Field = protocol.http.Field;
pub const FieldSpan = protocol.http.FieldSpan;
