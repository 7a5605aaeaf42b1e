//! A session whose sink takes the keys: a stand-in for the kernel makes the records, and another session has
//! to understand them.
const std = @import("std");
const testing = std.testing;
const per = @import("peregrine");
const tls = @import("tls");
const files = @import("certificates.zig").files;
const path = @import("certificates.zig").path;
const gpa = testing.allocator;

/// A sink with a stand-in for the kernel behind it.
const Sealer = struct {
    wire: std.ArrayList(u8) = .empty,
    kernel: ?per.io.SimSealer = null,
    willing: bool = true,
    kinds: [256]u32 = @splat(0),

    fn sink(sealer: *Sealer) tls.Sink {
        return .{
            .context = sealer,
            .appendFn = append,
            .kernel = &.{ .takeKeys = takeKeys, .record = record },
        };
    }

    fn append(context: *anyopaque, bytes: []const u8) tls.Sink.Error!void {
        const sealer: *Sealer = @ptrCast(@alignCast(context));
        std.debug.assert(sealer.kernel == null);
        try sealer.wire.appendSlice(gpa, bytes);
    }

    fn takeKeys(context: *anyopaque, keys: []const u8) bool {
        const sealer: *Sealer = @ptrCast(@alignCast(context));
        if (!sealer.willing) return false;
        sealer.kernel = per.io.SimSealer.take(keys).?;
        return true;
    }

    fn record(context: *anyopaque, kind: u8, plaintext: []const u8) tls.Sink.Error!void {
        const sealer: *Sealer = @ptrCast(@alignCast(context));
        sealer.kinds[kind] += 1;
        try sealer.kernel.?.seal(gpa, &sealer.wire, kind, plaintext);
    }
};

const Talk = struct {
    contexts: [2]*tls.Context,
    server: tls.Session,
    client: tls.Session,
    sealer: Sealer = .{},
    to_server: Sealer = .{ .willing = false },
    /// Bytes that the client has read, and its last event.
    read: std.ArrayList(u8) = .empty,
    event: tls.Event = .want_more,

    fn init(talk: *Talk, version: tls.Version) !void {
        var diagnostic: tls.Diagnostic = .{};
        const server: *tls.Context = try .init(gpa, .{ .certificates = &.{files("server")} }, &diagnostic);
        const client: *tls.Context = try .initClient(
            gpa,
            .{ .authorities = .{ .file = path("ca.pem") }, .max_version = version },
            &diagnostic,
        );
        talk.* = .{
            .contexts = .{ server, client },
            .server = try .init(server, &.{}),
            .client = try .initClient(client, "localhost", null),
        };
        talk.server.offerKeys();
    }

    fn deinit(talk: *Talk) void {
        talk.server.deinit();
        talk.client.deinit();
        for (talk.contexts) |context| context.deinit();
        talk.sealer.wire.deinit(gpa);
        talk.to_server.wire.deinit(gpa);
        talk.read.deinit(gpa);
    }

    /// Carries bytes both ways until there are none.
    fn settle(talk: *Talk) !tls.Event {
        var space: [20_000]u8 = undefined;
        var heard: tls.Event = .want_more;
        var first = true;
        while (first or talk.sealer.wire.items.len + talk.to_server.wire.items.len > 0) : (first = false) {
            var flight = talk.sealer.wire;
            talk.sealer.wire = .empty;
            defer flight.deinit(gpa);
            var rest: []const u8 = flight.items;
            while (true) {
                const received = talk.client.receive(rest, &space, talk.to_server.sink());
                rest = rest[received.consumed..];
                talk.event = received.event;
                if (received.event != .plaintext) break;
                try talk.read.appendSlice(gpa, space[0..received.event.plaintext]);
            }
            var answer = talk.to_server.wire;
            talk.to_server.wire = .empty;
            defer answer.deinit(gpa);
            rest = answer.items;
            while (answer.items.len > 0) {
                const received = talk.server.receive(rest, &space, talk.sealer.sink());
                rest = rest[received.consumed..];
                heard = received.event;
                if (received.event != .plaintext) break;
            }
        }
        return heard;
    }
};

test "records sealed with the keys that a session gives away are understood, goodbye included" {
    for ([_]tls.Version{ .tls1_2, .tls1_3 }) |version| {
        var talk: Talk = undefined;
        try talk.init(version);
        defer talk.deinit();
        _ = try talk.settle();
        try testing.expect(talk.server.isHandshakeDone() and talk.client.isHandshakeDone());
        try testing.expect(talk.server.isSealedByKernel());
        try testing.expect(!talk.client.isSealedByKernel());
        // Finished and a ticket, or two tickets.
        try testing.expect(talk.sealer.kinds[22] >= 1);
        try Sealer.record(&talk.sealer, 23, "hello");
        try Sealer.record(&talk.sealer, 23, &@as([16384]u8, @splat('x')));
        try talk.server.shutdown(talk.sealer.sink());
        _ = try talk.settle();
        try testing.expectEqual(5 + 16384, talk.read.items.len);
        try testing.expectEqualStrings("hellox", talk.read.items[0..6]);
        try testing.expectEqual(.closed, talk.event);
        try testing.expectEqual(1, talk.sealer.kinds[21]);
        var resumption = talk.client.takeResumption() orelse return error.NoTicket;
        resumption.deinit();
    }
}

test "a sink that does not want the keys gets ciphertext as ever" {
    var talk: Talk = undefined;
    try talk.init(.tls1_3);
    defer talk.deinit();
    talk.sealer.willing = false;
    _ = try talk.settle();
    try testing.expect(!talk.server.isSealedByKernel());
    try talk.server.write("hello", talk.sealer.sink());
    _ = try talk.settle();
    try testing.expectEqualStrings("hello", talk.read.items);
}

test "the alert of a session that fails goes through the kernel" {
    var talk: Talk = undefined;
    try talk.init(.tls1_3);
    defer talk.deinit();
    _ = try talk.settle();
    try talk.to_server.wire.appendSlice(gpa, &[_]u8{ 23, 3, 3, 0, 20 } ++ @as([20]u8, @splat(0)));
    const heard = try talk.settle();
    try testing.expect(heard == .failed);
    try testing.expectEqual(1, talk.sealer.kinds[21]);
    try testing.expect(talk.event == .failed);
}

extern fn SSL_key_update(ssl: *anyopaque, asking: c_int) c_int;

test "a peer that asks for new keys ends the session: the kernel would go on with the old ones" {
    var talk: Talk = undefined;
    try talk.init(.tls1_3);
    defer talk.deinit();
    _ = try talk.settle();
    // New keys of the peer alone are nothing to the kernel.
    try testing.expectEqual(1, SSL_key_update(talk.client.ssl, 0));
    try talk.client.write("one", talk.to_server.sink());
    _ = try talk.settle();
    try Sealer.record(&talk.sealer, 23, "hello");
    _ = try talk.settle();
    try testing.expectEqualStrings("hello", talk.read.items);
    try testing.expectEqual(1, SSL_key_update(talk.client.ssl, 1));
    try talk.client.write("two", talk.to_server.sink());
    const heard = try talk.settle();
    try testing.expect(heard == .failed);
    try testing.expect(std.mem.indexOf(u8, heard.failed, "new keys") != null);
}

test "the certificates are removed (keep this test last)" {
    @import("certificates.zig").remove();
}
