//! The counters of workers, added up, in Prometheus's text format (0.0.4), under the names of PAGI::Server.
//! Does not know: servers, threads, and the place where the text goes.
const std = @import("std");
const engine = @import("server");
const Counters = engine.Counters;
const table = engine.counter_table;

/// The words of all workers, added up.
pub const Totals = [Counters.words]u64;

/// Adds the words of a worker, which may be counting meanwhile.
pub fn add(totals: *Totals, counters: *const Counters) void {
    const words: *const Totals = @ptrCast(counters);
    for (totals, words) |*total, *word| total.* += @atomicLoad(u64, word, .monotonic);
}

pub fn write(out: *std.Io.Writer, totals: *const Totals) std.Io.Writer.Error!void {
    var at: usize = 0;
    while (at < table.len) {
        var end = at + 1;
        while (end < table.len and std.mem.eql(u8, table[end].name, table[at].name)) end += 1;
        switch (table[at].kind) {
            .counter => try writeFamily(out, at, totals[at..end], "_total", "counter"),
            .gauge => try writeFamily(out, at, totals[at..end], "", "gauge"),
            .bucket => try writeHistogram(out, at, totals[at..end]),
            .sum => unreachable, // the last word of a histogram
        }
        at = end;
    }
}

fn writeFamily(
    out: *std.Io.Writer,
    at: usize,
    values: []const u64,
    ending: []const u8,
    kind: []const u8,
) !void {
    const name = table[at].name;
    try out.print("# HELP peregrine_{s}{s} {s}\n", .{ name, ending, table[at].summary });
    try out.print("# TYPE peregrine_{s}{s} {s}\n", .{ name, ending, kind });
    for (table[at..][0..values.len], values) |word, value| {
        try out.print("peregrine_{s}{s}", .{ name, ending });
        if (word.label.len > 0) try out.print("{{{s}=\"{s}\"}}", .{ word.label, word.value });
        try out.print(" {d}\n", .{value});
    }
}

/// Each bucket counts the buckets below it as well. The sum is in microseconds, the last of the words.
fn writeHistogram(out: *std.Io.Writer, at: usize, values: []const u64) !void {
    const ending = "_time";
    const name = table[at].name[0 .. table[at].name.len - ending.len];
    try out.print("# HELP peregrine_{s}_duration_seconds {s}\n", .{ name, table[at].summary });
    try out.print("# TYPE peregrine_{s}_duration_seconds histogram\n", .{name});
    var count: u64 = 0;
    for (table[at..][0 .. values.len - 1], values[0 .. values.len - 1]) |word, value| {
        count += value;
        try out.print("peregrine_{s}_duration_seconds_bucket{{{s}=\"{s}\"}} {d}\n", .{
            name, word.label, word.value, count,
        });
    }
    const sum = values[values.len - 1];
    try out.print("peregrine_{s}_duration_seconds_sum {d}.{d:0>6}\n", .{
        name, sum / std.time.us_per_s, sum % std.time.us_per_s,
    });
    try out.print("peregrine_{s}_duration_seconds_count {d}\n", .{ name, count });
}

comptime {
    for (table) |word| {
        if (word.kind == .bucket) std.debug.assert(std.mem.endsWith(u8, word.name, "_time"));
    }
}

const testing = std.testing;

test "workers are added up, and a bucket has those below it" {
    var workers: [2]Counters = @splat(std.mem.zeroes(Counters));
    workers[0].noteStatus(200);
    workers[1].noteStatus(204);
    workers[1].noteStatus(404);
    workers[0].noteTimes(&.{ .begun_us = 0, .taken_us = 0, .answered_us = 0, .ended_us = 700 });
    workers[1].noteTimes(&.{ .begun_us = 0, .taken_us = 0, .answered_us = 0, .ended_us = 2_000_001 });
    var totals: Totals = @splat(0);
    for (&workers) |*worker| add(&totals, worker);
    var out: std.Io.Writer.Allocating = .init(testing.allocator);
    defer out.deinit();
    try write(&out.writer, &totals);
    for ([_][]const u8{
        "# TYPE peregrine_requests_total counter\n",
        "\nperegrine_requests_total{status=\"2xx\"} 2\n",
        "\nperegrine_requests_total{status=\"4xx\"} 1\n",
        "\n# TYPE peregrine_request_duration_seconds histogram\n",
        "\nperegrine_request_duration_seconds_bucket{le=\"0.0005\"} 0\n",
        "\nperegrine_request_duration_seconds_bucket{le=\"0.001\"} 1\n",
        "\nperegrine_request_duration_seconds_bucket{le=\"1\"} 1\n",
        "\nperegrine_request_duration_seconds_bucket{le=\"+Inf\"} 2\n",
        "\nperegrine_request_duration_seconds_sum 2.000701\n",
        "\nperegrine_request_duration_seconds_count 2\n",
        "\n# TYPE peregrine_memory_bytes gauge\nperegrine_memory_bytes 0\n",
    }) |line| {
        if (std.mem.find(u8, out.written(), line) == null) {
            std.debug.print("no \"{s}\" in:\n{s}\n", .{ line, out.written() });
            return error.TestUnexpectedResult;
        }
    }
}
