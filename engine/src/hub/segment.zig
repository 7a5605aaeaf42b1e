//! Consecutive entries of a topic, with the frames that readers share. Does not know: which segments a topic
//! keeps, and where readers are (log.zig).
const std = @import("std");
const assert = std.debug.assert;
const Frames = @import("frames.zig").Frames;
const position = @import("position.zig");
const Mark = position.Mark;

/// A run of entries. It grows at its end while it is open. A sealed segment never changes, so that readers
/// can send frames of its entries at any time.
pub const Segment = struct {
    /// The mark of the entry before the segment's first one.
    before: Mark,
    entries: std.ArrayList(Entry) = .empty,
    payload: std.ArrayList(u8) = .empty,
    frames: std.ArrayList(*Frames) = .empty,
    /// The number of readers that hold frames of the segment.
    holds: u32 = 0,
    place: Place = .open,

    pub const Place = enum {
        /// The last segment of its topic. No reader holds it.
        open,
        /// A segment of its topic that does not change any more.
        sealed,
        /// A segment that is no longer part of its topic. Its last reader frees it.
        stale,
    };

    pub const Entry = struct {
        check: position.Check,
        /// The end of the entry's bytes in `payload`.
        end: u32,
        time_ms: u64,
    };

    pub fn create(gpa: std.mem.Allocator, before: Mark) std.mem.Allocator.Error!*Segment {
        const segment = try gpa.create(Segment);
        segment.* = .{ .before = before };
        return segment;
    }

    pub fn destroy(segment: *Segment, gpa: std.mem.Allocator) void {
        assert(segment.holds == 0);
        for (segment.frames.items) |frames| frames.part();
        segment.frames.deinit(gpa);
        segment.entries.deinit(gpa);
        segment.payload.deinit(gpa);
        gpa.destroy(segment);
    }

    pub fn invariants(segment: *const Segment) void {
        assert(segment.place != .open or (segment.holds == 0 and segment.frames.items.len == 0));
        assert(segment.place != .stale or segment.holds > 0);
        const entries = segment.entries.items;
        if (entries.len > 0) assert(entries[entries.len - 1].end == segment.payload.items.len);
    }

    /// The offset of the segment's last entry.
    pub fn last(segment: *const Segment) u64 {
        return segment.before.offset + segment.entries.items.len;
    }

    /// The mark of an entry of the segment, or of the entry before its first one.
    pub fn mark(segment: *const Segment, offset: u64) Mark {
        if (offset == segment.before.offset) return segment.before;
        return .{ .offset = offset, .check = segment.entry(offset).check };
    }

    pub fn entry(segment: *const Segment, offset: u64) *const Entry {
        return &segment.entries.items[@intCast(offset - segment.before.offset - 1)];
    }

    /// The beginning of the entry's bytes in `payload`.
    pub fn start(segment: *const Segment, offset: u64) u32 {
        if (offset == segment.before.offset + 1) return 0;
        return segment.entry(offset - 1).end;
    }

    /// The bytes of an entry, valid while the segment is sealed.
    pub fn bytes(segment: *const Segment, offset: u64) []const u8 {
        return segment.payload.items[segment.start(offset)..segment.entry(offset).end];
    }

    /// Adds an entry. On error nothing changes.
    pub fn add(
        segment: *Segment,
        gpa: std.mem.Allocator,
        check: position.Check,
        time_ms: u64,
        payload: []const u8,
    ) std.mem.Allocator.Error!void {
        assert(segment.place == .open);
        try segment.entries.ensureUnusedCapacity(gpa, 1);
        try segment.payload.appendSlice(gpa, payload);
        segment.entries.appendAssumeCapacity(.{
            .check = check,
            .end = @intCast(segment.payload.items.len),
            .time_ms = time_ms,
        });
        segment.invariants();
    }

    /// Ends the growth of the segment.
    pub fn seal(segment: *Segment, gpa: std.mem.Allocator) void {
        assert(segment.place == .open);
        segment.place = .sealed;
        // The allocator may fail to shrink memory, which is then kept.
        segment.entries.shrinkAndFree(gpa, segment.entries.items.len);
        segment.payload.shrinkAndFree(gpa, segment.payload.items.len);
        segment.invariants();
    }

    /// Frees the segment's frames. Returns their bytes.
    pub fn dropFrames(segment: *Segment, gpa: std.mem.Allocator) usize {
        assert(segment.holds == 0);
        const size = segment.framedBytes();
        for (segment.frames.items) |frames| frames.part();
        segment.frames.clearAndFree(gpa);
        return size;
    }

    pub fn framedBytes(segment: *const Segment) usize {
        var size: usize = 0;
        for (segment.frames.items) |frames| size += frames.size();
        return size;
    }
};
