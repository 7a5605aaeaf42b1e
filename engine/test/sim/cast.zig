//! The contexts of TLS of a history: the server's, and those of its clients. Does not know: the network.
//!
//! Equal seeds give equal histories: signatures of the certificate's key have one length, and the random
//! numbers of OpenSSL are the history's. Only the time of day, which tickets have within, is another one.
const std = @import("std");
const per = @import("peregrine");
const certificates = @import("certificates");
const Secured = @import("secured.zig").Secured;
const Sink = @import("secured.zig").Sink;
const tls = per.tls;

extern fn RAND_set_rand_method(method: *const Method) c_int;

/// A source of random numbers (openssl/rand.h).
const Method = extern struct {
    seed: ?*const fn (*const anyopaque, c_int) callconv(.c) c_int = null,
    bytes: *const fn ([*]u8, c_int) callconv(.c) c_int,
    cleanup: ?*const fn () callconv(.c) void = null,
    add: ?*const fn (*const anyopaque, c_int, f64) callconv(.c) c_int = null,
    pseudorand: *const fn ([*]u8, c_int) callconv(.c) c_int,
    status: *const fn () callconv(.c) c_int,
};

/// The protocol that a client asks for.
pub const Kind = enum { single, multiplexed };

/// The contexts of a history.
pub const Cast = struct {
    gpa: std.mem.Allocator,
    server: *tls.Context,
    /// The server's kernel seals.
    seals: bool,
    /// The server has no memory now and then.
    is_starved: bool,
    /// Two of each kind, for the two versions.
    clients: [4]*tls.Context,

    var numbers: std.Random.DefaultPrng = undefined;

    const method: Method = .{ .bytes = draw, .pseudorand = draw, .status = isReady };

    fn draw(bytes: [*]u8, len: c_int) callconv(.c) c_int {
        numbers.random().bytes(bytes[0..@intCast(len)]);
        return 1;
    }

    fn isReady() callconv(.c) c_int {
        return 1;
    }

    pub fn init(gpa: std.mem.Allocator, seed: u64, seals: bool, is_starved: bool) !Cast {
        numbers = .init(seed);
        if (RAND_set_rand_method(&method) != 1) return error.NoRandomNumbers;
        var diagnostic: tls.Diagnostic = .{};
        const server: *tls.Context = try .init(gpa, .{
            .certificates = &.{certificates.files("even")},
        }, &diagnostic);
        errdefer server.deinit();
        var cast: Cast = .{
            .gpa = gpa,
            .server = server,
            .seals = seals,
            .is_starved = is_starved,
            .clients = undefined,
        };
        var made: usize = 0;
        errdefer for (cast.clients[0..made]) |context| context.deinit();
        while (made < cast.clients.len) : (made += 1) {
            cast.clients[made] = try .initClient(gpa, .{
                .max_version = if (made % 2 == 0) .tls1_3 else .tls1_2,
                .alpn = if (made < 2) &.{"http/1.1"} else &.{"h2"},
            }, &diagnostic);
        }
        return cast;
    }

    pub fn deinit(cast: *Cast) void {
        for (cast.clients) |context| context.deinit();
        cast.server.deinit();
    }

    /// A session for a client of this kind, which sends `first` before everything else.
    pub fn enter(
        cast: *Cast,
        peer: per.io.SimPeer,
        kind: Kind,
        first: []const u8,
        random: std.Random,
    ) !*Secured {
        const of_kind = if (kind == .single) cast.clients[0..2] else cast.clients[2..];
        const context = of_kind[random.uintLessThan(usize, 2)];
        const resumption = if (random.uintLessThan(u8, 3) == 0) try cast.meet(context) else null;
        defer if (resumption) |kept| kept.deinit();
        const secured = try cast.gpa.create(Secured);
        errdefer cast.gpa.destroy(secured);
        secured.* = .{
            .gpa = cast.gpa,
            .peer = peer,
            .session = try .initClient(context, "localhost", resumption),
            .prng = .init(random.int(u64)),
            .habits = .draw(random, cast.seals, cast.is_starved),
        };
        errdefer secured.session.deinit();
        try secured.outgoing.appendSlice(cast.gpa, first);
        _ = try secured.read();
        return secured;
    }

    /// A ticket for a client, by a handshake without a network.
    fn meet(cast: *Cast, context: *tls.Context) !?tls.Resumption {
        var ends: [2]tls.Session = .{
            try .initClient(context, "localhost", null),
            try .init(cast.server, &.{ .{ .name = "http/1.1" }, .{ .name = "h2" } }),
        };
        defer for (&ends) |*end| end.deinit();
        var flights: [2]std.ArrayList(u8) = .{ .empty, .empty };
        defer for (&flights) |*flight| flight.deinit(cast.gpa);
        for (0..8) |turn| {
            const mine = turn % 2;
            var window: [1]u8 = undefined;
            var sink: Sink = .{ .gpa = cast.gpa, .bytes = &flights[mine] };
            const received = ends[mine].receive(flights[1 - mine].items, &window, sink.interface());
            if (received.event != .want_more) return error.HandshakeFailed;
            flights[1 - mine].clearRetainingCapacity();
        }
        return ends[0].takeResumption();
    }
};
