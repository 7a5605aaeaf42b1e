//! Conditional requests (RFC 9110 section 13): whether the answer is the file, a 304 or a 412, and whether a
//! Range field holds. Does not know: files.
const std = @import("std");
const protocol = @import("protocol");
const date = protocol.http.date;
const syntax = protocol.http.syntax;

/// Validators: they tell one state of a representation from another.
pub const Validators = struct {
    /// An entity-tag with its quotes, and W/ before them if it is a weak one.
    etag: []const u8,
    /// Seconds since 1970; null if there is no sensible date.
    modified: ?u64,
};

/// The conditional fields of a request; null: not sent.
pub const Fields = struct {
    if_match: ?[]const u8 = null,
    if_none_match: ?[]const u8 = null,
    if_modified_since: ?[]const u8 = null,
    if_unmodified_since: ?[]const u8 = null,
    if_range: ?[]const u8 = null,

    /// Whether the request has no conditional field.
    pub fn isEmpty(fields: *const Fields) bool {
        inline for (@typeInfo(Fields).@"struct".field_names) |name| {
            if (@field(fields, name) != null) return false;
        }
        return true;
    }
};

/// The outcome of a request's conditions.
pub const Verdict = enum { proceed, not_modified, precondition_failed };

/// Evaluates GET and HEAD in the order of section 13.2.2. `now` in seconds since 1970.
pub fn evaluate(fields: Fields, validators: Validators, now: u64) Verdict {
    if (fields.if_match) |list| {
        if (!matches(list, validators.etag, .strong)) return .precondition_failed;
    } else if (fields.if_unmodified_since) |text| {
        // A date that cannot be read, or nothing to compare it with: as if the field was not there.
        if (date.parse(text, now)) |since| if (validators.modified) |modified| {
            if (modified > since) return .precondition_failed;
        };
    }
    if (fields.if_none_match) |list| {
        if (matches(list, validators.etag, .weak)) return .not_modified;
    } else if (fields.if_modified_since) |text| {
        if (date.parse(text, now)) |since| if (validators.modified) |modified| {
            if (modified <= since) return .not_modified;
        };
    }
    return .proceed;
}

/// Whether a Range field holds (section 13.1.5): without If-Range always, else only if nothing has changed.
pub fn rangeHolds(fields: Fields, validators: Validators, now: u64) bool {
    const text = fields.if_range orelse return true;
    if (text.len > 0 and text[0] == '"') return std.mem.eql(u8, text, validators.etag);
    if (std.mem.startsWith(u8, text, "W/")) return false;
    const since = date.parse(text, now) orelse return false;
    const modified = validators.modified orelse return false;
    // A date is a strong validator only if the file did not change again within that second; a minute is the
    // RFC's advice (section 8.8.2.2).
    return modified == since and now -| modified >= 60;
}

const Comparison = enum { strong, weak };

/// Whether a list of entity-tags contains our tag, as "*" does.
fn matches(list: []const u8, ours_as_sent: []const u8, comparison: Comparison) bool {
    const weak = std.mem.startsWith(u8, ours_as_sent, "W/");
    const etag = if (weak) ours_as_sent[2..] else ours_as_sent;
    var rest = list;
    while (true) {
        rest = std.mem.trimStart(u8, rest, ", \t");
        if (rest.len == 0) return false;
        if (rest[0] == '*') return true;
        const is_weak = std.mem.startsWith(u8, rest, "W/");
        if (is_weak) rest = rest[2..];
        if (rest.len == 0 or rest[0] != '"') return false;
        // The tag may contain commas, so its quotes have to be found.
        const end = std.mem.findScalarPos(u8, rest, 1, '"') orelse return false;
        const same = std.mem.eql(u8, rest[0 .. end + 1], etag);
        if (same and (comparison == .weak or !(is_weak or weak))) return true;
        rest = rest[end + 1 ..];
    }
}

