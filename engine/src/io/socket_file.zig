//! Job: the file of a Unix socket: creating it with a mode and an owner, replacing one that a dead server
//! left, and removing it if no other server has replaced it. Does not know: what is served there; abstract
//! sockets, which have no file.

const std = @import("std");
const sys = @import("sys.zig");
const Address = @import("socket.zig").Address;

/// Permission to connect to a Unix socket: the kernel demands write permission on its file.
pub const Access = struct {
    /// Permission bits; null: those that the umask leaves.
    mode: ?u12 = null,
    /// The file's owner, if the process may change it; null: the user and group of the process.
    uid: ?u32 = null,
    gid: ?u32 = null,

    fn isDefault(access: Access) bool {
        return access.mode == null and access.uid == null and access.gid == null;
    }
};

/// Reasons why a socket cannot listen at a path.
pub const ListenError = sys.SocketError || sys.BindError;

/// Binds `fd` to a path and listens there. Clients cannot connect before `sys.listen`, so mode and owner are
/// set in time. `replace_stale`: a socket file behind which no socket listens is removed first.
pub fn listen(
    fd: sys.Fd,
    unix: *const Address.Unix,
    backlog: u31,
    access: Access,
    replace_stale: bool,
) ListenError!void {
    const path = std.posix.toPosixPath(unix.path()) catch return error.PathUnusable;
    // Of two servers that start at once, one could otherwise take the other's new file, behind which no
    // socket listens yet, for a stale one.
    const turn: Turn = .take(unix.path());
    defer turn.end();
    const place: Address = .{ .unix = unix.* };
    var storage: sys.sockaddr.storage = undefined;
    const length = place.toSystem(&storage);
    sys.bind(fd, @ptrCast(&storage), length) catch |err| {
        if (err != error.AddressInUse or !replace_stale or !isStale(&path, &storage, length)) return err;
        if (!sys.unlink(&path)) return error.AccessDenied;
        try sys.bind(fd, @ptrCast(&storage), length);
    };
    errdefer _ = sys.unlink(&path);
    try grant(&path, access);
    try sys.listen(fd, backlog);
}

/// Returns true for a socket file whose server is gone. An ordinary file refuses connections, too, but is not
/// stale.
fn isStale(path: [*:0]const u8, storage: *const sys.sockaddr.storage, length: sys.socklen_t) bool {
    const probe = sys.socket(sys.AF.UNIX) catch return false;
    defer sys.close(probe);
    sys.connect(probe, @ptrCast(storage), length) catch |err| switch (err) {
        error.Refused => return statusOf(path) != null,
        else => return false,
    };
    return false;
}

fn grant(path: [*:0]const u8, access: Access) sys.GrantError!void {
    if (access.isDefault()) return;
    if (access.uid != null or access.gid != null) try sys.setOwner(path, access.uid, access.gid);
    if (access.mode) |mode| try sys.setMode(path, mode);
}

/// Returns facts about the file at a path; null: there is no file, or it is no socket.
fn statusOf(path: [*:0]const u8) ?sys.Look {
    const found = sys.lookFor(path) orelse return null;
    return if (found.kind == .socket) found else null;
}

/// The lock by which servers take turns to make socket files in a directory.
const Turn = struct {
    directory: ?sys.Fd,

    const attempts = 100;
    const pause_ms = 5;

    /// Takes the lock, or continues without it after half a second: any process that may read the directory
    /// could hold the lock for ever.
    fn take(path: []const u8) Turn {
        const name = std.posix.toPosixPath(std.fs.path.dirname(path) orelse ".") catch
            return .{ .directory = null };
        const directory: sys.Fd = switch (sys.openFolder(&name)) {
            .done => |fd| @intCast(fd),
            .blocked, .failed => return .{ .directory = null },
        };
        for (0..attempts) |_| {
            if (sys.lock(directory) != .blocked) break;
            sys.sleep(pause_ms);
        }
        return .{ .directory = directory };
    }

    fn end(turn: Turn) void {
        if (turn.directory) |directory| sys.close(directory);
    }
};

