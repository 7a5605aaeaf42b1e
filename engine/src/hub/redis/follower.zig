//! One topic in Redis and its log here: joins what is heard with what is read, so that the log has each entry
//! once and in order, or begins anew. Does not know: connections.
const std = @import("std");
const assert = std.debug.assert;
const log_file = @import("../log.zig");
const Log = log_file.Log;
const Placed = log_file.Placed;
const position = @import("../position.zig");
const Mark = position.Mark;
const Position = position.Position;

/// The state of a topic between its log here and Redis, and the work that it asks for.
pub const Follower = struct {
    log: *Log,
    state: State = .{ .away = .beginning },

    pub const State = union(enum) {
        /// The topic's channel is not subscribed to. Once it is, history is read from here on.
        away: Start,
        /// History has to be read from this offset on.
        wanting: Start,
        reading: Reading,
        /// The log has all that was published. Readers are served in this state alone: while a log is read
        /// anew it begins more than once, and each time would be a reset.
        live,
    };

    const Start = union(enum) {
        /// All that Redis has: the log holds nothing of this history.
        beginning,
        /// The log's newest entry, to see whether it is still there, and those behind it.
        tip,
    };

    const Reading = struct {
        start: Start,
        /// The log's newest offset when the read began.
        from: u64,
        /// The newest entry when the read began; null: its answer has not come.
        head: ?Position = null,
        /// An entry was read.
        anchored: bool = false,
        /// The newest entry that was heard meanwhile and did not fit.
        heard: u64 = 0,
        /// Whether the topic's channel was subscribed to all the time. A read goes on without, so that a
        /// connection that is lost again and again holds none up.
        channel: enum { kept, lost, back } = .kept,
    };

    /// A log that has nothing of this topic yet. Its readers get a reset if they know more.
    pub fn init(log: *Log) Follower {
        return .{ .log = log };
    }

    /// The offset to read from; null: no read is due. The read begins.
    pub fn begin(follower: *Follower) ?u64 {
        const start = switch (follower.state) {
            .wanting => |start| start,
            else => return null,
        };
        follower.state = .{ .reading = .{ .start = start, .from = follower.log.tip.offset } };
        return switch (start) {
            .beginning => 0,
            .tip => follower.log.tip.offset,
        };
    }

    /// Entries are heard from here on.
    pub fn subscribed(follower: *Follower) void {
        const start = follower.nextStart();
        switch (follower.state) {
            .reading => |*reading| reading.channel = .back,
            .away, .wanting, .live => follower.state = .{ .wanting = start },
        }
    }

    /// The follower hears no publications any more.
    pub fn unheard(follower: *Follower) void {
        const start = follower.nextStart();
        switch (follower.state) {
            .reading => |*reading| reading.channel = .lost,
            .away, .wanting, .live => follower.state = .{ .away = start },
        }
    }

    /// The start of the next read if the present one breaks off.
    fn nextStart(follower: *const Follower) Start {
        return switch (follower.state) {
            .away, .wanting => |start| start,
            .reading => |reading| if (reading.anchored) .tip else reading.start,
            .live => .tip,
        };
    }

    /// A read broke off.
    pub fn broken(follower: *Follower) void {
        if (follower.state == .reading) follower.readOn(follower.nextStart());
    }

    /// The read is over, and the topic has to be read from here on.
    fn readOn(follower: *Follower, start: Start) void {
        switch (follower.state.reading.channel) {
            .lost => follower.state = .{ .away = start },
            .kept, .back => follower.state = .{ .wanting = start },
        }
    }

    /// An entry was heard.
    pub fn hear(follower: *Follower, placed: Placed, time_ms: u64) void {
        switch (follower.state) {
            .away => {},
            .wanting => |start| if (start == .tip) {
                // An entry that does not fit is read.
                _ = follower.place(placed, time_ms);
            },
            .reading => |*reading| {
                const is_loading = reading.start == .beginning and !reading.anchored;
                const result: Result = if (is_loading) .missed else follower.place(placed, time_ms);
                if (result == .missed) reading.heard = @max(reading.heard, placed.mark.offset);
            },
            .live => if (follower.place(placed, time_ms) == .missed) {
                follower.state = .{ .wanting = .tip };
            },
        }
    }

    const Result = enum { there, missed };

    fn place(follower: *Follower, placed: Placed, time_ms: u64) Result {
        const log = follower.log;
        const is_next = placed.epoch == log.epoch and placed.mark.offset -| 1 == log.tip.offset;
        if (is_next and placed.bytes.len == 0) {
            // No hub publishes it: it would have no frame in some variants.
            log.restart(placed.epoch, placed.mark);
            return .there;
        }
        const result = log.place(placed, time_ms) catch |err| switch (err) {
            error.OutOfMemory => return .missed,
            error.TooLong => {
                // Other machines may allow longer entries. Readers are told that they have missed one.
                log.restart(placed.epoch, placed.mark);
                return .there;
            },
        };
        return switch (result) {
            .appended, .repeated => .there,
            .gap, .diverged => .missed,
        };
    }

    /// A read has found the topic's newest place.
    pub fn head(follower: *Follower, at: Position) void {
        const reading = switch (follower.state) {
            .reading => |*reading| reading,
            else => return,
        };
        reading.head = at;
        const log = follower.log;
        if (std.meta.eql(at, log.now())) return;
        switch (reading.start) {
            .beginning => log.restart(at.epoch, at.mark),
            .tip => if (!follower.knows(at, reading.from)) follower.reload(at),
        }
    }

    /// Whether the place goes with the log. Entries that were heard since the read began may be newer.
    fn knows(follower: *const Follower, at: Position, from: u64) bool {
        const log = follower.log;
        if (at.epoch != log.epoch or at.mark.offset < from) return false;
        if (at.mark.offset > log.tip.offset or at.mark.offset < log.base.offset) return true;
        return log.markAt(at.mark.offset).check == at.mark.check;
    }

    /// The log begins anew, and what Redis has is read from its beginning.
    fn reload(follower: *Follower, at: Position) void {
        follower.log.restart(at.epoch, at.mark);
        follower.readOn(.beginning);
    }

    /// A read has found an entry.
    pub fn entry(follower: *Follower, placed: Placed, time_ms: u64) void {
        const reading = switch (follower.state) {
            .reading => |*reading| reading,
            // The log began anew: the rest of this read does not matter.
            else => return,
        };
        const log = follower.log;
        if (reading.start == .beginning and !reading.anchored) {
            reading.anchored = true;
            // The check of the entry before is not known: the oldest entry is the mark, but for the first.
            if (placed.mark.offset > 1) return log.restart(placed.epoch, placed.mark);
            log.restart(placed.epoch, .origin);
        }
        reading.anchored = true;
        // Redis has trimmed the entries between, or the log has entries that differ.
        if (follower.place(placed, time_ms) == .missed) follower.reload(reading.head.?);
    }

    /// A read is complete.
    pub fn end(follower: *Follower, full: bool) void {
        const reading = switch (follower.state) {
            .reading => |reading| reading,
            else => return,
        };
        const log = follower.log;
        const at = reading.head.?;
        // Entries are gone, and only their places are known.
        if (!full and log.tip.offset < at.mark.offset) log.restart(at.epoch, at.mark);
        const more = full or reading.heard > log.tip.offset or reading.channel != .kept;
        if (more) follower.readOn(.tip) else follower.state = .live;
    }
};
