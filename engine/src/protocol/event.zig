//! Events: the results of feeding bytes to a session. They are values: nothing here allocates or calls back.
//! Does not know: the protocol that produced an event, and its handler.

/// The reason why a peer's bytes are refused. A fault of the peer is a value, never an error.
pub const Refusal = struct {
    /// The status of the response, 400..599.
    status: u16,
    /// Static plain text for the response's content and for a log; at most `detail_bytes_max` bytes, no line
    /// end.
    detail: []const u8,

    /// The maximum length of `detail`, in bytes, so that a refusal fits into a buffer of fixed size.
    pub const detail_bytes_max = 120;
};

/// An event that the session found in the peer's bytes.
pub const Event = union(enum) {
    /// More bytes are needed. Bytes that were not consumed must be offered again, followed by more.
    need_more,
    /// A head is complete and was written to the caller's `Head`.
    request,
    /// A piece of the request's content: a slice of the fed bytes, valid as long as they are.
    body: []const u8,
    /// A trailer section is complete, in `Head.text` and `Head.fields`.
    trailers,
    /// The request's content has been read to its end.
    end,
    /// The bytes are refused. The session reads no more.
    refused: Refusal,
};

/// The number of an exchange on its connection.
pub const Stream = u32;

/// The result of one call of `feed`.
pub const Step = struct {
    /// The number of leading bytes that were read; they must not be offered again.
    consumed: usize,
    stream: Stream = 0,
    event: Event,
};
