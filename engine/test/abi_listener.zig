//! A worker of the C API that listens on 127.0.0.1.
const abi = @import("abi");
const testing = @import("std").testing;

/// Makes a worker listen on a free port, and returns that.
pub fn listen(handle: *abi.Handle) !u16 {
    const listener = abi.peregrine_listen(handle, "127.0.0.1", 0, 128, 0);
    try testing.expect(listener >= 0);
    var text: [64]u8 = undefined;
    var port: u16 = 0;
    try testing.expect(abi.peregrine_listener_address(handle, listener, &text, text.len, &port) > 0);
    return port;
}
