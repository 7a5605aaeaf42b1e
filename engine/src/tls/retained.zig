//! A server's configuration, kept so that changed files can be loaded again, with a digest of the files'
//! status; the same digest for a client's files. Does not know: what is in the files, clocks.
const std = @import("std");
const builtin = @import("builtin");
const c = @import("libssl.zig");
const folders = @import("directory.zig");
const staple = @import("staple.zig");
const tls = @import("tls.zig");

/// A copy of a configuration that owns all it points to.
pub const Retained = struct {
    arena: std.heap.ArenaAllocator,
    config: tls.ServerConfig,
    /// `config.ticket_keys` points here.
    ticket_keys: *[tls.ticket_keys_bytes]u8,

    /// Copies `config`. `ticket_keys`: the keys if `config` has none.
    pub fn init(
        gpa: std.mem.Allocator,
        config: tls.ServerConfig,
        ticket_keys: *const [tls.ticket_keys_bytes]u8,
    ) error{OutOfMemory}!Retained {
        var arena: std.heap.ArenaAllocator = .init(gpa);
        errdefer arena.deinit();
        const allocator = arena.allocator();
        var copy = config;
        const certificates = try allocator.alloc(tls.CertificateFiles, config.certificates.len);
        for (config.certificates, certificates) |from, *to| to.* = .{
            .cert_file = try allocator.dupeSentinel(u8, from.cert_file, 0),
            .key_file = try allocator.dupeSentinel(u8, from.key_file, 0),
            .chain_file = try dupe(allocator, from.chain_file),
            .key_password = if (from.key_password) |text| try allocator.dupe(u8, text) else null,
        };
        copy.certificates = certificates;
        copy.cert_dir = try dupe(allocator, config.cert_dir);
        copy.validation_dir = try dupe(allocator, config.validation_dir);
        copy.ca_file = try dupe(allocator, config.ca_file);
        copy.cipher_list = try allocator.dupeSentinel(u8, config.cipher_list, 0);
        copy.cipher_suites = try allocator.dupeSentinel(u8, config.cipher_suites, 0);
        copy.groups = try dupe(allocator, config.groups);
        const keys = try allocator.create([tls.ticket_keys_bytes]u8);
        keys.* = (config.ticket_keys orelse ticket_keys).*;
        copy.ticket_keys = keys;
        return .{ .arena = arena, .config = copy, .ticket_keys = keys };
    }

    fn dupe(allocator: std.mem.Allocator, text: ?[:0]const u8) error{OutOfMemory}!?[:0]const u8 {
        return try allocator.dupeSentinel(u8, text orelse return null, 0);
    }

    /// Frees the copy; secrets are wiped.
    pub fn deinit(retained: *Retained) void {
        std.crypto.secureZero(u8, retained.ticket_keys);
        for (retained.config.certificates) |files| {
            if (files.key_password) |text| std.crypto.secureZero(u8, @constCast(text));
        }
        retained.arena.deinit();
        retained.* = undefined;
    }

    /// A digest of the files' status: changes when one is replaced, written, removed or made readable.
    pub fn look(retained: *const Retained) Look {
        var state: Look = .{ .hash = std.hash.Wyhash.init(0) };
        var arena: std.heap.ArenaAllocator = .init(retained.arena.child_allocator);
        defer arena.deinit();
        for (retained.config.certificates) |files| state.addFiles(arena.allocator(), files);
        if (retained.config.cert_dir) |path| state.addFolder(arena.allocator(), path);
        if (retained.config.ca_file) |path| state.add(path);
        return state;
    }
};

/// A digest of the status of a client's files.
pub fn lookOf(config: *const tls.ClientConfig) u64 {
    var state: Look = .{ .hash = std.hash.Wyhash.init(0) };
    switch (config.authorities) {
        .unverified => {},
        .file => |path| state.add(path),
        .system => {
            const file = c.X509_get_default_cert_file_env();
            const folder = c.X509_get_default_cert_dir_env();
            state.add(std.mem.span(std.c.getenv(file) orelse c.X509_get_default_cert_file()));
            state.addList(std.c.getenv(folder) orelse c.X509_get_default_cert_dir());
        },
    }
    if (config.certificate) |files| {
        state.add(files.cert_file);
        state.add(files.key_file);
        if (files.chain_file) |path| state.add(path);
    }
    return state.number();
}

