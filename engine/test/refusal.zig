//! Makes a system call fail, as sandboxes and bad luck do.
const std = @import("std");
const linux = std.os.linux;
const testing = std.testing;

/// Whether `refuse` can do it: QEMU's emulation of a processor has no seccomp.
pub fn isPossible() bool {
    const action: u32 = linux.SECCOMP.RET.ERRNO;
    return linux.seccomp(linux.SECCOMP.GET_ACTION_AVAIL, 0, &action) == 0;
}

/// From here on, `call` fails with `code` in this thread.
pub fn refuse(call: linux.SYS, code: linux.E) !void {
    const Instruction = extern struct { code: u16, on_true: u8 = 0, on_false: u8 = 0, k: u32 };
    const load_word, const jump_if_equal, const ret = .{ 0x20, 0x15, 0x06 };
    const filter = [_]Instruction{
        .{ .code = load_word, .k = @offsetOf(linux.SECCOMP.data, "nr") },
        .{ .code = jump_if_equal, .on_false = 1, .k = @intCast(@backingInt(call)) },
        .{ .code = ret, .k = linux.SECCOMP.RET.ERRNO | @as(u32, @backingInt(code)) },
        .{ .code = ret, .k = linux.SECCOMP.RET.ALLOW },
    };
    const program: extern struct {
        len: u16,
        filter: [*]const Instruction,
    } = .{ .len = filter.len, .filter = &filter };
    try testing.expectEqual(0, linux.prctl(@backingInt(linux.PR.SET_NO_NEW_PRIVS), 1, 0, 0, 0));
    try testing.expectEqual(0, linux.seccomp(linux.SECCOMP.SET_MODE_FILTER, 0, &program));
}
