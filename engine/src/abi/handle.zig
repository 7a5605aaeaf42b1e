//! `peregrine_worker`, the object that C holds: the way to an engine, which is in the caller's thread, in a
//! thread of its own, or behind the ring pair of an interpreter that has joined it.
//! Does not know: which functions C has (abi.zig).
const std = @import("std");
const assert = std.debug.assert;
const peregrine = @import("peregrine");
const ApplicationEnd = @import("application_end.zig").ApplicationEnd;
const Engine = @import("engine.zig").Engine;
const EngineWorker = @import("engine_worker.zig").EngineWorker;
const errors = @import("errors.zig");
const Interpreter = @import("interpreter.zig").Interpreter;
const platform = @import("platform");
const RingPair = @import("ring_pair.zig").RingPair;
const types = @import("types.zig");
const Code = types.Code;
const fork = peregrine.io.fork;
const gpa = platform.gpa;

/// An engine that runs when C polls, in C's thread.
pub const Here = struct {
    engine: *Engine,
    /// The index of the field for which a command was last refused.
    bad_field: usize = 0,
    /// C is handling events and will poll again before it waits, so the descriptor need not become readable
    /// because of commands that C gives meanwhile.
    busy: bool = false,
    /// The descriptor that C's own loop watches, if that loop waits in the engine: the engine's own
    /// descriptor need not become readable then.
    host_loop: ?c_int = null,

    /// Obeys a command, and flushes if the flags ask for it; returns the code of its outcome.
    inline fn answer(here: *Here, ticket: types.Ticket, command: peregrine.Command, flags: u32) c_int {
        const worker = &here.engine.worker;
        // A command may begin deadlines. The clock is right while C handles the events of a round; at other
        // times the last round may be long ago.
        if (!here.busy) worker.clock.goOn(worker.io.now());
        const name: peregrine.Ticket = @fromBackingInt(ticket);
        const exchange = worker.commanded(name, command) orelse return Code.gone;
        const outcome = worker.applyTo(exchange, command) catch |err| {
            here.bad_field = exchange.lane.session().badField();
            return errors.code(err);
        };
        if (flags & types.RespondFlag.flush != 0 and outcome != .done) {
            if (worker.find(name)) |same| worker.sendNow(same);
            if (worker.find(name)) |same| worker.sendStream(same);
        }
        // C may answer a whole batch before it polls again.
        if (worker.hasGrown()) worker.attendMemory();
        // Output that the next poll sends must not wait until an event causes that poll.
        here.arm();
        return outcomeCode(outcome);
    }

    /// Sends what is queued for an exchange, also on a stream: C may be busy for long before the next poll.
    fn sendNow(here: *Here, ticket: types.Ticket) void {
        const exchange = here.engine.worker.find(@fromBackingInt(ticket)) orelse return;
        here.engine.worker.sendStream(exchange);
        here.arm();
    }

    /// Makes the descriptor readable when the worker next has something to do.
    pub fn arm(here: *Here) void {
        if (here.busy or here.host_loop != null) return;
        assert(here.engine.host.link == null);
        // Without descriptors for a timer C is woken at once: busy, but nothing is late.
        here.engine.worker.armAlarm() catch here.engine.worker.io.wake();
    }
};

fn outcomeCode(outcome: EngineWorker.Outcome) c_int {
    return switch (outcome) {
        .accepted => Code.ok,
        .done => Code.done,
        .blocked => Code.blocked,
    };
}

