//! Measures TLS by itself, in memory and on one core: handshakes per second, record throughput, memory per
//! idle session. Usage: tls-bench DIRECTORY (as made by make-certificates.sh). Both sides run here; the
//! server's share is timed apart.
const std = @import("std");
const tls = @import("tls");
const link_zig = @import("link.zig");
const Link = link_zig.Link;
const End = link_zig.End;

/// libc's own bookkeeping of its heap (mallinfo2(3)).
const HeapInfo = extern struct {
    arena: usize,
    ordblks: usize,
    smblks: usize,
    hblks: usize,
    hblkhd: usize,
    usmblks: usize,
    fsmblks: usize,
    uordblks: usize,
    fordblks: usize,
    keepcost: usize,
};
extern "c" fn mallinfo2() HeapInfo;
extern "c" fn malloc_trim(pad: usize) c_int;

const gpa = std.heap.c_allocator;
var io: std.Io = undefined;

pub fn main(init: std.process.Init) !void {
    io = init.io;
    const arguments = try init.minimal.args.toSlice(init.arena.allocator());
    if (arguments.len != 2) return error.DirectoryExpected;
    const arena = init.arena.allocator();
    const ca_file = try std.fmt.allocPrintSentinel(arena, "{s}/ca.pem", .{arguments[1]}, 0);
    for ([_][]const u8{ "server", "rsa" }) |name| {
        const files: tls.CertificateFiles = .{
            .cert_file = try std.fmt.allocPrintSentinel(arena, "{s}/{s}.pem", .{ arguments[1], name }, 0),
            .key_file = try std.fmt.allocPrintSentinel(arena, "{s}/{s}.key", .{ arguments[1], name }, 0),
        };
        var diagnostic: tls.Diagnostic = .{};
        errdefer std.debug.print("{s}\n", .{diagnostic.text()});
        const server = try tls.Context.init(
            gpa,
            .{ .certificates = &.{files} },
            &diagnostic,
        );
        defer server.deinit();
        for ([_]tls.Version{ .tls1_2, .tls1_3 }) |version| {
            const client = try tls.Context.initClient(
                gpa,
                .{ .authorities = .{ .file = ca_file }, .max_version = version },
                &diagnostic,
            );
            defer client.deinit();
            std.debug.print("{s} certificate, {t}\n", .{ name, version });
            try handshakes(server, client, 1000, false);
            try handshakes(server, client, 1000, true);
            if (std.mem.eql(u8, name, "rsa")) continue;
            try records(server, client);
            try idle(server, client);
        }
    }
}

fn nowNs() i96 {
    return std.Io.Clock.awake.now(io).nanoseconds;
}

/// Carries a handshake to its end; answers the nanoseconds that the server's side took.
fn timedHandshake(
    server: *tls.Context,
    client: *tls.Context,
    resumption: ?tls.Resumption,
) !struct { Link, i96 } {
    var window: [tls.record_plaintext_bytes_max]u8 = undefined;
    var start = nowNs();
    var server_session: tls.Session = try .init(server, &.{});
    var server_ns = nowNs() - start;
    errdefer server_session.deinit();
    var link: Link = .{
        .client = .{ .gpa = gpa, .session = try .initClient(client, "localhost", resumption) },
        .server = .{ .gpa = gpa, .session = server_session },
    };
    try link.client.receive("", &window);
    while (link.client.outbox.items.len > 0) {
        start = nowNs();
        try link.server.receive(link.client.outbox.items, &window);
        server_ns += nowNs() - start;
        link.client.outbox.clearRetainingCapacity();
        try link.client.receive(link.server.outbox.items, &window);
        link.server.outbox.clearRetainingCapacity();
    }
    if (!link.server.session.isHandshakeDone()) return error.HandshakeFailed;
    return .{ link, server_ns };
}

fn handshakes(server: *tls.Context, client: *tls.Context, count: u32, resumed: bool) !void {
    var first, _ = try timedHandshake(server, client, null);
    defer first.deinit();
    const resumption = first.client.session.takeResumption() orelse return error.NoTicket;
    defer resumption.deinit();
    var total_ns: i96 = 0;
    for (0..count) |_| {
        var link, const server_ns = try timedHandshake(server, client, if (resumed) resumption else null);
        if (link.server.session.agreement().resumed != resumed) return error.ResumptionUnexpected;
        const start = nowNs();
        link.server.session.deinit();
        total_ns += server_ns + nowNs() - start;
        link.client.deinit();
        link.server.outbox.deinit(gpa);
        link.server.inbox.deinit(gpa);
    }
    const per_second = @divTrunc(@as(i96, count) * std.time.ns_per_s, total_ns);
    std.debug.print(
        "  {s} handshakes: {d}/s (server's side only)\n",
        .{ if (resumed) "resumed" else "full   ", per_second },
    );
}

fn records(server: *tls.Context, client: *tls.Context) !void {
    var link, _ = try timedHandshake(server, client, null);
    defer link.deinit();
    var window: [tls.record_plaintext_bytes_max]u8 = undefined;
    const body: [64 * 1024]u8 = @splat('x');
    for ([_]usize{ 200, body.len }) |size| {
        const rounds = @min(100_000, 512 * 1024 * 1024 / size);
        var write_ns: i96 = 0;
        var read_ns: i96 = 0;
        for (0..rounds) |_| {
            var start = nowNs();
            try link.server.write(body[0..size]);
            write_ns += nowNs() - start;
            start = nowNs();
            try link.client.receive(link.server.outbox.items, &window);
            read_ns += nowNs() - start;
            link.server.outbox.clearRetainingCapacity();
            link.client.inbox.clearRetainingCapacity();
        }
        std.debug.print("  {d} B: write {d} ns, {d} MB/s; receive {d} ns, {d} MB/s\n", .{
            size,
            @divTrunc(write_ns, rounds),
            @divTrunc(@as(i96, rounds * size) * 1000, write_ns),
            @divTrunc(read_ns, rounds),
            @divTrunc(@as(i96, rounds * size) * 1000, read_ns),
        });
    }
}

/// Heap in use by 1,000 server sessions after one exchange each. The clients are gone, and the
/// C heap is trimmed.
fn idle(server: *tls.Context, client: *tls.Context) !void {
    const count = 1000;
    var window: [tls.record_plaintext_bytes_max]u8 = undefined;
    const sessions = try gpa.alloc(tls.Session, count);
    defer gpa.free(sessions);
    _ = malloc_trim(0);
    const before = mallinfo2();
    for (sessions) |*session| {
        var link, _ = try timedHandshake(server, client, null);
        try link.client.write("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        try link.server.receive(link.client.outbox.items, &window);
        try link.server.write("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
        session.* = link.server.session;
        link.client.deinit();
        link.server.outbox.deinit(gpa);
        link.server.inbox.deinit(gpa);
    }
    const after = mallinfo2();
    _ = malloc_trim(0);
    std.debug.print("  idle session: {d} B in use, {d} B of heap taken from the system\n", .{
        (after.uordblks - before.uordblks) / count,
        (after.arena - before.arena + after.hblkhd - before.hblkhd) / count,
    });
    for (sessions) |*session| session.deinit();
}
