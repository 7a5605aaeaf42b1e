//! The hub's client against real servers that are killed, emptied and replaced: every reader gets each entry
//! once and in order, or a reset.
const std = @import("std");
const hub = @import("hub");
const server_file = @import("server.zig");
const machine_file = @import("machine.zig");
const Server = server_file.Server;
const Client = server_file.Client;
const Machine = machine_file.Machine;
const runUntil = machine_file.runUntil;
const testing = std.testing;

test {
    _ = @import("sites_test.zig");
}

fn allIdle(machines: []const *Machine) bool {
    for (machines) |machine| {
        if (!machine.isIdle()) return false;
        if (machine.log.tip.offset != machines[0].log.tip.offset) return false;
    }
    return true;
}

fn settle(machines: []const *Machine) !void {
    try runUntil(machines, machines, allIdle);
}

fn countResets(machine: *const Machine) usize {
    var count: usize = 0;
    for (machine.seen.items) |seen| count += @intFromBool(seen == .reset);
    return count;
}

/// Each reader has each of the numbers once, those of each publisher in their order, and all the same order.
fn expectAll(machines: []const *Machine, count: usize) !void {
    for (machines) |machine| {
        try testing.expectEqual(count, machine.seen.items.len);
        try testing.expectEqual(0, countResets(machine));
        try testing.expectEqualSlices(machine_file.Seen, machines[0].seen.items, machine.seen.items);
        // Publishers are told apart by their thousands.
        var last: [10]u64 = @splat(0);
        for (machine.seen.items) |seen| {
            const place: usize = @intCast(seen.number / 1000);
            try testing.expectEqual(last[place] + 1, seen.number % 1000);
            last[place] += 1;
        }
    }
}

/// One server, and machines that use it.
const Scene = struct {
    server: Server,
    machines: []*Machine,

    fn init(scene: *Scene, count: usize) !void {
        try scene.server.init();
        errdefer scene.server.deinit();
        try scene.server.start();
        scene.machines = try testing.allocator.alloc(*Machine, count);
        for (scene.machines, 1..) |*machine, name| {
            machine.* = try .create(.{ .name = @intCast(name), .path = scene.server.path() });
        }
        try settle(scene.machines);
    }

    fn deinit(scene: *Scene) void {
        for (scene.machines) |machine| machine.destroy();
        testing.allocator.free(scene.machines);
        scene.server.deinit();
    }

    fn ask(scene: *Scene, arguments: []const []const u8) !void {
        const client: Client = try .open(scene.server.path());
        defer client.close();
        try client.order(arguments);
    }
};

test "two machines publish, and all have the same order; a third one reads it later" {
    var scene: Scene = undefined;
    try scene.init(2);
    defer scene.deinit();
    for (1..301) |number| {
        for (scene.machines, 1..) |machine, place| try machine.publish(place * 1000 + number);
    }
    try settle(scene.machines);
    try expectAll(scene.machines, 600);
    const late: *Machine = try .create(.{ .name = 9, .path = scene.server.path() });
    defer late.destroy();
    try settle(&.{ late, scene.machines[0] });
    try testing.expectEqualSlices(machine_file.Seen, scene.machines[0].seen.items, late.seen.items);
    // The check that this program reckons is the script's.
    try testing.expectEqual(scene.machines[0].log.now(), late.log.now());
}

test "a server that is killed and started again: no entry is missing, none comes twice, no reset" {
    var scene: Scene = undefined;
    try scene.init(2);
    defer scene.deinit();
    var number: u64 = 0;
    for (0..5) |_| {
        for (0..60) |_| {
            number += 1;
            for (scene.machines, 1..) |machine, place| try machine.publish(place * 1000 + number);
            for (scene.machines) |machine| try machine.turn();
        }
        scene.server.kill();
        for (0..20) |_| {
            number += 1;
            for (scene.machines, 1..) |machine, place| try machine.publish(place * 1000 + number);
            for (scene.machines) |machine| try machine.turn();
        }
        try scene.server.start();
    }
    try settle(scene.machines);
    try expectAll(scene.machines, number * 2);
    for (scene.machines) |machine| try testing.expectEqual(number, machine.outcomes.get(.published));
}

