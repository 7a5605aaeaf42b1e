//! Threads for handlers that block: a request is copied and handed to one of them, and what its function
//! makes of the response goes back to the worker as messages. The worker goes on meanwhile. Nothing of the
//! request's exchange is touched from here: a client that leaves is the worker's business, and the answer to
//! it is dropped there.
//! Does not know: workers (they stand behind `Detached`), and what takes long.
const std = @import("std");
const assert = std.debug.assert;
const io = @import("io");
const Head = @import("protocol").Head;
const Field = @import("protocol").http.Field;
const FieldSpan = @import("protocol").http.FieldSpan;
const Command = @import("server").Command;
const Pool = @import("server").Pool;
const Arena = @import("arena.zig").Arena;
const contract = @import("handler.zig");
const Detached = @import("detached.zig").Detached;
const Flow = response_file.Flow;
const Header = response_file.Header;
const Link = response_file.Link;
const Request = @import("request.zig").Request;
const response_file = @import("response.zig");
const Response = response_file.Response;
const SendError = response_file.SendError;
const Status = @import("status.zig").Status;

const complain = @import("complain.zig").complain;

/// Threads that take requests, and those that wait for one of them. Does not move.
pub const Threads = struct {
    gpa: std.mem.Allocator,
    options: Options,
    runners: []Runner,
    /// Guards what follows; held for a look.
    busy: std.atomic.Value(bool) = .init(false),
    /// Threads with nothing to do.
    idle: ?*Runner = null,
    first: ?*Job = null,
    last: ?*Job = null,
    /// Those in the list, and those that are about to be.
    waiting_count: u32 = 0,
    /// Memory of all copies.
    held_bytes: usize = 0,
    closing: bool = false,

    pub const Options = struct {
        /// How many; 0: requests are done at once, by the worker itself. For tests, whose answers then come
        /// in an order that is always the same.
        threads: u16 = 8,
        /// Requests that may wait for a thread; `run` refuses more (503).
        queue_max: u32 = 1024,
        /// What the copies of requests may take together, bodies included, in bytes; more are refused
        /// likewise, but for one.
        queue_bytes_max: usize = 64 * 1024 * 1024,
        /// Stack of each thread, in bytes.
        stack_bytes: usize = 1024 * 1024,
        /// The largest response body, in bytes, if it is not written in pieces.
        body_bytes_max: usize = 10 * 1024 * 1024,
    };

    /// Why a request was not taken; it can still be answered.
    pub const RunError = error{ OutOfMemory, Closed, QueueFull };

    /// Starts the threads. `gpa` has to be safe for threads. Lives longer than the servers that use it.
    pub fn init(gpa: std.mem.Allocator, options: Options) error{ OutOfMemory, CannotStartThread }!*Threads {
        const threads = try gpa.create(Threads);
        errdefer gpa.destroy(threads);
        threads.* = .{ .gpa = gpa, .options = options, .runners = try gpa.alloc(Runner, options.threads) };
        errdefer gpa.free(threads.runners);
        var started: usize = 0;
        errdefer threads.stop(started);
        for (threads.runners) |*runner| {
            runner.* = .{ .threads = threads, .pool = .init(gpa) };
            runner.thread = try io.thread.spawnSized(options.stack_bytes, Runner.run, .{runner});
            started += 1;
        }
        return threads;
    }

    /// Waits for the requests that threads are at. Those that still wait for one get no answer (500).
    pub fn deinit(threads: *Threads) void {
        threads.stop(threads.runners.len);
        threads.gpa.free(threads.runners);
        threads.gpa.destroy(threads);
    }

    fn stop(threads: *Threads, started: usize) void {
        threads.lock();
        threads.closing = true;
        var job = threads.first;
        threads.first = null;
        threads.last = null;
        threads.waiting_count = 0;
        var runner = threads.idle;
        threads.idle = null;
        threads.unlock();
        while (runner) |one| {
            runner = one.next;
            one.given.set();
        }
        while (job) |one| {
            job = one.next;
            one.detached.drop();
            threads.free(one);
        }
        for (threads.runners[0..started]) |*one| {
            one.thread.join();
            one.pool.deinit();
        }
    }

    /// Lets one of the threads answer the request: it calls
    ///
    ///     function(context, request: *Request, response: *Response) !void
    ///
    /// with a copy of the request, its body included, and a response of its own, so that the handler may
    /// return, and `request.arena` may be used. What TLS has agreed on stays behind, and no file can be sent.
    /// `write` waits for clients that are slow. An error is answered as one of a handler is: by the
    /// `handleError` of `context`, if it has one. `context` is a pointer, and is there as long as the threads
    /// are. The client may leave meanwhile: nobody tells the function, and its answer is dropped.
    /// `error.QueueFull` may be returned by the handler; it is a 503.
    pub fn run(
        threads: *Threads,
        context: anytype,
        comptime function: anytype,
        request: *Request,
        response: *Response,
    ) RunError!void {
        const Context = @TypeOf(context);
        const Call = struct {
            fn call(pointer: *anyopaque, copy: *Request, reply: *Response) void {
                const typed: Context = @ptrCast(@alignCast(pointer));
                if (contract.failure(function(typed, copy, reply))) |err| fail(typed, copy, reply, err);
            }

            fn fail(typed: Context, copy: *Request, reply: *Response, err: anyerror) void {
                const has_started = reply.state != .collecting;
                reply.reset() catch {}; // it has started
                const status: Status = .ofError(err);
                if (@hasDecl(@typeInfo(Context).pointer.child, "handleError")) {
                    reply.status = status;
                    typed.handleError(copy, reply, err);
                } else {
                    if (has_started or status == .internal_server_error) {
                        complain("{s} {s}: a function for threads returned error.{t}", .{
                            copy.methodText(), copy.getPath(), err,
                        });
                    }
                    reply.answerStatus(status) catch {};
                }
                if (has_started) reply.abort();
            }
        };
        const bytes = Job.sizeOf(request);
        try threads.reserve(bytes);
        const job = Job.create(threads.gpa, bytes, request, response) catch |err| {
            threads.cancel(bytes);
            return err;
        };
        job.call = Call.call;
        job.context = @ptrCast(@constCast(context));
        if (threads.runners.len == 0) return threads.doAtOnce(job);
        threads.put(job);
    }

    /// Requests that wait for a thread.
    pub fn waiting(threads: *Threads) u32 {
        threads.lock();
        defer threads.unlock();
        return threads.waiting_count;
    }

    fn reserve(threads: *Threads, bytes: usize) error{QueueFull}!void {
        threads.lock();
        defer threads.unlock();
        const options = &threads.options;
        const is_busy = threads.idle == null and threads.runners.len > 0;
        if (is_busy and threads.waiting_count >= options.queue_max) return error.QueueFull;
        const held = threads.held_bytes;
        if (held > 0 and bytes > options.queue_bytes_max -| held) return error.QueueFull;
        threads.waiting_count += 1;
        threads.held_bytes += bytes;
    }

    fn cancel(threads: *Threads, bytes: usize) void {
        threads.lock();
        defer threads.unlock();
        threads.waiting_count -= 1;
        threads.held_bytes -= bytes;
    }

    fn put(threads: *Threads, job: *Job) void {
        threads.lock();
        const runner = threads.idle orelse {
            if (threads.last) |last| last.next = job else threads.first = job;
            threads.last = job;
            return threads.unlock();
        };
        threads.idle = runner.next;
        threads.waiting_count -= 1;
        threads.unlock();
        runner.job = job;
        runner.given.set();
    }

    /// The next request for a thread; null: it will be given one, or the end.
    fn take(threads: *Threads, runner: *Runner) ?*Job {
        threads.lock();
        defer threads.unlock();
        const job = threads.first orelse {
            runner.given.reset();
            if (threads.closing) {
                runner.given.set();
            } else {
                runner.next = threads.idle;
                threads.idle = runner;
            }
            return null;
        };
        threads.first = job.next;
        if (threads.first == null) threads.last = null;
        threads.waiting_count -= 1;
        return job;
    }

    fn doAtOnce(threads: *Threads, job: *Job) void {
        threads.cancel(0);
        var pool: Pool = .init(threads.gpa);
        defer pool.deinit();
        job.may_wait = false;
        threads.do(job, &pool);
    }

    fn do(threads: *Threads, job: *Job, pool: *Pool) void {
        job.answer(pool, threads.options.body_bytes_max);
        threads.free(job);
    }

    fn free(threads: *Threads, job: *Job) void {
        const bytes = job.memory.len;
        threads.gpa.free(job.memory);
        threads.lock();
        defer threads.unlock();
        threads.held_bytes -= bytes;
    }

    fn lock(threads: *Threads) void {
        while (threads.busy.swap(true, .acquire)) std.Thread.yield() catch {};
    }

    fn unlock(threads: *Threads) void {
        threads.busy.store(false, .release);
    }
};

