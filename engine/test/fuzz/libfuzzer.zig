//! The targets as libFuzzer wants them: linked with Debian's libFuzzer by script/fuzz, which says which
//! target by --target=NAME. Zig instruments for a fuzzer of its own, whose counters libFuzzer reads just as
//! well once it is told where they are.
const std = @import("std");
const Target = @import("targets.zig").Target;

var target: Target = undefined;

extern fn __sanitizer_cov_8bit_counters_init(start: *u8, stop: *u8) void;
// The linker names the ends of a section.
extern var __start___sancov_cntrs: u8;
extern var __stop___sancov_cntrs: u8;

export fn LLVMFuzzerInitialize(argc: *c_int, argv: *[*][*:0]const u8) c_int {
    __sanitizer_cov_8bit_counters_init(&__start___sancov_cntrs, &__stop___sancov_cntrs);
    target = for (argv.*[0..@intCast(argc.*)]) |argument| {
        const option = "--target=";
        const text = std.mem.span(argument);
        if (std.mem.startsWith(u8, text, option)) {
            break std.meta.stringToEnum(Target, text[option.len..]) orelse usage();
        }
    } else usage();
    return 0;
}

export fn LLVMFuzzerTestOneInput(bytes: [*]const u8, len: usize) c_int {
    target.run(bytes[0..len]) catch |err| std.debug.panic("{t}: {t}", .{ target, err });
    return 0;
}

fn usage() noreturn {
    std.debug.print("wanted: --target=NAME; targets:", .{});
    for (std.enums.values(Target)) |one| std.debug.print(" {t}", .{one});
    std.debug.print("\n", .{});
    std.process.exit(2);
}
