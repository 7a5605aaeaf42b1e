//! The loop of one thread over an io, many transports and a host, which meet in this file only.
//! Its parts lie in `worker/`: accept, access, apply, counting, gathering, handshakes, health, input, memory,
//! output, proxied, refusals, relay, repeat, secure, storage, streams, turns, upload, websocket.
//!
//! A host answers requests: `NativeHost` for Zig handlers, the C API's host for all others. For its exchanges
//! a host provides
//!
//!     pub const demand: Demand
//!         the form in which it takes requests: it asks for bodies (`read`), gets them as they come, or gets
//!         whole bodies; a host that chooses for each exchange has `demands` in its place, and
//!     fn route(host, *Exchange, *const Head) void
//!         writes the chosen demand into the exchange
//!     fn request(host, worker, *Exchange, *const Head) void
//!         takes a head; bytes of the body that came with it follow at once; for a host that wants whole
//!         bodies, `Exchange.takeIntake` has the body and the trailers
//!     fn body(host, worker, *Exchange, []const u8) void
//!         takes the next piece of the body
//!     fn trailers(host, worker, *Exchange, *const Head) void
//!         takes the trailer section, before bodyEnd
//!     fn bodyEnd(host, worker, *Exchange) void
//!     fn drained(host, worker, *Exchange) void
//!         queued output fell below the low-water mark
//!     fn flushed(host, worker, *Exchange) void (optional)
//!         all output was sent, after a flush() that could not send it at once
//!     fn finished(host, worker, *Exchange) void
//!         the rest of an ended response was sent; the ticket is invalid after the call
//!     fn aborted(host, worker, *Exchange, Reason) void
//!         the rest of the response will not be sent; the ticket is invalid after the call
//!     fn forgotten(host, *Exchange) void (optional)
//!         the exchange's slot is given back: no further call is about the exchange
//!     fn message(host, worker, *Exchange, kind, []const u8) void
//!         takes a whole WebSocket message; Incoming.surrender gives its memory away
//!     fn closed(host, worker, *Exchange, websocket.Close, ?Reason) void
//!         the WebSocket ended, for a reason if not by the peer's close; the ticket is invalid after the call
//!     fn halfClosed(host, worker, *Exchange) void
//!         the peer has ended its sending side; earlier bytes may still come
//!     fn owesMessages(host, *const Exchange) bool (optional)
//!         whether the application has not read all messages of a WebSocket, so that its end waits
//!     fn bodySpace(host, worker, *Exchange, most: usize) ?[]u8 (optional)
//!         memory to which the next piece of a long body may be received, before `body` gets it; null: the
//!         piece is received elsewhere
//!     fn isBehind(host, *const Exchange) bool (optional)
//!         whether its WebSockets wait until `unpark`
//!     fn takenAt(host, *const Exchange) u64 (optional)
//!         the time at which it began to work on a request, in microseconds by the io's clock
//!     fn progress(host, *const Exchange) void (optional)
//!         the kernel was given output of an exchange, and took all, some or none of it
//!     fn notice(host, worker, ?*Exchange, Level, text) void
//!         takes a line for a log, and the exchange that the line is about
//!
//! and for the worker
//!
//!     fn stopped(host, worker) void
//!         no connection is left after drain() or cut()
//!     fn lines(host, worker, []const u8) void (optional)
//!         takes lines of the access log, if the log's target is the host
//!     fn isTaking(host) bool (optional)
//!         whether it has taken the events that it was given before
//!     fn relieve(host) bool (optional)
//!         much memory is free, which the host may give back to the system; false: the worker asks again
//!     fn patience(host, wanted_ms) i32 (optional)
//!         milliseconds that the worker may wait; 0: the host has something to do
//!     fn waited(host) void (optional)
//!         the worker's wait is over
//!     fn refusalPage(host, status: u16) ?Page (optional)
//!         the content of the response to a request that the engine refuses
//!     fn waiting(host) bool
//!         whether events lie ready that the host must handle before it waits
//!
//! A host may answer inside these calls or later, by exchange or by ticket, and may call `drain`, but not
//! `cut`. worker/output.zig says which exchanges may have ended after an answer.

