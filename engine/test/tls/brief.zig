//! Whether script/test runs without --all, as in ../brief.zig, which is outside of this program's folder.
const std = @import("std");

pub fn isBrief() bool {
    const text = std.testing.environ.getPosix("PEREGRINE_BRIEF") orelse return false;
    return text.len > 0;
}
