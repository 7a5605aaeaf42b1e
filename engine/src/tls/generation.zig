//! A loaded configuration: OpenSSL contexts by server name, and the policy that all of them share. It never
//! changes once made; counted references keep it alive for the sessions that began with it (RFC 6066 §3
//! names, RFC 7301 protocols, RFC 5077 and RFC 8446 §4.6.1 tickets).
//! Does not know: which generation is the newest (context.zig), the bytes of a connection (session.zig).
const std = @import("std");
const assert = std.debug.assert;
const c = @import("libssl.zig");
const tls = @import("tls.zig");
const certificate = @import("certificate.zig");
const directory = @import("directory.zig");
const staples = @import("staple.zig");
const transport = @import("transport.zig");
const validation = @import("validation.zig");

/// A loaded configuration of a server or a client.
pub const Generation = struct {
    gpa: std.mem.Allocator,
    arena: std.heap.ArenaAllocator,
    references: std.atomic.Value(u32) = .init(1),
    role: Role,
    method: *c.BIO_METHOD,
    /// The context with which sessions begin: the default certificate's.
    first: *c.SSL_CTX,
    /// An entry per set of server names; `first` belongs to the first entry.
    entries: std.ArrayList(Entry) = .empty,
    /// DNS name (lower case, perhaps "*.example.org") to context. The first certificate with a name has it.
    names: std.StringHashMapUnmanaged(*c.SSL_CTX) = .empty,
    /// Every server certificate as text, made once, because every request's scope shows it.
    leaves: std.ArrayList(Leaf) = .empty,
    /// Certificates from a directory, by the name of the file: they stay in use when the file becomes
    /// unusable.
    kept: std.StringHashMapUnmanaged(certificate.Pair) = .empty,
    /// Certificates that were handed over, sorted by name.
    given: std.ArrayList(Given) = .empty,
    /// The folder with the certificates that answer an authority (RFC 8737).
    validations: ?[]const u8 = null,
    /// Sentences for the operator about certificates and files that work less well than they should.
    complaints: std.ArrayList([]const u8) = .empty,

    const Role = enum { server, client };
    const Entry = struct { context: *c.SSL_CTX, names: []const []const u8 };
    /// A certificate that was handed over under this name.
    pub const Given = struct {
        name: [:0]const u8,
        pair: certificate.Pair,

        fn lessThan(_: void, a: Given, b: Given) bool {
            return std.mem.lessThan(u8, a.name, b.name);
        }
    };
    const Leaf = struct {
        certificate: *c.X509,
        pem: []const u8,
        /// The file's name, for messages.
        file: []const u8,
        staple: ?staples.Staple,
    };

    /// Loads a server's configuration; the caller owns one reference. Certificates of a directory that cannot
    /// be used are taken from `before`, if that is not null, and `complaints` has a sentence about each.
    /// Certificates that were handed over stay, unless one of `fresh`, which is borrowed, has the same name.
    pub fn createServer(
        gpa: std.mem.Allocator,
        config: tls.ServerConfig,
        before: ?*const Generation,
        fresh: []const Given,
        diagnostic: *tls.Diagnostic,
    ) tls.ContextError!*Generation {
        if (config.certificates.len == 0 and config.cert_dir == null and config.validation_dir == null) {
            diagnostic.set("SSL needs a certificate: none is configured", .{});
            return error.InvalidValue;
        }
        if (config.verify_client != .none and config.ca_file == null) {
            diagnostic.set("SSL verify_client needs ca_file: without it every client would be refused", .{});
            return error.InvalidValue;
        }
        const generation = try createEmpty(gpa, .server);
        errdefer generation.release();
        var authorities = try Authorities.load(config, diagnostic);
        defer authorities.deinit();
        for (config.certificates) |files| {
            var pair = try certificate.Pair.load(files, diagnostic);
            defer pair.deinit();
            const staple = try generation.stapleFor(pair.leaf, files);
            _ = try generation.addPair(&pair, files.cert_file, staple, config, authorities, diagnostic);
        }
        if (config.cert_dir) |path| try generation.addFolder(path, config, before, authorities, diagnostic);
        if (config.validation_dir) |path| {
            generation.validations = try generation.arena.allocator().dupe(u8, path);
            if (before) |last| try generation.keepGiven(last.given.items, fresh, diagnostic);
            try generation.addGiven(config, authorities, diagnostic);
        }
        generation.first = generation.entries.items[0].context;
        return generation;
    }

    /// Loads a client's configuration; the caller owns one reference.
    pub fn createClient(
        gpa: std.mem.Allocator,
        config: tls.ClientConfig,
        diagnostic: *tls.Diagnostic,
    ) tls.ContextError!*Generation {
        const generation = try createEmpty(gpa, .client);
        errdefer generation.release();
        const context = try generation.addEntry(&.{});
        generation.first = context;
        try setPolicy(context, &config, diagnostic);
        if (c.SSL_CTX_set_max_proto_version(context, @backingInt(config.max_version)) != 1) {
            return error.OutOfMemory;
        }
        switch (config.authorities) {
            .unverified => {},
            // A file that is missing makes an empty set, which trusts no server.
            .system => if (c.SSL_CTX_set_default_verify_paths(context) != 1) return error.OutOfMemory,
            .file => |path| {
                var chain = try certificate.Chain.load("SSL CA file", path, diagnostic);
                defer chain.deinit();
                for (0..chain.count()) |i| {
                    if (c.X509_STORE_add_cert(c.SSL_CTX_get_cert_store(context), chain.at(i)) != 1) {
                        return error.OutOfMemory;
                    }
                }
            },
        }
        if (config.authorities != .unverified) c.SSL_CTX_set_verify(context, c.SSL_VERIFY_PEER, null);
        if (config.certificate) |files| {
            var pair = try certificate.Pair.load(files, diagnostic);
            defer pair.deinit();
            try usePair(context, &pair, files.cert_file, diagnostic);
        }
        const protocols = try encodeProtocols(generation.arena.allocator(), config.alpn, diagnostic);
        // SSL_CTX_set_alpn_protos answers 0 for success.
        if (protocols.len > 0 and
            c.SSL_CTX_set_alpn_protos(context, protocols.ptr, @intCast(protocols.len)) != 0)
        {
            return error.OutOfMemory;
        }
        return generation;
    }

    /// Counts one more reference.
    pub fn retain(generation: *Generation) void {
        // The caller's own reference keeps the count above zero meanwhile.
        const before = generation.references.fetchAdd(1, .monotonic);
        assert(before > 0);
    }

    /// Drops one reference; the last one frees everything. OpenSSL's contexts live on for as long as a
    /// connection holds them.
    pub fn release(generation: *Generation) void {
        const before = generation.references.fetchSub(1, .acq_rel);
        assert(before > 0);
        if (before > 1) return;
        for (generation.entries.items) |entry| c.SSL_CTX_free(entry.context);
        var kept = generation.kept.valueIterator();
        while (kept.next()) |pair| pair.deinit();
        for (generation.given.items) |*one| one.pair.deinit();
        c.BIO_meth_free(generation.method);
        generation.arena.deinit();
        generation.gpa.destroy(generation);
    }

    /// The text of the certificate that `ssl` showed (or would have shown, had the handshake
    /// not been resumed).
    pub fn pemOf(generation: *const Generation, ssl: *const c.SSL) ?[]const u8 {
        const shown = c.SSL_get_certificate(ssl);
        for (generation.leaves.items) |leaf| {
            if (leaf.certificate == shown) return leaf.pem;
        }
        return null;
    }

    fn createEmpty(gpa: std.mem.Allocator, role: Role) error{OutOfMemory}!*Generation {
        const method = try transport.createMethod();
        errdefer c.BIO_meth_free(method);
        const generation = try gpa.create(Generation);
        generation.* = .{
            .gpa = gpa,
            .arena = .init(gpa),
            .role = role,
            .method = method,
            .first = undefined,
        };
        return generation;
    }

    fn addEntry(generation: *Generation, names: []const []const u8) error{OutOfMemory}!*c.SSL_CTX {
        const arena = generation.arena.allocator();
        try generation.entries.ensureUnusedCapacity(arena, 1);
        const role = if (generation.role == .server) c.TLS_server_method() else c.TLS_client_method();
        c.ERR_clear_error();
        const context = c.SSL_CTX_new(role) orelse return error.OutOfMemory;
        generation.entries.appendAssumeCapacity(.{ .context = context, .names = names });
        for (names) |name| {
            const known = try generation.names.getOrPut(arena, name);
            if (!known.found_existing) known.value_ptr.* = context;
        }
        return context;
    }

    fn addPair(
        generation: *Generation,
        pair: *const certificate.Pair,
        file: []const u8,
        staple: ?staples.Staple,
        config: tls.ServerConfig,
        authorities: Authorities,
        diagnostic: *tls.Diagnostic,
    ) tls.ContextError!*c.SSL_CTX {
        const arena = generation.arena.allocator();
        const names = try certificate.dnsNames(arena, pair.leaf);
        const leaf: Leaf = .{
            .certificate = pair.leaf,
            .pem = try certificate.toPem(arena, pair.leaf),
            .file = try arena.dupe(u8, file),
            .staple = staple,
        };
        // The pointer stays valid: the context that uses the certificate shares it.
        try generation.leaves.append(arena, leaf);
        for (generation.entries.items) |entry| {
            // Refused if a key of this type is there already: then the pair gets a context of its own.
            if (sameNames(entry.names, names) and
                c.SSL_CTX_use_cert_and_key(
                    entry.context,
                    pair.leaf,
                    pair.key,
                    pair.chain.stack,
                    0,
                ) == 1) return entry.context;
        }
        const context = try generation.addEntry(names);
        try setPolicy(context, &config, diagnostic);
        try generation.setServerPolicy(context, config, authorities);
        try usePair(context, pair, file, diagnostic);
        return context;
    }

    /// Adds the certificates of a directory. Each is chosen by the name of its files, too.
    fn addFolder(
        generation: *Generation,
        path: [:0]const u8,
        config: tls.ServerConfig,
        before: ?*const Generation,
        authorities: Authorities,
        diagnostic: *tls.Diagnostic,
    ) tls.ContextError!void {
        const arena = generation.arena.allocator();
        for (try directory.list(arena, path, diagnostic)) |found| {
            const file = found.files.cert_file;
            try generation.kept.ensureUnusedCapacity(arena, 1);
            var pair = certificate.Pair.load(found.files, diagnostic) catch |err| old: {
                if (err == error.OutOfMemory) return err;
                const last = before orelse return err;
                const old = last.kept.get(file) orelse {
                    try generation.complain("{s}; it is left out", diagnostic);
                    continue;
                };
                try generation.complain("{s}; the old one stays", diagnostic);
                break :old try old.retain();
            };
            generation.kept.putAssumeCapacity(file, pair);
            const staple = try generation.stapleFor(pair.leaf, found.files);
            const context = try generation.addPair(&pair, file, staple, config, authorities, diagnostic);
            try generation.names.put(arena, found.name, context);
        }
        if (generation.entries.items.len > 0) return;
        diagnostic.set("SSL cert_dir has no certificate that can be used: {s}", .{path});
        return error.InvalidFile;
    }

    fn keepGiven(
        generation: *Generation,
        before: []const Given,
        fresh: []const Given,
        diagnostic: *tls.Diagnostic,
    ) tls.ContextError!void {
        const arena = generation.arena.allocator();
        var newest: std.StringArrayHashMapUnmanaged(certificate.Pair) = .empty;
        for (before) |one| try newest.put(arena, one.name, one.pair);
        for (fresh) |one| try newest.put(arena, one.name, one.pair);
        if (newest.count() > directory.certificates_max) {
            diagnostic.set("SSL has more than {d} certificates", .{directory.certificates_max});
            return error.InvalidValue;
        }
        try generation.given.ensureTotalCapacity(arena, newest.count());
        for (newest.keys(), newest.values()) |key, pair| {
            const name = try arena.dupeSentinel(u8, key, 0);
            generation.given.appendAssumeCapacity(.{ .name = name, .pair = try pair.retain() });
        }
        std.mem.sortUnstable(Given, generation.given.items, {}, Given.lessThan);
    }

    /// Adds the certificates that were handed over. Each is chosen by the name under which it came, too.
    fn addGiven(
        generation: *Generation,
        config: tls.ServerConfig,
        authorities: Authorities,
        diagnostic: *tls.Diagnostic,
    ) tls.ContextError!void {
        for (generation.given.items) |*one| {
            const context =
                try generation.addPair(&one.pair, one.name, null, config, authorities, diagnostic);
            try generation.names.put(generation.arena.allocator(), one.name, context);
        }
        if (generation.entries.items.len > 0) return;
        // Without a certificate OpenSSL refuses each handshake with an alert.
        const context = try generation.addEntry(&.{});
        try setPolicy(context, &config, diagnostic);
        try generation.setServerPolicy(context, config, authorities);
    }

    fn stapleFor(
        generation: *Generation,
        leaf: *c.X509,
        files: tls.CertificateFiles,
    ) error{OutOfMemory}!?staples.Staple {
        const arena = generation.arena.allocator();
        var diagnostic: tls.Diagnostic = .{};
        const path = try staples.pathFor(arena, files.cert_file);
        return staples.load(arena, path, leaf, &diagnostic) catch |err| switch (err) {
            error.OutOfMemory => error.OutOfMemory,
            error.InvalidFile => {
                try generation.complain("{s}", &diagnostic);
                return null;
            },
        };
    }

    fn complain(
        generation: *Generation,
        comptime words: []const u8,
        diagnostic: *const tls.Diagnostic,
    ) error{OutOfMemory}!void {
        const arena = generation.arena.allocator();
        try generation.complaints.append(arena, try std.fmt.allocPrint(arena, words, .{diagnostic.text()}));
    }

    fn setServerPolicy(
        generation: *Generation,
        context: *c.SSL_CTX,
        config: tls.ServerConfig,
        authorities: Authorities,
    ) error{OutOfMemory}!void {
        c.SSL_CTX_set_tlsext_servername_callback(context, &selectCertificate, generation);
        c.SSL_CTX_set_tlsext_status_cb(context, &showStaple, generation);
        c.SSL_CTX_set_alpn_select_cb(context, selectProtocol, null);
        c.SSL_CTX_set_client_hello_cb(context, answerValidation, generation);
        // A cipher_list of the user's may name DHE, which needs parameters.
        c.SSL_CTX_set_dh_auto(context, true);
        // Tickets carry the state; a server-side cache would only hold memory.
        c.SSL_CTX_set_session_cache_mode(context, c.SSL_SESS_CACHE_OFF);
        _ = c.SSL_CTX_set_timeout(context, config.session_timeout_s);
        if (config.ticket_keys) |keys| {
            // The length is OpenSSL's own; a library with another one must not pass silently.
            if (c.SSL_CTX_set_tlsext_ticket_keys(context, keys) != 1) unreachable;
        }
        try authorities.apply(context, config.verify_client);
    }
};

