//! Handlers of tests that share a worker. The compiler makes the worker again for each type of handler, and
//! twice for a server over the kernel's sockets. Handlers with the same hooks stand behind one type here,
//! which calls them by pointers.
const std = @import("std");
const per = @import("peregrine");

/// The functions of a handler, and the handler. Hooks that may do nothing, as `handleAbort`, are in
/// every kind; the functions of hooks that a kind does not have are never called.
const Hooks = struct {
    gpa: std.mem.Allocator,
    object: *anyopaque,
    calls: *const Calls,

    const Calls = struct {
        request: *const fn (*anyopaque, *per.Request, *per.Response) anyerror!void,
        body: *const fn (*anyopaque, *per.Request, *per.Response, []const u8, bool) anyerror!void,
        drain: *const fn (*anyopaque, *per.Request, *per.Response) anyerror!void,
        abort: *const fn (*anyopaque, *per.Request, per.Reason) void,
        fail: *const fn (*anyopaque, *per.Request, *per.Response, anyerror) void,
        page: *const fn (*anyopaque, per.Status) ?per.ErrorPage,
        stop: *const fn (*anyopaque) void,
        wsConn: *const fn (*anyopaque, *per.ws.WebSocket) anyerror!void,
        wsFrame: *const fn (*anyopaque, *per.ws.WebSocket, *per.ws.Frame) anyerror!void,
        wsDrain: *const fn (*anyopaque, *per.ws.WebSocket) anyerror!void,
        wsDisconn: *const fn (*anyopaque, *per.ws.WebSocket) void,
        deinit: *const fn (*anyopaque, std.mem.Allocator) void,
    };
};

/// The functions of one type of handler.
fn CallsOf(comptime Handler: type) type {
    return struct {
        const makes_itself = @hasDecl(Handler, "init");
        const table: Hooks.Calls = .{
            .request = request,
            .body = body,
            .drain = drain,
            .abort = abort,
            .fail = fail,
            .page = page,
            .stop = stop,
            .wsConn = wsConn,
            .wsFrame = wsFrame,
            .wsDrain = wsDrain,
            .wsDisconn = wsDisconn,
            .deinit = deinit,
        };

        fn handlerAt(object: *anyopaque) *Handler {
            return @ptrCast(@alignCast(object));
        }

        fn request(object: *anyopaque, asked: *per.Request, response: *per.Response) anyerror!void {
            return handlerAt(object).handleRequest(asked, response);
        }

        fn body(
            object: *anyopaque,
            asked: *per.Request,
            response: *per.Response,
            piece: []const u8,
            last: bool,
        ) anyerror!void {
            if (!@hasDecl(Handler, "handleBody")) unreachable;
            return handlerAt(object).handleBody(asked, response, piece, last);
        }

        fn drain(object: *anyopaque, asked: *per.Request, response: *per.Response) anyerror!void {
            if (!@hasDecl(Handler, "handleDrain")) unreachable;
            return handlerAt(object).handleDrain(asked, response);
        }

        fn abort(object: *anyopaque, asked: *per.Request, reason: per.Reason) void {
            if (@hasDecl(Handler, "handleAbort")) handlerAt(object).handleAbort(asked, reason);
        }

        fn fail(object: *anyopaque, asked: *per.Request, response: *per.Response, err: anyerror) void {
            if (!@hasDecl(Handler, "handleError")) unreachable;
            handlerAt(object).handleError(asked, response, err);
        }

        fn page(object: *anyopaque, status: per.Status) ?per.ErrorPage {
            if (!@hasDecl(Handler, "handleErrorPage")) return null;
            return handlerAt(object).handleErrorPage(status);
        }

        fn stop(object: *anyopaque) void {
            if (@hasDecl(Handler, "handleStop")) handlerAt(object).handleStop();
        }

        fn wsConn(object: *anyopaque, socket: *per.ws.WebSocket) anyerror!void {
            if (@hasDecl(Handler, "handleWSConn")) return handlerAt(object).handleWSConn(socket);
        }

        fn wsFrame(object: *anyopaque, socket: *per.ws.WebSocket, frame: *per.ws.Frame) anyerror!void {
            if (!@hasDecl(Handler, "handleWSFrame")) unreachable;
            return handlerAt(object).handleWSFrame(socket, frame);
        }

        fn wsDrain(object: *anyopaque, socket: *per.ws.WebSocket) anyerror!void {
            if (@hasDecl(Handler, "handleWSDrain")) return handlerAt(object).handleWSDrain(socket);
        }

        fn wsDisconn(object: *anyopaque, socket: *per.ws.WebSocket) void {
            if (@hasDecl(Handler, "handleWSDisconn")) handlerAt(object).handleWSDisconn(socket);
        }

        fn deinit(object: *anyopaque, gpa: std.mem.Allocator) void {
            if (@hasDecl(Handler, "deinit")) handlerAt(object).deinit();
            if (!makes_itself) gpa.destroy(handlerAt(object));
        }
    };
}

