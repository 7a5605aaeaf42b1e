//! The protocol of Redis and Valkey, RESP2 and RESP3: bytes of a server become events, commands become bytes.
//! The parser keeps no text: strings are passed on in the pieces in which they arrive, so that an announced
//! length takes no memory. Does not know: which answer belongs to which command.
const std = @import("std");
const assert = std.debug.assert;
const Config = @import("config.zig").Config;

/// Limits of one answer. An answer beyond a limit is malformed.
pub const Limits = struct {
    /// The depth of aggregates, 1..depth_ceiling.
    depth_max: u8,
    /// The number of values in the answer.
    elements_max: u32,
    /// The sum of the bytes of all strings.
    bytes_max: u64,
    /// The length of a line without its type byte and its line break.
    line_bytes_max: u32,

    /// The limits of answers, from the hub's configuration.
    pub fn of(config: *const Config) Limits {
        return .{
            .depth_max = config.reply_depth_max,
            .elements_max = config.reply_elements_max,
            .bytes_max = config.reply_bytes_max,
            .line_bytes_max = config.reply_line_bytes_max,
        };
    }
};

/// The parser's memory for open aggregates.
pub const depth_ceiling = Config.rules.reply_depth_max.max;

/// The version of the protocol: RESP2 until HELLO has chosen RESP3.
pub const Dialect = enum { resp2, resp3 };

pub const Event = union(enum) {
    /// The answer is incomplete. The unconsumed bytes must be passed again with further ones.
    need_more,
    /// A short text of the server, such as OK. A slice of the fed bytes.
    status: []const u8,
    /// An error of one line. A slice of the fed bytes.
    failure: []const u8,
    integer: i64,
    /// A piece of a string.
    text: Text,
    nothing,
    boolean: bool,
    number: f64,
    /// An integer of any length, as digits. A slice of the fed bytes.
    digits: []const u8,
    /// An aggregate begins: its values follow, then `end`.
    begin: Aggregate,
    /// The aggregate that began last is complete.
    end,
    /// The bytes are not RESP, or exceed a limit. Nothing is read afterwards.
    malformed: Fault,
};

/// A piece of a string. The pieces of a string follow each other.
pub const Text = struct {
    kind: enum {
        string,
        /// An error that may contain line breaks.
        failure,
        /// A string that follows a format of three letters and a colon.
        verbatim,
    },
    /// A slice of the fed bytes. Only the last piece can be empty.
    bytes: []const u8,
    /// The length of the whole string in bytes.
    len: u64,
    first: bool,
    last: bool,
};

pub const Aggregate = struct {
    kind: Kind,
    /// The number of values that follow; each pair of a map has two.
    count: u32,

    pub const Kind = enum {
        list,
        set,
        map,
        /// Pairs with information about the answer, which follows them.
        attribute,
        /// A message of the server that answers no command.
        push,
    };
};

/// Reasons why bytes are no answer.
pub const Fault = enum {
    unknown_type,
    /// A line with a single CR or LF.
    bad_line,
    line_too_long,
    bad_integer,
    bad_length,
    bad_number,
    bad_boolean,
    /// A string without a line break at its announced end.
    text_not_ended,
    too_deep,
    too_many_elements,
    too_many_bytes,
    /// A push within an answer, or a push without a type.
    misplaced,
};

/// The result of one call of `feed`.
pub const Step = struct {
    /// Bytes at the front that the parser needs no longer.
    consumed: usize,
    event: Event,
};

