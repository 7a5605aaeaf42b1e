//! Configuration of a server, and the limits of workers and places to listen at that follow from it.
//! Does not know: how a server is built (server.zig); the limits of one worker are config.zig's.
const std = @import("std");
const io = @import("io");
const tls = @import("tls");
const Config = @import("server").Config;
const Fault = @import("server").Fault;
const ForwardedHeader = @import("server").ForwardedHeader;

/// All fields have defaults that suit a server on the open internet. `init` copies the slices that it needs
/// later: they may go when it returns.
pub const ServerConfig = struct {
    /// Numeric IPv4 or IPv6 address to listen at, together with the server's port. The default is every IPv4
    /// address of the machine; "127.0.0.1" is this machine alone. "::" serves both families, unless another
    /// place has an IPv4 address at the same port. Empty: only `listeners`.
    ip: []const u8 = ip_default,
    /// Further places to listen at.
    listeners: []const Place = &.{},
    /// Certificates: every place with an address speaks TLS, except places that are `plain`. Files that
    /// change are loaded again; a file that cannot be used is logged, and the old ones stay. Unix sockets
    /// never speak TLS. Null: no TLS.
    tls: ?tls.ServerConfig = null,
    /// Threads that serve requests; 0: one per core.
    worker_thread_count: usize = 0,
    /// Stack of each thread that the server starts, in bytes: 512 KiB at least (glibc takes the
    /// program's thread-local variables from it, and a quarter of a MiB of these is the standard
    /// library's), 1 GiB at most.
    worker_stack_size: usize = 1024 * 1024,
    /// Threads that only accept, and give each connection to the worker that has the fewest. 0: every worker
    /// accepts for itself, and the kernel spreads connections by a hash (SO_REUSEPORT), so a second server of
    /// the same user shares the port instead of being told that it is taken. A single worker accepts for
    /// itself in any case and does not share its port.
    accept_thread_count: usize = 1,
    /// The system calls with which threads wait. `.uring`: io_uring if the kernel has it (Linux 6.1) and
    /// allows it, which many sandboxes do not; otherwise a line in the log says so. It pays with many small
    /// requests on busy connections.
    io: io.Backend = .native,
    /// Worker thread n runs on the nth of the cores that the process may use, and on no other.
    cpu_affinity: bool = false,
    /// Small packets leave at once (TCP_NODELAY).
    tcp_nodelay: bool = true,
    /// Connections that the kernel holds ready for `accept`.
    backlog: u31 = 2048,
    /// The largest response body that `setBody` takes, and the most that waits for a slow client; in bytes,
    /// per response. Memory is taken when it is needed, not before.
    response_body_buffer_size: usize = 10 * 1024 * 1024,
    /// The largest request body that is put together for `request.body`, in bytes (413 beyond it). Memory is
    /// taken as the body comes; beyond `limits.body_memory_bytes_max` (1 MiB) it goes to a temporary file,
    /// which `request.body` is then mapped to. In a handler with `handleBody` it stays in memory
    /// (`request.gatherBody`). Null: `limits.body_bytes_max`, which bounds every body, in pieces or not; with
    /// `handleBody` 1 MiB of that.
    request_buffer_size: ?usize = null,
    /// The folder for long bodies. Its files have no name, so none is left behind. It should be on a disk.
    body_folder: []const u8 = "/tmp",
    /// The largest WebSocket message, in bytes (close code 1009 beyond it), in however few frames: 1 GiB at
    /// most. Memory is taken as the message comes. `limits.message_bytes_max` and `limits.frame_bytes_max`
    /// may lower that, not raise it; at their defaults they do neither.
    websocket_buffer_size: usize = 32 * 1024,
    /// Milliseconds between two pings to a WebSocket client, and until its pong, without which it counts as
    /// gone; 0: no pings.
    websocket_ping_ms: u32 = 30_000,
    /// Memory of detached answers and messages to WebSockets between their threads and slow clients,
    /// per worker, in bytes.
    detached_bytes_max: usize = 64 * 1024 * 1024,
    /// SIGINT and SIGTERM stop the server as `shutdown` does; a second one cuts what is left.
    handle_signals: bool = true,
    /// After `shutdown`: how long open requests may take before they are cut, in milliseconds. 0: for ever.
    stop_ms: u32 = 30_000,
    /// GET and HEAD requests for this path are answered with 200 and no handler is told of them, also when
    /// the limit of connections is reached: for monitors of the process. A worker whose handler is busy does
    /// not answer before it returns; the other workers do. Null: there is no such path.
    health_path: ?[]const u8 = null,
    /// Counts requests by status and reason, their times, connections, bytes and messages, for
    /// `writeMetrics`. Each request looks at the clock twice more.
    metrics: bool = false,
    /// Writes a line for each request that was answered.
    access_log: ?AccessLog = null,
    /// Networks of the proxies whose header fields about clients are believed, "10.0.0.0/8, fd00::/8, unix".
    /// Null: none.
    trusted_proxies: ?[]const u8 = null,
    /// The fields that these proxies set; clients could set the others.
    forwarded_header: ForwardedHeader = .x_forwarded,
    /// Limits and deadlines of each worker. `init` refuses values outside of their ranges (`Config.rules`)
    /// with `error.OutOfRange`.
    limits: Config = .{},

    /// The default of `ip`.
    pub const ip_default = "0.0.0.0";

    /// The access log's place and format.
    pub const AccessLog = struct {
        /// `.{ .path = "/var/log/server.log" }`, or `.{ .fd = 1 }` for standard output. Lines are written by
        /// threads of their own.
        target: io.LogTarget,
        /// "clf", "combined", "common", "tiny", "json", or percent atoms: see access_log/format.zig.
        format: []const u8 = "combined",
    };

    /// A place to listen at.
    pub const Place = union(enum) {
        /// Numeric address and port (0: any free one). `plain`: no TLS here, whatever `tls` says. `proxies`:
        /// connections begin with a header of the PROXY protocol (version 1 or 2), which names the client,
        /// and come from these networks ("10.0.0.0/8, fd00::/8, unix"); other peers are cut.
        ip: struct { address: []const u8, port: u16, plain: bool = false, proxies: ?[]const u8 = null },
        /// A Unix socket. The file is created, and removed when the server is gone; a file at which no
        /// process listens is replaced. A path with a leading NUL byte: an abstract socket. `access`: the
        /// file's mode and owner.
        unix: struct { path: []const u8, access: io.SocketAccess = .{}, proxies: ?[]const u8 = null },
        /// A socket that listens already, inherited from the program's starter: systemd's first is 3. The
        /// server closes it.
        inherited: struct { descriptor: i32, plain: bool = false, proxies: ?[]const u8 = null },
    };

    /// Whether the place with this number (that of `ip` and the port first, then `listeners`) speaks TLS.
    pub fn isSecure(config: *const ServerConfig, number: usize) bool {
        if (config.tls == null) return false;
        return switch (config.placeAt(number) orelse return true) {
            .ip => |ip| !ip.plain,
            .unix => false,
            .inherited => |inherited| !inherited.plain,
        };
    }

    /// The place with this number; null: the place of `ip` and the port.
    fn placeAt(config: *const ServerConfig, number: usize) ?Place {
        const own = @intFromBool(config.ip.len > 0);
        return if (number < own) null else config.listeners[number - own];
    }

    /// Networks of the proxies in front of the place with this number; null: clients connect by themselves.
    pub fn proxiesAt(config: *const ServerConfig, number: usize) ?[]const u8 {
        return switch (config.placeAt(number) orelse return null) {
            inline else => |place| place.proxies,
        };
    }

    /// The descriptor of the place with this number, if it is inherited.
    pub fn inheritedDescriptor(config: *const ServerConfig, number: usize) ?i32 {
        return switch (config.placeAt(number) orelse return null) {
            .inherited => |inherited| inherited.descriptor,
            .ip, .unix => null,
        };
    }

    /// How to listen at the place with this number, one of all `places`.
    pub fn listenOptions(
        config: *const ServerConfig,
        places: []const io.Address,
        number: usize,
        reuse_port: bool,
    ) io.ListenOptions {
        const access: io.SocketAccess = if (config.placeAt(number)) |there| switch (there) {
            .unix => |unix| unix.access,
            .ip, .inherited => .{},
        } else .{};
        return .{
            .backlog = config.backlog,
            .reuse_port = reuse_port,
            .v6_only = isShared(places, number),
            .access = access,
        };
    }

    /// "::" cannot stand for IPv4 as well where another place has an IPv4 address at its port.
    fn isShared(places: []const io.Address, number: usize) bool {
        const port = places[number].port() orelse return false;
        for (places) |place| {
            if (port != 0 and place == .v4 and place.v4.port == port) return true;
        }
        return false;
    }

    /// The limits of each worker. `streams`: the handler takes bodies in pieces.
    pub fn workerLimits(config: *const ServerConfig, streams: bool) Config {
        var limits = config.limits;
        if (!streams) limits.body_bytes_max = config.wholeBodyMax(false);
        const message_bytes: u32 = @intCast(std.math.clamp(
            config.websocket_buffer_size,
            1,
            std.math.maxInt(u32),
        ));
        const defaults: Config = .{};
        inline for (.{ "message_bytes_max", "frame_bytes_max" }) |name| {
            const limit = &@field(limits, name);
            limit.* = if (limit.* == @field(defaults, name)) message_bytes else @min(limit.*, message_bytes);
        }
        return limits;
    }

    /// The largest body that is put together, in bytes; 0: no limit. `streams`: it is put together in memory.
    pub fn wholeBodyMax(config: *const ServerConfig, streams: bool) u64 {
        const in_memory: ?usize = if (streams) 1024 * 1024 else null;
        const most = config.request_buffer_size orelse in_memory orelse return config.limits.body_bytes_max;
        return lower(config.limits.body_bytes_max, most);
    }

    /// The lower of two limits, of which only `limit` may mean no limit (0).
    fn lower(limit: u64, other: usize) u64 {
        // A buffer of no bytes still leaves room for one byte, which is as good as none.
        const most = @max(other, 1);
        return if (limit == 0) most else @min(limit, most);
    }

    const stack_bytes_min = 512 * 1024;
    const stack_bytes_max = 1024 * 1024 * 1024;

    /// Refuses limits that no worker could keep to; `fault` says which one.
    pub fn check(config: *const ServerConfig, fault: *Fault) error{OutOfRange}!void {
        const stack_bytes = config.worker_stack_size;
        if (stack_bytes < stack_bytes_min or stack_bytes > stack_bytes_max) {
            fault.say(
                "worker_stack_size is {d}, outside of its range: {d} to {d} (bytes)",
                .{ stack_bytes, stack_bytes_min, stack_bytes_max },
            );
            return error.OutOfRange;
        }
        const option = config.limits.outOfRange() orelse return;
        const rule = option.rule;
        fault.say(
            "limits.{s} is {d}, outside of its range: {d} to {d} ({t})",
            .{ option.name, option.default, rule.min, rule.max, rule.unit },
        );
        return error.OutOfRange;
    }

    /// Why there is nowhere to listen.
    pub const AddressError = error{ OutOfMemory, InvalidAddress, NowhereToListen };

    /// All places, that of the port first. The caller frees them. On an error `fault` says which place cannot
    /// be used.
    pub fn addresses(
        config: *const ServerConfig,
        gpa: std.mem.Allocator,
        port: u16,
        fault: *Fault,
    ) AddressError![]io.Address {
        var list: std.ArrayList(io.Address) = .empty;
        errdefer list.deinit(gpa);
        if (config.ip.len > 0) try list.append(gpa, try numeric("ip", .{}, config.ip, port, fault));
        for (config.listeners, 0..) |place, number| try list.append(gpa, switch (place) {
            .ip => |ip| try numeric("listeners[{d}].ip", .{number}, ip.address, ip.port, fault),
            .unix => |unix| io.Address.unixPath(unix.path) catch |err| {
                fault.say(
                    "listeners[{d}].unix: a path has 1 to {d} bytes, \"{s}\" has {d}",
                    .{ number, io.Address.path_bytes_max, unix.path, unix.path.len },
                );
                return err;
            },
            .inherited => |inherited| io.listeningAddress(inherited.descriptor) catch {
                fault.say(
                    "listeners[{d}].inherited: descriptor {d} is no socket that listens",
                    .{ number, inherited.descriptor },
                );
                return error.InvalidAddress;
            },
        });
        if (list.items.len > 0) return list.toOwnedSlice(gpa);
        fault.say("there is nowhere to listen: ip and listeners are empty", .{});
        return error.NowhereToListen;
    }

    fn numeric(
        comptime name: []const u8,
        numbers: anytype,
        text: []const u8,
        port: u16,
        fault: *Fault,
    ) error{InvalidAddress}!io.Address {
        return io.Address.parse(text, port) catch |err| {
            fault.say(name ++ ": \"{s}\" is no numeric IPv4 or IPv6 address", numbers ++ .{text});
            return err;
        };
    }
};

