//! Applications made with `peregrine.web`, over the simulated network: routes, methods, values, JSON,
//! cookies, forms, middleware, CORS, bodies in pieces, bounds.
const std = @import("std");
const per = @import("peregrine");
const web = @import("peregrine.web");
const alike = @import("alike.zig");
const testing = std.testing;
const gpa = testing.allocator;

const App = struct {
    log: std.ArrayList(u8) = .empty,

    const Routes = web.Router(App, .{ .before = &.{trace}, .limits = .{ .arena_bytes_max = 64 * 1024 } }, &.{
        .get("/", index),
        .get("/users/:id", showUser),
        .get("/users/me", showMe),
        .post("/users", createUser),
        .delete("/users/:id", nothing),
        .get("/files/*path", showPath),
        .any("/any", showMethod),
        .on("HEAD", "/heads", nothing),
        .get("/heads", index),
        .on("PROPFIND", "/heads", showMethod),
        .post("/form", showForm),
        .get("/cookies", showCookies),
        .post("/signed", leaveSigned),
        .get("/broken", broken),
        .get("/gone", gone),
        .group("/admin", &.{requireLogin}, &.{
            .get("", index),
            .group("/deep", &.{mark}, &.{.get("/:a/:b", showTwo)}),
        }),
    });

    pub fn deinit(app: *App) void {
        app.log.deinit(gpa);
    }

    pub fn handleRequest(app: *App, request: *per.Request, response: *per.Response) !void {
        return Routes.handle(app, request, response);
    }

    fn trace(app: *App, context: *web.Context, next: web.Next(App)) !void {
        try app.log.append(gpa, '<');
        defer app.log.append(gpa, '>') catch {};
        try context.response.addNewHeader("X-Trace", "1");
        return next.run(app, context);
    }

    fn mark(app: *App, context: *web.Context, next: web.Next(App)) !void {
        try app.log.append(gpa, 'm');
        return next.run(app, context);
    }

    fn requireLogin(app: *App, context: *web.Context, next: web.Next(App)) !void {
        if (context.cookie("login") == null) return context.redirect(.see_other, "/login");
        return next.run(app, context);
    }

    fn index(_: *App, context: *web.Context) !void {
        try context.text("index");
    }

    fn showUser(_: *App, context: *web.Context) !void {
        const id = try context.number(u32, "id");
        try context.sendJson(.{ .id = id, .name = try context.query("name") });
    }

    fn showMe(_: *const App, context: *web.Context) !void {
        try context.html("<b>me</b>");
    }

    const User = struct { name: []const u8, tags: []const []const u8 = &.{} };

    fn createUser(_: *App, context: *web.Context) !void {
        const user = try context.json(User);
        context.response.status = .created;
        try context.sendJson(.{ .name = user.name, .tags = user.tags.len });
    }

    fn nothing(_: *App, context: *web.Context) void {
        context.response.status = .no_content;
    }

    fn showPath(_: *App, context: *web.Context) !void {
        try context.text(context.param("path").?);
    }

    fn showTwo(_: *App, context: *web.Context) !void {
        try context.text(try std.mem.concat(context.arena(), u8, &.{
            context.param("a").?, "+", context.param("b").?,
        }));
    }

    fn showMethod(_: *App, context: *web.Context) !void {
        try context.text(context.request.methodText());
    }

    fn showForm(_: *App, context: *web.Context) !void {
        const form = try context.form();
        const file = form.find("file");
        try context.sendJson(.{
            .title = form.get("title"),
            .filename = if (file) |field| field.filename else null,
            .bytes = if (file) |field| field.value.len else 0,
        });
    }

    fn showCookies(_: *App, context: *web.Context) !void {
        try context.setCookie(.{ .name = "seen", .value = context.cookie("seen") orelse "never" });
        try context.setCookie(.{ .name = "other", .max_age_s = 60 });
    }

    fn leaveSigned(_: *App, context: *web.Context) !void {
        try context.setCookie(.{ .name = "signed", .value = "yes" });
        try context.redirect(.see_other, "/?a=b");
    }

    fn broken(_: *App, _: *web.Context) !void {
        return error.Unforeseen;
    }

    fn gone(_: *App, _: *web.Context) !void {
        return error.Gone;
    }
};

