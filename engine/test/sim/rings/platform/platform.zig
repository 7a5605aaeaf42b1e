//! The C API's platform in a simulation: the declarations of src/abi/platform.zig over a network and threads
//! that a schedule plays.
const std = @import("std");
const peregrine = @import("peregrine");
pub const schedule = @import("schedule.zig");
const Schedule = schedule.Schedule;

pub const gpa = std.testing.allocator;
pub const Io = peregrine.io.Sim;
pub const Thread = *schedule.Thread;

/// A worker's io calls this in place of waiting.
pub const waiter: Io.Waiter = .{ .wait = waitForNetwork, .wake = noteWake };

fn waitForNetwork(io: *Io, timeout_ms: i32) void {
    const present = Schedule.present orelse return;
    if (present.between_rounds) |look| look(present.between_context);
    if (timeout_ms == 0) {
        present.restless += 1;
        return Schedule.callKernel();
    }
    present.restless = 0;
    present.waitFor(.{ .context = io, .isOver = isReadable, .until = deadline(timeout_ms) });
}

fn isReadable(context: *anyopaque) bool {
    const io: *Io = @ptrCast(@alignCast(context));
    return io.readable();
}

fn noteWake(_: *Io) void {
    Schedule.callKernel();
}

fn deadline(timeout_ms: i32) ?u64 {
    return if (timeout_ms < 0) null else Schedule.present.?.clock.* + @as(u64, @intCast(timeout_ms));
}

/// A thread of the present schedule.
pub fn spawn(
    comptime function: anytype,
    arguments: std.meta.ArgsTuple(@TypeOf(function)),
) error{CannotStartThread}!Thread {
    const Start = struct {
        fn run(argument: *anyopaque) void {
            function(@ptrCast(@alignCast(argument)));
        }
    };
    comptime std.debug.assert(arguments.len == 1);
    return Schedule.present.?.spawn(Start.run, arguments[0]);
}

/// A value that both threads use.
pub fn Atomic(comptime T: type) type {
    const Word = switch (@sizeOf(T)) {
        1 => u8,
        4 => u32,
        8 => u64,
        else => @compileError("no word has the size of " ++ @typeName(T)),
    };
    return extern struct {
        raw: T,

        const Self = @This();

        pub fn init(value: T) Self {
            return .{ .raw = value };
        }

        pub fn load(self: *const Self, comptime _: std.builtin.AtomicOrder) T {
            return valueOf(Schedule.load(Word, @ptrCast(&self.raw)));
        }

        pub fn store(self: *Self, value: T, comptime order: std.builtin.AtomicOrder) void {
            if (order == .seq_cst) Schedule.exchange();
            Schedule.store(
                Word,
                @ptrCast(&self.raw),
                wordOf(value),
                order != .monotonic and order != .unordered,
            );
            if (order == .seq_cst) Schedule.exchange();
        }

        pub fn swap(self: *Self, value: T, comptime _: std.builtin.AtomicOrder) T {
            Schedule.exchange();
            defer self.raw = value;
            return self.raw;
        }

        pub fn fetchAnd(self: *Self, value: T, comptime _: std.builtin.AtomicOrder) T {
            Schedule.exchange();
            defer self.raw &= value;
            return self.raw;
        }

        pub fn fetchOr(self: *Self, value: T, comptime _: std.builtin.AtomicOrder) T {
            Schedule.exchange();
            defer self.raw |= value;
            return self.raw;
        }

        pub fn fetchAdd(self: *Self, value: T, comptime _: std.builtin.AtomicOrder) T {
            Schedule.exchange();
            defer self.raw +%= value;
            return self.raw;
        }

        pub fn fetchSub(self: *Self, value: T, comptime _: std.builtin.AtomicOrder) T {
            Schedule.exchange();
            defer self.raw -%= value;
            return self.raw;
        }

        pub fn cmpxchgStrong(
            self: *Self,
            expected: T,
            value: T,
            comptime _: std.builtin.AtomicOrder,
            comptime _: std.builtin.AtomicOrder,
        ) ?T {
            Schedule.exchange();
            if (self.raw != expected) return self.raw;
            self.raw = value;
            return null;
        }

        pub const cmpxchgWeak = cmpxchgStrong;

        fn wordOf(value: T) Word {
            const copy = value;
            return @as(*const Word, @ptrCast(&copy)).*;
        }

        fn valueOf(word: Word) T {
            const copy = word;
            return @as(*const T, @ptrCast(&copy)).*;
        }
    };
}

pub const Wakeup = peregrine.io.WakeupOn(Atomic, Descriptor);
pub const Latch = peregrine.io.LatchOn(Atomic, Sleep);

/// The descriptor that a wakeup makes readable.
const Descriptor = struct {
    readable: bool = false,

    pub fn init() error{}!Descriptor {
        return .{};
    }

    pub fn deinit(_: *Descriptor) void {}

    pub fn fd(_: *const Descriptor) i32 {
        return -1;
    }

    pub fn raise(descriptor: *Descriptor) void {
        Schedule.callKernel();
        descriptor.readable = true;
    }

    pub fn take(descriptor: *Descriptor) bool {
        Schedule.callKernel();
        defer descriptor.readable = false;
        return descriptor.readable;
    }

    pub fn wait(descriptor: *Descriptor, timeout_ms: i32) void {
        Schedule.present.?.waitFor(
            .{ .context = descriptor, .isOver = isRaised, .until = deadline(timeout_ms) },
        );
    }

    fn isRaised(context: *anyopaque) bool {
        const descriptor: *Descriptor = @ptrCast(@alignCast(context));
        return descriptor.readable;
    }
};

/// On a word that is not 0 when it is over.
const Sleep = struct {
    pub fn on(word: *Atomic(u32)) void {
        Schedule.present.?.waitFor(.{ .context = word, .isOver = isSet, .until = null });
    }

    pub fn wake(_: *Atomic(u32)) void {
        Schedule.callKernel();
    }

    fn isSet(context: *anyopaque) bool {
        const word: *Atomic(u32) = @ptrCast(@alignCast(context));
        return word.raw != 0;
    }
};
