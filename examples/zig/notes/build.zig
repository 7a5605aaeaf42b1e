//! zig build              compiles the service into zig-out/bin/notes
//! zig build test         runs its tests, which need no network
//! zig build run -- --port 8080 --folder /tmp/notes
const std = @import("std");

pub fn build(b: *std.Build) void {
    const target = b.standardTargetOptions(.{});
    const optimize = b.standardOptimizeOption(.{});
    const peregrine = b.dependency("peregrine", .{ .target = target, .optimize = optimize });
    const module = b.createModule(.{
        .root_source_file = b.path("src/main.zig"),
        .target = target,
        .optimize = optimize,
        .strip = b.option(bool, "strip", "Leave debug information out"),
    });
    module.addImport("peregrine", peregrine.module("peregrine"));
    module.addImport("peregrine.web", peregrine.module("peregrine.web"));
    const notes = b.addExecutable(.{ .name = "notes", .root_module = module });
    b.installArtifact(notes);
    const run = b.addRunArtifact(notes);
    run.addPassthruArgs();
    b.step("run", "Run the service").dependOn(&run.step);
    const tests = b.addTest(.{ .root_module = module });
    b.step("test", "Run its tests").dependOn(&b.addRunArtifact(tests).step);
}