const Bench = struct {
    simulation: alike.Simulation(App),
    client: *alike.Simulation(App).Client,

    fn init(bench: *Bench) !void {
        bench.simulation = try .initWith(gpa, .{}, .{ .seed = 1 }, .{});
        errdefer bench.simulation.deinit();
        bench.client = try bench.simulation.connect();
    }

    fn get(bench: *Bench, target: []const u8) !per.Answer {
        return bench.client.request(.{ .target = target });
    }

    fn ask(bench: *Bench, method: []const u8, target: []const u8) !per.Answer {
        return bench.client.request(.{ .method = method, .target = target });
    }

    fn expect(bench: *Bench, status: u16, body: []const u8, question: per.Question) !void {
        const answer = try bench.client.request(question);
        try testing.expectEqualStrings(body, answer.body);
        try testing.expectEqual(status, answer.status);
    }
};

test "routes: what stands in a path goes first, then values, then the rest" {
    var bench: Bench = undefined;
    try bench.init();
    defer bench.simulation.deinit();
    try bench.expect(200, "index", .{});
    try bench.expect(200, "{\"id\":7,\"name\":null}", .{ .target = "/users/7" });
    try bench.expect(200, "{\"id\":7,\"name\":\"Ada L\"}", .{ .target = "/users/7?name=Ada+L" });
    try bench.expect(200, "<b>me</b>", .{ .target = "/users/me" });
    try bench.expect(204, "", .{ .method = "DELETE", .target = "/users/me" });
    try bench.expect(404, "404 Not Found", .{ .target = "/users/x" });
    try bench.expect(404, "404 Not Found", .{ .target = "/users/" });
    try bench.expect(404, "404 Not Found", .{ .target = "/nowhere" });
    try bench.expect(200, "a/b c", .{ .target = "/files/a/b%20c" });
    try bench.expect(200, "", .{ .target = "/files/" });
    try bench.expect(200, "PUT", .{ .method = "PUT", .target = "/any" });
    try bench.expect(200, "PROPFIND", .{ .method = "PROPFIND", .target = "/heads" });
    const page = try bench.get("/users/me");
    try testing.expectEqualStrings("text/html; charset=utf-8", page.header("content-type").?);
    try testing.expectEqualStrings("1", page.header("x-trace").?);
}

test "methods: HEAD is GET's, OPTIONS and 405 name what is allowed" {
    var bench: Bench = undefined;
    try bench.init();
    defer bench.simulation.deinit();
    const head = try bench.ask("HEAD", "/");
    try testing.expectEqual(200, head.status);
    try testing.expectEqualStrings("5", head.header("content-length").?);
    try testing.expectEqual(204, (try bench.ask("HEAD", "/heads")).status);
    try testing.expectEqual(405, (try bench.ask("HEAD", "/form")).status);
    const wrong = try bench.ask("PATCH", "/users/7");
    try testing.expectEqual(405, wrong.status);
    try testing.expectEqualStrings("OPTIONS, GET, HEAD, DELETE", wrong.header("allow").?);
    const asked = try bench.ask("OPTIONS", "/users");
    try testing.expectEqual(204, asked.status);
    try testing.expectEqualStrings("OPTIONS, POST", asked.header("allow").?);
    try testing.expectEqual(404, (try bench.ask("OPTIONS", "/nowhere")).status);
    const all = try bench.ask("OPTIONS", "*");
    try testing.expectEqual(204, all.status);
    try testing.expect(std.mem.find(u8, all.header("allow").?, "PROPFIND") != null);
}

test "middleware: around everything, around a group, and in place of the action" {
    var bench: Bench = undefined;
    try bench.init();
    defer bench.simulation.deinit();
    const app = bench.simulation.handler();
    const refused = try bench.get("/admin");
    try testing.expectEqual(303, refused.status);
    try testing.expectEqualStrings("/login", refused.header("location").?);
    const login: per.Header = try .init("Cookie", "a=b; login=yes");
    try bench.expect(200, "index", .{ .target = "/admin", .headers = &.{login} });
    try testing.expectEqualStrings("<><>", app.log.items);
    try bench.expect(200, "x+y z", .{ .target = "/admin/deep/x/y%20z", .headers = &.{login} });
    try testing.expectEqualStrings("<><><m>", app.log.items);
    try bench.expect(404, "404 Not Found", .{ .target = "/nowhere" });
    try bench.expect(500, "500 Internal Server Error", .{ .target = "/broken" });
    try bench.expect(410, "410 Gone", .{ .target = "/gone" });
    try testing.expectEqualStrings("<><><m><><><>", app.log.items);
}

