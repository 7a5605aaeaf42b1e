//! Serves a folder: `zig build run-dirserver -- FOLDER [PORT [THREADS]]`. Without arguments this folder, at
//! http://127.0.0.1:3000/.
const std = @import("std");
const per = @import("peregrine");

/// The handler is made by the server, so what it needs from the command line lies here.
var folder: []const u8 = "";

const Handler = struct {
    allocator: std.mem.Allocator,
    dir: *per.util.DirServer,

    pub fn init(allocator: std.mem.Allocator) !*Handler {
        const self = try allocator.create(Handler);
        errdefer allocator.destroy(self);
        self.* = .{ .allocator = allocator, .dir = try .init(allocator, folder, .{}) };
        return self;
    }

    pub fn deinit(self: *Handler) void {
        self.dir.deinit();
        self.allocator.destroy(self);
    }

    pub fn handleRequest(self: *Handler, request: *per.Request, response: *per.Response) void {
        self.dir.serve(request, response) catch {
            response.status = .internal_server_error;
        };
    }
};

pub fn main(init: std.process.Init) !void {
    const arena = init.arena.allocator();
    const args = try init.minimal.args.toSlice(arena);
    folder = try std.Io.Dir.cwd().realPathFileAlloc(init.io, if (args.len > 1) args[1] else ".", arena);
    const port = if (args.len > 2) try std.fmt.parseInt(u16, args[2], 10) else 3000;
    const threads = if (args.len > 3) try std.fmt.parseInt(usize, args[3], 10) else 0;
    const server = per.Server(Handler).init(init.gpa, port, .{ .worker_thread_count = threads }) catch
        std.process.exit(1); // the log says why
    std.debug.print("serving {s} on http://127.0.0.1:{d}/\n", .{ folder, server.port() });
    server.start() catch std.process.exit(1);
}
