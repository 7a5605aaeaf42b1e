//! The state machine of an HTTP/1 connection: unread bytes in, at most one event out; commands in, bytes out.
//! RFC 9112. Does not know: sockets, buffers other than the arguments, time, and the maker of responses.
//!
//! The calls for an exchange: `feed` until `.request`, and until `.end` if the head announces a body;
//! meanwhile `planStart`, `planBody`..., `planEnd`, each followed by `apply`, which cannot fail, when its
//! bytes are queued; then `disposition`, which tells what follows on the connection, and `next`, which begins
//! the next exchange. Pipelined requests wait in the caller's buffer: no byte after the current request is
//! read before `next`.
const std = @import("std");
const assert = std.debug.assert;
const content = @import("body.zig");
const date = @import("../http/date.zig");
const encode = @import("encode.zig");
const response_fields = @import("response_fields.zig");
const event = @import("../event.zig");
const framing = @import("framing.zig");
const header = @import("../http/header.zig");
const head_file = @import("head.zig");
const status = @import("../http/status.zig");
const Method = @import("../http/method.zig").Method;
const order_file = @import("../http/order.zig");
const Order = order_file.Order;
const Shape = order_file.Shape;
const Field = header.Field;

pub const BodyKind = framing.BodyKind;
pub const Lines = response_fields.Lines;
pub const Event = event.Event;
pub const Head = head_file.Head;
pub const Limits = framing.Limits;
pub const Refusal = event.Refusal;
pub const Span = @import("../http/target.zig").Span;
pub const Step = event.Step;
pub const Version = framing.Version;

/// The head of a response, from an application. All memory is only read during the call.
pub const Response = struct {
    /// 200..599.
    status: u16,
    fields: []const Field = &.{},
    /// More fields, in wire form; null: none.
    lines: ?*const Lines = null,
    /// `Connection: keep-alive` is also sent to HTTP/1.1 clients, for which it is the default, if the
    /// connection will persist.
    says_keep_alive: bool = false,
    /// Sent unless the application has a Date field. Null: no date.
    date: ?*const [date.bytes_len]u8 = null,
    /// Content that is written after the head.
    content: []const u8 = "",
    /// The number of further bytes of content that the caller appends to `content`, in the same piece.
    rest: u64 = 0,
    /// No more content follows: a Content-Length is added if the fields have none.
    end: bool = false,
    /// The connection closes after this response.
    close: bool = false,
    /// If there is no content: the head stays open until the first content, or `planHeadEnd`.
    hold: bool = false,
};

pub const Piece = struct {
    len: u64,
    /// No more content follows.
    last: bool = false,
    /// The connection closes after this response.
    close: bool = false,
};

/// Reasons why a response cannot start in this way.
pub const StartError = error{InvalidStatus} || response_fields.FieldError || BodyError;
pub const BodyError = order_file.BodyError;
/// Reasons why a response cannot end in this way.
pub const EndError = error{ InvalidFieldName, InvalidFieldValue } || order_file.EndError;

/// Output that was written to the caller's memory. It takes effect with `apply`; a plan may also be dropped.
pub const Plan = struct {
    /// The number of bytes that were written. The caller's content follows them.
    len: usize = 0,
    /// Whether content is sent: not to HEAD, nor with 204 and 304, nor if it is empty.
    payload: bool = false,
    /// Bytes that follow the content. Static.
    suffix: []const u8 = "",
    change: Change,
};

/// The state of the session after a plan is applied.
pub const Change = struct {
    order: Order,
    connection_field: ConnectionField = .{},
    persist: bool = true,
    dropped_hop_field: bool,
    /// Only for streams: bytes of content, and of trailers, that wait to be framed.
    queued: u64 = 0,
    trailers: u32 = 0,
};

/// Whether a connection persists after a response.
pub const Disposition = enum {
    /// The connection persists. `next` must be called; the next request may have come already.
    keep_alive,
    close,
    /// The connection may persist, but the request's content has not ended: feed and discard it, and then ask
    /// again.
    drain,
};

/// The response that makes a waiting client send its content.
pub const continue_text = "HTTP/1.1 100 Continue\r\n\r\n";

/// The maximum number of bytes that `planStart` (without lines and content), `informational` and
/// `switchProtocols` write for these fields.
pub fn startSize(fields: []const Field) usize {
    return encode.head_overhead_bytes_max + encode.chunk_prefix_bytes_max + body_suffix_bytes_max +
        response_fields.fieldsSize(fields);
}

/// The maximum number of bytes that `planEnd` writes for these trailers, including the end of a held head.
pub fn endSize(trailers: []const Field) usize {
    return encode.head_end_bytes_max + last_chunk.len + response_fields.fieldsSize(trailers) + "\r\n".len;
}

/// The maximum number of bytes that `planBody` writes: the end of a held head and the line before a chunk.
pub const body_prefix_bytes_max = encode.head_end_bytes_max + encode.chunk_prefix_bytes_max;

/// The maximum length of `Plan.suffix`, in bytes.
pub const body_suffix_bytes_max = "\r\n".len + last_chunk.len + "\r\n".len;

const last_chunk = "0\r\n";

const upgrade_required = 426;

comptime {
    // Each connection has a session, so its size matters.
    assert(@sizeOf(Session) <= 80);
}

/// The part of the peer's bytes that is being read.
const Input = union(enum) {
    head: head_file.Parser,
    counted: content.Counted,
    chunked: content.Chunked,
    /// The request was read to its end.
    complete,
    refused,
    tunnel,
};

