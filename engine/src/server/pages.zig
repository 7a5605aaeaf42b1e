//! Items of one kind in pages that hold nothing else: a page goes back to the kernel when all its items were
//! given back. Does not know: the items.
const std = @import("std");
const assert = std.debug.assert;

/// The size and alignment of a page in bytes. The page of an item is found from the item's address.
const page_bytes = 32 * 1024;

/// A set of `T` at stable addresses. `take` returns uninitialised memory.
pub fn Pages(comptime T: type) type {
    return struct {
        const Self = @This();

        /// The place of an item that was given back holds a pointer to the next free place.
        const Link = struct { next: ?*Link };

        const Page = struct {
            /// Neighbours among the pages with room.
            previous: ?*Page = null,
            next: ?*Page = null,
            /// Free places whose items were given back, the last one first.
            free: ?*Link = null,
            /// The number of places that were ever taken; the places behind them are untouched.
            begun: u32 = 0,
            used: u32 = 0,
            items: [item_count]T,

            const item_count = (page_bytes - 4 * @sizeOf(usize)) / @sizeOf(T);

            fn of(item: *T) *Page {
                return @ptrFromInt(std.mem.alignBackward(usize, @intFromPtr(item), page_bytes));
            }
        };

        /// The allocator of pages. Most allocators keep only smaller memory for reuse.
        allocator: std.mem.Allocator,
        /// Pages with room.
        first: ?*Page = null,
        /// Items in use.
        count: usize = 0,

        comptime {
            assert(@sizeOf(Page) <= page_bytes and Page.item_count >= 8);
            assert(@sizeOf(T) >= @sizeOf(Link) and @alignOf(T) >= @alignOf(Link));
        }

        pub fn init(allocator: std.mem.Allocator) Self {
            return .{ .allocator = allocator };
        }

        /// Frees all pages. All items must have been given back.
        pub fn deinit(self: *Self) void {
            assert(self.count == 0);
            if (self.first) |page| {
                assert(page.used == 0 and page.next == null);
                self.discard(page);
            }
            self.* = undefined;
        }

        /// An item, valid until `give`.
        pub fn take(self: *Self) error{OutOfMemory}!*T {
            if (self.first == null) try self.grow();
            const page = self.first.?;
            page.used += 1;
            self.count += 1;
            if (page.used == Page.item_count) self.unlink(page);
            if (page.free) |link| {
                page.free = link.next;
                return @ptrCast(link);
            }
            page.begun += 1;
            return &page.items[page.begun - 1];
        }

        /// Takes an item back and frees its page if that is empty. The only page with room stays for the next
        /// item.
        pub fn give(self: *Self, item: *T) void {
            const page: *Page = .of(item);
            assert(page.used > 0 and self.count > 0);
            if (page.used == Page.item_count) self.enlist(page);
            const link: *Link = @ptrCast(item);
            link.next = page.free;
            page.free = link;
            page.used -= 1;
            self.count -= 1;
            const is_only = self.first == page and page.next == null;
            if (page.used > 0 or is_only) return;
            self.unlink(page);
            self.discard(page);
        }

        fn enlist(self: *Self, page: *Page) void {
            page.previous = null;
            page.next = self.first;
            if (page.next) |next| next.previous = page;
            self.first = page;
        }

        fn unlink(self: *Self, page: *Page) void {
            if (page.previous) |previous| previous.next = page.next else self.first = page.next;
            if (page.next) |next| next.previous = page.previous;
        }

        noinline fn grow(self: *Self) error{OutOfMemory}!void {
            @branchHint(.cold);
            // `create` would fill all of the page in builds with checks, and so touch it.
            const alignment: std.mem.Alignment = .fromByteUnits(page_bytes);
            const memory = self.allocator.rawAlloc(page_bytes, alignment, @returnAddress()) orelse
                return error.OutOfMemory;
            const page: *Page = @ptrCast(@alignCast(memory));
            page.previous = null;
            page.next = null;
            page.free = null;
            page.begun = 0;
            page.used = 0;
            self.enlist(page);
        }

        noinline fn discard(self: *Self, page: *Page) void {
            @branchHint(.cold);
            const memory: *align(page_bytes) [page_bytes]u8 = @ptrCast(@alignCast(page));
            self.allocator.rawFree(memory, .fromByteUnits(page_bytes), @returnAddress());
        }
    };
}

const testing = std.testing;

test "items keep their places and their pages, which go when they are empty" {
    const Item = [125]u64;
    var pages: Pages(Item) = .init(testing.allocator);
    defer pages.deinit();
    var prng: std.Random.DefaultPrng = .init(1);
    const random = prng.random();
    var held: std.ArrayList(*Item) = .empty;
    defer held.deinit(testing.allocator);
    for (0..4000) |round| {
        const grows = round / 1000 % 2 == 0;
        if (random.uintLessThan(u8, 3) < @as(u8, if (grows) 2 else 1)) {
            const item = try pages.take();
            @memset(item, @intFromPtr(item));
            try held.append(testing.allocator, item);
        } else if (held.items.len > 0) {
            const item = held.swapRemove(random.uintLessThan(usize, held.items.len));
            for (item) |value| try testing.expectEqual(@intFromPtr(item), value);
            pages.give(item);
        }
        try testing.expectEqual(held.items.len, pages.count);
    }
    for (held.items) |item| pages.give(item);
    // All pages but one were freed; the test's allocator reports pages that were not.
    try testing.expect(pages.first.?.next == null and pages.first.?.used == 0);
}

test "a page that cannot be had costs nothing" {
    var pages: Pages([250]u64) = .init(testing.failing_allocator);
    defer pages.deinit();
    try testing.expectError(error.OutOfMemory, pages.take());
    try testing.expectEqual(0, pages.count);
}
