//! A request for a file of a folder whose storage may take for ever to answer: a thread looks for the file
//! and makes a response of it, and only the request's exchange waits. Storage that does not answer has as
//! much time as a peer that takes nothing (`Config.write_ms`), then the exchange is cut.
//! Does not know: which folders there are, and what is in them.
const std = @import("std");
const assert = std.debug.assert;
const peregrine = @import("peregrine");
const platform = @import("platform");
const Exchange = peregrine.Exchange;
const Folder = @import("folder.zig").Folder;
const Head = peregrine.Head;
const Task = peregrine.io.StorageTask;
const gpa = platform.gpa;

/// A thread's look into a folder, for a host and a worker of these types (pointers).
pub fn Visit(comptime Host: type, comptime Worker: type) type {
    return struct {
        const Self = @This();

        /// The folder to look into, and the host that goes on with aside `next` if it has no such file.
        pub const Plan = struct { folder: *Folder, next: usize, host: Host, worker: Worker };

        task: Task = .{ .work = work, .drop = drop, .done = done },
        plan: Plan,
        ticket: peregrine.Ticket,
        /// The idle limit of the exchange before it waited, in milliseconds.
        idle_ms: u32,
        memory: []align(@alignOf(usize)) u8,
        head: Head,
        pool: peregrine.Pool,
        draft: peregrine.aside.Draft,
        has_answer: bool = false,

        /// Lets a thread look. False: there is no memory or no thread for that, and nothing has happened.
        pub fn begin(plan: Plan, exchange: *Exchange, head: *const Head) bool {
            const visit = create(plan, exchange, head) catch return false;
            const worker = plan.worker;
            const before = exchange.detain(worker.clock.now, worker.config.write_ms);
            worker.store(&visit.task) catch {
                exchange.undoDetention(before);
                visit.destroy();
                return false;
            };
            return true;
        }

        fn create(plan: Plan, exchange: *Exchange, head: *const Head) error{OutOfMemory}!*Self {
            const visit = try gpa.create(Self);
            errdefer gpa.destroy(visit);
            const size = peregrine.copySize(head);
            const memory = try gpa.alignedAlloc(u8, .of(usize), size);
            visit.* = .{
                .plan = plan,
                .ticket = exchange.ticket,
                .idle_ms = exchange.idle_ms,
                .memory = memory,
                .head = peregrine.copyHead(head, memory),
                .pool = .init(gpa),
                .draft = undefined,
            };
            visit.draft.begin(&visit.pool, &visit.head);
            visit.draft.request.round_us = plan.worker.clock.round_us;
            plan.folder.retain();
            return visit;
        }

        fn destroy(visit: *Self) void {
            visit.draft.end();
            visit.pool.deinit();
            visit.plan.folder.release();
            gpa.free(visit.memory);
            gpa.destroy(visit);
        }

        /// Runs on a thread, which must not look at the host or the worker.
        fn work(task: *Task) void {
            const visit: *Self = @fieldParentPtr("task", task);
            const response = &visit.draft.response;
            const files = visit.plan.folder.files;
            visit.has_answer = files.serveIfThere(&visit.draft.request, response) catch blk: {
                response.dropBody();
                response.begin();
                response.status = .internal_server_error;
                break :blk true;
            };
        }

        fn drop(task: *Task) void {
            const visit: *Self = @fieldParentPtr("task", task);
            visit.destroy();
        }

        fn done(task: *Task, owner: *anyopaque) void {
            const visit: *Self = @fieldParentPtr("task", task);
            defer visit.destroy();
            const worker = visit.plan.worker;
            assert(@as(*anyopaque, @ptrCast(worker)) == owner);
            const exchange = worker.find(visit.ticket) orelse return; // the exchange has gone meanwhile
            assert(!exchange.isHeard() and exchange.status == 0);
            exchange.endDetention(visit.idle_ms, worker.clock.now);
            if (!visit.has_answer) return visit.goOn(exchange);
            peregrine.aside.deliverSlow(worker, exchange, &visit.draft.response, &visit.pool);
        }

        /// The folder has no such file: the request is another folder's, or the host's.
        fn goOn(visit: *Self, exchange: *Exchange) void {
            const plan = &visit.plan;
            const worker = plan.worker;
            const half_closed = exchange.half_closed;
            exchange.unsilence();
            worker.clients.note(exchange.lane, &visit.head);
            const asides = &plan.host.asides;
            if (asides.answerFrom(plan.next, plan.host, worker, exchange, &visit.head)) return;
            plan.host.announce(worker, exchange, &visit.head);
            if (!half_closed) return;
            const left = worker.find(visit.ticket) orelse return;
            plan.host.halfClosed(worker, left);
        }
    };
}
