//! Parts of the contract suite (contract_test.zig) beside the io itself: a `Harness` for each io, with other
//! ends to talk to, and a `Stage` that runs rounds and records events. Does not know: the promise that a test
//! checks. A new backend adds only its harness here.

const std = @import("std");
const io = @import("io.zig");
const sys = @import("sys.zig");
const linux = std.os.linux;
const testing = std.testing;

const Epoll = io.Epoll;
/// kqueue's code over the kernel of Linux.
const Kqueue = @import("kqueue.zig").KqueueOver(@import("kqueue/shim.zig").Shim);
const Sim = io.Sim;
const Socket = io.Socket;

// ---- Harnesses

pub const Setup = struct {
    receive_buffer_bytes: u32 = 64 * 1024,
    accepts_per_wait: u16 = 64,
    send_file_bytes_max: u32 = 1024 * 1024,
};

const Kind = enum { v4, v6, unix };

/// The number of Unix addresses that tests have used.
var places: u32 = 0;

/// A harness for an io over the kernel, with real sockets as other ends.
fn KernelHarness(comptime Backend: type, comptime kind: Kind) type {
    return struct {
        io: Backend,
        limit: ?linux.rlimit = null,

        const Harness = @This();
        pub const Io = Backend;
        /// A Unix socket has no reset: a peer that closes looks like one that has ended its sending side.
        pub const can_reset = kind != .unix;
        /// Whether `limitUnsent` has an effect.
        pub const bounds_unsent = kind != .unix;

        pub const Peer = struct {
            fd: sys.Fd,
            end: ?io.Ended = null,

            pub fn write(self: *Peer, bytes: []const u8) !usize {
                return switch (sys.send(self.fd, &.{io.slice(bytes)}, false)) {
                    .done => |count| count,
                    .blocked => 0,
                    .failed => error.PeerCannotWrite,
                };
            }

            pub fn read(self: *Peer, into: *std.ArrayList(u8)) !void {
                var buffer: [16 * 1024]u8 = undefined;
                switch (sys.receive(self.fd, &buffer)) {
                    .done => |count| {
                        if (count == 0) self.end = .eof;
                        try into.appendSlice(testing.allocator, buffer[0..count]);
                    },
                    .blocked => {},
                    .failed => self.end = .reset,
                }
            }

            pub fn ended(self: *Peer) ?io.Ended {
                return self.end;
            }

            pub fn shutdown(self: *Peer) void {
                sys.shutdownSend(self.fd);
            }

            pub fn reset(self: *Peer) void {
                const at_once: linux.linger = .{ .onoff = 1, .linger = 0 };
                const bytes = std.mem.asBytes(&at_once);
                std.debug.assert(linux.errno(linux.setsockopt(
                    self.fd,
                    linux.SOL.SOCKET,
                    linux.SO.LINGER,
                    bytes,
                    bytes.len,
                )) == .SUCCESS);
                self.close();
            }

            pub fn close(self: *Peer) void {
                if (self.fd >= 0) sys.close(self.fd);
                self.fd = -1;
            }
        };

        pub fn init(setup: Setup) !Harness {
            // A machine without IPv6 skips these tests.
            if (kind == .v6) {
                const probed = @import("socket.zig").listenSocket(&try .parse("::1", 0), .{}) catch
                    return error.SkipZigTest;
                sys.close(probed);
            }
            const options: io.Options = .{
                .receive_buffer_bytes = setup.receive_buffer_bytes,
                .accepts_per_wait = setup.accepts_per_wait,
                .send_file_bytes_max = setup.send_file_bytes_max,
            };
            return .{
                .io = Backend.init(testing.allocator, options) catch |err| switch (@as(anyerror, err)) {
                    // A kernel that forbids io_uring skips these tests.
                    error.AccessDenied, error.Unsupported => return error.SkipZigTest,
                    else => return err,
                },
            };
        }

        pub fn deinit(self: *Harness) void {
            self.exhaust(false);
            self.io.deinit();
        }

        /// A new abstract Unix address, which leaves no file. Addresses are not used again, because io_uring
        /// gives them back late.
        fn place() !io.Address {
            var buffer: [64]u8 = undefined;
            places += 1;
            return .unixPath(try std.fmt.bufPrint(
                &buffer,
                "\x00peregrine-io-test-{d}-{d}",
                .{ linux.getpid(), places },
            ));
        }

        pub fn listen(self: *Harness) !u32 {
            return self.io.listen(switch (kind) {
                .v4 => try .parse("127.0.0.1", 0),
                .v6 => try .parse("::1", 0),
                .unix => try place(),
            }, .{});
        }

        pub fn connect(self: *Harness, listener: u32) !Peer {
            const address = self.io.listenerAddress(listener);
            const fd = try sys.socket(address.family());
            errdefer sys.close(fd);
            var storage: sys.sockaddr.storage = undefined;
            const length = address.toSystem(&storage);
            sys.connect(fd, @ptrCast(&storage), length) catch |err| switch (err) {
                error.Pending => {
                    _ = poll(fd, linux.POLL.OUT, 1000);
                    if (sys.takeError(fd) != .SUCCESS) return error.Refused;
                },
                else => return err,
            };
            return .{ .fd = fd };
        }

        pub fn readable(self: *Harness) bool {
            return poll(self.io.fd(), linux.POLL.IN, 0);
        }

        fn poll(fd: sys.Fd, events: i16, timeout_ms: i32) bool {
            var polls = [1]linux.pollfd{.{ .fd = fd, .events = events, .revents = 0 }};
            return linux.poll(&polls, 1, timeout_ms) == 1;
        }

        /// Sleeps until the clock has advanced by `ms`.
        pub fn pass(self: *Harness, ms: u64) void {
            const until = self.io.now() + ms;
            while (self.io.now() < until) {
                var none: [0]linux.pollfd = .{};
                _ = linux.poll(&none, 0, @intCast(until - self.io.now()));
            }
        }

        pub fn exhaust(self: *Harness, exhausted: bool) void {
            if (!exhausted) {
                if (self.limit) |limit| {
                    std.debug.assert(linux.errno(linux.setrlimit(.NOFILE, &limit)) == .SUCCESS);
                }
                self.limit = null;
                return;
            }
            var limit: linux.rlimit = undefined;
            std.debug.assert(linux.errno(linux.getrlimit(.NOFILE, &limit)) == .SUCCESS);
            self.limit = limit;
            limit.cur = 0; // existing descriptors stay, new ones are refused
            std.debug.assert(linux.errno(linux.setrlimit(.NOFILE, &limit)) == .SUCCESS);
        }
    };
}

