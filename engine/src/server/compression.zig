//! permessage-deflate at work (RFC 7692): one inflater and one deflater serve all WebSockets of a worker, message by message.
//!
//! Memory is taken at the first message that needs it. For a worker: `Inflater` and a window of 32 KiB to inflate, 160 KiB to deflate. For a
//! WebSocket: nothing between two messages, unless it keeps its history (context takeover), and then, until it ends, at most
//!
//!     2^client_window_bits for what it receives, and Deflater.memoryBytes(server_window_bits) for what it is sent:
//!
//!     bits                                    15       14       13       12       11       10        9        8
//!     what the client sends (takeover)    32 KiB   16 KiB    8 KiB    4 KiB    2 KiB    1 KiB    512 B        -
//!     what it is sent (takeover)         160 KiB   96 KiB   48 KiB   24 KiB   12 KiB    8 KiB    7 KiB  6.5 KiB
//!
//! Refuses to know: frames, and which messages are worth compressing.
const std = @import("std");
const protocol = @import("protocol");
const deflate = protocol.websocket.deflate;
const Agreement = deflate.Agreement;
const Deflater = deflate.Deflater;
const History = deflate.History;
const Inflater = deflate.Inflater;
const Config = @import("config.zig").Config;
const Input = @import("input.zig").Input;
const Pool = @import("pool.zig").Pool;

/// The largest window of RFC 7692.
const window_bits_max = 15;

/// What one WebSocket has agreed on, and what it keeps from message to message.
pub const Context = struct {
    agreement: Agreement,
    receiver: ?*Receiver = null,
    sender: ?*Sender = null,

    /// Takes the first offer of a handshake that can be met under `config`; null if there is none or none is wanted.
    pub fn negotiate(text: []const u8, fields: []const protocol.http.FieldSpan, config: *const Config) ?Context {
        if (!config.deflate) return null;
        const agreement = deflate.negotiate(text, fields, .{
            .server_window_bits_max = @intCast(config.deflate_server_window_bits),
            .client_window_bits_max = @intCast(config.deflate_client_window_bits),
            .server_takeover = config.deflate_server_takeover,
            .client_takeover = config.deflate_client_takeover,
        }) orelse return null;
        return .{ .agreement = agreement };
    }

    pub fn deinit(context: *Context, gpa: std.mem.Allocator) void {
        if (context.receiver) |receiver| receiver.destroy(gpa);
        if (context.sender) |sender| sender.destroy(gpa);
        context.* = undefined;
    }
};

const Receiver = struct {
    history: History,

    fn create(gpa: std.mem.Allocator, window_bits: u4) error{OutOfMemory}!*Receiver {
        const receiver = try gpa.create(Receiver);
        errdefer gpa.destroy(receiver);
        receiver.* = .{ .history = .init(try gpa.alloc(u8, @as(usize, 1) << window_bits)) };
        return receiver;
    }

    fn destroy(receiver: *Receiver, gpa: std.mem.Allocator) void {
        gpa.free(receiver.history.ring);
        gpa.destroy(receiver);
    }
};

const Sender = struct {
    memory: []align(2) u8,
    deflater: Deflater,

    fn create(gpa: std.mem.Allocator, window_bits: u4, takeover: bool) error{OutOfMemory}!*Sender {
        const sender = try gpa.create(Sender);
        errdefer gpa.destroy(sender);
        const memory = try gpa.alignedAlloc(u8, .@"2", Deflater.memoryBytes(window_bits));
        sender.* = .{ .memory = memory, .deflater = .init(memory, window_bits, takeover) };
        return sender;
    }

    fn destroy(sender: *Sender, gpa: std.mem.Allocator) void {
        gpa.free(sender.memory);
        gpa.destroy(sender);
    }
};

