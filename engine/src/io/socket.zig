//! Job: addresses (IPv4, IPv6, Unix) as values and as text, and listening sockets at them. Does not know:
//! events, host names (every address is a literal; nothing here resolves names), HTTP. IPv6 text follows RFC
//! 5952, in brackets before a port (RFC 3986, 3.2.2).

const std = @import("std");
const socket_file = @import("socket_file.zig");
const sys = @import("sys.zig");
const assert = std.debug.assert;

/// The address of a socket, or of its peer.
pub const Address = union(enum) {
    v4: V4,
    v6: V6,
    unix: Unix,

    pub const V4 = struct { bytes: [4]u8, port: u16 };

    /// An IPv6 address and a port. `scope` is the interface's index for a link-local address, otherwise 0.
    pub const V6 = struct { bytes: [16]u8, port: u16, scope: u32 = 0 };

    /// The path of a Unix socket. Empty for a peer without a path, as clients usually are. A leading NUL byte
    /// marks an abstract socket (Linux), which has no file.
    pub const Unix = struct {
        buffer: [path_bytes_max]u8,
        length: u8,

        /// Returns the path, which is valid as long as `self`.
        pub fn path(self: *const Unix) []const u8 {
            return self.buffer[0..self.length];
        }
    };

    /// The longest path of a Unix socket, in bytes: the kernel's 108 (104 on a BSD) less one for a NUL.
    pub const path_bytes_max = @typeInfo(@FieldType(sys.sockaddr.un, "path")).array.len - 1;

    /// The longest text of an address, in bytes.
    pub const text_bytes_max = "unix:".len + path_bytes_max;

    /// Reads an IP address: "127.0.0.1", "::1", "[::1]" or "fe80::1%2" (the scope as a number). Host names
    /// are refused.
    pub fn parse(host: []const u8, port_number: u16) error{InvalidAddress}!Address {
        if (std.Io.net.Ip4Address.parse(host, port_number)) |v4| {
            return .{ .v4 = .{ .bytes = v4.bytes, .port = port_number } };
        } else |_| {}
        const bracketed = host.len >= 2 and host[0] == '[' and host[host.len - 1] == ']';
        const bare = if (bracketed) host[1 .. host.len - 1] else host;
        switch (std.Io.net.Ip6Address.Unresolved.parse(bare)) {
            .success => |v6| {
                const scope_text = v6.interface_name orelse "0";
                const scope = std.fmt.parseInt(u32, scope_text, 10) catch return error.InvalidAddress;
                return .{ .v6 = .{ .bytes = v6.bytes, .port = port_number, .scope = scope } };
            },
            else => return error.InvalidAddress,
        }
    }

    /// Returns the address of a Unix socket at `path`, which is copied. A path that is empty or longer than
    /// `path_bytes_max` is an error.
    pub fn unixPath(path: []const u8) error{InvalidAddress}!Address {
        if (path.len == 0 or path.len > path_bytes_max) return error.InvalidAddress;
        var unix: Unix = .{ .buffer = @splat(0), .length = @intCast(path.len) };
        @memcpy(unix.buffer[0..path.len], path);
        return .{ .unix = unix };
    }

    /// Returns true for 0.0.0.0 and ::, which stand for every address of this machine.
    pub fn isWildcard(self: *const Address) bool {
        return switch (self.*) {
            .v4 => |v4| std.mem.allEqual(u8, &v4.bytes, 0),
            .v6 => |v6| std.mem.allEqual(u8, &v6.bytes, 0),
            .unix => false,
        };
    }

    /// Returns the IPv4 address inside an address of ::ffff:0:0/96, by which an IPv6 socket names an IPv4
    /// peer (RFC 4291, 2.5.5.2); any other address unchanged.
    pub fn unmapped(self: *const Address) Address {
        switch (self.*) {
            .v4, .unix => {},
            .v6 => |v6| if (std.mem.startsWith(u8, &v6.bytes, &v4_prefix)) return .{ .v4 = .{
                .bytes = v6.bytes[v4_prefix.len..].*,
                .port = v6.port,
            } },
        }
        return self.*;
    }

    const v4_prefix: [12]u8 = @as([10]u8, @splat(0)) ++ .{ 0xff, 0xff };

    /// Returns the port; null: a Unix socket.
    pub fn port(self: *const Address) ?u16 {
        return switch (self.*) {
            .v4 => |v4| v4.port,
            .v6 => |v6| v6.port,
            .unix => null,
        };
    }

    /// Writes "127.0.0.1:80", "[::1]:80" or "unix:/run/x.sock". Called for `{f}`.
    pub fn format(self: Address, writer: *std.Io.Writer) std.Io.Writer.Error!void {
        switch (self) {
            .v4, .v6 => {
                if (self == .v6) try writer.writeByte('[');
                try self.formatHost(writer);
                if (self == .v6) try writer.writeByte(']');
                try writer.print(":{d}", .{self.port().?});
            },
            .unix => |*unix| {
                try writer.writeAll("unix:");
                for (unix.path()) |byte| try writer.writeByte(if (byte == 0) '@' else byte);
            },
        }
    }

    /// Writes the address without its port: "127.0.0.1", "::1"; for a Unix socket the path.
    pub fn formatHost(self: *const Address, writer: *std.Io.Writer) std.Io.Writer.Error!void {
        switch (self.*) {
            .v4 => |v4| try writer.print(
                "{d}.{d}.{d}.{d}",
                .{ v4.bytes[0], v4.bytes[1], v4.bytes[2], v4.bytes[3] },
            ),
            .v6 => |v6| {
                const bare: std.Io.net.Ip6Address.Unresolved = .{ .bytes = v6.bytes, .interface_name = null };
                try bare.format(writer);
                if (v6.scope != 0) try writer.print("%{d}", .{v6.scope});
            },
            .unix => |*unix| try writer.writeAll(unix.path()),
        }
    }

    /// Writes the text of `format` into the caller's buffer and returns it.
    pub fn text(self: *const Address, buffer: *[text_bytes_max]u8) []const u8 {
        var writer: std.Io.Writer = .fixed(buffer);
        self.format(&writer) catch unreachable; // text_bytes_max holds any address
        return writer.buffered();
    }

    /// Writes the text of `formatHost` into the caller's buffer and returns it.
    pub fn hostText(self: *const Address, buffer: *[text_bytes_max]u8) []const u8 {
        var writer: std.Io.Writer = .fixed(buffer);
        self.formatHost(&writer) catch unreachable; // text_bytes_max holds any address
        return writer.buffered();
    }

    /// Returns true if both addresses are the same, port and scope included.
    pub fn eql(self: *const Address, other: *const Address) bool {
        return switch (self.*) {
            .v4 => |v4| other.* == .v4 and std.meta.eql(v4, other.v4),
            .v6 => |v6| other.* == .v6 and std.meta.eql(v6, other.v6),
            .unix => |*unix| other.* == .unix and std.mem.eql(u8, unix.path(), other.unix.path()),
        };
    }

    /// The address family, as `socket` takes it.
    pub fn family(self: *const Address) u32 {
        return switch (self.*) {
            .v4 => sys.AF.INET,
            .v6 => sys.AF.INET6,
            .unix => sys.AF.UNIX,
        };
    }

    /// Writes the address in the kernel's form and returns its length in bytes.
    pub fn toSystem(self: *const Address, storage: *sys.sockaddr.storage) sys.socklen_t {
        storage.* = std.mem.zeroes(sys.sockaddr.storage);
        switch (self.*) {
            .v4 => |v4| {
                const in: *sys.sockaddr.in = @ptrCast(storage);
                in.* = .{ .port = std.mem.nativeToBig(u16, v4.port), .addr = @bitCast(v4.bytes) };
                return @sizeOf(sys.sockaddr.in);
            },
            .v6 => |v6| {
                const in6: *sys.sockaddr.in6 = @ptrCast(storage);
                in6.* = .{
                    .port = std.mem.nativeToBig(u16, v6.port),
                    .flowinfo = 0,
                    .addr = v6.bytes,
                    .scope_id = v6.scope,
                };
                return @sizeOf(sys.sockaddr.in6);
            },
            .unix => |*unix| {
                const un: *sys.sockaddr.un = @ptrCast(storage);
                un.family = sys.AF.UNIX;
                @memcpy(un.path[0..unix.length], unix.path());
                // A path ends with a NUL; in an abstract name a NUL would be part of the name.
                const abstract = unix.length > 0 and unix.buffer[0] == 0;
                return @intCast(unix_path_offset + unix.length + @intFromBool(!abstract));
            },
        }
    }

    /// Reads an address in the kernel's form. Null: its family is neither IPv4, IPv6 nor Unix, so the engine
    /// did not open the descriptor.
    pub fn fromSystem(storage: *const sys.sockaddr.storage, length: sys.socklen_t) ?Address {
        switch (storage.family) {
            sys.AF.INET => {
                const in: *const sys.sockaddr.in = @ptrCast(storage);
                return .{ .v4 = .{ .bytes = @bitCast(in.addr), .port = std.mem.bigToNative(u16, in.port) } };
            },
            sys.AF.INET6 => {
                const in6: *const sys.sockaddr.in6 = @ptrCast(storage);
                return .{ .v6 = .{
                    .bytes = in6.addr,
                    .port = std.mem.bigToNative(u16, in6.port),
                    .scope = in6.scope_id,
                } };
            },
            sys.AF.UNIX => {
                const un: *const sys.sockaddr.un = @ptrCast(storage);
                const given = un.path[0..@min(length -| unix_path_offset, path_bytes_max)];
                const abstract = given.len > 0 and given[0] == 0;
                const path = if (abstract) given else std.mem.sliceTo(given, 0);
                var unix: Unix = .{ .buffer = @splat(0), .length = @intCast(path.len) };
                @memcpy(unix.buffer[0..path.len], path);
                return .{ .unix = unix };
            },
            else => return null,
        }
    }

    const unix_path_offset = @offsetOf(sys.sockaddr.un, "path");
};

