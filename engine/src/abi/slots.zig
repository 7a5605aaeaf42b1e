//! A table that an engine shares with its applications, which read in it whether an exchange is still there,
//! and how much of its output waits. The table has a slot for each number that a ticket can have, and holds
//! no pointer.
//!
//! An exchange is offered, then taken, then ended. The application takes it by compare-and-swap before it
//! works on it; the engine ends it by replacing the same word. So a request whose client has left before it
//! was taken is never worked on, and both sides know which of them came first. The engine writes all other
//! words, the application reads them.
const std = @import("std");
const assert = std.debug.assert;
const peregrine = @import("peregrine");
const Atomic = @import("platform").Atomic;

/// The words of one exchange, in a cache line of their own: both sides look at them often.
const Slot = extern struct {
    /// The exchange's ticket and state, see `wordOf`; 0: the exchange has ended.
    word: Atomic(u64) align(line_bytes),
    /// Bytes of the exchange's content that the engine has taken out of the ring.
    consumed: Atomic(u64),
    /// Twice the bytes that wait for the kernel, plus 1 if the kernel takes none because the peer does not.
    queued: Atomic(u64),
    /// Only for the engine: where the exchange's last message lies in the ring of events; `not_yet`: the
    /// message is on its way there.
    message_at: u64,
    /// Written by the application: when it began to work on the request, in microseconds; 0: not yet.
    begun_us: Atomic(u64),
    /// 1: the client has ended its sending side.
    left: Atomic(u32),
    /// The exchange that was given up for want of memory, see `shedMark`.
    shed: Atomic(u32),
};

/// The bytes that processors move between their caches together. (`std.atomic.cache_line` is two such lines
/// on x86: the table would be twice as large.)
const line_bytes = 64;

/// The states of an exchange. `refused`: the engine has ended it before it was taken, for a reason that the
/// application is to hear of.
const State = enum(u2) { offered = 1, taken = 2, refused = 3 };

/// The word of a slot: the ticket, with the state in place of the slot's number, which the slot knows.
fn wordOf(ticket: u64, state: State) u64 {
    comptime assert(peregrine.exchanges_max > @backingInt(State.refused));
    return ticket & ~@as(u64, peregrine.exchanges_max - 1) | @backingInt(state);
}

/// A number that tells an exchange from earlier and later exchanges of its slot.
fn shedMark(ticket: u64) u32 {
    return @truncate(ticket >> 32 ^ ticket);
}

/// A position behind all messages in the ring.
const not_yet = std.math.maxInt(u64);

/// The output that waits on a connection.
pub const Output = struct { bytes: usize, stuck: bool };

