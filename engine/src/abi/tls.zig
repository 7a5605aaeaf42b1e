//! The TLS part of the C API: certificates and policy, listeners that use them, and what a request may tell
//! of its connection.
const std = @import("std");
const peregrine = @import("peregrine");
const Handle = @import("abi.zig").Handle;
const errors = @import("errors.zig");
const sized = @import("sized.zig");
const tls_facts = @import("tls_facts.zig");
const types = @import("types.zig");
const Code = types.Code;
const tls = peregrine.tls;

const gpa = std.heap.c_allocator;

/// What C holds as `peregrine_tls`: shared by whoever made it and by the workers whose listeners use it.
pub const Certificates = struct {
    context: *tls.Context,
    references: std.atomic.Value(u32) = .init(1),

    fn retain(certificates: *Certificates) void {
        _ = certificates.references.fetchAdd(1, .monotonic);
    }

    /// Gives certificates back; worker and connections that use them keep them alive.
    pub fn release(certificates: *Certificates) void {
        if (certificates.references.fetchSub(1, .acq_rel) > 1) return;
        certificates.context.deinit();
        gpa.destroy(certificates);
    }
};

pub export fn peregrine_has_kernel_tls() callconv(.c) c_int {
    return @intFromBool(tls.enabled and peregrine.io.kernelSeals());
}

pub export fn peregrine_has_tls() callconv(.c) c_int {
    return @intFromBool(tls.enabled);
}

pub export fn peregrine_tls_library() callconv(.c) [*:0]const u8 {
    return tls.library().ptr;
}

pub export fn peregrine_tls_new(
    config: *const sized.Header,
    message: ?[*]u8,
    capacity: usize,
) callconv(.c) ?*Certificates {
    var diagnostic: tls.Diagnostic = .{};
    return create(config, &diagnostic) catch |err| {
        explain(err, &diagnostic, message, capacity);
        return null;
    };
}

fn create(config: *const sized.Header, diagnostic: *tls.Diagnostic) tls.ContextError!*Certificates {
    const certificates = try gpa.create(Certificates);
    errdefer gpa.destroy(certificates);
    var arena: std.heap.ArenaAllocator = .init(gpa);
    defer arena.deinit();
    certificates.* = .{ .context = try .init(
        gpa,
        try configOf(arena.allocator(), config, diagnostic),
        diagnostic,
    ) };
    return certificates;
}

pub export fn peregrine_tls_reload(
    certificates: *Certificates,
    config: ?*const sized.Header,
    message: ?[*]u8,
    capacity: usize,
) callconv(.c) c_int {
    var diagnostic: tls.Diagnostic = .{};
    reload(certificates.context, config, &diagnostic) catch |err| {
        explain(err, &diagnostic, message, capacity);
        return Code.tls;
    };
    return Code.ok;
}

fn reload(
    context: *tls.Context,
    config: ?*const sized.Header,
    diagnostic: *tls.Diagnostic,
) tls.ContextError!void {
    const given = config orelse return context.reloadFiles(diagnostic);
    var arena: std.heap.ArenaAllocator = .init(gpa);
    defer arena.deinit();
    return context.reload(try configOf(arena.allocator(), given, diagnostic), diagnostic);
}

pub export fn peregrine_tls_concern(
    certificates: *Certificates,
    number: u32,
    now_s: i64,
    message: ?[*]u8,
    capacity: usize,
) callconv(.c) c_int {
    var diagnostic: tls.Diagnostic = .{};
    const concerns = certificates.context.concern(number, now_s, &diagnostic) orelse return Code.range;
    if (concerns) tell(diagnostic.text(), message, capacity);
    return @intFromBool(concerns);
}

pub export fn peregrine_tls_free(certificates: ?*Certificates) callconv(.c) void {
    if (certificates) |c| c.release();
}

pub export fn peregrine_listener_tls(
    handle: *Handle,
    listener: c_int,
    certificates: *Certificates,
) callconv(.c) c_int {
    if (handle.isElsewhere()) return Code.gone;
    const number = std.math.cast(u32, listener) orelse return Code.range;
    return handle.call(secure, .{ handle, number, certificates });
}

fn secure(handle: *Handle, number: u32, certificates: *Certificates) c_int {
    if (number >= handle.worker.listeners.items.len) return Code.range;
    handle.certificates.append(gpa, certificates) catch return Code.memory;
    handle.worker.secureListener(number, certificates.context) catch {
        _ = handle.certificates.pop();
        return Code.memory;
    };
    certificates.retain();
    return Code.ok;
}

