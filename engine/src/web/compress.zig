//! Compresses responses with gzip for clients that accept it: bodies that an action has set, and those that a
//! route produces. Does not know: routes, and which responses have secrets in them.
const std = @import("std");
const per = @import("peregrine");
const Context = @import("context.zig").Context;
const Gzip = @import("gzip.zig").Gzip;
const Middleware = @import("router.zig").Middleware;
const Next = @import("router.zig").Next;

/// The responses that are compressed.
pub const Compress = struct {
    /// Shorter bodies, in bytes, stay as they are: they would hardly get shorter.
    bytes_min: usize = 1024,
    /// Longer bodies, in bytes, stay as they are: all else that the worker does would wait for them. No bound
    /// on bodies that are produced.
    bytes_max: usize = 1024 * 1024,
    /// Whether responses to requests with Cookie or Authorization, and responses with Set-Cookie, are
    /// compressed, too. The length of such a response may tell an attacker about secrets in it (BREACH).
    authenticated: bool = false,
};

/// Middleware. Answers of other threads (`detach`), files, and bodies that an action itself writes piece by
/// piece go out as they are.
pub fn compress(comptime App: type, comptime options: Compress) Middleware(App) {
    return struct {
        fn run(app: *App, context: *Context, next: Next(App)) anyerror!void {
            try next.run(app, context);
            const response = context.response;
            if (response.state != .collecting or !isFit(response, options)) return;
            const is_produced = context.is_produced and context.reached;
            if (is_produced) {
                if (response.body != .none) return;
            } else {
                const len = response.body.len();
                if (len < options.bytes_min or len > options.bytes_max) return;
            }
            // Caches need the field where this client gets the plain body, too: they answer other clients
            // from it.
            try response.addNewHeader("Vary", "Accept-Encoding");
            if (!isWanted(context.request, options)) return;
            if (!is_produced) return whole(context);
            try response.addNewHeader("Content-Encoding", "gzip");
            if (context.request.method == .HEAD) return;
            context.gzip = try Gzip.create(context.request.arena);
        }
    }.run;
}

/// Whether a response may be compressed, whatever the request accepts.
fn isFit(response: *const per.Response, options: Compress) bool {
    const status = response.status.code();
    if (status < 200 or status == 204 or status == 205 or status == 206 or status == 304) return false;
    var type_text: []const u8 = "";
    var fields = response.lines.iterator();
    while (fields.next()) |field| {
        const name = field.name();
        const value = field.value();
        if (is(name, "content-encoding") or is(name, "content-range")) return false;
        if (is(name, "content-digest") or is(name, "digest")) return false;
        // A strong ETag names the plain bytes.
        if (is(name, "etag") and !std.mem.startsWith(u8, value, "W/")) return false;
        const forbids = is(name, "cache-control") and std.ascii.findIgnoreCase(value, "no-transform") != null;
        if (forbids) return false;
        if (is(name, "set-cookie") and !options.authenticated) return false;
        if (is(name, "content-type")) type_text = value;
    }
    return shrinks(type_text);
}

fn is(name: []const u8, other: []const u8) bool {
    return std.ascii.eqlIgnoreCase(name, other);
}

fn shrinks(content_type: []const u8) bool {
    const end = std.mem.findScalar(u8, content_type, ';') orelse content_type.len;
    const text = std.mem.trim(u8, content_type[0..end], " \t");
    // An event would wait for others in the deflater.
    if (is(text, "text/event-stream")) return false;
    if (std.ascii.startsWithIgnoreCase(text, "text/")) return true;
    for ([_][]const u8{ "+json", "+xml" }) |suffix| {
        if (std.ascii.endsWithIgnoreCase(text, suffix)) return true;
    }
    for ([_][]const u8{
        "application/json", "application/javascript", "application/xml", "application/x-ndjson",
        "application/wasm", "application/geo+json",
    }) |known| if (is(text, known)) return true;
    return false;
}

fn isWanted(request: *const per.Request, options: Compress) bool {
    if (!options.authenticated) {
        if (request.findHeader("cookie") != null) return false;
        if (request.findHeader("authorization") != null) return false;
    }
    const text = request.findHeader("accept-encoding") orelse return false;
    const accepted: per.util.AcceptedCodings = .init(text);
    for (accepted.slice()) |coding| if (coding == .gzip) return true;
    return false;
}

/// Compresses the body that the response has, if that makes it shorter.
fn whole(context: *Context) anyerror!void {
    const response = context.response;
    var slices: [64][]const u8 = undefined;
    const body = response.collected(&slices) orelse return;
    const arena = context.request.arena;
    const space = try arena.alloc(u8, @intCast(response.body.len()));
    var out: std.Io.Writer = .fixed(space);
    compressAll(try Gzip.create(arena), &out, body) catch return; // the body does not get shorter
    try response.setEncoded("gzip", out.buffered());
}

fn compressAll(gzip: *Gzip, out: *std.Io.Writer, body: []const []const u8) std.Io.Writer.Error!void {
    const plain = gzip.to(out);
    for (body) |bytes| try plain.writeAll(bytes);
    try gzip.finish();
}
