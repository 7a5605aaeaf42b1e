//! Deadlines of many connections in a hashed wheel with lazy entries (Varghese and Lauck 1987). A deadline
//! that moves later, as with every request, costs one store; the wheel finds the new deadline when the old
//! slot is due. Time is an argument, in milliseconds.
const std = @import("std");
const assert = std.debug.assert;

/// A deadline, embedded in the struct that it belongs to.
pub const Timer = struct {
    place: Place = .{},
    prev: ?*Timer = null,
    next: ?*Timer = null,

    pub const never = std.math.maxInt(u64);

    /// The deadline and the slot share a word, because each idle connection has a timer.
    const Place = packed struct(u64) {
        /// The time at which the timer is due, in milliseconds; `off`: never.
        deadline: u48 = off,
        /// The number of the slot that has the timer; `nowhere`: the timer is in no slot.
        slot: u16 = nowhere,

        const off = std.math.maxInt(u48); // after 8,900 years
        const nowhere = std.math.maxInt(u16);
    };

    /// The time at which the timer is due, in milliseconds; `never`: it is off.
    fn deadline(timer: *const Timer) u64 {
        return if (timer.place.deadline == Place.off) never else timer.place.deadline;
    }

    /// The time at which a limit ends; 0: there is no limit.
    pub fn after(since: u64, limit_ms: u32) u64 {
        return if (limit_ms == 0) never else since + limit_ms;
    }
};

/// The timers of a worker, by the tick at which they come due.
pub const Wheel = struct {
    /// Milliseconds of a tick. A timer comes up to one tick late, and never early.
    pub const tick_ms = 64;
    const slot_count = 1024; // a turn is 65 s; later deadlines wait in the last slot and are put back

    slots: [slot_count]?*Timer = @splat(null),
    occupied: std.bit_set.ArrayBitSet(usize, slot_count) = .empty,
    /// The first tick whose timers were not returned yet.
    tick: u64,
    /// No timer has an earlier tick: `nextExpiry` begins its search here.
    earliest: u64 = 0,
    /// The tick of the last `expire`.
    round: u64,
    count: u32 = 0,

    pub fn init(now_ms: u64) Wheel {
        return .{ .tick = now_ms / tick_ms + 1, .round = now_ms / tick_ms };
    }

    /// Sets or moves a deadline.
    pub fn set(wheel: *Wheel, timer: *Timer, deadline: u64) void {
        timer.place.deadline = @intCast(@min(deadline, Timer.Place.off));
        if (timer.place.slot == Timer.Place.nowhere) {
            if (timer.place.deadline != Timer.Place.off) wheel.insert(timer);
        } else if (deadline <= (wheel.tickOf(timer) - 1) * tick_ms) {
            wheel.unlink(timer);
            wheel.insert(timer);
        }
    }

    /// Removes a timer, which is required before its memory is freed.
    pub fn remove(wheel: *Wheel, timer: *Timer) void {
        if (timer.place.slot != Timer.Place.nowhere) wheel.unlink(timer);
        timer.place.deadline = Timer.Place.off;
    }

    /// Removes and returns the next timer that is due at `now_ms`; null: there is none. A timer that is set
    /// again meanwhile, even for a time that has passed, comes with a later tick, so that a loop over due
    /// timers ends.
    pub fn expire(wheel: *Wheel, now_ms: u64) ?*Timer {
        const due = now_ms / tick_ms;
        wheel.round = due;
        while (wheel.tick <= due) {
            if (wheel.count == 0) {
                wheel.tick = due + 1;
                return null;
            }
            const slot = wheel.tick % slot_count;
            while (wheel.slots[slot]) |timer| {
                wheel.unlink(timer);
                if (timer.deadline() <= now_ms) return timer;
                if (timer.place.deadline != Timer.Place.off) wheel.insertAfter(timer, wheel.tick);
            }
            wheel.tick += 1;
        }
        return null;
    }

    /// The time at which `expire` must be called next, in milliseconds; null: no timer is set. It may be
    /// early, and is late by at most a tick.
    pub fn nextExpiry(wheel: *Wheel) ?u64 {
        if (wheel.count == 0) return null;
        const word_bits = @bitSizeOf(usize);
        var tick = @max(wheel.tick, wheel.earliest);
        while (tick < wheel.tick + slot_count) {
            const slot = tick % slot_count;
            const word = wheel.occupied.masks[slot / word_bits] >> @intCast(slot % word_bits);
            if (word != 0) {
                wheel.earliest = tick + @ctz(word);
                return wheel.earliest * tick_ms;
            }
            tick += word_bits - slot % word_bits;
        }
        unreachable; // count > 0
    }

    fn insert(wheel: *Wheel, timer: *Timer) void {
        wheel.insertAfter(timer, wheel.round);
    }

    fn insertAfter(wheel: *Wheel, timer: *Timer, after: u64) void {
        assert(timer.place.slot == Timer.Place.nowhere and timer.place.deadline != Timer.Place.off);
        // The tick is rounded up, because a timer must not come before its deadline.
        const wanted = std.math.divCeil(u64, timer.place.deadline, tick_ms) catch unreachable;
        const tick = @min(@max(wanted, after + 1), wheel.tick + slot_count - 1);
        const slot = tick % slot_count;
        timer.place.slot = @intCast(slot);
        timer.prev = null;
        timer.next = wheel.slots[slot];
        if (timer.next) |next| next.prev = timer;
        wheel.slots[slot] = timer;
        wheel.occupied.set(slot);
        wheel.earliest = @min(wheel.earliest, tick);
        wheel.count += 1;
    }

    fn unlink(wheel: *Wheel, timer: *Timer) void {
        assert(timer.place.slot != Timer.Place.nowhere and wheel.count > 0);
        const slot = timer.place.slot;
        if (timer.prev) |prev| prev.next = timer.next else wheel.slots[slot] = timer.next;
        if (timer.next) |next| next.prev = timer.prev;
        if (wheel.slots[slot] == null) wheel.occupied.unset(slot);
        timer.place.slot = Timer.Place.nowhere;
        wheel.count -= 1;
    }

    /// The tick of a timer that is in a slot: slots have no timers of later turns.
    fn tickOf(wheel: *const Wheel, timer: *const Timer) u64 {
        return wheel.tick + (timer.place.slot -% wheel.tick) % slot_count;
    }
};

