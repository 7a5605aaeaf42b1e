//! A request and its response in the hands of a router's action, with what this module adds: values of the
//! path, JSON, cookies, forms. All memory is the request's, and bounded.
//! Does not know: routes.
const std = @import("std");
const per = @import("peregrine");
const Bounded = @import("bounded.zig").Bounded;
const Cookie = @import("cookie.zig").Cookie;
const Cookies = @import("cookie.zig").Cookies;
const Form = @import("form.zig").Form;
const Gzip = @import("gzip.zig").Gzip;
const Multipart = @import("multipart.zig").Multipart;
const Value = @import("pattern.zig").Value;
const json_file = @import("json.zig");
const pattern = @import("pattern.zig");

/// Bounds on the memory and the values that actions make of one request.
pub const Limits = struct {
    /// Memory that `Context.arena` gives out for one request, in bytes: to actions, and to JSON.
    arena_bytes_max: usize = 4 * 1024 * 1024,
    /// The buffer of a body that an action writes piece by piece, in bytes: a piece that is sent is about as
    /// long.
    piece_bytes: usize = 16 * 1024,
    /// How deep values of JSON may lie in each other.
    json_depth_max: u32 = 64,
    /// Fields of a form.
    form_fields_max: u32 = 1000,
};

/// Bounds on the requests of some routes, in place of the server's: see `Route.limit`. Null: the bound of the
/// routes around them, or the server's.
pub const RouteLimits = struct {
    /// The request's body, in bytes. The server's `limits.body_bytes_max` holds as well.
    body_bytes_max: ?usize = null,
    /// The time without a byte in either direction, in milliseconds; 0: no limit. Then the answer is 504, or
    /// the response is cut.
    idle_ms: ?u32 = null,
};

