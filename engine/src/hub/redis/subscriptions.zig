//! The feeds that a hub wants, and the state of their subscriptions at Redis. Each feed has at most one
//! unanswered SUBSCRIBE, so that an answer always belongs to the latest one. Does not know: the connection,
//! and who wants a feed.
const std = @import("std");
const assert = std.debug.assert;
const keys = @import("keys.zig");
const Fed = keys.Fed;
const Allocator = std.mem.Allocator;

const State = enum {
    /// SUBSCRIBE must be sent.
    wanted,
    /// SUBSCRIBE was sent and not answered.
    asked,
    /// Redis has confirmed the subscription.
    there,
    /// SUBSCRIBE was sent and not answered, and the feed is no longer wanted.
    dropped,
    /// UNSUBSCRIBE must be sent.
    leaving,

    fn isDue(state: State) bool {
        return state == .wanted or state == .leaving;
    }
};

const Feed = struct {
    state: State,
    /// The round in which the feed was wanted; valid while the feed is `wanted` or `asked`.
    round: u64 = 0,

    fn isPending(feed: Feed) bool {
        return feed.state == .wanted or feed.state == .asked;
    }
};

/// The number of unconfirmed feeds that were wanted between two calls of `wait`.
const Round = struct { number: u64, pending: usize };

const Context = struct {
    pub fn hash(_: Context, fed: Fed) u32 {
        return @truncate(std.hash.Wyhash.hash(@backingInt(fed.feed), fed.name));
    }

    pub fn eql(_: Context, one: Fed, other: Fed, _: usize) bool {
        return one.feed == other.feed and std.mem.eql(u8, one.name, other.name);
    }
};

fn Map(comptime Value: type) type {
    return std.array_hash_map.Custom(Fed, Value, Context, true);
}