/// A table in memory that the kernel fills with zeros when it is first touched.
pub const Slots = struct {
    list: []Slot,

    const page = std.heap.page_size_min;

    pub fn init() error{OutOfMemory}!Slots {
        const count = peregrine.exchanges_max;
        const memory = std.heap.page_allocator.rawAlloc(
            count * @sizeOf(Slot),
            .fromByteUnits(page),
            @returnAddress(),
        );
        const list: [*]Slot = @ptrCast(@alignCast(memory orelse return error.OutOfMemory));
        return .{ .list = list[0..count] };
    }

    pub const bytes = peregrine.exchanges_max * @sizeOf(Slot);

    /// The table in zeroed memory of `bytes` bytes, which stays the caller's.
    pub fn of(memory: []align(page) u8) Slots {
        assert(memory.len == bytes);
        return .{ .list = @alignCast(std.mem.bytesAsSlice(Slot, memory)) };
    }

    pub fn deinit(slots: *Slots) void {
        const memory: []align(page) u8 = @alignCast(std.mem.sliceAsBytes(slots.list));
        std.heap.page_allocator.rawFree(memory, .fromByteUnits(page), @returnAddress());
    }

    fn slotOf(slots: *const Slots, ticket: u64) *Slot {
        return &slots.list[@as(peregrine.Ticket, @fromBackingInt(ticket)).slot()];
    }

    // ---- The engine's side

    /// An exchange begins. `output`: of earlier answers on its connection, which may wait still.
    pub fn begin(slots: *const Slots, ticket: u64, output: Output) void {
        const slot = slots.slotOf(ticket);
        slot.consumed.store(0, .monotonic);
        slot.message_at = 0;
        slot.begun_us.store(0, .monotonic);
        slot.left.store(0, .monotonic);
        slot.shed.store(0, .monotonic);
        note(slot, output);
        slot.word.store(wordOf(ticket, .offered), .release);
    }

    /// The exchange has ended: commands for it do nothing.
    pub fn end(slots: *const Slots, ticket: u64) void {
        slots.slotOf(ticket).word.store(0, .release);
    }

    /// The exchange has ended for want of memory: the application is to free its memory for the exchange.
    pub fn noteShed(slots: *const Slots, ticket: u64) void {
        slots.slotOf(ticket).shed.store(shedMark(ticket), .monotonic);
    }

    /// Whether the exchange has ended for want of memory.
    pub fn wasShed(slots: *const Slots, ticket: u64) bool {
        const slot = slots.slotOf(ticket);
        return slot.shed.load(.monotonic) == shedMark(ticket) and slots.look(ticket) == null;
    }

    /// The exchange has ended, and the application hears why, even if it has not taken the exchange.
    pub fn refuse(slots: *const Slots, ticket: u64) void {
        const word = &slots.slotOf(ticket).word;
        const found = word.cmpxchgStrong(
            wordOf(ticket, .offered),
            wordOf(ticket, .refused),
            .acq_rel,
            .monotonic,
        );
        if (found == wordOf(ticket, .taken)) slots.end(ticket);
    }

    /// Takes an offer back. False: the application has taken the exchange, or it was not offered.
    pub fn recall(slots: *const Slots, ticket: u64) bool {
        const word = &slots.slotOf(ticket).word;
        return word.cmpxchgStrong(wordOf(ticket, .offered), 0, .acq_rel, .monotonic) == null;
    }

    /// A command with `content` bytes of content has come out of the ring.
    pub fn consume(slots: *const Slots, ticket: u64, content: u64, output: Output) void {
        const slot = slots.slotOf(ticket);
        note(slot, output);
        // An application in another process may have written any number: the sum may wrap.
        slot.consumed.store(slot.consumed.load(.monotonic) +% content, .release);
    }

    /// The engine's output for an exchange has changed.
    pub fn progress(slots: *const Slots, ticket: u64, output: Output) void {
        note(slots.slotOf(ticket), output);
    }

    /// The client has ended its sending side.
    pub fn leave(slots: *const Slots, ticket: u64) void {
        slots.slotOf(ticket).left.store(1, .monotonic);
    }

    /// A message is on its way to the application.
    pub fn noteMessage(slots: *const Slots, ticket: u64) void {
        slots.slotOf(ticket).message_at = not_yet;
    }

    /// A message is in the ring: the application has read it when it has given back all bytes before this
    /// position.
    pub fn placeMessage(slots: *const Slots, ticket: u64, position: u64) void {
        const slot = slots.slotOf(ticket);
        assert(position != not_yet);
        slot.message_at = position;
    }

    /// Whether the application has read all messages, if it has given back the bytes before this position.
    pub fn hasReadMessages(slots: *const Slots, ticket: u64, position: u64) bool {
        return slots.slotOf(ticket).message_at <= position;
    }

    /// When the application began to work on the request, in microseconds; 0: not yet.
    pub fn begunAt(slots: *const Slots, ticket: u64) u64 {
        return slots.slotOf(ticket).begun_us.load(.monotonic);
    }

    fn note(slot: *Slot, output: Output) void {
        assert(output.bytes < std.math.maxInt(u64) / 2);
        slot.queued.store(@as(u64, output.bytes) * 2 + @intFromBool(output.stuck), .monotonic);
    }

    // ---- The application's side

    /// Whether an exchange waits to be taken, or was refused.
    pub fn isOffered(slots: *const Slots, ticket: u64) bool {
        const word = slots.slotOf(ticket).word.load(.acquire);
        return word == wordOf(ticket, .offered) or word == wordOf(ticket, .refused);
    }

    /// Takes an exchange that was offered. False: the exchange has ended, and no event will tell of it.
    pub fn take(slots: *const Slots, ticket: u64) bool {
        const taken = wordOf(ticket, .taken);
        const word = &slots.slotOf(ticket).word;
        comptime assert(@sizeOf(Slot) % line_bytes == 0);
        const found = word.cmpxchgStrong(wordOf(ticket, .offered), taken, .acq_rel, .acquire) orelse
            return true;
        return found == taken or found == wordOf(ticket, .refused);
    }

    /// The application begins to work on an exchange that it has taken. Nothing is noted if the exchange is
    /// over; if its slot becomes another exchange's at this moment, that one has a wrong time.
    pub fn begun(slots: *const Slots, ticket: u64, at_us: u64) void {
        const slot = slots.slotOf(ticket);
        if (slot.word.load(.monotonic) == wordOf(ticket, .taken)) slot.begun_us.store(at_us, .monotonic);
    }

    /// Whether the client has left, as far as the engine knows.
    pub fn hasLeft(slots: *const Slots, ticket: u64) bool {
        return slots.look(ticket) == null or slots.slotOf(ticket).left.load(.monotonic) != 0;
    }

    /// The state of an exchange that has not ended.
    pub const View = struct { state: State, consumed: u64, queued: u64, stuck: bool };

    /// Null: the exchange has ended.
    pub fn look(slots: *const Slots, ticket: u64) ?View {
        const slot = slots.slotOf(ticket);
        const consumed = slot.consumed.load(.acquire);
        const queued = slot.queued.load(.monotonic);
        const word = slot.word.load(.acquire);
        const state: State = inline for (.{ .taken, .offered }) |state| {
            if (word == wordOf(ticket, state)) break state;
        } else return null;
        return .{ .state = state, .consumed = consumed, .queued = queued / 2, .stuck = queued % 2 != 0 };
    }
};

