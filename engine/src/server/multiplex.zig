//! The state of a transport that carries many streams: the session, memory for its streams while there are
//! some, the list of their lanes, and the deadline of the peer's next duty. Does not know: sockets,
//! exchanges, and what happens after a deadline (worker/streams.zig).
const std = @import("std");
const assert = std.debug.assert;
const Multiplexed = @import("protocol").Multiplexed;
const Config = @import("config.zig").Config;
const Pages = @import("pages.zig").Pages;
const Stream = @import("stream.zig").Stream;
const Timer = @import("timer.zig").Timer;
const Transport = @import("transport.zig").Transport;
const rest_ms = @import("config.zig").worker_limits.stream_rest_ms;

/// The streams of a transport. It does not move, because lanes of streams have pointers to its session.
pub const Multiplex = struct {
    session: Multiplexed.Session,
    /// The session's memory for streams; null: it has none at present.
    desk: ?*Desk = null,
    /// The session's places for streams: those of the desk, or a longer list.
    places: []Multiplexed.Place = &.{},
    /// The session's memory for header fields of its peer (HPACK).
    table: []u64 = &.{},
    /// Streams that are open for the server: their responses were not framed to their ends, or the worker has
    /// not noticed that they were.
    first: ?*Stream = null,
    last: ?*Stream = null,
    count: u32 = 0,
    /// The time at which the last stream ended, while no stream is open.
    idle_since: u64,
    /// The peer's next duty; `debt_since` is the time at which it began.
    debt: Multiplexed.Debt = .opening,
    debt_since: u64,
    /// The time since which responses are complete whose requests have yet to end; 0: there are none. It
    /// begins again when the time of such streams is over.
    lingering_since: u64 = 0,
    /// A host waits until the kernel has all queued output of its stream (`Exchange.flushing`).
    flushing: bool = false,
    /// Framed content of all streams, in bytes.
    framed_bytes: u64 = 0,
    /// The part of the session's tally that the worker has counted.
    told: Multiplexed.Tally = .{ .resets_received = 0, .resets_sent = 0, .ending = null },
    /// The time at which the peer was asked to open no more streams; 0: it was not asked.
    announced_at: u64 = 0,

    /// The memory of a session that has streams; a session without streams has none.
    pub const Desk = struct {
        sent_fields: Multiplexed.SentFields,
        /// Places for the first streams.
        places: [4]Multiplexed.Place,
    };
    pub const Desks = Pages(Desk);

    /// Creates the state of a connection that begins with HTTP/2's preface. `limits`, `config` and `room` are
    /// those of the session's init.
    pub fn create(
        gpa: std.mem.Allocator,
        limits: *const @import("protocol").Limits,
        config: *const Multiplexed.Config,
        room: Multiplexed.Room,
        now: u64,
    ) error{OutOfMemory}!*Multiplex {
        const multiplex = try gpa.create(Multiplex);
        multiplex.* = .{
            .session = .init(limits, config, &.{}, room),
            .idle_since = now,
            .debt_since = now,
        };
        return multiplex;
    }

    /// Frees the multiplex, which must have no streams.
    pub fn destroy(multiplex: *Multiplex, gpa: std.mem.Allocator, desks: *Desks) void {
        assert(multiplex.first == null);
        multiplex.clearDesk(gpa, desks);
        gpa.free(multiplex.table);
        gpa.destroy(multiplex);
    }

    fn clearDesk(multiplex: *Multiplex, gpa: std.mem.Allocator, desks: *Desks) void {
        const desk = multiplex.desk orelse return;
        if (multiplex.hasMorePlaces()) gpa.free(multiplex.places);
        desks.give(desk);
        multiplex.desk = null;
        multiplex.places = &.{};
    }

    fn hasMorePlaces(multiplex: *const Multiplex) bool {
        return multiplex.places.len > @as(Desk, undefined).places.len;
    }

    /// The memory of the multiplex, in bytes.
    pub fn memoryBytes(multiplex: *const Multiplex) usize {
        const desk_bytes: usize = if (multiplex.desk == null) 0 else @sizeOf(Desk);
        const more = if (multiplex.hasMorePlaces()) std.mem.sliceAsBytes(multiplex.places).len else 0;
        return @sizeOf(Multiplex) + desk_bytes + more + std.mem.sliceAsBytes(multiplex.table).len;
    }

    /// Makes room for more streams, up to the session's limit.
    pub fn grow(multiplex: *Multiplex, gpa: std.mem.Allocator, desks: *Desks) error{OutOfMemory}!void {
        const session = &multiplex.session;
        const most = session.config.streams_max;
        if (multiplex.desk == null) {
            const desk = try desks.take();
            multiplex.desk = desk;
            multiplex.places = desk.places[0..@min(desk.places.len, most)];
            session.lendTable(&desk.sent_fields);
            _ = session.rehouse(multiplex.places);
            return;
        }
        const wanted = @min(multiplex.places.len * 4, most);
        if (wanted <= multiplex.places.len) return;
        const places = try gpa.alloc(Multiplexed.Place, wanted);
        const until_now = session.rehouse(places);
        if (multiplex.hasMorePlaces()) gpa.free(until_now);
        multiplex.places = places;
    }

    /// Whether there is memory that a pause does not need. A frame that has begun to come may open a stream.
    fn isAwake(multiplex: *const Multiplex) bool {
        return multiplex.desk != null and multiplex.count == 0 and multiplex.debt != .frame and
            multiplex.session.mayHandBack();
    }

    /// Gives back the session's memory for streams, in a pause.
    pub fn rest(multiplex: *Multiplex, gpa: std.mem.Allocator, desks: *Desks) void {
        assert(multiplex.isAwake());
        multiplex.session.handBack();
        multiplex.clearDesk(gpa, desks);
    }

    /// The step, in u64s, in which the session's memory for fields grows. A browser's first page takes one
    /// step.
    const table_step = Multiplexed.table_units_max / 4;

    /// Gives the session memory for its peer's fields.
    pub fn growTable(multiplex: *Multiplex, gpa: std.mem.Allocator) error{OutOfMemory}!void {
        const wanted = std.mem.alignForwardAnyAlign(usize, multiplex.session.tableUnits(), table_step);
        const table = try gpa.alloc(u64, wanted);
        multiplex.session.rehouseTable(table);
        gpa.free(multiplex.table);
        multiplex.table = table;
    }

    /// Adds an open stream to the list.
    pub fn add(multiplex: *Multiplex, stream: *Stream) void {
        assert(stream.previous == null and stream.next == null);
        stream.previous = multiplex.last;
        if (multiplex.last) |last| last.next = stream else multiplex.first = stream;
        multiplex.last = stream;
        multiplex.count += 1;
    }

    /// Removes a stream from the list.
    pub fn remove(multiplex: *Multiplex, stream: *Stream, now: u64) void {
        if (stream.previous) |one| one.next = stream.next else multiplex.first = stream.next;
        if (stream.next) |one| one.previous = stream.previous else multiplex.last = stream.previous;
        stream.previous = null;
        stream.next = null;
        multiplex.count -= 1;
        if (multiplex.count == 0) multiplex.idle_since = now;
    }

    /// Notes that bytes were read: `consumed` of them are parsed, `unread` are left.
    pub fn noteReading(multiplex: *Multiplex, consumed: usize, unread: usize, now: u64) void {
        const debt = multiplex.session.owes(unread);
        const at_once = debt == .opening or debt == .acknowledgement;
        const goes_on = debt == multiplex.debt and (consumed == 0 or at_once);
        multiplex.debt = debt;
        if (!goes_on) multiplex.debt_since = now;
    }

    /// Notes responses that may have been framed to their ends, and requests that were read to theirs.
    pub fn noteLingering(multiplex: *Multiplex, now: u64) void {
        const lingers = multiplex.session.lingering > 0;
        if (lingers == (multiplex.lingering_since != 0)) return;
        multiplex.lingering_since = if (lingers) now else 0;
        if (!lingers) multiplex.idle_since = now;
    }

    /// The event whose deadline comes first.
    pub const Due = enum {
        /// No stream is open: the connection is closed with GOAWAY.
        end,
        /// No stream was open for a while: memory for streams is given back.
        rest,
        /// The peer has not done its duty in time.
        debt,
        /// The time is over for requests of streams whose responses are complete.
        lingering,
        /// The peer was asked to open no more streams, and has had time to read that.
        last_streams,
    };

    const Deadline = struct { at: u64, due: Due };

    fn next(multiplex: *const Multiplex, transport: *const Transport, config: *const Config) Deadline {
        var first: Deadline = .{ .at = Timer.never, .due = .end };
        if (multiplex.lingering_since != 0) {
            const wait_ms = if (multiplex.session.persists()) config.body_ms else config.linger_ms;
            first = .{ .at = Timer.after(multiplex.lingering_since, wait_ms), .due = .lingering };
        } else if (multiplex.count == 0) first.at = if (transport.surplus != .no)
            multiplex.idle_since + config.linger_ms
        else
            Timer.after(multiplex.idle_since, config.idle_ms);
        if (multiplex.isAwake()) {
            first = earlier(first, .{ .at = multiplex.idle_since + rest_ms, .due = .rest });
        }
        if (multiplex.announced_at != 0) {
            const at = multiplex.announced_at + config.linger_ms;
            first = earlier(first, .{ .at = at, .due = .last_streams });
        }
        switch (multiplex.debt) {
            // Deadlines of streams cover this duty.
            .nothing, .content => {},
            // A peer that is not read may have done its duty already.
            .opening, .frame, .acknowledgement => if (transport.wantsReceive()) {
                first = earlier(first, .{ .at = multiplex.debt_since + config.head_ms, .due = .debt });
            },
        }
        return first;
    }

    fn earlier(one: Deadline, other: Deadline) Deadline {
        return if (other.at < one.at) other else one;
    }

    /// The time of the next deadline, in milliseconds.
    pub fn deadline(multiplex: *const Multiplex, transport: *const Transport, config: *const Config) u64 {
        return multiplex.next(transport, config).at;
    }

    /// The event of the next deadline.
    pub fn due(multiplex: *const Multiplex, transport: *const Transport, config: *const Config) Due {
        return multiplex.next(transport, config).due;
    }

    /// Asserts relations that hold between two rounds.
    pub fn invariants(multiplex: *const Multiplex, transport: *const Transport) void {
        multiplex.session.invariants();
        var count: u32 = 0;
        var previous: ?*Stream = null;
        var stream = multiplex.first;
        while (stream) |one| : (stream = one.next) {
            assert(one.lane.transport == transport and one.previous == previous);
            previous = one;
            count += 1;
        }
        assert(count == multiplex.count);
    }
};

