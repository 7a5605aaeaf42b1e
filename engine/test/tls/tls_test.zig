//! Scenarios for the layer `tls` through its public face: a server's session against a client's, in memory.
const std = @import("std");
const testing = std.testing;
const tls = @import("tls");
const wanted = @import("wanted");
const certificates = @import("certificates.zig");
const Cut = @import("link.zig").Cut;
const Link = @import("link.zig").Link;
const gpa = testing.allocator;

const path = certificates.path;
const files = certificates.files;
const ticket_keys: [tls.ticket_keys_bytes]u8 = @splat(7);

fn serverContext(config: tls.ServerConfig) !*tls.Context {
    var diagnostic: tls.Diagnostic = .{};
    return tls.Context.init(gpa, config, &diagnostic) catch |err| {
        std.debug.print("{s}\n", .{diagnostic.text()});
        return err;
    };
}

fn trusted() tls.Authorities {
    return .{ .file = path("ca.pem") };
}

fn clientContext(config: tls.ClientConfig) !*tls.Context {
    var diagnostic: tls.Diagnostic = .{};
    return tls.Context.initClient(gpa, config, &diagnostic) catch |err| {
        std.debug.print("{s}\n", .{diagnostic.text()});
        return err;
    };
}

/// A server with the certificate for localhost, and a client of that version that trusts it.
const Simple = struct {
    server: *tls.Context,
    client: *tls.Context,

    fn init(version: tls.Version) !Simple {
        const server = try serverContext(.{ .certificates = &.{files("server")} });
        errdefer server.deinit();
        return .{
            .server = server,
            .client = try clientContext(.{ .authorities = trusted(), .max_version = version }),
        };
    }

    fn deinit(simple: Simple) void {
        simple.server.deinit();
        simple.client.deinit();
    }

    fn link(simple: Simple) !Link {
        return .init(gpa, simple.server, simple.client, "localhost", null);
    }
};

const versions = [_]tls.Version{ .tls1_2, .tls1_3 };

/// Sends a request, an answer and close_notify both ways over `link`, cut as `cut` says.
fn converse(link: *Link, cut: Cut) !void {
    try link.settle(cut);
    try testing.expect(link.client.session.isHandshakeDone());
    try testing.expect(link.server.session.isHandshakeDone());
    try link.client.write("GET / HTTP/1.1\r\n\r\n");
    try link.settle(cut);
    try testing.expectEqualStrings("GET / HTTP/1.1\r\n\r\n", link.server.inbox.items);
    try link.server.write("HTTP/1.1 200 OK\r\n");
    try link.server.write("\r\nhello");
    try link.client.session.shutdown(link.client.sink());
    try link.settle(cut);
    try testing.expectEqualStrings("HTTP/1.1 200 OK\r\n\r\nhello", link.client.inbox.items);
    try testing.expectEqual(.closed, link.server.event);
    try testing.expectEqual(tls.Ending.clean, link.server.session.ending());
    // The other direction is still open.
    try testing.expectEqual(tls.Ending.truncated, link.client.session.ending());
    try link.server.write("bye");
    try link.server.session.shutdown(link.server.sink());
    try link.server.session.shutdown(link.server.sink());
    try link.settle(cut);
    try testing.expectEqualStrings("HTTP/1.1 200 OK\r\n\r\nhellobye", link.client.inbox.items);
    try testing.expectEqual(.closed, link.client.event);
}

test "a conversation, whole and in pieces of every size, into windows of every size" {
    for (versions) |version| {
        const simple: Simple = try .init(version);
        defer simple.deinit();
        for ([_]usize{ std.math.maxInt(usize), 1, 2, 3, 4, 5, 6, 7, 64, 1000 }) |step| {
            for ([_]usize{ tls.record_plaintext_bytes_max, 1, 5 }) |window| {
                var link = try simple.link();
                defer link.deinit();
                try converse(&link, .{ .step = step, .window = window });
                try testing.expectEqual(@backingInt(version), link.server.session.agreement().version);
            }
        }
    }
}

test "records that come one by one leave their session dry, and a half one behind them as well" {
    const simple: Simple = try .init(.tls1_3);
    defer simple.deinit();
    var link = try simple.link();
    defer link.deinit();
    try link.settle(.{});
    var window: [64]u8 = undefined;
    for ([_]usize{ 0, 10 }) |behind| {
        for (0..2) |_| try link.client.write("GET / HTTP/1.1\r\n\r\n");
        const sent = link.client.outbox.items;
        const server = &link.server;
        const first = server.session.receive(sent[0 .. sent.len / 2 + behind], &window, server.sink());
        try testing.expectEqual(18, first.event.plaintext);
        try testing.expect(first.is_dry);
        const second = server.session.receive(sent[sent.len / 2 + behind ..], &window, server.sink());
        try testing.expectEqual(18, second.event.plaintext);
        link.client.outbox.clearRetainingCapacity();
    }
}

