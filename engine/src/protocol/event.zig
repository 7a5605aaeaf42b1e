//! Events: a session's answer to bytes that it is fed. They are values: nothing here allocates or calls back.
//! Does not know: which protocol produced an event, and who handles it.

/// Why a peer's bytes were not accepted. The peer's fault is a value, never an error.
pub const Refusal = struct {
    /// The status that answers the request, 400..599.
    status: u16,
    /// Static plain text for the answer's body and for a log; at most `detail_bytes_max` bytes, no line end.
    detail: []const u8,

    /// Bound on `detail`, in bytes.
    pub const detail_bytes_max = 120;
};

/// A session's observation of the peer's bytes.
pub const Event = union(enum) {
    /// Nothing can be said without more bytes. What was not consumed must be offered again,
    /// with more behind it.
    need_more,
    /// A head is complete and was written into the caller's `Head`.
    request,
    /// A piece of the request's content: a slice of the bytes that were fed, and valid as long as they are.
    body: []const u8,
    /// A trailer section is complete: `Head.text` and `Head.fields` hold it.
    trailers,
    /// The request's content has been read to its end.
    end,
    /// The bytes are not acceptable. The session reads nothing more after this.
    refused: Refusal,
};

/// A session's number for one exchange of its connection.
pub const Stream = u32;

/// The answer to one call of `feed`.
pub const Step = struct {
    /// Leading bytes that the session is done with; they need not be offered again.
    consumed: usize,
    /// The stream that the event is about.
    stream: Stream = 0,
    event: Event,
};
