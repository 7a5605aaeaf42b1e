//! A WebSocket client for tests: takes the bytes that came from a server, keeps the messages, and writes
//! frames to be sent. It compresses with histories of its own, as the server's answer allows.
//! Does not know: how bytes travel.
const std = @import("std");
const ws = @import("protocol").websocket;
const deflate = ws.deflate;

pub const Message = struct {
    kind: ws.Kind,
    bytes: []const u8,
    /// How it came: whether it was compressed, in how many frames, and their payload.
    compressed: bool,
    frames: usize,
    wire_bytes: usize,
};

pub const Client = struct {
    gpa: std.mem.Allocator,
    arena: std.heap.ArenaAllocator,
    session: ws.Session = .init(.{
        .role = .client,
        .limits = .{ .frame_bytes_max = 0, .message_bytes_max = 0 },
        .deflate = true,
    }),
    /// Bytes that were not read yet; at first the head of the server's answer.
    unread: std.ArrayList(u8) = .empty,
    /// The head, once it is there.
    head: ?[]const u8 = null,
    /// Frames to be sent; the test takes them.
    out: std.ArrayList(u8) = .empty,
    messages: std.ArrayList(Message) = .empty,
    pongs: usize = 0,
    closed: ?u16 = null,

    server_takeover: bool = true,
    client_takeover: bool = true,
    inflater: deflate.Inflater = .{},
    history: deflate.History,
    deflater: deflate.Deflater,
    current: std.ArrayList(u8) = .empty,
    current_wire: std.ArrayList(u8) = .empty,
    current_frames: usize = 0,

    /// The request that asks for a WebSocket, `offer` being its Sec-WebSocket-Extensions.
    pub fn handshake(gpa: std.mem.Allocator, offer: []const u8) ![]u8 {
        return std.fmt.allocPrint(
            gpa,
            "GET /ws HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" ++
                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n" ++
                "Sec-WebSocket-Extensions: {s}\r\n\r\n",
            .{offer},
        );
    }

    pub fn create(gpa: std.mem.Allocator) !*Client {
        const client = try gpa.create(Client);
        var arena: std.heap.ArenaAllocator = .init(gpa);
        const ring = try arena.allocator().alloc(u8, 32768);
        const memory = try arena.allocator().alignedAlloc(u8, .@"2", deflate.Deflater.memoryBytes(15));
        client.* = .{
            .gpa = gpa,
            .arena = arena,
            .history = .init(ring),
            .deflater = .init(memory, 15, true),
        };
        return client;
    }

    pub fn destroy(client: *Client) void {
        client.unread.deinit(client.gpa);
        client.out.deinit(client.gpa);
        client.messages.deinit(client.gpa);
        client.current.deinit(client.gpa);
        client.current_wire.deinit(client.gpa);
        client.arena.deinit();
        client.gpa.destroy(client);
    }

    /// Reads what came.
    pub fn take(client: *Client, bytes: []const u8) !void {
        try client.unread.appendSlice(client.gpa, bytes);
        if (client.head == null and !try client.takeHead()) return;
        while (true) {
            const step = client.session.feed(client.unread.items);
            const done = step.event == .need_more or step.event == .close;
            switch (step.event) {
                .need_more => {},
                .data => |data| try client.takeData(data),
                .ping => {},
                .pong => client.pongs += 1,
                .close => |frame| client.closed = frame.code,
                .failed => |failure| {
                    std.debug.print("the server sent what a client refuses: {s}\n", .{failure.reason});
                    return error.ServerAtFault;
                },
            }
            client.unread.replaceRangeAssumeCapacity(0, step.consumed, &.{});
            if (done) return;
        }
    }

    fn takeHead(client: *Client) !bool {
        const end = (std.mem.find(u8, client.unread.items, "\r\n\r\n") orelse return false) + 4;
        const head = try client.arena.allocator().dupe(u8, client.unread.items[0..end]);
        client.unread.replaceRangeAssumeCapacity(0, end, &.{});
        client.head = head;
        client.server_takeover = std.mem.find(u8, head, "server_no_context_takeover") == null;
        client.client_takeover = std.mem.find(u8, head, "client_no_context_takeover") == null;
        return true;
    }

    fn takeData(client: *Client, data: ws.Data) !void {
        if (data.first) client.current_frames = 0;
        client.current_frames += 1;
        try client.current_wire.appendSlice(client.gpa, data.bytes);
        if (!data.last) return;
        const wire = client.current_wire.items;
        defer client.current_wire.clearRetainingCapacity();
        const bytes = if (data.compressed)
            try client.inflate(wire)
        else
            try client.arena.allocator().dupe(u8, wire);
        try client.messages.append(client.gpa, .{
            .kind = data.kind,
            .bytes = bytes,
            .compressed = data.compressed,
            .frames = client.current_frames,
            .wire_bytes = wire.len,
        });
    }

    fn inflate(client: *Client, wire: []const u8) ![]u8 {
        if (!client.server_takeover) client.history.clear();
        client.inflater.begin(&client.history, 1 << 30);
        client.current.clearRetainingCapacity();
        var rest = wire;
        while (true) {
            var piece: [1000]u8 = undefined;
            const step = try client.inflater.inflate(rest, true, &piece);
            rest = rest[step.consumed..];
            try client.current.appendSlice(client.gpa, piece[0..step.produced]);
            if (step.state == .done) return client.arena.allocator().dupe(u8, client.current.items);
        }
    }

    const Style = struct {
        compressed: bool = false,
        /// Payload of each frame at most; 0: all in one.
        frame_bytes: usize = 0,
    };

    /// Writes a message.
    pub fn send(client: *Client, kind: ws.Kind, bytes: []const u8, style: Style) !void {
        if (!style.compressed) return client.sendFrames(kind, bytes, style);
        const wire = try client.gpa.alloc(u8, deflate.Deflater.outputBytesMax(bytes.len));
        defer client.gpa.free(wire);
        if (!client.client_takeover) client.deflater.forget();
        const len = client.deflater.deflate(bytes, true, wire);
        try client.sendFrames(kind, wire[0..len], style);
    }

    /// Writes payload that is compressed already, or claims to be.
    pub fn sendFrames(client: *Client, kind: ws.Kind, payload: []const u8, style: Style) !void {
        var rest = payload;
        while (true) {
            const part = rest[0..if (style.frame_bytes == 0) rest.len else @min(rest.len, style.frame_bytes)];
            rest = rest[part.len..];
            const key: ws.frame.MaskKey = .{ 7, @truncate(rest.len), 0, 0x81 };
            var header: [ws.frame.header_bytes_max]u8 = undefined;
            const piece: ws.Session.Piece = .{
                .kind = kind,
                .len = part.len,
                .compressed = style.compressed,
                .fin = rest.len == 0,
            };
            try client.out.appendSlice(
                client.gpa,
                header[0..client.session.encodeHeader(piece, key, &header)],
            );
            const at = client.out.items.len;
            try client.out.appendSlice(client.gpa, part);
            ws.frame.maskScalar(client.out.items[at..], key, 0);
            if (rest.len == 0) return;
        }
    }

    pub fn ping(client: *Client, payload: []const u8) !void {
        var frame: [ws.frame.control_bytes_max]u8 = undefined;
        try client.out.appendSlice(
            client.gpa,
            frame[0..client.session.encodePing(payload, .{ 1, 2, 3, 4 }, &frame)],
        );
    }

    pub fn close(client: *Client, code: u16) !void {
        var frame: [ws.frame.control_bytes_max]u8 = undefined;
        try client.out.appendSlice(
            client.gpa,
            frame[0..try client.session.encodeClose(code, "", .{ 1, 2, 3, 4 }, &frame)],
        );
    }
};
