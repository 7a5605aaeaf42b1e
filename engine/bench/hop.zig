//! The yardstick with a hop: `hop PORT process|thread sockets|counters`. An epoll loop like that of
//! yardstick.zig, which does not answer by itself: a second process, or thread, says how many answers a peer
//! is due. Both write what they have to say to shared memory, and wake the other one only if that sleeps. So
//! this is what the kernel alone takes for a server whose application is elsewhere, whatever else it does.
//! `sockets`: each wakes the other by a byte in a socket, which that takes out again. `counters`: by an event
//! counter that is watched for edges, so that nobody has to read it.
//! Does not know: what yardstick.zig does not know, and more than a few peers at a time.
const std = @import("std");
const linux = std.os.linux;
const assert = std.debug.assert;
const yardstick = @import("yardstick.zig");

const Way = enum { sockets, counters };
const Place = enum { process, thread };

/// A message from one side to the other: `count` answers for a peer.
const Word = extern struct { fd: i32, count: u32 };

/// Words from one side to the other.
const Ring = struct {
    written: std.atomic.Value(u32) align(std.atomic.cache_line) = .init(0),
    read: std.atomic.Value(u32) align(std.atomic.cache_line) = .init(0),
    /// 1: the reader sleeps.
    asleep: std.atomic.Value(u32) align(std.atomic.cache_line) = .init(0),
    words: [size]Word = undefined,

    /// A peer has a word or two under way, and a benchmark has few peers.
    const size = yardstick.connections_max;

    fn put(ring: *Ring, word: Word) void {
        const at = ring.written.raw;
        assert(at -% ring.read.load(.acquire) < size);
        ring.words[at % size] = word;
        ring.written.store(at +% 1, .release);
    }

    fn take(ring: *Ring) ?Word {
        const at = ring.read.raw;
        if (at == ring.written.load(.acquire)) return null;
        defer ring.read.store(at +% 1, .release);
        return ring.words[at % size];
    }

    /// Before the reader waits: false if there is something to read after all.
    fn sleeps(ring: *Ring) bool {
        _ = ring.asleep.swap(1, .acq_rel);
        if (ring.read.raw == ring.written.load(.acquire)) return true;
        ring.wakes();
        return false;
    }

    fn wakes(ring: *Ring) void {
        _ = ring.asleep.swap(0, .acq_rel);
    }

    /// After `put`: whether the reader has to be woken.
    fn rouses(ring: *Ring) bool {
        return ring.asleep.swap(0, .acq_rel) == 1;
    }
};

const Shared = struct { requests: Ring = .{}, answers: Ring = .{} };

/// By what one side wakes the other.
const Wake = struct {
    way: Way,
    /// The descriptor that is written to, and the one that the other side watches.
    near: linux.fd_t,
    far: linux.fd_t,

    fn init(way: Way) !Wake {
        switch (way) {
            .counters => {
                const flags = linux.EFD.NONBLOCK | linux.EFD.CLOEXEC;
                const fd = try yardstick.descriptor(linux.eventfd(0, flags));
                return .{ .way = way, .near = fd, .far = fd };
            },
            .sockets => {
                var ends: [2]linux.fd_t = undefined;
                const kind = linux.SOCK.STREAM | linux.SOCK.NONBLOCK | linux.SOCK.CLOEXEC;
                try yardstick.check(linux.socketpair(linux.AF.UNIX, kind, 0, &ends));
                return .{ .way = way, .near = ends[0], .far = ends[1] };
            },
        }
    }

    fn watchedBy(wake: Wake, poll: linux.fd_t) !void {
        const edge: u32 = if (wake.way == .counters) linux.EPOLL.ET else 0;
        var event: linux.epoll_event = .{ .events = linux.EPOLL.IN | edge, .data = .{ .fd = wake.far } };
        try yardstick.check(linux.epoll_ctl(poll, linux.EPOLL.CTL_ADD, wake.far, &event));
    }

    fn give(wake: Wake) void {
        const one: u64 = 1;
        const len: usize = if (wake.way == .counters) @sizeOf(u64) else 1;
        _ = linux.write(wake.near, std.mem.asBytes(&one), len);
    }

    fn take(wake: Wake) void {
        if (wake.way == .counters) return;
        var bytes: [64]u8 = undefined;
        _ = linux.read(wake.far, &bytes, bytes.len);
    }
};

