//! The order of a response: its progress, and what may come next. The rules are the same for every framing. A
//! session asks for them before it writes; so does the side of an application that must respond to a command
//! without access to the session. Each function returns the order after a command. Nothing changes until the
//! caller stores it. RFC 9110 sections 6.4 and 8.6. Does not know: fields, bytes, connections.
const std = @import("std");
const Method = @import("method.zig").Method;

/// Reasons why a piece of content is refused.
pub const BodyError = error{
    /// No response has started, or it has ended.
    OutOfOrder,
    /// The content is longer than the Content-Length that was sent.
    TooLong,
    /// The last piece makes the content shorter than the Content-Length that was sent, so the connection must
    /// be cut for the client to notice.
    TooShort,
};

/// Reasons why a response cannot end in this way.
pub const EndError = error{
    OutOfOrder,
    TooShort,
    /// The response cannot have trailers: it has a Content-Length, or the client speaks HTTP/1.0.
    TrailersNotAllowed,
};

/// The part of a response's framing that follows from method and status.
pub const Shape = enum {
    /// No content and no Content-Length: 1xx, 204.
    bare,
    /// No content; a Content-Length tells the length for a GET: HEAD, 304.
    described,
    /// Empty content with a length of zero: 205.
    empty,
    /// Content, with the length that the application gives or of unknown length.
    sized,

    /// Returns the shape of the response to a request.
    pub fn of(method: Method, status: u16) Shape {
        if (status < 200 or status == 204) return .bare;
        if (status == 205) return .empty;
        return if (method == .HEAD or status == 304) .described else .sized;
    }

    /// Whether an application's Content-Length is sent.
    pub fn passesLength(shape: Shape) bool {
        return shape == .described or shape == .sized;
    }

    /// Returns the end of the content, given the application's length (null: none). A given length is kept
    /// even if it excludes trailers.
    pub fn content(shape: Shape, content_length: ?u64, streamed: Streamed) Content {
        return switch (shape) {
            .bare, .described, .empty => .none,
            .sized => if (content_length) |length| .{ .counted = length } else .{ .streamed = streamed },
        };
    }
};

/// The end of content of unknown length.
pub const Streamed = enum {
    /// The framing marks the end; trailers may follow.
    delimited,
    /// The connection ends with the content (HTTP/1.0 clients). Nothing follows.
    until_close,
};

/// The end of a response's content, known when the head is sent.
pub const Content = union(enum) {
    /// The response has no content: content from the host is discarded.
    none,
    counted: u64,
    streamed: Streamed,
};

/// The progress of a response.
pub const Order = union(enum) {
    unstarted,
    /// Started, but with an open head: the length of the content is not known yet. If it stays unknown, the
    /// content is streamed.
    held: Streamed,
    /// Started, and without content: pieces are discarded.
    discarded,
    /// The number of bytes that the Content-Length still promises.
    counted: u64,
    streamed: Streamed,
    /// Plain bytes in both directions after a 101; no response content.
    tunnel,
    ended,

    /// Returns the order after a complete head.
    pub fn of(content: Content) Order {
        return switch (content) {
            .none => .discarded,
            .counted => |length| .{ .counted = length },
            .streamed => |streamed| .{ .streamed = streamed },
        };
    }

    /// Returns the order after `len` more bytes of content (`last`: the last ones). They complete a held
    /// head.
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

    /// Returns the order after the end of the content, with or without trailers.
    pub fn end(order: Order, with_trailers: bool) EndError!Order {
        switch (order) {
            .unstarted, .tunnel, .ended => return error.OutOfOrder,
            .counted => |left| if (left > 0) return error.TooShort,
            .held, .discarded, .streamed => {},
        }
        return if (with_trailers and !order.takesTrailers()) error.TrailersNotAllowed else .ended;
    }

    /// Whether trailers are accepted: the content is delimited, or there is none and they are discarded.
    pub fn takesTrailers(order: Order) bool {
        return switch (order) {
            .held, .streamed => |streamed| streamed == .delimited,
            .discarded => true,
            .unstarted, .counted, .tunnel, .ended => false,
        };
    }

    /// Whether a part of the response was sent, and the client waits for the rest or for the end.
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
