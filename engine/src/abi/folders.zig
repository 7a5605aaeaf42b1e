//! Folders whose files the engine answers with by itself, beside C. Requests for other files are C's. Threads
//! of the worker look into a folder whose file system may wait for another machine or a process (NFS, FUSE;
//! slow_folder.zig), so that only requests for its files wait.
//! Does not know: how a file becomes a response (native/static).
const std = @import("std");
const peregrine = @import("peregrine");
const DirServer = peregrine.util.DirServer;
const Exchange = peregrine.Exchange;
const Head = peregrine.Head;
const Folder = @import("folder.zig").Folder;
const Visit = @import("slow_folder.zig").Visit;

/// Folders in the order in which they were added.
pub const Folders = struct {
    list: std.ArrayList(*Folder) = .empty,
    gpa: std.mem.Allocator,

    pub const count_max = peregrine.channel_limits.folders_max;

    /// Why a folder is not added.
    pub const Error = DirServer.InitError || error{ TooMany, BadPath };

    pub fn init(gpa: std.mem.Allocator) Folders {
        return .{ .gpa = gpa };
    }

    pub fn deinit(folders: *Folders) void {
        for (folders.list.items) |folder| folder.release();
        folders.list.deinit(folders.gpa);
    }

    /// Adds a folder. All texts are copied.
    pub fn add(
        folders: *Folders,
        path: []const u8,
        host: []const u8,
        folder: []const u8,
        cache_control: ?[]const u8,
    ) Error!void {
        if (path.len == 0 or path[0] != '/') return error.BadPath;
        if (folders.list.items.len == count_max) return error.TooMany;
        try folders.list.ensureUnusedCapacity(folders.gpa, 1);
        folders.list.appendAssumeCapacity(try .create(folders.gpa, path, host, folder, cache_control));
    }

    /// Answers a request with the file of the first folder that has it; false if none has. True as well while
    /// a thread looks: `host` hears of the request afterwards, if no folder has the file.
    pub inline fn answer(
        folders: *Folders,
        host: anytype,
        worker: anytype,
        exchange: *Exchange,
        head: *const Head,
    ) bool {
        if (folders.list.items.len == 0) return false;
        return folders.answerFrom(0, host, worker, exchange, head);
    }

    /// Like `answer`, with the folders from number `first` on.
    pub noinline fn answerFrom(
        folders: *Folders,
        first: usize,
        host: anytype,
        worker: anytype,
        exchange: *Exchange,
        head: *const Head,
    ) bool {
        for (folders.list.items[first..], first..) |folder, number| {
            if (!folder.route.matches(head, exchange.websocket != null)) continue;
            if (!folder.is_local and Visit(@TypeOf(host), @TypeOf(worker)).begin(.{
                .folder = folder,
                .next = number + 1,
                .host = host,
                .worker = worker,
            }, exchange, head)) return true;
            const answerer: Answerer = .{ .files = folder.files };
            if (peregrine.aside.answer(worker, exchange, head, answerer)) return true;
        }
        return false;
    }

    const Answerer = struct {
        files: *DirServer,

        /// For `aside.answer`.
        pub fn answer(
            answerer: Answerer,
            request: *const peregrine.Request,
            response: *peregrine.Response,
        ) !bool {
            return answerer.files.serveIfThere(request, response);
        }
    };
};

test "what is no folder is refused, and says why" {
    const testing = std.testing;
    var folders: Folders = .init(testing.allocator);
    defer folders.deinit();
    try testing.expectError(error.BadPath, folders.add("static", "", "/tmp", null));
    try testing.expectError(error.PathNotAbsolute, folders.add("/static", "", "tmp", null));
    try testing.expectError(error.NotFound, folders.add("/static", "", "/nonexistent-folder", null));
    try testing.expectEqual(0, folders.list.items.len);
    try folders.add("/static/", "", "/tmp", "no-cache");
    try testing.expectEqualStrings("/static", folders.list.items[0].route.path);
}
