//! DirServer and FileServer through the whole engine, over the simulated network and real files.
const std = @import("std");
const per = @import("peregrine");
const alike = @import("alike.zig");
const testing = std.testing;
const gpa = testing.allocator;

/// The folder that the handlers below serve; set before a server is made.
var root_path: []const u8 = "";
var dir_config: per.util.DirServerConfig = .{};

const Files = struct {
    allocator: std.mem.Allocator,
    dir: *per.util.DirServer,

    pub fn init(allocator: std.mem.Allocator) !*Files {
        const self = try allocator.create(Files);
        errdefer allocator.destroy(self);
        self.* = .{ .allocator = allocator, .dir = try .init(allocator, root_path, dir_config) };
        return self;
    }

    pub fn deinit(self: *Files) void {
        self.dir.deinit();
        self.allocator.destroy(self);
    }

    pub fn handleRequest(self: *Files, request: *per.Request, response: *per.Response) void {
        self.dir.serve(request, response) catch unreachable;
    }
};

/// A folder with files in it, and a server for it.
const Fixture = struct {
    tmp: testing.TmpDir,
    path_buffer: [std.fs.max_path_bytes]u8 = undefined,
    path: []const u8,
    simulation: alike.Simulation(Files),

    fn init(fixture: *Fixture, config: per.util.DirServerConfig) !void {
        fixture.tmp = testing.tmpDir(.{});
        errdefer fixture.tmp.cleanup();
        const len = try fixture.tmp.dir.realPath(testing.io, &fixture.path_buffer);
        fixture.path = fixture.path_buffer[0..len];
        root_path = fixture.path;
        dir_config = config;
        fixture.simulation = try .init(gpa, .{}, .{ .seed = 7 });
    }

    fn deinit(fixture: *Fixture) void {
        fixture.simulation.deinit();
        fixture.tmp.cleanup();
    }

    fn write(fixture: *Fixture, name: []const u8, data: []const u8) !void {
        try fixture.tmp.dir.writeFile(testing.io, .{ .sub_path = name, .data = data });
    }

    /// Writes a file with a time an hour ago: a file that was written just now has a weak tag.
    fn writeLongAgo(fixture: *Fixture, name: []const u8, data: []const u8) !void {
        try fixture.write(name, data);
        const hour_ago: std.Io.Timestamp = .{
            .nanoseconds = std.Io.Timestamp.now(testing.io, .real).nanoseconds - 3600 * std.time.ns_per_s,
        };
        try fixture.tmp.dir.setTimestamps(testing.io, name, .{ .modify_timestamp = .{ .new = hour_ago } });
    }

    fn ask(fixture: *Fixture, comptime request_line: []const u8, comptime headers: []const u8) !Answer {
        return .parse(try fixture.simulation.exchange(request_line ++ " HTTP/1.1\r\nHost: h\r\n" ++ headers ++
            "\r\n"));
    }

    fn askWith(fixture: *Fixture, path: []const u8, name: []const u8, value: []const u8) !Answer {
        var buffer: [500]u8 = undefined;
        const text = try std.fmt.bufPrint(
            &buffer,
            "GET {s} HTTP/1.1\r\nHost: h\r\n{s}: {s}\r\n\r\n",
            .{ path, name, value },
        );
        return .parse(try fixture.simulation.exchange(text));
    }
};

const Answer = struct {
    status: u16,
    head: []const u8,
    body: []const u8,

    fn parse(text: []const u8) !Answer {
        const end = std.mem.find(u8, text, "\r\n\r\n") orelse return error.NoAnswer;
        return .{
            .status = try std.fmt.parseInt(u16, text["HTTP/1.1 ".len..][0..3], 10),
            .head = text[0 .. end + 2],
            .body = text[end + 4 ..],
        };
    }

    fn header(answer: Answer, comptime name: []const u8) ?[]const u8 {
        const start = std.mem.find(u8, answer.head, "\r\n" ++ name ++ ": ") orelse return null;
        const rest = answer.head[start + 2 + name.len + 2 ..];
        return rest[0..std.mem.find(u8, rest, "\r\n").?];
    }
};

fn expectHeader(expected: []const u8, answer: Answer, comptime name: []const u8) !void {
    try testing.expectEqualStrings(expected, answer.header(name) orelse return error.HeaderMissing);
}

