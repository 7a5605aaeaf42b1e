//! The part of a worker that serves TLS connections: between the io and the parts that read and answer, it
//! opens what comes and seals what goes. Connections without a tunnel never come here.
const std = @import("std");
const assert = std.debug.assert;
const Refusal = @import("protocol").Refusal;
const early = @import("protocol").early;
const io_layer = @import("io");
const tls = @import("tls");
const alpn = @import("../alpn.zig");
const Outbox = @import("../outbox.zig").Outbox;
const Pool = @import("../pool.zig").Pool;
const Tunnel = @import("../tunnel.zig").Tunnel;
const Transport = @import("../transport.zig").Transport;

/// The methods of a worker that serve connections over TLS.
pub fn Secure(comptime W: type) type {
    return struct {
        const handshakes_part = @import("handshakes.zig").Shaking(W);
        const input_part = @import("input.zig").Input(W);
        const output_part = @import("output.zig").Output(W);
        const relay_part = @import("relay.zig").Relaying(W);
        const streams_part = @import("streams.zig").Streams(W);
        const kernel_may_seal = @hasDecl(W.IoType, "sealInKernel");

        /// Plaintext that is sealed in one go: four records. What a slow peer makes us hold in ciphertext is
        /// little more.
        const seal_bytes = 4 * tls.record_plaintext_bytes_max;
        const limits = @import("../config.zig").worker_limits;
        const turn_bytes_max = limits.tls_turn_bytes_max;

        /// Buffers that all TLS connections of a worker share; taken with the first TLS listener.
        pub const Scratch = struct {
            /// Plaintext of the connection that is being read.
            opened: []u8 = &.{},
            /// Plaintext that is gathered to fill records. Not the same: answers are sealed while a request
            /// is being read.
            gathered: []u8 = &.{},
            /// Connections let the kernel seal what they send.
            kernel_seals: bool = false,
            /// Sessions that keep their buffers.
            buffers_kept: u32 = 0,

            fn ensure(
                scratch: *Scratch,
                gpa: std.mem.Allocator,
                receive_bytes: usize,
            ) error{OutOfMemory}!void {
                if (scratch.opened.len > 0) return;
                const opened = try gpa.alloc(u8, receive_bytes);
                errdefer gpa.free(opened);
                scratch.gathered = try gpa.alloc(u8, seal_bytes);
                scratch.opened = opened;
            }

            pub fn deinit(scratch: *Scratch, gpa: std.mem.Allocator) void {
                gpa.free(scratch.opened);
                gpa.free(scratch.gathered);
            }
        };

        /// Connections that come in at this listener from now on speak TLS. The context must outlive the
        /// listener.
        pub fn secureListener(w: *W, listener: u32, context: *tls.Context) error{OutOfMemory}!void {
            try w.scratch.ensure(w.gpa, w.config.receive_bytes);
            w.listeners.items[listener].tls = context;
            if (kernel_may_seal) w.scratch.kernel_seals = w.config.ktls and w.io.offersSeals();
        }

        /// Looks whether the files of a listener's certificates have changed.
        pub fn refresh(w: *W, context: *tls.Context) void {
            var diagnostic: tls.Diagnostic = .{};
            if (context.refresh(w.clock.now, w.io.wallSeconds(), &diagnostic)) |fresh| {
                if (!fresh) return;
                w.host.notice(w, null, .info, "TLS: the certificate files have changed and are loaded");
                tellConcerns(w, context);
            } else |_| {
                var buffer: [tls.Diagnostic.bytes_max + 96]u8 = undefined;
                w.say(
                    .err,
                    &buffer,
                    "TLS: the certificate files have changed and cannot be used, the old ones stay: {s}",
                    .{diagnostic.text()},
                );
            }
        }

        fn tellConcerns(w: *W, context: *tls.Context) void {
            var number: usize = 0;
            while (true) : (number += 1) {
                var diagnostic: tls.Diagnostic = .{};
                const concerns = context.concern(
                    number,
                    @intCast(w.io.wallSeconds()),
                    &diagnostic,
                ) orelse return;
                if (concerns) w.host.notice(w, null, .warn, diagnostic.text());
            }
        }

        // ---- In

        /// Ciphertext has come.
        pub fn receive(w: *W, transport: *Transport, tunnel: *Tunnel, ciphertext: []const u8) void {
            if (transport.phase == .handshake) {
                return handshakes_part.receive(w, transport, tunnel, ciphertext);
            }
            unseal(w, transport, tunnel, ciphertext);
        }

        /// Gives ciphertext to the session, and acts on its events.
        pub fn unseal(w: *W, transport: *Transport, tunnel: *Tunnel, ciphertext: []const u8) void {
            assert(transport.tunnel == tunnel);
            switch (transport.phase) {
                .closing, .lingering => return, // see Input.receive
                .handshake, .serving, .multiplexed, .relaying => {},
                .proxy_header, .closed => unreachable,
            }
            const ticket = transport.lane.ticket;
            var rest = ciphertext;
            while (true) {
                var sink: WireSink = .{ .w = w, .transport = transport, .tunnel = tunnel };
                const received = tunnel.session.receive(rest, w.scratch.opened, sink.interface());
                rest = rest[received.consumed..];
                // A session whose handshake ends with a failure behind plaintext has failed by now.
                const has_agreed = tunnel.session.hasAgreed() and received.event != .failed;
                if (transport.phase == .handshake and has_agreed) {
                    established(w, transport) catch return w.close(&transport.lane);
                }
                switch (received.event) {
                    .plaintext => |len| {
                        switch (transport.phase) {
                            .serving, .multiplexed => w.pump(&transport.lane, w.scratch.opened[0..len]),
                            .relaying => w.relay(transport, w.scratch.opened[0..len]),
                            .closing, .lingering => {},
                            .proxy_header, .handshake, .closed => unreachable,
                        }
                        // The host may have ended the connection.
                        if (w.transportOf(ticket) == null) return;
                        if (received.is_dry) break;
                    },
                    .want_more => break,
                    .closed => {
                        input_part.peerEnded(w, transport, .eof);
                        if (w.transportOf(ticket) == null) return;
                        break;
                    },
                    .plain_http => return answerPlain(w, transport, tunnel, ciphertext),
                    .failed => |reason| return failed(w, transport, tunnel, reason),
                }
            }
            const is_due = transport.phase == .closing or !transport.isFlushed();
            if (transport.out.state != .open or !is_due) return w.arm(&transport.lane);
            if (transport.lane.corked) return; // it is sent, and settled, before the next wait
            // An answer will follow at once, and messages of the session (tickets) go with it.
            if (transport.lane.current() != null) return w.waiting.cork(&transport.lane);
            if (w.send(&transport.lane)) w.settle(&transport.lane);
        }

        fn established(w: *W, transport: *Transport) error{OutOfMemory}!void {
            assert(transport.phase == .handshake and transport.tunnel.?.session.hasAgreed());
            transport.awaitRequest(w.clock.now);
            if (w.scratch.buffers_kept < limits.tls_buffers_kept_max) {
                w.scratch.buffers_kept += 1;
                transport.tunnel.?.keeps_buffers = true;
                transport.tunnel.?.session.keepBuffers();
            }
            const agreed = transport.tunnel.?.session.protocol();
            if (alpn.isValidation(agreed)) return transport.lane.beginClosing();
            // A connection over the limit gets a 503 on each of its streams.
            if (alpn.isMultiplexed(agreed)) return w.beginStreams(transport);
            if (transport.surplus != .no and !w.health.isSet()) try w.queueRejection(&transport.lane, "");
        }

        /// The peer speaks HTTP to a port that speaks TLS: it is told in words that it understands. Its first
        /// byte shows that, so that `plaintext` begins with its request.
        fn answerPlain(w: *W, transport: *Transport, tunnel: *Tunnel, plaintext: []const u8) void {
            assert(transport.phase == .handshake);
            var space: [early.response_bytes_max]u8 = undefined;
            const refusal: Refusal = .{
                .status = 400,
                .detail = "This port speaks TLS: use https, not http.",
            };
            const len = early.refusalResponse(
                refusal,
                .{ .date = w.clock.date(), .with_content = !early.asksForHead(plaintext) },
                &space,
            );
            w.stats.refused += 1;
            tunnel.wire.append(&w.pool, space[0..len]) catch return w.close(&transport.lane);
            w.noteRefusal(&transport.lane, refusal, early.refusalBodyBytes(refusal), plaintext);
            beginClosing(w, transport, tunnel);
        }

        /// The session is over: the alert that it may have left in the wire is sent, nothing else.
        fn failed(w: *W, transport: *Transport, tunnel: *Tunnel, reason: []const u8) void {
            switch (transport.phase) {
                .handshake => noteFailure(w, transport, reason),
                .serving => if (transport.lane.current()) |exchange| w.endExchange(exchange, .protocol_error),
                .relaying => |relaying| relay_part.leave(w, transport, relaying.other),
                .multiplexed => streams_part.dissolve(w, transport, .protocol_error),
                else => {},
            }
            beginClosing(w, transport, tunnel);
        }

        fn beginClosing(w: *W, transport: *Transport, tunnel: *Tunnel) void {
            assert(transport.tunnel == tunnel);
            tunnel.silent = true;
            transport.lane.beginClosing();
            transport.lane.input.deinit(&w.pool);
            w.dropOutput(&transport.out.queue);
            if (w.send(&transport.lane)) w.settle(&transport.lane);
        }

        /// Scanners fail by the thousand: one line a second, with the number of those that it stands for.
        fn noteFailure(w: *W, transport: *Transport, reason: []const u8) void {
            if (w.counting.counters) |counters| counters.noteRejection(.tls_handshake);
            const others = w.troubles.handshake.add(w.clock.now) orelse return;
            var buffer: [256]u8 = undefined;
            w.say(.info, &buffer, "TLS handshake failed: {s} (connection {d} of {f}){f}", .{
                reason, transport.number, transport.peerPlace(), others,
            });
        }

        // ---- Out

        /// Like `sendFramed`, sealing on the way.
        pub fn send(w: *W, transport: *Transport, tunnel: *Tunnel) bool {
            assert(transport.tunnel == tunnel);
            if (tunnel.session.isSealedByKernel()) return sendThroughKernel(w, transport, tunnel);
            if (alone(transport, tunnel)) |plaintext| return sendAlone(w, transport, tunnel, plaintext);
            var left: usize = turn_bytes_max;
            while (true) {
                // The end of a response and the close_notify behind it go in one system call.
                while (left > 0 and tunnel.wire.bytes < seal_bytes) {
                    const sealed = seal(w, transport, tunnel) catch |err| {
                        w.fail(&transport.lane, if (err == error.TlsFailed) .write_error else .server_error);
                        return false;
                    };
                    left -|= sealed orelse break;
                }
                if (tunnel.wire.isEmpty()) {
                    if (transport.out.queue.isReading()) return true;
                    break;
                }
                switch (sendWire(w, transport, tunnel)) {
                    .sent => {},
                    .waits => return true,
                    .lost => return false,
                }
                if (left > 0 and !transport.out.queue.isReading()) continue;
                if (transport.out.queue.isReading()) return true;
                // The rest goes out in the next round, when the others had their turn.
                output_part.block(w, transport);
                w.waiting.cork(&transport.lane);
                return true;
            }
            transport.out.state = .open;
            return true;
        }

        /// The answer that is all there is to send, as nearly every one is; null: there is none, or more.
        fn alone(transport: *const Transport, tunnel: *const Tunnel) ?[]const u8 {
            if (transport.phase != .serving or !tunnel.wire.isEmpty()) return null;
            if (!tunnel.session.isHandshakeDone()) return null;
            const plaintext = transport.out.queue.only() orelse return null;
            return if (plaintext.len <= limits.tls_alone_bytes_max) plaintext else null;
        }

        /// Seals it into shared memory and sends it from there; the wire gets what the kernel does not take.
        fn sendAlone(w: *W, transport: *Transport, tunnel: *Tunnel, plaintext: []const u8) bool {
            assert(tunnel.wire.isEmpty());
            var sink: SharedSink = .{ .space = w.scratch.gathered };
            tunnel.session.write(plaintext, sink.interface()) catch |err| {
                w.fail(&transport.lane, if (err == error.TlsFailed) .write_error else .server_error);
                return false;
            };
            transport.out.queue.consume(&w.pool, plaintext.len);
            const sealed = sink.space[0..sink.len];
            const sent = switch (w.io.send(transport.socket, &.{io_layer.slice(sealed)}, false)) {
                .sent => |len| len,
                .blocked => 0,
                .failed => return output_part.sendFailed(w, transport),
                .end_of_file, .file_failed => unreachable,
            };
            if (sent > 0) output_part.took(w, transport, sent);
            if (sent == sealed.len) {
                transport.out.state = .open;
                return true;
            }
            tunnel.wire.append(&w.pool, sealed[sent..]) catch {
                w.fail(&transport.lane, .server_error);
                return false;
            };
            output_part.block(w, transport);
            return true;
        }

        pub const Progress = enum { sent, waits, lost };

        /// Hands ciphertext to the kernel.
        fn sendWire(w: *W, transport: *Transport, tunnel: *Tunnel) Progress {
            const progress = drainWire(w, transport, tunnel);
            switch (progress) {
                .sent => {},
                .waits => output_part.block(w, transport),
                .lost => _ = output_part.sendFailed(w, transport),
            }
            return progress;
        }

        /// Like `sendWire`, but leaves it to the caller to act on the result: for the middle of a session's
        /// work.
        fn drainWire(w: *W, transport: *Transport, tunnel: *Tunnel) Progress {
            const socket = transport.socket;
            var slices: [io_layer.slices_max][]const u8 = undefined;
            var borrowed: [io_layer.slices_max]io_layer.Slice = undefined;
            while (true) switch (tunnel.wire.front(&slices)) {
                .nothing => return .sent,
                .file => unreachable, // files are sealed like everything else
                .bytes => |count| {
                    var total: usize = 0;
                    for (slices[0..count], borrowed[0..count]) |bytes, *slice| {
                        slice.* = io_layer.slice(bytes);
                        total += bytes.len;
                    }
                    const sent = switch (w.io.send(socket, borrowed[0..count], false)) {
                        .sent => |len| len,
                        .blocked => 0,
                        .failed => return .lost,
                        .end_of_file, .file_failed => unreachable,
                    };
                    output_part.took(w, transport, sent);
                    tunnel.wire.consume(&w.pool, sent);
                    if (sent < total) return .waits;
                },
            };
        }

        // ---- Out, sealed by the kernel

        /// Like `send`, where the kernel seals: the outbox goes as it is, and messages of the session as
        /// records of their kinds.
        fn sendThroughKernel(w: *W, transport: *Transport, tunnel: *Tunnel) bool {
            assert(tunnel.session.isSealedByKernel());
            switch (sendRecords(w, transport, tunnel)) {
                .sent => {},
                .waits => return true,
                .lost => return output_part.sendFailed(w, transport),
            }
            if (!tunnel.session.isHandshakeDone()) {
                transport.out.state = .open;
                return true;
            }
            if (!output_part.sendBlocks(w, transport)) return false;
            if (transport.out.state != .open or transport.phase != .closing or tunnel.silent) return true;
            tunnel.silent = true;
            var sink: WireSink = .{ .w = w, .transport = transport, .tunnel = tunnel };
            tunnel.session.shutdown(sink.interface()) catch |err| {
                w.fail(&transport.lane, if (err == error.TlsFailed) .write_error else .server_error);
                return false;
            };
            return switch (sendRecords(w, transport, tunnel)) {
                .sent, .waits => true,
                .lost => output_part.sendFailed(w, transport),
            };
        }

        /// Hands the records in the wire to the kernel, each with its kind. `lost`: the socket is dead; that
        /// is the caller's to act upon.
        fn sendRecords(w: *W, transport: *Transport, tunnel: *Tunnel) Progress {
            if (!kernel_may_seal) unreachable;
            const socket = transport.socket;
            var slices: [io_layer.slices_max][]const u8 = undefined;
            while (true) switch (tunnel.wire.front(&slices)) {
                .nothing => return .sent,
                .file => unreachable, // a session's own output has no file
                .bytes => |count| {
                    const bytes = gather(w.scratch.gathered, slices[0..count]);
                    const end = record_head_bytes + std.mem.readInt(u16, bytes[1..record_head_bytes], .big);
                    switch (w.io.sendRecord(socket, bytes[0], bytes[record_head_bytes..end])) {
                        .sent => {},
                        .blocked => {
                            output_part.block(w, transport);
                            return .waits;
                        },
                        .failed => return .lost,
                        .end_of_file, .file_failed => unreachable,
                    }
                    output_part.took(w, transport, end);
                    tunnel.wire.consume(&w.pool, end);
                },
            };
        }

        /// The form of a record in the wire where the kernel seals: its kind, the length of its plaintext,
        /// the plaintext.
        const record_head_bytes = 3;

        // ---- Sealing

        const SealError = tls.WriteError || error{FileFailed};

        /// Seals the next piece of the outbox into the wire; the number of plaintext bytes, or null if none
        /// is left. While it closes the last piece is close_notify.
        fn seal(w: *W, transport: *Transport, tunnel: *Tunnel) SealError!?usize {
            assert(!tunnel.session.isSealedByKernel());
            const outbox = &transport.out.queue;
            if (!tunnel.session.isHandshakeDone()) return null;
            var slices: [io_layer.slices_max][]const u8 = undefined;
            var sink: WireSink = .{ .w = w, .transport = transport, .tunnel = tunnel };
            switch (outbox.front(&slices)) {
                .nothing => {
                    if (transport.phase != .closing or tunnel.silent) return null;
                    tunnel.silent = true;
                    try tunnel.session.shutdown(sink.interface());
                    return 0;
                },
                .bytes => |count| {
                    const plaintext = gather(w.scratch.gathered, slices[0..count]);
                    try tunnel.session.write(plaintext, sink.interface());
                    outbox.consume(&w.pool, plaintext.len);
                    return plaintext.len;
                },
                .file => |range| {
                    const readable = w.readable(&transport.lane, range);
                    if (readable == 0) return null;
                    const wanted: usize = @intCast(@min(readable, w.scratch.gathered.len));
                    const len = io_layer.file.read(
                        range.fd,
                        w.scratch.gathered[0..wanted],
                        range.offset,
                    ) catch return error.FileFailed;
                    // The file was longer when the response began, and its length has been promised.
                    if (len == 0 and wanted > 0) return error.FileFailed;
                    try tunnel.session.write(w.scratch.gathered[0..len], sink.interface());
                    range.advance(len);
                    if (range.len == 0) if (outbox.popFile(&w.pool)) |whole| w.storage.closeFile(whole);
                    return len;
                },
            }
        }

        /// Gives a single piece back as it is, and copies several together: every record costs 22 to 29 bytes
        /// and a seal.
        fn gather(space: []u8, slices: []const []const u8) []const u8 {
            assert(slices.len > 0);
            if (slices.len == 1 or slices[0].len >= space.len) return slices[0][0..@min(
                slices[0].len,
                space.len,
            )];
            var len: usize = 0;
            for (slices) |bytes| {
                const part = bytes[0..@min(bytes.len, space.len - len)];
                @memcpy(space[len..][0..part.len], part);
                len += part.len;
            }
            return space[0..len];
        }

        /// A connection without a request is about to be closed by us: says close_notify. `waits`: the kernel
        /// has no room for it now; `lost`: it will never be said.
        pub fn sendCloseNotify(w: *W, transport: *Transport, tunnel: *Tunnel) Progress {
            assert(transport.tunnel == tunnel);
            if (tunnel.silent or transport.out.state != .open or !tunnel.session.isHandshakeDone()) {
                return .sent;
            }
            tunnel.silent = true;
            var sink: WireSink = .{ .w = w, .transport = transport, .tunnel = tunnel };
            tunnel.session.shutdown(sink.interface()) catch return .lost;
            if (tunnel.session.isSealedByKernel()) return sendRecords(w, transport, tunnel);
            const progress = drainWire(w, transport, tunnel);
            if (progress == .waits) output_part.block(w, transport);
            return progress;
        }

        /// Takes what one call into a session puts out.
        const SharedSink = struct {
            space: []u8,
            len: usize = 0,

            fn interface(sink: *SharedSink) tls.Sink {
                return .{ .context = sink, .appendFn = append };
            }

            fn append(context: *anyopaque, bytes: []const u8) tls.Sink.Error!void {
                const sink: *SharedSink = @ptrCast(@alignCast(context));
                if (bytes.len > sink.space.len - sink.len) return error.OutOfMemory;
                @memcpy(sink.space[sink.len..][0..bytes.len], bytes);
                sink.len += bytes.len;
            }
        };

        /// Appends to a tunnel's wire for the length of one call into its session.
        const WireSink = struct {
            w: *W,
            transport: *Transport,
            tunnel: *Tunnel,

            const kernel: tls.Sink.Kernel = .{ .takeKeys = takeKeys, .record = record };

            fn interface(sink: *WireSink) tls.Sink {
                return .{
                    .context = sink,
                    .appendFn = append,
                    .kernel = if (kernel_may_seal) &kernel else null,
                };
            }

            fn append(context: *anyopaque, bytes: []const u8) tls.Sink.Error!void {
                const sink: *WireSink = @ptrCast(@alignCast(context));
                try sink.tunnel.wire.append(&sink.w.pool, bytes);
            }

            /// Only a connection whose ciphertext is all with the kernel, as it nearly always is so early,
            /// gets sealed there: nothing may be left that would be sealed twice.
            fn takeKeys(context: *anyopaque, keys: []const u8) bool {
                const sink: *WireSink = @ptrCast(@alignCast(context));
                return drainWire(
                    sink.w,
                    sink.transport,
                    sink.tunnel,
                ) == .sent and sink.w.io.sealInKernel(sink.transport.socket, keys);
            }

            fn record(context: *anyopaque, kind: u8, plaintext: []const u8) tls.Sink.Error!void {
                const sink: *WireSink = @ptrCast(@alignCast(context));
                var head: [record_head_bytes]u8 = undefined;
                head[0] = kind;
                std.mem.writeInt(u16, head[1..], @intCast(plaintext.len), .big);
                try sink.tunnel.wire.append2(&sink.w.pool, &head, plaintext);
            }
        };
    };
}
