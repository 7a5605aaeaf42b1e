//! WebSockets as a Zig handler sees them. A handler upgrades a request with
//! `upgrader.handleUpgrade` and has the hooks
//!
//!     pub fn handleWSConn(self, socket) void                     it is open
//!     pub fn handleWSFrame(self, socket, frame: *ws.Frame) void  a whole message came
//!     pub fn handleWSDrain(self, socket) void                    after `.wait`: there is room again
//!     pub fn handleWSDisconn(self, socket) void                  it has ended; the last call
//!
//! where `socket` is a `*ws.WebSocket`, or, in the older shape, its number: a `std.posix.socket_t` that is no
//! descriptor and never another WebSocket's. All run in the worker thread that owns the connection; from
//! other threads, use the number and `writer`. Does not know: framing, pings, closing handshakes (the engine
//! answers them), and workers (they stand behind `Link`).
const std = @import("std");
const protocol = @import("protocol");
const Command = @import("server").Command;
const Flow = @import("response.zig").Flow;
const Inbox = @import("server").Inbox;
const PostError = @import("server").PostError;
const Request = @import("request.zig").Request;
const Response = @import("response.zig").Response;
const registry = @import("registry.zig");
const websocket = @import("server").WebSocket;

/// The number of a WebSocket, for all threads. No descriptor, and never another WebSocket's.
pub const Id = registry.Id;
/// Stands for a WebSocket's number if its handshake was accepted but failed, so that it never got a number.
pub const no_id: Id = 0;
/// The kind of a message: text or binary.
pub const Kind = websocket.Kind;
/// The opcode of a frame, as RFC 6455 section 5.2 numbers them. A handler sees `.text` and `.binary`.
pub const Opcode = protocol.websocket.frame.Opcode;

/// A whole message. The engine puts fragments together and answers control frames itself.
pub const Frame = struct {
    /// Always true: messages are whole.
    fin: bool = true,
    /// `.text` (valid UTF-8) or `.binary`.
    opcode: Opcode,
    payload_len: usize,
    /// Borrowed until the hook returns.
    payload: []const u8,

    /// The message, as `payload`.
    pub fn getPayload(frame: *const Frame) []const u8 {
        return frame.payload;
    }
};

/// Why a message was not sent. Nothing was queued.
pub const SendError = websocket.SendError || error{
    /// The client is slow, and `response_body_buffer_size` bytes wait for it already.
    Full,
};
/// Why the closing handshake did not begin.
pub const CloseError = websocket.CloseError || error{NotOpen};

/// The way from a WebSocket to its exchange. A host fills it in.
pub const Link = struct {
    send: *const fn (*WebSocket, Kind, []const u8) SendError!Flow,
    close: *const fn (*WebSocket, code: u16, reason: []const u8) CloseError!void,
    pause: *const fn (*WebSocket, bool) void,
};

/// An open WebSocket, for the worker thread that owns it. Valid until `handleWSDisconn` returns.
pub const WebSocket = struct {
    /// The name of the WebSocket for other threads; see `writer`.
    id: Id,
    /// A pointer of the handler's own: from `upgrader.accept`, or set by any hook.
    context: ?*anyopaque = null,
    /// The close code, known in `handleWSDisconn` (1006: without a close frame).
    close_code: u16 = 0,
    link: *const Link,

    /// The context as a pointer to `T`, the type that it was given with.
    pub fn contextAs(socket: *const WebSocket, comptime T: type) *T {
        return @ptrCast(@alignCast(socket.context.?));
    }

    /// Sends a message, which is copied. Text has to be UTF-8. After `.wait` it is best to stop
    /// until `handleWSDrain`.
    pub fn send(socket: *WebSocket, kind: Kind, bytes: []const u8) SendError!Flow {
        return socket.link.send(socket, kind, bytes);
    }

    /// Starts the closing handshake. `handleWSDisconn` follows when the client has answered, or its
    /// deadline has passed.
    pub fn close(socket: *WebSocket, code: u16, reason: []const u8) CloseError!void {
        return socket.link.close(socket, code, reason);
    }

    /// Stops reading from the client, or goes on.
    pub fn pause(socket: *WebSocket, paused: bool) void {
        socket.link.pause(socket, paused);
    }
};

