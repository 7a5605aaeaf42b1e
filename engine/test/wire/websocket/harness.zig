//! Plays a client's bytes to a WebSocket session, cut in every way, and writes down what an application would
//! see. Does not know: which cases there are.
const std = @import("std");
const wanted = @import("wanted");
const websocket = @import("protocol").websocket;
const Opcode = websocket.frame.Opcode;
const deflate = websocket.deflate;

/// A frame as a client sends it.
pub const Frame = struct {
    fin: bool = true,
    rsv: u3 = 0,
    op: Opcode,
    payload: []const u8 = "",
    /// The payload is sent this many times over, in the one frame.
    times: usize = 1,
    masked: bool = true,
};

/// The events of a session, with the pieces of messages put together.
pub const Seen = union(enum) {
    text: []const u8,
    binary: []const u8,
    ping: []const u8,
    pong: []const u8,
    close: struct { u16, []const u8 },
    fail: u16,
};

pub const Case = struct {
    /// Number in the Autobahn test suite, and what it is about.
    name: []const u8,
    frames: []const Frame = &.{},
    /// Sent before the frames, as it is.
    raw: []const u8 = "",
    expect: []const Seen,
    /// How many bytes of the wire are enough to know that the connection has failed.
    fails_at: ?usize = null,
    deflate: bool = false,
    takeover: bool = true,
    window_bits: u4 = 15,
    message_bytes_max: u64 = 1 << 20,
    frame_bytes_max: u64 = 1 << 20,
};

/// Cuts of longer input are tried near its ends only: the time goes with the square of the length.
const cuts_all_max = 1500;
const cuts_all_max_brief = 200;
const cut_margin = 40;

/// Runs a case whole, byte by byte, and cut in two at every point.
pub fn run(case: Case) !void {
    errdefer std.debug.print("case: {s}\n", .{case.name});
    const gpa = std.testing.allocator;
    var wire: std.ArrayList(u8) = .empty;
    defer wire.deinit(gpa);
    try wire.appendSlice(gpa, case.raw);
    for (case.frames, 0..) |frame, n| try append(gpa, &wire, frame, n);

    try expect(case, wire.items, &.{wire.items.len});
    const cuts = try gpa.alloc(usize, wire.items.len);
    defer gpa.free(cuts);
    for (cuts, 1..) |*cut, at| cut.* = at;
    try expect(case, wire.items, cuts);
    const all_max: usize = if (wanted.isBrief()) cuts_all_max_brief else cuts_all_max;
    for (1..wire.items.len) |cut| {
        const far = wire.items.len > all_max and cut > cut_margin and cut + cut_margin < wire.items.len;
        if (!far) try expect(case, wire.items, &.{ cut, wire.items.len });
    }
}

fn append(gpa: std.mem.Allocator, wire: *std.ArrayList(u8), f: Frame, n: usize) !void {
    const key: websocket.frame.MaskKey = .{ 0x5a, @truncate(n), 0x00, 0xff };
    var header: [websocket.frame.header_bytes_max]u8 = undefined;
    const len = websocket.frame.encode(.{
        .fin = f.fin,
        .rsv1 = f.rsv & 4 != 0,
        .rsv2 = f.rsv & 2 != 0,
        .rsv3 = f.rsv & 1 != 0,
        .opcode = f.op,
        .mask = if (f.masked) key else null,
        .payload_len = f.payload.len * f.times,
    }, &header);
    try wire.appendSlice(gpa, header[0..len]);
    const at = wire.items.len;
    for (0..f.times) |_| try wire.appendSlice(gpa, f.payload);
    if (f.masked) websocket.frame.maskScalar(wire.items[at..], key, 0);
}

