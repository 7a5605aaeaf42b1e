//! A connection's protocol, whichever it is: bytes in, events out; responses in, bytes out. What is above
//! names no protocol version.
//!
//! A session numbers the exchanges of its connection by streams. With HTTP/1 there is one at a time: number
//! 0. A connection of many streams has a session of its own kind (`Multiplexed`), and each of its streams is
//! to an exchange what a connection with one exchange at a time is: a `Session`, too.
//! A command of an application is planned first: that may fail, and changes nothing. When the plan's bytes
//! are queued, the plan is applied, which cannot fail. See http1/session.zig for each function.
const assert = @import("std").debug.assert;
const http1 = @import("http1/session.zig");
const http2 = @import("http2/session.zig");
const frame = @import("http2/frame.zig");
const event = @import("event.zig");
const View = @import("http2/view.zig").View;
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
pub const body_prefix_bytes_max = http1.body_prefix_bytes_max;
pub const body_suffix_bytes_max = http1.body_suffix_bytes_max;

/// The session of a connection that carries many exchanges at a time. Its events name their streams; content
/// waits in queues of the streams' owners, and is framed when it leaves.
pub const Multiplexed = struct {
    pub const Session = http2.Session;
    /// Limits on a peer.
    pub const Config = http2.Config;
    /// Memory of one open stream.
    pub const Place = http2.Stream;
    pub const Event = http2.Event;
    pub const Debt = http2.Debt;
    pub const Emission = http2.Emission;
    /// Why a stream or a connection ends, for its peer.
    pub const Code = frame.Code;
    pub const Tally = http2.Tally;
    pub const family: Family = .@"HTTP/2";
    pub const Room = http2.Room;
    pub const roomBytes = http2.roomBytes;
    pub const table_units_max = http2.table_units_max;
    pub const startSizeOf = http2.startSizeOf;
    pub const startSize = http2.startSize;
    pub const emission_bytes_max = http2.emission_bytes_max;
    pub const continue_bytes_max = http2.continue_bytes_max;
    /// The most content of one emission, in bytes.
    pub const content_bytes_max = frame.payload_bytes_max;

    /// Whether bytes, of which there is at least one, are the beginning of such a connection, or begin with
    /// it.
    pub fn begins(bytes: []const u8) bool {
        const len = @min(bytes.len, frame.preface.len);
        return @import("std").mem.eql(u8, bytes[0..len], frame.preface[0..len]);
    }
};

/// Upper bound of what `planEnd` writes for these trailers, in bytes.
pub fn endSize(trailers: []const Field) usize {
    return @max(http1.endSize(trailers), http2.endSize(trailers));
}

/// Protocols that peers speak, for counters.
pub const Family = enum { @"HTTP/1", @"HTTP/2" };

