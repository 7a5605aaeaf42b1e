//! Records of events and commands, for a reader who follows one exchange through the layers: values of fixed
//! size in memory that all processes of a server map. While no reader wants records, each place costs two
//! loads and a branch. Does not know: readers, and how processes share the memory (abi/tracing.zig).
//!
//! All writers share one ring. A writer takes the next number, writes the record with this number, and then
//! its stamp. It takes the number before another thread or process can see the event or command, so the
//! records of one exchange are numbered in the order of its events, whichever process writes them; clocks
//! would not be exact enough. No writer waits: a slow reader sees that records were overwritten, and counts
//! them.
//!
//! Content and header values are never recorded: only sizes, and the path of a request without its query.
const std = @import("std");
const assert = std.debug.assert;
const Head = @import("protocol").Head;
const io_layer = @import("io");
const Command = @import("command.zig").Command;
const config = @import("config.zig");
const Exchange = @import("exchange.zig").Exchange;
const Lane = @import("lane.zig").Lane;
const Reason = @import("types.zig").Reason;
const Ticket = @import("slab.zig").Ticket;
const Atomic = std.atomic.Value;

/// The place in the layers at which a record was made.
pub const Place = enum(u8) { session, lane, exchange, engine_ring, application_ring, face };

/// The direction: towards the application, or towards the client.
pub const Way = enum(u8) { in, out };

/// The event or command of a record. Records of a ring have the names of `Command` and of the C API's events.
pub const Kind = enum(u8) {
    request,
    body,
    trailers,
    end,
    message,
    refused,
    received,
    sent,
    over,
    aborted,
    closed,
    drained,
    flushed,
    finished,
    half_closed,
    stopped,
    notice,
    lines,
    ending,
    start,
    file,
    inform,
    read,
    flush,
    abort,
    accept,
    close,
    keepalive,
    flow,
    idle_limit,
    keep_head,
    repeat,
    relay,
    hand_over,
    topic,
    hold,
    call,
    receive,
    send,
    returned,
    died,

    /// The kind with the same name as a value of another enum.
    pub fn named(value: anytype) Kind {
        return switch (value) {
            inline else => |one| @field(Kind, @tagName(one)),
        };
    }
};

/// A record before it is written.
pub const Note = struct {
    place: Place,
    way: Way,
    kind: Kind,
    /// The ticket of the exchange; 0: there is none.
    ticket: u64 = 0,
    /// The ticket of the exchange's lane, or of the lane of the bytes; 0: the place knows none.
    lane: u64 = 0,
    /// The process id of the engine that has made both tickets; 0: this process.
    engine: u32 = 0,
    /// The size of the content in bytes.
    size: u64 = 0,
    /// A status, or the close code of a WebSocket; 0: neither.
    code: u32 = 0,
    text: []const u8 = "",
};

/// A record in the ring. Readers recognise its layout by `Area.layout`.
pub const Record = extern struct {
    /// Nanoseconds of the monotonic clock.
    time: u64,
    ticket: u64,
    lane: u64,
    size: u64,
    process: u32,
    thread: u32,
    engine: u32,
    code: u32,
    place: Place,
    way: Way,
    kind: Kind,
    /// The length of the text, at most 255. `text` has the first `text_max` bytes of a longer one.
    text_len: u8,
    text: [text_max]u8,
    /// The record's number plus one. It is written when the record is complete.
    stamp: Atomic(u64),

    pub const text_max = 68;
};

/// The memory of records, which processes share.
pub const Area = extern struct {
    /// A number for the layout, because a reader may be of another version.
    layout: u64,
    count: u64,
    /// The time until which records are wanted, in nanoseconds of the monotonic clock; 0: they are not. A
    /// reader sets it again and again, so that recording ends soon after the reader.
    until: Atomic(u64) align(std.atomic.cache_line),
    /// The server's process id; readers end with this process.
    server: Atomic(u64),
    next: Atomic(u64) align(std.atomic.cache_line),
    records: [count_max]Record align(std.heap.page_size_min),

    pub const count_max = config.trace_records_max;

    /// A digest of the layout of this version.
    pub const layout_now: u64 = blk: {
        @setEvalBranchQuota(100_000);
        var hash = std.hash.Fnv1a_64.init();
        for ([_]type{ Place, Way, Kind }) |Names| {
            for (@typeInfo(Names).@"enum".field_names) |name| hash.update(name);
        }
        for ([_]type{ Area, Record }) |Struct| for (@typeInfo(Struct).@"struct".field_names) |name| {
            hash.update(std.fmt.comptimePrint("{s} {d}", .{ name, @offsetOf(Struct, name) }));
        };
        hash.update(std.fmt.comptimePrint("{d}", .{@sizeOf(Area)}));
        break :blk hash.final();
    };

    /// Prepares memory, which must be all zeros.
    pub fn init(bytes: []align(std.heap.page_size_min) u8) *Area {
        assert(bytes.len == @sizeOf(Area));
        const new: *Area = @ptrCast(bytes.ptr);
        new.layout = layout_now;
        new.count = count_max;
        return new;
    }

    comptime {
        assert(@sizeOf(Record) == 128);
    }
};

