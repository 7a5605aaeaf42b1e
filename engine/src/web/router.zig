//! Routes: the action that answers a request, by method and path. They are part of a program's code, so all
//! of them are known when it is compiled, checked then, and put in order: a literal in a path goes before a
//! value, a value before the rest, wherever the route is written.
//! Does not know: what actions do.
const std = @import("std");
const per = @import("peregrine");
const Context = @import("context.zig").Context;
const Limits = @import("context.zig").Limits;
const RouteLimits = @import("context.zig").RouteLimits;
const pattern = @import("pattern.zig");
const Segment = pattern.Segment;

/// Runs before, around and behind actions: calls `next.run(app, context)`, or answers itself.
pub fn Middleware(comptime App: type) type {
    return *const fn (app: *App, context: *Context, next: Next(App)) anyerror!void;
}

/// The middleware and the action that have not run yet.
pub fn Next(comptime App: type) type {
    return struct {
        const Self = @This();

        // Middleware without its type, which refers to this type.
        middleware: []const *const anyopaque,
        action: *const fn (app: *App, context: *Context) anyerror!void,

        /// Runs the rest. Headers that the response has by now are kept, also when the action fails. Its
        /// error is the action's, which a middleware may handle; the response has that error's status, and no
        /// body.
        pub fn run(next: Self, app: *App, context: *Context) anyerror!void {
            context.response.keepHeaders();
            if (next.middleware.len == 0) {
                context.reached = true;
                return next.action(app, context) catch |err| failed(context, err);
            }
            const first: Middleware(App) = @ptrCast(@alignCast(next.middleware[0]));
            const rest: Self = .{ .middleware = next.middleware[1..], .action = next.action };
            return first(app, context, rest) catch |err| {
                // The headers that the middleware has added itself, behind the action as well, stay.
                context.response.keepHeaders();
                return failed(context, err);
            };
        }

        fn failed(context: *Context, err: anyerror) anyerror {
            context.response.fail(.ofError(err)) catch {}; // the response has started: the host cuts it
            return err;
        }
    };
}

/// The answer of a body's producer.
pub const Progress = enum {
    /// The producer has written something, and is to be called again when the client takes more.
    more,
    /// The body is complete.
    done,
};

