//! The history of one topic: entries with offsets without gaps, and the places of readers in it. A reader
//! holds at most one segment, which is partly sent, so memory depends on topics and not on readers. Does not
//! know: sockets, and where entries come from.
const std = @import("std");
const assert = std.debug.assert;
const Config = @import("config.zig").Config;
const Segment = @import("segment.zig").Segment;
const frames_file = @import("frames.zig");
const Frames = frames_file.Frames;
const Framer = frames_file.Framer;
const Variant = frames_file.Variant;
const position = @import("position.zig");
const Mark = position.Mark;
const Position = position.Position;
const Allocator = std.mem.Allocator;

/// The limits of a topic's history.
pub const Limits = struct {
    entries_max: u32,
    /// The largest sum of the bytes of all entries. The newest entry is kept even if it is longer.
    bytes_max: u64,
    age_ms_max: u64,
    segment_entries_max: u32,
    /// The length of a segment; a longer entry has a segment of its own.
    segment_bytes_max: u32,
    /// Bytes of frames that are kept for further readers.
    framed_bytes_max: u64,
    /// The length of an entry.
    message_bytes_max: u32,

    /// The limits of histories, from the hub's configuration.
    pub fn of(config: *const Config) Limits {
        return .{
            .entries_max = config.history_entries_max,
            .bytes_max = config.history_bytes_max,
            .age_ms_max = config.history_age_ms,
            .segment_entries_max = config.segment_entries_max,
            .segment_bytes_max = config.segment_bytes_max,
            .framed_bytes_max = config.framed_bytes_max,
            .message_bytes_max = config.message_bytes_max,
        };
    }
};

/// An entry whose place another hub has decided.
pub const Placed = struct {
    epoch: position.Epoch,
    mark: Mark,
    /// The hub that has published the entry, and the hub's number for it.
    hub: u48,
    sequence: u64,
    bytes: []const u8,
};

/// The place of a reader in a log. The reader owns it, and must release it.
pub const Cursor = struct {
    /// The log's generation, which changes when the history begins anew.
    generation: u32,
    /// The offset of the last entry that the reader was sent, or has skipped.
    offset: u64,
    hold: ?Hold = null,

    /// A segment of which the reader was sent a part.
    const Hold = struct {
        segment: *Segment,
        frames: *Frames,
        /// The bytes of `frames` that are still to be sent.
        at: u32,
        end: u32,
    };
};

/// The wishes of a reader.
pub const Want = struct {
    variant: Variant,
    /// The largest lag that the reader may have.
    quota: Lag = .{ .entries = std.math.maxInt(u64), .bytes = std.math.maxInt(u64) },
    /// The treatment of a reader with a larger lag, or one that is behind the oldest kept entry.
    behind: enum { cut, skip } = .cut,
};

/// The distance of a reader from the newest entry.
pub const Lag = struct {
    entries: u64,
    /// Bytes of these entries, as far as they are kept.
    bytes: u64,
};

/// The next step of a reader.
pub const Next = union(enum) {
    /// The reader has had every entry.
    nothing,
    /// Bytes of frames, valid until `sent` has taken all of them, or until `release`.
    bytes: []const u8,
    /// The number of entries that the reader has missed, because it was too far behind. It goes on with the
    /// next entry that is published.
    skipped: u64,
    /// The reader is too far behind and must be ended.
    cut,
    /// The history began anew, and the reader may have seen entries that others have not. It goes on behind
    /// this position.
    reset: Position,
};

/// The result of a reader's begin or return.
pub const Resumed = union(enum) {
    /// The reader has read all entries.
    current: Cursor,
    /// The reader has entries to read.
    behind: Cursor,
    /// The reader's position is not in this history, or not any more. The reader goes on with the next entry
    /// that is published.
    reset: struct { why: Why, cursor: Cursor },

    pub const Why = enum {
        /// The history began anew.
        epoch,
        /// The log has no entry at this offset yet.
        ahead,
        /// The log has another entry at this offset.
        other_entry,
        /// Entries behind the position were dropped.
        trimmed,
    };
};