pub const Subscriptions = struct {
    gpa: Allocator,
    all: Map(Feed) = .empty,
    /// Feeds for which a command must be sent, with memory for all feeds.
    due: Map(void) = .empty,
    /// The number of commands that were sent. It chooses the next feed of `due`, so that no feed waits for
    /// ever while others change all the time.
    turn: usize = 0,
    /// The number of feeds that are `wanted` or `asked`.
    pending: usize = 0,
    /// Rounds with unconfirmed feeds, oldest first. Feeds that are wanted from now on join the last round,
    /// which may have none.
    rounds: std.Deque(Round) = .empty,

    pub fn init(gpa: Allocator) Subscriptions {
        return .{ .gpa = gpa };
    }

    pub fn deinit(subscriptions: *Subscriptions) void {
        for (subscriptions.all.keys()) |fed| subscriptions.gpa.free(fed.name);
        subscriptions.all.deinit(subscriptions.gpa);
        subscriptions.due.deinit(subscriptions.gpa);
        subscriptions.rounds.deinit(subscriptions.gpa);
        subscriptions.* = undefined;
    }

    pub fn invariants(subscriptions: *const Subscriptions) void {
        if (!std.debug.runtime_safety or subscriptions.all.count() > checked_max) return;
        var due: usize = 0;
        var pending: usize = 0;
        for (subscriptions.all.keys(), subscriptions.all.values()) |fed, feed| {
            due += @intFromBool(feed.state.isDue());
            pending += @intFromBool(feed.isPending());
            assert(feed.state.isDue() == subscriptions.due.contains(fed));
        }
        assert(due == subscriptions.due.count() and pending == subscriptions.pending);
        var of_rounds: usize = 0;
        for (0..subscriptions.rounds.len) |index| of_rounds += subscriptions.rounds.at(index).pending;
        assert(of_rounds == pending);
    }

    const checked_max = 64;

    /// Sets a feed's state. A feed that becomes pending joins the last round.
    fn set(subscriptions: *Subscriptions, fed: Fed, feed: *Feed, state: State) void {
        const was_pending = feed.isPending();
        feed.state = state;
        if (was_pending and !feed.isPending()) subscriptions.settle(feed.round);
        if (!was_pending and feed.isPending()) subscriptions.enter(feed);
        if (state.isDue()) {
            subscriptions.due.putAssumeCapacity(fed, {});
        } else _ = subscriptions.due.swapRemove(fed);
    }

    fn enter(subscriptions: *Subscriptions, feed: *Feed) void {
        const newest = subscriptions.rounds.atPtr(subscriptions.rounds.len - 1);
        feed.round = newest.number;
        newest.pending += 1;
        subscriptions.pending += 1;
    }

    /// Notes that a feed of the round is no longer pending.
    fn settle(subscriptions: *Subscriptions, round: u64) void {
        const oldest = subscriptions.rounds.front().?.number;
        subscriptions.rounds.atPtr(@intCast(round - oldest)).pending -= 1;
        subscriptions.pending -= 1;
        while (subscriptions.rounds.len > 1 and subscriptions.rounds.front().?.pending == 0) {
            _ = subscriptions.rounds.popFront();
        }
    }

    /// Returns the round of all feeds that are pending now, for `isOver`. Feeds that are wanted later belong
    /// to another round.
    pub fn wait(subscriptions: *Subscriptions) error{OutOfMemory}!u64 {
        defer subscriptions.invariants();
        assert(subscriptions.pending > 0);
        const newest = subscriptions.rounds.back().?;
        if (newest.pending == 0) return newest.number - 1;
        // There are too many rounds, so the caller waits for feeds that are wanted later, too.
        if (subscriptions.rounds.len == rounds_max) return newest.number;
        try subscriptions.rounds.pushBack(subscriptions.gpa, .{ .number = newest.number + 1, .pending = 0 });
        return newest.number;
    }

    /// The most rounds. Rounds stay while an older one has a feed that is not confirmed.
    const rounds_max = 1024;

    pub fn isOver(subscriptions: *const Subscriptions, round: u64) bool {
        const oldest = subscriptions.rounds.front() orelse return true;
        return subscriptions.pending == 0 or oldest.number > round;
    }

    fn remove(subscriptions: *Subscriptions, fed: Fed) void {
        const own = subscriptions.all.getKey(fed).?;
        _ = subscriptions.due.swapRemove(own);
        assert(subscriptions.all.swapRemove(own));
        subscriptions.gpa.free(own.name);
    }

    /// Notes that a feed is wanted.
    pub fn want(subscriptions: *Subscriptions, fed: Fed) error{OutOfMemory}!void {
        defer subscriptions.invariants();
        if (subscriptions.all.getEntry(fed)) |entry| {
            switch (entry.value_ptr.state) {
                .wanted, .asked, .there => {},
                .dropped => subscriptions.set(entry.key_ptr.*, entry.value_ptr, .asked),
                .leaving => subscriptions.set(entry.key_ptr.*, entry.value_ptr, .there),
            }
            return;
        }
        const gpa = subscriptions.gpa;
        try subscriptions.all.ensureUnusedCapacity(gpa, 1);
        try subscriptions.due.ensureTotalCapacity(gpa, subscriptions.all.count() + 1);
        if (subscriptions.rounds.len == 0) {
            try subscriptions.rounds.pushBack(gpa, .{ .number = 1, .pending = 0 });
        }
        const own: Fed = .{ .feed = fed.feed, .name = try gpa.dupe(u8, fed.name) };
        var feed: Feed = .{ .state = .wanted };
        subscriptions.enter(&feed);
        subscriptions.all.putAssumeCapacityNoClobber(own, feed);
        subscriptions.due.putAssumeCapacity(own, {});
    }

    /// Notes that a feed is no longer wanted, if it was.
    pub fn unwant(subscriptions: *Subscriptions, fed: Fed) void {
        defer subscriptions.invariants();
        const entry = subscriptions.all.getEntry(fed) orelse return;
        const own = entry.key_ptr.*;
        switch (entry.value_ptr.state) {
            .wanted => {
                subscriptions.settle(entry.value_ptr.round);
                subscriptions.remove(own);
            },
            .asked => subscriptions.set(own, entry.value_ptr, .dropped),
            .there => subscriptions.set(own, entry.value_ptr, .leaving),
            .dropped, .leaving => {},
        }
    }

    /// The command that must be sent next.
    pub const Order = struct { verb: enum { subscribe, unsubscribe }, fed: Fed };

    pub fn next(subscriptions: *const Subscriptions) ?Order {
        if (subscriptions.due.count() == 0) return null;
        const fed = subscriptions.due.keys()[subscriptions.turn % subscriptions.due.count()];
        return .{
            .verb = if (subscriptions.all.get(fed).?.state == .wanted) .subscribe else .unsubscribe,
            .fed = fed,
        };
    }

    /// Notes that the command of `next` was sent.
    pub fn sent(subscriptions: *Subscriptions) void {
        defer subscriptions.invariants();
        const order = subscriptions.next().?;
        subscriptions.turn +%= 1;
        switch (order.verb) {
            .subscribe => subscriptions.set(order.fed, subscriptions.all.getPtr(order.fed).?, .asked),
            .unsubscribe => subscriptions.remove(order.fed),
        }
    }

    /// Notes that Redis has confirmed a subscription. False: the feed is not wanted any more.
    pub fn confirmed(subscriptions: *Subscriptions, fed: Fed) bool {
        defer subscriptions.invariants();
        const entry = subscriptions.all.getEntry(fed) orelse return false;
        switch (entry.value_ptr.state) {
            .asked => subscriptions.set(entry.key_ptr.*, entry.value_ptr, .there),
            .dropped => {
                subscriptions.set(entry.key_ptr.*, entry.value_ptr, .leaving);
                return false;
            },
            // The answer belongs to no command of ours.
            .wanted, .there, .leaving => return false,
        }
        return true;
    }

    /// Notes that the connection and all subscriptions are lost. All callers of `wait` wait for all feeds
    /// then.
    pub fn disconnected(subscriptions: *Subscriptions) void {
        defer subscriptions.invariants();
        var at = subscriptions.all.count();
        while (at > 0) {
            at -= 1;
            const fed = subscriptions.all.keys()[at];
            const feed = &subscriptions.all.values()[at];
            switch (feed.state) {
                .wanted => {},
                .asked, .there => subscriptions.set(fed, feed, .wanted),
                .dropped, .leaving => subscriptions.remove(fed),
            }
        }
        const oldest = subscriptions.rounds.frontPtr() orelse return;
        for (subscriptions.all.values()) |*feed| feed.round = oldest.number;
        for (0..subscriptions.rounds.len) |index| subscriptions.rounds.atPtr(index).pending = 0;
        oldest.pending = subscriptions.pending;
    }

    pub fn isThere(subscriptions: *const Subscriptions, fed: Fed) bool {
        return (subscriptions.all.get(fed) orelse return false).state == .there;
    }
};

