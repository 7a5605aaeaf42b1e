//! Folders whose files the engine answers with by itself, beside C. What is not there is C's. A folder whose
//! file system may wait for others than this machine (NFS, FUSE) is looked into by the worker's threads
//! (slow_folder.zig), so that only who asks for its files waits.
//! Does not know: how a file becomes a response (native/static).
const std = @import("std");
const peregrine = @import("peregrine");
const errors = @import("errors.zig");
const Handle = @import("abi.zig").Handle;
const sized = @import("sized.zig");
const types = @import("types.zig");
const Code = types.Code;
const DirServer = peregrine.util.DirServer;
const Exchange = peregrine.Exchange;
const Head = peregrine.Head;
const Visit = @import("slow_folder.zig").Visit;

/// Folders in the order in which they were added.
pub const Folders = struct {
    list: std.ArrayList(*Folder) = .empty,
    gpa: std.mem.Allocator,

    /// The most of them: each keeps a descriptor.
    pub const count_max = 255;

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
    /// a thread looks: `host` hears of the request afterwards, if it is nobody else's.
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

    /// The same with folders from a certain one on.
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

/// One of them. Threads that are stuck in it may outlive the others that hold it.
pub const Folder = struct {
    references: std.atomic.Value(u32) = .init(1),
    texts: std.heap.ArenaAllocator,
    route: peregrine.Route,
    files: *DirServer,
    is_local: bool,

    fn create(
        gpa: std.mem.Allocator,
        path: []const u8,
        host: []const u8,
        place: []const u8,
        cache_control: ?[]const u8,
    ) DirServer.InitError!*Folder {
        const folder = try gpa.create(Folder);
        errdefer gpa.destroy(folder);
        var texts: std.heap.ArenaAllocator = .init(gpa);
        errdefer texts.deinit();
        const own_path = try texts.allocator().dupe(u8, std.mem.trimEnd(u8, path, "/"));
        const route: peregrine.Route = .{
            .path = own_path,
            .host = try texts.allocator().dupe(u8, host),
            .upgrade = .none,
            .to = 0,
        };
        const files: *DirServer = try .init(gpa, place, .{
            .request_path = own_path,
            .cache_control = if (cache_control) |text| try texts.allocator().dupe(u8, text) else null,
        });
        folder.* = .{ .texts = texts, .route = route, .files = files, .is_local = files.isLocal() };
        return folder;
    }

    /// One holder more.
    pub fn retain(folder: *Folder) void {
        _ = folder.references.fetchAdd(1, .monotonic);
    }

    /// One holder less. By any thread.
    pub fn release(folder: *Folder) void {
        if (folder.references.fetchSub(1, .acq_rel) > 1) return;
        const gpa = folder.texts.child_allocator;
        folder.files.deinit();
        folder.texts.deinit();
        gpa.destroy(folder);
    }
};

pub export fn peregrine_add_folder(handle: *Handle, given: *const sized.Header) callconv(.c) c_int {
    if (handle.isForeign()) return Code.gone;
    // The engine's owner has them.
    if (handle.interpreter != null) return Code.ok;
    if (handle.polled) return Code.out_of_order;
    const wanted = sized.read(types.Folder, given);
    if (wanted.flags != 0) return Code.range;
    const path = if (wanted.path) |text| std.mem.span(text) else "";
    const host = if (wanted.host) |text| std.mem.span(text) else "";
    const folder = if (wanted.folder) |text| std.mem.span(text) else "";
    const cache_control = if (wanted.cache_control) |text| std.mem.span(text) else null;
    handle.host.folders.add(path, host, folder, cache_control) catch |err| switch (err) {
        error.OutOfMemory => return Code.memory,
        error.TooMany => return Code.range,
        error.BadPath, error.PathNotAbsolute, error.NameTooLong => return Code.address,
        error.NotFound => {
            errors.setErrno(.NOENT);
            return Code.system;
        },
        error.Exhausted, error.Busy => {
            errors.setErrno(.MFILE);
            return Code.system;
        },
    };
    return Code.ok;
}

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
