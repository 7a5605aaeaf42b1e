//! A command on its way through a ring pair: its exchange, flags for the engine, and the command itself.
const std = @import("std");
const peregrine = @import("peregrine");
pub const ring = @import("ring.zig");
pub const annex = @import("annex.zig");
const types = @import("types.zig");
const Command = peregrine.Command;
pub const Field = peregrine.Field;
const encoded = peregrine.encoded;

/// A command of an application.
pub const Spoken = struct {
    ticket: types.Ticket,
    command: Command,
    /// Output is handed to the kernel at once.
    flushes: bool = false,
    /// The application has been told that it is blocked: an event has to follow.
    awaits: bool = false,
    /// Bytes of content.
    content: u64 = 0,
};

const Head = extern struct {
    ticket: types.Ticket,
    content: u64,
    flags: u32,
    reserved: u32 = 0,

    const flushes = 1;
    const awaits = 2;
    /// The command's content is in the annex; its offset there ends the message.
    const apart = 4;
    /// The command's content is lent; a `Lent` ends the message.
    const lent = 8;
};

/// Content that the application lends, for an engine in its own process.
const Lent = extern struct { address: u64, len: u64, loan: u64 };

/// Places for content beside the ring.
pub const Beside = struct {
    annex: annex.View,
    /// The application's memory is the engine's, too, and the application is trusted: it may lend.
    lends: bool = false,
};

comptime {
    std.debug.assert(@sizeOf(Head) % ring.alignment == 0 and @sizeOf(Lent) % ring.alignment == 0);
}

/// The number of bytes that `encode` writes.
pub fn size(said: *const Spoken) usize {
    return @sizeOf(Head) + encoded.size(&said.command);
}

/// Writes the message into `out`, which has exactly `size` bytes.
pub fn encode(said: *const Spoken, out: []u8) void {
    putHead(said, 0, out);
    encoded.encode(&said.command, out[@sizeOf(Head)..]);
}

/// The content of a command that may go into the annex; "": there is none.
pub fn contentOf(said: *const Spoken) []const u8 {
    return encoded.contentOf(&said.command);
}

/// The number of bytes that `encodeApart` writes.
pub fn sizeApart(said: *const Spoken) usize {
    return size(said) - contentOf(said).len + @sizeOf(u64);
}

/// Like `encode`, for a message whose content is in the annex at this offset.
pub fn encodeApart(said: *const Spoken, offset: u64, out: []u8) void {
    const end = out.len - @sizeOf(u64);
    putHead(said, Head.apart, out);
    encoded.encodeHead(&said.command, out[@sizeOf(Head)..end]);
    @memcpy(out[end..], std.mem.asBytes(&offset));
}

/// The number of bytes that `encodeLent` writes.
pub fn sizeLent(said: *const Spoken) usize {
    return size(said) - contentOf(said).len + @sizeOf(Lent);
}

/// Like `encode`, for a piece of a body that stays where it is.
pub fn encodeLent(said: *const Spoken, loan: *types.Loan, out: []u8) void {
    const end = out.len - @sizeOf(Lent);
    const content = said.command.body.bytes;
    putHead(said, Head.lent, out);
    encoded.encodeHead(&said.command, out[@sizeOf(Head)..end]);
    const lent: Lent = .{
        .address = @intFromPtr(content.ptr),
        .len = content.len,
        .loan = @intFromPtr(loan),
    };
    @memcpy(out[end..], std.mem.asBytes(&lent));
}

fn putHead(said: *const Spoken, flag: u32, out: []u8) void {
    const flushes: u32 = if (said.flushes) Head.flushes else 0;
    const awaits: u32 = if (said.awaits) Head.awaits else 0;
    const head: Head = .{ .ticket = said.ticket, .content = said.content, .flags = flushes | awaits | flag };
    @memcpy(out[0..@sizeOf(Head)], std.mem.asBytes(&head));
}

