//! Sends clients without TLS to the same URL under https, and tells browsers to keep to TLS (RFC 6797).
//! Does not know: listeners.
const std = @import("std");
const per = @import("peregrine");
const Context = @import("context.zig").Context;
const Middleware = @import("router.zig").Middleware;
const Next = @import("router.zig").Next;

/// The answer to clients without TLS.
pub const Options = struct {
    /// Seconds for which browsers use TLS without being sent to it; 0: they are not told.
    hsts_s: u32 = 0,
};

/// Middleware for a router's `before`. `port` tells the port of TLS as clients see it (443); null: there is
/// none, and all requests go through.
pub fn requireTls(
    comptime App: type,
    comptime port: fn (app: *const App) ?u16,
    comptime options: Options,
) Middleware(App) {
    return struct {
        fn run(app: *App, context: *Context, next: Next(App)) anyerror!void {
            const tls_port = port(app) orelse return next.run(app, context);
            if (!context.request.isSecure()) return leave(context, tls_port);
            if (options.hsts_s > 0) {
                const text = comptime std.fmt.comptimePrint("max-age={d}", .{options.hsts_s});
                try context.response.addNewHeader("Strict-Transport-Security", text);
            }
            return next.run(app, context);
        }

        fn leave(context: *Context, tls_port: u16) anyerror!void {
            const host = hostWithoutPort(context.request.getHost());
            // Without a host name there is no place to redirect to.
            if (host.len == 0) return error.BadRequest;
            const number = try std.fmt.allocPrint(context.arena(), ":{d}", .{tls_port});
            const suffix = if (tls_port == 443) "" else number;
            const target = context.request.path_and_query;
            const slash = if (std.mem.startsWith(u8, target, "/")) "" else "/";
            const parts = [_][]const u8{ "https://", host, suffix, slash, target };
            const location = try std.mem.concat(context.arena(), u8, &parts);
            try context.redirect(.permanent_redirect, location);
        }
    }.run;
}

fn hostWithoutPort(host: []const u8) []const u8 {
    // An IPv6 address has colons of its own, and brackets.
    const from = std.mem.findScalarLast(u8, host, ']') orelse 0;
    const colon = std.mem.findScalarPos(u8, host, from, ':') orelse return host;
    return host[0..colon];
}

test "hosts without ports" {
    for ([_][2][]const u8{
        .{ "h", "h" }, .{ "h:80", "h" }, .{ "[::1]", "[::1]" }, .{ "[::1]:80", "[::1]" }, .{ "", "" },
    }) |case| try std.testing.expectEqualStrings(case[1], hostWithoutPort(case[0]));
}
