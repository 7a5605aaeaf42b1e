//! How long the HTTP/1 session takes for a request head and for a response head: prints nanoseconds per
//! operation. Does not know: sockets. What it measures is the protocol room alone, warm, on one core.
const std = @import("std");
const http1 = @import("protocol").http1;
const header = @import("protocol").http.header;

const limits: http1.Limits = .{
    .request_line_bytes_max = 8192,
    .head_bytes_max = 65536,
    .header_count_max = 100,
    .body_bytes_max = 0,
    .trailer_bytes_max = 8192,
    .chunk_line_bytes_max = 256,
};

const small = "GET / HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nConnection: keep-alive\r\n\r\n";
const browser = "GET /assets/app.js?v=1234 HTTP/1.1\r\nHost: www.example.com\r\nConnection: keep-alive\r\n" ++
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, " ++
    "like Gecko) Chrome/130.0.0.0 Safari/537.36\r\n" ++
    "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n" ++
    "Accept-Encoding: gzip, deflate, br, zstd\r\nAccept-Language: en-US,en;q=0.9\r\n" ++
    "Referer: https://www.example.com/index.html\r\n" ++
    "Cookie: session=0123456789abcdef0123456789abcdef; theme=dark\r\n\r\n";
const unnamed = "GET / HTTP/1.1\r\nHost: a\r\nX-Custom-One: 1\r\nX-Custom-Two: 2\r\nX-Custom-Three: 3\r\n" ++
    "X-Custom-Four: 4\r\n\r\n";

const rounds = 10_000;
const runs = 300;

/// Prints one line per measurement; the best of many short runs, because other processes
/// disturb the long ones.
pub fn main() void {
    inline for (.{
        .{ "request, 2 fields", small },
        .{ "request, 8 fields", browser },
        .{ "request, unnamed fields", unnamed },
    }) |case| {
        report(case[0], case[1].len, request, case[1]);
    }
    report("response, 2 fields", 0, response, browser);
    report("exchange, 2 fields each", small.len, exchange, small);
}

fn report(name: []const u8, bytes: usize, comptime operation: fn ([]const u8) usize, input: []const u8) void {
    var best: u64 = std.math.maxInt(u64);
    for (0..runs) |_| {
        const before = nanoseconds();
        for (0..rounds) |_| std.mem.doNotOptimizeAway(operation(input));
        best = @min(best, nanoseconds() - before);
    }
    const each = @as(f64, @floatFromInt(best)) / rounds;
    std.debug.print("{s:<26} {d:>4} bytes {d:>8.1} ns\n", .{ name, bytes, each });
}

fn nanoseconds() u64 {
    var time: std.os.linux.timespec = undefined;
    std.debug.assert(std.os.linux.clock_gettime(.MONOTONIC, &time) == 0);
    return @as(u64, @intCast(time.sec)) * std.time.ns_per_s + @as(u64, @intCast(time.nsec));
}

var storage: [100]header.FieldSpan = undefined;
var out: [1024]u8 = undefined;
var answering: ?http1.Session = null;

/// The optimiser must not know the input.
noinline fn request(input: []const u8) usize {
    var session: http1.Session = .init(&limits);
    var head: http1.Head = .{ .storage = &storage };
    const step = session.feed(input, &head);
    return step.consumed + head.fields.len;
}

const fields = [_]header.Field{
    .init("Content-Type", "text/plain; charset=utf-8"), .init("Content-Length", "13"),
};

noinline fn response(input: []const u8) usize {
    if (answering == null) {
        answering = .init(&limits);
        var head: http1.Head = .{ .storage = &storage };
        std.debug.assert(answering.?.feed(input, &head).event == .request);
    }
    var session = answering.?;
    return (session.planStart(
        .{ .status = 200, .fields = &fields, .date = "Sun, 06 Nov 1994 08:49:37 GMT" },
        &out,
    ) catch unreachable).len;
}

noinline fn exchange(input: []const u8) usize {
    const state = struct {
        var session: http1.Session = .init(&limits);
    };
    const session = &state.session;
    var head: http1.Head = .{ .storage = &storage };
    const consumed = session.feed(input, &head).consumed;
    const started = session.planStart(
        .{ .status = 200, .fields = &fields, .date = "Sun, 06 Nov 1994 08:49:37 GMT" },
        &out,
    ) catch unreachable;
    session.apply(started);
    const piece = session.planBody(.{ .len = 13, .last = true }, &out) catch unreachable;
    std.debug.assert(piece.payload);
    session.apply(piece);
    session.next();
    return consumed + started.len;
}
