//! Limits for each client address: the number of open connections, the rate of new ones, and the bytes that
//! are kept of unfinished request bodies. An address is an IPv4 address, or the first 64 bits of an IPv6
//! address: a subscriber gets a network with such a prefix, and chooses the other bits freely. Does not know:
//! sockets, and the response to a refused client.
//!
//! A table may serve several workers, so it has a lock, which is not taken while the limits are off. A record
//! of 56 bytes stands for an address with connections that count, or with unfinished bodies. The record of
//! any other address stays until its rate allowance is full again, at most a second; there are no more than
//! `idle_max` of these, and the oldest are forgotten.
const std = @import("std");
const assert = std.debug.assert;
const io = @import("io");
const Config = @import("config.zig").Config;

/// The place of one connection in the table; `leave` gives it back.
pub const Entry = packed struct(u32) {
    /// The index of the address's record. It shares a word with the verdict, because each idle connection has
    /// this word.
    record: u30 = uncounted,
    verdict: Verdict = .admitted,

    const uncounted = std.math.maxInt(u30);

    /// Whether the connection counts in a record. It does not if limits were off, or if `answered_max`
    /// refused connections of its address count already.
    pub fn isCounted(entry: Entry) bool {
        return entry.record != uncounted;
    }
};

/// The share of an unfinished request body in the count of its client's address; `discharge` gives it back.
pub const Upload = struct {
    record: u32 = none,
    bytes: u64 = 0,
};

/// The decision about a new connection.
pub const Verdict = enum(u2) {
    admitted,
    /// The client address has as many connections open as one address may have.
    too_many,
    /// The client address opens connections faster than one address may.
    too_fast,
};

const none = std.math.maxInt(u32);

