//! The application: what it knows, and what it answers.
const std = @import("std");
const per = @import("peregrine");
const web = @import("peregrine.web");

/// All worker threads share it: what changes is behind the mutex.
pub const App = struct {
    gpa: std.mem.Allocator,
    io: std.Io,
    /// Uploads.
    folder: std.Io.Dir,
    files: *per.util.DirServer,
    threads: *per.Threads,
    /// The server, for its statistics; null in tests.
    server: ?*per.Server(App) = null,
    /// Null: no TLS.
    tls_port: ?u16 = null,
    uploads: std.atomic.Value(u32) = .init(0),

    mutex: std.Io.Mutex = .init,
    notes: std.ArrayList(Note) = .empty,
    next_id: u32 = 1,
    listeners: ?*Listener = null,

    const Note = struct { id: u32, text: []const u8 };
    const notes_max = 10_000;

    /// A page that hears of new notes.
    const Listener = struct { stream: per.EventStream, next: ?*Listener };

    const Routes = web.Router(App, .{ .before = &.{
        web.requireTls(App, tlsPort, .{ .hsts_s = 3600 }), web.compress(App, .{}),
    } }, &.{
        .get("/", showPage),
        .get("/notes", listNotes),
        .limit(.{ .body_bytes_max = 64 * 1024 }, &.{.post("/notes", createNote)}),
        .get("/notes/:id", showNote),
        .delete("/notes/:id", deleteNote),
        .get("/events", listen),
        .get("/report", beginReport),
        .get("/statistics", showStatistics),
        .stream("POST", "/files", beginUpload, uploadPiece),
        .get("/files/*name", showFile),
    });

    /// `path` is the folder for uploads.
    pub fn init(gpa: std.mem.Allocator, io: std.Io, path: []const u8) !App {
        const folder = try std.Io.Dir.cwd().openDir(io, path, .{});
        errdefer folder.close(io);
        const absolute = try folder.realPathFileAlloc(io, ".", gpa);
        defer gpa.free(absolute);
        const files: *per.util.DirServer = try .init(gpa, absolute, .{
            .request_path = "/files",
            .index = "",
        });
        errdefer files.deinit();
        const threads: *per.Threads = try .init(gpa, .{ .threads = 2, .queue_max = 100 });
        return .{ .gpa = gpa, .io = io, .folder = folder, .files = files, .threads = threads };
    }

    /// When the server is freed.
    pub fn deinit(app: *App) void {
        app.threads.deinit();
        app.files.deinit();
        app.folder.close(app.io);
        for (app.notes.items) |note| app.gpa.free(note.text);
        app.notes.deinit(app.gpa);
    }

    pub fn handleRequest(app: *App, request: *per.Request, response: *per.Response) !void {
        return Routes.handle(app, request, response);
    }

    pub fn handleBody(
        app: *App,
        request: *per.Request,
        response: *per.Response,
        piece: []const u8,
        last: bool,
    ) !void {
        return Routes.handleBody(app, request, response, piece, last);
    }

    pub fn handleAbort(app: *App, request: *per.Request, _: per.Reason) void {
        if (Routes.contextOf(request)) |context| {
            if (context.user) |user| Upload.of(user).cancel(app);
        } else if (request.context) |listener| app.forget(@ptrCast(@alignCast(listener)));
    }

    /// Pages come back when the next server is there.
    pub fn handleStop(app: *App) void {
        app.mutex.lockUncancelable(app.io);
        defer app.mutex.unlock(app.io);
        while (app.listeners) |listener| {
            app.listeners = listener.next;
            listener.stream.end();
            app.gpa.destroy(listener);
        }
    }

    fn tlsPort(app: *const App) ?u16 {
        return app.tls_port;
    }

    // ---- Notes

    fn showPage(_: *App, context: *web.Context) !void {
        try context.html(@embedFile("page.html"));
    }

    fn listNotes(app: *App, context: *web.Context) !void {
        app.mutex.lockUncancelable(app.io);
        defer app.mutex.unlock(app.io);
        try context.sendJson(.{ .notes = app.notes.items });
    }

    fn showNote(app: *App, context: *web.Context) !void {
        const id = try context.number(u32, "id");
        app.mutex.lockUncancelable(app.io);
        defer app.mutex.unlock(app.io);
        for (app.notes.items) |note| if (note.id == id) return context.sendJson(note);
        return error.NotFound;
    }

    fn createNote(app: *App, context: *web.Context) !void {
        const wanted = try context.json(struct { text: []const u8 });
        if (wanted.text.len == 0) return error.UnprocessableContent;
        const note = try app.add(wanted.text);
        context.response.status = .created;
        const location = try std.fmt.allocPrint(context.arena(), "/notes/{d}", .{note.id});
        try context.response.addNewHeader("Location", location);
        try context.sendJson(.{ .id = note.id, .text = wanted.text });
    }

    fn add(app: *App, text: []const u8) !Note {
        const own = try app.gpa.dupe(u8, text);
        errdefer app.gpa.free(own);
        app.mutex.lockUncancelable(app.io);
        defer app.mutex.unlock(app.io);
        if (app.notes.items.len == notes_max) return error.ServiceUnavailable;
        const note: Note = .{ .id = app.next_id, .text = own };
        try app.notes.append(app.gpa, note);
        app.next_id += 1;
        var listener = app.listeners;
        // A listener that is too slow misses the note, and gets it when it comes back.
        while (listener) |one| : (listener = one.next) announce(one.stream, note) catch {};
        return note;
    }

    fn deleteNote(app: *App, context: *web.Context) !void {
        const id = try context.number(u32, "id");
        app.mutex.lockUncancelable(app.io);
        defer app.mutex.unlock(app.io);
        for (app.notes.items, 0..) |note, at| if (note.id == id) {
            app.gpa.free(app.notes.orderedRemove(at).text);
            context.response.status = .no_content;
            return;
        };
        return error.NotFound;
    }

    // ---- News

    /// Sends what the client has missed, then what is new.
    fn listen(app: *App, context: *web.Context) !void {
        const seen = if (per.EventStream.lastEventId(context.request)) |id|
            std.fmt.parseInt(u32, id, 10) catch 0
        else
            0;
        const listener = try app.gpa.create(Listener);
        errdefer app.gpa.destroy(listener);
        app.mutex.lockUncancelable(app.io);
        defer app.mutex.unlock(app.io);
        listener.* = .{ .stream = try .open(context.response, .{ .retry_ms = 1000 }), .next = app.listeners };
        app.listeners = listener;
        context.request.context = listener;
        for (app.notes.items) |note| if (note.id > seen) announce(listener.stream, note) catch break;
    }

    fn announce(stream: per.EventStream, note: Note) !void {
        var id: [10]u8 = undefined;
        try stream.send(.{
            .name = "note",
            .id = try std.fmt.bufPrint(&id, "{d}", .{note.id}),
            .data = note.text,
        });
    }

    fn forget(app: *App, gone: *Listener) void {
        app.mutex.lockUncancelable(app.io);
        defer app.mutex.unlock(app.io);
        var place = &app.listeners;
        while (place.*) |listener| : (place = &listener.next) if (listener == gone) {
            place.* = gone.next;
            gone.stream.end();
            app.gpa.destroy(gone);
            return;
        };
    }

    // ---- What takes time

    fn beginReport(app: *App, context: *web.Context) !void {
        return app.threads.run(app, report, context.request, context.response);
    }

    /// Runs in a thread of its own.
    fn report(app: *App, request: *per.Request, response: *per.Response) !void {
        var words: usize = 0;
        {
            app.mutex.lockUncancelable(app.io);
            defer app.mutex.unlock(app.io);
            for (app.notes.items) |note| {
                var it = std.mem.tokenizeAny(u8, note.text, " \t\r\n");
                while (it.next()) |_| words += 1;
            }
        }
        per.io.sleep(50); // as a database would
        try response.addNewHeader("Content-Type", "application/json");
        try response.setBody(try std.fmt.allocPrint(request.arena, "{{\"words\":{d}}}", .{words}));
    }

    fn showStatistics(app: *App, context: *web.Context) !void {
        const server = app.server orelse return error.NotFound;
        const now = server.statistics();
        try context.sendJson(.{
            .connections = now.connections,
            .requests = now.requests,
            .memory_bytes = now.memory_bytes,
            .waiting_for_threads = app.threads.waiting(),
        });
    }

    // ---- Files

    fn showFile(app: *App, context: *web.Context) !void {
        return app.files.serve(context.request, context.response);
    }

    fn beginUpload(_: *App, context: *web.Context) !void {
        const upload = try context.arena().create(Upload);
        upload.* = .{ .form = try context.multipart(.{ .parts_max = 10, .part_bytes_max = 1 << 30 }) };
        context.user = upload;
    }

    fn uploadPiece(app: *App, context: *web.Context, piece: []const u8, last: bool) !void {
        const upload: *Upload = .of(context.user.?);
        errdefer upload.cancel(app);
        try upload.take(app, context, piece);
        if (!last) return;
        try upload.form.finish();
        context.response.status = .created;
        try context.sendJson(.{ .files = upload.done.items });
    }

    const Upload = struct {
        form: web.Multipart,
        file: ?std.Io.File = null,
        written: u64 = 0,
        done: std.ArrayList(Done) = .empty,

        const Done = struct { name: []const u8, bytes: u64 };

        fn of(user: *anyopaque) *Upload {
            return @ptrCast(@alignCast(user));
        }

        fn take(upload: *Upload, app: *App, context: *web.Context, piece: []const u8) !void {
            var rest = piece;
            while (try upload.form.next(&rest)) |event| switch (event) {
                .part => |part| {
                    if (part.filename == null) return error.BadRequest;
                    // The client's name is for people; ours cannot lead anywhere.
                    const number = app.uploads.fetchAdd(1, .monotonic) + 1;
                    const name = try std.fmt.allocPrint(context.arena(), "{d}.upload", .{number});
                    upload.file = try app.folder.createFile(app.io, name, .{});
                    upload.written = 0;
                    try upload.done.append(context.arena(), .{ .name = name, .bytes = 0 });
                },
                .data => |bytes| {
                    try upload.file.?.writePositionalAll(app.io, bytes, upload.written);
                    upload.written += bytes.len;
                },
                .part_end => {
                    upload.file.?.close(app.io);
                    upload.file = null;
                    upload.done.items[upload.done.items.len - 1].bytes = upload.written;
                },
            };
        }

        /// Removes what has come so far.
        fn cancel(upload: *Upload, app: *App) void {
            if (upload.file) |file| file.close(app.io);
            upload.file = null;
            for (upload.done.items) |done| app.folder.deleteFile(app.io, done.name) catch {};
            upload.done = .empty;
        }
    };
};

