//! A node's counts of messages and entries that connections got, which it reports to its hub once a second.
//! Does not know: frames, and readers of the sums.
const std = @import("std");

/// Events since the last report.
pub const Events = struct {
    /// Messages that came to mailboxes, and the sum of their bytes.
    mailed: u64 = 0,
    mailed_bytes: u64 = 0,
    /// Messages that were dropped because their mailbox was full, or because they had expired.
    dropped_full: u64 = 0,
    dropped_expired: u64 = 0,
    /// Entries that readers of topics with history were sent, and their bytes with framing.
    delivered: u64 = 0,
    delivered_bytes: u64 = 0,
    /// Readers that got a reset, and readers that were cut.
    resets: u64 = 0,
    readers_cut: u64 = 0,

    pub fn add(events: *Events, more: *const Events) void {
        inline for (@typeInfo(Events).@"struct".field_names) |name| {
            @field(events, name) +|= @field(more, name);
        }
    }
};

/// Numbers of a node at present.
pub const Now = struct {
    /// Readers of topics with history.
    readers: u64 = 0,
    /// Connections that read topics and have no interpreter any more.
    orphans: u64 = 0,
    /// The number of entries by which the slowest reader is behind.
    lag: u64 = 0,

    pub fn add(now: *Now, more: *const Now) void {
        now.readers +|= more.readers;
        now.orphans +|= more.orphans;
        now.lag = @max(now.lag, more.lag);
    }
};

pub const Tally = struct {
    events: Events = .{},
    now: Now = .{},

    pub const bytes = 8 * (@typeInfo(Events).@"struct".field_names.len +
        @typeInfo(Now).@"struct".field_names.len);

    pub fn write(tally: *const Tally, out: *[bytes]u8) void {
        var at: usize = 0;
        inline for (.{ tally.events, tally.now }) |part| {
            inline for (@typeInfo(@TypeOf(part)).@"struct".field_names) |name| {
                std.mem.writeInt(u64, out[at..][0..8], @field(part, name), .little);
                at += 8;
            }
        }
    }

    pub fn read(from: []const u8) error{Malformed}!Tally {
        if (from.len != bytes) return error.Malformed;
        var tally: Tally = .{};
        var at: usize = 0;
        inline for (.{ &tally.events, &tally.now }) |part| {
            inline for (@typeInfo(@TypeOf(part.*)).@"struct".field_names) |name| {
                @field(part, name) = std.mem.readInt(u64, from[at..][0..8], .little);
                at += 8;
            }
        }
        return tally;
    }
};

const testing = std.testing;

test "a tally comes out as it went in; other bytes are none" {
    const sent: Tally = .{ .events = .{ .mailed = 1, .readers_cut = 1 << 40 }, .now = .{ .lag = 7 } };
    var out: [Tally.bytes]u8 = undefined;
    sent.write(&out);
    try testing.expectEqualDeep(sent, try Tally.read(&out));
    try testing.expectError(error.Malformed, Tally.read(out[1..]));
}

test "sums do not overflow, and the lag is that of the slowest" {
    var sum: Tally = .{ .events = .{ .mailed = std.math.maxInt(u64) }, .now = .{ .readers = 2, .lag = 3 } };
    sum.events.add(&.{ .mailed = 1, .resets = 1 });
    sum.now.add(&.{ .readers = 1, .lag = 2 });
    try testing.expectEqual(std.math.maxInt(u64), sum.events.mailed);
    try testing.expectEqual(1, sum.events.resets);
    try testing.expectEqualDeep(Now{ .readers = 3, .lag = 3 }, sum.now);
}
