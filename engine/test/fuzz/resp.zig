//! Fuzz target `resp`: answers as the parser reads them, whole and in pieces, against a second reader that is
//! written the plain way and sees all of the input; and as a tree in bounded memory.
const std = @import("std");
const hub = @import("hub");
const resp = hub.resp;
const cuts_file = @import("cuts.zig");
const Cuts = cuts_file.Cuts;
const testing = std.testing;

const wire_max = 4096;

/// The values of an input, and its end.
const Digest = struct {
    hash: std.hash.Wyhash = .init(0),
    values: usize = 0,
    fault: ?resp.Fault = null,
    /// Bytes of a string whose end is missing.
    pending: usize = 0,

    fn note(digest: *Digest, name: []const u8, bytes: []const u8) void {
        digest.values += 1;
        for ([_][]const u8{ name, std.mem.asBytes(&bytes.len), bytes }) |part| digest.hash.update(part);
    }

    fn noteValue(digest: *Digest, name: []const u8, value: anytype) void {
        digest.note(name, std.mem.asBytes(&value));
    }

    fn expectEqual(digest: *Digest, expected: *Digest) !void {
        try testing.expectEqual(expected.fault, digest.fault);
        try testing.expectEqual(expected.values, digest.values);
        try testing.expectEqual(expected.hash.final(), digest.hash.final());
    }
};

pub fn run(input: []const u8) !void {
    if (input.len == 0 or input.len > wire_max) return;
    const dialect: resp.Dialect = if (input[0] & 1 == 0) .resp2 else .resp3;
    const limits: resp.Limits = switch (input[0] >> 1 & 3) {
        0 => .of(&.{}),
        1 => .{ .depth_max = 2, .elements_max = 6, .bytes_max = 20, .line_bytes_max = 10 },
        2 => .{ .depth_max = 1, .elements_max = 0, .bytes_max = 0, .line_bytes_max = 3 },
        else => .{ .depth_max = 32, .elements_max = 100, .bytes_max = 200, .line_bytes_max = 40 },
    };
    const wire = input[1..];
    var expected: Digest = .{};
    var plain: Plain = .{ .rest = wire, .dialect = dialect, .limits = limits, .digest = &expected };
    plain.readAll();
    for ([_]Cuts{ .whole, .seeded(std.hash.Wyhash.hash(0, input)), .bytes }) |cuts| {
        if (cuts == .bytes and wire.len > cuts_file.bytewise_max) continue;
        var digest: Digest = .{};
        try read(wire, dialect, limits, cuts, &digest);
        try digest.expectEqual(&expected);
    }
}

fn read(wire: []const u8, dialect: resp.Dialect, limits: resp.Limits, way: Cuts, digest: *Digest) !void {
    var cuts = way;
    var parser: resp.Parser = .init(limits);
    parser.dialect = dialect;
    var memory: TreeMemory = undefined;
    var tree = try memory.tree();
    var collects = true;
    var text: [wire_max]u8 = undefined;
    var text_len: usize = 0;
    var at: usize = 0;
    var arrived: usize = 0;
    while (true) {
        arrived += cuts.next(wire.len - arrived);
        while (true) {
            const step = parser.feed(wire[at..arrived]);
            at += step.consumed;
            switch (step.event) {
                .need_more => break,
                .malformed => |fault| {
                    digest.fault = fault;
                    try testing.expectEqual(fault, parser.feed(wire[at..arrived]).event.malformed);
                    return;
                },
                .text => |piece| {
                    try testing.expect(piece.bytes.len > 0 or piece.last);
                    if (piece.first) text_len = 0;
                    @memcpy(text[text_len..][0..piece.bytes.len], piece.bytes);
                    text_len += piece.bytes.len;
                    try testing.expect(text_len <= piece.len);
                    if (piece.last) {
                        try testing.expectEqual(piece.len, text_len);
                        digest.note(@tagName(piece.kind), text[0..text_len]);
                    }
                },
                .begin => |aggregate| digest.noteValue(@tagName(aggregate.kind), aggregate.count),
                .end => digest.note("end", ""),
                .integer => |value| digest.noteValue("integer", value),
                .number => |value| digest.noteValue("number", value),
                .boolean => |value| digest.noteValue("boolean", value),
                .nothing => digest.note("nothing", ""),
                inline .status, .failure, .digits => |line, tag| digest.note(@tagName(tag) ++ "-line", line),
            }
            if (collects) switch (tree.add(step.event)) {
                .more => {},
                .complete => {
                    try testing.expect(parser.isBetween());
                    try expectWhole(tree.root());
                    tree.clear();
                },
                .full => collects = false,
            };
        }
        if (arrived == wire.len) return;
    }
}