/// The value of `until` in a process without an area.
const never: Atomic(u64) = .init(0);

/// Both belong to the process, and children inherit them. They are set before there are other threads.
var until: *const Atomic(u64) = &never;
var area: ?*Area = null;

/// Lets this process, and later children, write records into `new`; null: they write none.
pub fn use(new: ?*Area) void {
    area = new;
    until = if (new) |shared| &shared.until else &never;
}

/// The word that is not 0 while records are wanted. The pointer is valid until the next `use`.
pub fn wantedUntil() *const Atomic(u64) {
    return until;
}

/// Whether records are wanted.
pub inline fn isOn() bool {
    return until.load(.monotonic) != 0;
}

/// Writes a record if records are wanted at present.
pub fn write(note: *const Note) void {
    @branchHint(.cold);
    const shared = area orelse return;
    const wanted_until = shared.until.load(.monotonic);
    const now = io_layer.nanos();
    if (now > wanted_until) {
        // The reader has gone. Unless another reader has come since, recording is switched off.
        _ = shared.until.cmpxchgStrong(wanted_until, 0, .monotonic, .monotonic);
        return;
    }
    const ids = io_layer.thread.ids();
    const number = shared.next.fetchAdd(1, .acq_rel);
    const record = &shared.records[@intCast(number % Area.count_max)];
    record.time = now;
    record.ticket = note.ticket;
    record.lane = note.lane;
    record.size = note.size;
    record.process = ids.process;
    record.thread = ids.thread;
    record.engine = if (note.engine == 0) ids.process else note.engine;
    record.code = note.code;
    record.place = note.place;
    record.way = note.way;
    record.kind = note.kind;
    record.text_len = @intCast(@min(note.text.len, std.math.maxInt(u8)));
    const shown = @min(note.text.len, Record.text_max);
    @memcpy(record.text[0..shown], note.text[0..shown]);
    record.stamp.store(number + 1, .release);
}

// ---- Records of the server

/// Records a request that has an exchange now.
pub inline fn request(exchange: *const Exchange, head: *const Head) void {
    if (isOn()) writeRequest(exchange, head);
}

fn writeRequest(exchange: *const Exchange, head: *const Head) void {
    var text: [Record.text_max + 1]u8 = undefined;
    const method = head.method_text.of(head.text);
    const path = head.path.of(head.text);
    const line = std.fmt.bufPrint(&text, "{s} {s}", .{
        method[0..@min(method.len, 16)],
        path[0..@min(path.len, text.len - 17)],
    }) catch unreachable;
    write(&.{
        .place = .session,
        .way = .in,
        .kind = .request,
        .ticket = @backingInt(exchange.ticket),
        .lane = @backingInt(exchange.lane.ticket()),
        .size = head.text.len,
        .text = line,
    });
}

/// Records content or the end of a request.
pub inline fn content(exchange: *const Exchange, kind: Kind, size: usize) void {
    if (isOn()) writeOf(exchange, .session, .in, kind, .{ .size = size }, "");
}

/// Records bytes that were received or sent.
pub inline fn wire(lane: *const Lane, kind: Kind, size: usize) void {
    if (isOn()) writeWire(lane, kind, size);
}

fn writeWire(lane: *const Lane, kind: Kind, size: usize) void {
    const exchange = lane.current();
    write(&.{
        .place = .lane,
        .way = if (kind == .received) .in else .out,
        .kind = kind,
        .ticket = if (exchange) |current| @backingInt(current.ticket) else 0,
        .lane = @backingInt(lane.ticket()),
        .size = size,
    });
}

/// Records that a request is refused.
pub inline fn refused(lane: *const Lane, status: u16, detail: []const u8) void {
    if (isOn()) writeRefused(lane, status, detail);
}

fn writeRefused(lane: *const Lane, status: u16, detail: []const u8) void {
    const exchange = lane.current();
    write(&.{
        .place = .session,
        .way = .out,
        .kind = .refused,
        .ticket = if (exchange) |current| @backingInt(current.ticket) else 0,
        .lane = @backingInt(lane.ticket()),
        .code = status,
        .text = detail,
    });
}

pub inline fn command(exchange: *const Exchange, spoken: Command) void {
    if (isOn()) writeOf(exchange, .exchange, .out, .named(std.meta.activeTag(spoken)), measure(spoken), "");
}

/// The size in bytes and the code for a record.
const Measure = struct { size: usize = 0, code: u32 = 0 };

