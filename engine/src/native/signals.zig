//! SIGINT and SIGTERM for any number of servers in one process. A process has one handler per signal, so the
//! table of servers that are to be told is global. The handler only loads atomics and calls functions that
//! are safe in it. Does not know: what stopping means.
const std = @import("std");
const posix = std.posix;
const Atomic = std.atomic.Value;

/// A server that signals stop. `call` runs inside a signal handler: atomics and system calls only. Neither
/// moves nor dies before `remove`.
pub const Listener = struct {
    context: *anyopaque,
    call: *const fn (*anyopaque) void,
};

/// Servers of one process that can listen for signals; further servers have to be stopped by `shutdown`.
pub const listeners_max = 64;

const signals = [_]posix.SIG{ .INT, .TERM };

var table: [listeners_max]Atomic(?*const Listener) = @splat(.init(null));
/// The number of signal handlers that read the table, in any thread.
var looking: Atomic(u32) = .init(0);
/// Guards `previous` and the change of the handlers; held for a few system calls.
var busy: Atomic(bool) = .init(false);
var count: usize = 0;
var previous: [signals.len]posix.Sigaction = undefined;

/// Tells `listener` of SIGINT and SIGTERM from now on. The first listener replaces the process's handlers.
pub fn add(listener: *const Listener) error{TooManyServers}!void {
    lock();
    defer busy.store(false, .release);
    const slot = for (&table) |*slot| {
        if (slot.load(.monotonic) == null) break slot;
    } else return error.TooManyServers;
    slot.store(listener, .seq_cst);
    count += 1;
    if (count > 1) return;
    const action: posix.Sigaction = .{
        .handler = .{ .handler = onSignal },
        .mask = posix.sigemptyset(),
        .flags = posix.SA.RESTART,
    };
    for (signals, &previous) |signal, *before| posix.sigaction(signal, &action, before);
}

/// Stops telling `listener`; when this returns no signal handler is calling it. The end of the last listener
/// puts the process's handlers back.
pub fn remove(listener: *const Listener) void {
    lock();
    defer busy.store(false, .release);
    for (&table) |*slot| {
        if (slot.load(.monotonic) != listener) continue;
        slot.store(null, .seq_cst);
        count -= 1;
        if (count == 0) for (signals, &previous) |signal, *before| posix.sigaction(signal, before, null);
        break;
    }
    while (looking.load(.seq_cst) > 0) std.atomic.spinLoopHint();
}

/// A peer that closes while a file is sent to it raises SIGPIPE, which would end the process: ignored, unless
/// the program handles it.
pub fn ignorePipe() void {
    var action: posix.Sigaction = undefined;
    posix.sigaction(.PIPE, null, &action);
    if (action.handler.handler != posix.SIG.DFL) return;
    action.handler = .{ .handler = posix.SIG.IGN };
    posix.sigaction(.PIPE, &action, null);
}

fn lock() void {
    while (busy.swap(true, .acquire)) std.atomic.spinLoopHint();
}

fn onSignal(_: posix.SIG) callconv(.c) void {
    _ = looking.fetchAdd(1, .seq_cst);
    defer _ = looking.fetchSub(1, .seq_cst);
    for (&table) |*slot| if (slot.load(.seq_cst)) |listener| listener.call(listener.context);
}

const testing = std.testing;

fn increment(context: *anyopaque) void {
    const told: *Atomic(u32) = @ptrCast(@alignCast(context));
    _ = told.fetchAdd(1, .monotonic);
}

test "every listener is told, and the process gets its handlers back" {
    var before: posix.Sigaction = undefined;
    posix.sigaction(.TERM, null, &before);
    var told: [2]Atomic(u32) = @splat(.init(0));
    var listeners: [2]Listener = undefined;
    for (&listeners, &told) |*listener, *number| {
        listener.* = .{ .context = number, .call = increment };
        try add(listener);
    }
    _ = std.os.linux.tgkill(std.os.linux.getpid(), std.os.linux.gettid(), .TERM);
    remove(&listeners[0]);
    _ = std.os.linux.tgkill(std.os.linux.getpid(), std.os.linux.gettid(), .INT);
    remove(&listeners[1]);
    try testing.expectEqual(1, told[0].load(.monotonic));
    try testing.expectEqual(2, told[1].load(.monotonic));
    var after: posix.Sigaction = undefined;
    posix.sigaction(.TERM, null, &after);
    try testing.expectEqual(before.handler.handler, after.handler.handler);
}