/// The certificates that a client's certificate is verified against.
const Authorities = struct {
    chain: ?certificate.Chain,
    /// A digest of the verification that a session went through. Tickets carry it, and OpenSSL refuses a
    /// ticket with another: else a ticket made without verification would do where a certificate is required.
    scope: [std.crypto.hash.sha2.Sha256.digest_length]u8,

    fn load(config: tls.ServerConfig, diagnostic: *tls.Diagnostic) tls.ContextError!Authorities {
        var hash: std.crypto.hash.sha2.Sha256 = .init(.{});
        hash.update(@tagName(config.verify_client));
        var chain: ?certificate.Chain = null;
        if (config.ca_file) |path| {
            chain = try certificate.Chain.load("SSL CA file", path, diagnostic);
            for (0..chain.?.count()) |i| {
                var digest: [c.EVP_MAX_MD_SIZE]u8 = undefined;
                var digest_len: c_uint = 0;
                if (c.X509_digest(chain.?.at(i), c.EVP_sha256(), &digest, &digest_len) != 1) {
                    chain.?.deinit();
                    return error.OutOfMemory;
                }
                hash.update(digest[0..digest_len]);
            }
        }
        return .{ .chain = chain, .scope = hash.finalResult() };
    }

    fn apply(
        authorities: Authorities,
        context: *c.SSL_CTX,
        verification: tls.ClientVerification,
    ) error{OutOfMemory}!void {
        if (c.SSL_CTX_set_session_id_context(context, &authorities.scope, authorities.scope.len) != 1) {
            unreachable;
        }
        if (verification == .none) return;
        const chain = authorities.chain.?;
        for (0..chain.count()) |i| {
            const authority = chain.at(i);
            // The store has the trusted authorities; the list has the names that clients choose a certificate
            // by.
            if (c.X509_STORE_add_cert(c.SSL_CTX_get_cert_store(context), authority) != 1) {
                return error.OutOfMemory;
            }
            if (c.SSL_CTX_add_client_CA(context, authority) != 1) return error.OutOfMemory;
        }
        switch (verification) {
            .none => unreachable,
            .request => c.SSL_CTX_set_verify(context, c.SSL_VERIFY_PEER, continueAnyway),
            .require => c.SSL_CTX_set_verify(
                context,
                c.SSL_VERIFY_PEER | c.SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                null,
            ),
        }
    }

    fn deinit(authorities: *Authorities) void {
        if (authorities.chain) |*chain| chain.deinit();
        authorities.* = undefined;
    }
};

