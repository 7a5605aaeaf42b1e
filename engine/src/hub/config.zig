//! Every limit of the hub: its name, unit, default, range and the reason for the default.
const std = @import("std");

/// Limits of the hub. Times are milliseconds, sizes are bytes.
pub const Config = struct {
    /// Aggregates within aggregates in an answer of Redis. The deepest that the hub asks for, a page of
    /// history, has 3; hiredis reads 8.
    reply_depth_max: u8 = 8,
    /// Values in one answer of Redis. A page of history has 13 for each of its entries; the answer to HELLO
    /// has a few for each loaded module.
    reply_elements_max: u32 = 16_384,
    /// Bytes of the strings in one answer of Redis: a page of 100 of the longest messages fits.
    reply_bytes_max: u64 = 128 * 1024 * 1024,
    /// A line of an answer of Redis: a status, a number or an error. Errors of scripts quote a line of the
    /// script and have a few hundred bytes.
    reply_line_bytes_max: u32 = 4096,

    /// A message to a topic. PAGI's design bounds those of channels by as much. All machines at a Redis have
    /// the same limit: a machine that allows less cannot read the longest messages of the others.
    message_bytes_max: u32 = 1024 * 1024,
    /// Entries that a topic keeps for readers that come back or are slow. A minute of a busy chat.
    history_entries_max: u32 = 1_000,
    /// Bytes of these entries. Four of the longest, or a thousand of 4 KiB; the newest is kept however long.
    history_bytes_max: u64 = 4 * 1024 * 1024,
    /// The age of these entries. A reader that comes back later is reset, and loads the page anew.
    history_age_ms: u64 = 5 * 60 * 1000,
    /// Entries that are framed together. A burst of more takes several turns of each reader.
    segment_entries_max: u32 = 256,
    /// Bytes of these entries: as much as a connection is sent in one turn.
    segment_bytes_max: u32 = 64 * 1024,
    /// Frames of a topic that are kept for further readers; twice its history, so that two kinds of readers
    /// share theirs.
    framed_bytes_max: u64 = 8 * 1024 * 1024,
    /// The name of a topic, which is part of keys and channels.
    topic_bytes_max: u32 = 512,
    /// The time that Redis remembers a topic in which nothing happens. Readers that come back later than that
    /// get a reset.
    topic_idle_ms: u64 = 24 * 60 * 60 * 1000,

    /// A connection to Redis. Within a data centre it takes a few milliseconds; a lost packet is sent again
    /// within 3 s.
    redis_connect_ms: u64 = 5_000,
    /// The answer to the greeting, and to a PING: beyond it the connection counts as dead.
    redis_answer_ms: u64 = 5_000,
    /// A connection on which nothing came for so long is asked whether it lives.
    redis_ping_ms: u64 = 5_000,
    /// The pause before another attempt to connect; it doubles with each...
    redis_retry_ms: u64 = 100,
    /// The longest pause before the next connection to Redis. Half of each pause is drawn at random.
    redis_retry_ms_max: u64 = 5_000,
    /// Commands that wait for the socket, beyond which the next ones are not written yet.
    redis_output_bytes_max: u64 = 1024 * 1024,
    /// Publications on their way to Redis at a time: enough for 10,000 a second at 25 ms.
    redis_in_flight_max: u32 = 256,
    /// Publications that wait for Redis; one more fails at once. A second at full load.
    publications_max: u32 = 16_384,
    /// Bytes of these.
    publications_bytes_max: u64 = 64 * 1024 * 1024,
    /// The time that a publication may take. Less than the 5 s after which a node gives a request up, so that
    /// the hub says what became of it.
    publish_ms: u64 = 4_000,
    /// Entries that are read from Redis's history at a time.
    history_page: u32 = 100,
    /// The pause between two reads of histories by one machine, so that live messages come between them. A
    /// machine that comes back reads a thousand topics in a second.
    history_pause_ms: u64 = 1,

    /// Subscriptions of all interpreters to topics of channels. Each takes about 200 bytes.
    subscriptions_max: u32 = 1_000_000,
    /// Subscriptions of one interpreter: a topic for each of more connections than an interpreter has.
    interpreter_subscriptions_max: u32 = 250_000,
    /// Subscriptions of all interpreters of a mount that is confined to its own topics. This limit and others
    /// of mounts are lower where mounts are many, so that they do not fill the hub (Shares.roomOf).
    mount_subscriptions_max: u32 = 250_000,
    /// Topics with history of such a mount, a quarter of all that a hub has room for.
    mount_topics_max: u32 = 25_000,
    /// Connections of such a mount: those of 64 interpreters, twice while they are replaced, each with one to
    /// publish by.
    mount_connections_max: u32 = 256,
    /// Messages and changes of subscriptions of one interpreter that other ones have yet to answer, as many
    /// as it may have under way.
    interpreter_errands_max: u32 = 10_000,
    /// Messages and changes of subscriptions of all interpreters of a confined mount: a quarter of all that
    /// have room.
    mount_errands_max: u32 = 25_000,
    /// Questions of one interpreter who is subscribed, of a thousand that a hub has room for. Each asks all
    /// interpreters.
    interpreter_questions_max: u32 = 100,
    /// Questions of all interpreters of a confined mount who is subscribed. With Redis each question has two
    /// places in a hub, so that they take a quarter.
    mount_questions_max: u32 = 125,
    /// With Redis: publications of one interpreter under way, a quarter of all that have room.
    interpreter_publications_max: u32 = 4_096,
    /// With Redis: bytes of one interpreter's publications under way, a quarter of all that have room.
    interpreter_publications_bytes_max: u64 = 16 * 1024 * 1024,
    /// With Redis: subscriptions and places of topics that one interpreter waits for, a quarter of all that
    /// have room.
    interpreter_waits_max: u32 = 2_500,
    /// With Redis: publications of all interpreters of a confined mount, their bytes, and their subscriptions
    /// and places: a quarter of each, too.
    mount_publications_max: u32 = 4_096,
    mount_publications_bytes_max: u64 = 16 * 1024 * 1024,
    mount_waits_max: u32 = 2_500,
    /// Bytes that the topics of a confined mount take in Redis, those of all machines together: four times as
    /// much as a hub keeps of all topics.
    mount_redis_bytes_max: u64 = 256 * 1024 * 1024,

    /// Range and unit of a limit.
    pub const Rule = struct { min: u64 = 0, max: u64, unit: Unit };
    /// The unit of a limit.
    pub const Unit = enum { count, bytes, milliseconds };

    /// Ranges, by field name.
    pub const rules = .{
        .reply_depth_max = Rule{ .min = 4, .max = 32, .unit = .count },
        .reply_elements_max = Rule{ .min = 256, .max = 1 << 24, .unit = .count },
        .reply_bytes_max = Rule{ .min = 4096, .max = 1 << 32, .unit = .bytes },
        .reply_line_bytes_max = Rule{ .min = 256, .max = 1 << 20, .unit = .bytes },
        .message_bytes_max = Rule{ .min = 1, .max = 1 << 30, .unit = .bytes },
        // Fewer entries than are published between two turns of readers would be lost to all of them.
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
