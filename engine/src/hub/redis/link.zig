//! One connection to Redis: it connects, logs in, notices a silent server, and connects again later. Its
//! owner has the socket. Does not know: commands, except the greeting and PING.
const std = @import("std");
const assert = std.debug.assert;
const Config = @import("../config.zig").Config;
const outgoing = @import("../outgoing.zig");
const resp = @import("../resp.zig");
const Tree = @import("../tree.zig").Tree;
const Failure = @import("failure.zig").Failure;
const Allocator = std.mem.Allocator;

/// The time, and a random number.
pub const Moment = struct {
    /// Milliseconds of a monotonic clock.
    now_ms: u64,
    /// Milliseconds since 1970, by which all machines compute the age of entries.
    wall_ms: u64,
    /// An unpredictable number, which differs in each call.
    random: u64,
};

/// The login. Its slices must be valid as long as the link.
pub const Account = struct {
    user: ?[]const u8 = null,
    password: ?[]const u8 = null,
    database: u16 = 0,
    /// The connection's name in the server's list of clients.
    name: []const u8 = "peregrine",
};

/// The reason why a connection ended.
pub const Why = union(enum) {
    /// The connection was refused, or closed by the server.
    closed,
    /// The server did not accept, answer or log in within its time.
    silent,
    /// The answer was not RESP, or does not fit the command.
    nonsense,
    /// The answer is longer than any that the hub asks for.
    too_long,
    /// The server has named the reason.
    refused: Failure,
    /// The owner wants another connection.
    wanted,
};

