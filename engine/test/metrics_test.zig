//! The counters of a server with two workers, as its own handler shows them to Prometheus and to people, over
//! real sockets.
const std = @import("std");
const per = @import("peregrine");
const alike = @import("alike.zig");
const loopback = @import("loopback.zig");
const linux = std.os.linux;
const testing = std.testing;

const Monitored = struct {
    server: ?*per.Server(alike.Plain) = null,

    pub fn handleRequest(self: *Monitored, request: *per.Request, response: *per.Response) !void {
        if (std.mem.eql(u8, request.getPath(), "/missing")) return error.NotFound;
        if (!std.mem.eql(u8, request.getPath(), "/metrics")) return response.setBody("Hello\n");
        var text: std.Io.Writer.Allocating = .init(request.arena);
        if (request.getQuery().len == 0) {
            try self.server.?.writeMetrics(&text.writer);
        } else {
            try self.server.?.writeStatusPage(&text.writer);
        }
        try response.setBody(text.written());
    }
};

fn serve(server: *per.Server(alike.Plain)) void {
    server.start() catch |err| std.debug.panic("{t}", .{err});
}

var answer_space: [64 * 1024]u8 = undefined;

/// Asks over a connection of its own.
fn ask(port: u16, path: []const u8) ![]const u8 {
    const fd = try loopback.connect(port);
    defer _ = linux.close(fd);
    var head: [128]u8 = undefined;
    try loopback.send(fd, try std.fmt.bufPrint(
        &head,
        "GET {s} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
        .{path},
    ));
    var len: usize = 0;
    while (true) {
        const more = try loopback.receive(fd, answer_space[len..]);
        if (more.len == 0) return answer_space[0..len];
        len += more.len;
    }
}

test "requests of all workers are counted, and the server's own handler shows them" {
    const server = try alike.serveWith(Monitored, testing.allocator, 0, .{
        .ip = "127.0.0.1",
        .worker_thread_count = 2,
        .handle_signals = false,
        .metrics = true,
    }, .{});
    defer server.deinit();
    server.handler().as(Monitored).server = server;
    const port = server.port();
    const thread: std.Thread = try .spawn(.{}, serve, .{server});
    for (0..20) |_| _ = try ask(port, "/");
    for (0..3) |_| _ = try ask(port, "/missing");
    const missing = "peregrine_requests_total{status=\"4xx\"} 3\n";
    const seconds = "peregrine_request_duration_seconds_count ";
    // An answer arrives a moment before it is counted.
    var text = try ask(port, "/metrics");
    for (0..200) |_| {
        if (std.mem.find(u8, text, missing) != null) break;
        per.io.sleep(10);
        text = try ask(port, "/metrics");
    }
    const counted = try testing.allocator.dupe(u8, text);
    defer testing.allocator.free(counted);
    const page = try ask(port, "/metrics?page");
    server.shutdown();
    thread.join();
    try testing.expect(std.mem.find(u8, counted, missing) != null);
    const at = std.mem.find(u8, counted, seconds).? + seconds.len;
    const end = std.mem.findScalarPos(u8, counted, at, '\n').?;
    try testing.expect(try std.fmt.parseInt(u32, counted[at..end], 10) >= 23);
    try testing.expect(std.mem.find(u8, page, "\n<tr><th>4xx<td>3\n") != null);
    const rows = std.mem.find(u8, page, "\n<tr><th>0<td>") != null and
        std.mem.find(u8, page, "\n<tr><th>1<td>") != null;
    try testing.expect(rows and std.mem.find(u8, page, "\n<tr><th>2<td>") == null);
    var discarding: std.Io.Writer.Discarding = .init(&.{});
    try testing.expectError(error.NotCounted, server.writeMetrics(&discarding.writer));
    try testing.expectError(error.NotCounted, server.writeStatusPage(&discarding.writer));
}

test "a server that does not count says so" {
    const server = try alike.serveWith(Monitored, testing.allocator, 0, .{
        .ip = "127.0.0.1",
        .worker_thread_count = 1,
        .handle_signals = false,
    }, .{});
    defer server.deinit();
    var discarding: std.Io.Writer.Discarding = .init(&.{});
    try testing.expectError(error.NotCounted, server.writeMetrics(&discarding.writer));
    try testing.expectError(error.NotCounted, server.writeStatusPage(&discarding.writer));
}
