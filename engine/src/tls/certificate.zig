//! Turns PEM files into certificates, keys and authorities, and certificates into names and PEM text (RFC
//! 7468, RFC 5280, RFC 6125, RFC 4514). Every failure names the file and the reason in the diagnostic,
//! because a person reads it at start-up.
//! Does not know: contexts, sessions, which certificate answers which client.
const std = @import("std");
const assert = std.debug.assert;
const c = @import("libssl.zig");
const retained = @import("retained.zig");
const tls = @import("tls.zig");

const FileError = error{ OutOfMemory, InvalidFile };

/// A certificate, its intermediates and its key, known to belong together.
pub const Pair = struct {
    leaf: *c.X509,
    /// Intermediates in the file's order; may be empty.
    chain: Chain,
    key: *c.EVP_PKEY,

    /// Loads both files and checks that they match.
    pub fn load(files: tls.CertificateFiles, diagnostic: *tls.Diagnostic) tls.ContextError!Pair {
        var chain = try Chain.load("SSL certificate file", files.cert_file, diagnostic);
        errdefer chain.deinit();
        const leaf = chain.shift();
        errdefer c.X509_free(leaf);
        if (files.chain_file) |path| {
            var more: Chain = try .load("SSL chain file", path, diagnostic);
            defer more.deinit();
            while (more.count() > 0) try chain.push(more.shift());
        }
        const key = try loadKey(files, diagnostic);
        errdefer c.EVP_PKEY_free(key);
        return matching(leaf, chain, key, files, diagnostic);
    }

    /// Like `load`, from the text of one file that has both. `name` is for messages.
    pub fn parse(name: [:0]const u8, pem: []const u8, diagnostic: *tls.Diagnostic) tls.ContextError!Pair {
        const files: tls.CertificateFiles = .{ .cert_file = name, .key_file = name };
        defer wipeFreed();
        var chain = chain: {
            const memory = try openMemory(pem);
            defer _ = c.BIO_free(memory);
            break :chain try Chain.read("SSL certificate file", name, memory, diagnostic);
        };
        errdefer chain.deinit();
        const leaf = chain.shift();
        errdefer c.X509_free(leaf);
        const memory = try openMemory(pem);
        defer _ = c.BIO_free(memory);
        const key = try readKey(files, memory, diagnostic);
        errdefer c.EVP_PKEY_free(key);
        return matching(leaf, chain, key, files, diagnostic);
    }

    fn matching(
        leaf: *c.X509,
        chain: Chain,
        key: *c.EVP_PKEY,
        files: tls.CertificateFiles,
        diagnostic: *tls.Diagnostic,
    ) error{KeyMismatch}!Pair {
        c.ERR_clear_error();
        if (c.X509_check_private_key(leaf, key) == 1) return .{ .leaf = leaf, .chain = chain, .key = key };
        diagnostic.set("SSL key file does not match the certificate: key {s}, certificate {s} ({s})", .{
            files.key_file, files.cert_file, reason(),
        });
        return error.KeyMismatch;
    }

    /// References for a second owner, to be dropped by `deinit` like the first owner's.
    pub fn retain(pair: Pair) error{OutOfMemory}!Pair {
        const stack = c.X509_chain_up_ref(pair.chain.stack) orelse return error.OutOfMemory;
        _ = c.X509_up_ref(pair.leaf);
        _ = c.EVP_PKEY_up_ref(pair.key);
        return .{ .leaf = pair.leaf, .chain = .{ .stack = stack }, .key = pair.key };
    }

    /// Drops these references; a context that uses the pair has its own.
    pub fn deinit(pair: *Pair) void {
        c.X509_free(pair.leaf);
        pair.chain.deinit();
        c.EVP_PKEY_free(pair.key);
        pair.* = undefined;
    }
};

