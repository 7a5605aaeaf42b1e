//! The load generator: `load KIND option=value...`, where KIND is arrive, churn, echo, listen, rate,
//! streams or subscribe.
//! Opens its connections to 127.0.0.1, prints READY, and does `run SECONDS` for each such line on standard
//! input, answered by a line BEGUN and, at the end, a line `RESULT name=number...`. It ends when the input
//! does, so the connections are open (and idle) for as long as the caller wants.
//! Does not know: which server it talks to, and what the numbers mean.
const std = @import("std");
const Driver = @import("driver.zig").Driver;

const kinds = .{
    .arrive = @import("arrive.zig").Arrive,
    .churn = @import("churn.zig"),
    .echo = @import("echo.zig").Echo,
    .listen = @import("listen.zig").Listen,
    .rate = @import("rate.zig").Rate,
    .streams = @import("streams.zig").Streams,
    .subscribe = @import("subscribe.zig").Subscribe,
};

pub fn main(init: std.process.Init) !void {
    const arena = init.arena.allocator();
    const args = try init.minimal.args.toSlice(arena);
    if (args.len < 2) misused("no kind of load is named", .{});
    inline for (@typeInfo(@TypeOf(kinds)).@"struct".field_names) |name| {
        if (std.mem.eql(u8, args[1], name)) {
            const Load = @field(kinds, name);
            const options = parse(Load.Options, args[2..]);
            const drive = if (@hasDecl(Load, "drive")) Load.drive else Driver(Load).drive;
            drive(arena, &options) catch |err| {
                if (err != error.Fatal) std.debug.print("load: {t}\n", .{err});
                std.process.exit(1);
            };
        }
    }
    misused("'{s}' is no kind of load", .{args[1]});
}

/// The fields of Options by their names.
fn parse(comptime Options: type, args: []const [:0]const u8) Options {
    var options: Options = .{};
    next: for (args) |argument| {
        const equals = std.mem.findScalar(u8, argument, '=') orelse
            misused("'{s}' is no option=value", .{argument});
        const value = argument[equals + 1 ..];
        inline for (@typeInfo(Options).@"struct".field_names) |name| {
            if (std.mem.eql(u8, argument[0..equals], name)) {
                @field(options, name) = number(@TypeOf(@field(options, name)), value) orelse
                    misused("{s} cannot be '{s}'", .{ name, value });
                continue :next;
            }
        }
        misused("unknown option '{s}'", .{argument[0..equals]});
    }
    if (options.port == 0 or options.connections == 0 or options.ramp == 0) {
        misused("port, connections and ramp must be above 0", .{});
    }
    return options;
}

fn number(comptime T: type, text: []const u8) ?T {
    if (@typeInfo(T) == .@"enum") return std.meta.stringToEnum(T, text);
    return switch (T) {
        []const u8 => text,
        f64 => std.fmt.parseFloat(f64, text) catch null,
        else => std.fmt.parseInt(T, text, 10) catch null,
    };
}

fn misused(comptime format: []const u8, args: anytype) noreturn {
    std.debug.print(
        "load: " ++ format ++
            "\nusage: load arrive|churn|echo|listen|rate|streams|subscribe port=N [path=P] [connections=N] [ramp=N] " ++
            "[bytes=N] [rate=N] [watch=CORE] [seed=N] [sample=HEX] [manner=garbage|leave] [rest=MS] " ++
            "[says=TEXT] [offer=nothing|deflate] [alike=COUNT]\n",
        args,
    );
    std.process.exit(2);
}

test {
    _ = @import("histogram.zig");
    _ = @import("http.zig");
    _ = @import("shares.zig");
    _ = @import("watch.zig");
    _ = @import("websocket.zig");
    inline for (@typeInfo(@TypeOf(kinds)).@"struct".field_names) |name| _ = @field(kinds, name);
}
