//! The engine: connections, exchanges and workers; joins `protocol`, `io` and `tls`. Does not know: hosts (C,
//! Perl, Zig handlers).
const access_log = @import("access_log.zig");
const client = @import("client.zig");
const counters = @import("counters.zig");
const exchange = @import("exchange.zig");
const inbox = @import("inbox.zig");
const slab = @import("slab.zig");
const types = @import("types.zig");
const websocket = @import("websocket.zig");

/// The event loop of a thread, generic over an io and a host.
pub const Worker = @import("worker.zig").Worker;
pub const Config = @import("config.zig").Config;
pub const api_limits = @import("config.zig").api_limits;
pub const Fault = @import("fault.zig").Fault;
pub const AddressText = @import("address_text.zig").AddressText;
pub const Admission = @import("admission.zig").Admission;

pub const Lane = @import("lane.zig").Lane;
pub const Stream = @import("stream.zig").Stream;
pub const Transport = @import("transport.zig").Transport;
pub const Tunnel = @import("tunnel.zig").Tunnel;
pub const Client = client.Client;
pub const copyHead = @import("kept_head.zig").copyHead;
pub const copySize = @import("kept_head.zig").copySize;
pub const Trust = client.Trust;
pub const ForwardedHeader = client.ForwardedHeader;
pub const Networks = @import("networks.zig").Networks;

pub const Exchange = exchange.Exchange;
pub const HostWord = @import("host_word.zig").HostWord;
pub const Start = exchange.Start;
pub const StartError = exchange.StartError;
pub const head_bytes_max = exchange.head_bytes_max;
pub const BodyError = exchange.BodyError;
pub const EndError = exchange.EndError;
/// A piece of a response's body.
pub const Content = @import("content.zig").Content;
/// A command to an exchange, as a value, and as bytes without pointers.
pub const Command = @import("command.zig").Command;
pub const RefusalCause = @import("tally.zig").Cause;
pub const Refused = @import("tally.zig").Refused;
pub const Tally = @import("tally.zig").Tally;
pub const Outcome = @import("command.zig").Outcome;
pub const encoded = @import("encoded.zig");
pub const Reason = types.Reason;

/// A request with its whole body.
pub const Intake = @import("intake.zig").Intake;
pub const Demand = @import("demand.zig").Demand;
pub const Route = @import("route.zig").Route;
pub const findRoute = @import("route.zig").find;

/// Memory of a worker: blocks, queues of them, and slots with tickets.
pub const Pool = @import("pool.zig").Pool;
pub const Input = @import("input.zig").Input;
pub const Incoming = @import("incoming.zig").Incoming;
pub const Budget = @import("budget.zig").Budget;
pub const Held = @import("loan.zig").Held;
pub const Loan = @import("loan.zig").Loan;
pub const Outbox = @import("outbox.zig").Outbox;
pub const FileRange = @import("outbox.zig").FileRange;
pub const Slab = slab.Slab;
pub const Ticket = slab.Ticket;
pub const exchanges_max = slab.items_max;

/// The mailbox through which other threads send commands to a worker.
pub const Inbox = inbox.Inbox;
pub const Message = inbox.Message;
pub const MessageQueue = inbox.Queue;
pub const PostError = inbox.PostError;
pub const attend = inbox.attend;

/// An exchange whose upgrade to WebSocket was accepted.
pub const WebSocket = struct {
    pub const Kind = websocket.Kind;
    pub const Close = websocket.Close;
    pub const SendError = websocket.SendError;
    pub const CloseError = websocket.CloseError;
    pub const code_abnormal = websocket.code_abnormal;
    pub const code_internal_error = websocket.code_internal_error;
};

pub const AccessLog = access_log.AccessLog;
pub const AccessLogFault = access_log.Fault;
pub const AccessLogFormat = access_log.Format;
pub const AccessLogOptions = access_log.Options;
pub const Level = types.Level;
pub const Stats = types.Stats;
/// Records for `peregrine trace`.
pub const trace = @import("trace.zig");
/// A worker's counters, for other processes to read.
pub const Counters = counters.Counters;
pub const counter_table = counters.table;
pub const CounterKind = counters.Kind;

test {
    _ = @import("access_log.zig");
    _ = @import("accepting.zig");
    _ = @import("admission.zig");
    _ = @import("alpn.zig");
    _ = @import("blockage.zig");
    _ = @import("budget.zig");
    _ = @import("client.zig");
    _ = @import("clock.zig");
    _ = @import("compression.zig");
    _ = @import("config.zig");
    _ = @import("counters.zig");
    _ = @import("encoded.zig");
    _ = @import("exchange.zig");
    _ = @import("fault.zig");
    _ = @import("handshakes.zig");
    _ = @import("health.zig");
    _ = @import("holdings.zig");
    _ = @import("host_word.zig");
    _ = @import("inbox.zig");
    _ = @import("incoming.zig");
    _ = @import("input.zig");
    _ = @import("lane.zig");
    _ = @import("loan.zig");
    _ = @import("memory.zig");
    _ = @import("multiplex.zig");
    _ = @import("networks.zig");
    _ = @import("outbox.zig");
    _ = @import("peer_text.zig");
    _ = @import("pool.zig");
    _ = @import("relay.zig");
    _ = @import("relief.zig");
    _ = @import("repeat.zig");
    _ = @import("route.zig");
    _ = @import("share.zig");
    _ = @import("slab.zig");
    _ = @import("spread.zig");
    _ = @import("stall.zig");
    _ = @import("storage.zig");
    _ = @import("timer.zig");
    _ = @import("transport.zig");
    _ = @import("trace.zig");
    _ = @import("tunnel.zig");
    _ = @import("waiting.zig");
    _ = @import("websocket.zig");
    _ = @import("worker.zig");
}
