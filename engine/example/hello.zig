//! The smallest server: `hello PORT [THREADS [uring | CERTIFICATE KEY]]`. With a certificate and its key (PEM
//! files) it speaks TLS.
const std = @import("std");
const per = @import("peregrine");

const Handler = struct {
    allocator: std.mem.Allocator,

    pub fn init(allocator: std.mem.Allocator) !*Handler {
        const self = try allocator.create(Handler);
        self.allocator = allocator;
        return self;
    }

    pub fn deinit(self: *Handler) void {
        self.allocator.destroy(self);
    }

    pub fn handleRequest(_: *Handler, _: *per.Request, response: *per.Response) void {
        _ = response.setBody("Hello, World!\n") catch return;
        response.addNewHeader("Content-Type", "text/plain") catch return;
    }
};

pub fn main(init: std.process.Init) !void {
    const args = try init.minimal.args.toSlice(init.arena.allocator());
    if (args.len < 2) {
        std.debug.print("usage: hello PORT [THREADS [uring | CERTIFICATE KEY]]\n", .{});
        std.process.exit(2);
    }
    const port = try std.fmt.parseInt(u16, args[1], 10);
    const threads = if (args.len > 2) try std.fmt.parseInt(usize, args[2], 10) else 1;
    var config: per.ServerConfig = .{ .ip = "127.0.0.1", .worker_thread_count = threads };
    var pair: [1]per.tls.CertificateFiles = undefined;
    if (args.len == 4 and std.mem.eql(u8, args[3], "uring")) config.io = .uring;
    // HTTP/2 without TLS, for clients that know that it is spoken here.
    config.limits.http2 = .everywhere;
    if (args.len > 4) {
        pair[0] = .{ .cert_file = args[3], .key_file = args[4] };
        config.tls = .{ .certificates = &pair };
    }
    const server = per.Server(Handler).init(init.gpa, port, config) catch
        std.process.exit(1); // the log says why
    std.debug.print("listening on 127.0.0.1:{d}\n", .{server.port()});
    server.start() catch std.process.exit(1);
}
