//! The repository as a Zig package: `zig fetch` of its address gives the package `peregrine`, whose module
//! `peregrine` is the engine's. The engine has a build file of its own, which this one only passes on.
//!
//!     zig build             the counter of engine/example, in zig-out/bin/
//!     zig build test        the engine's tests
//!     zig build run-hello   (and the other examples of engine/example)
const std = @import("std");

/// The default target, see engine/build.zig.
pub const thisMachine = @import("engine").thisMachine;

pub fn build(b: *std.Build) void {
    // Every option of the engine's build file: what is missing here, no program that uses the package can
    // say.
    const engine = b.dependency("engine", .{
        .target = b.standardTargetOptions(.{ .default_target = thisMachine() }),
        .optimize = b.option(
            std.builtin.Optimize,
            "optimize",
            "All but debug are one: optimised, with the engine's safety checks",
        ),
        .release = b.option(bool, "release", "Optimise for those who use it"),
        .unchecked = b.option(bool, "unchecked", "Leave the engine's safety checks out of optimised builds"),
        .tls = b.option(bool, "tls", "TLS by OpenSSL 3 (default: if its library is found)"),
    });
    for ([_][]const u8{ "peregrine", "peregrine.web" }) |name| {
        b.modules.put(b.graph.arena, name, engine.module(name)) catch @panic("OOM");
    }
    for (engine.builder.top_level_steps.keys(), engine.builder.top_level_steps.values()) |name, step| {
        if (b.top_level_steps.contains(name)) continue; // install and uninstall are every package's
        b.step(name, step.description).dependOn(&step.step);
    }
    b.getInstallStep().dependOn(engine.builder.getInstallStep());
}
