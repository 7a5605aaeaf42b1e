//! Events that wait for C to read them. Two batches take turns: one is being read while the other is being
//! filled, because a command that C gives while it reads may cause an event of its own.
const std = @import("std");
const peregrine = @import("peregrine");
const types = @import("types.zig");
const Event = types.Event;

/// The events of one poll, and the memory that they point into.
pub const Batch = struct {
    events: std.ArrayList(Event) = .empty,
    /// The memory that the events point to. It lives until the batch is filled again.
    arena: std.heap.ArenaAllocator,
    /// Buffers of large messages and whole bodies, which events point to in place of a copy.
    buffers: std.ArrayList(peregrine.Pool.Buffer) = .empty,
    /// Requests whose bodies are in files, which are closed with the batch.
    with_files: std.ArrayList(*types.Request) = .empty,
    gpa: std.mem.Allocator,

    const arena_kept_bytes = peregrine.api_limits.batch_kept_bytes;

    pub fn init(gpa: std.mem.Allocator) Batch {
        return .{ .arena = .init(gpa), .gpa = gpa };
    }

    /// `pool`: the owner of the buffers.
    pub fn deinit(batch: *Batch, pool: *peregrine.Pool) void {
        batch.giveBack(pool);
        batch.buffers.deinit(batch.gpa);
        batch.with_files.deinit(batch.gpa);
        batch.events.deinit(batch.gpa);
        batch.arena.deinit();
    }

    /// Forgets everything; all pointers into the batch die.
    pub fn clear(batch: *Batch) void {
        std.debug.assert(batch.buffers.items.len == 0 and batch.with_files.items.len == 0);
        batch.events.clearRetainingCapacity();
        _ = batch.arena.reset(.{ .retain_with_limit = arena_kept_bytes });
    }

    /// Memory that lives as long as the batch, for bytes that are written at once. `alloc` is not used: in
    /// safe builds it fills the memory, which costs as much as a copy.
    fn space(
        batch: *Batch,
        comptime alignment: std.mem.Alignment,
        len: usize,
    ) error{OutOfMemory}![]align(alignment.toByteUnits()) u8 {
        if (len == 0) return &.{};
        const memory = batch.arena.allocator().rawAlloc(len, alignment, @returnAddress()) orelse
            return error.OutOfMemory;
        return @alignCast(memory[0..len]);
    }

    /// A copy of `bytes` that lives as long as the batch.
    pub fn keep(batch: *Batch, bytes: []const u8) error{OutOfMemory}![]u8 {
        const copy = try batch.space(.@"1", bytes.len);
        @memcpy(copy, bytes);
        return copy;
    }

    /// Makes room for `count` more events.
    pub inline fn reserve(batch: *Batch, count: usize) error{OutOfMemory}!void {
        // Nearly always the batch has room.
        if (batch.events.capacity - batch.events.items.len < count) try batch.grow(count);
    }

    noinline fn grow(batch: *Batch, count: usize) error{OutOfMemory}!void {
        try batch.events.ensureUnusedCapacity(batch.gpa, count);
    }

    /// Adds an event and keeps room for `reserved` more; the pointer is valid until the next event is added.
    pub fn add(batch: *Batch, event: Event, reserved: usize) error{OutOfMemory}!*Event {
        try batch.reserve(reserved + 1);
        std.debug.assert(batch.events.capacity - batch.events.items.len > reserved);
        batch.events.appendAssumeCapacity(event);
        return &batch.events.items[batch.events.items.len - 1];
    }

    /// Adds an event for which `reserve` or `add` has made room.
    pub fn addReserved(batch: *Batch, event: Event) void {
        std.debug.assert(batch.events.items.len < batch.events.capacity);
        batch.events.appendAssumeCapacity(event);
    }

    /// Gives the memory of large messages and bodies back, and closes files; pointers to them die.
    pub fn giveBack(batch: *Batch, pool: *peregrine.Pool) void {
        // Nearly always there are none.
        if (batch.buffers.items.len == 0 and batch.with_files.items.len == 0) return;
        for (batch.buffers.items) |buffer| pool.give(buffer);
        batch.buffers.clearRetainingCapacity();
        for (batch.with_files.items) |request| closeBody(request);
        batch.with_files.clearRetainingCapacity();
        std.debug.assert(batch.buffers.items.len == 0 and batch.with_files.items.len == 0);
    }

    /// Closes the file of a request's body; -1 as descriptor: there is none, or another owner has it.
    pub fn closeBody(request: *types.Request) void {
        if (request.body_fd >= 0) peregrine.io.file.close(request.body_fd);
        request.body_fd = -1;
    }

    /// Takes back the event that was added last.
    pub fn cancel(batch: *Batch) void {
        std.debug.assert(batch.events.items.len > 0);
        batch.events.items.len -= 1;
    }

    /// Bytes of a message that live as long as the batch: copied, or taken over from its
    /// WebSocket if they are many.
    pub fn keepMessage(
        batch: *Batch,
        incoming: *peregrine.Incoming,
        bytes: []const u8,
    ) error{OutOfMemory}![*]const u8 {
        try batch.buffers.ensureUnusedCapacity(batch.gpa, 1);
        const buffer = incoming.surrender(bytes) orelse
            return (try batch.keep(bytes)).ptr;
        batch.buffers.appendAssumeCapacity(buffer);
        return bytes.ptr;
    }

    /// The body of a request that has come with it: memory that lives as long as the batch, or a file, whose
    /// descriptor the request gets. The exchange keeps a file's intake, which counts the room of the file.
    pub fn keepBody(
        batch: *Batch,
        worker: anytype,
        exchange: *peregrine.Exchange,
        request: *types.Request,
    ) error{OutOfMemory}![]const u8 {
        const intake = exchange.intake orelse return "";
        switch (intake.body()) {
            .memory => |bytes| {
                try batch.buffers.ensureUnusedCapacity(batch.gpa, 1);
                if (intake.surrenderMemory()) |buffer| batch.buffers.appendAssumeCapacity(buffer);
                worker.dropIntake(exchange.takeIntake().?);
                request.body_length = @intCast(bytes.len);
                return bytes;
            },
            .file => |file| {
                try batch.with_files.append(batch.gpa, request);
                request.body_fd = intake.surrenderFile();
                request.body_length = @intCast(file.len);
                return "";
            },
        }
    }

    /// The last event if it is about the exchange of this ticket and can take more body bytes.
    pub fn openBody(batch: *Batch, ticket: types.Ticket) ?*Event {
        if (batch.events.items.len == 0) return null;
        const event = &batch.events.items[batch.events.items.len - 1];
        if (event.ticket != ticket or event.flags & types.EventFlag.last != 0) return null;
        return switch (event.kind) {
            .request, .body => event,
            else => null,
        };
    }

    /// Adds bytes to an event; in place as long as nothing else was put into the arena in between.
    pub fn extend(batch: *Batch, event: *Event, bytes: []const u8) error{OutOfMemory}!void {
        const before = @constCast(event.bytes[0..event.len]);
        const len = before.len + bytes.len;
        const grows = before.len > 0 and batch.bufferOf(before) == null;
        if (grows and batch.arena.allocator().resize(before, len)) {
            @memcpy(before.ptr[before.len..len], bytes);
        } else {
            const joined = try batch.space(.@"1", len);
            @memcpy(joined[0..before.len], before);
            @memcpy(joined[before.len..], bytes);
            event.bytes = joined.ptr;
        }
        event.len = len;
    }

    /// Gives an event without bytes those at the beginning of a buffer. The batch takes over the buffer, for
    /// which `expectBuffer` has made room.
    pub fn adopt(batch: *Batch, event: *Event, buffer: peregrine.Pool.Buffer, bytes: []const u8) void {
        std.debug.assert(event.len == 0 and bytes.ptr == buffer.ptr);
        batch.buffers.appendAssumeCapacity(buffer);
        event.bytes = bytes.ptr;
        event.len = bytes.len;
    }

    /// Makes room for one more buffer.
    pub fn expectBuffer(batch: *Batch) error{OutOfMemory}!void {
        try batch.buffers.ensureUnusedCapacity(batch.gpa, 1);
    }

    fn bufferOf(batch: *const Batch, bytes: []const u8) ?usize {
        for (batch.buffers.items, 0..) |buffer, index| if (buffer.ptr == bytes.ptr) return index;
        return null;
    }

    /// Gives the caller the buffer with the bytes of an event; null: the bytes lie elsewhere, fill less than
    /// half of the buffer, or leave fewer than `string_room` bytes behind them.
    pub fn surrender(batch: *Batch, event: *const Event) ?peregrine.Pool.Buffer {
        const index = batch.bufferOf(event.bytes[0..event.len]) orelse return null;
        const room = batch.buffers.items[index].len;
        if (event.len < room / 2 or event.len > room - string_room) return null;
        return batch.buffers.swapRemove(index);
    }

    /// Bytes behind the content, in which the new owner ends a string and counts the string's holders.
    pub const string_room = 16;

    /// Method and target of a request whose event is in the batch, with a blank before each; "" for others.
    pub fn lineOf(batch: *const Batch, ticket: types.Ticket) Line {
        for (batch.events.items) |*event| {
            if (event.kind == .request and event.ticket == ticket) return .{ .request = event.request };
        }
        return .{ .request = null };
    }

    const Line = struct {
        request: ?*const types.Request,

        /// A client may make method and target of any length, so both are cut.
        pub fn format(line: Line, writer: *std.Io.Writer) std.Io.Writer.Error!void {
            const request = line.request orelse return;
            inline for (.{ .{ request.method, 20 }, .{ request.target, 200 } }) |part| {
                const part_span, const max = part;
                try writer.print(
                    " {s}{s}",
                    .{
                        request.text[part_span.at..][0..@min(part_span.len, max)],
                        if (part_span.len > max) "..." else "",
                    },
                );
            }
        }
    };

    /// The head of a request and the facts that travel with it to the other side of a ring pair.
    const Kept = struct {
        request: types.Request,
        /// The facts of the request's TLS connection (tls_facts.zig); "": none.
        tls: []const u8 = "",
    };

    /// Keeps what is known of a request's TLS connection together with its head, which `keepHead` made.
    /// `facts` live as long as the batch.
    pub fn keepFacts(request: *types.Request, facts: []const u8) void {
        std.debug.assert(request.tls != 0);
        const kept: *Kept = @alignCast(@fieldParentPtr("request", request));
        kept.tls = facts;
    }

    /// The facts of the TLS connection of an event's request; "": there are none.
    pub fn factsOf(event: *const Event) []const u8 {
        const request = event.request orelse return "";
        if (request.tls == 0) return "";
        const kept: *const Kept = @alignCast(@fieldParentPtr("request", request));
        return kept.tls;
    }

    /// A head that outlives the buffer it was parsed from: one piece of memory for the struct, the field
    /// spans and all texts. `local`: the address that the client has connected to.
    pub fn keepHead(
        batch: *Batch,
        head: *const peregrine.Head,
        exchange: *const peregrine.Exchange,
        client: *const peregrine.Client,
        local: []const u8,
    ) error{OutOfMemory}!*types.Request {
        const lane = exchange.lane;
        const peer = client.address;
        const spans_bytes = std.mem.sliceAsBytes(head.fields);
        // C finds every name in the text: the name of a field that the peer did not send stands behind it.
        const added = head.added();
        const text_len = head.text.len + added.len;
        const size = @sizeOf(Kept) + spans_bytes.len + text_len + peer.len + local.len + 2;
        comptime std.debug.assert(@alignOf(peregrine.FieldSpan) <= @alignOf(Kept));
        comptime std.debug.assert(@sizeOf(Kept) % @alignOf(peregrine.FieldSpan) == 0);
        const memory = try batch.space(.of(Kept), size);
        const kept: *Kept = @ptrCast(memory.ptr);
        kept.tls = "";
        const request = &kept.request;
        var rest: []u8 = memory[@sizeOf(Kept)..];
        const fields: [*]peregrine.FieldSpan = @ptrCast(@alignCast(place(&rest, spans_bytes)));
        const text = place(&rest, head.text);
        if (added.len > 0) {
            _ = place(&rest, added);
            fields[head.fields.len - 1].name_at = @intCast(head.text.len);
            fields[head.fields.len - 1].name_len = @intCast(added.len);
        }
        request.* = .{
            .text = text,
            .text_len = @intCast(text_len),
            .field_count = @intCast(head.fields.len),
            .fields = fields,
            .method = span(head.method_text),
            .target = span(head.target),
            .path = span(head.path),
            .query = span(head.query),
            .authority = span(head.authority),
            .method_id = methodNumber(head.method),
            .version = @backingInt(head.version),
            .secure = @intFromBool(client.secure),
            .has_query = @intFromBool(head.has_query),
            .peer_port = client.port,
            .local_port = lane.localPort(),
            .connection = lane.number(),
            .number = lane.request_count,
            .tls = @intFromBool(lane.tls() != null),
            .peer = placeZ(&rest, peer),
            .local = placeZ(&rest, local),
            .body_length = switch (head.body) {
                .none => 0,
                .counted => |len| std.math.cast(i64, len) orelse std.math.maxInt(i64),
                .chunked => -1,
            },
        };
        std.debug.assert(rest.len == 0);
        return request;
    }

    /// Copies bytes to the front of `rest`, which shrinks to what is behind them.
    inline fn place(rest: *[]u8, bytes: []const u8) [*]u8 {
        const start = rest.*.ptr;
        std.debug.assert(bytes.len <= rest.len);
        @memcpy(start[0..bytes.len], bytes);
        rest.* = rest.*[bytes.len..];
        return start;
    }

    inline fn placeZ(rest: *[]u8, text: []const u8) [*:0]const u8 {
        const start = place(rest, text);
        _ = place(rest, "\x00");
        return start[0..text.len :0];
    }

    fn span(s: anytype) types.Span {
        return .{ .at = s.at, .len = s.len };
    }

    fn methodNumber(method: peregrine.Method) u8 {
        return if (method == .other) 0 else @backingInt(method);
    }
};

test "C keeps a buffer that is used well, and no other" {
    const testing = std.testing;
    var pool: peregrine.Pool = .init(testing.allocator);
    defer pool.deinit();
    var batch: Batch = .init(testing.allocator);
    defer batch.deinit(&pool);
    for ([_]usize{ 511, 512, 1008, 1009 }) |len| {
        const kept = len >= 512 and len <= 1008;
        try batch.expectBuffer();
        const buffer = try pool.take(1024);
        var event: Event = .{ .kind = .body };
        batch.adopt(&event, buffer, buffer[0..len]);
        const found = batch.surrender(&event);
        try testing.expectEqual(kept, found != null);
        // Further bytes go elsewhere: the buffer is not the arena's.
        if (found) |own| pool.give(own) else try batch.extend(&event, "more");
        try testing.expectEqual(len + @as(usize, if (kept) 0 else 4), event.len);
    }
    var copied: Event = .{ .kind = .body };
    try batch.extend(&copied, "bytes of the arena");
    try testing.expectEqual(null, batch.surrender(&copied));
}
