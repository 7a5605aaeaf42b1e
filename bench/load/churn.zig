//! `load churn`: connections that behave badly, one after the other, `ramp` of them at once: each says a few
//! bytes and ends. What they say and how they end follows from the seed and the connection's number alone, so
//! that a run can be repeated. A run is over when all `connections` have been, or its time. Does not know:
//! what the sample means, and what would be a right answer.
const std = @import("std");
const linux = std.os.linux;
const driver = @import("driver.zig");
const net = @import("net.zig");

const said_max = 4096;
/// For a connection that waits for the server. One that the server leaves open for longer is closed from
/// here.
const patience_ns = 200 * std.time.ns_per_ms;
/// How often places are looked at in which nothing happens.
const look_ns = 20 * std.time.ns_per_ms;

pub const Options = struct {
    port: u16 = 0,
    /// Connections in all.
    connections: usize = 1000,
    /// Connections that are opened at the same time.
    ramp: usize = 100,
    seed: u64 = 1,
    /// The first bytes of a good client, in hexadecimal digits.
    sample: []const u8 = "",
    manner: Manner = .garbage,
    /// Milliseconds from the end of a connection to the next one in its place, on the average: from half to
    /// one and a half of them.
    rest: u64 = 0,
};

const Manner = enum {
    /// Random bytes, or the sample cut or damaged.
    garbage,
    /// The whole sample; when the server begins to answer it is left with a reset.
    leave,
};

const Result = struct { finished: u64, refused: u64, answered: u64, ended_by_server: u64 };

const Ending = enum { close, reset, wait_half_closed, wait };

/// The place of one connection after the other.
const Slot = struct {
    fd: ?net.Fd = null,
    number: usize = 0,
    /// When the connection began; without a connection, when the next one may begin.
    since: u64 = 0,
    phase: enum { connecting, waiting } = .connecting,
    ending: Ending = .close,
    answered: bool = false,
};

const Churn = struct {
    options: *const Options,
    sample: []const u8,
    slots: []Slot,
    poll: net.Poll,
    rests: std.Random.DefaultPrng,
    begun: usize = 0,
    total: Result = .{ .finished = 0, .refused = 0, .answered = 0, .ended_by_server = 0 },
    buffer: [said_max]u8 = undefined,

    /// Until all have been, or the time is over; true while there is more to do.
    fn round(churn: *Churn, until: u64) !bool {
        var events: [512]linux.epoll_event = undefined;
        const before = net.now();
        for (churn.slots, 0..) |*slot, i| {
            if (slot.fd == null and slot.since <= before and churn.begun < churn.options.connections) {
                try churn.begin(slot, i);
            }
        }
        if (churn.total.finished == churn.options.connections) return false;
        const look_at = before + look_ns;
        for (try churn.poll.wait(&events, @min(look_at, until))) |event| {
            try churn.serve(&churn.slots[event.data.u64], event.data.u64);
        }
        const now = net.now();
        for (churn.slots) |*slot| {
            if (slot.fd != null and now - slot.since > patience_ns and slot.phase == .waiting) {
                churn.finish(slot);
            }
        }
        return now < until;
    }

    fn begin(churn: *Churn, slot: *Slot, name: usize) !void {
        slot.* = .{
            .fd = try net.connect(churn.options.port, churn.begun),
            .number = churn.begun,
            .since = net.now(),
        };
        churn.begun += 1;
        try churn.poll.add(slot.fd.?, name, .read_and_write);
    }

    fn serve(churn: *Churn, slot: *Slot, name: usize) !void {
        const fd = slot.fd.?;
        switch (slot.phase) {
            .connecting => if (!net.connected(fd)) {
                churn.total.refused += 1;
                churn.finish(slot);
            } else {
                churn.say(slot);
                if (slot.fd != null) try churn.poll.change(fd, name, .read);
            },
            .waiting => switch (net.read(fd, &churn.buffer)) {
                .nothing => {},
                .ended => {
                    churn.total.ended_by_server += 1;
                    churn.finish(slot);
                },
                .bytes => {
                    churn.total.answered += @intFromBool(!slot.answered);
                    slot.answered = true;
                    if (slot.ending == .reset) churn.finish(slot);
                },
            },
        }
    }

    fn say(churn: *Churn, slot: *Slot) void {
        var prng: std.Random.DefaultPrng = .init(churn.options.seed +% slot.number);
        const random = prng.random();
        slot.phase = .waiting;
        switch (churn.options.manner) {
            .garbage => {
                _ = net.write(slot.fd.?, garbage(random, churn.sample, &churn.buffer));
                slot.ending = random.enumValue(Ending);
                switch (slot.ending) {
                    .close, .reset => churn.finish(slot),
                    .wait_half_closed => net.endWriting(slot.fd.?),
                    .wait => {},
                }
            },
            .leave => {
                _ = net.write(slot.fd.?, churn.sample);
                slot.ending = .reset;
            },
        }
    }

    fn finish(churn: *Churn, slot: *Slot) void {
        if (slot.ending == .reset) net.closeWithReset(slot.fd.?) else net.close(slot.fd.?);
        slot.fd = null;
        slot.since = churn.rested(net.now());
        churn.total.finished += 1;
    }

    fn rested(churn: *Churn, now: u64) u64 {
        const rest = churn.options.rest * std.time.ns_per_ms;
        return now + rest / 2 + churn.rests.random().uintAtMost(u64, rest);
    }
};