const std = @import("std");
const assert = std.debug.assert;
const protocol = @import("protocol");
const Head = protocol.Head;
const Limits = protocol.Limits;
const Refusal = protocol.Refusal;
const io_layer = @import("io");
const access_log = @import("access_log.zig");
const AccessLog = access_log.AccessLog;
const admission_file = @import("admission.zig");
const Admission = admission_file.Admission;
const Accepting = @import("accepting.zig").Accepting;
const tls = @import("tls");
const Bodies = @import("bodies.zig").Bodies;
const Budget = @import("budget.zig").Budget;
const Clients = @import("client.zig").Clients;
const Clock = @import("clock.zig").Clock;
const Config = @import("config.zig").Config;
const Compression = @import("compression.zig").Compression;
const Lane = @import("lane.zig").Lane;
const Lanes = @import("lanes.zig").Lanes;
const Counting = @import("counting.zig").Counting;
const Demand = @import("demand.zig").Demand;
const exchange_file = @import("exchange.zig");
const Exchange = exchange_file.Exchange;
const Handshakes = @import("handshakes.zig").Handshakes;
const Health = @import("health.zig").Health;
const Intake = @import("intake.zig").Intake;
const Transport = @import("transport.zig").Transport;
const Line = @import("inflation.zig").Line;
const Listener = @import("listener.zig").Listener;
const LocalAddress = @import("local_address.zig").LocalAddress;
const Memory = @import("memory.zig").Memory;
const Outbox = @import("outbox.zig").Outbox;
const Pool = @import("pool.zig").Pool;
const Relief = @import("relief.zig").Relief;
const Share = @import("share.zig").Share;
const slab = @import("slab.zig");
const Storage = @import("storage.zig").Storage;
const Stream = @import("stream.zig").Stream;
const Ticket = slab.Ticket;
const Troubles = @import("tally.zig").Troubles;
const timer = @import("timer.zig");
const trace = @import("trace.zig");
const types = @import("types.zig");
const Waiting = @import("waiting.zig").Waiting;
const websocket_file = @import("websocket.zig");
const WebSocket = websocket_file.WebSocket;
const Reason = types.Reason;
const Level = types.Level;
const Stats = types.Stats;

