//! Inflates the messages of one permessage-deflate direction (RFC 7692 section 7.2.2, RFC 1951): compressed
//! pieces in, pieces of limited size out, cut anywhere. std.compress.flate is not used, because the stream
//! must stop and continue at any byte of input or output, keep its window between messages, and count output
//! before it is written. Does not know: frames, text, and the source of its window's memory.
const std = @import("std");
const assert = std.debug.assert;
const codes = @import("codes.zig");

/// A table for codes of at most `fast_bits` bits, and a canonical walk for the few longer ones.
fn Decoder(comptime symbols_max: usize, comptime fast_bits: u4) type {
    return struct {
        const Self = @This();

        /// Indexed by the next `fast_bits` of input: symbol * 16 + code length; 0: the code is longer, or
        /// there is none.
        fast: [1 << fast_bits]u16,
        /// The number of codes of each length, and the symbols in the order of their codes.
        count: [codes.code_bits_max + 1]u16,
        symbols: [symbols_max]u16,

        const Found = struct { symbol: u16, bits: u4 };

        /// Builds the table. Refuses codes that have too many symbols for their lengths or are incomplete.
        /// `.short_allowed` accepts a single symbol of one bit, or no symbol: blocks with one distance or
        /// none have such codes.
        fn init(
            d: *Self,
            lens: []const u4,
            comptime rule: enum { complete, short_allowed },
        ) error{Corrupt}!void {
            assert(lens.len <= symbols_max);
            d.count = @splat(0);
            for (lens) |len| d.count[len] += 1;
            d.count[0] = 0;
            var left: i32 = 1;
            var offset: [codes.code_bits_max + 2]u16 = @splat(0);
            for (1..codes.code_bits_max + 1) |bits| {
                left = left * 2 - d.count[bits];
                if (left < 0) return error.Corrupt;
                offset[bits + 1] = offset[bits] + d.count[bits];
            }
            const total = offset[codes.code_bits_max + 1];
            const short = rule == .short_allowed and (total == 0 or (total == 1 and d.count[1] == 1));
            if (left > 0 and !short) return error.Corrupt;
            for (lens, 0..) |len, symbol| if (len != 0) {
                d.symbols[offset[len]] = @intCast(symbol);
                offset[len] += 1;
            };
            d.fill();
        }

        fn fill(d: *Self) void {
            d.fast = @splat(0);
            var code: u16 = 0;
            var at: usize = 0;
            for (1..@as(usize, fast_bits) + 1) |bits| {
                code <<= 1;
                for (0..d.count[bits]) |_| {
                    var slot: usize = @bitReverse(code) >> @intCast(16 - bits);
                    while (slot < d.fast.len) : (slot += @as(usize, 1) << @intCast(bits)) {
                        d.fast[slot] = d.symbols[at] << 4 | @as(u16, @intCast(bits));
                    }
                    code += 1;
                    at += 1;
                }
            }
        }

        /// Returns the first symbol of `bits`; null: no code begins with these bits. Bits after the end of
        /// input must be 0; `Found.bits` shows if the result depends on them.
        inline fn find(d: *const Self, bits: u64) ?Found {
            const entry = d.fast[@as(usize, @truncate(bits)) & (d.fast.len - 1)];
            if (entry != 0) return .{ .symbol = entry >> 4, .bits = @truncate(entry) };
            return d.walk(bits);
        }

        fn walk(d: *const Self, input: u64) ?Found {
            var rest = input;
            var code: u32 = 0;
            var first: u32 = 0;
            var index: u32 = 0;
            for (1..codes.code_bits_max + 1) |bits| {
                code |= @intCast(rest & 1);
                rest >>= 1;
                const count = d.count[bits];
                if (code - first < count) {
                    return .{ .symbol = d.symbols[index + code - first], .bits = @intCast(bits) };
                }
                index += count;
                first = (first + count) << 1;
                code <<= 1;
            }
            return null;
        }
    };
}

const Literals = Decoder(288, 10);
const Distances = Decoder(codes.distance_symbols, 8);
const Order = Decoder(codes.order_symbols, codes.order_bits_max);

