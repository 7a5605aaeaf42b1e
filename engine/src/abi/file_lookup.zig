//! The answer to a request for a file (status, fields, ranges), which C sends in its own way: a file of an
//! application's folder, or one that it names in place of a body. No worker is needed.
//! Does not know: who asks, and what becomes of the answer.
const std = @import("std");
const assert = std.debug.assert;
const peregrine = @import("peregrine");
const errors = @import("errors.zig");
const platform = @import("platform");
const sized = @import("sized.zig");
const types = @import("types.zig");
const Code = types.Code;
const DirServer = peregrine.util.DirServer;

const gpa = platform.gpa;

/// An answer, with all that it points to.
const Lookup = struct {
    answer: types.FileAnswer,
    pool: peregrine.Pool,
    files: *DirServer,
    arena: std.heap.ArenaAllocator,
    draft: peregrine.aside.Draft,

    const Error = DirServer.InitError || std.mem.Allocator.Error || error{ BadQuestion, BadFile };

    /// Looks for the file of a question. Null: there is none.
    fn create(question: *const types.FileQuestion) Error!?*Lookup {
        const files: *DirServer = try .init(gpa, textOf(question.folder), .{
            .index = textOf(question.index),
            .dotfiles = question.flags & types.FileFlag.dotfiles != 0,
            .precompressed = question.flags & types.FileFlag.plain == 0,
            .default_type = if (question.default_type) |text| std.mem.span(text) else null,
        });
        const lookup = gpa.create(Lookup) catch |err| {
            files.deinit();
            return err;
        };
        lookup.answer = .{ .size = @sizeOf(types.FileAnswer) };
        lookup.pool = .init(gpa);
        lookup.files = files;
        lookup.arena = .init(gpa);
        const head = headOf(lookup.arena.allocator(), question) catch |err| {
            lookup.draft.begin(&lookup.pool, &no_head);
            lookup.destroy();
            return err;
        };
        lookup.draft.begin(&lookup.pool, &head);
        errdefer lookup.destroy();
        const response = &lookup.draft.response;
        if (question.content_type) |text| {
            response.addNewHeader("Content-Type", std.mem.span(text)) catch return error.BadQuestion;
        }
        const is_there = files.serveIfThere(&lookup.draft.request, response) catch return error.BadFile;
        if (!is_there) {
            lookup.destroy();
            return null;
        }
        try lookup.describe(head.method == .HEAD);
        assert(lookup.answer.status >= 200);
        return lookup;
    }

    const no_head: peregrine.Head = .{ .storage = &.{} };

    fn destroy(lookup: *Lookup) void {
        assert(lookup.answer.size == @sizeOf(types.FileAnswer));
        if (lookup.answer.fd >= 0) peregrine.io.file.close(lookup.answer.fd);
        lookup.draft.end();
        lookup.files.deinit();
        lookup.arena.deinit();
        lookup.pool.deinit();
        gpa.destroy(lookup);
    }

    /// The head of a request that asks the question.
    fn headOf(
        arena: std.mem.Allocator,
        question: *const types.FileQuestion,
    ) error{ OutOfMemory, BadQuestion }!peregrine.Head {
        var text: std.ArrayList(u8) = .empty;
        const given: []const peregrine.Field =
            if (question.fields) |list| list[0..question.field_count] else &.{};
        const path = textOf(question.path);
        const query = textOf(question.query);
        if (path.len == 0 or path[0] != '/') return error.BadQuestion;
        try text.appendSlice(arena, path);
        try text.appendSlice(arena, query);
        const spans = try arena.alloc(peregrine.FieldSpan, given.len);
        for (given, spans) |field, *span| {
            const name_at = text.items.len;
            try text.appendSlice(arena, field.name());
            const value_at = text.items.len;
            try text.appendSlice(arena, field.value());
            if (field.name_len == 0 or text.items.len > std.math.maxInt(u32)) return error.BadQuestion;
            span.* = .{
                .name_at = @intCast(name_at),
                .value_at = @intCast(value_at),
                .name_len = std.math.cast(u16, field.name_len) orelse return error.BadQuestion,
                .value_len = @intCast(field.value_len),
                .id = .fromName(field.name()),
            };
        }
        return .{
            .storage = spans,
            .fields = spans,
            .text = text.items,
            .method = .parse(textOf(question.method)),
            .path = .{ .at = 0, .len = @intCast(path.len) },
            .query = .{ .at = @intCast(path.len), .len = @intCast(query.len) },
            .has_query = query.len > 0,
        };
    }

    /// Fills the answer from the response.
    fn describe(lookup: *Lookup, is_head: bool) error{OutOfMemory}!void {
        const arena = lookup.arena.allocator();
        const response = &lookup.draft.response;
        response.addLength(is_head);
        const fields = try arena.alloc(peregrine.Field, response.count + 1);
        var count: usize = 0;
        var lines = response.lines.iterator();
        while (lines.next()) |field| : (count += 1) fields[count] = field;
        if (response.lines.found.content_length) |len| {
            fields[count] = .init("Content-Length", try std.fmt.allocPrint(arena, "{d}", .{len}));
            count += 1;
        }
        var parts: std.ArrayList(types.FilePart) = .empty;
        switch (response.body) {
            .none => {},
            .bytes, .request => |bytes| try parts.append(arena, .{ .bytes = bytes.ptr, .len = bytes.len }),
            .shared => |shared| try parts.append(
                arena,
                .{ .bytes = shared.bytes.ptr, .len = shared.bytes.len },
            ),
            .file => |file| {
                try parts.append(arena, .{ .offset = file.offset, .len = file.len });
                lookup.answer.fd = file.fd;
                response.body = .none;
            },
            .parts => |*several| {
                // Makes all room before it takes the first piece, so that no error loses the descriptor.
                try parts.ensureTotalCapacity(arena, 2 * types.FileAnswer.parts_max + 1);
                var slices: [1][]const u8 = undefined;
                while (true) switch (several.chain.front(&slices)) {
                    .nothing => break,
                    .bytes => {
                        const bytes = try arena.dupe(u8, slices[0]);
                        parts.appendAssumeCapacity(.{ .bytes = bytes.ptr, .len = bytes.len });
                        several.chain.consume(&lookup.pool, bytes.len);
                    },
                    .file => |range| {
                        parts.appendAssumeCapacity(.{ .offset = range.offset, .len = range.len });
                        if (several.chain.popFile(&lookup.pool)) |whole| lookup.answer.fd = whole.fd;
                    },
                };
            },
            .blocks => unreachable, // a file's body has another kind
        }
        lookup.answer.status = response.status.code();
        lookup.answer.fields = fields.ptr;
        lookup.answer.field_count = count;
        lookup.answer.parts = parts.items.ptr;
        lookup.answer.part_count = parts.items.len;
    }
};

fn textOf(text: ?[*:0]const u8) []const u8 {
    return if (text) |bytes| std.mem.span(bytes) else "";
}

pub export fn peregrine_look_up_file(
    given: *const sized.Header,
    answer: *?*types.FileAnswer,
) callconv(.c) c_int {
    answer.* = null;
    const question = sized.read(types.FileQuestion, given);
    if (question.flags & ~@as(u32, types.FileFlag.dotfiles | types.FileFlag.plain) != 0) return Code.range;
    const found = Lookup.create(&question) catch |err| switch (err) {
        error.OutOfMemory => return Code.memory,
        error.BadQuestion, error.PathNotAbsolute, error.NameTooLong => return Code.address,
        error.NotFound => {
            errors.setErrno(.NOENT);
            return Code.system;
        },
        error.Exhausted, error.Busy, error.BadFile => {
            errors.setErrno(.IO);
            return Code.system;
        },
    };
    const lookup = found orelse return 0;
    answer.* = &lookup.answer;
    return 1;
}

pub export fn peregrine_file_answer_free(answer: ?*types.FileAnswer) callconv(.c) void {
    const given = answer orelse return;
    const lookup: *Lookup = @alignCast(@fieldParentPtr("answer", given));
    lookup.destroy();
}
