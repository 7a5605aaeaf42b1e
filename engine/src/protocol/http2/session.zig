//! The state machine of an HTTP/2 connection: unread bytes in, at most one event out; commands in, frames
//! out. RFC 9113. Does not know: sockets, buffers other than the arguments, clocks, and the maker of
//! responses.
//!
//! Input: `feed` is called until `.need_more`. Every event names its stream. After `.control`, `emit` must be
//! called before more is read. Delivered content counts against the windows until it is released (`release`),
//! so a peer sends no more than its readers take.
//!
//! Output: a response's head is a block that depends on earlier blocks. `start`, `informational` and
//! `switchProtocols` check first, which may fail and changes nothing; the bytes that they write must then be
//! sent in the order of the calls. The caller queues content without framing (`planBody`, `planEnd`, each
//! followed by `apply`); it is framed when it is sent: for each frame, `emit` tells from which stream's queue
//! how many bytes follow.
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
/// The state of an open stream. The session's owner provides memory for some of them at first, and for
/// `Config.streams_max` when the session asks for it.
pub const Stream = streams_file.Stream;
/// Fields that are sent as references after the first time (see `lendTable`).
pub const SentFields = encoder_file.Memory;

/// The maximum memory of the peer's table of fields, in u64s.
pub const table_units_max = @sizeOf(decoder_file.Bench) / @sizeOf(u64);

/// The costs of the peer's frames for `noise`, and the amounts that it earns.
const cost = struct {
    /// PING, PRIORITY, WINDOW_UPDATE, unknown frames, and frames for closed streams.
    const small = 1;
    /// DATA without content that does not end its stream; CONTINUATION.
    const empty = 4;
    /// SETTINGS, because each may change the windows of all streams.
    const settings = 10;
    /// An accepted request, in thousandths.
    const request_earns = 4000;

    /// The cost of a header block that decodes to `bytes` bytes more than its length explains.
    fn bomb(bytes: u64) u32 {
        return @intCast(@min(1 + bytes / 512, std.math.maxInt(u32)));
    }

    /// Content in either direction, in thousandths: a unit for 250 bytes, so that small windows cost the peer
    /// nothing.
    fn contentEarns(len: u64) u64 {
        return len * 4;
    }
};

/// The maximum number of frames of a header block.
const block_frames_max = 64;

/// The number of bytes that `emit` needs.
pub const emission_bytes_max = control_file.bytes_max;

/// The number of bytes that `takeContinue` needs.
pub const continue_bytes_max = frame.header_bytes + encoder_file.block_overhead;

/// The part of a frame to which the peer's next bytes belong.
const Reading = union(enum) {
    preface,
    /// A frame, which must be SETTINGS.
    first_frame,
    frame,
    /// A header block of several frames, which stay unconsumed until all have come.
    block: Block,
    content: Content,
    /// The number of bytes to skip, because they have no meaning here.
    skip: u32,
    /// The session reads no more bytes.
    broken,

    const Block = struct {
        /// The number of bytes of the frames that were parsed, including their headers.
        scanned: u32,
        /// The number of bytes of their payloads.
        size: u32,
        frames: u32,
    };

    const Content = struct { stream: StreamId, left: u32, padding: u32, ends: bool };
};

/// The result of a reading function.
const Move = union(enum) {
    need_more,
    /// This number of bytes was consumed, without an event.
    on: usize,
    told: Step,

    fn tell(consumed: usize, stream: StreamId, what: Event) Move {
        return .{ .told = .{ .consumed = consumed, .stream = stream, .event = what } };
    }
};

/// The initial window of all streams and connections, in bytes (RFC 9113 section 6.9.2).
const default_window = 65_535;

/// The payload of the PING whose acknowledgement shows that the peer has read our first GOAWAY.
const drain_ping = "draining";

/// The payload of a PING that makes a client read its socket; the acknowledgement is ignored.
const linger_ping = "all said";

/// The number of priorities that are stored for streams that are not open yet (RFC 9218 section 7.1).
const early_max = 8;