/// Identifies a socket file, so that a later file at the same path is told apart.
pub const SocketFile = struct {
    unix: Address.Unix,
    inode: u64,
    device: u64,

    /// Returns the file of a listening socket's address; null: it has none.
    pub fn of(address: *const Address) ?SocketFile {
        if (address.* != .unix or address.unix.length == 0 or address.unix.buffer[0] == 0) return null;
        const path = std.posix.toPosixPath(address.unix.path()) catch return null;
        const status = statusOf(&path) orelse return null;
        return .{ .unix = address.unix, .inode = status.inode, .device = status.device };
    }

    /// Removes the socket's file, unless another program's socket file has replaced it.
    pub fn remove(file: *const SocketFile) void {
        const now: SocketFile = of(&.{ .unix = file.unix }) orelse return;
        if (now.inode != file.inode or now.device != file.device) return;
        const path = std.posix.toPosixPath(file.unix.path()) catch return;
        _ = sys.unlink(&path);
    }
};

const testing = std.testing;
const linux = std.os.linux;
const listenSocket = @import("socket.zig").listenSocket;

fn testPlace(buffer: *[64]u8) !Address {
    return .unixPath(try std.fmt.bufPrint(buffer, "/tmp/peregrine-io-{d}.sock", .{linux.getpid()}));
}

test "a stale unix socket is replaced, a live one and a plain file are not" {
    var buffer: [64]u8 = undefined;
    const address = try testPlace(&buffer);
    const path = try std.posix.toPosixPath(address.unix.path());
    const first = try listenSocket(&address, .{});
    defer _ = linux.unlink(&path);
    try testing.expectError(error.AddressInUse, listenSocket(&address, .{}));
    sys.close(first);
    try testing.expectError(error.AddressInUse, listenSocket(&address, .{ .replace_stale = false }));
    const second = try listenSocket(&address, .{});
    sys.close(second);

    try testing.expectEqual(linux.E.SUCCESS, linux.errno(linux.unlink(&path)));
    const plain = linux.openat(linux.AT.FDCWD, &path, .{ .ACCMODE = .WRONLY, .CREAT = true }, 0o600);
    try testing.expectEqual(linux.E.SUCCESS, linux.errno(plain));
    sys.close(@intCast(plain));
    try testing.expectError(error.AddressInUse, listenSocket(&address, .{}));
    try testing.expectEqual(null, SocketFile.of(&address));
}

test "the mode is the wanted one; a file is removed by its owner only" {
    var buffer: [64]u8 = undefined;
    const address = try testPlace(&buffer);
    const path = try std.posix.toPosixPath(address.unix.path());
    const first = try listenSocket(&address, .{ .access = .{ .mode = 0o620, .uid = linux.getuid() } });
    try testing.expectEqual(0o620, statusOf(&path).?.mode);
    const file = SocketFile.of(&address).?;
    sys.close(first);
    // Another server starts at the path. Its file must get another inode number than the first file, which is
    // therefore kept for now.
    const kept = try std.posix.toPosixPath("/tmp/peregrine-io-kept.sock");
    try testing.expectEqual(linux.E.SUCCESS, linux.errno(linux.rename(&path, &kept)));
    defer _ = linux.unlink(&kept);
    const second = try listenSocket(&address, .{});
    defer sys.close(second);
    file.remove();
    try testing.expect(statusOf(&path) != null);
    SocketFile.of(&address).?.remove();
    try testing.expectEqual(null, statusOf(&path));
}

test "a directory that is not there, and an abstract socket" {
    try testing.expectError(error.PathUnusable, listenSocket(&try .unixPath("/nonexistent/x.sock"), .{}));
    const abstract: Address = try .unixPath("\x00peregrine-socket-file");
    const fd = try listenSocket(&abstract, .{});
    defer sys.close(fd);
    try testing.expectEqual(null, SocketFile.of(&abstract));
}
