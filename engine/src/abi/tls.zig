//! The TLS part of the C API: certificates and policy, listeners that use them, and the facts of a request's
//! connection.
const std = @import("std");
const assert = std.debug.assert;
const peregrine = @import("peregrine");
const Certificates = @import("certificates.zig").Certificates;
const Engine = @import("engine.zig").Engine;
const errors = @import("errors.zig");
const Handle = @import("handle.zig").Handle;
const Ledger = @import("ledger.zig").Ledger;
const sized = @import("sized.zig");
const tls_facts = @import("tls_facts.zig");
const types = @import("types.zig");
const Code = types.Code;
const tls = peregrine.tls;

const gpa = std.heap.c_allocator;

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
    var arena: std.heap.ArenaAllocator = .init(gpa);
    defer arena.deinit();
    const context: *tls.Context = try .init(
        gpa,
        try configOf(arena.allocator(), config, diagnostic),
        diagnostic,
    );
    errdefer context.deinit();
    return .create(context);
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

pub export fn peregrine_tls_give(
    certificates: *Certificates,
    names: [*]const [*:0]const u8,
    descriptors: [*]const c_int,
    count: u32,
    message: ?[*]u8,
    capacity: usize,
) callconv(.c) c_int {
    var diagnostic: tls.Diagnostic = .{};
    give(certificates.context, names[0..count], descriptors[0..count], &diagnostic) catch |err| {
        explain(err, &diagnostic, message, capacity);
        return Code.tls;
    };
    return Code.ok;
}

const given_bytes_max = peregrine.api_limits.given_certificate_bytes_max;

fn give(
    context: *tls.Context,
    names: []const [*:0]const u8,
    descriptors: []const c_int,
    diagnostic: *tls.Diagnostic,
) tls.ContextError!void {
    assert(names.len == descriptors.len);
    var given: std.ArrayList(tls.Given) = try .initCapacity(gpa, names.len);
    defer {
        for (given.items) |one| {
            std.crypto.secureZero(u8, @constCast(one.pem));
            gpa.free(one.pem);
        }
        given.deinit(gpa);
    }
    const buffer = try gpa.alloc(u8, given_bytes_max);
    defer gpa.free(buffer);
    for (names, descriptors) |name, descriptor| {
        const pem = readWhole(descriptor, buffer) orelse {
            diagnostic.set("SSL certificate file cannot be read, or is too long: {s}", .{name});
            return error.InvalidFile;
        };
        defer std.crypto.secureZero(u8, buffer[0..pem.len]);
        given.appendAssumeCapacity(.{ .name = std.mem.span(name), .pem = try gpa.dupe(u8, pem) });
    }
    assert(given.items.len == names.len);
    return context.give(given.items, diagnostic);
}

/// Reads a file from its beginning, whatever its descriptor's position. Null: an error, or too long a file.
fn readWhole(descriptor: c_int, buffer: []u8) ?[]const u8 {
    var len: usize = 0;
    while (len < buffer.len) {
        const count = std.c.pread(descriptor, buffer[len..].ptr, buffer.len - len, @intCast(len));
        if (count == 0) return buffer[0..len];
        if (count < 0) return null;
        len += @intCast(count);
        assert(len <= buffer.len);
    }
    return null;
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
    const engine = handle.ownEngine() orelse return Code.gone;
    const number = std.math.cast(u32, listener) orelse return Code.range;
    return handle.call(secure, .{ engine, number, certificates });
}

fn secure(engine: *Engine, number: u32, certificates: *Certificates) c_int {
    if (number >= engine.worker.listeners.items.len) return Code.range;
    engine.certificates.append(gpa, certificates) catch return Code.memory;
    engine.worker.secureListener(number, certificates.context) catch {
        _ = engine.certificates.pop();
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
    const info = switch (handle.place()) {
        .here => |here| infoHere(here.engine, ticket, &handle.client_chain),
        .thread => |pair| infoTold(&pair.application.ledger, ticket, &handle.client_chain),
        .joined => |interpreter| infoTold(&interpreter.end.ledger, ticket, &handle.client_chain),
        .gone => return Code.gone,
    } catch |err| return switch (err) {
        error.Gone, error.Malformed => Code.gone,
        error.NoTls => Code.tls,
        error.OutOfMemory => Code.memory,
    };
    sized.write(types.TlsInfo, out, info);
    return Code.ok;
}

fn infoHere(engine: *Engine, ticket: types.Ticket, chain: *std.ArrayList(types.Text)) !types.TlsInfo {
    const exchange = engine.worker.find(@fromBackingInt(ticket)) orelse return error.Gone;
    const tunnel = exchange.lane.tls() orelse return error.NoTls;
    return tls_facts.infoOf(tunnel, gpa, chain);
}

/// The facts that came with the request.
fn infoTold(ledger: *const Ledger, ticket: types.Ticket, chain: *std.ArrayList(types.Text)) !types.TlsInfo {
    const facts = ledger.tlsOf(ticket) orelse return error.Gone;
    if (facts.len == 0) return error.NoTls;
    return tls_facts.decode(facts, gpa, chain);
}

/// C's configuration as one of layer `tls`; borrows from C and `arena`.
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
        .validation_dir = text(given.validation_dir),
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