/// A table of client addresses with their connections and unfinished bodies.
pub const Admission = struct {
    gpa: std.mem.Allocator,
    holders: std.atomic.Value(u32) = .init(1),
    lock: std.atomic.Value(bool) = .init(false),
    records: std.ArrayList(Record) = .empty,
    /// The first record of each hash chain. The length is a power of two.
    heads: []u32 = &.{},
    /// The first free record. Free records are chained by `next`.
    vacant: u32 = none,
    count: u32 = 0,
    /// Records without a connection or body form a list, in the order in which they lost their last one.
    oldest: u32 = none,
    newest: u32 = none,
    idle_count: u32 = 0,
    /// Random, so that clients cannot choose addresses that fall into one chain.
    seed: u64,

    const idle_max = @import("config.zig").worker_limits.admission_records_max;
    /// The time whose connections may come at once, in microseconds: a second's worth of the rate.
    const window_us = std.time.us_per_s;
    const answered_max = @import("config.zig").worker_limits.admission_answered_max;

    const Record = struct {
        key: u64,
        /// The index of the next record in the same hash chain.
        next: u32,
        older: u32 = none,
        newer: u32 = none,
        open: u32 = 0,
        /// Refused connections that are still open, so that their peers can read why.
        refused: u32 = 0,
        /// The number of unfinished bodies that count; `upload_bytes` is the sum of their bytes.
        uploads: u32 = 0,
        upload_bytes: u64 = 0,
        idle: bool = false,
        /// When the rate allowance is full again, in microseconds.
        full_at: u64 = 0,

        fn isUnused(record: *const Record) bool {
            return record.open == 0 and record.refused == 0 and record.uploads == 0;
        }
    };

    /// Creates a table with one holder. `gpa` must be safe for threads if several workers share the table.
    pub fn create(gpa: std.mem.Allocator) error{OutOfMemory}!*Admission {
        const admission = try gpa.create(Admission);
        // Without randomness the table still works; clients can only make addresses collide.
        admission.* = .{ .gpa = gpa, .seed = io.randomSeed() orelse @intFromPtr(admission) };
        return admission;
    }

    /// Adds a worker that uses the table.
    pub fn retain(admission: *Admission) *Admission {
        assert(admission.holders.load(.monotonic) > 0);
        _ = admission.holders.fetchAdd(1, .monotonic);
        return admission;
    }

    /// Ends a worker's use of the table. The last worker frees the table.
    pub fn release(admission: *Admission) void {
        assert(admission.holders.load(.monotonic) > 0);
        if (admission.holders.fetchSub(1, .acq_rel) > 1) return;
        admission.records.deinit(admission.gpa);
        admission.gpa.free(admission.heads);
        admission.gpa.destroy(admission);
    }

    /// Counts a new connection and decides about it. The peer of a Unix socket has no address and is always
    /// admitted.
    pub fn enter(
        admission: *Admission,
        address: *const io.Address,
        now_ms: u64,
        config: *const Config,
    ) Entry {
        if (config.address_connections_max == 0 and config.address_rate_max == 0) return .{};
        const key = keyOf(address) orelse return .{};
        admission.acquire();
        defer admission.lock.store(false, .release);
        const now = now_ms * std.time.us_per_ms;
        admission.forget(now);
        // Without memory for a record the connection is admitted and not counted, which is better than
        // refusing it.
        const index = admission.find(key) orelse admission.add(key) catch return .{};
        const record = &admission.records.items[index];
        const verdict = judge(record, now, config);
        if (verdict == .admitted) {
            admission.wake(index);
            record.open += 1;
        } else if (record.refused < answered_max) {
            admission.wake(index);
            record.refused += 1;
        } else return .{ .verdict = verdict };
        return .{ .record = @intCast(index), .verdict = verdict };
    }

    /// Ends the count of a connection that has closed.
    pub fn leave(admission: *Admission, entry: Entry) void {
        if (!entry.isCounted()) return;
        admission.acquire();
        defer admission.lock.store(false, .release);
        const record = &admission.records.items[entry.record];
        const place = if (entry.verdict == .admitted) &record.open else &record.refused;
        assert(place.* > 0);
        place.* -= 1;
        if (record.isUnused()) admission.sleep(entry.record);
    }

    /// Counts `bytes` more of an unfinished body for the address of its client. False: with the other bodies
    /// of the address they would exceed `bytes_max`, and nothing was counted. The only unfinished body of an
    /// address may be longer. The peer of a Unix socket has no address, and its bodies are not counted.
    pub fn charge(
        admission: *Admission,
        upload: *Upload,
        address: *const io.Address,
        bytes: u64,
        bytes_max: u64,
        now_ms: u64,
    ) bool {
        assert(bytes > 0);
        const key = keyOf(address) orelse return true;
        admission.acquire();
        defer admission.lock.store(false, .release);
        const is_new = upload.record == none;
        if (is_new) admission.forget(now_ms * std.time.us_per_ms);
        const index = if (!is_new) upload.record else admission.find(key) orelse
            admission.add(key) catch return true; // without memory for a record the upload goes on
        const record = &admission.records.items[index];
        const others = record.upload_bytes - upload.bytes;
        if (others > 0 and record.upload_bytes + bytes > bytes_max) return false;
        if (is_new) {
            admission.wake(index);
            record.uploads += 1;
            upload.record = index;
        }
        record.upload_bytes += bytes;
        upload.bytes += bytes;
        return true;
    }

    /// Ends the count of a body that is complete or was given up.
    pub fn discharge(admission: *Admission, upload: *Upload) void {
        if (upload.record == none) return;
        admission.acquire();
        defer admission.lock.store(false, .release);
        const record = &admission.records.items[upload.record];
        assert(record.uploads > 0 and record.upload_bytes >= upload.bytes);
        record.upload_bytes -= upload.bytes;
        record.uploads -= 1;
        if (record.isUnused()) admission.sleep(upload.record);
        upload.* = .{};
    }

    /// The memory that the table takes, in bytes.
    pub fn memoryBytes(admission: *Admission) usize {
        admission.acquire();
        defer admission.lock.store(false, .release);
        return admission.records.capacity * @sizeOf(Record) + admission.heads.len * @sizeOf(u32);
    }

    fn judge(record: *Record, now: u64, config: *const Config) Verdict {
        if (config.address_connections_max > 0 and record.open >= config.address_connections_max) {
            return .too_many;
        }
        if (config.address_rate_max == 0) return .admitted;
        // A token bucket that holds one second's worth, kept as one number: the time when the bucket is full
        // again. Each connection moves this time by `each` microseconds.
        const each = @max(window_us / config.address_rate_max, 1);
        const full_at = @max(record.full_at, now) + each;
        if (full_at - now > @max(window_us, each)) return .too_fast;
        record.full_at = full_at;
        return .admitted;
    }

    /// The key of an address in the table. IPv4 addresses get keys of IPv6 multicast (ff00::/8), from which
    /// no client connects.
    fn keyOf(address: *const io.Address) ?u64 {
        return switch (address.unmapped()) {
            .v4 => |v4| 0xFFFF_FFFF_0000_0000 | @as(u64, std.mem.readInt(u32, &v4.bytes, .big)),
            .v6 => |v6| std.mem.readInt(u64, v6.bytes[0..8], .big),
            .unix => null,
        };
    }

    // ---- Hash chains of records

    fn chain(admission: *const Admission, key: u64) *u32 {
        assert(std.math.isPowerOfTwo(admission.heads.len));
        const hash = std.hash.Wyhash.hash(admission.seed, std.mem.asBytes(&key));
        return &admission.heads[@intCast(hash & (admission.heads.len - 1))];
    }

    fn find(admission: *const Admission, key: u64) ?u32 {
        if (admission.heads.len == 0) return null;
        var index = admission.chain(key).*;
        while (index != none) : (index = admission.records.items[index].next) {
            if (admission.records.items[index].key == key) return index;
        }
        return null;
    }

    fn add(admission: *Admission, key: u64) error{OutOfMemory}!u32 {
        assert(admission.find(key) == null);
        if (admission.count >= admission.heads.len) try admission.grow();
        const index = if (admission.vacant != none) admission.vacant else fresh: {
            try admission.records.append(admission.gpa, undefined);
            break :fresh @as(u32, @intCast(admission.records.items.len - 1));
        };
        const record = &admission.records.items[index];
        if (index == admission.vacant) admission.vacant = record.next;
        const head = admission.chain(key);
        record.* = .{ .key = key, .next = head.* };
        head.* = index;
        admission.count += 1;
        return index;
    }

    fn grow(admission: *Admission) error{OutOfMemory}!void {
        const heads = try admission.gpa.alloc(u32, @max(admission.heads.len * 2, 64));
        @memset(heads, none);
        const before = admission.heads;
        admission.heads = heads;
        for (before) |first| {
            var index = first;
            while (index != none) {
                const record = &admission.records.items[index];
                const following = record.next;
                const head = admission.chain(record.key);
                record.next = head.*;
                head.* = index;
                index = following;
            }
        }
        admission.gpa.free(before);
    }

    fn remove(admission: *Admission, index: u32) void {
        const record = &admission.records.items[index];
        assert(record.isUnused() and !record.idle);
        var link = admission.chain(record.key);
        while (link.* != index) link = &admission.records.items[link.*].next;
        link.* = record.next;
        record.next = admission.vacant;
        admission.vacant = index;
        admission.count -= 1;
    }

    // ---- Records without connections and bodies

    /// Removes up to two records that are no longer needed: the rate allowance of their address is full, or
    /// there are more than `idle_max` idle ones. Two removals for each new record keep the table from
    /// growing.
    fn forget(admission: *Admission, now: u64) void {
        for (0..2) |_| {
            const index = admission.oldest;
            if (index == none) return;
            if (admission.records.items[index].full_at > now and admission.idle_count <= idle_max) return;
            admission.wake(index);
            admission.remove(index);
        }
    }

    /// Makes a record idle, because its address has no connection or unfinished body left.
    fn sleep(admission: *Admission, index: u32) void {
        const record = &admission.records.items[index];
        assert(record.isUnused() and !record.idle);
        record.idle = true;
        record.older = admission.newest;
        record.newer = none;
        if (admission.newest == none) {
            admission.oldest = index;
        } else {
            admission.records.items[admission.newest].newer = index;
        }
        admission.newest = index;
        admission.idle_count += 1;
    }

    /// Takes a record out of the list of idle records, if it is in the list.
    fn wake(admission: *Admission, index: u32) void {
        const record = &admission.records.items[index];
        if (!record.idle) return;
        record.idle = false;
        if (record.older == none) {
            admission.oldest = record.newer;
        } else {
            admission.records.items[record.older].newer = record.newer;
        }
        if (record.newer == none) {
            admission.newest = record.older;
        } else {
            admission.records.items[record.newer].older = record.older;
        }
        assert(admission.idle_count > 0);
        admission.idle_count -= 1;
    }

    fn acquire(admission: *Admission) void {
        var tries: u32 = 0;
        while (admission.lock.swap(true, .acquire)) : (tries +%= 1) {
            // The lock is held for some hundred nanoseconds, unless its holder was interrupted.
            if (tries % 64 == 63) std.Thread.yield() catch {};
            std.atomic.spinLoopHint();
        }
    }
};

