//! permessage-deflate: the negotiation of its parameters (RFC 7692 sections 5 to 7.1), server side.
//! inflater.zig and deflater.zig, re-exported here, do the work. Does not know: frames, which messages are
//! worth compressing, and the source of memory.
const std = @import("std");
const assert = std.debug.assert;
const FieldSpan = @import("../http/header.zig").FieldSpan;
const handshake = @import("handshake.zig");

pub const Inflater = @import("inflater.zig").Inflater;
pub const History = @import("inflater.zig").History;
pub const InflateError = @import("inflater.zig").Error;
pub const Deflater = @import("deflater.zig").Deflater;

/// The server's limits in a negotiation. Windows use memory: 2^bits bytes for input,
/// `Deflater.memoryBytes(bits)` for output.
pub const Options = struct {
    /// The maximum window for our messages, 8..15. A client may ask for less.
    server_window_bits_max: u4 = 15,
    /// The maximum window for the client's messages, 9..15. A client that cannot be limited (no
    /// client_max_window_bits in its offer) gets 15; if this limit is lower, its offer is declined.
    client_window_bits_max: u4 = 15,
    /// Keep sent messages as history for the next: compresses better, but needs a `Deflater` per connection.
    server_takeover: bool = true,
    /// Let the client keep its history: an `Inflater` and its window belong to the connection between
    /// messages.
    client_takeover: bool = true,
};

/// The parameters of an agreement of both sides.
pub const Agreement = struct {
    server_takeover: bool,
    client_takeover: bool,
    /// 8..15.
    server_window_bits: u4,
    /// 8..15.
    client_window_bits: u4,
    /// The response mentions the window, which is allowed only if the client has offered it.
    server_window_named: bool = false,
    client_window_named: bool = false,

    /// log2 of the window of an `Inflater`, 9..15. zlib cannot deflate with 8 and silently uses 9, so a
    /// client that promised 8 may use 9.
    pub fn inflaterWindowBits(agreement: Agreement) u4 {
        return @max(9, agreement.client_window_bits);
    }

    /// The length of the longest response to an offer, in bytes.
    pub const text_bytes_max = "permessage-deflate".len +
        "; server_no_context_takeover; client_no_context_takeover".len +
        "; server_max_window_bits=15; client_max_window_bits=15".len;

    /// Writes the value of the response's Sec-WebSocket-Extensions field to `out` and returns it.
    pub fn text(agreement: Agreement, out: *[text_bytes_max]u8) []const u8 {
        var writer: std.Io.Writer = .fixed(out);
        agreement.write(&writer) catch unreachable; // text_bytes_max is the sum of all parts
        return writer.buffered();
    }

    fn write(agreement: Agreement, writer: *std.Io.Writer) std.Io.Writer.Error!void {
        try writer.writeAll("permessage-deflate");
        if (!agreement.server_takeover) try writer.writeAll("; server_no_context_takeover");
        if (!agreement.client_takeover) try writer.writeAll("; client_no_context_takeover");
        if (agreement.server_window_named) {
            try writer.print("; server_max_window_bits={d}", .{agreement.server_window_bits});
        }
        if (agreement.client_window_named) {
            try writer.print("; client_max_window_bits={d}", .{agreement.client_window_bits});
        }
    }
};

/// Accepts the first offer that can be met, among all Sec-WebSocket-Extensions fields of a request that
/// `handshake.check` has accepted. Null: none, and the response has no such field. Other extensions, and
/// offers with unknown, repeated or malformed parameters, are skipped (RFC 7692 section 7.1).
pub fn negotiate(text: []const u8, fields: []const FieldSpan, options: Options) ?Agreement {
    assert(options.server_window_bits_max >= 8);
    assert(options.client_window_bits_max >= 9);
    for (fields) |span| {
        if (span.id != .sec_websocket_extensions) continue;
        var offers: handshake.Extensions = .init(span.value(text));
        while (offers.next() catch null) |offer| {
            // Extension names are compared with their case, as registered.
            if (!std.mem.eql(u8, offer.name, "permessage-deflate")) continue;
            return meet(readOffer(offer.params) orelse continue, options) orelse continue;
        }
    }
    return null;
}

