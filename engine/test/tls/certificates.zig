//! The certificates of one run of a test binary: made by make-certificates.sh when first asked for,
//! removed by `remove`.
const std = @import("std");
const testing = std.testing;
const tls = @import("tls");

/// The directory with the certificates of this run.
var directory: ?testing.TmpDir = null;

/// Texts that live until the run ends, so that configurations can borrow them.
var texts: std.heap.ArenaAllocator = .init(std.heap.page_allocator);

/// The path of one of its files.
pub fn path(name: []const u8) [:0]const u8 {
    if (directory == null) {
        makeCertificates() catch |err| std.debug.panic("no test certificates: {t}", .{err});
    }
    const arguments = .{ &directory.?.sub_path, name };
    return std.fmt.allocPrintSentinel(texts.allocator(), ".zig-cache/tmp/{s}/{s}", arguments, 0) catch
        @panic("out of memory");
}

fn makeCertificates() !void {
    const made = testing.tmpDir(.{});
    var buffer: [128]u8 = undefined;
    const target = try std.fmt.bufPrint(&buffer, ".zig-cache/tmp/{s}", .{&made.sub_path});
    const result = try std.process.run(testing.allocator, testing.io, .{
        .argv = &.{ "sh", "-c", @embedFile("make-certificates.sh"), "make-certificates.sh", target },
    });
    defer testing.allocator.free(result.stdout);
    defer testing.allocator.free(result.stderr);
    if (result.term != .exited or result.term.exited != 0) {
        std.debug.print("{s}", .{result.stderr});
        return error.OpensslCommandFailed;
    }
    directory = made;
}

/// The certificate and key of that name.
pub fn files(comptime name: []const u8) tls.CertificateFiles {
    return .{ .cert_file = path(name ++ ".pem"), .key_file = path(name ++ ".key") };
}

/// A list of certificates that lives until the run ends.
pub fn list(certificates: []const tls.CertificateFiles) []const tls.CertificateFiles {
    return texts.allocator().dupe(tls.CertificateFiles, certificates) catch @panic("out of memory");
}

/// Removes the certificate files; later calls make new ones.
pub fn remove() void {
    if (directory) |*made| made.cleanup();
    directory = null;
}
