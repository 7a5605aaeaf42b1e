//! The TLS state machine of a connection over OpenSSL (RFC 8446, RFC 5246). Bytes in, events and bytes out;
//! the caller owns time and transport. Does not know: sockets, deadlines, what the plaintext means.
const std = @import("std");
const assert = std.debug.assert;
const c = @import("libssl.zig");
const tls = @import("tls.zig");
const certificate = @import("certificate.zig");
const transport = @import("transport.zig");
const acquire = @import("context.zig").acquire;
const Context = @import("context.zig").Context;
const Generation = @import("generation.zig").Generation;

/// The TLS state machine of a connection. May move in memory between calls; one thread at a time. The session
/// keeps the generation of the context that it began with, also across `Context.reload` and `Context.deinit`.
pub const Session = struct {
    ssl: *c.SSL,
    generation: *Generation,
    state: State,
    kernel: transport.Kernel = .{},
    protocols: []const tls.Protocol,

    const State = union(enum) {
        /// A server's session that has received nothing: the peer may not even speak TLS.
        greeting,
        handshaking,
        open,
        /// The peer sent close_notify.
        closed,
        failed: Failure,
    };

    const Failure = struct {
        /// Static text.
        reason: []const u8,
        /// Whether the handshake had come to its end.
        agreed: bool,
    };

    /// A server's session, which `protocols` must outlive. ALPN agrees on the first of them that the client
    /// offers, too; a client with only others is refused (RFC 7301 §3.2). Empty: the extension is ignored.
    pub fn init(context: *Context, protocols: []const tls.Protocol) error{OutOfMemory}!Session {
        const session = try create(context, .greeting, protocols);
        assert(session.generation.role == .server);
        c.SSL_set_accept_state(session.ssl);
        return session;
    }

    /// A client's session: call `receive` without input to begin the handshake.
    /// `server_name` is a DNS name (then sent as SNI) or an IP address; it is what the server's certificate
    /// is verified for. `resumption` stays the caller's.
    pub fn initClient(
        context: *Context,
        server_name: ?[:0]const u8,
        resumption: ?Resumption,
    ) error{OutOfMemory}!Session {
        var session = try create(context, .handshaking, &.{});
        errdefer session.deinit();
        assert(session.generation.role == .client);
        c.SSL_set_connect_state(session.ssl);
        c.ERR_clear_error();
        if (server_name) |name| {
            const param = c.SSL_get0_param(session.ssl);
            if (c.X509_VERIFY_PARAM_set1_ip_asc(param, name) != 1) {
                if (c.X509_VERIFY_PARAM_set1_host(param, name.ptr, name.len) != 1) return error.OutOfMemory;
                if (c.SSL_set_tlsext_host_name(session.ssl, name) != 1) return error.OutOfMemory;
            }
        }
        if (resumption) |kept| {
            if (c.SSL_set_session(session.ssl, kept.session) != 1) return error.OutOfMemory;
        }
        return session;
    }

    fn create(
        context: *Context,
        state: State,
        protocols: []const tls.Protocol,
    ) error{OutOfMemory}!Session {
        const generation = acquire(context);
        errdefer generation.release();
        c.ERR_clear_error();
        const ssl = c.SSL_new(generation.first) orelse return error.OutOfMemory;
        errdefer c.SSL_free(ssl);
        try transport.attach(ssl, generation.method);
        return .{ .ssl = ssl, .generation = generation, .state = state, .protocols = protocols };
    }

    /// Frees the session. Sends nothing to the peer: see `shutdown`.
    pub fn deinit(session: *Session) void {
        session.invariants();
        // Without these marks OpenSSL takes the context's lock to forget a session that was never cached, and
        // a client's ticket becomes invalid with its first connection that ends without close_notify. TLS 1.1
        // dropped that rule (RFC 4346 §7.2.1).
        if (session.isHandshakeDone()) {
            c.SSL_set_shutdown(session.ssl, c.SSL_SENT_SHUTDOWN | c.SSL_RECEIVED_SHUTDOWN);
        }
        c.SSL_free(session.ssl);
        session.generation.release();
        session.* = undefined;
    }

    /// Lets the sink take the keys of output (`tls.Sink.Kernel`) once there are any. To be called before
    /// anything is received. OpenSSL may not offer the keys for every cipher.
    pub fn offerKeys(session: *Session) void {
        assert(session.state == .greeting);
        _ = c.SSL_set_options(session.ssl, c.SSL_OP_ENABLE_KTLS);
    }

    /// Has the session keep its buffers, some 34 KB, while it is idle: a record then takes no allocation.
    pub fn keepBuffers(session: *Session) void {
        c.SSL_clear_mode(session.ssl, c.SSL_MODE_RELEASE_BUFFERS);
    }

    /// Whether the sink has taken the keys: then the kernel seals application data, and `write` does not.
    /// Messages of the session itself (alerts, tickets) come as records of their kinds.
    pub fn isSealedByKernel(session: *const Session) bool {
        return session.kernel.seals;
    }

    /// Takes ciphertext, advances the handshake, and decrypts into `plaintext` (at least one byte; 16 KiB
    /// never splits a record). Answers go to `sink`: send them whatever the event is. All slices are borrowed
    /// for the call only.
    /// After `.plaintext` call again, with what is left of the input if anything, until the answer is
    /// something else; a caller that stops for a while resumes there.
    pub fn receive(session: *Session, ciphertext: []const u8, plaintext: []u8, sink: tls.Sink) tls.Received {
        assert(plaintext.len > 0);
        switch (session.state) {
            .greeting => {
                if (ciphertext.len == 0) return .{ .consumed = 0, .event = .want_more };
                // A TLS record begins with 20 to 24, an SSLv2 greeting with 128 or more (RFC 8446 §5.1).
                if (std.ascii.isUpper(ciphertext[0])) return .{ .consumed = 0, .event = .plain_http };
                session.state = .handshaking;
            },
            .handshaking, .open => {},
            // Bytes after close_notify are dropped (RFC 8446 §6.1).
            .closed => return .{ .consumed = ciphertext.len, .event = .closed },
            .failed => |failure| return .{
                .consumed = ciphertext.len,
                .event = .{ .failed = failure.reason },
            },
        }
        var transfer = session.transferOf(ciphertext, sink);
        transport.lend(session.ssl, &transfer);
        defer transport.lend(session.ssl, null);
        const event = session.handshake(&transfer) orelse session.decrypt(&transfer, plaintext);
        if (event == .want_more) assert(transfer.input.len == 0);
        return .{
            .consumed = ciphertext.len - transfer.input.len,
            .event = event,
            .is_dry = event == .plaintext and session.isDry(&transfer),
        };
    }

    fn transferOf(session: *Session, input: []const u8, sink: tls.Sink) transport.Transfer {
        return .{ .input = input, .sink = sink, .kernel = &session.kernel, .protocols = session.protocols };
    }

    /// Whether decrypting has come to the end of the input.
    fn isDry(session: *const Session, transfer: *const transport.Transfer) bool {
        if (session.state != .open or transfer.input.len > 0) return false;
        return transfer.starved or c.SSL_has_pending(session.ssl) == 0;
    }

    /// Goes on with the handshake; null: it is done.
    fn handshake(session: *Session, transfer: *transport.Transfer) ?tls.Event {
        if (session.state == .open) return null;
        assert(session.state == .handshaking);
        c.ERR_clear_error();
        const result = c.SSL_do_handshake(session.ssl);
        if (result != 1) return session.interrupted(transfer, result);
        session.state = .open;
        return null;
    }

    fn decrypt(session: *Session, transfer: *transport.Transfer, plaintext: []u8) tls.Event {
        assert(session.state == .open);
        var filled: usize = 0;
        while (filled < plaintext.len) {
            // A read in vain would cost an idle session a buffer.
            if (transfer.input.len == 0 and c.SSL_has_pending(session.ssl) == 0) break;
            var n: usize = 0;
            c.clearErrors();
            const result = c.SSL_read_ex(session.ssl, plaintext[filled..].ptr, plaintext.len - filled, &n);
            if (result == 1) {
                assert(n > 0);
                filled += n;
                continue;
            }
            const waits = transfer.starved and !transfer.sink_failed;
            const event = if (waits) .want_more else session.interrupted(transfer, result);
            // Plaintext in front of an end is delivered first; `state` has the end for the next call.
            if (filled == 0) return event;
            break;
        }
        if (session.kernel.seals and c.SSL_get_key_update_type(session.ssl) != c.SSL_KEY_UPDATE_NONE) {
            // RFC 8446 §4.6.3 wants new keys before any more data, and neither OpenSSL 3.0 nor Linux before
            // 6.14 can change them here.
            const event = session.fail(
                "the peer asks for new keys, and the kernel that seals cannot change them",
            );
            if (filled == 0) return event;
        }
        return if (filled > 0) .{ .plaintext = filled } else .want_more;
    }

    /// Why OpenSSL stopped, as an event and, if it is final, as the state.
    fn interrupted(session: *Session, transfer: *const transport.Transfer, result: c_int) tls.Event {
        if (transfer.sink_failed) return session.fail("no memory for the ciphertext");
        switch (c.SSL_get_error(session.ssl, result)) {
            c.SSL_ERROR_WANT_READ => return .want_more,
            c.SSL_ERROR_ZERO_RETURN => {
                if (session.state == .handshaking) return session.fail("close_notify during the handshake");
                session.state = .closed;
                return .closed;
            },
            else => return session.fail(certificate.reason()),
        }
    }

    fn fail(session: *Session, reason: []const u8) tls.Event {
        c.ERR_clear_error();
        // Not within the assignment: that may write the tag of the new state first.
        const agreed = session.hasAgreed();
        session.state = .{ .failed = .{ .reason = reason, .agreed = agreed } };
        return .{ .failed = reason };
    }

    /// Encrypts all of `plaintext` into `sink`, in records of up to 16 KiB. Not before the handshake is done,
    /// nor after `shutdown`; the peer's close_notify does not matter. Ciphertext is 22 to 29 bytes longer per
    /// record: bound the outbox by offering less.
    pub fn write(session: *Session, plaintext: []const u8, sink: tls.Sink) tls.WriteError!void {
        assert(!session.kernel.seals);
        switch (session.state) {
            .greeting, .handshaking => unreachable,
            .open, .closed => assert(c.SSL_get_shutdown(session.ssl) & c.SSL_SENT_SHUTDOWN == 0),
            .failed => return error.TlsFailed,
        }
        var transfer = session.transferOf("", sink);
        transport.lend(session.ssl, &transfer);
        defer transport.lend(session.ssl, null);
        var rest = plaintext;
        while (rest.len > 0) {
            var n: usize = 0;
            if (c.SSL_write_ex(session.ssl, rest.ptr, rest.len, &n) != 1) {
                _ = session.fail(if (transfer.sink_failed)
                    "no memory for the ciphertext"
                else
                    certificate.reason());
                return if (transfer.sink_failed) error.OutOfMemory else error.TlsFailed;
            }
            assert(n > 0 and n <= rest.len);
            rest = rest[n..];
        }
    }

    /// Writes close_notify to `sink`, once: later calls do nothing. Reading stays possible. During the
    /// handshake and after a failure nothing is written.
    pub fn shutdown(session: *Session, sink: tls.Sink) tls.WriteError!void {
        session.invariants();
        defer session.invariants();
        switch (session.state) {
            .greeting, .handshaking, .failed => return,
            .open, .closed => if (c.SSL_get_shutdown(session.ssl) & c.SSL_SENT_SHUTDOWN != 0) return,
        }
        var transfer = session.transferOf("", sink);
        transport.lend(session.ssl, &transfer);
        defer transport.lend(session.ssl, null);
        c.ERR_clear_error();
        // 0: close_notify was sent, and the peer's has not come yet; 1: both.
        if (c.SSL_shutdown(session.ssl) >= 0) return;
        _ = session.fail(if (transfer.sink_failed) "no memory for the ciphertext" else certificate.reason());
        return if (transfer.sink_failed) error.OutOfMemory else error.TlsFailed;
    }

    /// Whether plaintext may be written. False again after a failure.
    pub fn isHandshakeDone(session: *const Session) bool {
        return session.state == .open or session.state == .closed;
    }

    /// Whether the handshake has come to its end, so that there is an agreement to read. Plaintext in front
    /// of a failure comes from a session that has failed already.
    pub fn hasAgreed(session: *const Session) bool {
        return switch (session.state) {
            .greeting, .handshaking => false,
            .open, .closed => true,
            .failed => |failure| failure.agreed,
        };
    }

    /// The meaning of an end of the transport at this moment. A session that failed counts as truncated.
    pub fn ending(session: *const Session) tls.Ending {
        return switch (session.state) {
            .greeting, .handshaking => .handshake,
            .open, .failed => .truncated,
            .closed => .clean,
        };
    }

    /// The protocol that ALPN has chosen; null: the client has not asked. Borrowed until the session ends;
    /// only when there is an agreement.
    pub fn protocol(session: *const Session) ?[]const u8 {
        assert(session.hasAgreed());
        var name: ?[*]const u8 = null;
        var name_len: c_uint = 0;
        c.SSL_get0_alpn_selected(session.ssl, &name, &name_len);
        return if (name_len > 0) name.?[0..name_len] else null;
    }

    /// The facts that the handshake has settled; only when it has (`hasAgreed`).
    pub fn agreement(session: *const Session) tls.Agreement {
        assert(session.hasAgreed());
        const server_name = c.SSL_get_servername(session.ssl, c.TLSEXT_NAMETYPE_host_name);
        const cipher = c.SSL_get_current_cipher(session.ssl);
        return .{
            .version = @intCast(c.SSL_version(session.ssl)),
            .cipher_suite = c.SSL_CIPHER_get_protocol_id(cipher),
            .cipher = std.mem.span(c.SSL_CIPHER_get_name(cipher)),
            .server_name = if (server_name) |name| std.mem.span(name) else null,
            .alpn = session.protocol(),
            .resumed = c.SSL_session_reused(session.ssl) == 1,
            .server_certificate_pem = session.generation.pemOf(session.ssl),
        };
    }

    /// The client's certificate as a server's session saw it; only when there is an agreement.
    pub fn peer(session: *const Session, gpa: std.mem.Allocator) error{OutOfMemory}!tls.Peer {
        assert(session.hasAgreed());
        assert(session.generation.role == .server);
        var arena: std.heap.ArenaAllocator = .init(gpa);
        errdefer arena.deinit();
        const leaf = c.SSL_get0_peer_certificate(session.ssl) orelse
            return .{ .arena = arena, .chain = &.{}, .subject = null, .verify_error = null };
        defer c.ERR_clear_error();
        // On the server's side OpenSSL's chain begins after the leaf.
        const others: ?*const c.OPENSSL_STACK = @ptrCast(c.SSL_get_peer_cert_chain(session.ssl));
        const others_len: usize = if (others) |stack| @intCast(c.OPENSSL_sk_num(stack)) else 0;
        const chain = try arena.allocator().alloc([]const u8, 1 + others_len);
        chain[0] = try certificate.toPem(arena.allocator(), leaf);
        for (chain[1..], 0..) |*pem, i| {
            pem.* = try certificate.toPem(
                arena.allocator(),
                @ptrCast(@alignCast(c.OPENSSL_sk_value(others.?, @intCast(i)).?)),
            );
        }
        const subject = try certificate.subjectText(arena.allocator(), leaf);
        const verdict = c.SSL_get_verify_result(session.ssl);
        const verify_error = if (verdict == c.X509_V_OK)
            null
        else
            std.mem.span(c.X509_verify_cert_error_string(verdict));
        return .{ .arena = arena, .chain = chain, .subject = subject, .verify_error = verify_error };
    }

    /// After a client's handshake has failed: the reason why it does not trust the server; null: another
    /// reason has ended it.
    pub fn distrust(session: *const Session) ?tls.Distrust {
        assert(session.generation.role == .client and session.state == .failed);
        return switch (c.SSL_get_verify_result(session.ssl)) {
            c.X509_V_OK => null,
            c.X509_V_ERR_HOSTNAME_MISMATCH, c.X509_V_ERR_IP_ADDRESS_MISMATCH => .other_name,
            c.X509_V_ERR_CERT_NOT_YET_VALID, c.X509_V_ERR_CERT_HAS_EXPIRED => .dates,
            else => .unknown_authority,
        };
    }

    /// The session ticket with which a client's next handshake is shorter, or null while the server has sent
    /// no ticket. The caller frees it. Under TLS 1.3 tickets arrive after the handshake: receive first.
    pub fn takeResumption(session: *Session) ?Resumption {
        assert(session.generation.role == .client);
        const kept = c.SSL_get1_session(session.ssl) orelse return null;
        if (c.SSL_SESSION_is_resumable(kept) == 1) return .{ .session = kept };
        c.SSL_SESSION_free(kept);
        return null;
    }

    /// Between calls nothing is lent to OpenSSL, and only servers wait to be greeted.
    pub fn invariants(session: *const Session) void {
        assert(!transport.isLent(session.ssl));
        assert(session.state != .greeting or session.generation.role == .server);
    }
};

/// A session ticket, which a client keeps in order to shorten its next handshake.
pub const Resumption = struct {
    session: *c.SSL_SESSION,

    /// Frees the stored session.
    pub fn deinit(resumption: Resumption) void {
        c.SSL_SESSION_free(resumption.session);
    }
};
