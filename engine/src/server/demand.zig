//! The forms in which hosts take requests and answer them.

/// The demand of an exchange's host, decided when the request is dispatched.
pub const Demand = struct {
    pace: Pace,
    body: Body = .streamed,

    /// When the host gets a piece of a request's body, and when it answers.
    pub const Pace = enum {
        /// The host gets a piece when it asks (`read`). It is told of all events of a round together, and
        /// answers later.
        pull,
        /// The host gets a piece as it comes, and answers while its requests are read.
        push,
    };

    /// When the host hears of a request with a body.
    pub const Body = enum {
        /// The host hears of the request with its head; the body comes in pieces.
        streamed,
        /// The host hears of the request when its body is complete (`Exchange.takeIntake`). The engine reads
        /// the body as it comes.
        whole,
    };

    pub const pull: Demand = .{ .pace = .pull };
    pub const push: Demand = .{ .pace = .push };
};
