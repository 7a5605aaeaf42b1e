//! Responses as the client of a test sees them: parsed, the body decoded. The parser takes what this server
//! writes, and calls everything else malformed.
//! Does not know: the network, and the request.
const std = @import("std");
const Header = @import("response.zig").Header;
const testing = std.testing;

/// A request of a test, for `Simulation.request`.
pub const Question = struct {
    method: []const u8 = "GET",
    /// Path and query, percent-encoded.
    target: []const u8 = "/",
    /// Headers besides Host and, with a body, Content-Length.
    headers: []const Header = &.{},
    body: []const u8 = "",

    /// Writes the request as bytes on the wire.
    pub fn write(question: *const Question, writer: *std.Io.Writer) std.Io.Writer.Error!void {
        try writer.print("{s} {s} HTTP/1.1\r\nHost: test\r\n", .{ question.method, question.target });
        for (question.headers) |header| try writer.print("{s}: {s}\r\n", .{ header.name, header.text });
        if (question.body.len > 0) try writer.print("Content-Length: {d}\r\n", .{question.body.len});
        try writer.print("\r\n{s}", .{question.body});
    }
};

/// A whole response.
pub const Answer = struct {
    status: u16,
    /// The headers, in the order of the response.
    headers: []const Header,
    /// The content, without its framing.
    body: []const u8,
    /// Memory that lives as long as the answer.
    arena: std.mem.Allocator,

    /// A response at the beginning of some bytes.
    pub const Read = struct {
        answer: Answer,
        /// The bytes of the answer on the wire.
        len: usize,
    };

    pub const Error = error{ OutOfMemory, MalformedResponse };

    /// The first response in `bytes`, interim ones passed over; null if its end has not come. `has_body`:
    /// the request's method was not HEAD. `is_all`: nothing follows, which ends a body without a length.
    pub fn read(arena: std.mem.Allocator, bytes: []const u8, has_body: bool, is_all: bool) Error!?Read {
        var at: usize = 0;
        while (true) {
            const end = std.mem.findPos(u8, bytes, at, "\r\n\r\n") orelse return null;
            var answer = try readHead(arena, bytes[at..end]);
            at = end + "\r\n\r\n".len;
            if (answer.status < 200 and answer.status != 101) continue;
            const rest = bytes[at..];
            const len = try answer.readBody(rest, has_body, is_all) orelse return null;
            return .{ .answer = answer, .len = at + len };
        }
    }

    fn readHead(arena: std.mem.Allocator, text: []const u8) Error!Answer {
        var lines = std.mem.splitSequence(u8, text, "\r\n");
        const first = lines.first();
        const prefix = "HTTP/1.1 ";
        if (!std.mem.startsWith(u8, first, prefix) or first.len < prefix.len + 3) {
            return error.MalformedResponse;
        }
        const status = std.fmt.parseInt(u16, first[prefix.len..][0..3], 10) catch
            return error.MalformedResponse;
        var headers: std.ArrayList(Header) = .empty;
        while (lines.next()) |line| {
            const colon = std.mem.find(u8, line, ": ") orelse return error.MalformedResponse;
            const field = Header.init(line[0..colon], line[colon + 2 ..]) catch
                return error.MalformedResponse;
            try headers.append(arena, field);
        }
        return .{ .status = status, .headers = headers.items, .body = "", .arena = arena };
    }

    /// The bytes that the body takes on the wire; null if more has to come.
    fn readBody(answer: *Answer, rest: []const u8, has_body: bool, is_all: bool) Error!?usize {
        switch (answer.status) {
            101, 204, 304 => return 0,
            else => if (!has_body) return 0,
        }
        if (answer.header("transfer-encoding") != null) return answer.readChunks(rest);
        if (answer.header("content-length")) |text| {
            const len = std.fmt.parseInt(usize, text, 10) catch return error.MalformedResponse;
            if (rest.len < len) return null;
            answer.body = rest[0..len];
            return len;
        }
        if (!is_all) return null;
        answer.body = rest;
        return rest.len;
    }

    fn readChunks(answer: *Answer, rest: []const u8) Error!?usize {
        var body: std.ArrayList(u8) = .empty;
        var at: usize = 0;
        while (true) {
            const end = std.mem.findPos(u8, rest, at, "\r\n") orelse return null;
            const len = std.fmt.parseInt(usize, rest[at..end], 16) catch return error.MalformedResponse;
            at = end + 2;
            if (len == 0) break;
            if (rest.len < at + len + 2) return null;
            try body.appendSlice(answer.arena, rest[at..][0..len]);
            at += len;
            if (!std.mem.startsWith(u8, rest[at..], "\r\n")) return error.MalformedResponse;
            at += 2;
        }
        answer.body = body.items;
        // The trailer section ends with an empty line.
        if (std.mem.startsWith(u8, rest[at..], "\r\n")) return at + 2;
        const end = std.mem.findPos(u8, rest, at, "\r\n\r\n") orelse return null;
        return end + 4;
    }

    /// The value of the first header of that name, compared without case.
    pub fn header(answer: *const Answer, name: []const u8) ?[]const u8 {
        for (answer.headers) |one| if (std.ascii.eqlIgnoreCase(one.name, name)) return one.text;
        return null;
    }

    /// The body as a value of type `T`, read as JSON. Lives as long as the answer.
    pub fn json(answer: *const Answer, comptime T: type) !T {
        return std.json.parseFromSliceLeaky(T, answer.arena, answer.body, .{});
    }
};

