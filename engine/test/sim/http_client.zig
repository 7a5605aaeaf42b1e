//! A client that sends a number of requests without waiting, and knows each byte that it must get for them.
const std = @import("std");
const host = @import("host.zig");
const Client = @import("client.zig").Client;
const testing = std.testing;

pub const HttpClient = struct {
    client: Client,
    expected: std.ArrayList(u8) = .empty,
    /// The start of each answer in `expected`.
    answers: std.ArrayList(usize) = .empty,

    pub const requests_max = 6;
    const body_bytes_max = 100_000;

    pub fn deinit(self: *HttpClient) void {
        self.expected.deinit(self.client.gpa);
        self.answers.deinit(self.client.gpa);
        self.client.deinit();
    }

    /// Makes up `count` requests, the last of which closes the connection.
    pub fn plan(self: *HttpClient, random: std.Random, first_id: usize, count: usize) !void {
        for (first_id..first_id + count) |id| {
            const modes = [_]host.Mode{ .whole, .chunked, .file, .echo };
            const mode = modes[random.uintLessThan(usize, modes.len)];
            // Few large bodies are enough.
            const size_max: usize = if (host.pieceSize(id) < 100)
                30
            else if (random.uintLessThan(u8, 10) == 0)
                body_bytes_max
            else
                3_000;
            const size = random.uintAtMost(usize, size_max);
            const last = id + 1 == first_id + count;
            try self.planRequest(random, mode, id, size, last);
            try self.planAnswer(mode, id, size, last);
        }
    }

    fn planRequest(
        self: *HttpClient,
        random: std.Random,
        mode: host.Mode,
        id: usize,
        size: usize,
        last: bool,
    ) !void {
        const gpa = self.client.gpa;
        const script = &self.client.script;
        const method = if (mode == .echo) "POST" else "GET";
        try script.print(gpa, "{s} /{t}/{d}/{d} HTTP/1.1\r\nHost: sim\r\n", .{ method, mode, id, size });
        if (last) try script.appendSlice(gpa, "Connection: close\r\n");
        if (mode != .echo) return script.appendSlice(gpa, "\r\n");
        var buffer: [body_bytes_max]u8 = undefined;
        const body = host.pattern(&buffer, id, 0, size);
        if (random.boolean()) {
            try script.print(gpa, "Content-Length: {d}\r\n\r\n", .{size});
            return script.appendSlice(gpa, body);
        }
        try script.appendSlice(gpa, "Transfer-Encoding: chunked\r\n\r\n");
        var at: usize = 0;
        while (at < size) {
            const len = @min(size - at, random.intRangeAtMost(usize, 1, 9_000));
            try script.print(gpa, "{x}\r\n{s}\r\n", .{ len, body[at..][0..len] });
            at += len;
        }
        try script.appendSlice(gpa, "0\r\n\r\n");
    }

    fn planAnswer(self: *HttpClient, mode: host.Mode, id: usize, size: usize, last: bool) !void {
        const gpa = self.client.gpa;
        const expected = &self.expected;
        try self.answers.append(gpa, expected.items.len);
        try expected.appendSlice(gpa, "HTTP/1.1 200 OK\r\nDate: now\r\n");
        if (mode == .chunked) {
            try expected.appendSlice(gpa, "Transfer-Encoding: chunked\r\n");
        } else try expected.print(gpa, "Content-Length: {d}\r\n", .{size});
        if (last) try expected.appendSlice(gpa, "Connection: close\r\n");
        try expected.appendSlice(gpa, "\r\n");
        var buffer: [body_bytes_max]u8 = undefined;
        const body = host.pattern(&buffer, id, 0, size);
        if (mode != .chunked) return expected.appendSlice(gpa, body);
        var at: usize = 0;
        while (at < size) {
            const len = @min(size - at, host.pieceSize(id));
            try expected.print(gpa, "{x}\r\n{s}\r\n", .{ len, body[at..][0..len] });
            at += len;
        }
        try expected.appendSlice(gpa, "0\r\n\r\n");
    }

    pub fn step(self: *HttpClient, random: std.Random) !void {
        return self.client.step(random);
    }

    /// `broken`: the connection may have ended at any time. Otherwise every byte must have come.
    pub fn check(self: *const HttpClient, broken: bool) !void {
        const got = self.client.got.items;
        const expected = self.expected.items;
        if (!broken) return testing.expectEqualStrings(expected, got);
        if (got.len <= expected.len and std.mem.eql(u8, got, expected[0..got.len])) return;
        // A client that was too slow for a deadline, or for which there is no memory, is told so instead of
        // an answer; as far as it listens.
        for ([_][]const u8{
            "HTTP/1.1 408 Request Timeout\r\n", "HTTP/1.1 503 Service Unavailable\r\n",
        }) |told| {
            if (self.wasTold(told)) return;
        }
        return testing.expectEqualStrings(expected, got);
    }

    /// A worker has retired at some time: each answer that came is whole, and the last one says that the
    /// connection closes, so that its client knows which requests nobody has seen.
    pub fn checkRetired(self: *const HttpClient, broken: bool) !void {
        const gpa = self.client.gpa;
        const got = self.client.got.items;
        for (0..self.answers.items.len) |n| {
            const begin = self.answers.items[n];
            const last = n + 1 == self.answers.items.len;
            const end = if (last) self.expected.items.len else self.answers.items[n + 1];
            // All answers but the last one are what they would be anyway.
            const so_far = self.expected.items[0..end];
            if (!last and end < got.len and std.mem.startsWith(u8, got, so_far)) continue;
            if (last or broken and isPrefix(got, self.expected.items)) return self.check(broken);
            var closing: std.ArrayList(u8) = .empty;
            defer closing.deinit(gpa);
            const head_end = std.mem.indexOfPos(u8, self.expected.items, begin, "\r\n\r\n").? + "\r\n".len;
            try closing.appendSlice(gpa, self.expected.items[0..head_end]);
            try closing.appendSlice(gpa, "Connection: close\r\n");
            try closing.appendSlice(gpa, self.expected.items[head_end..end]);
            if (broken and isPrefix(got, closing.items)) return;
            if (!broken) return testing.expectEqualStrings(closing.items, got);
            return self.check(true);
        }
    }

    fn isPrefix(text: []const u8, whole: []const u8) bool {
        return text.len <= whole.len and std.mem.eql(u8, text, whole[0..text.len]);
    }

    fn wasTold(self: *const HttpClient, told: []const u8) bool {
        const got = self.client.got.items;
        const expected = self.expected.items;
        for (self.answers.items) |at| {
            if (at > got.len or !std.mem.eql(u8, expected[0..at], got[0..at])) break;
            const rest = got[at..];
            if (std.mem.startsWith(u8, rest, told) or std.mem.startsWith(u8, told, rest)) return true;
        }
        return false;
    }
};
