//! The newest generation of certificates and policy, which threads share, and its atomic replacement: when a
//! caller asks for it, or because files changed. Does not know: how a configuration is loaded
//! (generation.zig), what a session does with it.
const std = @import("std");
const assert = std.debug.assert;
const c = @import("libssl.zig");
const tls = @import("tls.zig");
const certificate = @import("certificate.zig");
const dates = @import("dates.zig");
const Generation = @import("generation.zig").Generation;
const Retained = @import("retained.zig").Retained;

/// Certificates and policy, shared between threads and replaced as a whole by `reload`. Its
/// address is stable.
pub const Context = struct {
    gpa: std.mem.Allocator,
    /// Guards `current`: between reading the pointer and counting the reference, no thread may drop the last
    /// reference. OpenSSL's lock, because the standard library's wants an event loop.
    lock: *anyopaque,
    current: *Generation,
    /// Null in a client's context.
    watch: ?Watch,

    /// The files behind `current`.
    const Watch = struct {
        /// Guards all but `next_ms`: one thread loads at a time.
        lock: *anyopaque,
        retained: Retained,
        /// When `refresh` looks at the files again.
        next_ms: std.atomic.Value(u64) = .init(0),
        /// A digest of the files when they were loaded or refused.
        known: u64,
        /// A digest of the files at the last look: two equal looks mean that no program is writing them.
        last: u64,
    };

    /// Milliseconds between two looks of `refresh` at the files.
    const look_every_ms = 1000;

    /// A server's context. On failure `diagnostic` says what is wrong with which file or value.
    /// `gpa` must be safe to use from every thread that ends a session: the last one frees an old generation.
    pub fn init(
        gpa: std.mem.Allocator,
        config: tls.ServerConfig,
        diagnostic: *tls.Diagnostic,
    ) tls.ContextError!*Context {
        var keys: [tls.ticket_keys_bytes]u8 = undefined;
        defer std.crypto.secureZero(u8, &keys);
        if (c.RAND_bytes(&keys, keys.len) != 1) return error.OutOfMemory;
        var retained: Retained = try .init(gpa, config, &keys);
        errdefer retained.deinit();
        // The look comes before loading, so that a file that changes meanwhile is seen later.
        const known = retained.look().number();
        const lock = c.CRYPTO_THREAD_lock_new() orelse return error.OutOfMemory;
        errdefer c.CRYPTO_THREAD_lock_free(lock);
        const generation: *Generation = try .createServer(gpa, retained.config, null, &.{}, diagnostic);
        const context = try create(gpa, generation);
        context.watch = .{ .lock = lock, .retained = retained, .known = known, .last = known };
        return context;
    }

    /// Makes a client's context.
    pub fn initClient(
        gpa: std.mem.Allocator,
        config: tls.ClientConfig,
        diagnostic: *tls.Diagnostic,
    ) tls.ContextError!*Context {
        return create(gpa, try Generation.createClient(gpa, config, diagnostic));
    }

    fn create(gpa: std.mem.Allocator, generation: *Generation) error{OutOfMemory}!*Context {
        errdefer generation.release();
        const context = try gpa.create(Context);
        errdefer gpa.destroy(context);
        const lock = c.CRYPTO_THREAD_lock_new() orelse return error.OutOfMemory;
        context.* = .{ .gpa = gpa, .lock = lock, .current = generation, .watch = null };
        return context;
    }

    /// Frees the context. Sessions may outlive it; no other thread may still begin one.
    pub fn deinit(context: *Context) void {
        context.current.release();
        c.CRYPTO_THREAD_lock_free(context.lock);
        if (context.watch) |*watch| {
            watch.retained.deinit();
            c.CRYPTO_THREAD_lock_free(watch.lock);
        }
        const gpa = context.gpa;
        context.* = undefined;
        gpa.destroy(context);
    }

    /// Replaces certificates and policy for the sessions that begin from now on; those that
    /// exist keep theirs.
    /// On failure nothing changes and `diagnostic` says why. Only for a server's context; any thread may call
    /// it. Tickets stay good unless `config.ticket_keys` are others than before; null keeps those in use.
    pub fn reload(
        context: *Context,
        config: tls.ServerConfig,
        diagnostic: *tls.Diagnostic,
    ) tls.ContextError!void {
        const watch = &context.watch.?;
        assert(c.CRYPTO_THREAD_write_lock(watch.lock) == 1);
        defer assert(c.CRYPTO_THREAD_unlock(watch.lock) == 1);
        var retained: Retained = try .init(context.gpa, config, watch.retained.ticket_keys);
        errdefer retained.deinit();
        const known = retained.look().number();
        const before = acquire(context);
        defer before.release();
        const fresh =
            try Generation.createServer(context.gpa, retained.config, before, &.{}, diagnostic);
        watch.retained.deinit();
        watch.retained = retained;
        watch.known = known;
        watch.last = known;
        context.replace(fresh);
    }

    /// Loads the same files again, changed or not. As `reload` otherwise.
    pub fn reloadFiles(context: *Context, diagnostic: *tls.Diagnostic) tls.ContextError!void {
        const watch = &context.watch.?;
        assert(c.CRYPTO_THREAD_write_lock(watch.lock) == 1);
        defer assert(c.CRYPTO_THREAD_unlock(watch.lock) == 1);
        try context.load(watch.retained.look().number(), diagnostic);
    }

    /// Takes certificates over, each in place of one that came under the same name before. Otherwise like
    /// `reload`; only where there is a `validation_dir`.
    pub fn give(
        context: *Context,
        given: []const tls.Given,
        diagnostic: *tls.Diagnostic,
    ) tls.ContextError!void {
        const watch = &context.watch.?;
        assert(c.CRYPTO_THREAD_write_lock(watch.lock) == 1);
        defer assert(c.CRYPTO_THREAD_unlock(watch.lock) == 1);
        if (watch.retained.config.validation_dir == null) {
            diagnostic.set("SSL certificates can be handed over only where there is a validation_dir", .{});
            return error.InvalidValue;
        }
        var fresh: std.ArrayList(Generation.Given) = try .initCapacity(context.gpa, given.len);
        defer {
            for (fresh.items) |*one| one.pair.deinit();
            fresh.deinit(context.gpa);
        }
        for (given) |one| fresh.appendAssumeCapacity(.{
            .name = one.name,
            .pair = try .parse(one.name, one.pem, diagnostic),
        });
        const before = acquire(context);
        defer before.release();
        const config = watch.retained.config;
        context.replace(try Generation.createServer(context.gpa, config, before, fresh.items, diagnostic));
    }

    /// Loads the files again if they have changed: true if they have. Cheap enough for every new connection:
    /// it looks at the files once a second at most, in one of the threads. Files that changed less than a
    /// second ago, and since the last look, have to wait for the next look: a key and its certificate are
    /// rarely replaced in the same instant. Files that cannot be loaded are an error once, and nothing
    /// changes. `now_ms` is any steady clock's, `wall_s` seconds since 1970.
    pub fn refresh(
        context: *Context,
        now_ms: u64,
        wall_s: u64,
        diagnostic: *tls.Diagnostic,
    ) tls.ContextError!bool {
        const watch = &context.watch.?;
        const due = watch.next_ms.load(.monotonic);
        if (now_ms < due or
            watch.next_ms.cmpxchgStrong(due, now_ms + look_every_ms, .monotonic, .monotonic) != null)
        {
            return false;
        }
        assert(c.CRYPTO_THREAD_write_lock(watch.lock) == 1);
        defer assert(c.CRYPTO_THREAD_unlock(watch.lock) == 1);
        const look = watch.retained.look();
        const number = look.number();
        const last = watch.last;
        watch.last = number;
        if (number == watch.known) return false;
        const settled = number == last or look.newest_s + 1 < @as(i64, @intCast(wall_s));
        if (!settled) return false;
        try context.load(number, diagnostic);
        return true;
    }

    /// Tells of a certificate in use that has expired, is not good yet or expires soon, or of a file that
    /// could not be used. Numbers of certificates and files begin with 0. True: `diagnostic` has a sentence
    /// about number `index`; false: number `index` is well; null: there is no such number. Any thread may
    /// call it; `now_s` is seconds since 1970.
    pub fn concern(context: *Context, index: usize, now_s: i64, diagnostic: *tls.Diagnostic) ?bool {
        const generation = acquire(context);
        defer generation.release();
        const leaves = generation.leaves.items;
        if (index < leaves.len) {
            // OpenSSL cannot read the certificate's dates
            const validity = certificate.validity(leaves[index].certificate) orelse return false;
            return dates.concern(validity, leaves[index].file, now_s, diagnostic);
        }
        const complaints = generation.complaints.items;
        if (index - leaves.len >= complaints.len) return null;
        diagnostic.set("{s}", .{complaints[index - leaves.len]});
        return true;
    }

    fn load(context: *Context, number: u64, diagnostic: *tls.Diagnostic) tls.ContextError!void {
        const watch = &context.watch.?;
        watch.known = number;
        watch.last = number;
        const before = acquire(context);
        defer before.release();
        const config = watch.retained.config;
        context.replace(try Generation.createServer(context.gpa, config, before, &.{}, diagnostic));
    }

    fn replace(context: *Context, fresh: *Generation) void {
        assert(c.CRYPTO_THREAD_write_lock(context.lock) == 1);
        const old = context.current;
        context.current = fresh;
        assert(c.CRYPTO_THREAD_unlock(context.lock) == 1);
        old.release();
    }
};

/// The newest generation with a reference that the caller releases. For this layer only: the server
/// begins sessions instead.
pub fn acquire(context: *Context) *Generation {
    assert(c.CRYPTO_THREAD_read_lock(context.lock) == 1);
    defer assert(c.CRYPTO_THREAD_unlock(context.lock) == 1);
    context.current.retain();
    return context.current;
}
