//! The C API of relays: the connection of a WebSocket handshake for an application that speaks on it itself.
const peregrine = @import("peregrine");
const Handle = @import("handle.zig").Handle;
const errors = @import("errors.zig");
const types = @import("types.zig");
const Code = types.Code;
const io = peregrine.io;

pub export fn peregrine_relay(handle: *Handle, ticket: types.Ticket) callconv(.c) c_int {
    if (handle.place() == .gone) return Code.gone;
    const ours, const theirs = io.streams.pair() catch |err| {
        errors.setErrnoOf(err);
        return Code.system;
    };
    const answer = handle.apply(ticket, .{ .relay = .{ .offer = ours } });
    if (answer == Code.ok) return theirs;
    for ([_]i32{ ours, theirs }) |fd| io.file.close(fd);
    return answer;
}

pub export fn peregrine_relay_only(handle: *Handle, ticket: types.Ticket) callconv(.c) c_int {
    return handle.apply(ticket, .{ .relay = .only });
}