/// Options of a listening socket.
pub const ListenOptions = struct {
    /// The number of connections that the kernel queues until they are accepted. The kernel caps it at
    /// net.core.somaxconn (4096 by default).
    backlog: u31 = 4096,
    /// Several sockets may listen at one address, and the kernel spreads connections among them
    /// (SO_REUSEPORT). Only for IP.
    reuse_port: bool = false,
    /// An IPv6 socket at "::" does not serve IPv4. False: it does, and IPv4 peers have addresses like
    /// "::ffff:1.2.3.4" (see Address.unmapped).
    v6_only: bool = false,
    /// Before binding, remove a socket file that a dead server left: no socket listens behind it. Only for
    /// Unix sockets.
    replace_stale: bool = true,
    /// Mode and owner of the socket file. Only for Unix sockets.
    access: socket_file.Access = .{},
};

/// Reasons why a socket cannot listen.
pub const ListenError = sys.SocketError || sys.BindError || sys.OptionError;

/// Opens a listening socket, non-blocking and closed on exec. TCP sockets that it accepts inherit TCP_NODELAY
/// (on Linux, FreeBSD and macOS), which saves one system call per connection. The caller closes the socket
/// and removes the file of a Unix socket (see `SocketFile`), because several processes may share it.
pub fn listenSocket(address: *const Address, options: ListenOptions) ListenError!sys.Fd {
    const fd = try sys.socket(address.family());
    errdefer sys.close(fd);
    if (address.* == .unix and address.unix.buffer[0] != 0) {
        try socket_file.listen(fd, &address.unix, options.backlog, options.access, options.replace_stale);
        return fd;
    }
    if (address.* != .unix) {
        try sys.setOption(fd, .reuse_address, 1);
        if (options.reuse_port) try sys.setOption(fd, .reuse_port, 1);
        if (address.* == .v6) try sys.setOption(fd, .v6_only, @intFromBool(options.v6_only));
        inheritNoDelay(fd);
    }
    var storage: sys.sockaddr.storage = undefined;
    const length = address.toSystem(&storage);
    try sys.bind(fd, @ptrCast(&storage), length);
    try sys.listen(fd, options.backlog);
    return fd;
}