const Tables = struct { literals: Literals, distances: Distances };
const fixed: Tables = make: {
    @setEvalBranchQuota(100_000);
    var tables: Tables = undefined;
    tables.literals.init(&codes.fixed_literal_lengths, .complete) catch unreachable;
    // Two more symbols than can occur, because the code would otherwise be incomplete, which `init` refuses.
    var padded: Decoder(32, 8) = undefined;
    padded.init(&@as([32]u4, @splat(5)), .complete) catch unreachable;
    tables.distances = .{
        .fast = padded.fast,
        .count = padded.count,
        .symbols = padded.symbols[0..codes.distance_symbols].*,
    };
    break :make tables;
};

/// The part of the stream to which the next bit belongs.
const State = union(enum) {
    /// The next bit begins a block. `final_seen`: the previous block was marked as the last of its stream
    /// (which RFC 7692 section 7.2.3.4 allows within a message).
    block: struct { final_seen: bool },
    stored_header,
    stored: u16,
    /// The lengths of the code for code lengths.
    order: struct { counts: Counts, at: u8 },
    /// The code lengths.
    lengths: struct { counts: Counts, at: u16 },
    symbols,
    match: struct { len: u16, distance: u16 },
};

const Counts = struct { literals: u16, distances: u16, order: u8 };

/// Reasons why a stream is refused.
pub const Error = error{
    /// No DEFLATE, a message that ends within a block, or a distance beyond the window: fail with 1007.
    Corrupt,
    /// The message inflates to more than its limit, beyond which nothing was written: fail with 1009.
    TooBig,
};

/// The result of one call of `inflate`.
pub const Step = struct {
    consumed: usize,
    produced: usize,
    state: enum {
        /// All input is consumed, and no more output comes from it.
        need_input,
        /// `out` is full, and more output may come: call again with the rest of the input.
        output_full,
        /// The message is complete.
        done,
    },
};

/// The last bytes of output, to which a message may refer, also those of earlier messages. The only memory
/// that context takeover keeps for a connection.
pub const History = struct {
    ring: []u8,
    at: usize = 0,
    filled: usize = 0,

    /// Makes an empty history. `ring` is borrowed; its length is a power of two, 256..32768, and at least the
    /// peer's window.
    pub fn init(ring: []u8) History {
        assert(std.math.isPowerOfTwo(ring.len) and ring.len >= 256 and ring.len <= 32768);
        return .{ .ring = ring };
    }

    /// Drops the history. Called before a message that must not refer to earlier ones
    /// (client_no_context_takeover).
    pub fn clear(h: *History) void {
        h.filled = 0;
    }

    fn keep(h: *History, produced: []const u8) void {
        const size = h.ring.len;
        const kept = produced[produced.len -| size..];
        const until_wrap = @min(kept.len, size - h.at);
        @memcpy(h.ring[h.at..][0..until_wrap], kept[0..until_wrap]);
        @memcpy(h.ring[0 .. kept.len - until_wrap], kept[until_wrap..]);
        h.at = (h.at + kept.len) & (size - 1);
        h.filled = @min(size, h.filled + kept.len);
    }
};