extern fn ERR_new() void;
extern fn ERR_set_error(library: c_int, reason: c_int, format: ?[*:0]const u8, ...) void;

/// Leaves a complaint in OpenSSL's queue, as other code of a program may.
fn complain() void {
    ERR_new();
    ERR_set_error(20, 100, null); // ERR_LIB_SSL
}

test "complaints that other code has left in OpenSSL's queue are not taken for a session's own" {
    for (versions) |version| {
        const simple: Simple = try .init(version);
        defer simple.deinit();
        var link = try simple.link();
        defer link.deinit();
        try link.settle(.{});
        for ([_]Cut{ .{}, .{ .step = 5 } }) |cut| {
            complain();
            try link.client.write("ping");
            try link.settle(cut);
            try testing.expectEqual(.want_more, link.server.event);
        }
        try testing.expectEqualStrings("pingping", link.server.inbox.items);
        try link.client.session.shutdown(link.client.sink());
        complain();
        try link.settle(.{});
        try testing.expectEqual(.closed, link.server.event);
    }
}

test "a conversation, split at many places" {
    for (versions) |version| {
        const simple: Simple = try .init(version);
        defer simple.deinit();
        var split: usize = 1;
        while (true) : (split += if (wanted.isBrief()) 11 else 1) {
            var link = try simple.link();
            defer link.deinit();
            try converse(&link, .{ .split = split });
            if (split > @max(link.to_server, link.to_client)) break;
        }
        try testing.expect(split > 500);
    }
}

test "the agreement names version, cipher, server name, protocol and certificate" {
    const expected = [_]u16{ 0xc02b, 0x1301 };
    for (versions, expected) |version, suite| {
        const server = try serverContext(.{ .certificates = &.{files("server")} });
        defer server.deinit();
        const client = try clientContext(.{
            .authorities = trusted(),
            .max_version = version,
            .alpn = &.{ "http/1.1", "h2" },
        });
        defer client.deinit();
        var link: Link = try .initAgreeing(gpa, server, offers, client, "localhost", null);
        defer link.deinit();
        try testing.expect(!link.server.session.isHandshakeDone());
        try link.settle(.{});
        const agreement = link.server.session.agreement();
        try testing.expectEqual(@backingInt(version), agreement.version);
        try testing.expectEqual(suite, agreement.cipher_suite);
        try testing.expectEqualStrings("localhost", agreement.server_name.?);
        // The server's order counts.
        try testing.expectEqualStrings("h2", agreement.alpn.?);
        try testing.expectEqualStrings("h2", link.client.session.agreement().alpn.?);
        try testing.expect(!agreement.resumed);
        try testing.expectEqualStrings(try readFile("server.pem"), agreement.server_certificate_pem.?);
        try testing.expectEqual(null, link.client.session.agreement().server_certificate_pem);
        var peer = try link.server.session.peer(gpa);
        defer peer.deinit();
        try testing.expectEqual(0, peer.chain.len);
        try testing.expectEqual(null, peer.subject);
        try testing.expectEqual(null, peer.verify_error);
    }
}

/// A file's text, until the next call.
fn readFile(name: []const u8) ![]const u8 {
    const static = struct {
        var buffer: [8192]u8 = undefined;
    };
    return std.Io.Dir.cwd().readFile(testing.io, path(name), &static.buffer);
}

/// The protocols, as a server of HTTP offers them.
const offers: []const tls.Protocol = &.{
    .{ .name = "h2", .needs_strong_cipher = true },
    .{ .name = "http/1.1" },
};

test "ALPN: none offered, none in common, none configured" {
    const cases = [_]struct { []const tls.Protocol, []const []const u8, ?[]const u8, bool }{
        .{ offers, &.{}, null, true },
        .{ &.{}, &.{"h2"}, null, true },
        .{ offers[1..], &.{ "h2", "http/1.1" }, "http/1.1", true },
        .{ offers[1..], &.{"h2"}, null, false },
        .{ offers, &.{"spdy/3"}, null, false },
        .{ offers, &.{ "H2", "h" }, null, false },
    };
    for (versions) |version| for (cases) |case| {
        const server = try serverContext(.{ .certificates = &.{files("server")} });
        defer server.deinit();
        const client = try clientContext(.{ .alpn = case[1], .max_version = version });
        defer client.deinit();
        var link: Link = try .initAgreeing(gpa, server, case[0], client, null, null);
        defer link.deinit();
        try link.settle(.{});
        try testing.expectEqual(case[3], link.server.session.isHandshakeDone());
        if (!case[3]) {
            try expectFailed(link.server.event, "no application protocol");
            try expectFailed(link.client.event, "no application protocol");
        } else try expectProtocol(&link, case[2]);
    };
}

fn expectProtocol(link: *const Link, name: ?[]const u8) !void {
    for ([_]?[]const u8{
        link.server.session.protocol(),
        link.server.session.agreement().alpn,
        link.client.session.protocol(),
    }) |agreed| {
        if (name) |expected| {
            try testing.expectEqualStrings(expected, agreed orelse "none");
        } else try testing.expectEqual(null, agreed);
    }
}

