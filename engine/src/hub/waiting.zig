//! Requests of nodes that a hub answers after an event of Redis, in the order in which they came. Does not
//! know: the events.
const std = @import("std");
const Asker = @import("redis/redis.zig").Asker;
const limits = @import("limits.zig");
const loads_file = @import("loads.zig");
const Loads = loads_file.Loads;
const Most = loads_file.Most;
const Shares = @import("shares.zig").Shares;
const Position = @import("position.zig").Position;
const Allocator = std.mem.Allocator;

pub const Waiting = struct {
    requests: std.ArrayList(Request) = .empty,
    loads: Loads = .{},

    pub const What = union(enum) {
        /// Redis has confirmed the subscription to one topic of channels.
        group,
        /// Redis has confirmed all subscriptions of this round and of earlier ones.
        all_groups: u64,
        /// The topic's history was read from Redis to its end, so that the newest position is known.
        tip,
        /// The log has the entry with this position.
        entry: Position,
    };

    pub const Request = struct {
        asker: Asker,
        share: Shares.Index,
        what: What,
        name: []const u8,
        /// The time at which the node gives up, in milliseconds.
        until_ms: u64,
    };

    pub fn deinit(waiting: *Waiting, gpa: Allocator) void {
        for (waiting.requests.items) |request| gpa.free(request.name);
        waiting.requests.deinit(gpa);
        waiting.loads.deinit(gpa);
        waiting.* = undefined;
    }

    pub fn add(
        waiting: *Waiting,
        gpa: Allocator,
        asker: Asker,
        share: Shares.Index,
        most: Most,
        what: What,
        name: []const u8,
        until_ms: u64,
    ) error{ OutOfMemory, TooMany }!void {
        if (waiting.requests.items.len >= limits.waiting_requests_max) return error.TooMany;
        try waiting.requests.ensureUnusedCapacity(gpa, 1);
        const own = try gpa.dupe(u8, name);
        errdefer gpa.free(own);
        try waiting.loads.add(gpa, .{ .node = asker.node, .share = share }, 0, most);
        waiting.requests.appendAssumeCapacity(.{
            .asker = asker,
            .share = share,
            .what = what,
            .name = own,
            .until_ms = until_ms,
        });
    }

    /// The request at `at`, which is moved on; null: the list is at its end.
    pub fn next(waiting: *const Waiting, at: *usize) ?Request {
        if (at.* == waiting.requests.items.len) return null;
        at.* += 1;
        return waiting.requests.items[at.* - 1];
    }

    /// Removes the request that `next` has returned.
    pub fn take(waiting: *Waiting, gpa: Allocator, at: *usize) Asker {
        at.* -= 1;
        const request = waiting.requests.orderedRemove(at.*);
        gpa.free(request.name);
        waiting.loads.remove(.{ .node = request.asker.node, .share = request.share }, 0);
        return request.asker;
    }

    /// Removes requests that their nodes have given up.
    pub fn tick(waiting: *Waiting, gpa: Allocator, now_ms: u64) void {
        var at: usize = 0;
        while (waiting.next(&at)) |request| {
            if (now_ms >= request.until_ms) _ = waiting.take(gpa, &at);
        }
    }
};
