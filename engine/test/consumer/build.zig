//! A project that uses the package as others will: through the repository's root. `zig build` builds and runs
//! it; `zig build check -Dprogram=FILE` compiles a program of somebody else's, `zig build test
//! -Dprogram=FILE` runs its tests. `-Dtls` and `-Dunchecked` are passed on to the package. `-Dstrip` leaves
//! debug information out, of the package, too.
const std = @import("std");

pub fn build(b: *std.Build) void {
    const target = b.standardTargetOptions(.{});
    const optimize = b.standardOptimizeOption(.{});
    const file = b.option([]const u8, "program", "The program (default: main.zig)");
    const module = b.createModule(.{
        .root_source_file = b.path(file orelse "main.zig"),
        .target = target,
        .optimize = optimize,
        .strip = b.option(bool, "strip", "Leave debug information out"),
    });
    const tls = b.option(bool, "tls", "What to say about TLS (default: nothing)");
    const unchecked = b.option(bool, "unchecked", "What to say about safety checks (default: nothing)");
    const peregrine = b.dependency("peregrine", .{
        .target = target,
        .optimize = optimize,
        .tls = tls,
        .unchecked = unchecked,
    });
    module.addImport("peregrine", peregrine.module("peregrine"));
    module.addImport("peregrine.web", peregrine.module("peregrine.web"));
    const said = b.addOptions();
    said.addOption(?bool, "tls", tls);
    module.addOptions("said", said);
    const program = b.addExecutable(.{ .name = "consumer", .root_module = module });
    b.default_step.dependOn(&b.addRunArtifact(program).step);
    b.step("check", "Compile the program").dependOn(&program.step);
    b.step("test", "Run the program's tests").dependOn(&b.addRunArtifact(b.addTest(.{
        .root_module = module,
    })).step);
}