test "files, folders, types, and what is not there" {
    var fixture: Fixture = undefined;
    try fixture.init(.{});
    defer fixture.deinit();
    try fixture.write("index.html", "<p>root");
    try fixture.write("style.css", "p{}");
    try fixture.write("data", "?");
    try fixture.write("a b.txt", "spaced");
    try fixture.write(".hidden", "secret");
    try fixture.tmp.dir.createDir(testing.io, "sub", .default_dir);
    try fixture.write("sub/index.html", "<p>sub");
    try fixture.tmp.dir.createDir(testing.io, "empty", .default_dir);

    inline for (.{
        .{ "/", "<p>root", "text/html; charset=utf-8" },
        .{ "/?x=1&y", "<p>root", "text/html; charset=utf-8" },
        .{ "/style.css?v=3", "p{}", "text/css; charset=utf-8" },
        .{ "/data", "?", "application/octet-stream" },
        .{ "/a%20b.txt", "spaced", "text/plain; charset=utf-8" },
        .{ "/sub/", "<p>sub", "text/html; charset=utf-8" },
        .{ "/sub//./index.html", "<p>sub", "text/html; charset=utf-8" },
    }) |case| {
        const answer = try fixture.ask("GET " ++ case[0], "");
        try testing.expectEqual(200, answer.status);
        try testing.expectEqualStrings(case[1], answer.body);
        try expectHeader(case[2], answer, "Content-Type");
    }
    inline for (.{
        "/none", "/empty/", "/style.css/", "/.hidden", "/../secret", "/%2e%2e/secret", "/sub/..", "/a%00",
    }) |path| {
        const answer = try fixture.ask("GET " ++ path, "");
        try testing.expectEqual(404, answer.status);
        try testing.expectEqualStrings("", answer.body);
    }
    inline for (.{ .{ "/sub", "./sub/" }, .{ "/./sub?x=1", "./sub/?x=1" } }) |case| {
        const answer = try fixture.ask("GET " ++ case[0], "");
        try testing.expectEqual(301, answer.status);
        try expectHeader(case[1], answer, "Location");
    }
    try testing.expectEqual(404, (try fixture.ask("GET /empty", "")).status);
    const post = try fixture.ask("POST /", "Content-Length: 0\r\n");
    try testing.expectEqual(405, post.status);
    try expectHeader("GET, HEAD", post, "Allow");
}

test "HEAD says what GET would send, and sends nothing" {
    var fixture: Fixture = undefined;
    try fixture.init(.{});
    defer fixture.deinit();
    const large = try gpa.alloc(u8, 50_000);
    defer gpa.free(large);
    @memset(large, 'x');
    try fixture.write("large.bin", large);
    try fixture.write("small.txt", "small");
    inline for (.{ .{ "/large.bin", "50000" }, .{ "/small.txt", "5" } }) |case| {
        const head = try fixture.ask("HEAD " ++ case[0], "");
        const get = try fixture.ask("GET " ++ case[0], "");
        try testing.expectEqualStrings("", head.body);
        try expectHeader(case[1], head, "Content-Length");
        try expectHeader(get.header("ETag").?, head, "ETag");
        try expectHeader(get.header("Last-Modified").?, head, "Last-Modified");
        try testing.expectEqual(std.fmt.parseInt(usize, case[1], 10), get.body.len);
    }
}

test "a large file goes out whole, by the kernel, and a changed one is served as it is now" {
    var fixture: Fixture = undefined;
    try fixture.init(.{});
    defer fixture.deinit();
    const data = try gpa.alloc(u8, 700_000);
    defer gpa.free(data);
    var random: std.Random.DefaultPrng = .init(3);
    random.random().bytes(data);
    try fixture.write("large.bin", data);
    const first = try fixture.ask("GET /large.bin", "");
    try testing.expectEqualSlices(u8, data, first.body);
    data[5] +%= 1;
    try fixture.write("large.bin", data[0..600_000]);
    const second = try fixture.ask("GET /large.bin", "");
    try testing.expectEqualSlices(u8, data[0..600_000], second.body);
    try testing.expect(!std.mem.eql(u8, first.header("ETag").?, second.header("ETag").?));
}

