//! Fuzz target `cookie`: a Cookie field against a second reader; and a cookie whose parts are the input's
//! lines: either it is refused, or it is one field that says just that.
const std = @import("std");
const web = @import("peregrine.web");
const testing = std.testing;

pub fn run(input: []const u8) !void {
    try expectRead(input);
    try expectSet(input);
}

fn expectRead(input: []const u8) !void {
    var cookies: web.Cookies = .init(input);
    var pieces = std.mem.splitScalar(u8, input, ';');
    while (pieces.next()) |piece| {
        const split = std.mem.findScalar(u8, piece, '=') orelse continue;
        const name = std.mem.trim(u8, piece[0..split], " \t");
        if (name.len == 0) continue;
        var value = std.mem.trim(u8, piece[split + 1 ..], " \t");
        const is_quoted = value.len > 1 and value[0] == '"' and value[value.len - 1] == '"';
        if (is_quoted) value = value[1 .. value.len - 1];
        const found = cookies.next() orelse return error.Missing;
        try testing.expectEqualStrings(name, found.name);
        try testing.expectEqualStrings(value, found.value);
    }
    try testing.expectEqual(null, cookies.next());
}

fn expectSet(input: []const u8) !void {
    var lines = std.mem.splitScalar(u8, input, '\n');
    const cookie: web.Cookie = .{
        .name = lines.next() orelse "",
        .value = lines.next() orelse "",
        .path = lines.next(),
        .domain = lines.next(),
        .secure = input.len % 2 == 0,
        .same_site = if (input.len % 3 == 0) .none else .strict,
    };
    var buffer: [1 << 16]u8 = undefined;
    var writer: std.Io.Writer = .fixed(&buffer);
    cookie.write(&writer) catch |err| switch (err) {
        error.InvalidCookie => return testing.expectEqual(0, writer.end),
        error.WriteFailed => return, // longer than the buffer
    };
    const text = writer.buffered();
    for (text) |byte| try testing.expect(byte >= ' ' and byte <= '~');
    var parts = std.mem.splitSequence(u8, text, "; ");
    const pair = parts.next().?;
    var cookies: web.Cookies = .init(pair);
    const found = cookies.next().?;
    try testing.expectEqualStrings(cookie.name, found.name);
    try testing.expectEqualStrings(cookie.value, found.value);
    var attributes: usize = 0;
    while (parts.next()) |_| attributes += 1;
    const optional = @as(usize, @intFromBool(cookie.path != null)) + @intFromBool(cookie.domain != null) +
        @intFromBool(cookie.secure);
    try testing.expectEqual(optional + 2, attributes);
}
