//! The access log of one worker: one line for each request that was answered, written when it ends.
//!
//! The fields that a request's head gives are kept as text when it begins, in a buffer of the worker's pool;
//! its end adds the rest. A thread writes lines to a file (io.LogFile); a log without a file gathers them for
//! the worker's host. Does not know: connections and exchanges (worker/access.zig).
const std = @import("std");
const assert = std.debug.assert;
const io = @import("io");
const date = @import("protocol").http.date;
const format_file = @import("access_log/format.zig");
const decimal = @import("protocol").http.syntax.decimal;
const line = @import("access_log/line.zig");
const Pool = @import("pool.zig").Pool;

pub const Fault = format_file.Fault;
pub const Format = format_file.Format;
pub const Subject = line.Subject;

/// The destination of the lines.
pub const Target = union(enum) {
    file: io.LogTarget,
    /// The host takes the lines, after each round.
    host,
};

/// The settings of a log.
pub const Options = struct {
    target: Target,
    /// The name of a preset, or a format as access_log/format.zig describes it.
    format: []const u8 = "clf",
    /// Bytes of lines that wait for a slow file at most; further lines are dropped.
    bytes_max: u32,
};

const path_bytes_shown = @import("config.zig").worker_limits.log_path_bytes_shown;

fn tail(path: []const u8) []const u8 {
    return path[path.len -| path_bytes_shown..];
}

/// Bytes that the texts of `news` and `close` need at most.
pub const news_bytes_max = 256 + path_bytes_shown;

/// A request that has begun. Its line has the format that the log had at the request's beginning, also if the
/// log got another format since.
pub const Entry = struct {
    kept: line.Kept,
    shared: *Shared,
    wall_seconds: u64,
    micros: u64,
    /// When the response began, by the clock of `micros`; 0: it has not begun, or the format has no use for
    /// the time.
    answered_us: u64 = 0,

    /// The format of the request's line.
    pub fn format(entry: *const Entry) *const Format {
        return &entry.shared.format;
    }

    /// Gives back the entry's memory without writing a line.
    pub fn discard(entry: *const Entry, pool: *Pool) void {
        pool.give(entry.kept.buffer);
        entry.shared.leave();
    }
};

/// A format with the number of its users: the log, and each request that has begun under the format.
const Shared = struct {
    format: Format,
    users: u32 = 1,

    fn create(gpa: std.mem.Allocator, text: []const u8, fault: *Fault) Format.Error!*Shared {
        const shared = try gpa.create(Shared);
        errdefer gpa.destroy(shared);
        shared.* = .{ .format = try .compile(gpa, text, fault) };
        return shared;
    }

    fn leave(shared: *Shared) void {
        shared.users -= 1;
        if (shared.users > 0) return;
        const gpa = shared.format.arena.child_allocator;
        shared.format.deinit();
        gpa.destroy(shared);
    }
};

/// The end of a request, with the facts that its line needs.
pub const Outcome = struct {
    /// The status of the response; 0: the request was not answered.
    status: u16,
    body_bytes: u64,
    end: enum { cut_short, goes_on, closes },
    /// The time of the end, by the clock of `Entry.micros`; read only for a format with times.
    micros: u64 = 0,
    /// Microseconds that the request waited for the application; null: the application never had the request,
    /// or the format has no use for the time.
    queue_us: ?u64 = null,
    /// The name of the group of interpreters that the request was for, of harmless bytes; empty: there is no
    /// group, or the format has no use for its name.
    group: []const u8 = "",
};

