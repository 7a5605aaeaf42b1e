//! multipart/form-data (RFC 7578, RFC 2046 section 5.1) in pieces of any size: bytes in, events out. Nothing
//! is held but the head of one part.
//! Does not know: where pieces come from, and where parts go.
const std = @import("std");
const assert = std.debug.assert;
const testing = std.testing;

/// Takes a body apart. Pieces are given to `next` until it has consumed them; then `finish`.
pub const Multipart = struct {
    limits: Limits,
    /// The bytes between parts: line break, two dashes and the boundary.
    delimiter: [delimiter_bytes_max]u8,
    delimiter_len: u8,
    state: State = .preamble,
    /// The bytes of the delimiter with which the last piece ended. The first delimiter needs no line break.
    matched: u8 = 2,
    head: [head_bytes_max]u8 = undefined,
    head_len: u16 = 0,
    parts: u32 = 0,
    part_bytes: u64 = 0,

    const State = enum {
        /// Bytes before the first part: to be ignored.
        preamble,
        /// Behind a delimiter: two dashes end the form, a line break begins a part.
        delimiter,
        dash,
        padding,
        line_feed,
        head,
        data,
        /// The delimiter has come, and the event `part_end` is still to be given.
        part_end,
        /// Bytes behind the last part: to be ignored.
        epilogue,
    };

    /// Limits on a form and its parts.
    pub const Limits = struct {
        /// The most parts; 0: no limit.
        parts_max: u32 = 1000,
        /// Content of one part, in bytes; 0: no limit but that of the body.
        part_bytes_max: u64 = 0,
    };

    /// The longest head of a part, in bytes.
    pub const head_bytes_max = 4096;
    /// The longest boundary, in bytes (RFC 2046 section 5.1.1).
    pub const boundary_bytes_max = 70;
    const delimiter_bytes_max = "\r\n--".len + boundary_bytes_max;

    /// Why a form is not taken; each is the name of a status.
    pub const Error = error{
        /// The body is no form, or ends too early.
        BadRequest,
        /// A limit is reached.
        ContentTooLarge,
    };

    /// The head of a part. Borrowed until the next part begins.
    pub const Part = struct {
        /// The name of the form's field.
        name: []const u8,
        /// The file's name as the client says: any bytes, so never a path to write to. Null: no file.
        filename: ?[]const u8,
        /// The media type of the content; null: text.
        content_type: ?[]const u8,
    };

    pub const Event = union(enum) {
        /// A part begins.
        part: Part,
        /// A piece of the part's content, borrowed until the next call.
        data: []const u8,
        /// The part is complete.
        part_end,
    };

    /// Prepares for a body whose Content-Type has this boundary.
    pub fn init(boundary: []const u8, limits: Limits) Error!Multipart {
        if (boundary.len == 0 or boundary.len > boundary_bytes_max) return error.BadRequest;
        // A line break inside would let a delimiter begin within itself.
        for (boundary) |byte| if (byte < ' ' or byte > '~') return error.BadRequest;
        var form: Multipart = .{
            .limits = limits,
            .delimiter = undefined,
            .delimiter_len = @intCast("\r\n--".len + boundary.len),
        };
        @memcpy(form.delimiter[0..4], "\r\n--");
        @memcpy(form.delimiter[4..][0..boundary.len], boundary);
        return form;
    }

    /// The boundary that a Content-Type names; null: it is another type, or names none. Borrowed.
    pub fn boundaryOf(content_type: []const u8) ?[]const u8 {
        var parameters: Parameters = .init(content_type);
        if (!std.ascii.eqlIgnoreCase(parameters.first, "multipart/form-data")) return null;
        while (parameters.next()) |parameter| {
            if (std.ascii.eqlIgnoreCase(parameter.name, "boundary")) return parameter.value;
        }
        return null;
    }

    /// The next event in a piece of the body, which is shortened by the consumed bytes; null: nothing is left
    /// of it.
    pub fn next(form: *Multipart, input: *[]const u8) Error!?Event {
        while (true) switch (form.state) {
            .preamble => switch (form.scan(input)) {
                .data => {},
                .delimiter => form.state = .delimiter,
                .more => return null,
            },
            .data => switch (form.scan(input)) {
                .data => |bytes| {
                    form.part_bytes += bytes.len;
                    const most = form.limits.part_bytes_max;
                    if (most > 0 and form.part_bytes > most) return error.ContentTooLarge;
                    return .{ .data = bytes };
                },
                .delimiter => form.state = .part_end,
                .more => return null,
            },
            .part_end => {
                form.state = .delimiter;
                return .part_end;
            },
            .delimiter, .dash, .padding, .line_feed => try form.passDelimiter(input) orelse return null,
            .head => {
                const part = try form.readHead(input) orelse return null;
                form.state = .data;
                form.part_bytes = 0;
                return .{ .part = part };
            },
            .epilogue => {
                input.* = input.*[input.len..];
                return null;
            },
        };
    }

    /// To be called behind the last piece. `error.BadRequest`: the form is not complete.
    pub fn finish(form: *const Multipart) Error!void {
        if (form.state != .epilogue) return error.BadRequest;
    }

    const Scanned = union(enum) { data: []const u8, delimiter, more };

    /// Looks for the delimiter. It begins with a line break and has no other, so bytes that match its
    /// beginning only cannot hold the beginning of another delimiter.
    fn scan(form: *Multipart, input: *[]const u8) Scanned {
        const delimiter = form.delimiter[0..form.delimiter_len];
        if (form.matched > 0) {
            var len: usize = form.matched;
            while (len < delimiter.len and input.len > 0 and input.*[0] == delimiter[len]) : (len += 1) {
                input.* = input.*[1..];
            }
            form.matched = @intCast(len);
            if (len == delimiter.len) {
                form.matched = 0;
                return .delimiter;
            }
            if (input.len == 0) return .more;
            const held = delimiter[0..len];
            form.matched = 0;
            return .{ .data = held };
        }
        if (input.len == 0) return .more;
        if (std.mem.find(u8, input.*, delimiter)) |at| {
            if (at > 0) return form.give(input, at);
            input.* = input.*[delimiter.len..];
            return .delimiter;
        }
        const tail = input.*[input.len -| (delimiter.len - 1)..];
        const start = std.mem.findScalarLast(u8, tail, '\r') orelse return form.give(input, input.len);
        const held = tail[start..];
        if (!std.mem.startsWith(u8, delimiter, held)) return form.give(input, input.len);
        if (held.len < input.len) return form.give(input, input.len - held.len);
        form.matched = @intCast(held.len);
        input.* = input.*[input.len..];
        return .more;
    }

    fn give(_: *Multipart, input: *[]const u8, len: usize) Scanned {
        defer input.* = input.*[len..];
        return .{ .data = input.*[0..len] };
    }

    /// Passes over the bytes behind a delimiter; null: more have to come.
    fn passDelimiter(form: *Multipart, input: *[]const u8) Error!?void {
        if (input.len == 0) return null;
        const byte = input.*[0];
        input.* = input.*[1..];
        form.state = switch (form.state) {
            .delimiter => switch (byte) {
                '-' => .dash,
                '\r' => .line_feed,
                ' ', '\t' => .padding,
                else => return error.BadRequest,
            },
            .dash => if (byte == '-') .epilogue else return error.BadRequest,
            .padding => switch (byte) {
                '\r' => .line_feed,
                ' ', '\t' => .padding,
                else => return error.BadRequest,
            },
            .line_feed => if (byte == '\n') .head else return error.BadRequest,
            else => unreachable, // no other byte can follow a delimiter
        };
        form.head_len = 0;
    }

    /// Reads the head of a part; null: more bytes have to come.
    fn readHead(form: *Multipart, input: *[]const u8) Error!?Part {
        while (input.len > 0) {
            if (form.head_len == head_bytes_max) return error.ContentTooLarge;
            form.head[form.head_len] = input.*[0];
            form.head_len += 1;
            input.* = input.*[1..];
            const head = form.head[0..form.head_len];
            if (!std.mem.endsWith(u8, head, "\r\n\r\n") and !std.mem.eql(u8, head, "\r\n")) continue;
            form.parts += 1;
            if (form.limits.parts_max > 0 and form.parts > form.limits.parts_max) {
                return error.ContentTooLarge;
            }
            return try readPart(head);
        }
        return null;
    }

    /// Reads the head of a part. Quoted texts are unquoted in place.
    fn readPart(head: []u8) Error!Part {
        var part: Part = .{ .name = "", .filename = null, .content_type = null };
        var is_named = false;
        var lines = std.mem.splitSequence(u8, head, "\r\n");
        while (lines.next()) |line| {
            if (line.len == 0) continue;
            const colon = std.mem.findScalar(u8, line, ':') orelse return error.BadRequest;
            const value = std.mem.trim(u8, line[colon + 1 ..], " \t");
            if (std.ascii.eqlIgnoreCase(line[0..colon], "content-type")) {
                part.content_type = value;
            } else if (std.ascii.eqlIgnoreCase(line[0..colon], "content-disposition")) {
                var parameters: Parameters = .init(value);
                if (!std.ascii.eqlIgnoreCase(parameters.first, "form-data")) return error.BadRequest;
                while (parameters.next()) |parameter| {
                    // The head is the parser's own memory.
                    const text = unescape(@constCast(parameter.value));
                    if (std.ascii.eqlIgnoreCase(parameter.name, "name")) {
                        part.name = text;
                        is_named = true;
                    } else if (std.ascii.eqlIgnoreCase(parameter.name, "filename")) part.filename = text;
                }
            }
        }
        return if (is_named) part else error.BadRequest;
    }

    /// Removes the backslash before a quote or another backslash (RFC 9110 section 5.6.4); any other
    /// backslash stays, as in file names that old browsers send.
    fn unescape(text: []u8) []u8 {
        var len: usize = 0;
        var at: usize = 0;
        while (at < text.len) : (at += 1) {
            const escapes = text[at] == '\\' and at + 1 < text.len and
                (text[at + 1] == '"' or text[at + 1] == '\\');
            if (escapes) at += 1;
            text[len] = text[at];
            len += 1;
        }
        return text[0..len];
    }
};

