//! Turns a file into a response: validators, conditions, ranges, headers, and the body by the cheapest way.
//! Does not know: how the file was found.
const std = @import("std");
const native = @import("../native.zig");
const protocol = @import("protocol");
const date = protocol.http.date;
const conditional = @import("conditional.zig");
const files = @import("files.zig");
const Coding = @import("encoding.zig").Coding;
const Mime = @import("mime.zig").Mime;
const range_file = @import("range.zig");
const Part = range_file.Part;
const Range = range_file.Range;
const Outbox = @import("server").Outbox;
const FileRange = @import("server").FileRange;
const io = @import("io");
const Request = native.Request;
const Response = native.Response;

/// Facts about a file that its headers tell.
pub const About = struct {
    mime: Mime,
    /// The file's coding, if the file is a sibling of the one that was asked for.
    coding: ?Coding = null,
    /// Another request for the same path may get another coding.
    varies: bool = false,
    /// Cache-Control; null: none.
    cache_control: ?[]const u8 = null,
    /// Content-Type in place of `mime`, of at most `type_bytes_max`.
    type_text: ?[]const u8 = null,
};

/// Why a representation cannot be put into a response.
pub const Error = native.HeaderError || native.SetBodyError;

/// Files up to this many bytes are read and leave in one write with their head; larger ones are
/// left to the kernel.
const read_bytes_max = Response.small_bytes;

/// The bytes of a representation.
pub const Source = union(enum) {
    /// The file's descriptor, which is taken over: it is closed at once, or when the file was sent.
    file: files.Fd,
    /// The whole contents, which are taken over, too.
    memory: native.SharedBody,
};

/// Answers GET or HEAD with a regular file. With a null request it is served whole.
pub fn answer(
    request: ?*const Request,
    response: *Response,
    identity: files.Identity,
    source: Source,
    about: About,
) Error!void {
    var taken = false;
    defer switch (source) {
        .file => |fd| if (!taken) {
            files.closeFd(fd);
        },
        .memory => |shared| if (!taken) shared.release(shared.holder),
    };
    var etag_buffer: [etag_bytes_max]u8 = undefined;
    const validators: conditional.Validators = .{
        .etag = etagOf(identity, about.coding, &etag_buffer),
        .modified = identity.modifiedSeconds(),
    };
    try addValidators(response, validators, about);
    const whole: Part = .{ .offset = 0, .len = identity.size };
    const chosen: Chosen = if (request) |asked|
        try choose(asked, response, validators, identity.size) orelse return
    else
        .{ .one = whole };
    var type_buffer: [type_bytes_max]u8 = undefined;
    const type_text = typeOf(about, &type_buffer);
    if (about.coding) |coding| try response.addNewHeader("Content-Encoding", coding.name());
    const part = switch (chosen) {
        .one => |part| part,
        .several => |parts| {
            taken = try setParts(response, source, parts.slice(), identity.size, type_text);
            return;
        },
    };
    if (!response.hasHeader("content-type")) try response.addNewHeader("Content-Type", type_text);
    const has_head_method = if (request) |asked| asked.method == .HEAD else false;
    if (has_head_method) {
        var digits: [20]u8 = undefined;
        return response.addNewHeader("Content-Length", protocol.http.syntax.decimal(part.len, &digits));
    }
    switch (source) {
        .memory => |shared| {
            var wanted = shared;
            wanted.bytes = shared.bytes[@intCast(part.offset)..][0..@intCast(part.len)];
            try response.setBodyShared(wanted);
            taken = true;
        },
        .file => |fd| if (part.len > read_bytes_max) {
            try response.setFile(.{ .fd = fd, .offset = part.offset, .len = part.len });
            taken = true;
        } else {
            const space = try response.arena.allocator().alloc(u8, @intCast(part.len));
            // The file has become shorter since it was opened. A part of it under this tag would be wrong.
            const bytes = files.readAll(fd, space, part.offset) orelse "";
            if (bytes.len < part.len) {
                response.status = .internal_server_error;
                return;
            }
            try response.setBodyBorrowed(bytes);
        },
    }
}

