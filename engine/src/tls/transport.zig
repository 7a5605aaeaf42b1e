//! OpenSSL's view of the wire: a BIO that reads the slice lent to the running call and writes to its sink.
//! Ciphertext is thus copied once in each direction (into and out of OpenSSL's record buffer), and an idle
//! session owns no buffer here. Does not know: records, errors of the protocol, who the caller is.
const std = @import("std");
const assert = std.debug.assert;
const c = @import("libssl.zig");
const tls = @import("tls.zig");

/// The buffers that a call lends to OpenSSL; lives on the caller's stack.
pub const Transfer = struct {
    /// Ciphertext that is not read yet. Borrowed for the call.
    input: []const u8,
    /// Takes the bytes that OpenSSL writes. Borrowed for the call.
    sink: tls.Sink,
    /// The sink refused bytes: the stream has a hole, so the session cannot go on.
    sink_failed: bool = false,
    /// OpenSSL has asked for more input than there is: the reason why its function ended.
    starved: bool = false,
    /// The session's state of TLS in the kernel.
    kernel: *Kernel,
    /// The protocols among which ALPN may choose. Borrowed for the call.
    protocols: []const tls.Protocol,
    /// The peer is an authority that asks for a name (RFC 8737); its hello is read within one call.
    validates: bool = false,
};

/// A session's view of the kernel, which may seal records in its place (kTLS).
pub const Kernel = struct {
    /// The sink has taken the keys: what OpenSSL writes is plaintext from then on.
    seals: bool = false,
    /// The kind of the records that OpenSSL writes.
    kind: u8 = application_data,

    const application_data = 23;
};

/// The table of functions behind every session's BIO; free it with `BIO_meth_free` after the last session.
/// The type number is the plain "source/sink": numbers from `BIO_get_new_index` run out after about
/// a hundred reloads.
pub fn createMethod() error{OutOfMemory}!*c.BIO_METHOD {
    const method = c.BIO_meth_new(c.BIO_TYPE_SOURCE_SINK, "peregrine") orelse return error.OutOfMemory;
    // The setters only store a pointer, and answer 1.
    assert(c.BIO_meth_set_read(method, read) == 1);
    assert(c.BIO_meth_set_write(method, write) == 1);
    assert(c.BIO_meth_set_ctrl(method, control) == 1);
    return method;
}

/// Gives `ssl` its BIO for both directions; `ssl` owns it from then on.
pub fn attach(ssl: *c.SSL, method: *const c.BIO_METHOD) error{OutOfMemory}!void {
    const bio = c.BIO_new(method) orelse return error.OutOfMemory;
    c.BIO_set_init(bio, 1);
    c.SSL_set_bio(ssl, bio, bio);
}

/// Lends `transfer` to `ssl` until it is taken back with null.
pub fn lend(ssl: *c.SSL, transfer: ?*Transfer) void {
    const bio = c.SSL_get_rbio(ssl);
    assert((c.BIO_get_data(bio) == null) != (transfer == null));
    c.BIO_set_data(bio, transfer);
}

/// Whether a call is in progress on `ssl`.
pub fn isLent(ssl: *const c.SSL) bool {
    return c.BIO_get_data(c.SSL_get_rbio(ssl)) != null;
}

/// The buffers that the running call of a session has lent to its `ssl`.
pub fn lentTo(ssl: *const c.SSL) *Transfer {
    return transferOf(c.SSL_get_rbio(ssl));
}

fn transferOf(bio: *c.BIO) *Transfer {
    // Null would mean that OpenSSL reads or writes outside of a session's call.
    return @ptrCast(@alignCast(c.BIO_get_data(bio).?));
}

fn read(bio: *c.BIO, buffer: [*]u8, buffer_len: c_int) callconv(.c) c_int {
    const transfer = transferOf(bio);
    c.BIO_clear_flags(bio, c.BIO_FLAGS_RWS | c.BIO_FLAGS_SHOULD_RETRY);
    if (transfer.input.len == 0) {
        c.BIO_set_flags(bio, c.BIO_FLAGS_READ | c.BIO_FLAGS_SHOULD_RETRY);
        transfer.starved = true;
        return -1;
    }
    const n = @min(transfer.input.len, @as(usize, @intCast(buffer_len)));
    @memcpy(buffer[0..n], transfer.input[0..n]);
    transfer.input = transfer.input[n..];
    return @intCast(n);
}

fn write(bio: *c.BIO, bytes: [*]const u8, bytes_len: c_int) callconv(.c) c_int {
    const transfer = transferOf(bio);
    c.BIO_clear_flags(bio, c.BIO_FLAGS_RWS | c.BIO_FLAGS_SHOULD_RETRY);
    // A stream with a hole is over.
    if (transfer.sink_failed) return -1;
    put(transfer, bytes[0..@intCast(bytes_len)]) catch {
        transfer.sink_failed = true;
        return -1;
    };
    return bytes_len;
}

