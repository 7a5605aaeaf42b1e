//! The number of outputs in which each lent string waits: a string is in memory once, so each of its
//! receivers counts for a part of it. Does not know: peers.
const std = @import("std");
const Outbox = @import("outbox.zig").Outbox;

/// A table of strings that is filled when it is needed. It allocates no memory; a string that finds no place
/// counts as a whole for each receiver.
pub const Shares = struct {
    strings: [places]String = @splat(.{}),

    const String = struct { address: usize = 0, readers: u32 = 0 };
    const places = 1024;
    /// Places that are tried for a string, from its address's place on.
    const tries = 8;

    /// Counts the strings of an outbox.
    pub fn note(shares: *Shares, outbox: *const Outbox) void {
        var lent = outbox.lentParts();
        while (lent.next()) |part| {
            const address = @intFromPtr(part.whole.ptr);
            for (0..tries) |at| {
                const string = &shares.strings[(hash(address) + at) % places];
                if (string.readers > 0 and string.address != address) continue;
                string.address = address;
                string.readers += 1;
                break;
            }
        }
    }

    /// The bytes for which the strings of an outbox count, less their unsent bytes.
    pub fn surcharge(shares: *const Shares, outbox: *const Outbox) i64 {
        var difference: i64 = 0;
        var lent = outbox.lentParts();
        while (lent.next()) |part| {
            const part_of_it = part.whole.len / shares.readersOf(part.whole);
            difference += @as(i64, @intCast(part_of_it)) - @as(i64, @intCast(part.unsent));
        }
        return difference;
    }

    fn readersOf(shares: *const Shares, bytes: []const u8) u32 {
        const address = @intFromPtr(bytes.ptr);
        for (0..tries) |at| {
            const string = &shares.strings[(hash(address) + at) % places];
            if (string.readers > 0 and string.address == address) return string.readers;
        }
        return 1;
    }

    fn hash(address: usize) usize {
        return std.hash.int(@as(u64, address)) % places;
    }
};