/// A route, or a group of them. `App` is the handler's type; an action is
///
///     fn (app: *App, context: *web.Context) !void
///
/// and a path "/users/:id/*rest". HEAD is answered by GET's action, OPTIONS by itself.
pub fn Route(comptime App: type) type {
    return struct {
        const Self = @This();
        pub const Action = *const fn (app: *App, context: *Context) anyerror!void;
        pub const PieceAction = *const fn (
            app: *App,
            context: *Context,
            piece: []const u8,
            last: bool,
        ) anyerror!void;
        pub const Producer = *const fn (
            app: *App,
            context: *Context,
            body: *std.Io.Writer,
        ) anyerror!Progress;

        /// The method; empty: any.
        method: []const u8 = "",
        path: []const u8,
        action: ?Action = null,
        piece: ?PieceAction = null,
        producer: ?Producer = null,
        middleware: []const Middleware(App) = &.{},
        limits: RouteLimits = .{},
        children: []const Self = &.{},

        pub fn get(comptime path: []const u8, comptime action: anytype) Self {
            return on("GET", path, action);
        }

        pub fn post(comptime path: []const u8, comptime action: anytype) Self {
            return on("POST", path, action);
        }

        pub fn put(comptime path: []const u8, comptime action: anytype) Self {
            return on("PUT", path, action);
        }

        pub fn patch(comptime path: []const u8, comptime action: anytype) Self {
            return on("PATCH", path, action);
        }

        pub fn delete(comptime path: []const u8, comptime action: anytype) Self {
            return on("DELETE", path, action);
        }

        /// Any method that no other route of that path has.
        pub fn any(comptime path: []const u8, comptime action: anytype) Self {
            return on("", path, action);
        }

        /// A route for another method.
        pub fn on(comptime method: []const u8, comptime path: []const u8, comptime action: anytype) Self {
            return .{ .method = method, .path = path, .action = actionOf(path, action) };
        }

        /// The body comes in pieces, as it does with `handleBody`: `action` is called with the head,
        ///
        ///     fn (app: *App, context: *web.Context, piece: []const u8, last: bool) !void
        ///
        /// with each piece of the body. Both get the same context, and `context.user` is theirs.
        pub fn stream(
            comptime method: []const u8,
            comptime path: []const u8,
            comptime action: anytype,
            comptime piece: anytype,
        ) Self {
            return .{
                .method = method,
                .path = path,
                .action = actionOf(path, action),
                .piece = struct {
                    fn call(app: *App, context: *Context, bytes: []const u8, last: bool) anyerror!void {
                        return piece(app, context, bytes, last);
                    }
                }.call,
            };
        }

        /// The response's body is written piece by piece, as fast as the client takes it: `action` sets
        /// status and headers, then
        ///
        ///     fn (app: *App, context: *web.Context, body: *std.Io.Writer) !web.Progress
        ///
        /// writes a few KiB at a time, until it returns `.done`, and gets the action's context. It is not
        /// called while the client is slow, for HEAD, nor after an action that has sent the response. A body
        /// of `Limits.piece_bytes` at most gets a Content-Length.
        pub fn produce(
            comptime method: []const u8,
            comptime path: []const u8,
            comptime action: anytype,
            comptime producer: anytype,
        ) Self {
            return .{
                .method = method,
                .path = path,
                .action = actionOf(path, action),
                .producer = struct {
                    fn call(app: *App, context: *Context, body: *std.Io.Writer) anyerror!Progress {
                        return producer(app, context, body);
                    }
                }.call,
            };
        }

        /// Routes whose paths begin with `prefix` ("" or "/admin"), behind middleware of their own.
        pub fn group(
            comptime prefix: []const u8,
            comptime middleware: []const Middleware(App),
            comptime children: []const Self,
        ) Self {
            return .{ .path = prefix, .middleware = middleware, .children = children };
        }

        /// Routes with bounds of their own. A larger body is a 413 before it is read, so the handler needs a
        /// `handleBody` that calls the router's; `body_bytes_max` may exceed
        /// `ServerConfig.request_buffer_size`, to which bodies are put together otherwise, but not
        /// `limits.body_bytes_max`.
        pub fn limit(comptime limits: RouteLimits, comptime children: []const Self) Self {
            return .{ .path = "", .limits = limits, .children = children };
        }

        fn actionOf(comptime path: []const u8, comptime action: anytype) Action {
            const name = @typeName(App);
            const wanted = "route \"" ++ path ++ "\": an action has to be fn (app: *" ++ name ++
                ", context: *web.Context) !void";
            const info = switch (@typeInfo(@TypeOf(action))) {
                .@"fn" => |info| info,
                else => @compileError(wanted),
            };
            if (info.param_types.len != 2) @compileError(wanted);
            if (info.param_types[0]) |First| {
                if (First != *App and First != *const App) @compileError(wanted);
            }
            if (info.param_types[1]) |Second| if (Second != *Context) @compileError(wanted);
            return struct {
                fn call(app: *App, context: *Context) anyerror!void {
                    return action(app, context);
                }
            }.call;
        }
    };
}

