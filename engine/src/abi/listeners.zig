//! The part of the C door that makes listening sockets without a worker, for processes that share them or give up rights before they serve.
const std = @import("std");
const peregrine = @import("peregrine");
const errors = @import("errors.zig");
const types = @import("types.zig");
const Code = types.Code;
const io = peregrine.io;

export fn peregrine_open_unix(wanted: *const types.UnixSocket) callconv(.c) c_int {
    const address = io.Address.unixPath(std.mem.span(wanted.path)) catch return Code.address;
    const access: io.SocketAccess = .{
        .mode = optional(u12, wanted.mode) catch return Code.range,
        .uid = optional(u32, wanted.uid) catch return Code.range,
        .gid = optional(u32, wanted.gid) catch return Code.range,
    };
    const backlog = std.math.cast(u31, wanted.backlog) orelse return Code.range;
    return io.listenSocket(&address, .{ .backlog = backlog, .access = access }) catch |err| {
        errors.setErrnoOf(err);
        return Code.system;
    };
}

/// Negative numbers stand for nothing.
fn optional(comptime T: type, value: i64) error{OutOfRange}!?T {
    if (value < 0) return null;
    return std.math.cast(T, value) orelse error.OutOfRange;
}
