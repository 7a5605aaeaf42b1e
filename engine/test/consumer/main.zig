//! Creates a server from the package, serves a request over the simulated network, and ends with 1 if the answer is wrong.
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

    var simulation: per.Simulation(Handler) = try .init(init.gpa, .{ .handle_signals = false }, .{ .seed = 1 });
    defer simulation.deinit();
    const answer = try simulation.exchange("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    if (!std.mem.endsWith(u8, answer, "\r\n\r\nconsumed")) return error.WrongAnswer;
}