/// Lets the handshake go on; the result of the verification is kept for `Peer.verify_error`.
fn continueAnyway(verified: c_int, store: ?*c.X509_STORE_CTX) callconv(.c) c_int {
    _ = verified;
    _ = store;
    return 1;
}

/// The settings that servers and clients share; `config` is a server's or a client's.
fn setPolicy(
    context: *c.SSL_CTX,
    config: anytype,
    diagnostic: *tls.Diagnostic,
) tls.ContextError!void {
    // 112 bits: no RSA below 2048, no SHA-1. Before the cipher list, which may say otherwise (@SECLEVEL).
    c.SSL_CTX_set_security_level(context, 2);
    _ = c.SSL_CTX_set_options(context, c.SSL_OP_NO_COMPRESSION | c.SSL_OP_NO_RENEGOTIATION |
        c.SSL_OP_CIPHER_SERVER_PREFERENCE | c.SSL_OP_PRIORITIZE_CHACHA);
    // A stream that ends without close_notify stays an error, whatever the system's configuration says.
    _ = c.SSL_CTX_clear_options(
        context,
        c.SSL_OP_IGNORE_UNEXPECTED_EOF | c.SSL_OP_ALLOW_UNSAFE_LEGACY_RENEGOTIATION,
    );
    // The first keeps idle sessions small; the others let `write` offer the rest of its plaintext
    // from wherever it is.
    c.SSL_CTX_set_mode(
        context,
        c.SSL_MODE_RELEASE_BUFFERS | c.SSL_MODE_ENABLE_PARTIAL_WRITE | c.SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER,
    );
    // A record's header is read together with the rest.
    c.SSL_CTX_set_read_ahead(context, true);
    if (c.SSL_CTX_set_min_proto_version(context, @backingInt(config.min_version)) != 1) {
        return error.OutOfMemory;
    }
    if (c.SSL_CTX_set_max_proto_version(context, 0) != 1) return error.OutOfMemory;
    try setGroups(context, config.groups, diagnostic);
    try setCiphers(context, "cipher_list", config.cipher_list, c.SSL_CTX_set_cipher_list, diagnostic);
    try setCiphers(context, "cipher_suites", config.cipher_suites, c.SSL_CTX_set_ciphersuites, diagnostic);
}

