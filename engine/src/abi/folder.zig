//! A folder whose files the engine answers with.
const std = @import("std");
const assert = std.debug.assert;
const peregrine = @import("peregrine");
const DirServer = peregrine.util.DirServer;

/// Held by the list of asides and by threads that look into it, which may be stuck there for ever.
pub const Folder = struct {
    references: std.atomic.Value(u32) = .init(1),
    texts: std.heap.ArenaAllocator,
    route: peregrine.Route,
    files: *DirServer,
    is_local: bool,

    /// Opens a folder. All texts are copied.
    pub fn create(
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

    /// Adds a holder.
    pub fn retain(folder: *Folder) void {
        const before = folder.references.fetchAdd(1, .monotonic);
        assert(before > 0);
    }

    /// Removes a holder; the last one frees the folder. Any thread may call this.
    pub fn release(folder: *Folder) void {
        const before = folder.references.fetchSub(1, .acq_rel);
        assert(before > 0);
        if (before > 1) return;
        const gpa = folder.texts.child_allocator;
        folder.files.deinit();
        folder.texts.deinit();
        gpa.destroy(folder);
    }
};