pub const AccessLog = struct {
    gpa: std.mem.Allocator,
    shared: *Shared,
    sink: Sink,
    process: u32,
    stamp: Stamp = .{},
    /// Lines that were lost since the last report, because the host's buffer was full or memory was short.
    host_dropped: u64 = 0,
    /// The time of the last report to the server's own log, in milliseconds; 0: there was no report.
    told_at: u64 = 0,

    const news_ms = @import("config.zig").worker_limits.log_news_interval_ms;

    const Sink = union(enum) {
        file: *io.LogFile,
        host: struct { lines: std.ArrayList(u8), bytes_max: u32 },
    };

    /// Reasons why a log cannot be opened.
    pub const OpenError = Format.Error || error{ CannotOpen, CannotStartThread };

    /// Opens a log. After BadFormat `fault` has the reason, after CannotOpen `errno` has it.
    pub fn open(gpa: std.mem.Allocator, options: Options, fault: *Fault, errno: *u16) OpenError!AccessLog {
        const shared: *Shared = try .create(gpa, options.format, fault);
        errdefer shared.leave();
        return .{
            .gpa = gpa,
            .shared = shared,
            .sink = switch (options.target) {
                .file => |target| .{ .file = try .open(gpa, target, options.bytes_max, errno) },
                .host => .{ .host = .{ .lines = .empty, .bytes_max = options.bytes_max } },
            },
            .process = @intCast(io.processId()),
        };
    }

    /// Writes the lines that are left and closes the log. Returns a line about losses for the server's own
    /// log, or null.
    pub fn close(log: *AccessLog, buffer: []u8) ?[]const u8 {
        const text = switch (log.sink) {
            .file => |file| text: {
                var path: [path_bytes_shown]u8 = undefined;
                const shown = tail(file.path);
                @memcpy(path[0..shown.len], shown);
                const len = shown.len;
                break :text log.newsText(file.close(), buffer, path[0..len]);
            },
            .host => |*host| text: {
                host.lines.deinit(log.gpa);
                break :text log.newsText(.{}, buffer, "");
            },
        };
        log.shared.leave();
        log.* = undefined;
        return text;
    }

    /// Copies the facts that the log's line will need of a request, at its begin; null: there is no memory.
    /// `micros`: the time of the begin, which matters only if the format has times.
    pub fn begin(
        log: *AccessLog,
        pool: *Pool,
        subject: *const Subject,
        wall_seconds: u64,
        micros: u64,
    ) ?Entry {
        assert(log.shared.users > 0);
        const kept = line.keep(&log.shared.format, pool, subject, log.process) catch {
            log.host_dropped += 1;
            return null;
        };
        log.shared.users += 1;
        return .{ .kept = kept, .shared = log.shared, .wall_seconds = wall_seconds, .micros = micros };
    }

    /// Writes the line of a request, and gives back the entry's memory.
    pub fn end(log: *AccessLog, pool: *Pool, entry: Entry, outcome: *const Outcome) void {
        defer entry.discard(pool);
        const len_max = entry.kept.len + entry.format().rest_bytes_max;
        switch (log.sink) {
            .file => |file| if (file.reserve(len_max)) {
                if (file.straight(len_max)) |space| {
                    var straight: Straight = .{ .space = space };
                    log.write(&straight, &entry, outcome);
                    file.advance(straight.len);
                } else {
                    log.write(file, &entry, outcome);
                }
                file.commit();
            },
            .host => |*host| if (host.lines.items.len + len_max <= host.bytes_max and
                if (host.lines.ensureUnusedCapacity(log.gpa, len_max)) true else |_| false)
            {
                log.write(Gathered{ .lines = &host.lines }, &entry, outcome);
            } else {
                log.host_dropped += 1;
            },
        }
    }

    const Straight = struct {
        space: []u8,
        len: usize = 0,

        inline fn put(sink: *Straight, bytes: []const u8) void {
            @memcpy(sink.space[sink.len..][0..bytes.len], bytes);
            sink.len += bytes.len;
        }
    };

    const Gathered = struct {
        lines: *std.ArrayList(u8),

        fn put(sink: Gathered, bytes: []const u8) void {
            sink.lines.appendSliceAssumeCapacity(bytes);
        }
    };

    fn write(log: *AccessLog, sink: anytype, entry: *const Entry, outcome: *const Outcome) void {
        var kept = entry.kept.runs();
        var buffer: [format_file.late_bytes_max]u8 = undefined;
        for (entry.format().ops) |op| sink.put(switch (op) {
            .kept => kept.next(),
            .text => |text| text,
            .late => |late| log.value(late, entry, outcome, &buffer),
        });
    }

    fn value(
        log: *AccessLog,
        late: format_file.Late,
        entry: *const Entry,
        outcome: *const Outcome,
        buffer: *[format_file.late_bytes_max]u8,
    ) []const u8 {
        const micros = outcome.micros -| entry.micros;
        return switch (late) {
            .time => log.stamp.at(entry.wall_seconds).common(),
            .time_iso => log.stamp.at(entry.wall_seconds).iso(),
            .status => if (outcome.status == 0) absent(entry) else decimal(outcome.status, buffer[0..20]),
            .bytes => decimal(outcome.body_bytes, buffer[0..20]),
            .bytes_or_dash => if (outcome.body_bytes == 0) "-" else decimal(
                outcome.body_bytes,
                buffer[0..20],
            ),
            .duration => |unit| durationText(micros, unit, buffer),
            .first_byte => |unit| if (outcome.status == 0)
                absent(entry)
            else // a response whose beginning was not noted left in one piece
                durationText(
                    if (entry.answered_us != 0) entry.answered_us -| entry.micros else micros,
                    unit,
                    buffer,
                ),
            .queue => |unit| if (outcome.queue_us) |waited|
                durationText(waited, unit, buffer)
            else
                absent(entry),
            .group => if (outcome.group.len > 0) outcome.group else if (entry.format().json) "" else "-",
            .connection => switch (outcome.end) {
                .cut_short => "X",
                .goes_on => "+",
                .closes => "-",
            },
        };
    }

    fn absent(entry: *const Entry) []const u8 {
        return if (entry.format().json) "null" else "-";
    }

    fn durationText(micros: u64, unit: format_file.Unit, buffer: *[format_file.late_bytes_max]u8) []const u8 {
        return switch (unit) {
            .microseconds => decimal(micros, buffer[0..20]),
            .whole_seconds => decimal(micros / std.time.us_per_s, buffer[0..20]),
            .seconds => std.fmt.bufPrint(
                buffer,
                "{d}.{d:0>6}",
                .{ micros / std.time.us_per_s, micros % std.time.us_per_s },
            ) catch unreachable,
            .milliseconds => std.fmt.bufPrint(
                buffer,
                "{d}.{d:0>3}",
                .{ micros / std.time.us_per_ms, micros % std.time.us_per_ms },
            ) catch unreachable,
        };
    }

    /// Wakes the thread that writes lines, if it sleeps. Called once a round, after lines were written.
    pub fn announce(log: *AccessLog) void {
        switch (log.sink) {
            .file => |file| file.announce(),
            .host => {},
        }
    }

    /// Lines for the host, valid until `taken`. Empty when lines go to a file.
    pub fn gathered(log: *const AccessLog) []const u8 {
        return switch (log.sink) {
            .file => "",
            .host => |*host| host.lines.items,
        };
    }

    /// Forgets the lines that the host has taken.
    pub fn taken(log: *AccessLog) void {
        assert(log.gathered().len > 0);
        log.sink.host.lines.clearRetainingCapacity();
    }

    /// Opens the log's file again by its path, because the old file was moved away.
    pub fn reopen(log: *AccessLog) void {
        switch (log.sink) {
            .file => |file| file.reopen(),
            .host => {},
        }
    }

    /// Like `news`, but at most once a second.
    pub fn newsWhenDue(log: *AccessLog, now: u64, buffer: []u8) ?[]const u8 {
        if (log.told_at != 0 and now -| log.told_at < news_ms) return null;
        const text = log.news(buffer) orelse return null;
        log.told_at = now;
        return text;
    }

    /// A line about lost lines or errors of the file, for the server's own log; null: there is nothing to
    /// tell.
    pub fn news(log: *AccessLog, buffer: []u8) ?[]const u8 {
        return switch (log.sink) {
            .file => |file| log.newsText(file.news() orelse .{}, buffer, tail(file.path)),
            .host => log.newsText(.{}, buffer, ""),
        };
    }

    fn newsText(log: *AccessLog, told: io.LogNews, buffer: []u8, path: []const u8) ?[]const u8 {
        const dropped = log.host_dropped;
        log.host_dropped = 0;
        var writer: std.Io.Writer = .fixed(buffer);
        writer.writeAll("Access log") catch {};
        if (path.len > 0) writer.print(" '{s}'", .{path}) catch {};
        writer.writeAll(":") catch {};
        const start = writer.end;
        if (told.errno != 0) writer.print(
            " it cannot be written ({s});",
            .{io.failureText(told.errno)},
        ) catch {};
        if (told.reopen_errno != 0) writer.print(
            " it cannot be opened again ({s}), the old file goes on;",
            .{io.failureText(told.reopen_errno)},
        ) catch {};
        if (told.dropped + dropped > 0) writer.print(
            " {d} lines were dropped;",
            .{told.dropped + dropped},
        ) catch {};
        if (writer.end == start) return null;
        return std.mem.trimEnd(u8, writer.buffered(), ";");
    }
};

