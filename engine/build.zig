//! The engine's rooms as Zig modules: what a room may import is listed here and nowhere else, so that the compiler refuses an
//! arrow that ARCHITECTURE.md does not draw.
//!
//!     zig build test        unit, wire and contract tests
//!     zig build abi         lib/libperegrine.a and include/peregrine.h, for C programs and the Perl module
//!     zig build examples    the example servers
//!     zig build bench       the yardstick and micro-benchmarks
const std = @import("std");

pub fn build(b: *std.Build) void {
    const target = b.standardTargetOptions(.{});
    const optimize = b.standardOptimizeOption(.{ .preferred_optimize_mode = .safe });
    const rooms: Rooms = .create(b, target, optimize);

    const test_step = b.step("test", "Run the engine's tests");
    inline for (.{ "protocol", "io", "server", "peregrine" }) |name| {
        const tests = b.addTest(.{ .name = name, .root_module = @field(rooms, name) });
        test_step.dependOn(&b.addRunArtifact(tests).step);
    }

    addAbi(b, target, optimize, rooms);
    addPrograms(b, "examples", "Build the example servers", "example", &.{"hello"}, target, optimize, rooms);
    addPrograms(b, "bench", "Build the yardstick and micro-benchmarks", "bench", &.{"yardstick"}, target, optimize, rooms);
}

const Rooms = struct {
    protocol: *std.Build.Module,
    io: *std.Build.Module,
    server: *std.Build.Module,
    peregrine: *std.Build.Module,

    fn create(b: *std.Build, target: std.Build.ResolvedTarget, optimize: std.builtin.Optimize) Rooms {
        const protocol = room(b, "src/protocol/protocol.zig", target, optimize);
        const io = room(b, "src/io/io.zig", target, optimize);
        const server = room(b, "src/server/server.zig", target, optimize);
        server.addImport("protocol", protocol);
        server.addImport("io", io);
        const peregrine = b.addModule("peregrine", .{
            .root_source_file = b.path("src/peregrine.zig"),
            .target = target,
            .optimize = optimize,
            .pic = true,
        });
        peregrine.addImport("server", server);
        peregrine.addImport("protocol", protocol);
        peregrine.addImport("io", io);
        return .{ .protocol = protocol, .io = io, .server = server, .peregrine = peregrine };
    }

    fn room(b: *std.Build, path: []const u8, target: std.Build.ResolvedTarget, optimize: std.builtin.Optimize) *std.Build.Module {
        // Position-independent, because all of it may end up in a Perl module's shared object.
        return b.createModule(.{ .root_source_file = b.path(path), .target = target, .optimize = optimize, .pic = true });
    }
};

fn addAbi(b: *std.Build, target: std.Build.ResolvedTarget, optimize: std.builtin.Optimize, rooms: Rooms) void {
    const module = b.createModule(.{
        .root_source_file = b.path("src/abi/abi.zig"),
        .target = target,
        .optimize = optimize,
        .link_libc = true,
        .pic = true,
    });
    module.addImport("peregrine", rooms.peregrine);
    const library = b.addLibrary(.{ .name = "peregrine", .linkage = .static, .root_module = module });
    library.bundle_compiler_rt = true;
    const step = b.step("abi", "Build the static library and install peregrine.h");
    step.dependOn(&b.addInstallArtifact(library, .{}).step);
    step.dependOn(&b.addInstallHeaderFile(b.path("include/peregrine.h"), "peregrine.h").step);
}

fn addPrograms(
    b: *std.Build,
    step_name: []const u8,
    description: []const u8,
    comptime folder: []const u8,
    comptime names: []const []const u8,
    target: std.Build.ResolvedTarget,
    optimize: std.builtin.Optimize,
    rooms: Rooms,
) void {
    const step = b.step(step_name, description);
    inline for (names) |name| {
        const module = b.createModule(.{
            .root_source_file = b.path(folder ++ "/" ++ name ++ ".zig"),
            .target = target,
            .optimize = optimize,
        });
        module.addImport("peregrine", rooms.peregrine);
        const program = b.addExecutable(.{ .name = name, .root_module = module });
        step.dependOn(&b.addInstallArtifact(program, .{}).step);
    }
}
