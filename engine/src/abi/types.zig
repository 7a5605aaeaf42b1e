//! The structs and constants of peregrine.h, laid out as C sees them. A change here is a change there;
//! test/abi_test.zig compares both. Structs grow at their ends only: `sized.zig` reads and writes as much of
//! one as the caller knows.
const hub = @import("hub");
const peregrine = @import("peregrine");
const sized = @import("sized.zig");

pub const Ticket = u64;

/// The codes that functions return: PEREGRINE_OK and so on.
pub const Code = struct {
    pub const ok = 0;
    pub const done = 1;
    pub const blocked = 2;
    pub const gone = -1;
    pub const out_of_order = -2;
    pub const status = -3;
    pub const field_name = -4;
    pub const field_value = -5;
    pub const content_length = -6;
    pub const too_long = -7;
    pub const too_short = -8;
    pub const trailers = -9;
    pub const memory = -10;
    pub const unknown = -11;
    pub const range = -12;
    pub const system = -13;
    pub const address = -14;
    pub const close_code = -15;
    pub const utf8 = -16;
    pub const not_websocket = -17;
    pub const reserved = -18;
    pub const close_reason = -19;
    pub const format = -21;
    pub const head_too_large = -22;
    pub const tls = -20;
    pub const full = -23;
};

/// The struct `peregrine_option` of C.
pub const Option = extern struct {
    name: [*:0]const u8,
    unit: [*:0]const u8,
    summary: [*:0]const u8,
    fallback: i64,
    min: i64,
    max: i64,
};

/// The struct `peregrine_counter` of C.
pub const Counter = extern struct {
    name: [*:0]const u8,
    label: [*:0]const u8,
    value: [*:0]const u8,
    summary: [*:0]const u8,
    kind: u32,
    reserved: u32 = 0,
};

/// Kinds of records that `peregrine_trace` writes.
pub const TraceKind = struct {
    pub const call = 1;
    pub const receive = 2;
    pub const send = 3;
    pub const returned = 4;
    pub const died = 5;
};

/// The struct `peregrine_trace_memory` of C.
pub const TraceMemory = extern struct {
    layout: u64,
    bytes: u64,
    until: u64,
    server: u64,
    next: u64,
    records: u64,
    record_bytes: u64,
    count: u64,
    text_max: u64,
};

/// The struct `peregrine_loan` of C.
pub const Loan = peregrine.Loan;

/// The enum `peregrine_event_kind` of C.
pub const Kind = enum(u16) {
    request = 1,
    body = 2,
    drained = 3,
    finished = 4,
    aborted = 5,
    half_closed = 6,
    message = 7,
    closed = 8,
    stopped = 9,
    notice = 10,
    lines = 11,
    flushed = 12,
    topic = 13,
    ending = 14,
};

/// Bits of `Event.flags`; `text` is a flag of `peregrine_send_message`, too.
pub const EventFlag = struct {
    pub const last = 1;
    pub const text = 2;
    pub const trailers = 4;
    pub const handshake = 8;
    pub const event_stream = 16;
};

/// Flags of `Response` and of `peregrine_write`.
pub const RespondFlag = struct {
    pub const end = 1;
    pub const keep_alive = 2;
    pub const flush = 4;
    pub const close = 8;
    pub const hold = 16;
};

/// Flags of `peregrine_listen`.
pub const ListenFlag = struct {
    pub const reuse_port = 1;
    pub const v6_only = 2;
};

/// Values of `TlsConfig.verify_client`.
pub const Verify = struct {
    pub const none = 0;
    pub const request = 1;
    pub const require = 2;
};

/// Bits of `Route.flags`.
pub const RouteFlag = struct {
    pub const whole_body = 1;
};

/// The header fields that `peregrine_trusted_proxies` can name.
pub const ForwardedHeader = struct {
    pub const x_forwarded = 0;
    pub const forwarded = 1;
};

/// The struct `peregrine_span` of C.
pub const Span = extern struct { at: u32, len: u32 };