const testing = std.testing;

test "a feed is subscribed, whatever else is wanted and left meanwhile" {
    var subscriptions: Subscriptions = .init(testing.allocator);
    defer subscriptions.deinit();
    const fed: Fed = .{ .feed = .group, .name = "first" };
    try subscriptions.want(fed);
    var buffer: [16]u8 = undefined;
    for (0..8) |n| {
        const other: Fed = .{ .feed = .group, .name = try std.fmt.bufPrint(&buffer, "other.{d}", .{n}) };
        try subscriptions.want(other);
        subscriptions.sent();
        _ = subscriptions.confirmed(other);
        subscriptions.unwant(other);
    }
    try testing.expect(subscriptions.all.get(fed).?.state == .asked);
}

test "a feed that is wanted, left and wanted again has one SUBSCRIBE under way at a time" {
    var subscriptions: Subscriptions = .init(testing.allocator);
    defer subscriptions.deinit();
    const fed: Fed = .{ .feed = .group, .name = "a" };
    try testing.expectEqual(null, subscriptions.next());
    try subscriptions.want(fed);
    try subscriptions.want(fed);
    try testing.expectEqual(.subscribe, subscriptions.next().?.verb);
    subscriptions.sent();
    try testing.expect(subscriptions.next() == null and subscriptions.pending == 1);
    subscriptions.unwant(fed);
    try testing.expect(subscriptions.next() == null and subscriptions.pending == 0);
    try subscriptions.want(fed);
    try testing.expect(subscriptions.next() == null and !subscriptions.isThere(fed));
    try testing.expect(subscriptions.confirmed(fed) and subscriptions.isThere(fed));
    subscriptions.unwant(fed);
    try testing.expectEqual(.unsubscribe, subscriptions.next().?.verb);
    // The feed is wanted again before UNSUBSCRIBE was sent, so its messages never stopped.
    try subscriptions.want(fed);
    try testing.expect(subscriptions.next() == null and subscriptions.isThere(fed));
    subscriptions.unwant(fed);
    subscriptions.sent();
    try testing.expectEqual(0, subscriptions.all.count());
}