test "a small file is answered from memory once it has rested, and never when it has changed" {
    var fixture: Fixture = undefined;
    try fixture.init(.{});
    defer fixture.deinit();
    try fixture.write("f.txt", "first");
    try fixture.write("f.txt.gz", "zip");
    try testing.io.sleep(.fromMilliseconds(2100), .awake);
    const dir = fixture.simulation.handler().dir;
    var head_buffer: [500]u8 = undefined;
    var first_head: []const u8 = "";
    for (0..3) |turn| {
        const plain = try fixture.ask("GET /f.txt", "");
        try testing.expectEqualStrings("first", plain.body);
        if (turn == 0) {
            @memcpy(head_buffer[0..plain.head.len], plain.head);
            first_head = head_buffer[0..plain.head.len];
        } else try testing.expectEqualStrings(first_head, plain.head);
        try testing.expectEqual(
            304,
            (try fixture.askWith("/f.txt", "If-None-Match", plain.header("ETag").?)).status,
        );
        const head = try fixture.ask("HEAD /f.txt", "");
        try testing.expectEqualStrings("", head.body);
        try expectHeader("5", head, "Content-Length");
        try testing.expectEqualStrings(
            "first",
            (try fixture.ask("GET /f.txt", "Accept-Encoding: br\r\n")).body,
        );
        try testing.expectEqualStrings(
            "zip",
            (try fixture.ask("GET /f.txt", "Accept-Encoding: gzip\r\n")).body,
        );
        try testing.expectEqualStrings(
            "zip",
            (try fixture.ask("GET /f.txt", "Accept-Encoding: br\r\nAccept-Encoding: gzip\r\n")).body,
        );
        try testing.expectEqualStrings("irs", (try fixture.ask("GET /f.txt", "Range: bytes=1-3\r\n")).body);
        var kept: usize = 0;
        for (dir.cache.slots) |slot| kept += @intFromBool(slot != null);
        try testing.expectEqual(2, kept);
    }
    try fixture.write("f.txt", "other");
    try testing.expectEqualStrings("other", (try fixture.ask("GET /f.txt", "")).body);
    try fixture.tmp.dir.deleteFile(testing.io, "f.txt");
    try testing.expectEqual(404, (try fixture.ask("GET /f.txt", "")).status);
    try fixture.tmp.dir.symLink(testing.io, "/etc/hostname", "f.txt", .{});
    try testing.expectEqual(404, (try fixture.ask("GET /f.txt", "")).status);
}

test "ranges" {
    var fixture: Fixture = undefined;
    try fixture.init(.{});
    defer fixture.deinit();
    var data: [40_000]u8 = undefined;
    for (&data, 0..) |*byte, i| byte.* = @truncate(i);
    try fixture.writeLongAgo("f.bin", &data);
    const part = try fixture.ask("GET /f.bin", "Range: bytes=10-19\r\n");
    try testing.expectEqual(206, part.status);
    try testing.expectEqualSlices(u8, data[10..20], part.body);
    try expectHeader("bytes 10-19/40000", part, "Content-Range");
    try expectHeader("10", part, "Content-Length");
    const tail = try fixture.ask("GET /f.bin", "Range: bytes=-20000\r\n");
    try testing.expectEqualSlices(u8, data[20_000..], tail.body);
    const beyond = try fixture.ask("GET /f.bin", "Range: bytes=40000-\r\n");
    try testing.expectEqual(416, beyond.status);
    try expectHeader("bytes */40000", beyond, "Content-Range");
    const several = try fixture.ask("GET /f.bin", "Range: bytes=0-1,4-5\r\n");
    try testing.expectEqual(206, several.status);
    const type_text = several.header("Content-Type").?;
    const boundary = type_text["multipart/byteranges; boundary=".len..];
    var expected: std.ArrayList(u8) = .empty;
    defer expected.deinit(gpa);
    inline for (.{ .{ "", "0-1" }, .{ "\r\n", "4-5" } }, .{ data[0..2], data[4..6] }) |part_text, bytes| {
        try expected.print(
            gpa,
            part_text[0] ++ "--{s}\r\nContent-Type: application/octet-stream\r\nContent-Range: bytes " ++
                part_text[1] ++ "/40000\r\n\r\n{s}",
            .{ boundary, bytes },
        );
    }
    try expected.print(gpa, "\r\n--{s}--\r\n", .{boundary});
    try testing.expectEqualSlices(u8, expected.items, several.body);
    const overlap = try fixture.ask("GET /f.bin", "Range: bytes=0-9,9-10\r\n");
    try testing.expectEqual(200, overlap.status);
    try testing.expectEqual(40_000, overlap.body.len);
    const head = try fixture.ask("HEAD /f.bin", "Range: bytes=0-1\r\n");
    try testing.expectEqual(200, head.status);

    const tag = part.header("ETag").?;
    var buffer: [200]u8 = undefined;
    const good = try std.fmt.bufPrint(&buffer, "{s}\r\nRange: bytes=0-0", .{tag});
    try testing.expectEqual(206, (try fixture.askWith("/f.bin", "If-Range", good)).status);
    try testing.expectEqual(
        200,
        (try fixture.askWith("/f.bin", "If-Range", "\"other\"\r\nRange: bytes=0-0")).status,
    );
}

