//! Job: what the kernel's completions mean for the sockets and listeners of a `Uring`.
//! Refuses to know: events; they are made of what is noted here when it is the socket's turn.
const linux = @import("std").os.linux;
const sys = @import("../sys.zig");
const blocks_room = @import("blocks.zig");
const Block = blocks_room.Block;
const Completion = @import("ring.zig").Completion;
const Entry = @import("entry.zig").Entry;
const Label = @import("ring.zig").Label;
const Uring = @import("../uring.zig").Uring;

/// One completion.
pub fn note(uring: *Uring, completion: Completion) void {
    const label: Label = @bitCast(completion.user_data);
    const more = completion.flags & linux.IORING_CQE_F_MORE != 0;
    switch (label.kind) {
        .none => {},
        .knock => uring.knocked = false,
        .timer => uring.timer_at_ms = null,
        .waker => {
            if (!more) uring.waker_armed = false;
            if (uring.wake_requested.swap(false, .acq_rel)) uring.woken_due = true;
        },
        .accept => uring.listeners.items[label.index].note(uring.gpa, completion.res, completion.err(), more),
        .receive => noteReceived(uring, label, completion, more),
        .send => noteSent(uring, label.index, completion),
        .room => if (entryFor(uring, label)) |entry| {
            entry.flags.awaits_room = false;
            noteRoom(uring, label.index);
        },
        .trouble => if (entryFor(uring, label)) |entry| {
            if (!more) entry.flags.watches_trouble = false;
            // A receive that is under way reports it itself.
            if (entry.flags.receives or entry.end != .none) return;
            const code = sys.takeError(@intCast(label.index));
            if (code == .SUCCESS) return;
            entry.end = .{ .reset = sys.number(code) };
            uring.enqueue(label.index);
        },
    }
}

fn noteReceived(uring: *Uring, label: Label, completion: Completion, more: bool) void {
    const piece = if (completion.buffer_id()) |id| uring.buffers.take(id, @intCast(@max(completion.res, 0))) else |_| null;
    const entry = entryFor(uring, label) orelse {
        if (piece) |late| uring.buffers.give(late);
        return;
    };
    if (!more) {
        entry.flags.receives = false;
        entry.flags.stopping = false;
    }
    if (piece != null and completion.res > 0) {
        entry.pieces.append(piece.?);
        if (entry.flags.paused) uring.holdBack(label.index) else if (entry.pieces.count >= Uring.pieces_max) uring.stopReceiving(label.index);
    } else {
        if (piece) |empty| uring.buffers.give(empty);
        switch (completion.err()) {
            .SUCCESS => entry.end = .eof,
            .CANCELED, .INTR, .AGAIN => {},
            .NOBUFS => if (!entry.flags.starved) {
                entry.flags.starved = true;
                uring.starved.appendAssumeCapacity(label.index);
            },
            else => |code| entry.end = .{ .reset = sys.number(code) },
        }
    }
    uring.enqueue(label.index);
}

/// The kernel is done with the blocks that it was given, except for those that it had something to say about.
pub fn noteAsked(uring: *Uring) void {
    for (uring.blocks.asked.items) |block| {
        if (block.state == .asked) finishBlock(uring, block, 0);
    }
    uring.blocks.asked.clearRetainingCapacity();
    uring.follows = false;
}

/// It has not taken all of a block, or is done with one that it had no room for.
fn noteSent(uring: *Uring, id: u32, completion: Completion) void {
    const block = uring.blocks.all.items[id];
    block.done += @intCast(@max(completion.res, 0));
    const code = completion.err();
    if (code != .SUCCESS and code != .AGAIN) return finishBlock(uring, block, sys.number(code));
    if (block.done == block.len) return finishBlock(uring, block, 0);
    block.state = .patient;
    uring.ring.sendPatiently(@intCast(block.index), block.rest(), Uring.sendLabel(block));
}

fn finishBlock(uring: *Uring, block: *Block, errno: u16) void {
    const index = block.index;
    const orphaned = block.orphaned;
    uring.blocks.give(block);
    if (orphaned) return uring.ring.close(@intCast(index));
    const entry = &uring.entries.items[index];
    entry.block = null;
    if (entry.phase.deathErrno() != null) return;
    if (errno != 0) {
        _ = uring.die(index, errno);
    } else if (entry.flags.send_shut) {
        sys.shutdownSend(@intCast(index));
    } else noteRoom(uring, index);
}

/// A send that was refused may be tried again.
fn noteRoom(uring: *Uring, index: u32) void {
    const entry = &uring.entries.items[index];
    if (!entry.flags.blocked or entry.isSending()) return;
    entry.flags.blocked = false;
    entry.flags.sent_due = true;
    uring.enqueue(index);
}

/// What closed sockets left to send does not get all the time in the world.
pub fn hurryOrphans(uring: *Uring) void {
    const time = uring.now();
    for (uring.blocks.all.items) |block| if (block.state == .patient and block.until_ms <= time) {
        block.until_ms = blocks_room.never;
        uring.ring.cancel(Uring.sendLabel(block));
    };
}

/// Buffers are free again: those that found none get their turn.
pub fn feedStarved(uring: *Uring) void {
    if (!uring.buffers.available()) return;
    for (uring.starved.items) |index| {
        const entry = &uring.entries.items[index];
        entry.flags.starved = false;
        if (entry.phase == .open and entry.end == .none and !entry.flags.paused) uring.armReceive(index);
    }
    uring.starved.clearRetainingCapacity();
}

/// The socket that a completion is about, unless it was closed meanwhile.
fn entryFor(uring: *Uring, label: Label) ?*Entry {
    const entry = &uring.entries.items[label.index];
    return if (entry.phase != .vacant and entry.generation == label.generation) entry else null;
}
