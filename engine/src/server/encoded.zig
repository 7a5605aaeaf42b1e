//! Commands as bytes without pointers, for ring pairs between threads and processes. Each command has one
//! encoded form: decoding and encoding again gives the same bytes. The decoder trusts no byte: it checks
//! every number, and its result points only into the bytes that it was given.
//!
//! An encoded command is a head of fixed size, a table of field lengths, the names and values of fields, and
//! one run of bytes (a body, a message, a reason). Numbers are in the machine's byte order, because both
//! sides run on one machine.
const std = @import("std");
const assert = std.debug.assert;
const Field = @import("protocol").http.Field;
const Command = @import("command.zig").Command;
const Flow = @import("incoming.zig").Incoming.Flow;

/// The beginning of each encoded command. Members that a kind does not use are zero.
const Head = extern struct {
    kind: u8,
    flags: u8 = 0,
    /// A status, a close code, or whether a WebSocket is compressed.
    number: u16 = 0,
    field_count: u32 = 0,
    /// Milliseconds, a descriptor, or the length of a subprotocol's name.
    a: u32 = 0,
    b: u32 = 0,
    offset: u64 = 0,
    /// The length of the run of bytes at the end, or of a file range.
    length: u64 = 0,
};

const FieldLengths = extern struct { name: u32, value: u32 };

/// Bits of `Head.flags`.
const flag = struct {
    const end = 1;
    const close = 2;
    const says_keep_alive = 4;
    /// The command has its optional value.
    const some = 8;
    const text = 16;
    const hold = 32;
    const slow = 64;
};

const Tag = std.meta.Tag(Command);

/// Bytes of an encoded command without fields, names and content.
pub const size_min = @sizeOf(Head);

/// Bytes that `encode` writes for a command.
pub fn size(command: *const Command) usize {
    const list = fieldsOf(command);
    var len = @sizeOf(Head) + list.len * @sizeOf(FieldLengths) + bytesOf(command).len + nameOf(command).len;
    for (list) |field| len += field.name_len + field.value_len;
    return len;
}

/// Writes a command into `out`, which has exactly `size` bytes. Response lines and blocks of a pool
/// have no encoded form.
pub fn encode(command: *const Command, out: []u8) void {
    const bytes = bytesOf(command);
    encodeHead(command, out[0 .. out.len - bytes.len]);
    @memcpy(out[out.len - bytes.len ..], bytes);
}

/// Content of a response in a command, which may be sent apart from the command; "": there is none.
pub fn contentOf(command: *const Command) []const u8 {
    return switch (command.*) {
        .start, .body => bytesOf(command),
        else => "",
    };
}

/// Like `encode`, without the run of bytes at the end, by whose length `out` is shorter.
pub fn encodeHead(command: *const Command, out: []u8) void {
    var rest = out;
    const head = headOf(command);
    put(&rest, std.mem.asBytes(&head));
    const list = fieldsOf(command);
    for (list) |field| {
        const lengths: FieldLengths = .{
            .name = @intCast(field.name_len),
            .value = @intCast(field.value_len),
        };
        put(&rest, std.mem.asBytes(&lengths));
    }
    for (list) |field| {
        put(&rest, field.name());
        put(&rest, field.value());
    }
    put(&rest, nameOf(command));
    assert(rest.len == 0); // `size` counted each byte
}

/// Whether encoded bytes are a command with a piece of a body.
pub fn isBody(bytes: []const u8) bool {
    return bytes.len > 0 and bytes[0] == @backingInt(Tag.body);
}

/// Whether the bytes are a command that begins a response whose head waits for content.
pub fn isHeld(bytes: []const u8) bool {
    return bytes.len > 1 and bytes[0] == @backingInt(Tag.start) and bytes[1] & flag.hold != 0;
}

/// Reasons why bytes are no command.
pub const DecodeError = error{
    /// The bytes were not written by `encode`.
    Malformed,
    /// `space` is too short for the fields.
    TooManyFields,
};

/// The command that `bytes` hold. Its slices point into `bytes` and, for the list of fields, into `space`.
pub fn decode(bytes: []const u8, space: []Field) DecodeError!Command {
    return decodeWith(bytes, null, space);
}

/// Like `decode`, for a command whose content (`contentOf`) is at the front of `content`, apart from `bytes`.
/// The content is not read.
pub fn decodeApart(bytes: []const u8, content: []const u8, space: []Field) DecodeError!Command {
    return decodeWith(bytes, content, space);
}

