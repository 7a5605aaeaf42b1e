//! Layer `tls`: ciphertext <-> plaintext (RFC 8446, RFC 5246; names by RFC 6066, protocols by RFC 7301). This
//! file is the layer's contract: the values that go in and come out, and the choice of implementation at
//! build time. Does not know: sockets, clocks, HTTP beyond "this peer did not greet in TLS".
//!
//! A `Context` holds certificates and policy and is shared by every worker; a `Session` is one connection's
//! state machine. Both are sans-I/O: ciphertext comes in as a slice, ciphertext goes out through a `Sink`,
//! and nothing calls back into the server.
const std = @import("std");
const options = @import("tls_options");

/// Whether this build speaks TLS. Without it `Context.init` answers `error.TlsNotBuilt`.
pub const enabled: bool = options.enabled;
/// The code behind `Context`, `Session` and `Resumption`.
pub const implementation = if (enabled) @import("openssl.zig") else @import("none.zig");

/// Certificates and policy, shared between threads and replaced as a whole by `reload`.
pub const Context = implementation.Context;
/// The TLS state machine of a connection.
pub const Session = implementation.Session;
/// A session ticket, which a client keeps in order to shorten its next handshake.
pub const Resumption = implementation.Resumption;

/// Name, version and date of the library that is loaded: "OpenSSL 3.0.19 27 Jan 2026". Empty
/// without TLS. Static text.
pub fn library() [:0]const u8 {
    return implementation.library();
}

/// A digest of the status of a client's files: another number means that one of them, or a folder of the
/// system's authorities, has changed.
pub fn lookOf(config: *const ClientConfig) u64 {
    return implementation.lookOf(config);
}

/// Length of `ServerConfig.ticket_keys`: a 16-byte name, a 32-byte HMAC key, a 32-byte AES key.
pub const ticket_keys_bytes = 80;
/// The largest plaintext of one record (RFC 8446 §5.1): the output buffer size that never splits a record.
pub const record_plaintext_bytes_max = 16 * 1024;

/// Protocol versions that are supported; the value is the one on the wire.
pub const Version = enum(u16) {
    tls1_2 = 0x0303,
    tls1_3 = 0x0304,
};

/// A certificate and its key. All paths name PEM files. An OCSP response (DER) beside `cert_file`, with the
/// ending ".ocsp" in place of its own, is shown to clients that ask for a response.
pub const CertificateFiles = struct {
    /// The certificate, perhaps followed by the intermediates that the peer needs.
    cert_file: [:0]const u8,
    /// The private key; may be the same file.
    key_file: [:0]const u8,
    /// Intermediates that are not in `cert_file`.
    chain_file: ?[:0]const u8 = null,
    /// The password of an encrypted key.
    key_password: ?[]const u8 = null,
};

/// A certificate that is handed over: PEM, with its intermediates and its key behind it.
pub const Given = struct {
    /// The name of a host, in lower case.
    name: [:0]const u8,
    pem: []const u8,
};

/// The time in which a certificate is good, in seconds since 1970.
pub const Validity = struct {
    not_before_s: i64,
    not_after_s: i64,
};

/// Whether a server asks its clients for a certificate.
pub const ClientVerification = enum {
    /// No certificate is asked for.
    none,
    /// A certificate is asked for; without one, or with one that does not verify, the connection continues
    /// and `Peer.verify_error` tells.
    request,
    /// A certificate that verifies against `ca_file`, or the handshake fails.
    require,
};

/// A server's certificates and policy. Everything is copied by `Context.init`; nothing is kept borrowed.
pub const ServerConfig = struct {
    /// The first certificate is the default; the others are chosen by SNI, from their DNS names (the common
    /// name if a certificate has none). Two certificates with the same names and different key types (RSA and
    /// ECDSA) serve the same clients side by side. At least one, unless there is a `cert_dir` or a
    /// `validation_dir`.
    certificates: []const CertificateFiles,
    /// A directory with further certificates, which may come, change and go: NAME.pem with NAME.key, or
    /// NAME/fullchain.pem with NAME/privkey.pem. Besides its own names a certificate has that of its files,
    /// even if another certificate has it as well. A certificate that cannot be used is an error at first;
    /// later its predecessor stays, and `Context.concern` tells.
    cert_dir: ?[:0]const u8 = null,
    /// Certificates are ordered from an authority, and handed over (`Context.give`): handshakes are refused
    /// until one has come. An authority that asks for a name by TLS (RFC 8737) gets the certificate in
    /// NAME.alpn of this directory, with its key behind it, for as long as that is there.
    validation_dir: ?[:0]const u8 = null,
    /// PEM file with the authorities that client certificates are verified against. Required unless
    /// `verify_client` is `.none`.
    ca_file: ?[:0]const u8 = null,
    /// Whether clients are asked for a certificate, and refused without.
    verify_client: ClientVerification = .none,
    /// The oldest version that is accepted; the newest is always TLS 1.3.
    min_version: Version = .tls1_2,
    /// Cipher suites up to TLS 1.2, in OpenSSL's notation and in order of preference. An element that names
    /// no cipher is an error.
    cipher_list: [:0]const u8 = default_cipher_list,
    /// Cipher suites of TLS 1.3, separated by colons, in order of preference.
    cipher_suites: [:0]const u8 = default_cipher_suites,
    /// Groups of the key exchange, separated by colons, in order of preference. Null: X25519MLKEM768 where
    /// the library knows it (OpenSSL 3.5), which computers of the future cannot undo, then X25519, P-256 and
    /// P-384.
    groups: ?[:0]const u8 = null,
    /// The keys that seal session tickets. Give all processes the same bytes, so that each opens the others'
    /// tickets; null: random ones of this context. `reload` with new bytes rotates them: older tickets then
    /// cost a full handshake.
    ticket_keys: ?*const [ticket_keys_bytes]u8 = null,
    /// Seconds for which a ticket shortens handshakes (RFC 8446 §4.6.1 allows a week at most).
    session_timeout_s: u32 = 7200,
};

