//! A function on a stack of its own, which runs until it hands control back. Does not know: why it is
//! resumed.
const std = @import("std");
const builtin = @import("builtin");
const context = std.Io.fiber;

/// Never moves while its function has not returned.
pub const Fiber = struct {
    stack: []align(page) u8,
    /// The context in which the fiber stopped, and the context that called `go`.
    own: context.Context,
    caller: context.Context,
    run: *const fn (*Fiber) void,
    finished: bool,

    const page = std.heap.page_size_min;
    /// Address space, as a thread has. The kernel gives memory for the pages that are touched.
    const stack_bytes = 1024 * 1024;
    /// The kernel refuses what is below the stack: an overrun is a fault and not another object's end.
    const guard_bytes = page;

    /// A stack without a function, which `begin` gives it.
    pub fn create() !Fiber {
        const stack = try std.posix.mmap(
            null,
            stack_bytes,
            .{ .READ = true, .WRITE = true },
            .{ .TYPE = .PRIVATE, .ANONYMOUS = true, .NORESERVE = true },
            -1,
            0,
        );
        return .{ .stack = stack, .own = undefined, .caller = undefined, .run = undefined, .finished = true };
    }

    pub fn destroy(fiber: *Fiber) void {
        std.posix.munmap(fiber.stack);
    }

    /// The next `go` calls `run` on the fiber's stack.
    pub fn begin(fiber: *Fiber, run: *const fn (*Fiber) void) void {
        const top = std.mem.alignBackward(
            usize,
            @intFromPtr(fiber.stack.ptr) + fiber.stack.len - @sizeOf(Start),
            64,
        );
        const start: *Start = @ptrFromInt(top);
        start.* = .{ .fiber = fiber };
        fiber.run = run;
        fiber.finished = false;
        fiber.own = switch (builtin.cpu.arch) {
            .x86_64 => .{ .rsp = top - 8, .rbp = 0, .rip = @intFromPtr(&Start.entry) },
            .aarch64 => .{ .sp = top, .fp = 0, .pc = @intFromPtr(&Start.entry) },
            else => @compileError("a fiber's first stack frame is not known here"),
        };
    }

    /// Lets the fiber run until it calls `leave`, or returns.
    pub fn go(fiber: *Fiber) void {
        std.debug.assert(!fiber.finished);
        var change: context.Switch = .{ .old = &fiber.caller, .new = &fiber.own };
        _ = context.contextSwitch(&change);
    }

    /// Called on the fiber: returns to the caller of `go`.
    pub fn leave(fiber: *Fiber) void {
        var change: context.Switch = .{ .old = &fiber.own, .new = &fiber.caller };
        _ = context.contextSwitch(&change);
    }

    const Start = struct {
        fiber: *Fiber,

        fn entry() callconv(.naked) void {
            switch (builtin.cpu.arch) {
                .x86_64 => asm volatile (
                    \\ leaq 8(%%rsp), %%rdi
                    \\ jmp %[call:P]
                    :
                    : [call] "X" (&call),
                ),
                .aarch64 => asm volatile (
                    \\ mov x0, sp
                    \\ b %[call]
                    :
                    : [call] "X" (&call),
                ),
                else => unreachable,
            }
        }

        fn call(start: *Start) callconv(.withStackAlign(.c, 64)) noreturn {
            start.fiber.run(start.fiber);
            start.fiber.finished = true;
            start.fiber.leave();
            unreachable;
        }
    };
};
