//! peregrine.h and the structs, constants and functions of abi/ are two spellings of one
//! thing: compares them.
const std = @import("std");
const abi = @import("abi");
const c = @import("c");
const peregrine = @import("peregrine");
const types = abi.types;

test "structs have the same size and the same fields in the same places" {
    @setEvalBranchQuota(100_000);
    comptime var compared = 0;
    inline for (@typeInfo(types).@"struct".decl_names) |name| {
        if (comptime isExternStruct(name)) {
            const Ours = @field(types, name);
            const Theirs = @field(c, cStruct(name));
            try expectSameLayout(Ours, Theirs);
            const fields = @typeInfo(Ours).@"struct".field_names;
            inline for (fields, @typeInfo(Theirs).@"struct".field_names) |field, declared| {
                try std.testing.expectEqualStrings(declared, field);
            }
            compared += 1;
        }
    }
    try expectSameLayout(peregrine.Field, c.peregrine_field);
    try expectSameLayout(peregrine.FieldSpan, c.peregrine_field_span);
    comptime var declared = 0;
    inline for (@typeInfo(c).@"struct".decl_names) |name| {
        if (comptime std.mem.startsWith(u8, name, "struct_peregrine_") and isKnown(@field(c, name))) {
            declared += 1;
        }
    }
    try std.testing.expectEqual(declared, compared + 2);
}

test "constants have the same names and values" {
    @setEvalBranchQuota(100_000);
    comptime var compared = 0;
    inline for (.{
        .{ "", types.EventFlag },        .{ "", types.RespondFlag },     .{ "", types.ListenFlag },
        .{ "", types.RouteFlag },        .{ "VERIFY_", types.Verify },   .{ "", types.ForwardedHeader },
        .{ "", types.FileFlag },         .{ "", types.OpenedFlag },      .{ "NODE_", types.NodeFlag },
        .{ "NODE_", types.NodeRequest }, .{ "NODE_", types.NodeResult }, .{ "TRACE_", types.TraceKind },
        .{ "NODE_", types.NodeRead },    .{ "NODE_", types.NodeAs },     .{ "OWN_", types.Own },
        .{ "HELD_", types.HeldAs },      .{ "HELD_", types.HeldKind },   .{ "HELD_", types.HeldMost },
    }) |group| compared += try expectSameConstants(group[0], group[1]);
    inline for (@typeInfo(types.Code).@"struct".decl_names) |name| {
        const value = @field(types.Code, name);
        try std.testing.expectEqual(value, @field(c, constant(if (value < 0) "E_" else "", name)));
        compared += 1;
    }
    inline for (.{
        types.Kind,              peregrine.Reason,      peregrine.Level,
        peregrine.Incoming.Flow, peregrine.CounterKind, peregrine.Command.Compression,
    }) |names| {
        const prefix = switch (names) {
            peregrine.Incoming.Flow => "FLOW_",
            peregrine.Command.Compression => "COMPRESSION_",
            else => "",
        };
        inline for (@typeInfo(names).@"enum".field_names) |name| {
            const word = if (names == peregrine.Level and comptime std.mem.eql(u8, name, "err"))
                "error"
            else
                name;
            try std.testing.expectEqual(@backingInt(@field(names, name)), @field(c, constant(prefix, word)));
            compared += 1;
        }
    }
    try std.testing.expectEqual(peregrine.tls.ticket_keys_bytes, c.PEREGRINE_TICKET_KEYS_BYTES);
    compared += 1;
    try std.testing.expectEqual(abi.node.name_bytes, c.PEREGRINE_NODE_NAME_BYTES);
    compared += 1;
    try std.testing.expectEqual(@sizeOf(types.NodePosition), c.PEREGRINE_NODE_POSITION_BYTES);
    compared += 1;
    comptime var declared = 0;
    inline for (@typeInfo(c).@"struct".decl_names) |name| {
        if (comptime std.mem.startsWith(u8, name, "PEREGRINE_") and isNumber(@TypeOf(@field(c, name)))) {
            declared += 1;
        }
    }
    const others = 1; // PEREGRINE_ABI_VERSION is C's alone
    try std.testing.expectEqual(declared, compared + others);
}

