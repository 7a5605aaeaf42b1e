//! A worker's counters for monitoring: words in memory that other processes may map. Only the worker writes
//! them, each word in one step; other processes read at any time, so words that were read together may be of
//! different moments. `table` describes each word for readers. Does not know: readers, and the number of
//! workers.
const std = @import("std");
const assert = std.debug.assert;
const protocol = @import("protocol");
const Code = protocol.Multiplexed.Code;
const Spoken = protocol.session.Family;
const Reason = @import("types.zig").Reason;

const Bound = struct { us: u64, seconds: [:0]const u8 };

/// The upper bounds of a histogram's buckets; the last bucket has no bound.
const bounds = [_]Bound{
    .{ .us = 500, .seconds = "0.0005" },
    .{ .us = 1_000, .seconds = "0.001" },
    .{ .us = 2_500, .seconds = "0.0025" },
    .{ .us = 5_000, .seconds = "0.005" },
    .{ .us = 10_000, .seconds = "0.01" },
    .{ .us = 25_000, .seconds = "0.025" },
    .{ .us = 50_000, .seconds = "0.05" },
    .{ .us = 100_000, .seconds = "0.1" },
    .{ .us = 250_000, .seconds = "0.25" },
    .{ .us = 500_000, .seconds = "0.5" },
    .{ .us = 1_000_000, .seconds = "1" },
    .{ .us = 2_500_000, .seconds = "2.5" },
    .{ .us = 5_000_000, .seconds = "5" },
    .{ .us = 10_000_000, .seconds = "10" },
    .{ .us = 30_000_000, .seconds = "30" },
};

const Duration = extern struct {
    /// The number of events in each bucket of duration; each event counts in one bucket.
    buckets: [bounds.len + 1]u64,
    sum_us: u64,

    fn add(histogram: *Duration, us: u64) void {
        var at: usize = 0;
        while (at < bounds.len and us > bounds[at].us) at += 1;
        bump(&histogram.buckets[at], 1);
        bump(&histogram.sum_us, us);
    }
};

/// Classes of response statuses by first digit; `none`: no response was sent.
pub const Class = enum { none, @"1xx", @"2xx", @"3xx", @"4xx", @"5xx" };

/// Reasons why the engine refused a request.
pub const Refused = enum {
    malformed,
    timeout,
    body_too_large,
    head_too_large,
    misdirected,
    upgrade,
    unsupported,
    overload,
};

/// Reasons why a connection was closed before its first request.
pub const Rejected = enum { capacity, address_connections, address_rate, proxy_header, tls_handshake };

pub const ConnectionState = enum { handshake, idle, reading, serving, websocket, closing };

/// The stage of a request: it waits for an application, an application works on it, or its response is being
/// sent.
pub const RequestState = enum { waiting, working, answering };

/// The activity of an interpreter. `stuck`: it has been at one event for so long that a request would not be
/// served.
pub const InterpreterState = enum { idle, busy, stuck };

pub const Direction = enum { in, out };

/// Reasons why a peer was told to open no more streams (RFC 9113 section 7).
pub const Ending = enum {
    no_error,
    protocol_error,
    internal_error,
    flow_control_error,
    settings_timeout,
    stream_closed,
    frame_size_error,
    compression_error,
    enhance_your_calm,
    other,

    fn of(code: Code) Ending {
        return switch (code) {
            .no_error => .no_error,
            .protocol_error => .protocol_error,
            .internal_error => .internal_error,
            .flow_control_error => .flow_control_error,
            .settings_timeout => .settings_timeout,
            .stream_closed => .stream_closed,
            .frame_size_error => .frame_size_error,
            .compression_error => .compression_error,
            .enhance_your_calm => .enhance_your_calm,
            else => .other,
        };
    }
};

