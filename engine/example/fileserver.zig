//! Serves one file: `zig build run-fileserver -- FILE [PORT]`. Without arguments the build file, at
//! http://127.0.0.1:3000/.
const std = @import("std");
const per = @import("peregrine");

var path: []const u8 = "";

const Handler = struct {
    allocator: std.mem.Allocator,
    file: *per.util.FileServer,

    pub fn init(allocator: std.mem.Allocator) !*Handler {
        const self = try allocator.create(Handler);
        errdefer allocator.destroy(self);
        self.* = .{ .allocator = allocator, .file = try .init(allocator, path, .{ .lazy_load = false }) };
        return self;
    }

    pub fn deinit(self: *Handler) void {
        self.file.deinit();
        self.allocator.destroy(self);
    }

    pub fn handleRequest(self: *Handler, request: *per.Request, response: *per.Response) void {
        self.file.serveRequest(request, response) catch {
            response.status = .internal_server_error;
        };
    }
};

pub fn main(init: std.process.Init) !void {
    const arena = init.arena.allocator();
    const args = try init.minimal.args.toSlice(arena);
    path = try std.Io.Dir.cwd().realPathFileAlloc(init.io, if (args.len > 1) args[1] else "build.zig", arena);
    const port = if (args.len > 2) try std.fmt.parseInt(u16, args[2], 10) else 3000;
    const server = per.Server(Handler).init(init.gpa, port, .{}) catch
        std.process.exit(1); // the log says why
    std.debug.print("serving {s} on http://127.0.0.1:{d}/\n", .{ path, server.port() });
    server.start() catch std.process.exit(1);
}
