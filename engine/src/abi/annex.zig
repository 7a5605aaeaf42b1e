//! Memory beside a ring, for bytes that are too long for a record: the writer puts them here in one piece, and
//! a record says where. Both sides map it, as they do the ring. Does not know: what the bytes are.
//!
//! Pieces are given back in the order in which they were put here: the reader is done with a piece when it
//! gives back the record behind it. An annex without pieces begins at its start again, so that the same few
//! pages serve a stream of pieces of which one is there at a time.
const std = @import("std");
const assert = std.debug.assert;
const api_limits = @import("peregrine").api_limits;

/// Bytes of each annex. Only bytes that were ever used take memory.
pub const bytes = api_limits.annex_bytes;

pub const alignment = std.heap.page_size_min;

/// The memory beside both rings of a pair.
pub const Both = struct {
    commands: []align(alignment) u8,
    events: []align(alignment) u8,
};

/// The reader's view: where a piece would be. Another process may change its bytes at any time.
pub const View = struct {
    memory: []align(alignment) const u8,

    /// The bytes from an offset on that a record names.
    pub fn from(view: View, offset: u64) error{Malformed}![]const u8 {
        if (offset > view.memory.len) return error.Malformed;
        return view.memory[@intCast(offset)..];
    }
};

/// The writer's side.
pub const Writer = struct {
    memory: []align(alignment) u8,
    /// Pieces that the reader has yet to give back: a ring, the oldest at `first`.
    pieces: [pieces_max]Piece = undefined,
    first: usize = 0,
    count: usize = 0,

    /// More pieces than there are records in a ring are never wanted.
    const pieces_max = api_limits.annex_pieces_max;

    const Piece = struct {
        begin: usize,
        end: usize,
        /// The ring's position behind the record that names the piece.
        position: u64,
    };

    pub fn init(memory: []align(alignment) u8) Writer {
        return .{ .memory = memory };
    }

    /// Whether a piece finds room. `released`: the position up to which the reader has given records back.
    pub fn hasRoom(writer: *Writer, len: usize, released: u64) bool {
        writer.collect(released);
        return writer.placeOf(len) != null;
    }

    /// Puts a piece here, for which there is room; its offset. The piece stays until `follow` has said which
    /// record names it, and that was given back.
    pub fn put(writer: *Writer, piece: []const u8) u64 {
        const begin = writer.placeOf(piece.len).?;
        @memcpy(writer.memory[begin..][0..piece.len], piece);
        writer.pieces[(writer.first + writer.count) % pieces_max] = .{
            .begin = begin,
            .end = begin + std.mem.alignForward(usize, piece.len, std.atomic.cache_line),
            .position = std.math.maxInt(u64),
        };
        writer.count += 1;
        writer.invariants();
        return begin;
    }

    /// The record that names the piece that was put here last ends at this position.
    pub fn follow(writer: *Writer, position: u64) void {
        writer.newest().position = position;
        writer.invariants();
    }

    fn newest(writer: *Writer) *Piece {
        assert(writer.count > 0);
        return &writer.pieces[(writer.first + writer.count - 1) % pieces_max];
    }

    fn collect(writer: *Writer, released: u64) void {
        while (writer.count > 0 and writer.pieces[writer.first].position <= released) {
            writer.first = (writer.first + 1) % pieces_max;
            writer.count -= 1;
        }
    }

    fn placeOf(writer: *const Writer, len: usize) ?usize {
        if (writer.count == 0) return if (len <= writer.memory.len) 0 else null;
        if (writer.count == pieces_max) return null;
        const oldest = writer.pieces[writer.first];
        const last = writer.pieces[(writer.first + writer.count - 1) % pieces_max];
        const goes_round = last.begin < oldest.begin;
        const behind = if (goes_round) oldest.begin - last.end else writer.memory.len -| last.end;
        if (len <= behind) return last.end;
        return if (!goes_round and len <= oldest.begin) 0 else null;
    }

    /// Asserts what always holds.
    pub fn invariants(writer: *const Writer) void {
        assert(writer.count <= pieces_max and writer.first < pieces_max);
        if (writer.count == 0) return;
        const last = writer.pieces[(writer.first + writer.count - 1) % pieces_max];
        assert(last.begin < last.end);
        assert(last.position >= writer.pieces[writer.first].position);
    }
};
