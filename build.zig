//! The repository as a Zig package: `zig fetch` of its address gives the package `peregrine`, whose module `peregrine` is the engine's. The
//! engine has a build file of its own, which this one only passes on.
//!
//!     zig build test        the engine's tests
//!     zig build run-hello   (and the other examples of engine/example)
const std = @import("std");

/// What to compile for by default: see there.
pub const thisMachine = @import("engine").thisMachine;

pub fn build(b: *std.Build) void {
    const optimize = b.standardOptimizeOption(.{});
    const engine = b.dependency("engine", .{
        .target = b.standardTargetOptions(.{ .default_target = thisMachine() }),
        // The engine ships with its safety checks on: whatever a program that uses it is optimised for, these stay.
        .release = optimize != .debug,
        // Unless it asks for something else by name.
        .unchecked = b.option(bool, "unchecked", "Leave the engine's safety checks out of optimised builds") orelse false,
    });
    b.modules.put(b.graph.arena, "peregrine", engine.module("peregrine")) catch @panic("OOM");
    for (engine.builder.top_level_steps.keys(), engine.builder.top_level_steps.values()) |name, step| {
        if (b.top_level_steps.contains(name)) continue; // install and uninstall are every package's
        b.step(name, step.description).dependOn(&step.step);
    }
}
