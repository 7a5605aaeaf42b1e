//! A client of the simulation: sends what it has to say at its own pace, reads at its own pace, and may go
//! before the end. Does not know: what the bytes mean. See http_client.zig and socket_client.zig.
const std = @import("std");
const Wire = @import("wire.zig").Wire;

pub const Client = struct {
    gpa: std.mem.Allocator,
    wire: Wire,
    manners: Manners,
    /// Bytes to send, complete from the start or added later.
    script: std.ArrayList(u8) = .empty,
    sent: usize = 0,
    got: std.ArrayList(u8) = .empty,
    rounds: usize = 0,
    done: bool = false,

    pub const Manners = struct {
        /// The most bytes that the client sends at a time.
        send_max: usize,
        /// Rounds out of 100 in which it reads.
        read_percent: u8,
        /// From this round on it reads nothing for `deaf_rounds`.
        deaf_from: usize,
        deaf_rounds: usize,
        /// The client ends its sending side when it has sent everything.
        half_closes: bool,
        /// The client leaves when it has got this many bytes.
        leaves_after: ?usize,
        /// The client leaves with a reset.
        rude: bool,

        pub fn draw(random: std.Random) Manners {
            return .{
                .send_max = ([_]usize{ 1, 20, 3_000, 100_000 })[random.weightedIndex(u8, &.{ 1, 2, 8, 4 })],
                .read_percent = ([_]u8{ 100, 60, 5 })[random.uintLessThan(usize, 3)],
                .deaf_from = random.uintLessThan(usize, 200),
                .deaf_rounds = if (random.uintLessThan(u8, 4) == 0) random.uintLessThan(usize, 300) else 0,
                .half_closes = random.boolean(),
                .leaves_after = if (random.uintLessThan(u8, 8) == 0)
                    random.uintLessThan(usize, 30_000)
                else
                    null,
                .rude = random.boolean(),
            };
        }
    };

    pub fn deinit(client: *Client) void {
        client.wire.deinit();
        client.script.deinit(client.gpa);
        client.got.deinit(client.gpa);
    }

    /// Runs a round. Bytes that come are appended to those that came before.
    pub fn step(client: *Client, random: std.Random) !void {
        if (client.done) return;
        client.rounds += 1;
        try client.write(random);
        const manners = &client.manners;
        const deaf = client.rounds >= manners.deaf_from and
            client.rounds < manners.deaf_from + manners.deaf_rounds;
        if (!deaf and random.uintLessThan(u8, 100) < manners.read_percent) {
            try client.got.appendSlice(client.gpa, try client.wire.read());
        }
        const leaves = if (manners.leaves_after) |bytes| client.got.items.len >= bytes else false;
        if (client.wire.ended() == null and !leaves) return;
        client.done = true;
        if (leaves and manners.rude) client.wire.peer().reset() else try client.wire.close();
    }

    fn write(client: *Client, random: std.Random) !void {
        const rest = client.script.items[client.sent..];
        if (rest.len == 0 or random.boolean()) return;
        // A long script in single bytes would take all day.
        const most = @max(client.manners.send_max, client.script.items.len / 1000);
        const some = rest[0..@min(rest.len, random.uintAtMost(usize, most))];
        client.sent += try client.wire.write(some);
        if (client.sent == client.script.items.len and client.manners.half_closes) try client.wire.shutdown();
    }
};