/// Sets the groups of the key exchange. A library that does not know a name refuses the whole list.
fn setGroups(context: *c.SSL_CTX, groups: ?[:0]const u8, diagnostic: *tls.Diagnostic) tls.ContextError!void {
    c.ERR_clear_error();
    defer c.ERR_clear_error();
    const given = groups orelse {
        const classical = "X25519:P-256:P-384";
        if (c.SSL_CTX_set1_groups_list(context, "X25519MLKEM768:" ++ classical) == 1) return;
        if (c.SSL_CTX_set1_groups_list(context, classical) == 1) return;
        return error.OutOfMemory;
    };
    if (c.SSL_CTX_set1_groups_list(context, given) == 1) return;
    diagnostic.set("SSL groups '{s}' has a group that this OpenSSL does not know", .{given});
    return error.InvalidValue;
}

/// Sets a list of ciphers after each element is known to name a cipher: OpenSSL takes a list in which one
/// element does.
fn setCiphers(
    context: *c.SSL_CTX,
    option: []const u8,
    list: [:0]const u8,
    set: *const fn (*c.SSL_CTX, [*:0]const u8) callconv(.c) c_int,
    diagnostic: *tls.Diagnostic,
) tls.ContextError!void {
    c.ERR_clear_error();
    var elements = std.mem.tokenizeAny(u8, list, ":, ;");
    while (elements.next()) |element| {
        // "!X", "-X" and "+X" take away or reorder (a cipher that this library lacks is gone already);
        // "@X" is a command.
        if (std.mem.indexOfScalar(u8, "!-+@", element[0]) != null) continue;
        var buffer: [cipher_name_bytes_max + 1]u8 = undefined;
        const known = element.len <= cipher_name_bytes_max and
            set(context, std.fmt.bufPrintSentinel(&buffer, "{s}", .{element}, 0) catch unreachable) == 1;
        if (!known) {
            c.ERR_clear_error();
            diagnostic.set("SSL {s}: unknown cipher {s}", .{ option, element });
            return error.InvalidValue;
        }
    }
    if (list.len == 0 or set(context, list) != 1) {
        diagnostic.set("SSL {s} cannot be used: \"{s}\" ({s})", .{ option, list, certificate.reason() });
        return error.InvalidValue;
    }
}