/// One for each worker.
pub const Compression = struct {
    gpa: std.mem.Allocator,
    inflater: ?*Inflater = null,
    /// For WebSockets without a history of their own.
    receiver: ?*Receiver = null,
    sender: ?*Sender = null,

    pub fn init(gpa: std.mem.Allocator) Compression {
        return .{ .gpa = gpa };
    }

    pub fn deinit(c: *Compression) void {
        if (c.inflater) |inflater| c.gpa.destroy(inflater);
        if (c.receiver) |receiver| receiver.destroy(c.gpa);
        if (c.sender) |sender| sender.destroy(c.gpa);
        c.* = undefined;
    }

    /// Bytes held for the worker; what WebSockets keep is not among them.
    pub fn memoryBytes(c: *const Compression) usize {
        var bytes: usize = 0;
        if (c.inflater) |inflater| bytes += @sizeOf(@TypeOf(inflater.*));
        if (c.receiver) |receiver| bytes += @sizeOf(Receiver) + receiver.history.ring.len;
        if (c.sender) |sender| bytes += @sizeOf(Sender) + sender.memory.len;
        return bytes;
    }

    /// Why a message cannot be inflated.
    pub const InflateError = deflate.InflateError || error{OutOfMemory};

    /// Inflates a whole message. No more than `limit` bytes come out, and at no time is more than twice that held. The caller gives the
    /// result back to the pool.
    pub fn inflate(c: *Compression, context: *Context, pool: *Pool, message: []const u8, limit: u64) InflateError!Input {
        if (c.inflater == null) {
            c.inflater = try c.gpa.create(Inflater);
            c.inflater.?.* = .{};
        }
        const inflater = c.inflater.?;
        inflater.begin(try c.historyOf(context), limit);
        var out: Input = .{};
        errdefer out.deinit(pool);
        var rest = message;
        // Text shrinks to a third or so; if that was not enough, the room doubles each time.
        var guess = std.math.clamp(3 * message.len, 512, 64 * 1024);
        while (true) {
            const space = try out.reserve(pool, guess);
            const step = try inflater.inflate(rest, true, space);
            rest = rest[step.consumed..];
            out.commit(step.produced);
            if (step.state == .done) return out;
            guess = 1;
        }
    }

    /// What the next message of the peer may refer to.
    fn historyOf(c: *Compression, context: *Context) error{OutOfMemory}!*History {
        const own = context.agreement.client_takeover;
        const place = if (own) &context.receiver else &c.receiver;
        if (place.* == null) place.* = try .create(c.gpa, if (own) context.agreement.inflaterWindowBits() else window_bits_max);
        const history = &place.*.?.history;
        if (!own) history.clear();
        return history;
    }

    /// The deflater for the next message to the peer, which must be deflated to its end or forgotten.
    pub fn deflater(c: *Compression, context: *Context) error{OutOfMemory}!*Deflater {
        const bits = context.agreement.server_window_bits;
        if (context.agreement.server_takeover) {
            if (context.sender == null) context.sender = try .create(c.gpa, bits, true);
            return &context.sender.?.deflater;
        }
        if (c.sender == null) c.sender = try .create(c.gpa, window_bits_max, false);
        const shared = &c.sender.?.deflater;
        shared.limitWindow(bits);
        return shared;
    }
};

const testing = std.testing;

/// What a client with its own history of both directions makes of our messages, and we of its.
const Pair = struct {
    pool: Pool,
    compression: Compression,
    ours: Context,
    theirs: Context,

    fn init(agreement: Agreement) Pair {
        var reversed = agreement;
        reversed.server_takeover = agreement.client_takeover;
        reversed.client_takeover = agreement.server_takeover;
        std.mem.swap(u4, &reversed.server_window_bits, &reversed.client_window_bits);
        return .{
            .pool = .init(testing.allocator),
            .compression = .init(testing.allocator),
            .ours = .{ .agreement = agreement },
            .theirs = .{ .agreement = reversed },
        };
    }

    fn deinit(pair: *Pair) void {
        pair.ours.deinit(testing.allocator);
        pair.theirs.deinit(testing.allocator);
        pair.compression.deinit();
        pair.pool.deinit();
    }

    /// Sends a message one way; answers its compressed size.
    fn pass(pair: *Pair, from: *Context, to: *Context, message: []const u8) !usize {
        var wire: [Deflater.outputBytesMax(100_000)]u8 = undefined;
        const len = (try pair.compression.deflater(from)).deflate(message, true, &wire);
        var out = try pair.compression.inflate(to, &pair.pool, wire[0..len], message.len);
        defer out.deinit(&pair.pool);
        try testing.expectEqualStrings(message, out.unread());
        return len;
    }
};

