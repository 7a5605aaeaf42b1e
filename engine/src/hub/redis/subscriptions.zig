//! The feeds that a hub wants to hear, and how far Redis is with each of them. Of a feed at most one
//! SUBSCRIBE is without an answer, so that an answer is always the latest one's.
//! Does not know: the connection, and who wants a feed.
const std = @import("std");
const assert = std.debug.assert;
const keys = @import("keys.zig");
const Fed = keys.Fed;
const Allocator = std.mem.Allocator;

const State = enum {
    /// SUBSCRIBE is to be sent.
    wanted,
    /// SUBSCRIBE was sent.
    asked,
    /// Messages come.
    there,
    /// SUBSCRIBE was sent, and nobody wants the feed any more.
    dropped,
    /// UNSUBSCRIBE is to be sent.
    leaving,

    fn isDue(state: State) bool {
        return state == .wanted or state == .leaving;
    }
};

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
    all: Map(State) = .empty,
    /// Feeds for which a command is to be sent. Room for all feeds.
    due: Map(void) = .empty,
    /// How many are wanted or asked.
    pending: usize = 0,

    pub fn init(gpa: Allocator) Subscriptions {
        return .{ .gpa = gpa };
    }

    pub fn deinit(subscriptions: *Subscriptions) void {
        for (subscriptions.all.keys()) |fed| subscriptions.gpa.free(fed.name);
        subscriptions.all.deinit(subscriptions.gpa);
        subscriptions.due.deinit(subscriptions.gpa);
        subscriptions.* = undefined;
    }

    pub fn invariants(subscriptions: *const Subscriptions) void {
        if (!std.debug.runtime_safety or subscriptions.all.count() > checked_max) return;
        var due: usize = 0;
        var pending: usize = 0;
        for (subscriptions.all.keys(), subscriptions.all.values()) |fed, state| {
            due += @intFromBool(state.isDue());
            pending += @intFromBool(state == .wanted or state == .asked);
            assert(state.isDue() == subscriptions.due.contains(fed));
        }
        assert(due == subscriptions.due.count() and pending == subscriptions.pending);
    }

    const checked_max = 64;

    fn set(subscriptions: *Subscriptions, fed: Fed, place: *State, state: State) void {
        subscriptions.pending -= @intFromBool(place.* == .wanted or place.* == .asked);
        subscriptions.pending += @intFromBool(state == .wanted or state == .asked);
        place.* = state;
        if (state.isDue()) {
            subscriptions.due.putAssumeCapacity(fed, {});
        } else _ = subscriptions.due.swapRemove(fed);
    }

    fn remove(subscriptions: *Subscriptions, fed: Fed) void {
        const own = subscriptions.all.getKey(fed).?;
        _ = subscriptions.due.swapRemove(own);
        assert(subscriptions.all.swapRemove(own));
        subscriptions.gpa.free(own.name);
    }

    /// From now on somebody wants the feed.
    pub fn want(subscriptions: *Subscriptions, fed: Fed) error{OutOfMemory}!void {
        defer subscriptions.invariants();
        if (subscriptions.all.getEntry(fed)) |entry| {
            switch (entry.value_ptr.*) {
                .wanted, .asked, .there => {},
                .dropped => subscriptions.set(entry.key_ptr.*, entry.value_ptr, .asked),
                .leaving => subscriptions.set(entry.key_ptr.*, entry.value_ptr, .there),
            }
            return;
        }
        const gpa = subscriptions.gpa;
        try subscriptions.all.ensureUnusedCapacity(gpa, 1);
        try subscriptions.due.ensureTotalCapacity(gpa, subscriptions.all.count() + 1);
        const own: Fed = .{ .feed = fed.feed, .name = try gpa.dupe(u8, fed.name) };
        subscriptions.all.putAssumeCapacityNoClobber(own, .wanted);
        subscriptions.due.putAssumeCapacity(own, {});
        subscriptions.pending += 1;
    }

    /// The feed is no longer wanted. Does nothing if it was not.
    pub fn unwant(subscriptions: *Subscriptions, fed: Fed) void {
        defer subscriptions.invariants();
        const entry = subscriptions.all.getEntry(fed) orelse return;
        const own = entry.key_ptr.*;
        switch (entry.value_ptr.*) {
            .wanted => {
                subscriptions.pending -= 1;
                subscriptions.remove(own);
            },
            .asked => subscriptions.set(own, entry.value_ptr, .dropped),
            .there => subscriptions.set(own, entry.value_ptr, .leaving),
            .dropped, .leaving => {},
        }
    }

    /// The command that is to be sent next.
    pub const Order = struct { verb: enum { subscribe, unsubscribe }, fed: Fed };

    pub fn next(subscriptions: *const Subscriptions) ?Order {
        if (subscriptions.due.count() == 0) return null;
        const fed = subscriptions.due.keys()[subscriptions.due.count() - 1];
        return .{
            .verb = if (subscriptions.all.get(fed).? == .wanted) .subscribe else .unsubscribe,
            .fed = fed,
        };
    }

    /// The command of `next` was sent.
    pub fn sent(subscriptions: *Subscriptions) void {
        defer subscriptions.invariants();
        const order = subscriptions.next().?;
        switch (order.verb) {
            .subscribe => subscriptions.set(order.fed, subscriptions.all.getPtr(order.fed).?, .asked),
            .unsubscribe => subscriptions.remove(order.fed),
        }
    }

    /// Redis has answered SUBSCRIBE. False: nobody wants the feed now.
    pub fn confirmed(subscriptions: *Subscriptions, fed: Fed) bool {
        defer subscriptions.invariants();
        const entry = subscriptions.all.getEntry(fed) orelse return false;
        switch (entry.value_ptr.*) {
            .asked => subscriptions.set(entry.key_ptr.*, entry.value_ptr, .there),
            .dropped => {
                subscriptions.set(entry.key_ptr.*, entry.value_ptr, .leaving);
                return false;
            },
            // An answer to nothing that was asked.
            .wanted, .there, .leaving => return false,
        }
        return true;
    }

    /// The connection is gone, and all subscriptions with it.
    pub fn disconnected(subscriptions: *Subscriptions) void {
        defer subscriptions.invariants();
        var at = subscriptions.all.count();
        while (at > 0) {
            at -= 1;
            const fed = subscriptions.all.keys()[at];
            switch (subscriptions.all.values()[at]) {
                .wanted => {},
                .asked, .there => subscriptions.set(fed, &subscriptions.all.values()[at], .wanted),
                .dropped, .leaving => subscriptions.remove(fed),
            }
        }
    }

    pub fn isThere(subscriptions: *const Subscriptions, fed: Fed) bool {
        return (subscriptions.all.get(fed) orelse return false) == .there;
    }
};

const testing = std.testing;

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
    // Wanted again before that was sent: messages have come all the time.
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
