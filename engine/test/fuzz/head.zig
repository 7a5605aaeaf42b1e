//! Fuzz target `head`: the first request head of a connection, read whole and in pieces, against a parser
//! that takes the text apart the plain way: line by line, with nothing but the grammar of RFC 9112 in mind.
const std = @import("std");
const protocol = @import("protocol");
const Cuts = @import("cuts.zig").Cuts;
const cuts_file = @import("cuts.zig");
const http1 = protocol.http1;
const FieldSpan = protocol.http.FieldSpan;
const testing = std.testing;

const limits: http1.Limits = .{
    .request_line_bytes_max = 200,
    .head_bytes_max = 600,
    .header_count_max = 12,
    .body_bytes_max = 1000,
    .trailer_bytes_max = 100,
    .chunk_line_bytes_max = 32,
};

/// A session's verdict about a head.
const Verdict = union(enum) {
    incomplete,
    refused: u16,
    /// The head's start, behind empty lines, and its end.
    accepted: struct { start: usize, end: usize },
};

pub fn run(input: []const u8) !void {
    var storage: [limits.header_count_max]FieldSpan = undefined;
    var head: http1.Head = .{ .storage = &storage };
    const seed = std.hash.Wyhash.hash(0, input);
    const verdict = read(input, .whole, &head);
    if (verdict == .accepted) {
        try testing.expectEqualStrings(input[verdict.accepted.start..verdict.accepted.end], head.text);
        try expectLike(&head);
    }
    try expectJudgement(input, verdict);

    var other_storage: [limits.header_count_max]FieldSpan = undefined;
    for ([_]Cuts{ .seeded(seed), .bytes }) |cuts| {
        if (cuts == .bytes and input.len > cuts_file.bytewise_max) continue;
        var other: http1.Head = .{ .storage = &other_storage };
        try testing.expectEqual(verdict, read(input, cuts, &other));
        if (verdict != .accepted) continue;
        try testing.expectEqualStrings(head.text, other.text);
        try testing.expectEqualSlices(FieldSpan, head.fields, other.fields);
        inline for (.{
            "method",     "method_text",     "target",    "path",    "query",
            "has_query",  "https",           "authority", "version", "body",
            "keep_alive", "expect_continue", "upgrade",
        }) |name| {
            try testing.expectEqual(@field(head, name), @field(other, name));
        }
    }
}

fn read(input: []const u8, way: Cuts, head: *http1.Head) Verdict {
    var cuts = way;
    var session: http1.Session = .init(&limits);
    var consumed: usize = 0;
    var arrived: usize = 0;
    while (true) {
        arrived += cuts.next(input.len - arrived);
        const step = session.feed(input[consumed..arrived], head);
        const before = consumed;
        consumed += step.consumed;
        switch (step.event) {
            .need_more => if (arrived == input.len) return .incomplete,
            .refused => |refusal| return .{ .refused = refusal.status },
            .request => return .{ .accepted = .{ .start = start(input, before), .end = consumed } },
            .body, .trailers, .end => unreachable,
        }
    }
}

/// The index behind the empty lines at `from`.
fn start(input: []const u8, from: usize) usize {
    var at = from;
    while (std.mem.startsWith(u8, input[at..], "\r\n")) at += 2;
    return at;
}

/// Checks the properties of a head that was accepted.
fn expectLike(head: *const http1.Head) !void {
    const text = head.text;
    try testing.expect(text.len <= limits.head_bytes_max);
    try testing.expect(head.fields.len <= limits.header_count_max);
    var lines = std.mem.splitSequence(u8, text[0 .. text.len - "\r\n\r\n".len], "\r\n");
    const request_line = lines.next().?;
    try testing.expect(request_line.len <= limits.request_line_bytes_max);
    var parts = std.mem.splitScalar(u8, request_line, ' ');
    try testing.expectEqualStrings(parts.next().?, head.method_text.of(text));
    try testing.expectEqualStrings(parts.next().?, head.target.of(text));
    try testing.expectEqual(head.version == .http_1_0, std.mem.eql(u8, parts.next().?, "HTTP/1.0"));
    try testing.expectEqual(null, parts.next());
    try testing.expectEqual(protocol.http.Method.parse(head.method_text.of(text)), head.method);
    try expectFields(head, &lines);
    // Path and query joined are the target.
    const target = head.target.of(text);
    const path = head.path.of(text);
    const query = head.query.of(text);
    try testing.expectEqual(std.mem.findScalar(u8, target, '?') != null, head.has_query);
    try testing.expect(path.len > 0);
    if (head.target_form == .absolute) {
        try testing.expectEqual('/', path[0]);
        try testing.expect(std.mem.find(u8, target, head.authority.of(text)) != null and
            head.authority.len > 0);
    }
    if (head.target_form == .origin) {
        try testing.expect(std.mem.startsWith(u8, target, path));
        try testing.expect(path.len == target.len or target[path.len] == '?');
        if (path.len < target.len) try testing.expectEqualStrings(target[path.len + 1 ..], query);
    }
}