test "JSON in, with the status that says what is wrong with it" {
    var bench: Bench = undefined;
    try bench.init();
    defer bench.simulation.deinit();
    const json: per.Header = try .init("Content-Type", "application/json");
    const many = try gpa.alloc(u8, 60_000);
    defer gpa.free(many);
    for (many, 0..) |*byte, at| byte.* = "1,"[at % 2];
    const body = try std.mem.concat(gpa, u8, &.{ "{\"name\":\"A\",\"tags\":[\"\",", many, "1]}" });
    defer gpa.free(body);
    var strings: std.ArrayList(u8) = .empty;
    defer strings.deinit(gpa);
    try strings.appendSlice(gpa, "{\"name\":\"A\",\"tags\":[");
    for (0..20_000) |_| try strings.appendSlice(gpa, "\"\",");
    try strings.appendSlice(gpa, "\"\"]}");
    for ([_]struct { u16, []const u8, []const per.Header }{
        .{ 201, "{\"name\":\"Ada\",\"tags\":[\"x\"]}", &.{json} },
        .{ 415, "{\"name\":\"Ada\"}", &.{} },
        .{ 400, "{\"name\":", &.{json} },
        .{ 400, "", &.{json} },
        .{ 422, "{\"title\":\"Ada\"}", &.{json} },
        .{ 422, body, &.{json} },
        .{ 413, strings.items, &.{json} },
    }) |case| {
        const answer = try bench.client.request(.{
            .method = "POST",
            .target = "/users",
            .headers = case[2],
            .body = case[1],
        });
        try testing.expectEqual(case[0], answer.status);
        if (answer.status != 201) continue;
        const user = try answer.json(struct { name: []const u8, tags: u32 });
        try testing.expectEqualStrings("Ada", user.name);
        try testing.expectEqual(1, user.tags);
    }
}

test "forms of both kinds, and cookies" {
    var bench: Bench = undefined;
    try bench.init();
    defer bench.simulation.deinit();
    try bench.expect(200, "{\"title\":\"a & b\",\"filename\":null,\"bytes\":0}", .{
        .method = "POST",
        .target = "/form",
        .headers = &.{try .init("Content-Type", "application/x-www-form-urlencoded")},
        .body = "title=a+%26+b",
    });
    try bench.expect(200, "{\"title\":\"t\",\"filename\":\"x.txt\",\"bytes\":3}", .{
        .method = "POST",
        .target = "/form",
        .headers = &.{try .init("Content-Type", "multipart/form-data; boundary=b")},
        .body = "--b\r\nContent-Disposition: form-data; name=title\r\n\r\nt\r\n--b\r\n" ++
            "Content-Disposition: form-data; name=file; filename=x.txt\r\n\r\n1\r\n\r\n--b--\r\n",
    });
    try testing.expectEqual(415, (try bench.ask("POST", "/form")).status);
    const answer = try bench.client.request(.{
        .target = "/cookies",
        .headers = &.{ try .init("Cookie", "a=1"), try .init("Cookie", "seen=often") },
    });
    var set: usize = 0;
    for (answer.headers) |header| if (std.mem.eql(u8, header.name, "Set-Cookie")) {
        const expected = [_][]const u8{
            "seen=often; Path=/; HttpOnly; SameSite=Lax",
            "other=; Path=/; Max-Age=60; HttpOnly; SameSite=Lax",
        };
        try testing.expectEqualStrings(expected[set], header.text);
        set += 1;
    };
    try testing.expectEqual(2, set);
    const sent_away = try bench.ask("POST", "/signed");
    try testing.expectEqual(303, sent_away.status);
    try testing.expectEqualStrings("/?a=b", sent_away.header("location").?);
    try testing.expect(std.mem.startsWith(u8, sent_away.header("set-cookie").?, "signed=yes; "));
}