/// A parser of answers that follow each other.
pub const Parser = struct {
    limits: Limits,
    dialect: Dialect = .resp2,
    state: State = .value,
    /// The open aggregates.
    stack: [depth_ceiling]Frame = undefined,
    depth: u8 = 0,
    /// The number of values that the present answer has announced; `bytes`: those of its strings.
    elements: u32 = 0,
    bytes: u64 = 0,
    /// Bytes of an incomplete line that were searched for a line break.
    looked: u32 = 0,

    const State = union(enum) {
        /// The next byte begins a value.
        value,
        text: struct { kind: @FieldType(Text, "kind"), len: u64, left: u64 },
        failed: Fault,
    };

    const Frame = struct {
        kind: Aggregate.Kind,
        /// The number of values that are still to come.
        left: u32,
    };

    pub fn init(limits: Limits) Parser {
        assert(limits.depth_max > 0 and limits.depth_max <= depth_ceiling);
        return .{ .limits = limits };
    }

    /// Whether the parser is between two answers. An attribute belongs to the answer behind it.
    pub fn isBetween(parser: *const Parser) bool {
        return parser.depth == 0 and parser.state == .value and parser.elements == 0 and parser.bytes == 0;
    }

    /// Reads one event from the front of `bytes`, which begin behind the consumed ones.
    pub fn feed(parser: *Parser, bytes: []const u8) Step {
        const step = switch (parser.state) {
            .failed => |fault| return .{ .consumed = 0, .event = .{ .malformed = fault } },
            .text => parser.readText(bytes),
            .value => if (parser.depth > 0 and parser.stack[parser.depth - 1].left == 0)
                parser.close()
            else
                parser.readValue(bytes),
        };
        assert(step.consumed <= bytes.len);
        switch (step.event) {
            .malformed => |fault| parser.state = .{ .failed = fault },
            else => parser.invariants(),
        }
        return step;
    }

    pub fn invariants(parser: *const Parser) void {
        assert(parser.depth <= parser.limits.depth_max);
        assert(parser.elements <= parser.limits.elements_max);
        assert(parser.bytes <= parser.limits.bytes_max);
        assert(parser.looked <= parser.limits.line_bytes_max);
        var open: u64 = 0;
        for (parser.stack[0..parser.depth]) |frame| open += frame.left;
        assert(open <= parser.elements);
        switch (parser.state) {
            .text => |text| assert(text.left <= text.len and text.len <= parser.bytes),
            .value, .failed => {},
        }
    }

    fn close(parser: *Parser) Step {
        parser.depth -= 1;
        // The answer follows the attribute.
        if (parser.stack[parser.depth].kind != .attribute) parser.noteValue();
        return .{ .consumed = 0, .event = .end };
    }

    fn noteValue(parser: *Parser) void {
        parser.state = .value;
        if (parser.depth > 0) {
            parser.stack[parser.depth - 1].left -= 1;
            return;
        }
        parser.elements = 0;
        parser.bytes = 0;
    }

    fn readText(parser: *Parser, bytes: []const u8) Step {
        const text = &parser.state.text;
        const there: usize = @intCast(@min(text.left, bytes.len));
        const first = text.left == text.len;
        const ending = bytes[there..];
        if (there == text.left and ending.len >= 1) {
            if (ending[0] != '\r') return malformed(.text_not_ended);
            if (ending.len >= 2 and ending[1] != '\n') return malformed(.text_not_ended);
        }
        const last = there == text.left and ending.len >= 2;
        if (there == 0 and !last) return .{ .consumed = 0, .event = .need_more };
        const piece: Text = .{
            .kind = text.kind,
            .bytes = bytes[0..there],
            .len = text.len,
            .first = first,
            .last = last,
        };
        text.left -= there;
        if (last) parser.noteValue();
        return .{ .consumed = there + @as(usize, if (last) 2 else 0), .event = .{ .text = piece } };
    }

    fn readValue(parser: *Parser, bytes: []const u8) Step {
        if (bytes.len == 0) return .{ .consumed = 0, .event = .need_more };
        const is_known = switch (bytes[0]) {
            '+', '-', ':', '$', '*' => true,
            '_', ',', '#', '!', '=', '(', '%', '~', '>', '|' => parser.dialect == .resp3,
            else => false,
        };
        if (!is_known) return malformed(.unknown_type);
        const line = switch (parser.findLine(bytes[1..])) {
            .line => |line| line,
            .need_more => return .{ .consumed = 0, .event = .need_more },
            .fault => |fault| return malformed(fault),
        };
        const event = parser.readLine(bytes[0], line) catch |err| return malformed(faultOf(err));
        return .{
            .consumed = 1 + line.len + 2,
            .event = event orelse {
                // The line was a string's length; the event is the string's first piece, if some bytes are
                // there.
                const rest = bytes[1 + line.len + 2 ..];
                const step = parser.readText(rest);
                return .{ .consumed = 1 + line.len + 2 + step.consumed, .event = step.event };
            },
        };
    }

    const Found = union(enum) { line: []const u8, need_more, fault: Fault };

    fn findLine(parser: *Parser, bytes: []const u8) Found {
        const most = parser.limits.line_bytes_max;
        const seen = bytes[0..@min(bytes.len, @as(usize, most) + 1)];
        const end = std.mem.findAnyPos(u8, seen, parser.looked, "\r\n") orelse {
            if (seen.len > most) return .{ .fault = .line_too_long };
            parser.looked = @intCast(seen.len);
            return .need_more;
        };
        if (bytes[end] == '\n') return .{ .fault = .bad_line };
        if (end + 1 == bytes.len) return .need_more;
        if (bytes[end + 1] != '\n') return .{ .fault = .bad_line };
        parser.looked = 0;
        return .{ .line = bytes[0..end] };
    }

    const LineError = error{
        BadInteger,
        BadLength,
        BadNumber,
        BadBoolean,
        TooDeep,
        TooManyElements,
        TooManyBytes,
        Misplaced,
    };

    /// The event of a line; null: the line begins a string.
    fn readLine(parser: *Parser, kind: u8, line: []const u8) LineError!?Event {
        const event: Event = switch (kind) {
            '$', '!', '=' => return parser.beginText(kind, line),
            '*', '~', '%', '|', '>' => return try parser.beginAggregate(kind, line),
            '+' => .{ .status = line },
            '-' => .{ .failure = line },
            ':' => .{ .integer = integer(line) orelse return error.BadInteger },
            '_' => if (line.len == 0) .nothing else return error.BadLength,
            '#' => .{ .boolean = if (std.mem.eql(u8, line, "t"))
                true
            else if (std.mem.eql(u8, line, "f"))
                false
            else
                return error.BadBoolean },
            ',' => .{ .number = number(line) orelse return error.BadNumber },
            '(' => if (isDigits(line)) .{ .digits = line } else return error.BadInteger,
            else => unreachable, // readValue has checked the type
        };
        try parser.count(0, line.len);
        parser.noteValue();
        return event;
    }

    fn beginText(parser: *Parser, kind: u8, line: []const u8) LineError!?Event {
        const announced = integer(line) orelse return error.BadLength;
        if (announced == -1 and kind == '$') {
            parser.noteValue();
            return .nothing;
        }
        const len = std.math.cast(u64, announced) orelse return error.BadLength;
        if (kind == '=' and len < "txt:".len) return error.BadLength;
        try parser.count(0, len);
        parser.state = .{ .text = .{
            .kind = switch (kind) {
                '$' => .string,
                '!' => .failure,
                '=' => .verbatim,
                else => unreachable,
            },
            .len = len,
            .left = len,
        } };
        return null;
    }

    fn beginAggregate(parser: *Parser, kind: u8, line: []const u8) LineError!Event {
        const announced = integer(line) orelse return error.BadLength;
        if (announced == -1 and kind == '*') {
            parser.noteValue();
            return .nothing;
        }
        if (announced < 0) return error.BadLength;
        if (announced > parser.limits.elements_max) return error.TooManyElements;
        const aggregate: Aggregate = switch (kind) {
            '*' => .{ .kind = .list, .count = @intCast(announced) },
            '~' => .{ .kind = .set, .count = @intCast(announced) },
            '%' => .{ .kind = .map, .count = try double(announced) },
            '|' => .{ .kind = .attribute, .count = try double(announced) },
            '>' => .{ .kind = .push, .count = @intCast(announced) },
            else => unreachable,
        };
        // A push has a type, and comes only between answers.
        if (aggregate.kind == .push and (announced == 0 or !parser.isBetween())) return error.Misplaced;
        if (parser.depth == parser.limits.depth_max) return error.TooDeep;
        try parser.count(aggregate.count, 0);
        parser.stack[parser.depth] = .{ .kind = aggregate.kind, .left = aggregate.count };
        parser.depth += 1;
        return .{ .begin = aggregate };
    }

    fn double(announced: i64) LineError!u32 {
        return std.math.cast(u32, announced * 2) orelse error.TooManyElements;
    }

    fn count(parser: *Parser, elements: u32, bytes: u64) LineError!void {
        if (elements > parser.limits.elements_max - parser.elements) return error.TooManyElements;
        if (bytes > parser.limits.bytes_max - parser.bytes) return error.TooManyBytes;
        parser.elements += elements;
        parser.bytes += bytes;
    }

    fn malformed(fault: Fault) Step {
        return .{ .consumed = 0, .event = .{ .malformed = fault } };
    }

    fn faultOf(err: LineError) Fault {
        return switch (err) {
            error.BadInteger => .bad_integer,
            error.BadLength => .bad_length,
            error.BadNumber => .bad_number,
            error.BadBoolean => .bad_boolean,
            error.TooDeep => .too_deep,
            error.TooManyElements => .too_many_elements,
            error.TooManyBytes => .too_many_bytes,
            error.Misplaced => .misplaced,
        };
    }
};

