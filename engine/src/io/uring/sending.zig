//! Job: the part of a `Uring` that sends, and closes sockets with unsent output. Does not know: memory for
//! output (outgoing.zig's job).
const std = @import("std");
const assert = std.debug.assert;
const io = @import("../io.zig");
const sys = @import("../sys.zig");
const transfer = @import("../transfer.zig");
const outgoing_file = @import("outgoing.zig");
const Block = outgoing_file.Block;
const Completion = @import("ring.zig").Completion;
const Entry = @import("entry.zig").Entry;
const Label = @import("ring.zig").Label;
const SendResult = io.SendResult;
const Slice = io.Slice;
const Socket = io.Socket;
const Uring = @import("../uring.zig").Uring;

/// The time after close in which a socket's remaining output must be sent, in milliseconds.
const closing_send_ms = 10_000;

/// Sends slices in order. A short send is made with the next `wait` or `alarm`, and counts as sent.
pub fn send(uring: *Uring, socket: Socket, slices: []const Slice, more: bool) SendResult {
    const index = Uring.indexOf(socket);
    const entry = uring.entryOf(socket);
    if (entry.phase.deathErrno()) |errno| return .{ .failed = errno };
    assert(!entry.flags.send_shut);
    var total: usize = 0;
    for (slices) |piece| total += piece.len;
    if (total == 0) return .{ .sent = 0 };
    if (isSending(uring, index)) return postpone(uring, entry);
    if (uring.outgoing.add(index, slices, total)) |number| {
        entry.send = number;
        // Registering a file costs more than it saves in a single send, so only a connection's second send
        // does it.
        if (entry.flags.has_sent and !entry.flags.attached) {
            entry.flags.attached = uring.ring.attach(@intCast(index));
        }
        entry.flags.has_sent = true;
        uring.ring.send(
            @intCast(index),
            entry.flags.attached,
            uring.outgoing.bytesOf(number),
            .{ .index = number, .kind = .send },
        );
        uring.expedite();
        return .{ .sent = total };
    }
    switch (sys.send(@intCast(index), slices, more)) {
        .done => |count| {
            if (count < total) awaitRoom(uring, index);
            return .{ .sent = count };
        },
        .blocked => {
            awaitRoom(uring, index);
            return .blocked;
        },
        .failed => |code| return .{ .failed = uring.die(index, sys.number(code)) },
    }
}

/// Whether the next send must wait for an earlier one.
fn isSending(uring: *const Uring, index: u32) bool {
    const entry = &uring.entries.items[index];
    return uring.outgoing.holds(entry.send, index) or entry.block != null or entry.flags.awaits_room;
}

/// Refuses a send because output of earlier sends goes first; a `sent` event follows.
fn postpone(uring: *Uring, entry: *Entry) SendResult {
    entry.flags.blocked = true;
    uring.follows = true;
    return .blocked;
}

/// Sends up to `len` bytes of a file from `offset` on, and at most `send_file_bytes_max`. May raise SIGPIPE.
pub fn sendFile(uring: *Uring, socket: Socket, file: sys.Fd, offset: u64, len: u64) SendResult {
    const index = Uring.indexOf(socket);
    const entry = uring.entryOf(socket);
    if (entry.phase.deathErrno()) |errno| return .{ .failed = errno };
    assert(!entry.flags.send_shut);
    if (isSending(uring, index)) return postpone(uring, entry);
    const total: usize = @intCast(@min(len, uring.options.send_file_bytes_max));
    if (total == 0) return .{ .sent = 0 };
    const result = transfer.sendFile(@intCast(index), file, offset, total);
    if (result.full) awaitRoom(uring, index);
    switch (result.outcome) {
        .sent => |count| if (!result.full and count < len) {
            entry.flags.sent_due = true;
            uring.endTurn(index);
        },
        .failed => |errno| _ = uring.die(index, errno),
        .blocked, .end_of_file, .file_failed => {},
    }
    return result.outcome;
}

fn awaitRoom(uring: *Uring, index: u32) void {
    const entry = &uring.entries.items[index];
    entry.flags.blocked = true;
    if (entry.flags.awaits_room) return;
    entry.flags.awaits_room = true;
    uring.ring.poll(@intCast(index), .room, entry.label(index, .room));
    uring.expedite();
}

/// Ends our sending side after the output so far. Nothing may be sent afterwards.
pub fn shutdownSend(uring: *Uring, socket: Socket) void {
    const index = Uring.indexOf(socket);
    const entry = uring.entryOf(socket);
    entry.flags.send_shut = true;
    entry.flags.blocked = false;
    entry.flags.sent_due = false;
    // If output is pending, the side ends when the kernel has taken it.
    if (uring.outgoing.holds(entry.send, index)) {
        uring.follows = true;
    } else if (entry.block == null) sys.shutdownSend(@intCast(index));
}

/// Closes a socket, added or not. No event of it is delivered from now on.
pub fn close(uring: *Uring, socket: Socket) void {
    const index = Uring.indexOf(socket);
    switch (forget(uring, index)) {
        .nothing => uring.ring.close(@intCast(index)),
        // These bytes count as sent, so the descriptor stays open until the kernel has taken them.
        .send => |number| {
            uring.outgoing.sends[number].fate = .orphaned;
            uring.follows = true;
        },
        .block => |block| uring.outgoing.orphan(block, uring.now() + closing_send_ms),
    }
    uring.expedite();
}