/// A harness for the simulation with one seed.
fn SimHarness(comptime seed: u64) type {
    return struct {
        io: Sim,

        const Harness = @This();
        pub const Io = Sim;
        pub const can_reset = true;
        pub const bounds_unsent = false;

        pub const Peer = struct {
            at: io.SimPeer,

            pub fn write(self: *Peer, bytes: []const u8) !usize {
                return self.at.write(bytes);
            }

            pub fn read(self: *Peer, into: *std.ArrayList(u8)) !void {
                try into.appendSlice(testing.allocator, self.at.read());
            }

            pub fn ended(self: *Peer) ?io.Ended {
                return self.at.ended();
            }

            pub fn shutdown(self: *Peer) void {
                self.at.shutdown();
            }

            pub fn reset(self: *Peer) void {
                self.at.reset();
            }

            pub fn close(self: *Peer) void {
                self.at.close();
            }
        };

        pub fn init(setup: Setup) !Harness {
            // Seed 0 is a calm network, other seeds are rough ones.
            const rough: u16 = if (seed == 0) 0 else 1;
            return .{ .io = try .init(testing.allocator, .{
                .seed = seed,
                .receive_buffer_bytes = setup.receive_buffer_bytes,
                .accepts_per_wait = setup.accepts_per_wait,
                .send_file_bytes_max = setup.send_file_bytes_max,
                .short_read_permille = rough * 300,
                .late_permille = rough * 200,
                .block_permille = rough * 100,
                .partial_send_permille = rough * 200,
            }) };
        }

        pub fn deinit(self: *Harness) void {
            self.io.deinit();
        }

        pub fn listen(self: *Harness) !u32 {
            return self.io.listen(try .parse("127.0.0.1", 0), .{});
        }

        pub fn connect(self: *Harness, listener: u32) !Peer {
            return .{ .at = try self.io.connect(listener) };
        }

        pub fn readable(self: *Harness) bool {
            return self.io.readable();
        }

        pub fn pass(self: *Harness, ms: u64) void {
            self.io.advance(ms);
        }

        pub fn exhaust(self: *Harness, exhausted: bool) void {
            self.io.exhaust(exhausted);
        }
    };
}

/// Runs a test with every io.
pub fn everywhere(comptime case: anytype) !void {
    inline for (.{ Epoll, io.Uring, Kqueue }) |Backend| inline for (.{ .v4, .v6, .unix }) |kind| {
        on(KernelHarness(Backend, kind), case) catch |err| if (err != error.SkipZigTest) return err;
    };
    inline for (0..8) |seed| try on(SimHarness(seed), case);
}

fn on(comptime Harness: type, comptime case: anytype) !void {
    case(Harness) catch |err| {
        if (err != error.SkipZigTest) std.debug.print("io contract: {s}\n", .{@typeName(Harness)});
        return err;
    };
}

