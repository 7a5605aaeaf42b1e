//! Fuzz target `framing`: all requests of one HTTP/1 connection, each answered, however the bytes are cut;
//! and for each request what the rules of message framing (RFC 9112 section 6) say about it, worked out a
//! second time from its fields.
const std = @import("std");
const protocol = @import("protocol");
const cuts_file = @import("cuts.zig");
const Cuts = cuts_file.Cuts;
const http1 = protocol.http1;
const FieldSpan = protocol.http.FieldSpan;
const testing = std.testing;

const limits: http1.Limits = .{
    .request_line_bytes_max = 100,
    .head_bytes_max = 400,
    .header_count_max = 8,
    .body_bytes_max = 300,
    .trailer_bytes_max = 100,
    .chunk_line_bytes_max = 24,
};

pub fn run(input: []const u8) !void {
    var first: Recorder = .{};
    try first.play(input, .whole);
    for ([_]Cuts{ .seeded(std.hash.Wyhash.hash(0, input)), .bytes }) |cuts| {
        if (cuts == .bytes and input.len > cuts_file.bytewise_max) continue;
        var other: Recorder = .{};
        try other.play(input, cuts);
        try testing.expectEqual(first.refused, other.refused);
        // The number of bytes that were consumed before a refusal says nothing.
        if (!first.refused) try testing.expectEqual(first.consumed, other.consumed);
        try testing.expectEqual(first.requests, other.requests);
        try testing.expectEqual(first.transcript.final(), other.transcript.final());
    }
}

/// A connection in miniature: it answers every request with 204 when it is complete, and keeps a
/// digest of what it saw.
const Recorder = struct {
    session: http1.Session = .init(&limits),
    transcript: std.hash.Wyhash = .init(0),
    consumed: usize = 0,
    requests: usize = 0,
    /// The kind of body of the request in hand.
    body: http1.BodyKind = .none,
    content: usize = 0,
    over: bool = false,
    refused: bool = false,

    fn play(r: *Recorder, input: []const u8, way: Cuts) !void {
        var cuts = way;
        var arrived: usize = 0;
        while (!r.over) {
            arrived += cuts.next(input.len - arrived);
            try r.receive(input[0..arrived]);
            if (arrived == input.len) return;
        }
    }

    fn receive(r: *Recorder, input: []const u8) !void {
        // Each call must consume or say something new.
        for (0..3 * input.len + 4) |_| {
            if (r.over) return;
            var storage: [limits.header_count_max]FieldSpan = @splat(.{
                .name_at = 9999,
                .value_at = 9999,
                .value_len = 9,
                .name_len = 9,
                .id = .host,
            });
            var head: http1.Head = .{ .storage = &storage };
            const step = r.session.feed(input[r.consumed..], &head);
            r.consumed += step.consumed;
            if (step.event == .need_more) return;
            try r.note(step.event, &head);
            if (!r.over and r.session.inputComplete()) try r.answer();
        }
        return error.SessionDoesNotAdvance;
    }

    fn note(r: *Recorder, event: http1.Event, head: *const http1.Head) !void {
        // Pieces of content depend on the cuts, their sum does not.
        if (event != .body) r.transcript.update(@tagName(event));
        switch (event) {
            .need_more => unreachable,
            .request => {
                r.requests += 1;
                r.body = head.body;
                r.content = 0;
                r.transcript.update(head.text);
                try expectLawful(head);
            },
            .body => |bytes| {
                try testing.expect(bytes.len > 0 and r.body != .none);
                r.content += bytes.len;
                try testing.expect(r.content <= limits.body_bytes_max);
                r.transcript.update(bytes);
            },
            .trailers => {
                try testing.expect(r.body == .chunked);
                for (head.fields) |field| {
                    r.transcript.update(field.name(head.text));
                    r.transcript.update(field.value(head.text));
                }
            },
            .end => switch (r.body) {
                .none => return error.EndOfNothing,
                .counted => |length| try testing.expectEqual(length, r.content),
                .chunked => {},
            },
            .refused => |refusal| {
                try testing.expect(refusal.status >= 400 and refusal.status < 600);
                try testing.expect(refusal.detail.len <= 120);
                r.transcript.update(refusal.detail);
                r.refused = true;
                r.over = true;
            },
        }
    }

    fn answer(r: *Recorder) !void {
        var out: [http1.startSize(&.{})]u8 = undefined;
        const started = try r.session.planStart(.{ .status = 204, .fields = &.{} }, &out);
        r.session.apply(started);
        r.transcript.update(out[0..started.len]);
        r.session.apply(try r.session.planEnd(&.{}, &out));
        const disposition = r.session.disposition();
        try testing.expect(disposition != .drain); // the request was read to its end
        if (disposition == .keep_alive) r.session.next() else r.over = true;
    }
};

/// Expects that the fields of an accepted request allow its framing.
fn expectLawful(head: *const http1.Head) !void {
    var hosts: usize = 0;
    var codings: usize = 0;
    var length: ?u64 = null;
    var close = false;
    var persist = head.version == .http_1_1;
    for (head.fields) |field| {
        const value = field.value(head.text);
        if (is(field, head, "host")) hosts += 1;
        if (is(field, head, "transfer-encoding")) {
            codings += 1;
            // Nothing but one "chunked" in a list is ever accepted.
            const named = std.mem.trim(u8, value, " \t,");
            try testing.expect(named.len == 0 or std.ascii.eqlIgnoreCase(named, "chunked"));
        }
        if (is(field, head, "content-length")) {
            var mentions = std.mem.splitScalar(u8, value, ',');
            while (mentions.next()) |mention| {
                const digits = std.mem.trim(u8, mention, " \t");
                for (digits) |byte| try testing.expect(std.ascii.isDigit(byte));
                const number = try std.fmt.parseInt(u64, digits, 10);
                try testing.expectEqual(length orelse number, number);
                length = number;
            }
        }
        if (is(field, head, "connection")) {
            var options = std.mem.splitScalar(u8, value, ',');
            while (options.next()) |option| {
                const name = std.mem.trim(u8, option, " \t");
                if (std.ascii.eqlIgnoreCase(name, "close")) close = true;
                if (std.ascii.eqlIgnoreCase(name, "keep-alive")) persist = true;
            }
        }
    }
    if (head.version == .http_1_1) {
        try testing.expectEqual(1, hosts);
    } else {
        try testing.expect(hosts <= 1 and codings == 0);
    }
    if (codings > 0) try testing.expectEqual(null, length);
    const expected: http1.BodyKind = if (codings > 0)
        .chunked
    else if ((length orelse 0) > 0)
        .{ .counted = length.? }
    else
        .none;
    try testing.expectEqual(expected, head.body);
    try testing.expectEqual(persist and !close, head.keep_alive);
}

fn is(field: FieldSpan, head: *const http1.Head, name: []const u8) bool {
    return std.ascii.eqlIgnoreCase(field.name(head.text), name);
}