/// The words of a response's Connection field except those about persistence.
const ConnectionField = packed struct(u8) { upgrade: bool = false, says_keep_alive: bool = false, _: u6 = 0 };

/// Facts about the current exchange, in one byte because each idle connection has a session.
const Noted = packed struct(u8) {
    /// A field was dropped because only the engine may send it (Connection and others).
    dropped_hop_field: bool = false,
    /// The client has asked for an upgrade.
    upgrade_offered: bool = false,
    _: u6 = 0,
};

/// The state of one connection. No deinit: it owns nothing.
pub const Session = struct {
    limits: *const Limits,
    input: Input = .{ .head = .{} },
    order: Order = .unstarted,
    /// The Connection field of a response with an open head.
    connection_field: ConnectionField = .{},
    /// After InvalidFieldName, InvalidFieldValue or InvalidContentLength: the index of the refused field.
    bad_field: u16 = 0,
    noted: Noted = .{},
    method: Method = .GET,
    version: Version = .http_1_1,
    /// Tells if the client waits for 100 (Continue).
    continuation: enum(u8) { not_expected, expected, sent } = .not_expected,
    /// The connection may outlive this exchange, as far as is known.
    persist: bool = true,

    /// Makes the session of a new connection. `limits` must outlive it.
    pub fn init(limits: *const Limits) Session {
        return .{ .limits = limits };
    }

    /// Reads more bytes. `bytes`: all bytes that were received and not consumed. `head` is filled at
    /// `.request` and `.trailers` and refers to `bytes` of this call; otherwise it is undefined. Must be
    /// called again until `.need_more`, `.refused`, `.end`, or `.request` without a body (no `.end` follows);
    /// after an end not before `next`.
    pub fn feed(s: *Session, bytes: []const u8, head: *Head) Step {
        const step = switch (s.input) {
            .head => s.feedHead(bytes, head),
            .counted => |*counted| counted.feed(bytes),
            .chunked => |*chunked| chunked.feed(bytes, s.limits, head),
            // A WebSocket may consume only a part of a piece; the caller offers the rest again.
            .tunnel => Step{
                .consumed = bytes.len,
                .event = if (bytes.len == 0) .need_more else .{ .body = bytes },
            },
            .complete, .refused => unreachable,
        };
        assert(step.consumed <= bytes.len);
        switch (step.event) {
            .request => s.accept(head),
            .end => s.input = .complete,
            .refused => {
                s.input = .refused;
                s.persist = false;
            },
            .need_more, .body, .trailers => {},
        }
        // A client that sends its content has stopped waiting for 100.
        if (s.continuation == .expected and step.event != .request and step.consumed != 0) {
            s.continuation = .not_expected;
        }
        s.invariants();
        return step;
    }

    fn feedHead(s: *Session, bytes: []const u8, head: *Head) Step {
        const parser = &s.input.head;
        var skipped: usize = 0;
        if (parser.isFresh()) {
            while (skipped < bytes.len and bytes[skipped] == '\r') : (skipped += 2) {
                if (skipped + 1 == bytes.len) return .{ .consumed = skipped, .event = .need_more };
                if (bytes[skipped + 1] != '\n') return refuse(skipped, "bare CR before request line");
                if (!parser.skipBlankLine()) {
                    return refuse(skipped, "too many empty lines before request line");
                }
            }
        }
        return switch (parser.parse(bytes[skipped..], s.limits, head)) {
            .incomplete => .{ .consumed = skipped, .event = .need_more },
            .refused => |refusal| .{ .consumed = skipped, .event = .{ .refused = refusal } },
            .complete => |len| .{ .consumed = skipped + len, .event = .request },
        };
    }

    /// Keeps the facts that the response depends on, because the head is gone by then.
    fn accept(s: *Session, head: *const Head) void {
        s.method = head.method;
        s.version = head.version;
        s.persist = s.persist and head.keep_alive;
        s.noted.upgrade_offered = head.upgrade;
        s.continuation = if (head.expect_continue) .expected else .not_expected;
        s.input = switch (head.body) {
            .none => .complete,
            .counted => |length| .{ .counted = .{ .remaining = length } },
            .chunked => .{ .chunked = .{} },
        };
    }

    /// The number of bytes that come next and belong to the request's content; null: unknown, or the content
    /// is not sent as it is.
    pub fn contentLeft(s: *const Session) ?u64 {
        return switch (s.input) {
            .counted => |counted| counted.remaining,
            .head, .chunked, .tunnel, .complete, .refused => null,
        };
    }

    /// Whether a request was read and its method is HEAD.
    pub fn asksForHead(s: *const Session) bool {
        return s.method == .HEAD;
    }

    /// Whether the current request was read to its end.
    pub fn inputComplete(s: *const Session) bool {
        return s.input == .complete;
    }

    /// Whether the response's head was written, or the first part of it.
    pub fn responseStarted(s: *const Session) bool {
        return s.order != .unstarted;
    }

    /// Whether the response has started with a head that is not complete.
    pub fn headIsOpen(s: *const Session) bool {
        return s.order == .held;
    }

    /// Whether the response has started and its content is sent: not to HEAD, nor with 204 and 304.
    pub fn sendsContent(s: *const Session) bool {
        return s.order != .unstarted and s.order != .discarded;
    }

    /// Whether the response was written to its end.
    pub fn responseEnded(s: *const Session) bool {
        return s.order == .ended;
    }

    /// Whether a part of the response was written, and the client waits for the rest or for the end.
    pub fn responseOpen(s: *const Session) bool {
        return s.order.isOpen();
    }

    /// Whether `planEnd` accepts trailers.
    pub fn takesTrailers(s: *const Session) bool {
        return s.order.takesTrailers();
    }

    /// Applies a plan whose bytes are queued. No other plan may have been applied since it was made.
    pub inline fn apply(s: *Session, plan: Plan) void {
        s.order = plan.change.order;
        s.connection_field = plan.change.connection_field;
        s.persist = plan.change.persist;
        s.noted.dropped_hop_field = plan.change.dropped_hop_field;
    }

    inline fn unchanged(s: *const Session) Change {
        return .{
            .order = s.order,
            .connection_field = s.connection_field,
            .persist = s.persist,
            .dropped_hop_field = s.noted.dropped_hop_field,
        };
    }

    /// Plans the start of the response, and writes its head and content. `out` has at least startSize(fields)
    /// + lines.text.len + content.len bytes. After an error nothing has changed except `bad_field`, and the
    /// content of `out` is undefined.
    pub fn planStart(s: *Session, r: Response, out: []u8) StartError!Plan {
        if (!s.mayStart()) return error.OutOfOrder;
        if (r.status < 200 or r.status > status.code_max) return error.InvalidStatus;
        const shape: Shape = .of(s.method, r.status);
        const upgrade = r.status == upgrade_required and s.version != .http_1_0;
        const policy: response_fields.Policy = if (!shape.passesLength())
            .head_without_length
        else if (upgrade)
            .upgrade_required
        else
            .head;
        var found: response_fields.Found = if (r.lines) |lines| lines.found else .{};
        var writer = try s.openHead(r.status, r.fields, policy, out, &found);
        if (r.lines) |lines| {
            writer.put(lines.text);
            if (lines.found.content_length) |length| if (shape.passesLength()) writer.putLength(length);
        }
        if (r.date) |text| {
            if (!found.date) writer.putDate(text);
        }
        if (shape == .empty) writer.put(encode.length_zero);
        assert(r.content.len == 0 or r.rest == 0);
        const len = r.content.len + r.rest;
        const untold = shape == .sized and found.content_length == null;
        if (untold and r.end) {
            writer.putLength(len);
            found.content_length = len;
        }
        var plan: Plan = .{ .change = .{
            .order = undefined,
            .connection_field = .{ .upgrade = found.upgrade, .says_keep_alive = r.says_keep_alive },
            .persist = s.persist and !r.close,
            .dropped_hop_field = s.noted.dropped_hop_field or found.dropped,
        } };
        if (untold and r.hold and !r.end and len == 0) {
            plan.change.order = .{ .held = s.streamed() };
        } else {
            const framed = shape.content(found.content_length, s.streamed());
            s.endHead(&plan.change, &writer, framed);
            if (r.end and framed == .counted and framed.counted == len) {
                // Nearly all responses are a single piece of content of the right length.
                plan.change.order = .ended;
                plan.payload = len > 0;
                writer.put(r.content);
            } else {
                plan.change.order = .of(framed);
                try frame(&plan, &writer, len, r.end);
                if (r.rest == 0) {
                    if (plan.payload) writer.put(r.content);
                    writer.put(plan.suffix);
                }
            }
        }
        plan.len = writer.len;
        return plan;
    }

    /// Plans to send a piece of content, and writes the bytes before it to `out`, which has at least
    /// `body_prefix_bytes_max` bytes. After an error nothing has changed.
    pub inline fn planBody(s: *const Session, piece: Piece, out: []u8) BodyError!Plan {
        var plan: Plan = .{ .change = s.unchanged() };
        var writer: encode.Writer = .{ .buffer = out };
        if (piece.close) plan.change.persist = false;
        if (s.order == .held and (piece.len > 0 or piece.last)) {
            s.endHeld(&plan.change, &writer, if (piece.last) piece.len else null);
        }
        try frame(&plan, &writer, piece.len, piece.last);
        plan.len = writer.len;
        return plan;
    }

    /// Plans the end of the response, and writes it with its trailers, which are discarded if content is.
    /// `out` has at least endSize(trailers) bytes. After an error nothing has changed except `bad_field`.
    pub fn planEnd(s: *Session, trailers: []const Field, out: []u8) EndError!Plan {
        var plan: Plan = .{ .change = s.unchanged() };
        var writer: encode.Writer = .{ .buffer = out };
        const ended = try s.order.end(trailers.len > 0);
        if (s.order == .held) s.endHeld(&plan.change, &writer, if (trailers.len == 0) 0 else null);
        if (plan.change.order == .streamed and plan.change.order.streamed == .delimited) {
            if (try s.putLastChunk(&writer, trailers)) plan.change.dropped_hop_field = true;
        }
        plan.change.order = ended;
        plan.len = writer.len;
        return plan;
    }

    /// Plans the end of a held head without a length of the content. `out` has at least startSize(&.{})
    /// bytes.
    pub fn planHeadEnd(s: *const Session, out: []u8) Plan {
        var plan: Plan = .{ .change = s.unchanged() };
        var writer: encode.Writer = .{ .buffer = out };
        s.endHeld(&plan.change, &writer, null);
        plan.len = writer.len;
        return plan;
    }

    /// Writes the bytes before `len` bytes of content, and sets the bytes after them in the plan.
    inline fn frame(plan: *Plan, writer: *encode.Writer, len: u64, last: bool) BodyError!void {
        const before = plan.change.order;
        plan.change.order = try before.body(len, last);
        plan.payload = len > 0 and before != .discarded;
        // A chunk of length zero would be the last one.
        if (before == .streamed and before.streamed == .delimited) {
            if (len > 0) writer.putChunkPrefix(len);
            plan.suffix = if (!last)
                (if (len > 0) "\r\n" else "")
            else if (len > 0)
                "\r\n" ++ last_chunk ++ "\r\n"
            else
                last_chunk ++ "\r\n";
        }
    }

    /// The end of content of unknown length.
    inline fn streamed(s: *const Session) order_file.Streamed {
        return if (s.version == .http_1_0) .until_close else .delimited;
    }

    /// Ends a held head. `length`: of the content; null: unknown.
    fn endHeld(s: *const Session, change: *Change, writer: *encode.Writer, length: ?u64) void {
        if (length) |known| writer.putLength(known);
        const framed: order_file.Content = if (length) |known|
            .{ .counted = known }
        else
            .{ .streamed = s.order.held };
        s.endHead(change, writer, framed);
        change.order = .of(framed);
    }

    inline fn endHead(
        s: *const Session,
        change: *Change,
        writer: *encode.Writer,
        framed: order_file.Content,
    ) void {
        const ends_by_close = framed == .streamed and framed.streamed == .until_close;
        if (framed == .streamed and !ends_by_close) writer.put(encode.chunked_coding);
        // A client that waited in vain may or may not send its content, so the meaning of its next bytes is
        // unknown.
        const unanswered = s.continuation == .expected;
        change.persist = change.persist and !unanswered and !ends_by_close;
        if (change.connection_field.upgrade) {
            writer.put(if (change.persist) encode.connection_upgrade else encode.connection_close_upgrade);
        } else if (!change.persist) {
            writer.put(encode.connection_close);
        } else if (s.version == .http_1_0 or change.connection_field.says_keep_alive) {
            writer.put(encode.connection_keep_alive);
        }
        writer.put("\r\n");
    }

    /// Writes an interim response, 100 or 102..199, and returns the number of bytes: 0 for an HTTP/1.0
    /// client, which does not know such responses. `out` has at least startSize(fields) bytes. After an error
    /// nothing has changed except `bad_field`.
    pub fn informational(s: *Session, code: u16, fields: []const Field, out: []u8) StartError!usize {
        if (!s.mayStart()) return error.OutOfOrder;
        if (code < 100 or code > 199 or code == 101) return error.InvalidStatus;
        if (s.version == .http_1_0) return 0;
        var found: response_fields.Found = .{};
        var writer = try s.openHead(code, fields, .head_without_length, out, &found);
        writer.put("\r\n");
        s.noted.dropped_hop_field = s.noted.dropped_hop_field or found.dropped;
        if (code == 100 and s.continuation == .expected) s.continuation = .sent;
        return writer.len;
    }

    /// Writes a 101 response with these fields, which must include Upgrade, and `Connection: Upgrade`;
    /// returns the number of bytes. From then on both directions are plain bytes. OutOfOrder: the client has
    /// not offered an upgrade, or its request was not read to its end. `out` has at least startSize(fields)
    /// bytes. After an error nothing has changed except `bad_field`.
    pub fn switchProtocols(s: *Session, fields: []const Field, out: []u8) StartError!usize {
        if (!s.mayStart() or !s.noted.upgrade_offered or !s.inputComplete()) return error.OutOfOrder;
        var found: response_fields.Found = .{};
        var writer = try s.openHead(101, fields, .switching, out, &found);
        writer.put(encode.connection_upgrade ++ "\r\n");
        s.noted.dropped_hop_field = s.noted.dropped_hop_field or found.dropped;
        s.input = .tunnel;
        s.order = .tunnel;
        s.persist = false;
        return writer.len;
    }

    fn mayStart(s: *const Session) bool {
        return s.order == .unstarted and s.input != .head and s.input != .refused;
    }

    /// Writes the status line and those of the application's fields that the policy allows.
    inline fn openHead(
        s: *Session,
        code: u16,
        fields: []const Field,
        policy: response_fields.Policy,
        out: []u8,
        found: *response_fields.Found,
    ) response_fields.FieldError!encode.Writer {
        // Each `put` checks that there is room.
        var writer: encode.Writer = .{ .buffer = out };
        writer.putStatus(code);
        // A native application's response has its fields in wire form.
        if (fields.len > 0) response_fields.putFields(&writer, fields, policy, found) catch |err| {
            s.noteBadField(found.bad_field);
            return err;
        };
        return writer;
    }

    /// Sets `bad_field`.
    pub fn noteBadField(s: *Session, index: usize) void {
        s.bad_field = std.math.cast(u16, index) orelse std.math.maxInt(u16);
    }

    /// Returns the response that makes a waiting client send its content: once, if the client waits, has sent
    /// no content, and no response has started; otherwise null. Called when an application wants the content.
    pub fn takeContinue(s: *Session) ?[]const u8 {
        if (s.continuation != .expected or s.order != .unstarted or s.input == .refused) return null;
        s.continuation = .sent;
        return continue_text;
    }

    /// Writes the last chunk and the trailers. Returns true if trailers were dropped that only the engine may
    /// send.
    fn putLastChunk(
        s: *Session,
        writer: *encode.Writer,
        trailers: []const Field,
    ) error{ InvalidFieldName, InvalidFieldValue }!bool {
        var found: response_fields.Found = .{};
        writer.put(last_chunk);
        response_fields.putFields(writer, trailers, .trailers, &found) catch |err| {
            s.noteBadField(found.bad_field);
            switch (err) {
                error.InvalidFieldName => return error.InvalidFieldName,
                error.InvalidFieldValue => return error.InvalidFieldValue,
                // A Content-Length among trailers is dropped without a check.
                error.InvalidContentLength => unreachable,
            }
        };
        writer.put("\r\n");
        return found.dropped;
    }

    /// Makes this exchange the connection's last; a response that starts later says so.
    pub fn closeAfterResponse(s: *Session) void {
        s.persist = false;
    }

    /// Tells what follows on the connection. Asserts that the response has ended, or that the session is a
    /// tunnel.
    pub fn disposition(s: *const Session) Disposition {
        assert(s.order == .ended or s.order == .tunnel);
        if (!s.persist) return .close;
        return if (s.inputComplete()) .keep_alive else .drain;
    }

    /// Begins the next exchange of the connection. Asserts that `disposition` is `.keep_alive`.
    pub fn next(s: *Session) void {
        assert(s.disposition() == .keep_alive);
        s.* = .init(s.limits);
    }

    /// Asserts the invariants of the session.
    pub fn invariants(s: *const Session) void {
        // There is no response before the request, and none to an unreadable request.
        if (s.input == .head) assert(s.order == .unstarted and s.continuation == .not_expected);
        const ends_by_close = s.order == .streamed and s.order.streamed == .until_close;
        if (s.input == .refused or ends_by_close) assert(!s.persist);
        // A tunnel has both directions, and neither returns to messages.
        assert((s.input == .tunnel) == (s.order == .tunnel));
        if (s.continuation == .expected) {
            assert(s.input == .counted or s.input == .chunked or s.input == .refused);
        }
    }
};

