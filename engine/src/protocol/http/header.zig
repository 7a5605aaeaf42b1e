//! Header fields in both directions (RFC 9110 section 5).
//! Does not know: what a field means for framing (http1/framing.zig).
const std = @import("std");
const syntax = @import("syntax.zig");

/// A field on its way out. Laid out for C: the same struct is `peregrine_field` in peregrine.h.
/// Both slices belong to the caller and are only read during the call that takes them.
pub const Field = extern struct {
    name_ptr: [*]const u8,
    name_len: usize,
    value_ptr: [*]const u8,
    value_len: usize,

    /// A field that borrows two slices, which have to outlive it.
    pub fn init(field_name: []const u8, field_value: []const u8) Field {
        return .{
            .name_ptr = field_name.ptr,
            .name_len = field_name.len,
            .value_ptr = field_value.ptr,
            .value_len = field_value.len,
        };
    }

    /// The name as the caller spelled it; not checked.
    pub fn name(f: Field) []const u8 {
        return f.name_ptr[0..f.name_len];
    }

    /// The value as the caller gave it; not checked.
    pub fn value(f: Field) []const u8 {
        return f.value_ptr[0..f.value_len];
    }
};

/// A received field as offsets into the head's text, so that a head moves with one copy of its text and one
/// of its spans. Laid out for C: `peregrine_field_span` in peregrine.h.
pub const FieldSpan = extern struct {
    name_at: u32,
    value_at: u32,
    value_len: u32,
    name_len: u16,
    id: Id,

    /// The name as the peer spelled it: a token. Of a field that the peer did not send, in lower
    /// case; see `Head.added`.
    pub fn name(span: FieldSpan, text: []const u8) []const u8 {
        return if (span.name_len == 0) span.id.text() else text[span.name_at..][0..span.name_len];
    }

    /// The value without the whitespace around it: no control bytes but HTAB.
    pub fn value(span: FieldSpan, text: []const u8) []const u8 {
        return text[span.value_at..][0..span.value_len];
    }
};

/// Names that the engine or its faces treat specially or see often; everything else is `.other`.
/// The numbers are part of the C contract (peregrine.h): append only.
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

    /// The highest number that has a name.
    const last: Id = .proxy_connection;

    /// The id of a field name, compared without regard to case; `.other` if it has none. A name that has an
    /// id is a token, so that only `.other` names need a check of their bytes.
    pub fn fromName(name: []const u8) Id {
        return switch (name.len) {
            inline name_bytes_min...name_bytes_max => |len| fromSized(len, name[0..len]),
            else => .other,
        };
    }

    /// The field name in lower case; "" for `.other` and for numbers that have no name.
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
        // Each byte in turn takes each value: the name is found only where the byte differs in nothing but
        // case.
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
