//! The part that all kinds of load share: opens the connections, tells when they are ready, obeys the
//! commands on standard input, and moves bytes between sockets and the load. Does not know: the bytes that
//! are sent, and their meaning. A load is a type with
//!
//!     const Options, State                                the command line's, a connection's
//!     const reader (optional)                             an http.Reader, as it is for each connection
//!     init(arena, *const Options) !Load
//!     opening(*Load) Opening                              what makes a connection ready
//!     prepare(*Load, *Driver, *Peer) !void                a connection is ready
//!     begin(*Load, *Driver, now, until) !void             `run` was commanded
//!     received(*Load, *Driver, *Peer, bytes, now) !void   also between runs; an error ends it and counts
//!     lost(*Load, *Peer) void                             a connection that was ready has ended
//!     tick(*Load, *Driver, now) !?u64                     after each round: when to come again, or null
//!     result(*Load, seconds) Result                       a struct of numbers, printed
const std = @import("std");
const linux = std.os.linux;
const http = @import("http.zig");
const net = @import("net.zig");

const read_bytes = 64 * 1024;
const control_name = std.math.maxInt(u64);
/// Nanoseconds in which one connection has to become ready.
const opening_ns = 30 * std.time.ns_per_s;

pub const Opening = union(enum) {
    /// Being connected is enough.
    nothing,
    /// A request, and what its response has to be.
    request: struct { bytes: []const u8, status: u16, until: enum { head, end } },
};

