//! The meaning of errnos, in words for operators, because no texts of libc may be there. Does not know: the
//! failed call.
const std = @import("std");
const E = std.posix.E;

/// The words for an errno; a rare errno's name.
pub fn text(errno: u16) []const u8 {
    const code: E = @fromBackingInt(errno);
    return switch (code) {
        .ACCES => "permission denied",
        .DQUOT => "disk quota exceeded",
        .FBIG => "file too large",
        .IO => "input/output error",
        .ISDIR => "is a directory",
        .LOOP => "too many symbolic links",
        .MFILE => "too many open files: see ulimit -n",
        .NAMETOOLONG => "name too long",
        .NFILE => "too many open files in the system",
        .NOBUFS, .NOMEM => "out of memory",
        .NOENT => "no such file or directory",
        .NOSPC => "no space left on device",
        .NOTDIR => "not a directory",
        .PERM => "operation not permitted",
        .PIPE => "nobody reads it any more",
        .ROFS => "read-only file system",
        else => std.enums.tagName(E, code) orelse "unknown error",
    };
}

test "common ones in words, others by name" {
    const testing = std.testing;
    try testing.expectEqualStrings("no space left on device", text(@backingInt(E.NOSPC)));
    try testing.expectEqualStrings("too many open files: see ulimit -n", text(@backingInt(E.MFILE)));
    try testing.expectEqualStrings("XDEV", text(@backingInt(E.XDEV)));
    try testing.expectEqualStrings("unknown error", text(9999));
}