test "addresses in order" {
    const gpa = std.testing.allocator;
    const config: ServerConfig = .{ .listeners = &.{
        .{ .ip = .{ .address = "::1", .port = 9 } }, .{ .unix = .{ .path = "/tmp/x" } },
    } };
    var fault: Fault = .{};
    const list = try config.addresses(gpa, 80, &fault);
    defer gpa.free(list);
    try std.testing.expectEqual(3, list.len);
    try std.testing.expectEqual(80, list[0].port().?);
    try std.testing.expectEqual(9, list[1].port().?);
    try std.testing.expectEqual(null, list[2].port());
    try std.testing.expectEqualStrings("", fault.text());
}

test "an IPv6 place leaves IPv4 to another place at the same port" {
    const places = [_]io.Address{
        try .parse("0.0.0.0", 80), try .parse("::", 80), try .parse("::", 81),  try .parse("::", 0),
        try .parse("0.0.0.0", 0),  try .parse("::", 82), try .parse("::1", 82),
    };
    const config: ServerConfig = .{
        .ip = "",
        .listeners = &@as([places.len]ServerConfig.Place, @splat(.{ .ip = .{ .address = "", .port = 0 } })),
    };
    for ([_]bool{ true, true, false, false, false, false, false }, 0..) |expected, number| {
        try std.testing.expectEqual(expected, config.listenOptions(&places, number, false).v6_only);
    }
}

