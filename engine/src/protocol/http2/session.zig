//! The state machine of an HTTP/2 connection: unread bytes in, at most one event out; commands in, frames
//! out. RFC 9113. Does not know: sockets, buffers beyond those that it is shown, clocks, who answers.
//!
//! In: `feed` until `.need_more`. Every event names its stream. `.control` means that `emit` has to be called
//! before it reads on. Content that was handed over counts against the windows until it is given back
//! (`release`): so a peer sends what its readers take.
//!
//! Out: a response's head is a block that depends on those before it. `start`, `informational` and
//! `switchProtocols` check first, which may fail and changes nothing; what they have written is then on its
//! way, and has to be sent in the order of these calls. Content is queued by the caller, unframed
//! (`planBody`, `planEnd`, each followed by `apply`), and framed when it leaves: `emit` says, frame by frame,
//! from which stream's queue how many bytes go next.
const std = @import("std");
const assert = std.debug.assert;
const decoder_file = @import("hpack/decoder.zig");
const encoder_file = @import("hpack/encoder.zig");
const base_event = @import("../event.zig");
const config_file = @import("config.zig");
const event_file = @import("event.zig");
const fields_file = @import("fields.zig");
const frame = @import("frame.zig");
const http1 = @import("../http1/session.zig");
const order_file = @import("../http/order.zig");
const response_fields = @import("../http1/response_fields.zig");
const response_head = @import("response_head.zig");
const status = @import("../http/status.zig");
const streams_file = @import("streams.zig");
const control_file = @import("control.zig");
const Code = frame.Code;
const Control = control_file.Control;
const Fault = frame.Fault;
const Field = @import("../http/header.zig").Field;
const Order = order_file.Order;
const blockBytesMax = config_file.blockBytesMax;
const Patience = @import("patience.zig").Patience;
const Priority = @import("priority.zig").Priority;
const Shape = order_file.Shape;
const Streams = streams_file.Streams;

pub const Head = http1.Head;
pub const Limits = http1.Limits;
pub const Response = http1.Response;
pub const Piece = http1.Piece;
pub const StartError = http1.StartError;
pub const BodyError = http1.BodyError;
pub const EndError = http1.EndError;
pub const Config = config_file.Config;
pub const Room = config_file.Room;
pub const roomBytes = config_file.roomBytes;
pub const Event = event_file.Event;
pub const Step = event_file.Step;
pub const Emission = event_file.Emission;
pub const Tally = event_file.Tally;
pub const Started = event_file.Started;
pub const Plan = event_file.Plan;
pub const Debt = event_file.Debt;
pub const Refusal = base_event.Refusal;
pub const StreamId = base_event.Stream;
pub const startSize = response_head.startSize;
pub const startSizeOf = response_head.startSizeOf;
pub const endSize = response_head.endSize;
/// The state of an open stream. The session's owner gives memory for some of them, and for
/// `Config.streams_max` when the session asks for it.
pub const Stream = streams_file.Stream;
/// The fields that the peer is not told again; see `lendTable`.
pub const SentFields = encoder_file.Memory;

/// The most that the peer's fields take, in u64s.
pub const table_units_max = @sizeOf(decoder_file.Bench) / @sizeOf(u64);

/// The costs of the peer's frames in its `noise`, and what it earns.
const cost = struct {
    /// PING, PRIORITY, WINDOW_UPDATE, what is unknown, what concerns streams that are closed.
    const small = 1;
    /// DATA without content that ends nothing; CONTINUATION.
    const empty = 4;
    /// SETTINGS: each may change the windows of all streams.
    const settings = 10;
    /// A request that was accepted, in thousandths.
    const request_earns = 4000;

    /// The cost of a header block that decodes to this many bytes more than its length explains.
    fn bomb(bytes: u64) u32 {
        return @intCast(@min(1 + bytes / 512, std.math.maxInt(u32)));
    }

    /// Content in either direction, in thousandths: one for 250 bytes, so that small windows are no offence.
    fn contentEarns(len: u64) u64 {
        return len * 4;
    }
};

/// Frames that a header block may have.
const block_frames_max = 64;

/// Bytes that `emit` needs.
pub const emission_bytes_max = control_file.bytes_max;

/// Bytes that `takeContinue` needs.
pub const continue_bytes_max = frame.header_bytes + encoder_file.block_overhead;

/// The part of a frame that the next bytes of the peer belong to.
const Reading = union(enum) {
    preface,
    /// A frame, which has to be SETTINGS.
    first_frame,
    frame,
    /// A header block of several frames; they stay unread until its end is there.
    block: Block,
    content: Content,
    /// Bytes that are read over, because they mean nothing to us.
    skip: u32,
    /// The session reads no further bytes of its peer.
    broken,

    const Block = struct {
        /// Bytes of the frames that have been looked at, their headers included.
        scanned: u32,
        /// The bytes of these frames' payloads.
        size: u32,
        frames: u32,
    };

    const Content = struct { stream: StreamId, left: u32, padding: u32, ends: bool };
};

/// The result of `advance`.
const Move = union(enum) {
    need_more,
    /// The session has consumed this number of bytes.
    on: usize,
    told: Step,

    fn tell(consumed: usize, stream: StreamId, what: Event) Move {
        return .{ .told = .{ .consumed = consumed, .stream = stream, .event = what } };
    }
};

/// The window that everybody begins with, in bytes (RFC 9113 section 6.9.2).
const default_window = 65_535;

/// The payload of a PING whose answer shows that the peer has read our first GOAWAY.
const drain_ping = "draining";

/// The payload of a PING that makes a client look at its socket; its answer means nothing.
const linger_ping = "all said";

/// Number of priorities that are kept for streams that are yet to come (RFC 9218 section 7.1).
const early_max = 8;

