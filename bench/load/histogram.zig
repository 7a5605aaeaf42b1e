//! A histogram of durations with a bounded relative error (under 1 %), of fixed size: buckets are linear
//! within each power of two. Does not know: what was measured.
const std = @import("std");

const Histogram = @This();

const linear_bits = 7;
const linear = 1 << linear_bits;
/// Nanoseconds up to 2^40 (18 minutes); what lasts longer falls into the last bucket.
const powers = 40 - linear_bits;

counts: [(powers + 1) * linear]u32 = @splat(0),
count: u64 = 0,
sum: f64 = 0,
sum_of_squares: f64 = 0,
max: u64 = 0,

pub fn add(h: *Histogram, value: u64) void {
    h.counts[bucketOf(value)] += 1;
    h.count += 1;
    const real: f64 = @floatFromInt(value);
    h.sum += real;
    h.sum_of_squares += real * real;
    h.max = @max(h.max, value);
}

pub fn mean(h: *const Histogram) f64 {
    return h.sum / @as(f64, @floatFromInt(@max(h.count, 1)));
}

pub fn deviation(h: *const Histogram) f64 {
    const average = h.mean();
    return @sqrt(@max(h.sum_of_squares / @as(f64, @floatFromInt(@max(h.count, 1))) - average * average, 0));
}

/// The value that this many of a thousand do not exceed.
pub fn permille(h: *const Histogram, part: f64) f64 {
    const wanted = @as(f64, @floatFromInt(h.count)) * part / 1000;
    var seen: u64 = 0;
    for (h.counts, 0..) |count, bucket| {
        seen += count;
        if (count > 0 and @as(f64, @floatFromInt(seen)) >= wanted) {
            return @floatFromInt(@min(upperOf(bucket), h.max));
        }
    }
    return 0;
}

fn bucketOf(value: u64) usize {
    if (value < linear) return @intCast(value);
    const power: usize = 63 - @as(usize, @clz(value)) - linear_bits;
    if (power >= powers) return (powers + 1) * linear - 1;
    return (power + 1) * linear + @as(usize, @intCast(value >> @intCast(power))) - linear;
}

/// The largest value that falls into the bucket.
fn upperOf(bucket: usize) u64 {
    if (bucket < linear) return bucket;
    const power: u6 = @intCast(bucket / linear - 1);
    return (@as(u64, bucket % linear + linear + 1) << power) - 1;
}

test "a bucket's largest value is less than 1 % above any other in it" {
    var value: u64 = 1;
    while (value < 1 << 39) : (value = value * 5 / 4 + 1) {
        const upper = upperOf(bucketOf(value));
        try std.testing.expect(upper >= value);
        try std.testing.expect(upper - value <= value / 100);
        try std.testing.expectEqual(bucketOf(value), bucketOf(upper));
        try std.testing.expectEqual(bucketOf(value) + 1, bucketOf(upper + 1));
    }
    try std.testing.expectEqual((powers + 1) * linear - 1, bucketOf(std.math.maxInt(u64)));
}

test "mean, deviation and shares of known numbers" {
    var histogram: Histogram = .{};
    for (0..1000) |i| histogram.add(if (i < 900) 100 else 1000);
    try std.testing.expectApproxEqAbs(190.0, histogram.mean(), 0.001);
    try std.testing.expectApproxEqAbs(270.0, histogram.deviation(), 0.001);
    try std.testing.expectEqual(100.0, histogram.permille(500));
    try std.testing.expectEqual(100.0, histogram.permille(900));
    try std.testing.expectEqual(1000.0, histogram.permille(901));
    try std.testing.expectEqual(1000.0, histogram.permille(999));
}