/// The parts of a file that are to be sent.
const Chosen = union(enum) { one: Part, several: range_file.Parts };

/// The parts that a request asks for. Null: the answer is a status without bytes of the file.
fn choose(
    request: *const Request,
    response: *Response,
    validators: conditional.Validators,
    size: u64,
) Error!?Chosen {
    const whole: Chosen = .{ .one = .{ .offset = 0, .len = size } };
    const fields = try conditionsOf(request);
    // the clock is a system call on some machines, and without conditions the time is not needed
    const now = if (fields.isEmpty()) 0 else files.now();
    switch (conditional.evaluate(fields, validators, now)) {
        .proceed => {},
        .not_modified => {
            response.status = .not_modified;
            return null;
        },
        .precondition_failed => {
            response.status = .precondition_failed;
            return null;
        },
    }
    try response.addNewHeader("Accept-Ranges", "bytes");
    if (request.method != .GET or !conditional.rangeHolds(fields, validators, now)) return whole;
    switch (Range.parse(request.findHeader("range") orelse return whole, size)) {
        .whole => return whole,
        .part => |part| {
            response.status = .partial_content;
            try addContentRange(response, part, size);
            return .{ .one = part };
        },
        .parts => |parts| {
            // Several parts together have a type of their own, which a handler cannot have given.
            if (response.hasHeader("content-type")) return whole;
            response.status = .partial_content;
            return .{ .several = parts };
        },
        .unsatisfiable => {
            try addContentRange(response, null, size);
            response.status = .range_not_satisfiable;
            return null;
        },
    }
}

/// Several parts as one body (RFC 9110 section 14.6). True: it has taken the source over.
fn setParts(
    response: *Response,
    source: Source,
    parts: []const Part,
    size: u64,
    type_text: []const u8,
) Error!bool {
    var boundary_buffer: [boundary_bytes]u8 = undefined;
    const boundary = boundaryText(&boundary_buffer);
    const pool = response.arena.pool;
    var chain: Outbox = .{};
    errdefer chain.discard(pool, KeepOpen{});
    var len: u64 = 0;
    for (parts, 0..) |part, n| {
        var buffer: [part_head_bytes_max]u8 = undefined;
        const head = std.fmt.bufPrint(
            &buffer,
            "{s}--{s}\r\nContent-Type: {s}\r\nContent-Range: bytes {d}-{d}/{d}\r\n\r\n",
            .{
                if (n == 0) "" else "\r\n", boundary, type_text, part.offset,
                part.offset + part.len - 1, size,
            },
        ) catch unreachable;
        try chain.append(pool, head);
        switch (source) {
            .memory => |shared| try chain.append(
                pool,
                shared.bytes[@intCast(part.offset)..][0..@intCast(part.len)],
            ),
            .file => |fd| try chain.appendFile(pool, .{
                .fd = fd,
                .offset = part.offset,
                .len = part.len,
                .shares = n + 1 < parts.len,
            }),
        }
        len += head.len + part.len;
    }
    var buffer: [boundary_bytes + 8]u8 = undefined;
    const tail = std.fmt.bufPrint(&buffer, "\r\n--{s}--\r\n", .{boundary}) catch unreachable;
    try chain.append(pool, tail);
    len += tail.len;
    var type_buffer: [boundary_bytes + 40]u8 = undefined;
    const together = std.fmt.bufPrint(&type_buffer, "multipart/byteranges; boundary={s}", .{boundary}) catch
        unreachable;
    try response.addNewHeader("Content-Type", together);
    try response.setParts(&chain, len);
    return source == .file;
}

/// Frees a chain without closing its descriptor, which is the source's.
const KeepOpen = struct {
    pub fn closeFile(_: KeepOpen, _: FileRange) void {}
};

const boundary_bytes = 32;
const part_head_bytes_max = boundary_bytes + type_bytes_max + 128;

