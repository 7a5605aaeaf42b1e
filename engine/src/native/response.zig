//! A Zig handler's response. All that the handler passes in is copied at once, so nothing has to outlive the
//! call. Does not know: framing (the session decides it), sockets, workers (they stand behind `Link`).
const std = @import("std");
const assert = std.debug.assert;
const protocol = @import("protocol");
const Lines = protocol.http.Lines;
const syntax = protocol.http.syntax;
const Field = protocol.http.Field;
const Arena = @import("arena.zig").Arena;
const BodyWriter = @import("body_writer.zig").BodyWriter;
const Detached = @import("detached.zig").Detached;
const FileRange = @import("server").FileRange;
const Outbox = @import("server").Outbox;
const Command = @import("server").Command;
const Status = @import("status.zig").Status;
const engine = @import("server");

/// A header as a value, for `addHeader` and for answers from other threads. Borrows both texts.
pub const Header = struct {
    name: []const u8,
    text: []const u8,

    /// The name or the value could not be sent.
    pub const Error = error{InvalidHeader};

    /// Checks both texts: the name is a token, the value has no control bytes (a line break above all).
    pub fn init(name: []const u8, text: []const u8) Error!Header {
        if (!syntax.isToken(name) or !syntax.isFieldValue(text)) return error.InvalidHeader;
        return .{ .name = name, .text = text };
    }

    pub fn key(header: *const Header) []const u8 {
        return header.name;
    }

    pub fn value(header: *const Header) []const u8 {
        return header.text;
    }
};

/// Whether the way to the client has room for more bytes.
pub const Flow = enum {
    /// The client takes more: go on writing.
    ready,
    /// The client is slower than the handler: stop, `handleDrain` is called when there is room. Further bytes
    /// are taken all the same, up to the server's `response_body_buffer_size`.
    wait,
};

/// The page that a browser shows in place of the text of a status, from `handleErrorPage`.
pub const ErrorPage = struct {
    content_type: []const u8 = "text/html; charset=utf-8",
    /// Constants, or memory that stays unchanged as long as the server is there.
    body: []const u8,
};

/// A range of an open file that becomes the body.
pub const FileBody = struct {
    fd: i32,
    /// The offset of the first byte.
    offset: u64 = 0,
    /// Bytes. The file has to hold that many when it is sent, or the connection is cut.
    len: u64,
    /// Whether the response closes the descriptor when it has no more use for it.
    ownership: enum { borrowed, owned } = .owned,
};

/// A body that several responses share, or constant bytes.
pub const SharedBody = engine.Held;

/// Bytes and ranges of files, in blocks of the worker's pool.
pub const PartsBody = struct {
    chain: Outbox,
    /// The bytes of all parts together.
    len: u64,
};

/// Why a body is not taken.
pub const BodyError = error{
    OutOfMemory,
    /// More than the server's `response_body_buffer_size`.
    ResponseBodyBufferTooSmall,
    /// The response is on its way already.
    AlreadyStarted,
};

/// Why a header is not taken.
pub const HeaderError = error{
    OutOfMemory,
    /// The response has `Response.headers_max` headers already.
    HeadersFull,
    /// The name is no token, or the value has control bytes, or a Content-Length is no number.
    InvalidHeader,
    /// The response is on its way already.
    AlreadyStarted,
};

/// Why something could not be sent. TooLong, TooShort: not what the handler's Content-Length promised.
pub const SendError = engine.StartError || engine.BodyError || error{
    /// The client is gone, or the response is complete.
    Closed,
    /// The client is slow, and `response_body_buffer_size` bytes wait for it already.
    ResponseBodyBufferTooSmall,
};

