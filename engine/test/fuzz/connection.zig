//! Fuzz target `connection`: whatever a client may send, into a whole server over a simulated network.
//! The client gets the same bytes over a calm network and over one that splits, delays and blocks; and
//! when it has gone, nothing of it is left. The input's first two bytes choose the rough network's seed
//! and the server's limits.
const std = @import("std");
const per = @import("peregrine");
const testing = std.testing;

const continue_text = "HTTP/1.1 100 Continue\r\n\r\n";

pub fn run(input: []const u8) !void {
    if (input.len < 2) return;
    const calm: per.io.Sim.Options = .{
        .short_read_permille = 0,
        .late_permille = 0,
        .block_permille = 0,
        .partial_send_permille = 0,
    };
    const rough: per.io.Sim.Options = .{ .seed = input[0], .window_bytes = 200, .short_read_permille = 700 };
    var first: Answer = .{};
    var second: Answer = .{};
    defer first.bytes.deinit(std.heap.smp_allocator);
    defer second.bytes.deinit(std.heap.smp_allocator);
    try visit(input[1], input[2..], calm, &first);
    try visit(input[1], input[2..], rough, &second);
    const one = first.bytes.items;
    const two = second.bytes.items;
    try testing.expect(one.len == 0 or std.mem.startsWith(u8, one, "HTTP/1.1 "));
    // A reset may take the end of an answer with it.
    const shared = if (first.ended == .reset or second.ended == .reset) @min(one.len, two.len) else one.len;
    try testing.expectEqualStrings(one[0..shared], two[0..@min(shared, two.len)]);
    if (first.ended != .reset and second.ended != .reset) {
        try testing.expectEqual(one.len, two.len);
        try testing.expectEqual(first.ended, second.ended);
    }
}

/// A client's answer, without interim answers, because those depend on the bytes that have arrived by then.
const Answer = struct {
    bytes: std.ArrayList(u8) = .empty,
    ended: ?per.io.Ended = null,

    fn take(answer: *Answer, received: []const u8) !void {
        var parts = std.mem.splitSequence(u8, received, continue_text);
        while (parts.next()) |part| try answer.bytes.appendSlice(std.heap.smp_allocator, part);
    }
};

fn visit(choice: u8, bytes: []const u8, network: per.io.Sim.Options, answer: *Answer) !void {
    var ledger: Ledger = .{};
    {
        var simulation: per.Simulation(Handler) = try .init(ledger.allocator(), configOf(choice), network);
        defer simulation.deinit();
        const client = try simulation.connect();
        try client.send(bytes);
        try simulation.settle();
        try answer.take(client.text());
        answer.ended = client.ended();
        client.close();
        try simulation.advance(10 * 60 * std.time.ms_per_s);
        const worker = simulation.worker();
        try testing.expectEqual(0, worker.transports.count);
        try testing.expectEqual(0, worker.exchanges.count);
        try testing.expectEqual(0, worker.websockets.count);
        try testing.expectEqual(0, worker.pool.taken_bytes);
    }
    try testing.expectEqual(0, ledger.live_bytes);
}

fn configOf(choice: u8) per.ServerConfig {
    return .{
        .handle_signals = false,
        .request_buffer_size = if (choice & 1 == 0) 1024 else 64 * 1024,
        .websocket_buffer_size = if (choice & 2 == 0) 256 else 16 * 1024,
        .response_body_buffer_size = 128 * 1024,
        .limits = .{
            .head_bytes_max = if (choice & 4 == 0) 300 else 8192,
            .write_high_bytes = if (choice & 8 == 0) 64 else 64 * 1024,
            .write_low_bytes = if (choice & 8 == 0) 16 else 16 * 1024,
            .pipeline_pass_max = if (choice & 16 == 0) 1 else 64,
        },
    };
}

/// Echoes bodies and messages, streams, upgrades, fails.
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
        const path = request.getPath();
        if (std.mem.eql(u8, path, "/w")) {
            per.ws.upgrader.handleUpgrade(self.allocator, request, response) catch {
                response.status = .bad_request;
            };
        } else if (std.mem.eql(u8, path, "/s")) {
            for ("stream") |*byte| _ = response.write(byte[0..1]) catch return;
            response.end() catch return;
        } else if (std.mem.eql(u8, path, "/e")) {
            response.addHeader(per.Header.init("X-Query", request.getQuery()) catch return) catch {};
            _ = response.setBody(request.body) catch return;
        } else if (std.mem.eql(u8, path, "/q")) {
            const name = (request.param("n") catch null) orelse "nobody";
            _ = response.setBody(name) catch return;
        } else response.status = .not_found;
    }

    pub fn handleWSConn(_: *Handler, _: *per.ws.WebSocket) void {}

    pub fn handleWSFrame(_: *Handler, socket: *per.ws.WebSocket, frame: *per.ws.Frame) void {
        if (std.mem.eql(u8, frame.payload, "bye")) return socket.close(1000, "bye") catch {};
        _ = socket.send(if (frame.opcode == .text) .text else .binary, frame.payload) catch {};
    }

    pub fn handleWSDisconn(_: *Handler, _: *per.ws.WebSocket) void {}
};

/// An allocator that knows how much is out.
const Ledger = struct {
    live_bytes: usize = 0,

    const child = std.heap.smp_allocator;

    fn allocator(ledger: *Ledger) std.mem.Allocator {
        return .{
            .ptr = ledger,
            .vtable = &.{ .alloc = alloc, .resize = resize, .remap = remap, .free = free },
        };
    }

    fn of(context: *anyopaque) *Ledger {
        return @ptrCast(@alignCast(context));
    }

    fn alloc(context: *anyopaque, len: usize, alignment: std.mem.Alignment, address: usize) ?[*]u8 {
        const memory = child.rawAlloc(len, alignment, address) orelse return null;
        of(context).live_bytes += len;
        return memory;
    }

    fn resize(
        context: *anyopaque,
        memory: []u8,
        alignment: std.mem.Alignment,
        len: usize,
        address: usize,
    ) bool {
        if (!child.rawResize(memory, alignment, len, address)) return false;
        of(context).live_bytes = of(context).live_bytes - memory.len + len;
        return true;
    }

    fn remap(
        context: *anyopaque,
        memory: []u8,
        alignment: std.mem.Alignment,
        len: usize,
        address: usize,
    ) ?[*]u8 {
        const moved = child.rawRemap(memory, alignment, len, address) orelse return null;
        of(context).live_bytes = of(context).live_bytes - memory.len + len;
        return moved;
    }

    fn free(context: *anyopaque, memory: []u8, alignment: std.mem.Alignment, address: usize) void {
        of(context).live_bytes -= memory.len;
        child.rawFree(memory, alignment, address);
    }
};
