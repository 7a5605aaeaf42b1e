//! Status codes, their reason phrases and their status lines (RFC 9110 section 15, IANA HTTP status code
//! registry). Does not know: which codes have content (http1/framing.zig).
const std = @import("std");
const assert = std.debug.assert;

/// The lowest and the highest code of a status line.
pub const code_min = 100;
pub const code_max = 599;

/// The maximum length of `line`, in bytes.
pub const line_bytes_max = longest: {
    var longest: usize = 0;
    for (registry) |entry| {
        longest = @max(longest, line_prefix.len + "999 ".len + entry.reason.len + "\r\n".len);
    }
    break :longest longest;
};

/// Returns the reason phrase of `code`. Never empty: it is "Unknown" for all codes that are not registered.
pub fn reason(code: u16) []const u8 {
    if (code < code_min or code > code_max) return unknown;
    return reasons[code - code_min];
}

/// Returns the complete HTTP/1.1 status line of `code` with its CRLF. Asserts code_min..code_max.
pub fn line(code: u16) []const u8 {
    assert(code >= code_min and code <= code_max);
    return lines[code - code_min];
}

const unknown = "Unknown";
const line_prefix = "HTTP/1.1 ";
const Entry = struct { code: u16, reason: []const u8 };

const registry = [_]Entry{
    .{ .code = 100, .reason = "Continue" },
    .{ .code = 101, .reason = "Switching Protocols" },
    .{ .code = 102, .reason = "Processing" },
    .{ .code = 103, .reason = "Early Hints" },
    .{ .code = 104, .reason = "Upload Resumption Supported" },
    .{ .code = 200, .reason = "OK" },
    .{ .code = 201, .reason = "Created" },
    .{ .code = 202, .reason = "Accepted" },
    .{ .code = 203, .reason = "Non-Authoritative Information" },
    .{ .code = 204, .reason = "No Content" },
    .{ .code = 205, .reason = "Reset Content" },
    .{ .code = 206, .reason = "Partial Content" },
    .{ .code = 207, .reason = "Multi-Status" },
    .{ .code = 208, .reason = "Already Reported" },
    .{ .code = 226, .reason = "IM Used" },
    .{ .code = 300, .reason = "Multiple Choices" },
    .{ .code = 301, .reason = "Moved Permanently" },
    .{ .code = 302, .reason = "Found" },
    .{ .code = 303, .reason = "See Other" },
    .{ .code = 304, .reason = "Not Modified" },
    .{ .code = 305, .reason = "Use Proxy" },
    .{ .code = 306, .reason = "(Unused)" },
    .{ .code = 307, .reason = "Temporary Redirect" },
    .{ .code = 308, .reason = "Permanent Redirect" },
    .{ .code = 400, .reason = "Bad Request" },
    .{ .code = 401, .reason = "Unauthorized" },
    .{ .code = 402, .reason = "Payment Required" },
    .{ .code = 403, .reason = "Forbidden" },
    .{ .code = 404, .reason = "Not Found" },
    .{ .code = 405, .reason = "Method Not Allowed" },
    .{ .code = 406, .reason = "Not Acceptable" },
    .{ .code = 407, .reason = "Proxy Authentication Required" },
    .{ .code = 408, .reason = "Request Timeout" },
    .{ .code = 409, .reason = "Conflict" },
    .{ .code = 410, .reason = "Gone" },
    .{ .code = 411, .reason = "Length Required" },
    .{ .code = 412, .reason = "Precondition Failed" },
    .{ .code = 413, .reason = "Content Too Large" },
    .{ .code = 414, .reason = "URI Too Long" },
    .{ .code = 415, .reason = "Unsupported Media Type" },
    .{ .code = 416, .reason = "Range Not Satisfiable" },
    .{ .code = 417, .reason = "Expectation Failed" },
    .{ .code = 418, .reason = "(Unused)" },
    .{ .code = 421, .reason = "Misdirected Request" },
    .{ .code = 422, .reason = "Unprocessable Content" },
    .{ .code = 423, .reason = "Locked" },
    .{ .code = 424, .reason = "Failed Dependency" },
    .{ .code = 425, .reason = "Too Early" },
    .{ .code = 426, .reason = "Upgrade Required" },
    .{ .code = 428, .reason = "Precondition Required" },
    .{ .code = 429, .reason = "Too Many Requests" },
    .{ .code = 431, .reason = "Request Header Fields Too Large" },
    .{ .code = 451, .reason = "Unavailable For Legal Reasons" },
    .{ .code = 500, .reason = "Internal Server Error" },
    .{ .code = 501, .reason = "Not Implemented" },
    .{ .code = 502, .reason = "Bad Gateway" },
    .{ .code = 503, .reason = "Service Unavailable" },
    .{ .code = 504, .reason = "Gateway Timeout" },
    .{ .code = 505, .reason = "HTTP Version Not Supported" },
    .{ .code = 506, .reason = "Variant Also Negotiates" },
    .{ .code = 507, .reason = "Insufficient Storage" },
    .{ .code = 508, .reason = "Loop Detected" },
    .{ .code = 510, .reason = "Not Extended" },
    .{ .code = 511, .reason = "Network Authentication Required" },
};

const code_count = code_max - code_min + 1;

const reasons: [code_count][]const u8 = reasons: {
    var table: [code_count][]const u8 = @splat(unknown);
    for (registry) |entry| table[entry.code - code_min] = entry.reason;
    break :reasons table;
};

/// All lines are made at compile time (about 12 KB of constants), so a response starts with one copy.
const lines: [code_count][]const u8 = lines: {
    @setEvalBranchQuota(code_count * 20);
    var table: [code_count][]const u8 = undefined;
    for (&table, reasons, code_min..) |*slot, phrase, code| {
        const digits = [3]u8{ '0' + code / 100, '0' + code / 10 % 10, '0' + code % 10 };
        slot.* = line_prefix ++ digits ++ " " ++ phrase ++ "\r\n";
    }
    break :lines table;
};

test "registered and unregistered codes" {
    try std.testing.expectEqualStrings("OK", reason(200));
    try std.testing.expectEqualStrings("Request Header Fields Too Large", reason(431));
    try std.testing.expectEqualStrings("Unknown", reason(299));
    try std.testing.expectEqualStrings("Unknown", reason(0));
    try std.testing.expectEqualStrings("Unknown", reason(600));
    try std.testing.expectEqualStrings("Unknown", reason(65535));
}

test "every line is well-formed and within its bound" {
    try std.testing.expectEqualStrings("HTTP/1.1 404 Not Found\r\n", line(404));
    try std.testing.expectEqualStrings("HTTP/1.1 599 Unknown\r\n", line(599));
    for (code_min..code_max + 1) |code| {
        var expected: [line_bytes_max]u8 = undefined;
        const text = try std.fmt.bufPrint(
            &expected,
            "HTTP/1.1 {d} {s}\r\n",
            .{ code, reason(@intCast(code)) },
        );
        try std.testing.expectEqualStrings(text, line(@intCast(code)));
    }
}