/// The struct `peregrine_request` of C.
pub const Request = extern struct {
    text: [*]const u8,
    text_len: u32,
    field_count: u32,
    fields: [*]const peregrine.FieldSpan,
    method: Span,
    target: Span,
    path: Span,
    query: Span,
    authority: Span,
    method_id: u8,
    version: u8,
    secure: u8,
    has_query: u8,
    peer_port: u16,
    local_port: u16,
    connection: u32,
    tls: u8,
    reserved: [3]u8 = @splat(0),
    peer: [*:0]const u8,
    local: [*:0]const u8,
    body_length: i64,
    number: u32,
    route: u32 = 0,
    body_fd: i32 = -1,
    reserved2: u32 = 0,
    complete_us: u64 = 0,
};

/// The struct `peregrine_event` of C.
pub const Event = extern struct {
    kind: Kind,
    flags: u16 = 0,
    code: u32 = 0,
    ticket: Ticket = 0,
    user: ?*anyopaque = null,
    bytes: [*]const u8 = "",
    len: usize = 0,
    request: ?*const Request = null,
    reason: u32 = 0,
    size: u32 = @sizeOf(Event),
};

/// The struct `peregrine_response` of C.
pub const Response = extern struct {
    size: u32,
    status: u16 = 0,
    flags: u16 = 0,
    fields: ?[*]const peregrine.Field = null,
    field_count: usize = 0,
    body: ?[*]const u8 = null,
    body_len: usize = 0,
};

/// The struct `peregrine_route` of C.
pub const Route = extern struct {
    size: u32,
    flags: u32 = 0,
    path: ?[*:0]const u8 = null,
    host: ?[*:0]const u8 = null,
    group: u32 = 0,
};

/// The struct `peregrine_folder` of C.
pub const Folder = extern struct {
    size: u32,
    flags: u32 = 0,
    path: ?[*:0]const u8 = null,
    host: ?[*:0]const u8 = null,
    folder: ?[*:0]const u8 = null,
    cache_control: ?[*:0]const u8 = null,
};

/// Bits of `FileQuestion.flags`.
pub const FileFlag = struct {
    pub const dotfiles = 1;
    pub const plain = 2;
};

/// The struct `peregrine_file_question` of C.
pub const FileQuestion = extern struct {
    size: u32,
    flags: u32 = 0,
    folder: ?[*:0]const u8 = null,
    method: ?[*:0]const u8 = null,
    path: ?[*:0]const u8 = null,
    query: ?[*:0]const u8 = null,
    index: ?[*:0]const u8 = null,
    default_type: ?[*:0]const u8 = null,
    content_type: ?[*:0]const u8 = null,
    fields: ?[*]const peregrine.Field = null,
    field_count: usize = 0,
};

/// The struct `peregrine_file_part` of C.
pub const FilePart = extern struct {
    bytes: ?[*]const u8 = null,
    offset: u64 = 0,
    len: u64 = 0,
};

/// The struct `peregrine_file_answer` of C.
pub const FileAnswer = extern struct {
    /// The most ranges of a file in one answer.
    pub const parts_max = peregrine.util.ranges_max;

    size: u32,
    status: u16 = 0,
    reserved: u16 = 0,
    fd: i32 = -1,
    reserved2: u32 = 0,
    fields: ?[*]const peregrine.Field = null,
    field_count: usize = 0,
    parts: ?[*]const FilePart = null,
    part_count: usize = 0,
};

/// Bits of `OpenedFile.flags`.
pub const OpenedFlag = struct {
    pub const plain_file = 1;
    pub const local_file = 2;
};

/// The struct `peregrine_opened_file` of C.
pub const OpenedFile = extern struct {
    size: u32,
    flags: u32 = 0,
    user: u64 = 0,
    bytes: u64 = 0,
    fd: i32 = -1,
    system_error: i32 = 0,
};

/// Bits of the answer of `peregrine_node_poll`.
pub const NodeFlag = struct {
    pub const connected = 1;
    pub const writes = 2;
    pub const deadlines = 4;
};