const Offer = struct {
    server_no_context_takeover: bool = false,
    client_no_context_takeover: bool = false,
    server_max_window_bits: ?u4 = null,
    client_max_window_bits: ?union(enum) { open, bits: u4 } = null,
};

fn readOffer(parameters: handshake.Params) ?Offer {
    var offer: Offer = .{};
    var params = parameters;
    while (params.next()) |param| {
        const name = std.meta.stringToEnum(std.meta.FieldEnum(Offer), param.name) orelse return null;
        switch (name) {
            inline .server_no_context_takeover, .client_no_context_takeover => |flag| {
                const seen = &@field(offer, @tagName(flag));
                if (seen.* or param.value != null) return null;
                seen.* = true;
            },
            .server_max_window_bits => {
                if (offer.server_max_window_bits != null) return null;
                offer.server_max_window_bits = windowBits(param.value orelse return null) orelse return null;
            },
            .client_max_window_bits => {
                if (offer.client_max_window_bits != null) return null;
                offer.client_max_window_bits = if (param.value) |value|
                    .{ .bits = windowBits(value) orelse return null }
                else
                    .open;
            },
        }
    }
    return offer;
}

/// Reads 8..15, decimal without leading zeros (RFC 7692 section 7.1.2); null: anything else.
fn windowBits(value: handshake.Value) ?u4 {
    var characters = value.characters();
    var bits: u8 = 0;
    while (characters.next()) |char| {
        if (!std.ascii.isDigit(char)) return null;
        if (char == '0' and bits == 0) return null;
        bits = bits * 10 + (char - '0');
        if (bits > 15) return null;
    }
    return if (bits < 8) null else @intCast(bits);
}

fn meet(offer: Offer, options: Options) ?Agreement {
    var agreement: Agreement = .{
        .server_takeover = options.server_takeover and !offer.server_no_context_takeover,
        .client_takeover = options.client_takeover and !offer.client_no_context_takeover,
        .server_window_bits = @min(options.server_window_bits_max, offer.server_max_window_bits orelse 15),
        .client_window_bits = 15,
        .server_window_named = offer.server_max_window_bits != null,
    };
    if (offer.client_max_window_bits) |window| {
        const offered: u4 = switch (window) {
            .open => 15,
            .bits => |bits| bits,
        };
        agreement.client_window_bits = @min(options.client_window_bits_max, offered);
        agreement.client_window_named = agreement.client_window_bits < 15;
    } else if (options.client_window_bits_max < 15) return null;
    return agreement;
}

const testing = std.testing;

test {
    _ = @import("codes.zig");
    testing.refAllDecls(@This());
}

fn negotiateText(value: []const u8, options: Options, out: *[Agreement.text_bytes_max]u8) ?[]const u8 {
    const span: FieldSpan = .{
        .name_at = 0,
        .name_len = 0,
        .value_at = 0,
        .value_len = @intCast(value.len),
        .id = .sec_websocket_extensions,
    };
    const agreement = negotiate(value, &.{span}, options) orelse return null;
    return agreement.text(out);
}

fn expectAnswer(answer: ?[]const u8, value: []const u8, options: Options) !void {
    var out: [Agreement.text_bytes_max]u8 = undefined;
    const actual = negotiateText(value, options, &out);
    if (answer) |expected| {
        try testing.expectEqualStrings(expected, actual orelse "(declined)");
    } else {
        try testing.expectEqual(null, actual);
    }
}