/// A field's value and its parameters, `form-data; name="a"`: not unescaped.
const Parameters = struct {
    first: []const u8,
    rest: []const u8,

    const Pair = struct { name: []const u8, value: []const u8 };

    fn init(field: []const u8) Parameters {
        const end = std.mem.findScalar(u8, field, ';') orelse field.len;
        return .{ .first = std.mem.trim(u8, field[0..end], " \t"), .rest = field[end..] };
    }

    /// Words that are no parameters are passed over.
    fn next(parameters: *Parameters) ?Pair {
        while (parameters.rest.len > 0) {
            const piece = std.mem.trimStart(u8, parameters.rest[1..], " \t");
            const end = endOf(piece);
            parameters.rest = piece[end..];
            const split = std.mem.findScalar(u8, piece[0..end], '=') orelse continue;
            const value = std.mem.trimEnd(u8, piece[split + 1 .. end], " \t");
            const is_quoted = value.len >= 2 and value[0] == '"' and value[value.len - 1] == '"';
            return .{
                .name = std.mem.trimEnd(u8, piece[0..split], " \t"),
                .value = if (is_quoted) value[1 .. value.len - 1] else value,
            };
        }
        return null;
    }

    /// The next semicolon that is not between quotes.
    fn endOf(piece: []const u8) usize {
        var at: usize = 0;
        var quoted = false;
        while (at < piece.len) : (at += 1) switch (piece[at]) {
            ';' => if (!quoted) return at,
            '"' => quoted = !quoted,
            '\\' => if (quoted and at + 1 < piece.len) {
                at += 1;
            },
            else => {},
        };
        return piece.len;
    }
};

