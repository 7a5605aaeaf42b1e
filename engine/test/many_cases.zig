//! Tests that run thousands of cases each: simulated histories and the fuzz corpus.
test {
    _ = @import("sim/sim_test.zig");
    _ = @import("fuzz/replay_test.zig");
}
