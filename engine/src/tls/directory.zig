//! The certificates of a directory, by the names of its files. Does not know: what is in the files.
const std = @import("std");
const assert = std.debug.assert;
const retained = @import("retained.zig");
const tls = @import("tls.zig");

/// The name and the files of a certificate in a directory.
pub const Found = struct {
    /// The name of its files, in lower case and without an ending: the name of a host, or "default".
    name: []const u8,
    files: tls.CertificateFiles,
};

/// The most certificates in one folder; more are an error.
pub const certificates_max = 10_000;

/// The certificates in the directory at `path`, sorted by name, "default" in front; owned by `arena`. A
/// certificate is NAME.pem or NAME.crt, with its key in NAME.key or, without such a file, in that file, too;
/// or a directory NAME with fullchain.pem and privkey.pem, as certbot makes it. Entries with other names, and
/// names that begin with a dot, are passed over.
pub fn list(
    arena: std.mem.Allocator,
    path: [:0]const u8,
    diagnostic: *tls.Diagnostic,
) tls.ContextError![]const Found {
    var found: std.ArrayList(Found) = .empty;
    const handle = std.c.opendir(path) orelse {
        const number: u16 = @intCast(std.c._errno().*);
        const reason = std.enums.tagName(std.c.E, @fromBackingInt(number)) orelse "?";
        diagnostic.set("SSL cert_dir cannot be read: {s} ({s})", .{ path, reason });
        return error.InvalidFile;
    };
    defer _ = std.c.closedir(handle);
    while (std.c.readdir(handle)) |entry| {
        const file = std.mem.sliceTo(@as([*:0]const u8, @ptrCast(&entry.name)), 0);
        if (file[0] == '.') continue;
        const one = try certificateOf(arena, path, file) orelse continue;
        if (found.items.len == certificates_max) {
            diagnostic.set("SSL cert_dir has more than {d} certificates: {s}", .{ certificates_max, path });
            return error.InvalidValue;
        }
        try found.append(arena, one);
    }
    std.mem.sortUnstable(Found, found.items, {}, lessThan);
    return found.items;
}

fn certificateOf(
    arena: std.mem.Allocator,
    folder: []const u8,
    file: []const u8,
) error{OutOfMemory}!?Found {
    const ending = std.fs.path.extension(file);
    if (std.mem.eql(u8, ending, ".pem") or std.mem.eql(u8, ending, ".crt")) {
        const stem = file[0 .. file.len - ending.len];
        const whole = try join(arena, &.{ folder, "/", file });
        const key = try join(arena, &.{ folder, "/", stem, ".key" });
        const has_key = retained.statusOf(key).errno == 0;
        return .{
            .name = try std.ascii.allocLowerString(arena, stem),
            .files = .{ .cert_file = whole, .key_file = if (has_key) key else whole },
        };
    }
    const chain = try join(arena, &.{ folder, "/", file, "/fullchain.pem" });
    if (retained.statusOf(chain).errno != 0) return null;
    return .{
        .name = try std.ascii.allocLowerString(arena, file),
        .files = .{
            .cert_file = chain,
            .key_file = try join(arena, &.{ folder, "/", file, "/privkey.pem" }),
        },
    };
}

fn join(arena: std.mem.Allocator, parts: []const []const u8) error{OutOfMemory}![:0]const u8 {
    return std.mem.concatWithSentinel(arena, u8, parts, 0);
}

fn lessThan(_: void, a: Found, b: Found) bool {
    const a_first = std.mem.eql(u8, a.name, "default");
    if (a_first != std.mem.eql(u8, b.name, "default")) return a_first;
    return switch (std.mem.order(u8, a.name, b.name)) {
        .lt => true,
        .gt => false,
        .eq => std.mem.lessThan(u8, a.files.cert_file, b.files.cert_file),
    };
}

test "files that belong together, the default first" {
    const testing = std.testing;
    var tmp = testing.tmpDir(.{});
    defer tmp.cleanup();
    for ([_][]const u8{
        "z.example.pem", "B.example.crt", "b.example.key", "default.pem", "default.key", ".a.pem", "README",
    }) |name| try tmp.dir.writeFile(testing.io, .{ .sub_path = name, .data = "" });
    try tmp.dir.createDirPath(testing.io, "m.example");
    try tmp.dir.createDirPath(testing.io, "empty");
    try tmp.dir.writeFile(testing.io, .{ .sub_path = "m.example/fullchain.pem", .data = "" });
    var arena: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena.deinit();
    var diagnostic: tls.Diagnostic = .{};
    const path = try std.fmt.allocPrintSentinel(arena.allocator(), ".zig-cache/tmp/{s}", .{&tmp.sub_path}, 0);
    const found = try list(arena.allocator(), path, &diagnostic);
    const expected = [_][3][]const u8{
        .{ "default", "default.pem", "default.key" },
        .{ "b.example", "B.example.crt", "B.example.crt" },
        .{ "m.example", "m.example/fullchain.pem", "m.example/privkey.pem" },
        .{ "z.example", "z.example.pem", "z.example.pem" },
    };
    try testing.expectEqual(expected.len, found.len);
    for (expected, found) |words, one| {
        try testing.expectEqualStrings(words[0], one.name);
        try testing.expectEqualStrings(words[1], one.files.cert_file[path.len + 1 ..]);
        try testing.expectEqualStrings(words[2], one.files.key_file[path.len + 1 ..]);
    }
    const absent = try std.fmt.allocPrintSentinel(arena.allocator(), "{s}/absent", .{path}, 0);
    try testing.expectError(error.InvalidFile, list(arena.allocator(), absent, &diagnostic));
    try testing.expect(std.mem.endsWith(u8, diagnostic.text(), "/absent (NOENT)"));
}
