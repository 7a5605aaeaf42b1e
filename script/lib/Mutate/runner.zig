//! Runs the tests of a program in which mutants lie side by side (Mutate/Switch.pm), with the one that
//! --mutant=NUMBER names; 0: none. Ends at the first test that fails, leaks or logs an error, whose name is
//! then the last line.
const builtin = @import("builtin");
const std = @import("std");
const testing = std.testing;

export var mutant_selected: u32 = 0;
var errors_logged = false;

pub const std_options: std.Options = .{ .logFn = log };

/// Runs all tests of the program.
pub fn main(init: std.process.Init.Minimal) !void {
    var arguments = init.args.iterate();
    const option = "--mutant=";
    while (arguments.next()) |argument| {
        if (!std.mem.startsWith(u8, argument, option)) continue;
        mutant_selected = try std.fmt.parseInt(u32, argument[option.len..], 10);
    }
    for (builtin.test_functions, 1..) |case, number| {
        std.debug.print("{d}/{d} {s}...", .{ number, builtin.test_functions.len, case.name });
        const is_right = try run(case, init);
        if (!is_right) std.process.exit(1);
    }
}

fn run(case: std.builtin.TestFn, init: std.process.Init.Minimal) !bool {
    testing.allocator_instance = .init(std.heap.page_allocator, .{
        .canary = 0xc3a701ba,
        .check_write_after_free = true,
    });
    testing.io_instance = .init(testing.allocator, .{ .argv0 = .init(init.args), .environ = init.environ });
    testing.log_level = .warn;
    testing.environ = init.environ;
    case.func() catch |err| {
        if (err != error.SkipZigTest) return false;
        std.debug.print("SKIP\n", .{});
        return true;
    };
    testing.io_instance.deinit();
    if (testing.allocator_instance.deinit() != 0 or errors_logged) return false;
    std.debug.print("OK\n", .{});
    return true;
}

fn log(
    comptime level: std.log.Level,
    comptime _: @EnumLiteral(),
    comptime format: []const u8,
    arguments: anytype,
) void {
    if (level == .err) errors_logged = true;
    if (@backingInt(level) <= @backingInt(testing.log_level)) std.debug.print(format ++ "\n", arguments);
}
