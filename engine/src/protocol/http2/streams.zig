//! The open streams of a connection, in memory from the owner; the memory of closed streams; and the order in
//! which open ones are sent from (RFC 9113 section 5.1, RFC 9218 section 10). Does not know: frames, and the
//! content of output.
const std = @import("std");
const assert = std.debug.assert;
const Code = @import("frame.zig").Code;
const Method = @import("../http/method.zig").Method;
const Order = @import("../http/order.zig").Order;
const Priority = @import("priority.zig").Priority;

/// The index that stands for no place.
const nowhere = std.math.maxInt(u16);

/// The maximum number of streams of a table.
pub const streams_max = nowhere - 1;

/// An open stream. The owner provides memory for a number of them.
pub const Stream = struct {
    /// 0: the place is free.
    id: u32 = 0,
    /// The number that the session's owner gave the stream; 0: none.
    owner: u64 = 0,
    order: Order = .unstarted,
    input: Input = .open,
    method: Method = .GET,
    /// Tells if the client waits for 100 (Continue).
    continuation: enum(u8) { not_expected, expected, sent } = .not_expected,
    /// The peer's window for our content, in bytes; below zero if the peer has reduced its windows.
    send_window: i64 = 0,
    /// Our window for the peer's content, in bytes.
    receive_window: i64 = 0,
    /// The content that was delivered and not released, in bytes.
    unreleased: u32 = 0,
    /// The bytes that were released and not announced by a WINDOW_UPDATE.
    unannounced: u32 = 0,
    /// The bytes of content that have come.
    received: u64 = 0,
    /// For a lingering stream: the number of bytes of content that may still come, and true if it was
    /// lingering at the last `Session.endLingering`.
    linger_left: u32 = 0,
    lingers_long: bool = false,
    /// The Content-Length of the request; null: none.
    promised: ?u64 = null,
    /// The content that waits to be framed, in bytes.
    queued: u64 = 0,
    /// The content after `queued` that must not be framed yet, in bytes; it is the last content.
    withheld: u64 = 0,
    /// The bytes of the block of trailers that waits behind the content.
    trailers: u32 = 0,
    priority: Priority = .{},
    /// A field of the response was dropped because only the engine may send it.
    dropped_field: bool = false,
    /// The neighbours in a list of streams to send from, or in the list of free places.
    next: u16 = nowhere,
    previous: u16 = nowhere,
    /// The urgency of that list; null: in no list.
    list: ?u3 = null,
    /// Streams are found by a hash of their numbers: the place of the next stream with the same hash, and the
    /// place of the first stream whose hash is this place's index.
    chain: u16 = nowhere,
    bucket: u16 = nowhere,
    /// The RST_STREAM that is still to be sent for a closed stream. For an open stream it is sent when the
    /// queued content was framed.
    doomed: Doom = .{},

    pub const Doom = struct { id: u32 = 0, code: Code = .no_error };

    /// The progress of the peer's half of the stream.
    pub const Input = enum {
        /// Content comes and is read.
        open,
        /// The peer's half has ended.
        ended,
        /// Content comes and is not read.
        refused,
        /// The peer's half goes on after a response that was framed to its end.
        lingering,
    };

    /// Whether the application has ended the response.
    pub fn isAnswered(stream: *const Stream) bool {
        return stream.order == .ended;
    }

    /// Whether the application has ended the response and no content is withheld.
    pub fn isDone(stream: *const Stream) bool {
        return stream.isAnswered() and stream.withheld == 0;
    }

    /// Whether the stream is to be reset after its queued content.
    pub fn isCut(stream: *const Stream) bool {
        return stream.doomed.id != 0;
    }

    /// Whether there is output to be framed, windows aside.
    pub fn waits(stream: *const Stream) bool {
        return stream.queued > 0 or (stream.isDone() and stream.input != .lingering);
    }

    /// Whether the next output is content, which needs windows.
    pub fn needsWindow(stream: *const Stream) bool {
        return stream.queued > 0;
    }
};