/// Bytes that no name or combination of ciphers exceeds ("ECDHE+AESGCM+aRSA").
const cipher_name_bytes_max = 127;

fn usePair(
    context: *c.SSL_CTX,
    pair: *const certificate.Pair,
    file: []const u8,
    diagnostic: *tls.Diagnostic,
) tls.ContextError!void {
    c.ERR_clear_error();
    if (c.SSL_CTX_use_cert_and_key(context, pair.leaf, pair.key, pair.chain.stack, 0) == 1) return;
    diagnostic.set(
        "SSL certificate file cannot be used: {s} ({s})",
        .{ file, certificate.reason() },
    );
    return error.InvalidFile;
}

/// Compares two sorted lists.
fn sameNames(a: []const []const u8, b: []const []const u8) bool {
    if (a.len != b.len) return false;
    for (a, b) |x, y| if (!std.mem.eql(u8, x, y)) return false;
    return true;
}

fn encodeProtocols(
    arena: std.mem.Allocator,
    protocols: []const []const u8,
    diagnostic: *tls.Diagnostic,
) tls.ContextError![]const u8 {
    var wire: std.ArrayList(u8) = .empty;
    for (protocols) |protocol| {
        if (protocol.len == 0 or protocol.len > 255) {
            diagnostic.set("SSL alpn: a protocol's name has 1 to 255 bytes, not {d}", .{protocol.len});
            return error.InvalidValue;
        }
        try wire.append(arena, @intCast(protocol.len));
        try wire.appendSlice(arena, protocol);
    }
    return wire.items;
}

