//! A worker's part in the counters of its server (counters.zig), while those are wanted. Without them an
//! event costs a branch. Does not know: connections and requests (worker/counting.zig).
const Counters = @import("counters.zig").Counters;

/// The memory that a worker counts in, and when its gauges are due.
pub const Counting = struct {
    /// Null: no process asks for the numbers.
    counters: ?*Counters = null,
    /// The times at which applications take requests are wanted, by the counters or by the access log: a host
    /// that can tell notes them.
    wants_taken: bool = false,
    /// When connections and requests are looked at, to tell how many there are of each kind: a second after
    /// something has happened, so that a worker which rests is not woken. 0: nothing has happened since the
    /// last look.
    due_at: u64 = 0,

    const pause_ms = @import("config.zig").worker_limits.gauges_interval_ms;

    /// Counts into this memory from now on, which nobody else writes; null: not any longer.
    pub fn use(counting: *Counting, counters: ?*Counters) void {
        counting.counters = counters;
        counting.due_at = 0;
    }

    /// Notes that a gauge may have changed, so that it is written when the pause is over.
    pub inline fn stir(counting: *Counting, now: u64) void {
        if (counting.counters != null and counting.due_at == 0) counting.due_at = now + pause_ms;
    }

    /// Whether the gauges are due.
    pub fn isDue(counting: *const Counting, now: u64) bool {
        return counting.due_at != 0 and now >= counting.due_at;
    }
};
