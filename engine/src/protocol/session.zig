//! A connection's protocol, whichever it is: bytes in, events out; responses in, bytes out. What is above
//! names no protocol version.
//!
//! A session numbers the exchanges of its connection by streams. With HTTP/1 there is one at a time: number
//! 0.
//! What an application sends is planned first: that may fail, and changes nothing. A plan whose bytes are
//! queued is applied, which cannot fail. See http1/session.zig for each function.
const assert = @import("std").debug.assert;
const http1 = @import("http1/session.zig");
const event = @import("event.zig");
const Field = @import("http/header.zig").Field;

pub const Limits = http1.Limits;
pub const Head = http1.Head;
pub const Response = http1.Response;
pub const Piece = http1.Piece;
pub const Plan = http1.Plan;
pub const Disposition = http1.Disposition;
pub const Step = event.Step;
pub const Stream = event.Stream;
pub const StartError = http1.StartError;
pub const BodyError = http1.BodyError;
pub const EndError = http1.EndError;
pub const startSize = http1.startSize;
pub const endSize = http1.endSize;
pub const body_prefix_bytes_max = http1.body_prefix_bytes_max;
pub const body_suffix_bytes_max = http1.body_suffix_bytes_max;

/// The state of one connection's protocol. No deinit: it owns nothing.
pub const Session = union(enum) {
    http1: http1.Session,

    /// For a fresh connection. `limits` must outlive it.
    pub fn init(limits: *const Limits) Session {
        return .{ .http1 = .init(limits) };
    }

    /// Reads on: `bytes` are all that were received and not consumed.
    pub inline fn feed(session: *Session, bytes: []const u8, head: *Head) Step {
        return switch (session.*) {
            inline else => |*s| s.feed(bytes, head),
        };
    }

    /// Whether the request asks for no content: HEAD.
    pub fn asksForHead(session: *const Session, stream: Stream) bool {
        return switch (session.*) {
            .http1 => |*s| s.asksForHead() and stream == 0,
        };
    }

    /// Whether the request has been read to its end.
    pub fn inputComplete(session: *const Session, stream: Stream) bool {
        return switch (session.*) {
            .http1 => |*s| s.inputComplete() and stream == 0,
        };
    }

    /// Whether the response has begun.
    pub fn responseStarted(session: *const Session, stream: Stream) bool {
        return switch (session.*) {
            .http1 => |*s| s.responseStarted() and stream == 0,
        };
    }

    /// Whether the response's head waits for the first of its content.
    pub fn headIsOpen(session: *const Session, stream: Stream) bool {
        return switch (session.*) {
            .http1 => |*s| s.headIsOpen() and stream == 0,
        };
    }

    /// Whether content of the response is sent: not to HEAD, nor with 204 and 304.
    pub fn sendsContent(session: *const Session, stream: Stream) bool {
        return switch (session.*) {
            .http1 => |*s| s.sendsContent() and stream == 0,
        };
    }

    /// Whether trailers that are given to `planEnd` are not refused.
    pub fn takesTrailers(session: *const Session, stream: Stream) bool {
        return switch (session.*) {
            .http1 => |*s| s.takesTrailers() and stream == 0,
        };
    }

    /// Whether some client waits for the rest of a response, or for its end.
    pub fn responseOpen(session: *const Session) bool {
        return switch (session.*) {
            inline else => |*s| s.responseOpen(),
        };
    }

    /// Writes a response's head and what comes with it.
    pub inline fn planStart(
        session: *Session,
        stream: Stream,
        response: Response,
        out: []u8,
    ) StartError!Plan {
        switch (session.*) {
            .http1 => |*s| {
                assert(stream == 0);
                return s.planStart(response, out);
            },
        }
    }

    /// Says how to send a piece of content.
    pub inline fn planBody(session: *const Session, stream: Stream, piece: Piece, out: []u8) BodyError!Plan {
        switch (session.*) {
            .http1 => |*s| {
                assert(stream == 0);
                return s.planBody(piece, out);
            },
        }
    }

    /// Writes the end of a response and its trailers.
    pub fn planEnd(session: *Session, stream: Stream, trailers: []const Field, out: []u8) EndError!Plan {
        switch (session.*) {
            .http1 => |*s| {
                assert(stream == 0);
                return s.planEnd(trailers, out);
            },
        }
    }

    /// Ends an open head, of whose content no length will be told.
    pub fn planHeadEnd(session: *const Session, stream: Stream, out: []u8) Plan {
        switch (session.*) {
            .http1 => |*s| {
                assert(stream == 0);
                return s.planHeadEnd(out);
            },
        }
    }

    /// Keeps what a plan has made of the session.
    pub inline fn apply(session: *Session, stream: Stream, plan: Plan) void {
        switch (session.*) {
            .http1 => |*s| {
                assert(stream == 0);
                s.apply(plan);
            },
        }
    }

    /// Writes an interim response.
    pub fn informational(
        session: *Session,
        stream: Stream,
        status: u16,
        fields: []const Field,
        out: []u8,
    ) StartError!usize {
        switch (session.*) {
            .http1 => |*s| {
                assert(stream == 0);
                return s.informational(status, fields, out);
            },
        }
    }

    /// Writes the answer to a WebSocket handshake: from now on both directions of the stream are plain bytes.
    pub fn switchProtocols(
        session: *Session,
        stream: Stream,
        fields: []const Field,
        out: []u8,
    ) StartError!usize {
        switch (session.*) {
            .http1 => |*s| {
                assert(stream == 0);
                return s.switchProtocols(fields, out);
            },
        }
    }

    /// What lets a client go on that waits before it sends content; null: it does not wait.
    pub fn takeContinue(session: *Session, stream: Stream) ?[]const u8 {
        switch (session.*) {
            .http1 => |*s| {
                assert(stream == 0);
                return s.takeContinue();
            },
        }
    }

    /// No request after the present ones is answered on this connection; responses that start later say so.
    pub fn closeAfterResponse(session: *Session) void {
        switch (session.*) {
            inline else => |*s| s.closeAfterResponse(),
        }
    }

    /// Whether the connection may outlive the present responses, as far as is known.
    pub fn persists(session: *const Session) bool {
        return switch (session.*) {
            .http1 => |*s| s.persist,
        };
    }

    /// What becomes of the connection now that a response has ended.
    pub fn disposition(session: *const Session) Disposition {
        return switch (session.*) {
            .http1 => |*s| s.disposition(),
        };
    }

    /// Begins the next exchange of a connection that has one at a time.
    pub fn next(session: *Session) void {
        switch (session.*) {
            .http1 => |*s| s.next(),
        }
    }

    /// The index of the field that the last InvalidFieldName, InvalidFieldValue or
    /// InvalidContentLength was about.
    pub fn badField(session: *const Session) u16 {
        return switch (session.*) {
            inline else => |*s| s.bad_field,
        };
    }

    /// Keeps such an index.
    pub fn noteBadField(session: *Session, index: usize) void {
        switch (session.*) {
            inline else => |*s| s.noteBadField(index),
        }
    }

    /// Whether the application has sent a field of this response that is not its business, and was dropped.
    pub fn droppedField(session: *const Session, stream: Stream) bool {
        return switch (session.*) {
            .http1 => |*s| s.dropped_hop_field and stream == 0,
        };
    }

    /// Asserts what always holds between calls.
    pub fn invariants(session: *const Session) void {
        switch (session.*) {
            inline else => |*s| s.invariants(),
        }
    }
};
