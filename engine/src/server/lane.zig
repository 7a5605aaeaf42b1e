//! One conversation with a peer: requests and their responses, one after the other on a connection, or the
//! single one of a stream. Does not know: sockets, TLS, and what else a connection is used for.
const Exchange = @import("exchange.zig").Exchange;

/// The state of a conversation.
pub const Lane = struct {
    phase: Phase,

    /// Between two requests, or within one.
    pub const Phase = union(enum) {
        /// No request. `since`: when the last one ended, or when the peer connected.
        idle: struct { since: u64 },
        /// Part of a request head has come.
        head: struct { since: u64 },
        exchange: *Exchange,
        /// The response is out, the rest of the request's body is read and thrown away.
        draining: struct { since: u64, bytes_left: u64 },
        /// No request follows: the last response is queued, or sent.
        closing,
    };

    /// The exchange that is going on.
    pub inline fn current(lane: *const Lane) ?*Exchange {
        return switch (lane.phase) {
            .exchange => |exchange| exchange,
            .idle, .head, .draining, .closing => null,
        };
    }

    /// Since when a request head is incomplete; null: none is.
    pub fn headSince(lane: *const Lane) ?u64 {
        return switch (lane.phase) {
            .head => |head| head.since,
            .idle, .exchange, .draining, .closing => null,
        };
    }

    /// A lane without a request has waited for one since `now` only.
    pub fn restartWait(lane: *Lane, now: u64) void {
        switch (lane.phase) {
            .idle => |*idle| idle.since = now,
            .head, .exchange, .draining, .closing => {},
        }
    }
};