pub const Streams = struct {
    places: []Stream,
    free: u16,
    count: u16 = 0,
    lists: [8]List = @splat(.{}),
    doomed: List = .{},
    closed: Closed = .{},

    const List = struct { first: u16 = nowhere, last: u16 = nowhere };

    /// Makes an empty table. The caller owns the memory, which must outlive the table.
    pub fn init(places: []Stream) Streams {
        assert(places.len <= streams_max);
        for (places, 1..) |*place, following| {
            place.* = .{ .next = if (following == places.len) nowhere else @intCast(following) };
        }
        return .{ .places = places, .free = if (places.len == 0) nowhere else 0 };
    }

    /// Moves the streams to other memory, with places for all of them; returns the former memory.
    pub fn rehouse(streams: *Streams, places: []Stream) []Stream {
        var old = streams.*;
        streams.* = .init(places);
        streams.closed = old.closed;
        for (old.lists) |list| {
            var at = list.first;
            while (at != nowhere) {
                const stream = &old.places[at];
                at = stream.next;
                streams.append(streams.moveIn(stream));
            }
        }
        var it = old.iterator();
        while (it.next()) |stream| if (stream.list == null) {
            _ = streams.moveIn(stream);
        };
        while (old.nextDoomed()) |doomed| streams.pushDoomed(streams.takePlace(), doomed);
        return old.places;
    }

    fn moveIn(streams: *Streams, from: *const Stream) *Stream {
        const to = streams.open(from.id).?;
        const chain, const bucket = .{ to.chain, to.bucket };
        to.* = from.*;
        to.chain = chain;
        to.bucket = bucket;
        to.list = null;
        return to;
    }

    fn bucketOf(streams: *const Streams, id: u32) *u16 {
        return &streams.places[(id >> 1) % streams.places.len].bucket;
    }

    /// Returns the open stream with this number; null: none.
    pub fn find(streams: *const Streams, id: u32) ?*Stream {
        if (streams.places.len == 0) return null;
        var at = streams.bucketOf(id).*;
        while (at != nowhere) {
            const stream = &streams.places[at];
            if (stream.id == id) return stream;
            at = stream.chain;
        }
        return null;
    }

    /// Opens a stream; null: there is no free place.
    pub fn open(streams: *Streams, id: u32) ?*Stream {
        assert(id != 0 and streams.find(id) == null);
        if (!streams.hasPlace()) return null;
        const at = streams.takePlace();
        const stream = &streams.places[at];
        const bucket = streams.bucketOf(id);
        stream.* = .{ .id = id, .bucket = stream.bucket };
        stream.chain = bucket.*;
        bucket.* = at;
        streams.count += 1;
        return stream;
    }

    fn takePlace(streams: *Streams) u16 {
        const at = streams.free;
        streams.free = streams.places[at].next;
        return at;
    }

    /// Whether there is a free place.
    pub fn hasPlace(streams: *const Streams) bool {
        return streams.free != nowhere;
    }

    /// Closes a stream, and stores how it ended.
    pub fn close(streams: *Streams, stream: *Stream, how: Closed.How) void {
        const at = streams.remove(stream, how);
        streams.giveBack(at);
    }

    /// Closes a stream of which RST_STREAM must still be sent (`nextDoomed`). It keeps its place until then.
    pub fn doom(streams: *Streams, stream: *Stream, code: Code) void {
        const id = stream.id;
        streams.pushDoomed(streams.remove(stream, .by_us), .{ .id = id, .code = code });
    }

    fn pushDoomed(streams: *Streams, at: u16, doomed: Stream.Doom) void {
        const place = &streams.places[at];
        place.* = .{ .bucket = place.bucket, .doomed = doomed };
        const list = &streams.doomed;
        if (list.last == nowhere) list.first = at else streams.places[list.last].next = at;
        list.last = at;
    }

    /// Returns the next closed stream of which RST_STREAM must be sent, and frees its place; null: none.
    pub fn nextDoomed(streams: *Streams) ?Stream.Doom {
        const at = streams.doomed.first;
        if (at == nowhere) return null;
        const place = &streams.places[at];
        streams.doomed.first = place.next;
        if (place.next == nowhere) streams.doomed.last = nowhere;
        const doom_of = place.doomed;
        streams.giveBack(at);
        return doom_of;
    }

    /// Whether RST_STREAM must still be sent for a closed stream.
    pub fn hasDoomed(streams: *const Streams) bool {
        return streams.doomed.first != nowhere;
    }

    fn remove(streams: *Streams, stream: *Stream, how: Closed.How) u16 {
        streams.unlist(stream);
        streams.closed.note(stream.id, how);
        const at = streams.placeOf(stream);
        var link = streams.bucketOf(stream.id);
        while (link.* != at) link = &streams.places[link.*].chain;
        link.* = stream.chain;
        stream.* = .{ .bucket = stream.bucket };
        streams.count -= 1;
        return at;
    }

    fn giveBack(streams: *Streams, at: u16) void {
        streams.places[at] = .{ .next = streams.free, .bucket = streams.places[at].bucket };
        streams.free = at;
    }

    fn placeOf(streams: *const Streams, stream: *const Stream) u16 {
        return @intCast(stream - streams.places.ptr);
    }

    /// Returns an iterator over all open streams.
    pub fn iterator(streams: *const Streams) Iterator {
        return .{ .places = streams.places };
    }

    pub const Iterator = struct {
        places: []Stream,

        /// Returns the next open stream; null: the end. The caller may close the stream before the next call.
        pub fn next(it: *Iterator) ?*Stream {
            while (it.places.len > 0) {
                const stream = &it.places[0];
                it.places = it.places[1..];
                if (stream.id != 0) return stream;
            }
            return null;
        }
    };

    /// Adds a stream to the end of its urgency's list if it has output that may be sent, otherwise removes it
    /// from its list.
    pub fn settle(streams: *Streams, stream: *Stream) void {
        const ready = stream.waits() and (!stream.needsWindow() or stream.send_window > 0);
        if (!ready) return streams.unlist(stream);
        if (stream.list) |list| {
            if (list == stream.priority.urgency) return;
            streams.unlist(stream);
        }
        streams.append(stream);
    }

    fn append(streams: *Streams, stream: *Stream) void {
        const at = streams.placeOf(stream);
        const list = &streams.lists[stream.priority.urgency];
        stream.list = stream.priority.urgency;
        stream.previous = list.last;
        stream.next = nowhere;
        if (list.last == nowhere) list.first = at else streams.places[list.last].next = at;
        list.last = at;
    }

    fn unlist(streams: *Streams, stream: *Stream) void {
        const list = &streams.lists[stream.list orelse return];
        if (stream.previous == nowhere) {
            list.first = stream.next;
        } else streams.places[stream.previous].next = stream.next;
        if (stream.next == nowhere) {
            list.last = stream.previous;
        } else streams.places[stream.next].previous = stream.previous;
        stream.list = null;
    }

    /// Ends the turn of a stream: moves it to the end of its list.
    pub fn rotate(streams: *Streams, stream: *Stream) void {
        if (stream.list == null or stream.next == nowhere) return;
        streams.unlist(stream);
        streams.append(stream);
    }

    /// Whether no stream has output that may be sent.
    pub fn isQuiet(streams: *const Streams) bool {
        for (streams.lists) |list| if (list.first != nowhere) return false;
        return true;
    }

    /// Returns the stream to send from next; null: none. `content`: content may be sent.
    pub fn first(streams: *const Streams, content: bool) ?*Stream {
        for (streams.lists) |list| {
            var at = list.first;
            while (at != nowhere) {
                const stream = &streams.places[at];
                if (content or !stream.needsWindow()) return stream;
                at = stream.next;
            }
        }
        return null;
    }

    /// Asserts the invariants of the table.
    pub fn invariants(streams: *const Streams) void {
        var open_count: usize = 0;
        for (streams.places) |*stream| {
            if (stream.id == 0) continue;
            open_count += 1;
            assert(streams.find(stream.id) == stream);
            const ready = stream.waits() and (!stream.needsWindow() or stream.send_window > 0);
            assert(ready == (stream.list != null));
            if (stream.list) |list| assert(list == stream.priority.urgency);
        }
        assert(open_count == streams.count);
    }
};

