//! Job: the calls of sys.zig that differ on Linux. Does not know: their use in sys.zig.
const std = @import("std");
const linux = std.os.linux;
const sys = @import("../sys.zig");
const Fd = sys.Fd;

/// Several sockets may listen at one address; the kernel spreads connections among them.
pub const reuse_port = linux.SO.REUSEPORT;
/// An IPv6 socket does not serve IPv4.
pub const v6_only = linux.IPV6.V6ONLY;
/// man 2 getrandom.
pub fn randomSeed() ?u64 {
    var seed: u64 = undefined;
    return if (linux.errno(linux.getrandom(@ptrCast(&seed), @sizeOf(u64), 0)) == .SUCCESS) seed else null;
}

/// The option that tells if a socket listens.
pub const accept_conn = linux.SO.ACCEPTCONN;
/// The flag by which a send raises no SIGPIPE.
pub const no_signal = linux.MSG.NOSIGNAL;
/// The flag by which sends and receives do not block, even if another process has made the socket blocking.
pub const no_wait = linux.MSG.DONTWAIT;
/// The flag that promises that further bytes follow at once.
pub const more = linux.MSG.MORE;
/// The option for the seconds of silence before the first keep-alive probe.
pub const keep_idle = linux.TCP.KEEPIDLE;
/// The option for the limit of unsent bytes (man 7 tcp).
pub const unsent_low_water: ?u32 = linux.TCP.NOTSENT_LOWAT;
/// The coarse wall clock, up to one tick (1 to 10 ms) late.
pub const coarse_clock: linux.clockid_t = .REALTIME_COARSE;

const ours = linux.SOCK.NONBLOCK | linux.SOCK.CLOEXEC;

/// man 2 socket.
pub fn socket(family: u32) sys.Moved {
    return sys.made(linux.socket(family, linux.SOCK.STREAM | ours, 0));
}

/// man 2 accept4.
pub fn accept(listener: Fd, peer: *sys.sockaddr.storage, length: *sys.socklen_t) sys.Moved {
    return sys.moved(linux.accept4(listener, @ptrCast(peer), length, ours));
}

/// Returns true for errors of man 2 accept that concern one connection only.
pub fn isTransientAccept(code: sys.E) bool {
    return switch (code) {
        .CONNABORTED, .PROTO, .PERM => true,
        .NETDOWN, .NOPROTOOPT, .HOSTDOWN, .NONET, .HOSTUNREACH, .OPNOTSUPP, .NETUNREACH => true,
        else => false,
    };
}

/// man 2 sendfile.
pub fn sendFile(fd: Fd, file: Fd, offset: u64, length: usize) sys.Moved {
    var position: linux.off_t = @intCast(offset);
    return sys.moved(linux.sendfile(fd, file, &position, length));
}

/// Tells if a byte of a file is in memory (RWF_NOWAIT of man 2 preadv2); `present` on kernels that cannot
/// tell, so that files are read directly.
pub fn isInMemory(file: Fd, offset: u64) sys.Presence {
    var byte: [1]u8 = undefined;
    const space: [1]std.posix.iovec = .{.{ .base = &byte, .len = 1 }};
    return switch (linux.errno(linux.preadv2(file, &space, 1, @intCast(offset), linux.RWF.NOWAIT))) {
        .AGAIN => .absent,
        .OPNOTSUPP => if (isMemory(file)) .present else .unknown,
        else => .present,
    };
}

/// Returns true if the file system cannot tell but serves files from memory or from a container's layers
/// (linux/magic.h).
fn isMemory(file: Fd) bool {
    var words: [32]usize = undefined;
    if (linux.errno(linux.syscall2(.fstatfs, @intCast(file), @intFromPtr(&words))) != .SUCCESS) return false;
    return switch (words[0]) {
        0x0102_1994, 0x8584_58f6, 0x794c_7630 => true, // tmpfs, ramfs, overlayfs
        else => false,
    };
}

/// The magic numbers of file systems that wait only for a disk of this machine (man 2 statfs).
const local_kinds = [_]u32{
    0xEF53, // ext2, ext3, ext4
    0x58465342, // xfs
    0x9123683E, // btrfs
    0x01021994, // tmpfs
    0x858458F6, // ramfs, the kernel's first root
    0x794C7630, // overlayfs
    0xF2F52010, // f2fs
    0x2FC12FC1, // zfs
    0xCA451A4E, // bcachefs
    0x73717368, // squashfs
    0xE0F5E1E2, // erofs
    0x00004D44, // vfat
    0x2011BAB0, // exfat
    0x00009660, // iso9660
    0x3153464A, // jfs
    0x52654973, // reiserfs
};