/// Reads an integer in the form of servers: without plus, leading zeros or negative zero. Null: it is none.
pub fn integer(line: []const u8) ?i64 {
    const digits = if (std.mem.startsWith(u8, line, "-")) line[1..] else line;
    if (digits.len == 0 or digits.len > 19) return null;
    for (digits) |byte| if (!std.ascii.isDigit(byte)) return null;
    if (digits[0] == '0' and line.len > 1) return null;
    return std.fmt.parseInt(i64, line, 10) catch null;
}

fn number(line: []const u8) ?f64 {
    for ([_]struct { []const u8, f64 }{
        .{ "inf", std.math.inf(f64) },
        .{ "-inf", -std.math.inf(f64) },
        .{ "nan", std.math.nan(f64) },
    }) |pair| if (std.mem.eql(u8, line, pair[0])) return pair[1];
    for (line) |byte| switch (byte) {
        '0'...'9', '+', '-', '.', 'e', 'E' => {},
        else => return null,
    };
    return std.fmt.parseFloat(f64, line) catch null;
}

fn isDigits(line: []const u8) bool {
    const digits = if (std.mem.startsWith(u8, line, "-")) line[1..] else line;
    for (digits) |byte| if (!std.ascii.isDigit(byte)) return false;
    return digits.len > 0;
}