test "conditional requests" {
    var fixture: Fixture = undefined;
    try fixture.init(.{ .cache_control = "max-age=60" });
    defer fixture.deinit();
    try fixture.writeLongAgo("f.txt", "text");
    const get = try fixture.ask("GET /f.txt", "");
    try expectHeader("max-age=60", get, "Cache-Control");
    const tag = get.header("ETag").?;
    // A list may come in several lines.
    const second_line = try std.mem.concat(gpa, u8, &.{ "\"other\"\r\nIf-None-Match: ", tag });
    defer gpa.free(second_line);
    try testing.expectEqual(304, (try fixture.askWith("/f.txt", "If-None-Match", second_line)).status);
    const match = try std.mem.concat(gpa, u8, &.{ "\"other\"\r\nIf-Match: ", tag });
    defer gpa.free(match);
    try testing.expectEqual(200, (try fixture.askWith("/f.txt", "If-Match", match)).status);
    const same = try fixture.askWith("/f.txt", "If-None-Match", tag);
    try testing.expectEqual(304, same.status);
    try testing.expectEqualStrings("", same.body);
    try expectHeader(tag, same, "ETag");
    try expectHeader("max-age=60", same, "Cache-Control");
    try testing.expectEqual(null, same.header("Content-Length"));
    try testing.expectEqual(
        304,
        (try fixture.askWith("/f.txt", "If-Modified-Since", get.header("Last-Modified").?)).status,
    );
    try testing.expectEqual(
        200,
        (try fixture.askWith("/f.txt", "If-Modified-Since", "Sun, 06 Nov 1994 08:49:37 GMT")).status,
    );
    try testing.expectEqual(412, (try fixture.askWith("/f.txt", "If-Match", "\"other\"")).status);
    try testing.expectEqual(
        412,
        (try fixture.askWith("/f.txt", "If-Unmodified-Since", "Sun, 06 Nov 1994 08:49:37 GMT")).status,
    );
}

test "precompressed siblings" {
    var fixture: Fixture = undefined;
    try fixture.init(.{});
    defer fixture.deinit();
    try fixture.write("a.js", "plain");
    try fixture.write("a.js.br", "brotli");
    try fixture.write("a.js.gz", "gzip");
    try fixture.write("b.js.gz", "older");
    try testing.io.sleep(.fromMilliseconds(20), .awake);
    try fixture.write("b.js", "newer");
    const plain = try fixture.ask("GET /a.js", "");
    try testing.expectEqualStrings("plain", plain.body);
    try expectHeader("Accept-Encoding", plain, "Vary");
    const br = try fixture.ask("GET /a.js", "Accept-Encoding: gzip, deflate, br\r\n");
    try testing.expectEqualStrings("brotli", br.body);
    try expectHeader("br", br, "Content-Encoding");
    try expectHeader("text/javascript; charset=utf-8", br, "Content-Type");
    try expectHeader("Accept-Encoding", br, "Vary");
    try testing.expect(!std.mem.eql(u8, plain.header("ETag").?, br.header("ETag").?));
    const gzip = try fixture.ask("GET /a.js", "Accept-Encoding: gzip, br;q=0\r\n");
    try testing.expectEqualStrings("gzip", gzip.body);
    const stale = try fixture.ask("GET /b.js", "Accept-Encoding: gzip\r\n");
    try testing.expectEqualStrings("newer", stale.body);
    try testing.expectEqual(null, stale.header("Content-Encoding"));
}