/// The context for a client that asked for `name`: the exact name, else a certificate for all names beside it
/// (RFC 6125 §6.4.3).
fn contextFor(generation: *const Generation, name: []const u8) *c.SSL_CTX {
    // "*" stands for the first label, so that the pattern is never longer than the name plus one.
    var buffer: [host_name_bytes_max + 1]u8 = undefined;
    if (name.len == 0 or name.len > host_name_bytes_max) return generation.first;
    const exact = std.ascii.lowerString(&buffer, name);
    if (generation.names.get(exact)) |context| return context;
    const dot = std.mem.indexOfScalar(u8, exact, '.') orelse return generation.first;
    if (dot == 0) return generation.first;
    const wildcard = exact[dot - 1 ..];
    wildcard[0] = '*';
    return generation.names.get(wildcard) orelse generation.first;
}

/// The longest name of a host, in bytes (RFC 1035 §2.3.4).
const host_name_bytes_max = 255;

/// Answers an authority that asks for a name with the certificate that lies in the folder for it (RFC 8737);
/// OpenSSL calls this first. The file is read here because it appears a moment before the question.
fn answerValidation(ssl: *c.SSL, alert: *c_int, argument: ?*anyopaque) callconv(.c) c_int {
    const generation: *const Generation = @ptrCast(@alignCast(argument.?));
    const folder = generation.validations orelse return c.SSL_CLIENT_HELLO_SUCCESS;
    const offered = extensionOf(ssl, c.TLSEXT_TYPE_application_layer_protocol_negotiation);
    if (!validation.isAsked(offered)) return c.SSL_CLIENT_HELLO_SUCCESS;
    alert.* = c.SSL_AD_NO_APPLICATION_PROTOCOL;
    const name = validation.hostName(extensionOf(ssl, c.TLSEXT_TYPE_server_name)) orelse
        return c.SSL_CLIENT_HELLO_ERROR;
    var buffer: [validation.path_bytes_max]u8 = undefined;
    const path = validation.pathFor(&buffer, folder, name) orelse return c.SSL_CLIENT_HELLO_ERROR;
    var diagnostic: tls.Diagnostic = .{};
    var pair = certificate.Pair.load(.{ .cert_file = path, .key_file = path }, &diagnostic) catch
        return c.SSL_CLIENT_HELLO_ERROR;
    defer pair.deinit();
    c.SSL_certs_clear(ssl);
    if (c.SSL_use_cert_and_key(ssl, pair.leaf, pair.key, pair.chain.stack, 1) != 1) {
        return c.SSL_CLIENT_HELLO_ERROR;
    }
    transport.lentTo(ssl).validates = true;
    return c.SSL_CLIENT_HELLO_SUCCESS;
}

/// An extension of the client's hello; empty if it has none. Borrowed for the callback.
fn extensionOf(ssl: *c.SSL, kind: c_uint) []const u8 {
    var bytes: [*]const u8 = undefined;
    var len: usize = 0;
    return if (c.SSL_client_hello_get0_ext(ssl, kind, &bytes, &len) == 1) bytes[0..len] else "";
}

fn selectCertificate(ssl: *c.SSL, alert: *c_int, argument: ?*anyopaque) callconv(.c) c_int {
    if (transport.lentTo(ssl).validates) return c.SSL_TLSEXT_ERR_OK;
    const generation: *const Generation = @ptrCast(@alignCast(argument.?));
    const name = c.SSL_get_servername(ssl, c.TLSEXT_NAMETYPE_host_name) orelse return c.SSL_TLSEXT_ERR_NOACK;
    const context = contextFor(generation, std.mem.span(name));
    if (c.SSL_get_SSL_CTX(ssl) != context and c.SSL_set_SSL_CTX(ssl, context) == null) {
        alert.* = c.SSL_AD_INTERNAL_ERROR;
        return c.SSL_TLSEXT_ERR_ALERT_FATAL;
    }
    return c.SSL_TLSEXT_ERR_OK;
}

/// Shows a staple (OCSP response), unless it has become too old since it was loaded.
fn showStaple(ssl: *c.SSL, argument: ?*anyopaque) callconv(.c) c_int {
    const generation: *const Generation = @ptrCast(@alignCast(argument.?));
    const shown = c.SSL_get_certificate(ssl);
    for (generation.leaves.items) |leaf| {
        if (leaf.certificate != shown) continue;
        const staple = leaf.staple orelse break;
        if (staple.next_update_s <= c.wallSeconds() or !c.setOcspResponse(ssl, staple.der)) break;
        return c.SSL_TLSEXT_ERR_OK;
    }
    return c.SSL_TLSEXT_ERR_NOACK;
}