/// The state of one connection. No deinit: it owns nothing.
pub const Session = struct {
    limits: *const Limits,
    config: *const Config,
    room: Room,
    reading: Reading = .preface,
    /// How far the end of the connection is.
    ending: enum {
        no,
        /// The peer was asked to open no more streams.
        announced,
        /// The peer was told of the last stream: streams that it opens now are not looked at.
        last_streams,
        /// No frame goes out any more but those that are owed.
        broken,
    } = .no,
    streams: Streams,
    decoder: decoder_file.Decoder = .{},
    encoder: encoder_file.Encoder = .{},
    control: Control = .{},
    /// The highest number of a stream that the peer has used.
    last_stream: StreamId = 0,
    /// The highest one that was looked at: what GOAWAY says, which may not grow any more.
    last_taken: StreamId = 0,
    /// Windows for content to the peer, on all streams together and on a new one, in bytes.
    send_window: i64 = default_window,
    peer_window: i64 = default_window,
    /// The longest payload that the peer takes, in bytes.
    peer_frame_bytes: u32 = frame.payload_bytes_max,
    /// Windows for content of the peer, on all streams together and on a new one, in bytes.
    receive_window: i64 = default_window,
    stream_window: i64,
    /// Credit for all streams that the peer was not told of, in bytes.
    unannounced: u32 = 0,
    /// Streams wait to tell the peer of theirs.
    streams_unannounced: bool = false,
    settings_acknowledged: bool = false,
    /// The peer has said what it wants first: else all responses take turns.
    peer_prioritises: bool = false,
    early: [early_max]Early = @splat(.{}),
    early_next: u8 = 0,
    /// The owner was asked for more places, and has given none.
    places_wanted: bool = false,
    /// Streams whose responses have been framed, and whose requests have yet to end.
    lingering: u16 = 0,
    /// A block of trailers is on its way: its stream.
    continuing: StreamId = 0,
    resets: Patience,
    noise: Patience,
    resets_received: u32 = 0,
    /// After InvalidFieldName, InvalidFieldValue or InvalidContentLength: the index of the offending field.
    bad_field: u16 = 0,

    const Early = struct { stream: StreamId = 0, priority: Priority = .{} };

    /// For a fresh connection. All arguments must outlive it; there may be no places. `room` has
    /// roomBytes(config), and may be that of other sessions, too: it holds what the last `feed` of any of
    /// them has read.
    pub fn init(limits: *const Limits, config: *const Config, places: []Stream, room: Room) Session {
        assert(room.len >= roomBytes(config));
        assert(config.connection_window_bytes >= default_window);
        var s: Session = .{
            .limits = limits,
            .config = config,
            .room = room,
            .streams = .init(places),
            // A peer that has not seen our settings uses the default window.
            .stream_window = @max(default_window, config.stream_window_bytes),
            .resets = .init(config.resets),
            .noise = .init(config.noise),
        };
        const settings = [_]frame.SettingValue{
            .{ .setting = .max_concurrent_streams, .value = config.streams_max },
            .{ .setting = .initial_window_size, .value = config.stream_window_bytes },
            .{ .setting = .max_header_list_size, .value = config.list_bytes_max },
            .{ .setting = .enable_connect_protocol, .value = @intFromBool(config.extended_connect) },
            .{ .setting = .no_rfc7540_priorities, .value = 1 },
            .{ .setting = .max_frame_size, .value = config.frame_bytes_max },
        };
        const is_default = config.frame_bytes_max == frame.payload_bytes_max;
        s.control.settings(settings[0 .. settings.len - @intFromBool(is_default)]);
        s.credit(config.connection_window_bytes - default_window);
        return s;
    }

    /// Moves all streams into other memory, for at least as many as are open or have yet to be
    /// reset; the result is the memory until now.
    pub fn rehouse(s: *Session, places: []Stream) []Stream {
        s.places_wanted = false;
        return s.streams.rehouse(places);
    }

    /// Lends memory for fields that responses repeat: without any, each response says all of its fields.
    /// Between two blocks; none was lent yet.
    pub fn lendTable(s: *Session, memory: *SentFields) void {
        s.encoder.lend(memory);
    }

    /// Whether nothing that the session does, or is reading, needs `places` or the memory of `lendTable`.
    pub fn mayHandBack(s: *const Session) bool {
        return s.streams.count == 0 and !s.streams.hasDoomed() and s.reading == .frame;
    }

    /// Gives the places, and the memory of `lendTable`, back, in a pause: `mayHandBack`. The next stream asks
    /// for places.
    pub fn handBack(s: *Session) void {
        assert(s.mayHandBack());
        _ = s.rehouse(&.{});
        _ = s.encoder.takeBack();
    }

    /// Whether what the peer's fields are kept in has become too small: before the next `feed` of any session
    /// with this room, `rehouseTable` gives more, or the session is abandoned.
    pub fn outgrows(s: *const Session) bool {
        return s.decoder.lodges;
    }

    /// The memory of the peer's fields that are kept, in u64s.
    pub fn tableUnits(s: *const Session) usize {
        return s.decoder.units();
    }

    /// Moves the table's entries into other memory, of `tableUnits` or more, at most `table_units_max`.
    /// Memory that was given before is the caller's again.
    pub fn rehouseTable(s: *Session, memory: []u64) void {
        s.decoder.rehouse(memory);
    }

    /// Tells the time, in milliseconds. Called before a round of `feed`.
    pub fn wait(s: *Session, now: u64) void {
        s.resets.wait(now);
        s.noise.wait(now);
    }

    /// Reads on. `bytes` are all the bytes that were received and not consumed yet. `head` is filled at
    /// `.request` and `.trailers`, until the next call. Ask again until `.need_more`.
    pub fn feed(s: *Session, bytes: []const u8, head: *Head) Step {
        assert(s.continuing == 0);
        var at: usize = 0;
        while (true) {
            // Our settings go before everything that may be answered.
            const first = s.reading == .preface and s.control.len > 0;
            if (first or s.control.isFull()) return .{ .consumed = at, .event = .control };
            const move = switch (s.reading) {
                .preface => s.readPreface(bytes[at..]),
                .first_frame, .frame => s.readFrame(bytes[at..], head),
                .block => |*block| s.readBlock(block, bytes[at..], head),
                .content => |*content| s.readContent(content, bytes[at..]),
                .skip => |*left| skipBytes(&s.reading, left, bytes[at..]),
                .broken => if (at == bytes.len) .need_more else Move{ .on = bytes.len - at },
            };
            switch (move) {
                .need_more => return .{ .consumed = at, .event = .need_more },
                .on => |consumed| at += consumed,
                .told => |step| return .{
                    .consumed = at + step.consumed,
                    .stream = step.stream,
                    .event = step.event,
                },
            }
        }
    }

    fn readPreface(s: *Session, bytes: []const u8) Move {
        const len = @min(bytes.len, frame.preface.len);
        if (!std.mem.eql(u8, bytes[0..len], frame.preface[0..len])) {
            return s.fail(.protocol_error, "not the preface of HTTP/2");
        }
        if (len < frame.preface.len) return .need_more;
        s.reading = .first_frame;
        return .{ .on = len };
    }

    fn skipBytes(reading: *Reading, left: *u32, bytes: []const u8) Move {
        const len = @min(left.*, bytes.len);
        left.* -= @intCast(len);
        if (left.* == 0) reading.* = .frame else if (len == 0) return .need_more;
        return .{ .on = len };
    }

    /// The next frame. All but DATA, and what is not looked into, is read when it is complete.
    fn readFrame(s: *Session, bytes: []const u8, head: *Head) Move {
        if (bytes.len < frame.header_bytes) return .need_more;
        const h: frame.Header = .parse(bytes[0..frame.header_bytes]);
        if (s.reading == .first_frame and (h.kind != .settings or h.has(frame.flag.ack))) {
            return s.fail(.protocol_error, "first frame is not SETTINGS");
        }
        if (h.fault(s.config.frame_bytes_max)) |fault| return s.blame(fault, h.stream, h.len);
        const rest = bytes[frame.header_bytes..];
        switch (h.kind) {
            .data => return s.readData(h, rest),
            .headers => return s.readHeaders(h, rest, head),
            .continuation => return s.fail(.protocol_error, "CONTINUATION without a header block"),
            .priority, .rst_stream, .settings, .ping, .window_update, .priority_update => {},
            .push_promise => unreachable,
            .goaway, _ => {
                if (!s.noise.spend(cost.small)) return s.tired();
                s.reading = .{ .skip = h.len };
                return .{ .on = frame.header_bytes };
            },
        }
        if (rest.len < h.len) return .need_more;
        s.reading = .frame;
        const len = frame.header_bytes + h.len;
        const price: u32 = if (h.kind == .settings) cost.settings else cost.small;
        if (!s.noise.spend(price)) return s.tired();
        const payload = rest[0..h.len];
        return switch (h.kind) {
            .priority => s.readPriority(h, payload[0..frame.priority_bytes], len),
            .rst_stream => s.readReset(h, payload[0..4], len),
            .settings => s.readSettings(h, payload, len),
            .ping => s.readPing(h, payload[0..frame.ping_bytes], len),
            .window_update => s.readWindowUpdate(h, payload[0..4], len),
            .priority_update => s.readPriorityUpdate(payload, len),
            else => unreachable,
        };
    }

    /// Ends what a fault concerns. Of the present frame, `payload` bytes are still to be thrown away.
    fn blame(s: *Session, fault: Fault, stream: StreamId, payload: u32) Move {
        if (fault.scope == .connection) return s.fail(fault.code, fault.detail);
        s.reading = .{ .skip = payload };
        if (s.isIdle(stream)) return s.fail(fault.code, fault.detail);
        return s.resetByFault(stream, fault.code, frame.header_bytes);
    }

    /// Ends a stream whose peer has broken a rule; the present frame's `consumed` bytes are done with. That
    /// it provokes this counts as if it had reset the stream itself.
    fn resetByFault(s: *Session, id: StreamId, code: Code, consumed: usize) Move {
        if (!s.resets.spend(1)) return s.tired();
        s.control.reset(id, code);
        const stream = s.streams.find(id) orelse return .{ .on = consumed };
        const owner = stream.owner;
        s.close(stream, .by_us);
        return .tell(consumed, id, .{ .reset = .{ .by = .us, .code = code, .owner = owner } });
    }

    fn tired(s: *Session) Move {
        return s.fail(.enhance_your_calm, "too many frames without use");
    }

    /// Ends the connection by a rule that the peer has broken.
    fn fail(s: *Session, code: Code, detail: []const u8) Move {
        s.reading = .broken;
        s.ending = .broken;
        s.control.goaway(s.last_taken, code, detail);
        return .tell(0, 0, .{ .failed = .{ .code = code, .detail = detail } });
    }

    /// Whether nobody has used a stream yet.
    fn isIdle(s: *const Session, id: StreamId) bool {
        return id > s.last_stream or id % 2 == 0;
    }

    fn readData(s: *Session, h: frame.Header, rest: []const u8) Move {
        var padding: u32 = 0;
        var consumed: usize = frame.header_bytes;
        if (h.has(frame.flag.padded)) {
            if (rest.len == 0) return .need_more;
            padding = @as(u32, rest[0]) + 1;
            if (padding > h.len) return s.fail(.protocol_error, frame.too_much_padding);
            consumed += 1;
        }
        const behind = h.len - @as(u32, @intCast(consumed - frame.header_bytes));
        if (s.isIdle(h.stream)) return s.fail(.protocol_error, "DATA on an idle stream");
        if (h.len > s.receive_window) return s.fail(.flow_control_error, "DATA beyond the window");
        s.receive_window -= h.len;
        const ends = h.has(frame.flag.end_stream);
        if (h.len == padding and !ends and !s.noise.spend(cost.empty)) return s.tired();
        const stream = s.streams.find(h.stream) orelse return s.readStrayData(h, behind, consumed);
        if (s.dataFault(stream, h, h.len - padding, ends)) |code| {
            s.throwAway(behind, h.len);
            return s.resetByFault(h.stream, code, consumed);
        }
        stream.receive_window -= h.len;
        stream.received += h.len - padding;
        const most = s.limits.body_bytes_max;
        if (stream.input == .open and most != 0 and stream.received > most and stream.method != .CONNECT) {
            stream.input = .refused;
            s.takeRefused(stream, h, behind, ends);
            return .tell(consumed, h.stream, .{ .refused = too_much_content });
        }
        if (stream.input != .open) {
            s.takeRefused(stream, h, behind, ends);
            return .{ .on = consumed };
        }
        if (padding > 0) s.restore(stream, padding);
        s.noise.earn(cost.contentEarns(h.len - padding));
        s.reading = .{ .content = .{
            .stream = h.stream,
            .left = h.len - padding,
            .padding = if (padding > 0) padding - 1 else 0,
            .ends = ends,
        } };
        return .{ .on = consumed };
    }

    const too_much_content: Refusal = .{ .status = 413, .detail = "content too large" };

    fn dataFault(s: *const Session, stream: *const Stream, h: frame.Header, content: u32, ends: bool) ?Code {
        if (stream.input == .ended) return .stream_closed;
        if (h.len > stream.receive_window) return .flow_control_error;
        // A request that was refused may as well be wrong about its length.
        if (stream.input != .open) return null;
        const total = stream.received + content;
        const promised = stream.promised orelse return null;
        _ = s;
        return if (total > promised or (ends and total < promised)) .protocol_error else null;
    }

    /// DATA of a stream whose content nobody reads.
    fn takeRefused(s: *Session, stream: *Stream, h: frame.Header, behind: u32, ends: bool) void {
        s.reading = .{ .skip = behind };
        s.restore(stream, h.len);
        if (stream.input == .lingering) return s.lingerOn(stream, h.len, ends);
        if (ends) stream.input = .ended;
    }

    /// Takes note of content on a lingering stream: its response is complete, and its request goes on.
    fn lingerOn(s: *Session, stream: *Stream, len: u32, ends: bool) void {
        if (ends) return s.endLinger(stream);
        if (len > stream.linger_left) return s.doom(stream, .no_error);
        stream.linger_left -= len;
    }

    /// The request of a stream that lingers has ended. curl 7.88 does not notice that all is said until it
    /// hears something more.
    fn endLinger(s: *Session, stream: *Stream) void {
        s.close(stream, .ended);
        s.control.ping(0, linger_ping);
    }

    /// DATA of a stream that is closed.
    fn readStrayData(s: *Session, h: frame.Header, behind: u32, consumed: usize) Move {
        switch (s.streams.closed.recall(h.stream)) {
            .closed => |how| switch (how) {
                // The frame was on its way when the stream was reset.
                .by_us => {},
                .by_peer => {
                    s.throwAway(behind, h.len);
                    return s.resetByFault(h.stream, .stream_closed, consumed);
                },
                .ended => return s.fail(.stream_closed, "DATA on a closed stream"),
            },
            .forgotten => {},
            .never_opened => return s.fail(.stream_closed, "DATA on a stream that was left out"),
        }
        if (!s.noise.spend(cost.small)) return s.tired();
        s.throwAway(behind, h.len);
        return .{ .on = consumed };
    }

    /// Reads over the rest of a frame, which counts as taken.
    fn throwAway(s: *Session, behind: u32, whole: u32) void {
        s.reading = .{ .skip = behind };
        s.credit(whole);
    }

    fn readContent(s: *Session, content: *Reading.Content, bytes: []const u8) Move {
        if (content.left > 0) {
            if (bytes.len == 0) return .need_more;
            const piece = bytes[0..@min(bytes.len, content.left)];
            content.left -= @intCast(piece.len);
            const stream = s.streams.find(content.stream).?;
            if (stream.input != .open) {
                s.restore(stream, @intCast(piece.len));
                return .{ .on = piece.len };
            }
            stream.unreleased += @intCast(piece.len);
            return .tell(piece.len, content.stream, .{ .body = piece });
        }
        if (content.padding > 0) {
            if (bytes.len == 0) return .need_more;
            const len = @min(bytes.len, content.padding);
            content.padding -= @intCast(len);
            return .{ .on = len };
        }
        const id = content.stream;
        const ends = content.ends;
        s.reading = .frame;
        if (!ends) return .{ .on = 0 };
        const stream = s.streams.find(id).?;
        if (stream.input == .lingering) {
            s.endLinger(stream);
            return .{ .on = 0 };
        }
        stream.input = .ended;
        return .tell(0, id, .end);
    }

    /// A header block begins. What can be told without its fields is told before they are there.
    fn readHeaders(s: *Session, h: frame.Header, rest: []const u8, head: *Head) Move {
        if (h.stream % 2 == 0) return s.fail(.protocol_error, "stream with an even number");
        if (!s.isIdle(h.stream) and s.streams.find(h.stream) == null) {
            switch (s.streams.closed.recall(h.stream)) {
                .closed => |how| if (how == .ended) {
                    return s.fail(.stream_closed, "HEADERS on a closed stream");
                },
                .forgotten => {},
                .never_opened => return s.fail(.protocol_error, "stream number lower than one before"),
            }
        }
        // Beside the block there are a dependency and a padding.
        if (h.len > blockBytesMax(s.config) + 1 + frame.priority_bytes + 255) return s.longBlock();
        if (s.isIdle(h.stream) and s.lacksPlace()) {
            s.places_wanted = true;
            return .tell(0, 0, .places);
        }
        if (!h.has(frame.flag.end_headers)) {
            s.reading = .{ .block = .{ .scanned = frame.header_bytes + h.len, .size = h.len, .frames = 1 } };
            return .{ .on = 0 };
        }
        if (rest.len < h.len) return .need_more;
        switch (frame.fragment(h, rest[0..h.len])) {
            .fault => |fault| return s.blame(fault, h.stream, h.len),
            .bytes => |block| {
                s.reading = .frame;
                return s.takeBlock(h, rest[0..h.len], block, frame.header_bytes + h.len, head);
            },
        }
    }

    /// Whether a stream that is opened needs memory which the owner was not asked for yet: it is asked once.
    fn lacksPlace(s: *const Session) bool {
        return !s.streams.hasPlace() and s.streams.places.len < s.config.streams_max and !s.places_wanted;
    }

    fn longBlock(s: *Session) Move {
        return s.fail(.enhance_your_calm, "header block too long");
    }

    /// Goes on with a block of several frames.
    fn readBlock(s: *Session, block: *Reading.Block, bytes: []const u8, head: *Head) Move {
        const first: frame.Header = .parse(bytes[0..frame.header_bytes]);
        while (true) {
            if (bytes.len < block.scanned + frame.header_bytes) return .need_more;
            const h: frame.Header = .parse(bytes[block.scanned..][0..frame.header_bytes]);
            if (h.kind != .continuation or h.stream != first.stream) {
                return s.fail(.protocol_error, "header block interrupted");
            }
            if (h.fault(0)) |fault| return s.fail(fault.code, fault.detail);
            const end = block.scanned + frame.header_bytes + h.len;
            const is_last = h.has(frame.flag.end_headers);
            if (block.size + h.len > blockBytesMax(s.config) or block.frames == block_frames_max) {
                return s.longBlock();
            }
            if (is_last and bytes.len < end) return .need_more;
            if (!s.noise.spend(cost.empty)) return s.tired();
            block.scanned = end;
            block.size += h.len;
            block.frames += 1;
            if (is_last) return s.joinBlock(first, bytes[0..end], head);
        }
    }

    /// The block's frames are complete: `bytes` are all of them.
    fn joinBlock(s: *Session, first: frame.Header, bytes: []const u8, head: *Head) Move {
        const payload = bytes[frame.header_bytes..][0..first.len];
        const room = s.room[@sizeOf(decoder_file.Bench) + fields_file.roomBytes(s.config.list_bytes_max) ..];
        var len: usize = 0;
        switch (frame.fragment(first, payload)) {
            .fault => |fault| return s.fail(fault.code, fault.detail),
            .bytes => |part| {
                @memcpy(room[0..part.len], part);
                len = part.len;
            },
        }
        var at = frame.header_bytes + first.len;
        while (at < bytes.len) {
            const h: frame.Header = .parse(bytes[at..][0..frame.header_bytes]);
            @memcpy(room[len..][0..h.len], bytes[at + frame.header_bytes ..][0..h.len]);
            len += h.len;
            at += frame.header_bytes + h.len;
        }
        s.reading = .frame;
        return s.takeBlock(first, payload, room[0..len], bytes.len, head);
    }

    /// A whole header block. `payload` is that of its first frame.
    fn takeBlock(
        s: *Session,
        h: frame.Header,
        payload: []const u8,
        bytes: []const u8,
        consumed: usize,
        head: *Head,
    ) Move {
        var block = s.decoder.begin(bytes, @ptrCast(s.room.ptr));
        const dependency = payload[@intFromBool(h.has(frame.flag.padded))..];
        const fault: ?Fault = if (h.has(frame.flag.priority))
            frame.dependencyFault(h.stream, dependency[0..frame.priority_bytes])
        else
            null;
        const copied = s.decoder.copied;
        const move = if (s.streams.find(h.stream)) |stream|
            s.takeTrailers(stream, h, fault, &block, consumed, head)
        else if (s.isIdle(h.stream))
            s.takeRequest(h, fault, &block, consumed, head)
        else
            s.takeStray(h.stream, &block, consumed);
        const taken = move catch return s.fail(.compression_error, "header block cannot be decoded");
        // A peer that says each field once cannot mean more than the tables hold.
        const bomb = s.decoder.copied - copied -| tables_bytes;
        if (bomb > 0 and !s.noise.spend(cost.bomb(bomb))) return s.tired();
        return taken;
    }

    const Undecodable = decoder_file.Error;

    /// The text in both tables of a decoder, in bytes; the static one has less than half as much.
    const tables_bytes = 2 * decoder_file.table_bytes_max;

    fn bounds(s: *const Session) fields_file.Bounds {
        return .{
            .limits = s.limits,
            .list_bytes_max = s.config.list_bytes_max,
            .extended_connect = s.config.extended_connect,
        };
    }

    /// Memory for the text of fields. Behind it lies a block that was joined of several frames.
    fn textRoom(s: *const Session) []u8 {
        return s.room[@sizeOf(decoder_file.Bench)..][0..fields_file.roomBytes(s.config.list_bytes_max)];
    }

    fn takeRequest(
        s: *Session,
        h: frame.Header,
        fault: ?Fault,
        block: *decoder_file.Block,
        consumed: usize,
        head: *Head,
    ) Undecodable!Move {
        s.last_stream = h.stream;
        const ends = h.has(frame.flag.end_stream);
        if (s.ending == .last_streams) {
            try fields_file.skip(block, s.textRoom());
            s.streams.closed.note(h.stream, .by_us);
            return if (s.noise.spend(cost.small)) .{ .on = consumed } else s.tired();
        }
        s.last_taken = h.stream;
        if (s.streams.count >= s.config.streams_max or !s.streams.hasPlace()) {
            try fields_file.skip(block, s.textRoom());
            // The owner may have memory when the next one asks.
            s.places_wanted = false;
            return s.refuseStream(h.stream, .refused_stream, consumed);
        }
        const outcome = try fields_file.request(block, s.bounds(), ends, s.textRoom(), head);
        if (fault) |one| return s.refuseStream(h.stream, one.code, consumed);
        if (outcome == .malformed) return s.refuseStream(h.stream, .protocol_error, consumed);
        const stream = s.streams.open(h.stream).?;
        s.places_wanted = false;
        stream.method = head.method;
        stream.send_window = s.peer_window;
        stream.receive_window = s.stream_window;
        stream.input = if (ends) .ended else if (outcome == .refused) .refused else .open;
        const early = s.takeEarly(h.stream);
        stream.priority = early orelse .{};
        if (outcome == .refused) return .tell(consumed, h.stream, .{ .refused = outcome.refused });
        const facts = outcome.accepted;
        stream.promised = facts.content_length;
        if (facts.priority) |priority| {
            // A PRIORITY_UPDATE that came before the request was sent later than its Priority field.
            if (early == null) stream.priority = priority;
            s.peer_prioritises = true;
        }
        if (head.expect_continue) stream.continuation = .expected;
        s.noise.earn(cost.request_earns);
        return .tell(consumed, h.stream, .request);
    }

    /// A stream ends before anybody has heard of it.
    fn refuseStream(s: *Session, id: StreamId, code: Code, consumed: usize) Move {
        s.streams.closed.note(id, .by_us);
        return s.resetByFault(id, code, consumed);
    }

    /// A block on a stream that is open: it ends the content.
    fn takeTrailers(
        s: *Session,
        stream: *Stream,
        h: frame.Header,
        fault: ?Fault,
        block: *decoder_file.Block,
        consumed: usize,
        head: *Head,
    ) Undecodable!Move {
        const ends = h.has(frame.flag.end_stream);
        const outcome = try fields_file.trailers(block, s.bounds(), s.textRoom(), head);
        const code: ?Code = if (stream.input == .ended)
            .stream_closed
        else if (fault) |one|
            one.code
        else if (!ends or outcome == .malformed)
            .protocol_error
        else if (stream.input == .open and stream.received != stream.promised orelse stream.received)
            .protocol_error
        else
            null;
        if (code) |one| return s.resetByFault(stream.id, one, consumed);
        if (stream.input == .lingering) {
            s.endLinger(stream);
            return .{ .on = consumed };
        }
        if (stream.input == .refused) {
            stream.input = .ended;
            return .{ .on = consumed };
        }
        if (outcome == .refused) {
            stream.input = .ended;
            return .tell(consumed, stream.id, .{ .refused = outcome.refused });
        }
        s.reading = .{ .content = .{ .stream = stream.id, .left = 0, .padding = 0, .ends = true } };
        return .tell(consumed, stream.id, .trailers);
    }

    /// A block on a stream that is closed: see readHeaders.
    fn takeStray(
        s: *Session,
        id: StreamId,
        block: *decoder_file.Block,
        consumed: usize,
    ) Undecodable!Move {
        try fields_file.skip(block, s.textRoom());
        const memory = s.streams.closed.recall(id);
        if (memory == .closed and memory.closed == .by_peer) return s.resetByFault(
            id,
            .stream_closed,
            consumed,
        );
        return if (s.noise.spend(cost.small)) .{ .on = consumed } else s.tired();
    }

    fn takeEarly(s: *Session, id: StreamId) ?Priority {
        for (&s.early) |*early| if (early.stream == id) {
            early.stream = 0;
            return early.priority;
        };
        return null;
    }

    fn readPriority(s: *Session, h: frame.Header, payload: *const [frame.priority_bytes]u8, len: usize) Move {
        const fault = frame.dependencyFault(h.stream, payload) orelse return .{ .on = len };
        if (s.isIdle(h.stream)) return s.fail(fault.code, fault.detail);
        return s.resetByFault(h.stream, fault.code, len);
    }

    fn readReset(s: *Session, h: frame.Header, payload: *const [4]u8, len: usize) Move {
        if (s.isIdle(h.stream)) return s.fail(.protocol_error, "RST_STREAM on an idle stream");
        const stream = s.streams.find(h.stream) orelse return .{ .on = len };
        const owner = stream.owner;
        s.resets_received +%= 1;
        const is_answered = stream.input == .lingering;
        s.close(stream, .by_peer);
        if (is_answered) return .{ .on = len };
        if (!s.resets.spend(1)) return s.fail(.enhance_your_calm, "too many streams were reset");
        const code: Code = @fromBackingInt(std.mem.readInt(u32, payload, .big));
        return .tell(len, h.stream, .{ .reset = .{ .by = .peer, .code = code, .owner = owner } });
    }

    fn readSettings(s: *Session, h: frame.Header, payload: []const u8, len: usize) Move {
        if (h.has(frame.flag.ack)) {
            s.settingsSeen();
            return .{ .on = len };
        }
        var window = s.peer_window;
        var at: usize = 0;
        while (at < payload.len) : (at += frame.setting_bytes) {
            const pair: frame.SettingValue = .parse(payload[at..][0..frame.setting_bytes]);
            if (pair.setting.fault(pair.value)) |fault| return s.fail(fault.code, fault.detail);
            switch (pair.setting) {
                .header_table_size => s.encoder.setTableSize(pair.value),
                .initial_window_size => window = pair.value,
                .max_frame_size => s.peer_frame_bytes = pair.value,
                // We push nothing, and open no streams.
                else => {},
            }
        }
        if (!s.setPeerWindow(window)) return s.fail(.flow_control_error, "window too large");
        s.control.settingsAck();
        return .{ .on = len };
    }

    /// Changes the windows of all streams by as much (RFC 9113 section 6.9.2); false: one would be too large.
    fn setPeerWindow(s: *Session, window: i64) bool {
        const change = window - s.peer_window;
        if (change == 0) return true;
        s.peer_window = window;
        var it = s.streams.iterator();
        while (it.next()) |stream| {
            stream.send_window += change;
            if (stream.send_window > frame.max_31) return false;
            s.streams.settle(stream);
        }
        return true;
    }

    /// The peer knows our settings now.
    fn settingsSeen(s: *Session) void {
        if (s.settings_acknowledged) return;
        s.settings_acknowledged = true;
        const change = s.config.stream_window_bytes - s.stream_window;
        s.stream_window += change;
        if (change == 0) return;
        var it = s.streams.iterator();
        while (it.next()) |stream| stream.receive_window += change;
    }

    fn readPing(s: *Session, h: frame.Header, payload: *const [frame.ping_bytes]u8, len: usize) Move {
        if (!h.has(frame.flag.ack)) {
            s.control.ping(frame.flag.ack, payload);
        } else if (s.ending == .announced and std.mem.eql(u8, payload, drain_ping)) {
            s.drain();
        }
        return .{ .on = len };
    }

    fn readWindowUpdate(s: *Session, h: frame.Header, payload: *const [4]u8, len: usize) Move {
        const more = frame.number31(payload);
        if (h.stream == 0) {
            if (more == 0) return s.fail(.protocol_error, "WINDOW_UPDATE by 0");
            s.send_window += more;
            if (s.send_window > frame.max_31) return s.fail(.flow_control_error, "window too large");
            return .{ .on = len };
        }
        if (s.isIdle(h.stream)) return s.fail(.protocol_error, "WINDOW_UPDATE on an idle stream");
        const stream = s.streams.find(h.stream) orelse return .{ .on = len };
        if (more == 0) return s.resetByFault(h.stream, .protocol_error, len);
        if (stream.send_window + more > frame.max_31) return s.resetByFault(
            h.stream,
            .flow_control_error,
            len,
        );
        stream.send_window += more;
        s.streams.settle(stream);
        return .{ .on = len };
    }

    fn readPriorityUpdate(s: *Session, payload: []const u8, len: usize) Move {
        const id = frame.number31(payload[0..4]);
        if (id == 0) return s.fail(.protocol_error, "PRIORITY_UPDATE for stream 0");
        const priority: Priority = .parse(payload[4..]);
        s.peer_prioritises = true;
        if (s.streams.find(id)) |stream| {
            stream.priority = priority;
            s.streams.settle(stream);
        } else if (s.isIdle(id)) {
            const early = for (&s.early) |*early| {
                if (early.stream == id) break early;
            } else &s.early[s.early_next];
            if (early.stream != id) s.early_next = (s.early_next + 1) % early_max;
            early.* = .{ .stream = id, .priority = priority };
        }
        return .{ .on = len };
    }

    /// Content of the stream is done with: its peer may send as much again. More than was handed over: an
    /// assertion fails. A stream that is gone has given back all of it.
    pub fn release(s: *Session, id: StreamId, bytes: u32) void {
        const stream = s.streams.find(id) orelse return;
        // A lingering stream has given back all of its content.
        if (stream.input == .lingering) return;
        stream.unreleased -= bytes;
        s.restore(stream, bytes);
    }

    /// The peer may send so much more, on a stream and on all. Who lingers was told before what may come.
    fn restore(s: *Session, stream: *Stream, bytes: u32) void {
        if (stream.input != .lingering) {
            stream.unannounced += bytes;
            s.announceOn(stream);
        }
        s.credit(bytes);
    }

    fn credit(s: *Session, bytes: u32) void {
        s.unannounced += bytes;
        if (s.unannounced < s.config.connection_window_bytes / 2 or s.control.isFull()) return;
        s.control.credit(0, @intCast(s.unannounced));
        s.receive_window += s.unannounced;
        s.unannounced = 0;
    }

    fn announceOn(s: *Session, stream: *Stream) void {
        switch (stream.input) {
            .open => if (stream.unannounced < s.config.stream_window_bytes / 2 + 1) return,
            .lingering => if (stream.unannounced == 0) return,
            .ended, .refused => return,
        }
        if (s.control.isFull()) {
            s.streams_unannounced = true;
            return;
        }
        s.control.credit(stream.id, @intCast(stream.unannounced));
        stream.receive_window += stream.unannounced;
        stream.unannounced = 0;
    }

    /// A stream is over. What its reader holds of it counts no more.
    fn close(s: *Session, stream: *Stream, how: streams_file.Closed.How) void {
        const held = s.letGo(stream);
        s.streams.close(stream, how);
        s.credit(held);
    }

    /// Closes a stream whose end the peer has yet to be told.
    fn doom(s: *Session, stream: *Stream, code: Code) void {
        const held = s.letGo(stream);
        s.streams.doom(stream, code);
        s.credit(held);
    }

    /// Bytes of the stream's content that count against the connection's window no more.
    fn letGo(s: *Session, stream: *const Stream) u32 {
        s.lingering -= @intFromBool(stream.input == .lingering);
        switch (s.reading) {
            .content => |content| if (content.stream == stream.id) {
                s.reading = .{ .skip = content.left + content.padding };
                return stream.unreleased + content.left;
            },
            else => {},
        }
        return stream.unreleased;
    }

    /// Ends a stream at once; what is queued for it is not sent. Nothing happens if it is gone, or if its
    /// response is not.
    pub fn reset(s: *Session, id: StreamId, code: Code) void {
        const stream = s.streams.find(id) orelse return;
        if (stream.input != .lingering) s.doom(stream, code);
    }

    /// Ends a stream in the midst of its response: what is queued for it goes out, then it is reset. Nothing
    /// else may be queued for it.
    pub fn cut(s: *Session, id: StreamId, code: Code) void {
        const stream = s.streams.find(id) orelse return;
        if (stream.queued == 0) return s.reset(id, code);
        stream.doomed = .{ .id = id, .code = code };
    }

    /// Time has passed: resets the streams that have lingered since before the last call.
    pub fn endLingering(s: *Session) void {
        var it = s.streams.iterator();
        while (it.next()) |stream| if (stream.input == .lingering) {
            if (stream.lingers_long) s.doom(stream, .no_error) else stream.lingers_long = true;
        };
    }

    /// Gives a stream a number, by which the session's owner finds the stream's exchange. `Reset.owner`,
    /// `Emission.owner` and `ownerOf` tell it.
    pub fn own(s: *Session, id: StreamId, owner: u64) void {
        if (s.streams.find(id)) |stream| stream.owner = owner;
    }

    /// The owner of a stream; 0: none, or the stream is gone.
    pub fn ownerOf(s: *const Session, id: StreamId) u64 {
        const stream = s.streams.find(id) orelse return 0;
        return stream.owner;
    }

    /// The last emission, of a stream's content, does not leave after all: its stream is reset.
    pub fn takeBack(s: *Session, emission: Emission) void {
        s.send_window += emission.content;
        if (s.streams.find(emission.stream)) |stream| return s.doom(stream, .internal_error);
        if (s.control.takes(4)) s.control.reset(emission.stream, .internal_error);
    }

    /// Counts of streams that have ended before their time.
    pub fn tally(s: *const Session) Tally {
        return .{
            .resets_received = s.resets_received,
            .resets_sent = s.control.resets,
            .ending = s.control.ending,
        };
    }

    /// The window that a stream's queued content lacks: its own, or the connection's, which other streams
    /// have used up.
    pub fn lacks(s: *const Session, id: StreamId) enum { nothing, window, common_window } {
        const stream = s.streams.find(id) orelse return .nothing;
        if (stream.queued == 0) return .nothing;
        if (stream.send_window <= 0) return .window;
        return if (s.send_window <= 0) .common_window else .nothing;
    }

    /// Ends the connection for a reason that is no frame's: nothing is read any more, and no frame goes out
    /// but those that are owed.
    pub fn abandon(s: *Session, code: Code, detail: []const u8) void {
        if (s.ending != .broken) _ = s.fail(code, detail);
    }

    /// Asks the peer to open no further streams, once.
    pub fn announceEnd(s: *Session) void {
        if (s.ending == .no) s.drain();
    }

    /// Whether a block of trailers has to be emitted to its end before anything else may be said.
    pub fn isContinuing(s: *const Session) bool {
        return s.continuing != 0;
    }

    /// Asks the peer to open no further streams; when it has seen that, or at the second call, those that
    /// it opens are not looked at any more. Then the connection is over when the streams are (`isDone`).
    pub fn drain(s: *Session) void {
        switch (s.ending) {
            .no => {
                s.control.goaway(frame.max_31, .no_error, "");
                s.control.ping(0, drain_ping);
                s.ending = .announced;
            },
            .announced => {
                s.control.goaway(s.last_taken, .no_error, "");
                s.ending = .last_streams;
            },
            .last_streams, .broken => {},
        }
    }

    /// Whether nothing will be said any more.
    pub fn isDone(s: *const Session) bool {
        return switch (s.ending) {
            .no, .announced => false,
            .last_streams => s.streams.count == 0 and !s.streams.hasDoomed() and s.control.len == 0,
            .broken => s.control.len == 0,
        };
    }

    /// Whether requests may still come.
    pub fn persists(s: *const Session) bool {
        return s.ending == .no;
    }

    fn mayStart(s: *const Session, id: StreamId) ?*Stream {
        if (s.ending == .broken) return null;
        const stream = s.streams.find(id) orelse return null;
        return if (stream.order == .unstarted) stream else null;
    }

    /// Writes a response's head, and its content if that can leave at once. `out` holds at least
    /// startSize(fields) + lines.text.len + content.len bytes. After an error nothing has changed but
    /// `bad_field`.
    pub fn start(s: *Session, id: StreamId, r: Response, out: []u8) StartError!Started {
        assert(r.content.len == 0 or r.rest == 0);
        const stream = s.mayStart(id) orelse return error.OutOfOrder;
        if (r.status < 200 or r.status > status.code_max) return error.InvalidStatus;
        const shape: Shape = .of(stream.method, r.status);
        const policy: response_fields.Policy = if (shape.passesLength()) .head else .head_without_length;
        var found: response_fields.Found = if (r.lines) |lines| lines.found else .{};
        try s.check(r.fields, policy, &found);
        const len = r.content.len + r.rest;
        const tells = shape == .sized and found.content_length == null and r.end;
        const length = if (tells) len else found.content_length;
        const before: Order = .of(shape.content(length, .delimited));
        const order = try before.body(len, r.end);
        // Nothing fails from here on.
        const payload = len > 0 and before != .discarded;
        const ends = order == .ended and !payload;
        var writer: response_head.Writer = .begin(&s.encoder, out, r.status);
        writer.putFields(r.fields, policy);
        if (r.lines) |lines| writer.putLines(lines, shape);
        if (r.date) |text| {
            if (!found.date) writer.put(.date, "date", text);
        }
        if (tells or shape == .empty) writer.putLength(if (shape == .empty) 0 else len);
        var started: Started = .{ .len = writer.finish(id, ends), .queued = false, .payload = payload };
        stream.order = order;
        stream.dropped_field = stream.dropped_field or found.dropped;
        if (ends) {
            s.finish(stream);
        } else if (payload) {
            if (r.rest == 0 and s.mayLeave(stream, len)) {
                started.len += s.sendAtOnce(stream, r.content, out[started.len..]);
            } else {
                started.queued = true;
                stream.queued = len;
                s.streams.settle(stream);
            }
        } else s.streams.settle(stream);
        return started;
    }

    /// Whether this many bytes of content would leave with the head of a response, if `start` is given them:
    /// nothing is to be sent before them, and nothing keeps them.
    pub fn leavesAtOnce(s: *const Session, id: StreamId, len: usize) bool {
        const stream = s.streams.find(id) orelse return false;
        return s.mayLeave(stream, len);
    }

    fn mayLeave(s: *const Session, stream: *const Stream, len: u64) bool {
        return len <= frame.payload_bytes_max and
            len <= stream.send_window and len <= s.send_window and s.streams.isQuiet();
    }

    fn sendAtOnce(s: *Session, stream: *Stream, content: []const u8, out: []u8) usize {
        const ends = stream.isAnswered();
        const header_of: frame.Header = .{
            .len = @intCast(content.len),
            .kind = .data,
            .flags = if (ends) frame.flag.end_stream else 0,
            .stream = stream.id,
        };
        header_of.write(out[0..frame.header_bytes]);
        @memcpy(out[frame.header_bytes..][0..content.len], content);
        stream.send_window -= @intCast(content.len);
        s.send_window -= @intCast(content.len);
        if (ends) s.finish(stream);
        return frame.header_bytes + content.len;
    }

    /// The response has been framed to its end. The rest of the request is of no use to anybody. The stream
    /// could be reset now (RFC 9113 section 8.1), but there are clients that do not look at their answer then
    /// (curl 7.88): a rest that is short may come, as in HTTP/1.1. Nobody else hears of it. All of its credit
    /// is told now, since curl 7.88 reads nothing behind an answer whose length it knows.
    fn finish(s: *Session, stream: *Stream) void {
        if (stream.input == .ended) return s.close(stream, .ended);
        const most = s.config.linger_bytes_max;
        const rest = (stream.promised orelse stream.received) -| stream.received;
        if (stream.method == .CONNECT or rest > most) return s.doom(stream, .no_error);
        s.credit(stream.unreleased);
        stream.unreleased = 0;
        stream.unannounced = @intCast(@max(0, most - stream.receive_window));
        stream.input = .lingering;
        stream.linger_left = most;
        stream.owner = 0;
        s.lingering += 1;
        s.announceOn(stream);
        s.streams.settle(stream);
    }

    fn check(
        s: *Session,
        fields: []const Field,
        policy: response_fields.Policy,
        found: *response_fields.Found,
    ) response_fields.FieldError!void {
        for (fields, 0..) |field, index| {
            _ = response_fields.goesOut(field.name(), field.value(), policy, found) catch |err| {
                s.noteBadField(index);
                return err;
            };
        }
    }

    /// Keeps the index of a field that is refused.
    pub fn noteBadField(s: *Session, index: usize) void {
        s.bad_field = std.math.cast(u16, index) orelse std.math.maxInt(u16);
    }

    /// Writes an interim response, 100 or 102..199; the result is the number of bytes. `out` holds at least
    /// startSize(fields) bytes. After an error nothing has changed but `bad_field`.
    pub fn informational(
        s: *Session,
        id: StreamId,
        code: u16,
        fields: []const Field,
        out: []u8,
    ) StartError!usize {
        const stream = s.mayStart(id) orelse return error.OutOfOrder;
        if (code < 100 or code > 199 or code == 101) return error.InvalidStatus;
        var found: response_fields.Found = .{};
        try s.check(fields, .head_without_length, &found);
        var writer: response_head.Writer = .begin(&s.encoder, out, code);
        writer.putFields(fields, .head_without_length);
        stream.dropped_field = stream.dropped_field or found.dropped;
        if (code == 100 and stream.continuation == .expected) stream.continuation = .sent;
        return writer.finish(id, false);
    }

    /// Writes what lets a waiting client send its content: once, if it waits, nothing of it has come, and no
    /// response has been started; otherwise nothing. `out` holds at least continue_bytes_max.
    pub fn takeContinue(s: *Session, id: StreamId, out: []u8) usize {
        const stream = s.mayStart(id) orelse return 0;
        if (stream.continuation != .expected or stream.received > 0 or stream.input != .open) return 0;
        return s.informational(id, 100, &.{}, out) catch unreachable;
    }

    /// Says how to queue a piece of content. After an error nothing has changed.
    pub fn planBody(s: *const Session, id: StreamId, piece: Piece) BodyError!Plan {
        const stream = s.streams.find(id) orelse return error.OutOfOrder;
        const payload = piece.len > 0 and stream.order != .discarded;
        return .{
            .payload = payload,
            .change = .{
                .order = try stream.order.body(piece.len, piece.last),
                .dropped_hop_field = false,
                .queued = if (payload) piece.len else 0,
            },
        };
    }

    /// Writes trailers, to be queued behind the content: those of a response without content are discarded.
    /// `out` holds at least endSize(trailers) bytes. After an error nothing has changed but `bad_field`.
    pub fn planEnd(s: *Session, id: StreamId, trailers: []const Field, out: []u8) EndError!Plan {
        const stream = s.streams.find(id) orelse return error.OutOfOrder;
        var plan: Plan = .{ .change = .{
            .order = try stream.order.end(trailers.len > 0),
            .dropped_hop_field = false,
        } };
        var found: response_fields.Found = .{};
        for (trailers, 0..) |field, index| {
            const name, const value = .{ field.name(), field.value() };
            const goes = response_fields.goesOut(name, value, .trailers, &found) catch |err| {
                s.noteBadField(index);
                switch (err) {
                    error.InvalidFieldName => return error.InvalidFieldName,
                    error.InvalidFieldValue => return error.InvalidFieldValue,
                    error.InvalidContentLength => unreachable,
                }
            };
            if (!goes or stream.order == .discarded) continue;
            plan.len += encoder_file.stateless(.fromName(name), name, value, out[plan.len..]);
        }
        plan.change.trailers = @intCast(plan.len);
        plan.change.dropped_hop_field = found.dropped;
        return plan;
    }

    /// Keeps what a plan has made of a stream: its bytes are queued. Nothing else was planned for it since.
    pub fn apply(s: *Session, id: StreamId, plan: Plan) void {
        const stream = s.streams.find(id).?;
        stream.order = plan.change.order;
        stream.queued += plan.change.queued;
        stream.trailers += plan.change.trailers;
        stream.dropped_field = stream.dropped_field or plan.change.dropped_hop_field;
        s.streams.settle(stream);
    }

    /// Writes the answer to a CONNECT with a protocol: from now on both directions are plain bytes, which are
    /// queued with `pour`. Its status is 200, so it has a date (RFC 9110 section 6.6.1). The result is the
    /// number of bytes. `out` holds at least startSize(fields).
    pub fn switchProtocols(
        s: *Session,
        id: StreamId,
        fields: []const Field,
        date: *const [29]u8,
        out: []u8,
    ) StartError!usize {
        const stream = s.mayStart(id) orelse return error.OutOfOrder;
        if (stream.method != .CONNECT or stream.input != .open) return error.OutOfOrder;
        var found: response_fields.Found = .{};
        try s.check(fields, .head_without_length, &found);
        var writer: response_head.Writer = .begin(&s.encoder, out, 200);
        writer.putFields(fields, .head_without_length);
        if (!found.date) writer.put(.date, "date", date);
        stream.order = .tunnel;
        stream.priority.incremental = true;
        return writer.finish(id, false);
    }

    /// `len` more bytes wait in the queue of a tunnel; with `last` none follow.
    pub fn pour(s: *Session, id: StreamId, len: u64, last: bool) void {
        const stream = s.streams.find(id) orelse return;
        assert(stream.order == .tunnel);
        stream.queued += len;
        if (last) stream.order = .ended;
        s.streams.settle(stream);
    }

    /// `total` bytes wait in the queue of a stream, if that is a tunnel; with `last` none follow.
    pub fn pourAll(s: *Session, id: StreamId, total: u64, last: bool) void {
        const stream = s.streams.find(id) orelse return;
        if (stream.order != .tunnel) return;
        if (last or total > stream.queued) s.pour(id, total - stream.queued, last);
    }

    /// Content that was just queued, the last of its stream, is not to be framed before it is revealed.
    pub fn withhold(s: *Session, id: StreamId, len: u64) void {
        const stream = s.streams.find(id) orelse return;
        assert(stream.withheld == 0 and stream.queued >= len);
        stream.withheld = len;
        stream.queued -= len;
        s.streams.settle(stream);
    }

    /// How much of a stream's content is withheld.
    pub fn withheld(s: *const Session, id: StreamId) u64 {
        const stream = s.streams.find(id) orelse return 0;
        return stream.withheld;
    }

    /// The first `total` bytes of a stream's content may be framed.
    pub fn reveal(s: *Session, id: StreamId, total: u64) void {
        const stream = s.streams.find(id) orelse return;
        const len = @min(stream.withheld, total -| stream.queued);
        stream.withheld -= len;
        stream.queued += len;
        s.streams.settle(stream);
    }

    /// Says what is to be sent next: first what is owed, then what matters most. `out` holds at least
    /// emission_bytes_max. Content is at most `budget` bytes, more than 0. Null: nothing can be sent now.
    pub fn emit(s: *Session, out: []u8, budget: usize) ?Emission {
        assert(budget > 0);
        if (s.continuing != 0) return s.emitTrailers(s.streams.find(s.continuing).?, out);
        s.announceAll();
        if (s.control.len > 0) return .{ .head = s.control.take(out) };
        if (s.ending == .broken) return null;
        if (s.streams.nextDoomed()) |doomed| {
            s.control.reset(doomed.id, doomed.code);
            return .{ .head = s.control.take(out) };
        }
        const stream = s.streams.first(s.send_window > 0) orelse return null;
        if (stream.queued == 0 and stream.trailers > 0) return s.emitTrailers(stream, out);
        const window: u64 = @intCast(@max(0, @min(stream.send_window, s.send_window)));
        const len: u32 = @intCast(@min(@min(stream.queued, budget), @min(window, s.peer_frame_bytes)));
        stream.queued -= len;
        const is_cut = stream.isCut();
        const ends = !is_cut and stream.isDone() and stream.queued == 0 and stream.trailers == 0;
        const data: frame.Header = .{
            .len = len,
            .kind = .data,
            .flags = if (ends) frame.flag.end_stream else 0,
            .stream = stream.id,
        };
        data.write(out[0..frame.header_bytes]);
        stream.send_window -= len;
        s.send_window -= len;
        s.noise.earn(cost.contentEarns(len));
        const emission: Emission = .{
            .head = frame.header_bytes,
            .content = len,
            .stream = stream.id,
            .owner = stream.owner,
            .ends = ends,
        };
        if (ends) {
            s.finish(stream);
        } else if (is_cut and stream.queued == 0) {
            s.doom(stream, stream.doomed.code);
        } else {
            s.streams.settle(stream);
            if (stream.priority.incremental or !s.peer_prioritises) s.streams.rotate(stream);
        }
        return emission;
    }

    /// A frame of trailers; `continuing` says whether the next one has to follow at once.
    fn emitTrailers(s: *Session, stream: *Stream, out: []u8) Emission {
        const is_first = s.continuing == 0;
        const prefix = if (is_first) s.encoder.begin(out[frame.header_bytes..]) else 0;
        const len: u32 = @intCast(@min(stream.trailers, frame.payload_bytes_max - prefix));
        stream.trailers -= len;
        const is_last = stream.trailers == 0;
        const end_headers: u8 = if (is_last) frame.flag.end_headers else 0;
        const block: frame.Header = .{
            .len = @intCast(prefix + len),
            .kind = if (is_first) .headers else .continuation,
            .flags = if (is_first) end_headers | frame.flag.end_stream else end_headers,
            .stream = stream.id,
        };
        block.write(out[0..frame.header_bytes]);
        s.continuing = if (is_last) 0 else stream.id;
        const emission: Emission = .{
            .head = frame.header_bytes + prefix,
            .content = len,
            .stream = stream.id,
            .owner = stream.owner,
            .ends = is_last,
        };
        if (is_last) s.finish(stream);
        return emission;
    }

    /// Tells of credit for which there was no room before.
    fn announceAll(s: *Session) void {
        s.credit(0);
        if (!s.streams_unannounced) return;
        s.streams_unannounced = false;
        var it = s.streams.iterator();
        while (it.next()) |stream| s.announceOn(stream);
    }

    /// Whether `emit` may have something to say.
    pub fn wantsToEmit(s: *const Session) bool {
        if (s.control.len > 0 or s.continuing != 0) return true;
        if (s.ending == .broken) return false;
        return s.streams.hasDoomed() or s.streams.first(s.send_window > 0) != null;
    }

    /// The bytes that the peer has to send soon. The caller sets a deadline for them, because the session has
    /// no clock. `unread`: bytes that were fed and not consumed.
    pub fn owes(s: *const Session, unread: usize) Debt {
        return switch (s.reading) {
            .preface, .first_frame => .opening,
            .frame => if (unread > 0)
                .frame
            else if (!s.settings_acknowledged)
                .acknowledgement
            else
                .nothing,
            .block, .skip => .frame,
            .content => |content| if (content.left + content.padding > 0) .content else .nothing,
            .broken => .nothing,
        };
    }

    /// The request asks for no content: HEAD.
    pub fn asksForHead(s: *const Session, id: StreamId) bool {
        const stream = s.streams.find(id) orelse return false;
        return stream.method == .HEAD;
    }

    /// The request has been read to its end, or nobody reads it.
    pub fn inputComplete(s: *const Session, id: StreamId) bool {
        const stream = s.streams.find(id) orelse return true;
        return stream.input != .open;
    }

    /// The response's head has been written. A stream that is gone needs none.
    pub fn responseStarted(s: *const Session, id: StreamId) bool {
        const stream = s.streams.find(id) orelse return true;
        return stream.order != .unstarted;
    }

    /// Content of the response is sent: not to HEAD, nor with 204 and 304.
    pub fn sendsContent(s: *const Session, id: StreamId) bool {
        const stream = s.streams.find(id) orelse return false;
        return stream.order != .unstarted and stream.order != .discarded;
    }

    /// Whether trailers that are given to `planEnd` are not refused.
    pub fn takesTrailers(s: *const Session, id: StreamId) bool {
        const stream = s.streams.find(id) orelse return false;
        return stream.order.takesTrailers();
    }

    /// Whether some client waits for the rest of a response, or for its end.
    pub fn responseOpen(s: *const Session) bool {
        var it = s.streams.iterator();
        while (it.next()) |stream| if (stream.order.isOpen() or stream.waits()) return true;
        return false;
    }

    /// The application has sent a field of this response that is not its business, and was dropped.
    pub fn droppedField(s: *const Session, id: StreamId) bool {
        const stream = s.streams.find(id) orelse return false;
        return stream.dropped_field;
    }

    /// Asserts what always holds between calls.
    pub fn invariants(s: *const Session) void {
        s.streams.invariants();
        s.encoder.invariants();
        s.decoder.table.invariants();
        assert(s.control.len <= control_file.bytes_max);
        assert(s.streams.count <= @min(s.config.streams_max, s.streams.places.len));
        var lingering: usize = 0;
        var it = s.streams.iterator();
        while (it.next()) |stream| lingering += @intFromBool(stream.input == .lingering);
        assert(lingering == s.lingering);
        if (s.reading == .content) assert(s.streams.find(s.reading.content.stream) != null);
    }
};
