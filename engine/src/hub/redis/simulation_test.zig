//! Simulations of machines and a Redis, over connections that are slow, are cut, and deliver late. The
//! property: a reader that gets from one entry to another without a reset has missed no entry between them.
const std = @import("std");
const hub = @import("../hub.zig");
const resp = hub.resp;
const position = hub.position;
const redis = hub.redis;
const Seeds = @import("../seeds.zig").Seeds;
const testing = std.testing;
const gpa = testing.allocator;

const topic = "t";
const machines_max = 3;

const config: hub.Config = .{
    .message_bytes_max = 64,
    .redis_connect_ms = 300,
    .redis_answer_ms = 300,
    .redis_ping_ms = 200,
    .redis_retry_ms = 5,
    .redis_retry_ms_max = 40,
    .redis_in_flight_max = 8,
    .publish_ms = 2_000,
    .history_page = 4,
    .history_pause_ms = 1,
    .history_age_ms = 365 * 24 * 60 * 60 * 1000,
};

/// The data of the server, of which a snapshot has a copy.
const Store = struct {
    epoch: ?position.Epoch = null,
    entries: std.ArrayList(Entry) = .empty,
    done: [machines_max + 1]Done = @splat(.{}),
    has_script: bool = false,

    const Entry = struct { mark: position.Mark, hub: u48, sequence: u64, bytes: [20]u8, len: usize };
    const Done = struct { floor: u64 = 0, latest: std.ArrayList(Ran) = .empty };
    const Ran = struct { sequence: u64, at: position.Position };

    fn deinit(store: *Store) void {
        store.entries.deinit(gpa);
        for (&store.done) |*done| done.latest.deinit(gpa);
    }

    fn clone(store: *const Store) !Store {
        var copy: Store = .{ .epoch = store.epoch, .entries = try store.entries.clone(gpa) };
        for (&copy.done, &store.done) |*to, *from| {
            to.* = .{ .floor = from.floor, .latest = try from.latest.clone(gpa) };
        }
        return copy;
    }

    fn tip(store: *const Store) position.Mark {
        const entries = store.entries.items;
        return if (entries.len == 0) .origin else entries[entries.len - 1].mark;
    }
};

/// The server's end of a connection.
const Peer = struct {
    /// Bytes on their way to the server (`up`) and back (`down`).
    up: std.ArrayList(u8) = .empty,
    down: std.ArrayList(u8) = .empty,
    /// Received bytes that are no whole command yet.
    input: std.ArrayList(u8) = .empty,
    hears: bool = false,
    /// The machine has closed its end; bytes on their way may still arrive.
    is_ghost: bool = false,

    fn destroy(peer: *Peer) void {
        peer.up.deinit(gpa);
        peer.down.deinit(gpa);
        peer.input.deinit(gpa);
        gpa.destroy(peer);
    }
};

const Machine = struct {
    publisher: redis.Publisher,
    hearer: redis.Hearer,
    log: hub.Log,
    follower: redis.Follower,
    peers: [2]?*Peer = .{ null, null },
    inputs: [2]std.ArrayList(u8) = .{ .empty, .empty },
    /// The newest entry that the machine's reader has read.
    last: position.Mark = .origin,
    generation: ?u32 = null,
    resets: usize = 0,
    seen: std.ArrayList(struct { hub: u48, sequence: u64 }) = .empty,
    published: usize = 0,
    unknown: usize = 0,
    unavailable: usize = 0,
};