/// A protocol that a server's session may agree on with a client (ALPN, RFC 7301).
pub const Protocol = struct {
    /// The protocol's name, 1 to 255 bytes.
    name: []const u8,
    /// Whether the protocol is passed over where the cipher lets contents be forged or read later: with all
    /// ciphers that RFC 9113's appendix A names.
    needs_strong_cipher: bool = false,
};

/// The authorities that a client trusts.
pub const Authorities = union(enum) {
    /// The server's certificate is not verified.
    unverified,
    /// The system's authorities, or those of the files that SSL_CERT_FILE and SSL_CERT_DIR name.
    system,
    /// The authorities of a PEM file.
    file: [:0]const u8,
};

/// The reason why a client does not trust a server's certificate.
pub const Distrust = enum { other_name, dates, unknown_authority };

/// A client's policy.
pub const ClientConfig = struct {
    authorities: Authorities = .unverified,
    /// The certificate for servers that ask for one.
    certificate: ?CertificateFiles = null,
    /// The oldest version that is accepted.
    min_version: Version = .tls1_2,
    /// The newest version that is offered.
    max_version: Version = .tls1_3,
    /// Cipher suites up to TLS 1.2, as in `ServerConfig`.
    cipher_list: [:0]const u8 = default_cipher_list,
    /// Cipher suites of TLS 1.3, as in `ServerConfig`.
    cipher_suites: [:0]const u8 = default_cipher_suites,
    /// Groups of the key exchange, as in `ServerConfig`.
    groups: ?[:0]const u8 = null,
    /// Protocols to offer, in this order; empty: the extension is not sent.
    alpn: []const []const u8 = &.{},
};

/// Forward secrecy and AEAD only. AES-128 leads because it is the fastest where the processor has AES
/// instructions; a client without them puts ChaCha20 first and is then followed.
pub const default_cipher_list = "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:" ++
    "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:" ++
    "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305";
/// The three suites of RFC 8446 that every library has, ordered as `default_cipher_list` is.
pub const default_cipher_suites = "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:" ++
    "TLS_CHACHA20_POLY1305_SHA256";

/// Why a context could not be made or reloaded. `Diagnostic` has the words.
pub const ContextError = error{
    OutOfMemory,
    /// The engine was built without TLS.
    TlsNotBuilt,
    /// A file is missing, unreadable or does not hold a certificate or key.
    InvalidFile,
    /// The key is encrypted, and the password is missing or wrong.
    InvalidPassword,
    /// The key is not the certificate's.
    KeyMismatch,
    /// A value cannot be used: a cipher, a protocol name, a combination.
    InvalidValue,
};

/// Room for one sentence that names the file or value at fault and the reason. Never holds a password.
pub const Diagnostic = struct {
    buffer: [bytes_max]u8 = undefined,
    len: usize = 0,

    /// Longer sentences are cut: paths have no useful limit.
    pub const bytes_max = 1024;

    /// The sentence; empty when nothing failed. Borrowed from the diagnostic.
    pub fn text(diagnostic: *const Diagnostic) []const u8 {
        return diagnostic.buffer[0..diagnostic.len];
    }

    /// Replaces the sentence.
    pub fn set(diagnostic: *Diagnostic, comptime format: []const u8, arguments: anytype) void {
        var writer: std.Io.Writer = .fixed(&diagnostic.buffer);
        // A full buffer is the cut that `bytes_max` announces.
        writer.print(format, arguments) catch {};
        diagnostic.len = writer.end;
    }
};

