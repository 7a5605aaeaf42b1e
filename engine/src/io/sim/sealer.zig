//! Job: TLS records as the kernel makes them (kTLS), with the keys in Linux's form (linux/tls.h), for
//! AES-128-GCM. Does not know: sockets, and when a record is sent.
const std = @import("std");

/// Makes the TLS records of one connection.
pub const Sealer = struct {
    info: Info,

    const Cipher = std.crypto.aead.aes_gcm.Aes128Gcm;
    /// RFC 8446 section 5.1.
    pub const plaintext_bytes_max = 16 * 1024;
    /// The maximum number of bytes of a record besides its plaintext.
    pub const overhead_bytes_max = 5 + 8 + Cipher.tag_length;
    const aes_128_gcm = 51;
    pub const application_data = 23;

    /// struct tls12_crypto_info_aes_gcm_128
    const Info = extern struct {
        version: u16,
        cipher: u16,
        iv: [8]u8,
        key: [16]u8,
        salt: [4]u8,
        sequence: [8]u8,
    };

    /// Makes a sealer from keys in Linux's form. Null: they belong to another cipher.
    pub fn take(keys: []const u8) ?Sealer {
        if (keys.len != @sizeOf(Info)) return null;
        const info = std.mem.bytesToValue(Info, keys);
        return if (info.cipher == aes_128_gcm) .{ .info = info } else null;
    }

    /// Encrypts `plaintext` and appends the record, whose content type is `kind`.
    pub fn seal(
        sealer: *Sealer,
        gpa: std.mem.Allocator,
        wire: *std.ArrayList(u8),
        kind: u8,
        plaintext: []const u8,
    ) error{OutOfMemory}!void {
        std.debug.assert(plaintext.len <= plaintext_bytes_max);
        try wire.ensureUnusedCapacity(gpa, plaintext.len + overhead_bytes_max);
        switch (sealer.info.version) {
            0x0303 => sealer.seal12(wire, kind, plaintext),
            0x0304 => sealer.seal13(wire, kind, plaintext),
            else => unreachable, // kernel keys exist for these versions only
        }
    }

    /// RFC 5288 section 3.
    fn seal12(sealer: *Sealer, wire: *std.ArrayList(u8), kind: u8, plaintext: []const u8) void {
        const info = &sealer.info;
        const header = [_]u8{ kind, 3, 3 };
        const data = info.sequence ++ header ++ lengthOf(plaintext.len);
        wire.appendSliceAssumeCapacity(
            &(header ++ lengthOf(8 + plaintext.len + Cipher.tag_length) ++ info.iv),
        );
        const space = wire.addManyAsSliceAssumeCapacity(plaintext.len + Cipher.tag_length);
        @memcpy(space[0..plaintext.len], plaintext);
        sealer.encrypt(space, &data, info.salt ++ info.iv);
        count(&info.iv);
        count(&info.sequence);
    }

    /// RFC 8446 section 5.2.
    fn seal13(sealer: *Sealer, wire: *std.ArrayList(u8), kind: u8, plaintext: []const u8) void {
        const info = &sealer.info;
        const header = [_]u8{ 23, 3, 3 } ++ lengthOf(plaintext.len + 1 + Cipher.tag_length);
        wire.appendSliceAssumeCapacity(&header);
        var nonce = info.salt ++ info.iv;
        for (nonce[4..], info.sequence) |*byte, other| byte.* ^= other;
        const space = wire.addManyAsSliceAssumeCapacity(plaintext.len + 1 + Cipher.tag_length);
        @memcpy(space[0..plaintext.len], plaintext);
        space[plaintext.len] = kind;
        sealer.encrypt(space, &header, nonce);
        count(&info.sequence);
    }

    /// Encrypts the plaintext at the start of `space` in place and writes the tag at its end.
    fn encrypt(sealer: *const Sealer, space: []u8, data: []const u8, nonce: [12]u8) void {
        const text = space[0 .. space.len - Cipher.tag_length];
        const tag = space[text.len..][0..Cipher.tag_length];
        Cipher.encrypt(text, tag, text, data, nonce, sealer.info.key);
    }

    fn lengthOf(len: usize) [2]u8 {
        return .{ @intCast(len >> 8), @truncate(len) };
    }

    fn count(number: *[8]u8) void {
        std.mem.writeInt(u64, number, std.mem.readInt(u64, number, .big) + 1, .big);
    }
};