test "timers fire in their tick, never early, at most a tick late" {
    var wheel: Wheel = .init(1_000);
    var timers: [300]Timer = undefined;
    var random: std.Random.DefaultPrng = .init(7);
    for (&timers) |*timer| {
        timer.* = .{};
        wheel.set(timer, 1_000 + random.random().uintLessThan(u64, 200_000));
    }
    var now: u64 = 1_000;
    var fired: usize = 0;
    while (fired < timers.len) : (now += 17) {
        try std.testing.expect(now < 202_000);
        while (wheel.expire(now)) |timer| {
            try std.testing.expect(timer.deadline() <= now);
            try std.testing.expect(now - timer.deadline() <= Wheel.tick_ms + 17);
            fired += 1;
        }
    }
    try std.testing.expectEqual(null, wheel.nextExpiry());
}

test "a deadline that moves later costs nothing and still holds; one that moves earlier is noticed" {
    var wheel: Wheel = .init(0);
    var timer: Timer = .{};
    wheel.set(&timer, 500);
    const tick = wheel.tickOf(&timer);
    wheel.set(&timer, 5_000);
    try std.testing.expectEqual(tick, wheel.tickOf(&timer));
    try std.testing.expectEqual(null, wheel.expire(600));
    wheel.set(&timer, 700);
    try std.testing.expectEqual(null, wheel.expire(690));
    try std.testing.expectEqual(&timer, wheel.expire(800).?);
    wheel.set(&timer, Timer.never);
    try std.testing.expectEqual(null, wheel.nextExpiry());
    wheel.set(&timer, 900);
    wheel.set(&timer, Timer.never);
    try std.testing.expectEqual(null, wheel.expire(1_000_000));
    try std.testing.expectEqual(null, wheel.nextExpiry());
}

test "a deadline that stays within its tick leaves its timer where it is" {
    var wheel: Wheel = .init(0);
    var timers: [2]Timer = @splat(.{});
    for (&timers) |*timer| wheel.set(timer, 500);
    wheel.set(&timers[0], 490);
    wheel.set(&timers[0], 449);
    // The first timer is still behind the second one in its slot.
    try std.testing.expectEqual(&timers[0], timers[1].next);
    wheel.set(&timers[0], 448);
    try std.testing.expectEqual(null, timers[1].next);
    try std.testing.expectEqual(&timers[0], wheel.expire(448).?);
    try std.testing.expectEqual(&timers[1], wheel.expire(512).?);
}