/// Chooses the protocol (ALPN). OpenSSL calls this when it has chosen the cipher.
fn selectProtocol(
    ssl: *c.SSL,
    chosen: *[*]const u8,
    chosen_len: *u8,
    offered: [*]const u8,
    offered_len: c_uint,
    argument: ?*anyopaque,
) callconv(.c) c_int {
    _ = argument;
    if (transport.lentTo(ssl).validates) {
        chosen.* = validation.protocol;
        chosen_len.* = validation.protocol.len;
        return c.SSL_TLSEXT_ERR_OK;
    }
    const ours = transport.lentTo(ssl).protocols;
    if (ours.len == 0) return c.SSL_TLSEXT_ERR_NOACK;
    const is_strong = isStrong(c.SSL_get_pending_cipher(ssl));
    for (ours) |protocol| {
        if (protocol.needs_strong_cipher and !is_strong) continue;
        if (!isOffered(protocol.name, offered[0..offered_len])) continue;
        chosen.* = protocol.name.ptr;
        chosen_len.* = @intCast(protocol.name.len);
        return c.SSL_TLSEXT_ERR_OK;
    }
    return c.SSL_TLSEXT_ERR_ALERT_FATAL;
}

/// Whether a client's list, names after their lengths, has a name. OpenSSL has checked its form.
fn isOffered(name: []const u8, offered: []const u8) bool {
    var rest = offered;
    while (rest.len > 0) {
        const len = rest[0];
        if (std.mem.eql(u8, name, rest[1..][0..len])) return true;
        rest = rest[1 + len ..];
    }
    return false;
}

/// Whether content under a cipher can neither be forged nor be read later with the server's key: an AEAD and
/// an ephemeral key exchange with an authenticated peer. RFC 9113 appendix A names all other ciphers.
fn isStrong(cipher: ?*const c.SSL_CIPHER) bool {
    const chosen = cipher orelse return false;
    if (c.SSL_CIPHER_is_aead(chosen) != 1) return false;
    if (c.SSL_CIPHER_get_auth_nid(chosen) == c.NID_auth_null) return false;
    return switch (c.SSL_CIPHER_get_kx_nid(chosen)) {
        // TLS 1.3, which has no other key exchange.
        c.NID_kx_ecdhe, c.NID_kx_dhe, c.NID_kx_any => true,
        else => false,
    };
}

/// A name of `len` times "x".
fn repeat(comptime len: usize) [len:0]u8 {
    return @splat('x');
}

test "protocol names become length-prefixed bytes, and bad lengths are refused" {
    var arena: std.heap.ArenaAllocator = .init(std.testing.allocator);
    defer arena.deinit();
    var diagnostic: tls.Diagnostic = .{};
    const wire = try encodeProtocols(arena.allocator(), &.{ "h2", "http/1.1" }, &diagnostic);
    try std.testing.expectEqualStrings("\x02h2\x08http/1.1", wire);
    try std.testing.expectError(error.InvalidValue, encodeProtocols(arena.allocator(), &.{""}, &diagnostic));
    try std.testing.expectError(
        error.InvalidValue,
        encodeProtocols(arena.allocator(), &.{&repeat(256)}, &diagnostic),
    );
    try std.testing.expect(std.mem.indexOf(u8, diagnostic.text(), "256") != null);
}

test "unknown ciphers are named, also beside known ones" {
    const context = c.SSL_CTX_new(c.TLS_server_method()) orelse return error.OutOfMemory;
    defer c.SSL_CTX_free(context);
    var diagnostic: tls.Diagnostic = .{};
    const good = [_][:0]const u8{
        tls.default_cipher_list,            "HIGH:!aNULL:!RC4:@STRENGTH",
        "ECDHE+AESGCM:ECDHE+CHACHA20:!MD5", "ECDHE-RSA-AES256-GCM-SHA384, DHE-RSA-AES256-GCM-SHA384",
    };
    var config: tls.ClientConfig = .{};
    for (good) |list| {
        config.cipher_list = list;
        try setPolicy(context, &config, &diagnostic);
    }
    const bad = [_]struct { [:0]const u8, []const u8 }{
        .{ "ECDHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-AES129-GCM-SHA256", "ECDHE-RSA-AES129-GCM-SHA256" },
        .{ "NONSENSE", "NONSENSE" },
        .{ "", "cipher_list" },
        .{ "!aNULL", "cipher_list" },
        .{ &repeat(200), &repeat(200) },
    };
    for (bad) |case| {
        config.cipher_list = case[0];
        try std.testing.expectError(error.InvalidValue, setPolicy(context, &config, &diagnostic));
        try std.testing.expect(std.mem.indexOf(u8, diagnostic.text(), case[1]) != null);
    }
    config = .{ .cipher_suites = "TLS_AES_1_GCM" };
    try std.testing.expectError(error.InvalidValue, setPolicy(context, &config, &diagnostic));
    try std.testing.expect(std.mem.indexOf(
        u8,
        diagnostic.text(),
        "cipher_suites: unknown cipher TLS_AES_1_GCM",
    ) != null);
}

