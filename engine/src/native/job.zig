//! A request in the hands of a function that runs in a thread of its own (threads.zig): copies of what the
//! function sees, and a response whose parts go to the worker as messages.
//! Does not know: threads, queues, and the exchange, which stays with its worker.
const std = @import("std");
const assert = std.debug.assert;
const io = @import("io");
const Head = @import("protocol").Head;
const Field = @import("protocol").http.Field;
const FieldSpan = @import("protocol").http.FieldSpan;
const Command = @import("server").Command;
const Pool = @import("server").Pool;
const Arena = @import("arena.zig").Arena;
const ErrorPage = response_file.ErrorPage;
const Status = @import("status.zig").Status;
const Detached = @import("detached.zig").Detached;
const Flow = response_file.Flow;
const Header = response_file.Header;
const Link = response_file.Link;
const Request = @import("request.zig").Request;
const response_file = @import("response.zig");
const Response = response_file.Response;
const SendError = response_file.SendError;

const complain = @import("complain.zig").complain;

/// A request on its way through a thread: the copy that its function sees.
pub const Job = struct {
    next: ?*Job = null,
    /// The memory of this struct and of its request.
    memory: []align(alignment) u8,
    detached: Detached,
    /// `detached` is not finished.
    is_open: bool = true,
    /// Whether the thread waits while its client is slow.
    may_wait: bool = true,
    request: Request,
    head: Head,
    trailers: Head,
    call: *const fn (*anyopaque, *Request, *Response) void,
    page: *const fn (*anyopaque, Status) ?ErrorPage,
    context: *anyopaque,
    response: Response,
    arena: Arena,

    const alignment = 16;
    const own_bytes = std.mem.alignForward(usize, @sizeOf(Job), alignment);
    /// The most bytes of a body that go to the worker in one message.
    const piece_bytes_max = 256 * 1024;

    comptime {
        assert(@alignOf(Job) <= alignment);
    }

    /// The memory of a copy, in bytes.
    pub fn sizeOf(request: *const Request) usize {
        return own_bytes + headBytes(request.head) +
            (if (request.trailers) |trailers| headBytes(trailers) else 0) +
            request.peer.len + request.body.len;
    }

    /// Copies a request to memory of `sizeOf` bytes, and detaches the response. On an error it is as it was.
    pub fn create(
        gpa: std.mem.Allocator,
        bytes: usize,
        request: *Request,
        response: *Response,
    ) error{ OutOfMemory, Closed }!*Job {
        const memory = try gpa.alignedAlloc(u8, .fromByteUnits(alignment), bytes);
        errdefer gpa.free(memory);
        const job: *Job = @ptrCast(memory.ptr);
        job.* = .{
            .memory = memory,
            .request = request.*,
            .detached = undefined,
            .head = undefined,
            .trailers = undefined,
            .call = undefined,
            .page = undefined,
            .context = undefined,
            .response = undefined,
            .arena = undefined,
        };
        var heads: []align(alignment) u8 = memory[own_bytes..];
        job.head = copyHead(request.head, &heads);
        if (request.trailers) |trailers| {
            job.trailers = copyHead(trailers, &heads);
            job.request.trailers = &job.trailers;
        }
        job.request.setHead(&job.head);
        var rest: []u8 = heads;
        job.request.peer = copyBytes(request.peer, &rest);
        job.request.body = copyBytes(request.body, &rest);
        assert(rest.len == 0);
        job.request.tunnel = null;
        job.request.routed = null;
        job.detached = try response.detach();
        return job;
    }

    fn headBytes(head: *const Head) usize {
        return std.mem.alignForward(usize, head.fields.len * @sizeOf(FieldSpan) + head.text.len, alignment);
    }

    fn copyHead(head: *const Head, rest: *[]align(alignment) u8) Head {
        const list_bytes = head.fields.len * @sizeOf(FieldSpan);
        const fields: []FieldSpan = @as([*]FieldSpan, @ptrCast(rest.ptr))[0..head.fields.len];
        @memcpy(fields, head.fields);
        const text = rest.*[list_bytes..][0..head.text.len];
        @memcpy(text, head.text);
        rest.* = @alignCast(rest.*[headBytes(head)..]);
        var copy = head.*;
        copy.text = text;
        copy.fields = fields;
        copy.storage = fields;
        return copy;
    }

    fn copyBytes(bytes: []const u8, rest: *[]u8) []const u8 {
        const copy = rest.*[0..bytes.len];
        @memcpy(copy, bytes);
        rest.* = rest.*[bytes.len..];
        return copy;
    }

    /// Calls the function, and sends its response. `pool`: for the memory of the response.
    pub fn answer(job: *Job, pool: *Pool, body_bytes_max: usize) void {
        job.arena.begin(pool);
        defer job.arena.reset();
        job.request.arena = job.arena.allocator();
        job.request.query = .init(job.request.arena);
        const response = &job.response;
        response.arena = &job.arena;
        response.body_bytes_max = body_bytes_max;
        response.link = &link;
        response.begin();
        defer response.dropBody();
        job.call(job.context, &job.request, response);
        switch (response.state) {
            .collecting => job.sendWhole() catch |err| {
                complain("{s} {s}: an answer of a thread was not sent: {t}", .{
                    job.request.methodText(), job.request.getPath(), err,
                });
            },
            .streaming => job.finish(null) catch {}, // fails if the server is gone
            .blocked => unreachable, // `write` has waited for room
            .ended, .lost => {},
        }
        if (job.is_open) job.detached.drop();
    }

    /// Sends the collected response as one answer, in pieces if it is long.
    fn sendWhole(job: *Job) SendError!void {
        const body = try job.bodyBytes();
        if (body.len > piece_bytes_max) {
            job.response.addLength(job.request.method == .HEAD);
            try job.begin();
            return job.finish(null);
        }
        var headers: [Detached.headers_max]Header = undefined;
        try job.finish(.{
            .status = job.response.status,
            .headers = try job.headersInto(&headers),
            .body = body,
        });
    }

    /// Sends bytes of the body, in messages that are not too long for the mailbox.
    fn writeAll(job: *Job, bytes: []const u8) SendError!void {
        var rest = bytes;
        while (rest.len > 0) {
            const piece = rest[0..@min(rest.len, piece_bytes_max)];
            job.patiently(Detached.write, .{piece}) catch |err| return failure(err);
            rest = rest[piece.len..];
        }
    }

    fn headersInto(job: *Job, headers: *[Detached.headers_max]Header) SendError![]const Header {
        var lines = job.response.lines.iterator();
        var count: usize = 0;
        while (lines.next()) |field| : (count += 1) {
            headers[count] = .{ .name = field.name(), .text = field.value() };
        }
        if (job.response.lines.found.content_length) |length| {
            if (count == headers.len) return error.HeadTooLarge;
            const digits = try job.arena.space(20);
            headers[count] = .{
                .name = "Content-Length",
                .text = std.fmt.bufPrint(digits, "{d}", .{length}) catch unreachable, // 64 bits
            };
            count += 1;
        }
        return headers[0..count];
    }

    fn bodyBytes(job: *Job) SendError![]const u8 {
        return switch (job.response.body) {
            .none => "",
            .bytes => |bytes| bytes,
            .shared => |shared| shared.bytes,
            .blocks, .request => unreachable, // `link` refuses such bodies
            .file, .parts => error.OutOfOrder,
        };
    }

    /// Sends a whole answer, or the end of an answer that has begun.
    fn finish(job: *Job, whole: ?Detached.Answer) SendError!void {
        const result = if (whole) |all| job.patiently(Detached.answer, .{all}) else job.detached.end();
        result catch |err| return failure(err);
        job.is_open = false;
        job.response.state = .ended;
    }

    /// Sends a message, and waits while the mailbox is full because clients are slow. They have deadlines.
    fn patiently(job: *Job, comptime say: anytype, what: anytype) Detached.Error!void {
        const pause_ms = 5;
        while (true) {
            return @call(.auto, say, .{job.detached} ++ what) catch |err| switch (err) {
                error.Full => {
                    // A message that does not fit into an empty mailbox never does.
                    if (!job.may_wait or job.detached.inbox.bytes.load(.monotonic) == 0) return err;
                    io.sleep(pause_ms);
                    continue;
                },
                else => err,
            };
        }
    }

    fn failure(err: Detached.Error) SendError {
        return switch (err) {
            error.OutOfMemory => error.OutOfMemory,
            error.Gone => error.Closed,
            error.Full => error.ResponseBodyBufferTooSmall,
            error.HeadersFull => error.HeadTooLarge,
        };
    }

    // ---- Functions of a response's `Link`

    const link: Link = .{
        .send = send,
        .inform = inform,
        .abort = abort,
        .detach = detach,
        .repeat = repeat,
        .limitIdle = limitIdle,
        .offersWebSocket = offersNone,
        .errorPage = errorPage,
        .takes_blocks = false,
    };

    fn errorPage(response: *const Response, status: Status) ?ErrorPage {
        const job: *const Job = @fieldParentPtr("response", response);
        return job.page(job.context, status);
    }

    fn of(response: *Response) *Job {
        return @fieldParentPtr("response", response);
    }

    fn send(response: *Response, bytes: []const u8, last: bool) SendError!Flow {
        const job = of(response);
        if (!job.is_open) return error.Closed;
        if (response.state == .collecting) {
            if (last and bytes.len == 0) {
                try job.sendWhole();
                return .ready;
            }
            try job.begin();
        }
        try job.writeAll(bytes);
        if (last) try job.finish(null);
        return .ready;
    }

    fn begin(job: *Job) SendError!void {
        var headers: [Detached.headers_max]Header = undefined;
        const beginning: Detached.Beginning = .{
            .status = job.response.status,
            .headers = try job.headersInto(&headers),
        };
        const body = try job.bodyBytes();
        job.patiently(Detached.start, .{beginning}) catch |err| return failure(err);
        job.response.state = .streaming;
        try job.writeAll(body);
        job.response.dropBody();
    }

    fn inform(response: *Response, status: u16, fields: []const Field) SendError!void {
        const job = of(response);
        if (!job.is_open) return error.Closed;
        return job.tell(.{ .inform = .{ .status = status, .fields = fields } });
    }

    fn repeat(response: *Response, bytes: []const u8, interval_ms: u32) SendError!void {
        const job = of(response);
        if (!job.is_open) return error.Closed;
        return job.tell(.{ .repeat = .{ .interval_ms = interval_ms, .bytes = bytes } });
    }

    fn limitIdle(response: *Response, idle_ms: u32) SendError!void {
        const job = of(response);
        if (!job.is_open) return error.Closed;
        return job.tell(.{ .idle_limit = idle_ms });
    }

    fn tell(job: *Job, command: Command) SendError!void {
        job.detached.inbox.tell(job.detached.ticket, command) catch |err| return failure(err);
    }

    fn abort(response: *Response) void {
        const job = of(response);
        if (!job.is_open) return;
        job.is_open = false;
        job.detached.drop();
        response.state = .ended;
    }

    /// Leaves the answer to the holder of the result.
    fn detach(response: *Response) error{ OutOfMemory, Closed }!Detached {
        const job = of(response);
        if (!job.is_open) return error.Closed;
        job.is_open = false;
        response.state = .ended;
        return job.detached;
    }

    fn offersNone(_: *const Response) bool {
        return false;
    }
};
