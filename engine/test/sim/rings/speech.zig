//! Says commands through the C API, notes what was answered, and keeps what is lent until it comes back.
const std = @import("std");
const abi = @import("abi");
const types = abi.types;
const Code = types.Code;
const peregrine = @import("peregrine");
const Field = peregrine.Field;
const record_file = @import("record.zig");
const Record = record_file.Record;

/// The application's calls to a worker.
pub const Speech = struct {
    gpa: std.mem.Allocator,
    handle: *abi.Handle,
    /// A file of letters, for responses that are files.
    file: i32,
    /// Loans that have not come back.
    lent: std.ArrayList(*Lent) = .empty,

    const Lent = struct { loan: types.Loan, bytes: []u8 };

    pub const file_bytes = 200_000;

    /// Frees what was not given back: the worker is gone.
    pub fn deinit(speech: *Speech) void {
        for (speech.lent.items) |lent| speech.free(lent);
        speech.lent.deinit(speech.gpa);
    }

    fn free(speech: *Speech, lent: *Lent) void {
        speech.gpa.free(lent.bytes);
        speech.gpa.destroy(lent);
    }

    /// Frees what has come back.
    pub fn takeBack(speech: *Speech) void {
        var next = abi.peregrine_returned(speech.handle);
        while (next) |loan| {
            next = loan.next;
            const lent: *Lent = @fieldParentPtr("loan", loan);
            _ = speech.lent.swapRemove(std.mem.findScalar(*Lent, speech.lent.items, lent).?);
            speech.free(lent);
        }
    }

    fn lend(speech: *Speech, bytes: []const u8) !*Lent {
        try speech.lent.ensureUnusedCapacity(speech.gpa, 1);
        const lent = try speech.gpa.create(Lent);
        lent.* = .{ .loan = .{}, .bytes = try speech.gpa.dupe(u8, bytes) };
        return lent;
    }

    /// Notes an answer; the code.
    fn note(speech: *Speech, record: *Record, what: Record.What, code: c_int) !c_int {
        const bad = switch (code) {
            Code.field_name, Code.field_value, Code.content_length, Code.reserved => abi.peregrine_bad_field(
                speech.handle,
            ),
            else => 0,
        };
        const same = if (code == Code.done or code == Code.blocked) Code.ok else code;
        try record.answers.append(record.gpa, .{ .what = what, .code = same, .bad_field = bad });
        return code;
    }

    pub const Start = struct {
        status: u16 = 200,
        fields: []const Field = &.{},
        body: []const u8 = "",
        flags: u16 = 0,
    };

    pub fn start(speech: *Speech, record: *Record, ticket: types.Ticket, given: Start) !c_int {
        const response: types.Response = .{
            .size = @sizeOf(types.Response),
            .status = given.status,
            .flags = given.flags,
            .fields = given.fields.ptr,
            .field_count = given.fields.len,
            .body = given.body.ptr,
            .body_len = given.body.len,
        };
        const code = abi.peregrine_respond(speech.handle, ticket, @ptrCast(&response));
        if (code >= 0) {
            record.status = given.status;
            try record.content.appendSlice(record.gpa, given.body);
        }
        return speech.note(record, .start, code);
    }

    pub fn write(
        speech: *Speech,
        record: *Record,
        ticket: types.Ticket,
        bytes: []const u8,
        flags: u32,
    ) !c_int {
        const code = abi.peregrine_write(speech.handle, ticket, bytes.ptr, bytes.len, flags);
        if (code >= 0) try record.content.appendSlice(record.gpa, bytes);
        return speech.note(record, .write, code);
    }

    pub fn writeLent(
        speech: *Speech,
        record: *Record,
        ticket: types.Ticket,
        bytes: []const u8,
        flags: u32,
    ) !c_int {
        const lent = try speech.lend(bytes);
        const code = abi.peregrine_lend(
            speech.handle,
            ticket,
            lent.bytes.ptr,
            lent.bytes.len,
            flags,
            &lent.loan,
        );
        if (code >= 0) try record.content.appendSlice(record.gpa, bytes);
        speech.keep(lent, code);
        return speech.note(record, .lend, code);
    }

    fn keep(speech: *Speech, lent: *Lent, code: c_int) void {
        if (code >= 0) speech.lent.appendAssumeCapacity(lent) else speech.free(lent);
    }

    pub fn writeFile(
        speech: *Speech,
        record: *Record,
        ticket: types.Ticket,
        offset: u64,
        length: i64,
    ) !c_int {
        const code = abi.peregrine_write_file(speech.handle, ticket, speech.file, offset, length);
        if (code >= 0) {
            const left = file_bytes -| offset;
            const len: usize = @intCast(if (length < 0) left else @min(left, @as(u64, @intCast(length))));
            record_file.pattern(try record.content.addManyAsSlice(record.gpa, len), 0, @intCast(offset));
        }
        return speech.note(record, .file, code);
    }

    pub fn finish(speech: *Speech, record: *Record, ticket: types.Ticket, trailers: []const Field) !c_int {
        const code = abi.peregrine_finish(speech.handle, ticket, trailers.ptr, trailers.len);
        if (code >= 0) record.trailers = @intCast(trailers.len);
        return speech.note(record, .finish, code);
    }

    pub fn inform(
        speech: *Speech,
        record: *Record,
        ticket: types.Ticket,
        status: u16,
        fields: []const Field,
    ) !c_int {
        const code = abi.peregrine_inform(speech.handle, ticket, status, fields.ptr, fields.len);
        if (code >= 0) record.informed += 1;
        return speech.note(record, .inform, code);
    }

    pub fn message(
        speech: *Speech,
        record: *Record,
        ticket: types.Ticket,
        bytes: []const u8,
        text: bool,
        lends: bool,
    ) !c_int {
        const flags: u32 = if (text) types.EventFlag.text else 0;
        // The client may have it before the call returns.
        try record.said.append(record.gpa, .{ .text = text, .bytes = try record.gpa.dupe(u8, bytes) });
        const code = if (lends) blk: {
            const lent = try speech.lend(bytes);
            const answer = abi.peregrine_lend_message(
                speech.handle,
                ticket,
                lent.bytes.ptr,
                bytes.len,
                flags,
                &lent.loan,
            );
            speech.keep(lent, answer);
            break :blk answer;
        } else abi.peregrine_send_message(speech.handle, ticket, bytes.ptr, bytes.len, flags);
        if (code < 0) record.gpa.free(record.said.pop().?.bytes);
        return speech.note(record, if (lends) .lend_message else .message, code);
    }

    pub fn accept(speech: *Speech, record: *Record, ticket: types.Ticket, fields: []const Field) !c_int {
        const code = abi.peregrine_accept_websocket(speech.handle, ticket, null, 0, fields.ptr, fields.len);
        if (code >= 0) record.status = 101;
        return speech.note(record, .accept, code);
    }

    pub fn close(
        speech: *Speech,
        record: *Record,
        ticket: types.Ticket,
        code: u16,
        reason: []const u8,
    ) !c_int {
        return speech.note(
            record,
            .close,
            abi.peregrine_close_websocket(speech.handle, ticket, code, reason.ptr, reason.len),
        );
    }

    /// A command without anything to note but its answer.
    pub fn say(
        speech: *Speech,
        record: *Record,
        ticket: types.Ticket,
        what: Record.What,
        number: u32,
    ) !c_int {
        const handle = speech.handle;
        return speech.note(record, what, switch (what) {
            .read => abi.peregrine_read(handle, ticket),
            .flush => abi.peregrine_flush(handle, ticket),
            .abort => abi.peregrine_abort(handle, ticket),
            .keepalive => abi.peregrine_keepalive(handle, ticket, number, 0),
            .pause => abi.peregrine_pause(handle, ticket, @intCast(number)),
            .idle_limit => abi.peregrine_idle_limit(handle, ticket, number),
            .keep_head => abi.peregrine_keep_head(handle, ticket, @intCast(number)),
            .repeat => abi.peregrine_repeat(handle, ticket, number, ":\n", 2),
            else => unreachable,
        });
    }
};
