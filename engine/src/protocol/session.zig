//! The protocol of a connection, independent of its version: bytes in, events out; responses in, bytes out.
//! No layer above names a version.
//!
//! A connection has a session with one exchange at a time (`Single`) or with many (`Multiplexed`), which
//! numbers its exchanges as streams. An exchange uses a `Session`, which stands for that of its connection or
//! of its stream. Output of an application is planned first, which may fail and changes nothing. When the
//! bytes of the plan are queued it is applied, which cannot fail. The start of a response is one step,
//! because a head of HTTP/2 cannot be withdrawn. See http1/session.zig for each function. The continuation of
//! a request (100) differs too much to have a common function.
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
/// The maximum number of bytes that `Single.planStart` writes for these fields.
pub const startSize = http1.startSize;
pub const body_prefix_bytes_max = http1.body_prefix_bytes_max;
pub const body_suffix_bytes_max = http1.body_suffix_bytes_max;

/// The session of a connection with one exchange at a time.
pub const Single = http1.Session;

/// The session of a connection with many exchanges at a time. Its events name their streams; content waits in
/// queues of the streams' owners, and is framed when it is sent.
pub const Multiplexed = struct {
    pub const Session = http2.Session;
    /// Limits on a peer.
    pub const Config = http2.Config;
    /// The memory of one open stream.
    pub const Place = http2.Stream;
    /// The memory for fields that responses repeat.
    pub const SentFields = http2.SentFields;
    pub const Event = http2.Event;
    pub const Debt = http2.Debt;
    pub const Emission = http2.Emission;
    /// The reason why a stream or a connection ends, for its peer.
    pub const Code = frame.Code;
    pub const Tally = http2.Tally;
    pub const family: Family = .@"HTTP/2";
    pub const Room = http2.Room;
    pub const roomBytes = http2.roomBytes;
    pub const table_units_max = http2.table_units_max;
    pub const emission_bytes_max = http2.emission_bytes_max;
    pub const continue_bytes_max = http2.continue_bytes_max;
    /// The maximum content of one emission, in bytes.
    pub const content_bytes_max = frame.payload_bytes_max;

    /// Whether bytes (at least one) are the start of such a connection's preface, or begin with the preface.
    pub fn begins(bytes: []const u8) bool {
        const len = @min(bytes.len, frame.preface.len);
        return @import("std").mem.eql(u8, bytes[0..len], frame.preface[0..len]);
    }
};

/// The maximum number of bytes that `planEnd` writes for these trailers.
pub fn endSize(trailers: []const Field) usize {
    return @max(http1.endSize(trailers), http2.endSize(trailers));
}

/// Protocols of peers, for counters.
pub const Family = enum { @"HTTP/1", @"HTTP/2" };