test "ALPN passes over what needs a strong cipher where there is none, whatever the client likes best" {
    const cases = [_]struct { [:0]const u8, []const []const u8, ?[]const u8 }{
        .{ "ECDHE-RSA-AES128-GCM-SHA256", &.{ "h2", "http/1.1" }, "h2" },
        .{ "DHE-RSA-AES128-GCM-SHA256", &.{ "http/1.1", "h2" }, "h2" },
        .{ "AES128-GCM-SHA256", &.{ "h2", "http/1.1" }, "http/1.1" },
        .{ "ECDHE-RSA-AES128-SHA256", &.{ "h2", "http/1.1" }, "http/1.1" },
        .{ "ECDHE-RSA-AES128-SHA256", &.{"h2"}, null },
    };
    for (cases) |case| {
        errdefer std.debug.print("{s}\n", .{case[0]});
        const server = try serverContext(.{
            .certificates = &.{files("rsa")},
            .cipher_list = case[0],
            .ticket_keys = &ticket_keys,
        });
        defer server.deinit();
        const client = try clientContext(.{
            .max_version = .tls1_2,
            .cipher_list = case[0],
            .alpn = case[1],
        });
        defer client.deinit();
        var link: Link = try .initAgreeing(gpa, server, offers, client, null, null);
        defer link.deinit();
        try link.settle(.{});
        const name = case[2] orelse {
            try expectFailed(link.server.event, "no application protocol");
            continue;
        };
        try expectProtocol(&link, name);
        // A ticket remembers the cipher.
        const ticket = link.client.session.takeResumption().?;
        defer ticket.deinit();
        var again: Link = try .initAgreeing(gpa, server, offers, client, null, ticket);
        defer again.deinit();
        try again.settle(.{});
        try testing.expect(again.server.session.agreement().resumed);
        try expectProtocol(&again, name);
    }
}

fn expectFailed(event: tls.Event, part: []const u8) !void {
    errdefer std.debug.print("event: {any}\n", .{event});
    try testing.expect(event == .failed);
    errdefer std.debug.print("reason: {s}\n", .{event.failed});
    try testing.expect(std.mem.indexOf(u8, event.failed, part) != null);
}

test "SNI chooses by exact name, wildcard and common name, else the first; a client verifies the choice" {
    const server = try serverContext(.{ .certificates = &.{ files("server"), files("wild"), files("cn") } });
    defer server.deinit();
    const cases = [_]struct { ?[:0]const u8, []const u8, bool }{
        .{ "localhost", "server.pem", true },        .{ "two.example", "server.pem", true },
        .{ "a.wild.example", "wild.pem", true },     .{ "wild.example", "wild.pem", true },
        .{ "A.WILD.example", "wild.pem", true },     .{ "cn.example", "cn.pem", true },
        .{ "127.0.0.1", "server.pem", true },        .{ null, "server.pem", true },
        .{ "ignored.example", "server.pem", false }, .{ "b.a.wild.example", "server.pem", false },
    };
    for (versions) |version| {
        const trusting = try clientContext(.{ .max_version = version });
        defer trusting.deinit();
        const careful = try clientContext(.{ .max_version = version, .authorities = trusted() });
        defer careful.deinit();
        for (cases) |case| {
            errdefer std.debug.print("{any} {?s}\n", .{ version, case[0] });
            var link: Link = try .init(gpa, server, trusting, case[0], null);
            defer link.deinit();
            try link.settle(.{});
            try testing.expectEqualStrings(
                try readFile(case[1]),
                link.server.session.agreement().server_certificate_pem.?,
            );
            var verified: Link = try .init(gpa, server, careful, case[0], null);
            defer verified.deinit();
            try verified.settle(.{});
            try testing.expectEqual(case[2], verified.client.session.isHandshakeDone());
            if (case[2]) continue;
            try expectFailed(verified.client.event, "certificate verify failed");
            try testing.expectEqual(.other_name, verified.client.session.distrust());
        }
    }
}

test "two keys for the same names serve each client with the one it knows" {
    const server = try serverContext(.{ .certificates = &.{ files("rsa"), files("server") } });
    defer server.deinit();
    const cases = [_]struct { [:0]const u8, []const u8, u16 }{
        .{ "ECDHE-RSA-AES128-GCM-SHA256", "rsa.pem", 0xc02f },
        .{ "ECDHE-ECDSA-CHACHA20-POLY1305", "server.pem", 0xcca9 },
    };
    for (cases) |case| {
        const client = try clientContext(.{
            .max_version = .tls1_2,
            .cipher_list = case[0],
            .authorities = trusted(),
        });
        defer client.deinit();
        var link: Link = try .init(gpa, server, client, "localhost", null);
        defer link.deinit();
        try converse(&link, .{});
        const agreement = link.server.session.agreement();
        try testing.expectEqual(case[2], agreement.cipher_suite);
        try testing.expectEqualStrings(try readFile(case[1]), agreement.server_certificate_pem.?);
    }
}

