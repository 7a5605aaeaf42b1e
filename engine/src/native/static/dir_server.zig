//! Answers requests with the files of a folder, as they are now: each round of a worker's loop looks at the
//! files that it serves, and only a small one that has not changed since it was read is answered from memory
//! (cache.zig). Nothing outside the folder is ever opened: names are cleaned here (path.zig), and the kernel
//! refuses links that lead out.
//! Does not know: what is in the files.
const std = @import("std");
const assert = std.debug.assert;
const native = @import("../native.zig");
const files = @import("files.zig");
const path_file = @import("path.zig");
const representation = @import("representation.zig");
const Cache = @import("cache.zig").Cache;
const Entry = @import("cache.zig").Entry;
const entry_bytes_max = @import("cache.zig").entry_bytes_max;
const Accepted = @import("encoding.zig").Accepted;
const Coding = @import("encoding.zig").Coding;
const Mime = @import("mime.zig").Mime;

/// All fields have defaults.
pub const Config = struct {
    /// The part of a request's path that stands for the folder. With or without a slash at its end. Borrowed
    /// for as long as the server lives.
    request_path: []const u8 = "/",
    /// The file that answers for a folder; empty: folders are not found. Borrowed as `request_path` is.
    index: []const u8 = "index.html",
    /// Serve names that begin with a dot, and what is below them.
    dotfiles: bool = false,
    /// Serve "name.br", "name.zst" or "name.gz" in place of "name" to clients that accept it,
    /// if it is not older.
    precompressed: bool = true,
    /// Cache-Control of every answer; null: none. Borrowed as `request_path` is.
    cache_control: ?[]const u8 = null,
    /// Content-Type of files with an unknown extension; null: application/octet-stream. Borrowed, too.
    default_type: ?[]const u8 = null,
};