pub export fn peregrine_tls_info_of(
    handle: *Handle,
    ticket: types.Ticket,
    out: *sized.Header,
) callconv(.c) c_int {
    if (handle.isForeign()) return Code.gone;
    const info = if (handle.end) |end| told: {
        const facts = end.ledger.tlsOf(ticket) orelse return Code.gone;
        if (facts.len == 0) return Code.tls;
        break :told tls_facts.decode(facts, gpa, &handle.client_chain) catch |err| return switch (err) {
            error.Malformed => Code.gone,
            error.OutOfMemory => Code.memory,
        };
    } else asked: {
        const exchange = handle.worker.find(@fromBackingInt(ticket)) orelse return Code.gone;
        const tunnel = exchange.lane.tls() orelse return Code.tls;
        break :asked infoOf(tunnel, gpa, &handle.client_chain) catch return Code.memory;
    };
    sized.write(types.TlsInfo, out, info);
    return Code.ok;
}

/// What is known of a connection, as long as it is there, and `chain`, which is filled anew, stays.
pub fn infoOf(
    tunnel: *peregrine.Tunnel,
    allocator: std.mem.Allocator,
    chain: *std.ArrayList(types.Text),
) error{OutOfMemory}!types.TlsInfo {
    const peer = try tunnel.clientCertificate();
    chain.clearRetainingCapacity();
    try chain.ensureTotalCapacity(allocator, peer.chain.len);
    for (peer.chain) |pem| chain.appendAssumeCapacity(.of(pem));
    const agreement = tunnel.session.agreement();
    return .{
        .size = @sizeOf(types.TlsInfo),
        .version = agreement.version,
        .cipher_suite = agreement.cipher_suite,
        .server_cert = .of(agreement.server_certificate_pem),
        .client_chain = chain.items.ptr,
        .client_chain_len = peer.chain.len,
        .client_name = .of(peer.subject),
        .client_error = .of(peer.verify_error),
        .server_name = .of(agreement.server_name),
        .alpn = .of(agreement.alpn),
        .resumed = @intFromBool(agreement.resumed),
    };
}

/// The configuration in the engine's terms; borrows from C and `arena`.
fn configOf(
    arena: std.mem.Allocator,
    header: *const sized.Header,
    diagnostic: *tls.Diagnostic,
) tls.ContextError!tls.ServerConfig {
    const given = sized.read(types.TlsConfig, header);
    const list = try arena.alloc(tls.CertificateFiles, given.certificate_count);
    var next = given.certificates;
    for (list) |*to| {
        const at = next orelse return missing("certificates", diagnostic);
        next = sized.next(at);
        const from = sized.read(types.Certificate, at);
        to.* = .{
            .cert_file = text(from.cert_file) orelse return missing("cert_file", diagnostic),
            .key_file = text(from.key_file) orelse return missing("key_file", diagnostic),
            .chain_file = text(from.chain_file),
            .key_password = text(from.key_password),
        };
    }
    var config: tls.ServerConfig = .{
        .certificates = list,
        .cert_dir = text(given.cert_dir),
        .ca_file = text(given.ca_file),
        .ticket_keys = given.ticket_keys,
    };
    if (given.cipher_list) |names| config.cipher_list = std.mem.span(names);
    if (given.cipher_suites) |names| config.cipher_suites = std.mem.span(names);
    config.groups = text(given.groups);
    if (given.session_timeout_s != 0) config.session_timeout_s = given.session_timeout_s;
    config.verify_client = switch (given.verify_client) {
        types.Verify.none => .none,
        types.Verify.request => .request,
        types.Verify.require => .require,
        else => {
            diagnostic.set("SSL verify_client must be 0, 1 or 2, not {d}", .{given.verify_client});
            return error.InvalidValue;
        },
    };
    config.min_version = switch (given.min_version) {
        0, 0x0303 => .tls1_2,
        0x0304 => .tls1_3,
        else => {
            diagnostic.set(
                "SSL min_version must be 0x0303 (TLS 1.2) or 0x0304 (TLS 1.3), not 0x{x:0>4}",
                .{given.min_version},
            );
            return error.InvalidValue;
        },
    };
    return config;
}

fn text(given: ?[*:0]const u8) ?[:0]const u8 {
    return std.mem.span(given orelse return null);
}

fn missing(comptime name: []const u8, diagnostic: *tls.Diagnostic) tls.ContextError {
    diagnostic.set("SSL " ++ name ++ " is missing", .{});
    return error.InvalidValue;
}

fn explain(err: tls.ContextError, diagnostic: *const tls.Diagnostic, message: ?[*]u8, capacity: usize) void {
    tell(if (err == error.OutOfMemory) "out of memory" else diagnostic.text(), message, capacity);
}

fn tell(words: []const u8, message: ?[*]u8, capacity: usize) void {
    const out = (message orelse return)[0..capacity];
    if (out.len == 0) return;
    const len = @min(words.len, out.len - 1);
    @memcpy(out[0..len], words[0..len]);
    out[len] = 0;
}