/// The length of the output of `writeCommand` in bytes.
pub fn commandSize(arguments: []const []const u8) usize {
    var size = lineSize(arguments.len);
    for (arguments) |argument| size += lineSize(argument.len) + argument.len + "\r\n".len;
    return size;
}

/// Writes a command as RESP2 and RESP3 have it, and returns its bytes. `out` must have room for them.
pub fn writeCommand(arguments: []const []const u8, out: []u8) []u8 {
    assert(arguments.len > 0);
    var writer: std.Io.Writer = .fixed(out);
    write(arguments, &writer) catch unreachable; // commandSize has counted the bytes
    return writer.buffered();
}

fn write(arguments: []const []const u8, writer: *std.Io.Writer) std.Io.Writer.Error!void {
    try writer.print("*{d}\r\n", .{arguments.len});
    for (arguments) |argument| {
        try writer.print("${d}\r\n", .{argument.len});
        try writer.writeAll(argument);
        try writer.writeAll("\r\n");
    }
}

fn lineSize(value: usize) usize {
    var size: usize = 1 + "\r\n".len + 1;
    var rest = value / 10;
    while (rest > 0) : (rest /= 10) size += 1;
    return size;
}

const testing = std.testing;

test "commands on the wire" {
    var out: [200]u8 = undefined;
    const cases = [_]struct { []const []const u8, []const u8 }{
        .{ &.{"PING"}, "*1\r\n$4\r\nPING\r\n" },
        .{ &.{ "ECHO", "", "0123456789\r\n" }, "*3\r\n$4\r\nECHO\r\n$0\r\n\r\n$12\r\n0123456789\r\n\r\n" },
    };
    for (cases) |case| {
        try testing.expectEqual(case[1].len, commandSize(case[0]));
        try testing.expectEqualStrings(case[1], writeCommand(case[0], out[0..case[1].len]));
    }
}

const narrow: Limits = .{ .depth_max = 4, .elements_max = 20, .bytes_max = 60, .line_bytes_max = 30 };

