//! Programs of the benchmark besides the engine's own: the load generator, and the server that uses the
//! package `peregrine` as any program does.
//!
//!     zig build load        bin/load
//!     zig build peregrine   bin/peregrine
//!     zig build test        the load generator's tests; compiles the programs as well
const std = @import("std");

pub fn build(b: *std.Build) void {
    const target = b.standardTargetOptions(.{ .default_target = @import("peregrine").thisMachine() });
    const optimize = b.option(std.builtin.Optimize, "optimize", "Other than for measurements");
    const strip = b.option(bool, "strip", "Leave debug information out");
    const load = b.createModule(.{
        .root_source_file = b.path("load/main.zig"),
        .target = target,
        .optimize = optimize orelse .fast,
        .strip = strip,
    });
    const load_program = install(b, "load", "Build the load generator", load);
    // The engine as it ships: with its safety checks.
    const server = b.createModule(.{
        .root_source_file = b.path("peers/peregrine.zig"),
        .target = target,
        .optimize = optimize orelse .safe,
        .strip = strip,
    });
    const engine = b.dependency("peregrine", .{ .target = target, .optimize = optimize orelse .safe });
    server.addImport("peregrine", engine.module("peregrine"));
    const server_program = install(b, "peregrine", "Build the server of the Zig rows", server);

    const checked = b.createModule(.{
        .root_source_file = b.path("load/main.zig"),
        .target = target,
        .optimize = .debug,
        .strip = strip,
    });
    const tests = b.addTest(.{ .name = "load", .root_module = checked });
    const run = b.addRunArtifact(tests);
    run.has_side_effects = true;
    const programs = b.step("test-programs", "Compile the load generator's tests and the programs");
    for ([_]*std.Build.Step{ &tests.step, load_program, server_program }) |step| programs.dependOn(step);
    const test_step = b.step("test", "Run the load generator's tests, compile the programs");
    test_step.dependOn(&run.step);
    test_step.dependOn(programs);
}

fn install(
    b: *std.Build,
    name: []const u8,
    description: []const u8,
    module: *std.Build.Module,
) *std.Build.Step {
    const program = b.addExecutable(.{ .name = name, .root_module = module });
    b.step(name, description).dependOn(&b.addInstallArtifact(program, .{}).step);
    return &program.step;
}
