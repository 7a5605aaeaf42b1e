//! HTTP dates (RFC 9110 section 5.6.7): writes IMF-fixdate; reads IMF-fixdate, RFC 850 and asctime. Does not
//! know: the current time. Times are arguments, in seconds since 1970-01-01T00:00:00Z.
const std = @import("std");
const assert = std.debug.assert;

/// The length of an IMF-fixdate, in bytes.
pub const bytes_len = 29;

/// The last second of the year 9999: later times have no IMF-fixdate.
pub const epoch_seconds_max: u64 = 253_402_300_799;

/// Writes `epoch_seconds` as an IMF-fixdate: `Sun, 06 Nov 1994 08:49:37 GMT`. Asserts that it is at most
/// epoch_seconds_max.
pub fn format(epoch_seconds: u64, out: *[bytes_len]u8) void {
    assert(epoch_seconds <= epoch_seconds_max);
    const days = epoch_seconds / day_seconds;
    const second_of_day = epoch_seconds % day_seconds;
    const date = civil(days);
    // 1970-01-01 was a Thursday, which has index 4.
    @memcpy(out[0..3], day_names[(days + 4) % 7][0..3]);
    @memcpy(out[3..5], ", ");
    twoDigits(out[5..7], date.day);
    out[7] = ' ';
    @memcpy(out[8..11], month_names[date.month - 1]);
    out[11] = ' ';
    twoDigits(out[12..14], date.year / 100);
    twoDigits(out[14..16], date.year % 100);
    out[16] = ' ';
    twoDigits(out[17..19], second_of_day / 3600);
    out[19] = ':';
    twoDigits(out[20..22], second_of_day / 60 % 60);
    out[22] = ':';
    twoDigits(out[23..25], second_of_day % 60);
    @memcpy(out[25..29], " GMT");
}

/// Reads a date in any of the three forms. Null: not a date, or a date before 1970. `now` (epoch seconds)
/// determines the century of RFC 850's two-digit year: a year more than 50 years ahead is in the past
/// century. The name of the day need not match the date.
pub fn parse(text: []const u8, now: u64) ?u64 {
    var reader: Reader = .{ .rest = text };
    const comma = std.mem.indexOfScalar(u8, text, ',') orelse return reader.asctime();
    return if (comma == 3) reader.imfFixdate() else reader.rfc850(now);
}

const day_seconds = 86_400;
const day_names = [7][]const u8{
    "Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday",
};
/// The names of months in dates, January first.
pub const month_names = [12]*const [3]u8{
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
};

/// A date of the calendar; month and day count from 1.
pub const Civil = struct { year: u64, month: u64, day: u64 };

// Both conversions count years from March, so that the leap day is the last day of a year, and months have
// the lengths 31, 30, 31, 30, 31 again and again: there are (153 * m + 2) / 5 days before month m.
const days_per_era = 146_097; // 400 years
const days_to_1970 = 719_468; // from 0000-03-01

/// Returns the date that is `days` days after 1970-01-01.
pub fn civil(days: u64) Civil {
    const shifted = days + days_to_1970;
    const era = shifted / days_per_era;
    const day_of_era = shifted % days_per_era;
    const year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    const day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    const march_month = (5 * day_of_year + 2) / 153;
    const month = if (march_month < 10) march_month + 3 else march_month - 9;
    return .{
        .year = era * 400 + year_of_era + @intFromBool(month <= 2),
        .month = month,
        .day = day_of_year - (153 * march_month + 2) / 5 + 1,
    };
}

/// Returns the number of days since 1970-01-01, before which the date must not be.
fn daysOf(date: Civil) u64 {
    const year = date.year - @intFromBool(date.month <= 2);
    const march_month = if (date.month > 2) date.month - 3 else date.month + 9;
    const year_of_era = year % 400;
    const day_of_year = (153 * march_month + 2) / 5 + date.day - 1;
    const day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    return year / 400 * days_per_era + day_of_era - days_to_1970;
}

/// Writes a number below 100 with a leading zero.
pub fn twoDigits(out: *[2]u8, number: u64) void {
    assert(number < 100);
    out.* = .{ '0' + @as(u8, @intCast(number / 10)), '0' + @as(u8, @intCast(number % 10)) };
}

fn daysInMonth(year: u64, month: u64) u64 {
    const leap = (year % 4 == 0 and year % 100 != 0) or year % 400 == 0;
    return switch (month) {
        2 => if (leap) 29 else 28,
        4, 6, 9, 11 => 30,
        else => 31,
    };
}