/// Makes a listener's accepted sockets send small packets at once (TCP_NODELAY). No effect on a Unix socket.
pub fn inheritNoDelay(listener: sys.Fd) void {
    sys.setOption(listener, .no_delay, 1) catch |err| switch (err) {
        error.OptionUnsupported => {},
        else => {}, // slower small packets are better than no server
    };
}

/// Returns the address of a listening socket that the engine did not open.
pub fn listeningAddress(fd: sys.Fd) (sys.SocketError || error{NotListening})!Address {
    const listens = sys.getOption(fd, .accept_conn) catch |err| switch (err) {
        error.OptionUnsupported => 1, // macOS does not tell; a later accept will
        else => return error.NotListening,
    };
    return if (listens != 0) localAddress(fd) else error.NotListening;
}

/// Undoes `inheritNoDelay`: small packets wait for more bytes (Nagle's algorithm).
pub fn inheritDelay(listener: sys.Fd) void {
    sys.setOption(listener, .no_delay, 0) catch {}; // a Unix socket has neither the option nor the delay
}

/// Returns the local address of a socket; after listening at port 0, with the port that the kernel chose.
pub fn localAddress(fd: sys.Fd) sys.SocketError!Address {
    var storage: sys.sockaddr.storage = undefined;
    var length: sys.socklen_t = undefined;
    try sys.getsockname(fd, &storage, &length);
    return Address.fromSystem(&storage, length) orelse error.FamilyUnsupported;
}

const testing = std.testing;
const linux = std.os.linux;

