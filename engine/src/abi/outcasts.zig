//! Processes of interpreters that were shut out because they break the rules. A process that has not ended
//! after a while is killed, so that its master starts another one. Does not know: why they were shut out.
const std = @import("std");
const assert = std.debug.assert;
const peregrine = @import("peregrine");
const io = peregrine.io;
const sharing = io.sharing;

pub const Outcasts = struct {
    list: [outcasts_max]Outcast = undefined,
    count: usize = 0,

    const Outcast = struct { process: i32, kill_at: u64 };

    const outcasts_max = peregrine.api_limits.outcasts_max;
    const grace_ms = peregrine.api_limits.outcast_grace_ms;

    /// Adds a process, of which `process` is a descriptor. The list closes the descriptor.
    pub fn add(outcasts: *Outcasts, process: i32, worker: anytype) void {
        assert(process >= 0);
        if (outcasts.count == outcasts_max) outcasts.end(worker);
        outcasts.list[outcasts.count] = .{ .process = process, .kill_at = worker.clock.now + grace_ms };
        outcasts.count += 1;
        outcasts.invariants();
    }

    /// Kills the processes whose time is over.
    pub fn sweep(outcasts: *Outcasts, worker: anytype) void {
        if (outcasts.count == 0) return;
        const now = worker.io.now();
        while (outcasts.count > 0 and outcasts.list[0].kill_at <= now) outcasts.end(worker);
    }

    /// The milliseconds that the engine may wait, `wanted_ms` at most (negative: without bound).
    pub fn patience(outcasts: *const Outcasts, now: u64, wanted_ms: i32) i32 {
        if (outcasts.count == 0) return wanted_ms;
        const left: i32 = @intCast(outcasts.list[0].kill_at -| now);
        return if (wanted_ms < 0) left else @min(wanted_ms, left);
    }

    /// Called when the engine ends; the engine's master knows which processes are left.
    pub fn deinit(outcasts: *Outcasts) void {
        for (outcasts.list[0..outcasts.count]) |outcast| io.file.close(outcast.process);
        outcasts.count = 0;
    }

    /// Kills the oldest process.
    fn end(outcasts: *Outcasts, worker: anytype) void {
        assert(outcasts.count > 0);
        const process = outcasts.list[0].process;
        outcasts.count -= 1;
        @memmove(outcasts.list[0..outcasts.count], outcasts.list[1..][0..outcasts.count]);
        if (sharing.kill(process)) {
            var buffer: [160]u8 = undefined;
            worker.say(.warn, &buffer, "An interpreter that was shut out has not ended: it is killed", .{});
        }
        io.file.close(process);
        outcasts.invariants();
    }

    /// Asserts that the list is in order: the process that is killed first comes first.
    fn invariants(outcasts: *const Outcasts) void {
        assert(outcasts.count <= outcasts_max);
        const list = outcasts.list[0..outcasts.count];
        for (list[0..list.len -| 1], list[@min(1, list.len)..]) |older, later| {
            assert(older.kill_at <= later.kill_at);
        }
    }
};
