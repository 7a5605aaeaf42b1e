//! A form that has come as a whole: urlencoded (WHATWG URL) or multipart/form-data. Values stay where the
//! body has them, unless they had to be decoded.
//! Does not know: where the body comes from.
const std = @import("std");
const per = @import("peregrine");
const Multipart = @import("multipart.zig").Multipart;
const testing = std.testing;

/// The fields of a form, in the order of the form.
pub const Form = struct {
    fields: []const Field,

    pub const Field = struct {
        name: []const u8,
        value: []const u8,
        /// The file's name as the client says: any bytes, so never a path to write to. Null: no file.
        filename: ?[]const u8 = null,
        content_type: ?[]const u8 = null,
    };

    /// Why a form is not taken; each but the first is the name of a status.
    pub const Error = error{
        OutOfMemory,
        /// The body is no form, or ends too early.
        BadRequest,
        /// The form has too many fields.
        ContentTooLarge,
        /// The Content-Type is that of neither kind.
        UnsupportedMediaType,
    };

    /// Reads a body, of at most `fields_max` fields. The form lives as long as the body and the memory.
    pub fn read(
        gpa: std.mem.Allocator,
        content_type: []const u8,
        body: []const u8,
        fields_max: u32,
    ) Error!Form {
        if (Multipart.boundaryOf(content_type)) |boundary| return readParts(gpa, boundary, body, fields_max);
        const end = std.mem.findScalar(u8, content_type, ';') orelse content_type.len;
        const media = std.mem.trim(u8, content_type[0..end], " \t");
        if (!std.ascii.eqlIgnoreCase(media, "application/x-www-form-urlencoded")) {
            return error.UnsupportedMediaType;
        }
        return readPairs(gpa, body, fields_max);
    }

    fn readPairs(gpa: std.mem.Allocator, body: []const u8, fields_max: u32) Error!Form {
        var list: std.ArrayList(Field) = .empty;
        var pairs: per.query.Pairs = .init(body);
        while (pairs.next()) |pair| {
            if (list.items.len == fields_max) return error.ContentTooLarge;
            try list.append(gpa, .{
                .name = try decoded(gpa, pair.name),
                .value = try decoded(gpa, pair.value orelse ""),
            });
        }
        return .{ .fields = list.items };
    }

    fn decoded(gpa: std.mem.Allocator, text: []const u8) error{OutOfMemory}![]const u8 {
        if (!per.query.isEncoded(text)) return text;
        return per.query.decode(text, try gpa.alloc(u8, text.len));
    }

    fn readParts(gpa: std.mem.Allocator, boundary: []const u8, body: []const u8, fields_max: u32) Error!Form {
        var list: std.ArrayList(Field) = .empty;
        const multipart = try gpa.create(Multipart);
        multipart.* = try .init(boundary, .{ .parts_max = fields_max });
        var rest = body;
        while (try multipart.next(&rest)) |event| switch (event) {
            .part => |part| {
                // The next part overwrites the head of this one, so its texts are copied.
                try list.append(gpa, .{
                    .name = try gpa.dupe(u8, part.name),
                    .value = "",
                    .filename = if (part.filename) |text| try gpa.dupe(u8, text) else null,
                    .content_type = if (part.content_type) |text| try gpa.dupe(u8, text) else null,
                });
            },
            // In a body that is there as a whole, content is in one piece.
            .data => |bytes| list.items[list.items.len - 1].value = bytes,
            .part_end => {},
        };
        try multipart.finish();
        return .{ .fields = list.items };
    }

    /// The first field of that name; null if there is none.
    pub fn find(form: *const Form, name: []const u8) ?*const Field {
        for (form.fields) |*field| if (std.mem.eql(u8, field.name, name)) return field;
        return null;
    }

    /// The value of the first field with this name; null if there is none.
    pub fn get(form: *const Form, name: []const u8) ?[]const u8 {
        return (form.find(name) orelse return null).value;
    }
};

const urlencoded = "application/x-www-form-urlencoded";

test "urlencoded and multipart forms, and what is neither" {
    var arena: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena.deinit();
    const gpa = arena.allocator();
    const pairs = try Form.read(gpa, urlencoded ++ "; charset=UTF-8", "a=1&b+c=%26+%C3%A4&flag&a=2", 4);
    try testing.expectEqual(4, pairs.fields.len);
    try testing.expectEqualStrings("1", pairs.get("a").?);
    try testing.expectEqualStrings("& ä", pairs.get("b c").?);
    try testing.expectEqualStrings("", pairs.get("flag").?);
    try testing.expectEqual(null, pairs.get("z"));
    try testing.expectError(error.ContentTooLarge, Form.read(gpa, urlencoded, "a&b&c", 2));
    const body = "--b\r\nContent-Disposition: form-data; name=a\r\n\r\none\r\n" ++
        "--b\r\nContent-Disposition: form-data; name=f; filename=x\r\nContent-Type: image/png\r\n\r\n\r\n--b--";
    const parts = try Form.read(gpa, "multipart/form-data; boundary=b", body, 2);
    try testing.expectEqualStrings("one", parts.get("a").?);
    const file = parts.find("f").?;
    try testing.expectEqualStrings("", file.value);
    try testing.expectEqualStrings("x", file.filename.?);
    try testing.expectEqualStrings("image/png", file.content_type.?);
    const media = "multipart/form-data; boundary=";
    try testing.expectError(error.ContentTooLarge, Form.read(gpa, media ++ "b", body, 1));
    try testing.expectError(error.BadRequest, Form.read(gpa, media ++ "c", body, 2));
    try testing.expectError(error.UnsupportedMediaType, Form.read(gpa, "text/plain", "a=1", 2));
}
