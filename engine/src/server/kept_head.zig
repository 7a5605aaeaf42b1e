//! A copy of a head or of a trailer section that outlives the received bytes. Does not know: the purpose of
//! the copy.
const std = @import("std");
const assert = std.debug.assert;
const Head = @import("protocol").Head;
const FieldSpan = @import("protocol").http.FieldSpan;
const Pool = @import("pool.zig").Pool;

/// Bytes that `copyHead` needs in `space`.
pub fn copySize(head: *const Head) usize {
    return head.fields.len * @sizeOf(FieldSpan) + head.text.len;
}

/// Copies a head with text and fields to `space`, which must be aligned for fields and have `copySize(head)`
/// bytes.
pub fn copyHead(head: *const Head, space: []u8) Head {
    const fields: []FieldSpan = @as([*]FieldSpan, @ptrCast(@alignCast(space.ptr)))[0..head.fields.len];
    @memcpy(fields, head.fields);
    const text = space[head.fields.len * @sizeOf(FieldSpan) ..][0..head.text.len];
    @memcpy(text, head.text);
    var same = head.*;
    same.text = text;
    same.fields = fields;
    same.storage = fields;
    return same;
}

/// A copy of a head in a buffer of the worker's pool.
pub const KeptHead = struct {
    head: Head,
    buffer: Pool.Buffer,

    comptime {
        assert(@sizeOf(KeptHead) % @alignOf(FieldSpan) == 0);
    }

    pub fn create(pool: *Pool, head: *const Head) error{OutOfMemory}!*KeptHead {
        const buffer = try pool.take(@sizeOf(KeptHead) + copySize(head));
        const kept: *KeptHead = @ptrCast(buffer.ptr);
        kept.* = .{ .head = copyHead(head, buffer[@sizeOf(KeptHead)..]), .buffer = buffer };
        return kept;
    }

    pub fn destroy(kept: *KeptHead, pool: *Pool) void {
        pool.give(kept.buffer);
    }
};
