//! A lone application behind an engine's thread, as a pool of one, where the engine delivers topics. Without
//! topics there is no `Lone`, and the host has no interpreters. Does not know: what the application wishes
//! (engine_end.zig).
const std = @import("std");
const assert = std.debug.assert;
const hub = @import("hub");
const peregrine = @import("peregrine");
const Claim = @import("claim.zig").Claim;
const Delivery = @import("delivery.zig").Delivery;
const EngineWorker = @import("engine_worker.zig").EngineWorker;
const Hearer = @import("host.zig").Hearer;
const Host = @import("host.zig").Host;
const Interpreters = @import("host.zig").Interpreters;
const Exchange = peregrine.Exchange;

/// Never moves: the host points to its interpreters.
pub const Lone = struct {
    gpa: std.mem.Allocator,
    worker: *EngineWorker,
    host: *Host,
    interpreters: Interpreters = .{ .calls = &calls },
    delivery: *Delivery,

    /// To be called before the engine's thread runs. `join_socket` leads to the hub; after an error it stays
    /// the caller's.
    pub fn create(
        gpa: std.mem.Allocator,
        worker: *EngineWorker,
        host: *Host,
        join_socket: i32,
        config: *const hub.Config,
    ) !*Lone {
        assert(host.interpreters == null);
        const lone = try gpa.create(Lone);
        errdefer gpa.destroy(lone);
        lone.* = .{
            .gpa = gpa,
            .worker = worker,
            .host = host,
            .delivery = try .create(gpa, worker, join_socket, config),
        };
        lone.delivery.is_lone = true;
        return lone;
    }

    /// To be called when the engine's thread has ended.
    pub fn destroy(lone: *Lone) void {
        var it = lone.worker.exchanges.iterator();
        while (it.next()) |exchange| release(&lone.interpreters, exchange);
        lone.delivery.destroy();
        lone.gpa.destroy(lone);
    }

    const calls: Interpreters.Calls = .{
        .turn = turn,
        .request = null,
        .release = release,
        .drained = drained,
        .asked = asked,
        .unheard = unheard,
        .hearerOf = hearerOf,
        .isWaiting = isWaiting,
        .patience = patience,
        .waited = waited,
        .countStates = countStates,
        .groupOf = groupOf,
    };

    fn of(several: *Interpreters) *Lone {
        return @alignCast(@fieldParentPtr("interpreters", several));
    }

    fn turn(several: *Interpreters) bool {
        const lone = of(several);
        lone.delivery.hear(lone.worker.io.takeForeign());
        return lone.delivery.serve();
    }

    fn release(_: *Interpreters, exchange: *Exchange) void {
        switch (Claim.of(exchange)) {
            .subscribed => |subscriber| {
                Claim.unsubscribe(exchange, subscriber);
                subscriber.delivery.free(subscriber);
            },
            else => {},
        }
    }

    fn drained(exchange: *const Exchange) void {
        switch (Claim.of(exchange)) {
            .subscribed => |subscriber| subscriber.delivery.makeReady(subscriber),
            else => {},
        }
    }

    /// Does nothing: a lone application dies with its engine, so that no exchange can go on without it.
    fn asked(_: *const Exchange) void {}

    /// Called when a client that waits for a held response has ended its side.
    fn unheard(exchange: *Exchange) void {
        switch (Claim.of(exchange)) {
            .subscribed => |subscriber| subscriber.delivery.unheard(exchange),
            else => {},
        }
    }

    fn hearerOf(several: *Interpreters, exchange: *const Exchange) Hearer {
        switch (Claim.of(exchange)) {
            .subscribed => |subscriber| if (subscriber.host == null) return .nobody,
            else => {},
        }
        return .{ .host = of(several).host };
    }

    fn isWaiting(several: *Interpreters) bool {
        return of(several).delivery.ready.first != null;
    }

    fn patience(several: *Interpreters, wanted_ms: i32) i32 {
        return of(several).delivery.patience(wanted_ms);
    }

    fn waited(_: *Interpreters) void {}

    fn countStates(_: *Interpreters) [3]u32 {
        return @splat(0);
    }

    fn groupOf(_: *const Interpreters, _: *const Exchange) []const u8 {
        return "";
    }
};
