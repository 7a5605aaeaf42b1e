//! Counts requests: one handler, shared by all worker threads, so that its state has to be safe for threads.
//! `zig build run-counter`, then http://127.0.0.1:3000/ for the page and /count for the number; `POST /count`
//! adds the number in its body.
const std = @import("std");
const per = @import("peregrine");

const Handler = struct {
    allocator: std.mem.Allocator,
    count: std.atomic.Value(u64) = .init(0),

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
        if (std.mem.eql(u8, path, "/")) {
            const count = self.count.fetchAdd(1, .monotonic) + 1;
            // Memory of the request: nothing to free.
            _ = try response.setBody(try std.fmt.allocPrint(
                request.arena,
                "<p>You are visitor {d}.\n",
                .{count},
            ));
            return response.addNewHeader("Content-Type", "text/html");
        }
        if (!std.mem.eql(u8, path, "/count")) {
            response.status = .not_found;
            return;
        }
        const step = switch (request.method) {
            .GET, .HEAD => 0,
            .POST => std.fmt.parseInt(u32, std.mem.trim(u8, request.body, " \r\n"), 10) catch {
                response.status = .unprocessable_content;
                return;
            },
            else => {
                response.status = .method_not_allowed;
                return response.addNewHeader("Allow", "GET, HEAD, POST");
            },
        };
        const count = self.count.fetchAdd(step, .monotonic) + step;
        _ = try response.setBody(try std.fmt.allocPrint(request.arena, "{d}\n", .{count}));
        try response.addNewHeader("Content-Type", "text/plain");
    }
};

pub fn main(init: std.process.Init) !void {
    const server = per.Server(Handler).init(init.gpa, 3000, .{}) catch
        std.process.exit(1); // the log says why
    std.debug.print("listening on http://127.0.0.1:{d}/\n", .{server.port()});
    server.start() catch std.process.exit(1);
}
