//! Events as bytes without pointers, for ring pairs between threads and processes. A decoded event points
//! into its encoded bytes, the annex and the depot only.
//!
//! A head of fixed size; with a request its own head, the spans of its fields, its text, the two addresses,
//! the facts of its TLS connection (tls_facts.zig); then one run of bytes (a piece of a body, a message, a
//! reason, a line), or the place of that run in the engine's depot or the ring's annex. Numbers are in the
//! machine's byte order: both sides run on it.
const std = @import("std");
const assert = std.debug.assert;
const peregrine = @import("peregrine");
const annex = @import("annex.zig");
const Reader = peregrine.encoded.Reader;
const ring = @import("ring.zig");
const types = @import("types.zig");
const Event = types.Event;
const FieldSpan = peregrine.FieldSpan;
const Request = types.Request;

/// The beginning of each encoded event.
const Head = extern struct {
    kind: u16,
    flags: u16,
    code: u32,
    ticket: types.Ticket,
    reason: u32,
    /// The length of the request behind this head; 0: there is none.
    request_bytes: u32,
    /// The length of the run of bytes at the end.
    len: u64,

    /// Bits of `flags`: the run of bytes lies there, and its offset stands in its place.
    const in_annex = 1 << 15;
    const in_depot = 1 << 14;
    const elsewhere = in_annex | in_depot;
};

comptime {
    for (@typeInfo(types.EventFlag).@"struct".decl_names) |name| {
        assert(@field(types.EventFlag, name) & Head.elsewhere == 0);
    }
}

/// The place of an event's run of bytes: within the encoded event, in a message behind it, or outside the
/// ring.
pub const Place = union(enum) { here, follows, annex: u64, depot: u64 };

/// The reader's views of memory beside the ring; empty where there is none.
pub const Beside = struct {
    annex: annex.View,
    depot: annex.View,

    pub const none: Beside = .{ .annex = .{ .memory = &.{} }, .depot = .{ .memory = &.{} } };
};

/// `types.Request` without its pointers.
const RequestHead = extern struct {
    body_length: i64,
    text_len: u32,
    field_count: u32,
    peer_len: u32,
    local_len: u32,
    method: types.Span,
    target: types.Span,
    path: types.Span,
    query: types.Span,
    authority: types.Span,
    connection: u32,
    number: u32,
    peer_port: u16,
    local_port: u16,
    method_id: u8,
    version: u8,
    secure: u8,
    has_query: u8,
    tls: u8,
    reserved: [3]u8 = @splat(0),
    tls_len: u32,
    route: u32,
    /// Between threads the number of a descriptor, which the decoding side owns then.
    body_fd: i32,
    complete_us: u64,

    const same_names = .{
        "body_length", "text_len",    "field_count", "method",    "target",  "path",
        "query",       "authority",   "connection",  "number",    "version", "secure",
        "peer_port",   "local_port",  "method_id",   "has_query", "tls",     "route",
        "body_fd",     "complete_us",
    };
};

comptime {
    assert(peregrine.api_limits.tls_facts_bytes_max < ring.record_bytes_max);
    for (.{ Head, RequestHead }) |Part| assert(@sizeOf(Part) % ring.alignment == 0);
    assert(@alignOf(FieldSpan) <= ring.alignment);
}

/// The number of bytes that `encode` writes. `tls`: the facts of a request's TLS connection, or nothing.
pub fn size(event: *const Event, tls: []const u8) usize {
    return @sizeOf(Head) + requestSize(event, tls) + event.len;
}

/// The number of bytes that `encode` writes for an event whose run of bytes lies in the annex or the depot.
pub fn sizeApart(event: *const Event, tls: []const u8) usize {
    return @sizeOf(Head) + requestSize(event, tls) + @sizeOf(u64);
}

fn requestSize(event: *const Event, tls: []const u8) usize {
    const request = event.request orelse return 0;
    const spans_bytes = request.field_count * @sizeOf(FieldSpan);
    return @sizeOf(RequestHead) + spans_bytes + request.text_len + std.mem.len(request.peer) +
        std.mem.len(request.local) + 2 + tls.len;
}

/// Writes an event into `out`, whose length is exactly `size`, or `sizeApart` (annex, depot), or `size`
/// without the run of bytes (follows). `user` is left out: the reader has its own.
pub fn encode(event: *const Event, tls: []const u8, place: Place, out: []u8) void {
    var rest = out;
    const flag: u16, const run = switch (place) {
        .here => .{ 0, event.bytes[0..event.len] },
        .follows => .{ 0, "" },
        .annex => |*offset| .{ Head.in_annex, std.mem.asBytes(offset) },
        .depot => |*offset| .{ Head.in_depot, std.mem.asBytes(offset) },
    };
    assert(event.flags & Head.elsewhere == 0);
    put(&rest, std.mem.asBytes(&Head{
        .kind = @backingInt(event.kind),
        .flags = event.flags | flag,
        .code = event.code,
        .ticket = event.ticket,
        .reason = event.reason,
        .request_bytes = @intCast(out.len - run.len - @sizeOf(Head)),
        .len = event.len,
    }));
    if (event.request) |request| putRequest(&rest, request, tls);
    put(&rest, run);
    assert(rest.len == 0); // so `out` had as many bytes as `size` says
}