/// The fields are those of the lines, in their order, but for what the parser decides for everybody: one
/// Content-Length, and one host.
fn expectFields(head: *const http1.Head, lines: *std.mem.SplitIterator(u8, .sequence)) !void {
    const text = head.text;
    var at: usize = 0;
    var lengths: usize = 0;
    while (lines.next()) |line| {
        // A head without fields has an empty rest, which is no line.
        if (line.len == 0) break;
        const colon = std.mem.findScalar(u8, line, ':').?;
        const id: protocol.http.header.Id = .fromName(line[0..colon]);
        if (id == .content_length) lengths += 1;
        if (id == .content_length and lengths > 1) continue;
        const field = head.fields[at];
        at += 1;
        try testing.expectEqual(id, field.id);
        try testing.expectEqualStrings(line[0..colon], field.name(text));
        const received = if (id == .content_length)
            std.mem.sliceTo(line[colon + 1 ..], ',')
        else
            line[colon + 1 ..];
        const expected = if (id == .host) head.authority.of(text) else std.mem.trim(u8, received, " \t");
        try testing.expectEqualStrings(expected, field.value(text));
        if (id == .host and head.target_form != .absolute) {
            try testing.expectEqualStrings(std.mem.trim(u8, received, " \t"), expected);
        }
    }
    if (head.added().len > 0) {
        try testing.expectEqualStrings("host", head.added());
        try testing.expectEqualStrings(head.authority.of(text), head.fields[at].value(text));
        try testing.expect(head.version == .http_1_0 and head.target_form == .absolute);
        at += 1;
    }
    try testing.expectEqual(head.fields.len, at);
}

/// Whether the session's verdict can be right. A text of complete lines that breaks no rule of this grammar,
/// and has the fields that decide about framing not at all, is accepted; one that breaks a rule is not.
fn expectJudgement(input: []const u8, verdict: Verdict) !void {
    const from = start(input, 0);
    const text = input[from..];
    const end = std.mem.find(u8, text, "\r\n\r\n") orelse {
        return testing.expect(verdict != .accepted);
    };
    const grammatical = follows(text[0..end]);
    if (verdict == .accepted) return testing.expect(grammatical);
    if (from > 0 or !grammatical or end + 4 > limits.head_bytes_max) return;
    // The other rules are for the target `framing`.
    var lines = std.mem.splitSequence(u8, text[0..end], "\r\n");
    const request_line = lines.next().?;
    if (request_line.len > limits.request_line_bytes_max) return;
    if (!std.mem.startsWith(u8, request_line, "GET / HTTP/1.0")) return;
    var count: usize = 0;
    while (lines.next()) |line| : (count += 1) {
        for ([_][]const u8{ "host", "content-length", "transfer-encoding" }) |name| {
            if (std.ascii.startsWithIgnoreCase(line, name)) return;
        }
    }
    if (count <= limits.header_count_max) return error.RefusedWithoutReason;
}

/// The grammar of RFC 9112 sections 3 and 5, for a text without its last two line ends.
fn follows(text: []const u8) bool {
    var lines = std.mem.splitSequence(u8, text, "\r\n");
    var parts = std.mem.splitScalar(u8, lines.next().?, ' ');
    if (!isToken(parts.next().?)) return false;
    const target = parts.next() orelse return false;
    if (target.len == 0) return false;
    for (target) |byte| if (byte <= ' ' or byte == 0x7f) return false;
    const version = parts.next() orelse return false;
    if (version.len != "HTTP/1.x".len or !std.mem.startsWith(u8, version, "HTTP/1.") or
        !std.ascii.isDigit(version[7]))
    {
        return false;
    }
    if (parts.next() != null) return false;
    while (lines.next()) |line| {
        const colon = std.mem.findScalar(u8, line, ':') orelse return false;
        if (!isToken(line[0..colon])) return false;
        for (line[colon + 1 ..]) |byte| if ((byte < ' ' and byte != '\t') or byte == 0x7f) return false;
    }
    return true;
}

/// RFC 9110 section 5.6.2.
fn isToken(text: []const u8) bool {
    for (text) |byte| {
        if (!std.ascii.isAlphanumeric(byte) and std.mem.findScalar(u8, "!#$%&'*+-.^_`|~", byte) == null) {
            return false;
        }
    }
    return text.len > 0;
}
