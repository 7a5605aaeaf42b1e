//! A worker's part in the counters of its server (counters.zig). Without counters an event costs a branch.
//! Does not know: connections and requests (worker/counting.zig).
const Counters = @import("counters.zig").Counters;

/// The memory that a worker counts in, and when its gauges are due.
pub const Counting = struct {
    /// Null: no process asks for the numbers.
    counters: ?*Counters = null,
    /// The counters or the access log need the times at which applications take requests; a host that can
    /// tell notes them.
    wants_taken: bool = false,
    /// The time at which connections and requests are counted for the gauges, in milliseconds: a second after
    /// the first event since the last count, so that a worker without events is not woken. 0: no event since
    /// the last count.
    due_at: u64 = 0,

    const pause_ms = @import("config.zig").worker_limits.gauges_interval_ms;

    /// Counts into `counters` from now on, which no other code writes; null: ends counting.
    pub fn use(counting: *Counting, counters: ?*Counters) void {
        counting.counters = counters;
        counting.due_at = 0;
    }

    /// Notes an event that may change a gauge, so that gauges are written a second later.
    pub inline fn stir(counting: *Counting, now: u64) void {
        if (counting.counters != null and counting.due_at == 0) counting.due_at = now + pause_ms;
    }

    /// Whether the gauges are due.
    pub fn isDue(counting: *const Counting, now: u64) bool {
        return counting.due_at != 0 and now >= counting.due_at;
    }
};
