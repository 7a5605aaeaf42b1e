//! HTTP/2 (RFC 9113), only for its own tests and benchmarks.

/// Header blocks (RFC 7541).
pub const hpack = struct {
    const decoder = @import("hpack/decoder.zig");
    const encoder = @import("hpack/encoder.zig");
    pub const Decoder = decoder.Decoder;
    pub const Bench = decoder.Bench;
    pub const table_bytes_max = decoder.table_bytes_max;
    pub const Encoder = encoder.Encoder;
    pub const EncoderMemory = encoder.Memory;
    pub const stateless = encoder.stateless;
    pub const field_overhead = encoder.field_overhead;
    pub const block_overhead = encoder.block_overhead;
    pub const huffman = @import("hpack/huffman.zig");
    pub const static_table = @import("hpack/static_table.zig");
};

pub const frame = @import("frame.zig");
pub const Priority = @import("priority.zig").Priority;
pub const Patience = @import("patience.zig").Patience;
pub const fields = @import("fields.zig");
pub const streams = @import("streams.zig");
pub const session = @import("session.zig");
pub const Session = session.Session;

test {
    @import("std").testing.refAllDecls(@This());
    @import("std").testing.refAllDecls(hpack);
}
