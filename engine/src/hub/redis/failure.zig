//! Kinds of errors in answers of Redis. Does not know: the commands.
const std = @import("std");

/// The kind of an error, by its meaning for the hub.
pub const Failure = enum {
    /// The server is reading its data from the disk.
    loading,
    /// The server is a replica, perhaps since a failover.
    read_only,
    /// The server is a replica whose master is gone.
    master_down,
    /// A script has been running for too long.
    busy,
    /// The memory of Redis is full.
    out_of_memory,
    /// The server cannot write to its disk.
    misconfigured,
    /// Fewer replicas are connected than the server wants.
    no_replicas,
    no_permission,
    /// The password is wrong, or missing.
    unauthenticated,
    /// The keys with our prefix belong to another program.
    wrong_type,
    no_script,
    /// The server is part of a cluster, and another part has the key.
    cluster,
    too_many_clients,
    /// The server is older than Redis 6, or no Redis.
    unknown_command,
    other,

    /// The reaction to a failure.
    pub const Remedy = enum {
        /// Connect again later: the server, or its successor at this address, will be able to do it.
        reconnect,
        /// Try again on the same connection: Redis has done nothing.
        try_again,
        /// Fail: only another configuration of Redis helps.
        give_up,
    };

    pub fn remedy(failure: Failure) Remedy {
        return switch (failure) {
            .loading, .read_only, .master_down, .busy, .no_script, .too_many_clients => .reconnect,
            .out_of_memory, .misconfigured, .no_replicas => .try_again,
            .no_permission, .unauthenticated, .wrong_type, .cluster, .unknown_command, .other => .give_up,
        };
    }

    /// The failure in words for the operator.
    pub fn text(failure: Failure) [*:0]const u8 {
        return switch (failure) {
            .loading => "it refuses because it reads its data from the disk",
            .read_only => "it refuses because it is a replica",
            .master_down => "it refuses because it is a replica without its master",
            .busy => "it refuses because a script runs for too long",
            .out_of_memory => "it refuses because its memory is full",
            .misconfigured => "it refuses because it cannot write to its disk",
            .no_replicas => "it refuses because it wants more replicas",
            .no_permission => "it refuses because its user may not do that",
            .unauthenticated => "it refuses user or password",
            .wrong_type => "it refuses because its keys with this prefix are those of another program",
            .no_script => "it refuses because it has forgotten the script",
            .cluster => "it refuses because it is part of a cluster",
            .too_many_clients => "it refuses because it has too many clients",
            .unknown_command => "it refuses a command: it is older than Redis 6, or no Redis",
            .other => "it refuses",
        };
    }

    /// The kind of an error by its text. Before Redis 7 an error within a script is quoted at the end of
    /// another one.
    pub fn of(said: []const u8) Failure {
        const code = said[0 .. std.mem.findScalar(u8, said, ' ') orelse said.len];
        if (codes.get(code)) |failure| return failure;
        if (std.mem.startsWith(u8, said, "ERR max number of clients")) return .too_many_clients;
        if (std.mem.startsWith(u8, said, "ERR unknown command")) return .unknown_command;
        if (std.mem.startsWith(u8, said, "ERR The user executing the script")) return .no_permission;
        if (std.mem.startsWith(u8, said, "ERR Error running script")) {
            for (codes.keys(), codes.values()) |quoted, failure| {
                const at = std.mem.find(u8, said, quoted) orelse continue;
                if (at > 0 and said[at - 1] == '-') return failure;
            }
        }
        return .other;
    }

    const codes: std.StaticStringMap(Failure) = .initComptime(.{
        .{ "LOADING", .loading },
        .{ "READONLY", .read_only },
        .{ "MASTERDOWN", .master_down },
        .{ "BUSY", .busy },
        .{ "OOM", .out_of_memory },
        .{ "MISCONF", .misconfigured },
        .{ "NOREPLICAS", .no_replicas },
        .{ "NOPERM", .no_permission },
        .{ "NOAUTH", .unauthenticated },
        .{ "WRONGPASS", .unauthenticated },
        .{ "WRONGTYPE", .wrong_type },
        .{ "NOSCRIPT", .no_script },
        .{ "MOVED", .cluster },
        .{ "ASK", .cluster },
        .{ "CROSSSLOT", .cluster },
        .{ "CLUSTERDOWN", .cluster },
        .{ "NOPROTO", .unknown_command },
    });
};

test "errors as Redis 6 and 7 write them" {
    for ([_]struct { []const u8, Failure }{
        .{ "LOADING Redis is loading the dataset in memory", .loading },
        .{ "READONLY You can't write against a read only replica. script: 0a.", .read_only },
        .{
            "ERR Error running script (call to f_0a): @user_script:1: -READONLY You can't write",
            .read_only,
        },
        .{ "ERR Error running script (call to f_0a): @user_script:1: OOM is no code here", .other },
        .{ "OOM command not allowed when used memory > 'maxmemory'.", .out_of_memory },
        .{ "NOPERM this user has no permissions to run the 'evalsha' command", .no_permission },
        .{ "ERR The user executing the script can't run this command or subcommand", .no_permission },
        .{ "WRONGPASS invalid username-password pair or user is disabled.", .unauthenticated },
        .{ "NOAUTH Authentication required.", .unauthenticated },
        .{ "NOSCRIPT No matching script. Please use EVAL.", .no_script },
        .{ "ERR max number of clients reached", .too_many_clients },
        .{ "ERR unknown command 'HELLO', with args beginning with: '3'", .unknown_command },
        .{ "MOVED 3999 127.0.0.1:6381", .cluster },
        .{ "", .other },
        .{ "loading", .other },
    }) |case| {
        errdefer std.debug.print("{s}\n", .{case[0]});
        try std.testing.expectEqual(case[1], Failure.of(case[0]));
    }
}
