//! The server of the readme: answers everything with the same line. `zig build run-basic`, then
//! http://127.0.0.1:3000/.
const std = @import("std");
const per = @import("peregrine");

const Handler = struct {
    const Self = @This();

    allocator: std.mem.Allocator,

    pub fn init(allocator: std.mem.Allocator) !*Self {
        const self = try allocator.create(Self);
        self.allocator = allocator;
        return self;
    }

    pub fn deinit(self: *Self) void {
        self.allocator.destroy(self);
    }

    pub fn handleRequest(_: *Self, _: *per.Request, resp: *per.Response) void {
        _ = resp.setBody("Kawww\n") catch {};
        resp.addNewHeader("Content-Length", "6") catch {};
    }
};

pub fn main() !void {
    var gpa: std.heap.DebugAllocator(.{}) = .init;
    defer _ = gpa.deinit();
    const srv = per.Server(Handler).init(gpa.allocator(), 3000, .{}) catch
        std.process.exit(1); // the log says why
    std.debug.print("listening on 0.0.0.0:3000\n", .{});
    srv.start() catch std.process.exit(1); // blocks if there is no error
}