test "an exchange in its slot" {
    var slots: Slots = try .init();
    defer slots.deinit();
    const ticket = 5 + (1 << 27);
    try std.testing.expectEqual(null, slots.look(ticket));
    slots.begin(ticket, .{ .bytes = 7, .stuck = false });
    slots.consume(ticket, 100, .{ .bytes = 50, .stuck = false });
    slots.consume(ticket, 10, .{ .bytes = 40, .stuck = true });
    try std.testing.expectEqual(
        Slots.View{ .state = .offered, .consumed = 110, .queued = 40, .stuck = true },
        slots.look(ticket),
    );
    slots.progress(ticket, .{ .bytes = 0, .stuck = false });
    try std.testing.expectEqual(
        Slots.View{ .state = .offered, .consumed = 110, .queued = 0, .stuck = false },
        slots.look(ticket),
    );
    try std.testing.expectEqual(null, slots.look(ticket + (2 << 27)));
    try std.testing.expect(slots.hasReadMessages(ticket, 0));
    slots.noteMessage(ticket);
    try std.testing.expect(!slots.hasReadMessages(ticket, 1 << 60));
    slots.placeMessage(ticket, 80);
    try std.testing.expect(!slots.hasReadMessages(ticket, 72) and slots.hasReadMessages(ticket, 80));
    try std.testing.expectEqual(0, slots.begunAt(ticket));
    try std.testing.expect(slots.take(ticket));
    slots.begun(ticket, 9);
    slots.begun(ticket + (2 << 27), 10);
    try std.testing.expectEqual(9, slots.begunAt(ticket));
    try std.testing.expect(!slots.hasLeft(ticket));
    slots.leave(ticket);
    try std.testing.expect(slots.hasLeft(ticket));
    slots.end(ticket);
    try std.testing.expectEqual(null, slots.look(ticket));
}

