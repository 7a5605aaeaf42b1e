//! The yardstick: `yardstick PORT [BODY]`. A bare epoll loop that answers each request head with the same
//! bytes, so that a server's cost can be told as a multiple of what the kernel alone takes on this machine.
//! A single read and a single write for all bytes that arrived. With BODY, that number of bytes follows each
//! head, which are read and forgotten before the answer. Does not know: HTTP beyond the empty line that ends
//! a head (RFC 9112, section 2.1), deadlines, limits, short writes. It is no server: it must only be used by
//! a benchmark on loopback.
const std = @import("std");
const linux = std.os.linux;
const assert = std.debug.assert;

/// The bytes of our server's answer to a hello, constant date included.
const answer = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 14\r\n" ++
    "Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\nHello, World!\n";
const head_end = "\r\n\r\n";
/// Bytes of a head's end that may still lie in the previous read.
const carry_bytes = head_end.len - 1;
const read_bytes = 16 * 1024;
/// Answers that one read can ask for: a head has at least a request line besides its end.
const answers_max = read_bytes / 16;
pub const connections_max = 4096;
/// Bytes of a body that are read at once.
const body_read_bytes = 256 * 1024;

const Peer = struct {
    carry: [carry_bytes]u8 = @splat(0),
    /// Of a body that is being read; 0: a head is.
    left: usize = 0,
};

/// Indexed by descriptor.
var peers: [connections_max]Peer = @splat(.{});
var input: [carry_bytes + read_bytes]u8 = undefined;
/// The answer, over and over; filled by `fillOutput`.
var output: [answers_max * answer.len]u8 = undefined;

pub fn main(init: std.process.Init) !void {
    const args = try init.minimal.args.toSlice(init.arena.allocator());
    if (args.len != 2 and args.len != 3) {
        std.debug.print("usage: yardstick PORT [BODY]\n", .{});
        std.process.exit(2);
    }
    const body = if (args.len == 3) try std.fmt.parseInt(usize, args[2], 10) else 0;
    fillOutput();
    const listener = try listen(try std.fmt.parseInt(u16, args[1], 10));
    const poll = try descriptor(linux.epoll_create1(linux.EPOLL.CLOEXEC));
    try watch(poll, listener);
    var events: [256]linux.epoll_event = undefined;
    while (true) {
        const rc = linux.epoll_wait(poll, &events, events.len, -1);
        if (linux.errno(rc) == .INTR) continue;
        try check(rc);
        for (events[0..rc]) |event| {
            if (event.data.fd == listener) {
                try accept(poll, listener);
            } else if (body > 0) serveBody(event.data.fd, body) else serve(event.data.fd);
        }
    }
}

pub fn fillOutput() void {
    for (0..answers_max) |i| output[i * answer.len ..][0..answer.len].* = answer.*;
}

/// Reads once, answers every head that ended therein with one write.
fn serve(fd: linux.fd_t) void {
    const heads = receive(fd);
    if (heads > 0) send(fd, heads);
}

/// Reads once: the number of heads that ended therein.
pub fn receive(fd: linux.fd_t) usize {
    const peer = &peers[@intCast(fd)];
    const received = linux.read(fd, input[carry_bytes..].ptr, read_bytes);
    if (linux.errno(received) == .AGAIN) return 0;
    if (linux.errno(received) != .SUCCESS or received == 0) {
        close(fd);
        return 0;
    }
    assert(received <= read_bytes);

    input[0..carry_bytes].* = peer.carry;
    const bytes = input[0 .. carry_bytes + received];
    peer.carry = bytes[bytes.len - carry_bytes ..][0..carry_bytes].*;
    return @min(countHeads(bytes), answers_max);
}

/// Sends so many answers with one write.
pub fn send(fd: linux.fd_t, heads: usize) void {
    const due = output[0 .. heads * answer.len];
    // A full socket buffer would need an outbox, which is what a yardstick has not: give up on that peer.
    if (linux.write(fd, due.ptr, due.len) != due.len) close(fd);
}