/// A router as a type; its functions are what a handler's hooks call:
///
///     const Routes = web.Router(App, .{}, &.{ .get("/", index), .post("/users", createUser) });
///     pub fn handleRequest(app: *App, request: *per.Request, response: *per.Response) !void {
///         return Routes.handle(app, request, response);
///     }
pub fn Router(comptime App: type, comptime options: Options(App), comptime routes: []const Route(App)) type {
    return struct {
        const Action = Route(App).Action;

        const Flat = struct {
            method: []const u8,
            segments: []const Segment,
            middleware: []const *const anyopaque,
            action: Action,
            piece: ?Route(App).PieceAction,
            producer: ?Route(App).Producer,
            limits: RouteLimits,
        };

        const table = sorted(flatten("", erased(options.before), .{}, routes));

        /// Whether a body of some route comes in pieces.
        pub const has_streams = for (table) |route| {
            if (route.piece != null) break true;
        } else false;

        /// Whether a body of some route's response comes in pieces.
        pub const has_producers = for (table) |route| {
            if (route.producer != null) break true;
        } else false;

        const has_body_limits = for (table) |route| {
            if (route.limits.body_bytes_max != null) break true;
        } else false;

        /// To be called by the handler's `handleRequest`.
        pub fn handle(app: *App, request: *per.Request, response: *per.Response) anyerror!void {
            const takes_pieces = comptime @hasDecl(App, "handleBody");
            if (has_streams and !takes_pieces) @compileError(@typeName(App) ++
                " has routes with pieces, so it needs a handleBody that calls the router's");
            if (has_body_limits and !takes_pieces) @compileError(@typeName(App) ++
                " has routes with limits of bodies, so it needs a handleBody that calls the router's");
            if (has_producers and !@hasDecl(App, "handleDrain")) @compileError(@typeName(App) ++
                " has routes that produce bodies, so it needs a handleDrain that calls the router's");
            if (takes_pieces and request.hasBody()) return begin(app, request, response);
            var context: Context = undefined;
            context.begin(request, response, options.limits);
            const found = try look(&context);
            try limitIdle(found, response);
            try run(app, &context, found);
            const route = found.route orelse return;
            // A request without a body gets its last piece, an empty one, at once.
            if (route.piece) |piece| if (context.reached) try piece(app, &context, "", true);
        }

        fn limitIdle(found: Found, response: *per.Response) per.SendError!void {
            const route = found.route orelse return;
            if (route.limits.idle_ms) |idle_ms| try response.limitIdle(idle_ms);
        }

        /// Runs middleware and action, and the producer if there is one, whose context outlives the hook.
        fn run(app: *App, context: *Context, found: Found) anyerror!void {
            if (!has_producers) return found.go(app, context);
            const is_produced = if (found.route) |route| route.producer != null else false;
            if (!is_produced) return found.go(app, context);
            const kept = try context.keep();
            kept.request.routed = kept;
            kept.is_produced = true;
            try found.go(app, kept);
            if (kept.reached) try goOn(app, kept);
        }

        /// To be called by the handler's `handleDrain`, if it has one: goes on with a body that is produced.
        pub fn handleDrain(app: *App, request: *per.Request, _: *per.Response) anyerror!void {
            const context = contextOf(request) orelse return;
            try goOn(app, context);
        }

        /// Lets the producer write until the client is slow, or the body complete.
        fn goOn(app: *App, context: *Context) anyerror!void {
            const producer = table[context.route].producer orelse return;
            const response = context.response;
            switch (response.state) {
                .collecting, .streaming => {},
                .blocked, .ended, .lost => return,
            }
            if (context.request.method == .HEAD) return;
            if (context.produced.len == 0) {
                context.produced = try context.request.arena.alloc(u8, options.limits.piece_bytes);
            }
            var body = response.writer(context.produced);
            body.interface.end = context.produced_len;
            defer context.produced_len = body.interface.end;
            const gzip = context.gzip;
            const out = if (gzip) |stream| stream.to(&body.interface) else &body.interface;
            while (body.flow == .ready) {
                const before = if (gzip) |stream| stream.written() else body.written();
                const progress = producer(app, context, out) catch |err|
                    return if (err == error.WriteFailed) body.failure orelse err else err;
                if (progress == .done) {
                    if (gzip) |stream| stream.finish() catch |err| return body.failure orelse err;
                    return body.end();
                }
                const after = if (gzip) |stream| stream.written() else body.written();
                // A producer that writes nothing would be called for ever.
                if (after == before) return error.ProducerWroteNothing;
            }
        }

        /// Begins a request whose body is on its way.
        fn begin(app: *App, request: *per.Request, response: *per.Response) anyerror!void {
            const context = try request.arena.create(Context);
            context.begin(request, response, options.limits);
            const found = try look(context);
            try limitIdle(found, response);
            if (found.route) |route| {
                const most = route.limits.body_bytes_max;
                switch (request.head.body) {
                    .counted => |length| if (most) |bytes| if (length > bytes) return error.ContentTooLarge,
                    .chunked, .none => {},
                }
                if (route.piece == null) {
                    return if (most) |bytes| request.gatherBodyUpTo(bytes) else request.gatherBody();
                }
            }
            request.routed = context;
            try found.go(app, context);
            // A body that no action reads need not be waited for.
            if (!context.reached and response.state == .collecting) try response.send();
        }

        /// To be called by the handler's `handleBody`, if it has one.
        pub fn handleBody(
            app: *App,
            request: *per.Request,
            response: *per.Response,
            piece: []const u8,
            last: bool,
        ) anyerror!void {
            if (contextOf(request)) |context| {
                if (!context.reached) return;
                const route = &table[context.route];
                context.body_bytes += piece.len;
                if (route.limits.body_bytes_max) |most| {
                    if (context.body_bytes > most) return error.ContentTooLarge;
                }
                return route.piece.?(app, context, piece, last);
            }
            // The whole body of a route without pieces.
            var context: Context = undefined;
            context.begin(request, response, options.limits);
            return run(app, &context, try look(&context));
        }

        /// The context of a request whose body, or whose response's, comes in pieces, for `handleAbort` and
        /// `handleError`: what `context.user` holds may have to be given back. Null for all other requests.
        pub fn contextOf(request: *const per.Request) ?*Context {
            return @ptrCast(@alignCast(request.routed orelse return null));
        }

        const Found = struct {
            /// Null: no route has this path and method.
            route: ?*const Flat = null,
            /// The methods of the path, if it has only others; "": it has none.
            allow: []const u8 = "",

            fn go(found: Found, app: *App, context: *Context) anyerror!void {
                const before = comptime erased(options.before);
                const next: Next(App) = if (found.route) |route|
                    .{ .middleware = route.middleware, .action = route.action }
                else if (found.allow.len > 0)
                    .{ .middleware = before, .action = refuseMethod }
                else
                    .{ .middleware = before, .action = options.not_found orelse missing };
                try next.run(app, context);
                if (found.route == null) context.reached = false;
            }
        };

        fn look(context: *Context) error{OutOfMemory}!Found {
            const request = context.request;
            const method = request.methodText();
            const text = request.getPath();
            if (std.mem.eql(u8, text, "*")) return .{ .allow = try allowed(context, null) };
            const path = try pattern.Path.split(context.request.arena, text) orelse return .{};
            var is_known = false;
            for (&table, 0..) |*route, number| {
                const values = try path.match(route.segments, &context.values_space) orelse continue;
                is_known = true;
                if (!answers(route.method, method)) continue;
                context.values = values;
                context.route = number;
                return .{ .route = route };
            }
            return .{ .allow = if (is_known) try allowed(context, &path) else "" };
        }

        fn answers(route_method: []const u8, method: []const u8) bool {
            if (route_method.len == 0 or std.mem.eql(u8, route_method, method)) return true;
            return std.mem.eql(u8, method, "HEAD") and std.mem.eql(u8, route_method, "GET");
        }

        /// The methods of the routes for a path, or of all, for an Allow field.
        fn allowed(context: *Context, path: ?*const pattern.Path) error{OutOfMemory}![]const u8 {
            var list: std.ArrayList(u8) = .empty;
            const gpa = context.request.arena;
            try list.appendSlice(gpa, "OPTIONS");
            for (&table) |*route| {
                var space: [pattern.values_max]pattern.Value = undefined;
                if (path) |known| _ = try known.match(route.segments, &space) orelse continue;
                try addMethod(gpa, &list, route.method);
                if (std.mem.eql(u8, route.method, "GET")) try addMethod(gpa, &list, "HEAD");
            }
            return list.items;
        }

        fn addMethod(
            gpa: std.mem.Allocator,
            list: *std.ArrayList(u8),
            method: []const u8,
        ) error{OutOfMemory}!void {
            var names = std.mem.splitSequence(u8, list.items, ", ");
            while (names.next()) |name| if (std.mem.eql(u8, name, method)) return;
            try list.print(gpa, ", {s}", .{method});
        }

        /// Answers with the methods of the path: 405, or 204 to OPTIONS.
        fn refuseMethod(_: *App, context: *Context) anyerror!void {
            const found = try look(context);
            try context.response.addNewHeader("Allow", found.allow);
            if (context.request.method == .OPTIONS) {
                context.response.status = .no_content;
                return;
            }
            context.response.keepHeaders();
            return error.MethodNotAllowed;
        }

        fn missing(_: *App, _: *Context) anyerror!void {
            return error.NotFound;
        }

        fn erased(comptime middleware: []const Middleware(App)) []const *const anyopaque {
            comptime {
                var list: []const *const anyopaque = &.{};
                for (middleware) |one| list = list ++ [_]*const anyopaque{@ptrCast(one)};
                return list;
            }
        }

        fn flatten(
            comptime prefix: []const u8,
            comptime middleware: []const *const anyopaque,
            comptime limits: RouteLimits,
            comptime list: []const Route(App),
        ) []const Flat {
            comptime {
                @setEvalBranchQuota(1_000_000);
                var flat: []const Flat = &.{};
                for (list) |route| {
                    const all = middleware ++ erased(route.middleware);
                    const bounds: RouteLimits = .{
                        .body_bytes_max = route.limits.body_bytes_max orelse limits.body_bytes_max,
                        .idle_ms = route.limits.idle_ms orelse limits.idle_ms,
                    };
                    if (route.action) |action| {
                        flat = flat ++ [_]Flat{.{
                            .method = route.method,
                            .segments = pattern.parse(prefix ++ route.path),
                            .middleware = all,
                            .action = action,
                            .piece = route.piece,
                            .producer = route.producer,
                            .limits = bounds,
                        }};
                    } else flat = flat ++ flatten(prefix ++ route.path, all, bounds, route.children);
                }
                return flat;
            }
        }

        fn sorted(comptime flat: []const Flat) [flat.len]Flat {
            comptime {
                @setEvalBranchQuota(10_000_000);
                var list: [flat.len]Flat = undefined;
                for (flat, 0..) |route, count| {
                    var at = count;
                    while (at > 0 and isBefore(route, list[at - 1])) : (at -= 1) list[at] = list[at - 1];
                    list[at] = route;
                }
                return list;
            }
        }

        fn isBefore(comptime a: Flat, comptime b: Flat) bool {
            if (!pattern.isSame(a.segments, b.segments)) return pattern.isBefore(a.segments, b.segments);
            if (std.mem.eql(u8, a.method, b.method)) {
                @compileError("two routes for " ++ (if (a.method.len > 0) a.method else "any method") ++
                    " are the same: \"" ++ pattern.written(a.segments) ++ "\" and \"" ++
                    pattern.written(b.segments) ++ "\"");
            }
            // The action of HEAD goes before that of GET, and the action of any method behind all.
            return rank(a.method) < rank(b.method);
        }

        fn rank(comptime method: []const u8) u8 {
            if (std.mem.eql(u8, method, "HEAD")) return 0;
            return if (method.len == 0) 2 else 1;
        }
    };
}

/// Middleware and limits of all routes of a router.
pub fn Options(comptime App: type) type {
    return struct {
        /// Middleware around all requests, those to unknown paths included.
        before: []const Middleware(App) = &.{},
        /// Answers paths that no route has; null: 404.
        not_found: ?Route(App).Action = null,
        limits: Limits = .{},
    };
}