fn decodeWith(bytes: []const u8, apart: ?[]const u8, space: []Field) DecodeError!Command {
    var reader: Reader = .{ .rest = bytes, .apart = apart };
    const head = try reader.value(Head);
    const command = try commandOf(head, &reader, space);
    if (reader.rest.len > 0 or reader.apart != null) return error.Malformed;
    // A kind's unused members must be zero, and each used one has one form.
    const again = headOf(&command);
    if (!isSame(head, again)) return error.Malformed;
    return command;
}

fn isSame(a: Head, b: Head) bool {
    // Compares as numbers, which is faster than a loop over so few bytes.
    const Words = [@sizeOf(Head) / @sizeOf(u64)]u64;
    const left = std.mem.bytesToValue(Words, std.mem.asBytes(&a));
    const right = std.mem.bytesToValue(Words, std.mem.asBytes(&b));
    var difference: u64 = 0;
    for (left, right) |one, other| difference |= one ^ other;
    return difference == 0;
}

fn headOf(command: *const Command) Head {
    const kind: u8 = @backingInt(@as(Tag, command.*));
    return switch (command.*) {
        .start => |*start| blk: {
            assert(start.lines == null);
            break :blk .{
                .kind = kind,
                .flags = bit(start.end, flag.end) | bit(start.close, flag.close) |
                    bit(start.says_keep_alive, flag.says_keep_alive) | bit(start.hold, flag.hold),
                .number = start.status,
                .field_count = @intCast(start.fields.len),
                .length = start.body.len,
            };
        },
        .body => |*body| blk: {
            assert(body.blocks == null and body.loan == null);
            break :blk .{
                .kind = kind,
                .flags = bit(body.last, flag.end) | bit(body.close, flag.close),
                .length = body.bytes.len,
            };
        },
        .file => |file| .{
            .kind = kind,
            .flags = bit(file.length != null, flag.some) | bit(file.is_slow, flag.slow),
            .a = @bitCast(file.fd),
            .offset = file.offset,
            .length = file.length orelse 0,
        },
        .end => |end| .{ .kind = kind, .field_count = @intCast(end.trailers.len) },
        .inform => |inform| .{
            .kind = kind,
            .number = inform.status,
            .field_count = @intCast(inform.fields.len),
        },
        .accept => |accept| .{
            .kind = kind,
            .flags = bit(accept.subprotocol != null, flag.some),
            .number = @backingInt(accept.compression),
            .field_count = @intCast(accept.fields.len),
            .a = @intCast(nameOf(command).len),
        },
        .message => |message| .{
            .kind = kind,
            .flags = bit(message.kind == .text, flag.text),
            .length = message.bytes.len,
        },
        .close => |close| .{ .kind = kind, .number = close.code, .length = close.reason.len },
        .keepalive => |keepalive| .{ .kind = kind, .a = keepalive.interval_ms, .b = keepalive.timeout_ms },
        .flow => |flow| .{ .kind = kind, .a = @backingInt(flow) },
        .idle_limit => |milliseconds| .{ .kind = kind, .a = milliseconds },
        .keep_head => |keeps| .{ .kind = kind, .flags = bit(keeps, flag.some) },
        .repeat => |repeat| .{ .kind = kind, .a = repeat.interval_ms, .length = repeat.bytes.len },
        .relay => |relay| switch (relay) {
            .offer => |fd| .{ .kind = kind, .flags = flag.some, .a = @bitCast(fd) },
            .only => .{ .kind = kind },
        },
        .topic => |topic| .{ .kind = kind, .a = topic.number, .length = topic.wish.len },
        .hold => |wish| .{ .kind = kind, .length = wish.len },
        .read, .flush, .abort, .hand_over => .{ .kind = kind },
    };
}

