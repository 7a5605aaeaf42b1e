//! Job: the effects of the kernel's completions on the sockets and listeners of a `Uring`. Does not know:
//! events, which `next` makes later from the state that is set here.
const linux = @import("std").os.linux;
const io = @import("../io.zig");
const sys = @import("../sys.zig");
const sending = @import("sending.zig");
const Completion = @import("ring.zig").Completion;
const Entry = @import("entry.zig").Entry;
const Label = @import("ring.zig").Label;
const Ring = @import("ring.zig").Ring;
const Uring = @import("../uring.zig").Uring;

/// Handles a completion: changes the state of its socket or listener.
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
        .send => sending.noteCutShort(uring, @intCast(label.index), completion),
        .block => sending.noteBlock(uring, label.index, completion),
        .room => if (entryFor(uring, label)) |entry| {
            entry.flags.awaits_room = false;
            sending.noteRoom(uring, label.index);
        },
        .trouble => if (entryFor(uring, label)) |entry| {
            if (!more) entry.flags.watches_trouble = false;
            // A pending receive reports errors itself.
            if (entry.flags.receives or entry.end != .none) return;
            const code = sys.takeError(@intCast(label.index));
            if (code == .SUCCESS) {
                if (completion.res <= 0 or completion.res & Ring.peer_shut == 0) return;
                entry.flags.peer_shut = true;
            } else entry.end = .{ .reset = sys.number(code) };
            uring.enqueue(label.index);
        },
    }
}

/// Returns true for completions that `next` may handle later: those whose order matters for a socket's bytes.
/// The others matter for sends of this round.
pub fn mayWait(completion: Completion) bool {
    const label: Label = @bitCast(completion.user_data);
    return label.kind == .receive or label.kind == .trouble;
}

/// Like `note`, but returns the event at once if the completion has bytes of a socket without other news.
pub fn deliver(uring: *Uring, completion: Completion) ?io.Event {
    const label: Label = @bitCast(completion.user_data);
    const entry = &uring.entries.items[label.index];
    const plain = label.kind == .receive and completion.res > 0 and
        completion.flags & linux.IORING_CQE_F_MORE != 0 and
        entry.generation == label.generation and entry.phase == .open and entry.pieces.count == 0 and
        entry.round != uring.round and
        !entry.flags.paused and !entry.flags.queued;
    if (!plain) {
        note(uring, completion);
        return null;
    }
    const piece = uring.buffers.take(completion.buffer_id() catch unreachable, @intCast(completion.res));
    uring.lent = piece;
    entry.round = uring.round;
    return .{ .received = .{ .token = entry.token, .bytes = piece.bytes } };
}

fn noteReceived(uring: *Uring, label: Label, completion: Completion, more: bool) void {
    const piece = if (completion.buffer_id()) |id|
        uring.buffers.take(id, @intCast(@max(completion.res, 0)))
    else |_|
        null;
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
        if (entry.flags.paused) {
            uring.holdBack(label.index);
        } else if (entry.pieces.count >= Uring.pieces_max) {
            uring.stopReceiving(label.index);
        }
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

/// Lets sockets for which the kernel had no buffer receive again, if buffers are free.
pub fn feedStarved(uring: *Uring) void {
    if (!uring.buffers.available()) return;
    for (uring.starved.items) |index| {
        const entry = &uring.entries.items[index];
        entry.flags.starved = false;
        if (entry.phase == .open and entry.end == .none and !entry.flags.paused) uring.armReceive(index);
    }
    uring.starved.clearRetainingCapacity();
}

/// Returns the entry of a completion's socket; null: the socket was closed meanwhile.
fn entryFor(uring: *Uring, label: Label) ?*Entry {
    const entry = &uring.entries.items[label.index];
    return if (entry.phase != .vacant and entry.generation == label.generation) entry else null;
}