var there: Wake = undefined;
var back: Wake = undefined;

pub fn main(init: std.process.Init) !void {
    const args = try init.minimal.args.toSlice(init.arena.allocator());
    if (args.len != 4) usage();
    const place = std.meta.stringToEnum(Place, args[2]) orelse usage();
    const way = std.meta.stringToEnum(Way, args[3]) orelse usage();
    const listener = try yardstick.listen(try std.fmt.parseInt(u16, args[1], 10));
    const rc = linux.mmap(
        null,
        @sizeOf(Shared),
        .{ .READ = true, .WRITE = true },
        .{ .TYPE = .SHARED, .ANONYMOUS = true },
        -1,
        0,
    );
    try yardstick.check(rc);
    const shared: *Shared = @ptrFromInt(rc);
    shared.* = .{};
    there = try .init(way);
    back = try .init(way);
    switch (place) {
        .thread => (try std.Thread.spawn(.{}, answer, .{shared})).detach(),
        .process => {
            const pid = linux.fork();
            try yardstick.check(pid);
            if (pid == 0) {
                _ = linux.prctl(@backingInt(linux.PR.SET_PDEATHSIG), @backingInt(linux.SIG.KILL), 0, 0, 0);
                _ = linux.close(listener);
                try answer(shared);
            }
        },
    }
    try serve(shared, listener);
}

fn usage() noreturn {
    std.debug.print("usage: hop PORT process|thread sockets|counters\n", .{});
    std.process.exit(2);
}

/// The side that has the sockets.
fn serve(shared: *Shared, listener: linux.fd_t) !void {
    yardstick.fillOutput();
    const poll = try yardstick.descriptor(linux.epoll_create1(linux.EPOLL.CLOEXEC));
    try yardstick.watch(poll, listener);
    try back.watchedBy(poll);
    var events: [256]linux.epoll_event = undefined;
    while (true) {
        while (shared.answers.take()) |word| yardstick.send(word.fd, word.count);
        if (!shared.answers.sleeps()) continue;
        const rc = linux.epoll_wait(poll, &events, events.len, -1);
        shared.answers.wakes();
        if (linux.errno(rc) == .INTR) continue;
        try yardstick.check(rc);
        var any = false;
        for (events[0..rc]) |event| {
            const fd = event.data.fd;
            if (fd == listener) {
                try yardstick.accept(poll, listener);
            } else if (fd == back.far) back.take() else {
                const count = yardstick.receive(fd);
                if (count == 0) continue;
                shared.requests.put(.{ .fd = fd, .count = @intCast(count) });
                any = true;
            }
        }
        if (any and shared.requests.rouses()) there.give();
    }
}

/// The other side.
fn answer(shared: *Shared) !void {
    const poll = try yardstick.descriptor(linux.epoll_create1(linux.EPOLL.CLOEXEC));
    try there.watchedBy(poll);
    var events: [1]linux.epoll_event = undefined;
    while (true) {
        var any = false;
        while (shared.requests.take()) |word| {
            shared.answers.put(word);
            any = true;
        }
        if (any and shared.answers.rouses()) back.give();
        if (!shared.requests.sleeps()) continue;
        const rc = linux.epoll_wait(poll, &events, events.len, -1);
        shared.requests.wakes();
        if (linux.errno(rc) == .INTR) continue;
        try yardstick.check(rc);
        there.take();
    }
}

test "a ring brings words in their order, and tells once of a reader that sleeps" {
    var ring: Ring = .{};
    for (0..3) |round| {
        try std.testing.expect(ring.sleeps());
        for (0..Ring.size) |at| ring.put(.{ .fd = @intCast(at), .count = @intCast(round) });
        try std.testing.expect(ring.rouses() and !ring.rouses() and !ring.sleeps());
        for (0..Ring.size) |at| {
            const word = ring.take().?;
            try std.testing.expect(word.fd == at and word.count == round);
        }
        try std.testing.expectEqual(null, ring.take());
    }
}
