//! The answers that the engine gives by itself, beside C: files of folders, and the way to https. C hears
//! of the other requests. Threads of the worker look into a folder whose file system may wait for another
//! machine or a process (NFS, FUSE; slow_folder.zig), so that only requests for its files wait. Does not
//! know: how a file becomes a response (native/static).
const std = @import("std");
const assert = std.debug.assert;
const peregrine = @import("peregrine");
const DirServer = peregrine.util.DirServer;
const Exchange = peregrine.Exchange;
const Head = peregrine.Head;
const Folder = @import("folder.zig").Folder;
const Redirect = @import("redirect.zig").Redirect;
const Visit = @import("slow_folder.zig").Visit;

/// Folders and redirects, asked in the order in which they were added.
pub const Asides = struct {
    list: std.ArrayList(Aside) = .empty,
    gpa: std.mem.Allocator,

    const Aside = union(enum) { folder: *Folder, redirect: Redirect };

    pub const count_max = peregrine.api_limits.folders_max;

    /// Why a folder is not added.
    pub const Error = DirServer.InitError || error{ TooMany, BadPath };

    pub fn init(gpa: std.mem.Allocator) Asides {
        return .{ .gpa = gpa };
    }

    pub fn deinit(asides: *Asides) void {
        for (asides.list.items) |aside| switch (aside) {
            .folder => |folder| folder.release(),
            .redirect => {},
        };
        asides.list.deinit(asides.gpa);
    }

    /// Adds a folder. All texts are copied.
    pub fn addFolder(
        asides: *Asides,
        path: []const u8,
        host: []const u8,
        folder: []const u8,
        cache_control: ?[]const u8,
    ) Error!void {
        if (path.len == 0 or path[0] != '/') return error.BadPath;
        try asides.makeRoom();
        asides.list.appendAssumeCapacity(.{
            .folder = try .create(asides.gpa, path, host, folder, cache_control),
        });
    }

    /// Adds a redirect to https, for requests in the clear that no folder before it has answered.
    pub fn addRedirect(asides: *Asides, redirect: Redirect) error{ OutOfMemory, TooMany }!void {
        try asides.makeRoom();
        asides.list.appendAssumeCapacity(.{ .redirect = redirect });
    }

    fn makeRoom(asides: *Asides) error{ OutOfMemory, TooMany }!void {
        assert(asides.list.items.len <= count_max);
        if (asides.list.items.len == count_max) return error.TooMany;
        try asides.list.ensureUnusedCapacity(asides.gpa, 1);
    }

    /// Answers a request with the file of the first folder that has it, or with the way to https; false if no
    /// aside has an answer. Also true while a thread looks for the file: `host` hears of the request
    /// afterwards if no folder has it.
    pub inline fn answer(
        asides: *Asides,
        host: anytype,
        worker: anytype,
        exchange: *Exchange,
        head: *const Head,
    ) bool {
        if (asides.list.items.len == 0) return false;
        return asides.answerFrom(0, host, worker, exchange, head);
    }

    /// Like `answer`, with the asides from number `first` on.
    pub noinline fn answerFrom(
        asides: *Asides,
        first: usize,
        host: anytype,
        worker: anytype,
        exchange: *Exchange,
        head: *const Head,
    ) bool {
        assert(first <= asides.list.items.len);
        for (asides.list.items[first..], first..) |aside, number| switch (aside) {
            .redirect => |redirect| {
                if (!Redirect.concerns(worker, exchange, head)) continue;
                if (peregrine.aside.answer(worker, exchange, head, redirect)) return true;
            },
            .folder => |folder| {
                if (!folder.route.matches(head, exchange.websocket != null)) continue;
                if (!folder.is_local and Visit(@TypeOf(host), @TypeOf(worker)).begin(.{
                    .folder = folder,
                    .next = number + 1,
                    .host = host,
                    .worker = worker,
                }, exchange, head)) return true;
                const answerer: Answerer = .{ .files = folder.files };
                if (peregrine.aside.answer(worker, exchange, head, answerer)) return true;
            },
        };
        return false;
    }

    const Answerer = struct {
        files: *DirServer,

        /// Called by `peregrine.aside.answer`.
        pub fn answer(
            answerer: Answerer,
            request: *const peregrine.Request,
            response: *peregrine.Response,
        ) !bool {
            return answerer.files.serveIfThere(request, response);
        }
    };
};

test "a path that is no folder is refused, with the reason" {
    const testing = std.testing;
    var asides: Asides = .init(testing.allocator);
    defer asides.deinit();
    try testing.expectError(error.BadPath, asides.addFolder("static", "", "/tmp", null));
    try testing.expectError(error.PathNotAbsolute, asides.addFolder("/static", "", "tmp", null));
    try testing.expectError(error.NotFound, asides.addFolder("/static", "", "/nonexistent-folder", null));
    try testing.expectEqual(0, asides.list.items.len);
    try asides.addFolder("/static/", "", "/tmp", "no-cache");
    try testing.expectEqualStrings("/static", asides.list.items[0].folder.route.path);
}