fn expect(case: Case, wire: []const u8, cuts: []const usize) !void {
    errdefer std.debug.print("cuts: {any}\n", .{cuts[0..@min(cuts.len, 3)]});
    var arena: std.heap.ArenaAllocator = .init(std.testing.allocator);
    defer arena.deinit();
    var reader: Reader = try .init(arena.allocator(), case);
    // Unmasking writes into the input.
    const bytes = try arena.allocator().dupe(u8, wire);
    var from: usize = 0;
    for (cuts) |cut| {
        try reader.feed(bytes[from..cut]);
        from = cut;
        if (case.fails_at) |at| if (cuts.len > 2) try std.testing.expectEqual(cut >= at, reader.failed());
    }
    try std.testing.expectEqualDeep(case.expect, reader.seen.items);
}

/// Does with a session's events what a server does.
const Reader = struct {
    arena: std.mem.Allocator,
    case: Case,
    session: websocket.Session,
    inflater: deflate.Inflater = .{},
    history: deflate.History,
    validator: websocket.utf8.Validator = .{},
    message: std.ArrayList(u8) = .empty,
    seen: std.ArrayList(Seen) = .empty,

    fn init(arena: std.mem.Allocator, case: Case) !Reader {
        const window = try arena.alloc(u8, @as(usize, 1) << case.window_bits);
        return .{
            .arena = arena,
            .case = case,
            .session = .init(.{
                .limits = .{
                    .frame_bytes_max = case.frame_bytes_max,
                    .message_bytes_max = case.message_bytes_max,
                },
                .deflate = case.deflate,
            }),
            .history = .init(window),
        };
    }

    fn failed(r: *const Reader) bool {
        return r.seen.items.len > 0 and r.seen.items[r.seen.items.len - 1] == .fail;
    }

    fn feed(r: *Reader, bytes: []u8) !void {
        var rest = bytes;
        while (!r.failed()) {
            const step = r.session.feed(rest);
            rest = rest[step.consumed..];
            switch (step.event) {
                .need_more => return std.testing.expectEqual(0, rest.len),
                .data => |data| try r.takeData(data),
                .ping => |payload| try r.note(.{ .ping = try r.arena.dupe(u8, payload) }),
                .pong => |payload| try r.note(.{ .pong = try r.arena.dupe(u8, payload) }),
                .close => |close| try r.note(.{ .close = .{
                    close.code, try r.arena.dupe(u8, close.reason),
                } }),
                .failed => |failure| try r.note(.{ .fail = failure.code }),
            }
        }
    }

    fn note(r: *Reader, seen: Seen) !void {
        try r.seen.append(r.arena, seen);
    }

    fn takeData(r: *Reader, data: websocket.Data) !void {
        try std.testing.expect(data.bytes.len > 0 or data.last);
        if (data.first) {
            try std.testing.expectEqual(0, r.message.items.len);
            r.validator = .{};
            if (!r.case.takeover) r.history.clear();
            if (data.compressed) r.inflater.begin(&r.history, r.case.message_bytes_max);
        }
        if (!data.compressed) {
            try r.message.appendSlice(r.arena, data.bytes);
        } else if (!try r.inflate(data)) {
            return;
        }
        if (!data.last) return;
        const content = try r.message.toOwnedSlice(r.arena);
        try r.note(if (data.kind == .text) .{ .text = content } else .{ .binary = content });
    }

    /// False: the connection has failed.
    fn inflate(r: *Reader, data: websocket.Data) !bool {
        var rest: []const u8 = data.bytes;
        var out: [333]u8 = undefined;
        while (true) {
            const step = r.inflater.inflate(rest, data.last, &out) catch |problem| {
                try r.note(.{ .fail = if (problem == error.TooBig) 1009 else 1007 });
                return false;
            };
            rest = rest[step.consumed..];
            const piece = out[0..step.produced];
            const text_bad = data.kind == .text and
                (r.validator.feed(piece) != null or (step.state == .done and !r.validator.complete()));
            if (text_bad) {
                try r.note(.{ .fail = 1007 });
                return false;
            }
            try r.message.appendSlice(r.arena, piece);
            if (step.state != .output_full) return true;
        }
    }
};