/// Takes uploads in pieces, everything else whole.
const Uploads = struct {
    pieces: usize = 0,
    finished: usize = 0,
    aborts: usize = 0,

    const Routes = web.Router(Uploads, .{}, &.{
        .stream("POST", "/upload", beginUpload, uploadPiece),
        .group("/locked", &.{refuse}, &.{.stream("POST", "", beginUpload, uploadPiece)}),
        .post("/whole", whole),
        .get("/upload", nothing),
    });

    pub fn handleRequest(app: *Uploads, request: *per.Request, response: *per.Response) !void {
        return Routes.handle(app, request, response);
    }

    pub fn handleBody(
        app: *Uploads,
        request: *per.Request,
        response: *per.Response,
        piece: []const u8,
        last: bool,
    ) !void {
        return Routes.handleBody(app, request, response, piece, last);
    }

    pub fn handleAbort(app: *Uploads, _: *per.Request, _: per.Reason) void {
        app.aborts += 1;
    }

    const Upload = struct { form: web.Multipart, bytes: u64 = 0, parts: u32 = 0 };

    fn beginUpload(_: *Uploads, context: *web.Context) !void {
        const upload = try context.arena().create(Upload);
        upload.* = .{ .form = try context.multipart(.{ .part_bytes_max = 50_000 }) };
        context.user = upload;
    }

    fn uploadPiece(app: *Uploads, context: *web.Context, piece: []const u8, last: bool) !void {
        app.pieces += 1;
        const upload: *Upload = @ptrCast(@alignCast(context.user.?));
        var rest = piece;
        while (try upload.form.next(&rest)) |event| switch (event) {
            .part => upload.parts += 1,
            .data => |bytes| upload.bytes += bytes.len,
            .part_end => {},
        };
        if (!last) return;
        try upload.form.finish();
        app.finished += 1;
        try context.sendJson(.{ .parts = upload.parts, .bytes = upload.bytes });
    }

    fn refuse(_: *Uploads, _: *web.Context, _: web.Next(Uploads)) !void {
        return error.Forbidden;
    }

    fn whole(_: *Uploads, context: *web.Context) !void {
        try context.text(context.request.body);
    }

    fn nothing(_: *Uploads, _: *web.Context) void {}
};

test "bodies in pieces for the routes that want them, whole for the others" {
    const part = "--b\r\nContent-Disposition: form-data; name=a\r\n\r\n";
    const content: [40_000]u8 = @splat('\r');
    const body = part ++ content ++ "\r\n" ++ part ++ "x\r\n--b--";
    const multipart: per.Header = try .init("Content-Type", "multipart/form-data; boundary=b");
    for (0..10) |seed| {
        var simulation: alike.Simulation(Uploads) = try .initWith(
            gpa,
            .{},
            .{ .seed = seed, .window_bytes = 3000 },
            .{},
        );
        defer simulation.deinit();
        const app = simulation.handler();
        const client = try simulation.connect();
        const upload: per.Question = .{
            .method = "POST",
            .target = "/upload",
            .headers = &.{multipart},
            .body = body,
        };
        const answer = try client.request(upload);
        try testing.expectEqualStrings("{\"parts\":2,\"bytes\":40001}", answer.body);
        try testing.expect(app.pieces > 2);
        const text = try client.request(.{ .method = "POST", .target = "/whole", .body = "all of it" });
        try testing.expectEqualStrings("all of it", text.body);
        try testing.expectEqual(200, (try client.request(.{ .target = "/upload" })).status);
        // Requests without a body, without a type, to a missing or forbidden path, with another method.
        var other = upload;
        other.body = "";
        try testing.expectEqual(400, (try client.request(other)).status);
        other = upload;
        other.headers = &.{};
        try testing.expectEqual(415, (try simulation.request(other)).status);
        other = upload;
        other.target = "/nowhere";
        try testing.expectEqual(404, (try simulation.request(other)).status);
        other.target = "/locked";
        try testing.expectEqual(403, (try simulation.request(other)).status);
        other.target = "/upload";
        other.method = "PUT";
        const wrong = try simulation.request(other);
        try testing.expectEqual(405, wrong.status);
        try testing.expectEqualStrings("OPTIONS, POST, GET, HEAD", wrong.header("allow").?);
        // A part that is too long is refused as soon as it is.
        const long: [60_000]u8 = @splat('x');
        other = upload;
        other.body = part ++ long;
        try testing.expectEqual(413, (try simulation.request(other)).status);
        // The client leaves in the middle.
        const leaving = try simulation.connect();
        try leaving.send("POST /upload HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n" ++
            "Content-Type: multipart/form-data; boundary=b\r\n\r\n--b\r\n");
        try simulation.settle();
        leaving.peer.reset();
        try simulation.settle();
        try testing.expectEqual(1, app.aborts);
        try testing.expectEqual(1, app.finished);
        try testing.expectEqual(0, simulation.worker().exchanges.count);
        try testing.expectEqual(0, simulation.worker().pool.taken_bytes);
    }
}

