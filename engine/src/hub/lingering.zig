//! Frames of a node that only connections hold, because the copies of histories have lost them: the peers of
//! these connections read too slowly. Beyond a limit the oldest frames are overdue. Does not know:
//! connections, and how they are cut.
const std = @import("std");
const assert = std.debug.assert;
const limits = @import("limits.zig");
const Frames = @import("frames.zig").Frames;

/// A list of such frames. It may not move while it has frames.
pub const Lingering = struct {
    /// The frames, in the order in which they were lost.
    list: std.DoublyLinkedList = .{},
    bytes: u64 = 0,
    bytes_max: u64 = limits.lingering_bytes_max,
    /// Bytes beyond the limit after the last cuts. Connections are cut again only when there are more.
    stuck_bytes: u64 = 0,

    /// An eighth of the limit. Connections are cut until the bytes are that far below the limit. If that was
    /// impossible, no connection is cut again before the bytes have grown by as much.
    const part_of_room = 8;

    /// Ends the count of frames that connections still hold.
    pub fn deinit(lingering: *Lingering) void {
        while (lingering.list.popFirst()) |place| of(place).lingering = null;
        lingering.* = undefined;
    }

    fn of(place: *std.DoublyLinkedList.Node) *Frames {
        return @fieldParentPtr("place", place);
    }

    pub fn add(lingering: *Lingering, frames: *Frames) void {
        assert(!frames.lingers);
        frames.lingers = true;
        lingering.list.append(&frames.place);
        lingering.bytes += frames.size();
    }

    pub fn remove(lingering: *Lingering, frames: *Frames) void {
        assert(frames.lingers);
        frames.lingers = false;
        lingering.list.remove(&frames.place);
        lingering.bytes -= frames.size();
        lingering.stuck_bytes = @min(lingering.stuck_bytes, lingering.bytes -| lingering.bytes_max);
    }

    /// Whether connections must be cut.
    pub fn isDue(lingering: *const Lingering) bool {
        const stuck = lingering.stuck_bytes;
        const room = if (stuck == 0) 0 else lingering.bytes_max / part_of_room;
        return lingering.bytes > lingering.bytes_max + stuck + room;
    }

    /// Marks the oldest frames as overdue, as many as bring the rest some way below the limit.
    pub fn choose(lingering: *Lingering) void {
        var left = lingering.bytes;
        var at = lingering.list.first;
        while (left > lingering.bytes_max - lingering.bytes_max / part_of_room) {
            const place = at orelse return;
            at = place.next;
            of(place).is_overdue = true;
            left -= of(place).size();
        }
    }

    /// Notes that all connections were cut that could be.
    pub fn noteCuts(lingering: *Lingering) void {
        lingering.stuck_bytes = lingering.bytes -| lingering.bytes_max;
    }
};

const testing = std.testing;

fn framesOf(lingering: *Lingering, len: usize) !*Frames {
    const frames = try testing.allocator.create(Frames);
    frames.* = .{
        .gpa = testing.allocator,
        .variant = .event,
        .bytes = try testing.allocator.alloc(u8, len),
        .ends = try testing.allocator.alloc(u32, 1),
        .lingering = lingering,
    };
    return frames;
}

test "frames linger while a connection has them and their segment does not; the oldest are overdue" {
    var lingering: Lingering = .{ .bytes_max = 10_400 };
    var all: [12]*Frames = undefined;
    for (&all) |*frames| frames.* = try framesOf(&lingering, 1000);
    const unused = try framesOf(&lingering, 50_000);
    unused.part();
    for (all) |frames| _ = frames.retain().retain();
    try testing.expectEqual(0, lingering.bytes);
    all[7].part();
    for (all, 0..) |frames, number| if (number != 7) frames.part();
    try testing.expectEqual(12 * all[0].size(), lingering.bytes);
    try testing.expect(lingering.isDue());
    lingering.choose();
    var overdue: usize = 0;
    for (all) |frames| overdue += @intFromBool(frames.is_overdue);
    try testing.expect(all[7].is_overdue and all[0].is_overdue and !all[11].is_overdue);
    try testing.expect(lingering.bytes - overdue * all[0].size() <= 9_100);
    // If no connection can be cut, nothing happens until much more lingers.
    lingering.noteCuts();
    try testing.expect(!lingering.isDue());
    const more = try framesOf(&lingering, 1300);
    _ = more.retain();
    more.part();
    try testing.expect(lingering.isDue());
    for (all) |frames| if (frames.is_overdue) for (0..2) |_| frames.release();
    try testing.expect(!lingering.isDue() and lingering.stuck_bytes == 0 and lingering.bytes > 0);
    // The other frames outlive their node.
    lingering.deinit();
    more.release();
    for (all[overdue - 1 ..]) |frames| if (frames != all[7]) for (0..2) |_| frames.release();
}
