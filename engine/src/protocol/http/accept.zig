//! Tells if a client asks for an event stream (RFC 9110 section 12.5.1; HTML, Server-sent events). Does not
//! know: content negotiation. A server needs no more than this before an application runs.
const std = @import("std");
const header = @import("header.zig");
const syntax = @import("syntax.zig");
const FieldSpan = header.FieldSpan;

/// Whether an Accept field lists text/event-stream itself, with a weight above zero. Wildcards do not count:
/// browsers send them with every request.
pub fn wantsEventStream(fields: []const FieldSpan, text: []const u8) bool {
    for (fields) |field| {
        if (field.id == .accept and listsEventStream(field.value(text))) return true;
    }
    return false;
}

fn listsEventStream(value: []const u8) bool {
    // Most fields have no hyphen, so this ends the search for them.
    if (std.mem.findScalar(u8, value, '-') == null) return false;
    var ranges: syntax.List = .init(value);
    while (ranges.next()) |range| {
        const name = syntax.trim(range[0 .. std.mem.findScalar(u8, range, ';') orelse range.len]);
        if (syntax.equalsFolded(name, "text/event-stream") and hasWeight(range[name.len..])) return true;
    }
    return false;
}

/// Whether the weight among a media range's parameters is above zero; it is 1 without one.
fn hasWeight(parameters: []const u8) bool {
    var rest = parameters;
    while (rest.len != 0) {
        const end = parameterEnd(rest);
        const parameter = syntax.trim(rest[0..end]);
        rest = rest[@min(end + 1, rest.len)..];
        if (parameter.len >= 2 and parameter[0] | 0x20 == 'q' and parameter[1] == '=') {
            return !isZero(parameter[2..]);
        }
    }
    return true;
}

fn parameterEnd(text: []const u8) usize {
    var quoted = false;
    var at: usize = 0;
    while (at < text.len) : (at += 1) switch (text[at]) {
        '"' => quoted = !quoted,
        '\\' => at += @intFromBool(quoted),
        ';' => if (!quoted) return at,
        else => {},
    };
    return text.len;
}

/// Whether a weight is zero: "0", or "0." and up to three zeros. A malformed weight is not zero.
fn isZero(weight: []const u8) bool {
    if (weight.len == 0 or weight[0] != '0') return false;
    if (weight.len == 1) return true;
    return weight[1] == '.' and weight.len <= 5 and std.mem.allEqual(u8, weight[2..], '0');
}

test "which Accept fields ask for an event stream" {
    const yes = [_][]const u8{
        "text/event-stream",
        "Text/Event-Stream",
        "text/html, text/event-stream",
        "text/html,text/event-stream;q=0.001,*/*;q=0.8",
        "text/event-stream; charset=utf-8; Q=1.000",
        "text/event-stream ;x=\"; q=0\"",
        " ,, text/event-stream",
        "text/event-stream;q=0.0001",
        "text/event-stream;q=",
    };
    const no = [_][]const u8{
        "",
        "*/*",
        "text/*",
        "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8",
        "application/signed-exchange;v=b3;q=0.7",
        "text/event-stream;q=0",
        "text/event-stream; q=0.000",
        "text/event-stream;q=0.;x=1",
        "text/event-streams",
        "xtext/event-stream",
        "text/html;x=\"a,text/event-stream\"",
        "text/event-stream-",
    };
    for (yes) |value| try expectWanted(true, value);
    for (no) |value| try expectWanted(false, value);
}

fn expectWanted(expected: bool, value: []const u8) !void {
    const field: FieldSpan = .{
        .name_at = 0,
        .name_len = 0,
        .value_at = 0,
        .value_len = @intCast(value.len),
        .id = .accept,
    };
    errdefer std.debug.print("Accept: {s}\n", .{value});
    try std.testing.expectEqual(expected, wantsEventStream(&.{field}, value));
}

test "several Accept fields are one list, other fields are none" {
    const text = "*/*text/event-stream";
    const wildcard: FieldSpan = .{
        .name_at = 0,
        .name_len = 0,
        .value_at = 0,
        .value_len = 3,
        .id = .accept,
    };
    var stream: FieldSpan = .{ .name_at = 0, .name_len = 0, .value_at = 3, .value_len = 17, .id = .accept };
    try std.testing.expect(wantsEventStream(&.{ wildcard, stream }, text));
    stream.id = .content_type;
    try std.testing.expect(!wantsEventStream(&.{ wildcard, stream }, text));
}