test "client certificates: asked for and required, good, missing, foreign" {
    const Outcome = struct { done: bool, server_says: []const u8 = "", verify_error: bool = false };
    const Case = struct { tls.ClientVerification, ?[]const u8, Outcome };
    const cases = [_]Case{
        .{ .require, "client", .{ .done = true } },
        .{ .require, null, .{ .done = false, .server_says = "peer did not return a certificate" } },
        .{ .require, "stranger", .{ .done = false, .server_says = "certificate verify failed" } },
        .{ .request, "client", .{ .done = true } },
        .{ .request, null, .{ .done = true } },
        .{ .request, "stranger", .{ .done = true, .verify_error = true } },
    };
    for (versions) |version| for (cases) |case| {
        errdefer std.debug.print("{any} {any} {?s}\n", .{ version, case[0], case[1] });
        const server = try serverContext(.{
            .certificates = &.{files("server")},
            .ca_file = path("ca.pem"),
            .verify_client = case[0],
        });
        defer server.deinit();
        const shown: ?tls.CertificateFiles = if (case[1]) |name|
            if (name[0] == 'c') files("client") else files("stranger")
        else
            null;
        const client = try clientContext(.{ .max_version = version, .certificate = shown });
        defer client.deinit();
        var link: Link = try .init(gpa, server, client, "localhost", null);
        defer link.deinit();
        try link.settle(.{});
        try testing.expectEqual(case[2].done, link.server.session.isHandshakeDone());
        if (!case[2].done) {
            try expectFailed(link.server.event, case[2].server_says);
            // The alert arrived.
            try testing.expect(link.client.event == .failed);
            continue;
        }
        try expectPeer(&link.server.session, case[1], case[2].verify_error);
    };
}

fn expectPeer(session: *const tls.Session, name: ?[]const u8, verify_error: bool) !void {
    var peer = try session.peer(gpa);
    defer peer.deinit();
    try testing.expectEqual(verify_error, peer.verify_error != null);
    const shown = name orelse return testing.expectEqual(0, peer.chain.len);
    if (std.mem.eql(u8, shown, "client")) {
        // The second attribute holds a comma, the third is not ASCII.
        try testing.expectEqualStrings("CN=Zo\\C3\\AB,O=Falcon\\, Inc.,C=DE", peer.subject.?);
        try testing.expectEqual(2, peer.chain.len);
        const both = try std.mem.concat(gpa, u8, peer.chain);
        defer gpa.free(both);
        try testing.expectEqualStrings(try readFile("client.pem"), both);
    } else {
        try testing.expectEqualStrings("CN=Stranger", peer.subject.?);
        try testing.expect(std.mem.indexOf(u8, peer.verify_error.?, "unable to") != null);
    }
}

test "a ticket of one process opens a shorter handshake in another that shares the keys, and only there" {
    for (versions) |version| {
        const config: tls.ServerConfig = .{
            .certificates = &.{ files("server"), files("wild") },
            .ticket_keys = &ticket_keys,
        };
        const first = try serverContext(config);
        defer first.deinit();
        const second = try serverContext(config);
        defer second.deinit();
        var lonely_config = config;
        lonely_config.ticket_keys = null;
        const lonely = try serverContext(lonely_config);
        defer lonely.deinit();
        const client = try clientContext(.{ .authorities = trusted(), .max_version = version });
        defer client.deinit();

        var link: Link = try .init(gpa, first, client, "localhost", null);
        defer link.deinit();
        try converse(&link, .{});
        const resumption = link.client.session.takeResumption().?;
        defer resumption.deinit();
        for ([_]*tls.Context{ first, second, lonely }, [_]bool{ true, true, false }) |server, resumed| {
            var again: Link = try .init(gpa, server, client, "localhost", resumption);
            defer again.deinit();
            try converse(&again, .{});
            const agreement = again.server.session.agreement();
            try testing.expectEqual(resumed, agreement.resumed);
            try testing.expectEqualStrings("localhost", agreement.server_name.?);
            try testing.expectEqualStrings(try readFile("server.pem"), agreement.server_certificate_pem.?);
            if (resumed) try testing.expect(again.to_client < link.to_client);
        }
    }
}

test "connections that end without goodbyes can be resumed, more than once" {
    for (versions) |version| {
        const simple: Simple = try .init(version);
        defer simple.deinit();
        var kept: ?tls.Resumption = null;
        defer if (kept) |resumption| resumption.deinit();
        for (0..3) |round| {
            var link: Link = try .init(gpa, simple.server, simple.client, "localhost", kept);
            defer link.deinit();
            try link.settle(.{});
            try testing.expectEqual(round > 0, link.server.session.agreement().resumed);
            if (round == 0) kept = link.client.session.takeResumption().?;
        }
    }
}