/// A digest of the status of some files.
pub const Look = struct {
    hash: std.hash.Wyhash,
    /// When the newest of the files changed, in seconds since 1970.
    newest_s: i64 = 0,

    /// A hash of the status of all files: another number means that a file changed.
    pub fn number(look: Look) u64 {
        var hash = look.hash;
        return hash.final();
    }

    /// Without memory the OCSP response beside the certificate is left out; the next look differs then.
    fn addFiles(look: *Look, arena: std.mem.Allocator, files: tls.CertificateFiles) void {
        look.add(files.cert_file);
        look.add(files.key_file);
        if (files.chain_file) |path| look.add(path);
        look.add(staple.pathFor(arena, files.cert_file) catch return);
    }

    /// A certificate that comes or goes changes the sum as one that is replaced does.
    fn addFolder(look: *Look, arena: std.mem.Allocator, path: [:0]const u8) void {
        var diagnostic: tls.Diagnostic = .{};
        const found = folders.list(arena, path, &diagnostic) catch return;
        for (found) |one| {
            look.hash.update(one.files.cert_file);
            look.addFiles(arena, one.files);
        }
    }

    /// OpenSSL takes several folders with colons between them.
    fn addList(look: *Look, list: [*:0]const u8) void {
        var paths = std.mem.tokenizeScalar(u8, std.mem.span(list), ':');
        while (paths.next()) |path| {
            var buffer: [std.fs.max_path_bytes]u8 = undefined;
            look.hash.update(path);
            // A longer path cannot be opened.
            look.add(std.fmt.bufPrintSentinel(&buffer, "{s}", .{path}, 0) catch continue);
        }
    }

    fn add(look: *Look, path: [:0]const u8) void {
        const status = statusOf(path);
        const times = [_]i64{ status.modified_s, status.modified_ns, status.changed_s, status.changed_ns };
        inline for (.{ status.errno, status.inode, status.size, times }) |part| {
            look.hash.update(std.mem.asBytes(&part));
        }
        look.newest_s = @max(look.newest_s, status.changed_s);
    }
};

/// The facts by which a changed file is recognised. The change time is among them: a renamed file keeps its
/// modification time, and permissions count.
pub const Status = struct {
    /// The path is a directory, which can be opened like a file, and holds nothing.
    directory: bool = false,
    errno: u32 = 0,
    inode: u64 = 0,
    size: u64 = 0,
    modified_s: i64 = 0,
    modified_ns: i64 = 0,
    changed_s: i64 = 0,
    changed_ns: i64 = 0,

    fn of(directory: bool, inode: u64, size: u64, modified: anytype, changed: @TypeOf(modified)) Status {
        return .{
            .directory = directory,
            .inode = inode,
            .size = size,
            .modified_s = modified.sec,
            .modified_ns = modified.nsec,
            .changed_s = changed.sec,
            .changed_ns = changed.nsec,
        };
    }
};

/// The present status of the file at `path`.
pub fn statusOf(path: [:0]const u8) Status {
    if (builtin.os.tag == .linux) {
        const linux = std.os.linux;
        var info: linux.Statx = undefined;
        const wanted: linux.STATX = .{
            .MTIME = true,
            .CTIME = true,
            .TYPE = true,
            .INO = true,
            .SIZE = true,
        };
        const errno = linux.errno(linux.statx(linux.AT.FDCWD, path, 0, wanted, &info));
        if (errno != .SUCCESS) return .{ .errno = @backingInt(errno) };
        return .of(linux.S.ISDIR(info.mode), info.ino, info.size, info.mtime, info.ctime);
    }
    var info: std.c.Stat = undefined;
    const errno = std.c.errno(std.c.fstatat(std.c.AT.FDCWD, path, &info, 0));
    if (errno != .SUCCESS) return .{ .errno = @backingInt(errno) };
    return .of(std.c.S.ISDIR(info.mode), info.ino, @intCast(info.size), info.mtime(), info.ctime());
}

test "a look changes with a file, and comes back with nothing" {
    const testing = std.testing;
    var tmp = testing.tmpDir(.{});
    defer tmp.cleanup();
    var buffer: [128]u8 = undefined;
    const path = try std.fmt.bufPrintSentinel(&buffer, ".zig-cache/tmp/{s}/a.pem", .{&tmp.sub_path}, 0);
    const keys: [tls.ticket_keys_bytes]u8 = @splat(1);
    const config: tls.ServerConfig = .{ .certificates = &.{.{ .cert_file = path, .key_file = path }} };
    var retained: Retained = try .init(testing.allocator, config, &keys);
    defer retained.deinit();
    const absent = retained.look().number();
    try testing.expectEqual(absent, retained.look().number());
    try tmp.dir.writeFile(testing.io, .{ .sub_path = "a.pem", .data = "one" });
    const present = retained.look().number();
    try testing.expect(present != absent);
    try testing.expectEqual(present, retained.look().number());
    try tmp.dir.writeFile(testing.io, .{ .sub_path = "a.pem", .data = "three" });
    try testing.expect(retained.look().number() != present);
}
