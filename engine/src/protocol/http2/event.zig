//! Results of an HTTP/2 session: the event that bytes caused, and the frame that is to be sent next. They are
//! values: nothing here calls back. Does not know: how a session finds them (session.zig).
const Code = @import("frame.zig").Code;
const Order = @import("../http/order.zig").Order;
const Refusal = @import("../event.zig").Refusal;
const StreamId = @import("../event.zig").Stream;

/// An event that the session found in the peer's bytes; `Step.stream` is its stream.
pub const Event = union(enum) {
    /// More bytes are needed.
    need_more,
    /// Frames are queued: the session reads no more before `emit` is called.
    control,
    /// A stream is about to be opened, and all places are in use. The owner may add places with `rehouse`;
    /// otherwise the stream is refused.
    places,
    /// A request's head was written to the caller's `Head`.
    request,
    /// A piece of content; valid as long as the fed bytes.
    body: []const u8,
    /// A trailer section, in `Head.text` and `Head.fields`.
    trailers,
    /// The request's content was read to its end.
    end,
    /// A request that the session's owner must refuse with this status. It has no other event except an
    /// earlier `.request`, and its further content is discarded.
    refused: Refusal,
    /// The stream has ended: content that is queued for it will not be sent.
    reset: Reset,
    /// The connection must be closed when the queued frames are sent and all streams have ended.
    failed: Failure,

    /// The side that has ended a stream, and the reason. `owner`: the number from `own`.
    pub const Reset = struct { by: enum { peer, us }, code: Code, owner: u64 };
    /// The rule that the peer has broken.
    pub const Failure = struct { code: Code, detail: []const u8 };
};

/// The result of one call of `feed`.
pub const Step = struct {
    /// The number of leading bytes that were read.
    consumed: usize,
    /// The stream of the event; 0: the connection.
    stream: StreamId = 0,
    event: Event,
};

/// The output that is to be sent next.
pub const Emission = struct {
    /// The number of bytes of framing that were written. They are sent first.
    head: usize,
    /// The number of bytes from the stream's queue that follow the framing.
    content: u32 = 0,
    stream: StreamId = 0,
    /// The number from the stream's owner (`own`), also after the stream has ended.
    owner: u64 = 0,
    /// The response is complete with this emission, and the stream's queue is empty.
    ends: bool = false,
};

/// The result of `start`.
pub const Started = struct {
    /// The number of bytes that were written, including the content unless the caller must queue it.
    len: usize,
    /// The caller must queue the content.
    queued: bool,
    /// Content is sent: not to HEAD, nor with 204 and 304.
    payload: bool,
    /// Bytes that follow queued content. Static.
    suffix: []const u8 = "",
};

/// A change of a stream, which `apply` makes and which cannot fail. The caller queues the content before.
pub const Plan = @import("../http1/session.zig").Plan;

/// Bytes that the peer must send.
pub const Debt = enum {
    nothing,
    /// The connection preface and the first SETTINGS.
    opening,
    /// The rest of a frame or of a header block.
    frame,
    /// The rest of a frame with content, for which the stream's reader waits.
    content,
    /// The acknowledgement of our settings (RFC 9113 section 6.5.3).
    acknowledgement,
};

/// The number of streams that ended early, and the end of the connection.
pub const Tally = struct {
    /// The number of streams that the peer has reset.
    resets_received: u32,
    /// The number of resets that were queued; both numbers wrap around at 32 bits.
    resets_sent: u32,
    /// The code of the last GOAWAY, by which the peer must open no further streams; null: none was sent.
    ending: ?Code,
};
