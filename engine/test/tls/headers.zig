//! Compares libssl.zig with OpenSSL's headers, which script/openssl has translated. Of functions: how many
//! parameters they have, and the kind of each and of the result, as far as a call can tell. Of numbers: the
//! value. Prints each difference, and ends with status 1 if there is any.
const std = @import("std");
const ours = @import("libssl");
const theirs = @import("headers");

/// Numbers that stand in a comment of bio.h: script/openssl looks at its text.
const commented = [_][]const u8{
    "BIO_CTRL_SET_KTLS_SEND",
    "BIO_CTRL_SET_KTLS_SEND_CTRL_MSG",
    "BIO_CTRL_CLEAR_KTLS_CTRL_MSG",
};

pub fn main() u8 {
    var functions: u32 = 0;
    var numbers: u32 = 0;
    var differences: u32 = 0;
    inline for (@typeInfo(ours).@"struct".decl_names) |name| {
        const counter: ?*u32 = switch (comptime kindOf(name)) {
            .function => &functions,
            .number => &numbers,
            .other => null,
        };
        if (counter) |count| {
            count.* += 1;
            if (comptime differenceOf(name)) |difference| {
                differences += 1;
                std.debug.print("{s}: {s}\n", .{ name, difference });
            }
        }
    }
    std.debug.print("{d} functions and {d} numbers, {d} differences\n", .{ functions, numbers, differences });
    return @intFromBool(differences > 0 or functions == 0 or numbers == 0);
}

const Kind = enum { function, number, other };

/// Opaque structs are pointers in each call; functions of Zig are not OpenSSL's.
fn kindOf(comptime name: []const u8) Kind {
    for (commented) |other| if (std.mem.eql(u8, name, other)) return .other;
    return switch (@typeInfo(@TypeOf(@field(ours, name)))) {
        .@"fn" => |function| if (std.meta.eql(function.attrs.@"callconv", .c)) .function else .other,
        .comptime_int, .int => .number,
        else => .other,
    };
}

fn differenceOf(comptime name: []const u8) ?[]const u8 {
    @setEvalBranchQuota(100_000);
    if (!@hasDecl(theirs, name)) return "OpenSSL does not have it";
    if (kindOf(name) == .number) {
        const here = @field(ours, name);
        const there = @field(theirs, name);
        return if (here == there) null else std.fmt.comptimePrint("{d} here, {d} there", .{ here, there });
    }
    // Only types, for no library is linked.
    const here = shapeOf(@TypeOf(@field(ours, name)));
    const there = shapeOf(@TypeOf(@field(theirs, name)));
    return if (std.mem.eql(u8, here, there)) null else here ++ " here, " ++ there ++ " there";
}

/// The way of a value through a call: a pointer, or an integer of so many bits.
fn shapeOf(comptime T: type) []const u8 {
    return switch (@typeInfo(T)) {
        .pointer => "pointer",
        .optional => |optional| shapeOf(optional.child),
        .int => |int| std.fmt.comptimePrint("{s}{d}", .{
            if (int.signedness == .signed) "i" else "u", int.bits,
        }),
        .void => "void",
        .@"fn" => |function| shape: {
            var text: []const u8 = "(";
            for (function.param_types, 0..) |Parameter, at| {
                text = text ++ (if (at > 0) ", " else "") ++ shapeOf(Parameter.?);
            }
            break :shape text ++ ") " ++ shapeOf(function.return_type.?);
        },
        else => @typeName(T),
    };
}