/// The certificates of one file.
pub const Chain = struct {
    stack: *c.X509_STACK,

    /// Reads all the certificates in `path`, of which there must be one at least. `role` begins the
    /// diagnostic's sentence.
    pub fn load(role: []const u8, path: [:0]const u8, diagnostic: *tls.Diagnostic) FileError!Chain {
        const file = try openFile(role, path, diagnostic);
        defer _ = c.BIO_free(file);
        if (isDirectory(role, path, diagnostic)) return error.InvalidFile;
        return read(role, path, file, diagnostic);
    }

    fn read(
        role: []const u8,
        name: [:0]const u8,
        file: *c.BIO,
        diagnostic: *tls.Diagnostic,
    ) FileError!Chain {
        var chain: Chain = .{ .stack = @ptrCast(c.OPENSSL_sk_new_null() orelse return error.OutOfMemory) };
        errdefer chain.deinit();
        // Certificates are not encrypted as a rule; without a callback OpenSSL would ask the terminal.
        var password: Password = .{ .text = null };
        while (c.PEM_read_bio_X509(file, null, Password.answer, &password)) |certificate| {
            try chain.push(certificate);
        }
        // OpenSSL reports the end of the file as "no start line".
        const ended = c.ERR_GET_REASON(c.ERR_peek_last_error()) == c.PEM_R_NO_START_LINE;
        if (!ended) {
            diagnostic.set("{s} is damaged: {s} ({s})", .{ role, name, reason() });
            return error.InvalidFile;
        }
        c.ERR_clear_error();
        if (chain.count() == 0) {
            diagnostic.set("{s} holds no PEM certificate: {s}", .{ role, name });
            return error.InvalidFile;
        }
        return chain;
    }

    /// The number of certificates.
    pub fn count(chain: Chain) usize {
        return @intCast(c.OPENSSL_sk_num(@ptrCast(chain.stack)));
    }

    /// A certificate of the chain, borrowed.
    pub fn at(chain: Chain, index: usize) *c.X509 {
        return @ptrCast(@alignCast(c.OPENSSL_sk_value(@ptrCast(chain.stack), @intCast(index)).?));
    }

    /// Frees the certificates.
    pub fn deinit(chain: *Chain) void {
        while (chain.count() > 0) c.X509_free(chain.shift());
        c.OPENSSL_sk_free(@ptrCast(chain.stack));
        chain.* = undefined;
    }

    fn push(chain: *Chain, certificate: *c.X509) error{OutOfMemory}!void {
        if (c.OPENSSL_sk_push(@ptrCast(chain.stack), certificate) > 0) return;
        c.X509_free(certificate);
        return error.OutOfMemory;
    }

    fn shift(chain: *Chain) *c.X509 {
        assert(chain.count() > 0);
        return @ptrCast(@alignCast(c.OPENSSL_sk_shift(@ptrCast(chain.stack)).?));
    }
};

/// The lower-case DNS names that `certificate` is for, sorted; its common name if it has none (RFC 6125
/// §6.4.4). Owned by `arena`.
pub fn dnsNames(arena: std.mem.Allocator, certificate: *c.X509) error{OutOfMemory}![]const []const u8 {
    var names: std.ArrayList([]const u8) = .empty;
    const alternatives: ?*c.GENERAL_NAMES =
        @ptrCast(c.X509_get_ext_d2i(certificate, c.NID_subject_alt_name, null, null));
    defer c.GENERAL_NAMES_free(alternatives);
    if (alternatives) |list| {
        var index: c_int = 0;
        while (index < c.OPENSSL_sk_num(@ptrCast(list))) : (index += 1) {
            const item = c.OPENSSL_sk_value(@ptrCast(list), index).?;
            const name: *const c.GENERAL_NAME = @ptrCast(@alignCast(item));
            var kind: c_int = undefined;
            const value = c.GENERAL_NAME_get0_value(name, &kind);
            if (kind == c.GEN_DNS) try appendName(arena, &names, @ptrCast(@alignCast(value.?)));
        }
    }
    if (names.items.len == 0) {
        const subject = c.X509_get_subject_name(certificate);
        const position = c.X509_NAME_get_index_by_NID(subject, c.NID_commonName, -1);
        if (position >= 0) {
            try appendName(
                arena,
                &names,
                c.X509_NAME_ENTRY_get_data(c.X509_NAME_get_entry(subject, position)).?,
            );
        }
    }
    std.mem.sortUnstable([]const u8, names.items, {}, lessThan);
    c.ERR_clear_error();
    return names.items;
}

fn lessThan(_: void, a: []const u8, b: []const u8) bool {
    return std.mem.lessThan(u8, a, b);
}

fn appendName(
    arena: std.mem.Allocator,
    names: *std.ArrayList([]const u8),
    value: *const c.ASN1_STRING,
) error{OutOfMemory}!void {
    const text = c.ASN1_STRING_get0_data(value)[0..@intCast(c.ASN1_STRING_length(value))];
    // A NUL would end the name early where it is read as a C string; no client asks for such a name.
    if (text.len == 0 or std.mem.indexOfScalar(u8, text, 0) != null) return;
    try names.append(arena, try std.ascii.allocLowerString(arena, text));
}

/// The time in which `certificate` is good (RFC 5280 §4.1.2.5); null if its dates cannot be read.
pub fn validity(certificate: *c.X509) ?tls.Validity {
    return .{
        .not_before_s = secondsSince1970(c.X509_get0_notBefore(certificate)) orelse return null,
        .not_after_s = secondsSince1970(c.X509_get0_notAfter(certificate)) orelse return null,
    };
}