/// The way from a response to its exchange. A host fills it in; its functions find their way back from the
/// response's address.
pub const Link = struct {
    /// Sends what was collected if that has not happened, then `bytes`; with `last` the response is complete.
    send: *const fn (*Response, bytes: []const u8, last: bool) SendError!Flow,
    inform: *const fn (*Response, status: u16, fields: []const Field) SendError!void,
    abort: *const fn (*Response) void,
    detach: *const fn (*Response) error{ OutOfMemory, Closed }!Detached,
    /// Sends these bytes as a piece of the body every `interval_ms`, as long as the response lasts.
    repeat: *const fn (*Response, bytes: []const u8, interval_ms: u32) SendError!void,
    /// Ends the exchange after this time without a byte in either direction; 0: never.
    limitIdle: *const fn (*Response, idle_ms: u32) SendError!void,
    offersWebSocket: *const fn (*const Response) bool,
    /// The handler's page for a status, if it has one.
    errorPage: *const fn (*const Response, Status) ?ErrorPage = noPage,
    /// Whether large bodies may lie in blocks of the worker's pool.
    takes_blocks: bool = true,

    fn noPage(_: *const Response, _: Status) ?ErrorPage {
        return null;
    }
};

/// A Zig handler's response. All that the handler passes in is copied at once, unless a method says
/// otherwise.
pub const Response = struct {
    /// Changes have no effect once the response has started.
    status: Status,
    state: State,
    body: Body,
    /// The last piece that was written was not taken: what the client has is not all that the
    /// handler meant to send.
    lacks_piece: bool,
    /// The request becomes a WebSocket when the handler returns; see ws.zig.
    upgrade: ?Upgrade,
    /// The headers; their text lies in the arena.
    lines: Lines,
    /// How many headers were added.
    count: u16,
    /// The first headers stay whatever becomes of the response: see `keepHeaders`.
    kept: Kept,
    arena: *Arena,
    /// Bound on the body and on output that waits for a slow client, in bytes.
    body_bytes_max: usize,
    /// The request's body, if it lies in memory that can be sent.
    request_body: []const u8,
    link: *const Link,

    /// The most headers of a response.
    pub const headers_max = 64;

    /// Bodies up to here are sent together with the head, from one piece of memory; larger ones lie in blocks
    /// that are handed over.
    pub const small_bytes = 16 * 1024;

    /// How far the response is.
    pub const State = enum {
        /// Nothing is sent yet. The server sends all of it when the handler returns.
        collecting,
        /// The head is out, pieces of the body follow.
        streaming,
        /// The head is out, and the client is slower than the handler.
        blocked,
        /// Nothing is to be sent by this handler any more.
        ended,
        /// The client is gone.
        lost,
    };

    /// The connection becomes a WebSocket.
    pub const Upgrade = struct {
        subprotocol: ?[]const u8,
        compression: Command.Compression,
        context: ?*anyopaque,
    };

    /// A beginning of `lines.text`, and how many headers are in it.
    pub const Kept = struct { bytes: usize = 0, count: u16 = 0 };

    /// The content behind the head.
    pub const Body = union(enum) {
        none,
        /// Bytes in the response's arena.
        bytes: []const u8,
        /// Bytes in blocks of the worker's pool.
        blocks: Outbox,
        /// Part of the request's body, which goes out where it is once the handler has returned.
        request: []const u8,
        shared: SharedBody,
        file: FileBody,
        parts: PartsBody,

        /// The size of the body in bytes.
        pub fn len(body: *const Body) u64 {
            return switch (body.*) {
                .none => 0,
                .bytes, .request => |bytes| bytes.len,
                .blocks => |blocks| blocks.bytes,
                .shared => |shared| shared.bytes.len,
                .file => |file| file.len,
                .parts => |parts| parts.len,
            };
        }
    };

    /// Replaces the body by a copy of `bytes`. Content-Length is added unless the handler adds it. A part of
    /// the request's body is not copied.
    pub fn setBody(response: *Response, bytes: []const u8) BodyError!void {
        if (response.state != .collecting) return error.AlreadyStarted;
        if (bytes.len > response.body_bytes_max) return error.ResponseBodyBufferTooSmall;
        if (bytes.len <= small_bytes or !response.link.takes_blocks) {
            const copy = try response.arena.keep(bytes);
            response.dropBody();
            response.body = .{ .bytes = copy };
        } else if (response.isOfRequest(bytes)) {
            response.dropBody();
            response.body = .{ .request = bytes };
        } else {
            try response.copyBody(bytes);
        }
    }

    fn isOfRequest(response: *const Response, bytes: []const u8) bool {
        const whole = response.request_body;
        const at = @intFromPtr(bytes.ptr) -% @intFromPtr(whole.ptr);
        return at <= whole.len and bytes.len <= whole.len - at;
    }

    fn copyBody(response: *Response, bytes: []const u8) error{OutOfMemory}!void {
        var blocks: Outbox = .{};
        try blocks.append(response.arena.pool, bytes);
        response.dropBody();
        response.body = .{ .blocks = blocks };
    }

    /// The body that was set, in pieces, where it lies; null for files, and if there are more pieces than fit
    /// in `slices`.
    pub fn collected(response: *Response, slices: [][]const u8) ?[]const []const u8 {
        slices[0] = switch (response.body) {
            .none => "",
            .bytes, .request => |bytes| bytes,
            .shared => |shared| shared.bytes,
            .blocks => |*blocks| {
                const count = switch (blocks.front(slices)) {
                    .bytes => |count| count,
                    .nothing, .file => return null,
                };
                var len: u64 = 0;
                for (slices[0..count]) |bytes| len += bytes.len;
                return if (len == response.body.len()) slices[0..count] else null;
            },
            .file, .parts => return null,
        };
        return slices[0..1];
    }

    /// Replaces the body by `bytes`, its form in a content coding, which are borrowed as by
    /// `setBodyBorrowed`. A Content-Length that was added is dropped.
    pub fn setEncoded(
        response: *Response,
        coding: []const u8,
        bytes: []const u8,
    ) (HeaderError || BodyError)!void {
        try response.addNewHeader("Content-Encoding", coding);
        try response.setBodyBorrowed(bytes);
        response.lines.found.content_length = null;
    }

    /// For the server: copies a body that is a part of the request's, because the response is sent while the
    /// handler may still read the request.
    pub fn detachBody(response: *Response) error{OutOfMemory}!void {
        switch (response.body) {
            .request => |bytes| try response.copyBody(bytes),
            .none, .bytes, .blocks, .shared, .file, .parts => {},
        }
    }

    /// Replaces the body by bytes that the caller keeps unchanged until the response is complete, for example
    /// constants, or memory of `request.arena`. More than `small_bytes` are copied here, once.
    pub fn setBodyBorrowed(response: *Response, bytes: []const u8) BodyError!void {
        if (bytes.len > small_bytes) return response.setBody(bytes);
        if (response.state != .collecting) return error.AlreadyStarted;
        response.dropBody();
        response.body = .{ .bytes = bytes };
    }

    /// Replaces the body by bytes that others use as well. More than `small_bytes` go out where they lie, and
    /// are released when they were sent or will not be; fewer are copied when the response is sent. On an
    /// error the caller has to release them.
    pub fn setBodyShared(response: *Response, shared: SharedBody) error{AlreadyStarted}!void {
        if (response.state != .collecting) return error.AlreadyStarted;
        response.dropBody();
        response.body = .{ .shared = shared };
    }

    /// Replaces the body by a range of a file, which the kernel sends without a copy. On an error the
    /// descriptor stays the caller's.
    pub fn setFile(response: *Response, file: FileBody) error{AlreadyStarted}!void {
        if (response.state != .collecting) return error.AlreadyStarted;
        response.dropBody();
        response.body = .{ .file = file };
    }

    /// Drops the prepared response: the status is `.ok` again, and there is no body and no header but those
    /// that `keepHeaders` has kept.
    pub fn reset(response: *Response) error{AlreadyStarted}!void {
        if (response.state != .collecting) return error.AlreadyStarted;
        const text = response.lines.text[0..response.kept.bytes];
        const kept = response.kept;
        response.dropBody();
        response.begin();
        response.lines.text = text;
        response.count = kept.count;
        response.kept = kept;
    }

    /// The headers that the response has now go out whatever becomes of it: with the answer to an error that
    /// the handler returns (a WWW-Authenticate, say), behind `reset` and `answerStatus`, and with the answer
    /// of another thread. An answer to an error leaves out headers about a body, like Content-Type.
    pub fn keepHeaders(response: *Response) void {
        if (response.state != .collecting) return;
        response.kept = .{ .bytes = response.lines.text.len, .count = response.count };
    }

    /// Drops the prepared response, as `reset` does, for the answer to an error: kept headers about the body
    /// go as well.
    pub fn fail(response: *Response, status: Status) error{AlreadyStarted}!void {
        try response.reset();
        response.status = status;
        if (response.count == 0) return;
        const all = response.lines.text;
        var rest = response.lines.iterator();
        var len: usize = 0;
        while (true) {
            const start = all.len - rest.rest.len;
            const field = rest.next() orelse break;
            if (describesBody(field.name())) {
                response.count -= 1;
                continue;
            }
            const line = all[start .. all.len - rest.rest.len];
            @memmove(all[len..][0..line.len], line);
            len += line.len;
        }
        response.lines.text = all[0..len];
        response.keepHeaders();
    }

    fn describesBody(name: []const u8) bool {
        for ([_][]const u8{
            "content-type",     "content-encoding", "content-disposition", "content-language",
            "content-location", "content-range",    "etag",                "last-modified",
        }) |one| if (std.ascii.eqlIgnoreCase(one, name)) return true;
        return false;
    }

    /// Replaces the prepared response by a status: its text is the body ("404 Not Found"), or the page that
    /// the handler's `handleErrorPage` has for it.
    pub fn answerStatus(response: *Response, status: Status) HeaderError!void {
        try response.reset();
        response.status = status;
        if (try response.showPage()) return;
        try response.addNewHeader("Content-Type", "text/plain");
        response.body = .{ .bytes = status.toString() };
    }

    /// Makes the handler's page for the status the body; false if it has none.
    pub fn showPage(response: *Response) HeaderError!bool {
        if (response.status.code() < 400) return false;
        const page = response.link.errorPage(response, response.status) orelse return false;
        try response.addNewHeader("Content-Type", page.content_type);
        response.setBodyBorrowed(page.body) catch |err| switch (err) {
            error.OutOfMemory, error.AlreadyStarted => |same| return same,
            error.ResponseBodyBufferTooSmall => return false,
        };
        return true;
    }

    /// Replaces the body by bytes and file ranges, `len` bytes in all, which the response owns from then on.
    /// On an error they stay the caller's.
    pub fn setParts(response: *Response, chain: *Outbox, len: u64) error{AlreadyStarted}!void {
        if (response.state != .collecting) return error.AlreadyStarted;
        response.dropBody();
        response.body = .{ .parts = .{ .chain = chain.*, .len = len } };
        chain.* = .{};
    }

    /// Adds a header; a name may be added several times. Connection, Keep-Alive and Transfer-Encoding are the
    /// server's and are ignored.
    pub fn addNewHeader(response: *Response, name: []const u8, value: []const u8) HeaderError!void {
        if (response.state != .collecting) return error.AlreadyStarted;
        if (response.count == headers_max) return error.HeadersFull;
        // Headers are encoded when they are added: a response is then one copy of all of them.
        const lines = &response.lines;
        const before = lines.text.len;
        const room = try response.arena.extended(lines.text, Lines.sizeOf(name, value));
        lines.text = room[0..before];
        defer response.arena.shrink(room.len - lines.text.len);
        lines.add(name, value, room[before..]) catch return error.InvalidHeader;
        response.count += 1;
    }

    /// Adds encoded headers of another response: `text` is its `lines.text`, with `count` of them, without a
    /// Content-Length and a Date.
    pub fn addWritten(response: *Response, text: []const u8, count: u16) HeaderError!void {
        if (response.state != .collecting) return error.AlreadyStarted;
        if (count > headers_max - response.count) return error.HeadersFull;
        const before = response.lines.text.len;
        const room = try response.arena.extended(response.lines.text, text.len);
        @memcpy(room[before..], text);
        response.lines.text = room;
        response.count += count;
    }

    /// Adds a header that `Header.init` has checked.
    pub fn addHeader(response: *Response, header: Header) HeaderError!void {
        try response.addNewHeader(header.name, header.text);
    }

    /// Whether the handler has added a header of that name, compared without case.
    pub fn hasHeader(response: *const Response, name: []const u8) bool {
        var it = response.lines.iterator();
        while (it.next()) |field| {
            if (std.ascii.eqlIgnoreCase(field.name(), name)) return true;
        }
        return response.lines.found.content_length != null and
            std.ascii.eqlIgnoreCase(name, "content-length");
    }

    /// Sends the whole response now instead of when the handler returns. For a streamed request: before
    /// its body has come.
    pub fn send(response: *Response) SendError!void {
        if (response.state != .collecting) return error.Closed;
        _ = try response.link.send(response, "", true);
    }

    /// Sends a piece of the body, and before the first one status, headers and the body so far. Without a
    /// Content-Length of the handler's the length is open (chunked). The bytes are copied. After `.wait` it
    /// is best to stop until `handleDrain`. A response that is neither ended nor waiting nor detached when
    /// the handler returns is ended by the server, or cut if its last piece was not taken.
    pub fn write(response: *Response, bytes: []const u8) SendError!Flow {
        return response.link.send(response, bytes, false);
    }

    /// A `std.Io.Writer` (`interface`) whose bytes are pieces of the body, sent when `buffer` is full and by
    /// `end`. In a thread of `Threads` it waits while the client is slow; in a hook it does not, and its
    /// `flow` is `.wait`.
    pub fn writer(response: *Response, buffer: []u8) BodyWriter {
        return .init(response, buffer);
    }

    /// Ends a streamed response; a response that was not started is sent whole.
    pub fn end(response: *Response) SendError!void {
        _ = try response.link.send(response, "", true);
    }

    /// Bounds the time in which no byte moves in either direction, in milliseconds; 0: no bound. After that
    /// the client gets a 504, or a cut connection if the response has started, and `handleAbort` is called.
    /// For answers that come later (`detach`, threads), and for clients that are slow.
    pub fn limitIdle(response: *Response, idle_ms: u32) SendError!void {
        return response.link.limitIdle(response, idle_ms);
    }

    /// Cuts the response: nothing more is sent, and the connection is closed so that the client can tell that
    /// the response is not complete. For failures once the response has started, when it is too late for
    /// another status. Does nothing when the response is complete. A hook that returns an error does the
    /// same. A detached response is cut by `Detached.drop`.
    pub fn abort(response: *Response) void {
        response.link.abort(response);
    }

    /// Sends an informational response now, for example 103 with Link headers; HTTP/1.0 clients
    /// get none. Not 101.
    pub fn inform(
        response: *Response,
        status: Status,
        headers: []const Header,
    ) (SendError || error{HeadersFull})!void {
        var fields: [Detached.headers_max]Field = undefined;
        if (headers.len > fields.len) return error.HeadersFull;
        for (headers, fields[0..headers.len]) |header, *field| field.* = .init(header.name, header.text);
        try response.link.inform(response, status.code(), fields[0..headers.len]);
    }

    /// Leaves the answer to the holder of the result, in any thread, at any time. The handler may return at
    /// once; a response that it prepared is dropped but for kept headers (`keepHeaders`), unless it was sent.
    /// The request stays readable for `handleAbort` only: slices of it die with the handler's return.
    pub fn detach(response: *Response) error{ OutOfMemory, Closed }!Detached {
        return response.link.detach(response);
    }

    /// For the server: prepares the response for a request. `arena`, `body_bytes_max` and `link` stay.
    pub fn begin(response: *Response) void {
        response.status = .ok;
        response.state = .collecting;
        response.body = .none;
        response.lacks_piece = false;
        response.upgrade = null;
        response.lines = .{};
        response.count = 0;
        response.kept = .{};
        response.request_body = "";
    }

    /// For the server: gives back what the body holds.
    pub inline fn dropBody(response: *Response) void {
        switch (response.body) {
            .none => {},
            .bytes, .request => response.body = .none,
            .blocks, .shared, .file, .parts => response.releaseBody(),
        }
    }

    noinline fn releaseBody(response: *Response) void {
        switch (response.body) {
            .none, .bytes, .request => unreachable,
            .blocks => |*blocks| blocks.deinit(response.arena.pool),
            .shared => |shared| shared.release(shared.holder),
            .file => |file| if (file.ownership == .owned) @import("io").file.close(file.fd),
            .parts => |*parts| parts.chain.discard(response.arena.pool, FileCloser{}),
        }
        response.body = .none;
    }

    const FileCloser = struct {
        pub fn closeFile(_: FileCloser, range: FileRange) void {
            @import("io").file.close(range.fd);
        }
    };

    /// For the server: adds a Content-Length where one belongs and the handler gave none.
    pub fn addLength(response: *Response, has_head_method: bool) void {
        if (response.lines.found.content_length != null) return;
        switch (response.status) {
            // A 304's Content-Length would be that of the 200, which the handler has not made.
            .no_content, .reset_content, .not_modified => return,
            else => {},
        }
        // The length of a body that the answer to HEAD leaves out is not known, either.
        if (has_head_method and response.body == .none) return;
        response.lines.found.content_length = response.body.len();
    }

    /// For the server: the start of a response whose body is known. A body in one piece goes along and ends
    /// the response; another body follows. Points into the response.
    pub fn beginning(response: *Response) engine.Start {
        const whole: ?[]const u8 = switch (response.body) {
            .none => "",
            .bytes => |bytes| bytes,
            .shared => |shared| if (shared.bytes.len <= small_bytes) shared.bytes else null,
            .blocks, .request, .file, .parts => null,
        };
        return .{
            .status = response.status.code(),
            .lines = &response.lines,
            .body = whole orelse "",
            .end = whole != null,
        };
    }
};