const Collected = struct {
    text: std.ArrayList(u8) = .empty,

    /// Feeds a body in pieces of this size.
    fn of(boundary: []const u8, body: []const u8, size: usize, limits: Multipart.Limits) !Collected {
        var collected: Collected = .{};
        errdefer collected.text.deinit(testing.allocator);
        var form: Multipart = try .init(boundary, limits);
        var rest = body;
        while (rest.len > 0) {
            var piece = rest[0..@min(size, rest.len)];
            rest = rest[piece.len..];
            while (try form.next(&piece)) |event| switch (event) {
                .part => |part| try collected.text.print(testing.allocator, "[{s}|{s}|{s}]", .{
                    part.name, part.filename orelse "-", part.content_type orelse "-",
                }),
                .data => |bytes| {
                    try testing.expect(bytes.len > 0);
                    try collected.text.appendSlice(testing.allocator, bytes);
                },
                .part_end => try collected.text.appendSlice(testing.allocator, "|"),
            };
            try testing.expectEqual(0, piece.len);
        }
        try form.finish();
        return collected;
    }
};

fn expectForm(expected: []const u8, boundary: []const u8, body: []const u8) !void {
    for (1..body.len + 1) |size| {
        var collected: Collected = try .of(boundary, body, size, .{});
        defer collected.text.deinit(testing.allocator);
        try testing.expectEqualStrings(expected, collected.text.items);
    }
}

