//! How a host takes requests.

/// What an exchange's host wants of it: decided when its request is dispatched.
pub const Demand = struct {
    pace: Pace,

    /// When the host gets a piece of a request's body, and when it answers.
    pub const Pace = enum {
        /// When it asks (`read`). It is told of events and answers later: what it is told in one round it
        /// answers together.
        pull,
        /// As it comes. It answers while its requests are read.
        push,
    };

    pub const pull: Demand = .{ .pace = .pull };
    pub const push: Demand = .{ .pace = .push };
};