fn expectRead(bytes: []const u8, has_body: bool, status: u16, body: []const u8) !void {
    var arena: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena.deinit();
    for (0..bytes.len) |len| {
        try testing.expectEqual(null, try Answer.read(arena.allocator(), bytes[0..len], has_body, false));
    }
    const found = (try Answer.read(arena.allocator(), bytes, has_body, true)).?;
    try testing.expectEqual(bytes.len, found.len);
    try testing.expectEqual(status, found.answer.status);
    try testing.expectEqualStrings(body, found.answer.body);
}

test "bodies by length, in chunks, to the end, and none; interim responses are passed over" {
    const ok = "HTTP/1.1 200 OK\r\n";
    try expectRead(ok ++ "content-length: 5\r\n\r\nhello", true, 200, "hello");
    const chunked = ok ++ "Transfer-Encoding: chunked\r\n\r\n";
    try expectRead(chunked ++ "2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", true, 200, "hello");
    try expectRead(chunked ++ "0\r\nX-Sum: 1\r\n\r\n", true, 200, "");
    const hints = "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n";
    try expectRead(hints ++ "HTTP/1.1 204 No Content\r\n\r\n", true, 204, "");
    try expectRead(ok ++ "Content-Length: 5\r\n\r\n", false, 200, "");
    var arena: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena.deinit();
    const gpa = arena.allocator();
    const open = ok ++ "\r\nall";
    try testing.expectEqual(null, try Answer.read(gpa, open, true, false));
    try testing.expectEqualStrings("all", (try Answer.read(gpa, open, true, true)).?.answer.body);
    for ([_][]const u8{ "HTTP/2 200\r\n\r\n", "HTTP/1.1 2x0 OK\r\n\r\n", ok ++ "X\r\n\r\n" }) |wrong| {
        try testing.expectError(error.MalformedResponse, Answer.read(gpa, wrong, true, true));
    }
}

test "headers and JSON" {
    var arena: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena.deinit();
    const bytes = "HTTP/1.1 201 Created\r\nContent-Length: 8\r\nX-A: b\r\n\r\n{\"n\": 7}";
    const answer = (try Answer.read(arena.allocator(), bytes, true, false)).?.answer;
    try testing.expectEqualStrings("b", answer.header("x-a").?);
    try testing.expectEqual(null, answer.header("x-b"));
    try testing.expectEqual(7, (try answer.json(struct { n: u32 })).n);
}