/// The words, in order. The layout may change with each version: `table` says what lies where.
pub const Counters = extern struct {
    requests: [count(Class)]u64,
    requests_refused: [count(Refused)]u64,
    requests_aborted: [count(Reason)]u64,
    request_time: Histogram,
    queue_time: Histogram,
    application_time: Histogram,
    write_time: Histogram,
    connections_accepted: u64,
    connections_rejected: [count(Rejected)]u64,
    network_bytes: [count(Direction)]u64,
    websockets: u64,
    websocket_messages: [count(Direction)]u64,
    requests_shed: u64,
    requests_by_protocol: [count(Spoken)]u64,
    connections_by_protocol: [count(Spoken)]u64,
    stream_resets: [count(Direction)]u64,
    goaways: [count(Ending)]u64,
    // Gauges: values of the last second in which something happened.
    connections: [count(ConnectionState)]u64,
    connections_max: u64,
    requests_open: [count(RequestState)]u64,
    streams_open: u64,
    responses_held: u64,
    interpreters: [count(InterpreterState)]u64,
    memory_bytes: u64,

    pub const Histogram = Duration;
    pub const words = @sizeOf(Counters) / @sizeOf(u64);

    /// Counts a request by its protocol.
    pub fn noteRequestBy(counters: *Counters, family: Spoken) void {
        bump(&counters.requests_by_protocol[@backingInt(family)], 1);
    }

    /// Counts a connection, whose protocol is known now.
    pub fn noteConnectionBy(counters: *Counters, family: Spoken) void {
        bump(&counters.connections_by_protocol[@backingInt(family)], 1);
    }

    /// Counts streams that were reset.
    pub fn noteResets(counters: *Counters, direction: Direction, resets: u32) void {
        if (resets > 0) bump(&counters.stream_resets[@backingInt(direction)], resets);
    }

    /// Counts the end of a connection whose peer was told to open no further streams.
    pub fn noteEnding(counters: *Counters, code: Code) void {
        bump(&counters.goaways[@backingInt(Ending.of(code))], 1);
    }

    /// Counts a request that was answered, or lost its connection (status 0).
    pub fn noteStatus(counters: *Counters, status: u16) void {
        const class: Class = switch (status) {
            100...199 => .@"1xx",
            200...299 => .@"2xx",
            300...399 => .@"3xx",
            400...499 => .@"4xx",
            500...599 => .@"5xx",
            else => .none,
        };
        bump(&counters.requests[@backingInt(class)], 1);
    }

    /// Counts a response of the engine in place of the host, by its status.
    pub fn noteRefusal(counters: *Counters, status: u16) void {
        const why: Refused = switch (status) {
            408 => .timeout,
            413 => .body_too_large,
            414, 431 => .head_too_large,
            421 => .misdirected,
            426 => .upgrade,
            501, 505 => .unsupported,
            429, 503 => .overload,
            else => .malformed,
        };
        bump(&counters.requests_refused[@backingInt(why)], 1);
    }

    /// Counts a request that the engine refused before there was an exchange.
    pub fn noteEarlyRefusal(counters: *Counters, status: u16, family: Spoken) void {
        counters.noteStatus(status);
        counters.noteRequestBy(family);
        counters.noteRefusal(status);
    }

    /// Counts an exchange that ended before its response was complete.
    pub fn noteAbort(counters: *Counters, reason: Reason) void {
        bump(&counters.requests_aborted[@backingInt(reason) - 1], 1);
    }

    pub fn noteRejection(counters: *Counters, why: Rejected) void {
        bump(&counters.connections_rejected[@backingInt(why)], 1);
    }

    pub fn noteBytes(counters: *Counters, direction: Direction, len: usize) void {
        bump(&counters.network_bytes[@backingInt(direction)], len);
    }

    pub fn noteMessage(counters: *Counters, direction: Direction) void {
        bump(&counters.websocket_messages[@backingInt(direction)], 1);
    }

    /// The times of a request in microseconds: its beginning, when its host took it, the beginning of its
    /// response, its end. 0: it never happened, or is not known.
    pub const Times = struct { begun_us: u64, taken_us: u64, answered_us: u64, ended_us: u64 };

    /// Counts a request that was answered, with the duration of each of its parts. Contradicting times are
    /// clamped to their order.
    pub fn noteTimes(counters: *Counters, times: *const Times) void {
        const ended = @max(times.ended_us, times.begun_us);
        // Each time lies between the one before it and the end, also if a host has told it late.
        const taken = std.math.clamp(times.taken_us, times.begun_us, ended);
        const said = if (times.answered_us == 0) ended else times.answered_us;
        const answered = std.math.clamp(said, taken, ended);
        assert(taken <= answered and answered <= ended);
        counters.request_time.add(ended - times.begun_us);
        counters.queue_time.add(taken - times.begun_us);
        counters.application_time.add(answered - taken);
        counters.write_time.add(ended - answered);
    }

    /// Counts requests that were refused or cut because memory was short.
    pub fn noteShed(counters: *Counters, requests: u32) void {
        bump(&counters.requests_shed, requests);
    }

    pub fn note(counters: *Counters, comptime field: []const u8) void {
        bump(&@field(counters, field), 1);
    }

    /// Gauges that are summed up while a worker goes through its connections.
    pub const Now = struct {
        connections: [count(ConnectionState)]u64 = @splat(0),
        requests: [count(RequestState)]u64 = @splat(0),
        streams: u64 = 0,

        pub fn add(now: *Now, state: ConnectionState) void {
            now.connections[@backingInt(state)] += 1;
        }

        pub fn addRequest(now: *Now, state: RequestState) void {
            now.requests[@backingInt(state)] += 1;
        }

        /// Whether a request has no response yet.
        pub fn hasUnanswered(now: *const Now) bool {
            for ([_]RequestState{ .waiting, .working }) |state| {
                if (now.requests[@backingInt(state)] > 0) return true;
            }
            return false;
        }
    };

    /// Writes the gauges.
    pub fn publish(counters: *Counters, now: *const Now, connections_max: u64, memory_bytes: u64) void {
        for (&counters.connections, now.connections) |*word, value| put(word, value);
        for (&counters.requests_open, now.requests) |*word, value| put(word, value);
        put(&counters.streams_open, now.streams);
        put(&counters.connections_max, connections_max);
        put(&counters.memory_bytes, memory_bytes);
    }

    /// Writes the number of responses that the host holds open.
    pub fn publishHeld(counters: *Counters, held: u32) void {
        put(&counters.responses_held, held);
    }

    /// Writes the number of interpreters in each state.
    pub fn publishInterpreters(counters: *Counters, now: *const [count(InterpreterState)]u32) void {
        for (&counters.interpreters, now) |*word, value| put(word, value);
    }
};

