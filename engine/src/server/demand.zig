//! The forms in which hosts take requests.

/// The demand of an exchange's host: decided when the request is dispatched.
pub const Demand = struct {
    pace: Pace,
    body: Body = .streamed,

    /// When the host gets a piece of a request's body, and when it answers.
    pub const Pace = enum {
        /// When the host asks (`read`). The host is told of events and answers later, all events of a round
        /// together.
        pull,
        /// As the piece comes. The host answers while its requests are read.
        push,
    };

    /// When the host hears of a request with a body.
    pub const Body = enum {
        /// With the request's head; the body comes in pieces.
        streamed,
        /// When the body is complete (`Exchange.takeIntake`). The engine reads it as it comes.
        whole,
    };

    pub const pull: Demand = .{ .pace = .pull };
    pub const push: Demand = .{ .pace = .push };
};
