//! For which processor the engine is built unless another one is named: the one at hand, but for AVX-512
//! (`thisMachine` of build.zig).
const std = @import("std");
const builtin = @import("builtin");
const is_this_machine = @import("chosen").is_this_machine;

test "the default is this machine without AVX-512" {
    if (!is_this_machine or builtin.cpu.arch != .x86_64) return error.SkipZigTest;
    const machine = try std.zig.system.resolveTargetQuery(std.testing.io, .{});
    const wide = @backingInt(std.Target.x86.Feature.avx512f);
    const all = builtin.cpu.arch.allFeaturesList();
    for (all, 0..) |feature, index| {
        var needed: std.Target.Cpu.Feature.Set = .empty;
        needed.addFeature(@intCast(index));
        needed.populateDependencies(all);
        const expected = machine.cpu.features.isEnabled(@intCast(index)) and !needed.isEnabled(wide);
        errdefer std.debug.print("feature {s}\n", .{feature.name});
        try std.testing.expectEqual(expected, builtin.cpu.features.isEnabled(@intCast(index)));
    }
}
