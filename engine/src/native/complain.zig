//! Job: errors in the log of the Zig face.
//! Does not know: what went wrong.
const builtin = @import("builtin");
const log = @import("std").log.scoped(.peregrine);

/// Logs an error. The test runner takes one in the log for a failed test, and tests may well
/// expect one of these.
pub const complain = if (builtin.is_test) log.warn else log.err;
