//! Questions about the subscribers of a topic, until all who were asked have answered: nodes of a hub, or
//! hubs of all machines. A node that dies does not answer; at a deadline the answer is given, with a mark
//! that it is partial. Does not know: how a question is sent.
const std = @import("std");
const assert = std.debug.assert;
const Asker = @import("redis/redis.zig").Asker;
const limits = @import("limits.zig");
const loads_file = @import("loads.zig");
const Loads = loads_file.Loads;
const Most = loads_file.Most;
const Shares = @import("shares.zig").Shares;
const wire = @import("wire.zig");
const Allocator = std.mem.Allocator;

/// The subscribers of a topic, as payload of a frame: their number in 8 bytes, a byte that is 1 if all nodes
/// have answered, and the names of channels, each with a space behind it.
pub const Present = struct {
    count: u64 = 0,
    is_complete: bool = true,
    names: []const u8 = "",

    const head_bytes = 9;
    /// The length of the longest payload.
    pub const bytes_max = head_bytes + limits.present_names_max * (wire.Channel.name_bytes + 1);

    pub fn write(present: *const Present, out: *[bytes_max]u8) []const u8 {
        std.mem.writeInt(u64, out[0..8], present.count, .little);
        out[8] = @intFromBool(present.is_complete);
        @memcpy(out[head_bytes..][0..present.names.len], present.names);
        return out[0 .. head_bytes + present.names.len];
    }

    pub fn read(bytes: []const u8) error{Malformed}!Present {
        if (bytes.len < head_bytes or bytes.len > bytes_max) return error.Malformed;
        return .{
            .count = std.mem.readInt(u64, bytes[0..8], .little),
            .is_complete = bytes[8] == 1,
            .names = bytes[head_bytes..],
        };
    }
};

/// The receiver of an answer.
pub const For = union(enum) {
    /// A node of this hub, with its request.
    node: Asker,
    /// The hub of a node, with the node's request.
    hub: Asker,

    fn asker(target: For) Asker {
        return switch (target) {
            inline else => |of| of,
        };
    }

    fn isOf(target: For, other: Asker) bool {
        return target == .node and std.meta.eql(target.node, other);
    }
};

/// The nodes or hubs that were asked.
const Asked = union(enum) {
    /// Nodes of this hub that have not answered yet.
    nodes: std.ArrayList(u64),
    /// The number of hubs that were asked; null: Redis has not told it yet.
    hubs: ?u64,
};

const Roll = struct {
    number: u64,
    target: For,
    /// The share of the asking node.
    share: Shares.Index,
    asked: Asked,
    answers: u64 = 0,
    count: u64 = 0,
    is_complete: bool = true,
    names: std.ArrayList(u8) = .empty,
    until_ms: u64,

    fn isOver(roll: *const Roll) bool {
        return switch (roll.asked) {
            .nodes => |*nodes| nodes.items.len == 0,
            .hubs => |count| roll.answers >= (count orelse return false),
        };
    }

    fn deinit(roll: *Roll, gpa: Allocator) void {
        switch (roll.asked) {
            .nodes => |*nodes| nodes.deinit(gpa),
            .hubs => {},
        }
        roll.names.deinit(gpa);
    }

    fn add(roll: *Roll, gpa: Allocator, present: *const Present) void {
        roll.answers += 1;
        roll.count +|= present.count;
        if (!present.is_complete) roll.is_complete = false;
        var names = std.mem.tokenizeScalar(u8, present.names, ' ');
        while (names.next()) |name| {
            const room = Present.bytes_max - Present.head_bytes - roll.names.items.len;
            if (!wire.isName(name) or room < name.len + 1) return;
            roll.names.ensureUnusedCapacity(gpa, name.len + 1) catch return;
            roll.names.appendSliceAssumeCapacity(name);
            roll.names.appendAssumeCapacity(' ');
        }
    }
};