const testing = std.testing;

fn addressOf(text: []const u8) io.Address {
    return io.Address.parse(text, 1234) catch unreachable;
}

test "an address may have so many connections open, and others are not concerned" {
    const admission: *Admission = try .create(testing.allocator);
    defer admission.release();
    const config: Config = .{ .address_connections_max = 2 };
    const one = addressOf("192.0.2.1");
    const other = addressOf("192.0.2.2");
    const first = admission.enter(&one, 5, &config);
    try testing.expectEqual(.admitted, first.verdict);
    try testing.expectEqual(.admitted, admission.enter(&one, 5, &config).verdict);
    try testing.expectEqual(.too_many, admission.enter(&one, 5, &config).verdict);
    try testing.expectEqual(.admitted, admission.enter(&other, 5, &config).verdict);
    admission.leave(first);
    try testing.expectEqual(.admitted, admission.enter(&one, 5, &config).verdict);
    try testing.expectEqual(.too_many, admission.enter(&one, 5, &config).verdict);
}

test "an IPv6 client is its /64, an IPv4 client behind IPv6 is itself" {
    const admission: *Admission = try .create(testing.allocator);
    defer admission.release();
    const config: Config = .{ .address_connections_max = 1 };
    try testing.expectEqual(.admitted, admission.enter(&addressOf("2001:db8:0:1::1"), 0, &config).verdict);
    try testing.expectEqual(
        .too_many,
        admission.enter(&addressOf("2001:db8:0:1:ffff::2"), 0, &config).verdict,
    );
    try testing.expectEqual(.admitted, admission.enter(&addressOf("2001:db8:0:2::1"), 0, &config).verdict);
    try testing.expectEqual(.admitted, admission.enter(&addressOf("::1"), 0, &config).verdict);
    try testing.expectEqual(.admitted, admission.enter(&addressOf("::ffff:192.0.2.1"), 0, &config).verdict);
    try testing.expectEqual(.too_many, admission.enter(&addressOf("192.0.2.1"), 0, &config).verdict);
    try testing.expectEqual(.admitted, admission.enter(&addressOf("::ffff:192.0.2.2"), 0, &config).verdict);
}

