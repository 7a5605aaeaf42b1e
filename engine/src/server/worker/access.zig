//! The part of a worker that writes the access log: it gets the beginnings and ends of requests, and tells
//! the host of losses.
const std = @import("std");
const assert = std.debug.assert;
const Head = @import("protocol").Head;
const Refusal = @import("protocol").Refusal;
const early = @import("protocol").early;
const access_log = @import("../access_log.zig");
const AccessLog = access_log.AccessLog;
const Lane = @import("../lane.zig").Lane;
const Exchange = @import("../exchange.zig").Exchange;

pub fn Access(comptime W: type) type {
    return struct {
        const counting_part = @import("counting.zig").CountersPart(W);

        /// Opens an access log, which has a line for every request that begins from now on, when it ends;
        /// null: there is no log. On an error nothing has changed; `fault` and `errno` as in AccessLog.open.
        pub fn setAccessLog(
            w: *W,
            options: ?access_log.Options,
            fault: *access_log.Fault,
            errno: *u16,
        ) AccessLog.OpenError!void {
            const fresh: ?AccessLog = if (options) |o| try .open(w.gpa, o, fault, errno) else null;
            endAccessLog(w);
            w.access = fresh;
            w.noteWishes();
        }

        /// Opens the log's file again by its path, because the old file was moved away.
        pub fn reopenAccessLog(w: *W) void {
            if (w.access) |*log| log.reopen();
        }

        /// Begins the log entry of a request, whose head is in `w.head` and whose client is in `w.clients`.
        pub fn noteBegin(w: *W, exchange: *Exchange) void {
            assert(exchange.log == null);
            const log = if (w.access) |*log| log else return;
            const subject = subjectOf(exchange.lane, w.clients.current.address, &w.head, "");
            exchange.log = log.begin(&w.pool, &subject, w.clock.wall_seconds, clock(w, &log.shared.format));
        }

        /// Notes the beginning of a response.
        pub fn noteAnswer(w: *W, exchange: *Exchange) void {
            assert(exchange.status != 0);
            const entry = if (exchange.log) |*entry| entry else return;
            if (entry.format().first_byte) entry.answered_us = w.io.micros();
        }

        /// Notes the end of an exchange. Called once for every exchange.
        pub fn noteEnd(w: *W, exchange: *Exchange) void {
            if (w.counting.counters) |counters| counting_part.countEnd(w, counters, exchange);
            const entry = exchange.log orelse return;
            exchange.log = null;
            const log = if (w.access) |*log| log else return entry.discard(&w.pool);
            const lane = exchange.lane;
            // The connection of an exchange that was ended from outside is closing, with output that the peer
            // did not take.
            const left = if (lane.phase == .closing) lane.out().queue.bytes else 0;
            const cut_short = exchange.openWebSocket() == null and
                (!exchange.isEnded() or (left > 0 and exchange.response != .refused));
            log.end(&w.pool, entry, &.{
                .status = exchange.status,
                .body_bytes = exchange.body_bytes -| (if (cut_short) left else 0),
                .end = if (cut_short)
                    .cut_short
                else if (lane.session().persists() and lane.phase != .closing)
                    .goes_on
                else
                    .closes,
                .micros = clock(w, entry.format()),
                .queue_us = if (entry.format().queued and exchange.response != .refused)
                    w.queueTime(exchange)
                else
                    null,
                .group = if (entry.format().grouped) groupOf(w, exchange) else "",
            });
        }

        fn groupOf(w: *W, exchange: *const Exchange) []const u8 {
            return if (@hasDecl(W.HostType, "groupOf")) w.host.groupOf(exchange) else "";
        }

        /// Logs a request that was refused before it became an exchange. `raw`: its bytes that have come,
        /// from the request line on, or none. Its duration is the time since its first byte. Overwrites
        /// `w.head` and `w.clients`.
        pub fn noteRefusal(
            w: *W,
            lane: *Lane,
            refusal: Refusal,
            bytes: u64,
            raw: []const u8,
        ) void {
            const family = lane.session().family();
            if (w.counting.counters) |counters| counters.noteEarlyRefusal(refusal.status, family);
            const log = if (w.access) |*log| log else return;
            lane.request_count +%= 1;
            var subject = subjectOf(lane, lane.transport.peer_text.slice(), null, raw);
            // The head of a stream's request is in `w.head`, as far as it was read.
            const has_head = if (lane.isStream())
                raw.len > 0
            else
                early.glimpse(raw, &w.limits, &w.head);
            if (has_head) {
                w.clients.note(lane, &w.head);
                subject.peer = w.clients.current.address;
                subject.head = &w.head;
            }
            const waited_ms = if (lane.headSince()) |since| w.clock.now -| since else 0;
            const sent = if (early.asksForHead(raw)) 0 else bytes;
            writeRefusal(w, log, &subject, refusal.status, sent, waited_ms);
        }

        /// Logs a socket that was refused with a response before it became a connection.
        pub fn noteTurnedAway(
            w: *W,
            client: []const u8,
            local_port: u16,
            number: u32,
            refusal: Refusal,
        ) void {
            if (w.counting.counters) |counters| counters.noteEarlyRefusal(refusal.status, early.family);
            const log = if (w.access) |*log| log else return;
            writeRefusal(
                w,
                log,
                &.{
                    .peer = client,
                    .local_port = local_port,
                    .connection = number,
                    .request = 1,
                    .head = null,
                },
                refusal.status,
                early.refusalBodyBytes(refusal),
                0,
            );
        }

        fn writeRefusal(
            w: *W,
            log: *AccessLog,
            subject: *const access_log.Subject,
            status: u16,
            body_bytes: u64,
            waited_ms: u64,
        ) void {
            const micros = clock(w, &log.shared.format);
            const begun_us = micros -| waited_ms * std.time.us_per_ms;
            const entry = log.begin(
                &w.pool,
                subject,
                w.clock.wall_seconds -| waited_ms / std.time.ms_per_s,
                begun_us,
            ) orelse return;
            log.end(&w.pool, entry, &.{
                .status = status,
                .body_bytes = body_bytes,
                .end = .closes,
                .micros = micros,
            });
        }

        fn subjectOf(
            lane: *const Lane,
            peer: []const u8,
            head: ?*const Head,
            raw: []const u8,
        ) access_log.Subject {
            return .{
                .peer = peer,
                .local_port = lane.localPort(),
                .connection = lane.transport.number,
                .request = lane.request_count,
                .head = head,
                .raw = raw,
                .tunnel = lane.tls(),
            };
        }

        fn clock(w: *const W, format: *const access_log.Format) u64 {
            return if (format.timed) w.io.micros() else 0;
        }

        /// Wakes the log's thread, gives gathered lines to a host that takes them, and reports losses. Called
        /// once a round.
        pub fn settleAccessLog(w: *W) void {
            const log = if (w.access) |*log| log else return;
            log.announce();
            // The bytes of lines are bounded here, but not in a host that does not read them.
            if (!@hasDecl(W.HostType, "isTaking") or w.host.isTaking()) handOver(w, log);
            var buffer: [access_log.news_bytes_max]u8 = undefined;
            const news = log.newsWhenDue(w.clock.now, &buffer) orelse return;
            w.host.notice(w, null, .warn, news);
        }

        fn handOver(w: *W, log: *AccessLog) void {
            if (!@hasDecl(W.HostType, "lines")) return;
            const lines = log.gathered();
            if (lines.len == 0) return;
            w.host.lines(w, lines);
            log.taken();
        }

        /// Writes the remaining lines and closes the log. The host is told of lines that were lost.
        pub fn endAccessLog(w: *W) void {
            const log = if (w.access) |*log| log else return;
            handOver(w, log);
            var buffer: [access_log.news_bytes_max]u8 = undefined;
            const news = log.close(&buffer);
            w.access = null;
            if (news) |text| w.host.notice(w, null, .warn, text);
        }
    };
}
