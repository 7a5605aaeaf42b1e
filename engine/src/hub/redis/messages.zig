//! Messages to channels of Redis, each of which is sent at most once, also if its answer is lost. Does not
//! know: the connection.
const std = @import("std");
const assert = std.debug.assert;
const Config = @import("../config.zig").Config;
const Failure = @import("failure.zig").Failure;
const Allocator = std.mem.Allocator;

/// The end of a message.
pub const Outcome = union(enum) {
    /// Redis has given the message to this number of hubs.
    heard: u64,
    /// Redis has refused the message.
    refused: Failure,
    /// The message did not reach Redis within its time.
    unavailable,
    /// The connection was lost before the answer.
    unknown,
};

/// A message that was not sent yet.
pub const Message = struct {
    token: u64,
    deadline_ms: u64,
    /// The name of the channel, followed by the content.
    memory: []u8,
    name_len: u32,

    pub fn channel(message: *const Message) []const u8 {
        return message.memory[0..message.name_len];
    }

    pub fn bytes(message: *const Message) []const u8 {
        return message.memory[message.name_len..];
    }
};

pub const Messages = struct {
    waiting: std.Deque(Message) = .empty,
    waiting_bytes: u64 = 0,
    /// Tokens of messages that were sent and not answered, in order.
    sent: std.Deque(u64) = .empty,
    /// Tokens of messages whose connection was lost.
    lost: std.Deque(u64) = .empty,

    pub fn deinit(messages: *Messages, gpa: Allocator) void {
        while (messages.waiting.popFront()) |message| gpa.free(message.memory);
        messages.waiting.deinit(gpa);
        messages.sent.deinit(gpa);
        messages.lost.deinit(gpa);
        messages.* = undefined;
    }

    /// Adds a message. The caller writes the name and the content into its memory.
    pub fn add(
        messages: *Messages,
        gpa: Allocator,
        config: *const Config,
        size: usize,
        token: u64,
        now_ms: u64,
    ) error{ OutOfMemory, Full }!*Message {
        const count = messages.waiting.len + messages.sent.len + messages.lost.len + 1;
        if (count > config.publications_max or
            messages.waiting_bytes + size > config.publications_bytes_max) return error.Full;
        try messages.waiting.ensureUnusedCapacity(gpa, 1);
        try messages.sent.ensureTotalCapacity(gpa, count);
        try messages.lost.ensureTotalCapacity(gpa, count);
        messages.waiting.pushBackAssumeCapacity(.{
            .token = token,
            .deadline_ms = now_ms + config.publish_ms,
            .memory = try gpa.alloc(u8, size),
            .name_len = 0,
        });
        messages.waiting_bytes += size;
        return messages.waiting.atPtr(messages.waiting.len - 1);
    }

    /// Notes that the first message was written to the connection, and waits for its answer.
    pub fn wrote(messages: *Messages, gpa: Allocator) void {
        messages.sent.pushBackAssumeCapacity(messages.drop(gpa));
    }

    /// Frees the first message and returns its token.
    fn drop(messages: *Messages, gpa: Allocator) u64 {
        const first = messages.waiting.popFront().?;
        messages.waiting_bytes -= first.memory.len;
        gpa.free(first.memory);
        return first.token;
    }

    /// Takes the token of the message that the present answer is for.
    pub fn answered(messages: *Messages) u64 {
        return messages.sent.popFront().?;
    }

    /// Notes that the connection is lost, so that the fate of unanswered messages is unknown.
    pub fn disconnected(messages: *Messages) void {
        while (messages.sent.popFront()) |token| messages.lost.pushBackAssumeCapacity(token);
    }

    /// Takes a message that has ended without an answer: its connection was lost, or its time is over.
    pub fn ended(messages: *Messages, gpa: Allocator, now_ms: u64) ?struct { token: u64, outcome: Outcome } {
        if (messages.lost.popFront()) |token| return .{ .token = token, .outcome = .unknown };
        const first = messages.waiting.front() orelse return null;
        if (now_ms < first.deadline_ms) return null;
        return .{ .token = messages.drop(gpa), .outcome = .unavailable };
    }

    /// The time at which `ended` has a message next, in milliseconds; null: no message waits.
    pub fn deadline(messages: *const Messages) ?u64 {
        if (messages.lost.len > 0) return 0;
        return if (messages.waiting.front()) |first| first.deadline_ms else null;
    }
};