const testing = std.testing;
const json: per.Header = .{ .name = "Content-Type", .text = "application/json" };

test "notes come, are read and go" {
    var folder = testing.tmpDir(.{});
    defer folder.cleanup();
    var path: [64]u8 = undefined;
    const app: App = try .init(
        testing.allocator,
        testing.io,
        try std.fmt.bufPrint(&path, ".zig-cache/tmp/{s}", .{folder.sub_path}),
    );
    var simulation: per.Simulation(App) = try .initWith(testing.allocator, .{}, .{ .seed = 1 }, app);
    defer simulation.deinit();
    const listener = try simulation.connect();
    try listener.send("GET /events HTTP/1.1\r\nHost: h\r\n\r\n");
    const created = try simulation.request(.{
        .method = "POST",
        .target = "/notes",
        .headers = &.{json},
        .body = "{\"text\": \"buy milk\"}",
    });
    try testing.expectEqual(201, created.status);
    try testing.expectEqualStrings("/notes/1", created.header("location").?);
    try testing.expect(std.mem.find(u8, listener.text(), "id: 1\nevent: note\ndata: buy milk\n\n") != null);
    const note = try simulation.request(.{ .target = "/notes/1" });
    const Read = struct { id: u32, text: []const u8 };
    try testing.expectEqualStrings("buy milk", (try note.json(Read)).text);
    const deleted = try simulation.request(.{ .method = "DELETE", .target = "/notes/1" });
    try testing.expectEqual(204, deleted.status);
    try testing.expectEqual(404, (try simulation.request(.{ .target = "/notes/1" })).status);
    const uploaded = try simulation.request(.{
        .method = "POST",
        .target = "/files",
        .headers = &.{try .init("Content-Type", "multipart/form-data; boundary=b")},
        .body = "--b\r\nContent-Disposition: form-data; name=f; filename=x\r\n\r\ncontent\r\n--b--\r\n",
    });
    try testing.expectEqualStrings("{\"files\":[{\"name\":\"1.upload\",\"bytes\":7}]}", uploaded.body);
    const file = try simulation.request(.{ .target = "/files/1.upload" });
    try testing.expectEqualStrings("content", file.body);
    // A server that stops ends its event streams.
    simulation.server.shutdown();
    try simulation.settle();
    try testing.expect(std.mem.endsWith(u8, listener.text(), "0\r\n\r\n"));
}