fn refuse(consumed: usize, comptime detail: []const u8) Step {
    return .{ .consumed = consumed, .event = .{ .refused = .{ .status = 400, .detail = detail } } };
}

test {
    _ = content;
    _ = encode;
    _ = framing;
    _ = head_file;
}

const test_limits: Limits = .{
    .request_line_bytes_max = 64,
    .head_bytes_max = 256,
    .header_count_max = 8,
    .body_bytes_max = 1000,
    .trailer_bytes_max = 64,
    .chunk_line_bytes_max = 32,
};

/// A session that has read the head of `request`.
const Harness = struct {
    storage: [8]header.FieldSpan = undefined,
    session: Session = .init(&test_limits),
    out: [1024]u8 = undefined,

    fn read(t: *Harness, request: []const u8) !Head {
        var head: Head = .{ .storage = &t.storage };
        const step = t.session.feed(request, &head);
        try std.testing.expectEqual(Event.request, step.event);
        return head;
    }

    fn open(request: []const u8) !Harness {
        var t: Harness = .{};
        _ = try t.read(request);
        return t;
    }

    fn feed(t: *Harness, bytes: []const u8) Event {
        var head: Head = .{ .storage = &t.storage };
        return t.session.feed(bytes, &head).event;
    }

    fn start(t: *Harness, r: Response) StartError!usize {
        const plan = try t.session.planStart(r, &t.out);
        t.session.apply(plan);
        return plan.len;
    }

    fn end(t: *Harness, trailers: []const Field) EndError!usize {
        const plan = try t.session.planEnd(trailers, t.out[0..@min(endSize(trailers), t.out.len)]);
        t.session.apply(plan);
        return plan.len;
    }

    fn expectStart(t: *Harness, r: Response, expected: []const u8) !void {
        const len = try t.start(r);
        try std.testing.expectEqualStrings(expected, t.out[0..len]);
    }

    fn expectBody(t: *Harness, text: []const u8, expected: []const u8) !void {
        return t.expectPiece(text, false, expected);
    }

    fn expectPiece(t: *Harness, text: []const u8, last: bool, expected: []const u8) !void {
        // The buffer has exactly the promised room.
        const plan = try t.session.planBody(
            .{ .len = text.len, .last = last },
            t.out[0..body_prefix_bytes_max],
        );
        var writer: encode.Writer = .{ .buffer = &t.out, .len = plan.len };
        if (plan.payload) writer.put(text);
        writer.put(plan.suffix);
        try std.testing.expect(plan.suffix.len <= body_suffix_bytes_max);
        try std.testing.expectEqualStrings(expected, t.out[0..writer.len]);
        t.session.apply(plan);
    }

    fn expectBodyError(t: *Harness, expected: BodyError, len: usize) !void {
        try std.testing.expectError(expected, t.session.planBody(.{ .len = len }, &t.out));
    }

    fn expectEnd(t: *Harness, trailers: []const Field, expected: []const u8, disposition: Disposition) !void {
        const len = try t.end(trailers);
        try std.testing.expectEqualStrings(expected, t.out[0..len]);
        try std.testing.expect(t.session.responseEnded());
        try std.testing.expectEqual(disposition, t.session.disposition());
    }
};

