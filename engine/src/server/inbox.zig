//! A worker's letter box: other threads put messages in, the worker takes them all at once. Any number of senders, no lock; a sender
//! makes at most one system call (the worker's wake), and none if mail was waiting already.
//!
//! The box outlives its worker as long as somebody holds a reference, so that a late answer finds a closed box instead of freed memory.
//! Refuses to know: what a message is good for.
const std = @import("std");
const assert = std.debug.assert;
const io = @import("io");
const Field = @import("protocol").http.Field;
const Ticket = @import("slab.zig").Ticket;
const WebSocketKind = @import("websocket.zig").Kind;

/// Something for a worker to do. One block of memory, freed by `Inbox.free`.
pub const Message = struct {
    next: ?*Message = null,
    /// This message and the bytes behind it.
    memory: []align(alignment) u8,
    content: Content,

    const alignment = 16;

    /// What it is about.
    pub const Content = union(enum) {
        /// A connection that was accepted elsewhere.
        connection: Connection,
        /// A part of a detached answer.
        reply: Reply,
        /// Something for a WebSocket.
        frame: Frame,
    };

    /// A socket for the worker to adopt.
    pub const Connection = struct { listener: u32, socket: io.Socket, peer: io.Address };

    /// Something to send over a WebSocket.
    pub const Frame = struct {
        ticket: Ticket,
        action: Action,
        /// Lies in the message's own memory.
        bytes: []const u8 = "",

        /// What to send.
        pub const Action = union(enum) {
            message: WebSocketKind,
            /// The code of a close frame.
            close: u16,
        };
    };

    /// A part of a response.
    pub const Reply = struct {
        ticket: Ticket,
        kind: Kind,
        status: u16 = 200,
        /// Fields and bytes lie in the message's own memory.
        fields: []const Field = &.{},
        bytes: []const u8 = "",

        /// Which part.
        pub const Kind = enum {
            /// The whole response.
            answer,
            /// Its beginning.
            start,
            /// A piece of its body.
            write,
            /// Its end.
            end,
            /// Nobody will answer.
            drop,
        };
    };
};

/// Why a message was not put in.
pub const PostError = error{
    OutOfMemory,
    /// The server has stopped.
    Gone,
    /// Too many bytes wait for the worker or for slow clients: try later.
    Full,
};

/// The inbox that this thread looks into before it sleeps: nothing sent from here has to wake anybody.
threadlocal var attended: ?*const Inbox = null;

/// Tells that this thread looks into `inbox` before it sleeps; null: into none.
pub fn attend(inbox: ?*const Inbox) void {
    attended = inbox;
}