test "a ticket does not carry a client past another server's verification" {
    for (versions) |version| {
        const config: tls.ServerConfig = .{
            .certificates = &.{files("server")},
            .ca_file = path("ca.pem"),
            .ticket_keys = &ticket_keys,
        };
        const open = try serverContext(config);
        defer open.deinit();
        var strict_config = config;
        strict_config.verify_client = .require;
        const strict = try serverContext(strict_config);
        defer strict.deinit();
        var foreign_config = strict_config;
        foreign_config.ca_file = path("other-ca.pem");
        const foreign = try serverContext(foreign_config);
        defer foreign.deinit();

        const anonymous = try clientContext(.{ .max_version = version });
        defer anonymous.deinit();
        const known = try clientContext(.{ .max_version = version, .certificate = files("client") });
        defer known.deinit();

        var link: Link = try .init(gpa, open, anonymous, "localhost", null);
        defer link.deinit();
        try converse(&link, .{});
        const empty_handed = link.client.session.takeResumption().?;
        defer empty_handed.deinit();
        var refused: Link = try .init(gpa, strict, anonymous, "localhost", empty_handed);
        defer refused.deinit();
        try refused.settle(.{});
        try testing.expect(!refused.server.session.isHandshakeDone());

        var verified: Link = try .init(gpa, strict, known, "localhost", null);
        defer verified.deinit();
        try converse(&verified, .{});
        const resumption = verified.client.session.takeResumption().?;
        defer resumption.deinit();
        var again: Link = try .init(gpa, strict, known, "localhost", resumption);
        defer again.deinit();
        try converse(&again, .{});
        try testing.expect(again.server.session.agreement().resumed);
        var peer = try again.server.session.peer(gpa);
        defer peer.deinit();
        try testing.expectEqualStrings("CN=Zo\\C3\\AB,O=Falcon\\, Inc.,C=DE", peer.subject.?);
        try testing.expectEqual(null, peer.verify_error);
        var elsewhere: Link = try .init(gpa, foreign, known, "localhost", resumption);
        defer elsewhere.deinit();
        try elsewhere.settle(.{});
        try testing.expect(!elsewhere.server.session.isHandshakeDone());
    }
}

test "a failed certificate stays known when its session is resumed" {
    for (versions) |version| {
        const server = try serverContext(.{
            .certificates = &.{files("server")},
            .ca_file = path("ca.pem"),
            .verify_client = .request,
        });
        defer server.deinit();
        const client = try clientContext(.{ .max_version = version, .certificate = files("stranger") });
        defer client.deinit();
        var link: Link = try .init(gpa, server, client, "localhost", null);
        defer link.deinit();
        try converse(&link, .{});
        const resumption = link.client.session.takeResumption().?;
        defer resumption.deinit();
        var again: Link = try .init(gpa, server, client, "localhost", resumption);
        defer again.deinit();
        try converse(&again, .{});
        try expectPeer(&again.server.session, "stranger", true);
    }
}

test "versions: the floor is kept, old clients are told why" {
    const server = try serverContext(.{ .certificates = &.{files("server")}, .min_version = .tls1_3 });
    defer server.deinit();
    const client = try clientContext(.{ .max_version = .tls1_2 });
    defer client.deinit();
    var link: Link = try .init(gpa, server, client, null, null);
    defer link.deinit();
    try link.settle(.{});
    try expectFailed(link.server.event, "unsupported protocol");
    try expectFailed(link.client.event, "alert protocol version");
}

test "reload: new sessions see the new certificate, old ones go on, a broken file changes nothing" {
    const server = try serverContext(.{ .certificates = &.{files("server")} });
    var server_gone = false;
    defer if (!server_gone) server.deinit();
    const client = try clientContext(.{});
    defer client.deinit();
    var old: Link = try .init(gpa, server, client, "localhost", null);
    defer old.deinit();
    // Begun, but in the middle of the handshake.
    var middle: Link = try .init(gpa, server, client, "localhost", null);
    defer middle.deinit();

    var diagnostic: tls.Diagnostic = .{};
    const broken: tls.ServerConfig = .{ .certificates = &.{
        files("cn"), .{ .cert_file = path("cut.pem"), .key_file = path("cn.key") },
    } };
    try testing.expectError(error.InvalidFile, server.reload(broken, &diagnostic));
    try testing.expect(std.mem.indexOf(u8, diagnostic.text(), "cut.pem") != null);
    var unchanged: Link = try .init(gpa, server, client, "localhost", null);
    defer unchanged.deinit();
    try converse(&unchanged, .{});
    try testing.expectEqualStrings(
        try readFile("server.pem"),
        unchanged.server.session.agreement().server_certificate_pem.?,
    );

    try server.reload(.{ .certificates = &.{files("cn")} }, &diagnostic);
    var new: Link = try .init(gpa, server, client, "localhost", null);
    defer new.deinit();
    server.deinit();
    server_gone = true;
    try converse(&new, .{});
    try testing.expectEqualStrings(
        try readFile("cn.pem"),
        new.server.session.agreement().server_certificate_pem.?,
    );
    for ([_]*Link{ &old, &middle }) |link| {
        try converse(link, .{});
        try testing.expectEqualStrings(
            try readFile("server.pem"),
            link.server.session.agreement().server_certificate_pem.?,
        );
    }
}