test "with context takeover a WebSocket keeps its histories, without it keeps nothing" {
    const text = "Once more: a text that comes again, and again, and again; a text that comes again, and another time";
    for ([_]bool{ true, false }) |ours| for ([_]bool{ true, false }) |theirs| {
        var pair: Pair = .init(.{ .server_takeover = ours, .client_takeover = theirs, .server_window_bits = 10, .client_window_bits = 12 });
        defer pair.deinit();
        const first = try pair.pass(&pair.ours, &pair.theirs, text);
        const back = try pair.pass(&pair.theirs, &pair.ours, text);
        try testing.expectEqual(ours, try pair.pass(&pair.ours, &pair.theirs, text) < first);
        try testing.expectEqual(theirs, try pair.pass(&pair.theirs, &pair.ours, text) < back);
        try testing.expectEqual(ours, pair.ours.sender != null);
        try testing.expectEqual(theirs, pair.ours.receiver != null);
        if (pair.ours.sender) |sender| try testing.expectEqual(8 * 1024, sender.memory.len);
        if (pair.ours.receiver) |receiver| try testing.expectEqual(4 * 1024, receiver.history.ring.len);
    };
}

test "what inflates to more than its limit is stopped there, and the next message is read" {
    var pair: Pair = .init(.{ .server_takeover = false, .client_takeover = false, .server_window_bits = 15, .client_window_bits = 15 });
    defer pair.deinit();
    const zeros: [100_000]u8 = @splat(0);
    var wire: [1000]u8 = undefined;
    var bomb: [Deflater.outputBytesMax(zeros.len)]u8 = undefined;
    const len = (try pair.compression.deflater(&pair.ours)).deflate(&zeros, true, &bomb);
    @memcpy(wire[0..len], bomb[0..len]);
    try testing.expectError(error.TooBig, pair.compression.inflate(&pair.theirs, &pair.pool, wire[0..len], zeros.len - 1));
    try testing.expectError(error.Corrupt, pair.compression.inflate(&pair.theirs, &pair.pool, wire[0 .. len / 2], zeros.len));
    try testing.expectEqual(0, pair.pool.taken_bytes);
    _ = try pair.pass(&pair.theirs, &pair.ours, &zeros);
}

test "no memory is an answer, not an end" {
    for (0..6) |fail_index| {
        var failing: testing.FailingAllocator = .init(testing.allocator, .{ .fail_index = fail_index });
        var pool: Pool = .init(failing.allocator());
        defer pool.deinit();
        var compression: Compression = .init(failing.allocator());
        defer compression.deinit();
        var context: Context = .{
            .agreement = .{ .server_takeover = true, .client_takeover = true, .server_window_bits = 15, .client_window_bits = 15 },
        };
        defer context.deinit(failing.allocator());
        const hello = "\xf2\x48\xcd\xc9\xc9\x07\x00";
        if (compression.inflate(&context, &pool, hello, 5)) |inflated| {
            var out = inflated;
            out.deinit(&pool);
        } else |err| try testing.expectEqual(error.OutOfMemory, err);
        if (compression.deflater(&context)) |_| {} else |err| try testing.expectEqual(error.OutOfMemory, err);
    }
}
