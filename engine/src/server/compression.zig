//! permessage-deflate at work (RFC 7692): two inflaters and one deflater serve all WebSockets of a worker,
//! message by message.
//!
//! Memory is taken at the first message that needs it. A worker takes `Inflater` and a window of 32 KiB to
//! inflate, as much again for large messages, which are inflated by slices (inflation.zig), and 160 KiB to
//! deflate. A WebSocket takes nothing between two messages, unless it keeps its history (context takeover):
//! then it holds 2^client_window_bits bytes for messages that it receives, and
//! Deflater.memoryBytes(server_window_bits) for messages that it is sent, until it ends:
//!
//!     bits         15       14       13       12       11       10        9        8
//!     received 32 KiB   16 KiB    8 KiB    4 KiB    2 KiB    1 KiB    512 B        -
//!     sent    160 KiB   96 KiB   48 KiB   24 KiB   12 KiB    8 KiB    7 KiB  6.5 KiB
//!
//! Does not know: frames, and which messages are worth compressing.
const std = @import("std");
const assert = std.debug.assert;
const protocol = @import("protocol");
const deflate = protocol.websocket.deflate;
const Agreement = deflate.Agreement;
const Deflater = deflate.Deflater;
const History = deflate.History;
const Inflater = deflate.Inflater;
const Budget = @import("budget.zig").Budget;
const Config = @import("config.zig").Config;
const Inflation = @import("inflation.zig").Inflation;
const Input = @import("input.zig").Input;
const Pool = @import("pool.zig").Pool;

/// The largest window of RFC 7692.
const window_bits_max = 15;