test "sessions begin on several threads while the context is reloaded" {
    // The last user of an old generation frees it, on any thread; `testing.allocator` is not for
    // sharing between them.
    const shared = std.heap.smp_allocator;
    var diagnostic: tls.Diagnostic = .{};
    const server = try tls.Context.init(shared, .{ .certificates = &.{files("server")} }, &diagnostic);
    defer server.deinit();
    const client = try tls.Context.initClient(shared, .{}, &diagnostic);
    defer client.deinit();
    const Worker = struct {
        fn run(
            server_context: *tls.Context,
            client_context: *tls.Context,
            failed: *std.atomic.Value(bool),
        ) void {
            for (0..100) |_| {
                var link = Link.init(
                    std.heap.smp_allocator,
                    server_context,
                    client_context,
                    "localhost",
                    null,
                ) catch
                    return failed.store(true, .monotonic);
                defer link.deinit();
                link.settle(.{}) catch return failed.store(true, .monotonic);
                if (!link.server.session.isHandshakeDone()) failed.store(true, .monotonic);
            }
        }
    };
    var failed: std.atomic.Value(bool) = .init(false);
    var threads: [3]std.Thread = undefined;
    for (&threads) |*thread| thread.* = try std.Thread.spawn(.{}, Worker.run, .{ server, client, &failed });
    for (0..50) |_| try server.reload(.{ .certificates = &.{files("cn")} }, &diagnostic);
    for (threads) |thread| thread.join();
    try testing.expect(!failed.load(.monotonic));
}

test "problems with a certificate's dates are told by its number" {
    var diagnostic: tls.Diagnostic = .{};
    const context: *tls.Context = try .init(gpa, .{ .certificates = &.{files("server")} }, &diagnostic);
    defer context.deinit();
    try testing.expectEqual(true, context.concern(0, 1_700_000_000, &diagnostic));
    try testing.expect(std.mem.find(u8, diagnostic.text(), "server.pem is not valid before 20") != null);
    try testing.expectEqual(true, context.concern(0, 10_000_000_000, &diagnostic));
    try testing.expect(std.mem.find(u8, diagnostic.text(), "server.pem has expired on ") != null);
    try testing.expectEqual(null, context.concern(1, 1_700_000_000, &diagnostic));
}

test "a configuration that cannot work is refused with the file or value in words" {
    const good = files("server");
    const Case = struct { tls.ServerConfig, tls.ContextError, []const []const u8 };
    const cases = [_]Case{
        .{ .{ .certificates = &.{} }, error.InvalidValue, &.{"needs a certificate"} },
        .{
            one("absent.pem", "server.key", null),
            error.InvalidFile,
            &.{ "SSL certificate file not found: ", "absent.pem" },
        },
        .{
            one("server.pem", "absent.key", null),
            error.InvalidFile,
            &.{ "SSL key file not found: ", "absent.key" },
        },
        .{
            one("server.pem/x", "server.key", null),
            error.InvalidFile,
            &.{ "SSL certificate file not readable: ", "not a directory" },
        },
        .{
            one("text.pem", "server.key", null),
            error.InvalidFile,
            &.{ "holds no PEM certificate", "text.pem" },
        },
        .{
            one("server.key", "server.key", null),
            error.InvalidFile,
            &.{ "holds no PEM certificate", "server.key" },
        },
        .{
            one("cut.pem", "server.key", null),
            error.InvalidFile,
            &.{ "damaged", "cut.pem", "bad end line" },
        },
        .{ one("rubbish.pem", "server.key", null), error.InvalidFile, &.{ "damaged", "rubbish.pem" } },
        .{
            one("server.pem", "text.pem", null),
            error.InvalidFile,
            &.{ "holds no PEM private key", "text.pem" },
        },
        .{
            one("server.pem", "cn.key", null),
            error.KeyMismatch,
            &.{ "does not match", "cn.key", "server.pem", "key values mismatch" },
        },
        .{
            one("server.pem", "rsa.key", null),
            error.KeyMismatch,
            &.{ "does not match", "rsa.key", "key type mismatch" },
        },
        .{
            one("server.pem", "encrypted.key", null),
            error.InvalidPassword,
            &.{ "no key_password is given", "encrypted.key" },
        },
        .{
            one("server.pem", "encrypted-old.key", null),
            error.InvalidPassword,
            &.{ "no key_password is given", "encrypted-old.key" },
        },
        .{
            one("server.pem", "encrypted.key", "wrong"),
            error.InvalidPassword,
            &.{ "does not open", "encrypted.key" },
        },
        .{
            one("server.pem", "encrypted-old.key", "wrong"),
            error.InvalidPassword,
            &.{ "does not open", "encrypted-old.key" },
        },
        .{
            one("weak.pem", "weak.key", null),
            error.InvalidFile,
            &.{ "cannot be used", "weak.pem", "key too small" },
        },
        .{
            .{ .certificates = &.{good}, .verify_client = .require },
            error.InvalidValue,
            &.{ "verify_client", "ca_file" },
        },
        .{
            .{ .certificates = &.{good}, .ca_file = "absent-ca.pem" },
            error.InvalidFile,
            &.{ "SSL CA file not found: ", "absent-ca.pem" },
        },
        .{
            .{ .certificates = &.{good}, .cipher_list = "AES1" },
            error.InvalidValue,
            &.{ "cipher_list", "unknown cipher AES1" },
        },
        .{
            .{ .certificates = &.{good}, .cipher_suites = "TLS_X" },
            error.InvalidValue,
            &.{ "cipher_suites", "unknown cipher TLS_X" },
        },
    };
    for (cases) |case| {
        var diagnostic: tls.Diagnostic = .{};
        try testing.expectError(case[1], tls.Context.init(gpa, case[0], &diagnostic));
        errdefer std.debug.print("diagnostic: {s}\n", .{diagnostic.text()});
        for (case[2]) |part| try testing.expect(std.mem.indexOf(u8, diagnostic.text(), part) != null);
        try testing.expect(std.mem.indexOf(u8, diagnostic.text(), "wrong") == null);
    }
}