/// A request and its response. Lives until the action returns, or, for a route whose request's or response's
/// body comes in pieces, until the response is complete.
pub const Context = struct {
    request: *per.Request,
    response: *per.Response,
    limits: Limits,
    /// A pointer of the action's own, for routes with bodies in pieces.
    user: ?*anyopaque = null,
    memory: Bounded,
    values_space: [pattern.values_max]Value = undefined,
    values: []const Value = &.{},
    /// The buffer of `Route.produce`, allocated with its first piece; its content goes with the next piece.
    produced: []u8 = &.{},
    produced_len: usize = 0,
    /// The route has a producer, which runs behind the middleware.
    is_produced: bool = false,
    /// The compressor of produced bytes; null: they are not compressed.
    gzip: ?*Gzip = null,
    /// Bytes that have come of a body in pieces.
    body_bytes: u64 = 0,
    /// The index of the request's route among the router's.
    route: usize = 0,
    /// The action was called: no middleware has answered in its place.
    reached: bool = false,

    /// For the router. Does not move while its memory is in use.
    pub fn begin(
        context: *Context,
        request: *per.Request,
        response: *per.Response,
        limits: Limits,
    ) void {
        context.* = .{
            .request = request,
            .response = response,
            .limits = limits,
            .memory = .{ .parent = request.arena, .left = limits.arena_bytes_max },
        };
    }

    /// For the router: a copy that outlives the hook, with copies of the route's values.
    pub fn keep(context: *const Context) error{OutOfMemory}!*Context {
        const memory = context.request.arena;
        const kept = try memory.create(Context);
        kept.* = context.*;
        for (context.values, kept.values_space[0..context.values.len]) |value, *same| {
            same.* = .{ .name = value.name, .text = try memory.dupe(u8, value.text) };
        }
        kept.values = kept.values_space[0..context.values.len];
        return kept;
    }

    /// Memory that goes with the request, at most `Limits.arena_bytes_max`.
    pub fn arena(context: *Context) std.mem.Allocator {
        return context.memory.allocator();
    }

    // ---- The request

    /// The value of ":name" or "*name" of the route, decoded; null: the route has no such name.
    pub fn param(context: *const Context, name: []const u8) ?[]const u8 {
        for (context.values) |value| if (std.mem.eql(u8, value.name, name)) return value.text;
        return null;
    }

    /// Like `param`, as a number; `error.NotFound` if the value is no number, or does not fit.
    pub fn number(context: *const Context, comptime T: type, name: []const u8) error{NotFound}!T {
        return std.fmt.parseInt(T, context.param(name) orelse return error.NotFound, 10) catch
            error.NotFound;
    }

    /// A parameter of the query, decoded; "" for a bare name, null if there is none.
    pub fn query(context: *const Context, name: []const u8) error{OutOfMemory}!?[]const u8 {
        return context.request.param(name);
    }

    /// The body as a value of type `T`; unknown fields are an error. Errors are the names of statuses.
    pub fn json(context: *Context, comptime T: type) (json_file.Error || error{UnsupportedMediaType})!T {
        return context.jsonWith(T, .{});
    }

    /// Like `json`, with options of std.json.
    pub fn jsonWith(
        context: *Context,
        comptime T: type,
        options: std.json.ParseOptions,
    ) (json_file.Error || error{UnsupportedMediaType})!T {
        const media = context.request.findHeader("content-type") orelse return error.UnsupportedMediaType;
        if (!json_file.isJson(media)) return error.UnsupportedMediaType;
        const depth_max = context.limits.json_depth_max;
        return json_file.read(T, &context.memory, context.request.body, depth_max, options);
    }

    /// The body as a form, of either kind. Errors are the names of statuses. A form may be as large as a body
    /// may be (`ServerConfig.request_buffer_size`): no bound of `Limits` but that on its fields is for it.
    pub fn form(context: *Context) Form.Error!Form {
        const request = context.request;
        const media = request.findHeader("content-type") orelse return error.UnsupportedMediaType;
        // Names and values take no more memory than the body does.
        return Form.read(request.arena, media, request.body, context.limits.form_fields_max);
    }

    /// For routes with pieces: takes a multipart body apart as it comes.
    pub fn multipart(
        context: *const Context,
        limits: Multipart.Limits,
    ) (Multipart.Error || error{UnsupportedMediaType})!Multipart {
        const media = context.request.findHeader("content-type") orelse return error.UnsupportedMediaType;
        return .init(Multipart.boundaryOf(media) orelse return error.UnsupportedMediaType, limits);
    }

    /// The value of the first cookie of that name; null if there is none.
    pub fn cookie(context: *const Context, name: []const u8) ?[]const u8 {
        var headers = context.request.headers();
        while (headers.next()) |header| {
            if (!std.ascii.eqlIgnoreCase(header.name, "cookie")) continue;
            var cookies: Cookies = .init(header.value);
            while (cookies.next()) |pair| if (std.mem.eql(u8, pair.name, name)) return pair.value;
        }
        return null;
    }

    // ---- The response

    /// Why an answer is not taken.
    pub const AnswerError = per.HeaderError || per.SetBodyError;

    /// Answers with a value as JSON.
    pub fn sendJson(context: *Context, value: anytype) AnswerError!void {
        var writer: std.Io.Writer.Allocating = .init(context.arena());
        std.json.Stringify.value(value, .{}, &writer.writer) catch return error.OutOfMemory;
        try context.send("application/json", writer.written());
    }

    /// Answers with text.
    pub fn text(context: *Context, bytes: []const u8) AnswerError!void {
        try context.response.addNewHeader("Content-Type", "text/plain; charset=utf-8");
        try context.response.setBody(bytes);
    }

    /// Answers with a page.
    pub fn html(context: *Context, bytes: []const u8) AnswerError!void {
        try context.response.addNewHeader("Content-Type", "text/html; charset=utf-8");
        try context.response.setBody(bytes);
    }

    /// Answers with bytes of this media type, which stay unchanged until the response is complete: constants,
    /// or memory of `arena`.
    pub fn send(context: *Context, content_type: []const u8, bytes: []const u8) AnswerError!void {
        try context.response.addNewHeader("Content-Type", content_type);
        try context.response.setBodyBorrowed(bytes);
    }

    /// Sends the client elsewhere; `.see_other` after a form. Headers that the response has, cookies for
    /// example, go along.
    pub fn redirect(context: *Context, status: per.Status, location: []const u8) AnswerError!void {
        context.response.status = status;
        try context.response.addNewHeader("Location", location);
        try context.text(status.toString());
    }

    /// Sets a cookie.
    pub fn setCookie(context: *Context, wanted: Cookie) (Cookie.Error || per.HeaderError)!void {
        var writer: std.Io.Writer.Allocating = .init(context.arena());
        wanted.write(&writer.writer) catch |err| return switch (err) {
            error.InvalidCookie => error.InvalidCookie,
            error.WriteFailed => error.OutOfMemory,
        };
        try context.response.addNewHeader("Set-Cookie", writer.written());
    }
};
