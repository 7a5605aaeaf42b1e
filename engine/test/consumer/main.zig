//! Creates a server from the package and frees it again: enough to see that the package builds elsewhere.
const std = @import("std");
const per = @import("peregrine");

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

    pub fn handleRequest(_: *Handler, _: *per.Request, response: *per.Response) void {
        _ = response.setBody("consumed") catch {};
    }
};

pub fn main(init: std.process.Init) !void {
    const server = try per.Server(Handler).init(init.gpa, 0, .{ .ip = "127.0.0.1", .worker_thread_count = 1 });
    server.deinit();
}
