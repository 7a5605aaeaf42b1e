//! Processes of interpreters that were shut out because they break the rules. One that has not ended after a
//! while is killed, so that its master starts another one. Does not know: why they were shut out.
const peregrine = @import("peregrine");
const EngineWorker = @import("abi.zig").EngineWorker;
const io = peregrine.io;
const sharing = io.sharing;

pub const Outcasts = struct {
    list: [outcasts_max]Outcast = undefined,
    count: usize = 0,

    const Outcast = struct { process: i32, kill_at: u64 };

    /// Beyond them the oldest one is killed before its time.
    const outcasts_max = 64;

    /// Time for an interpreter that is broken and not hostile to end by itself.
    const grace_ms = 5000;

    /// `process`, a descriptor, is the list's from now on.
    pub fn add(outcasts: *Outcasts, process: i32, worker: *EngineWorker) void {
        if (outcasts.count == outcasts_max) outcasts.end(worker);
        outcasts.list[outcasts.count] = .{ .process = process, .kill_at = worker.now + grace_ms };
        outcasts.count += 1;
    }

    /// Kills those whose time is over.
    pub fn sweep(outcasts: *Outcasts, worker: *EngineWorker) void {
        if (outcasts.count == 0) return;
        const now = worker.io.now();
        while (outcasts.count > 0 and outcasts.list[0].kill_at <= now) outcasts.end(worker);
    }

    /// How long the engine may wait.
    pub fn patience(outcasts: *const Outcasts, now: u64, wanted_ms: i32) i32 {
        if (outcasts.count == 0) return wanted_ms;
        const left: i32 = @intCast(outcasts.list[0].kill_at -| now);
        return if (wanted_ms < 0) left else @min(wanted_ms, left);
    }

    /// When the engine ends. Its master knows which processes are left.
    pub fn deinit(outcasts: *Outcasts) void {
        for (outcasts.list[0..outcasts.count]) |outcast| io.file.close(outcast.process);
        outcasts.count = 0;
    }

    /// The oldest one.
    fn end(outcasts: *Outcasts, worker: *EngineWorker) void {
        const process = outcasts.list[0].process;
        outcasts.count -= 1;
        @memmove(outcasts.list[0..outcasts.count], outcasts.list[1..][0..outcasts.count]);
        if (sharing.kill(process)) {
            var buffer: [160]u8 = undefined;
            worker.say(.warn, &buffer, "An interpreter that was shut out has not ended: it is killed", .{});
        }
        io.file.close(process);
    }
};