const TreeMemory = struct {
    buffer: [32 * 1024]u8,
    allocator: std.heap.FixedBufferAllocator,

    fn tree(memory: *TreeMemory) !hub.Tree {
        memory.allocator = .init(&memory.buffer);
        return .alloc(memory.allocator.allocator(), 200, 1000);
    }
};

/// Each aggregate has as many values as it says, and they end where it ends.
fn expectWhole(view: hub.Tree.View) !void {
    var items = view.items();
    var count: u32 = 0;
    while (items.next()) |item| : (count += 1) try expectWhole(item);
    try testing.expectEqual(view.count() orelse 0, count);
}

/// The second reader.
const Plain = struct {
    rest: []const u8,
    dialect: resp.Dialect,
    limits: resp.Limits,
    digest: *Digest,
    elements: u64 = 0,
    bytes: u64 = 0,
    has_attribute: bool = false,

    const Stop = error{ Ends, Wrong };

    fn readAll(plain: *Plain) void {
        while (true) {
            plain.elements = 0;
            plain.bytes = 0;
            plain.has_attribute = false;
            plain.value(0) catch return;
        }
    }

    fn wrong(plain: *Plain, fault: resp.Fault) Stop {
        plain.digest.fault = fault;
        return error.Wrong;
    }

    fn value(plain: *Plain, depth: usize) Stop!void {
        if (plain.rest.len == 0) return error.Ends;
        const kind = plain.rest[0];
        const known: []const u8 = if (plain.dialect == .resp2) "+-:$*" else "+-:$*_,#!=(%~>|";
        if (std.mem.findScalar(u8, known, kind) == null) return plain.wrong(.unknown_type);
        const line = try plain.takeLine();
        const digest = plain.digest;
        switch (kind) {
            '+', '-', ':', ',', '#', '_', '(' => {
                const fault: ?resp.Fault = switch (kind) {
                    ':' => if (plainInteger(line) == null) .bad_integer else null,
                    ',' => if (plainNumber(line) == null) .bad_number else null,
                    '#' => if (line.len != 1 or (line[0] != 't' and line[0] != 'f')) .bad_boolean else null,
                    '_' => if (line.len != 0) .bad_length else null,
                    '(' => if (!isDigits(line)) .bad_integer else null,
                    else => null,
                };
                if (fault) |one| return plain.wrong(one);
                try plain.count(0, line.len);
                switch (kind) {
                    '+' => digest.note("status-line", line),
                    '-' => digest.note("failure-line", line),
                    '(' => digest.note("digits-line", line),
                    ':' => digest.noteValue("integer", plainInteger(line).?),
                    ',' => digest.noteValue("number", plainNumber(line).?),
                    '#' => digest.noteValue("boolean", line[0] == 't'),
                    else => digest.note("nothing", ""),
                }
            },
            '$', '!', '=' => try plain.text(kind, line),
            else => try plain.aggregate(kind, line, depth),
        }
    }

    fn takeLine(plain: *Plain) Stop![]const u8 {
        const bytes = plain.rest[1..];
        for (bytes, 0..) |byte, at| {
            if (at > plain.limits.line_bytes_max) return plain.wrong(.line_too_long);
            if (byte == '\n') return plain.wrong(.bad_line);
            if (byte != '\r') continue;
            if (at + 1 == bytes.len) return error.Ends;
            if (bytes[at + 1] != '\n') return plain.wrong(.bad_line);
            plain.rest = bytes[at + 2 ..];
            return bytes[0..at];
        }
        if (bytes.len > plain.limits.line_bytes_max) return plain.wrong(.line_too_long);
        return error.Ends;
    }

    fn count(plain: *Plain, elements: u64, bytes: u64) Stop!void {
        plain.elements += elements;
        plain.bytes += bytes;
        if (plain.elements > plain.limits.elements_max) return plain.wrong(.too_many_elements);
        if (plain.bytes > plain.limits.bytes_max) return plain.wrong(.too_many_bytes);
    }

    fn text(plain: *Plain, kind: u8, head: []const u8) Stop!void {
        const announced = plainInteger(head) orelse return plain.wrong(.bad_length);
        if (announced == -1 and kind == '$') return plain.digest.note("nothing", "");
        if (announced < 0 or (kind == '=' and announced < 4)) return plain.wrong(.bad_length);
        try plain.count(0, @intCast(announced));
        const len: usize = @intCast(announced);
        if (plain.rest.len <= len) return error.Ends;
        if (plain.rest[len] != '\r') return plain.wrong(.text_not_ended);
        if (plain.rest.len == len + 1) return error.Ends;
        if (plain.rest[len + 1] != '\n') return plain.wrong(.text_not_ended);
        const name = switch (kind) {
            '$' => "string",
            '!' => "failure",
            else => "verbatim",
        };
        plain.digest.note(name, plain.rest[0..len]);
        plain.rest = plain.rest[len + 2 ..];
    }

    fn aggregate(plain: *Plain, kind: u8, head: []const u8, depth: usize) Stop!void {
        const announced = plainInteger(head) orelse return plain.wrong(.bad_length);
        if (announced == -1 and kind == '*') return plain.digest.note("nothing", "");
        if (announced < 0) return plain.wrong(.bad_length);
        if (announced > plain.limits.elements_max) return plain.wrong(.too_many_elements);
        const values: u32 = @intCast(announced * @as(i64, if (kind == '%' or kind == '|') 2 else 1));
        if (kind == '>' and (announced == 0 or depth > 0 or plain.has_attribute)) {
            return plain.wrong(.misplaced);
        }
        if (depth == plain.limits.depth_max) return plain.wrong(.too_deep);
        try plain.count(values, 0);
        plain.digest.noteValue(switch (kind) {
            '*' => "list",
            '~' => "set",
            '%' => "map",
            '|' => "attribute",
            else => "push",
        }, values);
        for (0..values) |_| try plain.value(depth + 1);
        plain.digest.note("end", "");
        if (kind != '|') return;
        if (depth == 0 and values > 0) plain.has_attribute = true;
        try plain.value(depth);
    }
};

fn plainInteger(line: []const u8) ?i64 {
    const value = std.fmt.parseInt(i64, line, 10) catch return null;
    var buffer: [24]u8 = undefined;
    // Written again, it is the same.
    const again = std.fmt.bufPrint(&buffer, "{d}", .{value}) catch unreachable;
    return if (std.mem.eql(u8, line, again)) value else null;
}

fn plainNumber(line: []const u8) ?f64 {
    if (std.mem.eql(u8, line, "inf")) return std.math.inf(f64);
    if (std.mem.eql(u8, line, "-inf")) return -std.math.inf(f64);
    if (std.mem.eql(u8, line, "nan")) return std.math.nan(f64);
    for (line) |byte| switch (byte) {
        '0'...'9', '+', '-', '.', 'e', 'E' => {},
        else => return null,
    };
    return std.fmt.parseFloat(f64, line) catch null;
}

fn isDigits(line: []const u8) bool {
    const digits = if (line.len > 0 and line[0] == '-') line[1..] else line;
    if (digits.len == 0) return false;
    for (digits) |byte| if (byte < '0' or byte > '9') return false;
    return true;
}