/// Has less than 5 KiB. Needed from the first to the last piece of a message, so one can serve many
/// connections, message by message.
pub const Inflater = struct {
    /// The history of the current message.
    history: *History = undefined,
    limit_left: u64 = 0,
    state: State = .{ .block = .{ .final_seen = false } },
    /// The current block is the last of its stream.
    final: bool = false,
    block_fixed: bool = false,
    /// The number of bytes of `tail` that were read; `no_message` between messages.
    tail_at: u8 = no_message,
    bits: u64 = 0,
    bit_count: u7 = 0,
    code_lengths: [codes.literal_symbols + codes.distance_symbols + 4]u4 = undefined,
    order_table: Order = undefined,
    tables: Tables = undefined,

    /// The bytes that a sender strips and that must be put back after each message (RFC 7692 section 7.2.2).
    const tail = "\x00\x00\xff\xff";
    const no_message = tail.len + 1;

    /// Begins a message that may inflate to at most `limit` bytes and refer to `history`, which is borrowed
    /// until its end. An unfinished message is dropped.
    pub fn begin(i: *Inflater, history: *History, limit: u64) void {
        i.history = history;
        i.limit_left = limit;
        i.state = .{ .block = .{ .final_seen = false } };
        i.tail_at = 0;
        i.bits = 0;
        i.bit_count = 0;
    }

    /// Inflates from `in` to `out` (neither is kept) until one of them is used up. `last`: the message ends
    /// with `in`. After an error or the end of the message, `begin` must be called next.
    pub fn inflate(i: *Inflater, in: []const u8, last: bool, out: []u8) Error!Step {
        const step = try i.advance(in, last, out);
        i.history.keep(out[0..step.produced]);
        return step;
    }

    /// Inflates a whole message if it fits into `out`, and returns its length. Null: it does not fit, and the
    /// history is unchanged. `begin` must be called before and afterwards.
    pub fn inflateWhole(i: *Inflater, in: []const u8, out: []u8) Error!?usize {
        const step = try i.advance(in, true, out);
        if (step.state == .output_full) return null;
        i.history.keep(out[0..step.produced]);
        return step.produced;
    }

    /// Inflates like `inflate`, but does not change the history.
    fn advance(i: *Inflater, in: []const u8, last: bool, out: []u8) Error!Step {
        assert(i.tail_at <= tail.len); // the caller has called `begin`
        assert(last or i.tail_at == 0);
        var run: Run = .{ .i = i, .in = in, .out = out[0..@intCast(@min(out.len, i.limit_left))] };
        const clipped = run.out.len < out.len;
        var full = try run.go();
        const consumed = run.at;
        if (!full and last and !i.endedEarly()) {
            run.in = tail[i.tail_at..];
            run.at = 0;
            full = try run.go();
            i.tail_at += @intCast(run.at);
        }
        if (full and clipped) return error.TooBig;
        i.limit_left -= run.produced;
        const step: Step = .{
            .consumed = consumed,
            .produced = run.produced,
            .state = if (full) .output_full else .need_input,
        };
        if (full or !last) return step;
        if (i.state != .block or i.bit_count != 0) return error.Corrupt;
        i.tail_at = no_message;
        return .{ .consumed = consumed, .produced = run.produced, .state = .done };
    }

    /// Whether the message ended with a final block, without the empty block that RFC 7692 demands after it,
    /// so that the tail completes nothing. Some senders do so, and the meaning is clear.
    fn endedEarly(i: *const Inflater) bool {
        return i.tail_at == 0 and i.state == .block and i.state.block.final_seen and i.bit_count == 0;
    }
};