/// Values of `NodeAsk.request`.
pub const NodeRequest = struct {
    pub const subscribe = 1;
    pub const publish = 2;
    pub const send = 3;
    pub const add = 4;
    pub const discard = 5;
    pub const flush = 6;
    pub const append = 7;
    pub const look = 8;
    pub const who = 9;
};

/// Results of `peregrine_node_read`.
pub const NodeRead = struct {
    pub const nothing = 0;
    pub const bytes = 1;
    pub const reset = 2;
    pub const cut = 3;
};

/// Values of `NodeFollowAsk.as`.
pub const NodeAs = struct {
    pub const as_text = 0;
    pub const as_binary = 1;
    pub const as_events = 2;
};

/// Values of `HeldTopic.as`.
pub const HeldAs = struct {
    pub const events = 0;
    pub const bytes = 1;
};

/// Values of `HeldAsk.kind`.
pub const HeldKind = struct {
    pub const stream = 0;
    pub const response = 1;
};

/// Limits of a held response: bytes of its texts, and topics.
pub const HeldMost = struct {
    pub const content_bytes = peregrine.api_limits.held_start_bytes_max;
    pub const keepalive_bytes = peregrine.api_limits.held_keepalive_bytes_max;
    pub const topics = hub.limits.mailbox_readers_max;
};

/// The struct `peregrine_held_topic` of C.
pub const HeldTopic = extern struct {
    size: u32,
    as: u32 = 0,
    name: [*]const u8 = "",
    name_len: usize = 0,
    since: [*]const u8 = "",
    since_len: usize = 0,
};

/// The struct `peregrine_held_ask` of C.
pub const HeldAsk = extern struct {
    size: u32,
    kind: u32 = 0,
    timeout_ms: u32 = 0,
    keepalive_ms: u32 = 0,
    keepalive: ?[*]const u8 = null,
    keepalive_len: usize = 0,
    topics: ?*const sized.Header = null,
    topic_count: usize = 0,
};

/// Results of a request to the hub.
pub const NodeResult = struct {
    pub const ok = 0;
    pub const gone = 1;
    pub const full = 2;
    pub const too_many = 3;
    pub const unavailable = 4;
    pub const unknown = 5;
    pub const name = 6;
    pub const too_large = 7;
    pub const forbidden = 8;
};

/// The struct `peregrine_node_event` of C: a reply, or mail if `mailbox` is not 0, or entries of topics.
pub const NodeEvent = extern struct {
    size: u32,
    number: u32 = 0,
    result: u32 = 0,
    mailbox: u64 = 0,
    user: u64 = 0,
    readable: u32 = 0,
    position_len: u32 = 0,
    position: NodePosition = undefined,
    present: ?[*]const u8 = null,
    present_len: usize = 0,
};

/// The text of a position in a topic.
pub const NodePosition = [48]u8;

/// The struct `peregrine_node_follow_ask` of C.
pub const NodeFollowAsk = extern struct {
    size: u32,
    as: u32 = 0,
    cuts: u32 = 0,
    mailbox: u64 = 0,
    name: [*]const u8 = "",
    name_len: usize = 0,
    since: [*]const u8 = "",
    since_len: usize = 0,
};

/// The struct `peregrine_node_reading` of C.
pub const NodeReading = extern struct {
    size: u32,
    as: u32 = 0,
    bytes: ?[*]const u8 = null,
    len: usize = 0,
    topic: ?[*]const u8 = null,
    topic_len: usize = 0,
    position_len: u32 = 0,
    position: NodePosition = undefined,
};

/// The struct `peregrine_history` of C.
pub const History = extern struct {
    size: u32,
    entries: u32 = 0,
    bytes: u64 = 0,
    age_ms: u64 = 0,
};

/// The struct `peregrine_node_bounds` of C.
pub const NodeBounds = extern struct {
    size: u32,
    capacity: u32 = 0,
    expiry_ms: u64 = 0,
    message_bytes: u64 = 0,
};

/// The struct `peregrine_node_message` of C.
pub const NodeMessage = extern struct {
    size: u32,
    bytes: ?[*]const u8 = null,
    len: usize = 0,
    handle: ?*anyopaque = null,
};