const testing = std.testing;
const nov = 784_111_777; // Sun, 06 Nov 1994 08:49:37 GMT
const nov_text = "Sun, 06 Nov 1994 08:49:37 GMT";
const before_text = "Sun, 06 Nov 1994 08:49:36 GMT";
const now_then = nov + 1000;
const ours: Validators = .{ .etag = "\"a,b\"", .modified = nov };

fn expect(verdict: Verdict, fields: Fields) !void {
    try testing.expectEqual(verdict, evaluate(fields, ours, now_then));
}

test "entity-tags" {
    try expect(.proceed, .{});
    try expect(.not_modified, .{ .if_none_match = "\"a,b\"" });
    try expect(.not_modified, .{ .if_none_match = "\"x\", W/\"a,b\"" });
    try expect(.not_modified, .{ .if_none_match = "*" });
    try expect(.proceed, .{ .if_none_match = "\"a\",\"b\"" });
    try expect(.proceed, .{ .if_none_match = "a,b" });
    try expect(.proceed, .{ .if_none_match = "\"a,b" });
    try expect(.proceed, .{ .if_match = "\"x\" , \"a,b\"" });
    try expect(.proceed, .{ .if_match = "*" });
    try expect(.precondition_failed, .{ .if_match = "W/\"a,b\"" });
    try expect(.precondition_failed, .{ .if_match = "\"x\"" });
    try expect(.precondition_failed, .{ .if_match = "" });
}

test "a weak tag of ours" {
    const weak: Validators = .{ .etag = "W/\"a\"", .modified = nov };
    try testing.expectEqual(.not_modified, evaluate(.{ .if_none_match = "\"a\"" }, weak, now_then));
    try testing.expectEqual(.not_modified, evaluate(.{ .if_none_match = "W/\"a\"" }, weak, now_then));
    try testing.expectEqual(.precondition_failed, evaluate(.{ .if_match = "W/\"a\"" }, weak, now_then));
    try testing.expectEqual(.precondition_failed, evaluate(.{ .if_match = "\"a\"" }, weak, now_then));
    try testing.expectEqual(.proceed, evaluate(.{ .if_match = "*" }, weak, now_then));
    try testing.expect(!rangeHolds(.{ .if_range = "W/\"a\"" }, weak, now_then));
    try testing.expect(!rangeHolds(.{ .if_range = "\"a\"" }, weak, now_then));
}

test "dates, and tags that go before them" {
    try expect(.not_modified, .{ .if_modified_since = nov_text });
    try expect(.proceed, .{ .if_modified_since = before_text });
    try expect(.proceed, .{ .if_modified_since = "yesterday" });
    try expect(.proceed, .{ .if_unmodified_since = nov_text });
    try expect(.precondition_failed, .{ .if_unmodified_since = before_text });
    try expect(.proceed, .{ .if_unmodified_since = "yesterday" });
    try expect(.proceed, .{ .if_none_match = "\"x\"", .if_modified_since = nov_text });
    try expect(.proceed, .{ .if_match = "\"a,b\"", .if_unmodified_since = before_text });
}

test "If-Range" {
    try testing.expect(rangeHolds(.{}, ours, now_then));
    try testing.expect(rangeHolds(.{ .if_range = "\"a,b\"" }, ours, now_then));
    try testing.expect(!rangeHolds(.{ .if_range = "W/\"a,b\"" }, ours, now_then));
    try testing.expect(!rangeHolds(.{ .if_range = "\"x\"" }, ours, now_then));
    try testing.expect(rangeHolds(.{ .if_range = nov_text }, ours, now_then));
    try testing.expect(!rangeHolds(.{ .if_range = nov_text }, ours, nov + 30));
    try testing.expect(!rangeHolds(.{ .if_range = before_text }, ours, now_then));
    try testing.expect(!rangeHolds(.{ .if_range = "" }, ours, now_then));
}
