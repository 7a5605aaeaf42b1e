//! The tests of whole servers, over the modules that programs import.
test {
    _ = @import("acceptors_test.zig");
    _ = @import("access_log_test.zig");
    _ = @import("amplification_test.zig");
    _ = @import("backends_test.zig");
    _ = @import("compression_test.zig");
    _ = @import("cuts_test.zig");
    _ = @import("defects_test.zig");
    _ = @import("guards_test.zig");
    _ = @import("handlers_test.zig");
    _ = @import("hooks_test.zig");
    _ = @import("http_test.zig");
    _ = @import("intake_test.zig");
    _ = @import("listeners_test.zig");
    _ = @import("loan_test.zig");
    _ = @import("memory_test.zig");
    _ = @import("metrics_test.zig");
    _ = @import("native_test.zig");
    _ = @import("pipeline_test.zig");
    _ = @import("repeat_test.zig");
    _ = @import("static_test.zig");
    _ = @import("streams_test.zig");
    _ = @import("target_test.zig");
    _ = @import("threads_test.zig");
    _ = @import("web_body_test.zig");
    _ = @import("web_compress_test.zig");
    _ = @import("web_limits_test.zig");
    _ = @import("web_test.zig");
    _ = @import("websocket_test.zig");
    _ = @import("websocket_sim_test.zig");
}