const testing = std.testing;

test "a connection of streams gives its memory back a while after the last one, and takes it again" {
    const room = try testing.allocator.alignedAlloc(u8, .of(u64), Multiplexed.roomBytes(&.{}));
    defer testing.allocator.free(room);
    var limits: @import("protocol").Limits = undefined;
    const allowed: Multiplexed.Config = .{ .streams_max = 10 };
    const config: Config = .{ .idle_ms = 60_000 };
    var desks: Multiplex.Desks = .init(testing.allocator);
    defer desks.deinit();
    const multiplex: *Multiplex = try .create(testing.allocator, &limits, &allowed, room, 1000);
    defer multiplex.destroy(testing.allocator, &desks);
    var transport: Transport = undefined;
    transport.init(.none, &limits, 1, 0, 0);
    transport.leaveServing(.{ .multiplexed = multiplex });
    multiplex.session.reading = .frame;
    multiplex.debt = .nothing;
    const resting = multiplex.memoryBytes();
    try testing.expectEqual(61_000, transport.deadline(&config));
    for (0..2) |_| {
        for ([_]usize{ 4, 10, 10 }) |places| {
            try multiplex.grow(testing.allocator, &desks);
            try testing.expectEqual(places, multiplex.places.len);
        }
        try testing.expect(multiplex.memoryBytes() > resting + 10 * @sizeOf(Multiplexed.Place));
        try testing.expectEqual(1000 + rest_ms, transport.deadline(&config));
        try testing.expectEqual(.rest, multiplex.due(&transport, &config));
        // A part of a frame may belong to a stream whose place was requested.
        multiplex.session.reading = .{ .skip = 1 };
        try testing.expectEqual(61_000, transport.deadline(&config));
        multiplex.session.reading = .frame;
        multiplex.debt = .frame;
        multiplex.debt_since = 2000;
        try testing.expectEqual(.debt, multiplex.due(&transport, &config));
        multiplex.debt = .nothing;
        multiplex.rest(testing.allocator, &desks);
        try testing.expectEqual(resting, multiplex.memoryBytes());
        try testing.expectEqual(.end, multiplex.due(&transport, &config));
    }
}