/// The event loop of one thread over an io, with a host that answers requests.
pub fn Worker(comptime Io: type, comptime Host: type) type {
    return struct {
        const Self = @This();
        pub const HostType = Host;
        pub const IoType = Io;
        /// Whether one of the host's demands is that requests come while they are read (`Demand.Pace.push`).
        pub const has_pushing = for (demands) |demand| {
            if (demand.pace == .push) break true;
        } else false;
        /// Whether one of the host's demands is for whole bodies.
        pub const has_gathering = for (demands) |demand| {
            if (demand.body == .whole) break true;
        } else false;
        const demands = if (@hasDecl(Host, "demands")) Host.demands else [_]Demand{Host.demand};
        pub const IoOptions = if (@hasDecl(Io, "Options")) Io.Options else io_layer.Options;

        gpa: std.mem.Allocator,
        /// The allocator of pages that go back to the kernel when they are freed.
        pages: std.mem.Allocator = std.heap.page_allocator,
        config: Config,
        limits: Limits,
        host: *Host,
        io: Io,
        transports: slab.Slab(Transport),
        open_streams: slab.Slab(Stream),
        exchanges: slab.Slab(Exchange),
        websockets: slab.Slab(WebSocket),
        compression: Compression,
        pool: Pool,
        relief: Relief = .{},
        wheel: timer.Wheel,
        clock: Clock,
        share: Share = .{},
        /// The head that is being parsed.
        head: Head,
        clients: Clients = .{},
        waiting: Waiting = .{},
        budget: Budget = .{},
        inflations: Line = .{},
        /// The lane whose bytes are being parsed. Output that it queues meanwhile is sent afterwards.
        pumping: ?*Lane = null,
        /// Memory that transports with streams share; null: there was no such transport yet.
        shared: ?*streams.Shared = null,
        /// `retiring`: another worker takes this worker's place. `leaving`: moreover, WebSockets were ended.
        stopping: enum { no, retiring, leaving, draining, stopped } = .no,
        /// Whether `retire` was called.
        replaced: bool = false,
        /// Reasons why no connections are accepted.
        accepting: Accepting = .{},
        listeners: std.ArrayList(Listener),
        bodies: Bodies = .{},
        /// The threads that read files which are not in memory.
        storage: Storage = .{},
        scratch: secure.Scratch = .{},
        handshakes: Handshakes = .{},
        /// Events that the log reports at most once a second.
        troubles: Troubles = .{},
        connections_max: u32,
        admission: *Admission,
        memory: Memory = .{},
        numbers: u32 = 0,
        /// The number of transports that lead to applications of relays.
        relays: u32 = 0,
        health: Health = .{},
        access: ?AccessLog = null,
        stats: Stats = .{},
        counting: Counting = .{},

        /// `host` must outlive the worker. A worker is created after fork, in the thread that runs it.
        pub fn init(gpa: std.mem.Allocator, config: Config, host: *Host, io_options: IoOptions) !Self {
            var options = io_options;
            options.receive_buffer_bytes = config.receive_bytes;
            var io = try Io.init(gpa, options);
            errdefer io.deinit();
            const admission: *Admission = try .create(gpa);
            errdefer admission.release();
            const storage = try gpa.alloc(protocol.http.FieldSpan, config.header_count_max);
            const now = io.now();
            var memory: Memory = .{};
            memory.join(&config);
            return .{
                .gpa = gpa,
                .config = config,
                .limits = types.limitsOf(&config),
                .host = host,
                .io = io,
                .transports = .init(gpa, .transport),
                .open_streams = .init(gpa, .stream),
                .exchanges = .init(gpa, .plain),
                .websockets = .init(gpa, .plain),
                .compression = .init(gpa),
                .pool = .init(gpa),
                .wheel = .init(now),
                .clock = .init(now, io.wallSeconds()),
                .head = .{ .storage = storage },
                .listeners = .empty,
                .connections_max = types.connectionsMax(&config),
                .admission = admission,
                .memory = memory,
            };
        }

        /// Counts connections of client addresses together with other workers of the server. May be called
        /// only before the first connection.
        pub fn useAdmission(w: *Self, shared: *Admission) void {
            assert(w.transports.count == 0);
            const before = w.admission;
            w.admission = shared.retain();
            before.release();
        }

        /// Closes all connections without a message to their peers, and frees all memory.
        pub fn deinit(w: *Self) void {
            var it = w.lanes();
            while (it.next()) |lane| w.release(lane);
            gathering.closeSpool(w);
            w.storage.deinit();
            var buffer: [access_log.news_bytes_max]u8 = undefined;
            if (w.access) |*log| _ = log.close(&buffer);
            w.gpa.free(w.head.storage);
            w.waiting.deinit(w.gpa);
            for (w.listeners.items) |*listener| listener.deinit(w.gpa);
            w.listeners.deinit(w.gpa);
            w.clients.setTrust(null);
            w.scratch.deinit(w.gpa);
            if (w.shared) |shared| shared.destroy(w.gpa);
            w.transports.deinit();
            w.open_streams.deinit();
            w.exchanges.deinit();
            w.websockets.deinit();
            w.compression.deinit();
            w.pool.deinit();
            w.admission.release();
            w.memory.leave();
            w.accepting.leave();
            w.io.deinit();
            w.* = undefined;
        }

        /// Changes one limit, for requests that begin from now on, and for heads and bodies that are being
        /// read.
        pub fn set(w: *Self, name: []const u8, value: i64) Config.SetError!void {
            // The array for heads has room for the number of fields that was set when the worker was created.
            if (std.mem.eql(u8, name, "header_count_max") and value > w.head.storage.len) {
                return error.OutOfRange;
            }
            try w.config.set(name, value);
            w.limits = types.limitsOf(&w.config);
            w.connections_max = types.connectionsMax(&w.config);
            if (std.mem.eql(u8, name, "memory_bytes_max")) w.memory.set(&w.config, io_layer.memory.limits());
        }

        // ---- Listeners

        /// Listens on an address. Returns the listener's number.
        pub fn listen(w: *Self, address: io_layer.Address, options: io_layer.ListenOptions) !u32 {
            try w.listeners.ensureUnusedCapacity(w.gpa, 1);
            return w.addListener(try w.io.listen(address, options));
        }

        /// Takes over a listening descriptor. Returns the listener's number.
        pub fn adoptListener(w: *Self, fd: i32) !u32 {
            try w.listeners.ensureUnusedCapacity(w.gpa, 1);
            return w.addListener(try w.io.adoptListener(fd));
        }

        fn addListener(w: *Self, id: u32) u32 {
            w.listeners.appendAssumeCapacity(.at(id, w.io.listenerAddress(id)));
            if (w.accepting.isReluctant()) w.io.pauseAccept(id);
            return @intCast(w.listeners.items.len - 1);
        }

        /// Notes an address at which other code accepts. Returns the listener's number, for `adopt`.
        pub fn noteListener(w: *Self, address: io_layer.Address) error{OutOfMemory}!u32 {
            try w.listeners.append(w.gpa, .at(null, address));
            return @intCast(w.listeners.items.len - 1);
        }

        /// The listener's address, with the port that the kernel chose for port 0.
        pub fn listenerAddress(w: *Self, listener: u32) io_layer.Address {
            return w.listeners.items[listener].address;
        }

        /// The local address of a lane's connection: numeric, or the path of a Unix socket. Valid until a
        /// listener is added.
        pub fn localText(w: *const Self, lane: *const Lane) []const u8 {
            const transport = lane.transport;
            if (transport.local_address) |address| return address.text.slice();
            return w.listeners.items[transport.listener].path.path();
        }

        // ---- Functions for hosts

        const health_part = @import("worker/health.zig").HealthPart(Self);
        const access_part = @import("worker/access.zig").Access(Self);
        const accepting_part = @import("worker/accept.zig").Accept(Self);
        const applying = @import("worker/apply.zig").Apply(Self);
        const counters_part = @import("worker/counting.zig").CountersPart(Self);
        const gathering = @import("worker/gathering.zig").Gathering(Self);
        const input = @import("worker/input.zig").Input(Self);
        const output = @import("worker/output.zig").Output(Self);
        const proxied = @import("worker/proxied.zig").Proxied(Self);
        const secure = @import("worker/secure.zig").Secure(Self);
        const shaking = @import("worker/handshakes.zig").Shaking(Self);
        const live = @import("worker/websocket.zig").Live(Self);
        const refusing = @import("worker/refusals.zig").Refusals(Self);
        const relaying = @import("worker/relay.zig").Relaying(Self);
        const storing = @import("worker/storage.zig").Storing(Self);
        const repeating = @import("worker/repeat.zig").Repeating(Self);
        const uploading = @import("worker/upload.zig").Upload(Self);
        const shedding = @import("worker/memory.zig").Shedding(Self);
        const streams = @import("worker/streams.zig").Streams(Self);
        const turns = @import("worker/turns.zig").Turns(Self);

        pub const invariants = @import("worker/invariants.zig").Invariants(Self).invariants;

        pub const secureListener = secure.secureListener;
        pub const proxyListener = proxied.proxyListener;
        pub const adopt = accepting_part.adopt;

        pub const setBodyFolder = gathering.setBodyFolder;
        pub const dropIntake = gathering.drop;
        pub const setHealthPath = health_part.setHealthPath;
        pub const setAccessLog = access_part.setAccessLog;
        pub const reopenAccessLog = access_part.reopenAccessLog;
        pub const settleAccessLog = access_part.settleAccessLog;
        pub const useCounters = counters_part.useCounters;
        pub const noteWishes = counters_part.noteWishes;
        pub const queueTime = counters_part.queueTime;

        pub const CommandError = applying.CommandError;
        pub const apply = applying.apply;
        pub const applyTo = applying.applyTo;
        pub const commanded = applying.commanded;

        pub const Outcome = output.Outcome;
        pub const ResponseError = output.ResponseError;
        pub const FileError = output.FileError;
        pub const find = output.find;
        pub const start = output.start;
        pub const inform = output.inform;
        pub const write = output.write;
        pub const writeCopy = output.writeCopy;
        pub const rangeOf = output.rangeOf;
        pub const end = output.end;
        pub const sendNow = output.sendNow;
        pub const flush = output.flush;
        pub const read = output.read;
        pub const buffered = output.buffered;
        pub const abort = output.abort;
        pub const sever = output.sever;
        pub const setRepeat = repeating.setRepeat;

        pub const RelayError = relaying.RelayError;
        pub const offerRelay = relaying.offer;
        pub const answerByRelay = relaying.only;

        pub const AcceptError = live.AcceptError;
        pub const SendError = live.SendError;
        pub const CloseError = live.CloseError;
        pub const acceptWebSocket = live.acceptWebSocket;
        pub const sendMessage = live.sendMessage;
        pub const sendLent = live.sendLent;
        pub const sendFramed = live.sendFramed;
        pub const closeWebSocket = live.closeWebSocket;
        pub const setFlow = live.setFlow;
        pub const setKeepalive = live.setKeepalive;
        pub const setIdleLimit = live.setIdleLimit;
        pub const limitAnswer = live.limitAnswer;
        pub const limitRequest = live.limitRequest;

        // ---- Functions that parts of the worker call of each other

        pub const unpark = turns.unpark;
        pub const reserveTurns = turns.reserve;
        pub const withhold = turns.withhold;
        pub const yieldAccepting = accepting_part.yieldAccepting;
        pub const pauseAccepting = accepting_part.pauseAccepting;
        pub const takeUpAccepting = accepting_part.takeUpAccepting;
        pub const isAwaited = accepting_part.isAwaited;
        pub const shareSockets = accepting_part.shareSockets;
        pub const acceptWaiting = accepting_part.acceptWaiting;
        pub const pump = input.pump;
        pub const beginStreams = streams.beginStreams;
        pub const sendStream = streams.sendStream;
        pub const refuse = input.refuse;
        pub const tellRefused = refusing.tellRefused;
        pub const tellOf = refusing.tellOf;
        pub const tellRefusal = refusing.tellOf;
        pub const tellRefusalBy = refusing.tellBy;
        pub const sayRefusal = input.sayRefusal;
        pub const refusedBytes = input.refusedBytes;
        pub const attendMemory = shedding.attend;
        pub const cutHolders = shedding.cutHolders;
        pub const sayLast = input.sayLast;
        pub const noteAnswer = access_part.noteAnswer;
        pub const noteRefusal = access_part.noteRefusal;
        pub const noteOutput = counters_part.noteOutput;
        pub const hasPeerLeft = input.hasPeerLeft;
        pub const cutShort = input.cutShort;
        pub const queueRejection = accepting_part.queueRejection;
        pub const queued = output.queued;
        pub const readable = storing.readable;
        pub const store = storing.store;
        pub const forget = output.forget;
        pub const send = output.send;
        pub const settle = output.settle;
        pub const relay = relaying.relay;

        // ---- The loop

        /// Responses of a push host that are sent together. The host answers at once, and if receiving and
        /// sending alternated, kernel and host would evict each other's code from the cache with every
        /// request (1 to 2 % of a short response). The first response waits for the handler of the last one,
        /// so there are no more.
        const answers_together = 16;

        /// Runs one round: sends output that is due, reads input, carries out deadlines. Waits up to
        /// `timeout_ms` milliseconds (-1: for ever) if there is nothing to do.
        pub fn poll(w: *Self, timeout_ms: i32) !void {
            w.share.begin();
            w.budget.begin(w.config.round_bytes);
            if (w.waiting.corked.items.len > 0) w.counting.stir(w.clock.now);
            turns.serveBacklog(w);
            turns.uncork(w);
            accepting_part.comeBack(w);
            w.budget.proceed(w.config.round_bytes);
            const patience_ms = w.patience(timeout_ms);
            _ = try w.io.wait(if (@hasDecl(Host, "patience") and patience_ms != 0)
                w.host.patience(patience_ms)
            else
                patience_ms);
            if (@hasDecl(Host, "waited")) w.host.waited();
            w.clock.beginRound(w.io.micros(), w.io.wallSeconds());
            w.memory.beginRound();
            shedding.attend(w);
            while (w.io.next()) |event| {
                w.dispatch(event);
                if (has_pushing and w.waiting.corked.items.len >= answers_together) turns.uncork(w);
            }
            if (has_gathering) gathering.attend(w);
            if (w.storage.threads != null) storing.attend(w);
            live.advance(w);
            shaking.advance(w);
            w.expire();
            turns.release(w);
            access_part.settleAccessLog(w);
            w.relieve();
            counters_part.lookWhenDue(w);
            w.checkStopped();
        }

        /// Sends output that would be sent at the beginning of the next round.
        pub fn sendCorked(w: *Self) void {
            turns.uncork(w);
        }

        /// Whether the next round brings requests behind those that were answered in this round, so that
        /// their responses can be sent together.
        pub fn goesOn(w: *Self) bool {
            for (w.waiting.corked.items) |name| {
                const lane = w.listed(name) orelse continue;
                if (lane.corked and lane.mayGoOn()) return true;
            }
            return false;
        }

        /// Lets the C library and the host give free memory back to the system after a burst.
        fn relieve(w: *Self) void {
            if (!w.relief.look(w.pool.taken_bytes + w.pool.loans.bytes, w.clock.now)) return;
            const done = if (@hasDecl(Host, "relieve")) w.host.relieve() else true;
            if (done) w.relief.end(w.clock.now) else w.relief.postpone(w.clock.now);
        }

        /// Bytes of buffers that are in use, and unsent bytes of lent strings.
        pub inline fn heldBytes(w: *const Self) u64 {
            return w.pool.taken_bytes + w.pool.loans.bytes;
        }

        /// Whether hosts have queued so much in this round that memory is measured before they get more
        /// input.
        pub inline fn hasGrown(w: *const Self) bool {
            return w.memory.hasGrown(w.heldBytes());
        }

        /// Makes the worker's descriptor readable at the next deadline, for hosts that wait in another loop.
        /// The call costs little when nothing has changed.
        pub fn armAlarm(w: *Self) !void {
            try w.io.alarm(if (w.isUrgent()) w.clock.now else w.nextDeadline());
        }

        fn patience(w: *Self, timeout_ms: i32) i32 {
            if (timeout_ms == 0 or w.isUrgent()) return 0;
            const due = w.nextDeadline() orelse return timeout_ms;
            const left: i32 = @intCast(@min(due -| w.io.now(), std.math.maxInt(i32)));
            return if (timeout_ms < 0) left else @min(left, timeout_ms);
        }

        /// Whether the worker has something to do at once.
        pub fn isUrgent(w: *const Self) bool {
            if (w.waiting.isDue() or w.host.waiting()) return true;
            if (w.isEnding()) return true;
            return !w.handshakes.isEmpty() or w.inflations.first() != null;
        }

        // ---- The host of an exchange

        /// Lets a host with several demands choose one for a request that begins.
        pub inline fn route(w: *Self, exchange: *Exchange) void {
            if (@hasDecl(Host, "route")) w.host.route(exchange, &w.head);
        }

        /// The demand of an exchange's host.
        pub inline fn demandOf(exchange: *const Exchange) Demand {
            return if (@hasDecl(Host, "demands")) exchange.demand else Host.demand;
        }

        /// The intake of an exchange: its body is being gathered, or waits for its host.
        pub inline fn intakeOf(exchange: *const Exchange) ?*Intake {
            return if (has_gathering) exchange.intake else null;
        }

        /// Whether the host of an exchange has events to handle, and answers afterwards.
        pub inline fn isHostAtWork(w: *const Self, exchange: *const Exchange) bool {
            if (demandOf(exchange).pace == .push) return false;
            return if (@hasDecl(Host, "waitingOf")) w.host.waitingOf(exchange) else w.host.waiting();
        }

        /// Whether applications answer in other threads or processes, so that their responses come in later
        /// rounds.
        pub inline fn answersElsewhere(w: *const Self) bool {
            return if (@hasDecl(Host, "isElsewhere")) w.host.isElsewhere() else false;
        }

        /// Whether the host of an exchange has too many unread events to get more messages now.
        pub inline fn isHostBehind(w: *const Self, exchange: *const Exchange) bool {
            return if (@hasDecl(Host, "isBehind")) w.host.isBehind(exchange) else false;
        }

        fn nextDeadline(w: *Self) ?u64 {
            var next = w.wheel.nextExpiry() orelse timer.Timer.never;
            for ([_]u64{ w.relief.due_at, w.counting.due_at }) |at| if (at != 0) {
                next = @min(next, at);
            };
            if (w.accepting.lookAt()) |at| next = @min(next, at);
            if (w.waiting.withheld_at) |at| next = @min(next, at + turns.withhold_ms);
            return if (next == timer.Timer.never) null else next;
        }

        fn dispatch(w: *Self, event: io_layer.Event) void {
            if (event != .woken) w.counting.stir(w.clock.now);
            switch (event) {
                .accepted => |accepted| w.adopt(
                    accepting_part.listenerNumber(w, accepted.listener),
                    accepted.socket,
                    accepted.peer,
                ),
                .accept_failed => |failure| accepting_part.acceptFailed(w, failure.exhausted, failure.errno),
                .received => |received| if (w.transportAt(received.token)) |transport| {
                    w.noteReceived(transport, received.bytes);
                },
                .arrived => |arrived| if (w.transportAt(arrived.token)) |transport| {
                    uploading.arrived(w, transport);
                },
                .ending => |ending| if (w.transportAt(ending.token)) |transport| {
                    input.peerEnding(w, transport);
                },
                .ended => |ended| if (w.transportAt(ended.token)) |transport| {
                    input.peerEnded(w, transport, ended.how);
                },
                .sent => |sent| if (w.transportAt(sent.token)) |transport| output.writable(w, transport),
                .woken => {},
            }
        }

        /// Handles bytes that were received. The transport may be gone afterwards.
        pub inline fn noteReceived(w: *Self, transport: *Transport, bytes: []u8) void {
            w.memory.received += bytes.len;
            trace.wire(&transport.lane, .received, bytes.len);
            if (w.counting.counters) |counters| counters.noteBytes(.in, bytes.len);
            input.receive(w, transport, bytes);
            shedding.attend(w);
        }

        fn transportAt(w: *Self, token: io_layer.Token) ?*Transport {
            return w.transports.get(@fromBackingInt(@intCast(token)));
        }

        /// The transport of a ticket; null: it is gone.
        pub fn transportOf(w: *Self, ticket: Ticket) ?*Transport {
            return w.transports.get(ticket);
        }

        /// The lane of a transport's or stream's ticket; null: it is gone.
        pub fn laneOf(w: *Self, ticket: Ticket) ?*Lane {
            return switch (ticket.kind()) {
                .transport => if (w.transports.get(ticket)) |transport| &transport.lane else null,
                .stream => if (w.open_streams.get(ticket)) |stream| &stream.lane else null,
            };
        }

        /// The lane of an entry in a list of waiting lanes; null: it is gone.
        pub fn listed(w: *Self, name: Ticket.Short) ?*Lane {
            return switch (name.kind()) {
                .transport => if (w.transports.getShort(name)) |transport| &transport.lane else null,
                .stream => if (w.open_streams.getShort(name)) |stream| &stream.lane else null,
            };
        }

        /// An iterator over the lanes of transports, then over those of streams. Lanes may end meanwhile.
        pub fn lanes(w: *Self) Lanes {
            return .{ .transports = w.transports.iterator(), .open_streams = w.open_streams.iterator() };
        }

        fn expire(w: *Self) void {
            accepting_part.comeBack(w);
            while (w.wheel.expire(w.clock.now)) |due| {
                const lane: *Lane = @alignCast(@fieldParentPtr("timer", due));
                w.counting.stir(w.clock.now);
                output.lookAtBlockage(w, lane);
                switch (lane.overdue(w.clock.now, &w.config)) {
                    .not_yet => w.arm(lane),
                    .close => w.close(lane),
                    .turn_away => accepting_part.reject(w, lane.transport, lane.input.unread()),
                    .refuse => input.refuseUnread(
                        w,
                        lane,
                        .{ .status = 408, .detail = "The request head took too long." },
                        lane.input.unread(),
                    ),
                    .body_stalled => w.bodyStalled(lane, lane.phase.exchange),
                    .write_stalled => output.stalled(w, lane),
                    .websocket => live.websocketDue(w, lane, lane.phase.exchange),
                    .repeat => repeating.repeatDue(w, lane, lane.phase.exchange),
                    .exchange_idle => w.exchangeIdle(lane, lane.phase.exchange),
                    .multiplexed => streams.multiplexDue(w, lane.transport),
                }
            }
        }

        fn bodyStalled(w: *Self, lane: *Lane, exchange: *Exchange) void {
            assert(lane.current() == exchange);
            if (lane.session().responseStarted()) {
                return w.fail(lane, .client_timeout);
            }
            const refusal: Refusal = .{ .status = 408, .detail = "The request body took too long." };
            w.tellRefused(lane, refusal, true);
            exchange.noteRefusal(refusal, w.refusedBytes(refusal));
            w.endExchange(exchange, .client_timeout);
            w.refuse(lane, refusal);
        }

        fn exchangeIdle(w: *Self, lane: *Lane, exchange: *Exchange) void {
            assert(lane.current() == exchange);
            if (exchange.idle_reason == .client_timeout) {
                var buffer: [160]u8 = undefined;
                w.sayOf(
                    exchange,
                    .warn,
                    &buffer,
                    "Request stall timeout ({d} ms) - {s}",
                    .{ exchange.idle_ms, lane.endWords() },
                );
            }
            const is_told = exchange.idle_end == .answer and exchange.openWebSocket() == null and
                !lane.session().responseStarted();
            if (!is_told) return w.fail(lane, exchange.idle_reason);
            const refusal: Refusal = .{ .status = 504, .detail = "The request took too long." };
            w.tellRefused(lane, refusal, true);
            exchange.noteRefusal(refusal, w.refusedBytes(refusal));
            w.endExchange(exchange, .idle_timeout);
            w.refuse(lane, refusal);
        }

        /// Sets a lane's timer to its deadline, and reads the socket of a transport, or stops reading it.
        pub fn arm(w: *Self, lane: *Lane) void {
            if (lane.isStream()) return streams.armStream(w, .of(lane));
            const transport = lane.transport;
            w.wheel.set(&lane.timer, transport.attentionAt(&w.config));
            const pause = !transport.wantsReceive();
            if (pause == transport.paused) return;
            transport.paused = pause;
            if (pause) w.io.pause(transport.socket) else w.io.resumeReading(transport.socket);
        }

        // ---- Ends

        /// Gives the host a line for its log.
        pub fn say(
            w: *Self,
            level: Level,
            buffer: []u8,
            comptime format: []const u8,
            arguments: anytype,
        ) void {
            w.host.notice(w, null, level, std.fmt.bufPrint(buffer, format, arguments) catch buffer);
        }

        /// Like `say`, for a line about an exchange, which the host names.
        pub fn sayOf(
            w: *Self,
            exchange: *Exchange,
            level: Level,
            buffer: []u8,
            comptime format: []const u8,
            arguments: anytype,
        ) void {
            w.host.notice(w, exchange, level, std.fmt.bufPrint(buffer, format, arguments) catch buffer);
        }

        /// Ends a lane whose connection or stream is lost. Its exchange, if it has one, is aborted.
        pub fn fail(w: *Self, lane: *Lane, reason: Reason) void {
            if (lane.isClosed()) return;
            if (lane.current()) |exchange| w.endExchange(exchange, reason);
            if (lane.isStream())
                streams.resetStream(lane, reason)
            else if (lane.transport.phase == .multiplexed)
                streams.dissolve(w, lane.transport, reason);
            w.close(lane);
        }

        /// Ends an exchange without a complete response, and tells the host the reason.
        pub fn endExchange(w: *Self, exchange: *Exchange, reason: Reason) void {
            exchange.lane.beginClosing();
            trace.aborted(exchange, reason);
            if (exchange.openWebSocket()) |websocket| {
                const end_seen = websocket.endSeen(reason);
                w.host.closed(w, exchange, end_seen.close, end_seen.reason);
            } else {
                if (w.counting.counters) |counters| {
                    if (exchange.response != .refused) counters.noteAbort(reason);
                }
                if (exchange.isHeard()) w.host.aborted(w, exchange, reason);
            }
            w.forget(exchange);
        }

        /// Closes a connection or stream that has no exchange.
        pub fn close(w: *Self, lane: *Lane) void {
            if (lane.isClosed()) return;
            assert(lane.current() == null); // an exchange must have ended before
            if (lane.isStream()) streams.close(lane) else w.closeTransport(lane.transport);
            // `pump` releases a lane whose bytes are being parsed further up the stack.
            if (w.pumping != lane) w.release(lane);
        }

        fn closeTransport(w: *Self, transport: *Transport) void {
            assert(transport.phase != .multiplexed); // all streams must have ended before
            if (transport.lane.isIdle()) _ = output.sayEnd(w, transport);
            const phase = transport.phase;
            transport.leaveServing(.closed);
            output.closeSocket(w, transport);
            if (phase == .relaying) relaying.leave(w, transport, phase.relaying.other);
        }

        /// Frees a connection or stream of which the host knows nothing any more.
        pub fn release(w: *Self, lane: *Lane) void {
            if (lane.current()) |exchange| w.forget(exchange);
            w.wheel.remove(&lane.timer);
            if (lane.isStream()) return streams.release(w, .of(lane));
            const transport = lane.transport;
            if (transport.phase == .multiplexed) streams.drop(w, transport);
            output.closeSocket(w, transport);
            lane.input.deinit(&w.pool);
            w.dropOutput(&transport.out.queue);
            if (transport.tunnel) |tunnel| {
                w.handshakes.remove(&tunnel.place);
                w.scratch.buffers_kept -= @intFromBool(tunnel.keeps_buffers);
                tunnel.destroy(&w.pool);
            }
            LocalAddress.leave(&transport.local_address, w.gpa);
            transport.peer_text.clear(w.gpa);
            w.admission.leave(transport.entry);
            w.relays -= @intFromBool(transport.local);
            w.transports.remove(transport);
            w.accepting.publish(w.connectionCount());
        }

        pub fn dropOutput(w: *Self, outbox: *Outbox) void {
            outbox.discard(&w.pool, &w.storage);
        }

        /// Stops accepting and closes idle connections; other connections are closed after their response. A
        /// peer without a request, in the kernel's queue or connected, has `Config.linger_ms` to send one.
        /// `stopped` follows.
        pub fn drain(w: *Self) void {
            if (w.stopping == .draining or w.stopping == .stopped) return;
            if (w.stopping == .no) {
                w.accepting.leave();
                accepting_part.acceptWaiting(w);
                w.io.closeListeners();
            }
            w.stopping = .draining;
            const now = w.io.now();
            var it = w.lanes();
            while (it.next()) |lane| {
                if (lane.isStream()) {
                    w.drainLane(lane);
                    continue;
                }
                const transport = lane.transport;
                switch (transport.phase) {
                    .proxy_header, .handshake => {
                        transport.retire(now);
                        w.arm(lane);
                    },
                    .serving => if (lane.phase == .idle) {
                        const first = lane.request_count == 0 and transport.surplus == .no;
                        transport.retiring = .no;
                        if (first or isReadable(w, transport)) transport.retire(now);
                        w.settle(lane);
                    } else w.drainLane(lane),
                    .relaying => relaying.goAway(w, transport),
                    .multiplexed => |multiplex| streams.announceEnd(w, transport, multiplex),
                    .closing, .lingering, .closed => {},
                }
            }
        }

        /// Makes the present exchange the lane's last one, and ends a WebSocket.
        fn drainLane(w: *Self, lane: *Lane) void {
            const exchange = lane.current() orelse return;
            lane.session().closeAfterResponse();
            if (exchange.websocket != null) live.goAway(w, exchange);
        }

        /// Stops accepting, because another worker accepts at the same sockets. Each connection gets one more
        /// response, or is closed after `Config.retire_idle_ms` without a request; WebSockets go on.
        /// `stopped` follows when no connection is left; `endWebSockets` and `drain` hasten that.
        pub fn retire(w: *Self) void {
            if (w.stopping != .no) return;
            w.accepting.leave();
            w.io.closeListeners();
            w.stopping = .retiring;
            w.replaced = true;
            const now = w.io.now();
            var it = w.transports.iterator();
            while (it.next()) |transport| {
                if (transport.multiplex()) |multiplex| streams.announceEnd(w, transport, multiplex);
                transport.replace(now);
                if (transport.phase != .closed) w.arm(&transport.lane);
            }
        }

        /// Closes WebSockets of a retiring worker with 1012, and refuses new ones from now on.
        pub fn endWebSockets(w: *Self) void {
            if (w.stopping != .retiring) return;
            w.stopping = .leaving;
            var it = w.lanes();
            while (it.next()) |lane| {
                if (lane.wire() == .relaying) relaying.goAway(w, lane.transport);
                const exchange = lane.current() orelse continue;
                if (exchange.websocket != null) live.goAway(w, exchange);
            }
        }

        /// Whether WebSockets are closed and new ones refused.
        pub fn endsWebSockets(w: *const Self) bool {
            return w.stopping != .no and w.stopping != .retiring;
        }

        fn isReadable(w: *Self, transport: *const Transport) bool {
            return @hasDecl(Io, "isReadable") and w.io.isReadable(transport.socket);
        }

        /// Closes every connection at once. `stopped` follows.
        pub fn cut(w: *Self) void {
            w.drain();
            var it = w.lanes();
            while (it.next()) |lane| w.fail(lane, .server_shutdown);
        }

        /// Whether a worker that stops has no connections left.
        fn isEnding(w: *const Self) bool {
            return w.stopping != .no and w.stopping != .stopped and w.transports.count == 0;
        }

        fn checkStopped(w: *Self) void {
            if (!w.isEnding()) return;
            w.stopping = .stopped;
            counters_part.lookAround(w);
            accepting_part.tellRest(w);
            access_part.endAccessLog(w);
            w.host.stopped(w);
        }

        /// The number of open connections; streams do not count.
        pub fn connectionCount(w: *const Self) u32 {
            return w.transports.count;
        }

        /// The present counters and sizes.
        pub fn statistics(w: *const Self) Stats {
            var stats = w.stats;
            stats.connections = w.connectionCount() - w.relays;
            stats.exchanges = w.exchanges.count;
            stats.connections_max = w.connections_max;
            stats.memory_max = w.memory.limit();
            stats.memory_bytes = w.transports.memoryBytes() + w.open_streams.memoryBytes() +
                w.exchanges.memoryBytes() + w.websockets.memoryBytes() +
                w.compression.memoryBytes() + w.pool.memoryBytes() + w.admission.memoryBytes() +
                if (w.shared) |shared| shared.held_bytes else 0;
            stats.allocations = w.pool.allocations + w.transports.chunks.items.len +
                w.open_streams.chunks.items.len + w.exchanges.chunks.items.len;
            return stats;
        }
    };
}
