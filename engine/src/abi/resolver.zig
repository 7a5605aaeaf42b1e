//! The addresses of a name, found by a thread: the C library asks files and servers, and may take half a
//! minute. Does not know: who asks.
const std = @import("std");
const assert = std.debug.assert;
const peregrine = @import("peregrine");
const platform = @import("platform");
const io = peregrine.io;
const gpa = platform.gpa;

pub const addresses_max = peregrine.api_limits.addresses_max;

/// A question under way. The asker and the thread have a reference each: neither waits for the other.
pub const Question = struct {
    references: std.atomic.Value(u8) = .init(2),
    is_answered: std.atomic.Value(bool) = .init(false),
    host: [:0]u8,
    port: u16,
    found: [addresses_max]io.Address = undefined,
    count: usize = 0,

    pub fn ask(host: []const u8, port: u16) error{ OutOfMemory, CannotStartThread }!*Question {
        const question = try gpa.create(Question);
        errdefer gpa.destroy(question);
        const own = try gpa.dupeSentinel(u8, host, 0);
        errdefer gpa.free(own);
        question.* = .{ .host = own, .port = port };
        const thread = try io.thread.spawn(run, .{question});
        thread.detach();
        return question;
    }

    /// Null: there is no answer yet. Valid until `release`; empty: the name has no address.
    pub fn answer(question: *const Question) ?[]const io.Address {
        assert(question.references.load(.monotonic) >= 1);
        return if (question.is_answered.load(.acquire)) question.found[0..question.count] else null;
    }

    pub fn release(question: *Question) void {
        const before = question.references.fetchSub(1, .acq_rel);
        assert(before >= 1);
        if (before > 1) return;
        gpa.free(question.host);
        gpa.destroy(question);
    }

    fn run(question: *Question) void {
        assert(!question.is_answered.load(.monotonic) and question.count == 0);
        question.find();
        question.is_answered.store(true, .release);
        question.release();
    }

    fn find(question: *Question) void {
        var hints: std.c.addrinfo = std.mem.zeroes(std.c.addrinfo);
        hints.socktype = std.c.SOCK.STREAM;
        var list: ?*std.c.addrinfo = null;
        const result = std.c.getaddrinfo(question.host, null, &hints, &list);
        if (@backingInt(result) != 0) return;
        defer if (list) |first| std.c.freeaddrinfo(first);
        var at = list;
        while (at) |entry| : (at = entry.next) {
            if (question.count == addresses_max) return;
            const found = entry.addr orelse continue;
            var address = io.Address.fromSystem(@ptrCast(@alignCast(found)), entry.addrlen) orelse continue;
            switch (address) {
                .v4 => |*v4| v4.port = question.port,
                .v6 => |*v6| v6.port = question.port,
                .unix => continue,
            }
            question.found[question.count] = address;
            question.count += 1;
        }
    }
};

const testing = std.testing;

test "a name that every machine has, a literal, and a name that none has" {
    for ([_]struct { []const u8, usize }{ .{ "localhost", 1 }, .{ "127.0.0.1", 1 }, .{ "x..y", 0 } }) |case| {
        const question: *Question = try .ask(case[0], 6379);
        defer question.release();
        while (question.answer() == null) io.sleep(5);
        const found = question.answer().?;
        try testing.expect(found.len >= case[1]);
        if (case[1] == 0) try testing.expectEqual(0, found.len);
        for (found) |*address| try testing.expectEqual(6379, address.port().?);
    }
}
