//! Messages of an event stream in wire form (WHATWG HTML, section 9.2). Does not know: responses, and when a
//! message is sent.
const std = @import("std");
const testing = std.testing;

/// A message of an event stream.
pub const Event = struct {
    /// Any lines; the client joins them by line feeds.
    data: []const u8,
    /// The event's type, by which the client selects listeners; null: "message".
    name: ?[]const u8 = null,
    /// A reconnecting client sends this as Last-Event-ID.
    id: ?[]const u8 = null,
    /// The time that clients wait before they reconnect, from now on, in milliseconds.
    retry_ms: ?u32 = null,

    /// Returns the number of bytes that `write` writes; `error.InvalidEvent` if a name or an id has a line
    /// break, or an id has a NUL byte, because clients would ignore it.
    pub fn size(event: *const Event) error{InvalidEvent}!usize {
        if (event.name) |name| if (std.mem.findAny(u8, name, "\r\n") != null) return error.InvalidEvent;
        if (event.id) |id| if (std.mem.findAny(u8, id, "\r\n\x00") != null) return error.InvalidEvent;
        var counter: std.Io.Writer.Discarding = .init(&.{});
        event.write(&counter.writer) catch unreachable; // the counter takes all bytes
        return @intCast(counter.fullCount());
    }

    /// Writes the event in wire form.
    pub fn write(event: *const Event, writer: *std.Io.Writer) std.Io.Writer.Error!void {
        if (event.retry_ms) |ms| try writer.print("retry: {d}\n", .{ms});
        if (event.id) |id| try writer.print("id: {s}\n", .{id});
        if (event.name) |name| try writer.print("event: {s}\n", .{name});
        var rest = event.data;
        while (true) {
            const end = std.mem.findAny(u8, rest, "\r\n") orelse break;
            try writer.print("data: {s}\n", .{rest[0..end]});
            const is_pair = std.mem.startsWith(u8, rest[end..], "\r\n");
            rest = rest[end + @as(usize, if (is_pair) 2 else 1) ..];
        }
        try writer.print("data: {s}\n\n", .{rest});
    }
};

fn expectWritten(expected: []const u8, event: Event) !void {
    var buffer: [200]u8 = undefined;
    var writer: std.Io.Writer = .fixed(&buffer);
    try event.write(&writer);
    try testing.expectEqualStrings(expected, writer.buffered());
    try testing.expectEqual(expected.len, try event.size());
}

test "events on the wire: every kind of line break is one, and nothing gets out of its line" {
    try expectWritten("data: \n\n", .{ .data = "" });
    try expectWritten("data: a\n\n", .{ .data = "a" });
    try expectWritten("data: a\ndata: b\ndata: c\ndata: \ndata: d\n\n", .{ .data = "a\nb\r\nc\r\rd" });
    try expectWritten("data: a\ndata: \n\n", .{ .data = "a\n" });
    try expectWritten(
        "retry: 10\nid: 7\nevent: tick\ndata: x\n\n",
        .{ .data = "x", .name = "tick", .id = "7", .retry_ms = 10 },
    );
    for ([_]Event{
        .{ .data = "", .name = "a\nb" }, .{ .data = "", .name = "a\rb" },
        .{ .data = "", .id = "a\nb" },   .{ .data = "", .id = "a\x00b" },
    }) |event| try testing.expectError(error.InvalidEvent, event.size());
}
