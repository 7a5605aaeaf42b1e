//! A project that uses the package as others will: from a path, through the repository's root. Built by `zig build consumer` in engine/.
const std = @import("std");

pub fn build(b: *std.Build) void {
    const target = b.standardTargetOptions(.{});
    const optimize = b.standardOptimizeOption(.{});
    const module = b.createModule(.{ .root_source_file = b.path("main.zig"), .target = target, .optimize = optimize });
    module.addImport("peregrine", b.dependency("peregrine", .{ .target = target, .optimize = optimize }).module("peregrine"));
    const program = b.addExecutable(.{ .name = "consumer", .root_module = module });
    const run = b.addRunArtifact(program);
    b.default_step.dependOn(&run.step);
}
