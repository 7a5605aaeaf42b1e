//! Layer `tls` in a build without OpenSSL: the same names as openssl.zig, and a constructor that says so.
//! Does not know: TLS.
const std = @import("std");
const tls = @import("tls.zig");

/// Never made in this build.
pub const Context = struct {
    /// Always `error.TlsNotBuilt`.
    pub fn init(
        gpa: std.mem.Allocator,
        config: tls.ServerConfig,
        diagnostic: *tls.Diagnostic,
    ) tls.ContextError!*Context {
        _ = gpa;
        _ = config;
        diagnostic.set("TLS is not available: this engine was built without OpenSSL", .{});
        return error.TlsNotBuilt;
    }

    /// Always `error.TlsNotBuilt`.
    pub fn initClient(
        gpa: std.mem.Allocator,
        config: tls.ClientConfig,
        diagnostic: *tls.Diagnostic,
    ) tls.ContextError!*Context {
        _ = gpa;
        _ = config;
        diagnostic.set("TLS is not available: this engine was built without OpenSSL", .{});
        return error.TlsNotBuilt;
    }

    /// Unreachable: there is no context.
    pub fn deinit(context: *Context) void {
        _ = context;
        unreachable;
    }

    /// Unreachable: there is no context.
    pub fn reloadFiles(context: *Context, diagnostic: *tls.Diagnostic) tls.ContextError!void {
        _ = context;
        _ = diagnostic;
        unreachable;
    }

    /// Unreachable: there is no context.
    pub fn give(
        context: *Context,
        given: []const tls.Given,
        diagnostic: *tls.Diagnostic,
    ) tls.ContextError!void {
        _ = context;
        _ = given;
        _ = diagnostic;
        unreachable;
    }

    /// Unreachable: there is no context.
    pub fn concern(context: *Context, index: usize, now_s: i64, diagnostic: *tls.Diagnostic) ?bool {
        _ = context;
        _ = index;
        _ = now_s;
        _ = diagnostic;
        unreachable;
    }

    /// Unreachable: there is no context.
    pub fn refresh(
        context: *Context,
        now_ms: u64,
        wall_s: u64,
        diagnostic: *tls.Diagnostic,
    ) tls.ContextError!bool {
        _ = context;
        _ = now_ms;
        _ = wall_s;
        _ = diagnostic;
        unreachable;
    }

    /// Unreachable: there is no context.
    pub fn reload(
        context: *Context,
        config: tls.ServerConfig,
        diagnostic: *tls.Diagnostic,
    ) tls.ContextError!void {
        _ = context;
        _ = config;
        _ = diagnostic;
        unreachable;
    }
};

/// Always 0: there is no context for which files are read.
pub fn lookOf(config: *const tls.ClientConfig) u64 {
    _ = config;
    return 0;
}

/// Never made in this build.
pub const Session = struct {
    /// Unreachable: there is no context to begin with.
    pub fn init(context: *Context, protocols: []const tls.Protocol) error{OutOfMemory}!Session {
        _ = context;
        _ = protocols;
        unreachable;
    }

    /// Unreachable: there is no context to begin with.
    pub fn initClient(
        context: *Context,
        server_name: ?[:0]const u8,
        resumption: ?Resumption,
    ) error{OutOfMemory}!Session {
        _ = context;
        _ = server_name;
        _ = resumption;
        unreachable;
    }

    /// Unreachable: there is no session.
    pub fn deinit(session: *Session) void {
        _ = session;
        unreachable;
    }

    /// Unreachable: there is no session.
    pub fn offerKeys(session: *Session) void {
        _ = session;
        unreachable;
    }

    /// Unreachable: there is no session.
    pub fn keepBuffers(session: *Session) void {
        _ = session;
        unreachable;
    }

    /// Unreachable: there is no session.
    pub fn isSealedByKernel(session: *const Session) bool {
        _ = session;
        unreachable;
    }

    /// Unreachable: there is no session.
    pub fn receive(session: *Session, ciphertext: []const u8, plaintext: []u8, sink: tls.Sink) tls.Received {
        _ = session;
        _ = ciphertext;
        _ = plaintext;
        _ = sink;
        unreachable;
    }

    /// Unreachable: there is no session.
    pub fn write(session: *Session, plaintext: []const u8, sink: tls.Sink) tls.WriteError!void {
        _ = session;
        _ = plaintext;
        _ = sink;
        unreachable;
    }

    /// Unreachable: there is no session.
    pub fn shutdown(session: *Session, sink: tls.Sink) tls.WriteError!void {
        _ = session;
        _ = sink;
        unreachable;
    }

    /// Unreachable: there is no session.
    pub fn isHandshakeDone(session: *const Session) bool {
        _ = session;
        unreachable;
    }

    /// Unreachable: there is no session.
    pub fn hasAgreed(session: *const Session) bool {
        _ = session;
        unreachable;
    }

    /// Unreachable: there is no session.
    pub fn ending(session: *const Session) tls.Ending {
        _ = session;
        unreachable;
    }

    /// Unreachable: there is no session.
    pub fn protocol(session: *const Session) ?[]const u8 {
        _ = session;
        unreachable;
    }

    /// Unreachable: there is no session.
    pub fn agreement(session: *const Session) tls.Agreement {
        _ = session;
        unreachable;
    }

    /// Unreachable: there is no session.
    pub fn peer(session: *const Session, gpa: std.mem.Allocator) error{OutOfMemory}!tls.Peer {
        _ = session;
        _ = gpa;
        unreachable;
    }

    /// Unreachable: there is no session.
    pub fn distrust(session: *const Session) ?tls.Distrust {
        _ = session;
        unreachable;
    }

    /// Unreachable: there is no session.
    pub fn takeResumption(session: *Session) ?Resumption {
        _ = session;
        unreachable;
    }

    /// Unreachable: there is no session.
    pub fn invariants(session: *const Session) void {
        _ = session;
        unreachable;
    }
};

/// Never made in this build.
pub const Resumption = struct {
    /// Unreachable: there is nothing to free.
    pub fn deinit(resumption: Resumption) void {
        _ = resumption;
        unreachable;
    }
};

/// Without TLS no library is linked.
pub fn library() [:0]const u8 {
    return "";
}

test "a build without TLS says so in words" {
    var diagnostic: tls.Diagnostic = .{};
    const config: tls.ServerConfig = .{ .certificates = &.{} };
    try std.testing.expectError(error.TlsNotBuilt, Context.init(std.testing.allocator, config, &diagnostic));
    try std.testing.expect(std.mem.indexOf(u8, diagnostic.text(), "without OpenSSL") != null);
    diagnostic = .{};
    try std.testing.expectError(
        error.TlsNotBuilt,
        Context.initClient(std.testing.allocator, .{}, &diagnostic),
    );
    try std.testing.expect(std.mem.indexOf(u8, diagnostic.text(), "without OpenSSL") != null);
}