/// A word has one writer, so no other write comes between reading and writing it.
inline fn bump(word: *u64, by: u64) void {
    put(word, @atomicLoad(u64, word, .monotonic) +% by);
}

inline fn put(word: *u64, value: u64) void {
    @atomicStore(u64, word, value, .monotonic);
}

fn count(comptime E: type) usize {
    return @typeInfo(E).@"enum".field_names.len;
}

/// The kind of a word. The numbers are part of the C API: numbers are only added.
pub const Kind = enum(u32) {
    /// A number that grows as long as the worker lives.
    counter = 1,
    /// A value that goes up and down.
    gauge = 2,
    /// A bucket of a histogram: the number of events that took at most `value` seconds, and longer than the
    /// bound of the bucket before.
    bucket = 3,
    /// The sum of all durations of a histogram, in microseconds.
    sum = 4,
};

/// The description of a word of `Counters`.
pub const Word = struct {
    name: [:0]const u8,
    kind: Kind,
    /// The label that tells the word from others of its name; empty: the name has only one word.
    label: [:0]const u8 = "",
    value: [:0]const u8 = "",
    summary: [:0]const u8,
};

/// The words of one field.
const Family = struct {
    field: []const u8,
    /// The kind of the words; null: a histogram.
    kind: ?Kind = .counter,
    label: [:0]const u8 = "",
    Values: ?type = null,
    summary: [:0]const u8,
};