test "a prefix, dotfiles on request, and links that stay inside" {
    var fixture: Fixture = undefined;
    try fixture.init(.{ .request_path = "/static", .dotfiles = true });
    defer fixture.deinit();
    try fixture.write("index.html", "index");
    try fixture.write(".well-known", "known");
    try fixture.tmp.dir.symLink(testing.io, "index.html", "inside", .{});
    try fixture.tmp.dir.symLink(testing.io, "/etc/hostname", "outside", .{});
    try expectHeader("./static/", try fixture.ask("GET /static", ""), "Location");
    try testing.expectEqualStrings("index", (try fixture.ask("GET /static/", "")).body);
    try testing.expectEqualStrings("index", (try fixture.ask("GET /static/inside", "")).body);
    try testing.expectEqualStrings("known", (try fixture.ask("GET /static/.well-known", "")).body);
    try testing.expectEqual(404, (try fixture.ask("GET /static/outside", "")).status);
    try testing.expectEqual(404, (try fixture.ask("GET /statics", "")).status);
    try testing.expectEqual(404, (try fixture.ask("GET /index.html", "")).status);
}

const OneFile = struct {
    allocator: std.mem.Allocator,
    file: *per.util.FileServer,

    pub fn init(allocator: std.mem.Allocator) !*OneFile {
        const self = try allocator.create(OneFile);
        errdefer allocator.destroy(self);
        self.* = .{ .allocator = allocator, .file = try .init(allocator, root_path, .{}) };
        return self;
    }

    pub fn deinit(self: *OneFile) void {
        self.file.deinit();
        self.allocator.destroy(self);
    }

    pub fn handleRequest(self: *OneFile, request: *per.Request, response: *per.Response) void {
        if (std.mem.eql(u8, request.getPath(), "/plain")) {
            self.file.serve(response) catch unreachable;
        } else self.file.serveRequest(request, response) catch unreachable;
    }
};

test "FileServer: appears, changes, disappears; conditions where the request is at hand" {
    var tmp = testing.tmpDir(.{});
    defer tmp.cleanup();
    var path_buffer: [std.fs.max_path_bytes]u8 = undefined;
    const len = try tmp.dir.realPath(testing.io, &path_buffer);
    @memcpy(path_buffer[len..][0.."/one.txt".len], "/one.txt");
    root_path = path_buffer[0 .. len + "/one.txt".len];
    try testing.expectError(
        error.NotFound,
        per.util.FileServer.init(gpa, root_path, .{ .lazy_load = false }),
    );
    try testing.expectError(error.PathNotAbsolute, per.util.FileServer.init(gpa, "one.txt", .{}));

    var simulation: alike.Simulation(OneFile) = try .init(gpa, .{}, .{ .seed = 1 });
    defer simulation.deinit();
    const get = "GET /plain HTTP/1.1\r\nHost: h\r\n\r\n";
    try testing.expectEqual(404, (try Answer.parse(try simulation.exchange(get))).status);
    for ([_][]const u8{ "one", "another" }) |data| {
        try tmp.dir.writeFile(testing.io, .{ .sub_path = "one.txt", .data = data });
        const answer: Answer = try .parse(try simulation.exchange(get));
        try testing.expectEqualStrings(data, answer.body);
        try expectHeader("text/plain; charset=utf-8", answer, "Content-Type");
    }
    const ranged: Answer = try .parse(try simulation.exchange(
        "GET / HTTP/1.1\r\nHost: h\r\nRange: bytes=1-2\r\n\r\n",
    ));
    try testing.expectEqualStrings("no", ranged.body);
    try tmp.dir.deleteFile(testing.io, "one.txt");
    try testing.expectEqual(404, (try Answer.parse(try simulation.exchange(get))).status);
}

/// fcntl's F_SETLEASE (man 2 fcntl), which std does not name; the kernel breaks a lease by a
/// signal to its holder.
const set_lease = 1024;

