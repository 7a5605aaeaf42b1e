//! Errors in the log of the Zig face.
//! Does not know: what went wrong.
const builtin = @import("builtin");
const log = @import("std").log.scoped(.peregrine);

/// Errors that this thread has logged: a caller that passes an error on can tell whether the log has it.
pub threadlocal var count: usize = 0;

/// Logs an error; in tests a warning, because the test runner takes an error in the log for a failed test.
pub fn complain(comptime format: []const u8, arguments: anytype) void {
    count +%= 1;
    if (builtin.is_test) log.warn(format, arguments) else log.err(format, arguments);
}

/// Passes on an error that ends a server before it serves, after it was logged, once. `before`: `count` when
/// the start began.
pub fn cannotStart(before: usize, err: anytype) @TypeOf(err) {
    if (count == before) complain("cannot start: {t}", .{err});
    return err;
}
