//! What must hold of a channel when both of its sides wait: none of them has work for which nobody will wake
//! it.
const std = @import("std");
const abi = @import("abi");
const Channel = std.meta.Child(@FieldType(abi.Handle, "channel"));
const Child = std.meta.Child(Channel);

/// Both threads wait, and each has seen what the other one stored.
pub fn check(channel: *Child) !void {
    const engine = &channel.engine;
    const application = &channel.application;
    if (channel.thread == null) return;
    const reader: u32 = engine.commands.shared.header.reader.raw;
    const sleeping = 1;
    if (engine.errand.raw != null) return error.ErrandForgotten;
    if (engine.commands.shared.header.tail.raw != engine.commands.at and reader == sleeping) {
        return error.EngineSleepsOverCommands;
    }
    if (!application.asleep) return; // it computes, and will poll
    if (application.events.shared.header.tail.raw != application.events.at and
        !channel.bell.descriptor.readable)
    {
        return error.ApplicationSleepsOverEvents;
    }
    if (channel.bell.descriptor.readable) return; // it computes
    if (engine.host.waiting()) return error.EventsNotHandedOver;
    if (engine.delivered < engine.host.taken().len) return error.EventsNotDelivered;
    if (application.events.released != application.events.at) return error.EventsNotGivenBack;
    if (channel.bell.rung.raw) return error.BellNotHeard;
    if (engine.worker.parked.items.len > 0) return error.MessagesNotLetGoOn;
}

/// The worker has stopped, and all events were read.
pub fn checkEmpty(channel: *Child) !void {
    const engine = &channel.engine;
    const application = &channel.application;
    const expect = std.testing.expectEqual;
    application.ledger.sweep();
    try expect(0, application.ledger.count);
    try expect(0, engine.held.len);
    try expect(application.commands.at, engine.commands.at);
    try expect(engine.events.at, application.events.at);
    for (channel.slots.list[0..64]) |*slot| try expect(0, slot.ticket.raw);
    try expect(null, engine.large);
    try expect(null, application.returned);
}

/// The state of both ends, for whoever looks for the cause of a finding.
pub fn describe(channel: *Child) void {
    const engine = &channel.engine;
    const application = &channel.application;
    const print = std.debug.print;
    print(
        "commands: {d} written, {d} read, {d} given back; events: {d} written, {d} read, {d} given back\n",
        .{
            application.commands.at, engine.commands.at,    engine.commands.released,
            engine.events.at,        application.events.at, application.events.released,
        },
    );
    const worker = engine.worker;
    print("worker: {d} corked, {d} in the backlog, {d} handshakes, readable {}, urgent {}, {d} naps\n", .{
        worker.corked.items.len, worker.backlog.items.len, 0, worker.io.readable(), worker.isUrgent(),
        engine.naps,
    });
    print(
        "clock {d}, next deadline {?d}, accept at {d}, relief at {d}\n",
        .{ worker.io.now_ms, worker.wheel.nextExpiry(), worker.accept_at, worker.relief.due_at },
    );
    print("engine: {d} of {d} delivered, waiting {}, {d} parked; application: asleep {}, bell {}\n", .{
        engine.delivered,               engine.host.taken().len, engine.host.waiting(),
        engine.worker.parked.items.len, application.asleep,      channel.bell.descriptor.readable,
    });
}
