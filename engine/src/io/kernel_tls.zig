//! TLS records that Linux makes of bytes that are sent on a socket (kTLS; Documentation/networking/tls.rst of
//! the kernel). Does not know: handshakes, and the meaning of keys.
const std = @import("std");
const builtin = @import("builtin");
const sys = @import("sys.zig");
const linux = std.os.linux;

const is_linux = builtin.os.tag == .linux;

// Constants of linux/tcp.h, linux/socket.h and linux/tls.h.
const TCP_ULP = 31;
const SOL_TLS = 282;
const TLS_TX = 1;
const TLS_SET_RECORD_TYPE = 1;
const layer = "tls";

/// Whether this kernel makes TLS records. It is asked with an unconnected socket, which it refuses only after
/// it has found its TLS module. For a process of root, it loads the module.
pub fn isOffered() bool {
    if (!is_linux) return false;
    const fd = sys.socket(sys.AF.INET) catch return false;
    defer sys.close(fd);
    return setLayer(fd) == .NOTCONN;
}

/// Lets the kernel seal bytes that are sent from now on, with these keys (a struct `tls12_crypto_info_*` of
/// linux/tls.h). False: it does not, and nothing has changed.
pub fn seal(fd: sys.Fd, keys: []const u8) bool {
    if (!is_linux) return false;
    if (setLayer(fd) != .SUCCESS) return false;
    return sys.errno(linux.setsockopt(fd, SOL_TLS, TLS_TX, keys.ptr, @intCast(keys.len))) == .SUCCESS;
}

fn setLayer(fd: sys.Fd) sys.E {
    return sys.errno(linux.setsockopt(fd, linux.IPPROTO.TCP, TCP_ULP, layer.ptr, layer.len));
}

/// A control message with one byte (man 3 cmsg), in the kernel's alignment.
const Kind = extern struct {
    len: usize = @offsetOf(Kind, "value") + 1,
    level: i32 = SOL_TLS,
    type: i32 = TLS_SET_RECORD_TYPE,
    value: u8,
};

/// Sends one record of a kind other than application data, on a socket that the kernel seals.
pub fn sendRecord(fd: sys.Fd, kind: u8, bytes: []const u8) sys.Moved {
    if (!is_linux) unreachable; // seal has failed before
    const piece: sys.Slice = .{ .base = bytes.ptr, .len = bytes.len };
    const control: Kind = .{ .value = kind };
    const message: linux.msghdr_const = .{
        .name = null,
        .namelen = 0,
        .iov = @ptrCast(&piece),
        .iovlen = 1,
        .control = &control,
        .controllen = @sizeOf(Kind),
        .flags = 0,
    };
    while (true) {
        const outcome = sys.moved(linux.sendmsg(fd, &message, linux.MSG.NOSIGNAL));
        if (outcome == .failed and outcome.failed == .INTR) continue;
        return outcome;
    }
}

test "a kernel that has no TLS, or no keys, leaves the socket alone" {
    const fd = try sys.socket(sys.AF.INET);
    defer sys.close(fd);
    try std.testing.expect(!seal(fd, &@as([40]u8, @splat(0))));
    _ = isOffered();
}
