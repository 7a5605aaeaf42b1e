//! Hears what is published to Redis. Subscriptions end with the connection: the owner subscribes again when
//! the next one is ready, and reads what it has missed. Does not know: sockets, histories.
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

/// An observation. Values are borrowed until the next call.
pub const Event = union(enum) {
    need_more,
    /// The owner is to open a socket, and calls `link.connected` or `lost` then.
    connect,
    /// The connection has logged in: the owner is to subscribe.
    ready,
    /// The owner is to close the socket.
    lost: Why,
    /// The subscription is in force: the feed's messages come from here on.
    subscribed: keys.Fed,
    entry: struct { topic: []const u8, placed: Placed },
    /// Of a feed other than `entries`.
    message: struct { fed: keys.Fed, bytes: []const u8 },
    /// A program that is no hub has published to the channel of a topic's entries.
    foreign: []const u8,
};

/// The result of `receive`.
pub const Step = struct { consumed: usize, event: Event };

/// A connection that subscribes to topics.
pub const Hearer = struct {
    gpa: Allocator,
    config: *const Config,
    prefix: []const u8,
    link: Link,
    /// PINGs without an answer.
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

    /// Asks for a feed's messages. `error.Full`: commands wait for the socket; ask again when it has taken
    /// them.
    pub fn subscribe(hearer: *Hearer, fed: keys.Fed) error{ OutOfMemory, Full }!void {
        return hearer.command("SUBSCRIBE", fed);
    }

    /// The feed's messages do not matter any more.
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

    /// Does what the time has come for; `need_more`: nothing.
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

    /// When `tick` has something to do next.
    pub fn deadline(hearer: *const Hearer) u64 {
        return hearer.link.deadline();
    }

    /// The socket is gone, or the owner closes it.
    pub fn lost(hearer: *Hearer, moment: Moment) void {
        hearer.link.lost(moment);
        hearer.pings = 0;
    }

    fn drop(hearer: *Hearer, why: Why, moment: Moment) Event {
        hearer.lost(moment);
        return .{ .lost = why };
    }

    /// Reads what the socket has brought, up to one event.
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
            .element, .elements_end => unreachable, // no answer is split
        }
    }

    fn takePush(hearer: *Hearer, value: Tree.View) error{Malformed}!?Event {
        const word = value.item(0).?;
        const Word = enum { message, subscribe, unsubscribe };
        const kind = std.meta.stringToEnum(Word, word.bytes() orelse return error.Malformed) orelse {
            // Servers may push more than what this program knows.
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