/// The hooks of a kind, which call those of the handler that it stands for.
fn Passing(comptime Self: type) type {
    return struct {
        fn request(self: *Self, asked: *per.Request, response: *per.Response) anyerror!void {
            return self.hooks.calls.request(self.hooks.object, asked, response);
        }

        fn body(
            self: *Self,
            asked: *per.Request,
            response: *per.Response,
            piece: []const u8,
            last: bool,
        ) anyerror!void {
            return self.hooks.calls.body(self.hooks.object, asked, response, piece, last);
        }

        fn drain(self: *Self, asked: *per.Request, response: *per.Response) anyerror!void {
            return self.hooks.calls.drain(self.hooks.object, asked, response);
        }

        fn abort(self: *Self, asked: *per.Request, reason: per.Reason) void {
            self.hooks.calls.abort(self.hooks.object, asked, reason);
        }

        fn fail(self: *Self, asked: *per.Request, response: *per.Response, err: anyerror) void {
            self.hooks.calls.fail(self.hooks.object, asked, response, err);
        }

        fn page(self: *Self, status: per.Status) ?per.ErrorPage {
            return self.hooks.calls.page(self.hooks.object, status);
        }

        fn stop(self: *Self) void {
            self.hooks.calls.stop(self.hooks.object);
        }

        fn wsConn(self: *Self, socket: *per.ws.WebSocket) anyerror!void {
            return self.hooks.calls.wsConn(self.hooks.object, socket);
        }

        fn wsFrame(self: *Self, socket: *per.ws.WebSocket, frame: *per.ws.Frame) anyerror!void {
            return self.hooks.calls.wsFrame(self.hooks.object, socket, frame);
        }

        fn wsDrain(self: *Self, socket: *per.ws.WebSocket) anyerror!void {
            return self.hooks.calls.wsDrain(self.hooks.object, socket);
        }

        fn wsDisconn(self: *Self, socket: *per.ws.WebSocket) void {
            self.hooks.calls.wsDisconn(self.hooks.object, socket);
        }

        fn deinit(self: *Self) void {
            self.hooks.calls.deinit(self.hooks.object, self.hooks.gpa);
        }

        fn as(self: *Self, comptime Handler: type) *Handler {
            std.debug.assert(self.hooks.calls == &CallsOf(Handler).table);
            return @ptrCast(@alignCast(self.hooks.object));
        }
    };
}

/// Requests whole, responses whole.
pub const Plain = struct {
    hooks: Hooks,
    const passing = Passing(Plain);
    pub const handleRequest = passing.request;
    pub const handleAbort = passing.abort;
    pub const handleErrorPage = passing.page;
    pub const handleStop = passing.stop;
    pub const deinit = passing.deinit;
    pub const as = passing.as;
};

/// Errors get a response of the handler's own.
const Explaining = struct {
    hooks: Hooks,
    const passing = Passing(Explaining);
    pub const handleRequest = passing.request;
    pub const handleAbort = passing.abort;
    pub const handleError = passing.fail;
    pub const handleErrorPage = passing.page;
    pub const handleStop = passing.stop;
    pub const deinit = passing.deinit;
    pub const as = passing.as;
};

/// Responses in pieces.
const Draining = struct {
    hooks: Hooks,
    const passing = Passing(Draining);
    pub const handleRequest = passing.request;
    pub const handleDrain = passing.drain;
    pub const handleAbort = passing.abort;
    pub const handleErrorPage = passing.page;
    pub const handleStop = passing.stop;
    pub const deinit = passing.deinit;
    pub const as = passing.as;
};

/// Bodies of requests in pieces.
const Receiving = struct {
    hooks: Hooks,
    const passing = Passing(Receiving);
    pub const handleRequest = passing.request;
    pub const handleBody = passing.body;
    pub const handleAbort = passing.abort;
    pub const handleErrorPage = passing.page;
    pub const handleStop = passing.stop;
    pub const deinit = passing.deinit;
    pub const as = passing.as;
};