/// The history of a topic.
pub const Log = struct {
    gpa: Allocator,
    limits: Limits,
    epoch: position.Epoch,
    generation: u32 = 0,
    /// The mark of the entry before the first kept one.
    base: Mark,
    /// The mark of the newest entry.
    tip: Mark,
    /// Segments with at least one kept entry, oldest first.
    segments: std.Deque(*Segment) = .empty,
    /// The sum of the bytes of all kept entries.
    bytes: u64 = 0,
    /// Bytes of frames of the segments above.
    framed_bytes: u64 = 0,
    /// Bytes of entries and frames of segments that are no longer part of the log, but held by readers.
    stale_bytes: u64 = 0,

    /// Begins a history whose next entry follows `mark`; `Mark.origin`: the next entry is the topic's first.
    pub fn init(gpa: Allocator, limits: Limits, epoch: position.Epoch, mark: Mark) Log {
        return .{ .gpa = gpa, .limits = limits, .epoch = epoch, .base = mark, .tip = mark };
    }

    /// Frees the log. All readers must have released their cursors.
    pub fn deinit(log: *Log) void {
        while (log.segments.popFront()) |segment| segment.destroy(log.gpa);
        assert(log.stale_bytes == 0);
        log.segments.deinit(log.gpa);
        log.* = undefined;
    }

    pub fn invariants(log: *const Log) void {
        assert(log.base.offset <= log.tip.offset);
        assert(log.tip.offset - log.base.offset <= log.limits.entries_max);
        assert((log.base.offset == log.tip.offset) == (log.segments.len == 0));
        const last = log.segments.back() orelse {
            assert(log.bytes == 0 and log.framed_bytes == 0);
            return;
        };
        assert(last.last() == log.tip.offset and last.entry(log.tip.offset).check == log.tip.check);
        const first = log.segments.front().?;
        assert(first.before.offset <= log.base.offset and log.base.offset < first.last());
        assert(first.mark(log.base.offset).check == log.base.check);
    }

    /// The position of the newest entry. A reader that comes with it gets the entries behind it.
    pub fn now(log: *const Log) Position {
        return .{ .epoch = log.epoch, .mark = log.tip };
    }

    /// Adds an entry that this hub publishes, and trims the history. On error nothing changes.
    pub fn append(
        log: *Log,
        hub: u48,
        sequence: u64,
        time_ms: u64,
        bytes: []const u8,
    ) error{ OutOfMemory, TooLong }!Mark {
        const mark = log.tip.next(hub, sequence);
        try log.add(mark, time_ms, bytes);
        return mark;
    }

    /// The result of `place`: the entry was appended, or why it was not.
    pub const Place = enum {
        appended,
        /// The log has the entry already.
        repeated,
        /// Entries between the log's newest entry and this one are missing.
        gap,
        /// The entry belongs to another history than the log's.
        diverged,
    };

    /// Adds the entry if it is the log's next one.
    pub fn place(log: *Log, entry: Placed, time_ms: u64) error{ OutOfMemory, TooLong }!Place {
        if (entry.epoch != log.epoch) return .diverged;
        if (entry.mark.offset <= log.tip.offset) {
            // A trimmed entry cannot be compared. A later entry, which is kept, will be.
            if (entry.mark.offset < log.base.offset) return .repeated;
            return if (log.markAt(entry.mark.offset).check == entry.mark.check) .repeated else .diverged;
        }
        if (entry.mark.offset > log.tip.offset + 1) return .gap;
        const expected = log.tip.next(entry.hub, entry.sequence);
        if (expected.check != entry.mark.check) return .diverged;
        try log.add(entry.mark, time_ms, entry.bytes);
        return .appended;
    }

    /// Adds the next entry of the hub's history, whose check needs no test. False: it is not the log's next
    /// entry.
    pub fn follow(
        log: *Log,
        at: Position,
        time_ms: u64,
        bytes: []const u8,
    ) error{ OutOfMemory, TooLong }!bool {
        if (at.epoch != log.epoch or at.mark.offset != log.tip.offset + 1) return false;
        try log.add(at.mark, time_ms, bytes);
        return true;
    }

    /// Drops all entries.
    pub fn clear(log: *Log) void {
        while (log.segments.len > 0) log.dropFirst();
        log.bytes = 0;
        log.base = log.tip;
        log.invariants();
    }

    /// Begins the history anew, so that all readers get a reset.
    pub fn restart(log: *Log, epoch: position.Epoch, mark: Mark) void {
        while (log.segments.len > 0) log.dropFirst();
        log.bytes = 0;
        log.epoch = epoch;
        log.base = mark;
        log.tip = mark;
        log.generation +%= 1;
        log.invariants();
    }

    /// The mark of a kept entry, or of the entry before the first kept one.
    pub fn markAt(log: *const Log, offset: u64) Mark {
        if (offset == log.base.offset) return log.base;
        if (offset == log.tip.offset) return log.tip;
        return log.segmentOf(offset).mark(offset);
    }

    /// The segment of a kept entry.
    pub fn segmentOf(log: *const Log, offset: u64) *Segment {
        assert(offset > log.base.offset and offset <= log.tip.offset);
        var low: usize = 0;
        var high = log.segments.len;
        while (high - low > 1) {
            const middle = low + (high - low) / 2;
            if (log.segments.at(middle).before.offset < offset) low = middle else high = middle;
        }
        const segment = log.segments.at(low);
        assert(segment.before.offset < offset and offset <= segment.last());
        return segment;
    }

    fn add(log: *Log, mark: Mark, time_ms: u64, bytes: []const u8) error{ OutOfMemory, TooLong }!void {
        assert(mark.offset == log.tip.offset + 1);
        if (bytes.len > log.limits.message_bytes_max) return error.TooLong;
        if (log.growing(bytes.len)) |segment| {
            try segment.add(log.gpa, mark.check, time_ms, bytes);
        } else {
            try log.segments.ensureUnusedCapacity(log.gpa, 1);
            const segment: *Segment = try .create(log.gpa, log.tip);
            errdefer segment.destroy(log.gpa);
            try segment.add(log.gpa, mark.check, time_ms, bytes);
            if (log.segments.back()) |last| if (last.place == .open) last.seal(log.gpa);
            log.segments.pushBackAssumeCapacity(segment);
        }
        log.tip = mark;
        log.bytes += bytes.len;
        log.trim(time_ms);
    }

    /// The open segment if it has room for `len` bytes; null: it has not, or there is none.
    fn growing(log: *const Log, len: usize) ?*Segment {
        const last = log.segments.back() orelse return null;
        if (last.place != .open) return null;
        if (last.entries.items.len >= log.limits.segment_entries_max) return null;
        if (last.payload.items.len + len > log.limits.segment_bytes_max) return null;
        return last;
    }

    /// Drops entries beyond the limits.
    pub fn trim(log: *Log, time_ms: u64) void {
        while (log.segments.front()) |first| {
            const offset = log.base.offset + 1;
            const entry = first.entry(offset);
            const is_over = log.tip.offset - log.base.offset > log.limits.entries_max or
                (log.bytes > log.limits.bytes_max and offset < log.tip.offset) or
                time_ms -| entry.time_ms > log.limits.age_ms_max;
            if (!is_over) break;
            log.base = .{ .offset = offset, .check = entry.check };
            log.bytes -= entry.end - first.start(offset);
            if (offset == first.last()) log.dropFirst();
        }
        log.invariants();
    }

    fn dropFirst(log: *Log) void {
        const segment = log.segments.popFront().?;
        const framed = segment.framedBytes();
        log.framed_bytes -= framed;
        if (segment.holds == 0) return segment.destroy(log.gpa);
        segment.place = .stale;
        log.stale_bytes += framed + segment.payload.items.len;
    }

    /// Makes the cursor of a reader that begins or comes back.
    pub fn begin(log: *const Log, since: position.Since) Resumed {
        const at_tip: Cursor = .{ .generation = log.generation, .offset = log.tip.offset };
        const after = switch (since) {
            .now => return .{ .current = at_tip },
            .after => |after| after,
        };
        const why: Resumed.Why = if (after.epoch != log.epoch)
            .epoch
        else if (after.mark.offset > log.tip.offset)
            .ahead
        else if (after.mark.offset < log.base.offset)
            .trimmed
        else if (after.mark.check != log.markAt(after.mark.offset).check)
            .other_entry
        else if (after.mark.offset == log.tip.offset)
            return .{ .current = at_tip }
        else
            return .{ .behind = .{ .generation = log.generation, .offset = after.mark.offset } };
        return .{ .reset = .{ .why = why, .cursor = at_tip } };
    }

    /// The lag of a reader. A segment that was partly sent counts as not sent.
    pub fn lag(log: *const Log, cursor: *const Cursor) Lag {
        if (cursor.generation != log.generation) return .{ .entries = 0, .bytes = 0 };
        return .{
            .entries = log.tip.offset - cursor.offset,
            .bytes = log.bytesBehind(@max(cursor.offset, log.base.offset)),
        };
    }

    fn bytesBehind(log: *const Log, offset: u64) u64 {
        if (offset == log.tip.offset) return 0;
        const segment = log.segmentOf(offset + 1);
        var bytes: u64 = segment.payload.items.len - segment.start(offset + 1);
        var index = log.segments.len - 1;
        while (log.segments.at(index) != segment) : (index -= 1) {
            bytes += log.segments.at(index).payload.items.len;
        }
        return bytes;
    }

    /// The next step of a reader. On error nothing changes.
    pub fn next(log: *Log, cursor: *Cursor, want: Want, framer: Framer) Allocator.Error!Next {
        if (cursor.hold) |*hold| {
            if (hold.segment.place == .stale) log.shorten(cursor);
        }
        if (cursor.hold) |hold| return .{ .bytes = hold.frames.bytes[hold.at..hold.end] };
        if (cursor.generation != log.generation) {
            cursor.* = .{ .generation = log.generation, .offset = log.tip.offset };
            return .{ .reset = log.now() };
        }
        if (cursor.offset == log.tip.offset) return .nothing;
        if (log.isTooFar(cursor, want.quota)) {
            const count = log.tip.offset - cursor.offset;
            if (want.behind == .cut) return .cut;
            cursor.offset = log.tip.offset;
            return .{ .skipped = count };
        }
        return log.take(cursor, want.variant, framer);
    }

    fn isTooFar(log: *const Log, cursor: *const Cursor, quota: Lag) bool {
        if (cursor.offset < log.base.offset) return true;
        if (log.tip.offset - cursor.offset > quota.entries) return true;
        // Nearly always all kept entries are within a reader's quota.
        return log.bytes > quota.bytes and log.bytesBehind(cursor.offset) > quota.bytes;
    }

    /// Lets the cursor hold the segment with its next entry.
    fn take(log: *Log, cursor: *Cursor, variant: Variant, framer: Framer) Allocator.Error!Next {
        const segment = log.segmentOf(cursor.offset + 1);
        if (segment.place == .open) segment.seal(log.gpa);
        const frames = try log.framesOf(segment, variant, framer);
        const index: usize = @intCast(cursor.offset - segment.before.offset);
        segment.holds += 1;
        cursor.hold = .{
            .segment = segment,
            .frames = frames,
            .at = frames.start(index),
            .end = @intCast(frames.bytes.len),
        };
        log.limitFrames();
        segment.invariants();
        return .{ .bytes = frames.bytes[cursor.hold.?.at..] };
    }

    fn framesOf(
        log: *Log,
        segment: *Segment,
        wanted: Variant,
        framer: Framer,
    ) Allocator.Error!*Frames {
        const variant = wanted.canonical(segment, framer.deflate_bytes_min);
        for (segment.frames.items) |frames| if (std.meta.eql(frames.variant, variant)) return frames;
        try segment.frames.ensureUnusedCapacity(log.gpa, 1);
        const frames = try framer.make(log.gpa, segment, log.epoch, variant);
        segment.frames.appendAssumeCapacity(frames);
        log.framed_bytes += frames.size();
        return frames;
    }

    /// Frees the oldest frames that no reader holds.
    fn limitFrames(log: *Log) void {
        if (log.framed_bytes <= log.limits.framed_bytes_max) return;
        for (0..log.segments.len) |index| {
            const segment = log.segments.at(index);
            if (segment.holds > 0 or segment.frames.items.len == 0) continue;
            log.framed_bytes -= segment.dropFrames(log.gpa);
            if (log.framed_bytes <= log.limits.framed_bytes_max) return;
        }
    }

    /// Limits what is sent of a segment that is no longer part of the log to the frame that has begun.
    fn shorten(log: *Log, cursor: *Cursor) void {
        const hold = &cursor.hold.?;
        const index = hold.frames.entriesBefore(hold.at);
        const start = hold.frames.start(index);
        assert(start <= hold.at and hold.at < hold.end);
        hold.end = if (start == hold.at) start else hold.frames.ends[index];
        if (hold.at == hold.end) log.release(cursor);
    }

    /// Notes that the reader's connection has taken `count` bytes of those that `next` gave.
    pub fn sent(log: *Log, cursor: *Cursor, count: usize) void {
        const hold = &cursor.hold.?;
        assert(count <= hold.end - hold.at);
        hold.at += @intCast(count);
        if (hold.at == hold.end) log.release(cursor);
    }

    /// The number of bytes to the end of the present frame.
    pub fn frameEnd(cursor: *const Cursor) usize {
        const hold = cursor.hold.?;
        return hold.frames.ends[hold.frames.entriesBefore(hold.at)] - hold.at;
    }

    /// Gives the reader's segment back. The cursor stands behind the entries whose frames were sent as a
    /// whole.
    pub fn release(log: *Log, cursor: *Cursor) void {
        const hold = cursor.hold orelse return;
        const segment = hold.segment;
        cursor.offset = segment.before.offset + hold.frames.entriesBefore(hold.at);
        cursor.hold = null;
        assert(segment.holds > 0);
        segment.holds -= 1;
        if (segment.place != .stale or segment.holds > 0) return;
        log.stale_bytes -= segment.framedBytes() + segment.payload.items.len;
        segment.destroy(log.gpa);
    }

    /// An iterator over kept entries behind an offset. Valid until the log changes.
    pub fn entriesAfter(log: *const Log, offset: u64) Entries {
        return .{ .log = log, .offset = @max(offset, log.base.offset) };
    }

    pub const Entries = struct {
        log: *const Log,
        offset: u64,

        pub fn next(entries: *Entries) ?struct { mark: Mark, bytes: []const u8 } {
            if (entries.offset == entries.log.tip.offset) return null;
            entries.offset += 1;
            const segment = entries.log.segmentOf(entries.offset);
            return .{ .mark = segment.mark(entries.offset), .bytes = segment.bytes(entries.offset) };
        }
    };
};