/// A running call: the inflater's state and the two slices of the call.
const Run = struct {
    i: *Inflater,
    in: []const u8,
    at: usize = 0,
    out: []u8,
    produced: usize = 0,

    /// Inflates until more output room is needed (true), or more input (false).
    fn go(r: *Run) Error!bool {
        while (true) {
            const more = switch (r.i.state) {
                .block => try r.block(),
                .stored_header => try r.storedHeader(),
                .stored => switch (r.stored()) {
                    .full => return true,
                    .more => true,
                    .dry => false,
                },
                .order => try r.readOrder(),
                .lengths => try r.readLengths(),
                .symbols => switch (try r.symbols()) {
                    .full => return true,
                    .more => true,
                    .dry => false,
                },
                .match => if (r.match()) true else return true,
            };
            if (!more) return false;
        }
    }

    const Outcome = enum { more, dry, full };

    /// Reads input into `bits`. Bits above `bit_count` are always 0.
    inline fn refill(r: *Run) void {
        const i = r.i;
        if (r.in.len - r.at >= 8) {
            const room = (64 - i.bit_count) / 8;
            const word = std.mem.readInt(u64, r.in[r.at..][0..8], .little);
            const wanted: u64 = if (room == 8)
                word
            else
                word & ((@as(u64, 1) << @intCast(@as(u7, room) * 8)) - 1);
            if (room > 0) i.bits |= wanted << @intCast(i.bit_count);
            i.bit_count += room * 8;
            r.at += room;
            return;
        }
        while (i.bit_count <= 56 and r.at < r.in.len) {
            i.bits |= @as(u64, r.in[r.at]) << @intCast(i.bit_count);
            i.bit_count += 8;
            r.at += 1;
        }
    }

    inline fn drop(r: *Run, count: u6) void {
        assert(count <= r.i.bit_count);
        r.i.bits >>= count;
        r.i.bit_count -= count;
    }

    fn take(r: *Run, count: u6) ?u32 {
        if (r.i.bit_count < count) r.refill();
        if (r.i.bit_count < count) return null;
        defer r.drop(count);
        return @intCast(r.i.bits & ((@as(u64, 1) << count) - 1));
    }

    fn block(r: *Run) Error!bool {
        const i = r.i;
        if (i.state.block.final_seen) {
            // The next block begins at a byte boundary, with the same history.
            r.drop(@intCast(i.bit_count % 8));
            r.refill();
            if (i.bit_count == 0) return false;
        }
        const header = r.take(3) orelse return false;
        i.final = header & 1 != 0;
        switch (header >> 1) {
            0 => {
                r.drop(@intCast(i.bit_count % 8));
                i.state = .stored_header;
            },
            1 => {
                i.block_fixed = true;
                i.state = .symbols;
            },
            2 => i.state = .{ .order = .{
                .counts = .{ .literals = 0, .distances = 0, .order = 0 },
                .at = 0,
            } },
            else => return error.Corrupt,
        }
        return true;
    }

    fn storedHeader(r: *Run) Error!bool {
        const both = r.take(32) orelse return false;
        const len: u16 = @truncate(both);
        if (len != ~@as(u16, @truncate(both >> 16))) return error.Corrupt;
        r.i.state = .{ .stored = len };
        return true;
    }

    fn stored(r: *Run) Outcome {
        const left = &r.i.state.stored;
        // Bytes that were read ahead come first, then those of the input.
        while (left.* > 0 and r.i.bit_count > 0) {
            if (r.produced == r.out.len) return .full;
            r.out[r.produced] = @truncate(r.i.bits);
            r.produced += 1;
            r.drop(8);
            left.* -= 1;
        }
        const len = @min(left.*, r.in.len - r.at, r.out.len - r.produced);
        @memcpy(r.out[r.produced..][0..len], r.in[r.at..][0..len]);
        r.produced += len;
        r.at += len;
        left.* -= @intCast(len);
        if (left.* == 0) {
            r.endBlock();
            return .more;
        }
        return if (r.at == r.in.len) .dry else .full;
    }

    fn endBlock(r: *Run) void {
        r.i.state = .{ .block = .{ .final_seen = r.i.final } };
    }

    fn readOrder(r: *Run) Error!bool {
        const state = &r.i.state.order;
        if (state.counts.order == 0) {
            const counts = r.take(14) orelse return false;
            state.counts = .{
                .literals = @intCast(257 + (counts & 31)),
                .distances = @intCast(1 + (counts >> 5 & 31)),
                .order = @intCast(4 + (counts >> 10)),
            };
            if (state.counts.literals > codes.literal_symbols) return error.Corrupt;
            if (state.counts.distances > codes.distance_symbols) return error.Corrupt;
            @memset(r.i.code_lengths[0..codes.order_symbols], 0);
        }
        while (state.at < state.counts.order) : (state.at += 1) {
            const len = r.take(3) orelse return false;
            r.i.code_lengths[codes.order[state.at]] = @intCast(len);
        }
        try r.i.order_table.init(r.i.code_lengths[0..codes.order_symbols], .complete);
        r.i.state = .{ .lengths = .{ .counts = state.counts, .at = 0 } };
        return true;
    }

    fn readLengths(r: *Run) Error!bool {
        const i = r.i;
        const state = &i.state.lengths;
        const total = state.counts.literals + state.counts.distances;
        while (state.at < total) {
            r.refill();
            const found = i.order_table.find(i.bits) orelse
                return if (i.bit_count < codes.order_bits_max) false else error.Corrupt;
            const Repeat = struct { extra: u6, base: u16 };
            const repeat: Repeat = switch (found.symbol) {
                16 => .{ .extra = 2, .base = 3 },
                17 => .{ .extra = 3, .base = 3 },
                18 => .{ .extra = 7, .base = 11 },
                else => .{ .extra = 0, .base = 1 },
            };
            if (i.bit_count < found.bits + repeat.extra) return false;
            r.drop(found.bits);
            const times: u16 = repeat.base + @as(u16, @intCast(r.take(repeat.extra).?));
            if (times > total - state.at) return error.Corrupt;
            if (found.symbol == 16 and state.at == 0) return error.Corrupt;
            const len: u4 = switch (found.symbol) {
                0...15 => @intCast(found.symbol),
                16 => i.code_lengths[state.at - 1],
                else => 0,
            };
            @memset(i.code_lengths[state.at..][0..times], len);
            state.at += times;
        }
        const literals = i.code_lengths[0..state.counts.literals];
        if (literals[codes.end_of_block] == 0) return error.Corrupt;
        try i.tables.literals.init(literals, .short_allowed);
        try i.tables.distances.init(i.code_lengths[state.counts.literals..total], .short_allowed);
        i.block_fixed = false;
        i.state = .symbols;
        return true;
    }

    /// Reads literals and matches. A match is read only if all of its bits (at most 48) are present, so it
    /// has no inner states.
    fn symbols(r: *Run) Error!Outcome {
        const i = r.i;
        const tables: *const Tables = if (i.block_fixed) &fixed else &i.tables;
        while (true) {
            if (i.bit_count < 48) r.refill();
            const found = tables.literals.find(i.bits) orelse
                return if (i.bit_count < codes.code_bits_max) .dry else error.Corrupt;
            if (found.bits > i.bit_count) return .dry;
            if (found.symbol < codes.end_of_block) {
                if (r.produced == r.out.len) return .full;
                r.out[r.produced] = @intCast(found.symbol);
                r.produced += 1;
                r.drop(found.bits);
                continue;
            }
            if (found.symbol == codes.end_of_block) {
                r.drop(found.bits);
                r.endBlock();
                return .more;
            }
            if (!try r.beginMatch(tables, found)) return .dry;
            if (!r.match()) return .full;
        }
    }

    fn beginMatch(r: *Run, tables: *const Tables, found: Literals.Found) Error!bool {
        const i = r.i;
        if (found.symbol >= codes.literal_symbols) return error.Corrupt;
        const length = codes.lengths[found.symbol - 257];
        const until_distance = @as(u6, found.bits) + length.extra;
        const code = tables.distances.find(i.bits >> until_distance) orelse
            return if (i.bit_count < until_distance + codes.code_bits_max) false else error.Corrupt;
        if (i.bit_count < until_distance + code.bits) return false;
        if (code.symbol >= codes.distance_symbols) return error.Corrupt;
        const distance = codes.distances[code.symbol];
        if (i.bit_count < until_distance + code.bits + distance.extra) return false;
        r.drop(found.bits);
        const len: u16 = length.base + @as(u16, @intCast(r.take(length.extra).?));
        r.drop(code.bits);
        const far: u16 = distance.base + @as(u16, @intCast(r.take(distance.extra).?));
        if (far > i.history.ring.len or far > i.history.filled + r.produced) return error.Corrupt;
        i.state = .{ .match = .{ .len = len, .distance = far } };
        return true;
    }

    /// Copies the pending match, as much as fits into `out`. False: `out` is full before its end.
    fn match(r: *Run) bool {
        const pending = &r.i.state.match;
        var distance: usize = pending.distance;
        const history = r.i.history;
        const size = history.ring.len;
        while (pending.len > 0 and r.produced < r.out.len) {
            const room = @min(pending.len, r.out.len - r.produced);
            const len = if (distance > r.produced) ring: {
                // The match begins before this call's output, perhaps on both sides of the ring's end.
                const from = (history.at + size - (distance - r.produced)) & (size - 1);
                const len = @min(room, distance - r.produced, size - from);
                @memcpy(r.out[r.produced..][0..len], history.ring[from..][0..len]);
                break :ring len;
            } else own: {
                // Source and target must not overlap. The source keeps its start and includes the bytes just
                // repeated, so a run of one byte takes a few copies and not one per byte.
                const len = @min(room, distance);
                @memcpy(r.out[r.produced..][0..len], r.out[r.produced - distance ..][0..len]);
                distance += len;
                break :own len;
            };
            r.produced += len;
            pending.len -= @intCast(len);
        }
        if (pending.len > 0) return false;
        r.i.state = .symbols;
        return true;
    }
};

