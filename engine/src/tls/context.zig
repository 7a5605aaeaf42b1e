//! What threads share: the newest generation of certificates and policy, and its atomic replacement.
//! Refuses to know: how a configuration is loaded (generation.zig), what a session does with it.
const std = @import("std");
const assert = std.debug.assert;
const c = @import("libssl.zig");
const tls = @import("tls.zig");
const Generation = @import("generation.zig").Generation;

/// Certificates and policy, shared between threads and replaced as a whole by `reload`. Its address is stable.
pub const Context = struct {
    gpa: std.mem.Allocator,
    /// Guards `current`: between reading the pointer and counting the reference, nobody may drop the last one.
    /// OpenSSL's lock, because the standard library's wants an event loop.
    lock: *anyopaque,
    current: *Generation,

    /// A server's context. On failure `diagnostic` says what is wrong with which file or value.
    /// `gpa` must be safe to use from every thread that ends a session: the last one frees an old generation.
    pub fn init(gpa: std.mem.Allocator, config: tls.ServerConfig, diagnostic: *tls.Diagnostic) tls.ContextError!*Context {
        return create(gpa, try Generation.createServer(gpa, config, diagnostic));
    }

    /// A client's context.
    pub fn initClient(gpa: std.mem.Allocator, config: tls.ClientConfig, diagnostic: *tls.Diagnostic) tls.ContextError!*Context {
        return create(gpa, try Generation.createClient(gpa, config, diagnostic));
    }

    fn create(gpa: std.mem.Allocator, generation: *Generation) error{OutOfMemory}!*Context {
        errdefer generation.release();
        const context = try gpa.create(Context);
        errdefer gpa.destroy(context);
        const lock = c.CRYPTO_THREAD_lock_new() orelse return error.OutOfMemory;
        context.* = .{ .gpa = gpa, .lock = lock, .current = generation };
        return context;
    }

    /// Frees the context. Sessions may outlive it; no other thread may still begin one.
    pub fn deinit(context: *Context) void {
        context.current.release();
        c.CRYPTO_THREAD_lock_free(context.lock);
        const gpa = context.gpa;
        context.* = undefined;
        gpa.destroy(context);
    }

    /// Replaces certificates and policy for the sessions that begin from now on; those that exist keep theirs.
    /// On failure nothing changes and `diagnostic` says why. Only for a server's context; any thread may call it.
    /// Unless `config.ticket_keys` are the same as before, older tickets cost a full handshake.
    pub fn reload(context: *Context, config: tls.ServerConfig, diagnostic: *tls.Diagnostic) tls.ContextError!void {
        assert(context.current.role == .server);
        const fresh = try Generation.createServer(context.gpa, config, diagnostic);
        assert(c.CRYPTO_THREAD_write_lock(context.lock) == 1);
        const old = context.current;
        context.current = fresh;
        assert(c.CRYPTO_THREAD_unlock(context.lock) == 1);
        old.release();
    }
};

/// The newest generation with a reference that the caller releases. For this room only: the server begins sessions instead.
pub fn acquire(context: *Context) *Generation {
    assert(c.CRYPTO_THREAD_read_lock(context.lock) == 1);
    defer assert(c.CRYPTO_THREAD_unlock(context.lock) == 1);
    context.current.retain();
    return context.current;
}