/// Functions that answer a handshake.
pub const upgrader = struct {
    /// Why a request does not become a WebSocket.
    pub const Error = error{
        /// The request is no WebSocket handshake. (A malformed one never reaches a handler: the
        /// engine has answered it.)
        NoValidUpgradeHeader,
        /// The response has begun, or the request has ended.
        Closed,
    };

    /// Makes the request a WebSocket when the handler returns. Headers of the response go along. The
    /// allocator is not used any more.
    pub fn handleUpgrade(_: std.mem.Allocator, request: *Request, response: *Response) Error!void {
        return accept(request, response, .{}) catch |err| switch (err) {
            error.Forbidden => unreachable, // any origin will do
            error.NoValidUpgradeHeader, error.Closed => |same| return same,
        };
    }

    /// How a handshake is answered.
    pub const Acceptance = struct {
        /// A subprotocol that the client has offered; borrowed until the handler returns.
        subprotocol: ?[]const u8 = null,
        /// Whether messages are compressed if the client offers permessage-deflate: `.on`, `.off`, or as
        /// the limit `deflate` says.
        compression: Command.Compression = .configured,
        /// A pointer that hooks of this WebSocket find in `socket.context`: all that they learn of the
        /// request. From here on it is the WebSocket's: `handleWSDisconn` is called once for it, also when
        /// the client leaves before the WebSocket is open, without a `handleWSConn` then. A hook that returns
        /// an error, resets or detaches the response takes its acceptance back, and keeps the context.
        context: ?*anyopaque = null,
        /// The sites whose pages may open the WebSocket.
        origins: Origins = .any,
    };

    /// The origins from which a handshake may come. Browsers set the Origin field, and no page can change it;
    /// nothing else keeps other sites' pages from opening a WebSocket with your user's cookies. Clients that
    /// are no browsers send none, and are let in.
    pub const Origins = union(enum) {
        any,
        /// Pages of the host and port that the request is for (its Host field; a proxy has to leave it).
        same,
        /// Origins of this list, such as "https://shop.example".
        listed: []const []const u8,

        /// Whether the Origin of a request is allowed. Several Origin fields are a forgery.
        pub fn allow(origins: Origins, request: *const Request) bool {
            if (origins == .any) return true;
            var found: ?[]const u8 = null;
            var fields = request.headers();
            while (fields.next()) |field| {
                if (!std.ascii.eqlIgnoreCase(field.name, "origin")) continue;
                if (found != null) return false;
                found = field.value;
            }
            const origin = found orelse return true;
            switch (origins) {
                .any => unreachable,
                .same => {
                    const scheme = std.mem.find(u8, origin, "://") orelse return false;
                    return std.ascii.eqlIgnoreCase(origin[scheme + "://".len ..], request.getHost());
                },
                .listed => |list| {
                    for (list) |one| if (std.ascii.eqlIgnoreCase(one, origin)) return true;
                    return false;
                },
            }
        }
    };

    /// Like `handleUpgrade`, with a context for the hooks, a subprotocol, and a check of the Origin:
    /// `error.Forbidden`, which a handler may return (403), is for pages of other sites.
    pub fn accept(
        request: *const Request,
        response: *Response,
        how: Acceptance,
    ) (Error || error{Forbidden})!void {
        if (response.state != .collecting) return error.Closed;
        if (!response.link.offersWebSocket(response)) return error.NoValidUpgradeHeader;
        if (!how.origins.allow(request)) return error.Forbidden;
        response.upgrade = .{
            .subprotocol = how.subprotocol,
            .compression = how.compression,
            .context = how.context,
        };
    }
};

/// Sends messages by a WebSocket's number; safe in any thread, the owner's as well.
pub const writer = struct {
    /// Why a message from any thread was not taken.
    pub const Error = PostError || error{
        /// The WebSocket has ended.
        NotOpen,
        /// Text that is not UTF-8.
        NotUtf8,
    };

    /// Sends a message, which is copied, to the WebSocket with this number. Messages of one thread arrive in
    /// their order. A client that is too slow for what is sent this way is disconnected.
    pub fn writeMessage(id: Id, data: []const u8, is_binary: bool) Error!void {
        const kind: Kind = if (is_binary) .binary else .text;
        // The worker could tell no caller of this error.
        if (kind == .text and !protocol.websocket.utf8.valid(data)) return error.NotUtf8;
        try tell(id, .{ .message = .{ .kind = kind, .bytes = data } });
    }

    /// Starts the closing handshake of the WebSocket with this number. `code`: 1000, or another that may be
    /// sent (RFC 6455 section 7.4).
    pub fn close(id: Id, code: u16) Error!void {
        try tell(id, .{ .close = .{ .code = code } });
    }

    fn tell(id: Id, command: Command) Error!void {
        const place = registry.find(id) orelse return error.NotOpen;
        defer place.inbox.release();
        place.inbox.tell(place.ticket, command) catch |err| switch (err) {
            error.Gone => return error.NotOpen,
            error.OutOfMemory, error.Full => |other| return other,
        };
    }
};