test "a timer that is removed never comes, and may be set again" {
    var wheel: Wheel = .init(0);
    var timers: [3]Timer = @splat(.{});
    for (&timers) |*timer| wheel.set(timer, 100);
    // The timer in the middle of its slot, the last one and the first one.
    for ([_]usize{ 1, 0, 2 }) |index| {
        wheel.remove(&timers[index]);
        wheel.remove(&timers[index]);
        try std.testing.expectEqual(Timer.never, timers[index].deadline());
    }
    try std.testing.expectEqual(null, wheel.nextExpiry());
    for (&timers) |*timer| wheel.set(timer, 100);
    wheel.remove(&timers[1]);
    try std.testing.expectEqual(128, wheel.nextExpiry());
    try std.testing.expectEqual(&timers[2], wheel.expire(128).?);
    try std.testing.expectEqual(&timers[0], wheel.expire(128).?);
    try std.testing.expectEqual(null, wheel.expire(128));
    try std.testing.expectEqual(null, wheel.nextExpiry());
    // A removed timer has no neighbours.
    for (timers[0..2]) |*timer| wheel.set(timer, 1_000);
    wheel.remove(&timers[0]);
    wheel.set(&timers[0], 2_000);
    wheel.remove(&timers[0]);
    wheel.remove(&timers[1]);
    try std.testing.expectEqual(null, wheel.nextExpiry());
    try std.testing.expectEqual(null, wheel.slots[2_048 / Wheel.tick_ms]);
}

test "a wheel that was empty goes on behind the present tick" {
    var wheel: Wheel = .init(0);
    var far: Timer = .{};
    wheel.set(&far, 10_000_000);
    try std.testing.expectEqual(Wheel.slot_count, wheel.tickOf(&far));
    wheel.remove(&far);
    try std.testing.expectEqual(null, wheel.expire(1_000_000));
    wheel.set(&far, 10_000_000);
    const ahead = wheel.tickOf(&far) - 1_000_000 / Wheel.tick_ms;
    try std.testing.expectEqual(Wheel.slot_count, ahead);
}

test "a timer that is set again for a time that has passed comes with the next tick, not at once" {
    var wheel: Wheel = .init(0);
    var timer: Timer = .{};
    wheel.set(&timer, 100);
    var now: u64 = 1_000;
    for (0..10) |_| {
        try std.testing.expectEqual(&timer, wheel.expire(now).?);
        wheel.set(&timer, 100);
        try std.testing.expectEqual(null, wheel.expire(now));
        now = wheel.nextExpiry().?;
    }
    try std.testing.expectEqual(1_000 / Wheel.tick_ms + 10, now / Wheel.tick_ms);
}

test "nextExpiry finds the only timer, wherever its slot is" {
    for (1..Wheel.slot_count) |tick| for ([_]u64{ 0, 1_000_000 }) |start| {
        var wheel: Wheel = .init(start * Wheel.tick_ms);
        var timer: Timer = .{};
        const deadline = (start + tick) * Wheel.tick_ms;
        wheel.set(&timer, deadline);
        try std.testing.expectEqual(deadline, wheel.nextExpiry());
        wheel.remove(&timer);
    };
}

test "nextExpiry names a time at which something is due or looked at again" {
    var wheel: Wheel = .init(10);
    var near: Timer = .{};
    var far: Timer = .{};
    wheel.set(&far, 10_000_000);
    wheel.set(&near, 3_000);
    const first = wheel.nextExpiry().?;
    try std.testing.expect(first >= 3_000 and first < 3_000 + 2 * Wheel.tick_ms);
    try std.testing.expectEqual(&near, wheel.expire(first).?);
    var now = first;
    var looks: usize = 0;
    while (wheel.expire(now) == null) : (looks += 1) now = wheel.nextExpiry().?;
    try std.testing.expect(now >= 10_000_000 and now < 10_000_000 + Wheel.tick_ms);
    try std.testing.expect(looks < 200);
}

test "nextExpiry names the earliest tick, however timers came and went since it was last asked" {
    var wheel: Wheel = .init(0);
    var timers: [20]Timer = @splat(.{});
    var random: std.Random.DefaultPrng = .init(3);
    var now: u64 = 0;
    for (0..20_000) |_| {
        const timer = &timers[random.random().uintLessThan(usize, timers.len)];
        switch (random.random().uintLessThan(u8, 4)) {
            0 => wheel.remove(timer),
            1 => now += random.random().uintLessThan(u64, 2_000),
            else => wheel.set(timer, now + random.random().uintLessThan(u64, 100_000)),
        }
        while (wheel.expire(now)) |_| {}
        var earliest: u64 = std.math.maxInt(u64);
        for (&timers) |*one| if (one.place.slot != Timer.Place.nowhere) {
            earliest = @min(earliest, wheel.tickOf(one));
        };
        const expected = if (wheel.count == 0) null else earliest * Wheel.tick_ms;
        try std.testing.expectEqual(expected, wheel.nextExpiry());
    }
}