/// A configuration with one certificate.
fn one(cert: []const u8, key: []const u8, password: ?[]const u8) tls.ServerConfig {
    const pair: tls.CertificateFiles = .{
        .cert_file = path(cert),
        .key_file = path(key),
        .key_password = password,
    };
    return .{ .certificates = certificates.list(&.{pair}) };
}

test "encrypted keys open with their password, and a file may hold certificate and key" {
    const client = try clientContext(.{ .authorities = trusted() });
    defer client.deinit();
    for ([_]tls.ServerConfig{
        one("server.pem", "encrypted.key", "secret"),
        one("server.pem", "encrypted-old.key", "secret"),
        one("both.pem", "both.pem", null),
    }) |config| {
        const server = try serverContext(config);
        defer server.deinit();
        var link: Link = try .init(gpa, server, client, "localhost", null);
        defer link.deinit();
        try converse(&link, .{});
    }
}

test "plain HTTP is recognised by its first byte and touches nothing" {
    const simple: Simple = try .init(.tls1_3);
    defer simple.deinit();
    var window: [64]u8 = undefined;
    for ([_][]const u8{
        "G", "GET / HTTP/1.1\r\n\r\n", "OPTIONS * HTTP/1.1\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    }) |greeting| {
        var link = try simple.link();
        defer link.deinit();
        for (0..2) |_| {
            const received = link.server.session.receive(greeting, &window, link.server.sink());
            try testing.expectEqual(tls.Event.plain_http, received.event);
            try testing.expectEqual(0, received.consumed);
        }
        try testing.expectEqual(0, link.server.outbox.items.len);
        try testing.expectEqual(tls.Ending.handshake, link.server.session.ending());
        try link.server.session.shutdown(link.server.sink());
        try testing.expectEqual(0, link.server.outbox.items.len);
    }
}

test "garbage ends the session with a reason, and it stays ended" {
    const simple: Simple = try .init(.tls1_3);
    defer simple.deinit();
    var random: std.Random.DefaultPrng = .init(0x5eed);
    var window: [64]u8 = undefined;
    for (0..200) |round| {
        var link = try simple.link();
        defer link.deinit();
        var bytes: [600]u8 = undefined;
        random.random().bytes(&bytes);
        // Half of them look like a handshake at first.
        if (round % 2 == 0) bytes[0..5].* = .{ 22, 3, 1, 0, 200 };
        if (std.ascii.isUpper(bytes[0])) bytes[0] = 0;
        try link.server.receive(&bytes, &window);
        try testing.expect(link.server.event == .failed);
        try testing.expect(link.server.event.failed.len > 0);
        try testing.expectError(error.TlsFailed, link.server.session.write("x", link.server.sink()));
        const sent = link.server.outbox.items.len;
        const again = link.server.session.receive("more", &window, link.server.sink());
        try testing.expectEqual(4, again.consumed);
        try testing.expectEqualStrings(link.server.event.failed, again.event.failed);
        try link.server.session.shutdown(link.server.sink());
        try testing.expectEqual(sent, link.server.outbox.items.len);
    }
}

test "a flipped bit anywhere in the handshake never ends in an open session on both sides" {
    const simple: Simple = try .init(.tls1_3);
    defer simple.deinit();
    var window: [tls.record_plaintext_bytes_max]u8 = undefined;
    var position: usize = 0;
    var flipped = true;
    while (flipped) : (position += 7) {
        var link = try simple.link();
        defer link.deinit();
        try link.client.receive("", &window);
        var hello = link.client.outbox.items;
        flipped = position < hello.len;
        if (flipped) hello[position] ^= 1;
        try link.server.receive(hello, &window);
        link.client.outbox.clearRetainingCapacity();
        link.to_server = 1;
        if (link.server.event == .plain_http) continue;
        try link.settle(.{});
        const both = link.client.session.isHandshakeDone() and link.server.session.isHandshakeDone();
        try testing.expectEqual(!flipped, both);
    }
}

test "a changed record after the handshake fails the reader, and what came before it counts" {
    for (versions) |version| {
        const simple: Simple = try .init(version);
        defer simple.deinit();
        var link = try simple.link();
        defer link.deinit();
        try link.settle(.{});
        try link.client.write("first");
        try link.client.write("second");
        const items = link.client.outbox.items;
        items[items.len - 1] ^= 1;
        try link.settle(.{});
        try testing.expectEqualStrings("first", link.server.inbox.items);
        try expectFailed(link.server.event, "bad record mac");
        try testing.expectEqual(tls.Ending.truncated, link.server.session.ending());
    }
}

test "an end without close_notify is told from a clean one, at every stage" {
    const simple: Simple = try .init(.tls1_3);
    defer simple.deinit();
    var link = try simple.link();
    defer link.deinit();
    try testing.expectEqual(tls.Ending.handshake, link.server.session.ending());
    var window: [tls.record_plaintext_bytes_max]u8 = undefined;
    try link.client.receive("", &window);
    try link.server.receive(link.client.outbox.items[0..10], &window);
    try testing.expectEqual(tls.Ending.handshake, link.server.session.ending());
    try link.server.receive(link.client.outbox.items[10..], &window);
    link.client.outbox.clearRetainingCapacity();
    link.to_server = 1;
    try link.settle(.{});
    try testing.expectEqual(tls.Ending.truncated, link.server.session.ending());
    // Bytes behind close_notify in the same piece do not count.
    try link.client.session.shutdown(link.client.sink());
    try link.client.outbox.appendSlice(gpa, "trailing bytes");
    try link.settle(.{});
    try testing.expectEqual(.closed, link.server.event);
    try testing.expectEqual(tls.Ending.clean, link.server.session.ending());
}

test "a megabyte each way arrives as it was, through pieces and windows of awkward sizes" {
    const body = try gpa.alloc(u8, 1024 * 1024 + 13);
    defer gpa.free(body);
    var random: std.Random.DefaultPrng = .init(1);
    random.random().bytes(body);
    for (versions) |version| {
        const simple: Simple = try .init(version);
        defer simple.deinit();
        var link = try simple.link();
        defer link.deinit();
        try link.settle(.{});
        try link.client.write(body);
        try link.server.write(body);
        try link.server.write("");
        try link.settle(.{ .step = 1449, .window = 5000 });
        try testing.expect(std.mem.eql(u8, body, link.server.inbox.items));
        try testing.expect(std.mem.eql(u8, body, link.client.inbox.items));
    }
}

/// A sink that has room for this many bytes and no more.
const Narrow = struct {
    room: usize,

    fn sink(narrow: *Narrow) tls.Sink {
        return .{ .context = narrow, .appendFn = append };
    }

    fn append(context: *anyopaque, bytes: []const u8) tls.Sink.Error!void {
        const narrow: *Narrow = @ptrCast(@alignCast(context));
        if (bytes.len > narrow.room) return error.OutOfMemory;
        narrow.room -= bytes.len;
    }
};

test "a sink without room fails the session, in the handshake and while writing" {
    const simple: Simple = try .init(.tls1_3);
    defer simple.deinit();
    var window: [tls.record_plaintext_bytes_max]u8 = undefined;
    var narrow: Narrow = .{ .room = 50 };
    {
        var link = try simple.link();
        defer link.deinit();
        try link.client.receive("", &window);
        const received = link.server.session.receive(link.client.outbox.items, &window, narrow.sink());
        try expectFailed(received.event, "no memory");
    }
    var link = try simple.link();
    defer link.deinit();
    try link.settle(.{});
    narrow.room = 20_000;
    try testing.expectError(
        error.OutOfMemory,
        link.server.session.write(&@as([40_000]u8, @splat('x')), narrow.sink()),
    );
    try testing.expectError(error.TlsFailed, link.server.session.write("x", narrow.sink()));
    try testing.expect(!link.server.session.isHandshakeDone());
}

test "running out of memory while a configuration loads leaks nothing" {
    const config: tls.ServerConfig = .{
        .certificates = &.{ files("server"), files("wild") },
        .ca_file = path("ca.pem"),
        .verify_client = .require,
    };
    try testing.checkAllAllocationFailures(gpa, loadOnce, .{config});
}

fn loadOnce(allocator: std.mem.Allocator, config: tls.ServerConfig) !void {
    var diagnostic: tls.Diagnostic = .{};
    const context = try tls.Context.init(allocator, config, &diagnostic);
    context.deinit();
}

test "the certificates are removed (keep this test last)" {
    certificates.remove();
}

test {
    _ = @import("kernel_test.zig");
}
