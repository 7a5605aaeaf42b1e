//! The server for Zig handlers, one worker per thread.
const std = @import("std");
const builtin = @import("builtin");
const io = @import("io");
const tls = @import("tls");
const signals = @import("signals.zig");
const Acceptor = @import("acceptor.zig").Acceptor;
const Fault = @import("server").Fault;
const contract = @import("handler.zig");
const NativeHost = @import("host.zig").NativeHost;
const engine = @import("server");
const metrics = @import("metrics.zig");
const Inbox = engine.Inbox;

const AccessLogFault = engine.AccessLogFault;
const AccessLogOptions = engine.AccessLogOptions;
const Config = engine.Config;
const Networks = engine.Networks;
const ServerConfig = @import("settings.zig").ServerConfig;
const Worker = engine.Worker;

const log = std.log.scoped(.peregrine);
const complaints = @import("complain.zig");
const complain = complaints.complain;

/// A server over one io: `ServerOn(io.Sim, Handler)` is for tests without sockets, see simulation.zig.
pub fn ServerOn(comptime Io: type, comptime Handler: type) type {
    return struct {
        const Self = @This();
        const Host = NativeHost(Self, Handler);
        pub const HostWorker = Worker(Io, Host);
        /// Whether sockets are the kernel's, and not simulated.
        const is_real = Io != io.Sim;
        const makes_itself = contract.makesItself(Handler);
        /// The handler that the program gives to the server, of a type that does not make itself.
        pub const Given = if (makes_itself) void else Handler;

        gpa: std.mem.Allocator,
        config: ServerConfig,
        handler: *Handler,
        /// The addresses at which the server listens, with real ports.
        addresses: []io.Address,
        units: []Unit,
        /// The files of the Unix sockets that the server has made.
        files: std.ArrayList(io.SocketFile) = .empty,
        /// The TLS context of the places that speak TLS; null: none does.
        tls: ?*tls.Context = null,
        /// Threads that accept connections for all workers; empty: each worker accepts for itself.
        acceptors: []Acceptor(Io, Self) = &.{},
        /// The unit at which the search for the least busy worker begins, so that equals take turns.
        turn: std.atomic.Value(usize) = .init(0),
        /// The number of units that exist.
        ready: usize = 0,
        stopping: std.atomic.Value(Stop) = .init(.no),
        /// Whether the handler was told of the stop.
        told_stop: std.atomic.Value(bool) = .init(false),
        signal_listener: signals.Listener = undefined,
        takes_signals: bool = false,

        const Stop = enum(u8) { no, draining, cutting };

        /// The worker of one thread, with its host and inbox. Never moves: they point at each other.
        const Unit = struct {
            host: Host,
            worker: HostWorker,
            inbox: *Inbox,
            thread: ?std.Thread = null,
            /// Connections that acceptors have given to this worker, and those of them that have ended: the
            /// difference is its load.
            given: std.atomic.Value(u64) = .init(0),
            gone: std.atomic.Value(u64) = .init(0),
            /// Connections from acceptors that have arrived; only the worker looks at it.
            taken: u64 = 0,
            /// The worker's statistics as of its last round, for other threads.
            published: Published = @splat(.init(0)),
            published_seconds: u64 = 0,
            /// The counters of `writeMetrics`; zeros without `metrics`.
            counters: engine.Counters = std.mem.zeroes(engine.Counters),
            /// The value of `stopping` that this worker has obeyed.
            stop_seen: Stop = .no,
            /// When a stopping server cuts the connections that are left.
            cut_at: u64 = 0,

            const stats_fields = @typeInfo(engine.Stats).@"struct".field_names;
            const Published = [stats_fields.len]std.atomic.Value(u64);

            /// Publishes counters after each round, and sizes, which take longer to add up, once a second.
            inline fn publish(unit: *Unit) void {
                const worker = &unit.worker;
                if (worker.clock.wall_seconds != unit.published_seconds) return unit.publishAll();
                inline for (.{ "accepted", "rejected", "requests", "refused", "shed" }) |name| {
                    unit.tell(name, @field(worker.stats, name));
                }
                unit.tell("connections", worker.connectionCount());
                unit.tell("exchanges", worker.exchanges.count);
            }

            noinline fn publishAll(unit: *Unit) void {
                unit.published_seconds = unit.worker.clock.wall_seconds;
                const stats = unit.worker.statistics();
                inline for (stats_fields) |name| unit.tell(name, @field(stats, name));
            }

            inline fn tell(unit: *Unit, comptime name: []const u8, value: u64) void {
                inline for (stats_fields, &unit.published) |field, *word| {
                    if (comptime std.mem.eql(u8, field, name)) word.store(value, .monotonic);
                }
            }

            /// Adds the published statistics to those of other workers.
            fn addTo(unit: *const Unit, all: *engine.Stats) void {
                inline for (stats_fields, &unit.published) |name, *word| {
                    @field(all, name) += @intCast(word.load(.monotonic));
                }
            }

            fn wake(context: *anyopaque) void {
                const unit: *Unit = @ptrCast(@alignCast(context));
                unit.worker.io.wake();
            }

            fn load(unit: *const Unit) u64 {
                // `gone` first: then the result may be too high for a moment, and never below zero.
                const gone = unit.gone.load(.acquire);
                return unit.given.load(.acquire) - gone;
            }

            /// The milliseconds that a round may wait: after a change of `stop_seen` none, so that an idle
            /// worker sees that nothing is left.
            fn patience(unit: *const Unit, now: u64, timeout_ms: i32) i32 {
                if (unit.stop_seen == .no) return timeout_ms;
                if (unit.worker.statistics().connections == 0 or unit.stop_seen == .cutting) return 0;
                if (unit.cut_at == 0) return timeout_ms;
                const left: i32 = @intCast(@min(unit.cut_at -| now, std.math.maxInt(i32)));
                return if (timeout_ms < 0) left else @min(left, timeout_ms);
            }
        };

        /// Creates the handler, opens the listeners (port 0: any free one, see `port`) and prepares the
        /// workers. `run` makes them serve. `gpa` has to be safe for threads if there are several. On an
        /// error everything is undone, and a line in the log says what went wrong.
        pub fn init(gpa: std.mem.Allocator, port_number: u16, config: ServerConfig) !*Self {
            comptime contract.checkInit(Handler);
            const before = complaints.count;
            return initOn(gpa, port_number, config, .{}, {}) catch |err|
                complaints.cannotStart(before, err);
        }

        /// Like `init`, with a handler that the program has made. The server keeps the value where it stays,
        /// see `handler`, and calls its `deinit`, if it has one, when it is freed; on an error it does not.
        pub fn initWith(
            gpa: std.mem.Allocator,
            port_number: u16,
            config: ServerConfig,
            value: Handler,
        ) !*Self {
            comptime contract.checkValue(Handler);
            const before = complaints.count;
            return initOn(gpa, port_number, config, .{}, value) catch |err|
                complaints.cannotStart(before, err);
        }

        /// Like `init` and `initWith`, with options of the io.
        pub fn initOn(
            gpa: std.mem.Allocator,
            port_number: u16,
            config: ServerConfig,
            io_options: HostWorker.IoOptions,
            given: Given,
        ) !*Self {
            const self = try gpa.create(Self);
            errdefer gpa.destroy(self);
            const addresses = try placesOf(&config, gpa, port_number);
            errdefer gpa.free(addresses);
            const count = if (config.worker_thread_count > 0)
                config.worker_thread_count
            else
                try std.Thread.getCpuCount();
            const units = try gpa.alloc(Unit, count);
            errdefer gpa.free(units);
            const handler = if (makes_itself) try Handler.init(gpa) else try gpa.create(Handler);
            errdefer if (makes_itself) handler.deinit() else gpa.destroy(handler);
            if (!makes_itself) handler.* = given;
            self.* = .{
                .gpa = gpa,
                .config = config,
                .handler = handler,
                .addresses = addresses,
                .units = units,
            };
            errdefer for (units[0..self.ready]) |*unit| self.deinitUnit(unit);
            const limits = config.workerLimits(@hasDecl(Handler, "handleBody"));
            errdefer self.closeAcceptors();
            if (config.tls) |wanted| self.tls = try loadCertificates(gpa, wanted);
            errdefer if (self.tls) |context| context.deinit();
            for (units) |*unit| try self.initUnit(unit, limits, io_options);
            for (units) |*unit| try self.equip(unit);
            errdefer self.removeFiles();
            try self.files.ensureTotalCapacity(gpa, addresses.len);
            try self.open();
            for (units) |*unit| try self.believeProxies(unit);
            if (self.tls) |context| try self.secure(context);
            if (is_real) {
                if (!config.tcp_nodelay) self.gatherPackets();
                signals.ignorePipe();
                if (config.handle_signals) try self.takeSignals();
            }
            return self;
        }

        /// Checks the configuration, logs its mistakes, and returns the addresses to listen at.
        fn placesOf(config: *const ServerConfig, gpa: std.mem.Allocator, port_number: u16) ![]io.Address {
            var fault: Fault = .{};
            errdefer if (fault.text().len > 0) complain("{s}", .{fault.text()});
            try config.check(&fault);
            return config.addresses(gpa, port_number, &fault);
        }

        /// Loads certificates and keys. The log names a file that cannot be used, and why.
        fn loadCertificates(gpa: std.mem.Allocator, config: tls.ServerConfig) tls.ContextError!*tls.Context {
            var diagnostic: tls.Diagnostic = .{};
            return tls.Context.init(gpa, config, &diagnostic) catch |err| {
                if (err != error.OutOfMemory) complain("{s}", .{diagnostic.text()});
                return err;
            };
        }

        fn secure(self: *Self, context: *tls.Context) error{OutOfMemory}!void {
            for (self.units) |*unit| for (0..self.addresses.len) |number| {
                if (self.config.isSecure(number)) try unit.worker.secureListener(@intCast(number), context);
            };
        }

        /// Reads the lists of trusted proxies; mistakes in them go to the log.
        fn believeProxies(self: *Self, unit: *Unit) !void {
            if (self.config.trusted_proxies) |text| {
                unit.worker.clients.setTrust(.{
                    .networks = try self.networks(text),
                    .header = self.config.forwarded_header,
                });
            }
            for (0..self.addresses.len) |number| {
                const text = self.config.proxiesAt(number) orelse continue;
                unit.worker.proxyListener(@intCast(number), try self.networks(text));
            }
        }

        fn networks(self: *Self, text: []const u8) Networks.ParseError!Networks {
            var fault: Networks.Fault = .{};
            return Networks.parse(self.gpa, text, &fault) catch |err| {
                if (err == error.BadNetwork) {
                    complain("\"{s}\" {s}", .{ text[fault.at..][0..fault.len], fault.reason });
                }
                return err;
            };
        }

        fn initUnit(self: *Self, unit: *Unit, limits: Config, io_options: HostWorker.IoOptions) !void {
            const inbox: *Inbox = try .create(
                self.gpa,
                .{ .context = unit, .wake = Unit.wake },
                self.config.detached_bytes_max,
            );
            errdefer inbox.release();
            unit.* = .{
                .host = .init(self.gpa, self.handler, &unit.worker, inbox, .{
                    .ping_ms = self.config.websocket_ping_ms,
                    .queued_bytes_max = self.config.response_body_buffer_size,
                }),
                .worker = try .init(self.gpa, limits, &unit.host, io_options),
                .inbox = inbox,
            };
            unit.host.request_bytes_max = @intCast(self.config.wholeBodyMax(true));
            self.ready += 1;
        }

        /// Does the rest of a unit's preparation, which may fail, when the unit can be freed as a whole.
        fn equip(self: *Self, unit: *Unit) !void {
            unit.worker.useAdmission(self.units[0].worker.admission);
            if (self.config.metrics) unit.worker.useCounters(&unit.counters);
            if (self.config.health_path) |path| try unit.worker.setHealthPath(path);
            try unit.worker.setBodyFolder(self.config.body_folder);
            if (self.config.access_log) |wanted| try openAccessLog(&unit.worker, wanted);
        }

        fn openAccessLog(worker: *HostWorker, wanted: ServerConfig.AccessLog) !void {
            var fault: AccessLogFault = .{};
            var errno: u16 = 0;
            const options: AccessLogOptions = .{
                .target = .{ .file = wanted.target },
                .format = wanted.format,
                .bytes_max = worker.config.access_log_bytes,
            };
            worker.setAccessLog(options, &fault, &errno) catch |err| {
                if (err == error.BadFormat) {
                    complain("access log: \"{s}\" at {d} {s}", .{ fault.atom, fault.at, fault.reason });
                }
                if (err == error.CannotOpen) {
                    complain("access log: cannot be opened ({s})", .{io.failureText(errno)});
                }
                return err;
            };
        }

        /// Counters and sizes of all workers together: each worker's as of its last round, its memory as of
        /// the last second in which it did something. From any thread.
        pub fn statistics(self: *const Self) engine.Stats {
            var all: engine.Stats = .{};
            for (self.units) |*unit| unit.addTo(&all);
            return all;
        }

        /// Counters and sizes of one worker; null if no worker has that number. From any thread.
        pub fn workerStatistics(self: *const Self, number: usize) ?engine.Stats {
            if (number >= self.units.len) return null;
            var own: engine.Stats = .{};
            self.units[number].addTo(&own);
            return own;
        }

        /// The counts of all workers together; null without `metrics`. From any thread.
        pub fn totals(self: *const Self) ?metrics.Totals {
            if (!self.config.metrics) return null;
            var all: metrics.Totals = @splat(0);
            for (self.units) |*unit| metrics.add(&all, &unit.counters);
            return all;
        }

        /// Opens the access log's file anew, after the old file was moved away. From any thread.
        pub fn reopenAccessLog(self: *Self) void {
            for (self.units) |*unit| unit.worker.reopenAccessLog();
        }

        fn open(self: *Self) !void {
            if (!is_real or self.units.len == 1 or self.config.accept_thread_count == 0) return self.listen();
            for (self.units) |*unit| for (self.addresses) |address| {
                _ = try unit.worker.noteListener(address);
            };
            try self.openAcceptors();
        }

        /// Opens the acceptors: the first one listens, the others share its listeners.
        fn openAcceptors(self: *Self) !void {
            const acceptors = try self.gpa.alloc(Acceptor(Io, Self), self.config.accept_thread_count);
            var ready: usize = 0;
            errdefer {
                for (acceptors[0..ready]) |*acceptor| acceptor.deinit();
                self.gpa.free(acceptors);
            }
            for (acceptors) |*acceptor| {
                acceptor.* = try .init(self.gpa, self, self.config.limits.accept_pause_ms);
                ready += 1;
                if (ready > 1) {
                    try acceptor.share(&acceptors[0]);
                } else for (self.addresses, 0..) |*address, number| {
                    address.* = if (self.config.inheritedDescriptor(number)) |fd|
                        try acceptor.adopt(fd)
                    else
                        acceptor.listen(
                            address.*,
                            self.config.listenOptions(self.addresses, number, false),
                        ) catch |err| return cannotListen(address.*, err);
                    self.noteFile(number);
                }
            }
            self.acceptors = acceptors;
        }

        /// Remembers the file of a Unix socket that this server has made, and will remove.
        fn noteFile(self: *Self, number: usize) void {
            if (!is_real or self.config.inheritedDescriptor(number) != null) return;
            if (io.SocketFile.of(&self.addresses[number])) |file| self.files.appendAssumeCapacity(file);
        }

        /// For an acceptor: gives the connection to the worker that has the fewest.
        pub fn connected(self: *Self, listener: usize, socket: io.Socket, peer: io.Address) bool {
            const first = self.turn.fetchAdd(1, .monotonic);
            var best = &self.units[first % self.units.len];
            for (1..self.units.len) |offset| {
                const unit = &self.units[(first + offset) % self.units.len];
                if (unit.load() < best.load()) best = unit;
            }
            _ = best.given.fetchAdd(1, .acq_rel);
            best.inbox.handOver(.{ .listener = @intCast(listener), .socket = socket, .peer = peer }) catch {
                _ = best.given.fetchSub(1, .acq_rel);
                return false;
            };
            return true;
        }

        /// Whether the server stops; asked by an acceptor.
        pub fn isStopping(self: *const Self) bool {
            return self.stopping.load(.acquire) != .no;
        }

        /// Each worker listens for itself; the kernel spreads connections over them.
        fn listen(self: *Self) !void {
            for (self.units, 0..) |*unit, number| {
                for (self.addresses, 0..) |*address, listener| {
                    const inherited = self.config.inheritedDescriptor(listener);
                    const spread = address.* != .unix and inherited == null and
                        (io.spreads_connections or !is_real);
                    const shared = number > 0 and !spread;
                    if (shared) {
                        if (!is_real) unreachable;
                        const fd = try io.file.duplicate(
                            self.units[0].worker.io.listeners.items[listener].fd,
                        );
                        errdefer io.file.close(fd);
                        _ = try unit.worker.adoptListener(fd);
                        continue;
                    }
                    const id = if (inherited) |fd|
                        try self.adopt(unit, fd)
                    else
                        unit.worker.listen(
                            address.*,
                            self.config.listenOptions(self.addresses, listener, self.units.len > 1),
                        ) catch |err| return cannotListen(address.*, err);
                    if (number > 0) continue;
                    // Port 0 has become a real port, which the other workers share.
                    address.* = unit.worker.listenerAddress(id);
                    self.noteFile(listener);
                }
            }
        }

        /// Prints which address cannot be listened at, and why.
        fn cannotListen(address: io.Address, err: anytype) @TypeOf(err) {
            if (err != error.OutOfMemory) complain("cannot listen at {f}: {t}", .{ address, err });
            return err;
        }

        fn adopt(_: *Self, unit: *Unit, fd: i32) !u32 {
            if (!is_real) return error.InvalidAddress; // a simulated network inherits nothing
            return unit.worker.adoptListener(fd);
        }

        /// Has small packets wait for more (Nagle). Accepted sockets inherit that from their listener.
        fn gatherPackets(self: *Self) void {
            for (self.units) |*unit| clearNoDelay(&unit.worker.io);
            for (self.acceptors) |*acceptor| clearNoDelay(&acceptor.io);
        }

        fn clearNoDelay(owner: *Io) void {
            for (owner.listeners.items) |listener| io.inheritDelay(listener.fd);
        }

        fn takeSignals(self: *Self) !void {
            self.signal_listener = .{ .context = self, .call = onSignal };
            try signals.add(&self.signal_listener);
            self.takes_signals = true;
        }

        /// Called in a signal handler.
        fn onSignal(context: *anyopaque) void {
            const self: *Self = @ptrCast(@alignCast(context));
            self.stop(if (self.stopping.load(.monotonic) == .no) .draining else .cutting);
        }

        /// The first bound port; 0 if there are only Unix sockets.
        pub fn port(self: *const Self) u16 {
            for (self.addresses) |address| if (address.port()) |number| return number;
            return 0;
        }

        /// Serves until `shutdown` or a signal, in this thread and in those that it starts; `deinit` frees
        /// the server afterwards. On an error a line in the log says what went wrong.
        pub fn run(self: *Self) !void {
            const before = complaints.count;
            self.serveAll() catch |err| return complaints.cannotStart(before, err);
        }

        fn serveAll(self: *Self) !void {
            errdefer self.join();
            self.sayWhere();
            const options: std.Thread.SpawnConfig = .{ .stack_size = self.config.worker_stack_size };
            // This thread accepts, or is the first worker.
            const own = @intFromBool(self.acceptors.len == 0);
            for (self.units[own..]) |*unit| unit.thread = try .spawn(options, serve, .{ self, unit });
            if (self.acceptors.len > 0) {
                for (self.acceptors[1..]) |*acceptor| {
                    acceptor.thread = try .spawn(options, Acceptor(Io, Self).run, .{acceptor});
                }
                self.acceptors[0].run();
            } else self.serve(&self.units[0]);
            self.join();
        }

        /// Logs that a program which has chosen no address serves the whole network.
        fn sayWhere(self: *const Self) void {
            if (!is_real or !std.mem.eql(u8, self.config.ip, ServerConfig.ip_default)) return;
            log.info("listening at {f}, which is every IPv4 address of this machine; .ip = \"127.0.0.1\" " ++
                "is for this machine alone", .{self.addresses[0]});
        }

        fn join(self: *Self) void {
            self.shutdown();
            for (self.acceptors) |*acceptor| if (acceptor.thread) |thread| thread.join();
            for (self.units) |*unit| if (unit.thread) |thread| thread.join();
        }

        /// Stops accepting, lets requests finish (as long as `stop_ms` allows), and makes `run` return. From
        /// any thread, before `run`, meanwhile and afterwards; not during `deinit`.
        pub fn shutdown(self: *Self) void {
            if (self.stopping.load(.monotonic) == .no) self.stop(.draining);
        }

        /// Uses atomics and system calls only, because signal handlers call it.
        fn stop(self: *Self, how: Stop) void {
            self.stopping.store(how, .release);
            for (self.units) |*unit| unit.worker.io.wake();
            for (self.acceptors) |*acceptor| acceptor.io.wake();
        }

        fn serve(self: *Self, unit: *Unit) void {
            const before = if (self.config.cpu_affinity) pin(self.indexOf(unit)) else null;
            // The thread may be the one that called `run`: the program gets it back as it was.
            defer if (before) |cores| restrict(&cores);
            while (!unit.host.ended) {
                self.round(unit, -1) catch |err| {
                    log.err("a worker stops, and the server with it: {t}", .{err});
                    self.stop(.cutting);
                    return;
                };
            }
        }

        fn indexOf(self: *const Self, unit: *const Unit) usize {
            return (@intFromPtr(unit) - @intFromPtr(self.units.ptr)) / @sizeOf(Unit);
        }

        /// Runs a round of every worker in this thread, instead of `run`: for tests and for programs with a
        /// loop of their own. False when the server has stopped. `timeout_ms` as in `Worker.poll`; with
        /// several workers only 0 makes sense.
        pub fn poll(self: *Self, timeout_ms: i32) !bool {
            var running = false;
            for (self.acceptors) |*acceptor| {
                if (self.isStopping()) acceptor.io.closeListeners() else acceptor.round(0);
            }
            for (self.units) |*unit| {
                if (!unit.host.ended) try self.round(unit, timeout_ms);
                running = running or !unit.host.ended;
            }
            return running;
        }

        fn round(self: *Self, unit: *Unit, timeout_ms: i32) !void {
            const worker = &unit.worker;
            engine.attend(unit.inbox);
            defer engine.attend(null);
            try worker.poll(unit.patience(worker.io.now(), timeout_ms));
            // A message that is put in from here on wakes the worker.
            engine.attend(null);
            var mail = unit.inbox.take();
            while (mail.pop()) |message| switch (message.content) {
                .connection => |*connection| {
                    unit.taken += 1;
                    worker.adopt(connection.listener, connection.socket, connection.peer);
                    unit.inbox.free(message);
                },
                .command => unit.host.receive(message),
            };
            unit.gone.store(unit.taken -| worker.connectionCount(), .release);
            unit.publish();
            unit.host.sockets.tellEnded();
            self.obeyStop(unit);
        }

        fn obeyStop(self: *Self, unit: *Unit) void {
            const worker = &unit.worker;
            const wanted = self.stopping.load(.acquire);
            if (unit.stop_seen == .no and wanted != .no) {
                worker.drain();
                unit.stop_seen = .draining;
                self.tellStop();
                if (self.config.stop_ms > 0) unit.cut_at = worker.io.now() + self.config.stop_ms;
            }
            const late = unit.cut_at != 0 and worker.io.now() >= unit.cut_at;
            if (unit.stop_seen == .draining and (wanted == .cutting or late)) {
                unit.stop_seen = .cutting;
                worker.cut();
            }
        }

        fn tellStop(self: *Self) void {
            if (@hasDecl(Handler, "handleStop")) {
                if (!self.told_stop.swap(true, .acq_rel)) self.handler.handleStop();
            }
        }

        const Cores = if (builtin.os.tag == .linux) std.os.linux.cpu_set_t else void;

        /// Binds this thread to the core with this index among the cores that it may use. Returns those
        /// cores; null: nothing has changed, as on other systems than Linux.
        fn pin(index: usize) ?Cores {
            if (builtin.os.tag != .linux) return null;
            const linux = std.os.linux;
            var allowed: Cores = undefined;
            if (linux.errno(linux.sched_getaffinity(0, @sizeOf(Cores), &allowed)) != .SUCCESS) return null;
            var wanted = index % @max(linux.CPU_COUNT(allowed), 1);
            for (0..@bitSizeOf(Cores)) |core| {
                const bit = @as(usize, 1) << @intCast(core % @bitSizeOf(usize));
                if (allowed[core / @bitSizeOf(usize)] & bit == 0) continue;
                if (wanted > 0) {
                    wanted -= 1;
                    continue;
                }
                var set: Cores = @splat(0);
                set[core / @bitSizeOf(usize)] = bit;
                restrict(&set);
                return allowed;
            }
            return null;
        }

        /// Binds the calling thread to these cores. If that is not allowed, the kernel chooses.
        fn restrict(cores: *const Cores) void {
            if (builtin.os.tag == .linux) std.os.linux.sched_setaffinity(0, cores) catch {};
        }

        /// Frees everything, the server included. Connections that are left are cut.
        pub fn deinit(self: *Self) void {
            if (self.takes_signals) signals.remove(&self.signal_listener);
            self.closeAcceptors();
            for (self.units[0..self.ready]) |*unit| self.deinitUnit(unit);
            if (self.tls) |context| context.deinit();
            self.removeFiles();
            if (@hasDecl(Handler, "deinit")) self.handler.deinit();
            if (!makes_itself) self.gpa.destroy(self.handler);
            self.gpa.free(self.addresses);
            self.gpa.free(self.units);
            self.gpa.destroy(self);
        }

        fn removeFiles(self: *Self) void {
            for (self.files.items) |*file| file.remove();
            self.files.deinit(self.gpa);
        }

        fn closeAcceptors(self: *Self) void {
            for (self.acceptors) |*acceptor| acceptor.deinit();
            self.gpa.free(self.acceptors);
        }

        fn deinitUnit(_: *Self, unit: *Unit) void {
            unit.inbox.close();
            var mail = unit.inbox.take();
            while (mail.pop()) |message| {
                switch (message.content) {
                    .connection => |connection| unit.worker.io.close(connection.socket),
                    .command => {}, // no handler is left to be told
                }
                unit.inbox.free(message);
            }
            unit.host.deinit();
            unit.worker.deinit();
            unit.inbox.release();
        }
    };
}