/// Takes a write lease on a file, as an editor or a file server may: until the descriptor is closed, nobody
/// opens it. Null where leases are not to be had.
fn lease(fixture: *Fixture, name: []const u8) !?std.Io.File {
    const linux = std.os.linux;
    if (@import("builtin").os.tag != .linux) return null;
    const file = try fixture.tmp.dir.openFile(testing.io, name, .{ .mode = .read_write });
    if (linux.errno(linux.fcntl(file.handle, set_lease, linux.F.WRLCK)) == .SUCCESS) return file;
    file.close(testing.io);
    return null;
}

/// The kernel tells the holder of a lease by SIGIO that somebody wants to open the file, which
/// would end the test.
fn ignoreLeaseSignals() void {
    const ignored: std.posix.Sigaction = .{
        .handler = .{ .handler = std.posix.SIG.IGN },
        .mask = std.posix.sigemptyset(),
        .flags = 0,
    };
    std.posix.sigaction(.IO, &ignored, null);
}

test "a file on which somebody has a write lease is 503 at once, and there when the lease is gone" {
    ignoreLeaseSignals();
    var fixture: Fixture = undefined;
    try fixture.init(.{});
    defer fixture.deinit();
    try fixture.write("leased.txt", "written");
    try fixture.write("other.txt", "other");
    try fixture.write("plain.css", "identity");
    try fixture.write("plain.css.gz", "packed");
    const holder = try lease(&fixture, "leased.txt") orelse return error.SkipZigTest;
    const sibling = (try lease(&fixture, "plain.css.gz")).?;

    const refused = try fixture.ask("GET /leased.txt", "");
    try testing.expectEqual(503, refused.status);
    try expectHeader("1", refused, "Retry-After");
    try testing.expectEqual(503, (try fixture.ask("HEAD /leased.txt", "")).status);
    try testing.expectEqualStrings("other", (try fixture.ask("GET /other.txt", "")).body);
    try testing.expectEqualStrings(
        "identity",
        (try fixture.ask("GET /plain.css", "Accept-Encoding: gzip\r\n")).body,
    );

    holder.close(testing.io);
    sibling.close(testing.io);
    try testing.expectEqualStrings("written", (try fixture.ask("GET /leased.txt", "")).body);
    try testing.expectEqualStrings(
        "packed",
        (try fixture.ask("GET /plain.css", "Accept-Encoding: gzip\r\n")).body,
    );
}

test "FileServer: a write lease is 503, not 404" {
    ignoreLeaseSignals();
    var fixture: Fixture = undefined;
    try fixture.init(.{});
    defer fixture.deinit();
    try fixture.write("one.txt", "one");
    var path_buffer: [std.fs.max_path_bytes]u8 = undefined;
    root_path = try std.fmt.bufPrint(&path_buffer, "{s}/one.txt", .{fixture.path});
    var simulation: alike.Simulation(OneFile) = try .init(gpa, .{}, .{ .seed = 1 });
    defer simulation.deinit();
    const get = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    const holder = try lease(&fixture, "one.txt") orelse return error.SkipZigTest;
    const refused: Answer = try .parse(try simulation.exchange(get));
    try testing.expectEqual(503, refused.status);
    try expectHeader("1", refused, "Retry-After");
    holder.close(testing.io);
    try testing.expectEqualStrings("one", (try Answer.parse(try simulation.exchange(get))).body);
}

test "without a descriptor to open a file with, the answer is 503, not 404" {
    const linux = std.os.linux;
    var fixture: Fixture = undefined;
    try fixture.init(.{});
    defer fixture.deinit();
    try fixture.write("file.txt", "here");
    // Warms up what the first request opens.
    try testing.expectEqual(404, (try fixture.ask("GET /none", "")).status);
    var old: linux.rlimit = undefined;
    try testing.expectEqual(.SUCCESS, linux.errno(linux.getrlimit(.NOFILE, &old)));
    const none: linux.rlimit = .{ .cur = 0, .max = old.max };
    try testing.expectEqual(.SUCCESS, linux.errno(linux.setrlimit(.NOFILE, &none)));
    const refused = fixture.ask("GET /file.txt", "");
    try testing.expectEqual(.SUCCESS, linux.errno(linux.setrlimit(.NOFILE, &old)));
    try testing.expectEqual(503, (try refused).status);
    try expectHeader("1", try refused, "Retry-After");
    try testing.expectEqualStrings("here", (try fixture.ask("GET /file.txt", "")).body);
}