/// A time in OpenSSL's form as a number; null if it cannot be read.
pub fn secondsSince1970(time: *const c.ASN1_STRING) ?i64 {
    const epoch = c.ASN1_TIME_set(null, 0) orelse return null;
    defer c.ASN1_STRING_free(epoch);
    return secondsBetween(epoch, time);
}

fn secondsBetween(from: *const c.ASN1_STRING, to: *const c.ASN1_STRING) ?i64 {
    defer c.ERR_clear_error();
    var days: c_int = undefined;
    var seconds: c_int = undefined;
    if (c.ASN1_TIME_diff(&days, &seconds, from, to) != 1) return null;
    return @as(i64, days) * std.time.s_per_day + seconds;
}

/// `certificate` as PEM text, owned by `gpa`.
pub fn toPem(gpa: std.mem.Allocator, certificate: *c.X509) error{OutOfMemory}![]u8 {
    const memory = c.BIO_new(c.BIO_s_mem()) orelse return error.OutOfMemory;
    defer _ = c.BIO_free(memory);
    if (c.PEM_write_bio_X509(memory, certificate) != 1) return error.OutOfMemory;
    return dupeMemory(gpa, memory);
}

/// The subject of `certificate` by RFC 4514, owned by `gpa`. Bytes beyond ASCII are escaped.
pub fn subjectText(gpa: std.mem.Allocator, certificate: *c.X509) error{OutOfMemory}![]u8 {
    const memory = c.BIO_new(c.BIO_s_mem()) orelse return error.OutOfMemory;
    defer _ = c.BIO_free(memory);
    const subject = c.X509_get_subject_name(certificate);
    if (c.X509_NAME_print_ex(memory, subject, 0, c.XN_FLAG_RFC2253) < 0) return error.OutOfMemory;
    return dupeMemory(gpa, memory);
}

fn dupeMemory(gpa: std.mem.Allocator, memory: *c.BIO) error{OutOfMemory}![]u8 {
    var bytes: ?[*]const u8 = null;
    const len = c.BIO_ctrl(memory, c.BIO_CTRL_INFO, 0, @ptrCast(&bytes));
    if (len <= 0) return gpa.dupe(u8, "");
    return gpa.dupe(u8, bytes.?[0..@intCast(len)]);
}

/// OpenSSL's newest error in words; empties its queue of errors. Static text.
pub fn reason() []const u8 {
    defer c.ERR_clear_error();
    const text = c.ERR_reason_error_string(c.ERR_peek_last_error()) orelse return "no reason given";
    return std.mem.span(text);
}

fn openMemory(pem: []const u8) error{OutOfMemory}!*c.BIO {
    return c.BIO_new_mem_buf(pem.ptr, @intCast(pem.len)) orelse error.OutOfMemory;
}

fn openFile(role: []const u8, path: [:0]const u8, diagnostic: *tls.Diagnostic) FileError!*c.BIO {
    c.ERR_clear_error();
    if (c.BIO_new_file(path, "r")) |file| return file;
    // The oldest error is the system's; its reason is errno.
    const code = c.ERR_peek_error();
    c.ERR_clear_error();
    const number: c_int = @intCast(code & c.ERR_SYSTEM_MASK);
    if (code & c.ERR_SYSTEM_FLAG != 0 and number == @backingInt(std.posix.E.NOENT)) {
        diagnostic.set("{s} not found: {s}", .{ role, path });
    } else {
        diagnostic.set("{s} not readable: {s} ({s})", .{ role, path, systemText(code, number) });
    }
    return error.InvalidFile;
}

/// Whether a path is a directory, which can be opened like a file and not be read; then it says so.
fn isDirectory(role: []const u8, path: [:0]const u8, diagnostic: *tls.Diagnostic) bool {
    if (!retained.statusOf(path).directory) return false;
    c.ERR_clear_error();
    diagnostic.set("{s} is a directory: {s}", .{ role, path });
    return true;
}

fn systemText(code: c_ulong, number: c_int) []const u8 {
    if (code & c.ERR_SYSTEM_FLAG == 0) return "no reason given";
    return switch (@as(std.posix.E, @fromBackingInt(@intCast(number)))) {
        .ACCES, .PERM => "permission denied",
        .NOTDIR => "a part of the path is not a directory",
        .LOOP => "too many symbolic links",
        .NAMETOOLONG => "the name is too long",
        .MFILE, .NFILE => "too many open files",
        .IO => "input/output error",
        else => |errno| std.enums.tagName(std.posix.E, errno) orelse "system error",
    };
}