/// WebSockets.
const Talking = struct {
    hooks: Hooks,
    const passing = Passing(Talking);
    pub const handleRequest = passing.request;
    pub const handleAbort = passing.abort;
    pub const handleErrorPage = passing.page;
    pub const handleStop = passing.stop;
    pub const handleWSConn = passing.wsConn;
    pub const handleWSFrame = passing.wsFrame;
    pub const handleWSDrain = passing.wsDrain;
    pub const handleWSDisconn = passing.wsDisconn;
    pub const deinit = passing.deinit;
    pub const as = passing.as;
};

/// The kind of a handler, by the hooks whose presence alone changes what a server does.
pub fn Kind(comptime Handler: type) type {
    const tells = [_]bool{
        @hasDecl(Handler, "handleError"),
        @hasDecl(Handler, "handleDrain"),
        @hasDecl(Handler, "handleBody"),
        @hasDecl(Handler, "handleWSFrame"),
    };
    var found: type = Plain;
    var count = 0;
    for (tells, [_]type{ Explaining, Draining, Receiving, Talking }) |has, ThisKind| {
        if (has) found = ThisKind;
        if (has) count += 1;
    }
    if (count > 1) @compileError(@typeName(Handler) ++ " has hooks of two kinds: it shares no worker");
    return found;
}

fn make(comptime Handler: type, gpa: std.mem.Allocator, value: anytype) !Kind(Handler) {
    const calls = CallsOf(Handler);
    const object = if (calls.makes_itself) try Handler.init(gpa) else try gpa.create(Handler);
    if (!calls.makes_itself) object.* = value;
    return .{ .hooks = .{ .gpa = gpa, .object = object, .calls = &calls.table } };
}

/// Frees a handler that no server has got.
fn unmake(comptime Handler: type, kind: Kind(Handler)) void {
    const object: *Handler = @ptrCast(@alignCast(kind.hooks.object));
    if (CallsOf(Handler).makes_itself) object.deinit() else kind.hooks.gpa.destroy(object);
}

/// A server whose handler makes itself.
pub fn serve(
    comptime Handler: type,
    gpa: std.mem.Allocator,
    port: u16,
    config: per.ServerConfig,
) !*per.Server(Kind(Handler)) {
    return serveWith(Handler, gpa, port, config, {});
}

/// A server with a handler that the test has made.
pub fn serveWith(
    comptime Handler: type,
    gpa: std.mem.Allocator,
    port: u16,
    config: per.ServerConfig,
    value: if (CallsOf(Handler).makes_itself) void else Handler,
) !*per.Server(Kind(Handler)) {
    const kind = try make(Handler, gpa, value);
    errdefer unmake(Handler, kind);
    return .initWith(gpa, port, config, kind);
}

/// As `per.Simulation`.
pub fn Simulation(comptime Handler: type) type {
    return struct {
        const Self = @This();
        simulation: Shared,
        server: *Shared.Server,

        const Shared = per.Simulation(Kind(Handler));
        pub const Client = Shared.Client;
        pub const WebSocket = Shared.WebSocket;

        pub fn init(gpa: std.mem.Allocator, config: per.ServerConfig, options: per.io.Sim.Options) !Self {
            return initWith(gpa, config, options, {});
        }

        pub fn initWith(
            gpa: std.mem.Allocator,
            config: per.ServerConfig,
            options: per.io.Sim.Options,
            value: if (CallsOf(Handler).makes_itself) void else Handler,
        ) !Self {
            const kind = try make(Handler, gpa, value);
            errdefer unmake(Handler, kind);
            const simulation: Shared = try .initWith(gpa, config, options, kind);
            return .{ .simulation = simulation, .server = simulation.server };
        }

        pub fn deinit(self: *Self) void {
            self.simulation.deinit();
        }

        pub fn handler(self: *Self) *Handler {
            return self.simulation.handler().as(Handler);
        }

        pub fn network(self: *Self) *per.io.Sim {
            return self.simulation.network();
        }

        pub fn worker(self: *Self) *Shared.Server.HostWorker {
            return self.simulation.worker();
        }

        pub fn connect(self: *Self) !*Client {
            return self.simulation.connect();
        }

        pub fn exchange(self: *Self, bytes: []const u8) ![]const u8 {
            return self.simulation.exchange(bytes);
        }

        pub fn request(self: *Self, question: per.Question) !per.Answer {
            return self.simulation.request(question);
        }

        pub fn openWebSocket(self: *Self, question: per.Question) !*WebSocket {
            return self.simulation.openWebSocket(question);
        }

        pub fn step(self: *Self) !bool {
            return self.simulation.step();
        }

        pub fn settle(self: *Self) !void {
            return self.simulation.settle();
        }

        pub fn advance(self: *Self, ms: u64) !void {
            return self.simulation.advance(ms);
        }
    };
}