test "new connections at a rate: a second's worth at once, then one by one" {
    const admission: *Admission = try .create(testing.allocator);
    defer admission.release();
    const config: Config = .{ .address_rate_max = 10 };
    const one = addressOf("192.0.2.1");
    for (0..10) |_| {
        const entry = admission.enter(&one, 1000, &config);
        try testing.expectEqual(.admitted, entry.verdict);
        admission.leave(entry);
    }
    try testing.expectEqual(.too_fast, admission.enter(&one, 1000, &config).verdict);
    try testing.expectEqual(.too_fast, admission.enter(&one, 1099, &config).verdict);
    try testing.expectEqual(.admitted, admission.enter(&one, 1100, &config).verdict);
    try testing.expectEqual(.too_fast, admission.enter(&one, 1100, &config).verdict);
    try testing.expectEqual(.admitted, admission.enter(&addressOf("192.0.2.2"), 1100, &config).verdict);
    for (0..10) |_| try testing.expectEqual(.admitted, admission.enter(&one, 2200, &config).verdict);
    try testing.expectEqual(.too_fast, admission.enter(&one, 2200, &config).verdict);
}

test "a rate of one connection a second is possible" {
    const admission: *Admission = try .create(testing.allocator);
    defer admission.release();
    const config: Config = .{ .address_rate_max = 1 };
    const one = addressOf("192.0.2.1");
    try testing.expectEqual(.admitted, admission.enter(&one, 0, &config).verdict);
    try testing.expectEqual(.too_fast, admission.enter(&one, 999, &config).verdict);
    try testing.expectEqual(.admitted, admission.enter(&one, 1000, &config).verdict);
}