/// Wipes memory that had the text and the DER of a key, which OpenSSL and the C library free as they are.
/// Memory that was freed last is given out first: it is allocated once more, and wiped.
fn wipeFreed() void {
    var list: ?*Freed = null;
    var size: usize = @sizeOf(Freed);
    while (size <= freed_bytes_max) : (size += 16) wipeChunks(&list, size, freed_count);
    wipeChunks(&list, file_buffer_bytes, 2);
    while (list) |chunk| {
        list = chunk.next;
        std.c.free(chunk);
    }
}

const Freed = struct { next: ?*Freed };

/// The caches that glibc has for a thread have up to seven chunks of each size, which is a multiple of 16, up
/// to a kibibyte.
const freed_bytes_max = 1032;
const freed_count = 8;
const file_buffer_bytes = 4096;

fn wipeChunks(list: *?*Freed, size: usize, count: usize) void {
    for (0..count) |_| {
        const memory: [*]align(@alignOf(Freed)) u8 = @ptrCast(@alignCast(std.c.malloc(size) orelse return));
        std.crypto.secureZero(u8, memory[0..size]);
        const chunk: *Freed = @ptrCast(memory);
        chunk.next = list.*;
        list.* = chunk;
    }
}

fn loadKey(files: tls.CertificateFiles, diagnostic: *tls.Diagnostic) tls.ContextError!*c.EVP_PKEY {
    defer wipeFreed();
    const file = try openFile("SSL key file", files.key_file, diagnostic);
    defer _ = c.BIO_free(file);
    if (isDirectory("SSL key file", files.key_file, diagnostic)) return error.InvalidFile;
    return readKey(files, file, diagnostic);
}

fn readKey(
    files: tls.CertificateFiles,
    file: *c.BIO,
    diagnostic: *tls.Diagnostic,
) tls.ContextError!*c.EVP_PKEY {
    var password: Password = .{ .text = files.key_password };
    if (c.PEM_read_bio_PrivateKey(file, null, Password.answer, &password)) |key| {
        c.ERR_clear_error();
        return key;
    }
    const why = reason();
    if (password.asked) {
        if (files.key_password == null) {
            diagnostic.set("SSL key file is encrypted and no key_password is given: {s}", .{files.key_file});
        } else {
            diagnostic.set(
                "SSL key_password does not open the key file: {s} ({s})",
                .{ files.key_file, why },
            );
        }
        return error.InvalidPassword;
    }
    diagnostic.set("SSL key file holds no PEM private key: {s} ({s})", .{ files.key_file, why });
    return error.InvalidFile;
}

/// Answers OpenSSL's question for a password, and notes that it was asked: only that tells an encrypted key
/// from a damaged one.
const Password = struct {
    text: ?[]const u8,
    asked: bool = false,

    fn answer(buffer: [*]u8, buffer_len: c_int, writing: c_int, context: ?*anyopaque) callconv(.c) c_int {
        assert(writing == 0);
        const password: *Password = @ptrCast(@alignCast(context.?));
        password.asked = true;
        const text = password.text orelse return -1;
        if (text.len > @as(usize, @intCast(buffer_len))) return -1;
        @memcpy(buffer[0..text.len], text);
        return @intCast(text.len);
    }
};

test "a missing file, a path through a file, a directory, and a file without PEM are told apart" {
    var tmp = std.testing.tmpDir(.{});
    defer tmp.cleanup();
    try tmp.dir.writeFile(std.testing.io, .{ .sub_path = "words.txt", .data = "no certificate here\n" });
    var diagnostic: tls.Diagnostic = .{};
    var buffer: [128]u8 = undefined;
    const cases = [_]struct { []const u8, []const u8 }{
        .{ "absent.pem", "CA file not found: " },
        .{ "words.txt/x.pem", "CA file not readable: " },
        .{ "", "CA file is a directory: " },
        .{ "words.txt", "CA file holds no PEM certificate: " },
    };
    for (cases) |case| {
        const path = try std.fmt.bufPrintSentinel(
            &buffer,
            ".zig-cache/tmp/{s}/{s}",
            .{ &tmp.sub_path, case[0] },
            0,
        );
        try std.testing.expectError(error.InvalidFile, Chain.load("CA file", path, &diagnostic));
        try std.testing.expect(std.mem.startsWith(u8, diagnostic.text(), case[1]));
        try std.testing.expect(std.mem.indexOf(u8, diagnostic.text(), path) != null);
    }
    try std.testing.expectEqual(0, c.ERR_peek_error());
}