test "functions are there, with as many parameters of the same sizes" {
    comptime var compared = 0;
    @setEvalBranchQuota(100_000);
    inline for (@typeInfo(c).@"struct".decl_names) |name| {
        if (comptime isEngineFunction(name)) {
            const ours = @typeInfo(@TypeOf(@field(exporter(name), name))).@"fn";
            const theirs = @typeInfo(@TypeOf(@field(c, name))).@"fn";
            try std.testing.expectEqual(theirs.param_types.len, ours.param_types.len);
            inline for (theirs.param_types, ours.param_types) |declared, defined| {
                try expectSameKind(declared.?, defined.?);
            }
            try expectSameKind(theirs.return_type.?, ours.return_type.?);
            compared += 1;
        }
    }
    comptime var exported = 0;
    inline for (abi.files) |file| inline for (@typeInfo(file).@"struct".decl_names) |name| {
        if (comptime std.mem.startsWith(u8, name, "peregrine_")) exported += 1;
    };
    try std.testing.expectEqual(exported, compared);
}

fn expectSameLayout(comptime Ours: type, comptime Theirs: type) !void {
    errdefer std.debug.print("{s}\n", .{@typeName(Ours)});
    const names = @typeInfo(Ours).@"struct".field_names;
    const declared = @typeInfo(Theirs).@"struct".field_names;
    try std.testing.expectEqual(declared.len, names.len);
    inline for (names, declared) |name, declared_name| {
        try std.testing.expectEqual(@offsetOf(Theirs, declared_name), @offsetOf(Ours, name));
        try expectSameKind(@FieldType(Theirs, declared_name), @FieldType(Ours, name));
    }
    try std.testing.expectEqual(@sizeOf(Theirs), @sizeOf(Ours));
}

/// Same size, and a number where the other is a number: of the same sign, unless it is an enum.
fn expectSameKind(comptime Theirs: type, comptime Ours: type) !void {
    errdefer std.debug.print("{s} is {s} in C\n", .{ @typeName(Ours), @typeName(Theirs) });
    try std.testing.expectEqual(@sizeOf(Theirs), @sizeOf(Ours));
    if (@typeInfo(Theirs) == .int and @typeInfo(Ours) == .int)
        try std.testing.expectEqual(@typeInfo(Theirs).int.signedness, @typeInfo(Ours).int.signedness);
    try std.testing.expectEqual(isPointer(Theirs), isPointer(Ours));
}

fn expectSameConstants(comptime prefix: []const u8, comptime group: type) !comptime_int {
    const names = @typeInfo(group).@"struct".decl_names;
    inline for (names) |name| {
        try std.testing.expectEqual(@field(group, name), @field(c, constant(prefix, name)));
    }
    return names.len;
}

fn isPointer(comptime T: type) bool {
    return switch (@typeInfo(T)) {
        .pointer => true,
        .optional => |optional| isPointer(optional.child),
        else => false,
    };
}

fn isNumber(comptime T: type) bool {
    return @typeInfo(T) == .int or @typeInfo(T) == .comptime_int;
}

/// A struct whose fields the header tells.
fn isKnown(comptime T: type) bool {
    return @typeInfo(T) == .@"struct";
}

fn isExternStruct(comptime name: []const u8) bool {
    if (@TypeOf(@field(types, name)) != type) return false;
    const info = @typeInfo(@field(types, name));
    return info == .@"struct" and info.@"struct".layout == .@"extern";
}

/// "UnixSocket" is `struct peregrine_unix_socket`.
fn cStruct(comptime name: []const u8) []const u8 {
    comptime var result: []const u8 = "struct_peregrine";
    inline for (name) |letter| {
        result = result ++ (if (std.ascii.isUpper(letter)) "_" else "") ++ .{std.ascii.toLower(letter)};
    }
    return result;
}

/// "closed" is `PEREGRINE_CLOSED`.
fn constant(comptime prefix: []const u8, comptime name: []const u8) []const u8 {
    comptime var result: []const u8 = "PEREGRINE_" ++ prefix;
    inline for (name) |letter| result = result ++ .{std.ascii.toUpper(letter)};
    return result;
}

/// Functions that the header only declares.
fn isEngineFunction(comptime name: []const u8) bool {
    if (!std.mem.startsWith(u8, name, "peregrine_")) return false;
    if (std.mem.eql(u8, name, "peregrine_next_event")) return false;
    return @typeInfo(@TypeOf(@field(c, name))) == .@"fn";
}

fn exporter(comptime name: []const u8) type {
    inline for (abi.files) |file| {
        if (@hasDecl(file, name)) return file;
    }
    @compileError(name ++ " is declared in peregrine.h and not exported");
}
