//! A worker's mailbox: any number of threads put messages in, the worker takes all at once. There is no lock.
//! A sender makes at most one system call (to wake the worker), and none if messages were waiting already.
//!
//! The mailbox outlives its worker while there are references to it, so that a late sender finds a closed
//! mailbox and not freed memory. Does not know: what messages are used for.
const std = @import("std");
const assert = std.debug.assert;
const io = @import("io");
const Command = @import("command.zig").Command;
const Field = @import("protocol").http.Field;
const Ticket = @import("slab.zig").Ticket;
const encoded = @import("encoded.zig");

/// A task for a worker, in one block of memory that `Inbox.free` frees.
pub const Message = struct {
    next: ?*Message = null,
    /// The memory of this message and of the bytes behind it.
    memory: []align(alignment) u8,
    content: Content,

    const alignment = 16;

    pub const Content = union(enum) {
        /// A connection that another thread has accepted.
        connection: Connection,
        command: Addressed,
    };

    /// A socket for the worker to adopt.
    pub const Connection = struct { listener: u32, socket: io.Socket, peer: io.Address };

    /// An encoded command with the ticket of its exchange.
    pub const Addressed = struct {
        ticket: Ticket,
        /// The command's encoded form.
        bytes: []const u8,

        /// Decodes the command. Its slices point into the message and, for the list of fields, into `space`.
        pub fn read(addressed: Addressed, space: []Field) Command {
            // the bytes were encoded by `tell`
            return encoded.decode(addressed.bytes, space) catch unreachable;
        }
    };
};

/// Reasons why a message was not put in.
pub const PostError = error{
    OutOfMemory,
    /// The server has stopped.
    Gone,
    /// Too many bytes wait for the worker or for slow clients. The sender may try again later.
    Full,
};

/// The inbox that this thread takes messages from before it sleeps, so that messages from this thread need
/// not wake a worker.
threadlocal var attended: ?*const Inbox = null;

/// Sets the inbox that this thread takes messages from before it sleeps; null: none.
pub fn attend(inbox: ?*const Inbox) void {
    attended = inbox;
}

