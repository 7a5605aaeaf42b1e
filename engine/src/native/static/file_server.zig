//! Answers requests with one file, which is looked at anew each time: a changed file is served at once, and
//! nothing is held in memory. Does not know: which requests it is for.
const std = @import("std");
const native = @import("../native.zig");
const files = @import("files.zig");
const representation = @import("representation.zig");
const Mime = @import("mime.zig").Mime;

/// All fields have defaults.
pub const Config = struct {
    /// False: `init` fails if the file cannot be opened. True: a missing file is a 404 when it is asked for.
    lazy_load: bool = true,
    /// Cache-Control of every answer; null: none. Borrowed for as long as the server lives.
    cache_control: ?[]const u8 = null,
};

/// Answers requests with one file. Its functions may be called by several threads at once.
pub const FileServer = struct {
    allocator: std.mem.Allocator,
    path: [:0]const u8,
    config: Config,

    /// Why the file cannot be served.
    pub const InitError = error{ OutOfMemory, PathNotAbsolute } || files.OpenError;

    /// `absolute_path` is copied.
    pub fn init(
        allocator: std.mem.Allocator,
        absolute_path: []const u8,
        config: Config,
    ) InitError!*FileServer {
        if (!std.fs.path.isAbsolute(absolute_path)) return error.PathNotAbsolute;
        const self = try allocator.create(FileServer);
        errdefer allocator.destroy(self);
        const path = try allocator.dupeSentinel(u8, absolute_path, 0);
        errdefer allocator.free(path);
        self.* = .{ .allocator = allocator, .path = path, .config = config };
        if (!config.lazy_load) (try files.open(path)).close();
        return self;
    }

    /// Frees the FileServer. Answers that are still being sent have descriptors of their own.
    pub fn deinit(self: *FileServer) void {
        self.allocator.free(self.path);
        self.allocator.destroy(self);
    }

    /// Answers with the whole file, whatever was asked. `serveRequest` is the better choice where the
    /// request is at hand.
    pub fn serve(self: *FileServer, response: *native.Response) representation.Error!void {
        try self.respond(null, response);
    }

    /// Answers GET and HEAD with the file, with conditions and ranges; anything else with 405.
    pub fn serveRequest(
        self: *FileServer,
        request: *const native.Request,
        response: *native.Response,
    ) representation.Error!void {
        if (request.method != .GET and request.method != .HEAD) {
            try response.addNewHeader("Allow", "GET, HEAD");
            return representation.say(response, .method_not_allowed);
        }
        try self.respond(request, response);
    }

    fn respond(
        self: *FileServer,
        request: ?*const native.Request,
        response: *native.Response,
    ) representation.Error!void {
        const file = files.open(self.path) catch |err| return representation.refuse(response, err);
        if (file.status.kind != .regular) {
            file.close();
            return representation.say(response, .not_found);
        }
        try representation.answer(request, response, file.status.identity, .{ .file = file.fd }, .{
            .mime = Mime.fromPath(self.path),
            .cache_control = self.config.cache_control,
        });
    }
};
