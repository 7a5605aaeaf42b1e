//! Small files that were served lately, with their contents and headers. The caller looks at the file as
//! well; an entry counts only while the file is in the same state. Bounded: one entry per slot of a fixed
//! table, each of at most `entry_bytes_max`. Does not know: how files are found.
const std = @import("std");
const assert = std.debug.assert;
const Identity = @import("files.zig").Identity;

/// The largest file that is kept, in bytes: what a response sends in one write with its head.
pub const entry_bytes_max = 16 * 1024;
const slot_count = 256;

/// A file's contents in a certain state. Does not change once it is known; freed by its last holder.
pub const Entry = struct {
    cache: *Cache,
    references: std.atomic.Value(u32),
    identity: Identity,
    /// When the round of a worker's loop began in which the file was last seen to be in this state
    /// (Request.round_us).
    seen_us: std.atomic.Value(u64),
    key_len: u32,
    name_len: u32,
    /// Key, name, NUL, contents.
    memory: []u8,
    /// Headers of a whole answer, in wire form, and their number; empty before the first answer.
    lines: []const u8 = "",
    line_count: u16 = 0,
    /// Whether clients that accept content codings may get another file.
    varies: bool = false,

    fn key(entry: *const Entry) []const u8 {
        return entry.memory[0..entry.key_len];
    }

    /// The file's name below the folder.
    pub fn name(entry: *const Entry) [*:0]const u8 {
        return entry.memory[entry.key_len..][0..entry.name_len :0];
    }

    /// The content, which the caller of `create` fills.
    pub fn bytes(entry: *const Entry) []u8 {
        return entry.memory[entry.key_len + entry.name_len + 1 ..];
    }

    /// Drops one reference to the entry; the last one frees it.
    pub fn release(entry: *Entry) void {
        if (entry.references.fetchSub(1, .acq_rel) > 1) return;
        const gpa = entry.cache.gpa;
        gpa.free(entry.lines);
        gpa.free(entry.memory);
        gpa.destroy(entry);
    }

    /// Counts one more reference to the entry.
    pub fn retain(entry: *Entry) void {
        _ = entry.references.fetchAdd(1, .monotonic);
    }
};

/// Safe for threads, if its allocator is.
pub const Cache = struct {
    gpa: std.mem.Allocator,
    busy: std.atomic.Value(bool) = .init(false),
    slots: [slot_count]?*Entry = @splat(null),

    pub fn deinit(cache: *Cache) void {
        for (&cache.slots) |*slot| if (slot.*) |entry| entry.release();
        cache.* = undefined;
    }

    /// The entry of a key, whatever the file's state, held for the caller until its `release`; null: none.
    pub fn get(cache: *Cache, key: []const u8) ?*Entry {
        const slot = cache.slotOf(key);
        cache.lock();
        defer cache.unlock();
        const entry = slot.* orelse return null;
        if (!std.mem.eql(u8, entry.key(), key)) return null;
        entry.retain();
        return entry;
    }

    /// A fresh entry with room for a file's contents, for the caller to fill, to `put` and to release.
    pub fn create(
        cache: *Cache,
        key: []const u8,
        name: []const u8,
        identity: Identity,
        round_us: u64,
    ) error{OutOfMemory}!*Entry {
        assert(identity.size <= entry_bytes_max);
        const entry = try cache.gpa.create(Entry);
        errdefer cache.gpa.destroy(entry);
        const memory = try cache.gpa.alloc(u8, key.len + name.len + 1 + @as(usize, @intCast(identity.size)));
        @memcpy(memory[0..key.len], key);
        @memcpy(memory[key.len..][0..name.len], name);
        memory[key.len + name.len] = 0;
        entry.* = .{
            .cache = cache,
            .references = .init(1),
            .identity = identity,
            .seen_us = .init(round_us),
            .key_len = @intCast(key.len),
            .name_len = @intCast(name.len),
            .memory = memory,
        };
        return entry;
    }

    /// Makes a filled entry known. The caller still holds it.
    pub fn put(cache: *Cache, entry: *Entry) void {
        entry.retain();
        const slot = cache.slotOf(entry.key());
        cache.lock();
        const before = slot.*;
        slot.* = entry;
        cache.unlock();
        if (before) |old| old.release();
    }

    fn slotOf(cache: *Cache, key: []const u8) *?*Entry {
        return &cache.slots[std.hash.Wyhash.hash(0, key) % slot_count];
    }

    /// Takes the lock, which is held only while one slot is read or changed.
    fn lock(cache: *Cache) void {
        while (cache.busy.swap(true, .acquire)) std.Thread.yield() catch {};
    }

    fn unlock(cache: *Cache) void {
        cache.busy.store(false, .release);
    }
};

const testing = std.testing;

fn stateOf(size: u64, modified_ns: i128) Identity {
    return .{ .device = 1, .inode = 2, .size = size, .modified_ns = modified_ns, .changed_ns = modified_ns };
}

test "an entry lives as long as somebody holds it, and the newest one of a key is found" {
    var cache: Cache = .{ .gpa = testing.allocator };
    defer cache.deinit();
    const first = try cache.create("/a", "a", stateOf(3, 100), 1);
    @memcpy(first.bytes(), "one");
    first.lines = try testing.allocator.dupe(u8, "X: 1\r\n");
    cache.put(first);
    first.release();
    try testing.expectEqual(null, cache.get("/b"));
    const held = cache.get("/a").?;
    const second = try cache.create("/a", "a", stateOf(3, 101), 1);
    @memcpy(second.bytes(), "two");
    cache.put(second);
    second.release();
    try testing.expectEqualStrings("one", held.bytes());
    held.release();
    const now = cache.get("/a").?;
    defer now.release();
    try testing.expectEqualStrings("two", now.bytes());
    try testing.expectEqualStrings("a", std.mem.span(now.name()));
    try testing.expectEqual(stateOf(3, 101), now.identity);
}

test "many keys in few slots" {
    var cache: Cache = .{ .gpa = testing.allocator };
    defer cache.deinit();
    for (0..1000) |i| {
        var buffer: [8]u8 = undefined;
        const key = try std.fmt.bufPrint(&buffer, "/{d}", .{i});
        const entry = try cache.create(key, key[1..], stateOf(8, @intCast(i)), 0);
        std.mem.writeInt(u64, entry.bytes()[0..8], i, .little);
        cache.put(entry);
        entry.release();
        const found = cache.get(key).?;
        defer found.release();
        try testing.expectEqual(i, std.mem.readInt(u64, found.bytes()[0..8], .little));
    }
}
