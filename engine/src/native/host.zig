//! The host for Zig handlers: turns calls by a worker into calls of the handler's hooks, and the handler's
//! answers into commands. One per worker; all share one handler. The life of a call is in call.zig.
//! Does not know: bytes on the wire, sockets, threads.
const std = @import("std");
const assert = std.debug.assert;
const protocol = @import("protocol");
const Head = protocol.Head;
const Lines = protocol.http.Lines;
const Field = protocol.http.Field;
const contract = @import("handler.zig");
const response_file = @import("response.zig");
const engine = @import("server");
const Call = @import("call.zig").Call;
const Command = @import("server").Command;
const Detached = @import("detached.zig").Detached;
const ErrorPage = response_file.ErrorPage;
const Exchange = @import("server").Exchange;
const Flow = response_file.Flow;
const Inbox = @import("server").Inbox;
const Level = @import("server").Level;
const NativeSockets = @import("sockets.zig").NativeSockets;
const SocketOptions = @import("sockets.zig").Options;
const Message = @import("server").Message;
const Outbox = @import("server").Outbox;
const Reason = @import("server").Reason;
const RefusalPage = protocol.early.Page;
const Response = response_file.Response;
const SendError = response_file.SendError;
const Slab = @import("server").Slab;
const Start = @import("server").Start;
const Status = @import("status.zig").Status;
const WebSocketClose = @import("server").WebSocket.Close;
const WebSocketKind = @import("server").WebSocket.Kind;

const log = std.log.scoped(.peregrine);
const complain = @import("complain.zig").complain;

