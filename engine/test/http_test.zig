//! Rules of RFC 9110 and RFC 9112 that concern more than a single message, through the whole engine over the
//! simulated network. Rules about a single head or body are in the wire fixtures.
const std = @import("std");
const per = @import("peregrine");
const alike = @import("alike.zig");
const testing = std.testing;
const gpa = testing.allocator;

/// A host that answers with what it saw of the request.
const Echo = struct {
    allocator: std.mem.Allocator,

    pub fn init(allocator: std.mem.Allocator) !*Echo {
        const self = try allocator.create(Echo);
        self.* = .{ .allocator = allocator };
        return self;
    }

    pub fn deinit(self: *Echo) void {
        self.allocator.destroy(self);
    }

    pub fn handleRequest(_: *Echo, request: *per.Request, response: *per.Response) void {
        _ = response.setBody(request.getHost()) catch unreachable;
    }
};

const Bench = alike.Simulation(Echo);

fn expectStatus(status: []const u8, answer: []const u8) !void {
    const start = "HTTP/1.1 ";
    try testing.expect(std.mem.startsWith(u8, answer, start));
    try testing.expectEqualStrings(status, answer[start.len..][0..3]);
}

/// An answer to HEAD: one head, which tells of content, and nothing behind it.
fn expectHeadOnly(status: []const u8, answer: []const u8) !void {
    try expectStatus(status, answer);
    try testing.expect(std.mem.find(u8, answer, "\r\nContent-Length: 0\r\n") == null);
    try testing.expect(std.mem.find(u8, answer, "\r\nContent-Length: ") != null);
    try testing.expectEqual(answer.len, std.mem.find(u8, answer, "\r\n\r\n").? + 4);
}

test "an https target needs TLS, or a gateway that is trusted (RFC 9110 7.4)" {
    const request = "GET https://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n";
    {
        var bench: Bench = try .init(gpa, .{}, .{ .seed = 2 });
        defer bench.deinit();
        try expectStatus("421", try bench.exchange(request));
        try testing.expect(std.mem.endsWith(
            u8,
            try bench.exchange("GET http" ++ request["GET https".len..]),
            "\r\n\r\na.example",
        ));
    }
    var bench: Bench = try .init(gpa, .{ .trusted_proxies = "10.0.0.0/8" }, .{ .seed = 2 });
    defer bench.deinit();
    try testing.expect(std.mem.endsWith(u8, try bench.exchange(request), "\r\n\r\na.example"));
}

test "HEAD gets no content, whoever refuses it and when (RFC 9110 9.3.2)" {
    var bench: Bench = try .init(gpa, .{ .limits = .{ .body_bytes_max = 10 } }, .{ .seed = 1 });
    defer bench.deinit();
    try expectHeadOnly("400", try bench.exchange("HEAD / HTTP/1.1\r\n\r\n"));
    try expectHeadOnly("400", try bench.exchange("\r\nHEAD /#fragment HTTP/1.1\r\n"));
    try expectHeadOnly("413", try bench.exchange("HEAD / HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\n\r\n"));
    try expectHeadOnly(
        "400",
        try bench.exchange("HEAD / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nno size\r\n"),
    );
    const slow_head = try bench.connect();
    try slow_head.send("HEAD / HTTP/1.1\r\nHost:");
    const slow_body = try bench.connect();
    try slow_body.send("HEAD / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n12345");
    try bench.settle();
    try bench.advance(120_000);
    try expectHeadOnly("408", slow_head.text());
    try expectHeadOnly("408", slow_body.text());
    // A method with content in its answers gets the reason.
    try testing.expect(std.mem.endsWith(
        u8,
        try bench.exchange("GET / HTTP/1.1\r\n\r\n"),
        "\r\n\r\nmissing Host field\n",
    ));
    const second = try bench.connect();
    try second.send("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n");
    try bench.settle();
    try second.send("GET / HTTP/1.1\r\n\r\n");
    try bench.settle();
    try testing.expect(std.mem.endsWith(u8, second.text(), "\r\n\r\nmissing Host field\n"));
}