/// The past of the last closed streams: frames that were under way at their end are no fault, others are.
pub const Closed = struct {
    ring: [size]u32 = @splat(0),
    next: u8 = 0,
    /// The highest number whose end was forgotten.
    forgotten: u32 = 0,

    const size = 32;

    /// The way in which a stream ended.
    pub const How = enum(u2) {
        /// Both sides have ended.
        ended,
        /// The peer has reset it.
        by_peer,
        /// We have reset it, which the peer may not have known.
        by_us,
    };

    /// The past of a number that is not open and is not higher than the newest stream's.
    pub const Memory = union(enum) {
        closed: How,
        /// The stream was closed long ago.
        forgotten,
        /// The peer has skipped the number.
        never_opened,
    };

    /// Stores the end of a stream, or that its number was skipped.
    pub fn note(closed: *Closed, id: u32, how: How) void {
        const entry = &closed.ring[closed.next];
        if (entry.* != 0) closed.forgotten = @max(closed.forgotten, idOf(entry.*));
        entry.* = id >> 1 << 2 | (@as(u32, @backingInt(how)) + 1);
        closed.next = (closed.next + 1) % size;
    }

    /// Returns the number in an entry; clients' streams have odd numbers.
    fn idOf(entry: u32) u32 {
        return entry >> 2 << 1 | 1;
    }

    /// Returns the past of a number.
    pub fn recall(closed: *const Closed, id: u32) Memory {
        for (closed.ring) |entry| {
            if (entry != 0 and idOf(entry) == id) {
                return .{ .closed = @fromBackingInt(@as(u2, @intCast((entry & 3) - 1))) };
            }
        }
        return if (id <= closed.forgotten) .forgotten else .never_opened;
    }
};

const testing = std.testing;

