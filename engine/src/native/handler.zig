//! The contract of a Zig handler, checked at compile time: a hook that is missing, misspelled or of the wrong
//! shape stops the compiler with a sentence that says what to write.
//!
//! A handler is one object for all worker threads. It has
//!
//!     pub fn handleRequest(self: *Handler, request: *Request, response: *Response) void
//!
//! and either makes itself, for `Server.init`,
//!
//!     pub fn init(allocator: std.mem.Allocator) !*Handler
//!     pub fn deinit(self: *Handler) void
//!
//! or is a value that the program gives to `Server.initWith`; its `deinit`, if it has one, is called when the
//! server is freed, and leaves the memory of the value itself alone.
//!
//! A handler may have these hooks, too (all run in the worker thread that owns the connection):
//!
//!     pub fn handleBody(self, request: *Request, response: *Response, piece: []const u8, last: bool) void
//!         Request bodies come in pieces instead of whole: `handleRequest` is called with the head, this with
//!         each piece, unless there is no body (`request.hasBody`). The response is sent when the call with
//!         `last` returns, or earlier by `response.send` or `response.end`.
//!     pub fn handleDrain(self, request: *Request, response: *Response) void
//!         After `response.write` answered `.wait`: there is room again.
//!     pub fn handleAbort(self, request: *Request, reason: Reason) void
//!         The client went before the response was complete. The last call for this request.
//!
//!     pub fn handleError(self, request: *Request, response: *Response, err: anyerror) void
//!         Another hook has returned an error. `response` is empty but for its status, that of
//!         `Status.ofError`, and headers that were kept (`response.keepHeaders`); what this hook makes of it
//!         is sent. Without it the error is logged unless it is the client's mistake, and the client gets
//!         that status and its text. Once the response has started it is cut, so that the client can tell
//!         that it is not complete.
//!
//!     pub fn handleErrorPage(self, status: Status) ?ErrorPage
//!         The page that browsers show for a status of 400 and more without a body of the handler's: of
//!         `error.NotFound` without `handleError`, of `answerStatus`, of the ready-made file servers, and of
//!         requests that the engine refuses, for which no other hook is called. Null: status and its text.
//!
//!     pub fn handleStop(self) void
//!         The server stops, and waits for the responses that are open: called once, by one of the workers.
//!         Streams that would go on for ever end here.
//!
//! `handleRequest`, `handleBody` and `handleDrain` may return `!void`.
//!
//! The hooks of WebSockets are in ws.zig.
//!
//! Does not know: how a worker calls them (host.zig, sockets.zig).
const std = @import("std");
const Request = @import("request.zig").Request;
const Response = @import("response.zig").Response;
const ErrorPage = @import("response.zig").ErrorPage;
const Status = @import("status.zig").Status;
const Reason = @import("server").Reason;
const ws = @import("ws.zig");

const Hook = struct {
    name: []const u8,
    /// Types of the parameters behind `self`.
    parameters: []const type,
    /// How a program writes the parameters, behind `self`; `per` is the package.
    text: []const u8,
    required: bool = false,
    /// The first parameter may be `ws.Id`, the number of the WebSocket, instead of a pointer to it.
    by_number: bool = false,
    /// The hook may return an error.
    fallible: bool = false,
    Returned: type = void,
    /// The return type of the hook, as a program writes it.
    returned: []const u8 = "void",
};

const hooks = [_]Hook{
    .{
        .name = "handleRequest",
        .parameters = &.{ *Request, *Response },
        .text = "request: *per.Request, response: *per.Response",
        .required = true,
        .fallible = true,
    },
    .{
        .name = "handleBody",
        .parameters = &.{ *Request, *Response, []const u8, bool },
        .text = "request: *per.Request, response: *per.Response, piece: []const u8, last: bool",
        .fallible = true,
    },
    .{
        .name = "handleDrain",
        .parameters = &.{ *Request, *Response },
        .text = "request: *per.Request, response: *per.Response",
        .fallible = true,
    },
    .{
        .name = "handleAbort",
        .parameters = &.{ *Request, Reason },
        .text = "request: *per.Request, reason: per.Reason",
    },
    .{
        .name = "handleError",
        .parameters = &.{ *Request, *Response, anyerror },
        .text = "request: *per.Request, response: *per.Response, err: anyerror",
    },
    .{
        .name = "handleErrorPage",
        .parameters = &.{Status},
        .text = "status: per.Status",
        .Returned = ?ErrorPage,
        .returned = "?per.ErrorPage",
    },
    .{
        .name = "handleStop",
        .parameters = &.{},
        .text = "",
    },
    .{
        .name = "handleWSConn",
        .parameters = &.{*ws.WebSocket},
        .text = "socket: *per.ws.WebSocket",
        .by_number = true,
        .fallible = true,
    },
    .{
        .name = "handleWSFrame",
        .parameters = &.{ *ws.WebSocket, *ws.Frame },
        .text = "socket: *per.ws.WebSocket, frame: *per.ws.Frame",
        .by_number = true,
        .fallible = true,
    },
    .{
        .name = "handleWSDrain",
        .parameters = &.{*ws.WebSocket},
        .text = "socket: *per.ws.WebSocket",
        .by_number = true,
        .fallible = true,
    },
    .{
        .name = "handleWSDisconn",
        .parameters = &.{*ws.WebSocket},
        .text = "socket: *per.ws.WebSocket",
        .by_number = true,
    },
};

