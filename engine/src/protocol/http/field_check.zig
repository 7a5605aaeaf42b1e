//! Checks an application's fields, for callers that must respond before the fields are written
//! (http1/response_fields.zig checks while it writes). RFC 9110 sections 5.1, 5.5 and 8.6. Does not know:
//! which of the fields are sent.
const std = @import("std");
const header = @import("header.zig");
const syntax = @import("syntax.zig");
const Field = header.Field;

/// Reasons why a field of an application is refused.
pub const FieldError = error{ InvalidFieldName, InvalidFieldValue, InvalidContentLength };

/// Returns the Content-Length among the fields of a head; null: there is none. After an error, `bad_field` is
/// the index of the refused field.
pub fn head(fields: []const Field, bad_field: *usize) FieldError!?u64 {
    var found: ?u64 = null;
    for (fields, 0..) |field, index| {
        errdefer bad_field.* = index;
        if (try idOf(field.name(), field.value()) != .content_length) continue;
        const length = syntax.parseDecimal(field.value()) catch return error.InvalidContentLength;
        if (found orelse length != length) return error.InvalidContentLength;
        found = length;
    }
    return found;
}

/// Like `head`, for fields among which Content-Length is ignored: trailers, and those of a 101.
pub fn others(fields: []const Field, bad_field: *usize) FieldError!void {
    for (fields, 0..) |field, index| {
        errdefer bad_field.* = index;
        _ = try idOf(field.name(), field.value());
    }
}

/// Checks a field's name and value, and returns its id.
pub inline fn idOf(name: []const u8, value: []const u8) FieldError!header.Id {
    const id: header.Id = .fromName(name);
    if (id == .other and !syntax.isToken(name)) return error.InvalidFieldName;
    if (!syntax.isFieldValue(value)) return error.InvalidFieldValue;
    return id;
}

const encode = @import("../http1/encode.zig");
const response_fields = @import("../http1/response_fields.zig");

test "fields fail the check that would fail when they are written" {
    const lists = [_][]const Field{
        &.{},
        &.{ .init("X-A", "1"), .init("Content-Length", "5"), .init("content-length", "5") },
        &.{ .init("Content-Length", "5"), .init("Content-Length", "6") },
        &.{ .init("X", ""), .init("Content-Length", "five") },
        &.{ .init("Content-Length", "-1"), .init("", "") },
        &.{ .init("X", "1"), .init("X Y", "1") },
        &.{.init("", "1")},
        &.{ .init("X", "1"), .init("Y", "1"), .init("Z", "a\r\nb") },
        &.{.init("Connection", "\x00")},
        &.{.init("X:", "1")},
    };
    for (lists) |list| {
        for ([_]response_fields.Policy{ .head, .switching, .trailers }) |policy| {
            var space: [256]u8 = undefined;
            var writer: encode.Writer = .{ .buffer = &space };
            var found: response_fields.Found = .{};
            var bad_field: usize = 0;
            const written = response_fields.putFields(&writer, list, policy, &found);
            const checked = if (policy == .head) head(list, &bad_field) else none(others(list, &bad_field));
            if (written) |_| {
                const length = try checked;
                if (policy == .head) try std.testing.expectEqual(found.content_length, length);
            } else |err| {
                try std.testing.expectError(err, checked);
                try std.testing.expectEqual(found.bad_field, bad_field);
            }
        }
    }
}

fn none(checked: FieldError!void) FieldError!?u64 {
    try checked;
    return null;
}