test "only some of the refused are counted" {
    const admission: *Admission = try .create(testing.allocator);
    defer admission.release();
    const config: Config = .{ .address_connections_max = 1 };
    const one = addressOf("192.0.2.1");
    const first = admission.enter(&one, 0, &config);
    var entries: [Admission.answered_max]Entry = undefined;
    for (&entries) |*entry| entry.* = admission.enter(&one, 0, &config);
    for (entries) |entry| try testing.expect(entry.isCounted());
    const cut = admission.enter(&one, 0, &config);
    try testing.expectEqual(.too_many, cut.verdict);
    try testing.expect(!cut.isCounted());
    for (entries) |entry| admission.leave(entry);
    admission.leave(cut);
    admission.leave(first);
    try testing.expectEqual(1, admission.idle_count);
}

test "a record stays while one of its clients is told why it was refused" {
    const admission: *Admission = try .create(testing.allocator);
    defer admission.release();
    const config: Config = .{ .address_connections_max = 1 };
    const one = addressOf("192.0.2.1");
    const first = admission.enter(&one, 0, &config);
    const refused = admission.enter(&one, 0, &config);
    admission.leave(first);
    try testing.expectEqual(0, admission.idle_count);
    admission.leave(refused);
    try testing.expectEqual(1, admission.idle_count);
}

test "a record is not forgotten while a refused client is counted in it" {
    const admission: *Admission = try .create(testing.allocator);
    defer admission.release();
    const config: Config = .{ .address_rate_max = 1 };
    const one = addressOf("192.0.2.1");
    admission.leave(admission.enter(&one, 0, &config));
    try testing.expectEqual(1, admission.idle_count);
    const refused = admission.enter(&one, 0, &config);
    try testing.expectEqual(.too_fast, refused.verdict);
    try testing.expectEqual(0, admission.idle_count);
    admission.leave(refused);
    try testing.expectEqual(1, admission.idle_count);
}

test "neighbours are not one address, and the fastest rate is a connection a microsecond" {
    const admission: *Admission = try .create(testing.allocator);
    defer admission.release();
    const config: Config = .{ .address_connections_max = 1, .address_rate_max = 1_000_000 };
    try testing.expectEqual(0, admission.memoryBytes());
    for ([_][]const u8{ "192.0.2.2", "192.0.2.3", "192.1.2.3", "193.0.2.3" }) |text| {
        const entry = admission.enter(&addressOf(text), 0, &config);
        try testing.expectEqual(.admitted, entry.verdict);
        try testing.expect(entry.isCounted());
        try testing.expectEqual(1, admission.records.items[entry.record].full_at);
    }
    try testing.expectEqual(admission.records.capacity * 56 + 64 * 4, admission.memoryBytes());
    try testing.expect(!admission.enter(&addressOf("192.0.2.2"), 0, &.{}).isCounted());
}