test "no address, no limit that could be kept: the fault names field, value and what is allowed" {
    const most = io.Address.path_bytes_max;
    const long: [most + 1]u8 = @splat('p');
    for ([_]struct { anyerror, []const u8, ServerConfig }{
        .{ error.NowhereToListen, "there is nowhere to listen: ip and listeners are empty", .{ .ip = "" } },
        .{
            error.InvalidAddress,
            "ip: \"localhost\" is no numeric IPv4 or IPv6 address",
            .{ .ip = "localhost" },
        },
        .{
            error.InvalidAddress,
            "listeners[1].ip: \"1.2.3\" is no numeric IPv4 or IPv6 address",
            .{ .listeners = &.{
                .{ .unix = .{ .path = "/tmp/x" } },
                .{ .ip = .{ .address = "1.2.3", .port = 1 } },
            } },
        },
        .{
            error.InvalidAddress,
            std.fmt.comptimePrint(
                "listeners[0].unix: a path has 1 to {d} bytes, \"{s}\" has {d}",
                .{ most, long, most + 1 },
            ),
            .{ .listeners = &.{.{ .unix = .{ .path = &long } }} },
        },
        .{ error.InvalidAddress, "listeners[0].inherited: descriptor 0 is no socket that listens", .{
            .ip = "",
            .listeners = &.{.{ .inherited = .{ .descriptor = 0 } }},
        } },
        .{
            error.OutOfRange,
            "worker_stack_size is 1024, outside of its range: 524288 to 1073741824 (bytes)",
            .{ .worker_stack_size = 1024 },
        },
        .{
            error.OutOfRange,
            "limits.body_rate_min is 0, outside of its range: 1 to 1073741824 (bytes_per_second)",
            .{ .limits = .{ .body_rate_min = 0 } },
        },
        .{
            error.OutOfRange,
            "limits.deflate_server_window_bits is 99, outside of its range: 8 to 15 (bits)",
            .{ .limits = .{ .deflate_server_window_bits = 99 } },
        },
    }) |case| {
        var fault: Fault = .{};
        try std.testing.expectError(case[0], attempt(&case[2], &fault));
        try std.testing.expectEqualStrings(case[1], fault.text());
    }
}

