//! Several hosts as one: routes choose the host of each exchange, and what the worker says of that exchange
//! goes there. Does not know: which hosts, and what they answer.
const std = @import("std");
const assert = std.debug.assert;
const Head = @import("protocol").Head;
const Page = @import("protocol").early.Page;
const Demand = @import("demand.zig").Demand;
const Exchange = @import("exchange.zig").Exchange;
const route_file = @import("route.zig");
const Route = route_file.Route;
const Level = @import("types.zig").Level;
const Reason = @import("types.zig").Reason;
const Close = @import("websocket.zig").Close;
const Kind = @import("websocket.zig").Kind;

/// A host for a worker whose exchanges are answered by hosts of these types. The first one gets what no route
/// sends elsewhere, and what is about no exchange. What hosts may leave out is described in worker.zig.
pub fn Hosts(comptime Types: []const type) type {
    return struct {
        const Self = @This();
        const count = Types.len;

        /// What each of them wants.
        pub const demands: [count]Demand = blk: {
            var all: [count]Demand = undefined;
            for (Types, &all) |Host, *demand| demand.* = Host.demand;
            break :blk all;
        };

        /// Whose they stay, as long as the worker is there.
        each: Each,
        routes: []const Route,

        /// A pointer to each host.
        pub const Each = blk: {
            var pointers: [count]type = undefined;
            for (Types, &pointers) |Host, *Pointer| Pointer.* = *Host;
            break :blk @Tuple(&pointers);
        };

        /// `routes` are borrowed as long as the hosts are used. Each has a path that begins with "/", or
        /// none.
        pub fn init(each: Each, routes: []const Route) Self {
            for (routes) |*one| {
                assert(one.to < count);
                assert(one.path.len == 0 or one.path[0] == '/');
            }
            return .{ .each = each, .routes = routes };
        }

        /// Decides who answers a request that begins.
        pub fn route(hosts: *const Self, exchange: *Exchange, head: *const Head) void {
            exchange.host = route_file.find(hosts.routes, head, exchange.websocket != null);
            exchange.demand = demands[exchange.host];
        }

        // ---- Of an exchange

        /// Calls a function of its host.
        inline fn tell(
            hosts: *Self,
            exchange: *const Exchange,
            comptime name: []const u8,
            values: anytype,
        ) void {
            switch (exchange.host) {
                inline 0...count - 1 => |n| @call(.auto, @field(Types[n], name), .{hosts.each[n]} ++ values),
                else => unreachable,
            }
        }

        /// The same if it has that function.
        inline fn offer(
            hosts: *Self,
            exchange: *const Exchange,
            comptime name: []const u8,
            values: anytype,
        ) void {
            switch (exchange.host) {
                inline 0...count - 1 => |n| if (@hasDecl(Types[n], name)) {
                    @call(.auto, @field(Types[n], name), .{hosts.each[n]} ++ values);
                },
                else => unreachable,
            }
        }

        /// What its host answers; no if it has no such function.
        inline fn ask(hosts: *Self, exchange: *const Exchange, comptime name: []const u8) bool {
            switch (exchange.host) {
                inline 0...count - 1 => |n| {
                    if (!@hasDecl(Types[n], name)) return false;
                    return @call(.auto, @field(Types[n], name), .{ hosts.each[n], exchange });
                },
                else => unreachable,
            }
        }

        pub fn request(hosts: *Self, w: anytype, exchange: *Exchange, head: *const Head) void {
            hosts.tell(exchange, "request", .{ w, exchange, head });
        }

        pub fn body(hosts: *Self, w: anytype, exchange: *Exchange, bytes: []const u8) void {
            hosts.tell(exchange, "body", .{ w, exchange, bytes });
        }

        pub fn trailers(hosts: *Self, w: anytype, exchange: *Exchange, head: *const Head) void {
            hosts.tell(exchange, "trailers", .{ w, exchange, head });
        }

        pub fn bodyEnd(hosts: *Self, w: anytype, exchange: *Exchange) void {
            hosts.tell(exchange, "bodyEnd", .{ w, exchange });
        }

        pub fn drained(hosts: *Self, w: anytype, exchange: *Exchange) void {
            hosts.tell(exchange, "drained", .{ w, exchange });
        }

        pub fn flushed(hosts: *Self, w: anytype, exchange: *Exchange) void {
            hosts.offer(exchange, "flushed", .{ w, exchange });
        }

        pub fn finished(hosts: *Self, w: anytype, exchange: *Exchange) void {
            hosts.tell(exchange, "finished", .{ w, exchange });
        }

        pub fn aborted(hosts: *Self, w: anytype, exchange: *Exchange, reason: Reason) void {
            hosts.tell(exchange, "aborted", .{ w, exchange, reason });
        }

        pub fn message(hosts: *Self, w: anytype, exchange: *Exchange, kind: Kind, bytes: []const u8) void {
            hosts.tell(exchange, "message", .{ w, exchange, kind, bytes });
        }

        pub fn closed(hosts: *Self, w: anytype, exchange: *Exchange, how: Close, reason: ?Reason) void {
            hosts.tell(exchange, "closed", .{ w, exchange, how, reason });
        }

        pub fn halfClosed(hosts: *Self, w: anytype, exchange: *Exchange) void {
            hosts.tell(exchange, "halfClosed", .{ w, exchange });
        }

        pub fn progress(hosts: *Self, exchange: *const Exchange) void {
            hosts.offer(exchange, "progress", .{exchange});
        }

        pub fn owesMessages(hosts: *Self, exchange: *const Exchange) bool {
            return hosts.ask(exchange, "owesMessages");
        }

        pub fn isBehind(hosts: *Self, exchange: *const Exchange) bool {
            return hosts.ask(exchange, "isBehind");
        }

        /// Where its host wants the next piece of a body; null: it has no such wish.
        pub fn bodySpace(hosts: *Self, w: anytype, exchange: *Exchange, most: usize) ?[]u8 {
            switch (exchange.host) {
                inline 0...count - 1 => |n| {
                    if (!@hasDecl(Types[n], "bodySpace")) return null;
                    return hosts.each[n].bodySpace(w, exchange, most);
                },
                else => unreachable,
            }
        }

        /// When its host began to work on it; at once, where that is not told.
        pub fn takenAt(hosts: *Self, exchange: *const Exchange) u64 {
            switch (exchange.host) {
                inline 0...count - 1 => |n| {
                    if (!@hasDecl(Types[n], "takenAt")) return exchange.begun_us;
                    return hosts.each[n].takenAt(exchange);
                },
                else => unreachable,
            }
        }

        /// Whether the host of an exchange has events to look at.
        pub fn waitingOf(hosts: *Self, exchange: *const Exchange) bool {
            switch (exchange.host) {
                inline 0...count - 1 => |n| return hosts.each[n].waiting(),
                else => unreachable,
            }
        }

        /// About an exchange: its host's. Otherwise the first one's.
        pub fn notice(hosts: *Self, w: anytype, about: ?*Exchange, level: Level, text: []const u8) void {
            const exchange = about orelse return hosts.each[0].notice(w, null, level, text);
            hosts.tell(exchange, "notice", .{ w, exchange, level, text });
        }

        // ---- Of the worker

        /// Whether one of them has events to look at.
        pub fn waiting(hosts: *const Self) bool {
            inline for (hosts.each) |host| if (host.waiting()) return true;
            return false;
        }

        /// As long as the least patient one lets the worker wait.
        pub fn patience(hosts: *Self, wanted_ms: i32) i32 {
            var ms = wanted_ms;
            inline for (hosts.each, Types) |host, Host| {
                if (@hasDecl(Host, "patience") and ms != 0) ms = host.patience(ms);
            }
            return ms;
        }

        /// The first host's that has any.
        pub fn refusalPage(hosts: *Self, status: u16) ?Page {
            inline for (hosts.each, Types) |host, Host| if (@hasDecl(Host, "refusalPage")) {
                if (host.refusalPage(status)) |page| return page;
            };
            return null;
        }

        pub fn waited(hosts: *Self) void {
            inline for (hosts.each, Types) |host, Host| if (@hasDecl(Host, "waited")) host.waited();
        }

        /// False if one of them wants to be asked again.
        pub fn relieve(hosts: *Self) bool {
            var done = true;
            inline for (hosts.each, Types) |host, Host| if (@hasDecl(Host, "relieve")) {
                if (!host.relieve()) done = false;
            };
            return done;
        }

        pub fn stopped(hosts: *Self, w: anytype) void {
            inline for (hosts.each) |host| host.stopped(w);
        }

        /// Access log lines: the first host's that takes them.
        pub fn lines(hosts: *Self, w: anytype, text: []const u8) void {
            inline for (hosts.each, Types) |host, Host| {
                if (@hasDecl(Host, "lines")) return host.lines(w, text);
            }
        }
    };
}
