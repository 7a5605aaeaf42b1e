//! The part of a worker that carries out commands.
const command_file = @import("../command.zig");
const Command = command_file.Command;
const Exchange = @import("../exchange.zig").Exchange;
const Ticket = @import("../slab.zig").Ticket;
const trace = @import("../trace.zig");

pub fn Apply(comptime W: type) type {
    return struct {
        const output_part = @import("output.zig").Output(W);
        const relay_part = @import("relay.zig").Relaying(W);

        /// Reasons why a command was not carried out. Neither the connection nor the exchange has changed.
        pub const CommandError = W.ResponseError || W.FileError || W.AcceptError || W.SendError ||
            W.CloseError || W.RelayError || error{
            /// The exchange has ended.
            Gone,
        };

        /// Carries out a command for the exchange of a ticket, which may be gone afterwards.
        pub inline fn apply(w: *W, ticket: Ticket, command: Command) CommandError!command_file.Outcome {
            return applyTo(w, commanded(w, ticket, command) orelse return error.Gone, command);
        }

        /// The exchange that a command is for; null: it has ended.
        pub inline fn commanded(w: *W, ticket: Ticket, command: Command) ?*Exchange {
            // A flush is still possible while the rest of an ended response is queued.
            return if (command == .flush) w.exchanges.get(ticket) else w.find(ticket);
        }

        /// Carries out a command for an exchange that the caller has found.
        pub inline fn applyTo(
            w: *W,
            exchange: *Exchange,
            command: Command,
        ) CommandError!command_file.Outcome {
            trace.command(exchange, command);
            switch (command) {
                .start => |start| {
                    if (exchange.relay != .none and relay_part.hasSpoken(w, exchange)) return error.Gone;
                    return w.start(exchange, start);
                },
                .body => |body| {
                    const place: Exchange.Place = .{ .last = body.last, .close = body.last and body.close };
                    if (body.blocks) |chain| return w.write(exchange, .{ .blocks = chain }, place);
                    const loan = body.loan orelse return w.write(exchange, .{ .bytes = body.bytes }, place);
                    return w.write(exchange, .{ .lent = .{ .bytes = body.bytes, .loan = loan } }, place);
                },
                .file => |file| {
                    if (!file.is_slow) return w.writeCopy(exchange, file.fd, file.offset, file.length);
                    return w.write(exchange, .{ .file = .{
                        .fd = file.fd,
                        .offset = file.offset,
                        .len = file.length.?,
                        .asks = true,
                        .was_slow = true,
                    } }, .{ .last = true });
                },
                .end => |end| return w.end(exchange, end.trailers),
                .message => |message| return w.sendLent(exchange, message.kind, message.bytes, message.loan),
                .flush => return if (w.flush(exchange)) .accepted else .blocked,
                .inform => |inform| try w.inform(exchange, inform.status, inform.fields),
                .read => try w.read(exchange),
                .abort => w.abort(exchange),
                .accept => |accept| try w.acceptWebSocket(exchange, accept),
                .close => |close| try w.closeWebSocket(exchange, close.code, close.reason),
                .keepalive => |keepalive| try w.setKeepalive(
                    exchange,
                    keepalive.interval_ms,
                    keepalive.timeout_ms,
                ),
                .flow => |flow| try w.setFlow(exchange, flow),
                .idle_limit => |milliseconds| w.setIdleLimit(exchange, milliseconds),
                .keep_head => |keeps| output_part.keepHead(w, exchange, keeps),
                .repeat => |repeat| try w.setRepeat(exchange, repeat.bytes, repeat.interval_ms),
                .relay => |relay| switch (relay) {
                    .offer => |fd| try w.offerRelay(exchange, fd),
                    .only => w.answerByRelay(exchange),
                },
                .hand_over, .topic, .hold => return error.OutOfOrder,
            }
            return .accepted;
        }
    };
}
