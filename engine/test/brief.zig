//! Whether script/test runs without --all: then tests that try many cases of one kind try some of them.
const std = @import("std");

pub fn isBrief() bool {
    const text = std.testing.environ.getPosix("PEREGRINE_BRIEF") orelse return false;
    return text.len > 0;
}
