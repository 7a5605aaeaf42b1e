//! What an engine lets applications see of each exchange at any time, without asking: whether it is still there, and how much of its output
//! waits. One slot for each number that a ticket can have; written by the engine, read by the application. It holds no pointer.
const std = @import("std");
const peregrine = @import("peregrine");
const Atomic = @import("platform").Atomic;

/// Of one exchange, in a cache line of its own: both sides look at it often.
const Slot = extern struct {
    /// 0: it has ended.
    ticket: Atomic(u64) align(line_bytes),
    /// Content that the engine has taken out of the ring, of all that was spoken for the exchange.
    taken: Atomic(u64),
    /// Twice the bytes that wait for the kernel; and 1 if it did not take them, because the peer does not.
    queued: Atomic(u64),
    /// The engine's own: where its last message lies in the ring of events; `not_yet`: it is on its way there.
    message_at: u64,
    /// Written by the application: when it began to work on the request, in microseconds; 0: not yet.
    begun_us: Atomic(u64),
};

/// What processors exchange with each other as one. (`std.atomic.cache_line` is two of them on x86: the table would be twice as large.)
const line_bytes = 64;

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
        const memory = std.heap.page_allocator.rawAlloc(count * @sizeOf(Slot), .fromByteUnits(page), @returnAddress());
        const list: [*]Slot = @ptrCast(@alignCast(memory orelse return error.OutOfMemory));
        return .{ .list = list[0..count] };
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
        slot.taken.store(0, .monotonic);
        slot.message_at = 0;
        slot.begun_us.store(0, .monotonic);
        note(slot, output);
        slot.ticket.store(ticket, .release);
    }

    /// It has ended, and nothing that is sent will go out.
    pub fn end(slots: *const Slots, ticket: u64) void {
        slots.slotOf(ticket).ticket.store(0, .release);
    }

    /// A command with so much content was taken.
    pub fn take(slots: *const Slots, ticket: u64, content: u64, output: Output) void {
        const slot = slots.slotOf(ticket);
        note(slot, output);
        slot.taken.store(slot.taken.load(.monotonic) + content, .release);
    }

    /// What waits has changed.
    pub fn progress(slots: *const Slots, ticket: u64, output: Output) void {
        note(slots.slotOf(ticket), output);
    }

    /// A message is on its way to the application.
    pub fn noteMessage(slots: *const Slots, ticket: u64) void {
        slots.slotOf(ticket).message_at = not_yet;
    }

    /// A message is in the ring, and has been read when the application has given back all before this position.
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

    /// The application begins to work on a request. It may be over already; then its slot may be another's, in whose times this is lost.
    pub fn begun(slots: *const Slots, ticket: u64, at_us: u64) void {
        const slot = slots.slotOf(ticket);
        if (slot.ticket.load(.monotonic) == ticket) slot.begun_us.store(at_us, .monotonic);
    }

    /// What is known of an exchange that is still there.
    pub const View = struct { taken: u64, queued: u64, stuck: bool };

    /// Null: it has ended.
    pub fn look(slots: *const Slots, ticket: u64) ?View {
        const slot = slots.slotOf(ticket);
        const taken = slot.taken.load(.acquire);
        const queued = slot.queued.load(.monotonic);
        const view: View = .{ .taken = taken, .queued = queued / 2, .stuck = queued % 2 != 0 };
        return if (slot.ticket.load(.acquire) == ticket) view else null;
    }
};

test "an exchange in its slot" {
    var slots: Slots = try .init();
    defer slots.deinit();
    const ticket = 5 + (1 << 26);
    try std.testing.expectEqual(null, slots.look(ticket));
    slots.begin(ticket, .{ .bytes = 7, .stuck = false });
    slots.take(ticket, 100, .{ .bytes = 50, .stuck = false });
    slots.take(ticket, 10, .{ .bytes = 40, .stuck = true });
    try std.testing.expectEqual(Slots.View{ .taken = 110, .queued = 40, .stuck = true }, slots.look(ticket));
    slots.progress(ticket, .{ .bytes = 0, .stuck = false });
    try std.testing.expectEqual(Slots.View{ .taken = 110, .queued = 0, .stuck = false }, slots.look(ticket));
    try std.testing.expectEqual(null, slots.look(ticket + (2 << 26)));
    try std.testing.expect(slots.hasReadMessages(ticket, 0));
    slots.noteMessage(ticket);
    try std.testing.expect(!slots.hasReadMessages(ticket, 1 << 60));
    slots.placeMessage(ticket, 80);
    try std.testing.expect(!slots.hasReadMessages(ticket, 72) and slots.hasReadMessages(ticket, 80));
    try std.testing.expectEqual(0, slots.begunAt(ticket));
    slots.begun(ticket, 9);
    slots.begun(ticket + (2 << 26), 10);
    try std.testing.expectEqual(9, slots.begunAt(ticket));
    slots.end(ticket);
    try std.testing.expectEqual(null, slots.look(ticket));
}
