//! Loads a TLS server with handshakes: `handshakes PORT COUNT full|resumed 1.2|1.3`. One connection after
//! another, each with one request that asks for the end. Prints how many handshakes were as asked for. Does
//! not know: what they cost the server; who starts this measures that.
const std = @import("std");
const linux = std.os.linux;
const tls = @import("peregrine").tls;

const request = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

const Client = struct {
    fd: i32,
    failed: bool = false,

    fn connect(port: u16) !Client {
        const fd: i32 = @intCast(linux.socket(linux.AF.INET, linux.SOCK.STREAM, 0));
        // A flight in several pieces would wait for the other side's delayed acknowledgement.
        const on: c_int = 1;
        _ = linux.setsockopt(fd, linux.IPPROTO.TCP, linux.TCP.NODELAY, @ptrCast(&on), @sizeOf(c_int));
        const address: linux.sockaddr.in = .{
            .port = std.mem.nativeToBig(u16, port),
            .addr = @bitCast([4]u8{ 127, 0, 0, 1 }),
        };
        if (linux.errno(linux.connect(fd, @ptrCast(&address), @sizeOf(linux.sockaddr.in))) != .SUCCESS) {
            return error.NotConnected;
        }
        return .{ .fd = fd };
    }

    fn close(client: *Client) void {
        _ = linux.close(client.fd);
    }

    fn send(context: *anyopaque, bytes: []const u8) tls.Sink.Error!void {
        const client: *Client = @ptrCast(@alignCast(context));
        var rest = bytes;
        while (rest.len > 0) {
            const rc = linux.sendto(client.fd, rest.ptr, rest.len, linux.MSG.NOSIGNAL, null, 0);
            if (linux.errno(rc) != .SUCCESS) {
                client.failed = true;
                return;
            }
            rest = rest[rc..];
        }
    }

    fn sink(client: *Client) tls.Sink {
        return .{ .context = client, .appendFn = send };
    }

    fn receive(client: *Client, buffer: []u8) []u8 {
        const rc = linux.read(client.fd, buffer.ptr, buffer.len);
        return if (linux.errno(rc) == .SUCCESS) buffer[0..rc] else buffer[0..0];
    }
};

/// Makes a connection, from its handshake to its end. True if a ticket shortened the handshake. `kept`
/// becomes the newest ticket.
fn converse(context: *tls.Context, port: u16, kept: *?tls.Resumption) !bool {
    var client: Client = try .connect(port);
    defer client.close();
    var session: tls.Session = try .initClient(context, "localhost", kept.*);
    defer session.deinit();
    var ciphertext: [32 * 1024]u8 = undefined;
    var plaintext: [tls.record_plaintext_bytes_max]u8 = undefined;
    var unread: []u8 = ciphertext[0..0];
    var asked = false;
    while (!client.failed) {
        const received = session.receive(unread, &plaintext, client.sink());
        unread = unread[received.consumed..];
        if (!asked and session.isHandshakeDone()) {
            asked = true;
            try session.write(request, client.sink());
        }
        switch (received.event) {
            .plaintext => {},
            .want_more => {
                unread = client.receive(&ciphertext);
                if (unread.len == 0) return error.Truncated;
            },
            .closed => {
                const resumed = session.agreement().resumed;
                if (session.takeResumption()) |ticket| {
                    if (kept.*) |old| old.deinit();
                    kept.* = ticket;
                }
                return resumed;
            },
            .failed, .plain_http => return error.Refused,
        }
    }
    return error.NotConnected;
}

pub fn main(init: std.process.Init) !void {
    const args = try init.minimal.args.toSlice(init.arena.allocator());
    if (args.len != 5) {
        std.debug.print("usage: handshakes PORT COUNT full|resumed 1.2|1.3\n", .{});
        std.process.exit(2);
    }
    const port = try std.fmt.parseInt(u16, args[1], 10);
    const count = try std.fmt.parseInt(usize, args[2], 10);
    const resumes = std.mem.eql(u8, args[3], "resumed");
    const version: tls.Version = if (std.mem.eql(u8, args[4], "1.2")) .tls1_2 else .tls1_3;
    var diagnostic: tls.Diagnostic = .{};
    const context = try tls.Context.initClient(
        std.heap.c_allocator,
        .{ .min_version = version, .max_version = version },
        &diagnostic,
    );
    defer context.deinit();
    var kept: ?tls.Resumption = null;
    defer if (kept) |ticket| ticket.deinit();
    if (resumes) _ = try converse(context, port, &kept);
    var good: usize = 0;
    for (0..count) |_| {
        var none: ?tls.Resumption = null;
        defer if (none) |ticket| ticket.deinit();
        const resumed = try converse(context, port, if (resumes) &kept else &none);
        good += @intFromBool(resumed == resumes);
    }
    std.debug.print("{d} {s} handshakes\n", .{ good, args[3] });
    if (good != count) std.process.exit(1);
}