const testing = std.testing;

/// Inflates whole messages with output cut in several ways, and expects the same bytes.
fn expectMessages(window: []u8, takeover: bool, pairs: []const [2][]const u8) !void {
    for ([_]usize{ 1, 2, 7, 300 }) |out_max| {
        var history: History = .init(window);
        var i: Inflater = .{};
        for (pairs) |pair| {
            var out: [1024]u8 = undefined;
            var produced: usize = 0;
            if (!takeover) history.clear();
            i.begin(&history, pair[1].len);
            for (pair[0], 1..) |_, behind| {
                // Input comes byte by byte; only for the last byte `last` is true.
                var rest = pair[0][behind - 1 .. behind];
                while (true) {
                    const step = try i.inflate(rest, behind == pair[0].len, out[produced..][0..out_max]);
                    rest = rest[step.consumed..];
                    produced += step.produced;
                    if (step.state != .output_full) break;
                }
            }
            try testing.expectEqualStrings(pair[1], out[0..produced]);
        }
    }
}

fn expectCorrupt(in: []const u8) !void {
    var window: [256]u8 = undefined;
    var out: [600]u8 = undefined;
    var history: History = .init(&window);
    var i: Inflater = .{};
    i.begin(&history, out.len);
    try testing.expectError(error.Corrupt, i.inflate(in, true, &out));
}