test "an answer that is lost after the script ran: the entry comes once" {
    var scene: Scene = undefined;
    try scene.init(2);
    defer scene.deinit();
    const deaf = scene.machines[0];
    for (1..21) |round| {
        // The server has the script then, and two publications are on their way at a time.
        try deaf.publish(3000 + round);
        try settle(scene.machines);
        deaf.is_deaf = true;
        try deaf.publish(1000 + round);
        try deaf.publish(2000 + round);
        const at: At = .{ .machine = scene.machines[1], .offset = round * 3 };
        try runUntil(scene.machines, at, At.holds);
        deaf.disconnect();
        deaf.is_deaf = false;
        try settle(scene.machines);
    }
    try expectAll(scene.machines, 60);
    try testing.expectEqual(60, deaf.outcomes.get(.published));
}

const At = struct {
    machine: *Machine,
    offset: u64,

    fn holds(at: At) bool {
        return at.machine.log.tip.offset >= at.offset;
    }
};

test "a link that is cut: readers miss nothing, and get no reset" {
    var scene: Scene = undefined;
    try scene.init(2);
    defer scene.deinit();
    for (1..41) |number| {
        try scene.machines[0].publish(1000 + number);
        if (number % 10 == 0) scene.machines[1].disconnect();
        for (0..5) |_| try scene.machines[0].turn();
    }
    try settle(scene.machines);
    try expectAll(scene.machines, 40);
}

test "the script is forgotten: publications go on" {
    var scene: Scene = undefined;
    try scene.init(1);
    defer scene.deinit();
    for (1..101) |number| {
        try scene.machines[0].publish(1000 + number);
        if (number % 25 == 0) try scene.ask(&.{ "SCRIPT", "FLUSH" });
        try scene.machines[0].turn();
    }
    try settle(scene.machines);
    try expectAll(scene.machines, 100);
}

test "a server that is emptied: each reader gets a reset, and what follows" {
    var scene: Scene = undefined;
    try scene.init(2);
    defer scene.deinit();
    for (1..31) |number| try scene.machines[0].publish(1000 + number);
    try settle(scene.machines);
    const before = scene.machines[0].log.now();
    try scene.ask(&.{"FLUSHALL"});
    for (31..34) |number| try scene.machines[0].publish(1000 + number);
    const at: AfterReset = .{ .machines = scene.machines };
    try runUntil(scene.machines, at, AfterReset.holds);
    for (scene.machines) |machine| {
        try testing.expectEqual(1, countResets(machine));
        try testing.expect(machine.log.epoch != before.epoch);
        // A reader that comes back with what it had seen is told, too.
        try testing.expectEqual(.epoch, machine.log.begin(.{ .after = before }).reset.why);
    }
}

const AfterReset = struct {
    machines: []const *Machine,

    fn holds(at: AfterReset) bool {
        for (at.machines) |machine| if (countResets(machine) == 0) return false;
        return allIdle(at.machines);
    }
};

/// A master, a replica that no longer hears it, and machines at the master which know more than the replica.
const Failover = struct {
    scene: Scene,
    replica: Server,

    fn init(failover: *Failover) !void {
        const scene = &failover.scene;
        try scene.init(2);
        errdefer scene.deinit();
        try failover.replica.init();
        errdefer failover.replica.deinit();
        try failover.replica.start();
        for (1..21) |number| try scene.machines[0].publish(1000 + number);
        try settle(scene.machines);
        var port: [8]u8 = undefined;
        const client: Client = try .open(failover.replica.path());
        defer client.close();
        const text = try std.fmt.bufPrint(&port, "{d}", .{scene.server.port});
        try client.order(&.{ "REPLICAOF", "127.0.0.1", text });
        const up = "master_link_status:up";
        for (0..server_file.patience_ms / 10) |_| {
            if (std.mem.find(u8, try client.ask(&.{ "INFO", "replication" }), up) != null) break;
            server_file.sleep(10);
        } else return error.Timeout;
        try client.order(&.{ "REPLICAOF", "NO", "ONE" });
        // Acknowledged, and told to readers, but lost.
        for (21..31) |number| try scene.machines[0].publish(1000 + number);
        try settle(scene.machines);
        try testing.expectEqual(30, scene.machines[0].outcomes.get(.published));
    }

    fn deinit(failover: *Failover) void {
        failover.scene.deinit();
        failover.replica.deinit();
    }

    /// The master is gone; all use the replica.
    fn happen(failover: *Failover) void {
        failover.scene.server.kill();
        for (failover.scene.machines) |machine| machine.path = failover.replica.path();
    }
};