/// Reads once: a head that comes in one piece, with what of its body is there, or more of the body. Who sends
/// no body, to see whether somebody is there, is answered at once.
fn serveBody(fd: linux.fd_t, body: usize) void {
    const peer = &peers[@intCast(fd)];
    const received = linux.read(fd, &body_input, body_input.len);
    if (linux.errno(received) == .AGAIN) return;
    if (linux.errno(received) != .SUCCESS or received == 0) return close(fd);
    if (peer.left == 0) {
        const bytes = body_input[0..received];
        const head = (std.mem.find(u8, bytes, head_end) orelse return close(fd)) + head_end.len;
        peer.left = if (bytes[0] == 'P') body -| (received - head) else 0;
    } else peer.left -|= received;
    if (peer.left == 0 and linux.write(fd, answer, answer.len) != answer.len) close(fd);
}

var body_input: [body_read_bytes]u8 = undefined;

fn countHeads(bytes: []const u8) usize {
    var count: usize = 0;
    var at: usize = carry_bytes;
    while (std.mem.findScalarPos(u8, bytes, at, '\n')) |end| : (at = end + 1) {
        if (std.mem.eql(u8, bytes[end - carry_bytes ..][0..head_end.len], head_end)) count += 1;
    }
    return count;
}

pub fn accept(poll: linux.fd_t, listener: linux.fd_t) !void {
    const rc = linux.accept4(listener, null, null, linux.SOCK.NONBLOCK | linux.SOCK.CLOEXEC);
    if (linux.errno(rc) == .AGAIN or linux.errno(rc) == .CONNABORTED) return;
    const fd = try descriptor(rc);
    if (fd >= connections_max) return close(fd);
    peers[@intCast(fd)] = .{};
    try option(fd, linux.IPPROTO.TCP, linux.TCP.NODELAY);
    try watch(poll, fd);
}

pub fn listen(port: u16) !linux.fd_t {
    const fd = try descriptor(linux.socket(
        linux.AF.INET,
        linux.SOCK.STREAM | linux.SOCK.NONBLOCK | linux.SOCK.CLOEXEC,
        0,
    ));
    try option(fd, linux.SOL.SOCKET, linux.SO.REUSEADDR);
    const loopback: linux.sockaddr.in = .{
        .port = std.mem.nativeToBig(u16, port),
        .addr = std.mem.nativeToBig(u32, 0x7f00_0001),
    };
    try check(linux.bind(fd, @ptrCast(&loopback), @sizeOf(linux.sockaddr.in)));
    try check(linux.listen(fd, 1024));
    return fd;
}

pub fn watch(poll: linux.fd_t, fd: linux.fd_t) !void {
    var event: linux.epoll_event = .{ .events = linux.EPOLL.IN, .data = .{ .fd = fd } };
    try check(linux.epoll_ctl(poll, linux.EPOLL.CTL_ADD, fd, &event));
}

fn option(fd: linux.fd_t, level: i32, name: u32) !void {
    const on: c_int = 1;
    try check(linux.setsockopt(fd, level, name, std.mem.asBytes(&on), @sizeOf(c_int)));
}

fn close(fd: linux.fd_t) void {
    _ = linux.close(fd);
}

pub fn descriptor(rc: usize) !linux.fd_t {
    try check(rc);
    return @intCast(rc);
}

pub fn check(rc: usize) error{SystemCall}!void {
    const code = linux.errno(rc);
    if (code == .SUCCESS) return;
    std.debug.print("yardstick: {t}\n", .{code});
    return error.SystemCall;
}

test "heads are counted once, wherever a read ends" {
    const request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    const stream = request ++ request ++ request;
    for (0..stream.len + 1) |split| {
        var buffer: [carry_bytes + stream.len]u8 = @splat(0);
        @memcpy(buffer[carry_bytes..][0..split], stream[0..split]);
        const first = buffer[0 .. carry_bytes + split];
        const before = countHeads(first);
        var rest: [carry_bytes + stream.len]u8 = undefined;
        rest[0..carry_bytes].* = first[first.len - carry_bytes ..][0..carry_bytes].*;
        @memcpy(rest[carry_bytes..][0 .. stream.len - split], stream[split..]);
        try std.testing.expectEqual(3, before + countHeads(rest[0 .. carry_bytes + stream.len - split]));
    }
}
