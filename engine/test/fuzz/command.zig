//! Fuzz target `command`: bytes that claim to be an encoded command. What decodes lies within them, and
//! encodes to the same bytes again.
const std = @import("std");
const peregrine = @import("peregrine");
const encoded = peregrine.encoded;
const testing = std.testing;

const Field = @typeInfo(@FieldType(peregrine.Start, "fields")).pointer.child;

pub fn run(input: []const u8) !void {
    var space: [64]Field = undefined;
    const command = encoded.decode(input, &space) catch |err| switch (err) {
        error.Malformed => return,
        error.TooManyFields => return testing.expect(input.len > space.len * 8),
    };
    try testing.expectEqual(input.len, encoded.size(&command));
    const again = try std.heap.smp_allocator.alloc(u8, input.len);
    defer std.heap.smp_allocator.free(again);
    encoded.encode(&command, again);
    try testing.expectEqualSlices(u8, input, again);
}