/// The host of exchanges that a Zig handler answers. Its calls are described in worker.zig.
/// `Owner.HostWorker` is the type of its worker, which may have other hosts as well.
pub fn NativeHost(comptime Owner: type, comptime Handler: type) type {
    contract.check(Handler);
    return struct {
        const Self = @This();
        const Worker = Owner.HostWorker;
        const Sockets = NativeSockets(Worker, Handler);
        pub const demand: engine.Demand = .{
            .pace = .push,
            .body = if (streams_bodies) .streamed else .whole,
        };
        const streams_bodies = @hasDecl(Handler, "handleBody");
        const refills = @hasDecl(Handler, "handleDrain");

        handler: *Handler,
        /// Set before the first request, by the owner of host and worker.
        worker: *Worker,
        inbox: *Inbox,
        /// The largest response body, and the most that may wait for a slow client, in bytes.
        response_bytes_max: usize,
        /// The largest body that `Request.gatherBody` puts together, in bytes.
        request_bytes_max: usize = 1024 * 1024,
        calls: Slab(Call),
        sockets: Sockets,
        /// The worker has stopped: nothing is left.
        ended: bool = false,

        /// `socket_options.queued_bytes_max` is the bound on responses as well.
        pub fn init(
            gpa: std.mem.Allocator,
            handler: *Handler,
            worker: *Worker,
            inbox: *Inbox,
            socket_options: SocketOptions,
        ) Self {
            return .{
                .handler = handler,
                .worker = worker,
                .inbox = inbox,
                .response_bytes_max = socket_options.queued_bytes_max,
                .calls = .init(gpa, .plain),
                .sockets = .init(gpa, handler, worker, socket_options),
            };
        }

        /// To be called before the worker's `deinit`: memory of calls comes from the worker's pool.
        pub fn deinit(host: *Self) void {
            var calls = host.calls.iterator();
            while (calls.next()) |call| host.release(call);
            host.calls.deinit();
            host.sockets.deinit();
        }

        // ---- Calls by the worker

        /// Makes a request and a response of an exchange, and calls the handler as soon as it may have them.
        pub fn request(host: *Self, worker: *Worker, exchange: *Exchange, head: *const Head) void {
            assert(worker == host.worker);
            const slot = host.calls.add() catch return worker.abort(exchange);
            const call = slot.item;
            call.begin(slot.ticket, exchange, head, &worker.clients.current, &worker.pool);
            call.host = host;
            call.request.round_us = worker.clock.round_us;
            call.response.link = &link;
            call.response.body_bytes_max = host.response_bytes_max;
            exchange.word = .of(call);
            takeBody(call) catch return host.refuse(call, .service_unavailable);
            host.introduce(call);
        }

        /// Lets the handler have the body in pieces, or takes it over with the request.
        fn takeBody(call: *Call) error{OutOfMemory}!void {
            const exchange = call.exchange.?;
            if (!streams_bodies) {
                const intake = exchange.takeIntake() orelse return;
                return call.keepIntake(intake);
            }
            if (exchange.inputComplete()) return;
            call.awaits_body = true;
            try call.keepHead();
        }

        /// Hands the next piece on to `handleBody`.
        pub fn body(host: *Self, _: *Worker, exchange: *Exchange, bytes: []const u8) void {
            // Null: the request was answered already, and its remaining body is not wanted.
            const call = Call.of(exchange) orelse return;
            if (call.request.gathers) return host.gather(call, bytes);
            host.piece(call, bytes, false);
        }

        /// Adds a piece to a body that the handler wants whole.
        fn gather(host: *Self, call: *Call, bytes: []const u8) void {
            if (call.custody == .detached) return; // a detached request takes no more of the body
            const room = host.gatherMax(call) - call.gathered.unread().len;
            if (bytes.len > room) return host.refuse(call, .content_too_large);
            call.gathered.append(&host.worker.pool, bytes) catch
                return host.refuse(call, .service_unavailable);
            host.worker.read(call.exchange.?) catch host.refuse(call, .service_unavailable);
        }

        fn gatherMax(host: *const Self, call: *const Call) usize {
            return call.request.gather_max orelse host.request_bytes_max;
        }

        /// Keeps the trailers for `findTrailer`.
        pub fn trailers(host: *Self, _: *Worker, exchange: *Exchange, head: *const Head) void {
            const call = Call.of(exchange) orelse return;
            call.keepTrailers(head) catch host.refuse(call, .service_unavailable);
        }

        /// Tells `handleBody` that it has the last piece.
        pub fn bodyEnd(host: *Self, _: *Worker, exchange: *Exchange) void {
            const call = Call.of(exchange) orelse return;
            assert(call.awaits_body);
            call.awaits_body = false;
            call.request.body = call.gathered.unread();
            host.piece(call, call.request.body, true);
        }

        /// Continues the call that has waited for room: `handleDrain`, or parts of a detached answer.
        pub fn drained(host: *Self, _: *Worker, exchange: *Exchange) void {
            if (exchange.openWebSocket() != null) return host.sockets.drained(exchange);
            const call = Call.of(exchange) orelse return;
            if (call.response.state == .blocked) call.response.state = .streaming;
            switch (call.custody) {
                .detached => host.unpark(call),
                .waiting => if (refills) {
                    call.custody = .handler;
                    host.returned(
                        call,
                        "handleDrain",
                        host.handler.handleDrain(&call.request, &call.response),
                    );
                },
                .server, .handler, .orphaned => {},
            }
        }

        /// Does nothing, because the call ended with its response.
        pub fn finished(_: *Self, _: *Worker, exchange: *Exchange) void {
            assert(exchange.word == .none); // a call ends when its response is handed over
        }

        /// Tells `handleAbort`, and frees the call.
        pub fn aborted(host: *Self, _: *Worker, exchange: *Exchange, reason: Reason) void {
            const call = Call.of(exchange) orelse return;
            call.exchange = null;
            call.response.state = .lost;
            switch (call.custody) {
                .server => host.release(call),
                .handler => call.custody = .{ .orphaned = reason },
                .orphaned => unreachable,
                .waiting, .detached => host.tellAborted(call, reason),
            }
        }

        /// Calls `handleWSFrame`.
        pub fn message(
            host: *Self,
            _: *Worker,
            exchange: *Exchange,
            kind: WebSocketKind,
            bytes: []const u8,
        ) void {
            host.sockets.message(exchange, kind, bytes);
        }

        /// Calls `handleWSDisconn`.
        pub fn closed(host: *Self, _: *Worker, exchange: *Exchange, how: WebSocketClose, _: ?Reason) void {
            host.sockets.closed(exchange, how);
        }

        /// Handlers are not told: they may still answer.
        pub fn halfClosed(_: *Self, _: *Worker, _: *Exchange) void {}

        /// Lets `poll` answer false.
        pub fn stopped(host: *Self, _: *Worker) void {
            host.ended = true;
        }

        /// Whether other threads have sent commands; handlers are called at once, and never wait.
        pub fn waiting(host: *const Self) bool {
            return host.inbox.hasMail();
        }

        /// Writes the worker's notices to std.log.
        pub fn notice(_: *Self, _: *Worker, about: ?*Exchange, level: Level, text: []const u8) void {
            var buffer: [320]u8 = undefined;
            const line = if (about) |exchange|
                std.fmt.bufPrint(&buffer, "{f}: {s}", .{ exchange.lane.requestName(), text }) catch text
            else
                text;
            switch (level) {
                .err => complain("{s}", .{line}),
                .warn => log.warn("{s}", .{line}),
                .info => log.info("{s}", .{line}),
                .debug => log.debug("{s}", .{line}),
            }
        }

        // ---- Calls of the handler

        fn introduce(host: *Self, call: *Call) void {
            call.custody = .handler;
            host.returned(call, "handleRequest", host.handler.handleRequest(&call.request, &call.response));
        }

        fn piece(host: *Self, call: *Call, bytes: []const u8, last: bool) void {
            if (!streams_bodies) unreachable;
            // A detached answer needs no further body, and the handler that would get it has returned.
            if (call.custody == .detached) return;
            call.custody = .handler;
            host.returned(
                call,
                "handleBody",
                host.handler.handleBody(&call.request, &call.response, bytes, last),
            );
        }

        /// A hook has returned, maybe with an error.
        inline fn returned(host: *Self, call: *Call, comptime hook: []const u8, result: anytype) void {
            if (contract.failure(result)) |err| host.failed(call, hook, err);
            host.settle(call);
        }

        const logged_path_bytes_max = 200;

        /// A hook has failed. A prepared response is not sent; a response on its way is cut, so that the
        /// client sees that it is not complete.
        noinline fn failed(host: *Self, call: *Call, hook: []const u8, err: anyerror) void {
            const response = &call.response;
            response.upgrade = null;
            // No other thread may answer the request any more, detached or not.
            if (call.custody == .detached) call.custody = .handler;
            const status: Status = .ofError(err);
            const has_started = response.state != .collecting;
            const explains = @hasDecl(Handler, "handleError");
            if (explains) {
                response.fail(status) catch {}; // the response has started
                host.handler.handleError(&call.request, response, err);
                if (call.custody == .detached) return; // an answer that comes later
            } else if (has_started or status == .internal_server_error) logFailure(call, hook, err);
            switch (response.state) {
                .collecting => host.answerFailure(call, status, explains),
                .streaming, .blocked => if (has_started)
                    host.cut(call)
                else
                    host.finish(call, .{ .bytes = "" }) catch host.cut(call),
                .ended, .lost => return,
            }
            response.state = .ended;
        }

        /// The response that `handleError` has made, or the status and its text or page, with kept headers.
        fn answerFailure(host: *Self, call: *Call, status: Status, explained: bool) void {
            const response = &call.response;
            if (!explained) response.fail(status) catch unreachable;
            const is_made = response.body != .none or response.count > response.kept.count or
                response.status != status;
            if (!is_made) response.answerStatus(status) catch return host.replace(call, status);
            host.sendWhole(call) catch |err| {
                log.warn("response not sent: {t}", .{err});
                host.replace(call, .internal_server_error);
            };
        }

        fn logFailure(call: *Call, hook: []const u8, err: anyerror) void {
            const stage = switch (call.response.state) {
                .collecting => "before the response started",
                .streaming, .blocked => "in the middle of the response",
                .ended => "after the response",
                .lost => "after the client had gone",
            };
            const head = call.request.head;
            const path = call.request.getPath();
            complain("{s} {s}: {s} returned error.{t} {s}", .{
                head.method_text.of(head.text), path[0..@min(path.len, logged_path_bytes_max)], hook, err,
                stage,
            });
        }

        /// A hook has returned: sends its response, or leaves the call waiting.
        fn settle(host: *Self, call: *Call) void {
            switch (call.custody) {
                .server, .waiting => unreachable,
                .orphaned => |reason| {
                    if (call.response.upgrade) |upgrade| host.sockets.neverOpened(upgrade.context);
                    return host.tellAborted(call, reason);
                },
                .detached => return,
                .handler => {},
            }
            if (call.response.upgrade) |upgrade| return host.openSocket(call, upgrade);
            const more_input = call.awaits_body;
            if (more_input and host.isTooLong(call)) return host.refuse(call, .content_too_large);
            switch (call.response.state) {
                .lost => unreachable, // orphaned
                .ended => host.release(call),
                .collecting => if (more_input)
                    host.wait(call)
                else if (call.response.lacks_piece)
                    host.refuse(call, .internal_server_error)
                else
                    host.answer(call),
                .streaming => if (more_input) host.wait(call) else host.close(call),
                .blocked => if (more_input or refills) host.wait(call) else host.close(call),
            }
        }

        /// Whether the client has announced a longer body than may be put together.
        fn isTooLong(host: *const Self, call: *const Call) bool {
            if (!call.request.gathers or call.response.state != .collecting) return false;
            return switch (call.request.head.body) {
                .counted => |length| length > host.gatherMax(call),
                .chunked, .none => false,
            };
        }

        /// The request becomes a WebSocket, and the call is over.
        fn openSocket(host: *Self, call: *Call, upgrade: Response.Upgrade) void {
            const exchange = call.exchange.?;
            const response = &call.response;
            if (response.state == .collecting) {
                var fields: [Response.headers_max]Field = undefined;
                var lines = response.lines.iterator();
                var count: usize = 0;
                while (lines.next()) |field| : (count += 1) fields[count] = field;
                if (host.sockets.open(exchange, host.inbox, upgrade, fields[0..count])) |_| {
                    call.exchange = null;
                    return host.release(call);
                } else |err| log.warn("WebSocket not opened: {t}", .{err});
            }
            host.sockets.neverOpened(upgrade.context);
            host.refuse(call, .internal_server_error);
        }

        fn wait(host: *Self, call: *Call) void {
            call.custody = .waiting;
            host.prepareWait(call) catch host.refuse(call, .service_unavailable);
        }

        fn prepareWait(host: *Self, call: *Call) error{OutOfMemory}!void {
            // The hooks to come may read the request.
            try call.keepHead();
            // Says 100 Continue if the client waits for it.
            if (call.awaits_body) try host.worker.read(call.exchange.?);
        }

        /// Tells the handler that the client is gone; nothing comes after that.
        fn tellAborted(host: *Self, call: *Call, reason: Reason) void {
            if (@hasDecl(Handler, "handleAbort")) host.handler.handleAbort(&call.request, reason);
            host.release(call);
        }

        fn release(host: *Self, call: *Call) void {
            if (call.exchange) |exchange| exchange.word = .none;
            while (call.parked.pop()) |parked| host.inbox.free(parked);
            call.end();
            call.gathered.deinit(&host.worker.pool);
            if (call.intake) |intake| host.worker.dropIntake(intake);
            host.calls.remove(call);
        }

        // ---- Whole answers

        /// Sends the collected response, which ends the call.
        fn answer(host: *Self, call: *Call) void {
            host.sendWhole(call) catch |err| {
                log.warn("response not sent: {t}", .{err});
                host.replace(call, .internal_server_error);
            };
            host.release(call);
        }

        /// On an error nothing was sent, unless the call is lost as well.
        fn sendWhole(host: *Self, call: *Call) SendError!void {
            const response = &call.response;
            const head_method = call.request.method == .HEAD;
            if (response.lines.found.content_length) |promised| if (!head_method) {
                const len = response.body.len();
                if (len < promised) return error.TooShort;
                if (len > promised) return error.TooLong;
            };
            response.addLength(head_method);
            const start = response.beginning();
            if (start.end) {
                try host.finish(call, .{ .start = &start });
            } else {
                _ = try host.worker.start(call.exchange.?, start);
                // From here on a failure can only cut the connection.
                host.finish(call, .body) catch host.cut(call);
            }
        }

        const Last = union(enum) { start: *const Start, bytes: []const u8, body };

        /// Gives the last command of an exchange, which may be gone afterwards: so the call lets go of the
        /// exchange first. On an error the call has the exchange again.
        inline fn finish(host: *Self, call: *Call, last: Last) SendError!void {
            const exchange = call.exchange orelse return error.Closed;
            const worker = host.worker;
            call.exchange = null;
            exchange.word = .none;
            errdefer {
                call.exchange = exchange;
                exchange.word = .of(call);
            }
            _ = switch (last) {
                .start => |start| try worker.start(exchange, start.*),
                .bytes => |bytes| try worker.write(exchange, .{ .bytes = bytes }, .{ .last = true }),
                .body => switch (call.response.body) {
                    .blocks => |*blocks| try worker.write(exchange, .{ .blocks = blocks }, .{ .last = true }),
                    .request => |bytes| try host.sendBack(call, exchange, bytes),
                    .file => |file| if (file.ownership == .owned) taken: {
                        const range = Worker.rangeOf(file.fd, file.offset, file.len) catch
                            return error.TooShort;
                        const outcome = worker.write(exchange, .{ .file = range }, .{ .last = true }) catch
                            return error.TooShort;
                        call.response.body = .none;
                        break :taken outcome;
                    } else worker.writeCopy(exchange, file.fd, file.offset, file.len) catch
                        return error.TooShort,
                    .parts => |*parts| try worker.write(exchange, .{
                        .parts = .{ .chain = &parts.chain, .len = parts.len },
                    }, .{ .last = true }),
                    .shared => |shared| taken: {
                        const outcome = try worker.write(exchange, .{ .held = shared }, .{ .last = true });
                        call.response.body = .none;
                        break :taken outcome;
                    },
                    .none, .bytes => unreachable,
                },
            };
            call.response.state = .ended;
        }

        /// Sends a part of the request's body from where it is. No hook reads the request any more.
        fn sendBack(
            host: *Self,
            call: *Call,
            exchange: *Exchange,
            bytes: []const u8,
        ) SendError!Worker.Outcome {
            const pool = &host.worker.pool;
            const intake = call.intake.?;
            var chain: Outbox = .{};
            errdefer chain.deinit(pool);
            try chain.appendBuffer(pool, intake.memory.buffer.?, bytes);
            _ = intake.surrenderMemory();
            call.request.body = "";
            return host.worker.write(exchange, .{ .blocks = &chain }, .{ .last = true });
        }

        /// Answers with a status and its text or page, and nothing else, whatever was prepared.
        fn replace(host: *Self, call: *Call, status: Status) void {
            if (call.exchange == null) return;
            const page = host.pageOf(status) orelse
                ErrorPage{ .content_type = "text/plain", .body = status.toString() };
            const lines: Lines = .{ .found = .{ .content_length = page.body.len } };
            host.finish(call, .{ .start = &.{
                .status = status.code(),
                .fields = &.{.init("Content-Type", page.content_type)},
                .lines = &lines,
                .body = page.body,
                .end = true,
            } }) catch host.cut(call);
        }

        fn pageOf(host: *const Self, status: Status) ?ErrorPage {
            if (!@hasDecl(Handler, "handleErrorPage")) return null;
            const page = host.handler.handleErrorPage(status) orelse return null;
            if (protocol.http.syntax.isFieldValue(page.content_type) and
                page.content_type.len <= RefusalPage.content_type_bytes_max) return page;
            log.warn("the page for {d} is not shown: its content_type cannot be sent", .{status.code()});
            return null;
        }

        /// For the worker: the page of a request that the engine refuses.
        pub fn refusalPage(host: *const Self, status: u16) ?RefusalPage {
            const page = host.pageOf(.fromCode(status)) orelse return null;
            return .{ .content_type = page.content_type, .body = page.body };
        }

        /// Ends a call that the handler has not answered, or not to the end.
        fn refuse(host: *Self, call: *Call, status: Status) void {
            host.replace(call, status);
            host.release(call);
        }

        /// Ends a streamed response that the handler left open.
        fn close(host: *Self, call: *Call) void {
            const result = if (call.response.lacks_piece)
                error.PieceNotTaken
            else
                host.finish(call, .{ .bytes = "" });
            result catch |err| {
                log.warn("response cut: {t}", .{err});
                host.cut(call);
            };
            host.release(call);
        }

        /// Ends an exchange so that the client can tell that its response is not complete.
        fn cut(host: *Self, call: *Call) void {
            const exchange = call.exchange orelse return;
            call.exchange = null;
            exchange.word = .none;
            host.worker.abort(exchange);
        }

        // ---- Functions of a response's `Link`

        const link: response_file.Link = .{
            .send = send,
            .inform = inform,
            .abort = abort,
            .detach = detach,
            .repeat = repeat,
            .limitIdle = limitIdle,
            .offersWebSocket = offersWebSocket,
            .errorPage = errorPage,
        };

        fn callOf(response: *Response) *Call {
            return @fieldParentPtr("response", response);
        }

        fn hostOf(call: *Call) *Self {
            return @ptrCast(@alignCast(call.host));
        }

        fn send(response: *Response, bytes: []const u8, last: bool) SendError!Flow {
            const call = callOf(response);
            const host = hostOf(call);
            if (call.custody == .detached or response.state == .ended or response.state == .lost) {
                return error.Closed;
            }
            if (response.state == .collecting and last and bytes.len == 0) {
                try response.detachBody();
                try host.sendWhole(call);
                response.state = if (call.custody == .orphaned) .lost else .ended;
                return .ready;
            }
            response.lacks_piece = !last; // true until the next piece is taken
            if (response.state == .collecting) try host.begin(call);
            const exchange = call.exchange orelse return error.Closed;
            if (last) {
                try host.finish(call, .{ .bytes = bytes });
                return .ready;
            }
            if (bytes.len > host.response_bytes_max -| host.worker.buffered(exchange)) {
                return error.ResponseBodyBufferTooSmall;
            }
            const outcome = try host.worker.write(exchange, .{ .bytes = bytes }, .{});
            response.lacks_piece = false;
            return host.noteFlow(call, outcome);
        }

        /// Sends status, headers and the body that was collected as the beginning of a stream.
        fn begin(host: *Self, call: *Call) SendError!void {
            const response = &call.response;
            const exchange = call.exchange orelse return error.Closed;
            const start: Start = .{
                .status = response.status.code(),
                .lines = &response.lines,
                .body = switch (response.body) {
                    .bytes, .request => |bytes| bytes,
                    .shared => |shared| shared.bytes,
                    .none, .blocks => "",
                    .file, .parts => return error.OutOfOrder,
                },
            };
            response.state = .streaming;
            errdefer if (call.exchange != null) {
                response.state = .collecting;
            };
            _ = host.noteFlow(call, try host.worker.start(exchange, start));
            switch (response.body) {
                .blocks => |*blocks| if (call.exchange) |same| {
                    _ = host.noteFlow(call, try host.worker.write(same, .{ .blocks = blocks }, .{}));
                },
                .none, .bytes, .request, .shared, .file, .parts => {},
            }
            response.dropBody();
        }

        fn noteFlow(_: *Self, call: *Call, outcome: Worker.Outcome) Flow {
            switch (outcome) {
                .accepted, .done => return .ready,
                .blocked => {
                    if (call.response.state == .streaming) call.response.state = .blocked;
                    return .wait;
                },
            }
        }

        fn abort(response: *Response) void {
            const call = callOf(response);
            if (call.custody == .detached or response.state == .ended or response.state == .lost) return;
            hostOf(call).cut(call);
            response.state = .ended;
        }

        fn inform(response: *Response, status: u16, fields: []const Field) SendError!void {
            const call = callOf(response);
            const exchange = call.exchange orelse return error.Closed;
            try hostOf(call).worker.inform(exchange, status, fields);
        }

        fn detach(response: *Response) error{ OutOfMemory, Closed }!Detached {
            const call = callOf(response);
            const exchange = call.exchange orelse return error.Closed;
            if (response.state == .ended or call.custody != .handler) return error.Closed;
            try call.keepHead();
            const inbox = hostOf(call).inbox;
            inbox.retain();
            // Kept headers stay, for the answer that comes.
            if (response.state == .collecting) response.reset() catch unreachable;
            call.custody = .detached;
            return .{ .inbox = inbox, .ticket = exchange.ticket };
        }

        fn repeat(response: *Response, bytes: []const u8, interval_ms: u32) SendError!void {
            const call = callOf(response);
            const exchange = call.exchange orelse return error.Closed;
            try hostOf(call).worker.setRepeat(exchange, bytes, interval_ms);
        }

        fn limitIdle(response: *Response, idle_ms: u32) SendError!void {
            const call = callOf(response);
            hostOf(call).worker.limitAnswer(call.exchange orelse return error.Closed, idle_ms);
        }

        fn offersWebSocket(response: *const Response) bool {
            const call: *const Call = @fieldParentPtr("response", response);
            const exchange = call.exchange orelse return false;
            return exchange.websocket != null;
        }

        fn errorPage(response: *const Response, status: Status) ?ErrorPage {
            const call: *const Call = @fieldParentPtr("response", response);
            const host: *const Self = @ptrCast(@alignCast(call.host));
            return host.pageOf(status);
        }

        // ---- Commands from other threads

        /// Obeys the command in a message, and frees the message.
        pub fn receive(host: *Self, mail: *Message) void {
            var space: [Detached.headers_max]Field = undefined;
            const addressed = mail.content.command;
            const exchange = host.worker.find(addressed.ticket) orelse return host.inbox.free(mail);
            const command = addressed.read(&space);
            if (command == .message or command == .close) {
                host.sockets.deliver(exchange, command);
                return host.inbox.free(mail);
            }
            host.deliver(exchange, mail);
        }

        /// A part of a detached answer came in. Takes the message.
        fn deliver(host: *Self, exchange: *Exchange, mail: *Message) void {
            const call = Call.of(exchange) orelse return host.inbox.free(mail);
            assert(call.custody == .detached);
            if (call.response.state == .blocked or !call.parked.isEmpty()) return call.parked.append(mail);
            host.apply(call, mail);
        }

        fn unpark(host: *Self, call: *Call) void {
            const ticket = call.ticket;
            while (call.response.state != .blocked) {
                const mail = call.parked.pop() orelse return;
                host.apply(call, mail);
                if (host.calls.get(ticket) == null) return;
            }
        }

        fn apply(host: *Self, call: *Call, mail: *Message) void {
            defer host.inbox.free(mail);
            var space: [Detached.headers_max]Field = undefined;
            const command = mail.content.command.read(&space);
            const begun = call.response.state != .collecting;
            host.applyCommand(call, command) catch |err| {
                if (command != .abort) log.warn("detached response not sent: {t}", .{err});
                if (!begun) return host.refuse(call, .internal_server_error);
                host.cut(call);
                return host.release(call);
            };
            switch (call.custody) {
                .orphaned => |reason| host.tellAborted(call, reason),
                .detached => if (call.response.state == .ended) host.release(call),
                .server, .handler, .waiting => unreachable,
            }
        }

        /// Obeys a command of a detached answer. An `abort` is an error: no answer will come.
        fn applyCommand(host: *Self, call: *Call, command: Command) SendError!void {
            const exchange = call.exchange orelse return error.Closed;
            // If the client goes meanwhile, `aborted` leaves the call to this function.
            call.custody = .handler;
            defer if (call.custody == .handler) {
                call.custody = .detached;
            };
            switch (command) {
                .start => |start| if (start.end) {
                    call.response.status = .fromCode(start.status);
                    for (start.fields) |field| {
                        call.response.addNewHeader(field.name(), field.value()) catch
                            return error.InvalidFieldValue;
                    }
                    call.response.setBodyBorrowed(start.body) catch return error.OutOfMemory;
                    try host.sendWhole(call);
                    if (call.response.state == .collecting) call.response.state = .ended;
                } else {
                    var all = start;
                    if (call.response.count > 0) all.lines = &call.response.lines;
                    const outcome = try host.worker.start(exchange, all);
                    if (call.response.state == .collecting) call.response.state = .streaming;
                    _ = host.noteFlow(call, outcome);
                },
                .body => |part| if (part.last)
                    try host.finish(call, .{ .bytes = part.bytes })
                else {
                    _ = host.noteFlow(call, try host.worker.write(exchange, .{ .bytes = part.bytes }, .{}));
                },
                .inform => |said| try host.worker.inform(exchange, said.status, said.fields),
                .repeat => |said| try host.worker.setRepeat(exchange, said.bytes, said.interval_ms),
                .idle_limit => |idle_ms| host.worker.limitAnswer(exchange, idle_ms),
                .abort => return error.OutOfOrder,
                else => unreachable, // other threads send no other command
            }
        }
    };
}