/// A connection, and the attempts to connect.
pub const Link = struct {
    gpa: Allocator,
    config: *const Config,
    account: Account,
    state: State = .{ .waiting = 0 },
    /// Attempts in a row whose connections did not last.
    attempts: u8 = 0,
    parser: resp.Parser,
    tree: Tree,
    /// The elements of the present answer are events of their own.
    within: bool = false,
    output: std.ArrayList(u8) = .empty,
    /// Bytes at the front of `output` that the socket has taken.
    taken: usize = 0,

    pub const State = union(enum) {
        /// The next attempt to connect begins at this time.
        waiting: u64,
        /// The owner connects; the attempt ends at this time.
        connecting: u64,
        greeting: struct { deadline_ms: u64, answers: u8 },
        ready: struct {
            heard_ms: u64,
            since_ms: u64,
            /// A PING was sent, and bytes must come before this time.
            deadline_ms: ?u64 = null,
        },
    };

    /// The most values of an answer, or of an element where elements are events. The answer to HELLO has a
    /// few for each module.
    const nodes_max = 1024;
    /// The most bytes of an answer beside the message in it.
    const text_overhead = 8192;

    pub fn init(gpa: Allocator, config: *const Config, account: Account) Allocator.Error!Link {
        return .{
            .gpa = gpa,
            .config = config,
            .account = account,
            .parser = .init(.of(config)),
            .tree = try .alloc(gpa, nodes_max, config.message_bytes_max + text_overhead),
        };
    }

    pub fn deinit(link: *Link) void {
        link.tree.free(link.gpa);
        link.output.deinit(link.gpa);
        link.* = undefined;
    }

    pub fn invariants(link: *const Link) void {
        assert(link.taken <= link.output.items.len);
        switch (link.state) {
            .waiting, .connecting => assert(link.output.items.len == 0 and !link.within),
            .greeting => |greeting| assert(greeting.answers > 0),
            .ready => {},
        }
    }

    pub fn isReady(link: *const Link) bool {
        return link.state == .ready;
    }

    /// The action that `tick` demands of the link's owner.
    pub const Wish = union(enum) {
        nothing,
        /// Open a socket, then call `connected` or `lost`.
        connect,
        /// Close the socket: the link has given the connection up.
        close: Why,
        /// Expect the answer to a PING, which was written.
        pinged,
    };

    /// Acts on the present time.
    pub fn tick(link: *Link, moment: Moment) Wish {
        defer link.invariants();
        switch (link.state) {
            .waiting => |until| {
                if (moment.now_ms < until) return .nothing;
                link.state = .{ .connecting = moment.now_ms + link.config.redis_connect_ms };
                return .connect;
            },
            .connecting => |until| if (moment.now_ms >= until) return link.giveUp(.silent, moment),
            .greeting => |greeting| {
                if (moment.now_ms >= greeting.deadline_ms) return link.giveUp(.silent, moment);
            },
            .ready => |*ready| {
                if (ready.deadline_ms) |until| {
                    return if (moment.now_ms >= until) link.giveUp(.silent, moment) else .nothing;
                }
                if (moment.now_ms - ready.heard_ms < link.config.redis_ping_ms) return .nothing;
                ready.deadline_ms = moment.now_ms + link.config.redis_answer_ms;
                link.write(&.{"PING"}) catch return link.giveUp(.silent, moment);
                return .pinged;
            },
        }
        return .nothing;
    }

    /// The time at which `tick` is due next, in milliseconds.
    pub fn deadline(link: *const Link) u64 {
        return switch (link.state) {
            .waiting, .connecting => |at| at,
            .greeting => |greeting| greeting.deadline_ms,
            .ready => |ready| ready.deadline_ms orelse ready.heard_ms + link.config.redis_ping_ms,
        };
    }

    fn giveUp(link: *Link, why: Why, moment: Moment) Wish {
        link.lost(moment);
        return .{ .close = why };
    }

    /// Notes that the socket is connected, and writes the greeting.
    pub fn connected(link: *Link, moment: Moment) error{OutOfMemory}!void {
        assert(link.state == .connecting);
        const account = link.account;
        link.parser = .init(.of(link.config));
        // Answers in RESP2 are valid RESP3.
        link.parser.dialect = .resp3;
        link.tree.clear();
        var arguments: [7][]const u8 = .{ "HELLO", "3", "", "", "", "", "" };
        var count: usize = 2;
        if (account.password) |password| {
            arguments[2..5].* = .{ "AUTH", account.user orelse "default", password };
            count = 5;
        }
        arguments[count..][0..2].* = .{ "SETNAME", account.name };
        link.state = .{ .greeting = .{
            .deadline_ms = moment.now_ms + link.config.redis_answer_ms,
            .answers = if (account.database > 0) 2 else 1,
        } };
        try link.write(arguments[0 .. count + 2]);
        if (account.database == 0) return;
        var digits: [5]u8 = undefined;
        const number = std.fmt.bufPrint(&digits, "{d}", .{account.database}) catch unreachable;
        try link.write(&.{ "SELECT", number });
    }

    /// Notes that the socket is gone, or that the owner closes it. The next attempt comes after a pause.
    pub fn lost(link: *Link, moment: Moment) void {
        // A server that refuses the first commands is not contacted more often than one that refuses the
        // login.
        const has_lasted = switch (link.state) {
            .ready => |ready| moment.now_ms -| ready.since_ms >= link.longestPause(),
            .waiting, .connecting, .greeting => false,
        };
        if (has_lasted) link.attempts = 0;
        const pause = link.longestPause();
        // Half of the pause is random, so that machines do not come back at the same time.
        const until = moment.now_ms + pause / 2 + moment.random % (pause / 2 + 1);
        link.attempts +|= 1;
        link.state = .{ .waiting = until };
        link.output.clearRetainingCapacity();
        link.taken = 0;
        link.within = false;
        link.invariants();
    }

    fn longestPause(link: *const Link) u64 {
        const shift: u6 = @min(link.attempts, 16);
        return @min(link.config.redis_retry_ms_max, link.config.redis_retry_ms << shift);
    }

    /// Bytes for the socket, valid until the link changes.
    pub fn pending(link: *const Link) []const u8 {
        return link.output.items[link.taken..];
    }

    /// Notes that the socket has taken `count` bytes of the output.
    pub fn written(link: *Link, count: usize) void {
        outgoing.noteSent(link.gpa, &link.output, &link.taken, count);
    }

    /// Writes a command to the output.
    pub fn write(link: *Link, arguments: []const []const u8) error{OutOfMemory}!void {
        assert(link.state == .greeting or link.state == .ready);
        const size = resp.commandSize(arguments);
        try link.output.ensureUnusedCapacity(link.gpa, size);
        _ = resp.writeCommand(arguments, link.output.addManyAsSliceAssumeCapacity(size));
    }

    /// Whether the output has room for another command.
    pub fn hasRoom(link: *const Link) bool {
        return link.pending().len < link.config.redis_output_bytes_max;
    }

    /// An event. Its values are valid until the next call.
    pub const Event = union(enum) {
        need_more,
        /// The connection has logged in.
        ready,
        answer: Tree.View,
        /// An element of an answer whose elements are events of their own.
        element: Tree.View,
        /// The answer has no further elements.
        elements_end,
        pushed: Tree.View,
        /// The link has given the connection up, and the owner must close the socket.
        lost: Why,
    };

    pub const Step = struct { consumed: usize, event: Event };

    /// Parses received bytes, up to one event. `split`: the elements of an array that comes next are events
    /// of their own.
    pub fn receive(link: *Link, bytes: []const u8, moment: Moment, split: bool) Step {
        assert(link.state == .greeting or link.state == .ready);
        var consumed: usize = 0;
        if (bytes.len > 0 and link.state == .ready) {
            link.state.ready = .{ .heard_ms = moment.now_ms, .since_ms = link.state.ready.since_ms };
        }
        while (true) {
            const step = link.parser.feed(bytes[consumed..]);
            consumed += step.consumed;
            const event = link.take(step.event, moment, split) orelse continue;
            link.invariants();
            return .{ .consumed = consumed, .event = event };
        }
    }

    fn take(link: *Link, event: resp.Event, moment: Moment, split: bool) ?Event {
        if (event == .need_more) return .need_more;
        // The value of the last event was valid until now.
        if (link.tree.isComplete()) link.tree.clear();
        const is_first = link.tree.isEmpty();
        switch (event) {
            .malformed => |fault| return link.giveUpReading(switch (fault) {
                .too_many_elements, .too_many_bytes, .line_too_long, .too_deep => .too_long,
                else => .nonsense,
            }, moment),
            .begin => |aggregate| if (is_first and split and !link.within and aggregate.kind == .list) {
                link.within = true;
                return null;
            },
            .end => if (link.within and is_first) {
                link.within = false;
                return .elements_end;
            },
            else => {},
        }
        return switch (link.tree.add(event)) {
            .more => null,
            .full => link.giveUpReading(.too_long, moment),
            .complete => link.whole(moment),
        };
    }

    fn giveUpReading(link: *Link, why: Why, moment: Moment) Event {
        link.lost(moment);
        return .{ .lost = why };
    }

    fn whole(link: *Link, moment: Moment) ?Event {
        const value = link.tree.root();
        if (link.within) return .{ .element = value };
        if (value.isPush()) return .{ .pushed = value };
        switch (link.state) {
            .greeting => |*greeting| {
                if (value.failure()) |text| {
                    return link.giveUpReading(.{ .refused = .of(text) }, moment);
                }
                greeting.answers -= 1;
                if (greeting.answers > 0) return null;
                link.state = .{ .ready = .{ .heard_ms = moment.now_ms, .since_ms = moment.now_ms } };
                return .ready;
            },
            .ready => return .{ .answer = value },
            .waiting, .connecting => unreachable,
        }
    }
};
