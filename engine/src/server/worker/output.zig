//! The part of a worker that answers: what hosts call to respond, and the way of queued bytes to the kernel.
//! A peer that turns out to be gone while its host sends ends its exchange there and then (`aborted`,
//! `closed`), and with it the connection. So whoever calls the host, or sends, holds neither across the call,
//! unless `pumping` keeps the connection: it looks them up again by ticket.
const io_layer = @import("io");
const Field = @import("protocol").http.Field;
const Connection = @import("../connection.zig").Connection;
const exchange_file = @import("../exchange.zig");
const Exchange = exchange_file.Exchange;
const FileRange = @import("../outbox.zig").FileRange;
const Held = @import("../loan.zig").Held;
const Loan = @import("../loan.zig").Loan;
const Outbox = @import("../outbox.zig").Outbox;
const Reason = @import("../types.zig").Reason;
const Ticket = @import("../slab.zig").Ticket;
const Transport = @import("../transport.zig").Transport;
const Stream = @import("../stream.zig").Stream;

/// The methods of a worker that answer and send.
pub fn Output(comptime W: type) type {
    return struct {
        /// The exchange of a ticket, or null when it has ended.
        pub fn find(w: *W, ticket: Ticket) ?*Exchange {
            const exchange = w.exchanges.get(ticket) orelse return null;
            return if (exchange.ended) null else exchange;
        }

        /// Why a response does not begin.
        pub const ResponseError = exchange_file.StartError || exchange_file.EndError;

        /// Why a file is not sent.
        pub const FileError = exchange_file.BodyError || io_layer.file.Error;

        pub const Outcome = @import("../command.zig").Outcome;

        /// Starts the response. Everything about framing is decided here, from the fields.
        pub fn start(
            w: *W,
            exchange: *Exchange,
            response: exchange_file.Start,
        ) exchange_file.StartError!Outcome {
            try exchange.start(&w.pool, response, w.date.text());
            w.noteAnswer(exchange);
            if (exchange.connection.session.droppedField(exchange.stream)) noteDropped(w, exchange);
            return w.queued(exchange);
        }

        fn noteDropped(w: *W, exchange: *Exchange) void {
            const others = w.troubles.fields.add(w.now) orelse return;
            var buffer: [256]u8 = undefined;
            const text = "The response has fields that are the server's to send (Connection, " ++
                "Transfer-Encoding and the like): they are left out{f}";
            w.sayOf(exchange, .warn, &buffer, text, .{others});
        }

        /// Sends the next piece of the body.
        pub fn write(
            w: *W,
            exchange: *Exchange,
            bytes: []const u8,
            place: Exchange.Place,
        ) exchange_file.BodyError!Outcome {
            try exchange.body(&w.pool, bytes, place);
            return w.queued(exchange);
        }

        /// The same with bytes that are not copied: they stay as they are until their loan comes back
        /// (`Pool.loans`), which may be at once.
        pub fn writeLent(
            w: *W,
            exchange: *Exchange,
            bytes: []const u8,
            loan: *Loan,
            place: Exchange.Place,
        ) exchange_file.BodyError!Outcome {
            try exchange.lent(&w.pool, bytes, loan, place);
            return w.queued(exchange);
        }

        /// The same with bytes that somebody holds until they were sent, or will not be. On an error they are
        /// the caller's to release.
        pub fn writeHeld(
            w: *W,
            exchange: *Exchange,
            held: Held,
            place: Exchange.Place,
        ) exchange_file.BodyError!Outcome {
            try exchange.held(&w.pool, held, place);
            return w.queued(exchange);
        }

        /// The same with bytes that lie in blocks of this worker's pool already: they are
        /// taken over, not copied.
        pub fn writeBlocks(
            w: *W,
            exchange: *Exchange,
            chain: *Outbox,
            place: Exchange.Place,
        ) exchange_file.BodyError!Outcome {
            try exchange.blocks(&w.pool, chain, place);
            return w.queued(exchange);
        }

        /// Sends a range of an open file (null: all that follows `offset`) as the last piece of the body.
        /// Duplicates the descriptor.
        pub fn writeFile(w: *W, exchange: *Exchange, fd: i32, offset: u64, length: ?u64) FileError!Outcome {
            const available = try io_layer.file.size(fd) -| offset;
            const copy = try io_layer.file.duplicate(fd);
            errdefer io_layer.file.close(copy);
            return writeRange(w, exchange, .{
                .fd = copy,
                .offset = offset,
                .len = @min(length orelse available, available),
            });
        }

        /// The same with a descriptor that is the worker's from then on; on an error it is the caller's.
        pub fn writeOwnFile(
            w: *W,
            exchange: *Exchange,
            fd: i32,
            offset: u64,
            length: ?u64,
        ) FileError!Outcome {
            const available = try io_layer.file.size(fd) -| offset;
            return writeRange(w, exchange, .{
                .fd = fd,
                .offset = offset,
                .len = @min(length orelse available, available),
            });
        }

        /// The same with a range that is known to be there, and whose descriptor is the worker's from then
        /// on; on an error it is the caller's.
        pub fn writeRange(w: *W, exchange: *Exchange, range: FileRange) exchange_file.BodyError!Outcome {
            var asking = range;
            asking.asks = range.asks or range.len > w.config.file_loop_bytes_max;
            if (try exchange.file(&w.pool, asking) == .not_needed) {
                io_layer.file.close(range.fd);
            } else if (asking.asks) w.withhold(exchange, range.len);
            return w.queued(exchange);
        }

        /// Sends bytes and file ranges that lie in a chain of this worker's pool, `len` bytes in all, as the
        /// last piece of the body. They are the worker's from then on; on an error they are the caller's.
        pub fn writeParts(
            w: *W,
            exchange: *Exchange,
            chain: *Outbox,
            len: u64,
        ) exchange_file.BodyError!Outcome {
            const asks = len > w.config.file_loop_bytes_max or chain.isAsking();
            chain.setAsking(asks);
            try exchange.parts(&w.pool, chain, len);
            if (asks and chain.isEmpty()) w.withhold(exchange, len);
            w.dropOutput(chain);
            return w.queued(exchange);
        }

        /// Ends the response with a trailer section.
        pub fn end(w: *W, exchange: *Exchange, trailers: []const Field) exchange_file.EndError!Outcome {
            try exchange.end(&w.pool, trailers);
            return w.queued(exchange);
        }

        /// Sends an interim response.
        pub fn inform(
            w: *W,
            exchange: *Exchange,
            status: u16,
            fields: []const Field,
        ) exchange_file.StartError!void {
            try exchange.inform(&w.pool, status, fields);
            w.flushNow(exchange);
        }

        /// Hands what is queued to the kernel; a stream's at the end of the round (`sendStream`).
        pub fn flushNow(w: *W, exchange: *Exchange) void {
            const connection = exchange.connection;
            if (connection.carrier) |carrier| {
                w.cork(carrier);
                return w.cork(connection);
            }
            if (w.pumping == connection) return w.cork(connection);
            if (connection.output == .open and !w.flush(connection)) return;
            w.settle(connection);
        }

        /// The same; true if the kernel took everything, or the exchange is over. Otherwise `flushed`
        /// or its end follows.
        pub fn flushWhole(w: *W, exchange: *Exchange) bool {
            const ticket = exchange.ticket;
            w.flushNow(exchange);
            const left = w.exchanges.get(ticket) orelse return true;
            if (left.isFlushed()) return true;
            left.flushing = .waits;
            if (left.connection.carrier) |carrier| carrier.phase.multiplexed.flushing = true;
            return false;
        }

        /// Asks for the next piece of the request body, or the next message of a WebSocket
        /// (`Incoming.Flow.demand`). Says `100 Continue` when the peer waits for it.
        pub fn read(w: *W, exchange: *Exchange) error{OutOfMemory}!void {
            if (exchange.openWebSocket()) |websocket| return w.ask(exchange, websocket);
            const connection = exchange.connection;
            // Not `w.now`: the handler that asks may have taken its time since the round began.
            if (!exchange.want(w.io.now())) return;
            try exchange.sayContinue(&w.pool);
            if (connection.carrier) |carrier| w.cork(carrier);
            w.cork(connection);
        }

        /// Bytes queued and not yet with the kernel.
        pub fn buffered(_: *const W, exchange: *const Exchange) usize {
            return exchange.queuedBytes();
        }

        /// Ends the exchange by cutting the connection, or the stream, so that the peer sees a truncated
        /// response.
        pub fn abort(w: *W, exchange: *Exchange) void {
            const connection = exchange.connection;
            if (connection.carrier) |carrier| return w.cutStream(connection, carrier, exchange);
            // What the peer sees is a response cut short, not half a head; without memory it sees that.
            exchange.closeHead(&w.pool) catch {};
            w.forget(exchange);
            connection.beginClosing();
            if (connection.tunnel) |tunnel| tunnel.silent = true;
            if (connection.output == .open and !w.flush(connection)) return;
            sever(w, connection, .server_error);
        }

        /// Gives a connection up with a reset: what the kernel holds for it is thrown away, or a peer that
        /// does not read would keep megabytes of it for as long as it likes.
        pub fn sever(w: *W, connection: *Connection, reason: Reason) void {
            if (connection.tunnel) |tunnel| tunnel.silent = true;
            if (connection.carrier == null) {
                const transport: *Transport = .of(connection);
                if (transport.socket != .none) w.io.reset(transport.socket);
                transport.socket = .none;
            }
            w.fail(connection, reason);
        }

        /// A peer does not take its response.
        pub fn stalled(w: *W, connection: *Connection) void {
            if (connection.reading) return w.storageStalled(connection);
            if (connection.carrier) |carrier| if (w.hasWaitedForOthers(connection, carrier)) {
                connection.output = .open; // it begins anew
                return w.arm(connection);
            };
            sever(w, connection, .write_timeout);
        }

        /// Closes the socket of a connection: with a reset if its peer might take a part of a response for
        /// the whole, as it would where the end of the connection is the end of the response.
        pub fn closeSocket(w: *W, connection: *Connection) void {
            const transport: *Transport = .of(connection);
            if (transport.socket == .none) return;
            if (connection.owesOutput()) w.io.reset(transport.socket) else w.io.close(transport.socket);
            transport.socket = .none;
        }

        /// What happens after output was queued: much of it goes out now, the rest at the end of the round.
        /// One send right after each answer would cost a Perl host 4 to 5 us a request: host and kernel evict
        /// each other's cache lines, and every send wakes a client.
        pub fn queued(w: *W, exchange: *Exchange) Outcome {
            const connection = exchange.connection;
            exchange.active_at = w.now;
            if (connection.carrier) |carrier| return w.queuedOnStream(connection, carrier, exchange);
            const much = connection.outbox.bytes >= flush_bytes;
            if (connection.output == .open and much) {
                if (!w.flush(connection)) return .accepted; // the peer is gone, which the host was told
            }
            if (exchange.isSettled()) {
                complete(w, connection, exchange);
                if (w.pumping != connection) {
                    if (connection.input.isEmpty() and connection.isFlushed()) {
                        w.settle(connection);
                    } else {
                        w.cork(connection);
                    }
                }
                return .done;
            }
            if (connection.output == .open) w.cork(connection);
            if (!exchange.ends_with_file and exchange.queuedBytes() < w.config.write_high_bytes) {
                return .accepted;
            }
            exchange.above_high = true;
            return .blocked;
        }

        /// Queued output that is worth a system call before the round ends.
        const flush_bytes = 16 * 1024;

        /// The response is out of our hands: the connection goes on to whatever comes next.
        pub fn complete(w: *W, connection: *Connection, exchange: *Exchange) void {
            w.forget(exchange);
            switch (connection.session.disposition()) {
                .keep_alive => w.nextRequest(connection),
                .drain => connection.lane.phase = .{ .draining = .{
                    .since = w.now,
                    .bytes_left = w.config.drain_bytes_max,
                } },
                .close => connection.beginClosing(),
            }
        }

        /// Goes on to what the connection may do after a response.
        pub fn nextRequest(w: *W, connection: *Connection) void {
            connection.session.next();
            connection.awaitRequest(w.now);
        }

        /// Gives the slots of an exchange back; its ticket names nothing from now on.
        pub fn forget(w: *W, exchange: *Exchange) void {
            w.noteEnd(exchange);
            if (exchange.websocket) |websocket| {
                websocket.deinit(&w.pool, w.compression.gpa, &w.inflations);
                w.websockets.remove(websocket);
            }
            if (exchange.repeat) |repeat| repeat.destroy(w.gpa);
            if (exchange.relay != .none) w.dropRelay(exchange);
            if (W.intakeOf(exchange)) |intake| w.dropIntake(intake);
            w.exchanges.remove(exchange);
        }

        /// The kernel has room again.
        pub fn writable(w: *W, connection: *Connection) void {
            if (connection.output == .open) return;
            if (w.flush(connection)) w.settle(connection);
        }

        /// Whether an open head stays when output leaves.
        pub fn keepHead(w: *W, exchange: *Exchange, keeps: bool) void {
            exchange.keeps_head = keeps;
            if (!keeps) w.cork(exchange.connection);
        }

        /// Hands the outbox to the kernel until it is empty or the kernel has had enough. False: the
        /// connection is lost, and `connection` with it.
        pub fn flush(w: *W, connection: *Connection) bool {
            if (connection.current()) |exchange| {
                if (connection.output == .open and exchange.keepsHead()) return true;
                exchange.closeHead(&w.pool) catch {
                    w.fail(connection, .server_error);
                    return false;
                };
                w.noteOutput(exchange);
            }
            if (connection.carrier) |carrier| {
                w.flushStream(connection, carrier);
                return true;
            }
            if (connection.multiplex()) |multiplex| return w.flushCarrier(connection, multiplex);
            return flushFramed(w, connection);
        }

        /// The same for what is in the outbox.
        pub fn flushFramed(w: *W, connection: *Connection) bool {
            if (connection.tunnel) |tunnel| return w.flushSecure(connection, tunnel);
            return flushPlain(w, connection);
        }

        /// The same without a look at TLS.
        pub fn flushPlain(w: *W, connection: *Connection) bool {
            const outbox = &connection.outbox;
            // Nearly every response is one block: no need to gather slices.
            const bytes = outbox.only() orelse return flushBlocks(w, connection);
            if (bytes.len > w.share.left(&connection.turn)) return flushBlocks(w, connection);
            switch (sendSlices(w, connection, &.{io_layer.slice(bytes)}, bytes.len)) {
                .sent => {
                    connection.output = .open;
                    return true;
                },
                .waits => return true,
                .lost => return false,
            }
        }

        /// The same for any number of blocks, and for files.
        fn flushBlocks(w: *W, connection: *Connection) bool {
            const outbox = &connection.outbox;
            var slices: [io_layer.slices_max][]const u8 = undefined;
            var borrowed: [io_layer.slices_max]io_layer.Slice = undefined;
            while (true) switch (outbox.front(&slices)) {
                .nothing => break,
                .bytes => |count| {
                    const left = w.share.left(&connection.turn);
                    if (left == 0) {
                        // It goes on in the next round, when the others had their turn.
                        block(w, connection);
                        w.cork(connection);
                        return true;
                    }
                    var total: usize = 0;
                    var taken: usize = 0;
                    while (taken < count and total < left) : (taken += 1) {
                        const bytes = slices[taken][0..@min(slices[taken].len, left - total)];
                        borrowed[taken] = io_layer.slice(bytes);
                        total += bytes.len;
                    }
                    switch (sendSlices(w, connection, borrowed[0..taken], total)) {
                        .sent => {},
                        .waits => return true,
                        .lost => return false,
                    }
                },
                .file => |range| switch (flushFile(w, connection, range)) {
                    .sent => {},
                    .waits => return true,
                    .lost => return false,
                },
            };
            connection.output = .open;
            return true;
        }

        const Progress = enum { sent, waits, lost };

        /// Sends the bytes at the front, `total` of them.
        fn sendSlices(w: *W, connection: *Connection, slices: []const io_layer.Slice, total: usize) Progress {
            switch (w.io.send(Transport.of(connection).socket, slices, false)) {
                .sent => |len| {
                    took(w, connection, len);
                    w.share.note(&connection.turn, len);
                    connection.outbox.consume(&w.pool, len);
                    if (len == total) return .sent;
                    block(w, connection);
                    return .waits;
                },
                .blocked => {
                    block(w, connection);
                    return .waits;
                },
                .failed => {
                    _ = sendFailed(w, connection);
                    return .lost;
                },
                .end_of_file, .file_failed => unreachable,
            }
        }

        /// Sends from the file at the front.
        fn flushFile(w: *W, connection: *Connection, range: *FileRange) Progress {
            const readable = w.readable(connection, range);
            if (readable == 0) return .waits;
            switch (w.io.sendFile(Transport.of(connection).socket, range.fd, range.offset, readable)) {
                .sent => |len| {
                    took(w, connection, len);
                    range.advance(len);
                    if (range.len == 0) {
                        if (connection.outbox.popFile(&w.pool)) |whole| w.closeFile(whole);
                        return .sent;
                    }
                    block(w, connection);
                    // The kernel has room, and tells of none.
                    if (len == readable) w.cork(connection);
                    return .waits;
                },
                .blocked => {
                    block(w, connection);
                    return .waits;
                },
                .failed => _ = sendFailed(w, connection),
                .end_of_file => fileFailed(w, connection, range, "ended before all of its bytes were sent"),
                .file_failed => fileFailed(w, connection, range, "could not be read"),
            }
            return .lost;
        }

        /// The rest of a response is not to be had: the peer sees it cut short.
        pub fn fileFailed(
            w: *W,
            connection: *Connection,
            range: *const FileRange,
            comptime what: []const u8,
        ) void {
            var buffer: [192]u8 = undefined;
            const text = "The file of a response " ++ what ++ ": {d} bytes are missing - {s}";
            const words = connection.endWords();
            if (connection.current()) |exchange| {
                w.sayOf(exchange, .err, &buffer, text, .{ range.len, words });
                exchange.body_bytes -|= range.len;
            } else w.say(
                .err,
                &buffer,
                "connection {d} ({s}): " ++ text,
                .{ connection.number, connection.peerName(), range.len, words },
            );
            w.fail(connection, .server_error);
        }

        /// The kernel took so many bytes of the outbox.
        pub fn took(w: *W, connection: *Connection, len: usize) void {
            if (w.counters) |counters| counters.noteBytes(.out, len);
            switch (connection.output) {
                .open => {},
                .blocked => |*blockage| blockage.took(len),
            }
            noteProgress(w, connection);
        }

        /// The kernel took less than it was given. The peer has its time from now on: a handler may have
        /// taken its own since the round began.
        pub fn block(w: *W, connection: *Connection) void {
            if (connection.output == .open) {
                const held = w.io.held(Transport.of(connection).socket);
                connection.output = .{ .blocked = .begin(held, w.io.now()) };
            }
        }

        /// Notes what a slow peer took out of the kernel's hands.
        pub fn lookAtBlockage(w: *W, connection: *Connection) void {
            switch (connection.output) {
                .open => {},
                .blocked => |*blockage| if (connection.carrier == null and blockage.look(
                    w.io.held(Transport.of(connection).socket),
                    w.config.write_rate_min,
                    w.now,
                ) > 0) noteProgress(w, connection),
            }
        }

        fn noteProgress(w: *W, connection: *Connection) void {
            if (connection.current()) |exchange| exchange.active_at = w.now;
        }

        /// The connection died under a send; false, for `flush`.
        pub fn sendFailed(w: *W, connection: *Connection) bool {
            w.fail(connection, if (connection.sending == .open) .write_error else .client_closed);
            return false;
        }

        /// After output moved or a phase changed: tells the host, takes the next step, sets
        /// timer and reading.
        pub fn settle(w: *W, connection: *Connection) void {
            switch (connection.phase) {
                .closed => return,
                .serving => if (!settleLane(w, connection)) return,
                .multiplexed => |multiplex| if (!w.settleCarrier(connection, multiplex)) return,
                .closing => if (connection.isFlushed()) {
                    const tunnel = connection.tunnel orelse return linger(w, connection);
                    if (w.sendCloseNotify(connection, tunnel)) return linger(w, connection);
                },
                .relaying => w.settleRelay(connection),
                .proxy_header, .handshake, .lingering => {},
            }
            w.arm(connection);
        }

        /// Like `settle`, for a connection or a stream that serves requests. False: it is gone, or its timer
        /// is set already.
        fn settleLane(w: *W, connection: *Connection) bool {
            switch (connection.lane.phase) {
                .exchange => |exchange| {
                    if (connection.carrier != null and Stream.of(connection).file_failed) {
                        const range = connection.outbox.first.?.fileRange();
                        fileFailed(w, connection, range, "is shorter than it was, or could not be read");
                        return false;
                    }
                    if (@hasDecl(W.HostType, "progress")) w.host.progress(exchange);
                    if (exchange.ended) {
                        if (exchange.isSettled()) {
                            if (!exchange.unannounced) w.host.finished(w, exchange);
                            complete(w, connection, exchange);
                            if (connection.mayGoOn()) w.cork(connection);
                            w.settle(connection);
                            return false;
                        }
                    } else if (!tellProgress(w, exchange)) return false;
                    if (connection.mayGoOn()) w.cork(connection);
                },
                .idle => if (((w.stopping != .no and connection.retiring == .no) or
                    connection.sending == .ended) and connection.input.isEmpty() and connection.isFlushed())
                {
                    const all_said = if (connection.tunnel) |tunnel|
                        w.sendCloseNotify(connection, tunnel)
                    else
                        true;
                    if (all_said) {
                        w.close(connection);
                        return false;
                    }
                    connection.beginClosing();
                },
                .head => if (connection.sending == .ended) {
                    connection.beginClosing();
                    w.settle(connection);
                    return false;
                },
                .draining => {},
                // Only of a stream, whose end may have to be framed yet.
                .closing => if (connection.isFlushed() and !connection.session.responseOpen()) {
                    w.close(connection);
                    return false;
                },
            }
            return true;
        }

        /// Tells the host that the queue is short again, or empty. The exchange may be over afterwards.
        /// False: the connection is, since the host sent more and the peer was gone.
        fn tellProgress(w: *W, exchange: *Exchange) bool {
            const connection = exchange.connection;
            const name = connection.ticket;
            if (exchange.flushing == .due or exchange.flushing == .waits and exchange.isFlushed()) {
                exchange.flushing = .no;
                if (@hasDecl(W.HostType, "flushed")) {
                    const ticket = exchange.ticket;
                    w.host.flushed(w, exchange);
                    if (find(w, ticket) == null) return isOpen(w, name);
                }
            }
            if (exchange.above_high and exchange.queuedBytes() < w.config.write_low_bytes) {
                exchange.above_high = false;
                w.host.drained(w, exchange);
                return isOpen(w, name);
            }
            return true;
        }

        fn isOpen(w: *W, name: Ticket) bool {
            const connection = w.connectionOf(name) orelse return false;
            return connection.phase != .closed;
        }

        /// Everything is sent: ends our sending side, and gives the peer time to read before the socket goes.
        fn linger(w: *W, connection: *Connection) void {
            connection.input.deinit(&w.pool);
            if (connection.sending == .ended) return w.close(connection);
            // Where the kernel makes TLS records, the end would overtake one that waits for room;
            // close_notify has said it already.
            const by_kernel = if (connection.tunnel) |tunnel| tunnel.session.isSealedByKernel() else false;
            if (!by_kernel) w.io.shutdownSend(Transport.of(connection).socket);
            connection.phase = .{ .lingering = .{ .since = w.io.now() } };
            w.arm(connection);
        }
    };
}