/// A worker's mailbox.
pub const Inbox = struct {
    gpa: std.mem.Allocator,
    /// Wakes the worker. Senders call it, but never after `close` has returned.
    waker: Waker,
    /// The largest sum of bytes of all messages, in bytes. Messages without content are always accepted.
    bytes_max: usize,
    /// Messages in the mailbox, the newest first.
    head: std.atomic.Value(?*Message) = .init(null),
    bytes: std.atomic.Value(usize) = .init(0),
    references: std.atomic.Value(u32) = .init(1),
    closed: std.atomic.Value(bool) = .init(false),
    /// Senders that have seen `closed` unset and have not finished waking the worker.
    posting: std.atomic.Value(u32) = .init(0),

    pub const Waker = struct {
        context: *anyopaque,
        wake: *const fn (*anyopaque) void,
    };

    /// Creates a mailbox with one reference, the worker's. `gpa` must be safe for threads, because all
    /// senders use it.
    pub fn create(gpa: std.mem.Allocator, waker: Waker, bytes_max: usize) error{OutOfMemory}!*Inbox {
        const inbox = try gpa.create(Inbox);
        inbox.* = .{ .gpa = gpa, .waker = waker, .bytes_max = bytes_max };
        return inbox;
    }

    /// Counts another holder.
    pub fn retain(inbox: *Inbox) void {
        const before = inbox.references.fetchAdd(1, .monotonic);
        assert(before > 0);
    }

    /// Removes a reference; the last holder frees the mailbox.
    pub fn release(inbox: *Inbox) void {
        const before = inbox.references.fetchSub(1, .acq_rel);
        assert(before > 0);
        if (before > 1) return;
        var mail = inbox.take();
        while (mail.pop()) |message| inbox.free(message);
        inbox.gpa.destroy(inbox);
    }

    /// Ends the use of the waker, which may be destroyed when this function has returned. Messages that are
    /// in the mailbox can still be taken.
    pub fn close(inbox: *Inbox) void {
        inbox.closed.store(true, .seq_cst);
        while (inbox.posting.load(.seq_cst) > 0) std.atomic.spinLoopHint();
    }

    /// Sends a connection to the worker and wakes it. May be called by any thread. On an error nothing was
    /// sent.
    pub fn handOver(inbox: *Inbox, connection: Message.Connection) PostError!void {
        const message = try inbox.compose(0, 0);
        message.content = .{ .connection = connection };
        return inbox.post(message);
    }

    /// Sends a copy of a command and wakes the worker. May be called by any thread. On an error nothing was
    /// sent. A command without fields and content never gets `error.Full`, because it ends something.
    pub fn tell(inbox: *Inbox, ticket: Ticket, command: Command) PostError!void {
        const len = encoded.size(&command);
        const message = try inbox.compose(len, len - encoded.size_min);
        const bytes = message.memory[@sizeOf(Message)..];
        encoded.encode(&command, bytes);
        message.content = .{ .command = .{ .ticket = ticket, .bytes = bytes } };
        return inbox.post(message);
    }

    fn post(inbox: *Inbox, message: *Message) PostError!void {
        errdefer inbox.free(message);
        _ = inbox.posting.fetchAdd(1, .seq_cst);
        defer _ = inbox.posting.fetchSub(1, .seq_cst);
        if (inbox.closed.load(.seq_cst)) return error.Gone;
        if (inbox.push(message) and attended != inbox) inbox.waker.wake(inbox.waker.context);
    }

    /// Puts a message in. True: the mailbox was empty, so the worker must be woken.
    fn push(inbox: *Inbox, message: *Message) bool {
        var head = inbox.head.load(.monotonic);
        while (true) {
            message.next = head;
            head = inbox.head.cmpxchgWeak(head, message, .release, .monotonic) orelse return head == null;
        }
    }

    /// Creates a message with `extra` bytes behind it. `bounded`: bytes of fields and content; only a message
    /// with such bytes is refused when the mailbox is full.
    fn compose(inbox: *Inbox, extra: usize, bounded: usize) PostError!*Message {
        const len = @sizeOf(Message) + extra;
        const before = inbox.bytes.fetchAdd(len, .monotonic);
        errdefer _ = inbox.bytes.fetchSub(len, .monotonic);
        if (bounded > 0 and before +| len > inbox.bytes_max) return error.Full;
        const memory = try inbox.gpa.alignedAlloc(u8, .fromByteUnits(Message.alignment), len);
        const message: *Message = @ptrCast(memory.ptr);
        message.* = .{ .memory = memory, .content = undefined };
        return message;
    }

    comptime {
        assert(@alignOf(Message) <= Message.alignment);
    }

    /// Frees a message that `take` returned.
    pub fn free(inbox: *Inbox, message: *Message) void {
        _ = inbox.bytes.fetchSub(message.memory.len, .monotonic);
        inbox.gpa.free(message.memory);
    }

    pub fn hasMail(inbox: *const Inbox) bool {
        return inbox.head.load(.monotonic) != null;
    }

    /// Takes all messages that are in the mailbox, oldest first. Only the worker's thread may call it.
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

/// A queue of messages.
pub const Queue = struct {
    first: ?*Message = null,
    last: ?*Message = null,

    /// Takes the oldest message, which the caller frees; null: the queue is empty.
    pub fn pop(queue: *Queue) ?*Message {
        const message = queue.first orelse return null;
        queue.first = message.next;
        if (queue.first == null) queue.last = null;
        message.next = null;
        return message;
    }

    /// Adds a message at the end.
    pub fn append(queue: *Queue, message: *Message) void {
        message.next = null;
        if (queue.last) |last| last.next = message else queue.first = message;
        queue.last = message;
    }

    pub fn isEmpty(queue: *const Queue) bool {
        return queue.first == null;
    }
};

const testing = std.testing;

const Counting = struct {
    wakes: std.atomic.Value(u32) = .init(0),

    fn wake(context: *anyopaque) void {
        const counting: *Counting = @ptrCast(@alignCast(context));
        _ = counting.wakes.fetchAdd(1, .monotonic);
    }

    fn waker(counting: *Counting) Inbox.Waker {
        return .{ .context = counting, .wake = wake };
    }
};

test "messages come out in order, with their own copies" {
    var counting: Counting = .{};
    const inbox: *Inbox = try .create(testing.allocator, counting.waker(), 1 << 20);
    defer inbox.release();
    var text = "hello".*;
    var name = "X-Name".*;
    try inbox.tell(.none, .{
        .start = .{ .status = 201, .fields = &.{.init(&name, &text)}, .body = &text, .end = true },
    });
    try inbox.handOver(.{ .listener = 3, .socket = .none, .peer = try .parse("::1", 9) });
    @memset(&text, '!');
    @memset(&name, '!');
    try testing.expectEqual(1, counting.wakes.load(.monotonic));
    var mail = inbox.take();
    const first = mail.pop().?;
    var space: [1]Field = undefined;
    const start = first.content.command.read(&space).start;
    try testing.expectEqualStrings("hello", start.body);
    try testing.expectEqualStrings("X-Name", start.fields[0].name());
    try testing.expectEqualStrings("hello", start.fields[0].value());
    inbox.free(first);
    const second = mail.pop().?;
    try testing.expectEqual(3, second.content.connection.listener);
    inbox.free(second);
    try testing.expect(mail.isEmpty() and !inbox.hasMail());
    try testing.expectEqual(0, inbox.bytes.load(.monotonic));
}

test "a full mailbox and a closed one refuse, and keep nothing" {
    var counting: Counting = .{};
    const inbox: *Inbox = try .create(testing.allocator, counting.waker(), 1000);
    defer inbox.release();
    const large: [2000]u8 = @splat('x');
    try testing.expectError(error.Full, inbox.tell(.none, .{ .body = .{ .bytes = &large } }));
    try testing.expectEqual(0, inbox.bytes.load(.monotonic));
    try testing.expectEqual(0, counting.wakes.load(.monotonic));
    // A message that ends something is accepted also when the mailbox is full.
    try inbox.tell(.none, .{ .body = .{ .bytes = large[0..500] } });
    try testing.expectError(error.Full, inbox.tell(.none, .{ .body = .{ .bytes = large[0..500] } }));
    for (0..20) |i| try inbox.tell(.none, if (i % 2 == 0) .{ .body = .{ .last = true } } else .abort);
    inbox.close();
    try testing.expectError(error.Gone, inbox.tell(.none, .abort));
    var mail = inbox.take();
    var count: usize = 0;
    while (mail.pop()) |message| : (count += 1) inbox.free(message);
    try testing.expectEqual(21, count);
    try testing.expectEqual(0, inbox.bytes.load(.monotonic));
}

test "no message is lost between threads, and each sender's order is kept" {
    const Sender = struct {
        fn run(inbox: *Inbox, number: u16) void {
            for (0..500) |i| {
                const text: [2]u8 = @bitCast(@as(u16, @intCast(i)));
                inbox.tell(@fromBackingInt(number), .{ .body = .{ .bytes = &text } }) catch unreachable;
            }
            inbox.release();
        }
    };
    var counting: Counting = .{};
    const inbox: *Inbox = try .create(std.heap.smp_allocator, counting.waker(), 1 << 30);
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
            const number: usize = @intCast(@backingInt(message.content.command.ticket));
            const bytes = message.content.command.read(&.{}).body.bytes;
            try testing.expectEqual(seen[number], @as(u16, @bitCast(bytes[0..2].*)));
            seen[number] += 1;
            inbox.free(message);
        }
        try std.Thread.yield();
    }
    for (threads) |thread| thread.join();
    try testing.expect(counting.wakes.load(.monotonic) >= 1);
}
