//! Counts events that may come by the thousand, such as failed TLS handshakes of scanners, so that one line
//! of the log a second reports them. Does not know: logs, and words.
const std = @import("std");
const assert = std.debug.assert;

/// A count of events that no report has told of.
pub const Tally = struct {
    untold: u32 = 0,
    told_at: ?u64 = null,
    /// Milliseconds between two reports.
    pause_ms: u32 = 1000,

    /// Counts an event. Returns the earlier events for a report; null: a later report tells of this event.
    pub fn add(tally: *Tally, now: u64) ?Others {
        if (tally.told_at) |at| if (now -| at < tally.pause_ms) {
            tally.untold += 1;
            return null;
        };
        tally.told_at = now;
        return tally.take();
    }

    /// Counts `count` events, at least one, like `add`.
    pub fn addMany(tally: *Tally, count: u32, now: u64) ?Others {
        assert(count > 0);
        tally.untold += count - 1;
        return tally.add(now);
    }

    /// Returns the events that no report has told of, and begins to count anew.
    pub fn take(tally: *Tally) Others {
        defer tally.untold = 0;
        return .{ .count = tally.untold };
    }
};

/// Events that a worker reports in the log at most once a second.
pub const Troubles = struct {
    /// TLS handshakes that failed.
    handshake: Tally = .{},
    /// Connections with streams whose peers have broken the rules.
    frames: Tally = .{},
    /// Headers of the PROXY protocol that were refused.
    header: Tally = .{},
    /// Failed attempts to accept, and pauses of accepting.
    accepting: Tally = .{},
    /// Connections over the limit of connections.
    full: Tally = .{},
    /// Connections over the limit of their address.
    unwelcome: Tally = .{},
    /// Requests that were refused or cut because memory was short.
    shed: Tally = .{},
    /// Requests and messages that were refused, by the limit that they exceed.
    refused: Refused = .initFill(.{}),
    /// Moments of short memory in which no request was refused.
    memory: Tally = .{ .pause_ms = 60_000 },
    /// Interpreters that could not join.
    joins: Tally = .{},
    /// Request bodies for which there was no room in temporary files.
    files: Tally = .{},
    /// Responses with fields that only the server sends. An application that sends one does so with every
    /// response.
    fields: Tally = .{ .pause_ms = 60_000 },
    /// Commands of an application that the engine could not carry out, for want of a descriptor for instance.
    commands: Tally = .{},
};

/// Refused requests and messages, by the limit that they exceed.
pub const Refused = std.EnumArray(Cause, Tally);

/// The limit that a request or message exceeds, by its name in config.zig. Other causes are the rules of
/// HTTP, and those of a mount that is confined to its own topics.
pub const Cause = enum {
    request,
    request_line_bytes_max,
    head_bytes_max,
    header_count_max,
    trailer_bytes_max,
    h2_list_bytes_max,
    body_bytes_max,
    address_upload_bytes_max,
    head_ms,
    body_ms,
    queue_ms,
    queue_max,
    held_max,
    foreign_topic,
    frame_bytes_max,
    message_bytes_max,
};

/// The number of events since the last report, as the end of a line of the log; nothing is printed for 0.
pub const Others = struct {
    count: u32,

    /// For `{f}`.
    pub fn format(others: Others, writer: *std.Io.Writer) std.Io.Writer.Error!void {
        if (others.count > 0) try writer.print("; {d} more since the last report", .{others.count});
    }
};

test "a report a second, and no event is forgotten" {
    const testing = std.testing;
    var tally: Tally = .{};
    try testing.expectEqual(0, tally.add(0).?.count);
    for (1..1000) |now| try testing.expectEqual(null, tally.add(now));
    try testing.expectEqual(999, tally.add(1000).?.count);
    try testing.expectEqual(null, tally.add(1001));
    try testing.expectEqual(1, tally.take().count);
    try testing.expectEqual(0, tally.take().count);
    try testing.expectEqual(null, tally.addMany(5, 1002));
    try testing.expectEqual(6, tally.addMany(2, 2000).?.count);
    try testing.expectFmt("x; 3 more since the last report", "x{f}", .{Others{ .count = 3 }});
    try testing.expectFmt("x", "x{f}", .{Others{ .count = 0 }});
}