/// One thread.
const Runner = struct {
    threads: *Threads,
    thread: std.Thread = undefined,
    /// Of the responses that it makes.
    pool: Pool,
    /// The next one that has nothing to do.
    next: ?*Runner = null,
    given: io.Latch = .{},
    /// Null with `given` set: the end.
    job: ?*Job = null,

    fn run(runner: *Runner) void {
        const threads = runner.threads;
        while (true) {
            const job = threads.take(runner) orelse given: {
                runner.given.wait();
                const given = runner.job orelse return;
                runner.job = null;
                break :given given;
            };
            threads.do(job, &runner.pool);
        }
    }
};

/// A request on its way through a thread: the copy that its function sees.
const Job = struct {
    next: ?*Job = null,
    /// This struct and what its request is made of.
    memory: []align(alignment) u8,
    detached: Detached,
    /// Nobody has finished `detached`.
    is_open: bool = true,
    /// For clients that are slow.
    may_wait: bool = true,
    request: Request,
    head: Head,
    trailers: Head,
    call: *const fn (*anyopaque, *Request, *Response) void,
    context: *anyopaque,
    response: Response,
    arena: Arena,

    const alignment = 16;
    const own_bytes = std.mem.alignForward(usize, @sizeOf(Job), alignment);
    /// The longest message of bytes that goes to the worker.
    const piece_bytes_max = 256 * 1024;

    comptime {
        assert(@alignOf(Job) <= alignment);
    }

    /// The memory of a copy.
    fn sizeOf(request: *const Request) usize {
        return own_bytes + headBytes(request.head) +
            (if (request.trailers) |trailers| headBytes(trailers) else 0) +
            request.peer.len + request.body.len;
    }

    /// Detaches the response; on an error it is as it was.
    fn create(
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

    /// Calls the function, and sends what it has left to be sent.
    fn answer(job: *Job, pool: *Pool, body_bytes_max: usize) void {
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
            .streaming => job.finish(null) catch {}, // the server is gone
            .blocked => unreachable, // `write` has waited
            .ended, .lost => {},
        }
        if (job.is_open) job.detached.drop();
    }

    /// What was collected as one answer, in pieces if it is long.
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

    /// A piece of the body, in messages that are not too long for the mailbox.
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
            .blocks, .request => unreachable, // `link` takes none
            .file, .parts => error.OutOfOrder,
        };
    }

    /// The last word: a whole answer, or the end of one that has begun.
    fn finish(job: *Job, whole: ?Detached.Answer) SendError!void {
        const result = if (whole) |all| job.patiently(Detached.answer, .{all}) else job.detached.end();
        result catch |err| return failure(err);
        job.is_open = false;
        job.response.state = .ended;
    }

    /// Waits while clients are slow, which this thread may do. They have deadlines.
    fn patiently(job: *Job, comptime say: anytype, what: anytype) Detached.Error!void {
        const pause_ms = 5;
        while (true) {
            return @call(.auto, say, .{job.detached} ++ what) catch |err| switch (err) {
                error.Full => {
                    // What does not get into an empty mailbox never does.
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

    // ---- What a response asks for

    const link: Link = .{
        .send = send,
        .inform = inform,
        .abort = abort,
        .detach = detach,
        .repeat = repeat,
        .offersWebSocket = offersNone,
        .takes_blocks = false,
    };

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

    /// It goes on elsewhere.
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
