//! A client's session of TLS over the simulated network. It takes plaintext at once, and sends records as the
//! network has room for them. Some clients take new keys, begin a second handshake, end the session before
//! its time, or send records that none can open. Does not know: the meaning of the plaintext.
const std = @import("std");
const per = @import("peregrine");
const tls = per.tls;

/// Functions of libssl that tls.Session has no use for (openssl/ssl.h).
const library = struct {
    const no_renegotiation: u64 = 1 << 30;

    extern fn SSL_key_update(ssl: *anyopaque, kind: c_int) c_int;
    extern fn SSL_clear_options(ssl: *anyopaque, options: u64) u64;
    extern fn SSL_renegotiate(ssl: *anyopaque) c_int;
};

/// Takes what a session has to send.
pub const Sink = struct {
    gpa: std.mem.Allocator,
    bytes: *std.ArrayList(u8),

    pub fn interface(sink: *Sink) tls.Sink {
        return .{ .context = sink, .appendFn = append };
    }

    fn append(context: *anyopaque, bytes: []const u8) tls.Sink.Error!void {
        const sink: *Sink = @ptrCast(@alignCast(context));
        try sink.bytes.appendSlice(sink.gpa, bytes);
    }
};

pub const Secured = struct {
    gpa: std.mem.Allocator,
    peer: per.io.SimPeer,
    session: tls.Session,
    prng: std.Random.DefaultPrng,
    habits: Habits,
    /// Plaintext that waits for the end of the handshake.
    early: std.ArrayList(u8) = .empty,
    /// Records that the network has not taken yet.
    outgoing: std.ArrayList(u8) = .empty,
    /// Plaintext of the last `read`.
    plaintext: std.ArrayList(u8) = .empty,
    /// The client's own sending side. `mute`: it says nothing any more, and leaves the side open.
    side: enum { open, ending, ended, mute } = .open,
    /// The end of what the server says.
    end: enum { open, said, failed } = .open,
    /// The client has broken the rules of TLS, or cut its own words short.
    spoiled: bool = false,
    /// Calls of `read` since bytes came last, or since the client is spoiled.
    vain_reads: usize = 0,

    const backlog_bytes_max = 64 * 1024;
    /// A record that no session has sealed.
    const broken_record = "\x17\x03\x03\x00\x20" ++ @as([32]u8, @splat('n'));

    /// Reads in vain after which a client goes that is spoiled or gives up.
    const vain_reads_max = 200;

    pub const Habits = struct {
        /// Writes out of 1000 with which something goes wrong.
        mischief_permille: u16,
        /// Writes out of 1000 before which the client takes new keys, where its version has that.
        new_keys_permille: u16,
        /// A kernel that seals cannot change its keys: a client that asks for that may lose its session.
        keys_end: bool,
        /// Without memory for its last word a server whose kernel seals says nothing for `linger_ms`.
        gives_up: bool,
        /// The client says close_notify before it goes, and before it ends its sending side.
        is_polite: bool,
        /// Behind close_notify the client ends the sending side of its socket, too.
        ends_socket: bool,

        pub fn draw(random: std.Random, seals: bool, is_starved: bool) Habits {
            return .{
                .mischief_permille = if (random.uintLessThan(u8, 4) == 0)
                    random.intRangeAtMost(u16, 1, 500)
                else
                    0,
                .new_keys_permille = if (random.boolean()) random.uintLessThan(u16, 300) else 0,
                .keys_end = seals,
                .gives_up = seals and is_starved,
                .is_polite = random.uintLessThan(u8, 4) > 0,
                .ends_socket = random.boolean(),
            };
        }
    };

    pub fn destroy(secured: *Secured) void {
        secured.session.deinit();
        secured.early.deinit(secured.gpa);
        secured.outgoing.deinit(secured.gpa);
        secured.plaintext.deinit(secured.gpa);
        secured.gpa.destroy(secured);
    }

    fn chance(secured: *Secured, permille: u16) bool {
        return secured.prng.random().uintLessThan(u16, 1000) < permille;
    }

    /// See `Wire.write`.
    pub fn write(secured: *Secured, bytes: []const u8) !usize {
        if (secured.side != .open or secured.end == .failed) return 0;
        if (secured.outgoing.items.len + secured.early.items.len >= backlog_bytes_max) {
            try secured.flush();
            return 0;
        }
        if (secured.chance(secured.habits.mischief_permille)) {
            try secured.misbehave(bytes);
        } else if (secured.session.isHandshakeDone()) {
            if (secured.chance(secured.habits.new_keys_permille)) secured.takeKeys();
            try secured.seal(bytes);
        } else try secured.early.appendSlice(secured.gpa, bytes);
        try secured.flush();
        return bytes.len;
    }

    fn seal(secured: *Secured, bytes: []const u8) !void {
        var sink: Sink = .{ .gpa = secured.gpa, .bytes = &secured.outgoing };
        return secured.session.write(bytes, sink.interface());
    }

    /// TLS 1.3: the client's keys change, and the server is asked to change its own. Nothing happens in an
    /// older version.
    fn takeKeys(secured: *Secured) void {
        if (!tls.enabled) unreachable;
        const asks = secured.prng.random().boolean();
        if (asks and secured.habits.keys_end) secured.spoiled = true;
        _ = library.SSL_key_update(secured.session.ssl, @intFromBool(asks));
    }

    fn misbehave(secured: *Secured, bytes: []const u8) !void {
        secured.spoiled = true;
        const outgoing = &secured.outgoing;
        switch (secured.prng.random().uintLessThan(u8, 8)) {
            0, 1, 2 => try outgoing.appendSlice(secured.gpa, broken_record),
            3 => try outgoing.appendSlice(secured.gpa, "GET / HTTP/1.1\r\nHost: sim\r\n\r\n"),
            4 => if (outgoing.items.len > 0) {
                const at = secured.prng.random().uintLessThan(usize, outgoing.items.len);
                outgoing.items[at] ^= 1;
            },
            5 => secured.sayEnd(),
            6 => return secured.shutdown(),
            7 => if (secured.session.isHandshakeDone()) {
                if (!tls.enabled) unreachable;
                _ = library.SSL_clear_options(secured.session.ssl, library.no_renegotiation);
                // A refused handshake ends the client's session, and no other.
                if (library.SSL_renegotiate(secured.session.ssl) == 1) secured.seal(bytes) catch {};
            },
            else => unreachable,
        }
        secured.side = .mute;
    }

    /// See `Wire.read`.
    pub fn read(secured: *Secured) ![]const u8 {
        secured.plaintext.clearRetainingCapacity();
        var rest = secured.peer.read();
        secured.vain_reads = if (rest.len > 0 and !secured.spoiled) 0 else secured.vain_reads + 1;
        var window: [5_000]u8 = undefined;
        var sink: Sink = .{ .gpa = secured.gpa, .bytes = &secured.outgoing };
        while (secured.end == .open) {
            const received = secured.session.receive(rest, &window, sink.interface());
            rest = rest[received.consumed..];
            switch (received.event) {
                .plaintext => |len| try secured.plaintext.appendSlice(secured.gpa, window[0..len]),
                .want_more => break,
                .closed => secured.end = .said,
                .failed => |reason| {
                    secured.end = .failed;
                    if (secured.spoiled) break;
                    std.debug.print("\nTLS: {s}\n", .{reason});
                    return error.SessionFailed;
                },
                .plain_http => unreachable, // only a server hears that
            }
        }
        if (secured.session.isHandshakeDone() and secured.early.items.len > 0) {
            try secured.seal(secured.early.items);
            secured.early.clearRetainingCapacity();
        }
        try secured.flush();
        return secured.plaintext.items;
    }

    fn flush(secured: *Secured) !void {
        if (secured.side == .ended) return secured.outgoing.clearRetainingCapacity();
        if (secured.side == .ending and secured.early.items.len == 0 and secured.habits.is_polite) {
            secured.sayEnd();
        }
        const sent = try secured.peer.write(secured.outgoing.items);
        secured.outgoing.replaceRangeAssumeCapacity(0, sent, "");
        if (secured.side != .ending or secured.outgoing.items.len + secured.early.items.len > 0) return;
        secured.side = .ended;
        if (secured.habits.ends_socket or !secured.habits.is_polite) secured.peer.shutdown();
    }

    fn sayEnd(secured: *Secured) void {
        var sink: Sink = .{ .gpa = secured.gpa, .bytes = &secured.outgoing };
        // Expected: a session in the midst of a ticket, or of a second handshake, cannot say it.
        secured.session.shutdown(sink.interface()) catch {};
    }

    /// See `Wire.shutdown`.
    pub fn shutdown(secured: *Secured) !void {
        if (secured.side == .open) secured.side = .ending;
        try secured.flush();
    }

    /// See `Wire.close`.
    pub fn close(secured: *Secured) !void {
        if (secured.habits.is_polite and secured.side == .open) {
            secured.sayEnd();
            try secured.flush();
        }
        secured.peer.close();
    }

    /// See `Wire.ended`.
    pub fn ended(secured: *Secured) ?per.io.Ended {
        return switch (secured.end) {
            .open => if (secured.vain_reads > vain_reads_max and
                (secured.spoiled or secured.habits.gives_up)) .reset else secured.peer.ended(),
            .said => .eof,
            .failed => .reset,
        };
    }
};
