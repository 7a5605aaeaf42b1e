//! What an engine lets applications see of each exchange at any time, without asking: whether it is
//! still there, and how much of its output waits. One slot for each number that a ticket can have.
//! It holds no pointer.
//!
//! An exchange is offered, then taken, then ended. The application takes it by compare-and-swap before it
//! works on it; the engine ends it by an exchange of the same word, so that a request whose client has left
//! before it was taken is never worked on, and both sides know which of them came first. All else is written
//! by the engine and read by the application.
const std = @import("std");
const peregrine = @import("peregrine");
const Atomic = @import("platform").Atomic;

/// Of one exchange, in a cache line of its own: both sides look at it often.
const Slot = extern struct {
    /// Whose it is and how far that is, see `wordOf`; 0: it has ended.
    word: Atomic(u64) align(line_bytes),
    /// Content that the engine has taken out of the ring, of all that was spoken for the exchange.
    consumed: Atomic(u64),
    /// Twice the bytes that wait for the kernel; and 1 if it did not take them, because the peer does not.
    queued: Atomic(u64),
    /// The engine's own: where its last message lies in the ring of events; `not_yet`: it is on its way
    /// there.
    message_at: u64,
    /// Written by the application: when it began to work on the request, in microseconds; 0: not yet.
    begun_us: Atomic(u64),
    /// The client has ended its sending side: 1.
    left: Atomic(u32),
    /// The exchange that was given up for want of memory, see `shedMark`.
    shed: Atomic(u32),
};

/// What processors exchange with each other as one. (`std.atomic.cache_line` is two of them on x86: the table
/// would be twice as large.)
const line_bytes = 64;

/// How far an exchange is. `refused`: the engine has ended it before it was taken, for a reason that the
/// application is to hear of.
const State = enum(u2) { offered = 1, taken = 2, refused = 3 };

/// A ticket with the state in place of its slot's number, which is the slot's own.
fn wordOf(ticket: u64, state: State) u64 {
    return ticket & ~@as(u64, peregrine.exchanges_max - 1) | @backingInt(state);
}

/// What tells an exchange from others of its slot.
fn shedMark(ticket: u64) u32 {
    return @truncate(ticket >> 32 ^ ticket);
}

/// Later than everything in the ring.
const not_yet = std.math.maxInt(u64);

/// What waits on a connection.
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

    /// Of a whole table.
    pub const bytes = peregrine.exchanges_max * @sizeOf(Slot);

    /// The table in memory of `bytes` that somebody else has, filled with zeros.
    pub fn of(memory: []align(page) u8) Slots {
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

    /// An exchange begins, perhaps behind earlier answers of its connection.
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

    /// It has ended, and nothing that is sent will go out.
    pub fn end(slots: *const Slots, ticket: u64) void {
        slots.slotOf(ticket).word.store(0, .release);
    }

    /// It has ended for want of memory: the application is to give up what it holds for it.
    pub fn noteShed(slots: *const Slots, ticket: u64) void {
        slots.slotOf(ticket).shed.store(shedMark(ticket), .monotonic);
    }

    /// Whether it has.
    pub fn wasShed(slots: *const Slots, ticket: u64) bool {
        const slot = slots.slotOf(ticket);
        return slot.shed.load(.monotonic) == shedMark(ticket) and slots.look(ticket) == null;
    }

    /// The same, but the application hears of it, and why, even if it has not taken it.
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

    /// Takes back what was offered. False: the application has taken it, or it is not offered.
    pub fn recall(slots: *const Slots, ticket: u64) bool {
        const word = &slots.slotOf(ticket).word;
        return word.cmpxchgStrong(wordOf(ticket, .offered), 0, .acq_rel, .monotonic) == null;
    }

    /// A command with so much content has come out of the ring.
    pub fn consume(slots: *const Slots, ticket: u64, content: u64, output: Output) void {
        const slot = slots.slotOf(ticket);
        note(slot, output);
        slot.consumed.store(slot.consumed.load(.monotonic) + content, .release);
    }

    /// What waits has changed.
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

    /// A message is in the ring, and has been read when the application has given back all
    /// before this position.
    pub fn placeMessage(slots: *const Slots, ticket: u64, position: u64) void {
        slots.slotOf(ticket).message_at = position;
    }

    /// Whether the application has read all messages, if it has given back all before this position.
    pub fn hasReadMessages(slots: *const Slots, ticket: u64, position: u64) bool {
        return slots.slotOf(ticket).message_at <= position;
    }

    /// When the application began to work on the request; 0: not yet.
    pub fn begunAt(slots: *const Slots, ticket: u64) u64 {
        return slots.slotOf(ticket).begun_us.load(.monotonic);
    }

    fn note(slot: *Slot, output: Output) void {
        slot.queued.store(@as(u64, output.bytes) * 2 + @intFromBool(output.stuck), .monotonic);
    }

    // ---- The application's side

    /// Whether an exchange waits to be taken, or was refused.
    pub fn isOffered(slots: *const Slots, ticket: u64) bool {
        const word = slots.slotOf(ticket).word.load(.acquire);
        return word == wordOf(ticket, .offered) or word == wordOf(ticket, .refused);
    }

    /// Takes an exchange that was offered. False: it has ended, and there is nothing to hear of it.
    pub fn take(slots: *const Slots, ticket: u64) bool {
        const taken = wordOf(ticket, .taken);
        const word = &slots.slotOf(ticket).word;
        const found = word.cmpxchgStrong(wordOf(ticket, .offered), taken, .acq_rel, .acquire) orelse
            return true;
        return found == taken or found == wordOf(ticket, .refused);
    }

    /// The application begins to work on what it has taken. If that is over already its slot may be
    /// another's, in whose times this is lost.
    pub fn begun(slots: *const Slots, ticket: u64, at_us: u64) void {
        const slot = slots.slotOf(ticket);
        if (slot.word.load(.monotonic) == wordOf(ticket, .taken)) slot.begun_us.store(at_us, .monotonic);
    }

    /// Whether nobody waits for the response, as far as the engine knows.
    pub fn hasLeft(slots: *const Slots, ticket: u64) bool {
        return slots.look(ticket) == null or slots.slotOf(ticket).left.load(.monotonic) != 0;
    }

    /// What is known of an exchange that is still there.
    pub const View = struct { state: State, consumed: u64, queued: u64, stuck: bool };

    /// Null: it has ended.
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
    try std.testing.expect(!slots.take(ticket));
    try std.testing.expectEqual(0, slots.begunAt(ticket));
}

test "what is refused before it was taken is heard of, and nothing can be said to it" {
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
