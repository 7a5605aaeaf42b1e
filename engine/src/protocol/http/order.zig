//! How far a response is, and what may come next: the rules that hold for every framing. A session
//! asks them before it writes; so can an application's side that must answer for a command without a
//! look at the session.
//! Each function answers what the order is afterwards. Nothing changes until the caller keeps the answer.
//! RFC 9110 sections 6.4 and 8.6. Does not know: fields, bytes, connections.
const std = @import("std");
const Method = @import("method.zig").Method;

/// Why a piece of content cannot come now.
pub const BodyError = error{
    /// No response has started, or it has ended.
    OutOfOrder,
    /// More content than the Content-Length that was sent.
    TooLong,
    /// The last piece of content came, and less than the Content-Length that was sent: only a cut connection
    /// tells the client.
    TooShort,
};

/// Why a response cannot end like that.
pub const EndError = error{
    OutOfOrder,
    TooShort,
    /// The response has no place for them: it has a Content-Length, or the client speaks HTTP/1.0.
    TrailersNotAllowed,
};

/// The framing of a response as far as method and status alone decide it.
pub const Shape = enum {
    /// No content and no Content-Length: 1xx, 204.
    bare,
    /// No content, but a Content-Length tells what a GET would have had: HEAD, 304.
    described,
    /// Content of length zero, which has to be said: 205.
    empty,
    /// Content of the length that is given, or else of a length that the framing tells.
    sized,

    /// The shape of the response to a request.
    pub fn of(method: Method, status: u16) Shape {
        if (status < 200 or status == 204) return .bare;
        if (status == 205) return .empty;
        return if (method == .HEAD or status == 304) .described else .sized;
    }

    /// Whether an application's Content-Length goes out.
    pub fn passesLength(shape: Shape) bool {
        return shape == .described or shape == .sized;
    }

    /// How the content ends, once it is known whether the application gave a length. A length that was given
    /// stays, even if it leaves no room for trailers.
    pub fn content(shape: Shape, content_length: ?u64, streamed: Streamed) Content {
        return switch (shape) {
            .bare, .described, .empty => .none,
            .sized => if (content_length) |length| .{ .counted = length } else .{ .streamed = streamed },
        };
    }
};

/// How content of unknown length ends.
pub const Streamed = enum {
    /// The content ends with a mark of the framing; trailers may follow.
    delimited,
    /// The content ends with the connection (HTTP/1.0 clients). Nothing follows.
    until_close,
};

/// How the content of a response ends, from its head on.
pub const Content = union(enum) {
    /// The response has no content: what the host sends is discarded.
    none,
    counted: u64,
    streamed: Streamed,
};

/// How far a response is.
pub const Order = union(enum) {
    unstarted,
    /// Started, but the head is open: the length of the content is not known yet. If it is not told, the
    /// content is streamed.
    held: Streamed,
    /// Started, and without content: what comes is discarded.
    discarded,
    /// Bytes that the Content-Length still promises.
    counted: u64,
    streamed: Streamed,
    /// Bytes in both directions, behind a 101: the content of no response.
    tunnel,
    ended,

    /// The order behind a complete head.
    pub fn of(content: Content) Order {
        return switch (content) {
            .none => .discarded,
            .counted => |length| .{ .counted = length },
            .streamed => |streamed| .{ .streamed = streamed },
        };
    }

    /// The order behind `len` more bytes of content, the last ones with `last`. They complete a held head.
    pub fn body(order: Order, len: u64, last: bool) BodyError!Order {
        return switch (order) {
            .unstarted, .tunnel, .ended => error.OutOfOrder,
            .held => |streamed| if (last) .ended else if (len == 0) order else .{ .streamed = streamed },
            .counted => |left| if (len > left)
                error.TooLong
            else if (!last)
                .{ .counted = left - len }
            else if (len < left)
                error.TooShort
            else
                .ended,
            .discarded, .streamed => if (last) .ended else order,
        };
    }

    /// The order behind the end of the content, with trailers or without.
    pub fn end(order: Order, with_trailers: bool) EndError!Order {
        switch (order) {
            .unstarted, .tunnel, .ended => return error.OutOfOrder,
            .counted => |left| if (left > 0) return error.TooShort,
            .held, .discarded, .streamed => {},
        }
        return if (with_trailers and !order.takesTrailers()) error.TrailersNotAllowed else .ended;
    }

    /// Whether trailers have a place: the content is delimited, or there is none and they are discarded.
    pub fn takesTrailers(order: Order) bool {
        return switch (order) {
            .held, .streamed => |streamed| streamed == .delimited,
            .discarded => true,
            .unstarted, .counted, .tunnel, .ended => false,
        };
    }

    /// A part of the response was sent, and the client waits for the rest or for the end.
    pub fn isOpen(order: Order) bool {
        return switch (order) {
            .counted => |left| left > 0,
            .held, .streamed => true,
            .unstarted, .discarded, .tunnel, .ended => false,
        };
    }
};

