//! The tables of the DEFLATE format and the construction of prefix codes (RFC 1951 section 3.2), for both
//! directions. Does not know: streams, windows, messages.
const std = @import("std");
const assert = std.debug.assert;

/// The length of the longest code of literals, lengths and distances, in bits.
pub const code_bits_max = 15;
/// The length of the longest code for code lengths, in bits.
pub const order_bits_max = 7;
/// Literals 0..255, end of block 256, lengths 257..285. The code of a fixed block also has 286 and 287, which
/// never occur.
pub const literal_symbols = 286;
pub const distance_symbols = 30;
pub const order_symbols = 19;
pub const end_of_block = 256;
pub const match_min = 3;
pub const match_max = 258;

/// The order in which the lengths of the code for code lengths are written, RFC 1951 section 3.2.7.
pub const order = [order_symbols]u8{ 16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15 };

/// The values of a symbol: `base` plus the number in the next `extra` bits.
pub const Range = struct { base: u16, extra: u4 };

/// Lengths of matches by symbol - 257.
pub const lengths: [29]Range = ranges: {
    var table: [29]Range = undefined;
    var base: u16 = match_min;
    for (table[0..28], 0..) |*range, n| {
        const extra: u4 = if (n < 8) 0 else (n - 4) / 4;
        range.* = .{ .base = base, .extra = extra };
        base += 1 << extra;
    }
    // The length 258 has its own symbol, although 284 could express it.
    table[28] = .{ .base = match_max, .extra = 0 };
    break :ranges table;
};

/// Distances of matches by symbol.
pub const distances: [distance_symbols]Range = ranges: {
    var table: [distance_symbols]Range = undefined;
    var base: u16 = 1;
    for (&table, 0..) |*range, n| {
        const extra: u4 = if (n < 4) 0 else (n - 2) / 2;
        range.* = .{ .base = base, .extra = extra };
        base +%= 1 << extra;
    }
    break :ranges table;
};

/// The code lengths of a fixed block, RFC 1951 section 3.2.6.
pub const fixed_literal_lengths: [288]u4 = fixed: {
    var table: [288]u4 = undefined;
    @memset(table[0..144], 8);
    @memset(table[144..256], 9);
    @memset(table[256..280], 7);
    @memset(table[280..288], 8);
    break :fixed table;
};
pub const fixed_distance_lengths: [distance_symbols]u4 = @splat(5);

/// Returns the symbol - 257 of a match of `len` bytes.
pub fn lengthSymbol(len: u16) u8 {
    assert(len >= match_min and len <= match_max);
    return length_symbols[len - match_min];
}

const length_symbols: [match_max - match_min + 1]u8 = table: {
    @setEvalBranchQuota(10_000);
    var table: [match_max - match_min + 1]u8 = undefined;
    for (lengths, 0..) |range, symbol| {
        for (0..@as(usize, 1) << range.extra) |n| {
            const at = range.base - match_min + n;
            if (at < table.len) table[at] = symbol;
        }
    }
    break :table table;
};

/// Returns the symbol of a distance of 1..32768.
pub fn distanceSymbol(distance: u16) u8 {
    assert(distance >= 1 and distance <= 32768);
    if (distance <= 4) return @intCast(distance - 1);
    // Each power of two has two symbols: the highest bit of distance - 1 and the next bit choose one.
    const from_zero = distance - 1;
    const high: u4 = @intCast(15 - @clz(from_zero));
    return @as(u8, high) * 2 + @as(u8, @truncate((from_zero >> (high - 1)) & 1));
}

/// Makes the canonical codes for code lengths, reversed so that the first bit is the lowest. RFC 1951 section
/// 3.2.2.
pub fn assign(code_lengths: []const u4, out: []u16) void {
    assert(code_lengths.len == out.len);
    var count: [code_bits_max + 1]u16 = @splat(0);
    for (code_lengths) |len| count[len] += 1;
    var next: [code_bits_max + 1]u16 = @splat(0);
    for (2..code_bits_max + 1) |bits| {
        const before: u16 = if (bits == 2) count[1] else next[bits - 1] + count[bits - 1];
        next[bits] = before << 1;
    }
    for (code_lengths, out) |len, *code| {
        code.* = if (len == 0) 0 else @bitReverse(next[len]) >> @intCast(16 - @as(u5, len));
        if (len != 0) next[len] += 1;
    }
}

/// Finds code lengths of at most `bits_max` for symbols with these counts: Huffman's, changed to keep the
/// limit where needed. The code is always complete and has at least two symbols, because some inflaters
/// refuse other codes.
pub fn build(comptime symbols: usize, counts: *const [symbols]u16, bits_max: u4, out: *[symbols]u4) void {
    var sorted: [symbols]u16 = undefined;
    var used: usize = 0;
    out.* = @splat(0);
    for (counts, 0..) |count, symbol| if (count > 0) {
        sorted[used] = @intCast(symbol);
        used += 1;
    };
    if (used < 2) {
        const only: usize = if (used == 0) 0 else sorted[0];
        out[only] = 1;
        out[if (only == 0) 1 else 0] = 1;
        return;
    }
    const Order = struct {
        fn before(by: *const [symbols]u16, a: u16, b: u16) bool {
            return by[a] < by[b] or (by[a] == by[b] and a < b);
        }
    };
    std.sort.pdq(u16, sorted[0..used], counts, Order.before);
    var depth_count = depths(symbols, sorted[0..used], counts, bits_max);
    // The rarest symbols come first and get the longest codes.
    var at: usize = 0;
    var bits: u4 = bits_max;
    while (bits > 0) : (bits -= 1) {
        while (depth_count[bits] > 0) : (depth_count[bits] -= 1) {
            out[sorted[at]] = bits;
            at += 1;
        }
    }
    assert(at == used);
}

