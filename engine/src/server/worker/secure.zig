//! The part of a worker that serves connections over TLS: between the io and the parts that read and answer,
//! it opens received records and seals output. Connections without a tunnel never come here.
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

pub fn Secure(comptime W: type) type {
    return struct {
        const handshakes_part = @import("handshakes.zig").Shaking(W);
        const input_part = @import("input.zig").Input(W);
        const output_part = @import("output.zig").Output(W);
        const relay_part = @import("relay.zig").Relaying(W);
        const streams_part = @import("streams.zig").Streams(W);
        const kernel_may_seal = @hasDecl(W.IoType, "sealInKernel");

        /// Plaintext that is sealed at once, in bytes: four records. A slow peer makes the server hold little
        /// more ciphertext.
        const seal_bytes = 4 * tls.record_plaintext_bytes_max;
        const limits = @import("../config.zig").worker_limits;
        const turn_bytes_max = limits.tls_turn_bytes_max;

        /// Buffers that all TLS connections of a worker share. They are allocated for the first TLS listener.
        pub const Scratch = struct {
            /// Plaintext of the connection that is being read.
            opened: []u8 = &.{},
            /// Plaintext that is gathered to fill records. `opened` cannot be used for it, because responses
            /// are sealed while a request is being read.
            gathered: []u8 = &.{},
            /// New connections let the kernel seal their output if it can.
            kernel_seals: bool = false,
            /// The number of sessions that keep their buffers.
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

        /// Serves later connections at this listener over TLS. The context must outlive the listener.
        pub fn secureListener(w: *W, listener: u32, context: *tls.Context) error{OutOfMemory}!void {
            try w.scratch.ensure(w.gpa, w.config.receive_bytes);
            w.listeners.items[listener].tls = context;
            if (kernel_may_seal) w.scratch.kernel_seals = w.config.ktls and w.io.offersSeals();
        }

        /// Loads the certificates of a listener again if their files have changed.
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

        // ---- Input

        /// Handles received ciphertext.
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
            const ticket = transport.lane.ticket();
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
                        // The host may have closed the connection.
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
            if (transport.lane.corked) return; // the lane is sent and settled before the next wait
            // The response follows at once, and messages of the session (tickets) are sent with it.
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
            // On a connection over the limit each stream is answered with 503.
            if (alpn.isMultiplexed(agreed)) return w.beginStreams(transport);
            if (transport.surplus != .no and !w.health.isSet()) try w.queueRejection(&transport.lane, "");
        }

        /// Answers a peer that speaks HTTP without TLS, in HTTP. The first byte of a connection shows that,
        /// so `plaintext` begins with its request.
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

        /// Ends a connection whose session has failed. Only the session's alert, if there is one, is still
        /// sent.
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

        /// Logs a failed handshake: at most a line a second, with the number of further ones, because
        /// scanners fail by the thousand.
        fn noteFailure(w: *W, transport: *Transport, reason: []const u8) void {
            if (w.counting.counters) |counters| counters.noteRejection(.tls_handshake);
            const others = w.troubles.handshake.add(w.clock.now) orelse return;
            var buffer: [256]u8 = undefined;
            w.say(.info, &buffer, "TLS handshake failed: {s} (connection {d} of {f}){f}", .{
                reason, transport.number, transport.peerPlace(), others,
            });
        }

        // ---- Output

        /// Like `sendFramed`, with sealing.
        pub fn send(w: *W, transport: *Transport, tunnel: *Tunnel) bool {
            assert(transport.tunnel == tunnel);
            if (tunnel.session.isSealedByKernel()) return sendThroughKernel(w, transport, tunnel);
            if (alone(transport, tunnel)) |plaintext| return sendAlone(w, transport, tunnel, plaintext);
            var left: usize = turn_bytes_max;
            while (true) {
                // The end of a response and the close_notify behind it are sent in one system call.
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
                // The rest is sent in the next round, after other connections had their turn.
                output_part.block(w, transport);
                w.waiting.cork(&transport.lane);
                return true;
            }
            transport.out.state = .open;
            return true;
        }

        /// A short response that is all queued output, as nearly every response is; null: there is more
        /// output, or none.
        fn alone(transport: *const Transport, tunnel: *const Tunnel) ?[]const u8 {
            if (transport.phase != .serving or !tunnel.wire.isEmpty()) return null;
            if (!tunnel.session.isHandshakeDone()) return null;
            const plaintext = transport.out.queue.only() orelse return null;
            return if (plaintext.len <= limits.tls_alone_bytes_max) plaintext else null;
        }

        /// Seals a short response into shared memory and sends it from there. `wire` gets bytes that the
        /// kernel does not take.
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

        /// Gives ciphertext to the kernel.
        fn sendWire(w: *W, transport: *Transport, tunnel: *Tunnel) Progress {
            const progress = drainWire(w, transport, tunnel);
            switch (progress) {
                .sent => {},
                .waits => output_part.block(w, transport),
                .lost => _ = output_part.sendFailed(w, transport),
            }
            return progress;
        }

        /// Like `sendWire`, but leaves it to the caller to act on the result, because a session may be at
        /// work.
        fn drainWire(w: *W, transport: *Transport, tunnel: *Tunnel) Progress {
            const socket = transport.socket;
            var slices: [io_layer.slices_max][]const u8 = undefined;
            var borrowed: [io_layer.slices_max]io_layer.Slice = undefined;
            while (true) switch (tunnel.wire.front(&slices)) {
                .nothing => return .sent,
                .file => unreachable, // files were sealed into bytes
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

        // ---- Output that the kernel seals

        /// Like `send`, where the kernel seals: queued output is sent as plaintext, and messages of the
        /// session as records of their kinds.
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

        /// Gives records in `wire` to the kernel, each with its kind. `lost`: the socket has failed; the
        /// caller acts on that.
        fn sendRecords(w: *W, transport: *Transport, tunnel: *Tunnel) Progress {
            if (!kernel_may_seal) unreachable;
            const socket = transport.socket;
            var slices: [io_layer.slices_max][]const u8 = undefined;
            while (true) switch (tunnel.wire.front(&slices)) {
                .nothing => return .sent,
                .file => unreachable, // a session's messages contain no file
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

        /// Bytes before the plaintext of a record in `wire` where the kernel seals: its kind, and the length
        /// of its plaintext.
        const record_head_bytes = 3;

        // ---- Sealing

        const SealError = tls.WriteError || error{FileFailed};

        /// Seals the next piece of queued output into `wire`. Returns the number of plaintext bytes; null:
        /// nothing is left. The last piece of a closing transport is close_notify.
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
                    // The file was longer when the response began, and the response has promised that length.
                    if (len == 0 and wanted > 0) return error.FileFailed;
                    try tunnel.session.write(w.scratch.gathered[0..len], sink.interface());
                    range.advance(len);
                    if (range.len == 0) if (outbox.popFile(&w.pool)) |whole| w.storage.closeFile(whole);
                    return len;
                },
            }
        }

        /// The bytes of one record: a single piece without a copy, or several pieces copied together, because
        /// every record costs 22 to 29 bytes and a seal.
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

        /// Sends close_notify on a connection without a request that the worker is about to close. `waits`:
        /// the kernel has no room at present; `lost`: it cannot be sent.
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

        /// Collects the output of one call into a session in a fixed buffer.
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

        /// Appends the output of one call into a session to the tunnel's wire.
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

            /// Lets the kernel seal from now on, if it has taken all ciphertext, as it nearly always has by
            /// then: bytes that are left would be sealed twice.
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
