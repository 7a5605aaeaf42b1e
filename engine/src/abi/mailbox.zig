//! Answers and messages from other threads: peregrine_post() puts them into a worker's mailbox, and the next
//! peregrine_poll() gives them to the engine, wherever that is, on the thread that polls.
const std = @import("std");
const assert = std.debug.assert;
const peregrine = @import("peregrine");
const platform = @import("platform");
const sized = @import("sized.zig");
const types = @import("types.zig");
const fork = peregrine.io.fork;
const Code = types.Code;
const Handle = @import("handle.zig").Handle;
const gpa = platform.gpa;

const bytes_max = peregrine.api_limits.mailbox_bytes_max;
const fields_max = peregrine.api_limits.answer_fields_max;

/// `peregrine_mailbox`: a reference to the inbox, which outlives its worker.
pub const Mailbox = struct {
    inbox: *peregrine.Inbox,
    /// `fork.count` of the process that the worker belongs to.
    forks: u32,
};

pub export fn peregrine_mailbox_new(handle: *Handle) callconv(.c) ?*Mailbox {
    if (handle.place() == .gone) return null;
    const inbox = handle.inbox orelse peregrine.Inbox.create(
        gpa,
        .{ .context = handle, .wake = wake },
        bytes_max,
    ) catch return null;
    handle.inbox = inbox;
    const mailbox = gpa.create(Mailbox) catch return null;
    mailbox.* = .{ .inbox = inbox, .forks = handle.forks };
    inbox.retain();
    assert(mailbox.forks == fork.count());
    return mailbox;
}

pub export fn peregrine_mailbox_free(mailbox: ?*Mailbox) callconv(.c) void {
    const m = mailbox orelse return;
    m.inbox.release();
    gpa.destroy(m);
}

pub export fn peregrine_post(
    mailbox: *const Mailbox,
    ticket: types.Ticket,
    given: *const sized.Header,
) callconv(.c) c_int {
    if (mailbox.forks != fork.count()) return Code.gone;
    const response = sized.read(types.Response, given);
    const command = commandOf(&response) catch |err| return switch (err) {
        error.InvalidStatus => Code.status,
        error.TooManyFields => Code.range,
        error.NotUtf8 => Code.utf8,
    };
    mailbox.inbox.tell(@fromBackingInt(ticket), command) catch |err| return switch (err) {
        error.Gone => Code.gone,
        error.Full => Code.full,
        error.OutOfMemory => Code.memory,
    };
    return Code.ok;
}

const Fault = error{ InvalidStatus, TooManyFields, NotUtf8 };

fn commandOf(response: *const types.Response) Fault!peregrine.Command {
    const body = if (response.body) |bytes| bytes[0..response.body_len] else "";
    if (response.status == 0) {
        const is_text = response.flags & types.EventFlag.text != 0;
        if (is_text and !std.unicode.utf8ValidateSlice(body)) return error.NotUtf8;
        return .{ .message = .{ .kind = if (is_text) .text else .binary, .bytes = body } };
    }
    if (response.status < 200 or response.status > 599) return error.InvalidStatus;
    if (response.field_count > fields_max) return error.TooManyFields;
    return .{ .start = .{
        .status = response.status,
        .fields = if (response.fields) |fields| fields[0..response.field_count] else &.{},
        .body = body,
        .end = true,
        .close = response.flags & types.RespondFlag.close != 0,
    } };
}

fn wake(context: *anyopaque) void {
    const handle: *Handle = @ptrCast(@alignCast(context));
    handle.wake();
}

/// Gives all posts so far to the engine; false: there were none. Called by peregrine_poll() before it waits;
/// a post that comes later ends the wait, and after a delivery peregrine_poll() does not wait.
pub fn deliver(handle: *Handle) bool {
    const inbox = handle.inbox orelse return false;
    if (!inbox.hasMail() or handle.place() == .gone) return false;
    var space: [fields_max]peregrine.Field = undefined;
    var mail = inbox.take();
    while (mail.pop()) |message| {
        defer inbox.free(message);
        assert(message.content == .command);
        const addressed = message.content.command; // the mailbox takes commands only
        const command = addressed.read(&space);
        speak(handle, @backingInt(addressed.ticket), command);
    }
    return true;
}

/// Raises the wakeup of posts that have come since the last delivery, because peregrine_poll() may have
/// cleared it: a loop that watches peregrine_fd() would not call again.
pub fn announce(handle: *Handle) void {
    const inbox = handle.inbox orelse return;
    if (inbox.hasMail()) handle.wake();
}

/// Gives a post to the engine. For a refused answer, as of a bad field, the client gets a 500 and need not
/// wait.
fn speak(handle: *Handle, ticket: types.Ticket, command: peregrine.Command) void {
    const code = handle.apply(ticket, command);
    if (code >= 0 or code == Code.gone or code == Code.out_of_order or command == .message) return;
    _ = handle.apply(ticket, .{ .start = .{ .status = 500, .fields = &.{}, .body = "", .end = true } });
}

/// Called by peregrine_worker_free(). Later posts answer GONE.
pub fn close(handle: *Handle) void {
    const inbox = handle.inbox orelse return;
    inbox.close();
    inbox.release();
    handle.inbox = null;
}