/// The boundary must not occur in the parts, so it is random: no author of a file can foresee it.
fn boundaryText(buffer: *[boundary_bytes]u8) []const u8 {
    const halves = [2]u64{
        io.randomSeed() orelse @intFromPtr(buffer),
        io.randomSeed() orelse io.micros(),
    };
    return std.fmt.bufPrint(buffer, "{x:0>16}{x:0>16}", .{ halves[0], halves[1] }) catch unreachable;
}

/// Answers for a file that cannot be opened: 404, or 503 where the same request may do better in a second.
pub fn refuse(response: *Response, err: files.OpenError) native.HeaderError!void {
    if (err == error.NotFound) return say(response, .not_found);
    try response.addNewHeader("Retry-After", "1");
    try say(response, .service_unavailable);
}

/// Answers with a status, and with the page that the handler has for it, if it has one.
pub fn say(response: *Response, status: native.Status) native.HeaderError!void {
    response.status = status;
    _ = try response.showPage();
}

const etag_bytes_max = 64;

/// Time of the last change and size, in hexadecimal, with the coding: two codings of one file are
/// different representations. Weak (RFC 9110 section 8.8.1) as long as another change could go unnoticed.
fn etagOf(identity: files.Identity, coding: ?Coding, buffer: *[etag_bytes_max]u8) []const u8 {
    const nanoseconds: u128 = @bitCast(identity.modified_ns);
    const weak = if (files.isSettled(identity.modified_ns)) "" else "W/";
    const suffix = if (coding) |c| c.suffix() else "";
    return std.fmt.bufPrint(
        buffer,
        "{s}\"{x}-{x}{s}\"",
        .{ weak, @as(u64, @truncate(nanoseconds)), identity.size, suffix },
    ) catch unreachable;
}

fn addValidators(response: *Response, validators: conditional.Validators, about: About) Error!void {
    try response.addNewHeader("ETag", validators.etag);
    if (validators.modified) |seconds| {
        var text: [date.bytes_len]u8 = undefined;
        date.format(seconds, &text);
        try response.addNewHeader("Last-Modified", &text);
    }
    if (about.cache_control) |text| try response.addNewHeader("Cache-Control", text);
    if (about.varies) try response.addNewHeader("Vary", "Accept-Encoding");
}

/// The longest Content-Type, in bytes.
pub const type_bytes_max = 128;

fn typeOf(about: About, buffer: *[type_bytes_max]u8) []const u8 {
    if (about.type_text) |text| return text;
    const charset = if (about.mime.isText()) "; charset=utf-8" else "";
    return std.fmt.bufPrint(buffer, "{s}{s}", .{ about.mime.toString(), charset }) catch unreachable;
}

fn addContentRange(response: *Response, part: ?Part, size: u64) Error!void {
    var buffer: [80]u8 = undefined;
    const text = if (part) |p|
        std.fmt.bufPrint(&buffer, "bytes {d}-{d}/{d}", .{ p.offset, p.offset + p.len - 1, size }) catch
            unreachable
    else
        std.fmt.bufPrint(&buffer, "bytes */{d}", .{size}) catch unreachable;
    try response.addNewHeader("Content-Range", text);
}

fn conditionsOf(request: *const Request) error{OutOfMemory}!conditional.Fields {
    var fields: conditional.Fields = .{};
    const head = request.head;
    for (head.fields) |span| switch (span.id) {
        .if_match => if (fields.if_match == null) {
            fields.if_match = try request.findList("if-match");
        },
        .if_none_match => if (fields.if_none_match == null) {
            fields.if_none_match = try request.findList("if-none-match");
        },
        .if_modified_since => keepFirst(&fields.if_modified_since, span.value(head.text)),
        .if_unmodified_since => keepFirst(&fields.if_unmodified_since, span.value(head.text)),
        .if_range => keepFirst(&fields.if_range, span.value(head.text)),
        else => {},
    };
    return fields;
}

fn keepFirst(place: *?[]const u8, value: []const u8) void {
    if (place.* == null) place.* = value;
}
