//! Classifies a field by its name and value. A table stores the class in its entry, so that it is computed
//! only once. RFC 9113 sections 8.2.1 and 8.3. Does not know: which fields a message may have.
const std = @import("std");
const assert = std.debug.assert;
const header = @import("../../http/header.zig");
const syntax = @import("../../http/syntax.zig");

/// Names that begin with a colon.
pub const Pseudo = enum(u4) {
    none,
    authority,
    method,
    path,
    scheme,
    status,
    protocol,
    /// Any other name that begins with a colon.
    unknown,

    fn of(name: []const u8) Pseudo {
        if (name.len == 0 or name[0] != ':') return .none;
        const known = std.meta.stringToEnum(Pseudo, name[1..]) orelse .unknown;
        return if (known == .none) .unknown else known;
    }
};

/// Facts about a field's name and value.
pub const Meta = packed struct(u16) {
    /// The name's number in `header.Id`.
    number: u8 = 0,
    pseudo: Pseudo = .none,
    /// The name is a token in lower case, or a pseudo-header's name.
    good_name: bool = true,
    /// The value has no controls except HTAB, and no surrounding white space.
    good_value: bool = true,
    unused: u2 = 0,

    /// Classifies a field.
    pub fn of(name: []const u8, value: []const u8) Meta {
        return named(name).with(value);
    }

    /// Returns the facts about a name, before its value is known.
    pub fn named(name: []const u8) Meta {
        const pseudo: Pseudo = .of(name);
        if (pseudo != .none) return .{ .pseudo = pseudo };
        const number = @backingInt(header.Id.fromName(name));
        return .{
            .number = @intCast(number),
            .good_name = (number != 0 or syntax.isToken(name)) and !hasUpper(name),
        };
    }

    /// Returns the facts about this name with a value.
    pub fn with(meta: Meta, value: []const u8) Meta {
        var other = meta;
        other.good_value = isGood(value);
        return other;
    }

    /// The id of the name; `.other`: it has none.
    pub fn id(meta: Meta) header.Id {
        return @fromBackingInt(@as(u16, meta.number));
    }
};

fn hasUpper(name: []const u8) bool {
    for (name) |byte| if (byte -% 'A' < 26) return true;
    return false;
}

fn isGood(value: []const u8) bool {
    if (value.len == 0) return true;
    if (syntax.isSpace(value[0]) or syntax.isSpace(value[value.len - 1])) return false;
    return syntax.isFieldValue(value);
}

test "names and values" {
    const cases = [_]struct { []const u8, []const u8, Meta }{
        .{ "cookie", "a=b", .{ .number = @backingInt(header.Id.cookie) } },
        .{ "x-other", "", .{} },
        .{ ":path", "/", .{ .pseudo = .path } },
        .{ ":none", "/", .{ .pseudo = .unknown } },
        .{ ":", "/", .{ .pseudo = .unknown } },
        .{ "Cookie", "a", .{ .number = @backingInt(header.Id.cookie), .good_name = false } },
        .{ "x-Other", "a", .{ .good_name = false } },
        .{ "a b", "a", .{ .good_name = false } },
        .{ "", "a", .{ .good_name = false } },
        .{ "a", " b", .{ .good_value = false } },
        .{ "a", "b\t", .{ .good_value = false } },
        .{ "a", "b\x00c", .{ .good_value = false } },
        .{ "a", "b\tc\xff", .{} },
        .{ ":path", "/\r\n", .{ .pseudo = .path, .good_value = false } },
    };
    for (cases) |case| try std.testing.expectEqual(case[2], Meta.of(case[0], case[1]));
}
