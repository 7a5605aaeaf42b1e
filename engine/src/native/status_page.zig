//! The counters of workers as a page for people: HTML without scripts, which a browser loads anew every five
//! seconds. Does not know: servers, threads, and the place where the text goes.
const std = @import("std");
const assert = std.debug.assert;
const Stats = @import("server").Stats;
const table = @import("server").counter_table;
const metrics = @import("metrics.zig");

const head =
    \\<!DOCTYPE html>
    \\<html lang="en">
    \\<meta charset="utf-8">
    \\<meta name="viewport" content="width=device-width, initial-scale=1">
    \\<meta name="color-scheme" content="light dark">
    \\<meta http-equiv="refresh" content="5">
    \\<title>Peregrine: status</title>
    \\<style>
    \\body { margin: 0 auto; padding: 1rem; max-width: 60rem; font: 15px/1.45 system-ui, sans-serif }
    \\main { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(18rem, 100%), 1fr)); gap: 0 2rem }
    \\h1 { font-size: 1.25rem } h2 { font-size: 1rem; margin: 1rem 0 0 } p { margin: 0; opacity: .7 }
    \\table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
    \\th, td { text-align: right; font-weight: 400; border-bottom: 1px solid #8884; padding: .2rem 0 }
    \\th:first-child { text-align: left }
    \\</style>
    \\<h1>Peregrine</h1>
    \\<table>
    \\<tr><th>worker<th>connections<th>open requests<th>requests<th>memory
    \\
;

/// Begins the page and the table of workers.
pub fn begin(out: *std.Io.Writer) std.Io.Writer.Error!void {
    try out.writeAll(head);
}

/// A worker's row.
pub fn writeWorker(out: *std.Io.Writer, number: usize, stats: *const Stats) std.Io.Writer.Error!void {
    try out.print("<tr><th>{d}<td>{d}<td>{d}<td>{d}<td>{Bi:.1}\n", .{
        number, stats.connections, stats.exchanges, stats.requests, stats.memory_bytes,
    });
}

/// Ends the table of workers, and writes the sums of their counters.
pub fn end(out: *std.Io.Writer, totals: *const metrics.Totals) std.Io.Writer.Error!void {
    try out.writeAll("</table>\n<main>\n");
    var families: metrics.Families = .{ .totals = totals };
    while (families.next()) |family| {
        // Most reasons never happen, and a native server has no interpreters.
        if (std.mem.allEqual(u64, family.values, 0)) continue;
        const first = family.words[0];
        try out.writeAll("<section>\n<h2>");
        for (first.name) |byte| try out.writeByte(if (byte == '_') ' ' else byte);
        try out.print("</h2>\n<p>{s}</p>\n<table>\n", .{first.summary});
        switch (first.kind) {
            .counter, .gauge => try writeValues(out, family),
            .bucket => try writeDurations(out, family),
            .sum => unreachable, // the last word of a histogram
        }
        try out.writeAll("</table>\n</section>\n");
    }
    try out.writeAll("</main>\n<p>Counts that are 0 are left out.</p>\n");
}

fn writeValues(out: *std.Io.Writer, family: metrics.Family) !void {
    for (family.words, family.values) |word, value| {
        if (value == 0) continue;
        const label = if (word.label.len > 0) word.value else "all";
        const is_size = std.mem.endsWith(u8, word.name, "_bytes");
        try out.print("<tr><th>{s}<td>", .{label});
        if (is_size) try out.print("{Bi:.1}\n", .{value}) else try out.print("{d}\n", .{value});
    }
}

/// The number of events, their mean, and bounds under which 50, 90 and 99 percent of them are.
fn writeDurations(out: *std.Io.Writer, family: metrics.Family) !void {
    const last = family.values.len - 1;
    const buckets: metrics.Family = .{ .words = family.words[0..last], .values = family.values[0..last] };
    var count: u64 = 0;
    for (buckets.values) |value| count += value;
    // A worker counts an event before it adds its time, and both are read meanwhile.
    if (count == 0) return;
    const mean_us = family.values[last] / count;
    try out.print("<tr><th>count<td>{d}\n<tr><th>mean<td>{d}.{d:0>3} ms\n", .{
        count, mean_us / 1000, mean_us % 1000,
    });
    for ([_]u8{ 50, 90, 99 }) |percent| {
        const at = bucketOf(buckets.values, count, percent);
        const is_unbounded = at + 1 == buckets.values.len;
        try out.print("<tr><th>{d} %<td>{s} {s} s\n", .{
            percent,
            if (is_unbounded) "more than" else "within",
            buckets.words[if (is_unbounded) at - 1 else at].value,
        });
    }
}

/// The bucket up to which there are `percent` hundredths of `count` events.
fn bucketOf(buckets: []const u64, count: u64, percent: u8) usize {
    assert(count > 0 and percent <= 100);
    const wanted = std.math.divCeil(u128, @as(u128, count) * percent, 100) catch unreachable;
    var seen: u64 = 0;
    for (buckets, 0..) |value, at| {
        seen += value;
        if (seen >= wanted) return at;
    }
    unreachable;
}

comptime {
    @setEvalBranchQuota(100_000);
    // Nothing in the table has to be escaped.
    for (table) |word| assert(std.mem.findAny(u8, word.summary ++ word.value, "<&") == null);
}

const testing = std.testing;

test "workers have rows, counts have sections, and what is 0 has none" {
    const Counters = @import("server").Counters;
    var counters: Counters = std.mem.zeroes(Counters);
    counters.noteStatus(200);
    counters.noteStatus(404);
    for ([_]u64{ 700, 900, 40_000_000 }) |us| {
        counters.noteTimes(&.{ .begun_us = 0, .taken_us = 0, .answered_us = 0, .ended_us = us });
    }
    var totals: metrics.Totals = @splat(0);
    metrics.add(&totals, &counters);
    var out: std.Io.Writer.Allocating = .init(testing.allocator);
    defer out.deinit();
    try begin(&out.writer);
    try writeWorker(&out.writer, 1, &.{ .connections = 3, .requests = 7, .memory_bytes = 2048 });
    try end(&out.writer, &totals);
    for ([_][]const u8{
        "\n<tr><th>1<td>3<td>0<td>7<td>2.0KiB\n",
        "<h2>requests</h2>",
        "\n<tr><th>2xx<td>1\n<tr><th>4xx<td>1\n</table>",
        "<h2>request time</h2>",
        "\n<tr><th>count<td>3\n<tr><th>mean<td>13333.866 ms\n<tr><th>50 %<td>within 0.001 s\n",
        "\n<tr><th>99 %<td>more than 30 s\n",
    }) |piece| {
        if (std.mem.find(u8, out.written(), piece) == null) {
            std.debug.print("no \"{s}\" in:\n{s}\n", .{ piece, out.written() });
            return error.TestUnexpectedResult;
        }
    }
    for ([_][]const u8{ "<h2>interpreters", "5xx", "<h2>websockets" }) |piece| {
        try testing.expectEqual(null, std.mem.find(u8, out.written(), piece));
    }
}

test "a hundredth of the events decides, however many there are" {
    try testing.expectEqual(0, bucketOf(&.{ 50, 49, 1 }, 100, 50));
    try testing.expectEqual(1, bucketOf(&.{ 50, 49, 1 }, 100, 99));
    try testing.expectEqual(2, bucketOf(&.{ 50, 48, 2 }, 100, 99));
    try testing.expectEqual(0, bucketOf(&.{ std.math.maxInt(u64), 0 }, std.math.maxInt(u64), 99));
}