/// Takes ciphertext: typically the connection's outbox. Lent to one call at a time.
pub const Sink = struct {
    context: *anyopaque,
    appendFn: *const fn (context: *anyopaque, bytes: []const u8) Error!void,
    /// Null: the session seals everything itself.
    kernel: ?*const Kernel = null,

    /// The functions of a sink behind which the kernel seals records; see `Session.offerKeys`.
    pub const Kernel = struct {
        /// Takes keys (a struct `tls12_crypto_info_*` of linux/tls.h), which are secret and borrowed for the
        /// call. True: all output behind that of the sink so far gets sealed with them.
        takeKeys: *const fn (context: *anyopaque, keys: []const u8) bool,
        /// After that, instead of `append`: takes a copy of the plaintext of one record of this
        /// kind (RFC 8446 §5.1).
        record: *const fn (context: *anyopaque, kind: u8, plaintext: []const u8) Error!void,
    };

    /// A sink takes all the bytes or fails the session.
    pub const Error = error{OutOfMemory};

    /// Appends a copy of `bytes`.
    pub fn append(sink: Sink, bytes: []const u8) Error!void {
        return sink.appendFn(sink.context, bytes);
    }
};

/// The answer of `Session.receive`: how much ciphertext is used up, and the one event that came of it.
pub const Received = struct {
    /// Bytes of the given ciphertext that the caller drops: all of them with `.want_more`.
    consumed: usize,
    event: Event,
    /// Whether the next answer without more ciphertext would be `.want_more`.
    is_dry: bool = false,
};

/// A step of a session.
pub const Event = union(enum) {
    /// The number of bytes (at least one) at the start of the output buffer. More may follow without new
    /// input: call again.
    plaintext: usize,
    /// The session has used up its input, and needs more.
    want_more,
    /// The peer sent close_notify: nothing comes in any more. Writing stays possible.
    closed,
    /// The very first byte is not TLS but a capital letter, as in "GET /": nothing is consumed, nothing was
    /// written. Only from a server's session.
    plain_http,
    /// The session is over; the sink may hold an alert for the peer. The reason is static text.
    failed: []const u8,
};

/// The state of a session at the end of its transport.
pub const Ending = enum {
    /// The peer sent close_notify first.
    clean,
    /// The peer vanished: what came so far may be cut short by an attacker (RFC 8446 §6.1).
    truncated,
    /// The handshake never came to its end.
    handshake,
};

/// Why `Session.write` cannot go on.
pub const WriteError = error{
    /// The sink could not take the ciphertext; the session has failed.
    OutOfMemory,
    /// The session has failed before or just now.
    TlsFailed,
};

/// Facts that a finished handshake has settled. Slices are borrowed until the session ends.
pub const Agreement = struct {
    /// 0x0303 or 0x0304.
    version: u16,
    /// IANA's number of the cipher suite.
    cipher_suite: u16,
    /// OpenSSL's name of the cipher suite. Static text.
    cipher: []const u8,
    /// The name that the client asked for (SNI), as it was sent.
    server_name: ?[]const u8,
    /// The protocol chosen by ALPN.
    alpn: ?[]const u8,
    /// Whether a ticket shortened the handshake.
    resumed: bool,
    /// The certificate of this server as PEM; null in a client's session.
    server_certificate_pem: ?[]const u8,
};

/// The client's certificate, in the terms of the PAGI `tls` extension. Owned by the arena.
pub const Peer = struct {
    arena: std.heap.ArenaAllocator,
    /// PEM, the client's own certificate first. Empty if it showed none; only the first after a resumed
    /// handshake, because tickets keep no more.
    chain: []const []const u8,
    /// The subject by RFC 4514.
    subject: ?[]const u8,
    /// Why the certificate does not verify, static text; null: it does, or there is none.
    verify_error: ?[]const u8,

    /// Frees everything.
    pub fn deinit(peer: *Peer) void {
        peer.arena.deinit();
        peer.* = undefined;
    }
};

comptime {
    // The two implementations have the same names, so that the server compiles against either.
    if (enabled) {
        const none = @import("none.zig");
        for (.{ "Context", "Session", "Resumption" }) |noun| {
            for (@typeInfo(@field(implementation, noun)).@"struct".decl_names) |name| {
                if (!@hasDecl(@field(none, noun), name)) {
                    @compileError("none.zig lacks " ++ noun ++ "." ++ name);
                }
            }
        }
    }
}

test {
    _ = implementation;
    _ = @import("dates.zig");
    _ = @import("none.zig");
}

test "a diagnostic that is too long is cut, not lost" {
    var diagnostic: Diagnostic = .{};
    try std.testing.expectEqualStrings("", diagnostic.text());
    diagnostic.set("{s}", .{@as([Diagnostic.bytes_max + 1]u8, @splat('x'))});
    try std.testing.expectEqual(Diagnostic.bytes_max, diagnostic.text().len);
    diagnostic.set("file {s}", .{"a.pem"});
    try std.testing.expectEqualStrings("file a.pem", diagnostic.text());
}