const testing = std.testing;

test "which responses have content" {
    const cases = [_]struct { Method, u16, ?u64, Content, bool }{
        .{ .GET, 200, 5, .{ .counted = 5 }, true },
        .{ .GET, 200, null, .{ .streamed = .until_close }, true },
        .{ .HEAD, 200, 5, .none, true },
        .{ .HEAD, 204, null, .none, false },
        .{ .GET, 204, 5, .none, false },
        .{ .GET, 103, 5, .none, false },
        .{ .GET, 199, 5, .none, false },
        .{ .GET, 304, 5, .none, true },
        .{ .GET, 205, 5, .none, false },
        .{ .GET, 303, 5, .{ .counted = 5 }, true },
        .{ .GET, 305, 5, .{ .counted = 5 }, true },
    };
    for (cases) |case| {
        const method, const status, const length, const expected, const passes = case;
        const shape: Shape = .of(method, status);
        try testing.expectEqual(passes, shape.passesLength());
        try testing.expectEqual(expected, shape.content(length, .until_close));
    }
    const shape: Shape = .of(.GET, 200);
    try testing.expectEqual(Content{ .streamed = .delimited }, shape.content(null, .delimited));
}

test "content keeps what the head promises" {
    const order: Order = .of(.{ .counted = 5 });
    try testing.expectEqual(Order{ .counted = 2 }, try order.body(3, false));
    try testing.expectEqual(Order.ended, try order.body(5, true));
    try testing.expectEqual(Order{ .counted = 0 }, try order.body(5, false));
    for ([_]bool{ false, true }) |last| try testing.expectError(error.TooLong, order.body(6, last));
    for ([_]u64{ 0, 4 }) |len| try testing.expectError(error.TooShort, order.body(len, true));
    try testing.expectError(error.TooShort, order.end(false));
    try testing.expectError(error.TooShort, order.end(true));
    const whole: Order = .{ .counted = 0 };
    try testing.expectEqual(Order.ended, try whole.end(false));
    try testing.expectError(error.TrailersNotAllowed, whole.end(true));
    try testing.expectError(error.TooLong, whole.body(1, false));
}

test "no content before the start, none behind the end" {
    for ([_]Order{ .unstarted, .ended }) |order| {
        try testing.expectError(error.OutOfOrder, order.body(0, false));
        try testing.expectError(error.OutOfOrder, order.body(1, true));
        try testing.expectError(error.OutOfOrder, order.end(false));
        try testing.expect(!order.isOpen() and !order.takesTrailers());
    }
}

test "content of unknown length" {
    for ([_]Streamed{ .delimited, .until_close }) |streamed| {
        const held: Order = .{ .held = streamed };
        try testing.expectEqual(held, try held.body(0, false));
        try testing.expectEqual(Order{ .streamed = streamed }, try held.body(1, false));
        try testing.expectEqual(Order.ended, try held.body(1, true));
        try testing.expectEqual(Order.ended, try held.end(false));
        const open: Order = .of(.{ .streamed = streamed });
        for ([_]Order{ held, open }) |order| {
            try testing.expect(order.isOpen());
            try testing.expectEqual(streamed == .delimited, order.takesTrailers());
            if (streamed == .delimited) {
                try testing.expectEqual(Order.ended, try order.end(true));
            } else try testing.expectError(error.TrailersNotAllowed, order.end(true));
        }
        try testing.expectEqual(open, try open.body(1 << 40, false));
        try testing.expectEqual(Order.ended, try open.body(0, true));
    }
}

test "content that nobody sends" {
    const order: Order = .of(.none);
    try testing.expectEqual(order, try order.body(7, false));
    try testing.expectEqual(Order.ended, try order.body(7, true));
    try testing.expectEqual(Order.ended, try order.end(true));
    try testing.expect(!order.isOpen());
    const tunnel: Order = .tunnel;
    try testing.expectError(error.OutOfOrder, tunnel.body(7, false));
    try testing.expectError(error.OutOfOrder, tunnel.end(true));
    try testing.expect(!tunnel.isOpen());
}
