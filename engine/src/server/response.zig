//! What a Zig handler says. Names and values of headers are borrowed until the handler returns; the body is copied.
const std = @import("std");
const protocol = @import("protocol");
const Field = protocol.http.Field;

pub const Response = struct {
    status: u16 = 200,
    fields: [headers_max]Field = undefined,
    count: usize = 0,
    body: std.ArrayList(u8) = .empty,
    gpa: std.mem.Allocator,

    pub const headers_max = 64;

    /// Replaces the body by a copy of `bytes`; the number of bytes.
    pub fn setBody(response: *Response, bytes: []const u8) error{OutOfMemory}!usize {
        response.body.clearRetainingCapacity();
        try response.body.appendSlice(response.gpa, bytes);
        return bytes.len;
    }

    /// Adds a header; a name may be added several times. Content-Length is added by itself unless it is given here.
    pub fn addNewHeader(response: *Response, name: []const u8, value: []const u8) error{HeadersFull}!void {
        if (response.count == headers_max) return error.HeadersFull;
        response.fields[response.count] = .init(name, value);
        response.count += 1;
    }

    pub fn hasContentLength(response: *const Response) bool {
        for (response.fields[0..response.count]) |field| {
            if (std.ascii.eqlIgnoreCase(field.name(), "content-length")) return true;
        }
        return false;
    }

    /// Ready for the next request; memory stays.
    pub fn reset(response: *Response) void {
        response.status = 200;
        response.count = 0;
        response.body.clearRetainingCapacity();
    }
};
