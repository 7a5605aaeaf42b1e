//! A session between a client's bytes and a transcript of what it makes of them.
const std = @import("std");
const protocol = @import("protocol");
const http2 = protocol.http2;
const session_file = http2.session;
const Head = session_file.Head;
const Session = session_file.Session;
const frame = http2.frame;
const testing = std.testing;

pub const limits: session_file.Limits = .{
    .request_line_bytes_max = 100,
    .head_bytes_max = 1000,
    .header_count_max = 10,
    .body_bytes_max = 100_000,
    .trailer_bytes_max = 100,
    .chunk_line_bytes_max = 20,
};
pub const config: session_file.Config = .{ .streams_max = 4, .list_bytes_max = 1000 };

/// Session, memory, and transcripts: what was heard, and the frames that were sent.
pub const Harness = struct {
    session: Session,
    places: [8]session_file.Stream,
    storage: [16]protocol.http.FieldSpan,
    room: [16 * 1024]u8 align(@alignOf(u64)),
    table: [2][session_file.table_units_max]u64,
    /// How often more of it was asked for.
    tables: usize,
    /// False: events are written to `heard`.
    quiet: bool = false,
    heard_bytes: [8192]u8,
    heard: std.Io.Writer,
    in_body: u32,
    sent: std.ArrayList(u8),
    /// Of each stream's queue, what is not sent: a few bytes of content.
    queues: [64]Queue,
    /// Content that is held back, by stream: the reader has not released it.
    releases: enum { never, at_end, at_once } = .at_end,
    held: [64]u32,
    failed: bool,
    events: usize,
    requests: usize,
    /// Given when there are too few.
    more_places: []session_file.Stream,
    sent_fields: session_file.SentFields,
    /// In place of `room`, for limits that need more.
    large_room: session_file.Room,

    const Queue = struct { bytes: [64]u8 = undefined, len: usize = 0 };

    /// The first settings are taken already.
    pub fn init(h: *Harness, with: *const session_file.Config, large_room: session_file.Room) void {
        h.* = .{
            .session = undefined,
            .places = undefined,
            .storage = undefined,
            .room = undefined,
            .table = undefined,
            .tables = 0,
            .heard_bytes = undefined,
            .heard = .fixed(&h.heard_bytes),
            .in_body = 0,
            .sent = .empty,
            .queues = @splat(.{}),
            .held = @splat(0),
            .failed = false,
            .events = 0,
            .requests = 0,
            .large_room = large_room,
            .more_places = &.{},
            .sent_fields = undefined,
        };
        h.restart(with, with.streams_max);
        var out: [session_file.emission_bytes_max]u8 = undefined;
        _ = h.session.emit(&out, 1).?;
    }

    /// A fresh session, which nobody has taken anything from.
    pub fn restart(h: *Harness, with: *const session_file.Config, places: usize) void {
        const room = if (h.large_room.len > 0) h.large_room else &h.room;
        h.session = .init(&limits, with, h.places[0..places], room);
        h.session.lendTable(&h.sent_fields);
    }

    pub fn deinit(h: *Harness) void {
        h.sent.deinit(testing.allocator);
    }

    /// Feeds bytes that end with a whole frame, whichever way they are cut: a transcript of them.
    pub fn feed(h: *Harness, bytes: []const u8) !void {
        const used = try h.feedPart(bytes);
        try testing.expectEqual(bytes.len, used);
    }

    /// Feeds bytes until more are needed; how many were consumed.
    pub fn feedPart(h: *Harness, bytes: []const u8) !usize {
        var at: usize = 0;
        var head: Head = .{ .storage = &h.storage };
        while (true) {
            const step = h.session.feed(bytes[at..], &head);
            at += step.consumed;
            if (h.session.outgrows()) h.giveTable();
            h.session.invariants();
            h.events += 1;
            try h.note(step, &head);
            if (step.event == .control) try h.drainControl();
            if (step.event == .need_more) {
                try h.drainControl();
                return at;
            }
        }
    }

    /// Gives the session memory for its table, no more than it asks for, and overwrites the bench, on which
    /// the table lay.
    fn giveTable(h: *Harness) void {
        h.tables += 1;
        h.session.rehouseTable(h.table[h.tables % 2][0..h.session.tableUnits()]);
        @memset(h.session.room[0..@sizeOf(http2.hpack.Bench)], 0xaa);
    }

    /// Sends the control frames that are due, and no content.
    fn drainControl(h: *Harness) !void {
        var out: [session_file.emission_bytes_max]u8 = undefined;
        while (h.session.control.len > 0 or h.session.streams.hasDoomed()) {
            const emission = h.session.emit(&out, 1).?;
            try h.sent.appendSlice(testing.allocator, out[0..emission.head]);
        }
    }

    /// Everything that may leave does.
    pub fn emitAll(h: *Harness, budget: usize) !void {
        var out: [session_file.emission_bytes_max]u8 = undefined;
        while (h.session.emit(&out, budget)) |emission| {
            try h.sent.appendSlice(testing.allocator, out[0..emission.head]);
            h.session.invariants();
            if (emission.content == 0) continue;
            const queue = &h.queues[emission.stream];
            for (0..emission.content) |index| {
                const byte = if (index < queue.len) queue.bytes[index] else 'x';
                try h.sent.append(testing.allocator, byte);
            }
            const gone = @min(queue.len, emission.content);
            std.mem.copyForwards(u8, queue.bytes[0 .. queue.len - gone], queue.bytes[gone..queue.len]);
            queue.len -= gone;
        }
    }

    fn note(h: *Harness, step: session_file.Step, head: *const Head) !void {
        switch (step.event) {
            .request => h.requests += 1,
            .body => |piece| {
                switch (h.releases) {
                    .never => {},
                    .at_end => h.held[step.stream % 64] += @intCast(piece.len),
                    .at_once => h.session.release(step.stream, @intCast(piece.len)),
                }
            },
            .end => if (h.releases == .at_end) {
                h.session.release(step.stream, h.held[step.stream % 64]);
                h.held[step.stream % 64] = 0;
            },
            .failed => h.failed = true,
            .places => if (h.more_places.len > 0) {
                _ = h.session.rehouse(h.more_places);
            },
            else => {},
        }
        if (h.quiet) return;
        const out = &h.heard;
        if (step.event != .body and h.in_body != 0 and step.event != .need_more and step.event != .control) {
            try out.writeAll("\n");
            h.in_body = 0;
        }
        switch (step.event) {
            .need_more, .control, .places => {},
            .request => {
                try out.print("{d} {s} {s} {t}", .{
                    step.stream, head.method_text.of(head.text), head.target.of(head.text), head.body,
                });
                try fields(out, head);
            },
            .trailers => {
                try out.print("{d} trailers", .{step.stream});
                try fields(out, head);
            },
            .body => |piece| {
                if (h.in_body != step.stream) {
                    if (h.in_body != 0) try out.writeAll("\n");
                    try out.print("{d} body ", .{step.stream});
                }
                if (piece.len > 0) try out.writeAll(piece);
                h.in_body = step.stream;
            },
            .end => try out.print("{d} end\n", .{step.stream}),
            .refused => |refusal| try out.print("{d} refused {d} {s}\n", .{
                step.stream, refusal.status, refusal.detail,
            }),
            .reset => |reset| try out.print("{d} reset by {t} {t}\n", .{ step.stream, reset.by, reset.code }),
            .failed => |failure| try out.print("failed {t}: {s}\n", .{ failure.code, failure.detail }),
        }
    }

    fn fields(out: *std.Io.Writer, head: *const Head) !void {
        for (head.fields) |field| {
            try out.print(" {s}={s}", .{ field.name(head.text), field.value(head.text) });
        }
        try out.writeAll("\n");
    }

    /// The frames that were sent, one a line, and forgets them.
    pub fn sentText(h: *Harness, out: *std.Io.Writer) !void {
        var at: usize = 0;
        const bytes = h.sent.items;
        while (at < bytes.len) {
            const f: frame.Header = .parse(bytes[at..][0..frame.header_bytes]);
            const payload = bytes[at + frame.header_bytes ..][0..f.len];
            at += frame.header_bytes + f.len;
            try out.print("{d} {t}", .{ f.stream, f.kind });
            if (f.flags != 0) try out.print(" {x}", .{f.flags});
            switch (f.kind) {
                .settings => {},
                .rst_stream => try out.print(" {t}", .{codeOf(payload[0..4])}),
                .goaway => {
                    try out.print(" {d} {t}", .{ frame.number31(payload[0..4]), codeOf(payload[4..8]) });
                },
                .window_update => try out.print(" {d}", .{frame.number31(payload[0..4])}),
                .ping => try out.print(" {s}", .{payload}),
                .headers, .continuation => try out.print(" {d}", .{payload.len}),
                else => {
                    if (payload.len >= 32) {
                        try out.print(" {d}", .{payload.len});
                    } else try out.print(" {s}", .{payload});
                },
            }
            try out.writeAll("\n");
        }
        h.sent.clearRetainingCapacity();
    }

    fn codeOf(bytes: *const [4]u8) frame.Code {
        return @fromBackingInt(std.mem.readInt(u32, bytes, .big));
    }

    pub fn expectSent(h: *Harness, expected: []const u8) !void {
        var out: [4096]u8 = undefined;
        var writer: std.Io.Writer = .fixed(&out);
        try h.sentText(&writer);
        try testing.expectEqualStrings(expected, writer.buffered());
    }

    pub fn expectHeard(h: *Harness, expected: []const u8) !void {
        if (h.in_body != 0) try h.heard.writeAll("\n");
        h.in_body = 0;
        try testing.expectEqualStrings(expected, h.heard.buffered());
        h.heard.end = 0;
    }
};