const families = [_]Family{
    .{
        .field = "requests",
        .label = "status",
        .Values = Class,
        .summary = "Requests that are over, by the status of their answers.",
    },
    .{
        .field = "requests_refused",
        .label = "reason",
        .Values = Refused,
        .summary = "Requests that the engine refused.",
    },
    .{
        .field = "requests_aborted",
        .label = "reason",
        .Values = Reason,
        .summary = "Requests that ended before their answers did.",
    },
    .{
        .field = "request_time",
        .kind = null,
        .summary = "From the head of a request to the end of its answer. Without WebSockets.",
    },
    .{
        .field = "queue_time",
        .kind = null,
        .summary = "From the head of a request to when the application began with it.",
    },
    .{
        .field = "application_time",
        .kind = null,
        .summary = "From there to when the first bytes of the answer could be sent.",
    },
    .{ .field = "write_time", .kind = null, .summary = "From there to the end of the answer." },
    .{ .field = "connections_accepted", .summary = "Connections that were accepted." },
    .{
        .field = "connections_rejected",
        .label = "reason",
        .Values = Rejected,
        .summary = "Connections that were closed before a request was read.",
    },
    .{
        .field = "network_bytes",
        .label = "direction",
        .Values = Direction,
        .summary = "Bytes of connections, TLS included.",
    },
    .{ .field = "websockets", .summary = "WebSockets that were opened." },
    .{
        .field = "websocket_messages",
        .label = "direction",
        .Values = Direction,
        .summary = "Messages of WebSockets.",
    },
    .{ .field = "requests_shed", .summary = "Requests that were refused or cut for want of memory." },
    .{
        .field = "requests_by_protocol",
        .label = "protocol",
        .Values = Spoken,
        .summary = "Requests that are over, by what they were made by.",
    },
    .{
        .field = "connections_by_protocol",
        .label = "protocol",
        .Values = Spoken,
        .summary = "Connections that have begun to speak, by what they speak.",
    },
    .{
        .field = "stream_resets",
        .label = "direction",
        .Values = Direction,
        .summary = "HTTP/2 streams that were reset, by clients (in) and by the server (out).",
    },
    .{
        .field = "goaways",
        .label = "reason",
        .Values = Ending,
        .summary = "HTTP/2 connections that were told to end, by the last reason that they were given.",
    },
    .{
        .field = "connections",
        .kind = .gauge,
        .label = "state",
        .Values = ConnectionState,
        .summary = "Connections that are open.",
    },
    .{ .field = "connections_max", .kind = .gauge, .summary = "Connections that may be open." },
    .{
        .field = "requests_open",
        .kind = .gauge,
        .label = "state",
        .Values = RequestState,
        .summary = "Requests that are not over.",
    },
    .{ .field = "streams_open", .kind = .gauge, .summary = "HTTP/2 streams that are open." },
    .{
        .field = "responses_held",
        .kind = .gauge,
        .summary = "Responses that are held open for topics, without an interpreter.",
    },
    .{
        .field = "interpreters",
        .label = "state",
        .Values = InterpreterState,
        .kind = .gauge,
        .summary = "Workers that have joined an engine, by what they are at.",
    },
    .{
        .field = "memory_bytes",
        .kind = .gauge,
        .summary = "Bytes that connections, requests and buffers hold.",
    },
};

/// The descriptions of all words of `Counters`, in order.
pub const table: [Counters.words]Word = table: {
    @setEvalBranchQuota(20_000);
    var list: [Counters.words]Word = undefined;
    var at: usize = 0;
    for (families) |family| {
        // the struct and the table name the words in the same order
        assert(@offsetOf(Counters, family.field) == at * @sizeOf(u64));
        const name = family.field ++ "";
        const kind = family.kind orelse {
            for (0..bounds.len + 1) |bucket| list[at + bucket] = .{
                .name = name,
                .kind = .bucket,
                .label = "le",
                .value = if (bucket < bounds.len) bounds[bucket].seconds else "+Inf",
                .summary = family.summary,
            };
            at += bounds.len + 1;
            list[at] = .{ .name = name, .kind = .sum, .summary = family.summary };
            at += 1;
            continue;
        };
        const one: []const [:0]const u8 = &.{""};
        const values = if (family.Values) |Values| @typeInfo(Values).@"enum".field_names else one;
        for (values) |value| {
            list[at] = .{
                .name = name,
                .kind = kind,
                .label = family.label,
                .value = value,
                .summary = family.summary,
            };
            at += 1;
        }
    }
    assert(at == Counters.words);
    break :table list;
};

comptime {
    // Reasons are numbered from 1 on, without gaps.
    assert(@backingInt(Reason.client_closed) == 1 and @backingInt(Reason.queue_overflow) == count(Reason));
}

