//! The TLS context of a hub's connections to Redis, kept while its files look the same, because nodes wait
//! while the hub reads the system's authorities.
//! Does not know: connections.
const std = @import("std");
const peregrine = @import("peregrine");
const hub = @import("hub");
const platform = @import("platform");
const tls = peregrine.tls;
const Files = hub.redis.Url.Tls;
const gpa = platform.gpa;

pub const Trust = struct {
    kept: ?Kept = null,

    const Kept = struct {
        context: *tls.Context,
        /// The result of `tls.lookOf` before the files were read.
        look: u64,
    };

    pub const Error = error{ OutOfMemory, NoFiles };

    /// The context, which stays good until the next call. Sessions may outlive it.
    pub fn of(trust: *Trust, files: Files) Error!*tls.Context {
        // The look comes before the reading: a file that changes meanwhile is seen with the next connection.
        const look = tls.lookOf(&configOf(files));
        if (trust.kept) |kept| if (kept.look == look) return kept.context;
        var diagnostic: tls.Diagnostic = .{};
        const context = try contextOf(files, &diagnostic);
        trust.forget();
        trust.kept = .{ .context = context, .look = look };
        return context;
    }

    /// Frees the context, so that the files are read again for the next connection.
    pub fn forget(trust: *Trust) void {
        if (trust.kept) |kept| kept.context.deinit();
        trust.kept = null;
    }
};

/// A client that trusts the authorities of the files, or of the system, and shows its certificate.
fn configOf(files: Files) tls.ClientConfig {
    return .{
        .authorities = if (files.ca) |path| .{ .file = path } else .system,
        .certificate = if (files.cert) |path|
            .{ .cert_file = path, .key_file = files.key orelse path }
        else
            null,
    };
}

fn contextOf(files: Files, diagnostic: *tls.Diagnostic) Trust.Error!*tls.Context {
    return tls.Context.initClient(gpa, configOf(files), diagnostic) catch |err| switch (err) {
        error.OutOfMemory => error.OutOfMemory,
        else => error.NoFiles,
    };
}

/// Reads the certificates and the key that Redis's address names, and returns in words why they cannot be
/// used; null: they can be, or the address names no files.
pub fn problem(files: Files, diagnostic: *tls.Diagnostic) ?[]const u8 {
    if (!tls.enabled) return "this engine was built without OpenSSL";
    if (!files.areNamed()) return null;
    const context = contextOf(files, diagnostic) catch |err| return switch (err) {
        error.OutOfMemory => "no memory for its files",
        error.NoFiles => diagnostic.text(),
    };
    context.deinit();
    return null;
}

extern fn setenv(name: [*:0]const u8, value: [*:0]const u8, overwrite: c_int) c_int;
extern fn unsetenv(name: [*:0]const u8) c_int;

test "the system's authorities are read when their file or a folder has changed" {
    if (!tls.enabled) return error.SkipZigTest;
    const testing = std.testing;
    var tmp = testing.tmpDir(.{});
    defer tmp.cleanup();
    try tmp.dir.writeFile(testing.io, .{ .sub_path = "ca.pem", .data = "none" });
    var buffer: [128]u8 = undefined;
    const path = try std.fmt.bufPrintSentinel(&buffer, ".zig-cache/tmp/{s}/ca.pem", .{&tmp.sub_path}, 0);
    try testing.expectEqual(0, setenv("SSL_CERT_FILE", path, 1));
    defer _ = unsetenv("SSL_CERT_FILE");
    var list_buffer: [128]u8 = undefined;
    const folders = "/no/such:.zig-cache/tmp/{s}/more";
    const list = try std.fmt.bufPrintSentinel(&list_buffer, folders, .{&tmp.sub_path}, 0);
    try testing.expectEqual(0, setenv("SSL_CERT_DIR", list, 1));
    defer _ = unsetenv("SSL_CERT_DIR");
    var trust: Trust = .{};
    defer trust.forget();
    const first = try trust.of(.{});
    try testing.expectEqual(first, try trust.of(.{}));
    try tmp.dir.writeFile(testing.io, .{ .sub_path = "ca.pem", .data = "others" });
    const second = try trust.of(.{});
    try testing.expect(second != first);
    try testing.expectEqual(second, try trust.of(.{}));
    try tmp.dir.createDir(testing.io, "more", .default_dir);
    const third = try trust.of(.{});
    try testing.expect(third != second);
    try testing.expectEqual(third, try trust.of(.{}));
    try testing.expectError(error.NoFiles, trust.of(.{ .ca = "/no/such" }));
}
