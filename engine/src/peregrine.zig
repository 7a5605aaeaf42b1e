//! Peregrine's public face: the names that a Zig program uses. No logic here.
const server = @import("server");
const protocol = @import("protocol");
const native = @import("native");
const static = native.static;

/// This package's version, as in its build.zig.zon.
pub const version = @import("package_options").version;
/// The io backends and addresses: `io.Native` is this platform's, `io.Sim` the simulated network.
pub const io = @import("io");
/// Certificates and policy, for `ServerConfig.tls` and for embedders.
pub const tls = @import("tls");
/// A server for a handler type: `Server(Handler).init(allocator, port, .{})`.
pub const Server = native.Server;
pub const ServerConfig = native.ServerConfig;
/// `Server` over another io, and a whole test bench on the simulated network.
pub const ServerOn = native.ServerOn;
pub const Simulation = native.Simulation;
/// A request that a test sends to a `Simulation`, and its answer.
pub const Question = native.Question;
pub const Answer = native.Answer;
pub const Request = native.Request;
pub const Response = native.Response;
/// Types of a response: headers, statuses, files, and the error that shows a slow client.
pub const Header = native.Header;
pub const Status = native.Status;
pub const HeaderError = native.HeaderError;
pub const SetBodyError = native.SetBodyError;
pub const SendError = native.SendError;
pub const ErrorPage = native.ErrorPage;
/// A std.Io.Writer for a response's body: `Response.writer`.
pub const BodyWriter = native.BodyWriter;
pub const FileBody = native.FileBody;
pub const SharedBody = native.SharedBody;
pub const Flow = native.Flow;
/// An answer that comes later, from any thread.
pub const Detached = native.Detached;
/// Events for a client over a response that stays open.
pub const EventStream = native.EventStream;
pub const Event = native.Event;
/// Threads for handlers that block.
pub const Threads = native.Threads;
pub const Method = protocol.http.Method;
pub const Version = protocol.http.Version;

/// WebSockets: `ws.upgrader.handleUpgrade`, the hooks' types, and `ws.writer` for other threads.
pub const ws = native.ws;
/// Ready-made answers: the files of a folder, one file, and media types.
pub const util = struct {
    pub const DirServer = static.DirServer;
    pub const DirServerConfig = static.DirServerConfig;
    pub const FileServer = static.FileServer;
    /// The most ranges of a file in one answer.
    pub const ranges_max = static.ranges_max;
    pub const FileServerConfig = static.FileServerConfig;
    pub const Mime = static.Mime;
    /// The content codings that an Accept-Encoding field names.
    pub const AcceptedCodings = static.AcceptedCodings;
};

// For programs that embed the engine without a Zig handler, as the C API does.
/// The loop of a thread over an io and a host; see server/worker.zig for the host's contract.
pub const Worker = server.Worker;
/// A piece of a response's body, for `Worker.write`.
pub const Content = server.Content;
/// The demand of a host, and routes by which a host has several.
pub const Demand = server.Demand;
pub const Route = server.Route;
pub const findRoute = server.findRoute;
/// The host for a Zig handler, and the mailbox that it needs.
pub const NativeHost = native.NativeHost;
/// Answers an exchange of another host with a response that a function makes.
pub const aside = native.aside;
pub const Inbox = server.Inbox;
pub const Exchange = server.Exchange;
pub const HostWord = server.HostWord;
pub const Tunnel = server.Tunnel;
pub const Start = server.Start;
/// Commands for an exchange, as values for `Worker.apply`, and their form without pointers.
pub const Command = server.Command;
pub const RefusalCause = server.RefusalCause;
pub const Refused = server.Refused;
/// Counts events, of which the log tells in one line a second.
pub const Tally = server.Tally;
pub const Outcome = server.Outcome;
pub const encoded = server.encoded;
/// Records of what happens to exchanges, for a reader in another process.
pub const trace = server.trace;
/// The owner's mark for bytes that a command sends without a copy; they come back through
/// `Worker.pool.loans`.
pub const Loan = server.Loan;
/// Bytes that several exchanges may send at a time, for `Content.held` and `Worker.sendFramed`.
pub const Held = server.Held;
pub const Config = server.Config;
pub const api_limits = server.api_limits;
/// Lists of networks, for `Worker.proxyListener` and, in a `Trust`, `Clients.setTrust`.
pub const Networks = server.Networks;
pub const Trust = server.Trust;
pub const ForwardedHeader = server.ForwardedHeader;
pub const Client = server.Client;
/// A copy of a head that outlives the bytes it was read from, and the memory that this takes.
pub const copyHead = server.copyHead;
pub const copySize = server.copySize;
/// The access log of one worker: `Worker.setAccessLog`.
pub const AccessLogFault = server.AccessLogFault;
pub const AccessLogFormat = server.AccessLogFormat;
pub const AccessLogOptions = server.AccessLogOptions;
pub const Ticket = server.Ticket;
/// The most exchanges that a worker has at a time: beyond them no ticket has its slot.
pub const exchanges_max = server.exchanges_max;
pub const Reason = server.Reason;
pub const Level = server.Level;
pub const Stats = server.Stats;
/// Counts of a worker, in memory that other processes may map: `Worker.useCounters`.
pub const Counters = server.Counters;
pub const counter_table = server.counter_table;
pub const CounterKind = server.CounterKind;
pub const StartError = server.StartError;
pub const head_bytes_max = server.head_bytes_max;
pub const BodyError = server.BodyError;
pub const EndError = server.EndError;
pub const WebSocketKind = server.WebSocket.Kind;
pub const WebSocketClose = server.WebSocket.Close;
/// For hosts that take messages over instead of copying them (`Incoming.surrender`), or ask for them one by
/// one (`Incoming.Flow`).
pub const Incoming = server.Incoming;
pub const Budget = server.Budget;
pub const Pool = server.Pool;
pub const Head = protocol.Head;
pub const Field = protocol.http.Field;
pub const FieldSpan = protocol.http.FieldSpan;
pub const accept = protocol.http.accept;
/// The rules for the order and the fields of a response, for callers that have to know them before they ask
/// the engine.
pub const rules = struct {
    pub const Order = protocol.http.order.Order;
    pub const Shape = protocol.http.order.Shape;
    pub const Streamed = protocol.http.order.Streamed;
    pub const fields = protocol.http.field_check;
    pub const startSize = protocol.session.startSize;
    pub const endSize = protocol.session.endSize;
    pub const status_max = protocol.http.status.code_max;
    pub const ownsField = protocol.websocket.handshake.ownsField;
    pub const isUtf8 = protocol.websocket.utf8.valid;
    pub const checkClose = protocol.websocket.Session.checkClose;
};
/// Queries and urlencoded forms, pair by pair.
pub const query = native.query;
/// Deflate (RFC 1951), message by message or as one stream.
pub const Deflater = protocol.websocket.deflate.Deflater;
pub const percentDecode = protocol.http.target.percentDecode;