test "offers and answers with everything allowed" {
    const pmd = "permessage-deflate";
    const Case = struct { []const u8, ?[]const u8 };
    const cases = [_]Case{
        .{ pmd, pmd },
        .{ pmd ++ "; client_max_window_bits", pmd },
        .{ pmd ++ "; client_max_window_bits=15", pmd },
        .{ pmd ++ "; client_max_window_bits=10", pmd ++ "; client_max_window_bits=10" },
        .{ pmd ++ "; server_max_window_bits=9", pmd ++ "; server_max_window_bits=9" },
        .{ pmd ++ "; server_max_window_bits=15", pmd ++ "; server_max_window_bits=15" },
        .{ pmd ++ "; server_max_window_bits=\"8\"", pmd ++ "; server_max_window_bits=8" },
        .{ pmd ++ "; server_max_window_bits=\"1\\2\"", pmd ++ "; server_max_window_bits=12" },
        .{ pmd ++ "; server_no_context_takeover", pmd ++ "; server_no_context_takeover" },
        .{ pmd ++ "; client_no_context_takeover", pmd ++ "; client_no_context_takeover" },
        .{
            pmd ++ ";server_no_context_takeover;client_no_context_takeover" ++
                ";server_max_window_bits=10;client_max_window_bits=11",
            pmd ++ "; server_no_context_takeover; client_no_context_takeover" ++
                "; server_max_window_bits=10; client_max_window_bits=11",
        },
        .{ "x-webkit-deflate-frame, " ++ pmd, pmd },
        // The first is skipped because of a parameter, the second is met.
        .{
            pmd ++ "; server_max_window_bits=7, " ++ pmd ++ "; server_max_window_bits=9",
            pmd ++ "; server_max_window_bits=9",
        },
        .{ pmd ++ "; unknown, " ++ pmd, pmd },
        .{ pmd ++ "; unknown", null },
        .{ pmd ++ "; server_max_window_bits", null },
        .{ pmd ++ "; server_max_window_bits=16", null },
        .{ pmd ++ "; server_max_window_bits=08", null },
        .{ pmd ++ "; server_max_window_bits=1x", null },
        .{ pmd ++ "; server_max_window_bits=100000000000000000000", null },
        .{ pmd ++ "; client_max_window_bits=7", null },
        .{ pmd ++ "; server_no_context_takeover=1", null },
        .{ pmd ++ "; server_no_context_takeover; server_no_context_takeover", null },
        .{ pmd ++ "; client_max_window_bits; client_max_window_bits=9", null },
        .{ "permessage-bzip2", null },
        .{ "", null },
    };
    for (cases) |case| try expectAnswer(case[1], case[0], .{});
}

test "our own bounds" {
    const small: Options = .{ .server_window_bits_max = 11, .client_window_bits_max = 12 };
    const pmd = "permessage-deflate";
    // The client cannot be limited: declined, and the next offer is met.
    try expectAnswer(null, pmd, small);
    try expectAnswer(
        pmd ++ "; client_max_window_bits=12",
        pmd ++ ", " ++ pmd ++ "; client_max_window_bits",
        small,
    );
    try expectAnswer(pmd ++ "; client_max_window_bits=9", pmd ++ "; client_max_window_bits=9", small);
    try expectAnswer(
        pmd ++ "; server_max_window_bits=11; client_max_window_bits=12",
        pmd ++ "; server_max_window_bits=15; client_max_window_bits=15",
        small,
    );
    const forgetful: Options = .{ .server_takeover = false, .client_takeover = false };
    try expectAnswer(pmd ++ "; server_no_context_takeover; client_no_context_takeover", pmd, forgetful);
}

test "a small window is ours to use even where the answer cannot say so" {
    const span: FieldSpan = .{
        .name_at = 0,
        .name_len = 0,
        .value_at = 0,
        .value_len = 18,
        .id = .sec_websocket_extensions,
    };
    const agreement = negotiate("permessage-deflate", &.{span}, .{ .server_window_bits_max = 10 }).?;
    try testing.expectEqual(10, agreement.server_window_bits);
    try testing.expect(!agreement.server_window_named);
    const eight: Agreement = .{
        .server_takeover = true,
        .client_takeover = true,
        .server_window_bits = 15,
        .client_window_bits = 8,
    };
    try testing.expectEqual(9, eight.inflaterWindowBits());
}
