//! The tests of the C API as its callers see it.
test {
    _ = @import("abi_counters_test.zig");
    _ = @import("abi_fork_test.zig");
    _ = @import("abi_interpreters_test.zig");
    _ = @import("abi_loop_test.zig");
    _ = @import("abi_mailbox_test.zig");
    _ = @import("abi_memory_test.zig");
    _ = @import("abi_test.zig");
    _ = @import("abi_thread_test.zig");
}
