//! A host that answers late, in pieces and out of turn: when `step` is called, not when asked. What it
//! answers stands in the request's target, "/MODE/ID/SIZE"; WebSocket messages it sends back. In some
//! histories it also acts inside the worker's calls: it answers there, cuts exchanges, stops the worker, and
//! clients go while it is at it.
const std = @import("std");
const per = @import("peregrine");
const assert = std.debug.assert;

/// `whole`: a body of SIZE with its length. `chunked`: the same in chunks. `file`: the same from a file.
/// `echo`: the request's body. `socket`: a WebSocket.
pub const Mode = enum { whole, chunked, file, echo, socket };

pub const piece_max = 40_000;
/// The longest file that a client asks for.
const file_max = 100_000;

/// The pieces in which the answer to request `id` is written.
pub fn pieceSize(id: usize) usize {
    return ([_]usize{ 1, 100, 5_000, piece_max })[id % 4];
}

/// The bytes of body `id` from `from` on.
pub fn pattern(buffer: []u8, id: usize, from: usize, len: usize) []u8 {
    for (buffer[0..len], from..) |*byte, at| byte.* = @intCast('a' + (id * 7 + at) % 26);
    return buffer[0..len];
}

/// The message after which the host closes a WebSocket.
pub const last_message = "bye";

const Job = struct {
    ticket: per.Ticket,
    mode: Mode,
    id: usize,
    size: usize,
    started: bool = false,
    sent: usize = 0,
    blocked: bool = false,
    flushing: bool = false,
    /// Echo: the body as it comes.
    body: std.ArrayList(u8) = .empty,
    body_complete: bool = false,
    body_asked: bool = false,
    half_closed: bool = false,
    /// Messages to send back, oldest first.
    messages: std.ArrayList(Message) = .empty,
    flow: per.Incoming.Flow = .all,
    /// The next message may be of any size.
    asked: bool = false,

    const Message = struct { kind: per.WebSocketKind, bytes: []u8 };

    fn deinit(job: *Job, gpa: std.mem.Allocator) void {
        job.body.deinit(gpa);
        for (job.messages.items) |message| gpa.free(message.bytes);
        job.messages.deinit(gpa);
    }
};

