//! The format of access log lines: presets and Apache's percent atoms, compiled once into the texts that are
//! kept of a request when it begins, and the values that its end adds.
//!     %h  client address ("unix" for a Unix socket)      %s  status; "-": there was no response
//!     %l  %u  always "-"                                 %b  bytes of response body; "-" for none
//!     %t  [time when the request came, local time]       %B  like %b, with 0 for none
//!     %r  request line                                   %d  seconds until the end, with microseconds
//!     %m  method                                         %D  microseconds until the end
//!     %U  path as received                               %T  whole seconds until the end
//!     %q  query as received, with its "?"                %X  "X": cut short; "+" or "-": the connection
//!     %H  protocol, "HTTP/1.1"                               goes on or ends
//!     %p  local port of the connection                   %L  the request's id: "connection-request"
//!     %{Name}i  a request header                         %P  process id
//!     %{iso}t  the time as in RFC 3339                   %%  a percent sign
//!     %{ms}T %{us}T %{s}T  time until the end in this unit
//!     %^FB  microseconds until the response began        %{ms}^FB %{us}^FB %{s}^FB  in this unit
//!     %Q  microseconds for which the complete request    %{ms}Q %{us}Q %{s}Q  in this unit
//!         waited for the application; "-": no application took it
//!     %M  the group of interpreters that the request is for; "-": it has no name
//!
//! and of the connection's TLS, under the names of Apache's mod_ssl; all are "-" without TLS:
//!
//!     %{SSL_PROTOCOL}x         "TLSv1.3"                 %{SSL_CIPHER}x         cipher, by OpenSSL's name
//!     %{SSL_TLS_SNI}x          the name asked for        %{SSL_SESSION_RESUMED}x  "Initial", "Resumed"
//!     %{SSL_CLIENT_VERIFY}x    "NONE", "SUCCESS", "FAILED:why"
//!     %{SSL_CLIENT_S_DN}x      subject of a client's certificate that verified
//!
//! A format that starts with "{" is JSON: values are escaped as its strings need it, and a missing value is
//! empty instead of "-". Does not know: requests, files, time.
const std = @import("std");
const assert = std.debug.assert;
const http = @import("protocol").http;

/// Atoms whose values are known when the request begins.
pub const Early = union(enum) {
    text: []const u8,
    peer,
    request_line,
    method,
    path,
    query,
    protocol,
    local_port,
    id,
    process,
    header: Header,
    tls: Tls,

    /// A request header by its name, and by its number if it is a known one.
    pub const Header = struct { id: http.header.Id, name: []const u8 };
};

/// Facts about a connection's TLS, by their names in formats.
pub const Tls = enum {
    SSL_PROTOCOL,
    SSL_CIPHER,
    SSL_TLS_SNI,
    SSL_SESSION_RESUMED,
    SSL_CLIENT_VERIFY,
    SSL_CLIENT_S_DN,
};

/// Atoms whose values are known when the request ends, in at most `late_bytes_max` bytes.
pub const Late = union(enum) {
    time,
    time_iso,
    status,
    bytes,
    bytes_or_dash,
    /// The time from the request's beginning to the end of the response.
    duration: Unit,
    /// The time from the request's beginning to the beginning of the response.
    first_byte: Unit,
    /// The time from the complete request until the application took it.
    queue: Unit,
    /// The group of interpreters that the request is for.
    group,
    connection,
};

/// The unit of a time. `seconds` have six decimal places, `milliseconds` three.
pub const Unit = enum { seconds, milliseconds, microseconds, whole_seconds };

/// Bytes of the longest value, "[21/Nov/2026:07:09:37 +0000]". The name of a group may be longer.
pub const late_bytes_max = 32;

const group_bytes_max = @import("../config.zig").api_limits.group_name_bytes_max;

/// A step in writing a line.
pub const Op = union(enum) {
    /// The next of the texts that were kept at the request's beginning.
    kept,
    text: []const u8,
    late: Late,
};

pub const presets = [_]struct { name: []const u8, format: []const u8 }{
    .{ .name = "clf", .format = common },
    .{ .name = "combined", .format = common ++ " \"%{Referer}i\" \"%{User-Agent}i\"" },
    .{ .name = "common", .format = common },
    .{ .name = "tiny", .format = "%m %U%q %s %{ms}Tms" },
    .{ .name = "json", .format = json },
};

const common = "%h %l %u %t \"%r\" %s %b";

