//! The times of a worker. A round reads the io's clocks once, so that all its events have one time. Does not
//! know: the io, which owns the clocks.
const std = @import("std");
const assert = std.debug.assert;
const http = @import("protocol").http;

pub const Clock = struct {
    /// Milliseconds by the io's monotonic clock: the round's beginning, or the last command that came between
    /// two rounds.
    now: u64,
    /// The round's beginning in microseconds, by the same clock as `now`. No two rounds have the same value.
    round_us: u64,
    /// Seconds since 1970.
    wall_seconds: u64,
    /// `wall_seconds` as the value of a Date field.
    date_bytes: [29]u8,

    pub fn init(now: u64, wall_seconds: u64) Clock {
        var clock: Clock = .{
            .now = now,
            .round_us = now * std.time.us_per_ms,
            .wall_seconds = wall_seconds,
            .date_bytes = undefined,
        };
        http.date.format(wall_seconds, &clock.date_bytes);
        return clock;
    }

    /// Begins a round, at these times of the io's clocks.
    pub fn beginRound(clock: *Clock, micros: u64, wall_seconds: u64) void {
        assert(micros / std.time.us_per_ms >= clock.now);
        clock.round_us = @max(micros, clock.round_us + 1);
        clock.now = micros / std.time.us_per_ms;
        if (wall_seconds == clock.wall_seconds) return;
        clock.wall_seconds = wall_seconds;
        http.date.format(wall_seconds, &clock.date_bytes);
    }

    /// Sets the time of a command that comes between two rounds.
    pub fn goOn(clock: *Clock, now: u64) void {
        assert(now >= clock.now);
        clock.now = now;
    }

    /// The value of a Date field (RFC 9110 section 6.6.1).
    pub fn date(clock: *const Clock) *const [29]u8 {
        return &clock.date_bytes;
    }
};

test "rounds have times of their own, though the clock stands still" {
    var clock: Clock = .init(5, 1_790_000_000);
    clock.beginRound(5_000, 1_790_000_000);
    const first = clock.round_us;
    clock.beginRound(5_000, 1_790_000_000);
    try std.testing.expect(clock.round_us > first);
    try std.testing.expectEqual(5, clock.now);
    clock.goOn(7);
    try std.testing.expectEqual(7, clock.now);
}

test "the date follows the seconds" {
    var clock: Clock = .init(0, 784_111_777);
    try std.testing.expectEqualStrings("Sun, 06 Nov 1994 08:49:37 GMT", clock.date());
    clock.beginRound(1_000, 784_111_778);
    try std.testing.expectEqualStrings("Sun, 06 Nov 1994 08:49:38 GMT", clock.date());
}
