//! Answers an exchange of a worker that has another host, with a response that a function fills: the files of
//! a folder for instance, beside applications in C or Perl. The exchange is answered at once, and its host
//! hears nothing of it. Does not know: the worker's host.
const std = @import("std");
const assert = std.debug.assert;
const protocol = @import("protocol");
const engine = @import("server");
const Head = protocol.Head;
const Exchange = engine.Exchange;
const Outbox = engine.Outbox;
const Arena = @import("arena.zig").Arena;
const Detached = @import("detached.zig").Detached;
const Request = @import("request.zig").Request;
const response_file = @import("response.zig");
const Response = response_file.Response;

/// A request, and a response that only collects an answer. Never moves once it has begun.
pub const Draft = struct {
    arena: Arena,
    request: Request,
    response: Response,

    /// `head` is borrowed as long as the request is used.
    pub fn begin(draft: *Draft, pool: *engine.Pool, head: *const Head) void {
        draft.arena.begin(pool);
        const request = &draft.request;
        request.arena = draft.arena.allocator();
        request.begin(head);
        request.peer = "";
        request.peer_port = 0;
        request.secure = false;
        request.tunnel = null;
        request.round_us = 0;
        const response = &draft.response;
        response.arena = &draft.arena;
        response.body_bytes_max = std.math.maxInt(usize);
        response.link = &no_link;
        response.begin();
    }

    /// Gives the draft's memory back.
    pub fn end(draft: *Draft) void {
        draft.response.dropBody();
        draft.arena.reset();
    }
};

/// Asks `answerer.answer(*const Request, *Response) !bool` for an answer to a request whose body is of no
/// interest. False: there is none, and nothing has happened. An error of the answerer becomes a 500.
pub fn answer(worker: anytype, exchange: *Exchange, head: *const Head, answerer: anytype) bool {
    var draft: Draft = undefined;
    draft.begin(&worker.pool, head);
    defer draft.end();
    draft.request.peer = exchange.lane.peerAddress();
    draft.request.tunnel = exchange.lane.tls();
    draft.request.secure = draft.request.tunnel != null;
    draft.request.round_us = worker.clock.round_us;
    const response = &draft.response;
    const has_answer = answerer.answer(&draft.request, response) catch blk: {
        response.dropBody();
        response.begin();
        response.status = .internal_server_error;
        break :blk true;
    };
    if (!has_answer) return false;
    deliver(worker, exchange, response);
    return true;
}

fn deliver(worker: anytype, exchange: *Exchange, response: *Response) void {
    settle(worker, exchange);
    const ticket = exchange.ticket;
    send(worker, exchange, response) catch if (worker.find(ticket)) |same| worker.abort(same);
}

/// Answers an exchange with a draft that a thread has filled, over `pool`, which is not the worker's: its
/// content moves to the worker's pool. The loop reads nothing of its file. The draft has to be ended
/// afterwards.
pub fn deliverSlow(worker: anytype, exchange: *Exchange, response: *Response, pool: *engine.Pool) void {
    settle(worker, exchange);
    const ticket = exchange.ticket;
    sendSlow(worker, exchange, response, pool) catch if (worker.find(ticket)) |same| worker.abort(same);
}

/// Takes the exchange from its host: the answer is made here.
fn settle(worker: anytype, exchange: *Exchange) void {
    exchange.silence();
    // The answer needs no request body, which is read and forgotten when the response is complete.
    if (exchange.takeIntake()) |intake| worker.dropIntake(intake);
    exchange.pauseInput(worker.clock.now);
}

fn sendSlow(worker: anytype, exchange: *Exchange, response: *Response, pool: *engine.Pool) !void {
    const ticket = exchange.ticket;
    response.addLength(exchange.lane.session().asksForHead());
    const beginning = response.beginning();
    _ = try worker.start(exchange, beginning);
    if (beginning.end) return;
    const same = worker.find(ticket) orelse return; // the peer has gone
    const len = response.body.len();
    var chain: Outbox = .{};
    defer worker.dropOutput(&chain);
    try moveBody(response, pool, &worker.pool, &chain);
    _ = try worker.write(same, .{ .parts = .{ .chain = &chain, .len = len } }, .{ .last = true });
}