const Shared = struct {
    const Routes = web.Router(Shared, .{ .before = &.{web.cors(Shared, .{
        .origins = &.{ "https://a.example", "https://b.example" },
        .credentials = true,
        .expose = "X-Total",
    })}, .not_found = explain }, &.{.get("/", nothing)});

    fn explain(_: *Shared, context: *web.Context) !void {
        if (!std.mem.eql(u8, context.request.getPath(), "/hidden")) return error.NotFound;
        context.response.status = .not_found;
        try context.text("not here");
    }

    pub fn handleRequest(app: *Shared, request: *per.Request, response: *per.Response) !void {
        return Routes.handle(app, request, response);
    }

    fn nothing(_: *Shared, _: *web.Context) void {}
};

test "CORS: preflights, answers and errors have the fields, for those who are allowed" {
    var simulation: alike.Simulation(Shared) = try .initWith(gpa, .{}, .{ .seed = 1 }, .{});
    defer simulation.deinit();
    const client = try simulation.connect();
    const origin: per.Header = try .init("Origin", "https://b.example");
    const preflight = try client.request(.{ .method = "OPTIONS", .headers = &.{
        origin,
        try .init("Access-Control-Request-Method", "PUT"),
        try .init("Access-Control-Request-Headers", "x-a, x-b"),
    } });
    try testing.expectEqual(204, preflight.status);
    for ([_][2][]const u8{
        .{ "access-control-allow-origin", "https://b.example" },
        .{ "access-control-allow-headers", "x-a, x-b" },
        .{ "access-control-allow-credentials", "true" },
        .{ "access-control-max-age", "600" },
        .{ "vary", "Origin" },
    }) |field| try testing.expectEqualStrings(field[1], preflight.header(field[0]).?);
    for ([_][]const u8{ "/", "/missing" }) |target| {
        const answer = try client.request(.{ .target = target, .headers = &.{origin} });
        try testing.expectEqualStrings("https://b.example", answer.header("access-control-allow-origin").?);
        try testing.expectEqualStrings("X-Total", answer.header("access-control-expose-headers").?);
    }
    const hidden = try client.request(.{ .target = "/hidden", .headers = &.{origin} });
    try testing.expectEqual(404, hidden.status);
    try testing.expectEqualStrings("not here", hidden.body);
    const stranger = try client.request(.{ .headers = &.{try .init("Origin", "https://c.example")} });
    try testing.expectEqual(200, stranger.status);
    try testing.expectEqual(null, stranger.header("access-control-allow-origin"));
    try testing.expectEqualStrings("Origin", stranger.header("vary").?);
    // Without an Access-Control-Request-Method it is nobody's preflight.
    const asked = try client.request(.{ .method = "OPTIONS", .headers = &.{origin} });
    try testing.expectEqualStrings("OPTIONS, GET, HEAD", asked.header("allow").?);
}

const Secure = struct {
    port: ?u16 = 8443,

    const Routes = web.Router(Secure, .{ .before = &.{web.requireTls(Secure, tlsPort, .{
        .hsts_s = 60,
    })} }, &.{.get("/*all", nothing)});

    fn tlsPort(app: *const Secure) ?u16 {
        return app.port;
    }

    pub fn handleRequest(app: *Secure, request: *per.Request, response: *per.Response) !void {
        return Routes.handle(app, request, response);
    }

    fn nothing(_: *Secure, _: *web.Context) void {}
};

test "clients without TLS are sent to where it is" {
    var simulation: alike.Simulation(Secure) = try .initWith(gpa, .{
        .trusted_proxies = "0.0.0.0/0, ::/0, unix",
    }, .{ .seed = 1 }, .{});
    defer simulation.deinit();
    const client = try simulation.connect();
    const plain = try client.request(.{ .method = "POST", .target = "/a?b" });
    try testing.expectEqual(308, plain.status);
    try testing.expectEqualStrings("https://test:8443/a?b", plain.header("location").?);
    const secure = try client.request(.{ .headers = &.{
        try .init("X-Forwarded-For", "192.0.2.1"),
        try .init("X-Forwarded-Proto", "https"),
    } });
    try testing.expectEqual(200, secure.status);
    try testing.expectEqualStrings("max-age=60", secure.header("strict-transport-security").?);
    simulation.handler().port = 443;
    const other = try client.request(.{ .target = "/" });
    try testing.expectEqualStrings("https://test/", other.header("location").?);
    simulation.handler().port = null;
    try testing.expectEqual(200, (try client.request(.{})).status);
}