fn expectText(expected: []const u8, address: Address) !void {
    var buffer: [Address.text_bytes_max]u8 = undefined;
    try testing.expectEqualStrings(expected, address.text(&buffer));
    // The address survives conversion to the kernel's form and back.
    var storage: sys.sockaddr.storage = undefined;
    const length = address.toSystem(&storage);
    const back = Address.fromSystem(&storage, length).?;
    try testing.expect(back.eql(&address));
    try testing.expectEqualStrings(expected, back.text(&buffer));
}

test "an IPv4 address in an IPv6 one" {
    for ([_][2][]const u8{
        .{ "::ffff:192.0.2.1", "192.0.2.1" },
        .{ "192.0.2.1", "192.0.2.1" },
        .{ "::fffe:c000:201", "::fffe:c000:201" },
        .{ "::1", "::1" },
    }) |case| {
        var buffer: [Address.text_bytes_max]u8 = undefined;
        const address: Address = try .parse(case[0], 80);
        try testing.expectEqualStrings(case[1], address.unmapped().hostText(&buffer));
        try testing.expectEqual(80, address.unmapped().port());
    }
    const path: Address = try .unixPath("/x");
    try testing.expect(path.unmapped().eql(&path));
}

test "addresses in text" {
    try expectText("127.0.0.1:80", try .parse("127.0.0.1", 80));
    try expectText("0.0.0.0:0", try .parse("0.0.0.0", 0));
    try expectText("255.255.255.255:65535", try .parse("255.255.255.255", 65535));
    try expectText("[::1]:80", try .parse("::1", 80));
    try expectText("[::1]:8080", try .parse("[::1]", 8080));
    try expectText("[::]:1", try .parse("::", 1));
    try expectText("[2001:db8::2:1]:443", try .parse("2001:DB8:0:0:0:0:2:1", 443));
    try expectText("[2001:db8:0:1:1:1:1:1]:443", try .parse("2001:db8:0:1:1:1:1:1", 443));
    try expectText("[::ffff:1.2.3.4]:5", try .parse("::ffff:1.2.3.4", 5));
    try expectText("[fe80::1%2]:6", try .parse("fe80::1%2", 6));
    try expectText("unix:/tmp/x.sock", try .unixPath("/tmp/x.sock"));
    try expectText("unix:@abstract", try .unixPath("\x00abstract"));
    const longest: [Address.path_bytes_max]u8 = @splat('p');
    try expectText("unix:" ++ longest, try .unixPath(&longest));
}

test "texts that are no addresses are refused" {
    for ([_][]const u8{
        "",        "localhost", "1.2.3",   "1.2.3.4.5", "256.1.1.1", "1.2.3.4:80", ":::",  "1::2::3",
        "[::1",    "::1]",      "[]",      "12345::",   "::1%eth0",  "01.2.3.4",   " ::1", "1.2.3.4 ",
        "1.2.3.x", "[1.2.3.4]", "[[::1]]",
    }) |host| try testing.expectError(error.InvalidAddress, Address.parse(host, 80));
    try testing.expectError(error.InvalidAddress, Address.unixPath(""));
    const too_long: [Address.path_bytes_max + 1]u8 = @splat('p');
    try testing.expectError(error.InvalidAddress, Address.unixPath(&too_long));
}

test "host, port and equality" {
    const here: Address = try .parse("::1", 80);
    const there: Address = try .parse("::1", 81);
    const path: Address = try .unixPath("/a");
    var buffer: [Address.text_bytes_max]u8 = undefined;
    try testing.expectEqualStrings("::1", here.hostText(&buffer));
    try testing.expectEqualStrings("/a", path.hostText(&buffer));
    try testing.expectEqual(@as(?u16, 80), here.port());
    try testing.expectEqual(@as(?u16, null), path.port());
    try testing.expect(here.eql(&here));
    try testing.expect(!here.eql(&there));
    try testing.expect(!here.eql(&path));
    try testing.expect(!path.eql(&here));
}

test "a listening socket learns its port; the same port twice is refused, unless shared" {
    const any: Address = try .parse("127.0.0.1", 0);
    const first = try listenSocket(&any, .{});
    defer sys.close(first);
    const taken = try localAddress(first);
    try testing.expect(taken.port().? != 0);
    try testing.expect(try sys.getOption(first, .no_delay) != 0);
    try testing.expectError(error.AddressInUse, listenSocket(&taken, .{}));

    const shared = try listenSocket(&any, .{ .reuse_port = true });
    defer sys.close(shared);
    const again = try listenSocket(&try localAddress(shared), .{ .reuse_port = true });
    defer sys.close(again);
}