/// Stops compilation if `Handler` does not keep the contract.
pub fn check(comptime Handler: type) void {
    if (comptime fault(Handler)) |text| @compileError(text);
}

/// Like `check`, for a handler that the server makes.
pub fn checkInit(comptime Handler: type) void {
    check(Handler);
    if (comptime initFault(Handler)) |text| @compileError(text);
}

/// Like `check`, for a handler that the program gives to a server.
pub fn checkValue(comptime Handler: type) void {
    check(Handler);
    if (comptime valueFault(Handler)) |text| @compileError(text);
}

/// The fault of a handler, as a sentence that says what to write; null if it has none.
pub fn fault(comptime Handler: type) ?[]const u8 {
    const name = @typeName(Handler);
    if (@typeInfo(Handler) != .@"struct") return name ++ " has to be a struct";
    // Misspelled hooks come first: they would be reported as missing otherwise.
    for (@typeInfo(Handler).@"struct".decl_names) |declared| {
        const looks_like_one = std.mem.startsWith(u8, declared, "handle") and
            @typeInfo(@TypeOf(@field(Handler, declared))) == .@"fn";
        if (looks_like_one and !isHook(declared)) {
            return name ++ "." ++ declared ++
                " is no hook of a handler, so nobody would call it; hooks are " ++ hookNames() ++
                ". Something else of that name should not be pub";
        }
    }
    const deinit: Hook = .{
        .name = "deinit",
        .parameters = &.{},
        .text = "",
        .required = makesItself(Handler),
    };
    if (hookFault(Handler, deinit)) |text| return text;
    for (hooks) |hook| if (hookFault(Handler, hook)) |text| return text;
    if (!@hasDecl(Handler, "handleWSFrame")) for (hooks) |hook| {
        if (std.mem.startsWith(u8, hook.name, "handleWS") and @hasDecl(Handler, hook.name)) {
            return name ++ " has " ++ hook.name ++ ", so it needs handleWSFrame as well";
        }
    };
    return null;
}

/// Whether a handler has the `init` that `Server.init` calls; it frees itself in `deinit` then.
pub fn makesItself(comptime Handler: type) bool {
    return @hasDecl(Handler, "init") and isInit(Handler);
}

/// Why `Server.init` cannot make a handler, as a sentence; null if it can.
pub fn initFault(comptime Handler: type) ?[]const u8 {
    if (makesItself(Handler)) return null;
    const name = @typeName(Handler);
    const wanted = "`pub fn init(allocator: std.mem.Allocator) !*" ++ name ++ "`";
    const otherwise = "; one that the program makes is given to Server.initWith";
    if (!@hasDecl(Handler, "init")) return name ++ " needs " ++ wanted ++ otherwise;
    const found = shown(@TypeOf(Handler.init));
    return name ++ ".init has to be " ++ wanted ++ ", not " ++ found ++ otherwise;
}

/// Why a handler cannot be given to `Server.initWith`, as a sentence; null if it can.
pub fn valueFault(comptime Handler: type) ?[]const u8 {
    if (!makesItself(Handler)) return null;
    return @typeName(Handler) ++ ".init makes the handler, and its deinit frees it: use Server.init, " ++
        "or leave init out and give a value to Server.initWith";
}

fn hookFault(comptime Handler: type, comptime hook: Hook) ?[]const u8 {
    const name = @typeName(Handler);
    const parameters = "self: *" ++ name ++ (if (hook.text.len > 0) ", " ++ hook.text else "");
    const signature = "`pub fn " ++ hook.name ++ "(" ++ parameters ++ ") " ++ hook.returned ++ "`" ++
        if (hook.fallible)
            " (or `!void`)"
        else
            "";
    if (!@hasDecl(Handler, hook.name)) return if (hook.required) name ++ " needs " ++ signature else null;
    const Found = @TypeOf(@field(Handler, hook.name));
    if (isFunction(Found, Handler, hook, hook.parameters)) return null;
    if (hook.by_number and isFunction(Found, Handler, hook, &[_]type{ws.Id} ++ hook.parameters[1..])) {
        return null;
    }
    return name ++ "." ++ hook.name ++ " has to be " ++ signature ++ ", not " ++ shown(Found);
}