test "a failover that has lost entries: a reset, whether or not others have their offsets by then" {
    for ([_]u64{ 0, 5, 10, 15 }) |others| {
        var failover: Failover = undefined;
        try failover.init();
        defer failover.deinit();
        const machines = failover.scene.machines;
        const seen_by_all = machines[0].log.now();
        // A machine that is at the new master already.
        const early: *Machine = try .create(.{ .name = 9, .path = failover.replica.path() });
        defer early.destroy();
        try settle(&.{early});
        try testing.expectEqual(20, early.log.tip.offset);
        for (1..others + 1) |number| try early.publish(9000 + number);
        try settle(&.{early});
        failover.happen();
        if (others == 0) for (31..34) |number| try machines[1].publish(2000 + number);
        const at: AfterReset = .{ .machines = machines };
        errdefer std.debug.print("{d} by others\n", .{others});
        try runUntil(&.{ early, machines[0], machines[1] }, at, AfterReset.holds);
        for (machines) |machine| {
            try testing.expectEqual(1, countResets(machine));
            try testing.expect(machine.seen.items[30] == .reset);
            const again = machine.log.begin(.{ .after = seen_by_all });
            try testing.expect(again.reset.why == .other_entry or again.reset.why == .ahead);
        }
        try settle(&.{ early, machines[0], machines[1] });
        try testing.expectEqual(0, countResets(early));
        try testing.expectEqual(early.log.now(), machines[0].log.now());
    }
}

test "a replica refuses publications until it is promoted; none is lost" {
    var scene: Scene = undefined;
    try scene.init(1);
    defer scene.deinit();
    try scene.machines[0].publish(1001);
    try settle(scene.machines);
    const replica: Client = try .open(scene.server.path());
    defer replica.close();
    try replica.order(&.{ "REPLICAOF", "127.0.0.1", "1" });
    try scene.machines[0].publish(1002);
    try runUntil(scene.machines, scene.machines[0], struct {
        fn holds(machine: *Machine) bool {
            return machine.refused == .read_only or machine.refused == .master_down;
        }
    }.holds);
    try replica.order(&.{ "REPLICAOF", "NO", "ONE" });
    try settle(scene.machines);
    try expectAll(scene.machines, 2);
}

test "a server whose memory is full refuses at once, and goes on when it has room" {
    var scene: Scene = undefined;
    try scene.init(1);
    defer scene.deinit();
    try scene.ask(&.{ "CONFIG", "SET", "maxmemory", "1" });
    try scene.machines[0].publish(1001);
    try runUntil(scene.machines, scene.machines[0], struct {
        fn holds(machine: *Machine) bool {
            return machine.outcomes.get(.refused) == 1;
        }
    }.holds);
    try testing.expectEqual(.out_of_memory, scene.machines[0].last_refusal);
    try scene.ask(&.{ "CONFIG", "SET", "maxmemory", "0" });
    try scene.machines[0].publish(1001);
    try settle(scene.machines);
    try expectAll(scene.machines, 1);
}

test "a user with no more rights than the client needs, and one without them" {
    var scene: Scene = undefined;
    try scene.init(0);
    defer scene.deinit();
    try scene.ask(&.{
        "ACL",               "SETUSER",  "hub",     ">secret", "on",    "~app:*",   "&app:*",
        "-@all",             "+hello",   "+ping",   "+select", "+eval", "+evalsha", "+subscribe",
        "+unsubscribe",      "+publish", "+hsetnx", "+hmget",  "+hset", "+pexpire", "+xrange",
        "+xadd",             "+xlen",    "+xdel",   "+del",    "+zadd", "+zscore",  "+zrangebyscore",
        "+zremrangebyscore",
    });
    const machine: *Machine = try .create(.{
        .name = 1,
        .path = scene.server.path(),
        .account = .{ .user = "hub", .password = "secret", .database = 2, .name = "peregrine-hub" },
        .prefix = "app:",
    });
    defer machine.destroy();
    for (1..11) |number| try machine.publish(1000 + number);
    try settle(&.{machine});
    try expectAll(&.{machine}, 10);
    const stranger: *Machine = try .create(.{
        .name = 2,
        .path = scene.server.path(),
        .account = .{ .user = "hub", .password = "secret" },
        .prefix = "other:",
    });
    defer stranger.destroy();
    try stranger.publish(1001);
    try runUntil(&.{stranger}, stranger, struct {
        fn holds(other: *Machine) bool {
            return other.outcomes.get(.refused) == 1 and other.refused == .no_permission;
        }
    }.holds);
    try testing.expectEqual(.no_permission, stranger.last_refusal);
    const wrong: *Machine = try .create(.{
        .name = 3,
        .path = scene.server.path(),
        .account = .{ .user = "hub", .password = "guess" },
    });
    defer wrong.destroy();
    try runUntil(&.{wrong}, wrong, struct {
        fn holds(other: *Machine) bool {
            return other.refused == .unauthenticated;
        }
    }.holds);
}
