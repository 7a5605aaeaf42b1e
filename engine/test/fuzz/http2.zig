//! Fuzz target `http2`: everything that one client may say, whole and in pieces: what is heard, and what is
//! answered, does not depend on how the bytes came; nothing is owed for ever; frames that leave are whole and
//! within the client's windows. The first byte chooses limits and what the application does.
const std = @import("std");
const protocol = @import("protocol");
const Cuts = @import("cuts.zig").Cuts;
const cuts_file = @import("cuts.zig");
const http2 = protocol.http2;
const frame = http2.frame;
const session_file = http2.session;
const testing = std.testing;

const limits: session_file.Limits = .{
    .request_line_bytes_max = 64,
    .head_bytes_max = 600,
    .header_count_max = 8,
    .body_bytes_max = 3000,
    .trailer_bytes_max = 100,
    .chunk_line_bytes_max = 32,
};

const wide: session_file.Config = .{ .streams_max = 5, .list_bytes_max = 600 };
const narrow: session_file.Config = .{
    .streams_max = 2,
    .list_bytes_max = 300,
    .stream_window_bytes = 100,
    .connection_window_bytes = 65_535,
    .extended_connect = false,
    .resets = .{ .burst = 5, .per_second = 1 },
    .noise = .{ .burst = 60, .per_second = 1 },
};

pub fn run(input: []const u8) !void {
    if (input.len == 0) return;
    const seed = std.hash.Wyhash.hash(0, input);
    var first: Client = undefined;
    try first.talk(input[0], input[1..], .whole);
    for ([_]Cuts{ .seeded(seed), .bytes }) |cuts| {
        if (cuts == .bytes and input.len > cuts_file.bytewise_max) continue;
        var other: Client = undefined;
        try other.talk(input[0], input[1..], cuts);
        try testing.expectEqual(first.done, other.done);
        try testing.expectEqual(first.heard.final(), other.heard.final());
        try testing.expectEqual(first.sent.final(), other.sent.final());
    }
}