test "an answer for a feed that was left meanwhile ends in UNSUBSCRIBE" {
    var subscriptions: Subscriptions = .init(testing.allocator);
    defer subscriptions.deinit();
    const fed: Fed = .{ .feed = .entries, .name = "a" };
    try subscriptions.want(fed);
    subscriptions.sent();
    subscriptions.unwant(fed);
    try testing.expect(!subscriptions.confirmed(fed));
    try testing.expectEqual(.unsubscribe, subscriptions.next().?.verb);
}

test "a lost connection makes all of them wanted again, but none that was left" {
    var subscriptions: Subscriptions = .init(testing.allocator);
    defer subscriptions.deinit();
    const names = [_][]const u8{ "there", "asked", "wanted", "dropped", "leaving" };
    for ([_]usize{ 0, 4, 1, 3, 2 }) |which| {
        const fed: Fed = .{ .feed = .node, .name = names[which] };
        try subscriptions.want(fed);
        if (which != 2) subscriptions.sent();
        if (which == 0 or which == 4) try testing.expect(subscriptions.confirmed(fed));
        if (which == 3) subscriptions.unwant(fed);
    }
    subscriptions.unwant(.{ .feed = .node, .name = "leaving" });
    subscriptions.disconnected();
    try testing.expectEqual(3, subscriptions.all.count());
    try testing.expectEqual(3, subscriptions.pending);
    for (0..3) |_| {
        try testing.expectEqual(.subscribe, subscriptions.next().?.verb);
        subscriptions.sent();
    }
    try testing.expectEqual(null, subscriptions.next());
}

fn feedNamed(name: []const u8) Fed {
    return .{ .feed = .group, .name = name };
}

test "who waits does not wait for feeds that are wanted later" {
    var subscriptions: Subscriptions = .init(testing.allocator);
    defer subscriptions.deinit();
    try subscriptions.want(feedNamed("early"));
    subscriptions.sent();
    const first = try subscriptions.wait();
    try testing.expectEqual(first, try subscriptions.wait());
    try subscriptions.want(feedNamed("later"));
    subscriptions.sent();
    const second = try subscriptions.wait();
    try testing.expect(!subscriptions.isOver(first) and second != first);
    try testing.expect(subscriptions.confirmed(feedNamed("early")));
    try testing.expect(subscriptions.isOver(first) and !subscriptions.isOver(second));
    try subscriptions.want(feedNamed("last"));
    subscriptions.unwant(feedNamed("later"));
    try testing.expect(subscriptions.isOver(second) and subscriptions.pending == 1);
    subscriptions.unwant(feedNamed("last"));
    try testing.expectEqual(0, subscriptions.pending);
}

test "who waits while the connection is lost waits for all feeds, but not for those that are wanted then" {
    var subscriptions: Subscriptions = .init(testing.allocator);
    defer subscriptions.deinit();
    for ([_][]const u8{ "there", "asked" }) |name| {
        try subscriptions.want(feedNamed(name));
        subscriptions.sent();
    }
    try testing.expect(subscriptions.confirmed(feedNamed("there")));
    const round = try subscriptions.wait();
    subscriptions.disconnected();
    try subscriptions.want(feedNamed("new"));
    for (0..3) |_| subscriptions.sent();
    try testing.expect(subscriptions.confirmed(feedNamed("asked")));
    try testing.expect(!subscriptions.isOver(round));
    try testing.expect(subscriptions.confirmed(feedNamed("there")));
    try testing.expect(subscriptions.isOver(round) and subscriptions.pending == 1);
}
