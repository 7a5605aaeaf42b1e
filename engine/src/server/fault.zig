//! The text of a fault in a configuration. Does not know: readers.
const std = @import("std");

/// A sentence about a fault. A sentence that is longer than the buffer is cut.
pub const Fault = struct {
    buffer: [320]u8 = undefined,
    len: usize = 0,

    /// Writes the sentence.
    pub fn say(fault: *Fault, comptime format: []const u8, arguments: anytype) void {
        var writer: std.Io.Writer = .fixed(&fault.buffer);
        writer.print(format, arguments) catch {}; // a sentence that does not fit is cut
        fault.len = writer.end;
    }

    /// The sentence; empty if there was no fault.
    pub fn text(fault: *const Fault) []const u8 {
        return fault.buffer[0..fault.len];
    }
};

test "a sentence that is too long is cut" {
    var fault: Fault = .{};
    try std.testing.expectEqualStrings("", fault.text());
    const long: [1000]u8 = @splat('x');
    fault.say("{s}", .{long});
    try std.testing.expectEqualStrings(long[0..fault.buffer.len], fault.text());
}
