//! A descriptor that one thread watches and others make readable, and a word that a thread sleeps on until
//! another one wakes it. Does not know: what it is about.
const std = @import("std");
const builtin = @import("builtin");
const sys = @import("sys.zig");
const log_calls = @import("sys/log.zig");
const watch = @import("sys/epoll.zig");

/// On this platform.
pub const Bell = BellOn(std.atomic.Value, EventDescriptor);
pub const Promise = PromiseOn(std.atomic.Value, Futex);

/// A descriptor that is readable from `ring` to `clear`. `Atomic`: of what threads share; `Descriptor`: of
/// the kernel's. A simulation has others (test/sim/channel).
pub fn BellOn(comptime Atomic: fn (type) type, comptime Descriptor: type) type {
    return struct {
        const Self = @This();

        descriptor: Descriptor,
        /// It was rung and not cleared: nobody needs to ask the kernel.
        rung: Atomic(bool) = .init(false),

        pub fn init() sys.ResourceError!Self {
            return .{ .descriptor = try .init() };
        }

        pub fn deinit(bell: *Self) void {
            bell.descriptor.deinit();
        }

        /// To be watched for reading.
        pub fn fd(bell: *const Self) i32 {
            return bell.descriptor.fd();
        }

        /// Makes it readable. From any thread.
        pub fn ring(bell: *Self) void {
            if (!bell.rung.swap(true, .acq_rel)) bell.descriptor.raise();
        }

        /// Makes it unreadable. Why it was rung is to be looked at after this: what rings meanwhile may
        /// leave no other trace.
        pub fn clear(bell: *Self) void {
            if (!bell.rung.load(.monotonic)) return;
            // Who rings may not have raised it yet. It stays rung then, and is cleared when it is readable:
            // otherwise it would stay readable, and nobody would clear it before the next one rings.
            if (!bell.descriptor.take()) return;
            _ = bell.rung.swap(false, .acq_rel);
        }

        /// Waits until it is readable, at most `timeout_ms` (-1: without bound). A signal ends the wait
        /// early.
        pub fn wait(bell: *Self, timeout_ms: i32) void {
            bell.descriptor.wait(timeout_ms);
        }
    };
}

/// An eventfd. Not for systems other than Linux yet.
const EventDescriptor = struct {
    number: sys.Fd,

    fn init() sys.ResourceError!EventDescriptor {
        if (builtin.os.tag != .linux) @compileError("a bell needs an eventfd");
        return .{ .number = try watch.eventFd() };
    }

    fn deinit(descriptor: *EventDescriptor) void {
        sys.close(descriptor.number);
    }

    fn fd(descriptor: *const EventDescriptor) i32 {
        return descriptor.number;
    }

    fn raise(descriptor: *EventDescriptor) void {
        watch.eventRaise(descriptor.number);
    }

    fn take(descriptor: *EventDescriptor) bool {
        return watch.eventTake(descriptor.number);
    }

    fn wait(descriptor: *EventDescriptor, timeout_ms: i32) void {
        sys.waitReadable(descriptor.number, timeout_ms);
    }
};

/// Something that one thread waits for and another one does, once.
pub fn PromiseOn(comptime Atomic: fn (type) type, comptime Sleep: type) type {
    return struct {
        const Self = @This();

        kept: Atomic(u32) = .init(0),

        /// It can be kept once more. Only by who waits for it.
        pub fn renew(promise: *Self) void {
            promise.kept.store(0, .seq_cst);
        }

        /// Waits until it is kept.
        pub fn wait(promise: *Self) void {
            while (promise.kept.load(.acquire) == 0) Sleep.on(&promise.kept);
        }

        /// Lets the other thread go on, which may free the promise at once.
        pub fn keep(promise: *Self) void {
            const word = &promise.kept;
            word.store(1, .release);
            Sleep.wake(word);
        }
    };
}

const Futex = struct {
    fn on(word: *std.atomic.Value(u32)) void {
        log_calls.sleepOn(word, 0, null);
    }

    fn wake(word: *std.atomic.Value(u32)) void {
        log_calls.wakeAll(word);
    }
};

test "a bell that is cleared before it can be heard is cleared when it can" {
    if (builtin.os.tag != .linux) return error.SkipZigTest;
    var bell: Bell = try .init();
    defer bell.deinit();
    // What `ring` does first; another thread clears before it does the rest.
    bell.rung.raw = true;
    bell.clear();
    bell.descriptor.raise();
    bell.clear();
    try std.testing.expect(!watch.eventTake(bell.descriptor.number));
    bell.ring();
    try std.testing.expect(watch.eventTake(bell.descriptor.number));
}
