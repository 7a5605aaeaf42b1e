//! Runs every input of the corpus through its target: inputs that reached new code when the fuzzer made
//! them up (test/corpus/TARGET.seeds, one a line, in base64), and inputs written by hand, of mended findings
//! too (a file each in test/corpus/TARGET/). Fast, so that script/test does it each time.
const std = @import("std");
const Target = @import("targets.zig").Target;
const testing = std.testing;

const input_bytes_max = 1 << 20;
const seeds_bytes_max = 16 << 20;
const decoder = std.base64.standard.Decoder;

/// The number of inputs. A target need not have packed ones.
fn replaySeeds(target: Target) !usize {
    var path_buffer: [64]u8 = undefined;
    const path = try std.fmt.bufPrint(&path_buffer, "test/corpus/{t}.seeds", .{target});
    const place = std.Io.Dir.cwd();
    const limit: std.Io.Limit = .limited(seeds_bytes_max);
    const seeds = place.readFileAlloc(testing.io, path, testing.allocator, limit) catch |err| switch (err) {
        error.FileNotFound => return 0,
        else => return err,
    };
    defer testing.allocator.free(seeds);
    var lines = std.mem.splitScalar(u8, std.mem.trimEnd(u8, seeds, "\n"), '\n');
    var count: usize = 0;
    while (lines.next()) |line| : (count += 1) {
        errdefer std.debug.print("{s}:{d}\n", .{ path, count + 1 });
        const input = try testing.allocator.alloc(u8, try decoder.calcSizeForSlice(line));
        defer testing.allocator.free(input);
        try decoder.decode(input, line);
        try target.run(input);
    }
    return count;
}

/// The number of inputs. A target need not have a folder.
fn replayFiles(target: Target) !usize {
    const io = testing.io;
    var path_buffer: [64]u8 = undefined;
    const path = try std.fmt.bufPrint(&path_buffer, "test/corpus/{t}", .{target});
    var folder = std.Io.Dir.cwd().openDir(io, path, .{ .iterate = true }) catch |err| switch (err) {
        error.FileNotFound => return 0,
        else => return err,
    };
    defer folder.close(io);
    var inputs = folder.iterate();
    var count: usize = 0;
    while (try inputs.next(io)) |entry| : (count += 1) {
        errdefer std.debug.print("{s}/{s}\n", .{ path, entry.name });
        const input = try folder.readFileAlloc(io, entry.name, testing.allocator, .limited(input_bytes_max));
        defer testing.allocator.free(input);
        try target.run(input);
    }
    return count;
}

test "corpus" {
    for (std.enums.values(Target)) |target|
        try testing.expect(try replaySeeds(target) + try replayFiles(target) > 0);
}
