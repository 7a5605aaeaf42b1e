//! The tests that `zig build test-threads` runs under ThreadSanitizer: programs whose threads share an engine
//! or its data.
test {
    _ = @import("abi_interpreters_test.zig");
    _ = @import("abi_mailbox_test.zig");
    _ = @import("abi_thread_test.zig");
    _ = @import("metrics_test.zig");
    _ = @import("threads_test.zig");
}
