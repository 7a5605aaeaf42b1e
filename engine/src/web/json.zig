//! Reads JSON of requests, with bounds on memory and on the depth of nested values, since the reader of a
//! type calls itself for each level.
//! Does not know: requests and responses.
const std = @import("std");
const Bounded = @import("bounded.zig").Bounded;

/// Why a body is not taken; each is the name of a status.
pub const Error = error{
    OutOfMemory,
    /// The body is no JSON.
    BadRequest,
    /// The body is JSON, and no value of the type.
    UnprocessableContent,
    /// The value takes more memory than a request may have.
    ContentTooLarge,
};

/// A value of type `T` from a body. Borrows from the body, and lives as long as the memory.
pub fn read(
    comptime T: type,
    memory: *Bounded,
    body: []const u8,
    depth_max: u32,
    options: std.json.ParseOptions,
) Error!T {
    if (depth(body) > depth_max) return error.BadRequest;
    return std.json.parseFromSliceLeaky(T, memory.allocator(), body, options) catch |err| switch (err) {
        error.OutOfMemory => if (memory.exhausted) error.ContentTooLarge else error.OutOfMemory,
        error.SyntaxError, error.UnexpectedEndOfInput, error.BufferUnderrun => error.BadRequest,
        else => error.UnprocessableContent,
    };
}

/// The depth to which arrays and objects lie in each other.
fn depth(text: []const u8) u32 {
    var most: u32 = 0;
    var now: u32 = 0;
    var at: usize = 0;
    while (at < text.len) : (at += 1) switch (text[at]) {
        '[', '{' => {
            now += 1;
            most = @max(most, now);
        },
        ']', '}' => now -|= 1,
        '"' => {
            at += 1;
            while (at < text.len and text[at] != '"') : (at += 1) {
                if (text[at] == '\\') at += 1;
            }
        },
        else => {},
    };
    return most;
}

/// Whether a Content-Type says that a body is JSON (RFC 8259, and RFC 6839 for "+json").
pub fn isJson(content_type: []const u8) bool {
    const end = std.mem.findScalar(u8, content_type, ';') orelse content_type.len;
    const media = std.mem.trim(u8, content_type[0..end], " \t");
    if (std.ascii.eqlIgnoreCase(media, "application/json")) return true;
    const suffix = "+json";
    return media.len > suffix.len and std.ascii.eqlIgnoreCase(media[media.len - suffix.len ..], suffix);
}

const testing = std.testing;

fn attempt(comptime T: type, body: []const u8, bytes: usize) Error!T {
    var buffer: [4096]u8 = undefined;
    var fixed: std.heap.FixedBufferAllocator = .init(&buffer);
    var memory: Bounded = .{ .parent = fixed.allocator(), .left = bytes };
    return read(T, &memory, body, 4, .{});
}

test "texts that are no JSON, other JSON, or too much JSON are refused" {
    const Point = struct { x: i32, y: i32 = 0 };
    try testing.expectEqual(Point{ .x = 7, .y = 0 }, try attempt(Point, "{\"x\": 7}", 4096));
    for ([_][]const u8{ "", "{", "{\"x\":}", "{\"x\": 1} x", "nul" }) |text| {
        try testing.expectError(error.BadRequest, attempt(Point, text, 4096));
    }
    for ([_][]const u8{
        "[]", "{}", "{\"x\": \"seven\"}", "{\"x\": 1, \"z\": 1}", "{\"x\": 5000000000}",
    }) |text| {
        try testing.expectError(error.UnprocessableContent, attempt(Point, text, 4096));
    }
    try testing.expectError(error.ContentTooLarge, attempt([]const u32, "[1,2,3,4,5,6,7,8,9]", 16));
}

test "a body that would let the reader call itself without end" {
    const Chain = struct { next: ?*const @This() = null };
    const three = "{\"next\":{\"next\":{\"next\":{}}}}";
    _ = try attempt(Chain, three, 4096);
    try testing.expectError(error.BadRequest, attempt(Chain, "{\"next\":" ++ three ++ "}", 4096));
    try testing.expectEqual(2, depth("[\"[[[\\\"[[\", {}]"));
    try testing.expectEqual(0, depth("\"["));
    try testing.expectEqual(1, depth("]][\"\\"));
}

test "which media types are JSON" {
    for ([_][]const u8{
        "application/json", "Application/JSON; charset=utf-8", "application/problem+json",
    }) |media| try testing.expect(isJson(media));
    for ([_][]const u8{
        "", "text/plain", "+json", "application/jsonp", "text/plain; application/json",
    }) |media| try testing.expect(!isJson(media));
}
