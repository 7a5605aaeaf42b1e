//! Fuzz target `multipart`: a form cut in any way, against a reader that sees all of it at once. The first
//! byte says how it is cut; the boundary is "b".
const std = @import("std");
const Multipart = @import("peregrine.web").Multipart;
const testing = std.testing;
const gpa = std.heap.smp_allocator;

pub fn run(input: []const u8) !void {
    if (input.len == 0) return;
    var expected: std.ArrayList(u8) = .empty;
    defer expected.deinit(gpa);
    const is_form = try readPlainly(input[1..], &expected);
    var found: std.ArrayList(u8) = .empty;
    defer found.deinit(gpa);
    const taken = readPieces(input[0], input[1..], &found) catch |err| switch (err) {
        error.ContentTooLarge => return, // the head of a part is longer than the reader allows
        else => return err,
    };
    try testing.expectEqual(is_form, taken);
    if (is_form) try testing.expectEqualStrings(expected.items, found.items);
}

/// Writes names and contents; whether it is a form.
fn readPieces(seed: u8, body: []const u8, out: *std.ArrayList(u8)) !bool {
    var form: Multipart = try .init("b", .{ .parts_max = 0 });
    var random: std.Random.DefaultPrng = .init(seed);
    var rest = body;
    while (rest.len > 0) {
        const size = 1 + random.random().uintLessThan(usize, 1 + @as(usize, seed));
        var piece = rest[0..@min(size, rest.len)];
        rest = rest[piece.len..];
        while (form.next(&piece) catch |err| switch (err) {
            error.BadRequest => return false,
            error.ContentTooLarge => return err,
        }) |event| switch (event) {
            .part => |part| try writePart(out, part.name, part.filename, part.content_type),
            .data => |bytes| try out.appendSlice(gpa, bytes),
            .part_end => try out.append(gpa, 0),
        };
        try testing.expectEqual(0, piece.len);
    }
    form.finish() catch return false;
    return true;
}

fn writePart(
    out: *std.ArrayList(u8),
    name: []const u8,
    filename: ?[]const u8,
    content_type: ?[]const u8,
) !void {
    try out.print(gpa, "[{s}|{s}|{s}]", .{ name, filename orelse "-", content_type orelse "-" });
}

/// Reads the whole body in a single pass.
fn readPlainly(body: []const u8, out: *std.ArrayList(u8)) !bool {
    const delimiter = "\r\n--b";
    const text = try std.mem.concat(gpa, u8, &.{ "\r\n", body });
    defer gpa.free(text);
    var at = (std.mem.find(u8, text, delimiter) orelse return false) + delimiter.len;
    while (true) {
        if (std.mem.startsWith(u8, text[at..], "--")) return true;
        while (at < text.len and (text[at] == ' ' or text[at] == '\t')) at += 1;
        if (!std.mem.startsWith(u8, text[at..], "\r\n")) return false;
        at += 2;
        const head_end = if (std.mem.startsWith(u8, text[at..], "\r\n"))
            at
        else
            (std.mem.findPos(u8, text, at, "\r\n\r\n") orelse return false) + 2;
        if (!try readHead(text[at..head_end], out)) return false;
        const content = text[head_end + 2 ..];
        const len = std.mem.find(u8, content, delimiter) orelse return false;
        try out.appendSlice(gpa, content[0..len]);
        try out.append(gpa, 0);
        at = head_end + 2 + len + delimiter.len;
    }
}

/// Lines that end with a line break.
fn readHead(head: []const u8, out: *std.ArrayList(u8)) !bool {
    var name: ?[]const u8 = null;
    var filename: ?[]const u8 = null;
    var content_type: ?[]const u8 = null;
    var space: [2][1 << 16]u8 = undefined;
    var lines = std.mem.splitSequence(u8, head, "\r\n");
    while (lines.next()) |line| {
        if (line.len == 0) continue;
        const colon = std.mem.findScalar(u8, line, ':') orelse return false;
        const value = std.mem.trim(u8, line[colon + 1 ..], " \t");
        if (std.ascii.eqlIgnoreCase(line[0..colon], "content-type")) content_type = value;
        if (!std.ascii.eqlIgnoreCase(line[0..colon], "content-disposition")) continue;
        const end = std.mem.findScalar(u8, value, ';') orelse value.len;
        if (!std.ascii.eqlIgnoreCase(std.mem.trim(u8, value[0..end], " \t"), "form-data")) return false;
        var rest = value[end..];
        while (rest.len > 0) {
            const parameter = cut(&rest);
            const split = std.mem.findScalar(u8, parameter, '=') orelse continue;
            const key = std.mem.trim(u8, parameter[0..split], " \t");
            const said = std.mem.trimEnd(u8, parameter[split + 1 ..], " \t");
            if (std.ascii.eqlIgnoreCase(key, "name")) name = plain(said, &space[0]);
            if (std.ascii.eqlIgnoreCase(key, "filename")) filename = plain(said, &space[1]);
        }
    }
    if (name == null) return false;
    try writePart(out, name.?, filename, content_type);
    return true;
}

/// Takes a parameter off, and the semicolon before it.
fn cut(rest: *[]const u8) []const u8 {
    const all = std.mem.trimStart(u8, rest.*[1..], " \t");
    var quoted = false;
    var escaped = false;
    const len = for (all, 0..) |byte, at| {
        if (escaped) {
            escaped = false;
        } else if (byte == '"') {
            quoted = !quoted;
        } else if (byte == '\\') {
            escaped = quoted;
        } else if (byte == ';' and !quoted) break at;
    } else all.len;
    rest.* = all[len..];
    return all[0..len];
}

fn plain(said: []const u8, space: []u8) []const u8 {
    const is_quoted = said.len > 1 and said[0] == '"' and said[said.len - 1] == '"';
    const text = if (is_quoted) said[1 .. said.len - 1] else said;
    var len: usize = 0;
    var at: usize = 0;
    while (at < text.len) : (at += 1) {
        if (text[at] == '\\' and at + 1 < text.len and (text[at + 1] == '\\' or text[at + 1] == '"')) at += 1;
        space[len] = text[at];
        len += 1;
    }
    return space[0..len];
}