test "the examples of RFC 7692 section 7.2.3" {
    var window: [256]u8 = undefined;
    const hello = "\xf2\x48\xcd\xc9\xc9\x07\x00";
    try expectMessages(&window, false, &.{ .{ hello, "Hello" }, .{ hello, "Hello" } });
    // Context takeover: the second message is a match in the first.
    try expectMessages(&window, true, &.{ .{ hello, "Hello" }, .{ "\xf2\x00\x11\x00\x00", "Hello" } });
    // A stored block.
    try expectMessages(&window, true, &.{.{ "\x00\x05\x00\xfa\xffHello\x00", "Hello" }});
    // A final block, with and without the empty block after it.
    try expectMessages(
        &window,
        true,
        &.{ .{ "\xf3\x48\xcd\xc9\xc9\x07\x00\x00", "Hello" }, .{ hello, "Hello" } },
    );
    try expectMessages(
        &window,
        true,
        &.{ .{ "\xf3\x48\xcd\xc9\xc9\x07\x00", "Hello" }, .{ hello, "Hello" } },
    );
    // Two blocks; and an empty message.
    try expectMessages(
        &window,
        true,
        &.{ .{ "\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00", "Hello" }, .{ "\x00", "" } },
    );
}

test "a match across messages needs the history" {
    var window: [256]u8 = undefined;
    var out: [32]u8 = undefined;
    var history: History = .init(&window);
    var i: Inflater = .{};
    i.begin(&history, 32);
    _ = try i.inflate("\xf2\x48\xcd\xc9\xc9\x07\x00", true, &out);
    history.clear();
    i.begin(&history, 32);
    try testing.expectError(error.Corrupt, i.inflate("\xf2\x00\x11\x00\x00", true, &out));
}

test "a message that its buffer does not hold leaves no trace" {
    var window: [256]u8 = undefined;
    var out: [32]u8 = undefined;
    var history: History = .init(&window);
    var i: Inflater = .{};
    i.begin(&history, 32);
    try testing.expectEqual(5, (try i.inflateWhole("\xf2\x48\xcd\xc9\xc9\x07\x00", &out)).?);
    for (0..6) |room| {
        i.begin(&history, 32);
        // A match in the previous message, which must still be the previous one at each attempt.
        const len = try i.inflateWhole("\xf2\x00\x11\x00\x00", out[0..room]);
        if (room < 5) {
            try testing.expectEqual(null, len);
        } else {
            try testing.expectEqualStrings("Hello", out[0..len.?]);
        }
    }
    i.begin(&history, 4);
    try testing.expectError(error.TooBig, i.inflateWhole("\xf2\x00\x11\x00\x00", &out));
}

