//! An engine that C owns: a worker with its host, in the caller's thread or in a thread of the engine's own.
//! Does not know: how C reaches the engine (handle.zig).
const std = @import("std");
const assert = std.debug.assert;
const peregrine = @import("peregrine");
const platform = @import("platform");
const Certificates = @import("certificates.zig").Certificates;
const Depot = @import("depot.zig").Depot;
const EngineWorker = @import("engine_worker.zig").EngineWorker;
const heap = @import("heap.zig");
const Host = @import("host.zig").Host;
const Lone = @import("lone.zig").Lone;
const Pool = @import("pool.zig").Pool;
const gpa = platform.gpa;

/// Never moves: sessions point to the worker's limits.
pub const Engine = struct {
    worker: EngineWorker,
    host: Host,
    /// The interpreters that requests are for; null: C answers requests itself.
    pool: ?*Pool = null,
    /// The application on another thread, where the engine delivers topics; null: no topics, or a pool.
    lone: ?*Lone = null,
    /// C has polled: no route, folder or thread can be added any more.
    polled: bool = false,
    /// Memory for long bodies; null: they lie in the heap.
    depot: ?Depot = null,
    /// The certificates of listeners that speak TLS, each with a reference of the engine's.
    certificates: std.ArrayList(*Certificates) = .empty,

    /// Makes an engine with these limits.
    pub fn create(config: *const peregrine.Config) !*Engine {
        const engine = try gpa.create(Engine);
        errdefer gpa.destroy(engine);
        heap.prepare();
        engine.* = .{ .worker = undefined, .host = try .init(gpa) };
        errdefer engine.host.abandon();
        engine.worker = try .init(gpa, config.*, &engine.host, .{});
        assert(engine.worker.host == &engine.host);
        return engine;
    }

    /// Puts long bodies from now on where applications on other threads and in other processes can read them.
    /// To be called before the engine's thread runs.
    pub fn openDepot(engine: *Engine, depot: Depot) *Depot {
        assert(engine.depot == null and engine.worker.pool.long == null);
        engine.depot = depot;
        engine.worker.pool.long = engine.depot.?.allocator();
        return &engine.depot.?;
    }

    /// Undoes `openDepot`. To be called before the engine's thread runs.
    pub fn closeDepot(engine: *Engine) void {
        engine.worker.pool.long = null;
        if (engine.depot) |*depot| depot.deinit();
        engine.depot = null;
    }

    /// To be called when no thread runs the worker any more.
    pub fn destroy(engine: *Engine) void {
        assert(engine.pool == null or engine.lone == null);
        assert((engine.host.interpreters == null) == (engine.pool == null and engine.lone == null));
        engine.host.link = null;
        if (engine.pool) |pool| pool.destroy();
        if (engine.lone) |lone| lone.destroy();
        engine.host.interpreters = null;
        engine.host.deinit(&engine.worker.pool);
        engine.worker.deinit();
        if (engine.depot) |*depot| depot.deinit();
        for (engine.certificates.items) |certificates| certificates.release();
        engine.certificates.deinit(gpa);
        gpa.destroy(engine);
    }

    pub fn exchangeOf(engine: *Engine, ticket: u64) ?*peregrine.Exchange {
        return engine.worker.exchanges.get(@fromBackingInt(ticket));
    }
};
