//! Header fields in both directions (RFC 9110 section 5).
//! Does not know: the effect of a field on framing (http1/framing.zig).
const std = @import("std");
const syntax = @import("syntax.zig");

/// A field to send. Laid out for C: `peregrine_field` in peregrine.h. Both slices belong to the caller and
/// are only read during a call.
pub const Field = extern struct {
    name_ptr: [*]const u8,
    name_len: usize,
    value_ptr: [*]const u8,
    value_len: usize,

    /// Makes a field from two slices, which are borrowed and must outlive it.
    pub fn init(field_name: []const u8, field_value: []const u8) Field {
        return .{
            .name_ptr = field_name.ptr,
            .name_len = field_name.len,
            .value_ptr = field_value.ptr,
            .value_len = field_value.len,
        };
    }

    /// The name in the caller's spelling, unchecked.
    pub fn name(f: Field) []const u8 {
        return f.name_ptr[0..f.name_len];
    }

    /// The value as the caller gave it, unchecked.
    pub fn value(f: Field) []const u8 {
        return f.value_ptr[0..f.value_len];
    }
};

/// A received field as offsets into the head's text, so that a head can be moved by copying its text and its
/// spans. Laid out for C: `peregrine_field_span` in peregrine.h.
pub const FieldSpan = extern struct {
    name_at: u32,
    value_at: u32,
    value_len: u32,
    name_len: u16,
    id: Id,

    /// The name in the peer's spelling: a token. For a field that the peer did not send (see `Head.added`):
    /// in lower case.
    pub fn name(span: FieldSpan, text: []const u8) []const u8 {
        return if (span.name_len == 0) span.id.text() else text[span.name_at..][0..span.name_len];
    }

    /// The value without surrounding whitespace; it has no control bytes except HTAB.
    pub fn value(span: FieldSpan, text: []const u8) []const u8 {
        return text[span.value_at..][0..span.value_len];
    }
};

/// Names that the engine or its hosts treat specially or that are frequent; all others are `.other`. The
/// numbers are part of the C API (peregrine.h): append only.
pub const Id = enum(u16) {
    other = 0,
    host = 1,
    connection = 2,
    content_length = 3,
    transfer_encoding = 4,
    expect = 5,
    upgrade = 6,
    cookie = 7,
    content_type = 8,
    accept = 9,
    accept_encoding = 10,
    accept_language = 11,
    user_agent = 12,
    referer = 13,
    origin = 14,
    authorization = 15,
    cache_control = 16,
    pragma = 17,
    if_none_match = 18,
    if_modified_since = 19,
    range = 20,
    te = 21,
    trailer = 22,
    date = 23,
    keep_alive = 24,
    x_forwarded_for = 25,
    x_forwarded_proto = 26,
    x_forwarded_host = 27,
    forwarded = 28,
    sec_websocket_key = 29,
    sec_websocket_version = 30,
    sec_websocket_protocol = 31,
    sec_websocket_extensions = 32,
    sec_fetch_dest = 33,
    sec_fetch_mode = 34,
    sec_fetch_site = 35,
    sec_fetch_user = 36,
    upgrade_insecure_requests = 37,
    x_requested_with = 38,
    x_request_id = 39,
    traceparent = 40,
    last_event_id = 41,
    sec_ch_ua = 42,
    sec_ch_ua_mobile = 43,
    sec_ch_ua_platform = 44,
    priority = 45,
    dnt = 46,
    if_range = 47,
    if_match = 48,
    if_unmodified_since = 49,
    proxy_connection = 50,
    _,

    /// The id with the highest number.
    const last: Id = .proxy_connection;

    /// Returns the id of a field name, ignoring case; `.other`: it has none. A name with an id is a token, so
    /// only `.other` names need a check of their bytes.
    pub fn fromName(name: []const u8) Id {
        return switch (name.len) {
            inline name_bytes_min...name_bytes_max => |len| fromSized(len, name[0..len]),
            else => .other,
        };
    }

    /// The field name in lower case; "" for `.other` and for numbers without a name.
    pub fn text(id: Id) []const u8 {
        const number = @backingInt(id);
        return if (number < names.len) names[number] else "";
    }

    fn fromSized(comptime len: usize, name: *const [len]u8) Id {
        inline for (names, 0..) |known, number| {
            if (known.len == len and syntax.equalsFolded(name, known[0..len])) {
                return @fromBackingInt(@intCast(number));
            }
        }
        return .other;
    }
};

const name_bytes_min = 2;
const name_bytes_max = 25;

const names: [@backingInt(Id.last) + 1][]const u8 = names: {
    @setEvalBranchQuota(10_000);
    var table: [@backingInt(Id.last) + 1][]const u8 = undefined;
    table[0] = "";
    for (table[1..], 1..) |*slot, number| {
        const tag = @tagName(@as(Id, @fromBackingInt(@intCast(number))));
        var name: [tag.len]u8 = undefined;
        for (&name, tag) |*byte, letter| byte.* = if (letter == '_') '-' else letter;
        if (name.len < name_bytes_min or name.len > name_bytes_max) {
            @compileError("adjust the bounds: " ++ tag);
        }
        const frozen = name;
        slot.* = &frozen;
    }
    break :names table;
};

test "every id is found by its name in any case, and by nothing else" {
    for (names[1..], 1..) |name, number| {
        const id: Id = @fromBackingInt(@intCast(number));
        try std.testing.expectEqualStrings(name, id.text());
        var buffer: [name_bytes_max]u8 = undefined;
        const spelled = buffer[0..name.len];
        @memcpy(spelled, name);
        try std.testing.expectEqual(id, Id.fromName(spelled));
        for (spelled) |*byte| byte.* = std.ascii.toUpper(byte.*);
        try std.testing.expectEqual(id, Id.fromName(spelled));
        // Each byte in turn gets each value: the name is found only if the byte differs at most in case.
        for (spelled, 0..) |original, at| {
            for (0..256) |value| {
                spelled[at] = @intCast(value);
                const same = std.ascii.toLower(@intCast(value)) == name[at];
                try std.testing.expectEqual(same, Id.fromName(spelled) == id);
            }
            spelled[at] = original;
        }
    }
}

test "names without an id" {
    for ([_][]const u8{ "", "x", "x-frame-options", "hosts", "hos", "server", "content_length" }) |name| {
        try std.testing.expectEqual(Id.other, Id.fromName(name));
    }
    try std.testing.expectEqualStrings("", Id.other.text());
    try std.testing.expectEqualStrings("", @as(Id, @fromBackingInt(@intCast(9999))).text());
}
