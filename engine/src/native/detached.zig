//! An answer that comes later, from any thread: `response.detach()` gives one, and it is finished exactly
//! once, by `answer`, `end` or `drop`. Does not know: the worker that the request belongs to; only commands
//! in its mailbox go there.
const std = @import("std");
const Field = @import("protocol").http.Field;
const Header = @import("response.zig").Header;
const Inbox = @import("server").Inbox;
const PostError = @import("server").PostError;
const Response = @import("response.zig").Response;
const Status = @import("status.zig").Status;
const Ticket = @import("server").Ticket;

/// Names a request that waits for its answer. A value: keep it wherever you like, but finish it once.
/// The client may be gone by then, which is no error here: the answer is dropped then (`handleAbort`
/// told the handler). May outlive the server: then everything answers `error.Gone`; only its allocator
/// has to be there still.
pub const Detached = struct {
    inbox: *Inbox,
    ticket: Ticket,

    /// A whole answer.
    pub const Answer = struct {
        status: Status = .ok,
        headers: []const Header = &.{},
        /// The body, which is copied. Content-Length is added unless `headers` has it.
        body: []const u8 = "",
    };

    /// The beginning of an answer whose body comes in pieces.
    pub const Beginning = struct {
        status: Status = .ok,
        headers: []const Header = &.{},
    };

    /// Why a part of an answer was not taken.
    pub const Error = PostError || error{HeadersFull};

    /// The most headers that a detached answer may have.
    pub const headers_max = Response.headers_max;

    /// Sends a whole answer and finishes. After an error the answer is not finished: try again, or `drop`.
    pub fn answer(detached: Detached, whole: Answer) Error!void {
        var fields: [headers_max]Field = undefined;
        try detached.inbox.tell(detached.ticket, .{ .start = .{
            .status = whole.status.code(),
            .fields = try fieldsOf(whole.headers, &fields),
            .body = whole.body,
            .end = true,
        } });
        detached.inbox.release();
    }

    /// Sends status and headers. `write` and `end` follow.
    pub fn start(detached: Detached, beginning: Beginning) Error!void {
        var fields: [headers_max]Field = undefined;
        try detached.inbox.tell(detached.ticket, .{ .start = .{
            .status = beginning.status.code(),
            .fields = try fieldsOf(beginning.headers, &fields),
        } });
    }

    /// Sends a piece of the body, which is copied. `error.Full`: clients are slow, and what waits for them
    /// has reached the server's `detached_bytes_max`; nothing of this piece was taken.
    pub fn write(detached: Detached, bytes: []const u8) Error!void {
        try detached.inbox.tell(detached.ticket, .{ .body = .{ .bytes = bytes } });
    }

    /// Ends a response that was started, and finishes. On an error it is not finished: try again, or `drop`.
    pub fn end(detached: Detached) Error!void {
        try detached.inbox.tell(detached.ticket, .{ .body = .{ .last = true } });
        detached.inbox.release();
    }

    /// Finishes without an answer: the client gets a 500, or a cut connection if the response had begun.
    pub fn drop(detached: Detached) void {
        // If this command cannot be posted, the server is gone, or the request stays open until its client
        // gives up.
        detached.inbox.tell(detached.ticket, .abort) catch {};
        detached.inbox.release();
    }

    fn fieldsOf(headers: []const Header, fields: *[headers_max]Field) error{HeadersFull}![]const Field {
        if (headers.len > headers_max) return error.HeadersFull;
        for (headers, fields[0..headers.len]) |header, *field| field.* = .init(header.name, header.text);
        return fields[0..headers.len];
    }
};
