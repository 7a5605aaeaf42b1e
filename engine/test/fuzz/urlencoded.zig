//! Fuzz target `urlencoded`: a form of pairs, against a second decoder, and within its bound.
const std = @import("std");
const Form = @import("peregrine.web").Form;
const testing = std.testing;
const fields_max = 100;

pub fn run(input: []const u8) !void {
    var arena: std.heap.ArenaAllocator = .init(std.heap.smp_allocator);
    defer arena.deinit();
    const gpa = arena.allocator();
    const wanted = try readPlainly(gpa, input);
    const media = "application/x-www-form-urlencoded";
    const form = Form.read(gpa, media, input, fields_max) catch |err| {
        try testing.expectEqual(error.ContentTooLarge, err);
        return testing.expect(wanted.len > fields_max);
    };
    try testing.expectEqual(wanted.len, form.fields.len);
    for (wanted, form.fields) |pair, field| {
        try testing.expectEqualStrings(pair[0], field.name);
        try testing.expectEqualStrings(pair[1], field.value);
        try testing.expect(form.get(pair[0]) != null);
    }
}

fn readPlainly(gpa: std.mem.Allocator, input: []const u8) ![]const [2][]const u8 {
    var list: std.ArrayList([2][]const u8) = .empty;
    var pieces = std.mem.splitScalar(u8, input, '&');
    while (pieces.next()) |piece| {
        if (piece.len == 0) continue;
        const split = std.mem.findScalar(u8, piece, '=') orelse piece.len;
        const value = piece[@min(split + 1, piece.len)..];
        try list.append(gpa, .{ try decode(gpa, piece[0..split]), try decode(gpa, value) });
    }
    return list.items;
}

fn decode(gpa: std.mem.Allocator, text: []const u8) ![]const u8 {
    var out: std.ArrayList(u8) = .empty;
    var at: usize = 0;
    while (at < text.len) : (at += 1) {
        var byte = text[at];
        if (byte == '+') byte = ' ';
        if (byte == '%' and at + 2 < text.len) {
            const high = std.fmt.charToDigit(text[at + 1], 16) catch null;
            const low = std.fmt.charToDigit(text[at + 2], 16) catch null;
            if (high != null and low != null) {
                byte = high.? * 16 + low.?;
                at += 2;
            }
        }
        try out.append(gpa, byte);
    }
    return out.items;
}