const json = "{\"time\":\"%{iso}t\",\"id\":\"%L\",\"pid\":%P,\"client\":\"%h\"," ++
    "\"request\":\"%r\",\"method\":\"%m\",\"path\":\"%U\",\"query\":\"%q\"," ++
    "\"protocol\":\"%H\",\"status\":%s,\"bytes\":%B,\"duration_us\":%D,\"ttfb_us\":%^FB," ++
    "\"queue_us\":%Q,\"mount\":\"%M\"," ++
    "\"referer\":\"%{Referer}i\",\"user_agent\":\"%{User-Agent}i\"," ++
    "\"request_id\":\"%{X-Request-ID}i\",\"traceparent\":\"%{traceparent}i\"," ++
    "\"tls_protocol\":\"%{SSL_PROTOCOL}x\",\"tls_cipher\":\"%{SSL_CIPHER}x\"," ++
    "\"tls_client\":\"%{SSL_CLIENT_S_DN}x\"}";

/// A fault in the text of a format.
pub const Fault = struct {
    /// The index of the faulty atom in the format.
    at: usize = 0,
    /// The text of the faulty atom, as far as it was read.
    atom: []const u8 = "",
    reason: [:0]const u8 = "",
};

/// A compiled format.
pub const Format = struct {
    arena: std.heap.ArenaAllocator,
    /// The parts of a line that are kept when a request begins, in their order.
    runs: []const []const Early,
    ops: []const Op,
    json: bool,
    /// Whether an atom has the duration of a request.
    timed: bool,
    /// Whether an atom has the time at which the response began.
    first_byte: bool,
    /// Whether an atom has the time at which the application took the request.
    queued: bool,
    /// Whether an atom has the group of interpreters of a request.
    grouped: bool,
    /// The most bytes that `ops` add to the kept texts.
    rest_bytes_max: usize,

    /// Reasons why a format cannot be compiled.
    pub const Error = error{ OutOfMemory, BadFormat };

    /// Compiles a format, or the preset with this name. The text is copied. After BadFormat `fault` has the
    /// reason, in slices of `text`.
    pub fn compile(gpa: std.mem.Allocator, text: []const u8, fault: *Fault) Error!Format {
        var arena: std.heap.ArenaAllocator = .init(gpa);
        errdefer arena.deinit();
        const source = for (presets) |preset| {
            if (std.mem.eql(u8, preset.name, text)) break preset.format;
        } else text;
        var compiler: Compiler = .{ .arena = arena.allocator(), .json = std.mem.startsWith(u8, source, "{") };
        try compiler.read(source, fault);
        // A format without atoms would make the same line for every request, so it is taken for a mistyped
        // name.
        if (compiler.atoms == 0) {
            return Compiler.bad(
                fault,
                0,
                "",
                "has no percent atom and is none of clf combined common tiny json",
            );
        }
        try compiler.addText("\n");
        try compiler.endRun();
        return .{
            .runs = compiler.runs.items,
            .ops = compiler.ops.items,
            .json = compiler.json,
            .timed = compiler.timed,
            .first_byte = compiler.first_byte,
            .queued = compiler.queued,
            .grouped = compiler.grouped,
            .rest_bytes_max = compiler.rest_bytes_max,
            .arena = arena,
        };
    }

    pub fn deinit(format: *Format) void {
        format.arena.deinit();
        format.* = undefined;
    }
};

const unknown_tls = "names nothing of TLS; there are" ++ names: {
    var names: []const u8 = "";
    for (std.enums.values(Tls)) |name| names = names ++ " " ++ @tagName(name);
    break :names names;
};

