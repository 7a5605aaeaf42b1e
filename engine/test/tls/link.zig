//! Two sessions joined in memory, for the TLS tests and the bench: what one side's sink takes, the other side
//! receives. Does not know: what is being tested.
const std = @import("std");
const tls = @import("tls");

/// A side of a link: a session, the ciphertext that it wrote, and the plaintext that it read.
pub const End = struct {
    gpa: std.mem.Allocator,
    session: tls.Session,
    /// Ciphertext on its way to the other side.
    outbox: std.ArrayList(u8) = .empty,
    /// Everything decrypted so far.
    inbox: std.ArrayList(u8) = .empty,
    /// The last event that was not plaintext.
    event: tls.Event = .want_more,

    /// Takes this side's ciphertext.
    pub fn sink(end: *End) tls.Sink {
        return .{ .context = end, .appendFn = append };
    }

    fn append(context: *anyopaque, bytes: []const u8) tls.Sink.Error!void {
        const end: *End = @ptrCast(@alignCast(context));
        try end.outbox.appendSlice(end.gpa, bytes);
    }

    /// Gives `ciphertext` to the session until it wants more or ends.
    pub fn receive(end: *End, ciphertext: []const u8, window: []u8) !void {
        var rest = ciphertext;
        var is_dry = false;
        while (true) {
            const received = end.session.receive(rest, window, end.sink());
            rest = rest[received.consumed..];
            if (is_dry) std.debug.assert(received.event == .want_more);
            is_dry = received.is_dry;
            switch (received.event) {
                .plaintext => |n| try end.inbox.appendSlice(end.gpa, window[0..n]),
                else => |event| {
                    end.event = event;
                    return;
                },
            }
        }
    }

    /// Encrypts `plaintext` into the outbox.
    pub fn write(end: *End, plaintext: []const u8) !void {
        try end.session.write(plaintext, end.sink());
    }

    /// Frees this side.
    pub fn deinit(end: *End) void {
        end.session.deinit();
        end.outbox.deinit(end.gpa);
        end.inbox.deinit(end.gpa);
    }
};

/// How bytes are cut on their way.
pub const Cut = struct {
    /// At most this many bytes arrive together.
    step: usize = std.math.maxInt(usize),
    /// An additional cut after this many bytes of each direction.
    split: usize = 0,
    /// Size of the buffer for plaintext.
    window: usize = tls.record_plaintext_bytes_max,
};

/// A client and a server.
pub const Link = struct {
    client: End,
    server: End,
    /// Bytes that arrived at the server so far.
    to_server: usize = 0,
    /// Bytes that arrived at the client so far.
    to_client: usize = 0,

    /// Begins both sessions; nothing is exchanged yet.
    pub fn init(
        gpa: std.mem.Allocator,
        server: *tls.Context,
        client: *tls.Context,
        name: ?[:0]const u8,
        resumption: ?tls.Resumption,
    ) !Link {
        return initAgreeing(gpa, server, &.{}, client, name, resumption);
    }

    /// Like `init`, with protocols of the server's for ALPN.
    pub fn initAgreeing(
        gpa: std.mem.Allocator,
        server: *tls.Context,
        protocols: []const tls.Protocol,
        client: *tls.Context,
        name: ?[:0]const u8,
        resumption: ?tls.Resumption,
    ) !Link {
        var server_session: tls.Session = try .init(server, protocols);
        errdefer server_session.deinit();
        return .{
            .client = .{ .gpa = gpa, .session = try .initClient(client, name, resumption) },
            .server = .{ .gpa = gpa, .session = server_session },
        };
    }

    /// Frees both sides.
    pub fn deinit(link: *Link) void {
        link.client.deinit();
        link.server.deinit();
    }

    /// Carries bytes both ways until nothing is left to carry.
    pub fn settle(link: *Link, cut: Cut) !void {
        var window: [tls.record_plaintext_bytes_max]u8 = undefined;
        if (link.to_server == 0) try link.client.receive("", window[0..cut.window]);
        while (link.client.outbox.items.len + link.server.outbox.items.len > 0) {
            try carry(&link.client, &link.server, &link.to_server, cut, window[0..cut.window]);
            try carry(&link.server, &link.client, &link.to_client, cut, window[0..cut.window]);
        }
    }

    fn carry(from: *End, to: *End, carried: *usize, cut: Cut, window: []u8) !void {
        var flight = from.outbox;
        from.outbox = .empty;
        defer flight.deinit(from.gpa);
        var rest: []const u8 = flight.items;
        while (rest.len > 0) {
            var n = @min(rest.len, cut.step);
            if (carried.* < cut.split) n = @min(n, cut.split - carried.*);
            // A copy of its own, so that reading beyond it shows, and reading it later too.
            const piece = try from.gpa.dupe(u8, rest[0..n]);
            defer from.gpa.free(piece);
            try to.receive(piece, window);
            carried.* += n;
            rest = rest[n..];
        }
    }
};