/// The command in `bytes`. Slices point into `bytes`, into `fields`, which is filled, and to content that
/// lies beside the ring, of which nothing is read.
pub fn decode(
    gpa: std.mem.Allocator,
    bytes: []align(ring.alignment) const u8,
    beside: Beside,
    fields: *std.ArrayList(Field),
) error{ Malformed, OutOfMemory }!Spoken {
    if (bytes.len < @sizeOf(Head)) return error.Malformed;
    const head = std.mem.bytesToValue(Head, bytes[0..@sizeOf(Head)]);
    const known = Head.flushes | Head.awaits | Head.apart | Head.lent;
    if (head.flags & ~@as(u32, known) != 0 or head.reserved != 0) return error.Malformed;
    var rest: []const u8 = bytes[@sizeOf(Head)..];
    var apart: ?[]const u8 = null;
    var loan: ?*types.Loan = null;
    switch (head.flags & (Head.apart | Head.lent)) {
        0 => {},
        Head.apart => apart = try beside.annex.from((try cut(u64, &rest)).*),
        Head.lent => {
            if (!beside.lends) return error.Malformed;
            const lent = (try cut(Lent, &rest)).*;
            const is_aligned = lent.loan % @alignOf(types.Loan) == 0;
            if (lent.address == 0 or lent.loan == 0 or !is_aligned) return error.Malformed;
            apart = @as([*]const u8, @ptrFromInt(lent.address))[0..lent.len];
            loan = @ptrFromInt(lent.loan);
        },
        else => return error.Malformed,
    }
    var command = while (true) {
        fields.items.len = 0;
        const space = fields.allocatedSlice();
        const command = if (apart) |content|
            encoded.decodeApart(rest, content, space)
        else
            encoded.decode(rest, space);
        break command catch |err| switch (err) {
            error.Malformed => return error.Malformed,
            error.TooManyFields => {
                if (fields.capacity > rest.len) return error.Malformed;
                try fields.ensureTotalCapacity(gpa, @max(64, fields.capacity * 2));
                continue;
            },
        };
    };
    if (loan) |mark| switch (command) {
        .body => |*body| body.loan = mark,
        else => return error.Malformed,
    };
    return .{
        .ticket = head.ticket,
        .command = command,
        .flushes = head.flags & Head.flushes != 0,
        .awaits = head.flags & Head.awaits != 0,
        .content = head.content,
    };
}

/// Takes a value from the end of a message.
fn cut(comptime T: type, rest: *[]const u8) error{Malformed}!*align(1) const T {
    if (rest.len < @sizeOf(T)) return error.Malformed;
    const end = rest.len - @sizeOf(T);
    defer rest.* = rest.*[0..end];
    return @ptrCast(rest.*[end..].ptr);
}

/// Whether a message is a piece of a body. Its content is sent unread, so a copy that the application cannot
/// change is of no use.
pub fn isContent(bytes: []align(ring.alignment) const u8) bool {
    return bytes.len > @sizeOf(Head) and encoded.isBody(bytes[@sizeOf(Head)..]);
}

/// Whether a message is the head of a response that waits for the command behind it.
pub fn isHeld(bytes: []align(ring.alignment) const u8) bool {
    return bytes.len > @sizeOf(Head) and encoded.isHeld(bytes[@sizeOf(Head)..]);
}

/// A message of no bytes, which lets the engine go on with a head that it holds back for the next command.
pub const release = "";

const testing = std.testing;

