//! Threads for handlers that block: a request is copied and handed to a thread (job.zig), and the response
//! that its function makes goes back to the worker as messages. The worker goes on meanwhile. No thread
//! touches the request's exchange: the worker notices a client that leaves, and drops the answer.
//! Does not know: workers, and what takes long.
const std = @import("std");
const io = @import("io");
const Pool = @import("server").Pool;
const contract = @import("handler.zig");
const Job = @import("job.zig").Job;
const Request = @import("request.zig").Request;
const ErrorPage = @import("response.zig").ErrorPage;
const Response = @import("response.zig").Response;
const Status = @import("status.zig").Status;

const complain = @import("complain.zig").complain;

/// Threads that answer requests, and requests that wait for a thread. Does not move.
pub const Threads = struct {
    gpa: std.mem.Allocator,
    options: Options,
    runners: []Runner,
    /// Guards the fields below. A thread holds it while it reads or changes them, never longer.
    busy: std.atomic.Value(bool) = .init(false),
    /// Threads with nothing to do.
    idle: ?*Runner = null,
    first: ?*Job = null,
    last: ?*Job = null,
    /// Requests in the list, and requests that are about to be put there.
    waiting_count: u32 = 0,
    /// Memory of all copies.
    held_bytes: usize = 0,
    closing: bool = false,

    pub const Options = struct {
        /// The number of threads; 0: the worker itself answers requests at once. For tests, whose answers
        /// then come in an order that is always the same.
        threads: u16 = 8,
        /// Requests that may wait for a thread; `run` refuses more (503).
        queue_max: u32 = 1024,
        /// Memory of all copies of requests, bodies included, in bytes; `run` refuses more (503), but for a
        /// request that is alone.
        queue_bytes_max: usize = 64 * 1024 * 1024,
        /// Stack of each thread, in bytes.
        stack_bytes: usize = 1024 * 1024,
        /// The largest response body, in bytes, if it is not written in pieces.
        body_bytes_max: usize = 10 * 1024 * 1024,
    };

    /// Why a request was not taken; it can still be answered.
    pub const RunError = error{ OutOfMemory, Closed, QueueFull };

    /// Starts the threads, which outlive all servers that use them. `gpa` has to be safe for threads.
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

    /// Waits for the requests that threads work on. Requests that still wait for a thread get a 500.
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
    /// return, and `request.arena` may be used. The facts of TLS are not copied, and no file can be sent.
    /// `write` waits for clients that are slow. An error is answered as one of a handler is: by the
    /// `handleError` of `context`, if it has one. `context` is a pointer, and is there as long as the threads
    /// are. The client may leave meanwhile: the function is not told, and its answer is dropped.
    /// `error.QueueFull` may be returned by the handler; it is a 503.
    pub fn run(
        threads: *Threads,
        context: anytype,
        comptime function: anytype,
        request: *Request,
        response: *Response,
    ) RunError!void {
        const Context = @TypeOf(context);
        const Owner = @typeInfo(Context).pointer.child;
        const Call = struct {
            fn page(pointer: *anyopaque, status: Status) ?ErrorPage {
                if (!@hasDecl(Owner, "handleErrorPage")) return null;
                const typed: Context = @ptrCast(@alignCast(pointer));
                return typed.handleErrorPage(status);
            }

            fn call(pointer: *anyopaque, copy: *Request, reply: *Response) void {
                const typed: Context = @ptrCast(@alignCast(pointer));
                if (contract.failure(function(typed, copy, reply))) |err| fail(typed, copy, reply, err);
            }

            fn fail(typed: Context, copy: *Request, reply: *Response, err: anyerror) void {
                const has_started = reply.state != .collecting;
                const status: Status = .ofError(err);
                reply.fail(status) catch {}; // the response has started
                if (@hasDecl(Owner, "handleError")) {
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
        job.page = Call.page;
        job.context = @ptrCast(@constCast(context));
        if (threads.runners.len == 0) return threads.doAtOnce(job);
        threads.put(job);
    }

    /// The number of requests that wait for a thread.
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

    /// The next request for a thread; null: the thread waits until `given` is set, with a job or for the end.
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

/// A thread that takes requests, one after the other.
const Runner = struct {
    threads: *Threads,
    thread: std.Thread = undefined,
    /// The pool for the responses that this thread makes.
    pool: Pool,
    /// The next runner in the list of idle ones.
    next: ?*Runner = null,
    given: io.Latch = .{},
    /// The next job; null with `given` set: the thread ends.
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
