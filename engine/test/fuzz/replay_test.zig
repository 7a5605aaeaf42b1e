//! Runs every input of the corpus (test/corpus/TARGET/*) through its target: what the fuzzer found worth
//! keeping, and each finding that was mended. Fast, so that script/test does it each time.
const std = @import("std");
const Target = @import("targets.zig").Target;
const testing = std.testing;

const input_bytes_max = 1 << 20;

fn replay(target: Target) !void {
    const io = testing.io;
    var path_buffer: [64]u8 = undefined;
    const path = try std.fmt.bufPrint(&path_buffer, "test/corpus/{t}", .{target});
    var folder = try std.Io.Dir.cwd().openDir(io, path, .{ .iterate = true });
    defer folder.close(io);
    var inputs = folder.iterate();
    var count: usize = 0;
    while (try inputs.next(io)) |entry| : (count += 1) {
        errdefer std.debug.print("{s}/{s}\n", .{ path, entry.name });
        const input = try folder.readFileAlloc(io, entry.name, testing.allocator, .limited(input_bytes_max));
        defer testing.allocator.free(input);
        try target.run(input);
    }
    try testing.expect(count > 0);
}

test "corpus" {
    for (std.enums.values(Target)) |target| try replay(target);
}