fn commandOf(head: Head, reader: *Reader, space: []Field) DecodeError!Command {
    const tag = std.enums.fromInt(Tag, head.kind) orelse return error.Malformed;
    return switch (tag) {
        .start => .{ .start = .{
            .status = head.number,
            .fields = try reader.fields(head.field_count, space),
            .body = try reader.content(head.length),
            .end = head.flags & flag.end != 0,
            .close = head.flags & flag.close != 0,
            .says_keep_alive = head.flags & flag.says_keep_alive != 0,
            .hold = head.flags & flag.hold != 0,
        } },
        .body => .{ .body = .{
            .bytes = try reader.content(head.length),
            .last = head.flags & flag.end != 0,
            .close = head.flags & flag.close != 0,
        } },
        .file => .{ .file = .{
            .fd = @bitCast(head.a),
            .offset = head.offset,
            .length = if (head.flags & flag.some != 0) head.length else null,
            .is_slow = head.flags & flag.slow != 0,
        } },
        .end => .{ .end = .{ .trailers = try reader.fields(head.field_count, space) } },
        .inform => .{ .inform = .{
            .status = head.number,
            .fields = try reader.fields(head.field_count, space),
        } },
        .accept => blk: {
            const list = try reader.fields(head.field_count, space);
            const name = try reader.run(head.a);
            break :blk .{ .accept = .{
                .subprotocol = if (head.flags & flag.some != 0) name else null,
                .compression = std.enums.fromInt(Command.Compression, head.number) orelse
                    return error.Malformed,
                .fields = list,
            } };
        },
        .message => .{ .message = .{
            .kind = if (head.flags & flag.text != 0) .text else .binary,
            .bytes = try reader.run(head.length),
        } },
        .close => .{ .close = .{ .code = head.number, .reason = try reader.run(head.length) } },
        .keepalive => .{ .keepalive = .{ .interval_ms = head.a, .timeout_ms = head.b } },
        .flow => .{ .flow = std.enums.fromInt(Flow, head.a) orelse return error.Malformed },
        .idle_limit => .{ .idle_limit = head.a },
        .keep_head => .{ .keep_head = head.flags & flag.some != 0 },
        .repeat => .{ .repeat = .{ .interval_ms = head.a, .bytes = try reader.run(head.length) } },
        .relay => .{ .relay = if (head.flags & flag.some != 0) .{ .offer = @bitCast(head.a) } else .only },
        .read => .read,
        .flush => .flush,
        .abort => .abort,
        .hand_over => .hand_over,
        .topic => .{ .topic = .{ .number = head.a, .wish = try reader.run(head.length) } },
        .hold => .{ .hold = try reader.run(head.length) },
    };
}

fn fieldsOf(command: *const Command) []const Field {
    return switch (command.*) {
        .start => |*start| start.fields,
        .end => |end| end.trailers,
        .inform => |inform| inform.fields,
        .accept => |accept| accept.fields,
        .body, .file, .read, .flush, .abort, .hand_over => &.{},
        .message, .close, .keepalive, .flow, .idle_limit, .keep_head, .repeat, .relay, .topic => &.{},
        .hold => &.{},
    };
}

fn bytesOf(command: *const Command) []const u8 {
    return switch (command.*) {
        .start => |*start| start.body,
        .body => |*body| body.bytes,
        .message => |message| message.bytes,
        .close => |close| close.reason,
        .repeat => |repeat| repeat.bytes,
        .topic => |topic| topic.wish,
        .hold => |wish| wish,
        .file, .end, .inform, .read, .flush, .abort, .accept, .keepalive, .flow, .idle_limit => "",
        .keep_head, .relay, .hand_over => "",
    };
}

fn nameOf(command: *const Command) []const u8 {
    return switch (command.*) {
        .accept => |accept| accept.subprotocol orelse "",
        else => "",
    };
}

fn bit(on: bool, value: u8) u8 {
    return if (on) value else 0;
}

fn put(rest: *[]u8, bytes: []const u8) void {
    @memcpy(rest.*[0..bytes.len], bytes);
    rest.* = rest.*[bytes.len..];
}

/// Reads values from the front of bytes, and fails at their end.
pub const Reader = struct {
    rest: []const u8,
    /// Content that is not in `rest`; null: there is none, or it was taken.
    apart: ?[]const u8 = null,

    fn content(reader: *Reader, len: u64) error{Malformed}![]const u8 {
        const there = reader.apart orelse return reader.run(len);
        if (len > there.len) return error.Malformed;
        reader.apart = null;
        return there[0..@intCast(len)];
    }

    /// The next `len` bytes.
    pub fn run(reader: *Reader, len: u64) error{Malformed}![]const u8 {
        if (len > reader.rest.len) return error.Malformed;
        const bytes = reader.rest[0..@intCast(len)];
        reader.rest = reader.rest[bytes.len..];
        return bytes;
    }

    /// The next value, at any alignment.
    pub fn value(reader: *Reader, comptime T: type) error{Malformed}!T {
        return std.mem.bytesToValue(T, try reader.run(@sizeOf(T)));
    }

    fn fields(reader: *Reader, count: u32, space: []Field) DecodeError![]const Field {
        var lengths: Reader = .{ .rest = try reader.run(@as(u64, count) * @sizeOf(FieldLengths)) };
        if (count > space.len) return error.TooManyFields;
        for (space[0..count]) |*field| {
            const len = try lengths.value(FieldLengths);
            const name = try reader.run(len.name);
            field.* = .init(name, try reader.run(len.value));
        }
        return space[0..count];
    }
};

const testing = std.testing;