fn putRequest(rest: *[]u8, request: *const Request, tls: []const u8) void {
    const peer = std.mem.span(request.peer);
    const local = std.mem.span(request.local);
    var head: RequestHead = undefined;
    inline for (RequestHead.same_names) |name| @field(head, name) = @field(request, name);
    head.peer_len = @intCast(peer.len);
    head.local_len = @intCast(local.len);
    head.tls_len = @intCast(tls.len);
    head.reserved = @splat(0);
    put(rest, std.mem.asBytes(&head));
    put(rest, std.mem.sliceAsBytes(request.fields[0..request.field_count]));
    put(rest, request.text[0..request.text_len]);
    put(rest, peer[0 .. peer.len + 1]);
    put(rest, local[0 .. local.len + 1]);
    put(rest, tls);
}

/// The length of the message that begins with this part.
pub fn sizeOf(part: []const u8) DecodeError!usize {
    if (part.len < @sizeOf(Head)) return error.Malformed;
    const head = std.mem.bytesToValue(Head, part[0..@sizeOf(Head)]);
    const known = @sizeOf(Head) + @as(u64, head.request_bytes);
    return std.math.cast(usize, known +| head.len) orelse error.Malformed;
}

fn put(rest: *[]u8, bytes: []const u8) void {
    @memcpy(rest.*[0..bytes.len], bytes);
    rest.* = rest.*[bytes.len..];
}

/// The bytes were not written by `encode`.
pub const DecodeError = error{Malformed};

/// An event, and what is known of the TLS connection of its request.
pub const Decoded = struct { event: Event, tls: []const u8 };

/// The event that `bytes` hold. Its slices, and those of `request`, which it refers to if it has one, point
/// into `bytes`, or into memory beside the ring.
pub fn decode(
    bytes: []align(ring.alignment) const u8,
    beside: Beside,
    request: *Request,
) DecodeError!Decoded {
    var reader: Reader = .{ .rest = bytes };
    const head = try reader.value(Head);
    const has_request = head.request_bytes > 0;
    var tls: []const u8 = "";
    if (has_request) {
        var part: Reader = .{ .rest = try reader.run(head.request_bytes) };
        request.* = try requestOf(&part, &tls);
    }
    const content = switch (head.flags & Head.elsewhere) {
        0 => try reader.run(head.len),
        Head.in_annex => try runAt(&reader, beside.annex, head.len),
        Head.in_depot => try runAt(&reader, beside.depot, head.len),
        else => return error.Malformed,
    };
    if (reader.rest.len > 0) return error.Malformed;
    return .{ .tls = tls, .event = .{
        .kind = std.enums.fromInt(types.Kind, head.kind) orelse return error.Malformed,
        .flags = head.flags & ~@as(u16, Head.elsewhere),
        .code = head.code,
        .ticket = head.ticket,
        .bytes = content.ptr,
        .len = content.len,
        .request = if (has_request) request else null,
        .reason = head.reason,
    } };
}

fn runAt(reader: *Reader, there: annex.View, len: u64) DecodeError![]const u8 {
    var content: Reader = .{ .rest = try there.from(try reader.value(u64)) };
    return content.run(len);
}

fn requestOf(reader: *Reader, tls: *[]const u8) DecodeError!Request {
    const head = try reader.value(RequestHead);
    const spans = try reader.run(@as(u64, head.field_count) * @sizeOf(FieldSpan));
    const text = try reader.run(head.text_len);
    const peer = try runZ(reader, head.peer_len);
    const local = try runZ(reader, head.local_len);
    tls.* = try reader.run(head.tls_len);
    if (reader.rest.len > 0) return error.Malformed;
    inline for (.{ "method", "target", "path", "query", "authority" }) |name| {
        const span: types.Span = @field(head, name);
        if (span.at > text.len or span.len > text.len - span.at) return error.Malformed;
    }
    var request: Request = undefined;
    inline for (RequestHead.same_names) |name| @field(request, name) = @field(head, name);
    request.text = text.ptr;
    request.fields = @ptrCast(@alignCast(spans.ptr));
    request.peer = peer;
    request.local = local;
    request.reserved = @splat(0);
    request.reserved2 = 0;
    for (request.fields[0..head.field_count]) |field| {
        if (field.name_at > text.len or field.name_len > text.len - field.name_at) return error.Malformed;
        if (field.value_at > text.len or field.value_len > text.len - field.value_at) return error.Malformed;
    }
    return request;
}

fn runZ(reader: *Reader, len: u32) DecodeError![*:0]const u8 {
    const bytes = try reader.run(@as(u64, len) + 1);
    if (std.mem.findScalar(u8, bytes, 0) != len) return error.Malformed;
    return bytes[0..len :0];
}

const testing = std.testing;

const sample_fields = [_]FieldSpan{
    .{ .name_at = 16, .value_at = 22, .value_len = 1, .name_len = 4, .id = .host },
    .{ .name_at = 25, .value_at = 28, .value_len = 0, .name_len = 1, .id = .other },
};