test "an exchange is taken once it is offered and until it has ended" {
    var slots: Slots = try .init();
    defer slots.deinit();
    const ticket = 5 + (1 << 27);
    try std.testing.expect(!slots.take(ticket));
    slots.begin(ticket, .{ .bytes = 0, .stuck = false });
    try std.testing.expect(!slots.take(ticket + (2 << 27)));
    slots.begun(ticket, 7);
    try std.testing.expectEqual(0, slots.begunAt(ticket));
    for (0..2) |_| try std.testing.expect(slots.take(ticket));
    try std.testing.expectEqual(.taken, slots.look(ticket).?.state);
    slots.begun(ticket, 7);
    try std.testing.expectEqual(7, slots.begunAt(ticket));
    slots.end(ticket);
    try std.testing.expect(!slots.take(ticket) and !slots.isOffered(ticket));
    slots.begin(ticket + (2 << 27), .{ .bytes = 0, .stuck = false });
    try std.testing.expect(!slots.take(ticket) and !slots.isOffered(ticket));
    slots.begun(ticket, 7);
    try std.testing.expectEqual(0, slots.begunAt(ticket));
}

test "an offer is taken back, unless the application has taken it" {
    var slots: Slots = try .init();
    defer slots.deinit();
    const ticket = 5 + (1 << 27);
    slots.begin(ticket, .{ .bytes = 0, .stuck = false });
    try std.testing.expect(slots.recall(ticket));
    try std.testing.expect(!slots.recall(ticket) and !slots.take(ticket));
    slots.begin(ticket, .{ .bytes = 0, .stuck = false });
    try std.testing.expect(slots.take(ticket) and !slots.recall(ticket));
    try std.testing.expectEqual(.taken, slots.look(ticket).?.state);
}

test "an exchange that ended for want of memory is told from the others of its slot" {
    var slots: Slots = try .init();
    defer slots.deinit();
    const ticket = 5 + (1 << 27);
    slots.begin(ticket, .{ .bytes = 0, .stuck = false });
    slots.noteShed(ticket);
    try std.testing.expect(!slots.wasShed(ticket));
    slots.end(ticket);
    try std.testing.expect(slots.wasShed(ticket));
    for ([_]u64{ 2 << 27, 1 << 32 }) |later| try std.testing.expect(!slots.wasShed(ticket + later));
    slots.begin(ticket + (2 << 27), .{ .bytes = 0, .stuck = false });
    try std.testing.expect(!slots.wasShed(ticket));
}

test "a process that writes wrong numbers harms itself alone" {
    var slots: Slots = try .init();
    defer slots.deinit();
    const ticket = 5 + (1 << 27);
    slots.begin(ticket, .{ .bytes = 0, .stuck = false });
    slots.slotOf(ticket).consumed.store(std.math.maxInt(u64), .monotonic);
    slots.consume(ticket, 2, .{ .bytes = 0, .stuck = false });
    try std.testing.expectEqual(1, slots.look(ticket).?.consumed);
}

test "a request that is refused before it was taken is heard of, and no command for it works" {
    var slots: Slots = try .init();
    defer slots.deinit();
    const ticket = 5 + (1 << 27);
    for ([_]bool{ false, true }) |taken| {
        slots.begin(ticket, .{ .bytes = 0, .stuck = false });
        try std.testing.expect(slots.isOffered(ticket));
        if (taken) try std.testing.expect(slots.take(ticket));
        slots.refuse(ticket);
        try std.testing.expectEqual(null, slots.look(ticket));
        try std.testing.expectEqual(!taken, slots.isOffered(ticket));
        try std.testing.expectEqual(!taken, slots.take(ticket));
    }
}
