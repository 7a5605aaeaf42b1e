//! The facts of a request's TLS connection as bytes without pointers, which go with the event of the request,
//! so that an application need not ask the engine for them. Does not know: where they are kept.
const std = @import("std");
const peregrine = @import("peregrine");
const types = @import("types.zig");
const Reader = peregrine.encoded.Reader;
const Text = types.Text;

/// The beginning of the facts. The texts of `text_names` follow, each after its length, then the chain.
const Head = extern struct {
    version: u16,
    cipher_suite: u16,
    resumed: u32,
    chain_len: u32,
};

const text_names = .{ "server_cert", "client_name", "client_error", "server_name", "alpn" };

/// Stands for the length of a text that is missing.
const none = std.math.maxInt(u32);

const bytes_max = peregrine.api_limits.tls_facts_bytes_max;

/// The facts of a connection, valid as long as the connection is there and `chain` is not filled again.
pub fn infoOf(
    tunnel: *peregrine.Tunnel,
    allocator: std.mem.Allocator,
    chain: *std.ArrayList(types.Text),
) error{OutOfMemory}!types.TlsInfo {
    const peer = try tunnel.clientCertificate();
    chain.clearRetainingCapacity();
    try chain.ensureTotalCapacity(allocator, peer.chain.len);
    for (peer.chain) |pem| chain.appendAssumeCapacity(.of(pem));
    const agreement = tunnel.session.agreement();
    return .{
        .size = @sizeOf(types.TlsInfo),
        .version = agreement.version,
        .cipher_suite = agreement.cipher_suite,
        .server_cert = .of(agreement.server_certificate_pem),
        .client_chain = chain.items.ptr,
        .client_chain_len = peer.chain.len,
        .client_name = .of(peer.subject),
        .client_error = .of(peer.verify_error),
        .server_name = .of(agreement.server_name),
        .alpn = .of(agreement.alpn),
        .resumed = @intFromBool(agreement.resumed),
    };
}

/// The facts as bytes of `arena`. Of a chain that is too long only the client's own certificate is encoded.
pub fn encode(arena: std.mem.Allocator, info: *const types.TlsInfo) error{OutOfMemory}![]const u8 {
    var chain = info.client_chain[0..info.client_chain_len];
    if (sizeOf(info, chain) > bytes_max) chain.len = @min(chain.len, 1);
    const bytes = try arena.alloc(u8, sizeOf(info, chain));
    var writer: std.Io.Writer = .fixed(bytes);
    put(&writer, info, chain) catch unreachable; // the buffer has the size for all certificates
    std.debug.assert(writer.end == bytes.len);
    return bytes;
}

fn sizeOf(info: *const types.TlsInfo, chain: []const Text) usize {
    var size: usize = @sizeOf(Head);
    inline for (text_names) |name| size += @sizeOf(u32) + @field(info, name).len;
    for (chain) |pem| size += @sizeOf(u32) + pem.len;
    return size;
}

fn put(writer: *std.Io.Writer, info: *const types.TlsInfo, chain: []const Text) std.Io.Writer.Error!void {
    try writer.writeAll(std.mem.asBytes(&Head{
        .version = info.version,
        .cipher_suite = info.cipher_suite,
        .resumed = info.resumed,
        .chain_len = @intCast(chain.len),
    }));
    inline for (text_names) |name| try putText(writer, @field(info, name));
    for (chain) |pem| try putText(writer, pem);
}

fn putText(writer: *std.Io.Writer, text: Text) std.Io.Writer.Error!void {
    const len: u32 = if (text.bytes == null) none else @intCast(text.len);
    try writer.writeAll(std.mem.asBytes(&len));
    if (text.bytes) |bytes| try writer.writeAll(bytes[0..text.len]);
}

/// Decodes facts, which point into `bytes` and into `chain`, which is filled anew. `Malformed`: the bytes
/// were not written by `encode`.
pub fn decode(
    bytes: []const u8,
    gpa: std.mem.Allocator,
    chain: *std.ArrayList(Text),
) error{ Malformed, OutOfMemory }!types.TlsInfo {
    var reader: Reader = .{ .rest = bytes };
    const head = try reader.value(Head);
    var info: types.TlsInfo = undefined;
    info.version = head.version;
    info.cipher_suite = head.cipher_suite;
    info.resumed = head.resumed;
    inline for (text_names) |name| @field(info, name) = try textOf(&reader);
    if (head.chain_len > reader.rest.len / @sizeOf(u32)) return error.Malformed;
    chain.clearRetainingCapacity();
    try chain.ensureTotalCapacity(gpa, head.chain_len);
    for (0..head.chain_len) |_| chain.appendAssumeCapacity(try textOf(&reader));
    if (reader.rest.len > 0) return error.Malformed;
    info.client_chain = chain.items.ptr;
    info.client_chain_len = chain.items.len;
    info.size = @sizeOf(types.TlsInfo);
    return info;
}

fn textOf(reader: *Reader) error{Malformed}!Text {
    const len = try reader.value(u32);
    return .of(if (len == none) null else try reader.run(len));
}

const testing = std.testing;

fn expectText(expected: ?[]const u8, found: Text) !void {
    const text = expected orelse return testing.expectEqual(null, found.bytes);
    try testing.expectEqualStrings(text, found.bytes.?[0..found.len]);
}

fn sample(chain: []const Text) types.TlsInfo {
    return .{
        .size = @sizeOf(types.TlsInfo),
        .version = 0x0304,
        .cipher_suite = 0x1301,
        .server_cert = .of("a certificate"),
        .client_chain = chain.ptr,
        .client_chain_len = chain.len,
        .client_name = .of(""),
        .client_error = .of(null),
        .server_name = .of("h"),
        .alpn = .of(null),
        .resumed = 1,
    };
}

test "facts come back as they were, and nothing shorter is any" {
    const info = sample(&.{ .of("leaf"), .of("root") });
    const bytes = try encode(testing.allocator, &info);
    defer testing.allocator.free(bytes);
    var chain: std.ArrayList(Text) = .empty;
    defer chain.deinit(testing.allocator);
    for (0..2) |_| {
        const found = try decode(bytes, testing.allocator, &chain);
        inline for (.{ "version", "cipher_suite", "resumed" }) |name| {
            try testing.expectEqual(@field(info, name), @field(found, name));
        }
        try expectText("a certificate", found.server_cert);
        try expectText("", found.client_name);
        try expectText(null, found.client_error);
        try expectText("h", found.server_name);
        try expectText(null, found.alpn);
        try testing.expectEqual(2, found.client_chain_len);
        try expectText("leaf", found.client_chain[0]);
        try expectText("root", found.client_chain[1]);
    }
    for (0..bytes.len) |cut| {
        try testing.expectError(error.Malformed, decode(bytes[0..cut], testing.allocator, &chain));
    }
}

test "of a long chain the client's own certificate is told" {
    const long: [bytes_max]u8 = @splat('x');
    const info = sample(&.{ .of("leaf"), .of(&long) });
    const bytes = try encode(testing.allocator, &info);
    defer testing.allocator.free(bytes);
    var chain: std.ArrayList(Text) = .empty;
    defer chain.deinit(testing.allocator);
    const found = try decode(bytes, testing.allocator, &chain);
    try testing.expectEqual(1, found.client_chain_len);
    try expectText("leaf", found.client_chain[0]);
}
