//! OpenSSL's view of the wire: a BIO that reads the slice lent to the running call and writes to its sink.
//! Ciphertext is thus copied once in each direction (into and out of OpenSSL's record buffer), and an idle session owns no buffer here.
//! Refuses to know: records, errors of the protocol, who the caller is.
const std = @import("std");
const assert = std.debug.assert;
const c = @import("libssl.zig");
const tls = @import("tls.zig");

/// What one call lends to OpenSSL; lives on the caller's stack.
pub const Transfer = struct {
    /// Ciphertext that is not read yet. Borrowed for the call.
    input: []const u8,
    /// Takes what OpenSSL writes. Borrowed for the call.
    sink: tls.Sink,
    /// The sink refused bytes: the stream has a hole, so the session cannot go on.
    sink_failed: bool = false,
};

/// The table of functions behind every session's BIO; free it with `BIO_meth_free` after the last session.
/// The type number is the plain "source/sink": numbers from `BIO_get_new_index` run out after about a hundred reloads.
pub fn createMethod() error{OutOfMemory}!*c.BIO_METHOD {
    const method = c.BIO_meth_new(c.BIO_TYPE_SOURCE_SINK, "peregrine") orelse return error.OutOfMemory;
    // These only store a pointer, and answer 1.
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

fn transferOf(bio: *c.BIO) *Transfer {
    // Null would mean that OpenSSL reads or writes outside of a session's call.
    return @ptrCast(@alignCast(c.BIO_get_data(bio).?));
}

fn read(bio: *c.BIO, buffer: [*]u8, buffer_len: c_int) callconv(.c) c_int {
    const transfer = transferOf(bio);
    c.BIO_clear_flags(bio, c.BIO_FLAGS_RWS | c.BIO_FLAGS_SHOULD_RETRY);
    if (transfer.input.len == 0) {
        c.BIO_set_flags(bio, c.BIO_FLAGS_READ | c.BIO_FLAGS_SHOULD_RETRY);
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
    // Nothing may follow a hole in the stream.
    if (transfer.sink_failed) return -1;
    transfer.sink.append(bytes[0..@intCast(bytes_len)]) catch {
        transfer.sink_failed = true;
        return -1;
    };
    return bytes_len;
}

fn control(bio: *c.BIO, command: c_int, number: c_long, pointer: ?*anyopaque) callconv(.c) c_long {
    _ = bio;
    _ = number;
    _ = pointer;
    // A flush has nothing to do; 0 is "not supported" for everything else (end of file, kernel TLS, ...).
    return if (command == c.BIO_CTRL_FLUSH) 1 else 0;
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
    var transfer: Transfer = .{ .input = "abcde", .sink = .{ .context = &out, .appendFn = TestSink.append } };
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