/// Returns the number of leaves of a Huffman tree at each depth up to `bits_max`.
fn depths(
    comptime symbols: usize,
    sorted: []const u16,
    counts: *const [symbols]u16,
    bits_max: u4,
) [code_bits_max + 1]u16 {
    // Leaves are 0..n-1 by rising count, inner nodes n..2n-2 in the order of creation, which is also by
    // rising weight: the two lightest nodes are always at the front of one of the two rows.
    const n = sorted.len;
    var weight: [2 * symbols]u32 = undefined;
    var parent: [2 * symbols]u16 = undefined;
    for (sorted, 0..) |symbol, leaf| weight[leaf] = counts[symbol];
    var leaf: usize = 0;
    var inner = n;
    for (n..2 * n - 1) |node| {
        weight[node] = 0;
        for (0..2) |_| {
            const take_leaf = leaf < n and (inner == node or weight[leaf] <= weight[inner]);
            const child = if (take_leaf) leaf else inner;
            if (take_leaf) leaf += 1 else inner += 1;
            weight[node] += weight[child];
            parent[child] = @intCast(node);
        }
    }
    var depth: [2 * symbols]u16 = undefined;
    var count: [code_bits_max + 1]u16 = @splat(0);
    depth[2 * n - 2] = 0;
    var node = 2 * n - 2;
    while (node > 0) {
        node -= 1;
        depth[node] = depth[parent[node]] + 1;
        if (node < n) count[@min(depth[node], bits_max)] += 1;
    }
    fit(&count, bits_max);
    return count;
}

/// Reduces the leaves at depth `bits_max`, where limiting the depth may have put more than there are codes,
/// by moving others down.
fn fit(count: *[code_bits_max + 1]u16, bits_max: u4) void {
    const space = @as(u32, 1) << bits_max;
    var taken: u32 = 0;
    for (1..@as(usize, bits_max) + 1) |bits| taken += @as(u32, count[bits]) << @intCast(bits_max - bits);
    while (taken > space) : (taken -= 1) {
        // A leaf at the limit becomes the sibling of the deepest leaf above the limit, which moves down by
        // one.
        var bits = bits_max - 1;
        while (count[bits] == 0) bits -= 1;
        count[bits] -= 1;
        count[bits + 1] += 2;
        count[bits_max] -= 1;
    }
    assert(taken == space);
}

const testing = std.testing;

test "the tables end where RFC 1951 says" {
    try testing.expectEqual(Range{ .base = 227, .extra = 5 }, lengths[27]);
    try testing.expectEqual(Range{ .base = 115, .extra = 4 }, lengths[23]);
    try testing.expectEqual(Range{ .base = 11, .extra = 1 }, lengths[8]);
    try testing.expectEqual(Range{ .base = 24577, .extra = 13 }, distances[29]);
    try testing.expectEqual(Range{ .base = 5, .extra = 1 }, distances[4]);
}

test "every length and distance finds its symbol" {
    for (match_min..match_max + 1) |len| {
        const range = lengths[lengthSymbol(@intCast(len))];
        try testing.expect(len >= range.base and len - range.base < @as(usize, 1) << range.extra);
    }
    try testing.expectEqual(28, lengthSymbol(258));
    for (1..32769) |distance| {
        const range = distances[distanceSymbol(@intCast(distance))];
        try testing.expect(distance >= range.base and distance - range.base < @as(usize, 1) << range.extra);
    }
}

test "canonical codes of the example in RFC 1951 section 3.2.2" {
    var out: [8]u16 = undefined;
    assign(&.{ 3, 3, 3, 3, 3, 2, 4, 4 }, &out);
    const expected = [_]u16{ 0b010, 0b110, 0b001, 0b101, 0b011, 0b00, 0b0111, 0b1111 };
    try testing.expectEqualSlices(u16, &expected, &out);
}

test "built codes are complete and keep to their bound" {
    var random = std.Random.DefaultPrng.init(0xc0de);
    for (0..300) |round| {
        var counts: [literal_symbols]u16 = @splat(0);
        var a: u16 = 1;
        var b: u16 = 1;
        for (&counts, 0..) |*count, n| switch (round % 3) {
            0 => count.* = if (random.random().boolean()) random.random().uintLessThan(u16, 50) else 0,
            1 => if (n < round) {
                count.* = 1;
            },
            else => if (n < 22) { // Fibonacci counts cause the deepest tree
                count.* = a;
                const c = a + b;
                a = b;
                b = c;
            },
        };
        for ([_]u4{ 9, 15 }) |bits_max| {
            var out: [literal_symbols]u4 = undefined;
            build(literal_symbols, &counts, bits_max, &out);
            var taken: u32 = 0;
            for (out, counts) |len, count| {
                if (len > 0) taken += @as(u32, 1) << @intCast(15 - len);
                try testing.expect(len <= bits_max);
                try testing.expect(count == 0 or len > 0);
            }
            try testing.expectEqual(1 << 15, taken);
        }
    }
}

test "rarer symbols never get shorter codes" {
    var counts: [distance_symbols]u16 = undefined;
    for (&counts, 1..) |*count, n| count.* = @intCast(n * n);
    var out: [distance_symbols]u4 = undefined;
    build(distance_symbols, &counts, 15, &out);
    for (out[1..], out[0 .. out.len - 1]) |common, rare| try testing.expect(common <= rare);
}