/// `spoken` is passed by value and the function is inline, so that callers with a constant kind of command
/// build no command in memory.
inline fn measure(spoken: Command) Measure {
    return switch (spoken) {
        .start => |start| .{ .size = start.body.len, .code = start.status },
        .inform => |inform| .{ .code = inform.status },
        .body => |body| .{ .size = if (body.blocks) |chain| chain.bytes else body.bytes.len },
        .file => |file| .{ .size = @intCast(file.length orelse 0) },
        .message => |message| .{ .size = message.bytes.len },
        .close => |close| .{ .code = close.code },
        .repeat => |repeat| .{ .size = repeat.bytes.len },
        .topic => |topic| .{ .size = topic.wish.len },
        .hold => |wish| .{ .size = wish.len },
        .end,
        .read,
        .flush,
        .abort,
        .accept,
        .keepalive,
        .flow,
        .idle_limit,
        .keep_head,
        .relay,
        .hand_over,
        => .{},
    };
}

/// Records an event of the C API that goes into a ring or comes out of it. `engine`: see `Note`.
pub inline fn passing(place: Place, event: anytype, engine: u32) void {
    if (isOn()) writePassing(place, event.ticket, .named(event.kind), event.len, engine);
}

fn writePassing(place: Place, ticket: u64, kind: Kind, size: usize, engine: u32) void {
    write(&.{ .place = place, .way = .in, .kind = kind, .ticket = ticket, .size = size, .engine = engine });
}

/// Like `passing`, for a command.
pub inline fn said(place: Place, ticket: u64, spoken: *const Command, engine: u32) void {
    if (isOn()) writeSaid(place, ticket, spoken, engine);
}

fn writeSaid(place: Place, ticket: u64, spoken: *const Command, engine: u32) void {
    const measured = measure(spoken.*);
    write(&.{
        .place = place,
        .way = .out,
        .kind = .named(std.meta.activeTag(spoken.*)),
        .ticket = ticket,
        .engine = engine,
        .size = measured.size,
        .code = measured.code,
    });
}

/// Records that an exchange ends without a complete response.
pub inline fn aborted(exchange: *const Exchange, reason: Reason) void {
    if (isOn()) writeOf(exchange, .exchange, .in, .aborted, .{}, @tagName(reason));
}

/// Records that the slot of an exchange is given back. No record of its ticket follows.
pub inline fn over(exchange: *const Exchange) void {
    if (isOn()) writeOf(exchange, .exchange, .in, .over, .{ .code = exchange.status }, "");
}

fn writeOf(
    exchange: *const Exchange,
    place: Place,
    way: Way,
    kind: Kind,
    measured: Measure,
    text: []const u8,
) void {
    write(&.{
        .place = place,
        .way = way,
        .kind = kind,
        .ticket = @backingInt(exchange.ticket),
        .lane = @backingInt(exchange.lane.ticket()),
        .size = measured.size,
        .code = measured.code,
        .text = text,
    });
}

const testing = std.testing;

fn areaForTest() !*Area {
    const memory = try testing.allocator.alignedAlloc(
        u8,
        .fromByteUnits(std.heap.page_size_min),
        @sizeOf(Area),
    );
    @memset(memory, 0);
    return .init(memory);
}

fn freeArea(shared: *Area) void {
    const memory: [*]align(std.heap.page_size_min) u8 = @ptrCast(shared);
    testing.allocator.free(memory[0..@sizeOf(Area)]);
}

test "records are written while they are wanted, and their numbers tell which were overwritten" {
    const shared = try areaForTest();
    defer freeArea(shared);
    use(shared);
    defer use(null);
    const text: [300]u8 = @splat('x');
    const note: Note = .{ .place = .face, .way = .out, .kind = .send, .ticket = 7, .text = &text };
    try testing.expect(!isOn());
    write(&note);
    try testing.expectEqual(0, shared.next.load(.monotonic));

    shared.until.store(std.math.maxInt(u64), .monotonic);
    try testing.expect(isOn());
    const count = Area.count_max + 2;
    for (0..count) |_| write(&note);
    try testing.expectEqual(count, shared.next.load(.monotonic));
    try testing.expectEqual(count, shared.records[1].stamp.load(.monotonic));
    try testing.expectEqual(3, shared.records[2].stamp.load(.monotonic));
    const record = &shared.records[1];
    try testing.expectEqual(7, record.ticket);
    try testing.expectEqual(record.process, record.engine);
    try testing.expectEqual(255, record.text_len);
}

test "the writer that finds the reader gone turns records off" {
    const shared = try areaForTest();
    defer freeArea(shared);
    use(shared);
    defer use(null);
    shared.until.store(1, .monotonic);
    try testing.expect(isOn());
    write(&.{ .place = .face, .way = .in, .kind = .call });
    try testing.expect(!isOn());
    try testing.expectEqual(0, shared.next.load(.monotonic));
}

test "every command has a kind, and its size and code are noted" {
    inline for (@typeInfo(std.meta.Tag(Command)).@"enum".field_names) |name| {
        try testing.expectEqualStrings(name, @tagName(Kind.named(@field(std.meta.Tag(Command), name))));
    }
    try testing.expectEqual(
        Measure{ .size = 2, .code = 404 },
        measure(.{ .start = .{ .status = 404, .body = "no" } }),
    );
    try testing.expectEqual(Measure{ .code = 1001 }, measure(.{ .close = .{ .code = 1001 } }));
}