/// Local time as text, which is made again when the second changes.
const Stamp = struct {
    seconds: ?u64 = null,
    text: [28]u8 = undefined,
    iso_text: [25]u8 = undefined,

    fn at(stamp: *Stamp, seconds: u64) *const Stamp {
        if (stamp.seconds == seconds) return stamp;
        stamp.seconds = seconds;
        const offset = io.zone.offsetSeconds(seconds);
        const local: u64 = @intCast(@max(@as(i64, @intCast(seconds)) + offset, 0));
        const day = date.civil(local / std.time.s_per_day);
        const second = local % std.time.s_per_day;
        const sign: u8 = if (offset < 0) '-' else '+';
        const minutes = @abs(offset) / std.time.s_per_min;
        const clock = .{ second / std.time.s_per_hour, second / std.time.s_per_min % 60, second % 60 };
        _ = std.fmt.bufPrint(
            &stamp.text,
            "[{d:0>2}/{s}/{d:0>4}:{d:0>2}:{d:0>2}:{d:0>2} {c}{d:0>2}{d:0>2}]",
            .{
                day.day,      date.month_names[day.month - 1], day.year, clock[0], clock[1], clock[2], sign,
                minutes / 60, minutes % 60,
            },
        ) catch unreachable;
        _ = std.fmt.bufPrint(
            &stamp.iso_text,
            "{d:0>4}-{d:0>2}-{d:0>2}T{d:0>2}:{d:0>2}:{d:0>2}{c}{d:0>2}:{d:0>2}",
            .{
                day.year, day.month, day.day, clock[0], clock[1], clock[2], sign, minutes / 60, minutes % 60,
            },
        ) catch unreachable;
        return stamp;
    }

    fn common(stamp: *const Stamp) []const u8 {
        return &stamp.text;
    }

    fn iso(stamp: *const Stamp) []const u8 {
        return &stamp.iso_text;
    }
};

