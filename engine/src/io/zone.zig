//! The offset of this machine's local time from UTC. Does not know: dates.
const std = @import("std");
const builtin = @import("builtin");

/// libc's `struct tm` (man 3 ctime), of which only the offset is used.
const Broken = extern struct {
    fields: [9]c_int,
    offset_seconds: c_long,
    name: ?[*:0]const u8,
};

extern "c" fn localtime_r(time: *const c_longlong, result: *Broken) callconv(.c) ?*Broken;

/// Returns the offset of local time from UTC at a time (seconds since 1970), in seconds, in the zone of TZ or
/// /etc/localtime. 0 in a program without libc, which reads those.
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