/// Middleware that sets fields before and behind actions, and notes what it sees of their errors.
const Guarded = struct {
    seen_status: per.Status = .ok,
    seen_error: ?anyerror = null,
    explained: ?anyerror = null,
    detached: ?per.Detached = null,

    const Routes = web.Router(Guarded, .{ .before = &.{
        web.cors(Guarded, .{ .origins = &.{"https://a.example"} }), watch,
    } }, &.{
        .get("/fails", fails),
        .get("/late", late),
        .get("/streams", streams),
        .get("/answers", answers),
        .post("/posted", answers),
        .get("/own", ownKept),
        .group("/locked", &.{requireKey}, &.{.get("", answers)}),
    });

    pub fn handleRequest(app: *Guarded, request: *per.Request, response: *per.Response) !void {
        return Routes.handle(app, request, response);
    }

    pub fn handleError(app: *Guarded, request: *per.Request, response: *per.Response, err: anyerror) void {
        app.explained = err;
        if (request.findHeader("x-plain") != null) return;
        response.addNewHeader("Content-Type", "application/problem+json") catch {};
        response.setBody("{}") catch {};
    }

    fn watch(app: *Guarded, context: *web.Context, next: web.Next(Guarded)) !void {
        try context.response.addNewHeader("X-Before", "1");
        next.run(app, context) catch |err| {
            app.seen_status = context.response.status;
            app.seen_error = err;
            try context.response.addNewHeader("X-Behind", "1");
            return err;
        };
        app.seen_status = context.response.status;
    }

    fn requireKey(_: *Guarded, context: *web.Context, _: web.Next(Guarded)) !void {
        try context.response.addNewHeader("Content-Type", "text/html");
        try context.response.addNewHeader("WWW-Authenticate", "Bearer");
        return error.Unauthorized;
    }

    fn fails(_: *Guarded, context: *web.Context) !void {
        try context.response.addNewHeader("X-Action", "1");
        try context.html("<p>half of a page");
        return error.Unforeseen;
    }

    fn ownKept(_: *Guarded, context: *web.Context) !void {
        try context.response.addNewHeader("Retry-After", "7");
        context.response.keepHeaders();
        return error.TooManyRequests;
    }

    fn late(app: *Guarded, context: *web.Context) !void {
        app.detached = try context.response.detach();
    }

    fn streams(_: *Guarded, context: *web.Context) !void {
        _ = try context.response.write("some");
    }

    fn answers(_: *Guarded, context: *web.Context) !void {
        try context.response.answerStatus(.teapot);
    }
};

