//! The connection on which messages of Redis are heard. Its subscriptions end with it: the owner subscribes
//! again on the next connection, and reads what was missed. Does not know: sockets, histories.
const std = @import("std");
const assert = std.debug.assert;
const Config = @import("../config.zig").Config;
const Placed = @import("../log.zig").Placed;
const Tree = @import("../tree.zig").Tree;
const keys = @import("keys.zig");
const link_file = @import("link.zig");
const Link = link_file.Link;
const Moment = link_file.Moment;
const Why = link_file.Why;
const Allocator = std.mem.Allocator;

/// An event. Its values are valid until the next call.
pub const Event = union(enum) {
    need_more,
    /// The owner must open a socket, and then call `link.connected` or `lost`.
    connect,
    /// The connection has logged in, so the owner must subscribe.
    ready,
    /// The owner must close the socket.
    lost: Why,
    /// The subscription is in force: the feed's messages come from now on.
    subscribed: keys.Fed,
    entry: struct { topic: []const u8, placed: Placed },
    /// A message of a feed other than `entries`.
    message: struct { fed: keys.Fed, bytes: []const u8 },
    /// Another program has published to the channel of a topic's entries.
    foreign: []const u8,
};

/// The result of `receive`.
pub const Step = struct { consumed: usize, event: Event };

/// A connection that subscribes to feeds.
pub const Hearer = struct {
    gpa: Allocator,
    config: *const Config,
    prefix: []const u8,
    link: Link,
    /// The number of PINGs without an answer.
    pings: u32 = 0,

    pub fn init(
        gpa: Allocator,
        config: *const Config,
        prefix: []const u8,
        account: link_file.Account,
    ) Allocator.Error!Hearer {
        return .{ .gpa = gpa, .config = config, .prefix = prefix, .link = try .init(gpa, config, account) };
    }

    pub fn deinit(hearer: *Hearer) void {
        hearer.link.deinit();
        hearer.* = undefined;
    }

    /// Subscribes to a feed. `error.Full`: too many commands wait for the socket; the owner tries again
    /// later.
    pub fn subscribe(hearer: *Hearer, fed: keys.Fed) error{ OutOfMemory, Full }!void {
        return hearer.command("SUBSCRIBE", fed);
    }

    /// Ends the subscription to a feed.
    pub fn unsubscribe(hearer: *Hearer, fed: keys.Fed) error{ OutOfMemory, Full }!void {
        return hearer.command("UNSUBSCRIBE", fed);
    }

    fn command(hearer: *Hearer, verb: []const u8, fed: keys.Fed) error{ OutOfMemory, Full }!void {
        assert(hearer.link.isReady());
        if (!hearer.link.hasRoom()) return error.Full;
        const memory = try hearer.gpa.alloc(u8, keys.room(hearer.prefix, fed.name));
        defer hearer.gpa.free(memory);
        return hearer.link.write(&.{ verb, keys.writeFeed(memory, hearer.prefix, fed.feed, fed.name) });
    }

    /// Acts on the present time; `need_more`: nothing was due.
    pub fn tick(hearer: *Hearer, moment: Moment) Event {
        switch (hearer.link.tick(moment)) {
            .nothing => return .need_more,
            .connect => return .connect,
            .close => |why| {
                hearer.pings = 0;
                return .{ .lost = why };
            },
            .pinged => {
                hearer.pings += 1;
                return .need_more;
            },
        }
    }

    /// The time at which `tick` is due next, in milliseconds.
    pub fn deadline(hearer: *const Hearer) u64 {
        return hearer.link.deadline();
    }

    /// Notes that the socket is gone, or that the owner closes it.
    pub fn lost(hearer: *Hearer, moment: Moment) void {
        hearer.link.lost(moment);
        hearer.pings = 0;
    }

    fn drop(hearer: *Hearer, why: Why, moment: Moment) Event {
        hearer.lost(moment);
        return .{ .lost = why };
    }

    /// Parses received bytes, up to one event.
    pub fn receive(hearer: *Hearer, bytes: []const u8, moment: Moment) Step {
        var consumed: usize = 0;
        while (true) {
            const step = hearer.link.receive(bytes[consumed..], moment, false);
            consumed += step.consumed;
            const event = hearer.take(step.event, moment) orelse continue;
            return .{ .consumed = consumed, .event = event };
        }
    }

    fn take(hearer: *Hearer, event: Link.Event, moment: Moment) ?Event {
        switch (event) {
            .need_more => return .need_more,
            .ready => return .ready,
            .lost => |why| {
                hearer.pings = 0;
                return .{ .lost = why };
            },
            .pushed => |value| return hearer.takePush(value) catch hearer.drop(.nonsense, moment),
            .answer => |value| {
                if (value.failure()) |text| return hearer.drop(.{ .refused = .of(text) }, moment);
                if (!value.is("PONG") or hearer.pings == 0) return hearer.drop(.nonsense, moment);
                hearer.pings -= 1;
                return null;
            },
            .element, .elements_end => unreachable, // answers come as a whole here
        }
    }

    fn takePush(hearer: *Hearer, value: Tree.View) error{Malformed}!?Event {
        const word = value.item(0).?;
        const Word = enum { message, subscribe, unsubscribe };
        const kind = std.meta.stringToEnum(Word, word.bytes() orelse return error.Malformed) orelse {
            // Servers may push messages that this program does not know.
            return null;
        };
        if (value.count() != 3) return error.Malformed;
        const channel = value.item(1).?.bytes() orelse return error.Malformed;
        const fed = keys.feedOf(hearer.prefix, channel) orelse return error.Malformed;
        switch (kind) {
            .subscribe => return .{ .subscribed = fed },
            .unsubscribe => return null,
            .message => {
                const text = value.item(2).?.bytes() orelse return error.Malformed;
                if (fed.feed != .entries) return .{ .message = .{ .fed = fed, .bytes = text } };
                const placed = keys.parseMessage(text) catch return .{ .foreign = fed.name };
                return .{ .entry = .{ .topic = fed.name, .placed = placed } };
            },
        }
    }
};