/// The machines, Redis and the clock of one seed.
const World = struct {
    random: std.Random,
    now_ms: u64 = 1_000,
    store: Store = .{},
    snapshot: Store = .{},
    peers: std.ArrayList(*Peer) = .empty,
    machines: [machines_max]*Machine = undefined,
    /// The check before each entry, by the entry's own check.
    before: std.AutoHashMapUnmanaged(position.Check, position.Check) = .empty,
    /// The server's data is sometimes replaced by an older snapshot, or emptied.
    loses: bool,
    calm: bool = false,

    fn init(world: *World, random: std.Random, loses: bool) !void {
        world.* = .{ .random = random, .loses = loses };
        for (&world.machines, 1..) |*slot, name| {
            const machine = try gpa.create(Machine);
            slot.* = machine;
            machine.* = .{
                .publisher = try .init(gpa, &config, .{ .hub = @intCast(name), .prefix = "p:" }, .{}),
                .hearer = try .init(gpa, &config, "p:", .{}),
                .log = .init(gpa, .of(&config), 0, .origin),
                .follower = .init(&machine.log),
            };
        }
    }

    fn deinit(world: *World) void {
        for (world.machines) |machine| {
            machine.publisher.deinit();
            machine.hearer.deinit();
            machine.log.deinit();
            for (&machine.inputs) |*input| input.deinit(gpa);
            machine.seen.deinit(gpa);
            gpa.destroy(machine);
        }
        for (world.peers.items) |peer| peer.destroy();
        world.peers.deinit(gpa);
        world.before.deinit(gpa);
        world.store.deinit();
        world.snapshot.deinit();
    }

    fn moment(world: *World) redis.link.Moment {
        return .{ .now_ms = world.now_ms, .wall_ms = world.now_ms, .random = world.random.int(u64) };
    }

    fn chance(world: *World, one_in: u32) bool {
        return world.random.uintLessThan(u32, one_in) == 0;
    }

    fn step(world: *World) !void {
        world.now_ms += world.random.uintLessThan(u64, 4);
        for (world.machines) |machine| {
            if (!world.calm and world.chance(6)) {
                var bytes: [20]u8 = undefined;
                const text = try std.fmt.bufPrint(&bytes, "{d}", .{world.random.int(u32)});
                machine.publisher.publish(topic, "", text, 0, world.moment()) catch |err| {
                    try testing.expectEqual(error.Full, err);
                };
            }
            try world.turn(machine);
        }
        try world.carry();
        if (!world.calm) try world.misfortune();
    }

    fn misfortune(world: *World) !void {
        if (world.chance(60)) {
            const machine = world.machines[world.random.uintLessThan(usize, machines_max)];
            world.cut(machine, world.random.uintLessThan(usize, 2));
        }
        if (world.chance(300)) world.store.has_script = false;
        // Time passes while no bytes move.
        if (world.chance(200)) world.now_ms += 400;
        if (!world.loses) return;
        if (world.chance(50)) {
            world.snapshot.deinit();
            world.snapshot = try world.store.clone();
        }
        if (world.chance(200)) {
            world.store.deinit();
            world.store = try world.snapshot.clone();
            world.restart();
        }
        if (world.chance(500)) {
            world.store.deinit();
            world.store = .{};
            // A server that a command has emptied keeps its connections.
            if (world.random.boolean()) world.restart();
        }
    }

    /// Restarts the server: all connections and their bytes are lost.
    fn restart(world: *World) void {
        for (world.machines) |machine| for (0..2) |which| world.cut(machine, which);
        for (world.peers.items) |peer| peer.destroy();
        world.peers.clearRetainingCapacity();
    }

    fn cut(world: *World, machine: *Machine, which: usize) void {
        const peer = machine.peers[which] orelse return;
        world.leave(machine, which);
        switch (which) {
            0 => {
                machine.publisher.lost(world.moment());
                machine.follower.broken();
            },
            else => {
                machine.hearer.lost(world.moment());
                machine.follower.unheard();
            },
        }
        _ = peer;
    }

    /// Closes the machine's end of a connection.
    fn leave(world: *World, machine: *Machine, which: usize) void {
        const peer = machine.peers[which] orelse return;
        peer.is_ghost = true;
        // Some of the bytes on their way are lost.
        const rest = world.random.uintAtMost(usize, peer.up.items.len);
        if (world.random.boolean()) peer.up.shrinkRetainingCapacity(rest);
        machine.peers[which] = null;
        machine.inputs[which].clearRetainingCapacity();
    }

    fn turn(world: *World, machine: *Machine) !void {
        try world.publisherEvent(machine, machine.publisher.tick(world.moment()));
        try world.hearerEvent(machine, machine.hearer.tick(world.moment()));
        for (0..2) |which| {
            const peer = machine.peers[which] orelse continue;
            const count = world.some(peer.down.items.len);
            try machine.inputs[which].appendSlice(gpa, peer.down.items[0..count]);
            peer.down.replaceRangeAssumeCapacity(0, count, "");
            try world.read(machine, which);
        }
        if (machine.publisher.link.isReady() and !machine.publisher.isReading()) {
            if (machine.follower.begin()) |from| try machine.publisher.read(topic, "", from, world.moment());
        }
        for (0..2) |which| {
            const peer = machine.peers[which] orelse continue;
            const link = if (which == 0) &machine.publisher.link else &machine.hearer.link;
            const count = world.some(link.pending().len);
            try peer.up.appendSlice(gpa, link.pending()[0..count]);
            link.written(count);
        }
        if (machine.follower.state == .live) try world.readOn(machine);
    }

    /// The number of bytes, of `count`, that move now.
    fn some(world: *World, count: usize) usize {
        return switch (world.random.uintLessThan(u8, 4)) {
            0 => 0,
            1 => world.random.uintAtMost(usize, count),
            else => count,
        };
    }

    fn read(world: *World, machine: *Machine, which: usize) !void {
        while (machine.peers[which] != null) {
            const input = &machine.inputs[which];
            var consumed: usize = undefined;
            var is_done: bool = undefined;
            if (which == 0) {
                const got = machine.publisher.receive(input.items, world.moment());
                consumed = got.consumed;
                is_done = got.event == .need_more;
                try world.publisherEvent(machine, got.event);
            } else {
                const got = machine.hearer.receive(input.items, world.moment());
                consumed = got.consumed;
                is_done = got.event == .need_more;
                try world.hearerEvent(machine, got.event);
            }
            if (machine.peers[which] == null) return;
            input.replaceRangeAssumeCapacity(0, consumed, "");
            if (is_done) return;
        }
    }

    fn open(world: *World, machine: *Machine, which: usize) !bool {
        if (!world.calm and world.chance(4)) return false;
        const peer = try gpa.create(Peer);
        peer.* = .{};
        try world.peers.append(gpa, peer);
        machine.peers[which] = peer;
        return true;
    }

    fn publisherEvent(world: *World, machine: *Machine, event: redis.publisher.Event) !void {
        switch (event) {
            .need_more, .ready => {},
            .said => return error.TestUnexpectedResult,
            .connect => if (try world.open(machine, 0))
                try machine.publisher.link.connected(world.moment())
            else
                machine.publisher.lost(world.moment()),
            .lost => |why| {
                try testing.expect(why == .silent or why == .wanted or why.refused == .no_script);
                world.leave(machine, 0);
                machine.follower.broken();
            },
            .done => |done| switch (done.outcome) {
                .published => |at| {
                    machine.published += 1;
                    try testing.expect(world.before.contains(at.mark.check));
                },
                .unknown => machine.unknown += 1,
                .unavailable => machine.unavailable += 1,
                .refused => return error.TestUnexpectedResult,
            },
            .head => |at| machine.follower.head(at),
            .entry => |placed| machine.follower.entry(placed, world.now_ms),
            .read => |end| machine.follower.end(end.full),
            .read_refused => |failure| {
                // The server was emptied between two commands.
                try testing.expect(failure == .other and world.loses);
                machine.follower.broken();
            },
        }
    }

    fn hearerEvent(world: *World, machine: *Machine, event: redis.hearer.Event) !void {
        switch (event) {
            .need_more => {},
            .connect => if (try world.open(machine, 1))
                try machine.hearer.link.connected(world.moment())
            else
                machine.hearer.lost(world.moment()),
            .ready => try machine.hearer.subscribe(.{ .feed = .entries, .name = topic }),
            .lost => |why| {
                try testing.expectEqual(.silent, std.meta.activeTag(why));
                world.leave(machine, 1);
                machine.follower.unheard();
            },
            .subscribed => machine.follower.subscribed(),
            .entry => |entry| machine.follower.hear(entry.placed, world.now_ms),
            .foreign, .message => return error.TestUnexpectedResult,
        }
    }

    /// Lets the reader read new entries, and checks that none is missing.
    fn readOn(world: *World, machine: *Machine) !void {
        const log = &machine.log;
        if (machine.generation != log.generation) {
            if (machine.generation != null) machine.resets += 1;
            machine.generation = log.generation;
            machine.last = log.base;
            if (machine.resets > 0) machine.last = log.tip;
        }
        var entries = log.entriesAfter(machine.last.offset);
        while (entries.next()) |entry| {
            try testing.expectEqual(machine.last.offset + 1, entry.mark.offset);
            try testing.expectEqual(machine.last.check, world.before.get(entry.mark.check).?);
            machine.last = entry.mark;
            const node = world.find(entry.mark.check);
            if (node) |found| try machine.seen.append(gpa, .{ .hub = found.hub, .sequence = found.sequence });
        }
    }

    fn find(world: *World, check: position.Check) ?*Store.Entry {
        for (world.store.entries.items) |*entry| if (entry.mark.check == check) return entry;
        return null;
    }

    /// Moves bytes to the server, which carries out commands.
    fn carry(world: *World) !void {
        var index: usize = 0;
        while (index < world.peers.items.len) {
            const peer = world.peers.items[index];
            const count = world.some(peer.up.items.len);
            try peer.input.appendSlice(gpa, peer.up.items[0..count]);
            peer.up.replaceRangeAssumeCapacity(0, count, "");
            while (try world.command(peer)) {}
            if (peer.is_ghost and peer.up.items.len == 0) {
                peer.destroy();
                _ = world.peers.swapRemove(index);
            } else index += 1;
        }
    }

    /// Carries out one command. False: there is no whole command.
    fn command(world: *World, peer: *Peer) !bool {
        var parser: resp.Parser = .init(.of(&.{}));
        var tree: hub.Tree = try .alloc(gpa, 64, 8192);
        defer tree.free(gpa);
        var at: usize = 0;
        while (true) {
            const got = parser.feed(peer.input.items[at..]);
            at += got.consumed;
            switch (got.event) {
                .need_more => return false,
                .malformed => return error.TestUnexpectedResult,
                else => if (tree.add(got.event) == .complete) break,
            }
        }
        var words: [20][]const u8 = undefined;
        var items = tree.root().items();
        var count: usize = 0;
        while (items.next()) |item| : (count += 1) words[count] = item.bytes().?;
        try world.answer(peer, words[0..count]);
        peer.input.replaceRangeAssumeCapacity(0, at, "");
        return true;
    }

    fn answer(world: *World, peer: *Peer, words: []const []const u8) !void {
        const Verb = enum { HELLO, PING, SUBSCRIBE, HSETNX, PEXPIRE, HMGET, XRANGE, EVAL, EVALSHA };
        const store = &world.store;
        switch (std.meta.stringToEnum(Verb, words[0]).?) {
            .HELLO => try peer.down.appendSlice(gpa, "%1\r\n+proto\r\n:3\r\n"),
            .PING => try peer.down.appendSlice(gpa, "+PONG\r\n"),
            .SUBSCRIBE => {
                peer.hears = true;
                try peer.down.print(gpa, ">3\r\n+subscribe\r\n+{s}\r\n:1\r\n", .{words[1]});
            },
            .HSETNX => {
                try peer.down.print(gpa, ":{d}\r\n", .{@intFromBool(store.epoch == null)});
                if (store.epoch == null) store.epoch = try position.parseHex(words[3]);
            },
            .PEXPIRE => try peer.down.appendSlice(gpa, ":1\r\n"),
            .HMGET => {
                const tip = store.tip();
                if (store.epoch == null) return peer.down.appendSlice(gpa, "*3\r\n$-1\r\n$-1\r\n$-1\r\n");
                try peer.down.print(gpa, "*3\r\n$12\r\n{x:0>12}\r\n", .{store.epoch.?});
                if (tip.offset == 0) return peer.down.appendSlice(gpa, "$-1\r\n$-1\r\n");
                try peer.down.print(gpa, "+{d}\r\n+{x:0>12}\r\n", .{ tip.offset, tip.check });
            },
            .XRANGE => {
                const from = try std.fmt.parseInt(usize, words[2], 10);
                const all = store.entries.items;
                const rest = all[@min(from -| 1, all.len)..];
                const page = rest[0..@min(rest.len, config.history_page)];
                try peer.down.print(gpa, "*{d}\r\n", .{page.len});
                for (page) |entry| try peer.down.print(
                    gpa,
                    "*2\r\n+{d}-0\r\n*10\r\n+c\r\n+{x:0>12}\r\n+h\r\n+{x:0>12}\r\n" ++
                        "+s\r\n+{d}\r\n+t\r\n+0\r\n+d\r\n+{s}\r\n",
                    .{
                        entry.mark.offset,
                        entry.mark.check,
                        entry.hub,
                        entry.sequence,
                        entry.bytes[0..entry.len],
                    },
                );
            },
            .EVAL, .EVALSHA => {
                if (words[0].len == "EVAL".len) store.has_script = true;
                if (!store.has_script) return peer.down.appendSlice(gpa, "-NOSCRIPT No matching script.\r\n");
                try world.runScript(peer, words[6..]);
            },
        }
    }

    fn runScript(world: *World, peer: *Peer, words: []const []const u8) !void {
        const store = &world.store;
        const name = try position.parseHex(words[0]);
        const sequence = try std.fmt.parseInt(u64, words[1], 10);
        const floor = try std.fmt.parseInt(u64, words[2], 10);
        const done = &store.done[name];
        if (sequence < done.floor) return peer.down.appendSlice(gpa, "*1\r\n$4\r\nlate\r\n");
        const previous = try std.fmt.parseInt(u64, words[11], 10);
        var is_early = previous != 0;
        for (done.latest.items) |one| {
            if (one.sequence == sequence) return place(peer, "repeated", one.at);
            if (one.sequence == previous) is_early = false;
        }
        if (is_early) return peer.down.appendSlice(gpa, "*1\r\n$5\r\nearly\r\n");
        if (store.epoch == null) {
            store.entries.clearRetainingCapacity();
            store.epoch = try position.parseHex(words[3]);
        }
        const tip = store.tip();
        const mark = tip.next(name, sequence);
        var entry: Store.Entry = .{
            .mark = mark,
            .hub = name,
            .sequence = sequence,
            .bytes = undefined,
            .len = words[5].len,
        };
        @memcpy(entry.bytes[0..entry.len], words[5]);
        try store.entries.append(gpa, entry);
        try world.before.put(gpa, mark.check, tip.check);
        const at: position.Position = .{ .epoch = store.epoch.?, .mark = mark };
        try done.latest.append(gpa, .{ .sequence = sequence, .at = at });
        done.floor = floor;
        while (done.latest.items[0].sequence < floor) _ = done.latest.orderedRemove(0);
        var text: [120]u8 = undefined;
        const told = try std.fmt.bufPrint(&text, "{x:0>12} {d} {x:0>12} {x:0>12} {d} {s}", .{
            at.epoch, mark.offset, mark.check, name, sequence, words[5],
        });
        for (world.peers.items) |other| if (other.hears and !other.is_ghost) {
            const wire = ">3\r\n+message\r\n+{s}\r\n${d}\r\n{s}\r\n";
            try other.down.print(gpa, wire, .{ words[6], told.len, told });
        };
        try place(peer, "added", at);
    }

    fn place(peer: *Peer, word: []const u8, at: position.Position) !void {
        var text: [position.Position.text_bytes_max]u8 = undefined;
        try peer.down.print(gpa, "*2\r\n+{s}\r\n+{s}\r\n", .{ word, at.print(&text) });
    }

    fn isIdle(world: *const World) bool {
        for (world.machines) |machine| {
            if (machine.publisher.waiting.len > 0 or machine.follower.state != .live) return false;
            if (!std.meta.eql(machine.last, world.store.tip())) return false;
        }
        return true;
    }

    /// Continues without faults until all machines have the same entries.
    fn settle(world: *World) !void {
        world.calm = true;
        // Machines notice a server that was emptied with the next entry only.
        for (0..2) |_| {
            for (world.machines) |machine| {
                machine.publisher.publish(topic, "", "end", 0, world.moment()) catch {};
            }
            for (0..20_000) |_| {
                try world.step();
                if (world.isIdle()) break;
            } else return error.Unsettled;
        }
    }

    /// Checks a server without losses: each publication came once, and in its publisher's order.
    fn expectOnce(world: *World) !void {
        for (world.machines, 1..) |machine, name| {
            try testing.expectEqual(0, machine.resets);
            try testing.expectEqual(world.store.entries.items.len, machine.seen.items.len);
            var last: u64 = 0;
            var count: usize = 0;
            for (machine.seen.items) |seen| if (seen.hub == name) {
                try testing.expect(seen.sequence > last);
                last = seen.sequence;
                count += 1;
            };
            try testing.expect(count >= machine.published);
            try testing.expect(count <= machine.published + machine.unknown);
        }
    }
};

test "a server that loses nothing: each entry once and in order, whatever is cut, late or said twice" {
    var published: usize = 0;
    const seeds: Seeds = try .init(30, 12);
    for (seeds.first..seeds.end) |seed| {
        var prng: std.Random.DefaultPrng = .init(seed);
        var world: World = undefined;
        try world.init(prng.random(), false);
        defer world.deinit();
        errdefer std.debug.print("seed {d}\n", .{seed});
        for (0..600) |_| try world.step();
        try world.settle();
        try world.expectOnce();
        for (world.machines) |machine| published += machine.published;
    }
    try testing.expect(published > 100 * (seeds.end - seeds.first));
}

test "a server that loses entries: no gap without a reset" {
    var resets: usize = 0;
    const seeds: Seeds = try .init(100, 20);
    for (seeds.first..seeds.end) |seed| {
        var prng: std.Random.DefaultPrng = .init(seed);
        var world: World = undefined;
        try world.init(prng.random(), true);
        defer world.deinit();
        errdefer std.debug.print("seed {d}\n", .{seed});
        for (0..600) |_| try world.step();
        try world.settle();
        for (world.machines) |machine| resets += machine.resets;
    }
    if (seeds.are_many) try testing.expect(resets > seeds.end - seeds.first);
}
