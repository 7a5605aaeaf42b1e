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

/// The words of one name, and their values.
pub const Family = struct { words: []const @TypeOf(table[0]), values: []const u64 };

/// Walks the words of the counters, one name after the other.
pub const Families = struct {
    totals: *const Totals,
    at: usize = 0,

    pub fn next(families: *Families) ?Family {
        const at = families.at;
        if (at == table.len) return null;
        var end = at + 1;
        while (end < table.len and std.mem.eql(u8, table[end].name, table[at].name)) end += 1;
        families.at = end;
        return .{ .words = table[at..end], .values = families.totals[at..end] };
    }
};

pub fn write(out: *std.Io.Writer, totals: *const Totals) std.Io.Writer.Error!void {
    var families: Families = .{ .totals = totals };
    while (families.next()) |family| switch (family.words[0].kind) {
        .counter => try writeFamily(out, family, "_total", "counter"),
        .gauge => try writeFamily(out, family, "", "gauge"),
        .bucket => try writeHistogram(out, family),
        .sum => unreachable, // the last word of a histogram
    };
}

fn writeFamily(out: *std.Io.Writer, family: Family, ending: []const u8, kind: []const u8) !void {
    const name = family.words[0].name;
    try out.print("# HELP peregrine_{s}{s} {s}\n", .{ name, ending, family.words[0].summary });
    try out.print("# TYPE peregrine_{s}{s} {s}\n", .{ name, ending, kind });
    for (family.words, family.values) |word, value| {
        try out.print("peregrine_{s}{s}", .{ name, ending });
        if (word.label.len > 0) try out.print("{{{s}=\"{s}\"}}", .{ word.label, word.value });
        try out.print(" {d}\n", .{value});
    }
}

/// Each bucket counts the buckets below it as well. The sum is in microseconds, the last of the words.
fn writeHistogram(out: *std.Io.Writer, family: Family) !void {
    const first = family.words[0];
    const name = first.name[0 .. first.name.len - "_time".len];
    const last = family.values.len - 1;
    try out.print("# HELP peregrine_{s}_duration_seconds {s}\n", .{ name, first.summary });
    try out.print("# TYPE peregrine_{s}_duration_seconds histogram\n", .{name});
    var count: u64 = 0;
    for (family.words[0..last], family.values[0..last]) |word, value| {
        count += value;
        try out.print("peregrine_{s}_duration_seconds_bucket{{{s}=\"{s}\"}} {d}\n", .{
            name, word.label, word.value, count,
        });
    }
    const sum = family.values[last];
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