/// A command of each kind, and of each form where a kind has several.
const samples = [_]Command{
    .{ .start = .{ .status = 200 } },
    .{ .start = .{
        .status = 599,
        .fields = &.{ .init("content-type", "text/plain"), .init("x-empty", "") },
        .body = "hello",
        .end = true,
        .close = true,
        .says_keep_alive = true,
    } },
    .{ .start = .{ .status = 200, .hold = true } },
    .{ .body = .{} },
    .{ .body = .{ .bytes = "piece", .last = true, .close = true } },
    .{ .file = .{ .fd = 7 } },
    .{ .file = .{ .fd = 8, .length = 1 << 40, .is_slow = true } },
    .{ .file = .{ .fd = -1, .offset = 1 << 40, .length = 0 } },
    .{ .end = .{} },
    .{ .end = .{ .trailers = &.{.init("x-sum", "1")} } },
    .{ .inform = .{ .status = 103, .fields = &.{.init("link", "</a>")} } },
    .read,
    .flush,
    .abort,
    .{ .accept = .{} },
    .{ .accept = .{ .subprotocol = "", .fields = &.{.init("a", "b")} } },
    .{ .accept = .{ .subprotocol = "chat", .compression = .off } },
    .{ .accept = .{ .compression = .on } },
    .{ .message = .{ .kind = .text, .bytes = "text" } },
    .{ .message = .{ .kind = .binary } },
    .{ .close = .{ .code = 1000, .reason = "bye" } },
    .{ .keepalive = .{ .interval_ms = 1, .timeout_ms = 2 } },
    .{ .flow = .all },
    .{ .flow = .on_demand },
    .{ .idle_limit = 3 },
    .{ .keep_head = true },
    .{ .keep_head = false },
    .{ .repeat = .{ .interval_ms = 4, .bytes = ":\n\n" } },
    .{ .relay = .{ .offer = 8 } },
    .{ .relay = .{ .offer = -1 } },
    .{ .relay = .only },
    .hand_over,
    .{ .topic = .{ .number = 9, .wish = "wish" } },
    .{ .hold = "wish" },
};

test "every command comes back as it was" {
    var kinds: std.EnumSet(Tag) = .empty;
    for (samples) |sample| {
        kinds.insert(sample);
        var buffer: [512]u8 = undefined;
        const bytes = buffer[0..size(&sample)];
        encode(&sample, bytes);
        var space: [4]Field = undefined;
        try expectSame(sample, try decode(bytes, &space));
    }
    try testing.expectEqual(std.EnumSet(Tag).full, kinds);
}

test "content that travels apart comes back, and no more than there is" {
    for (samples) |sample| {
        var buffer: [512]u8 = undefined;
        const content = contentOf(&sample);
        const bytes = buffer[0 .. size(&sample) - bytesOf(&sample).len];
        encodeHead(&sample, bytes);
        var space: [4]Field = undefined;
        const there = [_][]const u8{ content, "hello, piece" };
        for (there) |apart| {
            const found = decodeApart(bytes, apart, &space);
            if (sample != .start and sample != .body) {
                try testing.expectError(error.Malformed, found);
            } else if (std.mem.startsWith(u8, apart, content)) {
                try expectSame(sample, try found);
            }
        }
        if (content.len > 0) {
            try testing.expectError(error.Malformed, decodeApart(bytes, content[1..], &space));
            try testing.expectError(error.Malformed, decode(bytes, &space));
        }
    }
}

test "no shorter or longer bytes are a command" {
    for (samples) |sample| {
        var buffer: [512]u8 = undefined;
        const len = size(&sample);
        encode(&sample, buffer[0..len]);
        buffer[len] = 0;
        var space: [4]Field = undefined;
        try testing.expectError(error.Malformed, decode(buffer[0 .. len + 1], &space));
        for (0..len) |cut| try testing.expectError(error.Malformed, decode(buffer[0..cut], &space));
    }
}

test "more fields than there is room for are refused" {
    const command: Command = .{ .end = .{ .trailers = &.{ .init("a", "1"), .init("b", "2") } } };
    var buffer: [128]u8 = undefined;
    const bytes = buffer[0..size(&command)];
    encode(&command, bytes);
    var space: [1]Field = undefined;
    try testing.expectError(error.TooManyFields, decode(bytes, &space));
}

/// Compares the content of slices, not their addresses.
fn expectSame(wanted: Command, found: Command) !void {
    try testing.expectEqual(@as(Tag, wanted), @as(Tag, found));
    try testing.expectEqual(headOf(&wanted), headOf(&found));
    try testing.expectEqualStrings(bytesOf(&wanted), bytesOf(&found));
    try testing.expectEqualStrings(nameOf(&wanted), nameOf(&found));
    try testing.expectEqual(fieldsOf(&wanted).len, fieldsOf(&found).len);
    for (fieldsOf(&wanted), fieldsOf(&found)) |mine, theirs| {
        try testing.expectEqualStrings(mine.name(), theirs.name());
        try testing.expectEqualStrings(mine.value(), theirs.value());
    }
}