fn attempt(config: *const ServerConfig, fault: *Fault) !void {
    try config.check(fault);
    std.testing.allocator.free(try config.addresses(std.testing.allocator, 80, fault));
}

test "addresses speak TLS, except plain ones and Unix sockets" {
    var config: ServerConfig = .{ .listeners = &.{
        .{ .ip = .{ .address = "::1", .port = 9 } },
        .{ .ip = .{ .address = "::1", .port = 10, .plain = true } },
        .{ .unix = .{ .path = "/tmp/x" } },
    } };
    for (0..4) |number| try std.testing.expect(!config.isSecure(number));
    config.tls = .{ .certificates = &.{} };
    for ([_]bool{ true, true, false, false }, 0..) |secure, number| {
        try std.testing.expectEqual(secure, config.isSecure(number));
    }
    config.ip = "";
    for ([_]bool{ true, false, false }, 0..) |secure, number| {
        try std.testing.expectEqual(secure, config.isSecure(number));
    }
}

test "buffer sizes become limits, and never raise one that was lowered" {
    const config: ServerConfig = .{ .request_buffer_size = 1000, .limits = .{ .body_bytes_max = 0 } };
    try std.testing.expectEqual(1000, config.workerLimits(false).body_bytes_max);
    try std.testing.expectEqual(0, config.workerLimits(true).body_bytes_max);
    const raised: ServerConfig = .{ .limits = .{ .body_bytes_max = 50_000_000 } };
    try std.testing.expectEqual(50_000_000, raised.workerLimits(false).body_bytes_max);
    try std.testing.expectEqual(1024 * 1024, raised.wholeBodyMax(true));
    const small: ServerConfig = .{ .limits = .{ .body_bytes_max = 10, .message_bytes_max = 20 } };
    try std.testing.expectEqual(10, small.workerLimits(false).body_bytes_max);
    try std.testing.expectEqual(20, small.workerLimits(false).message_bytes_max);
    try std.testing.expectEqual(32 * 1024, small.workerLimits(false).frame_bytes_max);
    const large: ServerConfig = .{
        .websocket_buffer_size = 64 << 20,
        .limits = .{ .frame_bytes_max = 1 << 20 },
    };
    try std.testing.expectEqual(64 << 20, large.workerLimits(false).message_bytes_max);
    try std.testing.expectEqual(1 << 20, large.workerLimits(false).frame_bytes_max);
    try std.testing.expectEqual(
        1 << 20,
        (ServerConfig{ .websocket_buffer_size = 1 << 20 }).workerLimits(false).frame_bytes_max,
    );
    const huge: ServerConfig = .{ .websocket_buffer_size = (1 << 30) + 1 };
    try std.testing.expectEqualStrings("frame_bytes_max", huge.workerLimits(false).outOfRange().?.name);
    try std.testing.expectEqual(
        null,
        (ServerConfig{
            .websocket_buffer_size = 0,
            .request_buffer_size = 0,
        }).workerLimits(false).outOfRange(),
    );
}
