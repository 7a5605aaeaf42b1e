//! Limits of histories of topics, as C gives them.
const hub = @import("hub");
const types = @import("types.zig");

/// The hub's limits; limits that C gives (not 0) replace defaults, and are put into their ranges.
pub fn limited(given: *const types.History) hub.Config {
    const rules = hub.Config.rules;
    var config: hub.Config = .{};
    if (given.entries > 0) {
        config.history_entries_max = @intCast(within(rules.history_entries_max, given.entries));
    }
    if (given.bytes > 0) {
        const bytes = within(rules.history_bytes_max, given.bytes);
        config.history_bytes_max = @min(bytes, hub.limits.histories_bytes_max);
    }
    if (given.age_ms > 0) config.history_age_ms = within(rules.history_age_ms, given.age_ms);
    return config;
}

fn within(rule: hub.Config.Rule, value: u64) u64 {
    return @max(rule.min, @min(rule.max, value));
}