const Compiler = struct {
    arena: std.mem.Allocator,
    json: bool,
    timed: bool = false,
    first_byte: bool = false,
    queued: bool = false,
    grouped: bool = false,
    /// The number of atoms that stand for values.
    atoms: usize = 0,
    rest_bytes_max: usize = 0,
    runs: std.ArrayList([]const Early) = .empty,
    ops: std.ArrayList(Op) = .empty,
    /// Early atoms and texts since the last late atom.
    run: std.ArrayList(Early) = .empty,

    fn read(c: *Compiler, source: []const u8, fault: *Fault) Format.Error!void {
        if (source.len == 0) return bad(fault, 0, "", "is empty");
        var at: usize = 0;
        while (at < source.len) {
            const next = std.mem.findScalarPos(u8, source, at, '%') orelse source.len;
            for (source[at..next]) |byte| if (byte < ' ' and byte != '\t' or byte == 0x7f) {
                return bad(fault, at, source[at..next], "has a control byte");
            };
            try c.addText(source[at..next]);
            if (next == source.len) return;
            at = try c.atom(source, next, fault);
        }
    }

    /// Reads the atom at `at`; returns the index behind it.
    fn atom(c: *Compiler, source: []const u8, at: usize, fault: *Fault) Format.Error!usize {
        var end = at + 1;
        var argument: []const u8 = "";
        if (end < source.len and source[end] == '{') {
            const close = std.mem.findScalarPos(u8, source, end, '}') orelse
                return bad(fault, at, source[at..], "lacks its \"}\"");
            argument = source[end + 1 .. close];
            end = close + 1;
            // Apache's mark for the last status; here there is only one status
        } else if (end < source.len and source[end] == '>') end += 1;
        if (end == source.len) return bad(fault, at, source[at..], "lacks its letter");
        if (source[end] == '^') return c.firstByte(source, at, end, argument, fault);
        const whole = source[at .. end + 1];
        if (source[end] != '%') c.atoms += 1;
        if (argument.len > 0 or std.mem.findScalar(u8, whole, '{') != null) {
            try c.withArgument(source[end], argument, at, whole, fault);
        } else try c.plain(source[end], at, whole, fault);
        return end + 1;
    }

    /// Reads %^FB. Apache has more atoms of this form, but no other has a meaning here.
    fn firstByte(
        c: *Compiler,
        source: []const u8,
        at: usize,
        caret: usize,
        argument: []const u8,
        fault: *Fault,
    ) Format.Error!usize {
        const end = @min(caret + "^FB".len, source.len);
        const whole = source[at..end];
        const unit: ?Unit = if (whole.len == "%^FB".len) .microseconds else unitOf(argument);
        if (!std.mem.eql(u8, source[caret..end], "^FB") or unit == null) {
            return bad(fault, at, whole, "is none of %^FB %{s}^FB %{ms}^FB %{us}^FB");
        }
        c.atoms += 1;
        try c.late(.{ .first_byte = unit.? });
        return end;
    }

    fn unitOf(argument: []const u8) ?Unit {
        const units = .{
            .{ "s", Unit.whole_seconds }, .{ "ms", Unit.milliseconds }, .{ "us", Unit.microseconds },
        };
        inline for (units) |unit| if (std.mem.eql(u8, argument, unit[0])) return unit[1];
        return null;
    }

    fn plain(c: *Compiler, letter: u8, at: usize, whole: []const u8, fault: *Fault) Format.Error!void {
        switch (letter) {
            '%' => try c.addText("%"),
            'h' => try c.early(.peer),
            'l', 'u' => try c.addText(if (c.json) "" else "-"),
            'r' => try c.early(.request_line),
            'm' => try c.early(.method),
            'U' => try c.early(.path),
            'q' => try c.early(.query),
            'H' => try c.early(.protocol),
            'p' => try c.early(.local_port),
            'L' => try c.early(.id),
            'P' => try c.early(.process),
            't' => try c.late(.time),
            's' => try c.late(.status),
            'b' => try c.late(.bytes_or_dash),
            'B' => try c.late(.bytes),
            'd' => try c.late(.{ .duration = .seconds }),
            'D' => try c.late(.{ .duration = .microseconds }),
            'T' => try c.late(.{ .duration = .whole_seconds }),
            'Q' => try c.late(.{ .queue = .microseconds }),
            'M' => try c.late(.group),
            'X' => try c.late(.connection),
            else => return bad(
                fault,
                at,
                whole,
                "is none of %h %l %u %t %r %m %U %q %H %p %s %b %B %d %D %T %Q %M %X %L %P %^FB " ++
                    "%{Name}i %{Name}x %%",
            ),
        }
    }

    fn withArgument(
        c: *Compiler,
        letter: u8,
        argument: []const u8,
        at: usize,
        whole: []const u8,
        fault: *Fault,
    ) Format.Error!void {
        switch (letter) {
            'i' => {
                if (!http.syntax.isToken(argument)) return bad(fault, at, whole, "does not name a header");
                try c.early(.{ .header = .{
                    .id = .fromName(argument),
                    .name = try c.arena.dupe(u8, argument),
                } });
            },
            't' => {
                if (!std.mem.eql(u8, argument, "iso")) return bad(fault, at, whole, "is not %{iso}t");
                try c.late(.time_iso);
            },
            'T' => {
                const unit = unitOf(argument) orelse
                    return bad(fault, at, whole, "is none of %{s}T %{ms}T %{us}T");
                try c.late(.{ .duration = unit });
            },
            'Q' => {
                const unit = unitOf(argument) orelse
                    return bad(fault, at, whole, "is none of %{s}Q %{ms}Q %{us}Q");
                try c.late(.{ .queue = unit });
            },
            'x' => {
                const name = std.meta.stringToEnum(Tls, argument) orelse
                    return bad(fault, at, whole, unknown_tls);
                try c.early(.{ .tls = name });
            },
            else => return bad(
                fault,
                at,
                whole,
                "is none of %{Name}i %{iso}t %{s}T %{ms}T %{us}T %{ms}Q %{ms}^FB %{Name}x",
            ),
        }
    }

    fn addText(c: *Compiler, text: []const u8) Format.Error!void {
        if (text.len == 0) return;
        if (c.run.items.len > 0) switch (c.run.items[c.run.items.len - 1]) {
            .text => |*before| {
                before.* = try std.mem.concat(c.arena, u8, &.{ before.*, text });
                return;
            },
            else => {},
        };
        try c.run.append(c.arena, .{ .text = try c.arena.dupe(u8, text) });
    }

    fn early(c: *Compiler, what: Early) Format.Error!void {
        try c.run.append(c.arena, what);
    }

    fn late(c: *Compiler, what: Late) Format.Error!void {
        try c.endRun();
        try c.ops.append(c.arena, .{ .late = what });
        c.rest_bytes_max += if (what == .group) group_bytes_max else late_bytes_max;
        switch (what) {
            .duration => c.timed = true,
            .first_byte => {
                c.timed = true;
                c.first_byte = true;
            },
            .queue => c.queued = true,
            .group => c.grouped = true,
            .time, .time_iso, .status, .bytes, .bytes_or_dash, .connection => {},
        }
    }

    /// Ends a run of early atoms. A run of text alone is not kept with every request.
    fn endRun(c: *Compiler) Format.Error!void {
        const run = c.run.items;
        if (run.len == 0) return;
        if (run.len == 1 and run[0] == .text) {
            c.rest_bytes_max += run[0].text.len;
            try c.ops.append(c.arena, .{ .text = run[0].text });
        } else {
            try c.runs.append(c.arena, run);
            try c.ops.append(c.arena, .kept);
        }
        c.run = .empty;
    }

    fn bad(fault: *Fault, at: usize, text: []const u8, reason: [:0]const u8) error{BadFormat} {
        fault.* = .{ .at = at, .atom = text, .reason = reason };
        return error.BadFormat;
    }
};

