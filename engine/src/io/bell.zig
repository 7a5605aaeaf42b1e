//! A descriptor that one thread watches and others make readable, and a word that a thread sleeps on until
//! another one wakes it. Does not know: what it is about.
const std = @import("std");
const builtin = @import("builtin");
const sys = @import("sys.zig");
const log_calls = @import("sys/log.zig");
const watch = @import("sys/epoll.zig");
const Atomic = std.atomic.Value;

/// Readable from `ring` to `clear`. Not for systems other than Linux yet.
pub const Bell = struct {
    descriptor: sys.Fd,
    /// It was rung and not cleared: nobody needs to ask the kernel.
    rung: Atomic(bool) = .init(false),

    pub fn init() sys.ResourceError!Bell {
        if (builtin.os.tag != .linux) @compileError("a bell needs an eventfd");
        return .{ .descriptor = try watch.eventFd() };
    }

    pub fn deinit(bell: *Bell) void {
        sys.close(bell.descriptor);
    }

    /// To be watched for reading.
    pub fn fd(bell: *const Bell) i32 {
        return bell.descriptor;
    }

    /// Makes it readable. From any thread.
    pub fn ring(bell: *Bell) void {
        if (!bell.rung.swap(true, .acq_rel)) watch.eventRaise(bell.descriptor);
    }

    /// Makes it unreadable. Why it was rung is to be looked at after this: what rings meanwhile may
    /// leave no other trace.
    pub fn clear(bell: *Bell) void {
        if (!bell.rung.load(.monotonic)) return;
        watch.eventTake(bell.descriptor);
        _ = bell.rung.swap(false, .acq_rel);
    }

    /// Waits until it is readable, at most `timeout_ms` (-1: without bound). A signal ends the wait early.
    pub fn wait(bell: *const Bell, timeout_ms: i32) void {
        sys.waitReadable(bell.descriptor, timeout_ms);
    }
};

/// Something that one thread waits for and another one does, once.
pub const Promise = struct {
    kept: Atomic(u32) = .init(0),

    /// It can be kept once more. Only by who waits for it.
    pub fn renew(promise: *Promise) void {
        promise.kept.store(0, .seq_cst);
    }

    /// Waits until it is kept.
    pub fn wait(promise: *Promise) void {
        while (promise.kept.load(.acquire) == 0) log_calls.sleepOn(&promise.kept, 0, null);
    }

    /// Lets the other thread go on, which may free the promise at once.
    pub fn keep(promise: *Promise) void {
        const word = &promise.kept;
        word.store(1, .release);
        log_calls.wakeAll(word);
    }
};