/// A folder. Its functions may be called by several threads at once.
pub const DirServer = struct {
    allocator: std.mem.Allocator,
    root: files.Fd,
    config: Config,
    cache: Cache,

    /// Why the folder cannot be served.
    pub const InitError = error{ OutOfMemory, PathNotAbsolute, NameTooLong } || files.OpenError;

    /// `allocator` has to be safe for threads if several serve. `absolute_path` names the folder; links in it
    /// are followed. The folder may be moved afterwards.
    pub fn init(
        allocator: std.mem.Allocator,
        absolute_path: []const u8,
        config: Config,
    ) InitError!*DirServer {
        if (!std.fs.path.isAbsolute(absolute_path)) return error.PathNotAbsolute;
        const path = std.posix.toPosixPath(absolute_path) catch return error.NameTooLong;
        if (config.index.len > index_bytes_max) return error.NameTooLong;
        const default_type = config.default_type orelse "";
        if (default_type.len > representation.type_bytes_max) return error.NameTooLong;
        const self = try allocator.create(DirServer);
        errdefer allocator.destroy(self);
        self.* = .{
            .allocator = allocator,
            .root = try files.openRoot(&path),
            .config = config,
            .cache = .{ .gpa = allocator },
        };
        return self;
    }

    const index_bytes_max = 255;

    /// Frees the DirServer. Answers that are still being sent hold its small files, so it is freed in the
    /// `deinit` of a handler: the answers have ended by then.
    pub fn deinit(self: *DirServer) void {
        self.cache.deinit();
        files.closeFd(self.root);
        self.allocator.destroy(self);
    }

    /// Answers GET and HEAD with a file, with 404 if there is none, or with 503 if it cannot be opened for
    /// now (a lease, too few descriptors); other methods with 405. A folder without the slash at its end is
    /// answered with 301. After an error a handler may answer with a status of its own.
    pub fn serve(
        self: *DirServer,
        request: *const native.Request,
        response: *native.Response,
    ) representation.Error!void {
        if (!isRead(request)) return refuseMethod(response);
        if (!try self.serveIfThere(request, response)) try representation.say(response, .not_found);
    }

    /// Like `serve`, for files that are there: false in place of a 404, with the response untouched. 405 is
    /// for files that are there.
    pub fn serveIfThere(
        self: *DirServer,
        request: *const native.Request,
        response: *native.Response,
    ) representation.Error!bool {
        return try self.serveKnown(request, response) or try self.serveFound(request, response);
    }

    /// Whether the folder lies on a file system that waits for nothing but this machine. Elsewhere an answer
    /// may take for ever, so a thread that serves other requests leaves it to another thread.
    pub fn isLocal(self: *const DirServer) bool {
        return files.isLocal(self.root);
    }

    fn isRead(request: *const native.Request) bool {
        return request.method == .GET or request.method == .HEAD;
    }

    fn refuseMethod(response: *native.Response) representation.Error!void {
        try response.addNewHeader("Allow", "GET, HEAD");
        try representation.say(response, .method_not_allowed);
    }

    /// Answers from the cache, if the file is known and the request asks for all of it; false if not, with
    /// the response untouched.
    fn serveKnown(
        self: *DirServer,
        request: *const native.Request,
        response: *native.Response,
    ) representation.Error!bool {
        const entry = self.cache.get(request.getPath()) orelse return false;
        errdefer entry.release();
        if (entry.lines.len == 0 or !asksForAll(request, response, entry.varies) or
            !self.isCurrent(entry, request.round_us))
        {
            entry.release();
            return false;
        }
        try response.addWritten(entry.lines, entry.line_count);
        try response.setBodyShared(sharedBody(entry));
        return true;
    }

    /// Whether the answer depends on nothing but the file, and the handler has added no headers.
    fn asksForAll(request: *const native.Request, response: *const native.Response, varies: bool) bool {
        if (request.method != .GET or response.count > 0) return false;
        for (request.head.fields) |field| switch (field.id) {
            .if_match, .if_none_match, .if_modified_since => return false,
            .if_unmodified_since, .if_range, .range => return false,
            .accept_encoding => if (varies) return false,
            else => {},
        };
        return true;
    }

    /// Whether a file is still in the state that was read. One look per round is enough for all requests
    /// that came with it.
    fn isCurrent(self: *const DirServer, entry: *Entry, round_us: u64) bool {
        if (entry.seen_us.load(.acquire) >= round_us) return true;
        const status = files.look(self.root, entry.name()) catch return false;
        if (status.kind != .regular or !std.meta.eql(status.identity, entry.identity)) return false;
        entry.seen_us.store(round_us, .release);
        return true;
    }

    fn sharedBody(entry: *Entry) native.SharedBody {
        const release = struct {
            fn release(holder: *anyopaque) void {
                const held: *Entry = @ptrCast(@alignCast(holder));
                held.release();
            }
        }.release;
        return .{ .bytes = entry.bytes(), .holder = entry, .release = release };
    }

    /// Answers with a file that has to be found first; false if there is none.
    fn serveFound(
        self: *DirServer,
        request: *const native.Request,
        response: *native.Response,
    ) representation.Error!bool {
        var buffer: [path_file.bytes_max]u8 = undefined;
        const found = self.find(request, &buffer) catch |err| return refuse(response, err);
        const file = found.file;
        if (found.lacks_slash or !isRead(request)) {
            // The folder is opened first: a redirect would tell that a link leads to a folder outside the
            // root.
            var name = file.name;
            const opened = files.openBelow(self.root, name.terminated()) catch |err|
                return refuse(response, err);
            opened.close();
            if (isRead(request)) try redirect(request, response) else try refuseMethod(response);
            return true;
        }
        const mime: Mime = .fromPath(file.name.slice());
        const varies = self.config.precompressed and mime.isCompressible();
        const about: representation.About = .{
            .mime = mime,
            .varies = varies,
            .cache_control = self.config.cache_control,
            .type_text = if (Mime.isKnown(file.name.slice())) null else self.config.default_type,
        };
        if (varies) if (try self.serveSibling(request, response, file, about)) return true;
        self.give(request, response, file, request.getPath(), about) catch |err| switch (err) {
            error.NotFound, error.Exhausted, error.Busy => |missing| return refuse(response, missing),
            else => |wrong| return wrong,
        };
        return true;
    }

    fn refuse(response: *native.Response, err: files.OpenError) representation.Error!bool {
        if (err == error.NotFound) return false;
        try representation.refuse(response, err);
        return true;
    }

    /// Adds the slash to a folder's path, because relative links in its index are relative to the folder. The
    /// target is relative, so that it also leads there behind a proxy that has removed a prefix, and never to
    /// another host.
    fn redirect(request: *const native.Request, response: *native.Response) representation.Error!void {
        const path = request.getPath();
        const last = path[if (std.mem.findScalarLast(u8, path, '/')) |slash| slash + 1 else 0..];
        const query = request.getQuery();
        const location = try std.fmt.allocPrint(
            response.arena.allocator(),
            "./{s}/{s}{s}",
            .{ last, if (query.len > 0) "?" else "", query },
        );
        response.status = .moved_permanently;
        try response.addNewHeader("Location", location);
    }

    /// A file's name, and the file that was found under it.
    const File = struct { name: Name, identity: files.Identity };

    /// The file that answers a request.
    const Found = struct {
        file: File,
        /// The file is a folder's index, and the request names the folder without the slash at its end.
        lacks_slash: bool = false,
    };

    /// The regular file that answers a request.
    fn find(
        self: *DirServer,
        request: *const native.Request,
        buffer: *[path_file.bytes_max]u8,
    ) files.OpenError!Found {
        const below = path_file.below(request.getPath(), self.config.request_path) orelse
            return error.NotFound;
        const clean = path_file.clean(below, buffer, self.config.dotfiles) orelse return error.NotFound;
        var name: Name = .{ .buffer = buffer, .len = clean.name.len };
        const status = try files.look(self.root, if (name.len == 0) "." else name.terminated());
        switch (status.kind) {
            .regular => if (!clean.folder) {
                return .{ .file = .{ .name = name, .identity = status.identity } };
            },
            .folder => if (self.config.index.len > 0) {
                if (name.len > 0) name.append("/");
                name.append(self.config.index);
                const index = try files.look(self.root, name.terminated());
                if (index.kind != .regular) return error.NotFound;
                return .{
                    .file = .{ .name = name, .identity = index.identity },
                    .lacks_slash = below.len == 0 or !clean.folder,
                };
            },
            .other => {},
        }
        return error.NotFound;
    }

    /// Answers with the best coding of a file that the client accepts and that is not older than the file;
    /// false if there is none.
    fn serveSibling(
        self: *DirServer,
        request: *const native.Request,
        response: *native.Response,
        found: File,
        about: representation.About,
    ) representation.Error!bool {
        const accepted: Accepted = .init(try request.findList("accept-encoding") orelse return false);
        for (accepted.slice()) |coding| {
            var name = found.name;
            name.append(coding.suffix());
            const status = files.look(self.root, name.terminated()) catch continue;
            if (status.kind != .regular or status.identity.modified_ns < found.identity.modified_ns) continue;
            var coded = about;
            coded.coding = coding;
            // Names do not begin with a slash as paths do, so that no path has this key.
            const key = name.slice();
            self.give(
                request,
                response,
                .{ .name = name, .identity = status.identity },
                key,
                coded,
            ) catch |err| switch (err) {
                // the file itself is at least as good an answer
                error.NotFound, error.Exhausted, error.Busy => continue,
                else => |wrong| return wrong,
            };
            return true;
        }
        return false;
    }

    /// Answers with a file that was found: from memory, where it has the name `key`, or from the disk. An
    /// OpenError: it lies outside the folder, is gone, or cannot be opened for now; the response is
    /// untouched.
    fn give(
        self: *DirServer,
        request: *const native.Request,
        response: *native.Response,
        found: File,
        key: []const u8,
        about: representation.About,
    ) (files.OpenError || representation.Error)!void {
        var name = found.name;
        const whole = about.coding == null and asksForAll(request, response, about.varies);
        if (self.cache.get(key)) |entry| {
            if (std.meta.eql(entry.identity, found.identity) and (entry.lines.len > 0 or !whole)) {
                return representation.answer(
                    request,
                    response,
                    entry.identity,
                    .{ .memory = sharedBody(entry) },
                    about,
                );
            }
            entry.release();
        }
        const file = try files.openBelow(self.root, name.terminated());
        if (file.status.kind != .regular) {
            file.close();
            return error.NotFound;
        }
        const entry = self.read(key, name.slice(), file, request.round_us) orelse
            return representation.answer(
                request,
                response,
                file.status.identity,
                .{ .file = file.fd },
                about,
            );
        defer entry.release();
        file.close();
        entry.retain();
        try representation.answer(request, response, entry.identity, .{ .memory = sharedBody(entry) }, about);
        entry.varies = about.varies;
        if (whole) if (self.allocator.dupe(u8, response.lines.text)) |lines| {
            entry.lines = lines;
            entry.line_count = response.count;
        } else |_| {};
        self.cache.put(entry);
    }

    /// Reads a small file for this request and later ones; null if it is not small, if it changes meanwhile,
    /// or if there is no memory for it.
    fn read(self: *DirServer, key: []const u8, name: []const u8, file: files.File, round_us: u64) ?*Entry {
        const identity = file.status.identity;
        if (identity.size > entry_bytes_max) return null;
        const entry = self.cache.create(key, name, identity, round_us) catch return null;
        if (isWhole(entry, file)) return entry;
        entry.release();
        return null;
    }

    fn isWhole(entry: *Entry, file: files.File) bool {
        const identity = entry.identity;
        const bytes = files.readAll(file.fd, entry.bytes(), 0) orelse return false;
        const after = files.lookAt(file.fd) catch return false;
        return bytes.len == identity.size and std.meta.eql(after.identity, identity) and
            files.isSettled(identity.changed_ns);
    }

    /// A buffer for a file's name, which grows at its end.
    const Name = struct {
        buffer: *[path_file.bytes_max]u8,
        len: usize,

        fn slice(name: *const Name) []const u8 {
            return name.buffer[0..name.len];
        }

        fn append(name: *Name, text: []const u8) void {
            assert(text.len <= name.buffer.len - name.len);
            @memcpy(name.buffer[name.len..][0..text.len], text);
            name.len += text.len;
        }

        /// The name with a NUL behind it, for the kernel; until the name changes.
        fn terminated(name: *Name) [*:0]const u8 {
            assert(name.len < name.buffer.len);
            name.buffer[name.len] = 0;
            return name.buffer[0..name.len :0];
        }
    };
};