test "errors of actions keep what middleware has set, and middleware sees their status" {
    var simulation: alike.Simulation(Guarded) = try .initWith(gpa, .{}, .{ .seed = 1 }, .{});
    defer simulation.deinit();
    const app = simulation.handler();
    const client = try simulation.connect();
    const from_page = [_]per.Header{try .init("Origin", "https://a.example")};
    for ([_]struct { []const u8, u16, ?anyerror, ?[]const u8 }{
        .{ "/fails", 500, error.Unforeseen, "x-behind" },
        .{ "/nowhere", 404, error.NotFound, "x-behind" },
        .{ "/locked", 401, error.Unauthorized, "www-authenticate" },
        .{ "/posted", 405, error.MethodNotAllowed, "allow" },
        .{ "/own", 429, error.TooManyRequests, "retry-after" },
        .{ "/answers", 418, null, null },
        .{ "/streams", 200, null, null },
    }) |case| {
        app.* = .{};
        const answer = try client.request(.{ .target = case[0], .headers = &from_page });
        try testing.expectEqual(case[1], answer.status);
        try testing.expectEqual(case[1], app.seen_status.code());
        try testing.expectEqual(case[2], app.seen_error);
        // The application's own page for errors, CORS or not.
        try testing.expectEqual(case[2], app.explained);
        try testing.expectEqualStrings("1", answer.header("x-before").?);
        try testing.expectEqualStrings(from_page[0].text, answer.header("access-control-allow-origin").?);
        try testing.expectEqual(null, answer.header("x-action"));
        if (case[3]) |name| try testing.expect(answer.header(name) != null);
        if (case[2] == null) continue;
        try testing.expectEqualStrings("{}", answer.body);
        try testing.expectEqualStrings("application/problem+json", answer.header("content-type").?);
    }
    // Without words of the application's own, the status's text goes with the fields.
    const plain = try client.request(.{
        .target = "/locked",
        .headers = &.{ from_page[0], try .init("X-Plain", "1") },
    });
    try testing.expectEqualStrings("401 Unauthorized", plain.body);
    try testing.expectEqualStrings("text/plain", plain.header("content-type").?);
    try testing.expectEqualStrings("Bearer", plain.header("www-authenticate").?);
    // The answer of another thread: whole, and in pieces.
    for ([_]bool{ true, false }) |whole| {
        try client.send("GET /late HTTP/1.1\r\nHost: h\r\nOrigin: https://a.example\r\n\r\n");
        try simulation.settle();
        const detached = app.detached.?;
        const own = [_]per.Header{try .init("X-Own", "1")};
        if (whole) try detached.answer(.{ .headers = &own, .body = "later" }) else {
            try detached.start(.{ .headers = &own });
            try detached.write("later");
            try detached.end();
        }
        try simulation.settle();
        const answer = (try client.nextAnswer(true)).?;
        try testing.expectEqualStrings("later", answer.body);
        for ([_][]const u8{ "x-before", "x-own", "access-control-allow-origin", "vary" }) |name| {
            try testing.expect(answer.header(name) != null);
        }
    }
    try testing.expectEqual(0, simulation.worker().exchanges.count);
}

/// The arena of each request is small here, and forms are read in spite of that.
fn FormRoutes(comptime Taker: type) type {
    return web.Router(Taker, .{ .limits = .{ .arena_bytes_max = 4096 } }, &.{.post("/", struct {
        fn take(_: *Taker, context: *web.Context) !void {
            const form = try context.form();
            try context.text(if (form.fields[0].value.len == 700_000) "all" else "some");
        }
    }.take)});
}

const WholeForms = struct {
    pub fn handleRequest(app: *WholeForms, request: *per.Request, response: *per.Response) !void {
        return FormRoutes(WholeForms).handle(app, request, response);
    }
};

/// Takes forms in a handler that could take bodies in pieces.
const GatheredForms = struct {
    pub fn handleRequest(app: *GatheredForms, request: *per.Request, response: *per.Response) !void {
        return FormRoutes(GatheredForms).handle(app, request, response);
    }

    pub fn handleBody(
        app: *GatheredForms,
        request: *per.Request,
        response: *per.Response,
        piece: []const u8,
        last: bool,
    ) !void {
        return FormRoutes(GatheredForms).handleBody(app, request, response, piece, last);
    }
};

test "a form is as large as a body may be, and the limit is the one that was set" {
    const body = try gpa.alloc(u8, "a=".len + 700_000 * "%41".len);
    defer gpa.free(body);
    for (body, 0..) |*byte, at| byte.* = if (at < 2) "a="[at] else "%41"[(at - 2) % 3];
    inline for (.{ WholeForms, GatheredForms }) |Taker| {
        // In memory there is a bound of its own, until a program sets it.
        const by_default: u16 = if (Taker == GatheredForms) 413 else 200;
        for ([_]struct { per.ServerConfig, u16 }{
            .{ .{}, by_default },
            .{ .{ .limits = .{ .body_bytes_max = 3_000_000 } }, by_default },
            .{ .{ .request_buffer_size = 3_000_000 }, 200 },
            .{ .{ .limits = .{ .body_bytes_max = 2_000_000 } }, 413 },
            .{ .{ .request_buffer_size = 2_000_000 }, 413 },
        }) |case| {
            var simulation: alike.Simulation(Taker) = try .initWith(gpa, case[0], .{ .seed = 1 }, .{});
            defer simulation.deinit();
            const answer = try simulation.request(.{
                .method = "POST",
                .headers = &.{try .init("Content-Type", "application/x-www-form-urlencoded")},
                .body = body,
            });
            try testing.expectEqual(case[1], answer.status);
            if (case[1] == 200) try testing.expectEqualStrings("all", answer.body);
        }
    }
}