pub fn Driver(comptime Load: type) type {
    return struct {
        const Self = @This();

        pub const Peer = struct {
            number: usize,
            fd: net.Fd,
            phase: enum { connecting, opening, open, closed } = .connecting,
            since: u64,
            /// Bytes that the socket has not taken yet, and the bytes to send after them; borrowed from the
            /// load.
            unsent: []const u8 = "",
            queued: []const u8 = "",
            http: http.Reader = if (@hasDecl(Load, "reader")) Load.reader else .{},
            state: Load.State = .{},
        };

        load: Load,
        options: *const Load.Options,
        poll: net.Poll,
        peers: []Peer,
        opened: usize = 0,
        errors: usize = 0,
        running: bool = false,
        input: [read_bytes]u8 = undefined,
        events: [512]linux.epoll_event = undefined,

        /// Opens all connections, obeys commands until the end of the input.
        pub fn drive(arena: std.mem.Allocator, options: *const Load.Options) !void {
            const driver = try arena.create(Self);
            driver.* = .{
                .load = try .init(arena, options),
                .options = options,
                .poll = try .init(),
                .peers = try arena.alloc(Peer, options.connections),
            };
            try net.allowDescriptors(options.connections + 16);
            try driver.poll.add(0, control_name, .read);
            const before = net.now();
            try driver.open();
            print("READY connections={d} seconds={d:.3}\n", .{ options.connections, secondsSince(before) });
            while (true) try driver.round(null);
        }

        fn open(driver: *Self) !void {
            var begun: usize = 0;
            while (driver.opened < driver.peers.len) {
                while (begun < driver.peers.len and
                    begun - driver.opened < driver.options.ramp) : (begun += 1)
                {
                    const fd = try net.connect(driver.options.port, begun);
                    driver.peers[begun] = .{ .number = begun, .fd = fd, .since = net.now() };
                    try driver.poll.add(fd, begun, .read_and_write);
                }
                try driver.round(net.now() + std.time.ns_per_s);
                // The ramp is narrow: the oldest connection that is not ready is among the last ones.
                for (driver.peers[0..begun]) |*peer| {
                    if (peer.phase != .open and net.now() - peer.since > opening_ns) {
                        return fatal("connection {d} does not get ready", .{peer.number});
                    }
                }
            }
        }

        /// Waits until sockets are ready, or until the time has come, and handles their events.
        fn round(driver: *Self, until: ?u64) !void {
            for (try driver.poll.wait(&driver.events, until)) |event| {
                if (event.data.u64 == control_name) {
                    try driver.obey();
                } else {
                    try driver.serve(&driver.peers[event.data.u64], event.events);
                }
            }
        }

        fn serve(driver: *Self, peer: *Peer, events: u32) !void {
            if (peer.phase == .closed) return; // by an earlier event of this round
            if (events & linux.EPOLL.OUT != 0) try driver.writable(peer);
            if (events & ~@as(u32, linux.EPOLL.OUT) == 0 or peer.phase == .closed) return;
            switch (net.read(peer.fd, &driver.input)) {
                .nothing => {},
                .ended => try driver.fail(peer, error.Closed),
                .bytes => |bytes| driver.take(peer, bytes) catch |err| try driver.fail(peer, err),
            }
        }

        fn writable(driver: *Self, peer: *Peer) !void {
            if (peer.phase == .connecting) {
                if (!net.connected(peer.fd)) return driver.fail(peer, error.Refused);
                peer.phase = .opening;
                switch (driver.load.opening()) {
                    .nothing => try driver.ready(peer),
                    .request => |request| peer.unsent = request.bytes,
                }
            }
            driver.flush(peer) catch |err| return driver.fail(peer, err);
            if (peer.unsent.len == 0) try driver.poll.change(peer.fd, peer.number, .read);
        }

        fn take(driver: *Self, peer: *Peer, bytes: []const u8) !void {
            var rest = bytes;
            while (peer.phase == .opening and rest.len > 0) {
                const step = try peer.http.feed(rest);
                const wanted = driver.load.opening().request;
                const enough = step.complete or wanted.until == .head and peer.http.inBody();
                // A piece of the body that came along is the load's.
                if (enough and !step.complete) std.debug.assert(step.body.len == 0);
                rest = rest[step.consumed..];
                if (!enough) continue;
                if (peer.http.status != wanted.status) return error.Refused;
                try driver.ready(peer);
            }
            if (rest.len > 0) try driver.load.received(driver, peer, rest, net.now());
        }

        fn ready(driver: *Self, peer: *Peer) !void {
            peer.phase = .open;
            driver.opened += 1;
            try driver.load.prepare(driver, peer);
        }

        /// Sends bytes that stay where they are until they are sent; at most one piece may
        /// wait behind another.
        pub fn send(driver: *Self, peer: *Peer, bytes: []const u8) !void {
            if (peer.unsent.len > 0) {
                if (peer.queued.len > 0) return error.Busy;
                peer.queued = bytes;
                return;
            }
            peer.unsent = bytes;
            try driver.flush(peer);
            if (peer.unsent.len > 0) try driver.poll.change(peer.fd, peer.number, .read_and_write);
        }

        fn flush(_: *Self, peer: *Peer) !void {
            while (peer.unsent.len > 0) {
                const written = net.write(peer.fd, peer.unsent) orelse return error.Closed;
                if (written == 0) return;
                peer.unsent = peer.unsent[written..];
                if (peer.unsent.len == 0) std.mem.swap([]const u8, &peer.unsent, &peer.queued);
            }
        }

        /// A failure before all connections are ready ends the measurement; a later one is counted.
        fn fail(driver: *Self, peer: *Peer, reason: anyerror) !void {
            if (driver.opened < driver.peers.len) {
                return fatal(
                    "connection {d} failed while {t}: {t}, status {d}",
                    .{ peer.number, peer.phase, reason, peer.http.status },
                );
            }
            if (driver.errors == 0) std.debug.print("load: connection {d}: {t}\n", .{ peer.number, reason });
            net.close(peer.fd);
            peer.phase = .closed;
            driver.errors += 1;
            driver.load.lost(peer);
        }

        /// The input's end is the end of the program, as is the caller's.
        fn obey(driver: *Self) !void {
            const command = net.read(0, &driver.input);
            if (command == .nothing) return;
            const seconds = try commandOf(command) orelse std.process.exit(0);
            if (driver.running or driver.opened < driver.peers.len) {
                return fatal("a run was commanded too early", .{});
            }
            try driver.run(@trunc(seconds * std.time.ns_per_s));
        }

        fn run(driver: *Self, duration: u64) anyerror!void {
            driver.running = true;
            defer driver.running = false;
            const errors_before = driver.errors;
            const cpu_before = net.cpuTime();
            const before = net.now();
            try driver.load.begin(driver, before, before + duration);
            print("BEGUN\n", .{});
            while (try driver.load.tick(driver, net.now())) |again| {
                if (driver.errors == driver.peers.len) break;
                try driver.round(again);
            }
            const seconds = secondsSince(before);
            print("RESULT seconds={d:.6} cpu_seconds={d:.6} errors={d}", .{
                seconds,
                @as(f64, @floatFromInt(net.cpuTime() - cpu_before)) / std.time.ns_per_s,
                driver.errors - errors_before,
            });
            const result = driver.load.result(seconds);
            inline for (@typeInfo(@TypeOf(result)).@"struct".field_names) |name| {
                print(" " ++ name ++ "={d:.3}", .{@field(result, name)});
            }
            print("\n", .{});
        }
    };
}

/// Waits for `run SECONDS` on the standard input: the seconds, null at the end of the input.
pub fn commanded() !?f64 {
    var buffer: [64]u8 = undefined;
    while (true) {
        const command = net.read(0, &buffer);
        if (command != .nothing) return commandOf(command);
    }
}

fn commandOf(read: net.Received) !?f64 {
    const line = if (read == .ended) return null else std.mem.trimEnd(u8, read.bytes, "\n");
    if (!std.mem.startsWith(u8, line, "run ")) return fatal("unknown command '{s}'", .{line});
    return std.fmt.parseFloat(f64, line[4..]) catch fatal("'{s}' is no number of seconds", .{line[4..]});
}

pub fn secondsSince(before: u64) f64 {
    return @as(f64, @floatFromInt(net.now() - before)) / std.time.ns_per_s;
}

/// To standard output, at once. A caller that is gone is noticed by the input's end.
pub fn print(comptime format: []const u8, args: anytype) void {
    var buffer: [256]u8 = undefined;
    const text = std.fmt.bufPrint(&buffer, format, args) catch unreachable;
    _ = linux.write(1, text.ptr, text.len);
}

fn fatal(comptime format: []const u8, args: anytype) error{Fatal} {
    std.debug.print("load: " ++ format ++ "\n", args);
    return error.Fatal;
}
