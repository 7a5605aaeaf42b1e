//! The history of one topic: entries with offsets that have no gaps, and the readers' way through them.
//! Readers hold a place, and at most one segment that is partly sent: memory belongs to the topic, however
//! many readers there are. Does not know: where entries come from, and sockets.
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

/// Bounds of a topic's history.
pub const Limits = struct {
    entries_max: u32,
    /// The most bytes of all entries. The newest entry is kept even if it is longer.
    bytes_max: u64,
    age_ms_max: u64,
    segment_entries_max: u32,
    /// A longer entry has a segment of its own.
    segment_bytes_max: u32,
    /// The most bytes of frames that are kept for further readers.
    framed_bytes_max: u64,
    /// The most bytes of an entry.
    message_bytes_max: u32,

    /// The limits of the hub.
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

/// An entry that somebody else has given its place.
pub const Placed = struct {
    epoch: position.Epoch,
    mark: Mark,
    /// The hub that has published it, and the number that it gave.
    hub: u48,
    sequence: u64,
    bytes: []const u8,
};

/// The place of a reader in a log. A value of its reader, which releases it.
pub const Cursor = struct {
    /// Changes when the history begins anew.
    generation: u32,
    /// The offset of the last entry that was sent, or passed over.
    offset: u64,
    hold: ?Hold = null,

    /// A segment that is partly sent.
    const Hold = struct {
        segment: *Segment,
        frames: *Frames,
        /// The bytes of frames that are to be sent.
        at: u32,
        end: u32,
    };
};

/// A reader's wishes.
pub const Want = struct {
    variant: Variant,
    /// How far the reader may be behind the newest entry.
    quota: Lag = .{ .entries = std.math.maxInt(u64), .bytes = std.math.maxInt(u64) },
    /// The fate of a reader that is further behind than its quota, or than the history goes back.
    behind: enum { cut, skip } = .cut,
};

/// How far a reader is behind the newest entry.
pub const Lag = struct {
    entries: u64,
    /// Bytes of the entries that are kept.
    bytes: u64,
};

/// The step that a reader of the log takes next.
pub const Next = union(enum) {
    /// The reader has every entry.
    nothing,
    /// Bytes of frames. Valid until `sent` has taken all of them, or `release`.
    bytes: []const u8,
    /// The number of entries that a reader too far behind has missed. The entry that is published next is
    /// its next one.
    skipped: u64,
    /// The reader is too far behind, and is to be ended.
    cut,
    /// The reader may have seen entries that other readers have not. Its next entry is the one behind this
    /// position.
    reset: Position,
};

/// The result of a reader's return.
pub const Resumed = union(enum) {
    /// The reader has read all entries.
    current: Cursor,
    /// Entries follow.
    behind: Cursor,
    /// The reader's position is none of this history, or is not in it any more. The reader goes on with
    /// the next entry.
    reset: struct { why: Why, cursor: Cursor },

    pub const Why = enum {
        /// The history began anew.
        epoch,
        /// The log has no entry at this offset yet.
        ahead,
        /// The log's entry at this offset is another one than the reader names.
        other_entry,
        /// Entries that would follow are gone.
        trimmed,
    };
};

/// The entries of a topic.
pub const Log = struct {
    gpa: Allocator,
    limits: Limits,
    epoch: position.Epoch,
    generation: u32 = 0,
    /// The entry before the first that is kept.
    base: Mark,
    /// The newest entry.
    tip: Mark,
    /// Segments with at least one kept entry, oldest first.
    segments: std.Deque(*Segment) = .empty,
    /// Bytes of kept entries.
    bytes: u64 = 0,
    /// Bytes of frames in these segments.
    framed_bytes: u64 = 0,
    /// Bytes of entries and frames of stale segments.
    stale_bytes: u64 = 0,

    /// A history whose next entry follows `mark`: `Mark.origin` if it is the topic's first.
    pub fn init(gpa: Allocator, limits: Limits, epoch: position.Epoch, mark: Mark) Log {
        return .{ .gpa = gpa, .limits = limits, .epoch = epoch, .base = mark, .tip = mark };
    }

    /// All readers have released their cursors.
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

    /// The position of the newest entry: a reader that shows it gets what is published from here on.
    pub fn now(log: *const Log) Position {
        return .{ .epoch = log.epoch, .mark = log.tip };
    }

    /// Adds an entry that is published here, and trims. Nothing changes on error.
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

    /// How an entry fits that somebody else has given its place.
    pub const Place = enum {
        appended,
        /// The log has the entry already.
        repeated,
        /// Entries before it are missing.
        gap,
        /// The entry belongs to another history than those of the log.
        diverged,
    };

    /// Adds the entry if it is the next one.
    pub fn place(log: *Log, entry: Placed, time_ms: u64) error{ OutOfMemory, TooLong }!Place {
        if (entry.epoch != log.epoch) return .diverged;
        if (entry.mark.offset <= log.tip.offset) {
            // An entry that was trimmed cannot be compared: the next one that is not can.
            if (entry.mark.offset < log.base.offset) return .repeated;
            return if (log.markAt(entry.mark.offset).check == entry.mark.check) .repeated else .diverged;
        }
        if (entry.mark.offset > log.tip.offset + 1) return .gap;
        const expected = log.tip.next(entry.hub, entry.sequence);
        if (expected.check != entry.mark.check) return .diverged;
        try log.add(entry.mark, time_ms, entry.bytes);
        return .appended;
    }

    /// Adds the next entry of a history that is trusted: a hub's, which has checked it. False: it is not the
    /// next one.
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

    /// Lets go of all entries.
    pub fn clear(log: *Log) void {
        while (log.segments.len > 0) log.dropFirst();
        log.bytes = 0;
        log.base = log.tip;
        log.invariants();
    }

    /// The history begins anew: all readers get a reset.
    pub fn restart(log: *Log, epoch: position.Epoch, mark: Mark) void {
        while (log.segments.len > 0) log.dropFirst();
        log.bytes = 0;
        log.epoch = epoch;
        log.base = mark;
        log.tip = mark;
        log.generation +%= 1;
        log.invariants();
    }

    /// The mark of a kept entry, or of the one before them.
    pub fn markAt(log: *const Log, offset: u64) Mark {
        if (offset == log.base.offset) return log.base;
        if (offset == log.tip.offset) return log.tip;
        return log.segmentOf(offset).mark(offset);
    }

    /// The segment that a kept entry is in.
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

    /// The open segment, if it has room.
    fn growing(log: *const Log, len: usize) ?*Segment {
        const last = log.segments.back() orelse return null;
        if (last.place != .open) return null;
        if (last.entries.items.len >= log.limits.segment_entries_max) return null;
        if (last.payload.items.len + len > log.limits.segment_bytes_max) return null;
        return last;
    }

    /// Lets go of entries beyond the limits.
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

    /// A cursor of a reader that begins, or comes back.
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

    /// How far a reader is behind. A segment that it is being sent counts as not sent.
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

    /// The reader's next bytes. Nothing changes on error.
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
        // All that is kept is within the quota of most readers.
        return log.bytes > quota.bytes and log.bytesBehind(cursor.offset) > quota.bytes;
    }

    /// Holds the segment with the entry behind the cursor.
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

    /// Gives back the oldest frames that nobody sends.
    fn limitFrames(log: *Log) void {
        if (log.framed_bytes <= log.limits.framed_bytes_max) return;
        for (0..log.segments.len) |index| {
            const segment = log.segments.at(index);
            if (segment.holds > 0 or segment.frames.items.len == 0) continue;
            log.framed_bytes -= segment.dropFrames(log.gpa);
            if (log.framed_bytes <= log.limits.framed_bytes_max) return;
        }
    }

    /// Of a segment that is no longer part of the topic, only the frame that has begun goes out.
    fn shorten(log: *Log, cursor: *Cursor) void {
        const hold = &cursor.hold.?;
        const index = hold.frames.entriesBefore(hold.at);
        const start = hold.frames.start(index);
        assert(start <= hold.at and hold.at < hold.end);
        hold.end = if (start == hold.at) start else hold.frames.ends[index];
        if (hold.at == hold.end) log.release(cursor);
    }

    /// The reader's connection has taken bytes that `next` gave.
    pub fn sent(log: *Log, cursor: *Cursor, count: usize) void {
        const hold = &cursor.hold.?;
        assert(count <= hold.end - hold.at);
        hold.at += @intCast(count);
        if (hold.at == hold.end) log.release(cursor);
    }

    /// The end of the frame that the reader's next bytes begin with.
    pub fn frameEnd(cursor: *const Cursor) usize {
        const hold = cursor.hold.?;
        return hold.frames.ends[hold.frames.entriesBefore(hold.at)] - hold.at;
    }

    /// The reader lets go of its segment: entries whose frames it has sent are behind it.
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

    /// The kept entries behind an offset, one by one. Valid until the log changes.
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