pub const Rolls = struct {
    gpa: Allocator,
    all: std.ArrayList(Roll) = .empty,
    last_number: u64 = 0,
    /// Counts of questions, by the kind of receiver. With Redis, a question counts as both kinds at the hub
    /// of its node.
    loads: std.EnumArray(std.meta.Tag(For), Loads) = .initFill(.{}),

    pub fn init(gpa: Allocator) Rolls {
        return .{ .gpa = gpa };
    }

    pub fn deinit(rolls: *Rolls) void {
        for (rolls.all.items) |*roll| roll.deinit(rolls.gpa);
        rolls.all.deinit(rolls.gpa);
        for (&rolls.loads.values) |*loads| loads.deinit(rolls.gpa);
        rolls.* = undefined;
    }

    pub const Error = error{ OutOfMemory, TooMany };

    /// The receiver of the answer, and the limits of the asking node.
    pub const By = struct { target: For, share: Shares.Index, most: Most };

    /// Begins a question for these nodes. Returns its number, which answers contain.
    pub fn ask(rolls: *Rolls, by: By, nodes: []const u64, until_ms: u64) Error!u64 {
        var asked: std.ArrayList(u64) = .empty;
        errdefer asked.deinit(rolls.gpa);
        try asked.appendSlice(rolls.gpa, nodes);
        return rolls.begin(by, .{ .nodes = asked }, until_ms);
    }

    /// Begins a question for the hubs of all machines.
    pub fn askHubs(rolls: *Rolls, by: By, until_ms: u64) Error!void {
        _ = try rolls.begin(by, .{ .hubs = null }, until_ms);
    }

    fn begin(rolls: *Rolls, by: By, asked: Asked, until_ms: u64) Error!u64 {
        if (rolls.all.items.len >= limits.rolls_max) return error.TooMany;
        try rolls.all.ensureUnusedCapacity(rolls.gpa, 1);
        const loads = rolls.loads.getPtr(by.target);
        try loads.add(rolls.gpa, .{ .node = by.target.asker().node, .share = by.share }, 0, by.most);
        rolls.last_number += 1;
        rolls.all.appendAssumeCapacity(.{
            .number = rolls.last_number,
            .target = by.target,
            .share = by.share,
            .asked = asked,
            .until_ms = until_ms,
        });
        return rolls.last_number;
    }

    fn removeAt(rolls: *Rolls, index: usize) void {
        const roll = &rolls.all.items[index];
        rolls.loads.getPtr(roll.target).remove(.{ .node = roll.target.asker().node, .share = roll.share }, 0);
        roll.deinit(rolls.gpa);
        _ = rolls.all.swapRemove(index);
    }

    /// Adds a node's answer, if the node was asked and has not answered before.
    pub fn answer(rolls: *Rolls, number: u64, node: u64, present: *const Present) void {
        for (rolls.all.items) |*roll| {
            if (roll.number != number or roll.asked != .nodes) continue;
            const at = std.mem.findScalar(u64, roll.asked.nodes.items, node) orelse return;
            _ = roll.asked.nodes.swapRemove(at);
            return roll.add(rolls.gpa, present);
        }
    }

    /// Adds a hub's answer to a question of a node here.
    pub fn answerOf(rolls: *Rolls, asker: Asker, present: *const Present) void {
        for (rolls.all.items) |*roll| {
            if (roll.target.isOf(asker) and roll.asked == .hubs) return roll.add(rolls.gpa, present);
        }
    }

    /// Notes how many hubs have received the question of a node here.
    pub fn expect(rolls: *Rolls, asker: Asker, asked: u64) void {
        for (rolls.all.items) |*roll| {
            if (roll.target.isOf(asker) and roll.asked == .hubs) roll.asked.hubs = asked;
        }
    }

    /// Ends a question, because no hub can be asked.
    pub fn drop(rolls: *Rolls, asker: Asker) void {
        for (rolls.all.items, 0..) |*roll, index| {
            if (!roll.target.isOf(asker)) continue;
            return rolls.removeAt(index);
        }
    }

    /// An answer to be given. `bytes` lie in the caller's buffer.
    pub const Over = struct { target: For, bytes: []const u8 };

    /// Takes the next question that is answered or whose time is over; null: there is none.
    pub fn next(rolls: *Rolls, now_ms: u64, out: *[Present.bytes_max]u8) ?Over {
        for (rolls.all.items, 0..) |*roll, index| {
            const is_late = now_ms >= roll.until_ms;
            if (!roll.isOver() and !is_late) continue;
            const present: Present = .{
                .count = roll.count,
                .is_complete = roll.is_complete and roll.isOver(),
                .names = roll.names.items,
            };
            const over: Over = .{ .target = roll.target, .bytes = present.write(out) };
            rolls.removeAt(index);
            return over;
        }
        return null;
    }

    /// The time at which the next question ends without all answers, in milliseconds; null: there is no
    /// question.
    pub fn deadline(rolls: *const Rolls) ?u64 {
        var earliest: ?u64 = null;
        for (rolls.all.items) |*roll| earliest = @min(earliest orelse roll.until_ms, roll.until_ms);
        return earliest;
    }
};

const testing = std.testing;

test "names and counts are added up, as many names as there is room for, and a deadline makes it partial" {
    var rolls: Rolls = .init(testing.allocator);
    defer rolls.deinit();
    var out: [Present.bytes_max]u8 = undefined;
    const asker: Asker = .{ .node = 1, .number = 2 };
    const by: Rolls.By = .{ .target = .{ .node = asker }, .share = 0, .most = .ofCounts(1, 1) };
    const number = try rolls.ask(by, &.{ 7, 8 }, 100);
    var names: [limits.present_names_max * 7]u8 = undefined;
    for (0..limits.present_names_max) |i| {
        _ = try std.fmt.bufPrint(names[i * 7 ..][0..7], "conn.{c} ", .{@as(u8, 'a')});
    }
    rolls.answer(number, 7, &.{ .count = 2, .names = "conn.1 conn.2 " });
    // Second answers, and answers of nodes that were not asked, do not count.
    rolls.answer(number, 7, &.{ .count = 1000 });
    rolls.answer(number, 9, &.{ .count = 1000 });
    rolls.answerOf(asker, &.{ .count = 1000 });
    try testing.expectEqual(null, rolls.next(0, &out));
    try testing.expectError(error.TooMany, rolls.askHubs(by, 100));
    rolls.answer(number, 8, &.{ .count = 500, .names = &names });
    const over = rolls.next(0, &out).?;
    try testing.expectEqual(asker, over.target.node);
    const present: Present = try .read(over.bytes);
    try testing.expect(present.count == 502 and present.is_complete);
    try testing.expect(std.mem.startsWith(u8, present.names, "conn.1 conn.2 conn.a "));
    try rolls.askHubs(by, 100);
    rolls.answerOf(asker, &.{ .count = 3 });
    rolls.expect(asker, 2);
    try testing.expectEqual(null, rolls.next(99, &out));
    const late: Present = try .read(rolls.next(100, &out).?.bytes);
    try testing.expect(late.count == 3 and !late.is_complete);
}