test "streams open and close, in any order" {
    var places: [7]Stream = undefined;
    var streams: Streams = .init(&places);
    var prng: std.Random.DefaultPrng = .init(2);
    const random = prng.random();
    var open: [7]u32 = @splat(0);
    var id: u32 = 1;
    for (0..10_000) |_| {
        const slot = &open[random.uintLessThan(usize, open.len)];
        if (slot.* == 0) {
            try testing.expectEqual(null, streams.find(id));
            slot.* = id;
            try testing.expectEqual(id, streams.open(id).?.id);
            id += 2 * random.intRangeAtMost(u32, 1, 3);
        } else {
            const stream = streams.find(slot.*).?;
            stream.queued = random.uintLessThan(u64, 2);
            stream.send_window = random.uintLessThan(u8, 2);
            stream.priority.urgency = random.int(u3);
            streams.settle(stream);
            if (random.boolean()) {
                streams.close(stream, .by_us);
                try testing.expectEqual(Closed.Memory{ .closed = .by_us }, streams.closed.recall(slot.*));
                slot.* = 0;
            }
        }
        streams.invariants();
        var least: ?u3 = null;
        var it = streams.iterator();
        while (it.next()) |stream| if (stream.list) |list| {
            least = @min(least orelse list, list);
        };
        const first = streams.first(true);
        try testing.expectEqual(least, if (first) |stream| stream.priority.urgency else null);
    }
    for (&open) |*slot| if (slot.* == 0) {
        slot.* = id;
        _ = streams.open(id).?;
        id += 2;
    };
    try testing.expectEqual(null, streams.open(id));
}

test "turns, and what needs no window" {
    var places: [3]Stream = undefined;
    var streams: Streams = .init(&places);
    for ([_]u32{ 1, 3, 5 }) |id| {
        const stream = streams.open(id).?;
        stream.queued = 10;
        stream.send_window = 10;
        streams.settle(stream);
    }
    for ([_]u32{ 1, 3, 5, 1 }) |id| {
        const stream = streams.first(true).?;
        try testing.expectEqual(id, stream.id);
        streams.rotate(stream);
    }
    try testing.expectEqual(null, streams.first(false));
    const last = streams.find(5).?;
    last.queued = 0;
    last.order = .ended;
    streams.settle(last);
    try testing.expectEqual(last, streams.first(false).?);
    last.priority.urgency = 0;
    streams.settle(last);
    try testing.expectEqual(last, streams.first(true).?);
    streams.close(last, .ended);
    try testing.expect(!streams.isQuiet());
}

test "moving house" {
    var small: [3]Stream = undefined;
    var large: [8]Stream = undefined;
    var streams: Streams = .init(&small);
    for ([_]u32{ 1, 3, 5 }) |id| {
        const stream = streams.open(id).?;
        stream.queued = 10;
        stream.send_window = 10;
        streams.settle(stream);
    }
    streams.rotate(streams.find(1).?);
    streams.doom(streams.find(3).?, .cancel);
    try testing.expectEqual(small[0..].ptr, streams.rehouse(&large).ptr);
    streams.invariants();
    try testing.expectEqual(2, streams.count);
    for ([_]u32{ 5, 1 }) |id| {
        const stream = streams.first(true).?;
        try testing.expectEqual(id, stream.id);
        try testing.expectEqual(10, stream.queued);
        streams.rotate(stream);
    }
    for ([_]u32{ 7, 9, 11, 13, 15 }) |id| _ = streams.open(id).?;
    try testing.expect(!streams.hasPlace());
    try testing.expectEqual(Stream.Doom{ .id = 3, .code = .cancel }, streams.nextDoomed().?);
    try testing.expect(streams.hasPlace() and !streams.hasDoomed());
    for ([_]u32{ 5, 7, 9, 11, 13, 15 }) |id| streams.close(streams.find(id).?, .ended);
    _ = streams.rehouse(small[0..1]);
    streams.invariants();
    try testing.expectEqual(1, streams.first(true).?.id);
    try testing.expectEqual(Closed.Memory{ .closed = .ended }, streams.closed.recall(15));
}

test "closed streams are remembered for a while" {
    var closed: Closed = .{};
    try testing.expectEqual(Closed.Memory.never_opened, closed.recall(1));
    closed.note(1, .ended);
    closed.note(5, .by_peer);
    try testing.expectEqual(Closed.Memory{ .closed = .ended }, closed.recall(1));
    try testing.expectEqual(Closed.Memory.never_opened, closed.recall(3));
    try testing.expectEqual(Closed.Memory{ .closed = .by_peer }, closed.recall(5));
    for (0..Closed.size) |n| closed.note(@intCast(7 + 2 * n), .by_us);
    for ([_]u32{ 1, 3, 5 }) |id| try testing.expectEqual(Closed.Memory.forgotten, closed.recall(id));
    try testing.expectEqual(Closed.Memory{ .closed = .by_us }, closed.recall(7));
    closed.note(std.math.maxInt(u31), .ended);
    try testing.expectEqual(Closed.Memory{ .closed = .ended }, closed.recall(std.math.maxInt(u31)));
}