/// A worker's letter box: any thread puts messages in, the worker takes them out.
pub const Inbox = struct {
    gpa: std.mem.Allocator,
    /// Rings at the worker. Called by senders, never after `close` has returned.
    waker: Waker,
    /// Bound on the memory of all messages that carry bytes.
    bytes_max: usize,
    /// Newest first.
    head: std.atomic.Value(?*Message) = .init(null),
    bytes: std.atomic.Value(usize) = .init(0),
    references: std.atomic.Value(u32) = .init(1),
    closed: std.atomic.Value(bool) = .init(false),
    /// Senders between their look at `closed` and the end of their ringing.
    posting: std.atomic.Value(u32) = .init(0),

    /// How to ring at the worker.
    pub const Waker = struct {
        context: *anyopaque,
        wake: *const fn (*anyopaque) void,
    };

    /// A box with one reference, the worker's. `gpa` is used by all senders: it has to be safe for threads.
    pub fn create(gpa: std.mem.Allocator, waker: Waker, bytes_max: usize) error{OutOfMemory}!*Inbox {
        const inbox = try gpa.create(Inbox);
        inbox.* = .{ .gpa = gpa, .waker = waker, .bytes_max = bytes_max };
        return inbox;
    }

    /// One more holder.
    pub fn retain(inbox: *Inbox) void {
        const before = inbox.references.fetchAdd(1, .monotonic);
        assert(before > 0);
    }

    /// One holder less; the last one frees the box.
    pub fn release(inbox: *Inbox) void {
        const before = inbox.references.fetchSub(1, .acq_rel);
        assert(before > 0);
        if (before > 1) return;
        var mail = inbox.take();
        while (mail.pop()) |message| inbox.free(message);
        inbox.gpa.destroy(inbox);
    }

    /// By the worker's owner, before the waker dies: nobody rings any more when this returns. What is in the box can still be taken.
    pub fn close(inbox: *Inbox) void {
        inbox.closed.store(true, .seq_cst);
        while (inbox.posting.load(.seq_cst) > 0) std.atomic.spinLoopHint();
    }

    /// Puts a message in and wakes the worker. From any thread. On an error nothing was sent.
    pub fn post(inbox: *Inbox, content: Message.Content) PostError!void {
        const message = try inbox.compose(content);
        errdefer inbox.free(message);
        _ = inbox.posting.fetchAdd(1, .seq_cst);
        defer _ = inbox.posting.fetchSub(1, .seq_cst);
        if (inbox.closed.load(.seq_cst)) return error.Gone;
        if (inbox.push(message) and attended != inbox) inbox.waker.wake(inbox.waker.context);
    }

    /// True if the box was empty: then somebody has to ring.
    fn push(inbox: *Inbox, message: *Message) bool {
        var head = inbox.head.load(.monotonic);
        while (true) {
            message.next = head;
            head = inbox.head.cmpxchgWeak(head, message, .release, .monotonic) orelse return head == null;
        }
    }

    /// Copies fields and bytes into one block behind the message.
    fn compose(inbox: *Inbox, content: Message.Content) PostError!*Message {
        const len = @sizeOf(Message) + extraBytes(&content);
        const before = inbox.bytes.fetchAdd(len, .monotonic);
        errdefer _ = inbox.bytes.fetchSub(len, .monotonic);
        // What carries no bytes is let in: it ends something, or is a connection that is there already.
        if (len > @sizeOf(Message) and before +| len > inbox.bytes_max) return error.Full;
        const memory = try inbox.gpa.alignedAlloc(u8, .fromByteUnits(Message.alignment), len);
        const message: *Message = @ptrCast(memory.ptr);
        message.* = .{ .memory = memory, .content = content };
        switch (message.content) {
            .connection => {},
            .reply => |*reply| moveIn(reply, memory[@sizeOf(Message)..]),
            .frame => |*frame| {
                var rest: []u8 = memory[@sizeOf(Message)..];
                frame.bytes = copyTo(&rest, frame.bytes);
            },
        }
        return message;
    }

    comptime {
        assert(@alignOf(Message) <= Message.alignment and @alignOf(Field) <= @alignOf(Message) and @sizeOf(Message) % @alignOf(Field) == 0);
    }

    fn extraBytes(content: *const Message.Content) usize {
        const reply = switch (content.*) {
            .connection => return 0,
            .frame => |*frame| return frame.bytes.len,
            .reply => |*reply| reply,
        };
        var len = reply.fields.len * @sizeOf(Field) + reply.bytes.len;
        for (reply.fields) |field| len += field.name_len + field.value_len;
        return len;
    }

    fn moveIn(reply: *Message.Reply, space: []u8) void {
        const table = space[0 .. reply.fields.len * @sizeOf(Field)];
        const fields: []Field = @alignCast(std.mem.bytesAsSlice(Field, table));
        var rest = space[table.len..];
        for (fields, reply.fields) |*field, given| {
            field.* = .init(copyTo(&rest, given.name()), copyTo(&rest, given.value()));
        }
        reply.fields = fields;
        reply.bytes = copyTo(&rest, reply.bytes);
        assert(rest.len == 0);
    }

    fn copyTo(rest: *[]u8, bytes: []const u8) []const u8 {
        const copy = rest.*[0..bytes.len];
        @memcpy(copy, bytes);
        rest.* = rest.*[bytes.len..];
        return copy;
    }

    /// Frees a message that was taken.
    pub fn free(inbox: *Inbox, message: *Message) void {
        _ = inbox.bytes.fetchSub(message.memory.len, .monotonic);
        inbox.gpa.free(message.memory);
    }

    /// Whether there is mail.
    pub fn hasMail(inbox: *const Inbox) bool {
        return inbox.head.load(.monotonic) != null;
    }

    /// All messages so far, oldest first. The worker's thread only.
    pub fn take(inbox: *Inbox) Queue {
        var queue: Queue = .{};
        var message = if (inbox.hasMail()) inbox.head.swap(null, .acquire) else null;
        while (message) |m| {
            message = m.next;
            m.next = queue.first;
            queue.first = m;
            if (queue.last == null) queue.last = m;
        }
        return queue;
    }
};