test "a connection of streams is due when it owes something, when nobody asks, and when it was asked to end" {
    const room = try testing.allocator.alignedAlloc(u8, .of(u64), Multiplexed.roomBytes(&.{}));
    defer testing.allocator.free(room);
    var limits: @import("protocol").Limits = undefined;
    const allowed: Multiplexed.Config = .{};
    const config: Config = .{ .idle_ms = 500, .head_ms = 100, .linger_ms = 30, .body_ms = 700 };
    var desks: Multiplex.Desks = .init(testing.allocator);
    defer desks.deinit();
    const multiplex: *Multiplex = try .create(testing.allocator, &limits, &allowed, room, 1000);
    defer multiplex.destroy(testing.allocator, &desks);
    var transport: Transport = undefined;
    transport.init(.none, &limits, 1, 0, 0);
    transport.leaveServing(.{ .multiplexed = multiplex });
    // The peer has not sent its preface and settings; a part of them does not extend the deadline.
    try testing.expectEqual(1100, transport.deadline(&config));
    multiplex.noteReading(10, 0, 1050);
    try testing.expectEqual(1100, transport.deadline(&config));
    try testing.expectEqual(.debt, multiplex.due(&transport, &config));
    // Bytes that were not read may hold the peer's settings.
    transport.lane.yielded = true;
    try testing.expectEqual(1500, transport.deadline(&config));
    transport.lane.yielded = false;
    multiplex.debt = .nothing;
    try testing.expectEqual(1500, transport.deadline(&config));
    try testing.expectEqual(.end, multiplex.due(&transport, &config));
    multiplex.announced_at = 1200;
    try testing.expectEqual(1230, transport.deadline(&config));
    try testing.expectEqual(.last_streams, multiplex.due(&transport, &config));
    multiplex.announced_at = 0;
    // Requests whose responses are complete have a deadline, too; a shorter one when the connection is to
    // end.
    multiplex.session.lingering = 1;
    multiplex.noteLingering(1300);
    multiplex.noteLingering(1400);
    try testing.expectEqual(1300 + 700, transport.deadline(&config));
    try testing.expectEqual(.lingering, multiplex.due(&transport, &config));
    multiplex.session.announceEnd();
    try testing.expectEqual(1330, transport.deadline(&config));
    multiplex.session.lingering = 0;
    multiplex.noteLingering(1500);
    try testing.expectEqual(2000, transport.deadline(&config));
    try testing.expectEqual(.end, multiplex.due(&transport, &config));
    var stream: Stream = undefined;
    stream.init(&transport, 1, 0);
    multiplex.add(&stream);
    try testing.expectEqual(Timer.never, transport.deadline(&config));
    multiplex.remove(&stream, 2000);
    try testing.expectEqual(2500, transport.deadline(&config));
}