/// Closes a socket with a reset, otherwise like `close`.
pub fn reset(uring: *Uring, socket: Socket) void {
    sys.resetOnClose(@backingInt(socket));
    const index = Uring.indexOf(socket);
    // After a reset no output needs to arrive.
    switch (forget(uring, index)) {
        .nothing => uring.ring.close(@intCast(index)),
        .send => |number| {
            uring.outgoing.sends[number].fate = .settled;
            uring.ring.close(@intCast(index));
        },
        .block => |block| {
            uring.outgoing.orphan(block, 0);
            uring.follows = true;
        },
    }
    uring.expedite();
}

/// Output of a socket that the kernel has not taken yet.
const Unsent = union(enum) { nothing, send: u16, block: *Block };

/// Vacates a socket's entry and returns its pending output, which keeps the descriptor in use.
fn forget(uring: *Uring, index: u32) Unsent {
    if (index >= uring.entries.items.len) return .nothing;
    const entry = &uring.entries.items[index];
    if (entry.phase == .vacant) return .nothing;
    const unsent: Unsent = if (entry.block) |block|
        .{ .block = block }
    else if (uring.outgoing.holds(entry.send, index)) .{ .send = entry.send } else .nothing;
    uring.vacate(index);
    return unsent;
}

// ---- Completions

/// Handles the end of a visit: the kernel has taken the batch, except for sends that it reported.
pub fn noteTaken(uring: *Uring) void {
    if (uring.follows) for (uring.outgoing.current()) |*sent| switch (sent.fate) {
        .open => noteSent(uring, sent.index, 0),
        .orphaned => uring.ring.close(@intCast(sent.index)),
        .settled => {},
    };
    uring.follows = false;
    uring.outgoing.turn();
}

/// Handles a send of the batch that the kernel has not taken completely.
pub fn noteCutShort(uring: *Uring, number: u16, completion: Completion) void {
    const sent = &uring.outgoing.sends[number];
    const bytes = uring.outgoing.bytesOf(number)[@intCast(@max(completion.res, 0))..];
    const fate = sent.fate;
    if (bytes.len == 0 or fate == .settled) return;
    sent.fate = .settled;
    const code = completion.err();
    const errno = if (code != .SUCCESS and code != .AGAIN) sys.number(code) else errno: {
        const block = uring.outgoing.keep(sent.index, bytes) catch break :errno sys.number(.NOMEM);
        if (fate == .orphaned) {
            uring.outgoing.orphan(block, uring.now() + closing_send_ms);
        } else {
            uring.entries.items[sent.index].block = block;
        }
        return uring.ring.sendPatiently(@intCast(block.index), block.rest(), labelOf(block));
    };
    if (fate == .orphaned) return uring.ring.close(@intCast(sent.index));
    noteSent(uring, sent.index, errno);
}

/// Handles a completion of a block: more of it was sent, all of it, or the send failed.
pub fn noteBlock(uring: *Uring, id: u32, completion: Completion) void {
    const block = uring.outgoing.blocks.items[id].?;
    block.done += @intCast(@max(completion.res, 0));
    const code = completion.err();
    const failed = code != .SUCCESS and code != .AGAIN;
    if (!failed and block.done < block.bytes.len) {
        return uring.ring.sendPatiently(@intCast(block.index), block.rest(), labelOf(block));
    }
    const index = block.index;
    const orphaned = block.orphaned;
    uring.outgoing.give(block);
    if (orphaned) return uring.ring.close(@intCast(index));
    uring.entries.items[index].block = null;
    noteSent(uring, index, if (failed) sys.number(code) else 0);
}

/// Handles the end of a send. `errno` 0: it succeeded.
fn noteSent(uring: *Uring, index: u32, errno: u16) void {
    const entry = &uring.entries.items[index];
    if (entry.phase.deathErrno() != null) return;
    if (errno != 0) {
        _ = uring.die(index, errno);
    } else if (entry.flags.send_shut) {
        sys.shutdownSend(@intCast(index));
    } else noteRoom(uring, index);
}

/// Reports room to the owner of a socket whose send was refused.
pub fn noteRoom(uring: *Uring, index: u32) void {
    const entry = &uring.entries.items[index];
    if (!entry.flags.blocked or entry.block != null or entry.flags.awaits_room) return;
    entry.flags.blocked = false;
    entry.flags.sent_due = true;
    uring.enqueue(index);
}

/// Cancels the output of closed sockets whose time (`closing_send_ms`) is over.
pub fn hurryOrphans(uring: *Uring) void {
    const time = uring.now();
    for (uring.outgoing.blocks.items) |each| if (each) |block| if (block.until_ms <= time) {
        block.until_ms = outgoing_file.never;
        uring.ring.cancel(labelOf(block));
    };
}

fn labelOf(block: *const Block) Label {
    return .{ .index = block.id, .kind = .block };
}