const sample_request: Request = .{
    .text = "GET /a?b HTTP/1.1Host: x\r\nY: \r\n\r\n",
    .text_len = 33,
    .field_count = sample_fields.len,
    .fields = &sample_fields,
    .method = .{ .at = 0, .len = 3 },
    .target = .{ .at = 4, .len = 4 },
    .path = .{ .at = 4, .len = 2 },
    .query = .{ .at = 7, .len = 1 },
    .authority = .{ .at = 22, .len = 1 },
    .method_id = 1,
    .version = 11,
    .secure = 1,
    .has_query = 1,
    .peer_port = 1234,
    .local_port = 80,
    .connection = 17,
    .tls = 1,
    .peer = "192.0.2.1",
    .local = "/run/socket",
    .body_length = -1,
    .number = 3,
    .route = 4,
    .body_fd = 5,
    .complete_us = 6,
};

fn sampleOf(kind: types.Kind) Event {
    var event: Event = .{
        .kind = kind,
        .flags = 1,
        .code = 2,
        .ticket = 3 << 40,
        .reason = 4,
        .bytes = "content",
        .len = 7,
    };
    if (kind == .request) event.request = &sample_request;
    return event;
}

fn encodedSample(event: *const Event) ![]align(ring.alignment) u8 {
    const tls = if (event.request == null) "" else "facts";
    const bytes = try testing.allocator.alignedAlloc(u8, .fromByteUnits(ring.alignment), size(event, tls));
    encode(event, tls, .here, bytes);
    return bytes;
}

test "every event comes back as it was" {
    for (std.enums.values(types.Kind)) |kind| {
        const event = sampleOf(kind);
        const bytes = try encodedSample(&event);
        defer testing.allocator.free(bytes);
        var request: Request = undefined;
        const decoded = try decode(bytes, .none, &request);
        const found = decoded.event;
        inline for (.{ "kind", "flags", "code", "ticket", "reason", "len" }) |name| {
            try testing.expectEqual(@field(event, name), @field(found, name));
        }
        try testing.expectEqualStrings("content", found.bytes[0..found.len]);
        try testing.expectEqual(kind == .request, found.request != null);
        try testing.expectEqualStrings(if (kind == .request) "facts" else "", decoded.tls);
        if (kind != .request) continue;
        inline for (RequestHead.same_names) |name| {
            try testing.expectEqual(@field(sample_request, name), @field(request, name));
        }
        try testing.expectEqualStrings(sample_request.text[0..33], request.text[0..request.text_len]);
        try testing.expectEqualSlices(FieldSpan, &sample_fields, request.fields[0..request.field_count]);
        try testing.expectEqualStrings("192.0.2.1", std.mem.span(request.peer));
        try testing.expectEqualStrings("/run/socket", std.mem.span(request.local));
    }
}

test "no shorter bytes are an event, and no wrong number leads out of the bytes" {
    const event = sampleOf(.request);
    const bytes = try encodedSample(&event);
    defer testing.allocator.free(bytes);
    var request: Request = undefined;
    for (0..bytes.len) |cut| {
        try testing.expectError(error.Malformed, decode(bytes[0..cut], .none, &request));
    }
    for (0..@sizeOf(Head) + @sizeOf(RequestHead) + 2 * @sizeOf(FieldSpan)) |at| {
        const before = bytes[at];
        defer bytes[at] = before;
        bytes[at] = 0xFF;
        const found = decode(bytes, .none, &request) catch continue;
        std.mem.doNotOptimizeAway(std.hash.Crc32.hash(found.tls));
        const seen = found.event.request orelse continue;
        for (seen.fields[0..seen.field_count]) |field| {
            std.mem.doNotOptimizeAway(std.hash.Crc32.hash(seen.text[field.name_at..][0..field.name_len]));
            std.mem.doNotOptimizeAway(std.hash.Crc32.hash(seen.text[field.value_at..][0..field.value_len]));
        }
    }
}

test "bytes elsewhere are found where they are, and not beyond" {
    const memory = try testing.allocator.alignedAlloc(u8, .fromByteUnits(annex.alignment), 4096);
    defer testing.allocator.free(memory);
    @memcpy(memory[100..107], "content");
    const event = sampleOf(.message);
    var out: [256]u8 align(ring.alignment) = undefined;
    const bytes = out[0..sizeApart(&event, "")];
    var request: Request = undefined;
    inline for (.{ "annex", "depot" }) |name| {
        encode(&event, "", @unionInit(Place, name, 100), bytes);
        var beside: Beside = .none;
        try testing.expectError(error.Malformed, decode(bytes, beside, &request));
        @field(beside, name) = .{ .memory = memory };
        const found = (try decode(bytes, beside, &request)).event;
        try testing.expectEqualStrings("content", found.bytes[0..found.len]);
        try testing.expectEqual(event.flags, found.flags);
        for ([_]u64{ 4090, 5000, std.math.maxInt(u64) }) |offset| {
            encode(&event, "", @unionInit(Place, name, offset), bytes);
            try testing.expectError(error.Malformed, decode(bytes, beside, &request));
        }
    }
}