/// The state of one connection. No deinit: it owns nothing.
pub const Session = struct {
    limits: *const Limits,
    config: *const Config,
    room: Room,
    reading: Reading = .preface,
    /// The progress of the connection's end.
    ending: enum {
        no,
        /// The peer was asked to open no more streams.
        announced,
        /// The peer was told the last stream; streams that it opens now are ignored.
        last_streams,
        /// Only frames in `control` are sent.
        broken,
    } = .no,
    streams: Streams,
    decoder: decoder_file.Decoder = .{},
    encoder: encoder_file.Encoder = .{},
    control: Control = .{},
    /// The highest stream number that the peer has used.
    last_stream: StreamId = 0,
    /// The highest stream number that was handled: the number for GOAWAY, after which it must not grow.
    last_taken: StreamId = 0,
    /// The peer's windows for our content, of the connection and of a new stream, in bytes.
    send_window: i64 = default_window,
    peer_window: i64 = default_window,
    /// The maximum payload that the peer accepts, in bytes.
    peer_frame_bytes: u32 = frame.payload_bytes_max,
    /// Our windows for the peer's content, of the connection and of a new stream, in bytes.
    receive_window: i64 = default_window,
    stream_window: i64,
    /// The connection's credit of which the peer was not told yet, in bytes.
    unannounced: u32 = 0,
    /// There are streams whose credit could not be announced because `control` was full.
    streams_unannounced: bool = false,
    settings_acknowledged: bool = false,
    /// The peer has sent a priority; until then all responses take turns.
    peer_prioritises: bool = false,
    early: [early_max]Early = @splat(.{}),
    early_next: u8 = 0,
    /// The owner was asked for more places and has provided none since.
    places_wanted: bool = false,
    /// The number of streams whose response was framed and whose request has not ended.
    lingering: u16 = 0,
    /// The stream whose block of trailers is being sent; 0: none.
    continuing: StreamId = 0,
    resets: Patience,
    noise: Patience,
    resets_received: u32 = 0,
    /// After InvalidFieldName, InvalidFieldValue or InvalidContentLength: the index of the refused field.
    bad_field: u16 = 0,

    const Early = struct { stream: StreamId = 0, priority: Priority = .{} };

    /// Makes the session of a new connection. All arguments must outlive it; `places` may be empty. `room`
    /// has roomBytes(config) bytes and may be shared by sessions: it has the fields from the last `feed` of
    /// any of them.
    pub fn init(limits: *const Limits, config: *const Config, places: []Stream, room: Room) Session {
        assert(room.len >= roomBytes(config));
        assert(config.connection_window_bytes >= default_window);
        var s: Session = .{
            .limits = limits,
            .config = config,
            .room = room,
            .streams = .init(places),
            // A peer that has not read our settings uses the default window.
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

    /// Moves all streams to `places`, which must have room for all open streams and all that must still be
    /// reset; returns the former memory.
    pub fn rehouse(s: *Session, places: []Stream) []Stream {
        s.places_wanted = false;
        return s.streams.rehouse(places);
    }

    /// Lends memory for fields that responses repeat; without it each response has all of its fields in full.
    /// Must be called between two blocks, while none is lent.
    pub fn lendTable(s: *Session, memory: *SentFields) void {
        s.encoder.lend(memory);
    }

    /// Whether no open stream and no unread input needs `places` or the memory of `lendTable`.
    pub fn mayHandBack(s: *const Session) bool {
        return s.streams.count == 0 and !s.streams.hasDoomed() and s.reading == .frame;
    }

    /// Gives `places` and the memory of `lendTable` back. Must be called only if `mayHandBack`. The next
    /// stream asks for places again.
    pub fn handBack(s: *Session) void {
        assert(s.mayHandBack());
        _ = s.rehouse(&.{});
        _ = s.encoder.takeBack();
    }

    /// Whether the table of the peer's fields needs more memory. Then, before the next `feed` of any session
    /// with this room, the owner calls `rehouseTable` or abandons the session.
    pub fn outgrows(s: *const Session) bool {
        return s.decoder.lodges;
    }

    /// The memory that the peer's table needs, in u64s.
    pub fn tableUnits(s: *const Session) usize {
        return s.decoder.units();
    }

    /// Moves the peer's table to `memory` of at least `tableUnits`, at most `table_units_max`. The caller
    /// owns the former memory again.
    pub fn rehouseTable(s: *Session, memory: []u64) void {
        s.decoder.rehouse(memory);
    }

    /// Refills the budgets for the time that has passed. `now` is in milliseconds. Called before a round of
    /// `feed`.
    pub fn wait(s: *Session, now: u64) void {
        s.resets.wait(now);
        s.noise.wait(now);
    }

    /// Reads more bytes. `bytes`: all bytes that were received and not consumed. `head` is filled at
    /// `.request` and `.trailers`, and valid until the next call. Must be called again until `.need_more`.
    pub fn feed(s: *Session, bytes: []const u8, head: *Head) Step {
        assert(s.continuing == 0);
        var at: usize = 0;
        while (true) {
            // Our settings must be sent before any response.
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

    /// Reads the next frame. All frames except DATA and ignored ones are read when they are complete.
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

    /// Ends the stream or the connection of a fault. `payload` bytes of the current frame are still to be
    /// skipped.
    fn blame(s: *Session, fault: Fault, stream: StreamId, payload: u32) Move {
        if (fault.scope == .connection) return s.fail(fault.code, fault.detail);
        s.reading = .{ .skip = payload };
        if (s.isIdle(stream)) return s.fail(fault.code, fault.detail);
        return s.resetByFault(stream, fault.code, frame.header_bytes);
    }

    /// Ends a stream whose peer has broken a rule, after `consumed` bytes of the current frame. It counts
    /// against `resets`, as if the peer had reset the stream itself.
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

    /// Ends the connection because the peer has broken a rule.
    fn fail(s: *Session, code: Code, detail: []const u8) Move {
        s.reading = .broken;
        s.ending = .broken;
        s.control.goaway(s.last_taken, code, detail);
        return .tell(0, 0, .{ .failed = .{ .code = code, .detail = detail } });
    }

    /// Whether the number was not used for a stream yet.
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
        // The content of a refused request may have a wrong length.
        if (stream.input != .open) return null;
        const total = stream.received + content;
        const promised = stream.promised orelse return null;
        _ = s;
        return if (total > promised or (ends and total < promised)) .protocol_error else null;
    }

    /// Skips DATA of a stream whose content is not read.
    fn takeRefused(s: *Session, stream: *Stream, h: frame.Header, behind: u32, ends: bool) void {
        s.reading = .{ .skip = behind };
        s.restore(stream, h.len);
        if (stream.input == .lingering) return s.lingerOn(stream, h.len, ends);
        if (ends) stream.input = .ended;
    }

    /// Counts content on a lingering stream, whose response is complete while its request goes on.
    fn lingerOn(s: *Session, stream: *Stream, len: u32, ends: bool) void {
        if (ends) return s.endLinger(stream);
        if (len > stream.linger_left) return s.doom(stream, .no_error);
        stream.linger_left -= len;
    }

    /// Closes a lingering stream whose request has ended, and sends a PING, because curl 7.88 does not notice
    /// the end until it receives more.
    fn endLinger(s: *Session, stream: *Stream) void {
        s.close(stream, .ended);
        s.control.ping(0, linger_ping);
    }

    /// Handles DATA of a closed stream.
    fn readStrayData(s: *Session, h: frame.Header, behind: u32, consumed: usize) Move {
        switch (s.streams.closed.recall(h.stream)) {
            .closed => |how| switch (how) {
                // The frame may have been sent before the peer read of the reset.
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

    /// Skips the rest of a frame and returns its window.
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

    /// Begins to read a header block. Errors that do not depend on its fields are reported before the block
    /// is complete.
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
        // Besides the block there may be a dependency and padding.
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

    /// Whether a new stream needs more places and the owner was not asked yet; it is asked once.
    fn lacksPlace(s: *const Session) bool {
        return !s.streams.hasPlace() and s.streams.places.len < s.config.streams_max and !s.places_wanted;
    }

    fn longBlock(s: *Session) Move {
        return s.fail(.enhance_your_calm, "header block too long");
    }

    /// Continues a block of several frames.
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

    /// Joins the frames of a complete block. `bytes`: all frames.
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

    /// Reads a complete header block. `payload`: of its first frame.
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
        // A block that refers to each field once copies no more than the tables contain.
        const bomb = s.decoder.copied - copied -| tables_bytes;
        if (bomb > 0 and !s.noise.spend(cost.bomb(bomb))) return s.tired();
        return taken;
    }

    const Undecodable = decoder_file.Error;

    /// Twice a table's maximum text, in bytes, for both tables of a decoder; the static one has less than
    /// half of that.
    const tables_bytes = 2 * decoder_file.table_bytes_max;

    fn bounds(s: *const Session) fields_file.Bounds {
        return .{
            .limits = s.limits,
            .list_bytes_max = s.config.list_bytes_max,
            .extended_connect = s.config.extended_connect,
        };
    }

    /// The memory for the text of fields. A block joined from several frames lies behind it.
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
            // The owner may have memory for the next stream.
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
            // A PRIORITY_UPDATE that came before the request is newer than the request's Priority field.
            if (early == null) stream.priority = priority;
            s.peer_prioritises = true;
        }
        if (head.expect_continue) stream.continuation = .expected;
        s.noise.earn(cost.request_earns);
        return .tell(consumed, h.stream, .request);
    }

    /// Resets a stream that the owner does not know.
    fn refuseStream(s: *Session, id: StreamId, code: Code, consumed: usize) Move {
        s.streams.closed.note(id, .by_us);
        return s.resetByFault(id, code, consumed);
    }

    /// Reads a block on an open stream, which ends its content.
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

    /// Handles a block on a closed stream (see readHeaders).
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
                // The others concern pushes and streams of ours, which do not exist.
                else => {},
            }
        }
        if (!s.setPeerWindow(window)) return s.fail(.flow_control_error, "window too large");
        s.control.settingsAck();
        return .{ .on = len };
    }

    /// Changes the windows of all streams by the same amount (RFC 9113 section 6.9.2); false: one would be
    /// too large.
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

    /// Applies our settings after the peer has acknowledged them.
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

    /// Returns `bytes` bytes of a stream's delivered content to the windows, so that the peer may send as
    /// much again. Asserts that they were delivered. A closed stream has returned all bytes already.
    pub fn release(s: *Session, id: StreamId, bytes: u32) void {
        const stream = s.streams.find(id) orelse return;
        // A lingering stream has returned all of its content.
        if (stream.input == .lingering) return;
        stream.unreleased -= bytes;
        s.restore(stream, bytes);
    }

    /// Adds to the windows of a stream and of the connection. A lingering stream has announced its whole
    /// window before.
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

    /// Closes a stream. Its content that the reader holds no longer counts against the connection's window.
    fn close(s: *Session, stream: *Stream, how: streams_file.Closed.How) void {
        const held = s.letGo(stream);
        s.streams.close(stream, how);
        s.credit(held);
    }

    /// Closes a stream that must still be reset for the peer.
    fn doom(s: *Session, stream: *Stream, code: Code) void {
        const held = s.letGo(stream);
        s.streams.doom(stream, code);
        s.credit(held);
    }

    /// The number of bytes of the stream's content to return to the connection's window.
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

    /// Ends a stream at once, without its queued content. Has no effect if the stream is closed or its
    /// response is complete.
    pub fn reset(s: *Session, id: StreamId, code: Code) void {
        const stream = s.streams.find(id) orelse return;
        if (stream.input != .lingering) s.doom(stream, code);
    }

    /// Ends a stream in the middle of its response: its queued content is sent, and then it is reset. No more
    /// content may be queued for it.
    pub fn cut(s: *Session, id: StreamId, code: Code) void {
        const stream = s.streams.find(id) orelse return;
        if (stream.queued == 0) return s.reset(id, code);
        stream.doomed = .{ .id = id, .code = code };
    }

    /// Resets the streams that were lingering at the last call already.
    pub fn endLingering(s: *Session) void {
        var it = s.streams.iterator();
        while (it.next()) |stream| if (stream.input == .lingering) {
            if (stream.lingers_long) s.doom(stream, .no_error) else stream.lingers_long = true;
        };
    }

    /// Gives a stream a number by which the owner finds the stream's exchange. It is in `Reset.owner` and
    /// `Emission.owner`, and `ownerOf` returns it.
    pub fn own(s: *Session, id: StreamId, owner: u64) void {
        if (s.streams.find(id)) |stream| stream.owner = owner;
    }

    /// Returns the number from `own`; 0: none, or the stream is closed.
    pub fn ownerOf(s: *const Session, id: StreamId) u64 {
        const stream = s.streams.find(id) orelse return 0;
        return stream.owner;
    }

    /// Undoes the last emission, which had content and cannot be sent: its stream is reset.
    pub fn takeBack(s: *Session, emission: Emission) void {
        s.send_window += emission.content;
        if (s.streams.find(emission.stream)) |stream| return s.doom(stream, .internal_error);
        if (s.control.takes(4)) s.control.reset(emission.stream, .internal_error);
    }

    /// Returns the numbers of streams that ended early.
    pub fn tally(s: *const Session) Tally {
        return .{
            .resets_received = s.resets_received,
            .resets_sent = s.control.resets,
            .ending = s.control.ending,
        };
    }

    /// The window that a stream's queued content waits for: its own, or the connection's, which other streams
    /// have used up.
    pub fn lacks(s: *const Session, id: StreamId) enum { nothing, window, common_window } {
        const stream = s.streams.find(id) orelse return .nothing;
        if (stream.queued == 0) return .nothing;
        if (stream.send_window <= 0) return .window;
        return if (s.send_window <= 0) .common_window else .nothing;
    }

    /// Ends the connection for a reason other than a frame: no more is read, and only the frames in `control`
    /// are sent.
    pub fn abandon(s: *Session, code: Code, detail: []const u8) void {
        if (s.ending != .broken) _ = s.fail(code, detail);
    }

    /// Asks the peer once to open no more streams.
    pub fn announceEnd(s: *Session) void {
        if (s.ending == .no) s.drain();
    }

    /// Whether a block of trailers must be emitted to its end before other output.
    pub fn isContinuing(s: *const Session) bool {
        return s.continuing != 0;
    }

    /// Asks the peer to open no more streams. When the peer has acknowledged that, or at the second call, new
    /// streams are ignored, and the connection ends when the open streams have ended (`isDone`).
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

    /// Whether no more output will come.
    pub fn isDone(s: *const Session) bool {
        return switch (s.ending) {
            .no, .announced => false,
            .last_streams => s.streams.count == 0 and !s.streams.hasDoomed() and s.control.len == 0,
            .broken => s.control.len == 0,
        };
    }

    /// Whether more requests may come.
    pub fn persists(s: *const Session) bool {
        return s.ending == .no;
    }

    fn mayStart(s: *const Session, id: StreamId) ?*Stream {
        if (s.ending == .broken) return null;
        const stream = s.streams.find(id) orelse return null;
        return if (stream.order == .unstarted) stream else null;
    }

    /// Writes a response's head, and its content if that can be sent at once. `out` has at least
    /// startSize(fields) + lines.text.len + content.len bytes. After an error nothing has changed except
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
        // No error is possible from here on.
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

    /// Whether `start` would send this many bytes of content with the head: no other output must be sent
    /// before them, and the windows allow it.
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

    /// Ends a stream whose response was framed completely, or lets it linger if its request has not ended.
    /// Resetting it (RFC 9113 section 8.1) is allowed, but some clients then ignore the response (curl 7.88).
    /// So a short rest of the request may still come, as in HTTP/1.1, and is discarded here. Credit for all
    /// of it is announced now, because curl 7.88 reads nothing after a response of known length.
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

    /// Sets `bad_field`.
    pub fn noteBadField(s: *Session, index: usize) void {
        s.bad_field = std.math.cast(u16, index) orelse std.math.maxInt(u16);
    }

    /// Writes an interim response, 100 or 102..199, and returns the number of bytes. `out` has at least
    /// startSize(fields) bytes. After an error nothing has changed except `bad_field`.
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

    /// Writes the response that makes a waiting client send its content, and returns the number of bytes:
    /// once, if the client waits, has sent no content, and no response has started; otherwise 0. `out` has at
    /// least continue_bytes_max bytes.
    pub fn takeContinue(s: *Session, id: StreamId, out: []u8) usize {
        const stream = s.mayStart(id) orelse return 0;
        if (stream.continuation != .expected or stream.received > 0 or stream.input != .open) return 0;
        return s.informational(id, 100, &.{}, out) catch unreachable;
    }

    /// Plans to queue a piece of content. After an error nothing has changed.
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

    /// Plans the end of the response, and writes trailers, to be queued after the content; those of a
    /// response without content are discarded. `out` has at least endSize(trailers) bytes. After an error
    /// nothing has changed except `bad_field`.
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

    /// Applies a plan whose bytes are queued. No other plan for the stream may have been applied since it was
    /// made.
    pub fn apply(s: *Session, id: StreamId, plan: Plan) void {
        const stream = s.streams.find(id).?;
        stream.order = plan.change.order;
        stream.queued += plan.change.queued;
        stream.trailers += plan.change.trailers;
        stream.dropped_field = stream.dropped_field or plan.change.dropped_hop_field;
        s.streams.settle(stream);
    }

    /// Writes the response that accepts a CONNECT with a protocol, and returns the number of bytes. From then
    /// on both directions are plain bytes, queued with `pour`. The status is 200, so there is a date (RFC
    /// 9110 section 6.6.1). `out` has at least startSize(fields) bytes.
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

    /// Tells that `len` more bytes were queued for a tunnel; `last`: no more will follow.
    pub fn pour(s: *Session, id: StreamId, len: u64, last: bool) void {
        const stream = s.streams.find(id) orelse return;
        assert(stream.order == .tunnel);
        stream.queued += len;
        if (last) stream.order = .ended;
        s.streams.settle(stream);
    }

    /// Tells that `total` bytes are queued for a stream, if it is a tunnel; `last`: no more will follow.
    pub fn pourAll(s: *Session, id: StreamId, total: u64, last: bool) void {
        const stream = s.streams.find(id) orelse return;
        if (stream.order != .tunnel) return;
        if (last or total > stream.queued) s.pour(id, total - stream.queued, last);
    }

    /// Prevents the framing of the last `len` bytes that were queued for a stream, until `reveal`.
    pub fn withhold(s: *Session, id: StreamId, len: u64) void {
        const stream = s.streams.find(id) orelse return;
        assert(stream.withheld == 0 and stream.queued >= len);
        stream.withheld = len;
        stream.queued -= len;
        s.streams.settle(stream);
    }

    /// The number of bytes of a stream's content that are withheld.
    pub fn withheld(s: *const Session, id: StreamId) u64 {
        const stream = s.streams.find(id) orelse return 0;
        return stream.withheld;
    }

    /// Allows the framing of the first `total` bytes of a stream's content.
    pub fn reveal(s: *Session, id: StreamId, total: u64) void {
        const stream = s.streams.find(id) orelse return;
        const len = @min(stream.withheld, total -| stream.queued);
        stream.withheld -= len;
        stream.queued += len;
        s.streams.settle(stream);
    }

    /// Tells the next output: first the frames in `control`, then the content with the highest priority.
    /// `out` has at least emission_bytes_max bytes. The content is at most `budget` bytes, which is more than
    /// 0. Null: nothing can be sent now.
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

    /// Writes a frame of trailers; `continuing` is set if another one must directly follow.
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

    /// Announces credit for which `control` had no room before.
    fn announceAll(s: *Session) void {
        s.credit(0);
        if (!s.streams_unannounced) return;
        s.streams_unannounced = false;
        var it = s.streams.iterator();
        while (it.next()) |stream| s.announceOn(stream);
    }

    /// Whether `emit` may have output.
    pub fn wantsToEmit(s: *const Session) bool {
        if (s.control.len > 0 or s.continuing != 0) return true;
        if (s.ending == .broken) return false;
        return s.streams.hasDoomed() or s.streams.first(s.send_window > 0) != null;
    }

    /// The bytes that the peer must send soon. The caller sets a deadline for them, because the session has
    /// no clock. `unread`: the number of bytes that were fed and not consumed.
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

    /// Whether the method is HEAD.
    pub fn asksForHead(s: *const Session, id: StreamId) bool {
        const stream = s.streams.find(id) orelse return false;
        return stream.method == .HEAD;
    }

    /// Whether the request was read to its end, or its content is not read.
    pub fn inputComplete(s: *const Session, id: StreamId) bool {
        const stream = s.streams.find(id) orelse return true;
        return stream.input != .open;
    }

    /// Whether the response's head was written. True for a closed stream.
    pub fn responseStarted(s: *const Session, id: StreamId) bool {
        const stream = s.streams.find(id) orelse return true;
        return stream.order != .unstarted;
    }

    /// Whether the response's content is sent: not to HEAD, nor with 204 and 304.
    pub fn sendsContent(s: *const Session, id: StreamId) bool {
        const stream = s.streams.find(id) orelse return false;
        return stream.order != .unstarted and stream.order != .discarded;
    }

    /// Whether `planEnd` accepts trailers.
    pub fn takesTrailers(s: *const Session, id: StreamId) bool {
        const stream = s.streams.find(id) orelse return false;
        return stream.order.takesTrailers();
    }

    /// Whether a client waits for the rest of a response, or for its end.
    pub fn responseOpen(s: *const Session) bool {
        var it = s.streams.iterator();
        while (it.next()) |stream| if (stream.order.isOpen() or stream.waits()) return true;
        return false;
    }

    /// Whether a field of the response was dropped because only the engine may send it.
    pub fn droppedField(s: *const Session, id: StreamId) bool {
        const stream = s.streams.find(id) orelse return false;
        return stream.dropped_field;
    }

    /// Asserts the invariants of the session.
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