fn put(transfer: *Transfer, bytes: []const u8) tls.Sink.Error!void {
    const kernel = transfer.kernel;
    if (!kernel.seals) return transfer.sink.append(bytes);
    // A long message may come in pieces, all of the kind that was announced.
    return transfer.sink.kernel.?.record(transfer.sink.context, kernel.kind, bytes);
}

fn control(bio: *c.BIO, command: c_int, number: c_long, pointer: ?*anyopaque) callconv(.c) c_long {
    switch (command) {
        // `write` keeps no bytes back.
        c.BIO_CTRL_FLUSH => return 1,
        // `number` is 0 for the receiving keys.
        c.BIO_CTRL_SET_KTLS_SEND => return @intFromBool(number != 0 and giveKeys(transferOf(bio), pointer.?)),
        c.BIO_CTRL_GET_KTLS_SEND => return @intFromBool(transferOf(bio).kernel.seals),
        c.BIO_CTRL_SET_KTLS_SEND_CTRL_MSG => transferOf(bio).kernel.kind = @intCast(number),
        c.BIO_CTRL_CLEAR_KTLS_CTRL_MSG => transferOf(bio).kernel.kind = Kernel.application_data,
        // "Not supported": end of file and others.
        else => return 0,
    }
    return 1;
}

fn giveKeys(transfer: *Transfer, pointer: *const anyopaque) bool {
    assert(!transfer.kernel.seals);
    const sealer = transfer.sink.kernel orelse return false;
    const info: [*]const u8 = @ptrCast(pointer);
    // `struct tls_crypto_info` of linux/tls.h: version and cipher. The bytes behind them have the size that
    // the cipher gives them.
    const bytes_len: usize = switch (std.mem.readInt(u16, info[2..4], @import("builtin").cpu.arch.endian())) {
        51, 53 => 40, // AES-128-GCM, AES-128-CCM
        52, 54 => 56, // AES-256-GCM, ChaCha20-Poly1305
        else => return false,
    };
    transfer.kernel.seals = !transfer.sink_failed and
        sealer.takeKeys(transfer.sink.context, info[0..bytes_len]);
    return transfer.kernel.seals;
}

const TestSink = struct {
    bytes: [8]u8 = undefined,
    len: usize = 0,

    fn append(context: *anyopaque, bytes: []const u8) tls.Sink.Error!void {
        const self: *TestSink = @ptrCast(@alignCast(context));
        if (bytes.len > self.bytes.len - self.len) return error.OutOfMemory;
        @memcpy(self.bytes[self.len..][0..bytes.len], bytes);
        self.len += bytes.len;
    }
};

test "the BIO reads the lent slice, asks for more, and stops writing at a hole" {
    const method = try createMethod();
    defer c.BIO_meth_free(method);
    const bio = c.BIO_new(method) orelse return error.OutOfMemory;
    defer _ = c.BIO_free(bio);
    c.BIO_set_init(bio, 1);

    var out: TestSink = .{};
    var kernel: Kernel = .{};
    var transfer: Transfer = .{
        .kernel = &kernel,
        .protocols = &.{},
        .input = "abcde",
        .sink = .{ .context = &out, .appendFn = TestSink.append },
    };
    c.BIO_set_data(bio, &transfer);
    var buffer: [3]u8 = undefined;
    try std.testing.expectEqual(3, c.BIO_read(bio, &buffer, 3));
    try std.testing.expectEqualStrings("abc", &buffer);
    try std.testing.expectEqual(2, c.BIO_read(bio, &buffer, 3));
    try std.testing.expectEqualStrings("de", buffer[0..2]);
    try std.testing.expectEqual(-1, c.BIO_read(bio, &buffer, 3));
    try std.testing.expect(c.BIO_test_flags(bio, c.BIO_FLAGS_SHOULD_RETRY) != 0);

    try std.testing.expectEqual(5, c.BIO_write(bio, "12345", 5));
    try std.testing.expectEqual(-1, c.BIO_write(bio, "6789", 4));
    try std.testing.expect(transfer.sink_failed);
    // "0" would fit, but the stream has a hole.
    try std.testing.expectEqual(-1, c.BIO_write(bio, "0", 1));
    try std.testing.expect(c.BIO_test_flags(bio, c.BIO_FLAGS_SHOULD_RETRY) == 0);
    try std.testing.expectEqualStrings("12345", out.bytes[0..out.len]);
}