test "unfinished bodies of an address share a quota, and its only one may be longer" {
    const admission: *Admission = try .create(testing.allocator);
    defer admission.release();
    const one = addressOf("192.0.2.1");
    const other = addressOf("192.0.2.2");
    var uploads: [4]Upload = @splat(.{});
    try testing.expect(admission.charge(&uploads[0], &one, 150, 100, 0));
    try testing.expect(!admission.charge(&uploads[1], &one, 1, 100, 0));
    try testing.expect(admission.charge(&uploads[2], &other, 60, 100, 0));
    try testing.expect(admission.charge(&uploads[3], &other, 40, 100, 0));
    try testing.expect(!admission.charge(&uploads[2], &other, 1, 100, 0));
    admission.discharge(&uploads[3]);
    try testing.expect(admission.charge(&uploads[2], &other, 100, 100, 0));
    admission.discharge(&uploads[0]);
    try testing.expect(admission.charge(&uploads[1], &one, 1, 100, 0));
    for (&uploads) |*upload| admission.discharge(upload);
    // Unused records are forgotten when other addresses come.
    try testing.expectEqual(2, admission.count);
    for (0..3) |_| {
        try testing.expect(admission.charge(&uploads[0], &addressOf("192.0.2.3"), 1, 100, 9));
        admission.discharge(&uploads[0]);
    }
    try testing.expect(admission.count <= 1);
    const unix: io.Address = .{ .unix = .{ .buffer = @splat(0), .length = 0 } };
    try testing.expect(admission.charge(&uploads[0], &unix, 1000, 100, 9));
    try testing.expectEqual(none, uploads[0].record);
}

test "several workers share a table" {
    const admission: *Admission = try .create(testing.allocator);
    const Worker = struct {
        fn run(shared: *Admission, config: *const Config) void {
            for (0..5000) |n| {
                const address: io.Address = .{ .v4 = .{
                    .bytes = .{ 10, 0, 0, @truncate(n % 3) },
                    .port = 1,
                } };
                shared.leave(shared.enter(&address, 0, config));
            }
            shared.release();
        }
    };
    const config: Config = .{ .address_connections_max = 100 };
    var threads: [4]std.Thread = undefined;
    for (&threads) |*thread| thread.* = try .spawn(.{}, Worker.run, .{ admission.retain(), &config });
    for (threads) |thread| thread.join();
    for (admission.records.items) |record| try testing.expectEqual(0, record.open);
    admission.release();
}

test "memory is bounded: 300,000 addresses that come and go, and a thousand that stay" {
    const admission: *Admission = try .create(testing.allocator);
    defer admission.release();
    const config: Config = .{ .address_rate_max = 5, .address_connections_max = 5 };
    var kept: [1000]Entry = undefined;
    for (&kept, 0..) |*entry, n| {
        const address: io.Address = .{ .v4 = .{
            .bytes = .{ 10, 0, @intCast(n >> 8), @truncate(n) },
            .port = 1,
        } };
        entry.* = admission.enter(&address, 0, &config);
    }
    for (0..300_000) |n| {
        var bytes: [16]u8 = @splat(0x20);
        std.mem.writeInt(u32, bytes[4..8], @intCast(n), .big);
        const address: io.Address = .{ .v6 = .{ .bytes = bytes, .port = 1 } };
        // All connections come within a second, so that time alone removes no record.
        admission.leave(admission.enter(&address, n / 1_000_000, &config));
    }
    try testing.expectEqual(Admission.idle_max + 1, admission.idle_count);
    try testing.expect(std.math.isPowerOfTwo(admission.heads.len) and admission.heads.len >= admission.count);
    try testing.expect(admission.memoryBytes() < 16 * 1024 * 1024);
    for (kept, 0..) |entry, n| {
        const address: io.Address = .{ .v4 = .{
            .bytes = .{ 10, 0, @intCast(n >> 8), @truncate(n) },
            .port = 1,
        } };
        try testing.expectEqual(entry.record, admission.find(Admission.keyOf(&address).?).?);
        admission.leave(entry);
    }
    // A second later each new address removes two old records.
    for (0..100_000) |n| {
        const address: io.Address = .{ .v4 = .{ .bytes = .{ 11, 0, 0, @truncate(n) }, .port = 1 } };
        admission.leave(admission.enter(&address, 10_000 + n, &config));
    }
    try testing.expect(admission.count <= 256 + 1);
}