/// A function's type in few words: the name of an inferred error set cannot be read.
fn shown(comptime Found: type) []const u8 {
    const info = switch (@typeInfo(Found)) {
        .@"fn" => |info| info,
        else => return @typeName(Found),
    };
    var text: []const u8 = "fn (";
    for (info.param_types, 0..) |Parameter, number| {
        const name = if (Parameter) |Known| @typeName(Known) else "anytype";
        text = text ++ (if (number > 0) ", " else "") ++ name;
    }
    const Returned = info.return_type orelse return text ++ ") anytype";
    return text ++ ") " ++ switch (@typeInfo(Returned)) {
        .error_union => |result| "!" ++ @typeName(result.payload),
        else => @typeName(Returned),
    };
}

/// Whether a hook of a WebSocket takes its number in place of a pointer.
pub fn takesNumber(comptime Function: type) bool {
    return @typeInfo(Function).@"fn".param_types[1] == ws.Id;
}

fn isFunction(
    comptime Found: type,
    comptime Handler: type,
    comptime hook: Hook,
    comptime parameters: []const type,
) bool {
    const info = switch (@typeInfo(Found)) {
        .@"fn" => |info| info,
        else => return false,
    };
    const returns_it = info.return_type == hook.Returned or
        (hook.fallible and isErrorOrVoid(info.return_type.?));
    if (!returns_it or info.param_types.len != parameters.len + 1) return false;
    // `anytype` has no type yet; it fits whatever is passed.
    if (info.param_types[0]) |Self| if (Self != *Handler and Self != *const Handler) return false;
    for (info.param_types[1..], parameters) |given, wanted| if (given) |Given| {
        if (Given != wanted and !isConstOf(Given, wanted)) return false;
    };
    return true;
}

fn isErrorOrVoid(comptime Returned: type) bool {
    return switch (@typeInfo(Returned)) {
        .error_union => |result| result.payload == void,
        else => false,
    };
}

/// The error that a hook has returned; null if it returned none, or cannot.
pub inline fn failure(returned: anytype) ?anyerror {
    if (@TypeOf(returned) == void) return null;
    return if (returned) |_| null else |err| err;
}

/// Whether a hook takes `*const T` where it is given a `*T`.
fn isConstOf(comptime Given: type, comptime Wanted: type) bool {
    const given = @typeInfo(Given);
    const wanted = @typeInfo(Wanted);
    if (given != .pointer or wanted != .pointer or wanted.pointer.size != .one) return false;
    return Given == *const wanted.pointer.child;
}

fn isInit(comptime Handler: type) bool {
    const info = switch (@typeInfo(@TypeOf(Handler.init))) {
        .@"fn" => |info| info,
        else => return false,
    };
    if (info.param_types.len != 1 or info.param_types[0] != std.mem.Allocator) return false;
    const Result = info.return_type orelse return false;
    return switch (@typeInfo(Result)) {
        .error_union => |result| result.payload == *Handler,
        else => false,
    };
}

fn isHook(comptime name: []const u8) bool {
    for (hooks) |hook| if (std.mem.eql(u8, hook.name, name)) return true;
    return false;
}

fn hookNames() []const u8 {
    comptime var text: []const u8 = hooks[0].name;
    inline for (hooks[1..]) |hook| text = text ++ ", " ++ hook.name;
    return text;
}

const testing = std.testing;

/// Functions that every handler of the tests below has.
fn Plain(comptime Self: type) type {
    return struct {
        fn init(_: std.mem.Allocator) !*Self {
            return error.NotForReal;
        }
        fn deinit(_: *Self) void {}
        fn handleRequest(_: *Self, _: *Request, _: *Response) void {}
    };
}

fn expectFault(comptime Handler: type, comptime part: []const u8) !void {
    try expectText(comptime fault(Handler), part);
}

fn expectText(comptime said: ?[]const u8, comptime part: []const u8) !void {
    const text = said orelse return error.TestExpectedFault;
    if (std.mem.find(u8, text, part) == null) {
        std.debug.print("{s}\n", .{text});
        return error.TestUnexpectedResult;
    }
}

