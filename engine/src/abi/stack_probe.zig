//! The function that the compiler calls before it uses a stack frame of more than a page: it touches every
//! page in order, so that a stack which is too short ends at its guard page and not in other memory.
//!
//! Zig's own function is in its compiler_rt, together with memcpy, memcmp and other names of libc. A program
//! that links a library with these gets them in place of libc's, which are several times faster. So the
//! library is built without compiler_rt: all else that it needs is in libgcc, or in clang's counterpart.
const builtin = @import("builtin");

comptime {
    if (builtin.output_mode == .Lib and builtin.cpu.arch == .x86_64) {
        @export(&probe, .{ .name = "__zig_probe_stack", .linkage = .weak, .visibility = .hidden });
    }
}

/// Touches the rax bytes below the stack pointer; changes no register but the flags.
fn probe() callconv(.naked) noreturn {
    // The stack pointer goes along: kernels before 5.1 grow no stack for addresses far below it.
    asm volatile (
        \\ push %%rcx
        \\ mov %%rax, %%rcx
        \\ 1:
        \\ cmp $0x1000, %%rcx
        \\ jbe 2f
        \\ sub $0x1000, %%rsp
        \\ orq $0, (%%rsp)
        \\ sub $0x1000, %%rcx
        \\ jmp 1b
        \\ 2:
        \\ sub %%rcx, %%rsp
        \\ orq $0, (%%rsp)
        \\ add %%rax, %%rsp
        \\ pop %%rcx
        \\ ret
    );
}
