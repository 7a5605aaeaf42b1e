//! Peregrine's Zig face under measurement: `peregrine PORT`, one worker. /body answers with as many bytes as
//! the file that others serve, /mib.txt with a mebibyte, /echo with the request's body, /drop when it has
//! read that, /json with an object, /memory with what the engine has allocated; /ws is a WebSocket that
//! echoes, everything else says hello. HTTP/2 is spoken, too.
const std = @import("std");
const per = @import("peregrine");

/// bench/scenarios.py makes the others' file of the same length.
const body: [6150]u8 = @splat('x');
const mib: [1 << 20]u8 = @splat('x');

/// Bytes that the server's allocator has given out.
var allocated: Counting = .{};

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
        self.respond(request, response) catch {
            response.status = .internal_server_error;
        };
    }

    fn respond(self: *Handler, request: *per.Request, response: *per.Response) !void {
        const path = request.getPath();
        if (std.mem.eql(u8, path, "/ws")) {
            return per.ws.upgrader.handleUpgrade(self.allocator, request, response);
        }
        if (std.mem.eql(u8, path, "/echo")) {
            try response.addNewHeader("Content-Type", "application/octet-stream");
            _ = try response.setBody(request.body);
            return;
        }
        if (std.mem.eql(u8, path, "/json")) {
            try response.addNewHeader("Content-Type", "application/json");
            const message = std.json.fmt(.{ .message = "Hello, World!" }, .{});
            _ = try response.setBody(try std.fmt.allocPrint(request.arena, "{f}", .{message}));
            return;
        }
        try response.addNewHeader("Content-Type", "text/plain");
        if (std.mem.eql(u8, path, "/memory")) {
            _ = try response.setBody(try std.fmt.allocPrint(
                request.arena,
                "{d}",
                .{allocated.bytes.load(.monotonic)},
            ));
        } else if (std.mem.eql(u8, path, "/mib.txt")) {
            try response.setBodyShared(.constant(&mib));
        } else {
            _ = try response.setBody(if (std.mem.eql(u8, path, "/body")) &body else "Hello, World!\n");
        }
    }

    pub fn handleWSFrame(_: *Handler, socket: *per.ws.WebSocket, frame: *per.ws.Frame) void {
        _ = socket.send(if (frame.opcode == .text) .text else .binary, frame.getPayload()) catch {
            socket.close(1011, "cannot echo") catch {};
        };
    }

    pub fn handleWSConn(_: *Handler, _: *per.ws.WebSocket) void {}
    pub fn handleWSDisconn(_: *Handler, _: *per.ws.WebSocket) void {}
};

/// The general allocator, counted.
const Counting = struct {
    bytes: std.atomic.Value(usize) = .init(0),

    const parent = std.heap.smp_allocator;

    fn allocator(counting: *Counting) std.mem.Allocator {
        return .{
            .ptr = counting,
            .vtable = &.{ .alloc = alloc, .resize = resize, .remap = remap, .free = free },
        };
    }

    fn of(context: *anyopaque) *Counting {
        return @ptrCast(@alignCast(context));
    }

    fn alloc(context: *anyopaque, length: usize, alignment: std.mem.Alignment, address: usize) ?[*]u8 {
        const memory = parent.rawAlloc(length, alignment, address) orelse return null;
        _ = of(context).bytes.fetchAdd(length, .monotonic);
        return memory;
    }

    fn resize(
        context: *anyopaque,
        memory: []u8,
        alignment: std.mem.Alignment,
        length: usize,
        address: usize,
    ) bool {
        if (!parent.rawResize(memory, alignment, length, address)) return false;
        of(context).change(memory.len, length);
        return true;
    }

    fn remap(
        context: *anyopaque,
        memory: []u8,
        alignment: std.mem.Alignment,
        length: usize,
        address: usize,
    ) ?[*]u8 {
        const moved = parent.rawRemap(memory, alignment, length, address) orelse return null;
        of(context).change(memory.len, length);
        return moved;
    }

    fn free(context: *anyopaque, memory: []u8, alignment: std.mem.Alignment, address: usize) void {
        parent.rawFree(memory, alignment, address);
        of(context).change(memory.len, 0);
    }

    fn change(counting: *Counting, before: usize, after: usize) void {
        _ = counting.bytes.fetchSub(before, .monotonic);
        _ = counting.bytes.fetchAdd(after, .monotonic);
    }
};

pub fn main(init: std.process.Init) !void {
    const args = try init.minimal.args.toSlice(init.arena.allocator());
    if (args.len != 2) {
        std.debug.print("usage: peregrine PORT\n", .{});
        std.process.exit(2);
    }
    const port = try std.fmt.parseInt(u16, args[1], 10);
    const server = try per.Server(Handler).init(
        allocated.allocator(),
        port,
        .{ .ip = "127.0.0.1", .worker_thread_count = 1, .limits = .{ .http2 = .everywhere } },
    );
    try server.start();
}