/// A host that wants this. One that pushes also answers while it is being told of a request.
pub fn HostOf(comptime wanted: per.Demand) type {
    return struct {
        const Self = @This();
        pub const demand = wanted;

        gpa: std.mem.Allocator,
        random: std.Random,
        jobs: std.ArrayList(Job) = .empty,
        finished_count: usize = 0,
        aborted_count: usize = 0,
        /// Lines of the access log.
        line_count: usize = 0,
        closed_count: usize = 0,
        stopped_seen: bool = false,
        fresh: bool = false,
        /// Calls out of 1000 in which it does something, and the clients that may go then.
        meddling_permille: u16 = 0,
        clients: []const per.io.SimPeer = &.{},
        meddling: bool = false,
        /// The host stopped the worker while clients were connected.
        has_stopped: bool = false,
        /// Now and then it wants to hear when all output of an exchange is with the kernel.
        flushes: bool = false,
        /// Now and then it takes no messages for a while.
        lags: bool = false,
        is_behind: bool = false,

        pub fn deinit(host: *Self) void {
            for (host.jobs.items) |*job| job.deinit(host.gpa);
            host.jobs.deinit(host.gpa);
        }

        fn find(host: *Self, ticket: per.Ticket) *Job {
            for (host.jobs.items) |*job| if (job.ticket == ticket) return job;
            unreachable; // an event for an exchange that has ended, or was never begun
        }

        fn drop(host: *Self, ticket: per.Ticket) void {
            const job = host.find(ticket);
            job.deinit(host.gpa);
            job.* = host.jobs.items[host.jobs.items.len - 1];
            host.jobs.items.len -= 1;
        }

        /// Inside a call of the worker's: something happens of which the worker knows nothing when the call
        /// returns.
        fn meddle(host: *Self, worker: anytype) void {
            if (host.meddling or host.random.uintLessThan(u16, 1000) >= host.meddling_permille) return;
            host.meddling = true;
            defer host.meddling = false;
            switch (host.random.uintLessThan(u8, 16)) {
                0 => {
                    host.has_stopped = true;
                    worker.drain();
                },
                1...3 => if (host.jobs.items.len > 0) {
                    const job = host.jobs.items[host.random.uintLessThan(usize, host.jobs.items.len)];
                    const exchange = worker.find(job.ticket) orelse return;
                    host.drop(job.ticket);
                    worker.abort(exchange);
                },
                4...5 => host.clients[host.random.uintLessThan(usize, host.clients.len)].reset(),
                6 => for (host.clients) |client| client.reset(),
                else => {},
            }
            if (host.random.uintLessThan(u8, 4) > 0) host.step(worker) catch unreachable;
        }

        pub fn waiting(host: *const Self) bool {
            return host.fresh;
        }

        pub fn isBehind(host: *const Self, _: *const per.Exchange) bool {
            return host.is_behind;
        }

        /// A request, or more of it, has come.
        fn told(host: *Self, worker: anytype, ticket: per.Ticket) void {
            if (demand.pace == .push and host.random.boolean()) host.goOn(worker, ticket) catch unreachable;
            host.meddle(worker);
        }

        pub fn request(host: *Self, worker: anytype, exchange: *per.Exchange, head: *const per.Head) void {
            var parts = std.mem.tokenizeScalar(u8, head.target.of(head.text), '/');
            host.jobs.append(host.gpa, .{
                .ticket = exchange.ticket,
                .mode = std.meta.stringToEnum(Mode, parts.next().?).?,
                .id = std.fmt.parseInt(usize, parts.next().?, 10) catch unreachable,
                .size = std.fmt.parseInt(usize, parts.next().?, 10) catch unreachable,
                .body_complete = exchange.inputComplete(),
            }) catch unreachable;
            if (demand.body == .whole) host.takeWhole(worker, exchange);
            host.fresh = true;
            host.told(worker, exchange.ticket);
        }

        fn takeWhole(host: *Self, worker: anytype, exchange: *per.Exchange) void {
            assert(exchange.inputComplete() or exchange.websocket != null);
            const intake = exchange.takeIntake() orelse return;
            const job = &host.jobs.items[host.jobs.items.len - 1];
            job.body.appendSlice(host.gpa, intake.bytes() catch unreachable) catch unreachable;
            worker.dropIntake(intake);
        }

        pub fn body(host: *Self, worker: anytype, exchange: *per.Exchange, bytes: []const u8) void {
            assert(demand.body == .streamed);
            const job = host.find(exchange.ticket);
            job.body.appendSlice(host.gpa, bytes) catch unreachable;
            job.body_asked = false;
            host.meddle(worker);
        }

        pub fn trailers(_: *Self, _: anytype, _: *per.Exchange, _: *const per.Head) void {}

        pub fn bodyEnd(host: *Self, worker: anytype, exchange: *per.Exchange) void {
            host.find(exchange.ticket).body_complete = true;
            host.told(worker, exchange.ticket);
        }

        pub fn drained(host: *Self, worker: anytype, exchange: *per.Exchange) void {
            const job = host.find(exchange.ticket);
            assert(job.blocked);
            job.blocked = false;
            host.meddle(worker);
        }

        pub fn flushed(host: *Self, worker: anytype, exchange: *per.Exchange) void {
            assert(host.find(exchange.ticket).flushing);
            host.find(exchange.ticket).flushing = false;
            host.meddle(worker);
        }

        pub fn finished(host: *Self, worker: anytype, exchange: *per.Exchange) void {
            host.finished_count += 1;
            host.drop(exchange.ticket);
            host.meddle(worker);
        }

        pub fn aborted(host: *Self, worker: anytype, exchange: *per.Exchange, _: per.Reason) void {
            host.aborted_count += 1;
            host.drop(exchange.ticket);
            host.meddle(worker);
        }

        pub fn message(
            host: *Self,
            worker: anytype,
            exchange: *per.Exchange,
            kind: per.WebSocketKind,
            bytes: []const u8,
        ) void {
            const job = host.find(exchange.ticket);
            switch (job.flow) {
                .all => {},
                .on_demand => assert(job.asked or bytes.len <= per.Budget.large_bytes),
                .none => unreachable,
            }
            job.asked = false;
            assert(!host.is_behind);
            const copy = host.gpa.dupe(u8, bytes) catch unreachable;
            job.messages.append(host.gpa, .{ .kind = kind, .bytes = copy }) catch unreachable;
            host.fresh = true;
            host.meddle(worker);
        }

        pub fn closed(
            host: *Self,
            worker: anytype,
            exchange: *per.Exchange,
            _: per.WebSocketClose,
            _: ?per.Reason,
        ) void {
            host.closed_count += 1;
            host.drop(exchange.ticket);
            host.meddle(worker);
        }

        pub fn halfClosed(host: *Self, worker: anytype, exchange: *per.Exchange) void {
            const job = host.find(exchange.ticket);
            assert(!job.half_closed and exchange.websocket == null);
            job.half_closed = true;
            host.meddle(worker);
        }

        pub fn stopped(host: *Self, _: anytype) void {
            host.stopped_seen = true;
        }

        pub fn lines(host: *Self, _: anytype, text: []const u8) void {
            host.line_count += std.mem.count(u8, text, "\n");
        }
        pub fn notice(_: *Self, _: anytype, _: ?*per.Exchange, _: per.Level, _: []const u8) void {}

        /// Lets the host take messages from now on, or not.
        pub fn setBehind(host: *Self, worker: anytype, is_behind: bool) void {
            host.is_behind = is_behind;
            if (!is_behind) worker.unpark();
        }

        /// Most jobs go on by one step.
        pub fn step(host: *Self, worker: anytype) !void {
            host.fresh = false;
            if (host.lags and host.random.uintLessThan(u8, 8) == 0) host.setBehind(worker, !host.is_behind);
            var i: usize = 0;
            while (i < host.jobs.items.len) {
                const ticket = host.jobs.items[i].ticket;
                if (host.random.uintLessThan(u8, 4) > 0) try host.goOn(worker, ticket);
                if (host.flushes and host.random.uintLessThan(u8, 8) == 0) host.flush(worker, ticket);
                // Not at the end of the round: the worker sees at once who is gone.
                if (host.meddling) if (worker.find(ticket)) |exchange| worker.sendNow(exchange);
                // The job may be gone, and another one in its place.
                if (i < host.jobs.items.len and host.jobs.items[i].ticket == ticket) i += 1;
            }
        }

        fn flush(host: *Self, worker: anytype, ticket: per.Ticket) void {
            const exchange = worker.find(ticket) orelse return;
            if (worker.flush(exchange)) return;
            host.find(ticket).flushing = true;
        }

        /// Takes a job a step further. The job is given up if there is no memory.
        fn goOn(host: *Self, worker: anytype, ticket: per.Ticket) !void {
            host.advance(worker, host.find(ticket)) catch |err| {
                if (err != error.OutOfMemory) return err;
                const exchange = worker.find(ticket) orelse return;
                host.drop(ticket);
                worker.abort(exchange);
            };
        }

        fn advance(host: *Self, worker: anytype, job: *Job) !void {
            if (job.blocked) return;
            const exchange = worker.find(job.ticket) orelse return; // all queued; `finished` will come
            if (job.mode == .socket) return host.advanceSocket(worker, exchange, job);
            if (job.mode == .echo and !job.body_complete) {
                if (!job.body_asked and demand.pace == .pull) try worker.read(exchange);
                job.body_asked = true;
                return;
            }
            var text: [24]u8 = undefined;
            const size = if (job.mode == .echo) job.body.items.len else job.size;
            const fields = [_]per.Field{
                .init("Date", "now"),
                .init("Content-Length", std.fmt.bufPrint(&text, "{d}", .{size}) catch unreachable),
            };
            if (!job.started) {
                job.started = true;
                const count: usize = if (job.mode == .chunked) 1 else 2;
                const outcome = try worker.start(exchange, .{ .status = 200, .fields = fields[0..count] });
                return host.note(job, outcome);
            }
            if (job.mode == .echo) {
                const content: per.Content = .{ .bytes = job.body.items };
                return host.note(job, try worker.write(exchange, content, .{ .last = true }));
            }
            if (job.mode == .file) {
                var bytes: [file_max]u8 = undefined;
                const fd = try per.io.sharing.fileOf(pattern(&bytes, job.id, 0, size));
                const content: per.Content = .{ .file = .{ .fd = fd, .offset = 0, .len = size } };
                return host.note(job, worker.write(exchange, content, .{ .last = true }) catch |err| {
                    per.io.file.close(fd);
                    return err;
                });
            }
            var buffer: [piece_max]u8 = undefined;
            const piece = pattern(&buffer, job.id, job.sent, @min(pieceSize(job.id), size - job.sent));
            job.sent += piece.len;
            host.note(job, try worker.write(exchange, .{ .bytes = piece }, .{ .last = job.sent == size }));
        }

        fn advanceSocket(host: *Self, worker: anytype, exchange: *per.Exchange, job: *Job) !void {
            if (!job.started) {
                job.started = true;
                return worker.acceptWebSocket(exchange, .{});
            }
            if (host.random.uintLessThan(u8, 8) == 0) {
                job.flow = host.random.enumValue(per.Incoming.Flow);
                job.asked = false;
                try worker.setFlow(exchange, job.flow);
            }
            if (job.flow == .on_demand and host.random.boolean()) {
                job.asked = true;
                try worker.read(exchange);
            }
            if (job.messages.items.len == 0) return;
            const oldest = job.messages.orderedRemove(0);
            defer host.gpa.free(oldest.bytes);
            if (std.mem.eql(u8, oldest.bytes, last_message)) {
                return worker.closeWebSocket(exchange, 1000, last_message) catch |err| switch (err) {
                    // The worker closes all of them then.
                    error.AlreadyClosed => assert(worker.stopping != .no),
                    else => return err,
                };
            }
            host.note(job, worker.sendMessage(exchange, oldest.kind, oldest.bytes) catch |err| switch (err) {
                error.NotOpen => return,
                else => return err,
            });
        }

        fn note(host: *Self, job: *Job, outcome: per.Outcome) void {
            switch (outcome) {
                .accepted => {},
                .blocked => job.blocked = true,
                .done => {
                    host.finished_count += 1;
                    host.drop(job.ticket);
                },
            }
        }
    };
}

pub const Host = HostOf(.pull);
pub const Worker = per.Worker(per.io.Sim, Host);
