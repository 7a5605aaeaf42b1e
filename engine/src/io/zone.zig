//! The time zone of this machine: how far local time is ahead of UTC.
//! Does not know: dates, and what they are good for.
const std = @import("std");
const builtin = @import("builtin");

/// libc's `struct tm` (man 3 ctime); all that matters here is the offset.
const Broken = extern struct {
    fields: [9]c_int,
    offset_seconds: c_long,
    name: ?[*:0]const u8,
};

extern "c" fn localtime_r(time: *const c_longlong, result: *Broken) callconv(.c) ?*Broken;

/// Seconds by which local time is ahead of UTC at a moment (seconds since 1970), in the zone that TZ or
/// /etc/localtime names. A program without libc, which reads those, lives in UTC.
pub fn offsetSeconds(epoch_seconds: u64) i32 {
    if (!builtin.link_libc) return 0;
    comptime std.debug.assert(@sizeOf(c_longlong) == @sizeOf(std.c.time_t));
    var broken: Broken = undefined;
    const time: c_longlong = @intCast(epoch_seconds);
    _ = localtime_r(&time, &broken) orelse return 0;
    return @intCast(broken.offset_seconds);
}

test "an offset is less than a day" {
    const offset = offsetSeconds(1_700_000_000);
    try std.testing.expect(@abs(offset) <= 26 * 60 * 60);
}
