//! An echo over WebSockets, with a page to try it: `zig build run-websocket`, then http://127.0.0.1:3000/.
//! Each WebSocket is greeted by the name that its handshake has asked with, and pages of other sites are let
//! in by nobody.
const std = @import("std");
const per = @import("peregrine");

const page =
    \\<!doctype html><meta charset="utf-8"><title>echo</title>
    \\<input id="say" placeholder="say something"><pre id="log"></pre>
    \\<script>
    \\  const socket = new WebSocket(`ws://${location.host}/ws?name=${prompt("Your name?") || "you"}`);
    \\  const note = text => log.textContent += text + "\n";
    \\  socket.onopen = () => note("open");
    \\  socket.onmessage = event => note(event.data);
    \\  socket.onclose = event => note("closed " + event.code);
    \\  say.onchange = () => { socket.send(say.value); say.value = ""; };
    \\</script>
;

const Handler = struct {
    allocator: std.mem.Allocator,

    pub fn init(allocator: std.mem.Allocator) !*Handler {
        const self = try allocator.create(Handler);
        self.* = .{ .allocator = allocator };
        return self;
    }

    pub fn deinit(self: *Handler) void {
        self.allocator.destroy(self);
    }

    /// Data that a WebSocket keeps from its handshake.
    const Guest = struct { greeting: []const u8 };

    pub fn handleRequest(self: *Handler, request: *per.Request, response: *per.Response) !void {
        if (std.mem.eql(u8, request.getPath(), "/ws")) return self.welcome(request, response);
        try response.addNewHeader("Content-Type", "text/html");
        try response.setBody(page);
    }

    fn welcome(self: *Handler, request: *per.Request, response: *per.Response) !void {
        const guest = try self.allocator.create(Guest);
        errdefer self.allocator.destroy(guest);
        const name = try request.param("name") orelse "stranger";
        guest.greeting = try std.fmt.allocPrint(self.allocator, "Hello {s}!", .{name});
        errdefer self.allocator.free(guest.greeting);
        per.ws.upgrader.accept(request, response, .{ .context = guest, .origins = .same }) catch |err|
            return if (err == error.Forbidden) err else error.BadRequest;
    }

    pub fn handleWSConn(_: *Handler, socket: *per.ws.WebSocket) !void {
        _ = try socket.send(.text, socket.contextAs(Guest).greeting);
    }

    pub fn handleWSFrame(_: *Handler, socket: *per.ws.WebSocket, frame: *per.ws.Frame) void {
        _ = socket.send(if (frame.opcode == .text) .text else .binary, frame.getPayload()) catch |err| {
            std.debug.print("not sent to {d}: {t}\n", .{ socket.id, err });
        };
    }

    /// The last word about the guest.
    pub fn handleWSDisconn(self: *Handler, socket: *per.ws.WebSocket) void {
        const guest = socket.contextAs(Guest);
        std.debug.print("closed: {d}, code {d}\n", .{ socket.id, socket.close_code });
        self.allocator.free(guest.greeting);
        self.allocator.destroy(guest);
    }
};

pub fn main(init: std.process.Init) !void {
    const server = per.Server(Handler).init(init.gpa, 3000, .{}) catch
        std.process.exit(1); // the log says why
    std.debug.print("listening on http://127.0.0.1:{d}/\n", .{server.port()});
    server.start() catch std.process.exit(1);
}
