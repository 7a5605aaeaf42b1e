//! A project that uses the package as others will: through the repository's root. `zig build` builds and runs it; `zig build check
//! -Dprogram=FILE` compiles a program of somebody else's, `zig build test -Dprogram=FILE` runs its tests.
const std = @import("std");

pub fn build(b: *std.Build) void {
    const target = b.standardTargetOptions(.{});
    const optimize = b.standardOptimizeOption(.{});
    const module = b.createModule(.{
        .root_source_file = b.path(b.option([]const u8, "program", "The program (default: main.zig)") orelse "main.zig"),
        .target = target,
        .optimize = optimize,
    });
    module.addImport("peregrine", b.dependency("peregrine", .{ .target = target, .optimize = optimize }).module("peregrine"));
    const program = b.addExecutable(.{ .name = "consumer", .root_module = module });
    b.default_step.dependOn(&b.addRunArtifact(program).step);
    b.step("check", "Compile the program").dependOn(&program.step);
    b.step("test", "Run the program's tests").dependOn(&b.addRunArtifact(b.addTest(.{ .root_module = module })).step);
}
