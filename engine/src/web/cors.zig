//! Lets pages of other sites use this one from a browser (WHATWG Fetch, CORS protocol): answers their
//! preflights, and adds the fields that browsers look for.
//! Does not know: routes.
const std = @import("std");
const per = @import("peregrine");
const Context = @import("context.zig").Context;
const Middleware = @import("router.zig").Middleware;
const Next = @import("router.zig").Next;

/// Origins of pages that may use this site, and the requests that they may make.
pub const Cors = struct {
    /// Origins of the pages: "https://app.example", or "*" for all.
    origins: []const []const u8,
    methods: []const u8 = "GET, HEAD, POST, PUT, PATCH, DELETE",
    /// Fields that requests of other sites may have besides the safelisted ones; null: all that a preflight
    /// asks for.
    headers: ?[]const u8 = null,
    /// Fields of responses that pages of other sites may read besides the safelisted ones.
    expose: ?[]const u8 = null,
    /// Whether requests from other sites may carry cookies. Not together with "*".
    credentials: bool = false,
    /// How long browsers remember a preflight, in seconds.
    max_age_s: u32 = 600,

    fn isForAll(comptime options: Cors) bool {
        return options.origins.len == 1 and std.mem.eql(u8, options.origins[0], "*");
    }
};

/// Middleware for a router's `before`: answers, errors, streams and preflights have the fields.
pub fn cors(comptime App: type, comptime options: Cors) Middleware(App) {
    if (options.isForAll() and options.credentials) {
        @compileError("CORS: browsers ignore credentials where everybody's pages are allowed (\"*\")");
    }
    return struct {
        fn run(app: *App, context: *Context, next: Next(App)) anyerror!void {
            const origin = context.request.findHeader("origin");
            const allowed = if (origin) |text| allow(text) else null;
            const asked = context.request.findHeader("access-control-request-method");
            const is_preflight = context.request.method == .OPTIONS and origin != null and asked != null;
            if (is_preflight) {
                context.response.status = .no_content;
                if (allowed != null) try preflight(context);
            }
            // The fields are added before the action, which may start the response.
            if (!comptime options.isForAll()) try context.response.addNewHeader("Vary", "Origin");
            if (allowed) |text| try allowOrigin(context.response, text);
            if (!is_preflight) return next.run(app, context);
        }

        fn allowOrigin(response: *per.Response, origin: []const u8) per.HeaderError!void {
            try response.addNewHeader("Access-Control-Allow-Origin", origin);
            if (options.credentials) try response.addNewHeader("Access-Control-Allow-Credentials", "true");
            if (options.expose) |names| try response.addNewHeader("Access-Control-Expose-Headers", names);
        }

        fn allow(origin: []const u8) ?[]const u8 {
            if (comptime options.isForAll()) return "*";
            for (options.origins) |one| if (std.mem.eql(u8, one, origin)) return one;
            return null;
        }

        fn preflight(context: *Context) per.HeaderError!void {
            const response = context.response;
            try response.addNewHeader("Access-Control-Allow-Methods", options.methods);
            const wanted = context.request.findHeader("access-control-request-headers");
            if (options.headers orelse wanted) |names| {
                try response.addNewHeader("Access-Control-Allow-Headers", names);
            }
            const seconds = comptime std.fmt.comptimePrint("{d}", .{options.max_age_s});
            try response.addNewHeader("Access-Control-Max-Age", seconds);
        }
    }.run;
}
