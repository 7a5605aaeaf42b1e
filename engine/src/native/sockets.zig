//! The WebSockets of a host for Zig handlers: opens them, calls their hooks, and obeys the handler and other
//! threads. Does not know: requests (host.zig), frames on the wire.
const std = @import("std");
const assert = std.debug.assert;
const Command = @import("server").Command;
const contract = @import("handler.zig");
const registry = @import("registry.zig");
const websocket = @import("server").WebSocket;
const ws = @import("ws.zig");
const Exchange = @import("server").Exchange;
const Field = @import("protocol").http.Field;
const Flow = @import("response.zig").Flow;
const Inbox = @import("server").Inbox;
const Slab = @import("server").Slab;
const Upgrade = @import("response.zig").Response.Upgrade;

const log = std.log.scoped(.peregrine);
const complain = @import("complain.zig").complain;

/// Times and sizes that all WebSockets of a server have.
pub const Options = struct {
    /// Milliseconds between two pings, and until a pong; 0: no pings.
    ping_ms: u32,
    /// Bytes that may wait for a slow client.
    queued_bytes_max: usize,
};

/// The WebSockets of one worker and their handler.
pub fn NativeSockets(comptime Worker: type, comptime Handler: type) type {
    return struct {
        const Self = @This();
        /// Whether the handler has anything to do with WebSockets.
        pub const wanted = @hasDecl(Handler, "handleWSFrame");

        handler: *Handler,
        worker: *Worker,
        options: Options,
        table: Slab(Entry),
        /// A WebSocket that ended while another handler sent to it. Its own handler is told when none of its
        /// hooks is on the stack.
        ended: ?*Entry = null,

        const Entry = struct {
            socket: ws.WebSocket,
            sockets: *Self,
            /// Null once the WebSocket has ended.
            exchange: ?*Exchange,
            /// A hook is on the stack; a WebSocket that ended meanwhile gets `handleWSDisconn` behind it.
            busy: bool = false,
            next_ended: ?*Entry = null,
        };

        pub fn init(gpa: std.mem.Allocator, handler: *Handler, worker: *Worker, options: Options) Self {
            return .{ .handler = handler, .worker = worker, .options = options, .table = .init(gpa, .plain) };
        }

        pub fn deinit(self: *Self) void {
            var entries = self.table.iterator();
            while (entries.next()) |entry| {
                registry.remove(entry.socket.id);
                self.release(entry);
            }
            self.table.deinit();
        }

        // ---- Calls by the host

        /// Why a WebSocket does not open.
        pub const OpenError = Worker.AcceptError || error{NoHooks};

        /// Completes the handshake of an exchange and tells the handler. On an error the request can
        /// still be answered.
        pub fn open(
            self: *Self,
            exchange: *Exchange,
            inbox: *Inbox,
            how: Upgrade,
            fields: []const Field,
        ) OpenError!void {
            if (!wanted) return error.NoHooks;
            const slot = try self.table.add();
            errdefer self.table.remove(slot.item);
            const id = try registry.add(.{ .inbox = inbox, .ticket = exchange.ticket });
            errdefer registry.remove(id);
            const entry = slot.item;
            entry.* = .{
                .socket = .{ .id = id, .context = how.context, .link = &link },
                .sockets = self,
                .exchange = exchange,
            };
            const before = exchange.word;
            errdefer exchange.word = before;
            exchange.word = .of(entry);
            // A server that stops sends a close frame at once, which may fail.
            entry.busy = true;
            try self.worker.acceptWebSocket(exchange, .{
                .subprotocol = how.subprotocol,
                .compression = how.compression,
                .fields = fields,
            });
            if (entry.exchange != null and self.options.ping_ms > 0) {
                // the exchange is open as a WebSocket now
                self.worker.setKeepalive(exchange, self.options.ping_ms, self.options.ping_ms) catch
                    unreachable;
            }
            if (@hasDecl(Handler, "handleWSConn")) self.invoke(entry, .handleWSConn, .{});
            self.unbusy(entry);
        }

        /// Gives the handler back the context of a handshake that it has accepted, and that has failed.
        pub fn neverOpened(self: *Self, context: ?*anyopaque) void {
            if (context == null or !@hasDecl(Handler, "handleWSDisconn")) return;
            // A hook of the older shape is called with the number, and there is none.
            if (comptime contract.takesNumber(@TypeOf(Handler.handleWSDisconn))) return;
            var entry: Entry = .{
                .socket = .{
                    .id = ws.no_id,
                    .context = context,
                    .close_code = websocket.code_abnormal,
                    .link = &link,
                },
                .sockets = self,
                .exchange = null,
                .busy = true,
            };
            self.invoke(&entry, .handleWSDisconn, .{});
        }

        /// Calls `handleWSFrame`.
        pub fn message(self: *Self, exchange: *Exchange, kind: ws.Kind, bytes: []const u8) void {
            if (!wanted) unreachable;
            const entry = entryOf(exchange);
            var frame: ws.Frame = .{
                .opcode = switch (kind) {
                    .text => .text,
                    .binary => .binary,
                },
                .payload_len = bytes.len,
                .payload = bytes,
            };
            self.call(entry, .handleWSFrame, .{&frame});
        }

        /// Calls `handleWSDrain`.
        pub fn drained(self: *Self, exchange: *Exchange) void {
            if (@hasDecl(Handler, "handleWSDrain")) self.call(entryOf(exchange), .handleWSDrain, .{});
        }

        /// Calls `handleWSDisconn`; the number names no WebSocket from now on.
        pub fn closed(self: *Self, exchange: *Exchange, how: websocket.Close) void {
            const entry = entryOf(exchange);
            exchange.word = .none;
            entry.exchange = null;
            entry.socket.close_code = how.code;
            if (!entry.busy) self.tellEnd(entry);
        }

        /// Obeys a message or a close from another thread.
        pub fn deliver(self: *Self, exchange: *Exchange, command: Command) void {
            if (exchange.openWebSocket() == null) return;
            const entry = entryOf(exchange);
            entry.busy = true;
            switch (command) {
                .close => |said| entry.socket.close(said.code, "") catch |err| log.warn(
                    "WebSocket not closed: {t}",
                    .{err},
                ),
                .message => |said| _ = entry.socket.send(said.kind, said.bytes) catch |err| switch (err) {
                    error.NotOpen => {}, // closing: nothing is sent any more
                    error.NotUtf8 => unreachable, // checked by the sender
                    error.OutOfMemory, error.Full => self.cut(entry),
                },
                else => unreachable, // other commands are about requests
            }
            self.unbusy(entry);
        }

        // ---- Calls of the handler

        const Hook = enum { handleWSConn, handleWSFrame, handleWSDrain, handleWSDisconn };

        /// Calls a hook in either shape: with the WebSocket or with its number.
        fn invoke(self: *Self, entry: *Entry, comptime hook: Hook, arguments: anytype) void {
            const function = @field(Handler, @tagName(hook));
            const by_number = comptime contract.takesNumber(@TypeOf(function));
            const name = if (by_number) entry.socket.id else &entry.socket;
            const err = contract.failure(@call(.auto, function, .{ self.handler, name } ++ arguments)) orelse
                return;
            complain("{s} returned error.{t}: the WebSocket is closed", .{ @tagName(hook), err });
            entry.socket.close(websocket.code_internal_error, "") catch {}; // closing already, or gone
        }

        fn call(self: *Self, entry: *Entry, comptime hook: Hook, arguments: anytype) void {
            assert(!entry.busy);
            entry.busy = true;
            self.invoke(entry, hook, arguments);
            self.unbusy(entry);
        }

        fn unbusy(self: *Self, entry: *Entry) void {
            entry.busy = false;
            if (entry.exchange == null) self.tellEnd(entry);
        }

        fn noteEnded(self: *Self, entry: *Entry) void {
            entry.next_ended = self.ended;
            self.ended = entry;
        }

        /// At the end of a round: tells the handler of WebSockets that have ended during its own calls.
        pub fn tellEnded(self: *Self) void {
            while (self.ended) |entry| {
                self.ended = entry.next_ended;
                self.tellEnd(entry);
            }
        }

        fn tellEnd(self: *Self, entry: *Entry) void {
            // From here on the number names no WebSocket, so the handler cannot send to it by mistake.
            registry.remove(entry.socket.id);
            if (@hasDecl(Handler, "handleWSDisconn")) self.invoke(entry, .handleWSDisconn, .{});
            self.release(entry);
        }

        fn release(self: *Self, entry: *Entry) void {
            if (entry.exchange) |exchange| exchange.word = .none;
            self.table.remove(entry);
        }

        /// Cuts a client that does not read its messages.
        fn cut(self: *Self, entry: *Entry) void {
            const exchange = entry.exchange orelse return;
            entry.exchange = null;
            exchange.word = .none;
            entry.socket.close_code = websocket.code_abnormal;
            self.worker.abort(exchange);
        }

        fn entryOf(exchange: *const Exchange) *Entry {
            return @ptrCast(@alignCast(exchange.word.pointer().?));
        }

        // ---- Calls of a WebSocket: send, close, pause

        const link: ws.Link = .{ .send = send, .close = close, .pause = pause };

        fn entryOfSocket(socket: *ws.WebSocket) *Entry {
            return @fieldParentPtr("socket", socket);
        }

        fn send(socket: *ws.WebSocket, kind: ws.Kind, bytes: []const u8) ws.SendError!Flow {
            const entry = entryOfSocket(socket);
            const self = entry.sockets;
            const exchange = entry.exchange orelse return error.NotOpen;
            if (bytes.len > self.options.queued_bytes_max -| self.worker.buffered(exchange)) {
                return error.Full;
            }
            // If the client turns out to be gone, `closed` is called in here. The caller may be the hook of
            // another WebSocket, which walks through a list of WebSockets: the handler is told later that one
            // of them has ended.
            const outer = entry.busy;
            entry.busy = true;
            defer if (!outer) {
                entry.busy = false;
                if (entry.exchange == null) self.noteEnded(entry);
            };
            return switch (try self.worker.sendMessage(exchange, kind, bytes)) {
                .accepted, .done => .ready,
                .blocked => .wait,
            };
        }

        fn close(socket: *ws.WebSocket, code: u16, reason: []const u8) ws.CloseError!void {
            const entry = entryOfSocket(socket);
            const exchange = entry.exchange orelse return error.NotOpen;
            entry.sockets.worker.closeWebSocket(exchange, code, reason) catch |err| switch (err) {
                error.NotWebSocket => unreachable,
                else => |other| return other,
            };
        }

        fn pause(socket: *ws.WebSocket, paused: bool) void {
            const entry = entryOfSocket(socket);
            const exchange = entry.exchange orelse return;
            entry.sockets.worker.setFlow(exchange, if (paused) .none else .all) catch unreachable;
        }
    };
}
