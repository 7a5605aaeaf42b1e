//! The first messages between an interpreter and its engine. The interpreter makes a pair of sockets and
//! sends one of them through the join socket, which it has inherited from the engine's process; the engine
//! answers with the memory of a new ring pair, a waker and a bell by which the two wake each other, and its
//! depot.
const std = @import("std");
const peregrine = @import("peregrine");
const depot = @import("depot.zig");
const Shared = @import("shared.zig").Shared;
const Takers = @import("offer.zig").Takers;
const io = peregrine.io;
const sharing = io.sharing;

const Greeting = extern struct { layout: u64, takers: u64 = @backingInt(Takers.first) };

/// The bytes of a message that carries the descriptor of a command, or of an event.
pub const file_message = "f";

/// Reasons why a descriptor does not come. `DescriptorsExhausted`: this process has no room for it.
pub const DescriptorError = error{ Malformed, DescriptorsExhausted };

/// The descriptor that was sent ahead of a command, or of an event.
pub fn receiveDescriptor(socket: i32) DescriptorError!i32 {
    var bytes: [file_message.len]u8 = undefined;
    var fds: [1]i32 = undefined;
    return switch (sharing.receive(socket, &bytes, &fds)) {
        .message => |message| if (message.fd_count == 1) fds[0] else error.Malformed,
        .lacking => error.DescriptorsExhausted,
        .nothing, .ended => error.Malformed,
    };
}

/// The descriptors and the memory that an interpreter gets from its engine.
pub const Met = struct {
    socket: i32,
    memory: sharing.Memory,
    /// The engine's depot (depot.zig); null: it has none.
    depot: ?sharing.Readable,
    waker: i32,
    bell: i32,
};

/// Why an interpreter and an engine do not meet.
pub const Error = sharing.Error || error{ VersionDiffers, Refused, TimedOut };

/// The interpreter's part: it gets requests as `takers` says. Waits for the engine, at most `timeout_ms` (-1:
/// without bound).
pub fn meet(join_socket: i32, takers: Takers, timeout_ms: i32) Error!Met {
    const ours, const theirs = try sharing.pair();
    var kept: []const i32 = &.{};
    errdefer for (kept) |fd| io.file.close(fd);
    errdefer io.file.close(ours);
    {
        defer io.file.close(theirs);
        const greeting: Greeting = .{ .layout = Shared.layout, .takers = @backingInt(takers) };
        while (true) switch (sharing.send(join_socket, std.mem.asBytes(&greeting), &.{theirs})) {
            .sent => break,
            .blocked => sharing.waitWritable(join_socket, 100),
            .ended => return error.Refused,
        };
    }
    sharing.waitReadable(ours, timeout_ms);
    var answer: Greeting = undefined;
    var fds: [4]i32 = undefined;
    const message = switch (sharing.receive(ours, std.mem.asBytes(&answer), &fds)) {
        .nothing => return error.TimedOut,
        .lacking => return error.ProcessDescriptorsExhausted,
        .ended => return error.Refused,
        .message => |message| message,
    };
    const given = fds[0..message.fd_count];
    kept = given[0..@min(2, given.len)];
    defer for (given[kept.len..]) |fd| io.file.close(fd);
    if (message.len != @sizeOf(Greeting) or answer.layout != Shared.layout) return error.VersionDiffers;
    if (given.len < fds.len - 1) return error.Refused;
    const memory = try opened(sharing.Memory, fds[2], Shared.bytes);
    errdefer memory.close();
    return .{
        .socket = ours,
        .memory = memory,
        .depot = if (given.len == fds.len) try opened(sharing.Readable, fds[3], depot.bytes) else null,
        .waker = fds[0],
        .bell = fds[1],
    };
}

fn opened(comptime Kind: type, fd: i32, len: usize) Error!Kind {
    return Kind.open(fd, len) catch |err| switch (err) {
        error.Malformed => error.VersionDiffers,
        else => |other| other,
    };
}

/// A process or thread that wants to be an interpreter.
pub const JoinRequest = struct {
    socket: i32,
    takers: Takers,
    /// The interpreter's library is of another version than the engine's.
    is_other_version: bool,
};

/// The next message at the join socket. `lacking`: this process has no descriptor left for the one in the
/// message.
pub const Next = union(enum) { asked: JoinRequest, malformed, lacking, nothing };

/// The engine's part: receives one message of an interpreter that asks to join.
pub fn next(join_socket: i32) Next {
    var greeting: Greeting = undefined;
    var fds: [1]i32 = undefined;
    switch (sharing.receive(join_socket, std.mem.asBytes(&greeting), &fds)) {
        .nothing => return .nothing,
        .lacking => return .lacking,
        // Further messages may wait behind a message that breaks the rules.
        .ended => return if (sharing.hasEnded(join_socket)) .nothing else .malformed,
        .message => |message| {
            if (message.fd_count == 0) return .malformed;
            const is_ours = message.len == @sizeOf(Greeting) and greeting.layout == Shared.layout;
            const takers = if (is_ours) std.enums.fromInt(Takers, greeting.takers) else null;
            return .{ .asked = .{
                .socket = fds[0],
                .takers = takers orelse .first,
                .is_other_version = takers == null,
            } };
        },
    }
}

/// Sends the engine's answer. False: the interpreter has gone.
pub fn welcome(socket: i32, memory: i32, waker: i32, bell: i32, depot_fd: ?i32) bool {
    const greeting: Greeting = .{ .layout = Shared.layout };
    const fds = [_]i32{ waker, bell, memory, depot_fd orelse -1 };
    const count: usize = if (depot_fd == null) fds.len - 1 else fds.len;
    return sharing.send(socket, std.mem.asBytes(&greeting), fds[0..count]) == .sent;
}