/// The state of one connection's protocol, or of one stream. No deinit: it owns nothing.
pub const Session = union(enum) {
    http1: http1.Session,
    http2: View,

    /// For a fresh connection. `limits` must outlive it.
    pub fn init(limits: *const Limits) Session {
        return .{ .http1 = .init(limits) };
    }

    /// For a stream that was opened on a connection of many, whose session outlives it.
    pub fn ofStream(session: *Multiplexed.Session, stream: Stream) Session {
        return .{ .http2 = .{ .session = session, .stream = stream } };
    }

    /// The protocol that is spoken.
    pub fn family(session: *const Session) Family {
        return switch (session.*) {
            .http1 => .@"HTTP/1",
            .http2 => .@"HTTP/2",
        };
    }

    /// The stream of a session for one; of others, that of their exchange: 0.
    pub fn number(session: *const Session) Stream {
        return switch (session.*) {
            .http1 => 0,
            .http2 => |*s| s.stream,
        };
    }

    /// For a stream: see View.noteEnd.
    pub fn noteEnd(session: *Session, trailers: ?*const Head) void {
        session.http2.noteEnd(trailers);
    }

    /// Whether there is something to tell without further bytes.
    pub fn holdsEnd(session: *const Session) bool {
        return switch (session.*) {
            .http1 => false,
            .http2 => |*s| s.holdsEnd(),
        };
    }

    /// So much of what was fed is done with, for a stream: its peer may send as much again.
    pub fn release(session: *Session, bytes: usize) void {
        session.http2.release(bytes);
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
            .http2 => |*s| s.session.asksForHead(stream),
        };
    }

    /// Whether the request has been read to its end.
    pub fn inputComplete(session: *const Session, stream: Stream) bool {
        return switch (session.*) {
            .http1 => |*s| s.inputComplete() and stream == 0,
            .http2 => |*s| s.session.inputComplete(stream),
        };
    }

    /// How many of the bytes that come next are the request's content and nothing else, where that is known.
    pub fn contentLeft(session: *const Session, stream: Stream) ?u64 {
        return switch (session.*) {
            .http1 => |*s| if (stream == 0) s.contentLeft() else null,
            .http2 => null, // frames of others come between
        };
    }

    /// Whether the response has begun.
    pub fn responseStarted(session: *const Session, stream: Stream) bool {
        return switch (session.*) {
            .http1 => |*s| s.responseStarted() and stream == 0,
            .http2 => |*s| s.session.responseStarted(stream),
        };
    }

    /// Whether the response's head waits for the first of its content.
    pub fn headIsOpen(session: *const Session, stream: Stream) bool {
        return switch (session.*) {
            .http1 => |*s| s.headIsOpen() and stream == 0,
            .http2 => false,
        };
    }

    /// Whether content of the response is sent: not to HEAD, nor with 204 and 304.
    pub fn sendsContent(session: *const Session, stream: Stream) bool {
        return switch (session.*) {
            .http1 => |*s| s.sendsContent() and stream == 0,
            .http2 => |*s| s.session.sendsContent(stream),
        };
    }

    /// Whether trailers that are given to `planEnd` are not refused.
    pub fn takesTrailers(session: *const Session, stream: Stream) bool {
        return switch (session.*) {
            .http1 => |*s| s.takesTrailers() and stream == 0,
            .http2 => |*s| s.session.takesTrailers(stream),
        };
    }

    /// Whether some client waits for the rest of a response, or for its end.
    pub fn responseOpen(session: *const Session) bool {
        return switch (session.*) {
            inline else => |*s| s.responseOpen(),
        };
    }

    /// Writes a response's head and what comes with it. Not for a stream of many: its head depends on those
    /// before it (see Multiplexed.Session.start).
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
            .http2 => unreachable,
        }
    }

    /// Says how to send a piece of content.
    pub inline fn planBody(session: *const Session, stream: Stream, piece: Piece, out: []u8) BodyError!Plan {
        switch (session.*) {
            .http1 => |*s| {
                assert(stream == 0);
                return s.planBody(piece, out);
            },
            .http2 => |*s| return s.planBody(piece),
        }
    }

    /// Writes the end of a response and its trailers.
    pub fn planEnd(session: *Session, stream: Stream, trailers: []const Field, out: []u8) EndError!Plan {
        switch (session.*) {
            .http1 => |*s| {
                assert(stream == 0);
                return s.planEnd(trailers, out);
            },
            .http2 => |*s| return s.planEnd(trailers, out),
        }
    }

    /// Ends an open head, of whose content no length will be told.
    pub fn planHeadEnd(session: *const Session, stream: Stream, out: []u8) Plan {
        switch (session.*) {
            .http1 => |*s| {
                assert(stream == 0);
                return s.planHeadEnd(out);
            },
            .http2 => unreachable, // none is open
        }
    }

    /// Keeps what a plan has made of the session.
    pub inline fn apply(session: *Session, stream: Stream, plan: Plan) void {
        switch (session.*) {
            .http1 => |*s| {
                assert(stream == 0);
                s.apply(plan);
            },
            .http2 => |*s| s.apply(plan),
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
            .http2 => |*s| return s.session.informational(stream, status, fields, out),
        }
    }

    /// Writes the answer to a WebSocket handshake: from now on both directions of the stream are plain bytes.
    /// HTTP/1 has no use for the date.
    pub fn switchProtocols(
        session: *Session,
        stream: Stream,
        fields: []const Field,
        date: *const [29]u8,
        out: []u8,
    ) StartError!usize {
        switch (session.*) {
            .http1 => |*s| {
                assert(stream == 0);
                return s.switchProtocols(fields, out);
            },
            .http2 => |*s| return s.session.switchProtocols(stream, fields, date, out),
        }
    }

    /// The response that lets a waiting client send its content; null: the client does not wait.
    pub fn takeContinue(session: *Session, stream: Stream) ?[]const u8 {
        switch (session.*) {
            .http1 => |*s| {
                assert(stream == 0);
                return s.takeContinue();
            },
            .http2 => unreachable, // see Multiplexed.Session.takeContinue
        }
    }

    /// No request after the present ones is answered on this connection; responses that start later say so.
    pub fn closeAfterResponse(session: *Session) void {
        switch (session.*) {
            .http1 => |*s| s.closeAfterResponse(),
            .http2 => |*s| s.session.announceEnd(),
        }
    }

    /// Whether the connection may outlive the present responses, as far as is known.
    pub fn persists(session: *const Session) bool {
        return switch (session.*) {
            .http1 => |*s| s.persist,
            .http2 => |*s| s.session.persists(),
        };
    }

    /// Whether the connection persists now that a response has ended.
    pub fn disposition(session: *const Session) Disposition {
        return switch (session.*) {
            .http1 => |*s| s.disposition(),
            .http2 => .close,
        };
    }

    /// Begins the next exchange of a connection that has one at a time.
    pub fn next(session: *Session) void {
        switch (session.*) {
            .http1 => |*s| s.next(),
            .http2 => unreachable, // a stream has one exchange
        }
    }

    /// The index of the field that the last InvalidFieldName, InvalidFieldValue or
    /// InvalidContentLength was about.
    pub fn badField(session: *const Session) u16 {
        return switch (session.*) {
            .http1 => |*s| s.bad_field,
            .http2 => |*s| s.session.bad_field,
        };
    }

    /// Keeps such an index.
    pub fn noteBadField(session: *Session, index: usize) void {
        switch (session.*) {
            .http1 => |*s| s.noteBadField(index),
            .http2 => |*s| s.session.noteBadField(index),
        }
    }

    /// Whether the application has sent a field of this response that is not its business, and was dropped.
    pub fn droppedField(session: *const Session, stream: Stream) bool {
        return switch (session.*) {
            .http1 => |*s| s.dropped_hop_field and stream == 0,
            .http2 => |*s| s.session.droppedField(stream),
        };
    }

    /// Asserts what always holds between calls.
    pub fn invariants(session: *const Session) void {
        switch (session.*) {
            .http1 => |*s| s.invariants(),
            .http2 => {}, // its connection looks after its session
        }
    }
};
