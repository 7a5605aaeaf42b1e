//! The queue of TLS handshakes that can go on, and the number of steps that one round makes. Does not know:
//! sockets, sessions, and what a step does.
//!
//! A step costs up to a millisecond, a thousand times as much as reading a request, and any client can ask
//! for a step. So each round serves established connections first, and then makes few steps; the rest waits
//! for the next round.
const std = @import("std");
const assert = std.debug.assert;
const Config = @import("config.zig").Config;
const Ticket = @import("slab.zig").Ticket;

pub const Handshakes = struct {
    /// Connections whose handshakes wait, the oldest first.
    line: std.DoublyLinkedList = .{},
    from_the_end: bool = false,
    /// The end of the last round's handshakes in microseconds, if it left connections waiting.
    left_at: ?u64 = null,

    /// A place in the line, embedded in the connection that waits.
    pub const Place = struct {
        node: std.DoublyLinkedList.Node = .{},
        ticket: Ticket = .none,
        waits: bool = false,
    };

    /// Whether no connection waits.
    pub fn isEmpty(handshakes: *const Handshakes) bool {
        return handshakes.line.first == null;
    }

    /// Adds a connection to the queue; a connection that waits already keeps its place.
    pub fn add(handshakes: *Handshakes, place: *Place, ticket: Ticket) void {
        if (place.waits) return assert(place.ticket == ticket);
        place.ticket = ticket;
        place.waits = true;
        handshakes.line.append(&place.node);
    }

    /// Removes a connection from the queue if it waits.
    pub fn remove(handshakes: *Handshakes, place: *Place) void {
        if (!place.waits) return;
        place.waits = false;
        handshakes.line.remove(&place.node);
    }

    /// Takes the next connection from the queue: the newest and the oldest by turns. Behind a flood a
    /// newcomer would otherwise wait for all others, and with newest ones only, the oldest would wait for
    /// ever.
    fn next(handshakes: *Handshakes) ?Ticket {
        const newest = handshakes.from_the_end;
        const node = (if (newest) handshakes.line.last else handshakes.line.first) orelse return null;
        handshakes.from_the_end = !newest;
        const place: *Place = @fieldParentPtr("node", node);
        handshakes.remove(place);
        return place.ticket;
    }

    /// Steps that a round may still make.
    pub const Round = struct {
        steps_left: u32,
        ends_at: u64,

        /// The longest time that handshakes add to a round, in microseconds: a tenth of the time that people
        /// notice.
        const longest_us = 10_000;

        /// The connection whose turn it is; null: the round has made its steps, or no connection waits.
        pub fn next(round: *Round, handshakes: *Handshakes, now_us: u64) ?Ticket {
            if (round.steps_left == 0 and now_us >= round.ends_at) return null;
            round.steps_left -|= 1;
            return handshakes.next();
        }
    };

    /// Begins the handshakes of a round: a few steps, and if the last round left some, more steps for as long
    /// as all other work has taken since. So a host that is slow with established connections leaves half of
    /// the time to new ones.
    pub fn begin(handshakes: *Handshakes, now_us: u64, config: *const Config) Round {
        const others_us = if (handshakes.left_at) |left_at| now_us -| left_at else 0;
        return .{
            .steps_left = config.handshakes_pass_max,
            .ends_at = now_us + @min(others_us, Round.longest_us),
        };
    }

    /// Ends the handshakes of a round.
    pub fn end(handshakes: *Handshakes, now_us: u64) void {
        assert(handshakes.left_at == null or handshakes.left_at.? <= now_us);
        handshakes.left_at = if (handshakes.isEmpty()) null else now_us;
    }
};

fn testTicket(number: u64) Ticket {
    return @fromBackingInt(number);
}

test "the oldest and the newest by turns, nobody twice, and who leaves is forgotten" {
    const config: Config = .{ .handshakes_pass_max = 5 };
    var handshakes: Handshakes = .{};
    var places: [6]Handshakes.Place = @splat(.{});
    for (&places, 1..) |*place, number| handshakes.add(place, testTicket(number));
    handshakes.add(&places[0], testTicket(1));
    handshakes.remove(&places[4]);
    handshakes.remove(&places[4]);
    var round = handshakes.begin(1000, &config);
    for ([_]u64{ 1, 6, 2, 4, 3 }) |expected| {
        try std.testing.expectEqual(testTicket(expected), round.next(&handshakes, 1000).?);
    }
    try std.testing.expect(handshakes.isEmpty());
    try std.testing.expectEqual(null, round.next(&handshakes, 1000));
}

test "a round takes a few, and more if everything else takes long" {
    const config: Config = .{ .handshakes_pass_max = 2 };
    var handshakes: Handshakes = .{};
    var places: [9]Handshakes.Place = @splat(.{});
    for (&places, 1..) |*place, number| handshakes.add(place, testTicket(number));
    var round = handshakes.begin(1000, &config);
    for (0..2) |_| try std.testing.expect(round.next(&handshakes, 9_000_000) != null);
    try std.testing.expectEqual(null, round.next(&handshakes, 1000));
    handshakes.end(2000);
    // Other work took 400 us.
    round = handshakes.begin(2400, &config);
    for ([_]u64{ 2400, 2500, 2700 }) |now_us| try std.testing.expect(round.next(&handshakes, now_us) != null);
    try std.testing.expectEqual(null, round.next(&handshakes, 2800));
    handshakes.end(2800);
    // However long a host was busy, handshakes delay established connections by 10 ms at most.
    round = handshakes.begin(9_000_000, &config);
    for (0..3) |_| try std.testing.expect(round.next(&handshakes, 9_009_999) != null);
    try std.testing.expectEqual(null, round.next(&handshakes, 9_010_000));
    handshakes.remove(&places[4]);
    handshakes.end(9_010_000);
    try std.testing.expectEqual(null, handshakes.left_at);
    round = handshakes.begin(9_900_000, &config);
    try std.testing.expectEqual(9_900_000, round.ends_at);
}