test "bytes that are no DEFLATE, or end too early, are refused" {
    try expectCorrupt(""); // even an empty message has a byte (RFC 7692)
    try expectCorrupt("\x06"); // block type 3
    try expectCorrupt("\x00\x05\x00\xfa\xfeHello"); // lengths disagree
    try expectCorrupt("\xf2\x48\xcd\xc9"); // within a block
    try expectCorrupt("\xff\xff\xff\xff\xff\xff\xff");
    try expectCorrupt("\x00\xff\x00\x00\xffx"); // a stored block longer than the message
}

test "a block that goes on into the tail, with room for a byte at a time" {
    var window: [256]u8 = undefined;
    var history: History = .init(&window);
    var i: Inflater = .{};
    i.begin(&history, 1000);
    var in: []const u8 = "\xda\x58\xda";
    var out: [1]u8 = undefined;
    for (0..100) |_| {
        const step = i.inflate(in, true, &out) catch |err| return testing.expectEqual(error.Corrupt, err);
        try testing.expectEqual(.output_full, step.state);
        in = in[step.consumed..];
    }
    return error.NeverEnds;
}

test "the limit holds before the byte that would pass it" {
    var window: [256]u8 = undefined;
    var out: [64]u8 = undefined;
    const hello = "\xf2\x48\xcd\xc9\xc9\x07\x00";
    for (0..7) |limit| {
        var history: History = .init(&window);
        var i: Inflater = .{};
        i.begin(&history, limit);
        if (limit >= 5) {
            try testing.expectEqual(.done, (try i.inflate(hello, true, &out)).state);
        } else try testing.expectError(error.TooBig, i.inflate(hello, true, &out));
        // Output room that ends exactly at the limit has no effect.
        history.clear();
        i.begin(&history, limit);
        const step = i.inflate(hello, true, out[0..limit]) catch |problem| {
            try testing.expect(limit < 5 and problem == error.TooBig);
            continue;
        };
        if (limit >= 5) try testing.expectEqual(.done, step.state) else {
            try testing.expectEqual(.output_full, step.state);
            try testing.expectError(error.TooBig, i.inflate("", true, &out));
        }
    }
}

test "random bytes never trip the inflater, and whole and split agree" {
    var random = std.Random.DefaultPrng.init(0x1f1a7e);
    var window: [256]u8 = undefined;
    var in: [48]u8 = undefined;
    for (0..40_000) |round| {
        random.random().bytes(&in);
        // Mostly fixed or dynamic blocks, because stored ones fail at once.
        in[0] = in[0] & ~@as(u8, 7) | ([_]u8{ 2, 4, 4, 5 })[round % 4];
        if (round % 4 != 0) in[1] &= 0xef; // the code lengths announce a plausible number of distances
        var whole: [400]u8 = undefined;
        var history: History = .init(&window);
        var i: Inflater = .{};
        i.begin(&history, whole.len - 1); // so a full `out` exceeds the limit and is never a state
        const expected = i.inflate(&in, true, &whole);
        var split: [400]u8 = undefined;
        history.clear();
        i.begin(&history, split.len - 1);
        const cut = random.random().uintAtMost(usize, in.len);
        const actual = two: {
            const first = i.inflate(in[0..cut], false, &split) catch |problem| break :two problem;
            try testing.expectEqual(.need_input, first.state);
            break :two i.inflate(in[cut..], true, split[first.produced..]);
        };
        if (expected) |step| {
            try testing.expectEqual(step.state, (try actual).state);
            try testing.expectEqualSlices(u8, whole[0..step.produced], split[0..step.produced]);
        } else |problem| try testing.expectError(problem, actual);
    }
}
