//! The application of a history: polls, hands events to its jobs, and lets them speak late and out of turn.
//! Checks what it is promised by peregrine.h: an exchange ends once, no event comes for one that has ended,
//! and its `user` stays what it was.
const std = @import("std");
const assert = std.debug.assert;
const abi = @import("abi");
const asleep = @import("asleep.zig");
const types = abi.types;
const Code = types.Code;
const schedule = @import("platform").schedule;
const Schedule = schedule.Schedule;
const record_file = @import("record.zig");
const Record = record_file.Record;
const job_file = @import("job.zig");
const Job = job_file.Job;
const Speech = @import("speech.zig").Speech;

/// How it goes about its work.
pub const Manners = struct {
    /// The seed of the jobs' own random numbers.
    seed: u64,
    /// Wrong commands out of 100.
    mistakes: u8,
    /// Polls out of 100 before which it computes for a while.
    slow_percent: u8,
    /// Milliseconds that a slow application takes at most.
    slow_ms: u64,
    /// Jobs out of 100 that do not get to speak between two polls, although they could.
    late_percent: u8,
    /// The application watches the descriptor, as an event loop does, and never waits inside of poll.
    watches: bool,
    /// The application leaves at this poll: the worker is freed in the middle of everything.
    leaves_at: ?usize,
};