/// Events as text, for comparisons in tests. Pieces of a string are joined.
fn describe(wire: []const u8, dialect: Dialect, cut: usize, out: []u8) ![]const u8 {
    var parser: Parser = .init(narrow);
    parser.dialect = dialect;
    var writer: std.Io.Writer = .fixed(out);
    var at: usize = 0;
    for ([_]usize{ cut, wire.len }) |arrived| while (true) {
        const step = parser.feed(wire[at..arrived]);
        at += step.consumed;
        switch (step.event) {
            .need_more => break,
            .status => |text| try writer.print("+{s} ", .{text}),
            .failure => |text| try writer.print("-{s} ", .{text}),
            .integer => |value| try writer.print("{d} ", .{value}),
            .text => |text| {
                try testing.expect(text.bytes.len > 0 or text.last);
                if (text.first and text.bytes.len + @intFromBool(text.last) > 0) {
                    if (text.kind != .string) try writer.print("{t}:", .{text.kind});
                }
                try writer.writeAll(text.bytes);
                if (text.last) try writer.writeAll(" ");
            },
            .nothing => try writer.writeAll("nothing "),
            .boolean => |value| try writer.print("{} ", .{value}),
            .number => |value| try writer.print("{d} ", .{value}),
            .digits => |text| try writer.print("({s} ", .{text}),
            .begin => |aggregate| try writer.print("{t}{d}[ ", .{ aggregate.kind, aggregate.count }),
            .end => try writer.writeAll("] "),
            .malformed => |fault| {
                try writer.print("!{t}", .{fault});
                return writer.buffered();
            },
        }
        if (parser.isBetween()) try writer.writeAll(". ");
    };
    return writer.buffered();
}

fn expectEvents(expected: []const u8, wire: []const u8, dialect: Dialect) !void {
    for (0..wire.len + 1) |cut| {
        var out: [400]u8 = undefined;
        errdefer std.debug.print("cut at {d}\n", .{cut});
        try testing.expectEqualStrings(expected, try describe(wire, dialect, cut, &out));
    }
}

test "answers of RESP2, at every cut" {
    try expectEvents("+OK . ", "+OK\r\n", .resp2);
    try expectEvents("+ . -ERR no . ", "+\r\n-ERR no\r\n", .resp2);
    try expectEvents(
        "0 . -1 . 9223372036854775807 . -9223372036854775808 . ",
        ":0\r\n:-1\r\n:9223372036854775807\r\n:-9223372036854775808\r\n",
        .resp2,
    );
    try expectEvents("a\r\nb .  . nothing . ", "$4\r\na\r\nb\r\n$0\r\n\r\n$-1\r\n", .resp2);
    try expectEvents("list0[ ] . nothing . ", "*0\r\n*-1\r\n", .resp2);
    try expectEvents(
        "list2[ list2[ x list0[ ] ] 7 ] . +a . ",
        "*2\r\n*2\r\n$1\r\nx\r\n*0\r\n:7\r\n+a\r\n",
        .resp2,
    );
}

test "answers of RESP3, at every cut" {
    try expectEvents("nothing . true . false . ", "_\r\n#t\r\n#f\r\n", .resp3);
    try expectEvents("1.5 . inf . -inf . nan . 1000 . ", ",1.5\r\n,inf\r\n,-inf\r\n,nan\r\n,1e3\r\n", .resp3);
    try expectEvents("(-123456789012345678901 . ", "(-123456789012345678901\r\n", .resp3);
    try expectEvents("failure:E x . verbatim:txt:a . ", "!3\r\nE x\r\n=5\r\ntxt:a\r\n", .resp3);
    try expectEvents("map2[ a 1 ] . set1[ 2 ] . ", "%1\r\n$1\r\na\r\n:1\r\n~1\r\n:2\r\n", .resp3);
    try expectEvents("push2[ +m b ] . 1 . ", ">2\r\n+m\r\n$1\r\nb\r\n:1\r\n", .resp3);
    try expectEvents("attribute2[ +k 1 ] 2 . 3 . ", "|1\r\n+k\r\n:1\r\n:2\r\n:3\r\n", .resp3);
    try expectEvents(
        "list2[ attribute2[ +k 1 ] 2 3 ] . ",
        "*2\r\n|1\r\n+k\r\n:1\r\n:2\r\n:3\r\n",
        .resp3,
    );
}

