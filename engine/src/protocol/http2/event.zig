//! Answers of an HTTP/2 session: the event that bytes caused, and the frame that is to be sent next. They are
//! values: nothing here calls back. Does not know: how the session finds them (session.zig).
const Code = @import("frame.zig").Code;
const Order = @import("../http/order.zig").Order;
const Refusal = @import("../event.zig").Refusal;
const StreamId = @import("../event.zig").Stream;

/// The session's observation of the peer's bytes; `Step.stream` says on which stream.
pub const Event = union(enum) {
    /// Nothing can be said without more bytes.
    need_more,
    /// Frames are owed: nothing is read before `emit` was called.
    control,
    /// A stream is about to be opened for which there is no place, and there may be more than there are:
    /// `rehouse` gives more, or it is refused.
    places,
    /// A request's head was written into the caller's `Head`.
    request,
    /// A piece of content; valid as long as the bytes that were fed.
    body: []const u8,
    /// A trailer section: `Head.text` and `Head.fields` hold it.
    trailers,
    /// The request's content has been read to its end.
    end,
    /// A request that is answered with this status, and that nobody else hears of unless `.request` has said
    /// so. What comes of its content is thrown away.
    refused: Refusal,
    /// The stream is gone: content that is queued for it will not be sent.
    reset: Reset,
    /// The connection is to be closed when the frames that are owed are sent, and all streams are gone.
    failed: Failure,

    /// The side that has ended a stream, and the reason. `owner`: the number that `own` gave the stream.
    pub const Reset = struct { by: enum { peer, us }, code: Code, owner: u64 };
    /// The rule that the peer broke.
    pub const Failure = struct { code: Code, detail: []const u8 };
};

/// The answer to one call of `feed`.
pub const Step = struct {
    /// Leading bytes that the session is done with.
    consumed: usize,
    /// The stream that the event is about; 0: the connection.
    stream: StreamId = 0,
    event: Event,
};

/// The content that is to be sent next.
pub const Emission = struct {
    /// Bytes of framing that were written: they go first.
    head: usize,
    /// Bytes of the stream's queue that go behind the framing.
    content: u32 = 0,
    stream: StreamId = 0,
    /// The word of the stream's owner, also when the stream has ended.
    owner: u64 = 0,
    /// Whether the response is complete with this emission, and the stream's queue empty.
    ends: bool = false,
};

/// The output of `start`.
pub const Started = struct {
    /// Bytes that were written, with those of the content unless the caller has to queue it.
    len: usize,
    /// Whether the caller has to queue the content.
    queued: bool,
    /// Whether content is sent: not to HEAD, nor with 204 and 304.
    payload: bool,
    /// Bytes that go behind queued content. Valid as long as the program.
    suffix: []const u8 = "",
};

/// A change of a stream that `apply` carries out, which cannot fail. The content is queued before its bytes.
pub const Plan = @import("../http1/session.zig").Plan;

/// Frames that a peer has begun, or owes without being asked.
pub const Debt = enum {
    nothing,
    /// The preface and its first settings.
    opening,
    /// The rest of a frame or of a header block.
    frame,
    /// The rest of a frame with content: its stream's reader waits for it.
    content,
    /// An answer to our settings (RFC 9113 section 6.5.3).
    acknowledgement,
};

/// Counts of streams and connections that ended before their time.
pub const Tally = struct {
    /// Streams that the peer has reset.
    resets_received: u32,
    /// Resets that were framed; as counters of 32 bits, both begin anew at some time.
    resets_sent: u32,
    /// Why the peer was told to open no further streams (GOAWAY), the last time; null: it was not.
    ending: ?Code,
};
