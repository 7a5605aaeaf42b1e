//! The fields that both ends know from the beginning (RFC 7541 appendix A). Does not know: fields that an end
//! adds (table.zig).
const std = @import("std");
const assert = std.debug.assert;
const header = @import("../../http/header.zig");
const syntax = @import("../../http/syntax.zig");
const Meta = @import("name.zig").Meta;

/// A field of the table.
pub const Entry = struct { name: []const u8, value: []const u8, meta: Meta };

/// The highest index; those of dynamic tables follow.
pub const last: u32 = plain.len;

/// Returns the entry of an index, 1..last.
pub inline fn at(index: u32) *const Entry {
    return &entries[index - 1];
}

/// Returns the index of `:status` with this code; null: there is none.
pub fn ofStatus(code: u16) ?u8 {
    return switch (code) {
        200 => 8,
        204 => 9,
        206 => 10,
        304 => 11,
        400 => 12,
        404 => 13,
        500 => 14,
        else => null,
    };
}

/// The index of `:status` with any code.
pub const status = 8;

/// Returns an index with this name in any case; 0: there is none. `id`: of the name.
pub fn ofName(id: header.Id, name: []const u8) u8 {
    if (id != .other) return by_id[@backingInt(id)];
    return switch (name.len) {
        inline name_bytes_min...name_bytes_max => |len| ofSized(len, name[0..len]),
        else => 0,
    };
}

fn ofSized(comptime len: usize, name: *const [len]u8) u8 {
    inline for (plain, 1..) |field, index| {
        if (comptime (field[0].len == len and field[0][0] != ':' and entries[index - 1].meta.number == 0)) {
            if (syntax.equalsFolded(name, field[0][0..len])) return index;
        }
    }
    return 0;
}

const name_bytes_min = 3;
const name_bytes_max = 27;

const entries: [plain.len]Entry = made: {
    @setEvalBranchQuota(1_000_000);
    var made: [plain.len]Entry = undefined;
    for (&made, plain) |*entry, field| {
        entry.* = .{ .name = field[0], .value = field[1], .meta = .of(field[0], field[1]) };
    }
    break :made made;
};

const by_id: [64]u8 = made: {
    var made: [64]u8 = @splat(0);
    for (entries, 1..) |entry, index| {
        const number = entry.meta.number;
        if (number != 0 and made[number] == 0) made[number] = index;
    }
    break :made made;
};

const plain = [61]struct { []const u8, []const u8 }{
    .{ ":authority", "" },
    .{ ":method", "GET" },
    .{ ":method", "POST" },
    .{ ":path", "/" },
    .{ ":path", "/index.html" },
    .{ ":scheme", "http" },
    .{ ":scheme", "https" },
    .{ ":status", "200" },
    .{ ":status", "204" },
    .{ ":status", "206" },
    .{ ":status", "304" },
    .{ ":status", "400" },
    .{ ":status", "404" },
    .{ ":status", "500" },
    .{ "accept-charset", "" },
    .{ "accept-encoding", "gzip, deflate" },
    .{ "accept-language", "" },
    .{ "accept-ranges", "" },
    .{ "accept", "" },
    .{ "access-control-allow-origin", "" },
    .{ "age", "" },
    .{ "allow", "" },
    .{ "authorization", "" },
    .{ "cache-control", "" },
    .{ "content-disposition", "" },
    .{ "content-encoding", "" },
    .{ "content-language", "" },
    .{ "content-length", "" },
    .{ "content-location", "" },
    .{ "content-range", "" },
    .{ "content-type", "" },
    .{ "cookie", "" },
    .{ "date", "" },
    .{ "etag", "" },
    .{ "expect", "" },
    .{ "expires", "" },
    .{ "from", "" },
    .{ "host", "" },
    .{ "if-match", "" },
    .{ "if-modified-since", "" },
    .{ "if-none-match", "" },
    .{ "if-range", "" },
    .{ "if-unmodified-since", "" },
    .{ "last-modified", "" },
    .{ "link", "" },
    .{ "location", "" },
    .{ "max-forwards", "" },
    .{ "proxy-authenticate", "" },
    .{ "proxy-authorization", "" },
    .{ "range", "" },
    .{ "referer", "" },
    .{ "refresh", "" },
    .{ "retry-after", "" },
    .{ "server", "" },
    .{ "set-cookie", "" },
    .{ "strict-transport-security", "" },
    .{ "transfer-encoding", "" },
    .{ "user-agent", "" },
    .{ "vary", "" },
    .{ "via", "" },
    .{ "www-authenticate", "" },
};

test "each name is found in any case, and its index has it" {
    for (plain, 1..) |field, index| {
        const name = field[0];
        try std.testing.expectEqualStrings(name, at(@intCast(index)).name);
        if (name[0] == ':') continue;
        var spelled: [32]u8 = undefined;
        for (name, spelled[0..name.len]) |byte, *other| other.* = std.ascii.toUpper(byte);
        for ([_][]const u8{ name, spelled[0..name.len] }) |spelling| {
            try std.testing.expectEqual(index, ofName(.fromName(spelling), spelling));
        }
    }
    for ([_][]const u8{ "", "x", "origin", "x-frame-options", "serve", "vari" }) |name| {
        try std.testing.expectEqual(0, ofName(.fromName(name), name));
    }
}

test "status codes" {
    var count: usize = 0;
    for (100..600) |code| {
        const index = ofStatus(@intCast(code)) orelse continue;
        var text: [3]u8 = undefined;
        const digits = try std.fmt.bufPrint(&text, "{d}", .{code});
        try std.testing.expectEqualStrings(digits, at(index).value);
        try std.testing.expectEqualStrings(":status", at(index).name);
        count += 1;
    }
    try std.testing.expectEqual(7, count);
}
