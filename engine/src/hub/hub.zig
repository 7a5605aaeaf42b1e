//! Layer `hub`: messages between the interpreters of a server, in any process or thread; the order and the
//! history of topics; and the protocol of Redis. A node (node.zig) has the mailboxes of one interpreter; the
//! broker (broker.zig) brings messages from one node to the others. Time, randomness and limits are
//! arguments. Imports std and protocol. Does not know: sockets, clocks, threads, processes, exchanges and
//! every other layer.
pub const Config = @import("config.zig").Config;
pub const resp = @import("resp.zig");
pub const Tree = @import("tree.zig").Tree;
pub const position = @import("position.zig");
pub const frames = @import("frames.zig");
pub const log = @import("log.zig");
pub const Log = log.Log;
pub const limits = @import("limits.zig");
pub const wire = @import("wire.zig");
pub const Broker = @import("broker.zig").Broker;
pub const Node = @import("node.zig").Node;
pub const readers = @import("readers.zig");
pub const Shares = @import("shares.zig").Shares;
pub const Present = @import("rolls.zig").Present;
pub const Topics = @import("topics.zig").Topics;
pub const histories = @import("histories.zig");
pub const Redis = redis.joined.Redis;
/// Redis or Valkey.
pub const redis = struct {
    pub const Url = @import("redis/url.zig").Url;
    pub const joined = @import("redis/redis.zig");
    pub const Failure = @import("redis/failure.zig").Failure;
    pub const link = @import("redis/link.zig");
    pub const publisher = @import("redis/publisher.zig");
    pub const hearer = @import("redis/hearer.zig");
    pub const Publisher = publisher.Publisher;
    pub const Hearer = hearer.Hearer;
    pub const Follower = @import("redis/follower.zig").Follower;
};

test {
    @import("std").testing.refAllDecls(@This());
    _ = @import("config.zig");
    _ = @import("tree.zig");
    _ = @import("log_test.zig");
    _ = @import("broker.zig");
    _ = @import("node.zig");
    _ = @import("wire.zig");
    _ = @import("outgoing.zig");
    _ = @import("topics_test.zig");
    _ = @import("simulation_test.zig");
    _ = @import("hostile_test.zig");
    _ = @import("redis/keys.zig");
    _ = @import("redis/subscriptions.zig");
    _ = @import("rolls.zig");
    _ = @import("shares.zig");
    _ = @import("errands.zig");
    _ = @import("loads.zig");
    _ = @import("tally.zig");
    _ = @import("lingering.zig");
    _ = @import("redis/simulation_test.zig");
    _ = @import("redis/scripted_test.zig");
    @import("std").testing.refAllDecls(redis);
    @import("std").testing.refAllDecls(redis.Publisher);
    @import("std").testing.refAllDecls(redis.Hearer);
    @import("std").testing.refAllDecls(redis.Follower);
}