const Reader = struct {
    rest: []const u8,

    fn imfFixdate(r: *Reader) ?u64 {
        r.dayName(.short) orelse return null;
        r.literal(", ") orelse return null;
        const day = r.number(2) orelse return null;
        r.literal(" ") orelse return null;
        const month = r.monthName() orelse return null;
        r.literal(" ") orelse return null;
        const year = r.number(4) orelse return null;
        r.literal(" ") orelse return null;
        const second_of_day = r.timeOfDay() orelse return null;
        r.literal(" GMT") orelse return null;
        return r.finish(.{ .year = year, .month = month, .day = day }, second_of_day);
    }

    fn rfc850(r: *Reader, now: u64) ?u64 {
        r.dayName(.long) orelse return null;
        r.literal(", ") orelse return null;
        const day = r.number(2) orelse return null;
        r.literal("-") orelse return null;
        const month = r.monthName() orelse return null;
        r.literal("-") orelse return null;
        const year_of_century = r.number(2) orelse return null;
        r.literal(" ") orelse return null;
        const second_of_day = r.timeOfDay() orelse return null;
        r.literal(" GMT") orelse return null;
        const this_year = civil(@min(now, epoch_seconds_max) / day_seconds).year;
        var year = this_year / 100 * 100 + year_of_century;
        if (year > this_year + 50) year -= 100;
        return r.finish(.{ .year = year, .month = month, .day = day }, second_of_day);
    }

    fn asctime(r: *Reader) ?u64 {
        r.dayName(.short) orelse return null;
        r.literal(" ") orelse return null;
        const month = r.monthName() orelse return null;
        r.literal(" ") orelse return null;
        // A day below ten is padded with a space.
        const day = (if (r.literal(" ")) |_| r.number(1) else r.number(2)) orelse return null;
        r.literal(" ") orelse return null;
        const second_of_day = r.timeOfDay() orelse return null;
        r.literal(" ") orelse return null;
        const year = r.number(4) orelse return null;
        return r.finish(.{ .year = year, .month = month, .day = day }, second_of_day);
    }

    fn timeOfDay(r: *Reader) ?u64 {
        const hour = r.number(2) orelse return null;
        r.literal(":") orelse return null;
        const minute = r.number(2) orelse return null;
        r.literal(":") orelse return null;
        const second = r.number(2) orelse return null;
        // 60 is a leap second.
        if (hour > 23 or minute > 59 or second > 60) return null;
        return hour * 3600 + minute * 60 + second;
    }

    fn finish(r: *Reader, date: Civil, second_of_day: u64) ?u64 {
        if (r.rest.len != 0) return null;
        if (date.year < 1970) return null;
        if (date.day < 1 or date.day > daysInMonth(date.year, date.month)) return null;
        return daysOf(date) * day_seconds + second_of_day;
    }

    fn literal(r: *Reader, text: []const u8) ?void {
        if (!std.mem.startsWith(u8, r.rest, text)) return null;
        r.rest = r.rest[text.len..];
    }

    fn number(r: *Reader, digits: usize) ?u64 {
        if (r.rest.len < digits) return null;
        var value: u64 = 0;
        for (r.rest[0..digits]) |byte| {
            if (!std.ascii.isDigit(byte)) return null;
            value = value * 10 + (byte - '0');
        }
        r.rest = r.rest[digits..];
        return value;
    }

    fn dayName(r: *Reader, length: enum { short, long }) ?void {
        for (day_names) |full| {
            const name = if (length == .short) full[0..3] else full;
            if (r.literal(name)) |_| return;
        }
        return null;
    }

    fn monthName(r: *Reader) ?u64 {
        for (month_names, 1..) |name, month| {
            if (r.literal(name)) |_| return month;
        }
        return null;
    }
};

const rfc_example: u64 = 784_111_777;

fn expectFormat(expected: []const u8, epoch_seconds: u64) !void {
    var out: [bytes_len]u8 = undefined;
    format(epoch_seconds, &out);
    try std.testing.expectEqualStrings(expected, &out);
}

test "format" {
    try expectFormat("Sun, 06 Nov 1994 08:49:37 GMT", rfc_example);
    try expectFormat("Thu, 01 Jan 1970 00:00:00 GMT", 0);
    try expectFormat("Tue, 29 Feb 2000 23:59:59 GMT", 951_868_799);
    try expectFormat("Fri, 31 Dec 9999 23:59:59 GMT", epoch_seconds_max);
}

test "the three forms of the RFC's example" {
    const now = 1_760_000_000;
    try std.testing.expectEqual(rfc_example, parse("Sun, 06 Nov 1994 08:49:37 GMT", now).?);
    try std.testing.expectEqual(rfc_example, parse("Sunday, 06-Nov-94 08:49:37 GMT", now).?);
    try std.testing.expectEqual(rfc_example, parse("Sun Nov  6 08:49:37 1994", now).?);
}

test "a two-digit year is at most fifty years ahead" {
    const in_2025 = 1_760_000_000;
    const in_2075 = parse("Tue, 01 Jan 2075 00:00:00 GMT", in_2025).?;
    try std.testing.expectEqual(in_2075, parse("Tuesday, 01-Jan-75 00:00:00 GMT", in_2025).?);
    const in_1976 = parse("Thu, 01 Jan 1976 00:00:00 GMT", in_2025).?;
    try std.testing.expectEqual(in_1976, parse("Thursday, 01-Jan-76 00:00:00 GMT", in_2025).?);
}

test "every day from 1970 to 2400 survives the round trip" {
    var out: [bytes_len]u8 = undefined;
    var days: u64 = 0;
    while (days < 430 * 366) : (days += 1) {
        const seconds = days * day_seconds + days % day_seconds;
        format(seconds, &out);
        try std.testing.expectEqual(seconds, parse(&out, 0).?);
    }
}

test "texts that are no dates are refused" {
    const bad = [_][]const u8{
        "",                                 "0",                             "Sun, 06 Nov 1994 08:49:37",
        "Sun, 06 Nov 1994 08:49:37 UTC",    "Sun, 31 Feb 1994 08:49:37 GMT", "Sun, 00 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 24:00:00 GMT",    "Sun, 06 Nov 1994 08:60:00 GMT", "Sun, 6 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:37 GMT ",   "Sum, 06 Nov 1994 08:49:37 GMT", "Sun, 06 nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1969 08:49:37 GMT",    "Sun Nov 6 08:49:37 1994",       ",",
        "Sunday, 06-Nov-1994 08:49:37 GMT",
    };
    for (bad) |text| try std.testing.expectEqual(null, parse(text, 0));
}