const testing = std.testing;

test "each word is described once, under its own name and value" {
    try testing.expectEqualStrings("requests", table[0].name);
    try testing.expectEqualStrings("none", table[0].value);
    try testing.expectEqualStrings("memory_bytes", table[table.len - 1].name);
    for (table, 0..) |word, at| for (table[at + 1 ..]) |other| {
        const same_name = std.mem.eql(u8, word.name, other.name);
        const same_value = std.mem.eql(u8, word.value, other.value);
        try testing.expect(!(same_name and same_value and word.kind == other.kind));
    };
    const first = @offsetOf(Counters, "request_time") / @sizeOf(u64);
    for (bounds, 0..) |bound, at| {
        try testing.expectEqualStrings(bound.seconds, table[first + at].value);
        const seconds = try std.fmt.parseFloat(f64, bound.seconds);
        try testing.expectEqual(bound.us, @as(u64, @round(seconds * std.time.us_per_s)));
        if (at > 0) try testing.expect(bound.us > bounds[at - 1].us);
    }
    try testing.expectEqualStrings("+Inf", table[first + bounds.len].value);
    try testing.expectEqual(.sum, table[first + 16].kind);
}

test "times are split where the host took and answered, in whatever order they are told" {
    var counters = std.mem.zeroes(Counters);
    counters.noteTimes(&.{ .begun_us = 1000, .taken_us = 3000, .answered_us = 10_000, .ended_us = 30_000 });
    try testing.expectEqual(29_000, counters.request_time.sum_us);
    try testing.expectEqual(2000, counters.queue_time.sum_us);
    try testing.expectEqual(7000, counters.application_time.sum_us);
    try testing.expectEqual(20_000, counters.write_time.sum_us);
    try testing.expectEqual(1, counters.request_time.buckets[6]);
    try testing.expectEqual(1, counters.queue_time.buckets[2]);
    // No application took the first request, and its response came in one piece; the second one has times out
    // of order.
    counters.noteTimes(&.{ .begun_us = 1000, .taken_us = 0, .answered_us = 0, .ended_us = 1500 });
    counters.noteTimes(&.{ .begun_us = 1000, .taken_us = 9000, .answered_us = 500, .ended_us = 900 });
    try testing.expectEqual(29_500, counters.request_time.sum_us);
    try testing.expectEqual(2000, counters.queue_time.sum_us);
    try testing.expectEqual(7500, counters.application_time.sum_us);
    try testing.expectEqual(2, counters.request_time.buckets[0]);
    counters.noteTimes(&.{ .begun_us = 0, .taken_us = 0, .answered_us = 0, .ended_us = 30_000_001 });
    try testing.expectEqual(1, counters.request_time.buckets[15]);
    try testing.expectEqual(4, total(&counters.write_time.buckets));
}

fn total(words: []const u64) u64 {
    var sum: u64 = 0;
    for (words) |word| sum += word;
    return sum;
}

test "statuses, refusals and ends find their words" {
    var counters = std.mem.zeroes(Counters);
    for ([_]u16{ 0, 101, 200, 204, 304, 404, 503 }) |status| counters.noteStatus(status);
    try testing.expectEqual([_]u64{ 1, 1, 2, 1, 1, 1 }, counters.requests);
    for ([_]u16{ 400, 408, 413, 414, 431, 421, 426, 501, 505, 503, 417 }) |status|
        counters.noteRefusal(status);
    try testing.expectEqual([_]u64{ 2, 1, 1, 2, 1, 1, 2, 1 }, counters.requests_refused);
    for ([_]Code{ .no_error, .enhance_your_calm, .cancel, @fromBackingInt(99) }) |code| {
        counters.noteEnding(code);
    }
    try testing.expectEqual([_]u64{ 1, 0, 0, 0, 0, 0, 0, 0, 1, 2 }, counters.goaways);
    counters.noteAbort(.queue_overflow);
    counters.noteAbort(.client_closed);
    try testing.expectEqual(1, counters.requests_aborted[0]);
    try testing.expectEqual(1, counters.requests_aborted[11]);
}
