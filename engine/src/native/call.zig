//! A request in the hands of a Zig handler: the request and the response that the handler sees, their memory,
//! and how far both are. Does not know: the handler's type, the worker's type (host.zig), sockets.
const std = @import("std");
const assert = std.debug.assert;
const protocol = @import("protocol");
const Head = protocol.Head;
const FieldSpan = protocol.http.FieldSpan;
const Arena = @import("arena.zig").Arena;
const AddressText = @import("server").AddressText;
const Client = @import("server").Client;
const Exchange = @import("server").Exchange;
const Input = @import("server").Input;
const Intake = @import("server").Intake;
const Link = @import("response.zig").Link;
const Pool = @import("server").Pool;
const Queue = @import("server").MessageQueue;
const Reason = @import("server").Reason;
const Request = @import("request.zig").Request;
const Response = @import("response.zig").Response;
const Ticket = @import("server").Ticket;

/// A request in the hands of a Zig handler. Lies in a slab of its worker.
pub const Call = struct {
    /// The call's own slot.
    ticket: Ticket,
    /// The host of all calls of a worker; host.zig knows its type.
    host: *anyopaque,
    /// Null once the response is complete or the client gone: the exchange may be another request's then.
    exchange: ?*Exchange,
    request: Request,
    response: Response,
    arena: Arena,
    /// The request with its body, if that was gathered.
    intake: ?*Intake,
    /// More of the body comes, for `handleBody`.
    awaits_body: bool,
    /// The part that has come of a body that the handler wants whole.
    gathered: Input,
    custody: Custody,
    /// The head's copy for requests that outlive the first call of their handler. Its spans lie in the arena.
    kept_head: Head,
    trailer_head: Head,
    /// The client's address. The connection's own text may go before the handler has ended.
    client_text: AddressText,
    /// Parts of a detached answer that wait for a slow client.
    parked: Queue,

    /// The party that has the request.
    pub const Custody = union(enum) {
        /// The server waits for the body; the handler was not told of the request.
        server,
        /// A hook is on the stack.
        handler,
        /// A hook is on the stack, and the client went away meanwhile.
        orphaned: Reason,
        /// No hook is on the stack; the response comes later.
        waiting,
        /// No hook is on the stack; the response comes as messages of another thread.
        detached,
    };

    /// Prepares the call for a request. `head` is borrowed until `keepHead`, `client` during the call only.
    pub fn begin(
        call: *Call,
        ticket: Ticket,
        exchange: *Exchange,
        head: *const Head,
        client: *const Client,
        pool: *Pool,
    ) void {
        call.ticket = ticket;
        call.exchange = exchange;
        call.arena.begin(pool);
        call.intake = null;
        call.awaits_body = false;
        call.gathered = .{};
        call.custody = .server;
        call.parked = .{};
        call.request.arena = call.arena.allocator();
        call.request.begin(head);
        call.client_text.set(client.address);
        call.request.peer = call.client_text.slice();
        call.request.peer_port = client.port;
        call.request.secure = client.secure;
        call.request.tunnel = exchange.lane.tls();
        call.response.arena = &call.arena;
        call.response.begin();
    }

    /// Gives the call's own memory back. Parked messages must be gone; the host gives the intake back
    /// afterwards.
    pub fn end(call: *Call) void {
        assert(call.parked.isEmpty());
        call.response.dropBody();
        call.arena.reset();
    }

    /// Copies the head, if that was not done before, so that the request outlives the receive buffer.
    pub fn keepHead(call: *Call) error{OutOfMemory}!void {
        if (call.request.head == &call.kept_head or call.intake != null) return;
        call.kept_head = try call.copyOf(call.request.head);
        call.request.setHead(&call.kept_head);
    }

    /// Takes the intake of the request over, with body and trailers, also on an error.
    pub fn keepIntake(call: *Call, intake: *Intake) error{OutOfMemory}!void {
        call.intake = intake;
        assert(call.request.head == &intake.head);
        call.request.trailers = if (intake.trailers) |*trailers| trailers else null;
        call.request.body = try intake.bytes();
        if (!intake.isLong()) call.response.request_body = call.request.body;
    }

    /// Copies the trailer section for `request.findTrailer`.
    pub fn keepTrailers(call: *Call, head: *const Head) error{OutOfMemory}!void {
        call.trailer_head = try call.copyOf(head);
        call.request.trailers = &call.trailer_head;
    }

    fn copyOf(call: *Call, head: *const Head) error{OutOfMemory}!Head {
        const text = try call.arena.keep(head.text);
        const fields = try call.request.arena.dupe(FieldSpan, head.fields);
        var copy = head.*;
        copy.text = text;
        copy.fields = fields;
        copy.storage = fields;
        return copy;
    }

    /// The call of an exchange; null if its response is complete.
    pub fn of(exchange: *const Exchange) ?*Call {
        return @ptrCast(@alignCast(exchange.word.pointer() orelse return null));
    }
};
