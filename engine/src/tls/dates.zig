//! The dates of a certificate (RFC 5280 section 4.1.2.5), and the warnings for the operator: clients refuse a
//! certificate before its first day and after its last. Does not know: where the dates come from, what time
//! it is.
const std = @import("std");
const tls = @import("tls.zig");

/// A certificate is to be renewed when a tenth of its life is left, or two weeks of a long one.
const notice_s_max = 14 * std.time.s_per_day;
const notice_share = 10;

/// Whether a certificate has expired, is not good yet or expires soon: then `diagnostic` says so.
pub fn concern(validity: tls.Validity, path: []const u8, now_s: i64, diagnostic: *tls.Diagnostic) bool {
    const life_s = validity.not_after_s -| validity.not_before_s;
    if (now_s > validity.not_after_s) {
        diagnostic.set(
            "SSL certificate file {s} has expired on {f}",
            .{ path, Moment{ .seconds = validity.not_after_s } },
        );
    } else if (now_s < validity.not_before_s) {
        diagnostic.set(
            "SSL certificate file {s} is not valid before {f}",
            .{ path, Moment{ .seconds = validity.not_before_s } },
        );
    } else if (validity.not_after_s - now_s < @min(notice_s_max, @divFloor(life_s, notice_share))) {
        diagnostic.set(
            "SSL certificate file {s} expires soon, on {f}",
            .{ path, Moment{ .seconds = validity.not_after_s } },
        );
    } else return false;
    return true;
}

/// A point in time as text.
const Moment = struct {
    seconds: i64,

    /// Writes the time as "2026-11-21 07:09:37 UTC".
    pub fn format(moment: Moment, writer: *std.Io.Writer) std.Io.Writer.Error!void {
        // X.509 knows years from 0000 to 9999; times before 1970 are shown as its beginning.
        const since_epoch: std.time.epoch.EpochSeconds = .{ .secs = @intCast(@max(moment.seconds, 0)) };
        const year_day = since_epoch.getEpochDay().calculateYearDay();
        const month_day = year_day.calculateMonthDay();
        const second = since_epoch.getDaySeconds();
        try writer.print("{d:0>4}-{d:0>2}-{d:0>2} {d:0>2}:{d:0>2}:{d:0>2} UTC", .{
            year_day.year,            month_day.month.numeric(),   month_day.day_index + 1,
            second.getHoursIntoDay(), second.getMinutesIntoHour(), second.getSecondsIntoMinute(),
        });
    }
};

test "before, during and after a certificate's life" {
    const day = std.time.s_per_day;
    const from = 1_700_000_000; // 2023-11-14 22:13:20
    const cases = [_]struct { i64, i64, ?[]const u8 }{
        .{ 90 * day, -1, "SSL certificate file a.pem is not valid before 2023-11-14 22:13:20 UTC" },
        .{ 90 * day, 0, null },
        .{ 90 * day, 81 * day, null },
        .{ 90 * day, 81 * day + 1, "SSL certificate file a.pem expires soon, on 2024-02-12 22:13:20 UTC" },
        .{ 90 * day, 90 * day, "SSL certificate file a.pem expires soon, on 2024-02-12 22:13:20 UTC" },
        .{ 90 * day, 90 * day + 1, "SSL certificate file a.pem has expired on 2024-02-12 22:13:20 UTC" },
        .{ 1000 * day, 986 * day, null },
        .{ 1000 * day, 986 * day + 1, "SSL certificate file a.pem expires soon, on 2026-08-10 22:13:20 UTC" },
        .{ -2_000_000_000, 0, "SSL certificate file a.pem has expired on 1970-01-01 00:00:00 UTC" },
    };
    for (cases) |case| {
        const life_s, const age_s, const expected = case;
        var diagnostic: tls.Diagnostic = .{};
        const validity: tls.Validity = .{ .not_before_s = from, .not_after_s = from + life_s };
        try std.testing.expectEqual(expected != null, concern(validity, "a.pem", from + age_s, &diagnostic));
        try std.testing.expectEqualStrings(expected orelse "", diagnostic.text());
    }
}
