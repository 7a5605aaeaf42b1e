//! Every limit of the hub: its name, unit, default, range and the reason for the default.
const std = @import("std");

/// The limits of the hub. Times are milliseconds, sizes are bytes.
pub const Config = struct {
    /// The depth of aggregates in an answer of Redis. The hub's deepest request, for a page of history, has
    /// 3; hiredis reads 8.
    reply_depth_max: u8 = 8,
    /// Values in one answer of Redis. A page of history has 13 for each of its entries; the answer to HELLO
    /// has a few for each loaded module.
    reply_elements_max: u32 = 16_384,
    /// Bytes of the strings in one answer of Redis: a page of 100 of the longest messages fits.
    reply_bytes_max: u64 = 128 * 1024 * 1024,
    /// A line of an answer of Redis: a status, a number or an error. Errors of scripts quote a line of the
    /// script and have a few hundred bytes.
    reply_line_bytes_max: u32 = 4096,

    /// The length of a message to a topic. PAGI's design has the same limit for channels. All machines at one
    /// Redis must have the same limit: with a lower one, a machine cannot read the longest messages of the
    /// others.
    message_bytes_max: u32 = 1024 * 1024,
    /// Entries that a topic keeps for slow readers and readers that come back: a minute of a busy chat.
    history_entries_max: u32 = 1_000,
    /// Bytes of the entries that a topic keeps: four of the longest, or a thousand of 4 KiB. The newest entry
    /// is always kept.
    history_bytes_max: u64 = 4 * 1024 * 1024,
    /// The age up to which entries are kept. A reader that comes back later gets a reset, and loads its page
    /// again.
    history_age_ms: u64 = 5 * 60 * 1000,
    /// Entries that are framed together. A longer burst takes each reader several turns.
    segment_entries_max: u32 = 256,
    /// Bytes of entries that are framed together: as much as a connection is sent in one turn.
    segment_bytes_max: u32 = 64 * 1024,
    /// Bytes of a topic's frames that are kept for further readers: twice its history, so that two variants
    /// of frames are shared.
    framed_bytes_max: u64 = 8 * 1024 * 1024,
    /// The name of a topic, which is part of keys and channels.
    topic_bytes_max: u32 = 512,
    /// The time for which Redis remembers a topic without events. Readers that come back later get a reset.
    topic_idle_ms: u64 = 24 * 60 * 60 * 1000,

    /// The time for connecting to Redis. It takes a few milliseconds within a data centre; a lost packet is
    /// sent again within 3 s.
    redis_connect_ms: u64 = 5_000,
    /// The time for the answer to the greeting or to a PING, after which the connection counts as dead.
    redis_answer_ms: u64 = 5_000,
    /// The time without bytes on a connection after which a PING is sent.
    redis_ping_ms: u64 = 5_000,
    /// The first pause before another attempt to connect; each further pause is twice as long.
    redis_retry_ms: u64 = 100,
    /// The longest pause before another attempt to connect. Half of each pause is drawn at random.
    redis_retry_ms_max: u64 = 5_000,
    /// Bytes of commands that wait for the socket, beyond which no further commands are written.
    redis_output_bytes_max: u64 = 1024 * 1024,
    /// Publications on their way to Redis at a time: enough for 10,000 a second at 25 ms.
    redis_in_flight_max: u32 = 256,
    /// Publications that wait for Redis; a further one fails at once. A second at full load.
    publications_max: u32 = 16_384,
    /// Bytes of the publications that wait for Redis.
    publications_bytes_max: u64 = 64 * 1024 * 1024,
    /// The time for a publication. It is shorter than the 5 s after which a node gives a request up, so that
    /// the hub reports the result.
    publish_ms: u64 = 4_000,
    /// Entries that are read from Redis's history at once.
    history_page: u32 = 100,
    /// The pause between two reads of histories by one machine, which leaves room for live messages. A
    /// machine that comes back reads a thousand topics in a second.
    history_pause_ms: u64 = 1,

    /// Subscriptions of all interpreters to topics of channels. Each takes about 200 bytes.
    subscriptions_max: u32 = 1_000_000,
    /// Subscriptions of one interpreter: one for each of more connections than an interpreter has.
    interpreter_subscriptions_max: u32 = 250_000,
    /// Subscriptions of all interpreters of a mount that is confined to its own topics. With many mounts,
    /// this and other limits of a mount are lower, so that mounts do not fill the hub (Shares.roomOf).
    mount_subscriptions_max: u32 = 250_000,
    /// Topics with history of a confined mount: a quarter of a hub's limit.
    mount_topics_max: u32 = 25_000,
    /// Connections of a confined mount: 64 interpreters, each with a second connection for publishing, twice
    /// while they are replaced.
    mount_connections_max: u32 = 256,
    /// Messages and changes of subscriptions of one interpreter that other interpreters have yet to answer:
    /// as many as its requests may be.
    interpreter_errands_max: u32 = 10_000,
    /// Messages and changes of subscriptions of all interpreters of a confined mount: a quarter of the hub's
    /// limit.
    mount_errands_max: u32 = 25_000,
    /// Unanswered questions of one interpreter about subscribers, each of which asks all interpreters: a
    /// tenth of the hub's limit.
    interpreter_questions_max: u32 = 100,
    /// Unanswered questions about subscribers of all interpreters of a confined mount. With Redis each
    /// question counts twice in a hub, so these are a quarter of the hub's limit.
    mount_questions_max: u32 = 125,
    /// With Redis: publications of one interpreter that are under way: a quarter of the hub's limit.
    interpreter_publications_max: u32 = 4_096,
    /// With Redis: bytes of one interpreter's publications that are under way: a quarter of the hub's limit.
    interpreter_publications_bytes_max: u64 = 16 * 1024 * 1024,
    /// With Redis: subscriptions and positions of topics for which one interpreter waits: a quarter of the
    /// hub's limit.
    interpreter_waits_max: u32 = 2_500,
    /// With Redis: publications of all interpreters of a confined mount, their bytes, and their waits: a
    /// quarter of the hub's limits.
    mount_publications_max: u32 = 4_096,
    mount_publications_bytes_max: u64 = 16 * 1024 * 1024,
    mount_waits_max: u32 = 2_500,
    /// Bytes that the topics of a confined mount take in Redis, for all machines together: four times as much
    /// as a hub keeps of all topics.
    mount_redis_bytes_max: u64 = 256 * 1024 * 1024,

    /// Range and unit of a limit.
    pub const Rule = struct { min: u64 = 0, max: u64, unit: Unit };
    pub const Unit = enum { count, bytes, milliseconds };

    /// Ranges, by field name.
    pub const rules = .{
        .reply_depth_max = Rule{ .min = 4, .max = 32, .unit = .count },
        .reply_elements_max = Rule{ .min = 256, .max = 1 << 24, .unit = .count },
        .reply_bytes_max = Rule{ .min = 4096, .max = 1 << 32, .unit = .bytes },
        .reply_line_bytes_max = Rule{ .min = 256, .max = 1 << 20, .unit = .bytes },
        .message_bytes_max = Rule{ .min = 1, .max = 1 << 30, .unit = .bytes },
        // With fewer entries than are published between two turns of readers, all readers would lose some.
        .history_entries_max = Rule{ .min = 16, .max = 1 << 24, .unit = .count },
        .history_bytes_max = Rule{ .min = 1024, .max = 1 << 40, .unit = .bytes },
        .history_age_ms = Rule{ .min = 1000, .max = 365 * 24 * 60 * 60 * 1000, .unit = .milliseconds },
        .segment_entries_max = Rule{ .min = 1, .max = 1 << 16, .unit = .count },
        .segment_bytes_max = Rule{ .min = 1024, .max = 1 << 30, .unit = .bytes },
        .topic_bytes_max = Rule{ .min = 16, .max = 1 << 16, .unit = .bytes },
        .topic_idle_ms = Rule{ .min = 1000, .max = 365 * 24 * 60 * 60 * 1000, .unit = .milliseconds },
        .redis_connect_ms = Rule{ .min = 10, .max = 60_000, .unit = .milliseconds },
        .redis_answer_ms = Rule{ .min = 10, .max = 60_000, .unit = .milliseconds },
        .redis_ping_ms = Rule{ .min = 10, .max = 3_600_000, .unit = .milliseconds },
        .redis_retry_ms = Rule{ .min = 1, .max = 60_000, .unit = .milliseconds },
        .redis_retry_ms_max = Rule{ .min = 1, .max = 3_600_000, .unit = .milliseconds },
        .redis_output_bytes_max = Rule{ .min = 4096, .max = 1 << 32, .unit = .bytes },
        .redis_in_flight_max = Rule{ .min = 1, .max = 1 << 16, .unit = .count },
        .publications_max = Rule{ .min = 1, .max = 1 << 24, .unit = .count },
        .publications_bytes_max = Rule{ .min = 1024, .max = 1 << 40, .unit = .bytes },
        .publish_ms = Rule{ .min = 10, .max = 600_000, .unit = .milliseconds },
        .history_page = Rule{ .min = 1, .max = 1000, .unit = .count },
        .history_pause_ms = Rule{ .max = 60_000, .unit = .milliseconds },
        .framed_bytes_max = Rule{ .max = 1 << 40, .unit = .bytes },
        .subscriptions_max = Rule{ .min = 1, .max = 1 << 30, .unit = .count },
        .interpreter_subscriptions_max = Rule{ .min = 1, .max = 1 << 30, .unit = .count },
        .mount_subscriptions_max = Rule{ .min = 1, .max = 1 << 30, .unit = .count },
        .mount_topics_max = Rule{ .min = 1, .max = 1 << 24, .unit = .count },
        .mount_connections_max = Rule{ .min = 1, .max = 1 << 16, .unit = .count },
        .interpreter_errands_max = Rule{ .min = 1, .max = 1 << 24, .unit = .count },
        .interpreter_questions_max = Rule{ .min = 1, .max = 1 << 16, .unit = .count },
        .interpreter_publications_max = Rule{ .min = 1, .max = 1 << 24, .unit = .count },
        .interpreter_publications_bytes_max = Rule{ .min = 1024, .max = 1 << 40, .unit = .bytes },
        .interpreter_waits_max = Rule{ .min = 1, .max = 1 << 24, .unit = .count },
        .mount_errands_max = Rule{ .min = 1, .max = 1 << 24, .unit = .count },
        .mount_questions_max = Rule{ .min = 1, .max = 1 << 16, .unit = .count },
        .mount_publications_max = Rule{ .min = 1, .max = 1 << 24, .unit = .count },
        .mount_publications_bytes_max = Rule{ .min = 1024, .max = 1 << 40, .unit = .bytes },
        .mount_redis_bytes_max = Rule{ .min = 4096, .max = 1 << 40, .unit = .bytes },
        .mount_waits_max = Rule{ .min = 1, .max = 1 << 24, .unit = .count },
    };

    /// Whether each limit lies in its range.
    pub fn isValid(config: *const Config) bool {
        inline for (@typeInfo(Config).@"struct".field_names) |name| {
            const rule: Rule = @field(rules, name);
            const value: u64 = @field(config, name);
            if (value < rule.min or value > rule.max) return false;
        }
        return true;
    }
};

test "each limit has a range, and its default lies within" {
    const config: Config = .{};
    try std.testing.expect(config.isValid());
    var wrong: Config = .{};
    wrong.reply_depth_max = 33;
    try std.testing.expect(!wrong.isValid());
}
