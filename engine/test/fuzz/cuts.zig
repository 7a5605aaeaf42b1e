//! The ways in which a stream of bytes arrives: for targets that look whether that makes a difference.
const std = @import("std");

/// Lengths of the pieces in which bytes arrive.
pub const Cuts = union(enum) {
    whole,
    /// Byte by byte.
    bytes,
    /// Pieces of 0 to 63 bytes, from this seed.
    random: std.Random.DefaultPrng,

    pub fn seeded(seed: u64) Cuts {
        return .{ .random = .init(seed) };
    }

    /// The length of the next piece, when `rest` bytes are still to come.
    pub fn next(cuts: *Cuts, rest: usize) usize {
        return switch (cuts.*) {
            .whole => rest,
            .bytes => @min(1, rest),
            .random => |*prng| @min(rest, prng.random().uintLessThan(usize, 64)),
        };
    }
};

/// Input beyond this is not tried byte by byte: the time may go with the square of the length.
pub const bytewise_max = 1024;