/// The protocol's state for one exchange: of a connection with one exchange at a time, or of one stream of a
/// connection with many. Has pointers to the sessions of connections, which must outlive it; no deinit.
pub const Session = union(enum) {
    single: *Single,
    stream: View,

    /// Makes the session of a connection with one exchange at a time.
    pub fn of(single: *Single) Session {
        return .{ .single = single };
    }

    /// Makes the session of an open stream.
    pub fn ofStream(session: *Multiplexed.Session, stream: Stream) Session {
        return .{ .stream = .{ .session = session, .stream = stream } };
    }

    /// The protocol of the peer.
    pub fn family(session: *const Session) Family {
        return switch (session.*) {
            .single => .@"HTTP/1",
            .stream => .@"HTTP/2",
        };
    }

    /// Whether the response has no content because the method is HEAD.
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

    /// The number of bytes that come next and belong to the request's content; null: unknown.
    pub fn contentLeft(session: *const Session) ?u64 {
        return switch (session.*) {
            .single => |single| single.contentLeft(),
            .stream => null, // frames of other streams may come between
        };
    }

    /// Whether the response has begun.
    pub fn responseStarted(session: *const Session) bool {
        return switch (session.*) {
            .single => |single| single.responseStarted(),
            .stream => |*view| view.session.responseStarted(view.stream),
        };
    }

    /// Whether the response's head is held until its first content.
    pub fn headIsOpen(session: *const Session) bool {
        return switch (session.*) {
            .single => |single| single.headIsOpen(),
            .stream => false,
        };
    }

    /// Whether the response's content is sent: not to HEAD, nor with 204 and 304.
    pub fn sendsContent(session: *const Session) bool {
        return switch (session.*) {
            .single => |single| single.sendsContent(),
            .stream => |*view| view.session.sendsContent(view.stream),
        };
    }

    /// Whether `planEnd` accepts trailers.
    pub fn takesTrailers(session: *const Session) bool {
        return switch (session.*) {
            .single => |single| single.takesTrailers(),
            .stream => |*view| view.session.takesTrailers(view.stream),
        };
    }

    /// Whether a part of the response was sent, and the client waits for the rest or for the end.
    pub fn responseOpen(session: *const Session) bool {
        return switch (session.*) {
            .single => |single| single.responseOpen(),
            .stream => |*view| view.responseOpen(),
        };
    }

    /// Writes a response's head and the content that is sent with it, and applies that to the session. `out`
    /// has at least startSize(fields, lines.text.len) + content.len bytes. After an error nothing has changed
    /// except `badField`. `close`, `hold` and `says_keep_alive` are ignored in HTTP/2, where a connection
    /// carries many responses.
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

    /// Plans to send a piece of content.
    pub inline fn planBody(session: *const Session, piece: Piece, out: []u8) BodyError!Plan {
        return switch (session.*) {
            .single => |single| single.planBody(piece, out),
            .stream => |*view| view.session.planBody(view.stream, piece),
        };
    }

    /// Plans the end of a response, and writes it with its trailers.
    pub fn planEnd(session: *const Session, trailers: []const Field, out: []u8) EndError!Plan {
        return switch (session.*) {
            .single => |single| single.planEnd(trailers, out),
            .stream => |*view| view.session.planEnd(view.stream, trailers, out),
        };
    }

    /// Applies a plan to the session, after its bytes were queued.
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

    /// Writes the response that accepts a WebSocket handshake: from then on both directions are plain bytes.
    /// HTTP/1 ignores the date.
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

    /// The status of the response that accepts a WebSocket handshake.
    pub fn switchStatus(session: *const Session) u16 {
        return switch (session.*) {
            .single => 101,
            .stream => 200, // response to an extended CONNECT, RFC 8441
        };
    }

    /// The maximum number of bytes that `start` (without content), `informational` and `switchProtocols`
    /// write for these fields and for lines of `lines_bytes` bytes.
    pub fn startSize(session: *const Session, fields: []const Field, lines_bytes: usize) usize {
        return switch (session.*) {
            .single => http1.startSize(fields) + lines_bytes,
            .stream => http2.startSize(fields) + http2.startSizeOf(lines_bytes),
        };
    }

    /// Makes the current requests the connection's last; responses that start later say so.
    pub fn closeAfterResponse(session: *const Session) void {
        switch (session.*) {
            .single => |single| single.closeAfterResponse(),
            .stream => |*view| view.session.announceEnd(),
        }
    }

    /// Prepares the refusal of a WebSocket handshake. In HTTP/1 the client may have sent frames after it, so
    /// no further request can be read.
    pub fn endAfterRefusal(session: *const Session) void {
        switch (session.*) {
            .single => |single| single.closeAfterResponse(),
            .stream => {},
        }
    }

    /// Whether the connection may outlive the current responses, as far as is known.
    pub fn persists(session: *const Session) bool {
        return switch (session.*) {
            .single => |single| single.persist,
            .stream => |*view| view.session.persists(),
        };
    }

    /// Ends an exchange whose response has ended, and tells what follows. `keep_alive`: the next exchange may
    /// begin. A stream has only one exchange.
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

    /// The index of the field that caused the last InvalidFieldName, InvalidFieldValue or
    /// InvalidContentLength.
    pub fn badField(session: *const Session) u16 {
        return switch (session.*) {
            .single => |single| single.bad_field,
            .stream => |*view| view.session.bad_field,
        };
    }

    /// Sets `badField`.
    pub fn noteBadField(session: *const Session, index: usize) void {
        switch (session.*) {
            .single => |single| single.noteBadField(index),
            .stream => |*view| view.session.noteBadField(index),
        }
    }

    /// Whether a field of this response was left out because only the server may send it.
    pub fn droppedField(session: *const Session) bool {
        return switch (session.*) {
            .single => |single| single.noted.dropped_hop_field,
            .stream => |*view| view.session.droppedField(view.stream),
        };
    }

    /// Asserts the invariants of the session.
    pub fn invariants(session: *const Session) void {
        switch (session.*) {
            .single => |single| single.invariants(),
            .stream => {}, // the transport checks the session of the connection
        }
    }
};