/// Runs on the first thread of the schedule.
pub const Application = struct {
    gpa: std.mem.Allocator,
    random: std.Random,
    manners: Manners,
    handle: *abi.Handle,
    speech: Speech,
    records: []Record,
    jobs: std.ArrayList(*Job) = .empty,
    /// Tickets of exchanges that have ended.
    buried: std.ArrayList(types.Ticket) = .empty,
    /// The bytes of the events that were polled last.
    shown: std.ArrayList(Shown) = .empty,
    polls: usize = 0,
    polled_nothing: bool = false,
    /// Nothing more will come: it drains the worker and ends.
    closing: bool = false,
    drained: bool = false,
    /// The drain takes too long: it cuts.
    hurries: bool = false,
    cut: bool = false,
    stopped: bool = false,
    lines: usize = 0,
    failure: ?anyerror = null,

    const Shown = struct { bytes: []const u8, hash: u64 };

    pub fn deinit(application: *Application) void {
        application.shown.deinit(application.gpa);
        for (application.jobs.items) |job| application.free(job);
        application.jobs.deinit(application.gpa);
        application.buried.deinit(application.gpa);
    }

    fn free(application: *Application, job: *Job) void {
        job.deinit();
        application.gpa.destroy(job);
    }

    /// The thread.
    pub fn run(argument: *anyopaque) void {
        const application: *Application = @ptrCast(@alignCast(argument));
        application.live() catch |err| {
            application.failure = err;
        };
        application.stopped = true;
    }

    fn live(application: *Application) !void {
        while (!application.stopped) {
            if (application.manners.leaves_at) |at| if (application.polls >= at) return;
            const events = try application.poll();
            // The jobs' pointers in the events of the next poll would dangle.
            for (events) |*event| {
                try application.noteShown(event);
                try application.take(event);
            }
            for (application.jobs.items) |job| job.pause -|= 1;
            try application.letSpeak();
            application.speech.takeBack();
            try application.meddle();
            if (asleep.pairOf(application.handle)) |pair| pair.application.invariants();
            if (application.closing and !application.drained) {
                application.drained = true;
                abi.peregrine_drain(application.handle);
            }
            if (application.hurries and !application.cut) {
                application.cut = true;
                abi.peregrine_cut(application.handle);
            }
            try application.checkShown();
        }
    }

    fn noteShown(application: *Application, event: *const types.Event) !void {
        const head = if (event.request) |request| request.text[0..request.text_len] else "";
        for ([_][]const u8{ event.bytes[0..event.len], head }) |bytes| if (bytes.len > 0) {
            const hash = std.hash.Wyhash.hash(0, bytes);
            try application.shown.append(application.gpa, .{ .bytes = bytes, .hash = hash });
        };
    }

    /// Until the next poll the bytes of events stay as they are, whatever the engine does meanwhile.
    fn checkShown(application: *Application) !void {
        for (application.shown.items) |*shown| {
            if (std.hash.Wyhash.hash(0, shown.bytes) != shown.hash) return error.EventHasChanged;
        }
        application.shown.clearRetainingCapacity();
    }

    fn chance(application: *Application, percent: u8) bool {
        return application.random.uintLessThan(u8, 100) < percent;
    }

    fn poll(application: *Application) ![]const types.Event {
        if (application.chance(application.manners.slow_percent)) application.compute();
        application.polls += 1;
        var timeout_ms: c_int = -1;
        for (application.jobs.items) |job| {
            if (job.pause > 0 or job.isReady()) timeout_ms = application.random.intRangeAtMost(c_int, 0, 2);
        }
        if (application.closing and !application.drained) timeout_ms = 0;
        if (application.manners.watches) {
            // After events it has to poll again first.
            const waits = application.polled_nothing and timeout_ms != 0;
            if (asleep.pairOf(application.handle)) |pair| if (waits) {
                pair.wakeup.wait(timeout_ms);
                timeout_ms = 0;
            };
        }
        var events: [*]const types.Event = undefined;
        const count = abi.peregrine_poll(application.handle, timeout_ms, &events);
        if (count < 0) return error.PollFailed;
        application.polled_nothing = count == 0;
        return if (count == 0) &.{} else events[0..@intCast(count)];
    }

    /// Other work: nobody wakes it.
    fn compute(application: *Application) void {
        const present = Schedule.present.?;
        const until = present.clock.* + application.random.uintAtMost(u64, application.manners.slow_ms);
        present.waitFor(.{ .context = application, .isOver = never, .until = until });
    }

    fn never(_: *anyopaque) bool {
        return false;
    }

    // ---- Events

    fn take(application: *Application, event: *const types.Event) !void {
        switch (event.kind) {
            .stopped => application.stopped = true,
            .notice, .ending => {},
            .lines => application.lines += std.mem.countScalar(u8, event.bytes[0..event.len], '\n'),
            .request => try application.open(event),
            else => try application.tell(event),
        }
    }

    fn open(application: *Application, event: *const types.Event) !void {
        const request = event.request.?;
        const path = request.text[request.path.at..][0..request.path.len];
        const id = std.fmt.parseInt(usize, path[1..], 10) catch return error.StrangeRequest;
        const record = &application.records[id];
        if (record.came or event.user != null) return error.SecondRequest;
        for (application.jobs.items) |job| if (job.ticket == event.ticket) return error.TicketInUse;
        record.came = true;
        const job = try application.gpa.create(Job);
        job.* = .init(record, event.ticket, application.manners.seed, application.manners.mistakes, event);
        job.poll = application.polls;
        try application.jobs.append(application.gpa, job);
        if (abi.peregrine_set_user(application.handle, event.ticket, job) != Code.ok) {
            // Inline the exchange may be gone already; then its end comes without a pointer.
            if (asleep.pairOf(application.handle) != null) return error.NoUser;
        }
        try application.hearBody(job, event);
    }

    fn find(application: *Application, ticket: types.Ticket) ?*Job {
        for (application.jobs.items) |job| if (job.ticket == ticket) return job;
        return null;
    }

    fn tell(application: *Application, event: *const types.Event) !void {
        const job = application.find(event.ticket) orelse {
            std.debug.print("\n{t} for an exchange that has ended\n", .{event.kind});
            return error.EventAfterEnd;
        };
        // An event in the same batch as its request cannot have the pointer of the application yet.
        const fresh = job.poll == application.polls;
        const user: ?*anyopaque = if (fresh) null else job;
        if (asleep.pairOf(application.handle) != null and event.user != user) return error.WrongUser;
        switch (event.kind) {
            .body => try application.hearBody(job, event),
            .drained => {
                if (job.waits == .room) job.waits = .nothing;
                job.blocked = false;
            },
            .flushed => {
                if (job.waits != .flushed) return error.FlushedUnasked;
                job.waits = .nothing;
            },
            .half_closed => {},
            .message => try application.hearMessage(job, event),
            .finished => {
                if (job.waits != .end) return error.FinishedTooEarly;
                try application.end(job, .finished);
            },
            .aborted => try application.end(job, .aborted),
            .closed => try application.end(job, .closed),
            .request, .stopped, .notice, .lines, .topic, .ending => unreachable,
        }
    }

    fn hearBody(_: *Application, job: *Job, event: *const types.Event) !void {
        const record = job.record;
        try record.heard.appendSlice(record.gpa, event.bytes[0..event.len]);
        if (event.request) |request| if (request.body_fd >= 0) try readFile(record, request);
        for (record.heard.items, 0..) |byte, at| {
            if (byte != @as(u8, @intCast('a' + (record.id * 7 + at) % 26))) return error.WrongBody;
        }
        if (event.flags & types.EventFlag.last != 0) {
            job.body_complete = true;
            if (!record.handshake and record.heard.items.len != record.sends) {
                std.debug.print(
                    "\nid {d}: {d} bytes of {d}\n",
                    .{ record.id, record.heard.items.len, record.sends },
                );
                return error.BodyCutShort;
            }
        }
        if (event.kind == .body and job.waits == .body) job.waits = .nothing;
    }

    /// A whole body that the engine has put into a file.
    fn readFile(record: *Record, request: *const types.Request) !void {
        const space = try record.heard.addManyAsSlice(record.gpa, @intCast(request.body_length));
        const len = std.os.linux.pread(request.body_fd, space.ptr, space.len, 0);
        if (len != space.len) return error.BodyCutShort;
    }

    fn hearMessage(_: *Application, job: *Job, event: *const types.Event) !void {
        const record = job.record;
        record.got += 1;
        const bytes = try record.gpa.dupe(u8, event.bytes[0..event.len]);
        try job.inbox.append(
            record.gpa,
            .{ .text = event.flags & types.EventFlag.text != 0, .bytes = bytes },
        );
    }

    fn end(application: *Application, job: *Job, how: Record.End) !void {
        if (job.record.end != .none) return error.EndsTwice;
        job.record.end = how;
        try application.bury(job);
    }

    fn bury(application: *Application, job: *Job) !void {
        try application.buried.append(application.gpa, job.ticket);
        const index = std.mem.findScalar(*Job, application.jobs.items, job).?;
        _ = application.jobs.swapRemove(index);
        application.free(job);
    }

    // ---- Commands

    fn letSpeak(application: *Application) !void {
        var order: std.ArrayList(*Job) = .empty;
        defer order.deinit(application.gpa);
        try order.appendSlice(application.gpa, application.jobs.items);
        application.random.shuffle(*Job, order.items);
        for (order.items) |job| {
            if (!job.isReady() or application.chance(application.manners.late_percent)) continue;
            if (!try job.step(&application.speech, application.random)) try application.bury(job);
        }
    }

    fn oneOf(application: *Application, comptime T: type, items: []const T) T {
        return items[application.random.uintLessThan(usize, items.len)];
    }

    /// Calls that change nothing, and commands for those that have gone.
    fn meddle(application: *Application) !void {
        const handle = application.handle;
        switch (application.random.uintLessThan(u8, 200)) {
            0 => {
                var stats: types.Stats = undefined;
                stats.size = @sizeOf(types.Stats);
                abi.peregrine_worker_stats(handle, @ptrCast(&stats));
            },
            1 => if (abi.peregrine_worker_set(handle, "idle_ms", 0) != Code.ok) return error.LimitRefused,
            2...8 => if (application.jobs.items.len > 0) {
                const job = application.oneOf(*Job, application.jobs.items);
                _ = abi.peregrine_buffered(handle, job.ticket);
                const user = abi.peregrine_user(handle, job.ticket);
                const has_pair = asleep.pairOf(handle) != null;
                if (has_pair and user != @as(?*anyopaque, job)) return error.WrongUser;
            },
            9...20 => if (application.buried.items.len > 0) {
                try application.disturb(application.oneOf(types.Ticket, application.buried.items));
            },
            21 => try application.disturb(application.random.int(u64)),
            else => {},
        }
    }

    /// The exchange is none, or has ended.
    fn disturb(application: *Application, ticket: types.Ticket) !void {
        const handle = application.handle;
        if (application.find(ticket) != null) return;
        const code = switch (application.random.uintLessThan(u8, 6)) {
            0 => abi.peregrine_write(handle, ticket, "late", 4, types.RespondFlag.end),
            1 => abi.peregrine_flush(handle, ticket),
            2 => abi.peregrine_abort(handle, ticket),
            3 => abi.peregrine_write_file(handle, ticket, application.speech.file, 0, 1),
            4 => abi.peregrine_read(handle, ticket),
            else => abi.peregrine_send_message(handle, ticket, "late", 4, 0),
        };
        if (code != Code.gone) {
            std.debug.print("\na command for an exchange that has ended: {d}\n", .{code});
            return error.NotGone;
        }
    }
};
