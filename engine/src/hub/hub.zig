//! Layer `hub`: the order and the history of topics, and the language of Redis. Bytes in, values out: time,
//! randomness and limits are arguments. Imports std and protocol.
//! Does not know: sockets, clocks, threads, processes, exchanges and every other layer.
pub const Config = @import("config.zig").Config;
pub const resp = @import("resp.zig");
pub const Tree = @import("tree.zig").Tree;
pub const position = @import("position.zig");
pub const frames = @import("frames.zig");
pub const log = @import("log.zig");
pub const Log = log.Log;

test {
    @import("std").testing.refAllDecls(@This());
    _ = @import("config.zig");
    _ = @import("tree.zig");
    _ = @import("log_test.zig");
}