/// The events and frames that a client gets.
const Client = struct {
    session: session_file.Session,
    places: [8]session_file.Stream,
    more_places: [8]session_file.Stream,
    storage: [8]protocol.http.FieldSpan,
    room: [12 * 1024]u8 align(@alignOf(u64)),
    tables: [2][session_file.table_units_max]u64,
    given_tables: usize,
    choice: u8,
    heard: std.hash.Wyhash,
    sent: std.hash.Wyhash,
    sent_fields: session_file.SentFields,
    /// The stream of the last piece of content.
    in_body: u32,
    done: usize,
    out: [4096]u8,
    /// Of the stream that has spoken last, what it was given.
    given: [64]Given,

    const Given = struct { stream: u32 = 0, bytes: u32 = 0 };

    fn talk(client: *Client, choice: u8, input: []const u8, way: Cuts) !void {
        client.choice = choice;
        client.heard = .init(0);
        client.sent = .init(0);
        client.in_body = 0;
        client.done = 0;
        client.given_tables = 0;
        client.given = @splat(.{});
        const config = if (choice & 1 == 0) &wide else &narrow;
        const places = if (choice & 8 == 0) config.streams_max else 1;
        client.session = .init(&limits, config, client.places[0..places], &client.room);
        client.session.lendTable(&client.sent_fields);
        try client.send();
        // Most inputs are worth nothing without them.
        if (choice & 2 == 0) try client.hello();
        var cuts = way;
        var arrived: usize = 0;
        while (true) {
            arrived += cuts.next(input.len - arrived);
            try client.take(input[0..arrived]);
            if (arrived == input.len) break;
        }
    }

    fn hello(client: *Client) !void {
        var bytes: [frame.preface.len + frame.header_bytes]u8 = undefined;
        @memcpy(bytes[0..frame.preface.len], frame.preface);
        const settings: frame.Header = .{ .len = 0, .kind = .settings };
        settings.write(bytes[frame.preface.len..]);
        try client.take(&bytes);
        client.done = 0;
    }

    fn take(client: *Client, bytes: []const u8) !void {
        var head: session_file.Head = .{ .storage = &client.storage };
        while (true) {
            client.session.wait(1000);
            const step = client.session.feed(bytes[client.done..], &head);
            client.done += step.consumed;
            if (client.session.outgrows()) client.giveTable();
            client.session.invariants();
            if (step.event == .need_more) return;
            try client.note(step, &head);
            // Not where bytes are missing: that depends on how they came.
            if (step.event == .body) continue;
            try client.send();
            if (client.choice & 32 != 0 and client.session.mayHandBack()) client.rest();
        }
    }

    /// As owners do in a pause; here each pause is one.
    fn rest(client: *Client) void {
        client.session.handBack();
        client.session.invariants();
        client.session.lendTable(&client.sent_fields);
    }

    /// No more than is asked for.
    fn giveTable(client: *Client) void {
        client.given_tables += 1;
        const table = &client.tables[client.given_tables % 2];
        client.session.rehouseTable(table[0..client.session.tableUnits()]);
    }

    fn note(client: *Client, step: session_file.Step, head: *const session_file.Head) !void {
        const heard = &client.heard;
        if (step.event == .body) {
            if (client.in_body != step.stream) heard.update("|");
            client.in_body = step.stream;
            heard.update(step.event.body);
            client.slotOf(step.stream).bytes += @intCast(step.event.body.len);
            return;
        }
        client.in_body = 0;
        heard.update(@tagName(step.event));
        heard.update(std.mem.asBytes(&step.stream));
        switch (step.event) {
            .request => {
                try expectHead(head);
                heard.update(head.text);
                client.slotOf(step.stream).bytes = 0;
                if (client.choice & 4 != 0) try client.answer(step.stream);
            },
            .trailers => heard.update(head.text),
            .end => {
                const slot = client.slotOf(step.stream);
                client.session.release(step.stream, slot.bytes);
                slot.bytes = 0;
                if (client.choice & 4 == 0) try client.answer(step.stream);
            },
            .refused => |refusal| {
                heard.update(refusal.detail);
                try client.answer(step.stream);
            },
            .reset => |reset| heard.update(std.mem.asBytes(&reset.code)),
            .failed => |failure| heard.update(failure.detail),
            .places => if (client.choice & 16 == 0) {
                const config = client.session.config;
                const places = client.session.rehouse(client.more_places[0..config.streams_max]);
                if (client.choice & 32 == 0) try testing.expectEqual(1, places.len);
            },
            .body, .need_more, .control => {},
        }
    }

    fn slotOf(client: *Client, stream: u32) *Given {
        const slot = &client.given[stream / 2 % client.given.len];
        if (slot.stream != stream) slot.* = .{ .stream = stream };
        return slot;
    }

    /// Answers as an application does: in one piece, or in several with trailers.
    fn answer(client: *Client, stream: u32) !void {
        const s = &client.session;
        if (s.responseStarted(stream)) return;
        const whole = stream % 4 == 1;
        const fields = [_]protocol.http.Field{ .init("X-Stream", "some"), .init("Server", "fuzz") };
        const content = "0123456789" ++ "0123456789" ++ "0123456789";
        const response: session_file.Response = .{
            .status = 200,
            .fields = &fields,
            .content = content,
            .end = whole,
        };
        const started = try s.start(stream, response, &client.out);
        client.sent.update(client.out[0..started.len]);
        if (whole or s.responseStarted(stream) and !s.sendsContent(stream)) return;
        s.apply(stream, try s.planBody(stream, .{ .len = 20_000 }));
        s.apply(stream, try s.planEnd(stream, &fields, &client.out));
    }

    fn send(client: *Client) !void {
        const s = &client.session;
        var out: [session_file.emission_bytes_max]u8 = undefined;
        var rounds: usize = 0;
        while (true) : (rounds += 1) {
            const window = s.send_window;
            const emission = s.emit(&out, 7000) orelse break;
            s.invariants();
            try testing.expect(rounds < 10_000);
            try testing.expect(emission.head > 0 or emission.content > 0);
            client.sent.update(out[0..emission.head]);
            client.sent.update(std.mem.asBytes(&emission.content));
            if (emission.stream == 0) continue;
            const header: frame.Header = .parse(out[0..frame.header_bytes]);
            try testing.expectEqual(emission.head + emission.content, frame.header_bytes + header.len);
            try testing.expect(header.fault(frame.payload_bytes_max) == null);
            if (header.kind == .data) try testing.expect(emission.content <= @max(window, 0));
        }
        try testing.expect(s.control.len == 0 and !s.streams.hasDoomed());
    }
};

/// Checks the properties of a head that every application relies on.
fn expectHead(head: *const session_file.Head) !void {
    const syntax = protocol.http.syntax;
    try testing.expect(syntax.isToken(head.method_text.of(head.text)));
    try testing.expect(head.path.len > 0 and head.authority.of(head.text).len <= head.text.len);
    var hosts: usize = 0;
    for (head.fields) |field| {
        const name = field.name(head.text);
        try testing.expect(syntax.isToken(name) and syntax.isFieldValue(field.value(head.text)));
        for (name) |byte| try testing.expect(!std.ascii.isUpper(byte));
        if (field.id == .host) hosts += 1;
        switch (field.id) {
            .connection, .transfer_encoding, .upgrade, .keep_alive => return error.ConnectionSpecific,
            else => {},
        }
    }
    try testing.expectEqual(1, hosts);
}