const testing = std.testing;

test "the common format keeps two runs, and what ends a request comes between" {
    var fault: Fault = .{};
    var format: Format = try .compile(testing.allocator, "clf", &fault);
    defer format.deinit();
    try testing.expectEqual(2, format.runs.len);
    try testing.expectEqualStrings(" - - ", format.runs[0][1].text);
    const tags = [_]std.meta.Tag(Op){ .kept, .late, .kept, .late, .text, .late, .text };
    try testing.expectEqual(tags.len, format.ops.len);
    for (tags, format.ops) |tag, op| try testing.expectEqual(tag, std.meta.activeTag(op));
    try testing.expect(!format.timed and !format.json);
}

test "every preset compiles; those with durations want a clock, json is JSON" {
    for (presets) |preset| {
        var fault: Fault = .{};
        var format: Format = try .compile(testing.allocator, preset.name, &fault);
        defer format.deinit();
        const timed = std.mem.eql(u8, preset.name, "tiny") or std.mem.eql(u8, preset.name, "json");
        try testing.expectEqual(timed, format.timed);
        try testing.expectEqual(std.mem.eql(u8, preset.name, "json"), format.json);
    }
}

test "an error names the wrong atom with its place" {
    const cases = [_]struct { []const u8, usize, []const u8, []const u8 }{
        .{ "", 0, "", "is empty" },
        .{ "%h %z", 3, "%z", "is none of" },
        .{ "ab%", 2, "%", "lacks its letter" },
        .{ "%{Referer", 0, "%{Referer", "lacks its \"}\"" },
        .{ "%{Referer}", 0, "%{Referer}", "lacks its letter" },
        .{ "%{}i", 0, "%{}i", "does not name a header" },
        .{ "%{a b}i", 0, "%{a b}i", "does not name a header" },
        .{ "x %{ns}T", 2, "%{ns}T", "is none of %{s}T" },
        .{ "%{ns}Q", 0, "%{ns}Q", "is none of %{s}Q" },
        .{ "%{%Y}t", 0, "%{%Y}t", "is not %{iso}t" },
        .{ "%{X}o", 0, "%{X}o", "is none of %{Name}i" },
        .{ "a%^FX", 1, "%^FX", "is none of %^FB" },
        .{ "%s %^F", 3, "%^F", "is none of %^FB" },
        .{ "%{ns}^FB", 0, "%{ns}^FB", "is none of %^FB" },
        .{ "%{SSL_PROTO}x", 0, "%{SSL_PROTO}x", "names nothing of TLS; there are SSL_PROTOCOL SSL_CIPHER" },
        .{ "a\nb", 0, "a\nb", "has a control byte" },
        .{ "combned", 0, "", "has no percent atom" },
        .{ "100%%", 0, "", "has no percent atom" },
    };
    for (cases) |case| {
        var fault: Fault = .{};
        try testing.expectError(error.BadFormat, Format.compile(testing.allocator, case[0], &fault));
        try testing.expectEqual(case[1], fault.at);
        try testing.expectEqualStrings(case[2], fault.atom);
        try testing.expect(std.mem.find(u8, fault.reason, case[3]) != null);
    }
}