/// The compression agreement of one WebSocket, and its histories if they are kept from message to message.
pub const Context = struct {
    agreement: Agreement,
    receiver: ?*Receiver = null,
    sender: ?*Sender = null,

    /// Accepts the first offer of a handshake that can be met under `config` (RFC 7692 section 5); null:
    /// there is none.
    pub fn negotiate(
        text: []const u8,
        fields: []const protocol.http.FieldSpan,
        config: *const Config,
    ) ?Context {
        const agreement = deflate.negotiate(text, fields, .{
            .server_window_bits_max = @intCast(config.deflate_server_window_bits),
            .client_window_bits_max = @intCast(config.deflate_client_window_bits),
            .server_takeover = config.deflate_server_takeover,
            .client_takeover = config.deflate_client_takeover,
        }) orelse return null;
        return .{ .agreement = agreement };
    }

    /// Forgets sent messages: the next message to the peer refers to no earlier one.
    pub fn forgetSent(context: *Context) void {
        if (context.sender) |sender| sender.deflater.forget();
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
        assert(window_bits >= 8);
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
        assert(window_bits >= 8);
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

pub const Compression = struct {
    gpa: std.mem.Allocator,
    /// The inflater of messages that are inflated at once. `receiver` has the history for WebSockets that
    /// keep none.
    inflater: ?*Inflater = null,
    receiver: ?*Receiver = null,
    /// The inflater of the message that is inflated slice by slice; `slice_receiver` is like `receiver`.
    slicer: ?*Inflater = null,
    slice_receiver: ?*Receiver = null,
    /// The deflater for WebSockets that keep no history.
    sender: ?*Sender = null,

    pub fn init(gpa: std.mem.Allocator) Compression {
        return .{ .gpa = gpa };
    }

    pub fn deinit(c: *Compression) void {
        for ([_]?*Inflater{ c.inflater, c.slicer }) |place| if (place) |inflater| c.gpa.destroy(inflater);
        for ([_]?*Receiver{ c.receiver, c.slice_receiver }) |place| {
            if (place) |receiver| receiver.destroy(c.gpa);
        }
        if (c.sender) |sender| sender.destroy(c.gpa);
        c.* = undefined;
    }

    /// The memory that is held for all WebSockets of the worker, in bytes, without the histories of single
    /// WebSockets.
    pub fn memoryBytes(c: *const Compression) usize {
        var bytes: usize = 0;
        for ([_]?*Inflater{ c.inflater, c.slicer }) |place| if (place != null) {
            bytes += @sizeOf(Inflater);
        };
        for ([_]?*Receiver{ c.receiver, c.slice_receiver }) |place| if (place) |receiver| {
            bytes += @sizeOf(Receiver) + receiver.history.ring.len;
        };
        if (c.sender) |sender| bytes += @sizeOf(Sender) + sender.memory.len;
        return bytes;
    }

    /// Reasons why a message cannot be inflated.
    pub const InflateError = deflate.InflateError || error{OutOfMemory};

    pub const at_once_bytes_max = @import("config.zig").worker_limits.inflated_at_once_bytes_max;

    /// Inflates a whole message of at most `room` bytes. Null: the message is longer, and nothing has
    /// changed. The caller gives the result back to the pool. `limit` is the largest size that is allowed.
    pub fn inflateAtOnce(
        c: *Compression,
        context: *Context,
        pool: *Pool,
        message: []const u8,
        limit: u64,
        room: usize,
    ) InflateError!?Input {
        assert(message.len <= at_once_bytes_max);
        if (c.inflater == null) c.inflater = try createInflater(c.gpa);
        c.inflater.?.begin(try c.historyOf(context, &c.receiver), limit);
        const buffer = try pool.take(room);
        errdefer pool.give(buffer);
        const len = try c.inflater.?.inflateWhole(message, buffer[0..room]) orelse {
            pool.give(buffer);
            return null;
        };
        return .{ .buffer = buffer, .end = @intCast(len) };
    }

    /// The result of inflating one slice of a message.
    pub const Slice = struct {
        /// The inflated bytes; valid as long as `Inflation.out` does not change.
        bytes: []const u8,
        /// Bytes that came out, and `Budget.compressed_factor` times the bytes that were read, in the unit of
        /// `Line.round_cost`.
        cost: usize,
        /// The message is complete.
        done: bool,
    };

    const slice_in = 8 * 1024;
    const slice_out = 64 * 1024;

    /// Inflates the next slice of `message`. From a message's first slice on, no other message may be
    /// inflated by slices until this one is done, has failed or was dropped.
    pub fn inflateSlice(
        c: *Compression,
        context: *Context,
        inflation: *Inflation,
        pool: *Pool,
        message: []const u8,
        limit: u64,
    ) InflateError!Slice {
        if (c.slicer == null) c.slicer = try createInflater(c.gpa);
        const slicer = c.slicer.?;
        if (!inflation.begun) slicer.begin(try c.historyOf(context, &c.slice_receiver), limit);
        inflation.begun = true;
        const in = message[inflation.consumed..][0..@min(slice_in, message.len - inflation.consumed)];
        const last = inflation.consumed + in.len == message.len;
        const before = inflation.out.unread().len;
        // One byte more than the message may have: only so can a message of just that size be told from a
        // longer one.
        const most: usize = @intCast(@min(limit, Input.bytes_max - 1) + 1);
        const space = try inflation.out.reserveWithin(pool, @min(slice_out, most - before), most);
        const step = try slicer.inflate(in, last, space[0..@min(slice_out, space.len)]);
        inflation.out.commit(step.produced);
        inflation.consumed += step.consumed;
        return .{
            .bytes = inflation.out.unread()[before..],
            .cost = slice_cost_min + step.produced + step.consumed * Budget.compressed_factor,
            .done = step.state == .done,
        };
    }

    /// The least cost of a slice, so that slices end a round even if they achieve nothing.
    const slice_cost_min = 1024;

    fn createInflater(gpa: std.mem.Allocator) error{OutOfMemory}!*Inflater {
        const inflater = try gpa.create(Inflater);
        inflater.* = .{};
        return inflater;
    }

    /// The history that the peer's next message may refer to: the WebSocket's own, or the empty one of
    /// `shared`.
    fn historyOf(c: *Compression, context: *Context, shared: *?*Receiver) error{OutOfMemory}!*History {
        const own = context.agreement.client_takeover;
        const place = if (own) &context.receiver else shared;
        if (place.* == null) {
            place.* = try .create(
                c.gpa,
                if (own) context.agreement.inflaterWindowBits() else window_bits_max,
            );
        }
        const history = &place.*.?.history;
        if (!own) history.clear();
        return history;
    }

    /// The deflater for the next message to the peer. The caller must deflate the message to its end, or
    /// forget it.
    pub fn deflater(c: *Compression, context: *Context) error{OutOfMemory}!*Deflater {
        const bits = context.agreement.server_window_bits;
        if (context.agreement.server_takeover) {
            if (context.sender == null) context.sender = try .create(c.gpa, bits, true);
            return &context.sender.?.deflater;
        }
        const deflater_of_all = try c.sharedDeflater();
        deflater_of_all.limitWindow(bits);
        return deflater_of_all;
    }

    /// The deflater without history that all WebSockets share. It fits any window, and is free between two
    /// messages.
    pub fn sharedDeflater(c: *Compression) error{OutOfMemory}!*Deflater {
        if (c.sender == null) c.sender = try .create(c.gpa, window_bits_max, false);
        return &c.sender.?.deflater;
    }
};

const testing = std.testing;

/// An agreement in which both sides keep their histories, or neither does, and windows have full size.
fn agreed(takeover: bool) Agreement {
    return .{
        .server_takeover = takeover,
        .client_takeover = takeover,
        .server_window_bits = 15,
        .client_window_bits = 15,
    };
}

/// A client with its own history of both directions, and a server, each of which inflates the messages of the
/// other.
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

    /// Sends a message from `from` to `to`, and returns its compressed size.
    fn pass(pair: *Pair, from: *Context, to: *Context, message: []const u8) !usize {
        var wire: [Deflater.outputBytesMax(100_000)]u8 = undefined;
        const len = (try pair.compression.deflater(from)).deflate(message, true, &wire);
        var out = try pair.inflated(to, wire[0..len], message.len);
        defer out.deinit(&pair.pool);
        try testing.expectEqualStrings(message, out.unread());
        return len;
    }

    /// Inflates a short message at once, and a long one by slices.
    fn inflated(pair: *Pair, context: *Context, wire: []const u8, limit: u64) !Input {
        if (wire.len <= Compression.at_once_bytes_max) {
            if (try pair.compression.inflateAtOnce(
                context,
                &pair.pool,
                wire,
                limit,
                Budget.large_bytes,
            )) |out| {
                return out;
            }
        }
        var inflation: Inflation = .{ .ticket = .none, .kind = .binary };
        errdefer inflation.out.deinit(&pair.pool);
        while (true) {
            const slice = try pair.compression.inflateSlice(context, &inflation, &pair.pool, wire, limit);
            try testing.expect(slice.bytes.len <= Compression.slice_out);
            if (slice.done) return inflation.out;
        }
    }
};

test "with context takeover a WebSocket keeps its histories, without it keeps nothing" {
    const text = "Once more: a text that comes again, and again, and again; a text that comes again, " ++
        "and another time";
    for ([_]bool{ true, false }) |ours| for ([_]bool{ true, false }) |theirs| {
        var pair: Pair = .init(.{
            .server_takeover = ours,
            .client_takeover = theirs,
            .server_window_bits = 10,
            .client_window_bits = 12,
        });
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

test "a sender that forgets its history is understood behind messages that others have compressed" {
    const text = "A text that comes again, and again: a text that comes again, and another time";
    var pair: Pair = .init(agreed(true));
    defer pair.deinit();
    for (0..2) |_| {
        _ = try pair.pass(&pair.ours, &pair.theirs, text);
        var wire: [100]u8 = undefined;
        const len = (try pair.compression.sharedDeflater()).deflate("Of all the others.", true, &wire);
        var out = try pair.inflated(&pair.theirs, wire[0..len], 100);
        defer out.deinit(&pair.pool);
        try testing.expectEqualStrings("Of all the others.", out.unread());
        pair.ours.forgetSent();
    }
}

test "a message that inflates to more than its limit is stopped there, and the next message is read" {
    var pair: Pair = .init(agreed(false));
    defer pair.deinit();
    const zeros: [100_000]u8 = @splat(0);
    var wire: [1000]u8 = undefined;
    var bomb: [Deflater.outputBytesMax(zeros.len)]u8 = undefined;
    const len = (try pair.compression.deflater(&pair.ours)).deflate(&zeros, true, &bomb);
    @memcpy(wire[0..len], bomb[0..len]);
    try testing.expectError(error.TooBig, pair.inflated(&pair.theirs, wire[0..len], zeros.len - 1));
    try testing.expectError(error.Corrupt, pair.inflated(&pair.theirs, wire[0 .. len / 2], zeros.len));
    try testing.expectEqual(0, pair.pool.taken_bytes);
    _ = try pair.pass(&pair.theirs, &pair.ours, &zeros);
}

test "a large message takes as much memory as it needs, and no round for itself" {
    var pair: Pair = .init(agreed(true));
    defer pair.deinit();
    const zeros = try testing.allocator.alloc(u8, 5 * 1024 * 1024 + 1);
    defer testing.allocator.free(zeros);
    @memset(zeros, 0);
    const wire = try testing.allocator.alloc(u8, Deflater.outputBytesMax(zeros.len));
    defer testing.allocator.free(wire);
    const len = (try pair.compression.deflater(&pair.theirs)).deflate(zeros, true, wire);
    var inflation: Inflation = .{ .ticket = .none, .kind = .binary };
    defer inflation.out.deinit(&pair.pool);
    // Another WebSocket, whose messages are inflated at once between two slices.
    var other: Context = .{ .agreement = agreed(false) };
    var slices: usize = 1;
    while (!(try pair.compression.inflateSlice(
        &pair.ours,
        &inflation,
        &pair.pool,
        wire[0..len],
        zeros.len,
    )).done) : (slices += 1) {
        try testing.expect(inflation.out.unread().len <= slices * Compression.slice_out);
        var hello = (try pair.compression.inflateAtOnce(
            &other,
            &pair.pool,
            "\xf2\x48\xcd\xc9\xc9\x07\x00",
            5,
            5,
        )).?;
        defer hello.deinit(&pair.pool);
        try testing.expectEqualStrings("Hello", hello.unread());
    }
    try testing.expect(slices > zeros.len / Compression.slice_out);
    try testing.expectEqualSlices(u8, zeros, inflation.out.unread());
    try testing.expectEqual(zeros.len + 1, pair.pool.taken_bytes);
}

test "no memory is an answer, not an end" {
    for (0..9) |fail_index| {
        var failing: testing.FailingAllocator = .init(testing.allocator, .{ .fail_index = fail_index });
        var pool: Pool = .init(failing.allocator());
        defer pool.deinit();
        var compression: Compression = .init(failing.allocator());
        defer compression.deinit();
        var context: Context = .{ .agreement = agreed(true) };
        defer context.deinit(failing.allocator());
        const hello = "\xf2\x48\xcd\xc9\xc9\x07\x00";
        if (compression.inflateAtOnce(&context, &pool, hello, 5, 100)) |inflated| {
            var out = inflated.?;
            out.deinit(&pool);
        } else |err| try testing.expectEqual(error.OutOfMemory, err);
        var inflation: Inflation = .{ .ticket = .none, .kind = .text };
        defer inflation.out.deinit(&pool);
        if (compression.inflateSlice(&context, &inflation, &pool, hello, 5)) |slice| {
            try testing.expectEqualStrings("Hello", slice.bytes);
        } else |err| try testing.expectEqual(error.OutOfMemory, err);
        if (compression.deflater(&context)) |_| {} else |err| try testing.expectEqual(error.OutOfMemory, err);
    }
}
