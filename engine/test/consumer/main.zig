//! Creates a server from the package, serves a request over the simulated network, and ends with 1 if the
//! answer is wrong, if the log does not say at which address another server cannot listen, or if the package
//! has not heard what was said about TLS.
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

pub const std_options: std.Options = .{ .logFn = remember };
var logged: [200]u8 = undefined;
var logged_len: usize = 0;

fn remember(
    comptime _: std.log.Level,
    comptime _: @EnumLiteral(),
    comptime format: []const u8,
    arguments: anytype,
) void {
    const line = std.fmt.bufPrint(&logged, format, arguments) catch return;
    logged_len = line.len;
}

/// The port is taken, whether threads accept or the one worker does.
fn expectTaken(gpa: std.mem.Allocator, port: u16, workers: usize) !void {
    if (per.Server(Handler).init(gpa, port, .{ .ip = "127.0.0.1", .worker_thread_count = workers })) |_| {
        return error.NotTaken;
    } else |err| if (err != error.AddressInUse) return err;
    var buffer: [100]u8 = undefined;
    const expected = try std.fmt.bufPrint(&buffer, "cannot listen at 127.0.0.1:{d}: AddressInUse", .{port});
    if (!std.mem.eql(u8, expected, logged[0..logged_len])) return error.NotSaid;
}

pub fn main(init: std.process.Init) !void {
    if (@import("said").tls) |wanted| if (per.tls.enabled != wanted) return error.NotHeard;
    const server = try per.Server(Handler).init(init.gpa, 0, .{
        .ip = "127.0.0.1",
        .worker_thread_count = 1,
    });
    defer server.deinit();
    for ([_]usize{ 1, 2 }) |workers| try expectTaken(init.gpa, server.port(), workers);

    var simulation: per.Simulation(Handler) = try .init(
        init.gpa,
        .{ .handle_signals = false },
        .{ .seed = 1 },
    );
    defer simulation.deinit();
    const answer = try simulation.exchange("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    if (!std.mem.endsWith(u8, answer, "\r\n\r\nconsumed")) return error.WrongAnswer;
}
