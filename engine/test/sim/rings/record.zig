//! The commands of an application for an exchange, as far as they were accepted, and their results. From
//! these follows what the client must get.
const std = @import("std");
const Code = @import("abi").types.Code;

/// The request of one id, and all that came of it.
pub const Record = struct {
    gpa: std.mem.Allocator,
    id: usize,
    method: enum { get, head, post } = .get,
    /// The client shakes hands for a WebSocket.
    handshake: bool = false,
    /// Pieces of the request's body that were sent.
    sends: usize = 0,
    /// The application never ends the response, or ends it with its connection: those behind it may not come.
    cuts: bool = false,

    came: bool = false,
    status: u16 = 0,
    informed: u8 = 0,
    trailers: u8 = 0,
    /// Content that was accepted.
    content: std.ArrayList(u8) = .empty,
    /// The content of the request's body.
    heard: std.ArrayList(u8) = .empty,
    /// Messages that were accepted, and those that came.
    said: std.ArrayList(Message) = .empty,
    got: usize = 0,
    end: End = .none,
    /// The result of each call, if it does not depend on which thread is faster.
    answers: std.ArrayList(Answer) = .empty,

    pub const Message = struct { text: bool, bytes: []u8 };

    /// How the exchange ended for the application. It does so once.
    pub const End = enum { none, done, finished, aborted, closed, cut };

    /// `done` and `blocked` are `ok` here.
    pub const Answer = struct { what: What, code: c_int, bad_field: usize };

    pub const What = enum {
        start,
        write,
        lend,
        file,
        finish,
        repeat,
        inform,
        read,
        flush,
        abort,
        accept,
        message,
        lend_message,
        close,
        keepalive,
        pause,
        idle_limit,
        keep_head,
    };

    pub fn deinit(record: *Record) void {
        for (record.said.items) |message| record.gpa.free(message.bytes);
        inline for (.{ &record.content, &record.heard, &record.said, &record.answers }) |list| list.deinit(
            record.gpa,
        );
    }

    /// A job that was played behind a ring pair, and again without one: it was answered the same, as far as
    /// both came.
    pub fn expectSame(record: *const Record, other: *const Record) !void {
        const count = @min(record.answers.items.len, other.answers.items.len);
        for (record.answers.items[0..count], other.answers.items[0..count], 0..) |one, two, index| {
            if (std.meta.eql(one, two)) continue;
            // A client that leaves does so when it likes.
            if (one.what == two.what and (one.code == Code.gone or two.code == Code.gone)) return;
            const text = "\nid {d}, answer {d}: {t} {d} (field {d}) by rings, {t} {d} (field {d}) else\n";
            std.debug.print(text, .{
                record.id, index,    one.what,      one.code, one.bad_field,
                two.what,  two.code, two.bad_field,
            });
            return error.AnsweredOtherwise;
        }
    }

    /// Whether the response is complete for the application.
    pub fn isComplete(record: *const Record) bool {
        return record.end == .done or record.end == .finished;
    }
};

/// The bytes of body `id` from `from` on: letters, so that they are text, too.
pub fn pattern(buffer: []u8, id: usize, from: usize) void {
    for (buffer, from..) |*byte, at| byte.* = @intCast('a' + (id * 7 + at) % 26);
}