// ---- Records

/// The events of one token, in order of their kinds.
pub const Log = struct {
    bytes: std.ArrayList(u8) = .empty,
    eofs: u32 = 0,
    resets: u32 = 0,
    sents: u32 = 0,
    endings: u32 = 0,
};

/// Runs rounds and records events. Tokens are indices of `logs`.
pub fn Stage(comptime Harness: type) type {
    return struct {
        harness: Harness,
        logs: [8]Log = @splat(.{}),
        accepted: std.ArrayList(Socket) = .empty,
        accept_failures: u32 = 0,
        wakes: u32 = 0,
        rounds: u32 = 0,

        const Self = @This();
        /// A test that needs more rounds hangs.
        const rounds_max = 10_000;

        pub fn init(setup: Setup) !Self {
            return .{ .harness = try .init(setup) };
        }

        pub fn deinit(self: *Self) void {
            for (&self.logs) |*log| log.bytes.deinit(testing.allocator);
            self.accepted.deinit(testing.allocator);
            self.harness.deinit();
        }

        /// Runs one round of the io under test, which waits up to 2 ms without an event.
        pub fn round(self: *Self) !void {
            self.rounds += 1;
            if (self.rounds > rounds_max) return error.TimedOut;
            _ = try self.harness.io.wait(2);
            while (self.harness.io.next()) |event| try self.record(event);
        }

        /// Runs some rounds, in which an unwanted event would come.
        pub fn quiet(self: *Self) !void {
            for (0..12) |_| try self.round();
        }

        pub fn record(self: *Self, event: io.Event) !void {
            switch (event) {
                .accepted => |one| try self.accepted.append(testing.allocator, one.socket),
                .accept_failed => |failed| {
                    try testing.expect(failed.exhausted);
                    try testing.expectEqual(sys.number(.MFILE), failed.errno);
                    self.accept_failures += 1;
                },
                .received => |some| {
                    const log = &self.logs[some.token];
                    try testing.expect(some.bytes.len > 0);
                    try testing.expect(log.eofs + log.resets == 0);
                    try log.bytes.appendSlice(testing.allocator, some.bytes);
                },
                .ended => |end| {
                    const log = &self.logs[end.token];
                    try testing.expectEqual(end.how == .eof, end.errno == 0);
                    try testing.expectEqual(@as(u32, 0), log.resets);
                    switch (end.how) {
                        .eof => log.eofs += 1,
                        .reset => log.resets += 1,
                    }
                    try testing.expect(log.eofs <= 1);
                },
                .ending => |some| {
                    const log = &self.logs[some.token];
                    try testing.expectEqual(@as(u32, 0), log.eofs + log.resets);
                    log.endings += 1;
                    try testing.expectEqual(@as(u32, 1), log.endings);
                },
                .sent => |some| self.logs[some.token].sents += 1,
                .arrived => return error.TestUnexpectedResult, // no test asks for a read here
                .woken => self.wakes += 1,
            }
        }

        /// Accepts a connection, and adds it with this token.
        pub fn join(self: *Self, listener: u32, token: io.Token) !struct { Harness.Peer, Socket } {
            var peer = try self.harness.connect(listener);
            errdefer peer.close();
            const before = self.accepted.items.len;
            while (self.accepted.items.len == before) try self.round();
            const socket = self.accepted.items[before];
            try self.harness.io.add(socket, token);
            return .{ peer, socket };
        }

        /// Sends all bytes, in as many steps as it takes. The peer reads meanwhile if `into` is given.
        pub fn sendAll(
            self: *Self,
            socket: Socket,
            token: io.Token,
            bytes: []const u8,
            peer: *Harness.Peer,
            into: ?*std.ArrayList(u8),
        ) !void {
            var done: usize = 0;
            while (done < bytes.len) {
                const rest = bytes[done..];
                const half = rest.len / 2;
                const before = self.logs[token].sents;
                const sent = switch (self.harness.io.send(
                    socket,
                    &.{ io.slice(rest[0..half]), io.slice(rest[half..]) },
                    false,
                )) {
                    .sent => |count| count,
                    .blocked => 0,
                    else => return error.TestUnexpectedResult,
                };
                done += sent;
                if (sent == rest.len) break;
                while (self.logs[token].sents == before) {
                    if (into) |place| try peer.read(place);
                    try self.round();
                }
            }
        }
    };
}

/// Bytes in which a misplaced piece is noticed.
pub fn pattern(count: usize) ![]u8 {
    const bytes = try testing.allocator.alloc(u8, count);
    for (bytes, 0..) |*byte, index| byte.* = @truncate(index *% 31 ^ index >> 8 ^ index >> 15);
    return bytes;
}
