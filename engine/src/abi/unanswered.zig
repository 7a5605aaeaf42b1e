//! The answers to clients whose application has gone, made on the engine's thread. Does not know: why it has.
const std = @import("std");
const assert = std.debug.assert;
const peregrine = @import("peregrine");
const Exchange = peregrine.Exchange;

/// The close code of a WebSocket (RFC 6455 7.4.1: an unexpected condition).
const close_error = 1011;

/// Ends an exchange whose application has gone in the middle of it: with this status if no response has
/// begun, else by cutting the connection. A WebSocket is closed.
pub fn fail(worker: anytype, exchange: *Exchange, status: u16, text: []const u8) void {
    if (exchange.openWebSocket()) |websocket| {
        if (!websocket.isOpen()) return;
        if (worker.closeWebSocket(exchange, close_error, "")) return else |_| {}
    } else if (!exchange.lane.session().responseStarted()) {
        return answer(worker, exchange, status, text);
    }
    worker.fail(exchange.lane, .server_error);
}

/// Answers an exchange in place of its application, which hears nothing of it any more. 503 comes with
/// Retry-After.
pub fn answer(worker: anytype, exchange: *Exchange, status: u16, text: []const u8) void {
    assert(exchange.status == 0 and !exchange.isEnded());
    var seconds: [12]u8 = undefined;
    const later = std.fmt.bufPrint(&seconds, "{d}", .{worker.config.retry_after_s}) catch unreachable;
    const fields = [_]peregrine.Field{ .init("Content-Type", "text/plain"), .init("Retry-After", later) };
    exchange.silence();
    _ = worker.start(exchange, .{
        .status = status,
        .fields = if (status == 503) &fields else fields[0..1],
        .body = text,
        .end = true,
    }) catch worker.abort(exchange);
}