fn expectFailure(expected: Multipart.Error, body: []const u8, limits: Multipart.Limits) !void {
    for (1..@min(body.len, 50) + 1) |size| {
        try testing.expectError(expected, Collected.of("b", body, size, limits));
    }
}

const disposition = "Content-Disposition: form-data; name=";

test "forms in pieces of every size" {
    try expectForm("[a|-|-]1|[f|x.txt|text/plain]two\r\nlines|", "b", "--b\r\n" ++ disposition ++
        "\"a\"\r\n\r\n1\r\n--b\r\n" ++ disposition ++ "\"f\"; filename=\"x.txt\"\r\n" ++
        "Content-Type: text/plain\r\n\r\ntwo\r\nlines\r\n--b--\r\n");
    try expectForm("", "b", "--b--");
    try expectForm("[a|-|-]|", "b", "--b\r\n" ++ disposition ++ "a\r\n\r\n\r\n--b--");
    // A preamble, padding, an epilogue; and content that looks like a delimiter for a while.
    try expectForm("[a|-|-]\r\n--\r\n-b\r\r\n--b\r\n--c|", "bb", "to be ignored\r\n--bb \t\r\n" ++
        disposition ++ "a\r\n\r\n\r\n--\r\n-b\r\r\n--b\r\n--c\r\n--bb--  \r\nignored\r\n--bb\r\n");
    try expectForm("[a;\"b\\c|-|-]|", "b", "--b\r\n" ++
        "content-disposition: FORM-DATA; NAME=\"a;\\\"b\\\\c\"\r\nX: y\r\n\r\n\r\n--b--");
    try expectForm("[a|C:\\dir\\x|-]|", "b", "--b\r\n" ++ disposition ++
        "a; filename=\"C:\\dir\\x\"\r\n\r\n\r\n--b--");
}

test "bodies that are no forms are refused" {
    for ([_][]const u8{
        "x",       "--b",
        "--b\r\n", "--bx\r\n\r\n",
        "--b-x",   "--b \n",
        "--b\r\n\r\n1\r\n--b--", // no name
        "--b\r\n" ++ disposition ++ "a\r\n\r\n1\r\n--b",
        "--b\r\nContent-Disposition: attachment; name=a\r\n\r\n1\r\n--b--",
        "--b\r\nnonsense\r\n\r\n1\r\n--b--",
    }) |body| try expectFailure(error.BadRequest, body, .{});
    const long: [71]u8 = @splat('b');
    for ([_][]const u8{ "", &long, "a\rb", "a\x80" }) |boundary| {
        try testing.expectError(error.BadRequest, Multipart.init(boundary, .{}));
    }
}

test "limits" {
    const part = "--b\r\n" ++ disposition ++ "a\r\n\r\n12345\r\n";
    try expectFailure(error.ContentTooLarge, part ++ part ++ "--b--", .{ .parts_max = 1 });
    try expectFailure(error.ContentTooLarge, part ++ "--b--", .{ .part_bytes_max = 4 });
    const enough: Multipart.Limits = .{ .parts_max = 2, .part_bytes_max = 5 };
    var allowed: Collected = try .of("b", part ++ part ++ "--b--", 7, enough);
    allowed.text.deinit(testing.allocator);
    const long: [Multipart.head_bytes_max]u8 = @splat('x');
    try expectFailure(error.ContentTooLarge, "--b\r\nX: " ++ long, .{});
}

test "boundaries" {
    try testing.expectEqualStrings("b", Multipart.boundaryOf("multipart/form-data; boundary=b").?);
    const quoted = "Multipart/Form-Data;x=y; Boundary=\"b c\" ; z";
    try testing.expectEqualStrings("b c", Multipart.boundaryOf(quoted).?);
    try testing.expectEqual(null, Multipart.boundaryOf("multipart/form-data"));
    try testing.expectEqual(null, Multipart.boundaryOf("multipart/mixed; boundary=b"));
    try testing.expectEqual(null, Multipart.boundaryOf(""));
}