/// The digits of a number, at the end of a buffer.
pub const decimal = syntax.decimal;

const testing = std.testing;

test "headers and body are copied, and refused where they could harm" {
    var pool: @import("server").Pool = .init(testing.allocator);
    defer pool.deinit();
    var arena: Arena = undefined;
    arena.begin(&pool);
    defer arena.reset();
    var response: Response = undefined;
    response.arena = &arena;
    response.body_bytes_max = 50_000;
    var link: Link = undefined;
    link.takes_blocks = true;
    link.errorPage = Link.noPage;
    response.link = &link;
    response.begin();
    defer response.dropBody();
    var value = "value".*;
    try response.addNewHeader("X-A", &value);
    @memset(&value, '!');
    try testing.expectEqualStrings("X-A: value\r\n", response.lines.text);
    try testing.expect(response.hasHeader("x-a") and !response.hasHeader("x-b"));
    try testing.expectError(error.InvalidHeader, response.addNewHeader("X-B", "a\r\nSet-Cookie: b"));
    try testing.expectError(error.InvalidHeader, response.addNewHeader("X B", "a"));
    try testing.expectError(error.InvalidHeader, response.addNewHeader("Content-Length", "six"));
    try testing.expectError(error.InvalidHeader, Header.init("", "x"));
    for (1..Response.headers_max) |_| try response.addHeader(try .init("X-C", "c"));
    try testing.expectError(error.HeadersFull, response.addNewHeader("X-D", "d"));

    const large: [50_001]u8 = @splat('x');
    try testing.expectError(error.ResponseBodyBufferTooSmall, response.setBody(&large));
    try response.setBody(large[0..50_000]);
    try testing.expectEqual(50_000, response.body.len());
    try response.setBody("small");
    response.status = .not_modified;
    response.addLength(false);
    try testing.expect(!response.hasHeader("content-length"));
    response.status = .ok;
    response.addLength(false);
    try testing.expect(response.hasHeader("content-length"));
    try testing.expectEqual(5, response.lines.found.content_length);
    try response.answerStatus(.not_found);
    try testing.expectEqualStrings("404 Not Found", response.body.bytes);
    try testing.expectEqualStrings("Content-Type: text/plain\r\n", response.lines.text);
    response.keepHeaders();
    try response.addNewHeader("X-Late", "1");
    try response.setBody("dropped");
    try response.reset();
    try testing.expectEqualStrings("Content-Type: text/plain\r\n", response.lines.text);
    for ([_][]const u8{ "X-A", "ETag", "X-B" }) |name| try response.addNewHeader(name, "1");
    response.keepHeaders();
    try response.fail(.unauthorized);
    try testing.expectEqualStrings("X-A: 1\r\nX-B: 1\r\n", response.lines.text);
    try testing.expectEqual(2, response.count);
    try testing.expectEqual(.unauthorized, response.status);
    response.state = .streaming;
    try testing.expectError(error.AlreadyStarted, response.setBody("x"));
    try testing.expectError(error.AlreadyStarted, response.answerStatus(.not_found));
}
