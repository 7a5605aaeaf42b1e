//! Small files that were served lately, with their contents. Whoever asks has looked at the file just now and says what it saw: an entry
//! that is not of exactly that file in that state is no answer, so nothing here is ever out of date. Bounded: one entry per slot of a
//! fixed table, each of at most `entry_bytes_max`.
//! Refuses to know: how files are found.
const std = @import("std");
const assert = std.debug.assert;
const Identity = @import("files.zig").Identity;

/// The largest file that is kept, in bytes: what a response sends in one write with its head.
pub const entry_bytes_max = 16 * 1024;
const slot_count = 256;

/// A file's contents in a certain state. Does not change; freed by its last holder.
pub const Entry = struct {
    references: std.atomic.Value(u32),
    identity: Identity,
    name_len: u32,
    /// The name, then the contents.
    memory: []u8,

    fn name(entry: *const Entry) []const u8 {
        return entry.memory[0..entry.name_len];
    }

    /// The content.
    pub fn bytes(entry: *const Entry) []const u8 {
        return entry.memory[entry.name_len..];
    }
};

/// Safe for threads, if its allocator is.
pub const Cache = struct {
    gpa: std.mem.Allocator,
    busy: std.atomic.Value(bool) = .init(false),
    slots: [slot_count]?*Entry = @splat(null),

    pub fn deinit(cache: *Cache) void {
        for (&cache.slots) |*slot| if (slot.*) |entry| cache.release(entry);
        cache.* = undefined;
    }

    /// The entry of a file in this very state, held for the caller until `release`; null if there is none.
    pub fn get(cache: *Cache, name: []const u8, identity: Identity) ?*Entry {
        const slot = cache.slotOf(name);
        cache.lock();
        defer cache.unlock();
        const entry = slot.* orelse return null;
        if (!std.meta.eql(entry.identity, identity) or !std.mem.eql(u8, entry.name(), name)) return null;
        _ = entry.references.fetchAdd(1, .monotonic);
        return entry;
    }

    /// A fresh entry with room for a file's contents, for the caller to fill and then `put` or `release`.
    pub fn create(cache: *Cache, name: []const u8, identity: Identity) error{OutOfMemory}!*Entry {
        assert(identity.size <= entry_bytes_max);
        const entry = try cache.gpa.create(Entry);
        errdefer cache.gpa.destroy(entry);
        const memory = try cache.gpa.alloc(u8, name.len + @as(usize, @intCast(identity.size)));
        @memcpy(memory[0..name.len], name);
        entry.* = .{ .references = .init(1), .identity = identity, .name_len = @intCast(name.len), .memory = memory };
        return entry;
    }

    /// Where `create` wants the contents.
    pub fn space(entry: *Entry) []u8 {
        return entry.memory[entry.name_len..];
    }

    /// Makes a filled entry known. The caller still holds it.
    pub fn put(cache: *Cache, entry: *Entry) void {
        _ = entry.references.fetchAdd(1, .monotonic);
        const slot = cache.slotOf(entry.name());
        cache.lock();
        const before = slot.*;
        slot.* = entry;
        cache.unlock();
        if (before) |old| cache.release(old);
    }

    /// One holder less.
    pub fn release(cache: *Cache, entry: *Entry) void {
        if (entry.references.fetchSub(1, .acq_rel) > 1) return;
        cache.gpa.free(entry.memory);
        cache.gpa.destroy(entry);
    }

    fn slotOf(cache: *Cache, name: []const u8) *?*Entry {
        return &cache.slots[std.hash.Wyhash.hash(0, name) % slot_count];
    }

    /// Held for a look at one slot.
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

test "an entry answers for its own state only, and lives as long as somebody holds it" {
    var cache: Cache = .{ .gpa = testing.allocator };
    defer cache.deinit();
    const first = try cache.create("a", stateOf(3, 100));
    @memcpy(Cache.space(first), "one");
    cache.put(first);
    cache.release(first);
    try testing.expectEqual(null, cache.get("a", stateOf(3, 101)));
    try testing.expectEqual(null, cache.get("a", stateOf(4, 100)));
    try testing.expectEqual(null, cache.get("b", stateOf(3, 100)));
    const held = cache.get("a", stateOf(3, 100)).?;
    const second = try cache.create("a", stateOf(3, 101));
    @memcpy(Cache.space(second), "two");
    cache.put(second);
    cache.release(second);
    try testing.expectEqualStrings("one", held.bytes());
    cache.release(held);
    try testing.expectEqual(null, cache.get("a", stateOf(3, 100)));
    const now = cache.get("a", stateOf(3, 101)).?;
    defer cache.release(now);
    try testing.expectEqualStrings("two", now.bytes());
}

test "many names in few slots" {
    var cache: Cache = .{ .gpa = testing.allocator };
    defer cache.deinit();
    for (0..1000) |i| {
        var buffer: [8]u8 = undefined;
        const name = try std.fmt.bufPrint(&buffer, "{d}", .{i});
        const entry = try cache.create(name, stateOf(8, @intCast(i)));
        std.mem.writeInt(u64, Cache.space(entry)[0..8], i, .little);
        cache.put(entry);
        cache.release(entry);
        const found = cache.get(name, stateOf(8, @intCast(i))).?;
        defer cache.release(found);
        try testing.expectEqual(i, std.mem.readInt(u64, found.bytes()[0..8], .little));
    }
}