/// Random bytes, or the sample: cut, with some bytes changed, or with something behind it.
fn garbage(random: std.Random, sample: []const u8, buffer: *[said_max]u8) []const u8 {
    const most: usize = if (random.boolean()) 64 else buffer.len - sample.len;
    const noise = random.uintAtMost(usize, most);
    const kept = random.uintAtMost(usize, sample.len);
    @memcpy(buffer[0..sample.len], sample);
    switch (random.uintLessThan(u8, 5)) {
        0 => {
            random.bytes(buffer[0..noise]);
            return buffer[0..noise];
        },
        1 => return buffer[0..kept],
        2 => {
            for (0..random.intRangeAtMost(u8, 1, 8)) |_| {
                if (sample.len > 0) buffer[random.uintLessThan(usize, sample.len)] = random.int(u8);
            }
            return buffer[0..sample.len];
        },
        3 => {
            random.bytes(buffer[sample.len..][0..noise]);
            return buffer[0 .. sample.len + noise];
        },
        else => {
            random.bytes(buffer[kept..][0..noise]);
            return buffer[0 .. kept + noise];
        },
    }
}

/// Obeys one `run SECONDS`, the seconds being the most that it may take.
pub fn drive(arena: std.mem.Allocator, options: *const Options) !void {
    if (options.sample.len > said_max) return error.SampleTooLong;
    const sample = try std.fmt.hexToBytes(try arena.alloc(u8, options.sample.len / 2), options.sample);
    const slots = try arena.alloc(Slot, options.ramp);
    @memset(slots, .{});
    try net.allowDescriptors(slots.len + 16);
    var churn: Churn = .{
        .options = options,
        .sample = sample,
        .slots = slots,
        .poll = try .init(),
        .rests = .init(options.seed),
    };
    driver.print("READY\n", .{});
    const seconds = try driver.commanded() orelse std.process.exit(0);
    const before = net.now();
    const until = before + @as(u64, @trunc(seconds * std.time.ns_per_s));
    driver.print("BEGUN\n", .{});
    for (slots) |*slot| slot.since = churn.rested(before);
    while (try churn.round(until)) {}
    for (slots) |slot| if (slot.fd) |fd| net.close(fd);
    const total = churn.total;
    driver.print("RESULT seconds={d:.6} finished={d} refused={d} answered={d} ended_by_server={d}\n", .{
        driver.secondsSince(before), total.finished, total.refused, total.answered, total.ended_by_server,
    });
}

test "garbage follows from the seed, and is of every kind" {
    const sample = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    var cut: usize = 0;
    var longer: usize = 0;
    for (0..200) |seed| {
        var buffers: [2][said_max]u8 = undefined;
        var prngs: [2]std.Random.DefaultPrng = @splat(.init(seed));
        const said = garbage(prngs[0].random(), sample, &buffers[0]);
        try std.testing.expectEqualStrings(said, garbage(prngs[1].random(), sample, &buffers[1]));
        cut += @intFromBool(said.len < sample.len and std.mem.startsWith(u8, sample, said));
        longer += @intFromBool(said.len > sample.len and std.mem.startsWith(u8, said, sample));
    }
    try std.testing.expect(cut > 20 and longer > 20);
}
