//! A descriptor that one thread watches and others make readable, and a word that one thread sleeps on until
//! another wakes it. Does not know: reasons to wake.
const std = @import("std");
const builtin = @import("builtin");
const is_linux = builtin.os.tag == .linux;
const sys = @import("sys.zig");
const log_calls = @import("sys/log.zig");
const pipe = @import("sys/pipe.zig");
const watch = @import("sys/epoll.zig");

/// The wakeup of this platform: an eventfd, or a pipe.
pub const Wakeup = WakeupOn(std.atomic.Value, if (is_linux) EventDescriptor else PipeDescriptor);
pub const Latch = LatchOn(std.atomic.Value, Futex);

/// A descriptor that is readable from `raise` to `clear`. `Atomic`: the type of shared variables;
/// `Descriptor`: the kernel's part. A simulation replaces both (test/sim/rings).
pub fn WakeupOn(comptime Atomic: fn (type) type, comptime Descriptor: type) type {
    return struct {
        const Self = @This();

        descriptor: Descriptor,
        /// True from `raise` to `clear`; while it is, `raise` makes no system call.
        raised: Atomic(bool) = .init(false),

        pub fn init() sys.ResourceError!Self {
            return .{ .descriptor = try .init() };
        }

        pub fn deinit(wakeup: *Self) void {
            wakeup.descriptor.deinit();
        }

        pub fn fd(wakeup: *const Self) i32 {
            return wakeup.descriptor.fd();
        }

        /// Makes the wakeup readable. May be called by any thread.
        pub fn raise(wakeup: *Self) void {
            if (!wakeup.raised.swap(true, .acq_rel)) wakeup.descriptor.raise();
        }

        /// Makes the wakeup unreadable. The caller must look for work afterwards, because a raise during that
        /// may have no other effect.
        pub fn clear(wakeup: *Self) void {
            if (!wakeup.raised.load(.monotonic)) return;
            // A raising thread may not have written to the descriptor yet. Then `raised` stays true until the
            // descriptor is readable. If it were cleared here, the descriptor would be readable after the
            // write, and no call would clear it before the next raise.
            if (!wakeup.descriptor.take()) return;
            _ = wakeup.raised.swap(false, .acq_rel);
        }

        /// Waits until the wakeup is readable, at most `timeout_ms` (-1: for ever). A signal ends the wait
        /// early.
        pub fn wait(wakeup: *Self, timeout_ms: i32) void {
            wakeup.descriptor.wait(timeout_ms);
        }
    };
}

/// An eventfd, which only Linux has.
const EventDescriptor = struct {
    number: sys.Fd,

    fn init() sys.ResourceError!EventDescriptor {
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

/// A pipe, for systems without eventfd.
const PipeDescriptor = struct {
    ends: pipe.Ends,

    fn init() sys.ResourceError!PipeDescriptor {
        return .{ .ends = try .open() };
    }

    fn deinit(descriptor: *PipeDescriptor) void {
        descriptor.ends.close();
    }

    fn fd(descriptor: *const PipeDescriptor) i32 {
        return descriptor.ends.read;
    }

    fn raise(descriptor: *PipeDescriptor) void {
        descriptor.ends.put();
    }

    fn take(descriptor: *PipeDescriptor) bool {
        return descriptor.ends.drain();
    }

    fn wait(descriptor: *PipeDescriptor, timeout_ms: i32) void {
        sys.waitReadable(descriptor.ends.read, timeout_ms);
    }
};

/// A flag that one thread waits for and another thread sets, once.
pub fn LatchOn(comptime Atomic: fn (type) type, comptime Sleep: type) type {
    return struct {
        const Self = @This();

        is_set: Atomic(u32) = .init(0),

        /// Clears the latch for its next use. Only the waiting thread may call this.
        pub fn reset(latch: *Self) void {
            latch.is_set.store(0, .seq_cst);
        }

        /// Waits until the latch is set.
        pub fn wait(latch: *Self) void {
            while (latch.is_set.load(.acquire) == 0) Sleep.on(&latch.is_set);
        }

        /// Sets the latch. The waiting thread may free the latch at once.
        pub fn set(latch: *Self) void {
            const word = &latch.is_set;
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

test "a wakeup is readable from the first raise to the clear, over each kind of descriptor" {
    inline for (.{ PipeDescriptor, if (is_linux) EventDescriptor else PipeDescriptor }) |Kind| {
        var wakeup: WakeupOn(std.atomic.Value, Kind) = try .init();
        defer wakeup.deinit();
        for (0..3) |_| {
            try std.testing.expect(!sys.isReadable(wakeup.fd()) and !wakeup.descriptor.take());
            for (0..5) |_| wakeup.raise();
            try std.testing.expect(sys.isReadable(wakeup.fd()));
            wakeup.wait(-1);
            wakeup.clear();
            wakeup.clear();
        }
    }
}

test "a thread that waits goes on when another one raises or sets what it waits for" {
    const OverPipe = WakeupOn(std.atomic.Value, PipeDescriptor);
    const Other = struct {
        fn run(wakeup: *OverPipe, latch: *Latch) void {
            wakeup.raise();
            latch.set();
        }
    };
    var wakeup: OverPipe = try .init();
    defer wakeup.deinit();
    var latch: Latch = .{};
    for (0..100) |_| {
        latch.reset();
        const thread: std.Thread = try .spawn(.{}, Other.run, .{ &wakeup, &latch });
        wakeup.wait(-1);
        latch.wait();
        thread.join();
        wakeup.clear();
        try std.testing.expect(!sys.isReadable(wakeup.fd()));
    }
}

test "a wakeup that is cleared before it is readable is cleared when it is" {
    if (builtin.os.tag != .linux) return error.SkipZigTest;
    var wakeup: Wakeup = try .init();
    defer wakeup.deinit();
    // The first half of `raise`; another thread calls `clear` before the second half.
    wakeup.raised.raw = true;
    wakeup.clear();
    wakeup.descriptor.raise();
    wakeup.clear();
    try std.testing.expect(!watch.eventTake(wakeup.descriptor.number));
    wakeup.raise();
    try std.testing.expect(watch.eventTake(wakeup.descriptor.number));
}
