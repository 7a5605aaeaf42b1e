//! The C API over a ring pair whose two threads are played by a schedule: hundreds of histories
//! (history.zig), each from one number.
//!
//! A failure prints its seed. PEREGRINE_SEED replays one; PEREGRINE_SEEDS says how many are run,
//! PEREGRINE_SEED_FIRST from which on; script/test takes others each day.
const std = @import("std");
const abi = @import("abi");
const held = @import("held.zig");
const history = @import("history.zig");
const script_file = @import("script.zig");
const wanted = @import("wanted");
const Script = script_file.Script;
const Code = abi.types.Code;
const testing = std.testing;

const seeds_default = 300;
/// The seeds that a brief run takes.
const seeds_brief = 30;

test "every history ends as it should, and as it does without a thread" {
    const seeds: wanted.Seeds = try .init(seeds_default, seeds_brief);
    for (seeds.first..seeds.first + seeds.count) |seed| both(seed) catch |err| {
        tell(seed, err);
        return err;
    };
}

fn tell(seed: u64, err: anyerror) void {
    std.debug.print(
        "\nseed {d}: {t}; PEREGRINE_SEED={d} script/fuzz sim-rings 0 replays it\n",
        .{ seed, err, seed },
    );
}

fn both(seed: u64) !void {
    var behind = try history.run(seed, .ring_pair);
    defer behind.deinit();
    var inside = try history.run(seed, .own_thread);
    defer inside.deinit();
    if (!behind.calm) return;
    for (behind.records, inside.records) |*one, *other| try one.expectSame(other);
}

test "responses that the engine holds end as they should, whatever clients, the hub and a stop do" {
    const seeds: wanted.Seeds = try .init(seeds_default, seeds_brief);
    var entries: usize = 0;
    for (seeds.first..seeds.first + seeds.count) |seed| held.run(seed, &entries) catch |err| {
        tell(seed, err);
        return err;
    };
    if (seeds.count >= seeds_default) try testing.expect(entries > seeds.count);
}

// Findings of the random histories, as scripts.

const small = script_file.message(100);

fn speakAndListen(script: *Script) !void {
    const ticket = try script.accept();
    const handle = script.handle;
    const content: [30_000]u8 = @splat(0);
    try testing.expectEqual(Code.ok, abi.peregrine_pause(handle, ticket, 1));
    script.unsent = &small;
    script.compute(5);
    // The whole message is with the kernel before the engine hears that the application waits for room.
    const answer = abi.peregrine_send_message(handle, ticket, &content, content.len, 0);
    try testing.expectEqual(Code.blocked, answer);
    try testing.expectEqual(Code.ok, abi.peregrine_pause(handle, ticket, 0));
    _ = try script.wait(.drained);
}

test "an application that waits for room hears of it, even if a message comes in the same round" {
    const limits = .{ .{ "write_high_bytes", 8_000 }, .{ "frame_bytes_max", 1 << 20 } };
    for (0..40) |seed| try Script.play(seed, &limits, speakAndListen);
}

const large = script_file.message(70_000);
const flood: [20 * large.len]u8 = @bitCast(@as([20][large.len]u8, @splat(large)));

fn stayAway(script: *Script) !void {
    _ = try script.accept();
    script.unsent = &flood;
    script.compute(20);
    // The end of the exchange is an event that waits behind events for which the ring has no room.
    script.peer.reset();
    script.compute(200);
    for (0..3) |_| _ = try script.wait(.message);
    _ = try script.wait(.closed);
}

test "an engine whose events find no room sleeps until there is some" {
    const limits = .{ .{ "frame_bytes_max", 1 << 20 }, .{ "round_bytes", 1 << 20 } };
    for (0..5) |seed| try Script.play(seed, &limits, stayAway);
}