/// A handle never moves.
pub const Handle = struct {
    /// `fork.count` of the process that the handle belongs to.
    forks: u32,
    home: Home,
    /// Posts of other threads; null: C has not asked for a mailbox.
    inbox: ?*peregrine.Inbox = null,
    /// The list that the last peregrine_tls_info_of points to.
    client_chain: std.ArrayList(types.Text) = .empty,

    /// The place of the engine.
    pub const Home = union(enum) {
        /// The engine runs in C's thread. Other threads read this union (`wake`), so the state that C's
        /// thread writes lies behind a pointer.
        here: *Here,
        /// The engine runs in a thread of its own, behind a ring pair.
        thread: *RingPair,
        /// Perhaps in another process: C runs one of its interpreters.
        joined: *Interpreter,
    };

    /// The place of the engine, or that it cannot be reached from this process.
    pub const Place = union(enum) {
        here: *Here,
        thread: *RingPair,
        joined: *Interpreter,
        /// This process was forked from the handle's: its descriptors are closed, and nothing of the engine
        /// may be touched any more.
        gone,
    };

    /// Makes a handle that belongs to this process.
    pub fn create(home: Home) error{OutOfMemory}!*Handle {
        const handle = try gpa.create(Handle);
        handle.* = .{ .forks = fork.count(), .home = home };
        return handle;
    }

    /// Frees the handle with its engine; an interpreter leaves its engine.
    pub fn destroy(handle: *Handle) void {
        switch (handle.place()) {
            .here => |here| {
                here.engine.destroy();
                gpa.destroy(here);
            },
            .thread => |pair| {
                const engine = pair.local;
                pair.destroy();
                engine.destroy();
            },
            .joined => |interpreter| interpreter.destroy(),
            .gone => return,
        }
        assert(handle.inbox == null);
        handle.client_chain.deinit(gpa);
        gpa.destroy(handle);
    }

    /// Gives an engine of C's, which has not been polled, a thread of its own; returns a code of the C API.
    pub fn useThread(handle: *Handle) c_int {
        const here = switch (handle.place()) {
            .here => |here| here,
            .thread => return Code.ok,
            .joined, .gone => return Code.gone,
        };
        const engine = here.engine;
        if (engine.polled) return Code.out_of_order;
        const pair = RingPair.create(gpa, engine) catch |err| {
            errors.setErrnoOf(err);
            return Code.system;
        };
        assert(engine.host.link == null and engine.pool == null);
        engine.host.link = &pair.engine.link;
        handle.home = .{ .thread = pair };
        gpa.destroy(here);
        return Code.ok;
    }

    /// The place of the engine for a caller in this process.
    pub inline fn place(handle: *Handle) Place {
        if (handle.forks != fork.count()) return .gone;
        return switch (handle.home) {
            .here => |here| .{ .here = here },
            .thread => |pair| .{ .thread = pair },
            .joined => |interpreter| .{ .joined = interpreter },
        };
    }

    /// Makes the next poll return, or the descriptor readable. From any thread.
    pub fn wake(handle: *Handle) void {
        switch (handle.place()) {
            .here => |here| here.engine.worker.io.wake(),
            .thread => |pair| pair.wakeup.raise(),
            .joined => |interpreter| interpreter.raise(),
            .gone => {},
        }
    }

    /// The engine that C owns; null: C runs one of its interpreters, or this process was forked.
    pub fn ownEngine(handle: *Handle) ?*Engine {
        return switch (handle.place()) {
            .here => |here| here.engine,
            .thread => |pair| pair.local,
            .joined, .gone => null,
        };
    }

    /// The application's end of the ring pair to the engine; null: there is no ring pair.
    pub inline fn end(handle: *Handle) ?*ApplicationEnd {
        return switch (handle.place()) {
            .thread => |pair| &pair.application,
            .joined => |interpreter| &interpreter.end,
            .here, .gone => null,
        };
    }

    /// The exchange of a ticket, in an engine that runs in C's thread.
    pub inline fn exchangeHere(handle: *Handle, ticket: types.Ticket) ?*peregrine.Exchange {
        return switch (handle.place()) {
            .here => |here| here.engine.exchangeOf(ticket),
            .thread, .joined, .gone => null,
        };
    }

    /// The process of the engine; 0: this one.
    pub fn engineProcess(handle: *const Handle) u32 {
        return switch (handle.home) {
            .here, .thread => 0,
            .joined => |interpreter| interpreter.way.process,
        };
    }

    /// The limits in force. They can be read in a forked process, too.
    pub fn config(handle: *const Handle) *const peregrine.Config {
        return switch (handle.home) {
            .here => |here| &here.engine.worker.config,
            .thread => |pair| &pair.local.worker.config,
            .joined => |interpreter| &interpreter.config,
        };
    }

    /// Obeys a command, and flushes if the flags ask for it; returns the code of its outcome.
    pub inline fn answer(
        handle: *Handle,
        ticket: types.Ticket,
        command: peregrine.Command,
        flags: u32,
    ) c_int {
        const application = switch (handle.place()) {
            .here => |here| return here.answer(ticket, command, flags),
            .thread => |pair| &pair.application,
            .joined => |interpreter| &interpreter.end,
            .gone => return Code.gone,
        };
        // Only the copy has an address; otherwise every command, also of `here`, would be built in memory.
        const copy = command;
        return application.answer(ticket, &copy, flags);
    }

    pub inline fn apply(handle: *Handle, ticket: types.Ticket, command: peregrine.Command) c_int {
        return handle.answer(ticket, command, 0);
    }

    /// Obeys a command, and sends its output now.
    pub fn applyNow(handle: *Handle, ticket: types.Ticket, command: peregrine.Command) c_int {
        const code = handle.apply(ticket, command);
        if (code >= 0) switch (handle.place()) {
            .here => |here| here.sendNow(ticket),
            .thread, .joined, .gone => {},
        };
        return code;
    }

    /// Calls a function on the thread that may touch C's own engine, and waits for its result.
    pub fn call(
        handle: *Handle,
        comptime function: anytype,
        arguments: std.meta.ArgsTuple(@TypeOf(function)),
    ) @typeInfo(@TypeOf(function)).@"fn".return_type.? {
        return switch (handle.home) {
            .here => @call(.auto, function, arguments),
            .thread => |pair| pair.call(function, arguments),
            .joined => unreachable, // C owns no engine
        };
    }
};