/// Returns true if the file system of an open file or folder waits neither for a network nor for another
/// process. False for unknown ones: NFS, SMB, FUSE, 9p and Ceph may wait for ever.
pub fn isLocal(file: Fd) bool {
    var info: [16]usize = @splat(0);
    comptime std.debug.assert(@sizeOf(@TypeOf(info)) >= 120); // struct statfs
    const rc = linux.syscall2(.fstatfs, @bitCast(@as(isize, file)), @intFromPtr(&info));
    if (linux.errno(rc) != .SUCCESS) return false;
    const kind: u32 = @truncate(info[0]);
    return std.mem.findScalar(u32, &local_kinds, kind) != null;
}

/// Returns the room of the file system of an open file (man 2 statfs). Null: unknown, or this machine has no
/// 64-bit numbers.
pub fn roomOf(file: Fd) ?sys.Room {
    if (@sizeOf(usize) != 8) return null;
    var info: [16]usize = @splat(0);
    const rc = linux.syscall2(.fstatfs, @bitCast(@as(isize, file)), @intFromPtr(&info));
    if (linux.errno(rc) != .SUCCESS) return null;
    const block_bytes: u64 = if (info[9] != 0) info[9] else info[1];
    return .{
        .total = block_bytes *| info[2],
        .free = block_bytes *| info[4],
        .is_memory = switch (@as(u32, @truncate(info[0]))) {
            0x0102_1994, 0x8584_58f6 => true, // tmpfs, ramfs
            else => false,
        },
    };
}

/// man 2 readahead.
pub fn readAhead(file: Fd, offset: u64, length: u64) void {
    _ = linux.syscall3(.readahead, @intCast(file), @intCast(offset), @intCast(length));
}

/// POLLRDHUP of man 2 poll, which std.os.linux.POLL lacks.
pub const poll_peer_shut = 0x2000;

/// SIOCOUTQ of man 7 tcp; for a Unix socket, the memory of the unread bytes.
pub fn heldBytes(fd: Fd) u64 {
    var bytes: c_int = 0;
    if (linux.errno(linux.ioctl(fd, linux.T.IOCOUTQ, @intFromPtr(&bytes))) != .SUCCESS) return 0;
    return @intCast(@max(bytes, 0));
}

/// The kernel's facts about a file (man 2 statx).
pub const Info = linux.Statx;

/// The number of the device that a file lies on.
pub fn deviceOf(info: *const Info) u64 {
    return @as(u64, info.dev_major) << 32 | info.dev_minor;
}

/// Reads the facts of an open file.
pub fn look(fd: Fd, info: *Info) usize {
    return linux.statx(
        fd,
        "",
        // The attributes came with the open: DONT_SYNC prevents another query to the storage.
        linux.AT.EMPTY_PATH | linux.AT.STATX_DONT_SYNC,
        .{ .TYPE = true, .MODE = true, .SIZE = true, .INO = true },
        info,
    );
}

/// Reads the facts of a file by its path; a link is not followed.
pub fn lookFor(path: [*:0]const u8, info: *Info) usize {
    return linux.statx(
        linux.AT.FDCWD,
        path,
        linux.AT.SYMLINK_NOFOLLOW,
        .{ .TYPE = true, .MODE = true, .SIZE = true, .INO = true },
        info,
    );
}

/// man 2 futex.
pub fn sleepOn(word: *const std.atomic.Value(u32), expected: u32, timeout_ms: ?u32) void {
    const time: linux.timespec = if (timeout_ms) |ms| .{
        .sec = ms / std.time.ms_per_s,
        .nsec = @as(isize, ms % std.time.ms_per_s) * std.time.ns_per_ms,
    } else undefined;
    _ = linux.futex_4arg(
        &word.raw,
        .{ .cmd = .WAIT, .private = true },
        expected,
        if (timeout_ms != null) &time else null,
    );
}

/// man 2 futex.
pub fn wakeAll(word: *const std.atomic.Value(u32)) void {
    _ = linux.futex_3arg(&word.raw, .{ .cmd = .WAKE, .private = true }, std.math.maxInt(i32));
}