/// The struct `peregrine_node_ask` of C.
pub const NodeAsk = extern struct {
    size: u32,
    request: i32 = 0,
    mailbox: u64 = 0,
    name: [*]const u8 = "",
    name_len: usize = 0,
    extra: [*]const u8 = "",
    extra_len: usize = 0,
    bytes: [*]const u8 = "",
    bytes_len: usize = 0,
};

/// The struct `peregrine_unix_socket` of C.
pub const UnixSocket = extern struct {
    size: u32,
    backlog: i32 = 1024,
    path: ?[*:0]const u8 = null,
    mode: i64 = -1,
    uid: i64 = -1,
    gid: i64 = -1,
};

/// The struct `peregrine_access_log` of C.
pub const AccessLog = extern struct {
    size: u32,
    fd: i32 = -1,
    path: ?[*:0]const u8 = null,
    format: ?[*:0]const u8 = null,
};

/// A text by pointer and length; `bytes` is null where there is none.
pub const Text = extern struct {
    bytes: ?[*]const u8,
    len: usize,

    /// The text as C sees it; null: no text.
    pub fn of(text: ?[]const u8) Text {
        const bytes = text orelse return .{ .bytes = null, .len = 0 };
        return .{ .bytes = bytes.ptr, .len = bytes.len };
    }
};

/// The struct `peregrine_certificate` of C.
pub const Certificate = extern struct {
    size: u32,
    cert_file: ?[*:0]const u8 = null,
    key_file: ?[*:0]const u8 = null,
    chain_file: ?[*:0]const u8 = null,
    key_password: ?[*:0]const u8 = null,
};

/// The struct `peregrine_tls_config` of C.
pub const TlsConfig = extern struct {
    size: u32,
    certificate_count: u32 = 0,
    certificates: ?*const sized.Header = null,
    ca_file: ?[*:0]const u8 = null,
    cipher_list: ?[*:0]const u8 = null,
    cipher_suites: ?[*:0]const u8 = null,
    ticket_keys: ?*const [peregrine.tls.ticket_keys_bytes]u8 = null,
    verify_client: u32 = Verify.none,
    min_version: u32 = 0,
    session_timeout_s: u32 = 0,
    cert_dir: ?[*:0]const u8 = null,
    groups: ?[*:0]const u8 = null,
    validation_dir: ?[*:0]const u8 = null,
};

/// The struct `peregrine_tls_info` of C.
pub const TlsInfo = extern struct {
    size: u32,
    version: u16,
    cipher_suite: u16,
    server_cert: Text,
    client_chain: [*]const Text,
    client_chain_len: usize,
    client_name: Text,
    client_error: Text,
    server_name: Text,
    alpn: Text,
    resumed: u32,
};

/// The struct `peregrine_stats` of C.
pub const Stats = extern struct {
    size: u32,
    connections: u32 = 0,
    exchanges: u32 = 0,
    connections_max: u32 = 0,
    accepted: u64 = 0,
    rejected: u64 = 0,
    requests: u64 = 0,
    refused: u64 = 0,
    memory_bytes: u64 = 0,
    allocations: u64 = 0,
    shed: u64 = 0,
    memory_max: u64 = 0,
    ledger: u64,
    interpreters: u32 = 0,
    waiting: u32 = 0,
};

/// The struct `peregrine_interpreters` of C.
pub const Interpreters = extern struct {
    size: u32,
    join_socket: i32 = -1,
    exchanges: u32 = 0,
    handed: u32 = 0,
    seats: u32 = 0,
    own: u32 = 0,
    queue_max: u32 = 0,
    queue_ms: u32 = 0,
    request_idle_ms: u32 = 0,
    no_topics: u32 = 0,
    name: ?[*:0]const u8 = null,
    refused: ?*u64 = null,
    topics: ?[*:0]const u8 = null,
};

/// Bits of `Interpreters.own`: limits that the struct sets, in place of those of the engine.
pub const Own = struct {
    pub const queue_max = 1;
    pub const queue_ms = 2;
    pub const request_idle_ms = 4;
};