test "an encoded command is decoded as it was, with any number of fields" {
    var fields: std.ArrayList(Field) = .empty;
    defer fields.deinit(testing.allocator);
    const many: [100]Field = @splat(.init("name", "value"));
    for ([_]Spoken{
        .{ .ticket = 7 << 30, .command = .{ .start = .{ .status = 200, .fields = &many } }, .flushes = true },
        .{
            .ticket = 1,
            .command = .{ .body = .{ .bytes = "piece", .last = true } },
            .awaits = true,
            .content = 5,
        },
    }) |said| {
        const bytes = try testing.allocator.alignedAlloc(u8, .fromByteUnits(ring.alignment), size(&said));
        defer testing.allocator.free(bytes);
        encode(&said, bytes);
        const found = try decode(testing.allocator, bytes, no_annex, &fields);
        inline for (.{ "ticket", "flushes", "awaits", "content" }) |name| {
            try testing.expectEqual(@field(said, name), @field(found, name));
        }
        try testing.expectEqual(said.command == .body, isContent(bytes));
        switch (found.command) {
            .start => |start| {
                try testing.expectEqual(100, start.fields.len);
                for (start.fields) |field| try testing.expectEqualStrings("value", field.value());
            },
            .body => |body| try testing.expectEqualStrings("piece", body.bytes),
            else => return error.TestUnexpectedResult,
        }
        for (0..@sizeOf(Head)) |len| {
            const found_cut = decode(testing.allocator, bytes[0..len], no_annex, &fields);
            try testing.expectError(error.Malformed, found_cut);
        }
        bytes[16] = 0xFF;
        try testing.expectError(error.Malformed, decode(testing.allocator, bytes, no_annex, &fields));
    }
}

const no_annex: Beside = .{ .annex = .{ .memory = &.{} } };

test "content in the annex is a command's where the annex has it" {
    var fields: std.ArrayList(Field) = .empty;
    defer fields.deinit(testing.allocator);
    const memory = try testing.allocator.alignedAlloc(u8, .fromByteUnits(annex.alignment), 64);
    defer testing.allocator.free(memory);
    @memcpy(memory[8..13], "piece");
    const said: Spoken = .{ .ticket = 1, .command = .{ .body = .{ .bytes = "piece", .last = true } } };
    const bytes = try testing.allocator.alignedAlloc(u8, .fromByteUnits(ring.alignment), sizeApart(&said));
    defer testing.allocator.free(bytes);
    encodeApart(&said, 8, bytes);
    const beside: Beside = .{ .annex = .{ .memory = memory } };
    const found = try decode(testing.allocator, bytes, beside, &fields);
    try testing.expectEqualStrings("piece", found.command.body.bytes);
    try testing.expectEqual(memory[8..].ptr, found.command.body.bytes.ptr);
    try testing.expect(isContent(bytes));
    for ([_]u64{ 60, 65, std.math.maxInt(u64) }) |offset| {
        encodeApart(&said, offset, bytes);
        try testing.expectError(error.Malformed, decode(testing.allocator, bytes, beside, &fields));
    }
    for (0..bytes.len) |len| {
        const found_cut = decode(testing.allocator, bytes[0..len], beside, &fields);
        try testing.expectError(error.Malformed, found_cut);
    }
}

test "lent content comes with its loan, and only from an application that may lend" {
    var fields: std.ArrayList(Field) = .empty;
    defer fields.deinit(testing.allocator);
    var loan: types.Loan = .{};
    const said: Spoken = .{ .ticket = 1, .command = .{ .body = .{ .bytes = "piece", .last = true } } };
    const bytes = try testing.allocator.alignedAlloc(u8, .fromByteUnits(ring.alignment), sizeLent(&said));
    defer testing.allocator.free(bytes);
    encodeLent(&said, &loan, bytes);
    try testing.expect(isContent(bytes));
    const lends: Beside = .{ .annex = no_annex.annex, .lends = true };
    const found = try decode(testing.allocator, bytes, lends, &fields);
    try testing.expectEqual(said.command.body.bytes.ptr, found.command.body.bytes.ptr);
    try testing.expectEqual(5, found.command.body.bytes.len);
    try testing.expectEqual(&loan, found.command.body.loan.?);
    try testing.expectError(error.Malformed, decode(testing.allocator, bytes, no_annex, &fields));
    for (0..bytes.len) |len| {
        const found_cut = decode(testing.allocator, bytes[0..len], lends, &fields);
        try testing.expectError(error.Malformed, found_cut);
    }
}
