//! The state of one topic between Redis and its log here. It joins entries that are heard with entries that
//! are read, so that the log has each entry once and in order, or begins anew. Does not know: connections.
const std = @import("std");
const assert = std.debug.assert;
const log_file = @import("../log.zig");
const Log = log_file.Log;
const Placed = log_file.Placed;
const position = @import("../position.zig");
const Mark = position.Mark;
const Position = position.Position;

/// The state of a topic, and the work that is due for it.
pub const Follower = struct {
    log: *Log,
    state: State = .{ .away = .beginning },

    pub const State = union(enum) {
        /// The topic's channel is not subscribed to. When it is, history is read from this start on.
        away: Start,
        /// History must be read from this start on.
        wanting: Start,
        reading: Reading,
        /// The log has all published entries. Readers are served only in this state: while history is read, a
        /// log may begin anew several times, and each time would be a reset.
        live,
    };

    const Start = union(enum) {
        /// The oldest entry in Redis: the log holds nothing of this history.
        beginning,
        /// The log's newest entry, to check that Redis has it, and then the entries behind it.
        tip,
    };

    const Reading = struct {
        start: Start,
        /// The offset of the log's newest entry when the read began.
        from: u64,
        /// The topic's newest position when the read began; null: the answer has not come yet.
        head: ?Position = null,
        /// An entry was read.
        anchored: bool = false,
        /// The largest offset of an entry that was heard meanwhile and did not fit.
        heard: u64 = 0,
        /// Whether the topic's channel was subscribed to all the time. A read also goes on without that, so
        /// that a connection that is lost again and again does not delay it for ever.
        channel: enum { kept, lost, back } = .kept,
    };

    /// Creates the state of a log without entries of this topic. Readers that know some get a reset.
    pub fn init(log: *Log) Follower {
        return .{ .log = log };
    }

    /// Begins a read if one is due, and returns the offset to read from; null: none is due.
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

    /// Notes that entries are heard from now on.
    pub fn subscribed(follower: *Follower) void {
        const start = follower.nextStart();
        switch (follower.state) {
            .reading => |*reading| reading.channel = .back,
            .away, .wanting, .live => follower.state = .{ .wanting = start },
        }
    }

    /// Notes that no entries are heard any more.
    pub fn unheard(follower: *Follower) void {
        const start = follower.nextStart();
        switch (follower.state) {
            .reading => |*reading| reading.channel = .lost,
            .away, .wanting, .live => follower.state = .{ .away = start },
        }
    }

    /// The start of the next read if the present one fails now.
    fn nextStart(follower: *const Follower) Start {
        return switch (follower.state) {
            .away, .wanting => |start| start,
            .reading => |reading| if (reading.anchored) .tip else reading.start,
            .live => .tip,
        };
    }

    /// Notes that a read has failed.
    pub fn broken(follower: *Follower) void {
        if (follower.state == .reading) follower.readOn(follower.nextStart());
    }

    /// Ends the present read, and marks the topic to be read from `start` on.
    fn readOn(follower: *Follower, start: Start) void {
        switch (follower.state.reading.channel) {
            .lost => follower.state = .{ .away = start },
            .kept, .back => follower.state = .{ .wanting = start },
        }
    }

    /// Handles an entry that was heard.
    pub fn hear(follower: *Follower, placed: Placed, time_ms: u64) void {
        switch (follower.state) {
            .away => {},
            .wanting => |start| if (start == .tip) {
                // An entry that does not fit will be read.
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
            // An entry without bytes, which no hub publishes: it would have no frame in some variants.
            log.restart(placed.epoch, placed.mark);
            return .there;
        }
        const result = log.place(placed, time_ms) catch |err| switch (err) {
            error.OutOfMemory => return .missed,
            error.TooLong => {
                // Other machines may allow longer entries. The reset tells readers that they have missed one.
                log.restart(placed.epoch, placed.mark);
                return .there;
            },
        };
        return switch (result) {
            .appended, .repeated => .there,
            .gap, .diverged => .missed,
        };
    }

    /// Handles the topic's newest position, which a read gets first.
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

    /// Whether a position fits the log. Entries that were heard since the read began may be newer.
    fn knows(follower: *const Follower, at: Position, from: u64) bool {
        const log = follower.log;
        if (at.epoch != log.epoch or at.mark.offset < from) return false;
        if (at.mark.offset > log.tip.offset or at.mark.offset < log.base.offset) return true;
        return log.markAt(at.mark.offset).check == at.mark.check;
    }

    /// Begins the log anew, and reads all entries of Redis.
    fn reload(follower: *Follower, at: Position) void {
        follower.log.restart(at.epoch, at.mark);
        follower.readOn(.beginning);
    }

    /// Handles an entry that was read.
    pub fn entry(follower: *Follower, placed: Placed, time_ms: u64) void {
        const reading = switch (follower.state) {
            .reading => |*reading| reading,
            // The log began anew, so the rest of this read does not matter.
            else => return,
        };
        const log = follower.log;
        if (reading.start == .beginning and !reading.anchored) {
            reading.anchored = true;
            // The check before the oldest entry is not known unless it is the first one, so the log begins
            // behind it.
            if (placed.mark.offset > 1) return log.restart(placed.epoch, placed.mark);
            log.restart(placed.epoch, .origin);
        }
        reading.anchored = true;
        // Redis has trimmed entries in between, or the log has other entries.
        if (follower.place(placed, time_ms) == .missed) follower.reload(reading.head.?);
    }

    /// Ends a read. `full`: there may be further entries behind it.
    pub fn end(follower: *Follower, full: bool) void {
        const reading = switch (follower.state) {
            .reading => |reading| reading,
            else => return,
        };
        const log = follower.log;
        const at = reading.head.?;
        // Redis has dropped entries, and only the newest position is known.
        if (!full and log.tip.offset < at.mark.offset) log.restart(at.epoch, at.mark);
        const more = full or reading.heard > log.tip.offset or reading.channel != .kept;
        if (more) follower.readOn(.tip) else follower.state = .live;
    }
};