/// Messages in order.
pub const Queue = struct {
    first: ?*Message = null,
    last: ?*Message = null,

    /// The oldest message, which is the caller's now.
    pub fn pop(queue: *Queue) ?*Message {
        const message = queue.first orelse return null;
        queue.first = message.next;
        if (queue.first == null) queue.last = null;
        message.next = null;
        return message;
    }

    /// Adds behind the newest.
    pub fn append(queue: *Queue, message: *Message) void {
        message.next = null;
        if (queue.last) |last| last.next = message else queue.first = message;
        queue.last = message;
    }

    /// Whether there is nothing to take.
    pub fn isEmpty(queue: *const Queue) bool {
        return queue.first == null;
    }
};

const testing = std.testing;

const Bell = struct {
    rings: std.atomic.Value(u32) = .init(0),

    fn ring(context: *anyopaque) void {
        const bell: *Bell = @ptrCast(@alignCast(context));
        _ = bell.rings.fetchAdd(1, .monotonic);
    }

    fn waker(bell: *Bell) Inbox.Waker {
        return .{ .context = bell, .wake = ring };
    }
};

test "messages come out in order, with their own copies" {
    var bell: Bell = .{};
    const inbox: *Inbox = try .create(testing.allocator, bell.waker(), 1 << 20);
    defer inbox.release();
    var text = "hello".*;
    var name = "X-Name".*;
    try inbox.post(.{ .reply = .{ .ticket = .none, .kind = .answer, .status = 201, .fields = &.{.init(&name, &text)}, .bytes = &text } });
    try inbox.post(.{ .connection = .{ .listener = 3, .socket = .none, .peer = try .parse("::1", 9) } });
    @memset(&text, '!');
    @memset(&name, '!');
    try testing.expectEqual(1, bell.rings.load(.monotonic));
    var mail = inbox.take();
    const first = mail.pop().?;
    try testing.expectEqualStrings("hello", first.content.reply.bytes);
    try testing.expectEqualStrings("X-Name", first.content.reply.fields[0].name());
    try testing.expectEqualStrings("hello", first.content.reply.fields[0].value());
    inbox.free(first);
    const second = mail.pop().?;
    try testing.expectEqual(3, second.content.connection.listener);
    inbox.free(second);
    try testing.expect(mail.isEmpty() and !inbox.hasMail());
    try testing.expectEqual(0, inbox.bytes.load(.monotonic));
}

test "a full box and a closed box refuse, and keep nothing" {
    var bell: Bell = .{};
    const inbox: *Inbox = try .create(testing.allocator, bell.waker(), 1000);
    defer inbox.release();
    const large: [2000]u8 = @splat('x');
    try testing.expectError(error.Full, inbox.post(.{ .reply = .{ .ticket = .none, .kind = .write, .bytes = &large } }));
    inbox.close();
    try testing.expectError(error.Gone, inbox.post(.{ .reply = .{ .ticket = .none, .kind = .end } }));
    try testing.expectEqual(0, inbox.bytes.load(.monotonic));
    try testing.expectEqual(0, bell.rings.load(.monotonic));
}

test "nothing is lost between threads, and each sender's order is kept" {
    const Sender = struct {
        fn run(inbox: *Inbox, number: u16) void {
            for (0..500) |i| {
                const text: [2]u8 = @bitCast(@as(u16, @intCast(i)));
                inbox.post(.{ .reply = .{ .ticket = .none, .kind = .write, .status = number, .bytes = &text } }) catch unreachable;
            }
            inbox.release();
        }
    };
    var bell: Bell = .{};
    const inbox: *Inbox = try .create(std.heap.smp_allocator, bell.waker(), 1 << 30);
    defer inbox.release();
    var threads: [3]std.Thread = undefined;
    for (&threads, 0..) |*thread, number| {
        inbox.retain();
        thread.* = try .spawn(.{}, Sender.run, .{ inbox, @as(u16, @intCast(number)) });
    }
    var seen: [3]u16 = @splat(0);
    while (seen[0] + seen[1] + seen[2] < 1500) {
        var mail = inbox.take();
        while (mail.pop()) |message| {
            const reply = message.content.reply;
            try testing.expectEqual(seen[reply.status], @as(u16, @bitCast(reply.bytes[0..2].*)));
            seen[reply.status] += 1;
            inbox.free(message);
        }
        try std.Thread.yield();
    }
    for (threads) |thread| thread.join();
    try testing.expect(bell.rings.load(.monotonic) >= 1);
}