test "bytes that are no answer, at every cut" {
    const cases = [_]struct { []const u8, Dialect, []const u8 }{
        .{ "HTTP/1.1", .resp2, "!unknown_type" },
        .{ "\r\n", .resp3, "!unknown_type" },
        .{ "_\r\n", .resp2, "!unknown_type" },
        .{ ">1\r\n", .resp2, "!unknown_type" },
        .{ "+a\nb\r\n", .resp2, "!bad_line" },
        .{ "+a\rb\r\n", .resp2, "!bad_line" },
        .{ "+0123456789012345678901234567890\r\n", .resp2, "!line_too_long" },
        .{ ":\r\n", .resp2, "!bad_integer" },
        .{ ":+1\r\n", .resp2, "!bad_integer" },
        .{ ":01\r\n", .resp2, "!bad_integer" },
        .{ ":-0\r\n", .resp2, "!bad_integer" },
        .{ ":-\r\n", .resp2, "!bad_integer" },
        .{ ":1 \r\n", .resp2, "!bad_integer" },
        .{ ":9223372036854775808\r\n", .resp2, "!bad_integer" },
        .{ "$-2\r\n", .resp2, "!bad_length" },
        .{ "$x\r\n", .resp2, "!bad_length" },
        .{ "$?\r\n", .resp3, "!bad_length" },
        .{ "*?\r\n", .resp3, "!bad_length" },
        .{ "~-1\r\n", .resp3, "!bad_length" },
        .{ "!-1\r\n", .resp3, "!bad_length" },
        .{ "=3\r\n", .resp3, "!bad_length" },
        .{ "_x\r\n", .resp3, "!bad_length" },
        .{ "#x\r\n", .resp3, "!bad_boolean" },
        .{ ",0x1\r\n", .resp3, "!bad_number" },
        .{ ",\r\n", .resp3, "!bad_number" },
        .{ "(1.0\r\n", .resp3, "!bad_integer" },
        .{ "$1\r\n", .resp2, "" },
        .{ "*5\r\n*5\r\n*5\r\n*5\r\n*0\r\n", .resp2, "list5[ list5[ list5[ list5[ !too_deep" },
        .{ "*21\r\n", .resp2, "!too_many_elements" },
        .{ "*9223372036854775807\r\n", .resp2, "!too_many_elements" },
        .{ "*10\r\n*11\r\n", .resp2, "list10[ !too_many_elements" },
        .{ "%11\r\n", .resp3, "!too_many_elements" },
        .{ "$61\r\n", .resp2, "!too_many_bytes" },
        .{ "$9223372036854775807\r\n", .resp2, "!too_many_bytes" },
        .{ "*2\r\n$1\r\na\r\n$60\r\n", .resp2, "list2[ a !too_many_bytes" },
        .{ "*1\r\n>1\r\n", .resp3, "list1[ !misplaced" },
        .{ "|1\r\n:1\r\n:1\r\n>1\r\n", .resp3, "attribute2[ 1 1 ] !misplaced" },
        .{ ">0\r\n", .resp3, "!misplaced" },
    };
    for (cases) |case| {
        errdefer std.debug.print("{s}\n", .{case[0]});
        try expectEvents(case[2], case[0], case[1]);
    }
    // Pieces of a string are events before its end is checked.
    var out: [100]u8 = undefined;
    try testing.expectEqualStrings("!text_not_ended", try describe("$1\r\nabc", .resp2, 7, &out));
    try testing.expectEqualStrings("a!text_not_ended", try describe("$1\r\nabc", .resp2, 5, &out));
}

test "limits are those of one answer" {
    var parser: Parser = .init(narrow);
    for (0..100) |_| {
        const wire = "*2\r\n$20\r\n01234567890123456789\r\n:1\r\n";
        var at: usize = 0;
        while (true) {
            const step = parser.feed(wire[at..]);
            at += step.consumed;
            try testing.expect(step.event != .malformed);
            if (step.event == .need_more) break;
        }
        try testing.expectEqual(wire.len, at);
        try testing.expect(parser.isBetween());
    }
}

test "a long string passes in the pieces in which it comes, and a long line is not read twice" {
    var parser: Parser = .init(.{
        .depth_max = 1,
        .elements_max = 0,
        .bytes_max = 1 << 40,
        .line_bytes_max = 4096,
    });
    const head = "$1099511627776\r\n";
    try testing.expectEqual(head.len, parser.feed(head).consumed);
    const piece: [1000]u8 = @splat('x');
    for (0..50) |_| {
        const step = parser.feed(&piece);
        try testing.expectEqual(piece.len, step.consumed);
        try testing.expectEqual(1 << 40, step.event.text.len);
    }
    var other: Parser = .init(narrow);
    try testing.expectEqual(.need_more, other.feed("+abc").event);
    try testing.expectEqual(3, other.looked);
    try testing.expectEqualStrings("abcd", other.feed("+abcd\r\n").event.status);
    try testing.expectEqual(0, other.looked);
}