const get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const get_1_0 = "GET / HTTP/1.0\r\n\r\n";
const get_1_0_keep_alive = "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
const length_2 = [_]Field{.init("Content-Length", "2")};

test "counted response, then the next request" {
    var t: Harness = try .open(get);
    try t.expectStart(
        .{ .status = 200, .fields = &length_2 },
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n",
    );
    try t.expectBody("o", "o");
    try std.testing.expectError(error.TooShort, t.end(&.{}));
    try t.expectBodyError(error.TooLong, 2);
    try t.expectBody("k", "k");
    try std.testing.expect(!t.session.takesTrailers());
    try std.testing.expectError(error.TrailersNotAllowed, t.end(&.{.init("X", "1")}));
    try t.expectEnd(&.{}, "", .keep_alive);
    try std.testing.expectError(error.OutOfOrder, t.end(&.{}));
    try t.expectBodyError(error.OutOfOrder, 1);
    t.session.next();
    _ = try t.read(get);
}

test "chunked response with trailers" {
    var t: Harness = try .open(get);
    const stamp = "Sun, 06 Nov 1994 08:49:37 GMT";
    try t.expectStart(
        .{ .status = 200, .fields = &.{}, .date = stamp },
        "HTTP/1.1 200 OK\r\nDate: " ++ stamp ++ "\r\nTransfer-Encoding: chunked\r\n\r\n",
    );
    try std.testing.expect(t.session.takesTrailers());
    try t.expectBody("", "");
    try t.expectBody("hello, world", "c\r\nhello, world\r\n");
    try std.testing.expectError(error.InvalidFieldValue, t.end(&.{ .init("X", "1"), .init("Y", "\n") }));
    try std.testing.expectEqual(1, t.session.bad_field);
    try std.testing.expect(!t.session.noted.dropped_hop_field);
    try t.expectEnd(&.{ .init("X", "1"), .init("Content-Length", "x") }, "0\r\nX: 1\r\n\r\n", .keep_alive);
    try std.testing.expect(t.session.noted.dropped_hop_field);
}

