//! A conversation's protocol, whichever it is: bytes in, events out; responses in, bytes out. The layers
//! above name no protocol version.
//!
//! A connection has a session with one exchange at a time (`Single`), or one with many (`Multiplexed`), which
//! numbers its exchanges by streams. An exchange sees a `Session`: that of its connection, or of its stream.
//! An application's output is planned first: that may fail, and changes nothing. A plan whose bytes are
//! queued is applied, which cannot fail. The start of a response is made at once, because a head of HTTP/2
//! cannot be taken back. See http1/session.zig for each function. The continuation of a request differs in
//! kind, and has no common form.
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
pub const Started = http2.Started;
pub const Step = event.Step;
pub const Stream = event.Stream;
pub const StartError = http1.StartError;
pub const BodyError = http1.BodyError;
pub const EndError = http1.EndError;
/// Upper bound of what `Single.planStart` writes for these fields, in bytes.
pub const startSize = http1.startSize;
pub const body_prefix_bytes_max = http1.body_prefix_bytes_max;
pub const body_suffix_bytes_max = http1.body_suffix_bytes_max;

/// The session of a connection that carries one exchange at a time.
pub const Single = http1.Session;

/// The session of a connection that carries many exchanges at a time. Its events name their streams; content
/// waits in queues of the streams' owners, and is framed when it leaves.
pub const Multiplexed = struct {
    pub const Session = http2.Session;
    /// Limits on a peer.
    pub const Config = http2.Config;
    /// Memory of one open stream.
    pub const Place = http2.Stream;
    /// Memory for fields that responses repeat.
    pub const SentFields = http2.SentFields;
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

/// The state of one conversation's protocol: of a connection with one exchange at a time, or of one stream of
/// a connection with many. Has pointers to the sessions of the connections, which outlive it; no deinit.
pub const Session = union(enum) {
    single: *Single,
    stream: View,

    /// A session for a connection with one exchange at a time.
    pub fn of(single: *Single) Session {
        return .{ .single = single };
    }

    /// For a stream that was opened on a connection of many.
    pub fn ofStream(session: *Multiplexed.Session, stream: Stream) Session {
        return .{ .stream = .{ .session = session, .stream = stream } };
    }

    /// The protocol that is spoken.
    pub fn family(session: *const Session) Family {
        return switch (session.*) {
            .single => .@"HTTP/1",
            .stream => .@"HTTP/2",
        };
    }

    /// Whether the request asks for no content: HEAD.
    pub fn asksForHead(session: *const Session) bool {
        return switch (session.*) {
            .single => |single| single.asksForHead(),
            .stream => |*view| view.session.asksForHead(view.stream),
        };
    }

    /// Whether the request has been read to its end.
    pub fn inputComplete(session: *const Session) bool {
        return switch (session.*) {
            .single => |single| single.inputComplete(),
            .stream => |*view| view.session.inputComplete(view.stream),
        };
    }

    /// The number of bytes that come next and are the request's content and nothing else, where that is
    /// known.
    pub fn contentLeft(session: *const Session) ?u64 {
        return switch (session.*) {
            .single => |single| single.contentLeft(),
            .stream => null, // frames of other streams come between
        };
    }

    /// Whether the response has begun.
    pub fn responseStarted(session: *const Session) bool {
        return switch (session.*) {
            .single => |single| single.responseStarted(),
            .stream => |*view| view.session.responseStarted(view.stream),
        };
    }

    /// Whether the response's head waits for the first of its content.
    pub fn headIsOpen(session: *const Session) bool {
        return switch (session.*) {
            .single => |single| single.headIsOpen(),
            .stream => false,
        };
    }

    /// Whether content of the response is sent: not to HEAD, nor with 204 and 304.
    pub fn sendsContent(session: *const Session) bool {
        return switch (session.*) {
            .single => |single| single.sendsContent(),
            .stream => |*view| view.session.sendsContent(view.stream),
        };
    }

    /// Whether trailers that are given to `planEnd` are not refused.
    pub fn takesTrailers(session: *const Session) bool {
        return switch (session.*) {
            .single => |single| single.takesTrailers(),
            .stream => |*view| view.session.takesTrailers(view.stream),
        };
    }

    /// Whether the client waits for the rest of a response, or for its end.
    pub fn responseOpen(session: *const Session) bool {
        return switch (session.*) {
            .single => |single| single.responseOpen(),
            .stream => |*view| view.responseOpen(),
        };
    }

    /// Writes a response's head and its content, as far as that leaves with the head, and keeps what the
    /// session has become. `out` holds at least startSize(fields, lines.text.len) + content.len bytes. After
    /// an error nothing has changed but `badField`. HTTP/2 has a connection for many responses, so `close`,
    /// `hold` and `says_keep_alive` mean nothing to it.
    pub inline fn start(session: *const Session, response: Response, out: []u8) StartError!Started {
        switch (session.*) {
            .single => |single| {
                const plan = try single.planStart(response, out);
                single.apply(plan);
                return .{
                    .len = plan.len,
                    .queued = plan.payload and response.rest > 0,
                    .payload = plan.payload,
                    .suffix = plan.suffix,
                };
            },
            .stream => |*view| return view.session.start(view.stream, response, out),
        }
    }

    /// Says how to send a piece of content.
    pub inline fn planBody(session: *const Session, piece: Piece, out: []u8) BodyError!Plan {
        return switch (session.*) {
            .single => |single| single.planBody(piece, out),
            .stream => |*view| view.session.planBody(view.stream, piece),
        };
    }

    /// Writes the end of a response and its trailers.
    pub fn planEnd(session: *const Session, trailers: []const Field, out: []u8) EndError!Plan {
        return switch (session.*) {
            .single => |single| single.planEnd(trailers, out),
            .stream => |*view| view.session.planEnd(view.stream, trailers, out),
        };
    }

    /// Keeps what a plan has made of the session.
    pub inline fn apply(session: *const Session, plan: Plan) void {
        switch (session.*) {
            .single => |single| single.apply(plan),
            .stream => |*view| view.session.apply(view.stream, plan),
        }
    }

    /// Writes an interim response.
    pub fn informational(
        session: *const Session,
        status: u16,
        fields: []const Field,
        out: []u8,
    ) StartError!usize {
        return switch (session.*) {
            .single => |single| single.informational(status, fields, out),
            .stream => |*view| view.session.informational(view.stream, status, fields, out),
        };
    }

    /// Writes the answer to a WebSocket handshake: from now on both directions are plain bytes. HTTP/1 has no
    /// use for the date.
    pub fn switchProtocols(
        session: *const Session,
        fields: []const Field,
        date: *const [29]u8,
        out: []u8,
    ) StartError!usize {
        return switch (session.*) {
            .single => |single| single.switchProtocols(fields, out),
            .stream => |*view| view.session.switchProtocols(view.stream, fields, date, out),
        };
    }

    /// The status that accepts a WebSocket handshake.
    pub fn switchStatus(session: *const Session) u16 {
        return switch (session.*) {
            .single => 101,
            .stream => 200, // to an extended CONNECT, RFC 8441
        };
    }

    /// Upper bound of what `start` (without content), `informational` and `switchProtocols` write for these
    /// fields, and for this many bytes of lines, in bytes.
    pub fn startSize(session: *const Session, fields: []const Field, lines_bytes: usize) usize {
        return switch (session.*) {
            .single => http1.startSize(fields) + lines_bytes,
            .stream => http2.startSize(fields) + http2.startSizeOf(lines_bytes),
        };
    }

    /// No request after the present ones is answered on this connection; responses that start later say so.
    pub fn closeAfterResponse(session: *const Session) void {
        switch (session.*) {
            .single => |single| single.closeAfterResponse(),
            .stream => |*view| view.session.announceEnd(),
        }
    }

    /// A WebSocket handshake is about to be refused. In HTTP/1 the client may have sent frames behind it, so
    /// that no request can follow.
    pub fn endAfterRefusal(session: *const Session) void {
        switch (session.*) {
            .single => |single| single.closeAfterResponse(),
            .stream => {},
        }
    }

    /// Whether the connection may outlive the present responses, as far as is known.
    pub fn persists(session: *const Session) bool {
        return switch (session.*) {
            .single => |single| single.persist,
            .stream => |*view| view.session.persists(),
        };
    }

    /// The response has ended: what becomes of the conversation. `keep_alive`: the next exchange may begin. A
    /// stream has one exchange.
    pub fn conclude(session: *const Session) Disposition {
        switch (session.*) {
            .single => |single| {
                const disposition = single.disposition();
                if (disposition == .keep_alive) single.next();
                return disposition;
            },
            .stream => return .close,
        }
    }

    /// The index of the field that the last InvalidFieldName, InvalidFieldValue or
    /// InvalidContentLength was about.
    pub fn badField(session: *const Session) u16 {
        return switch (session.*) {
            .single => |single| single.bad_field,
            .stream => |*view| view.session.bad_field,
        };
    }

    /// Keeps the index of a field that was refused.
    pub fn noteBadField(session: *const Session, index: usize) void {
        switch (session.*) {
            .single => |single| single.noteBadField(index),
            .stream => |*view| view.session.noteBadField(index),
        }
    }

    /// Whether the application has sent a field of this response that is the server's to send, and was left
    /// out.
    pub fn droppedField(session: *const Session) bool {
        return switch (session.*) {
            .single => |single| single.dropped_hop_field,
            .stream => |*view| view.session.droppedField(view.stream),
        };
    }

    /// Asserts what always holds between calls.
    pub fn invariants(session: *const Session) void {
        switch (session.*) {
            .single => |single| single.invariants(),
            .stream => {}, // the transport looks after the session
        }
    }
};