test "a complete handler has no fault, may take self as const and return errors" {
    const Complete = struct {
        const Self = @This();
        pub const init = Plain(Self).init;
        pub const deinit = Plain(Self).deinit;
        pub fn handleRequest(_: *const Self, _: *const Request, _: *Response) void {}
        pub fn handleBody(_: *Self, _: *Request, _: *Response, _: []const u8, _: bool) error{Full}!void {}
        pub fn handleDrain(_: *Self, _: *Request, _: *Response) anyerror!void {}
        pub fn handleAbort(_: *Self, _: *Request, _: Reason) void {}
        pub fn handleError(_: *Self, _: *const Request, _: *Response, _: anyerror) void {}
        pub fn handleErrorPage(_: *const Self, _: Status) ?ErrorPage {
            return null;
        }
        pub fn handleStop(_: *Self) void {}
        pub fn handleWSConn(_: *Self, _: std.posix.socket_t) void {}
        pub fn handleWSFrame(_: *Self, _: *ws.WebSocket, _: *ws.Frame) !void {}
        pub fn handleWSDrain(_: *Self, _: std.posix.socket_t) void {}
        pub fn handleWSDisconn(_: *Self, _: *ws.WebSocket) void {}
        // Declarations that are no functions are not taken for hooks.
        pub const handled_max = 5;
        pub const handles = struct {};
    };
    try testing.expectEqual(null, comptime fault(Complete));
}

test "a missing or misspelled hook is named, with the declaration to write" {
    const Empty = struct {};
    try expectText(initFault(Empty), "needs `pub fn init(allocator: std.mem.Allocator) !*");
    try testing.expectEqual(null, comptime valueFault(Empty));
    try expectFault(Empty, "needs `pub fn handleRequest(self: *");
    const NoRequest = struct {
        const Self = @This();
        pub const init = Plain(Self).init;
        pub const deinit = Plain(Self).deinit;
    };
    try testing.expectEqual(null, comptime initFault(NoRequest));
    try expectText(valueFault(NoRequest), "give a value to Server.initWith");
    try expectFault(NoRequest, ", request: *per.Request, response: *per.Response) void`");
    const Typo = struct {
        const Self = @This();
        pub const init = Plain(Self).init;
        pub const deinit = Plain(Self).deinit;
        pub const handleRequest = Plain(Self).handleRequest;
        pub fn handleDrian(_: *Self, _: *Request, _: *Response) void {}
    };
    try expectFault(Typo, "handleDrian is no hook of a handler");
    const Page = struct {
        pub fn handleRequest(_: *@This(), _: *Request, _: *Response) void {}
        pub fn handleErrorPage(_: *@This(), _: Status) []const u8 {
            return "";
        }
    };
    try expectFault(Page, ", status: per.Status) ?per.ErrorPage`, not fn (");
    const Shape = struct {
        const Self = @This();
        pub const init = Plain(Self).init;
        pub const deinit = Plain(Self).deinit;
        pub fn handleRequest(_: *Self, _: *Request, _: *Response) u32 {
            return 0;
        }
    };
    try expectFault(Shape, "has to be `pub fn handleRequest(self: *");
    try expectFault(Shape, "void` (or `!void`), not fn (");
    const Fails = struct {
        const Self = @This();
        pub const init = Plain(Self).init;
        pub const deinit = Plain(Self).deinit;
        pub const handleRequest = Plain(Self).handleRequest;
        pub fn handleAbort(_: *Self, _: *Request, _: Reason) !void {}
    };
    try expectFault(Fails, "reason: per.Reason) void`, not");
    try expectFault(Fails, ") !void");
    const TypoOnly = struct {
        pub fn handleRequets(_: *@This(), _: *Request, _: *Response) !void {}
    };
    try expectFault(TypoOnly, "handleRequets is no hook of a handler");
    const Incomplete = struct {
        const Self = @This();
        pub const init = Plain(Self).init;
        pub const deinit = Plain(Self).deinit;
        pub const handleRequest = Plain(Self).handleRequest;
        pub fn handleWSConn(_: *Self, _: *ws.WebSocket) void {}
    };
    try expectFault(Incomplete, "needs handleWSFrame as well");
    const Frameless = struct {
        const Self = @This();
        pub const init = Plain(Self).init;
        pub const deinit = Plain(Self).deinit;
        pub const handleRequest = Plain(Self).handleRequest;
        pub fn handleWSFrame(_: *Self, _: *ws.WebSocket) void {}
    };
    try expectFault(Frameless, ", socket: *per.ws.WebSocket, frame: *per.ws.Frame) void`");
    const Value = struct {
        const Self = @This();
        pub fn init(_: std.mem.Allocator) Self {
            return .{};
        }
        pub const handleRequest = Plain(Self).handleRequest;
    };
    try testing.expectEqual(null, comptime fault(Value));
    try expectText(initFault(Value), ".init has to be");
    try expectText(initFault(Value), "not fn (");
}