test "groups are those that were asked for, and unknown ones are named" {
    const context = c.SSL_CTX_new(c.TLS_server_method()) orelse return error.OutOfMemory;
    defer c.SSL_CTX_free(context);
    var diagnostic: tls.Diagnostic = .{};
    var config: tls.ClientConfig = .{ .groups = "P-384:X25519" };
    try setPolicy(context, &config, &diagnostic);
    config.groups = "X25519:P-257";
    try std.testing.expectError(error.InvalidValue, setPolicy(context, &config, &diagnostic));
    try std.testing.expect(std.mem.indexOf(u8, diagnostic.text(), "groups 'X25519:P-257'") != null);
}

test "a name is looked up exactly, then by its neighbours' wildcard, then the default answers" {
    const generation = try Generation.createEmpty(std.testing.allocator, .server);
    defer generation.release();
    generation.first = try generation.addEntry(&.{"default.example"});
    const exact = try generation.addEntry(&.{ "a.example", "default.example" });
    const wildcard = try generation.addEntry(&.{"*.a.example"});
    const cases = [_]struct { []const u8, *c.SSL_CTX }{
        .{ "a.example", exact },                  .{ "A.EXAMPLE", exact },
        .{ "b.a.example", wildcard },             .{ "c.b.a.example", generation.first },
        .{ "default.example", generation.first }, .{ "other", generation.first },
        .{ ".a.example", generation.first },      .{ "", generation.first },
        .{ &repeat(256), generation.first },      .{ repeat(245) ++ ".a.example", wildcard },
    };
    for (cases) |case| try std.testing.expectEqual(case[1], contextFor(generation, case[0]));
}

test "ciphers of RFC 9113 appendix A are weak, all others strong" {
    const context = c.SSL_CTX_new(c.TLS_server_method()) orelse return error.OutOfMemory;
    defer c.SSL_CTX_free(context);
    c.SSL_CTX_set_security_level(context, 0);
    const cases = [_]struct { [:0]const u8, bool }{
        .{ "ECDHE-ECDSA-AES128-GCM-SHA256", true }, .{ "ECDHE-RSA-AES256-GCM-SHA384", true },
        .{ "ECDHE-RSA-CHACHA20-POLY1305", true },   .{ "DHE-RSA-AES128-GCM-SHA256", true },
        .{ "DHE-RSA-AES128-CCM", true },            .{ "ECDHE-ECDSA-AES256-CCM8", true },
        .{ "AES128-GCM-SHA256", false },            .{ "AES256-CCM", false },
        .{ "ECDHE-RSA-AES128-SHA256", false },      .{ "ECDHE-ECDSA-AES256-SHA", false },
        .{ "DHE-RSA-AES256-SHA256", false },        .{ "AES256-SHA", false },
        .{ "ADH-AES128-GCM-SHA256", false },        .{ "RSA-PSK-AES128-GCM-SHA256", false },
    };
    for (cases) |case| {
        errdefer std.debug.print("{s}\n", .{case[0]});
        try std.testing.expectEqual(1, c.SSL_CTX_set_cipher_list(context, case[0]));
        const ciphers = c.SSL_CTX_get_ciphers(context).?;
        var found: usize = 0;
        for (0..@intCast(c.OPENSSL_sk_num(ciphers))) |i| {
            const cipher: *const c.SSL_CIPHER = @ptrCast(c.OPENSSL_sk_value(ciphers, @intCast(i)).?);
            if (c.SSL_CIPHER_get_kx_nid(cipher) == c.NID_kx_any) {
                try std.testing.expect(isStrong(cipher));
                continue;
            }
            try std.testing.expectEqual(case[1], isStrong(cipher));
            found += 1;
        }
        try std.testing.expectEqual(1, found);
    }
    try std.testing.expect(!isStrong(null));
}

test "a name is looked for among whole names" {
    const offered = "\x02h2\x08http/1.1\x01h";
    for ([_][]const u8{ "h2", "http/1.1", "h" }) |name| try std.testing.expect(isOffered(name, offered));
    for ([_][]const u8{ "http", "2", "H2", "1.1" }) |name| try std.testing.expect(!isOffered(name, offered));
    try std.testing.expect(!isOffered("h2", ""));
}