test "responses without content" {
    const head_request = "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n";
    const Case = struct { []const u8, u16, []const Field, []const u8, Disposition };
    const cases = [_]Case{
        .{ head_request, 200, &length_2, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", .keep_alive },
        .{ head_request, 200, &.{}, "HTTP/1.1 200 OK\r\n\r\n", .keep_alive },
        .{ get, 204, &length_2, "HTTP/1.1 204 No Content\r\n\r\n", .keep_alive },
        .{ get, 205, &length_2, "HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n", .keep_alive },
        .{ get, 304, &length_2, "HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n", .keep_alive },
        .{ get_1_0, 304, &.{}, "HTTP/1.1 304 Not Modified\r\nConnection: close\r\n\r\n", .close },
    };
    for (cases) |case| {
        const request, const code, const fields, const expected, const disposition = case;
        var t: Harness = try .open(request);
        try t.expectStart(.{ .status = code, .fields = fields }, expected);
        try t.expectBody("discarded", "");
        try std.testing.expect(t.session.takesTrailers());
        try t.expectEnd(&.{.init("X", "1")}, "", disposition);
    }
}

test "HTTP/1.0" {
    var t: Harness = try .open(get_1_0);
    try t.expectStart(.{ .status = 200, .fields = &.{} }, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
    try t.expectBody("ok", "ok");
    try std.testing.expectError(error.TrailersNotAllowed, t.end(&.{.init("X", "1")}));
    try t.expectEnd(&.{}, "", .close);

    t = try .open(get_1_0_keep_alive);
    try std.testing.expectEqual(0, try t.session.informational(103, &.{}, &t.out));
    try t.expectStart(
        .{ .status = 200, .fields = &length_2 },
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\n",
    );
    try t.expectBody("ok", "ok");
    try t.expectEnd(&.{}, "", .keep_alive);

    t = try .open(get_1_0_keep_alive);
    try t.expectStart(.{ .status = 200, .fields = &.{} }, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
    try t.expectEnd(&.{}, "", .close);
}

test "a head that waits for the length of its content" {
    const open_head = "HTTP/1.1 200 OK\r\nX: 1\r\n";
    const fields = [_]Field{.init("X", "1")};
    const chunked = "Transfer-Encoding: chunked\r\n\r\n";
    const closing = "Connection: close\r\n\r\n";
    for ([_]struct { []const u8, []const u8, []const u8, []const u8, Disposition }{
        // The only piece is the last.
        .{ get, "ok", "Content-Length: 2\r\n\r\nok", "", .keep_alive },
        .{ get, "", "Content-Length: 0\r\n\r\n", "", .keep_alive },
        .{
            get_1_0_keep_alive,
            "ok",
            "Content-Length: 2\r\nConnection: keep-alive\r\n\r\nok",
            "",
            .keep_alive,
        },
        // More content follows.
        .{ get, "ok", chunked ++ "2\r\nok\r\n", "0\r\n\r\n", .keep_alive },
        .{ get_1_0_keep_alive, "ok", closing ++ "ok", "", .close },
    }, 0..) |case, index| {
        const request, const text, const expected, const end, const disposition = case;
        var t: Harness = try .open(request);
        try t.expectStart(.{ .status = 200, .fields = &fields, .hold = true }, open_head);
        try std.testing.expect(t.session.responseStarted() and t.session.headIsOpen());
        try t.expectBody("", "");
        try std.testing.expect(t.session.headIsOpen());
        const last = index < 3;
        try t.expectPiece(text, last, expected);
        if (last) {
            try std.testing.expectEqual(disposition, t.session.disposition());
        } else {
            try t.expectEnd(&.{}, end, disposition);
        }
    }
    // Responses that end without content, or whose head must be sent before there is content.
    for ([_]struct { []const u8, []const Field, ?[]const u8, []const u8, Disposition }{
        .{ get, &.{}, null, "Content-Length: 0\r\n\r\n", .keep_alive },
        .{ get, &fields, null, chunked ++ "0\r\nX: 1\r\n\r\n", .keep_alive },
        .{ get, &.{}, chunked, "0\r\n\r\n", .keep_alive },
        .{ get_1_0_keep_alive, &.{}, closing, "", .close },
    }) |case| {
        const request, const trailers, const head_end, const end, const disposition = case;
        var t: Harness = try .open(request);
        try t.expectStart(.{ .status = 200, .fields = &fields, .hold = true }, open_head);
        if (head_end) |expected| {
            // The buffer has exactly the promised room.
            const plan = t.session.planHeadEnd(t.out[0..startSize(&.{})]);
            try std.testing.expectEqualStrings(expected, t.out[0..plan.len]);
            t.session.apply(plan);
        }
        try t.expectEnd(trailers, end, disposition);
    }
    var refused: Harness = try .open(get_1_0_keep_alive);
    try refused.expectStart(.{ .status = 200, .fields = &fields, .hold = true }, open_head);
    try std.testing.expectError(error.TrailersNotAllowed, refused.end(&fields));
    try std.testing.expect(refused.session.headIsOpen());
    // The head is not held if its framing is known at once.
    for ([_]Response{
        .{ .status = 204, .hold = true },
        .{ .status = 200, .hold = true, .fields = &length_2 },
        .{ .status = 200, .hold = true, .content = "ok", .end = true },
    }) |response| {
        var t: Harness = try .open(get);
        const len = try t.start(response);
        try std.testing.expect(!t.session.headIsOpen());
        try std.testing.expect(std.mem.endsWith(
            u8,
            t.out[0..len],
            if (response.end) "\r\n\r\nok" else "\r\n\r\n",
        ));
        try std.testing.expectEqual(
            response.status == 200,
            std.mem.indexOf(u8, t.out[0..len], "Content-Length: 2") != null,
        );
    }
}

test "a head with content is one piece" {
    const hello = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    const chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n";
    for ([_]struct { []const u8, Response, []const u8, []const u8, ?Disposition }{
        .{ get, .{ .status = 200, .content = "ok", .end = true }, hello, "", .keep_alive },
        .{
            get,
            .{ .status = 200, .content = "ok", .end = true, .fields = &length_2 },
            hello,
            "",
            .keep_alive,
        },
        .{ get, .{ .status = 200, .content = "ok", .fields = &length_2 }, hello, "", null },
        .{ get, .{ .status = 200, .content = "ok" }, chunked ++ "ok\r\n", "\r\n", null },
        .{ get, .{ .status = 200, .rest = 2 }, chunked, "\r\n", null },
        .{ get, .{ .status = 200, .rest = 2, .end = true }, hello[0 .. hello.len - 2], "", .keep_alive },
        .{
            get,
            .{ .status = 204, .content = "ok", .end = true },
            "HTTP/1.1 204 No Content\r\n\r\n",
            "",
            .keep_alive,
        },
    }) |case| {
        const request, const response, const expected, const suffix, const disposition = case;
        var t: Harness = try .open(request);
        const plan = try t.session.planStart(response, &t.out);
        try std.testing.expectEqualStrings(expected, t.out[0..plan.len]);
        try std.testing.expectEqualStrings(suffix, plan.suffix);
        try std.testing.expectEqual(response.status == 200, plan.payload);
        t.session.apply(plan);
        if (disposition) |d| {
            try std.testing.expectEqual(d, t.session.disposition());
        } else {
            try std.testing.expect(!t.session.responseEnded());
        }
    }
    for ([_]struct { StartError, Response }{
        .{ error.TooLong, .{ .status = 200, .content = "three", .fields = &length_2 } },
        .{ error.TooLong, .{ .status = 200, .rest = 3, .fields = &length_2 } },
        .{ error.TooShort, .{ .status = 200, .content = "1", .fields = &length_2, .end = true } },
        .{ error.TooShort, .{ .status = 200, .fields = &length_2, .end = true } },
    }) |case| {
        const expected, const response = case;
        var t: Harness = try .open(get);
        const before = t.session;
        try std.testing.expectError(expected, t.start(response));
        try std.testing.expectEqual(before, t.session);
    }
}

test "a failed start changes nothing" {
    var t: Harness = try .open(get);
    const before = t.session;
    try std.testing.expectError(error.InvalidStatus, t.start(.{ .status = 199, .fields = &.{} }));
    try std.testing.expectError(error.InvalidStatus, t.start(.{ .status = 600, .fields = &.{} }));
    try std.testing.expectError(error.InvalidStatus, t.session.informational(101, &.{}, &t.out));
    try std.testing.expectError(error.InvalidStatus, t.session.informational(200, &.{}, &t.out));
    try std.testing.expectEqual(before, t.session);
    const bad_length = [_]Field{ .init("TE", "x"), .init("Content-Length", "two") };
    try std.testing.expectError(
        error.InvalidContentLength,
        t.start(.{ .status = 200, .fields = &bad_length }),
    );
    try std.testing.expectEqual(1, t.session.bad_field);
    t.session.bad_field = 0;
    try std.testing.expectEqual(before, t.session);
}

test "commands out of order" {
    var t: Harness = .{};
    try std.testing.expectError(error.OutOfOrder, t.start(.{ .status = 200, .fields = &.{} }));
    try std.testing.expectError(error.OutOfOrder, t.session.informational(103, &.{}, &t.out));
    _ = try t.read(get);
    try t.expectBodyError(error.OutOfOrder, 1);
    try std.testing.expectError(error.OutOfOrder, t.end(&.{}));
    try std.testing.expectError(error.OutOfOrder, t.session.switchProtocols(&.{}, &t.out));
    _ = try t.start(.{ .status = 200, .fields = &.{} });
    try std.testing.expectError(error.OutOfOrder, t.start(.{ .status = 200, .fields = &.{} }));
    try std.testing.expectError(error.OutOfOrder, t.session.informational(103, &.{}, &t.out));
}

test "startSize covers the longest head" {
    var t: Harness = try .open(get_1_0_keep_alive);
    const fields = [_]Field{.init("Content-Length", "0")};
    const stamp = "Sun, 06 Nov 1994 08:49:37 GMT";
    // The buffer has exactly the promised room: a write beyond it is a bounds error.
    const room = t.out[0..startSize(&fields)];
    const plan = try t.session.planStart(.{ .status = 431, .fields = &fields, .date = stamp }, room);
    try std.testing.expect(std.mem.endsWith(u8, room[0..plan.len], "Connection: keep-alive\r\n\r\n"));
}

test "keep-alive in so many words, if it is true" {
    const says = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n";
    const cases = [_]struct { []const u8, []const u8 }{
        .{ get, says },
        .{
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
        },
        .{ get_1_0, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" },
    };
    for (cases) |case| {
        var t: Harness = try .open(case[0]);
        try t.expectStart(.{ .status = 200, .fields = &.{}, .says_keep_alive = true }, case[1]);
    }
}

test "426 goes out with Upgrade, which Connection names" {
    const fields = [_]Field{ .init("Upgrade", "websocket"), .init("Content-Length", "0") };
    const head = "HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nContent-Length: 0\r\n";
    var t: Harness = try .open(get);
    try t.expectStart(
        .{ .status = upgrade_required, .fields = &fields },
        head ++ "Connection: Upgrade\r\n\r\n",
    );
    t = try .open(get);
    t.session.closeAfterResponse();
    try t.expectStart(
        .{ .status = upgrade_required, .fields = &fields },
        head ++ "Connection: close, Upgrade\r\n\r\n",
    );
    t = try .open(get);
    try t.expectStart(
        .{ .status = 400, .fields = &fields },
        "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
    );
}

const expecting = "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";

test "a client that waits is told once to go on" {
    var t: Harness = try .open(expecting);
    try std.testing.expectEqualStrings(continue_text, t.session.takeContinue().?);
    try std.testing.expectEqual(null, t.session.takeContinue());
    try t.expectStart(
        .{ .status = 200, .fields = &length_2 },
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n",
    );
    try t.expectBody("ok", "ok");
    try t.expectEnd(&.{}, "", .drain);
    try std.testing.expectEqualStrings("ab", t.feed("ab").body);
    try std.testing.expectEqual(Event.end, t.feed(""));
    try std.testing.expectEqual(Disposition.keep_alive, t.session.disposition());
}

test "a client that does not wait, or need not, is not told" {
    var t: Harness = try .open(expecting);
    _ = t.feed("a");
    try std.testing.expectEqual(null, t.session.takeContinue());
    t = try .open(expecting);
    const len = try t.session.informational(100, &.{}, &t.out);
    try std.testing.expectEqualStrings(continue_text, t.out[0..len]);
    try std.testing.expectEqual(null, t.session.takeContinue());
    t = try .open(get);
    try std.testing.expectEqual(null, t.session.takeContinue());
}

test "a final response to a client that still waits closes the connection" {
    var t: Harness = try .open(expecting);
    try t.expectStart(
        .{ .status = 403, .fields = &.{.init("Content-Length", "0")} },
        "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    );
    try std.testing.expectEqual(null, t.session.takeContinue());
    try t.expectEnd(&.{}, "", .close);
}

test "early hints" {
    var t: Harness = try .open(get);
    const len = try t.session.informational(
        103,
        &.{ .init("Link", "</a>"), .init("Content-Length", "3") },
        &t.out,
    );
    try std.testing.expectEqualStrings("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", t.out[0..len]);
    try std.testing.expect(!t.session.responseStarted());
}

test "closeAfterResponse before and after the start" {
    var t: Harness = .{};
    t.session.closeAfterResponse();
    _ = try t.read(get);
    try t.expectStart(
        .{ .status = 204, .fields = &.{} },
        "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
    );
    try t.expectEnd(&.{}, "", .close);
    t = try .open(get);
    try t.expectStart(.{ .status = 204, .fields = &.{} }, "HTTP/1.1 204 No Content\r\n\r\n");
    t.session.closeAfterResponse();
    try t.expectEnd(&.{}, "", .close);
}

test "input that is refused while a response is on its way closes the connection" {
    var t: Harness = try .open("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    _ = try t.start(.{ .status = 200, .fields = &length_2 });
    try std.testing.expectEqual(400, t.feed("x").refused.status);
    try t.expectBody("ok", "ok");
    try t.expectEnd(&.{}, "", .close);
}

test "upgrade to a tunnel" {
    var t: Harness = .{};
    const head = try t.read("GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n");
    try std.testing.expect(head.upgrade);
    const len = try t.session.switchProtocols(
        &.{ .init("Upgrade", "websocket"), .init("Content-Length", "1") },
        &t.out,
    );
    try std.testing.expectEqualStrings(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        t.out[0..len],
    );
    try std.testing.expectEqualStrings("\r\nraw", t.feed("\r\nraw").body);
    try std.testing.expectEqual(Event.need_more, t.feed(""));
    // After an upgrade, bytes do not go out as response content, but by another way.
    try std.testing.expectError(error.OutOfOrder, t.expectBody("raw", "raw"));
}