/// Moves a file, or parts of it, to a chain of another pool. On an error each place may have some of it.
fn moveBody(
    response: *Response,
    from: *engine.Pool,
    to: *engine.Pool,
    chain: *Outbox,
) error{OutOfMemory}!void {
    switch (response.body) {
        .file => |file| {
            assert(file.ownership == .owned);
            const range: engine.FileRange = .{ .fd = file.fd, .offset = file.offset, .len = file.len };
            try chain.appendFile(to, slow(range));
            response.body = .none;
        },
        .parts => |*parts| {
            var slices: [1][]const u8 = undefined;
            while (true) switch (parts.chain.front(&slices)) {
                .nothing => break,
                .bytes => {
                    try chain.append(to, slices[0]);
                    parts.chain.consume(from, slices[0].len);
                },
                .file => |range| {
                    try chain.appendFile(to, slow(range.*));
                    _ = parts.chain.popFile(from);
                },
            };
        },
        // content of these kinds went with the head, or belongs to no file
        .none, .bytes, .shared, .request, .blocks => unreachable,
    }
}

fn slow(range: engine.FileRange) engine.FileRange {
    var asking = range;
    asking.asks = true;
    return asking;
}

fn send(worker: anytype, exchange: *Exchange, response: *Response) !void {
    const ticket = exchange.ticket;
    response.addLength(exchange.lane.session().asksForHead());
    const beginning = response.beginning();
    _ = try worker.start(exchange, beginning);
    if (beginning.end) return;
    const same = worker.find(ticket) orelse return; // the peer has gone
    switch (response.body) {
        .blocks => |*blocks| _ = try worker.write(same, .{ .blocks = blocks }, .{ .last = true }),
        .request => |bytes| _ = try worker.write(same, .{ .bytes = bytes }, .{ .last = true }),
        .parts => |*parts| _ = try worker.write(same, .{
            .parts = .{ .chain = &parts.chain, .len = parts.len },
        }, .{ .last = true }),
        .file => |file| if (file.ownership == .owned) {
            const range = try @TypeOf(worker.*).rangeOf(file.fd, file.offset, file.len);
            _ = try worker.write(same, .{ .file = range }, .{ .last = true });
            response.body = .none; // the worker has the file now
        } else {
            _ = try worker.writeCopy(same, file.fd, file.offset, file.len);
        },
        .shared => |shared| {
            _ = try worker.write(same, .{ .held = shared }, .{ .last = true });
            response.body = .none; // the worker has the memory now
        },
        .none, .bytes => unreachable,
    }
}

/// The link of a response whose function only collects an answer.
const no_link: response_file.Link = .{
    .send = refuseSend,
    .inform = refuseInform,
    .abort = ignoreAbort,
    .detach = refuseDetach,
    .repeat = refuseRepeat,
    .limitIdle = refuseLimit,
    .offersWebSocket = offersNoWebSocket,
};

fn refuseSend(_: *Response, _: []const u8, _: bool) response_file.SendError!response_file.Flow {
    return error.Closed;
}

fn refuseInform(_: *Response, _: u16, _: []const protocol.http.Field) response_file.SendError!void {
    return error.Closed;
}

fn ignoreAbort(_: *Response) void {}

fn refuseDetach(_: *Response) error{ OutOfMemory, Closed }!Detached {
    return error.Closed;
}

fn refuseRepeat(_: *Response, _: []const u8, _: u32) response_file.SendError!void {
    return error.Closed;
}

fn refuseLimit(_: *Response, _: u32) response_file.SendError!void {
    return error.Closed;
}

fn offersNoWebSocket(_: *const Response) bool {
    return false;
}
