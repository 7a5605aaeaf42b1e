//! The temporary files in which a worker keeps long request bodies, and the thread that writes them. Does not
//! know: requests (worker/gathering.zig).
const std = @import("std");
const assert = std.debug.assert;
const io_layer = @import("io");

/// The files of a worker's request bodies.
pub const Bodies = struct {
    /// The writer of the files; null: no body was long enough for a file yet.
    spool: ?io_layer.Spool = null,
    /// Bytes that the files hold, with those that are being written.
    held_bytes: u64 = 0,
    /// The folder of the files; null: /tmp.
    folder: ?[:0]const u8 = null,

    const default_folder = "/tmp";

    /// Creates files in this folder from now on. May not be called after the first file was created.
    pub fn setFolder(bodies: *Bodies, gpa: std.mem.Allocator, path: []const u8) error{OutOfMemory}!void {
        assert(bodies.spool == null);
        const own = try gpa.dupeSentinel(u8, path, 0);
        if (bodies.folder) |before| gpa.free(before);
        bodies.folder = own;
    }

    /// The folder in which files are created.
    pub fn folderPath(bodies: *const Bodies) [:0]const u8 {
        return bodies.folder orelse default_folder;
    }

    /// Whether the files may hold `bytes` more. `most` is the limit in bytes; 0: no limit.
    pub fn hasRoom(bodies: *const Bodies, bytes: u64, most: u64) bool {
        return most == 0 or bodies.held_bytes + bytes <= most;
    }

    /// The writer, created at the first call. It tells `waker` of finished jobs. Without `has_thread` jobs
    /// are done at once.
    pub fn writer(bodies: *Bodies, waker: io_layer.Spool.Waker, has_thread: bool) *io_layer.Spool {
        if (bodies.spool == null) bodies.spool = .{
            .folder = bodies.folderPath(),
            .waker = waker,
            .has_thread = has_thread,
        };
        return &bodies.spool.?;
    }
};