test {
    _ = format_file;
    _ = line;
    _ = @import("access_log/tls.zig");
}

const testing = std.testing;

test "a line in each preset" {
    const cases = [_]struct { []const u8, []const u8 }{
        .{ "clf", "192.0.2.1 - - [14/Nov/2023:22:13:20 +0000] \"GARBAGE\" 400 12\n" },
        .{ "combined", "192.0.2.1 - - [14/Nov/2023:22:13:20 +0000] \"GARBAGE\" 400 12 \"-\" \"-\"\n" },
        .{ "tiny", "- - 400 1500.042ms\n" },
        .{ "%s %B %D %d %T %X %{iso}t", "400 12 1500042 1.500042 1 - 2023-11-14T22:13:20+00:00\n" },
        .{ "%s %^FB %{ms}^FB", "400 1500042 1500.042\n" },
    };
    for (cases) |case| {
        var pool: Pool = .init(testing.allocator);
        defer pool.deinit();
        var fault: Fault = .{};
        var errno: u16 = 0;
        var log: AccessLog = try .open(
            testing.allocator,
            .{ .target = .host, .format = case[0], .bytes_max = 4096 },
            &fault,
            &errno,
        );
        defer {
            var space: [news_bytes_max]u8 = undefined;
            _ = log.close(&space);
        }
        const subject: Subject = .{
            .peer = "192.0.2.1",
            .local_port = 80,
            .connection = 1,
            .request = 1,
            .head = null,
            .raw = "GARBAGE\r\n",
        };
        const entry = log.begin(&pool, &subject, 1_700_000_000, 5).?;
        log.end(&pool, entry, &.{ .status = 400, .body_bytes = 12, .end = .closes, .micros = 1_500_047 });
        try testing.expectEqualStrings(case[1], log.gathered());
        log.taken();
        const unanswered = log.begin(&pool, &subject, 1_700_000_000, 5).?;
        log.end(&pool, unanswered, &.{ .status = 0, .body_bytes = 0, .end = .cut_short });
        try testing.expect(
            std.mem.find(u8, log.gathered(), " - ") != null or std.mem.startsWith(u8, log.gathered(), "- 0 "),
        );
    }
}

