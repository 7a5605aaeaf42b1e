//! Checks a ring pair both of whose sides wait: neither has work for which nobody will wake it.
const std = @import("std");
const abi = @import("abi");
const RingPair = @FieldType(abi.Handle.Home, "thread");

/// The ring pair to the engine; null: the application polls the engine itself.
pub fn pairOf(handle: *const abi.Handle) ?RingPair {
    return switch (handle.home) {
        .thread => |pair| pair,
        .here, .joined => null,
    };
}
const Child = std.meta.Child(RingPair);

/// Both threads wait, and each has seen what the other one stored.
pub fn check(pair: *Child) !void {
    const engine = &pair.engine;
    const application = &pair.application;
    if (pair.thread == null) return;
    const reader: u32 = engine.commands.shared.header.reader.raw;
    const sleeping = 1;
    if (engine.task.raw != null) return error.TaskForgotten;
    const has_commands = engine.commands.shared.header.tail.raw != engine.commands.at;
    if (has_commands and reader == sleeping) return error.EngineSleepsOverCommands;
    if (!application.asleep) return; // the application computes, and will poll
    if (pair.wakeup.descriptor.readable) return;
    const has_events = application.events.shared.header.tail.raw != application.events.at;
    if (has_events) return error.ApplicationSleepsOverEvents;
    if (engine.host.waiting()) return error.EventsNotHandedOver;
    if (engine.link.delivered < engine.host.taken().len) return error.EventsNotDelivered;
    if (application.events.released != application.events.at) return error.EventsNotGivenBack;
    if (pair.wakeup.raised.raw) return error.WakeupNotSeen;
    if (engine.worker.waiting.parked.items.len > 0) return error.MessagesNotLetGoOn;
    if (engine.worker.pool.loans.returned != null) return error.LoansNotReturned;
    if (engine.returned.isLarge()) return error.LargeLoansNotTold;
}

/// The worker has stopped, and all events were read.
pub fn checkEmpty(pair: *Child) !void {
    const engine = &pair.engine;
    const application = &pair.application;
    const expect = std.testing.expectEqual;
    application.ledger.sweep();
    try expect(0, application.ledger.count);
    try expect(0, engine.held.len);
    try expect(application.commands.at, engine.commands.at);
    try expect(engine.events.at, application.events.at);
    // Ended, or refused before it was taken.
    for (pair.slots.list[0..64]) |*slot| try expect(0, if (slot.word.raw & 3 == 3) 0 else slot.word.raw);
    try expect(null, engine.large);
    try expect(0, engine.borrowed.count);
    if (engine.depot) |depot| try expect(engine.lent.count, depot.units.taken.count());
    try expect(null, application.returned);
    try expect(null, engine.returned.first.raw);
}

/// The state of both ends, for whoever looks for the cause of a finding.
pub fn describe(pair: *Child) void {
    const engine = &pair.engine;
    const application = &pair.application;
    const worker = engine.worker;
    const print = std.debug.print;
    inline for (.{
        .{ "commands", &application.commands, &engine.commands },
        .{ "events", &engine.events, &application.events },
    }) |way| {
        const name, const writer, const reader = way;
        const written, const read = .{ writer.at, reader.at };
        print("{s}: {d} written, {d} read, {d} given back\n", .{ name, written, read, reader.released });
    }
    print("worker: {d} corked, {d} in the backlog, {d} parked, readable {}, urgent {}, {d} pauses\n", .{
        worker.waiting.corked.items.len,
        worker.waiting.backlog.items.len,
        worker.waiting.parked.items.len,
        worker.io.readable(),
        worker.isUrgent(),
        engine.pauses,
    });
    print("clock {d}, next deadline {?d}\n", .{ worker.io.now_ms, worker.wheel.nextExpiry() });
    print("engine: {d} of {d} delivered, more {}; application: asleep {}, wakeup {}\n", .{
        engine.link.delivered,
        engine.host.taken().len,
        engine.host.waiting(),
        application.asleep,
        pair.wakeup.descriptor.readable,
    });
}
