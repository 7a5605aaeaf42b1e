//! The memory limit of a control group (man 7 cgroups): the smallest limit of the process's group and the
//! groups around it, in either version of the kernel's interface.
const std = @import("std");
const sys = @import("../sys.zig");

const path_bytes_max = 1024;

/// Version 1 stands for "no limit" with the largest number of whole pages; limits from this number of bytes
/// on are treated as none.
const unlimited = 1 << 60;

/// Returns the limit in bytes; null: none. `own`: the file that lists the process's groups
/// (/proc/self/cgroup); `mount`: the folder where the groups are mounted.
pub fn limit(own: [:0]const u8, mount: []const u8) ?u64 {
    var buffer: [4096]u8 = undefined;
    const text = sys.readWhole(own, &buffer) orelse return null;
    var smallest: ?u64 = null;
    var lines = std.mem.tokenizeScalar(u8, text, '\n');
    while (lines.next()) |line| {
        // "4:memory:/some/group" in version 1, "0::/some/group" in version 2.
        var parts = std.mem.splitScalar(u8, line, ':');
        _ = parts.next();
        const controllers = parts.next() orelse continue;
        const group = parts.rest();
        if (controllers.len == 0) {
            smallest = least(smallest, upward(mount, group, "memory.max"));
        } else if (lists(controllers, "memory")) {
            var root: [path_bytes_max]u8 = undefined;
            const memory = std.fmt.bufPrint(&root, "{s}/memory", .{mount}) catch continue;
            smallest = least(smallest, upward(memory, group, "memory.limit_in_bytes"));
        }
    }
    return smallest;
}

fn lists(controllers: []const u8, name: []const u8) bool {
    var it = std.mem.splitScalar(u8, controllers, ',');
    while (it.next()) |one| if (std.mem.eql(u8, one, name)) return true;
    return false;
}

/// Returns the smallest limit from a group up to the root of the mount. In a container the group's name may
/// be the host's, while the mount has the container's own group as its root; groups that are missing there
/// are skipped.
fn upward(root: []const u8, group: []const u8, name: []const u8) ?u64 {
    var smallest: ?u64 = null;
    // A group outside the mount has a name like "/../..".
    var rest = if (std.mem.startsWith(u8, group, "/..")) "" else group;
    while (true) {
        rest = std.mem.trimEnd(u8, rest, "/");
        smallest = least(smallest, read(root, rest, name));
        if (rest.len == 0) return smallest;
        rest = rest[0 .. std.mem.lastIndexOfScalar(u8, rest, '/') orelse 0];
    }
}

fn read(root: []const u8, group: []const u8, name: []const u8) ?u64 {
    var path: [2 * path_bytes_max]u8 = undefined;
    var buffer: [32]u8 = undefined;
    const file = std.fmt.bufPrintSentinel(&path, "{s}{s}/{s}", .{ root, group, name }, 0) catch return null;
    const text = sys.readWhole(file, &buffer) orelse return null;
    // Version 2 has "max" for no limit.
    const bytes = std.fmt.parseInt(u64, std.mem.trim(u8, text, " \n"), 10) catch return null;
    return if (bytes >= unlimited) null else bytes;
}

fn least(one: ?u64, other: ?u64) ?u64 {
    return @min(one orelse return other, other orelse return one);
}

test "the smallest limit on the way up holds, in both versions" {
    const testing = std.testing;
    var place = testing.tmpDir(.{});
    defer place.cleanup();
    var buffer: [path_bytes_max]u8 = undefined;
    const root = buffer[0..try place.dir.realPath(testing.io, &buffer)];
    var path: [path_bytes_max]u8 = undefined;
    const own = try std.fmt.bufPrintSentinel(&path, "{s}/own", .{root}, 0);
    const files = .{
        .{ "v2/a/b", "memory.max", "3000\n" },
        .{ "v2/a", "memory.max", "2000\n" },
        .{ "v2", "memory.max", "max\n" },
        .{ "v1/memory/c", "memory.limit_in_bytes", "5000\n" },
        .{ "v1/memory", "memory.limit_in_bytes", "9223372036854771712\n" },
        .{ "inside", "memory.max", "7000\n" },
    };
    inline for (files) |file| {
        try place.dir.createDirPath(testing.io, file[0]);
        try place.dir.writeFile(testing.io, .{ .sub_path = file[0] ++ "/" ++ file[1], .data = file[2] });
    }
    const cases = .{
        .{ "0::/a/b\n", "v2", 2000 },
        .{ "0::/\n", "v2", null },
        .{ "0::/a/b/gone\n", "v2", 2000 },
        .{ "9:name=systemd:/a\n4:cpu,memory:/c\n0::/\n", "v1", 5000 },
        .{ "4:memory:/\n", "v1", null },
        .{ "4:memories:/c\n", "v1", null },
        .{ "0::/../../docker/1234\n", "inside", 7000 },
        .{ "", "v2", null },
        .{ "nonsense\n:\n::\n", "none", null },
    };
    inline for (cases) |case| {
        try place.dir.writeFile(testing.io, .{ .sub_path = "own", .data = case[0] });
        var mount: [path_bytes_max]u8 = undefined;
        const found = limit(own, try std.fmt.bufPrint(&mount, "{s}/{s}", .{ root, case[1] }));
        try testing.expectEqual(@as(?u64, case[2]), found);
    }
    try testing.expectEqual(null, limit("/nowhere", root));
}