test "an answer that took its time to begin, and one that never came" {
    var pool: Pool = .init(testing.allocator);
    defer pool.deinit();
    var fault: Fault = .{};
    var errno: u16 = 0;
    var log: AccessLog = try .open(
        testing.allocator,
        .{ .target = .host, .format = "%^FB %{s}^FB %D", .bytes_max = 1000 },
        &fault,
        &errno,
    );
    defer {
        var space: [news_bytes_max]u8 = undefined;
        _ = log.close(&space);
    }
    const subject: Subject = .{
        .peer = "::1",
        .local_port = 80,
        .connection = 1,
        .request = 1,
        .head = null,
    };
    var entry = log.begin(&pool, &subject, 0, 1000).?;
    entry.answered_us = 2_001_000;
    log.end(&pool, entry, &.{ .status = 200, .body_bytes = 0, .end = .closes, .micros = 3_001_000 });
    log.end(
        &pool,
        log.begin(&pool, &subject, 0, 1000).?,
        &.{ .status = 0, .body_bytes = 0, .end = .cut_short, .micros = 2000 },
    );
    try testing.expectEqualStrings("2000000 2 3000000\n- - 1000\n", log.gathered());
}

test "a request ends under the format that it began under" {
    var pool: Pool = .init(testing.allocator);
    defer pool.deinit();
    var fault: Fault = .{};
    var errno: u16 = 0;
    const subject: Subject = .{
        .peer = "::1",
        .local_port = 80,
        .connection = 1,
        .request = 1,
        .head = null,
    };
    var space: [news_bytes_max]u8 = undefined;
    var before: AccessLog = try .open(
        testing.allocator,
        .{ .target = .host, .format = "before %h %s", .bytes_max = 1000 },
        &fault,
        &errno,
    );
    const one = before.begin(&pool, &subject, 0, 0).?;
    const two = before.begin(&pool, &subject, 0, 0).?;
    _ = before.close(&space);
    var log: AccessLog = try .open(
        testing.allocator,
        .{ .target = .host, .format = "{%s}", .bytes_max = 1000 },
        &fault,
        &errno,
    );
    log.end(&pool, one, &.{ .status = 0, .body_bytes = 0, .end = .cut_short });
    try testing.expectEqualStrings("before ::1 -\n", log.gathered());
    _ = log.close(&space);
    two.discard(&pool);
}

test "a host that does not take its lines loses some, and is told how many" {
    var pool: Pool = .init(testing.allocator);
    defer pool.deinit();
    var fault: Fault = .{};
    var errno: u16 = 0;
    var log: AccessLog = try .open(
        testing.allocator,
        .{ .target = .host, .bytes_max = 1000 },
        &fault,
        &errno,
    );
    defer {
        var space: [news_bytes_max]u8 = undefined;
        _ = log.close(&space);
    }
    const subject: Subject = .{
        .peer = "::1",
        .local_port = 80,
        .connection = 1,
        .request = 1,
        .head = null,
    };
    for (0..100) |_| log.end(
        &pool,
        log.begin(&pool, &subject, 0, 0).?,
        &.{ .status = 400, .body_bytes = 0, .end = .closes },
    );
    try testing.expect(log.gathered().len <= 1000);
    var buffer: [128]u8 = undefined;
    const news = log.news(&buffer).?;
    try testing.expect(std.mem.endsWith(u8, news, " lines were dropped"));
    try testing.expectEqual(null, log.news(&buffer));
}
