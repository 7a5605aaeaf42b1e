//! The host for Zig handlers: checks the handler's declarations at compile time and turns the worker's calls into `handleRequest`.
//! A handler has `init(Allocator) !*Self`, `deinit(*Self) void` and `handleRequest(*Self, *Request, *Response) void`.
const std = @import("std");
const protocol = @import("protocol");
const http1 = protocol.http1;
const Exchange = @import("exchange.zig").Exchange;
const Request = @import("request.zig").Request;
const Response = @import("response.zig").Response;
const Reason = @import("types.zig").Reason;
const Level = @import("types.zig").Level;
const WebSocketKind = @import("websocket.zig").Kind;
const WebSocketClose = @import("websocket.zig").Close;

/// Stops compilation with a sentence that says what to write.
pub fn check(comptime Handler: type) void {
    const name = @typeName(Handler);
    if (!@hasDecl(Handler, "init")) @compileError(name ++ " needs `pub fn init(allocator: std.mem.Allocator) !*" ++ name ++ "`");
    if (!@hasDecl(Handler, "deinit")) @compileError(name ++ " needs `pub fn deinit(self: *" ++ name ++ ") void`");
    if (!@hasDecl(Handler, "handleRequest")) @compileError(name ++
        " needs `pub fn handleRequest(self: *" ++ name ++ ", request: *Request, response: *Response) void`");
    for (@typeInfo(Handler).@"struct".decl_names) |decl| {
        if (!std.mem.startsWith(u8, decl, "handle")) continue;
        if (std.mem.eql(u8, decl, "handleRequest")) continue;
        @compileError(name ++ "." ++ decl ++ " is no hook of a handler; did you mean handleRequest?");
    }
}

/// One per worker; all share one handler.
pub fn NativeHost(comptime Handler: type) type {
    check(Handler);
    return struct {
        const Self = @This();
        pub const demand = .push;

        handler: *Handler,
        response: Response,
        ended: bool = false,

        pub fn init(gpa: std.mem.Allocator, handler: *Handler) Self {
            return .{ .handler = handler, .response = .{ .gpa = gpa } };
        }

        pub fn deinit(host: *Self) void {
            host.response.body.deinit(host.response.gpa);
        }

        pub fn request(host: *Self, worker: anytype, exchange: *Exchange, head: *const http1.Head) void {
            if (!exchange.inputComplete()) return; // TODO-body
            var view: Request = .{
                .head = head,
                .method = head.method,
                .version = head.version,
                .peer = exchange.connection.peer_text.slice(),
                .peer_port = exchange.connection.peer_port,
            };
            host.response.reset();
            host.handler.handleRequest(&view, &host.response);
            host.answer(worker, exchange);
        }

        fn answer(host: *Self, worker: anytype, exchange: *Exchange) void {
            const response = &host.response;
            var digits: [20]u8 = undefined;
            if (!response.hasContentLength() and response.count < Response.headers_max) {
                const text = std.fmt.bufPrint(&digits, "{d}", .{response.body.items.len}) catch unreachable;
                response.addNewHeader("Content-Length", text) catch unreachable;
            }
            _ = worker.start(exchange, .{
                .status = response.status,
                .fields = response.fields[0..response.count],
                .body = response.body.items,
                .end = true,
            }) catch worker.abort(exchange);
        }

        pub fn body(_: *Self, _: anytype, _: *Exchange, _: []const u8) void {}
        pub fn trailers(_: *Self, _: anytype, _: *Exchange, _: *const http1.Head) void {}
        pub fn bodyEnd(_: *Self, _: anytype, _: *Exchange) void {}
        pub fn drained(_: *Self, _: anytype, _: *Exchange) void {}
        pub fn finished(_: *Self, _: anytype, _: *Exchange) void {}
        pub fn aborted(_: *Self, _: anytype, _: *Exchange, _: Reason) void {}
        pub fn message(_: *Self, _: anytype, _: *Exchange, _: WebSocketKind, _: []const u8) void {}
        pub fn closed(_: *Self, _: anytype, _: *Exchange, _: WebSocketClose, _: ?Reason) void {}
        pub fn halfClosed(_: *Self, _: anytype, _: *Exchange) void {}
        pub fn stopped(host: *Self, _: anytype) void {
            host.ended = true;
        }
        pub fn waiting(_: *const Self) bool {
            return false;
        }
        pub fn notice(_: *Self, _: anytype, level: Level, text: []const u8) void {
            switch (level) {
                .err => std.log.err("{s}", .{text}),
                .warn => std.log.warn("{s}", .{text}),
                .info => std.log.info("{s}", .{text}),
                .debug => std.log.debug("{s}", .{text}),
            }
        }
    };
}
