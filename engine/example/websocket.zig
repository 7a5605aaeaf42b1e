//! An echo over WebSockets, with a page to try it: `zig build run-websocket`, then http://127.0.0.1:3000/.
const std = @import("std");
const per = @import("peregrine");

const page =
    \\<!doctype html><meta charset="utf-8"><title>echo</title>
    \\<input id="say" placeholder="say something"><pre id="log"></pre>
    \\<script>
    \\  const socket = new WebSocket(`ws://${location.host}/ws`);
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

    pub fn handleRequest(self: *Handler, request: *per.Request, response: *per.Response) void {
        if (std.mem.eql(u8, request.getPath(), "/ws")) {
            per.ws.upgrader.handleUpgrade(self.allocator, request, response) catch {
                response.status = .bad_request;
            };
            return;
        }
        response.addNewHeader("Content-Type", "text/html") catch {};
        _ = response.setBody(page) catch {};
    }

    pub fn handleWSConn(_: *Handler, socket: *per.ws.WebSocket) void {
        std.debug.print("open: {d}\n", .{socket.id});
    }

    pub fn handleWSFrame(_: *Handler, socket: *per.ws.WebSocket, frame: *per.ws.Frame) void {
        _ = socket.send(if (frame.opcode == .text) .text else .binary, frame.getPayload()) catch |err| {
            std.debug.print("not sent to {d}: {t}\n", .{ socket.id, err });
        };
    }

    pub fn handleWSDisconn(_: *Handler, socket: *per.ws.WebSocket) void {
        std.debug.print("closed: {d}, code {d}\n", .{ socket.id, socket.close_code });
    }
};

pub fn main(init: std.process.Init) !void {
    const server = per.Server(Handler).init(init.gpa, 3000, .{}) catch
        std.process.exit(1); // the log says why
    std.debug.print("listening on http://127.0.0.1:{d}/\n", .{server.port()});
    server.start() catch std.process.exit(1);
}
