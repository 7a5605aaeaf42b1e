//! A redis-server of the test's own, at a free port and a Unix socket in a folder of its own. It is stopped
//! by its process id. Does not know: what is asked of it.
const std = @import("std");
const linux = std.os.linux;
const testing = std.testing;

/// How long anything may take.
pub const patience_ms = 60_000;

/// The program of Debian's package.
const program = "/usr/bin/redis-server";

/// A server that may be killed and started again on what it has written.
pub const Server = struct {
    folder: std.testing.TmpDir,
    port: u16,
    child: ?std.process.Child = null,
    path_buffer: [108]u8 = undefined,
    path_len: usize = 0,

    pub fn init(server: *Server) !void {
        server.* = .{ .folder = testing.tmpDir(.{}), .port = try freePort() };
        const socket = try std.fmt.bufPrint(
            &server.path_buffer,
            ".zig-cache/tmp/{s}/s",
            .{server.folder.sub_path},
        );
        server.path_len = socket.len;
    }

    pub fn deinit(server: *Server) void {
        server.kill();
        server.folder.cleanup();
    }

    /// The Unix socket.
    pub fn path(server: *const Server) []const u8 {
        return server.path_buffer[0..server.path_len];
    }

    /// Starts it, writing each command to the disk before it is answered. `error.SkipZigTest`: there is no
    /// such program.
    pub fn start(server: *Server) !void {
        std.Io.Dir.accessAbsolute(testing.io, program, .{}) catch return error.SkipZigTest;
        var port: [8]u8 = undefined;
        var folder: [108]u8 = undefined;
        const dir = try std.fmt.bufPrint(&folder, ".zig-cache/tmp/{s}", .{server.folder.sub_path});
        server.child = try std.process.spawn(testing.io, .{
            // The socket's name is relative to the folder.
            .argv = &.{
                // A test that dies leaves no server behind.
                "setpriv",
                "--pdeathsig",
                "KILL",
                program,
                "--bind",
                "127.0.0.1",
                "--appendonly",
                "yes",
                "--appendfsync",
                "always",
                "--repl-diskless-sync-delay",
                "0",
                "--unixsocket",
                "s",
                "--logfile",
                "log",
                "--dir",
                dir,
                "--port",
                try std.fmt.bufPrint(&port, "{d}", .{server.port}),
                "--save",
                "",
            },
            .stdin = .ignore,
            .stdout = .ignore,
            .stderr = .ignore,
        });
        for (0..patience_ms / 10) |_| {
            const client: Client = Client.open(server.path()) catch {
                sleep(10);
                continue;
            };
            defer client.close();
            if (std.mem.startsWith(u8, try client.ask(&.{"PING"}), "+PONG")) return;
            sleep(10);
        }
        return error.NotStarted;
    }

    /// Without a chance to tidy up. By SIGTERM a server that writes its first file of commands would not end
    /// at all.
    pub fn kill(server: *Server) void {
        const child = if (server.child) |*child| child else return;
        _ = linux.kill(child.id.?, .KILL);
        _ = child.wait(testing.io) catch {};
        server.child = null;
    }
};

fn freePort() !u16 {
    const fd: i32 = @intCast(linux.socket(linux.AF.INET, linux.SOCK.STREAM | linux.SOCK.CLOEXEC, 0));
    defer _ = linux.close(fd);
    var address: linux.sockaddr.in = .{ .port = 0, .addr = @bitCast([4]u8{ 127, 0, 0, 1 }) };
    var length: linux.socklen_t = @sizeOf(linux.sockaddr.in);
    if (linux.errno(linux.bind(fd, @ptrCast(&address), length)) != .SUCCESS) return error.NoPort;
    if (linux.errno(linux.getsockname(fd, @ptrCast(&address), &length)) != .SUCCESS) return error.NoPort;
    return std.mem.bigToNative(u16, address.port);
}

pub fn sleep(ms: u32) void {
    const pause: linux.timespec = .{ .sec = ms / 1000, .nsec = (ms % 1000) * std.time.ns_per_ms };
    _ = linux.nanosleep(&pause, null);
}

pub fn now() u64 {
    var time: linux.timespec = undefined;
    _ = linux.clock_gettime(.MONOTONIC, &time);
    return @intCast(time.sec * 1000 + @divTrunc(time.nsec, std.time.ns_per_ms));
}

/// Connects to a Unix socket.
pub fn connect(path: []const u8) !i32 {
    const fd: i32 = @intCast(linux.socket(linux.AF.UNIX, linux.SOCK.STREAM | linux.SOCK.CLOEXEC, 0));
    errdefer _ = linux.close(fd);
    var address: linux.sockaddr.un = .{ .path = @splat(0) };
    @memcpy(address.path[0..path.len], path);
    if (linux.errno(linux.connect(fd, @ptrCast(&address), @sizeOf(linux.sockaddr.un))) != .SUCCESS) {
        return error.NotConnected;
    }
    return fd;
}

/// Asks one thing at a time, for what the test itself wants of a server.
pub const Client = struct {
    fd: i32,
    answer: *[1024]u8 = &memory,

    var memory: [1024]u8 = undefined;

    pub fn open(path: []const u8) !Client {
        return .{ .fd = try connect(path) };
    }

    pub fn close(client: Client) void {
        _ = linux.close(client.fd);
    }

    /// The beginning of the answer, which fits. Borrowed until the next one.
    pub fn ask(client: Client, arguments: []const []const u8) ![]const u8 {
        var out: [4096]u8 = undefined;
        const command = @import("hub").resp.writeCommand(arguments, &out);
        if (linux.write(client.fd, command.ptr, command.len) != command.len) return error.NotSent;
        const count = linux.read(client.fd, client.answer, client.answer.len);
        if (linux.errno(count) != .SUCCESS or count == 0) return error.NotReceived;
        return client.answer[0..count];
    }

    /// Asks something that must be done.
    pub fn order(client: Client, arguments: []const []const u8) !void {
        const answer = try client.ask(arguments);
        errdefer std.debug.print("{s}: {s}\n", .{ arguments[0], answer });
        try testing.expect(answer[0] != '-');
    }
};
