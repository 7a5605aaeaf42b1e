//! An exchange of the application, played from a seed. Its commands and their order depend on the seed and on
//! the results of earlier commands, never on which thread is faster. So a job gives the same commands to an
//! engine in its own thread and to an engine behind a ring pair.
const std = @import("std");
const abi = @import("abi");
const types = abi.types;
const Code = types.Code;
const peregrine = @import("peregrine");
const Field = peregrine.Field;
const record_file = @import("record.zig");
const Record = record_file.Record;
const Speech = @import("speech.zig").Speech;

const flag = types.RespondFlag;

/// The message after which a WebSocket is closed.
pub const last_message = "bye";

/// The handling of a request.
pub const Job = struct {
    record: *Record,
    ticket: types.Ticket,
    prng: std.Random.DefaultPrng,
    /// Commands out of 100 that are wrong.
    mistakes: u8,
    waits: Waits = .nothing,
    /// The number of turns of the application for which the job waits.
    pause: u32 = 0,
    stage: Stage = .begin,
    body_complete: bool,
    /// The poll that brought the request.
    poll: usize = 0,
    /// Of the response's content: what it will have, and what the Content-Length leaves.
    left: usize = 0,
    promised: ?usize = null,
    /// Of a WebSocket: what it has to say of its own, and which of those that came it has answered.
    own: usize = 0,
    answered: usize = 0,
    inbox: std.ArrayList(Record.Message) = .empty,
    flow: enum(u32) { all = 0, none = 1, on_demand = 2 } = .all,
    /// The job was told that it is blocked, and has to be told of room.
    blocked: bool = false,

    pub const Waits = enum { nothing, room, flushed, end, body, message };
    const Stage = enum { begin, read, head, content, handshake, talk, over };

    /// `mistakes` and the seed are those of the history.
    pub fn init(
        record: *Record,
        ticket: types.Ticket,
        seed: u64,
        mistakes: u8,
        event: *const types.Event,
    ) Job {
        var prng: std.Random.DefaultPrng = .init(seed ^ (record.id + 1) *% 0x9E3779B97F4A7C15);
        const stage: Stage = if (event.flags & types.EventFlag.handshake != 0) .handshake else .begin;
        return .{
            .record = record,
            .ticket = ticket,
            .mistakes = if (prng.random().boolean()) mistakes else 0,
            .prng = prng,
            .stage = stage,
            .body_complete = event.flags & types.EventFlag.last != 0,
        };
    }

    pub fn deinit(job: *Job) void {
        for (job.inbox.items) |message| job.record.gpa.free(message.bytes);
        job.inbox.deinit(job.record.gpa);
    }

    /// Whether it has something to say now.
    pub fn isReady(job: *const Job) bool {
        if (job.waits == .message and job.answered < job.inbox.items.len) return true;
        return job.waits == .nothing and job.pause == 0 and job.stage != .over;
    }

    /// A few commands, without a poll between them. False: the exchange is over. `pace`: not the job's own
    /// numbers.
    pub fn step(job: *Job, speech: *Speech, pace: std.Random) !bool {
        job.waits = .nothing;
        const random = job.prng.random();
        for (0..pace.intRangeAtMost(usize, 1, 4)) |_| {
            if (!job.isReady()) return true;
            // How often it has to ask is the network's business, and no reason for another number.
            if (try job.asks(speech)) continue;
            if (random.uintLessThan(u8, 100) < job.mistakes) {
                if (!try job.err(speech)) return false;
            } else if (random.uintLessThan(u8, 20) == 0) {
                job.pause = random.uintAtMost(u32, 3);
            } else if (!try job.proceed(speech)) return false;
        }
        return true;
    }

    /// Asks for the next piece of the request's body, or the next message, if there is nothing else to do.
    fn asks(job: *Job, speech: *Speech) !bool {
        const wanted: Waits = switch (job.stage) {
            .read => if (job.body_complete) return false else .body,
            .talk => if (job.own > 0 or job.answered < job.inbox.items.len) return false else .message,
            else => return false,
        };
        const code = abi.peregrine_read(speech.handle, job.ticket);
        if (code == Code.ok) job.waits = wanted else if (code != Code.gone) return error.ReadRefused;
        _ = job.heard(code, false);
        return true;
    }

    fn proceed(job: *Job, speech: *Speech) !bool {
        return switch (job.stage) {
            .begin => job.begin(speech),
            .read => job.head(),
            .head => job.respond(speech),
            .content => job.write(speech),
            .handshake => job.shake(speech),
            .talk => job.talk(speech),
            .over => true,
        };
    }

    /// Notes the result of a command. `ends`: the command was the last one. Returns whether the job goes on.
    fn heard(job: *Job, code: c_int, ends: bool) bool {
        switch (code) {
            Code.ok, Code.done, Code.blocked => {},
            Code.gone => {
                // The end of the exchange is among the events to come.
                job.stage = .over;
                return true;
            },
            else => return true,
        }
        if (code == Code.done) {
            job.record.end = .done;
            return false;
        }
        if (code == Code.blocked) {
            job.blocked = true;
            job.waits = .room;
        }
        if (ends) {
            job.stage = .over;
            job.waits = .end;
        }
        return true;
    }

    // ---- HTTP

    fn begin(job: *Job, speech: *Speech) !bool {
        const random = job.prng.random();
        job.stage = if (job.record.sends > 0 and random.uintLessThan(u8, 8) > 0) .read else .head;
        if (random.uintLessThan(u8, 6) == 0) {
            const code = try speech.inform(job.record, job.ticket, 103, &.{.init("Link", "</style.css>")});
            return job.heard(code, false);
        }
        if (random.uintLessThan(u8, 10) == 0) {
            return job.heard(try speech.say(job.record, job.ticket, .idle_limit, 3_600_000), false);
        }
        if (random.uintLessThan(u8, 10) == 0) {
            const keeps = random.uintLessThan(u8, 2);
            return job.heard(try speech.say(job.record, job.ticket, .keep_head, keeps), false);
        }
        return true;
    }

    fn head(job: *Job) bool {
        job.stage = .head;
        return true;
    }

    fn respond(job: *Job, speech: *Speech) !bool {
        const random = job.prng.random();
        // A client cannot tell that its request was forgotten from an answer that takes its time.
        if (random.uintLessThan(u8, 60) == 0) {
            job.record.cuts = true;
            job.stage = .over;
            return true;
        }
        const status = ([_]u16{ 200, 404, 503, 204, 304 })[random.weightedIndex(u8, &.{ 20, 2, 2, 1, 1 })];
        const size = job.drawSize();
        const first = if (random.boolean()) @min(size, random.uintAtMost(usize, 20_000)) else 0;
        const ends = first == size and random.boolean();
        var text: [20]u8 = undefined;
        var fields: std.ArrayList(Field) = .initBuffer(try job.record.gpa.alloc(Field, 2));
        defer fields.deinit(job.record.gpa);
        fields.appendAssumeCapacity(.init("X-Kind", "simulated"));
        const counted = random.boolean();
        if (counted) fields.appendAssumeCapacity(
            .init("Content-Length", std.fmt.bufPrint(&text, "{d}", .{size}) catch unreachable),
        );
        var flags: u16 = 0;
        if (ends) flags |= flag.end;
        if (random.uintLessThan(u8, 3) == 0) flags |= flag.hold;
        if (random.uintLessThan(u8, 8) == 0) flags |= flag.flush;
        if (random.uintLessThan(u8, 12) == 0) flags |= flag.keep_alive;
        if (random.uintLessThan(u8, 20) == 0) {
            flags |= flag.close;
            job.record.cuts = true;
        }
        var body: [20_000]u8 = undefined;
        record_file.pattern(body[0..first], job.record.id, 0);
        const code = try speech.start(job.record, job.ticket, .{
            .status = status,
            .fields = fields.items,
            .body = body[0..first],
            .flags = flags,
        });
        job.stage = .content;
        job.left = size - first;
        job.promised = if (counted) job.left else null;
        return job.heard(code, ends);
    }

    fn drawSize(job: *Job) usize {
        const random = job.prng.random();
        return switch (random.uintLessThan(u8, 20)) {
            0 => 0,
            1 => random.uintAtMost(usize, 300_000),
            2...6 => random.uintAtMost(usize, 30_000),
            else => random.uintAtMost(usize, 2_000),
        };
    }

    fn write(job: *Job, speech: *Speech) !bool {
        const random = job.prng.random();
        switch (random.uintLessThan(u8, 100)) {
            0 => return job.abort(speech),
            1...4 => {
                const code = try speech.say(job.record, job.ticket, .flush, 0);
                if (code == Code.blocked) {
                    job.waits = .flushed;
                    return true;
                }
                return job.heard(code, false);
            },
            5 => return job.heard(try speech.say(job.record, job.ticket, .repeat, 3_600_000), false),
            6 => if (job.promised == null) return job.sendFile(speech),
            else => {},
        }
        if (job.left == 0) return job.finish(speech);
        const size_max = ([_]usize{ 1, 100, 5_000, 40_000, 150_000 })[random.uintLessThan(usize, 5)];
        // Many small ones would take all day.
        const len = @min(job.left, @max(job.left / 50, random.uintAtMost(usize, size_max)));
        const last = len == job.left and random.boolean();
        const bytes = try job.record.gpa.alloc(u8, len);
        defer job.record.gpa.free(bytes);
        record_file.pattern(bytes, job.record.id, job.record.content.items.len);
        var flags: u32 = if (last) flag.end else 0;
        if (random.uintLessThan(u8, 10) == 0) flags |= flag.flush;
        const lends = random.uintLessThan(u8, 3) == 0;
        const code = if (lends)
            try speech.writeLent(job.record, job.ticket, bytes, flags)
        else
            try speech.write(job.record, job.ticket, bytes, flags);
        job.left -= len;
        if (job.promised) |*promised| promised.* -= len;
        return job.heard(code, last);
    }

    fn finish(job: *Job, speech: *Speech) !bool {
        const random = job.prng.random();
        if (random.boolean()) return job.heard(try speech.write(job.record, job.ticket, "", flag.end), true);
        const with_trailers = job.promised == null and random.boolean();
        const trailers: []const Field = if (with_trailers) &.{.init("X-Sum", "17")} else &.{};
        const code = try speech.finish(job.record, job.ticket, trailers);
        if (code == Code.trailers) return job.heard(try speech.finish(job.record, job.ticket, &.{}), true);
        return job.heard(code, true);
    }

    fn sendFile(job: *Job, speech: *Speech) !bool {
        const random = job.prng.random();
        const offset = random.uintAtMost(u64, Speech.file_bytes + 10);
        const length: i64 = if (random.boolean()) -1 else random.uintAtMost(u32, Speech.file_bytes);
        return job.heard(try speech.writeFile(job.record, job.ticket, offset, length), true);
    }

    fn abort(job: *Job, speech: *Speech) !bool {
        job.record.cuts = true;
        const code = try speech.say(job.record, job.ticket, .abort, 0);
        if (code != Code.ok) return job.heard(code, false);
        job.record.end = .cut;
        return false;
    }

    // ---- WebSocket

    fn shake(job: *Job, speech: *Speech) !bool {
        const random = job.prng.random();
        if (random.uintLessThan(u8, 10) == 0) {
            job.record.cuts = true;
            const code = try speech.start(
                job.record,
                job.ticket,
                .{ .status = 403, .body = "No.\n", .flags = flag.end },
            );
            return job.heard(code, true);
        }
        const code = try speech.accept(job.record, job.ticket, &.{.init("X-Kind", "simulated")});
        job.stage = .talk;
        job.own = random.uintAtMost(usize, 6);
        return job.heard(code, false);
    }

    fn talk(job: *Job, speech: *Speech) !bool {
        const random = job.prng.random();
        switch (random.uintLessThan(u8, 60)) {
            0 => return job.abort(speech),
            1...2 => return job.heard(try speech.say(job.record, job.ticket, .keepalive, 3_600_000), false),
            3...5 => {
                job.flow = if (job.flow == .on_demand) .all else .on_demand;
                return job.heard(
                    try speech.say(job.record, job.ticket, .pause, @backingInt(job.flow)),
                    false,
                );
            },
            else => {},
        }
        if (job.own > 0) {
            job.own -= 1;
            const bytes = try job.record.gpa.alloc(u8, job.drawSize());
            defer job.record.gpa.free(bytes);
            record_file.pattern(bytes, job.record.id, 0);
            const code = try speech.message(
                job.record,
                job.ticket,
                bytes,
                random.boolean(),
                random.boolean(),
            );
            return job.heard(code, false);
        }
        const message = job.inbox.items[job.answered];
        job.answered += 1;
        if (std.mem.eql(u8, message.bytes, last_message)) {
            const code = try speech.close(job.record, job.ticket, 1000, last_message);
            return job.heard(code, true);
        }
        return job.heard(
            try speech.message(job.record, job.ticket, message.bytes, message.text, random.boolean()),
            false,
        );
    }

    // ---- Mistakes

    /// Something that is wrong, whatever came before it.
    fn err(job: *Job, speech: *Speech) !bool {
        const record = job.record;
        const ticket = job.ticket;
        const random = job.prng.random();
        const started = job.stage == .content or job.stage == .talk;
        const code = switch (random.uintLessThan(u8, 16)) {
            0 => try speech.start(
                record,
                ticket,
                .{ .status = ([_]u16{ 0, 99, 101, 199, 600, 1000 })[random.uintLessThan(usize, 6)] },
            ),
            1 => try speech.start(record, ticket, .{ .fields = &.{ .init("A", "1"), .init("B C", "2") } }),
            2 => try speech.start(
                record,
                ticket,
                .{ .fields = &.{.init("A", "1\r\nB: 2")}, .flags = flag.hold },
            ),
            3 => try speech.start(
                record,
                ticket,
                .{ .fields = &.{ .init("Content-Length", "5"), .init("Content-Length", "6") } },
            ),
            4 => try speech.start(record, ticket, .{ .fields = &.{.init("Content-Length", "x")} }),
            5 => try speech.inform(
                record,
                ticket,
                ([_]u16{ 99, 101, 200 })[random.uintLessThan(usize, 3)],
                &.{},
            ),
            6 => try speech.inform(record, ticket, 103, &.{.init("Bad Name", "1")}),
            7 => if (started) try speech.start(record, ticket, .{}) else try speech.write(
                record,
                ticket,
                "early",
                random.uintLessThan(u8, 2),
            ),
            8 => if (job.stage == .talk)
                try speech.write(record, ticket, "x", random.uintLessThan(u8, 2))
            else if (started) try job.overrun(speech) else try speech.finish(record, ticket, &.{}),
            9 => if (job.stage == .talk)
                try speech.finish(record, ticket, &.{})
            else if (started) try job.underrun(speech) else try speech.writeFile(record, ticket, 0, 10),
            10 => try job.badTrailers(speech),
            11 => try job.badMessage(speech),
            12 => try speech.close(
                record,
                ticket,
                ([_]u16{ 999, 1015, 1006, 5000 })[random.uintLessThan(usize, 4)],
                "",
            ),
            13 => if (job.stage == .handshake)
                try speech.accept(record, ticket, &.{.init("Sec-WebSocket-Accept", "x")})
            else
                try speech.accept(record, ticket, &.{}),
            14 => if (started or job.stage == .handshake) 0 else try speech.say(record, ticket, .repeat, 10),
            15 => if (job.stage == .talk) try speech.close(record, ticket, 1000, "\xff") else try speech.say(
                record,
                ticket,
                .keepalive,
                10,
            ),
            else => unreachable,
        };
        if (code == Code.gone) return job.heard(code, false);
        return true;
    }

    /// More than was promised.
    fn overrun(job: *Job, speech: *Speech) !c_int {
        const promised = job.promised orelse return 0;
        if (!job.isSized()) return 0;
        const bytes = try job.record.gpa.alloc(u8, promised + 1);
        defer job.record.gpa.free(bytes);
        @memset(bytes, 'x');
        if (job.prng.random().boolean()) return speech.write(job.record, job.ticket, bytes, flag.end);
        return speech.writeLent(job.record, job.ticket, bytes, 0);
    }

    /// An end before all was said.
    fn underrun(job: *Job, speech: *Speech) !c_int {
        const promised = job.promised orelse return 0;
        if (promised == 0 or !job.isSized()) return 0;
        if (job.prng.random().boolean()) return speech.finish(job.record, job.ticket, &.{});
        return speech.writeFile(job.record, job.ticket, 0, @intCast(@min(promised - 1, Speech.file_bytes)));
    }

    fn badTrailers(job: *Job, speech: *Speech) !c_int {
        if (job.stage == .talk) return 0;
        if (job.stage == .content and !job.isSized()) return 0;
        return speech.finish(job.record, job.ticket, &.{ .init("X-Sum", "1"), .init("X Sum", "1") });
    }

    /// Whether the response has content, so that its length counts.
    fn isSized(job: *const Job) bool {
        return job.record.method != .head and job.record.status != 204 and job.record.status != 304;
    }

    fn badMessage(job: *Job, speech: *Speech) !c_int {
        if (job.stage != .talk) return speech.message(job.record, job.ticket, "hello", true, false);
        return speech.message(job.record, job.ticket, "\xc3\x28", true, job.prng.random().boolean());
    }
};
