//! The engine's layers as Zig modules: what a layer may import is listed here and nowhere else, so that the
//! compiler refuses an arrow that ARCHITECTURE.md does not draw.
//!
//!     zig build             the counter of example/, in zig-out/bin/, as counter.Dockerfile wants it
//!     zig build test        unit, wire and contract tests
//!     zig build test-abi    those of the C API among them
//!     zig build test-server test-package  those of the server, and of whole workers; test-web
//!     zig build test-hub    the hub against hiredis and redis-server, where they are installed
//!     zig build test-threads  what threads share, under ThreadSanitizer
//!     zig build test-tls    the TLS layer's tests (needs OpenSSL)
//!     zig build test-programs  those that speak to the kernel, in zig-out/bin/, for script/test-kernel
//!     zig build test-target-programs  those that another target can run, for script/matrix
//!     zig build abi         lib/libperegrine.a and include/peregrine.h, for C programs and the Perl module
//!     zig build library     these, lib/libperegrine.so.2 and lib/pkgconfig/peregrine.pc, on Linux
//!     zig build sim         the simulated histories and the fuzz corpus alone; those of TLS need OpenSSL
//!     zig build sim-rings  simulated histories of an engine and an application on threads of their own
//!     zig build fuzz        lib/libfuzz.a, which script/fuzz links with libFuzzer
//!     zig build elsewhere   compile the package with its examples, and the C API, for macOS and FreeBSD
//!     zig build examples    the example servers; zig build run-counter (and so on) runs one
//!     zig build docs        the manual of the package's declarations, in zig-out/docs/
//!     zig build bench       the yardstick and micro-benchmarks
//!
//! `zig build example-hello`, `bench-yardstick` and so on build one program.
const std = @import("std");

pub fn build(b: *std.Build) void {
    const target = b.standardTargetOptions(.{ .default_target = thisMachine() });
    if (target.result.os.tag == .windows) std.process.fatal(
        "Peregrine does not run on Windows: it waits with epoll, io_uring or kqueue.",
        .{},
    );
    const optimize = optimizeWanted(b);
    const with_tls = tlsWanted(b, target);
    const stripped = b.option(bool, "strip", "Leave debug information out") orelse false;
    const layers: Layers = .create(b, .{
        .target = target,
        .optimize = optimize,
        .tls = with_tls,
        .strip = if (stripped) true else null,
    });
    const filters = b.option(
        []const []const u8,
        "test-filter",
        "Only the tests whose names contain this text",
    ) orelse &.{};
    b.modules.put(b.graph.arena, "peregrine", layers.peregrine) catch @panic("OOM");
    b.modules.put(b.graph.arena, "peregrine.web", layers.web) catch @panic("OOM");

    const test_step = b.step("test", "Run the engine's tests");
    const programs: Programs = .{
        .kernel = b.step("test-programs", "Build the tests that speak to the kernel"),
        .target = b.step("test-target-programs", "Build tests for another processor or C library"),
    };
    addEngineTests(b, test_step, programs, target, optimize, layers, filters);
    const abi_step = b.step("test-abi", "Run the tests of the C API");
    addAbiTests(b, abi_step, programs, target, optimize, layers, filters);
    test_step.dependOn(abi_step);

    const hub_step = b.step("test-hub", "Run the hub's tests");
    addHubTests(b, hub_step, target, optimize, layers, filters);
    test_step.dependOn(hub_step);

    addThreadTests(b, target, filters);
    // To compile them optimised takes a minute each, and what `test` runs of them takes seconds without.
    test_step.dependOn(&ringsSimulation(b, target, .debug, filters).step);
    test_step.dependOn(&manyCases(b, target, .debug, with_tls, filters).step);
    b.step("sim", "Run the worker over the simulated network, and the fuzz corpus").dependOn(
        &manyCases(b, target, .safe, with_tls, filters).step,
    );
    b.step(
        "sim-rings",
        "Run a worker and an application behind the two ends of a simulated ring pair",
    ).dependOn(&ringsSimulation(b, target, .safe, filters).step);
    addFuzz(b, target);

    const consumer = b.addSystemCommand(&.{ b.graph.zig_exe, "build" });
    consumer.setCwd(b.path("test/consumer"));
    b.step("consumer", "Build and run a project that uses the package from a path").dependOn(&consumer.step);

    const manual = b.addLibrary(.{ .name = "peregrine", .root_module = layers.peregrine });
    const pages = b.addInstallDirectory(.{
        .source_dir = manual.getEmittedDocs(),
        .install_dir = .prefix,
        .install_subdir = "docs",
    });
    b.step("docs", "Write the manual of the package's declarations").dependOn(&pages.step);

    addElsewhere(b);
    addTlsTests(b, target, optimize, layers, with_tls, filters);
    addAbi(b, target, optimize, layers, with_tls);
    addPrograms(b, "examples", "Build the example servers", "example", &examples, target, optimize, layers);
    b.getInstallStep().dependOn(&b.top_level_steps.get("example-counter").?.step);
    addPrograms(
        b,
        "bench",
        "Build the yardstick and micro-benchmarks",
        "bench",
        &.{ "yardstick", "hop", "handshakes" },
        target,
        optimize,
        layers,
    );
}

/// Steps that build tests and do not run them.
const Programs = struct {
    kernel: *std.Build.Step,
    target: *std.Build.Step,
};

/// The tests beside the code have a program for each layer, because only the tests of a program's root module
/// run. Tests in test/ share one program for each public module that they import: each program analyses the
/// engine again, and that takes most of its compilation.
fn addEngineTests(
    b: *std.Build,
    test_step: *std.Build.Step,
    programs: Programs,
    target: std.Build.ResolvedTarget,
    optimize: std.builtin.Optimize,
    layers: Layers,
    filters: []const []const u8,
) void {
    inline for (.{ "protocol", "io", "hub", "server", "native", "peregrine", "web" }) |name| {
        const module = if (comptime std.mem.eql(u8, name, "hub"))
            hubUntraced(b, target, optimize)
        else
            @field(layers, name);
        const tests = addTest(b, name, module, filters);
        const run = &runOf(b, tests).step;
        test_step.dependOn(run);
        const is_alone = comptime std.mem.eql(u8, name, "server") or std.mem.eql(u8, name, "web");
        if (is_alone) b.step("test-" ++ name, "Run the tests beside the code of " ++ name).dependOn(run);
        const installed = &b.addInstallArtifact(tests, .{}).step;
        if (comptime std.mem.eql(u8, name, "io")) programs.kernel.dependOn(installed);
        programs.target.dependOn(installed);
    }

    const package = b.createModule(.{
        .root_source_file = b.path("test/package.zig"),
        .target = target,
        .optimize = optimize,
        .strip = layers.peregrine.strip,
    });
    package.addImport("peregrine", layers.peregrine);
    package.addImport("peregrine.web", layers.web);
    package.addImport("protocol", layers.protocol); // for clients of their own
    package.addImport("wanted", wantedOf(b));
    const chosen = b.addOptions();
    chosen.addOption(bool, "is_this_machine", target.query.cpu_model == .native);
    package.addOptions("chosen", chosen);
    const package_tests = addTest(b, "package", package, filters);
    const run_package = &runOf(b, package_tests).step;
    test_step.dependOn(run_package);
    b.step("test-package", "Run the tests of whole workers and servers").dependOn(run_package);
    const installed_package = &b.addInstallArtifact(package_tests, .{}).step;
    programs.kernel.dependOn(installed_package);
    programs.target.dependOn(installed_package);

    const wire = b.createModule(.{
        .root_source_file = b.path("test/wire/wire.zig"),
        .target = target,
        .optimize = optimize,
        .strip = layers.peregrine.strip,
    });
    wire.addImport("protocol", layers.protocol);
    wire.addImport("wanted", wantedOf(b));
    const wire_tests = addTest(b, "wire", wire, filters);
    test_step.dependOn(&runOf(b, wire_tests).step);
    programs.target.dependOn(&b.addInstallArtifact(wire_tests, .{}).step);
}

/// The hub without debug information. With it the allocator of tests unwinds the stack for each piece of
/// memory, which was more than half of what the hub's tests computed.
fn hubUntraced(
    b: *std.Build,
    target: std.Build.ResolvedTarget,
    optimize: std.builtin.Optimize,
) *std.Build.Module {
    const how: Layers.How = .{ .target = target, .optimize = optimize, .strip = true };
    const hub = Layers.layer(b, "src/hub/hub.zig", how);
    hub.addImport("protocol", Layers.layer(b, "src/protocol/protocol.zig", how));
    return hub;
}

/// Wishes of the environment for tests: a module, because a program imports files of one folder only.
fn wantedOf(b: *std.Build) *std.Build.Module {
    return b.createModule(.{ .root_source_file = b.path("test/wanted.zig") });
}

fn addTest(
    b: *std.Build,
    name: []const u8,
    module: *std.Build.Module,
    filters: []const []const u8,
) *std.Build.Step.Compile {
    return b.addTest(.{ .name = name, .root_module = module, .filters = filters });
}

/// The engine ships with its safety checks on: whatever it, or the program that uses it, is to be optimised
/// for, they stay, unless somebody asks for `unchecked` by name. Programs that use the package say
/// `.optimize`, people say `--release`.
fn optimizeWanted(b: *std.Build) std.builtin.Optimize {
    const unchecked = b.option(bool, "unchecked", "Leave the checks out of optimised builds") orelse false;
    const named = b.option(
        std.builtin.Optimize,
        "optimize",
        "All but debug are one: optimised, with all safety checks",
    );
    const released = b.standardOptimizeOption(.{ .preferred_optimize_mode = .safe });
    if ((named orelse released) == .debug) return .debug;
    return if (unchecked) .fast else .safe;
}

/// The machine that builds, but for AVX-512: many Xeons lower their clock for all that runs when they meet a
/// 512-bit vector, the kernel's part of a request included. `-Dcpu=native` has it.
pub fn thisMachine() std.Target.Query {
    const native = @import("builtin").cpu;
    // Without a model, features that are taken away make the rest the oldest x86_64.
    var query: std.Target.Query = .{ .cpu_model = .native };
    if (native.arch != .x86_64) return query;
    const all = native.arch.allFeaturesList();
    const unwanted = @backingInt(std.Target.x86.Feature.avx512f);
    for (all, 0..) |_, index| {
        var needed: std.Target.Cpu.Feature.Set = .empty;
        needed.addFeature(@intCast(index));
        needed.populateDependencies(all);
        if (needed.isEnabled(unwanted)) query.cpu_features_sub.addFeature(@intCast(index));
    }
    return query;
}

/// A test's run, never answered from the cache: script/test counts what really ran.
fn runOf(b: *std.Build, tests: *std.Build.Step.Compile) *std.Build.Step.Run {
    const run = b.addRunArtifact(tests);
    run.has_side_effects = true;
    return run;
}

const Layers = struct {
    protocol: *std.Build.Module,
    io: *std.Build.Module,
    tls: *std.Build.Module,
    hub: *std.Build.Module,
    server: *std.Build.Module,
    native: *std.Build.Module,
    peregrine: *std.Build.Module,
    /// Uses what every program can use, and is a module of its own: nothing knows it.
    web: *std.Build.Module,

    fn create(b: *std.Build, how: How) Layers {
        const protocol = layer(b, "src/protocol/protocol.zig", how);
        const io = layer(b, "src/io/io.zig", how);
        const tls = tlsRoom(b, how);
        const hub = layer(b, "src/hub/hub.zig", how);
        hub.addImport("protocol", protocol);
        const server = layer(b, "src/server/server.zig", how);
        server.addImport("protocol", protocol);
        server.addImport("io", io);
        server.addImport("tls", tls);
        const native = layer(b, "src/native/native.zig", how);
        native.addImport("server", server);
        native.addImport("protocol", protocol);
        native.addImport("io", io);
        native.addImport("tls", tls);
        const peregrine = layer(b, "src/peregrine.zig", how);
        peregrine.addImport("server", server);
        peregrine.addImport("native", native);
        peregrine.addImport("protocol", protocol);
        peregrine.addImport("io", io);
        peregrine.addImport("tls", tls);
        const package = b.addOptions();
        package.addOption([:0]const u8, "version", @import("build.zig.zon").version);
        peregrine.addOptions("package_options", package);
        const web = layer(b, "src/web/web.zig", how);
        web.addImport("peregrine", peregrine);
        return .{
            .protocol = protocol,
            .io = io,
            .tls = tls,
            .hub = hub,
            .server = server,
            .native = native,
            .peregrine = peregrine,
            .web = web,
        };
    }

    /// Options that all layers of a program are compiled with.
    const How = struct {
        target: std.Build.ResolvedTarget,
        optimize: std.builtin.Optimize,
        tls: bool = false,
        /// There is no debug information, and with that no path of the machine that built.
        strip: ?bool = null,
        /// The code counts what runs, for a fuzzer.
        coverage: bool = false,
        /// Accesses of threads are watched by ThreadSanitizer.
        watched: bool = false,
    };

    fn layer(b: *std.Build, path: []const u8, how: How) *std.Build.Module {
        return b.createModule(.{
            .root_source_file = b.path(path),
            .target = how.target,
            .optimize = how.optimize,
            // Linux's system calls need none; elsewhere only libc has them.
            .link_libc = if (how.target.result.os.tag == .linux and !how.watched) null else true,
            // Position-independent, because all of it may end up in a Perl module's shared object.
            .pic = true,
            .strip = how.strip,
            .fuzz = how.coverage,
            .sanitize_thread = if (how.watched) true else null,
            // With libc, checked code would get canaries and keep frame pointers: a tenth of the instructions
            // of a hello. An overrun of the stack is found by the bounds check that comes before it.
            .stack_protector = false,
            .omit_frame_pointer = how.optimize != .debug,
        });
    }
};

/// Tests under ThreadSanitizer, of data that threads share: the ring, C programs whose engine runs on a
/// thread of its own, threads that read files, and threads that answer for Zig handlers.
fn addThreadTests(b: *std.Build, target: std.Build.ResolvedTarget, filters: []const []const u8) void {
    const step = b.step("test-threads", "Run what threads share under ThreadSanitizer");
    const programs = b.step("test-threads-programs", "Compile them only");
    const how: Layers.How = .{ .target = target, .optimize = .debug, .watched = true };
    const layers: Layers = .create(b, how);
    const ring = onPlatform(b, Layers.layer(b, "src/abi/ring.zig", how), layers, threads_platform);
    const storage = Layers.layer(b, "src/io/storage.zig", how);
    const abi = onPlatform(b, Layers.layer(b, "src/abi/abi.zig", how), layers, threads_platform);
    const programs_with_threads = Layers.layer(b, "test/threads.zig", how);
    programs_with_threads.addImport("abi", abi);
    programs_with_threads.addImport("peregrine", layers.peregrine);
    const all = [_]*std.Build.Step.Compile{
        addTest(b, "ring-watched", ring, filters),
        addTest(b, "storage-watched", storage, filters),
        addTest(b, "threads-watched", programs_with_threads, filters),
    };
    for (all) |tests| {
        programs.dependOn(&tests.step);
        step.dependOn(&runOf(b, tests).step);
    }
}

/// The tests with thousands of cases, in one program.
fn manyCases(
    b: *std.Build,
    target: std.Build.ResolvedTarget,
    optimize: std.builtin.Optimize,
    with_tls: bool,
    filters: []const []const u8,
) *std.Build.Step.Run {
    const how: Layers.How = .{
        .target = target,
        .optimize = optimize,
        .tls = with_tls,
        .strip = optimize == .debug, // as the simulation of rings
    };
    const layers: Layers = .create(b, how);
    const module = Layers.layer(b, "test/many_cases.zig", how);
    const certificates = b.createModule(.{ .root_source_file = b.path("test/tls/certificates.zig") });
    certificates.addImport("tls", layers.tls);
    module.addImport("certificates", certificates);
    module.addImport("protocol", layers.protocol);
    module.addImport("hub", layers.hub);
    module.addImport("peregrine", layers.peregrine);
    module.addImport("peregrine.web", layers.web);
    module.addImport("spoken", spokenModule(b, how, layers));
    module.addImport("wanted", wantedOf(b));
    const run = runOf(b, addTest(b, "many-cases", module, filters));
    run.setCwd(b.path("."));
    return run;
}

/// The C API on threads that a schedule plays: a test program of its own, because the layer `abi` is compiled
/// for another platform.
fn ringsSimulation(
    b: *std.Build,
    target: std.Build.ResolvedTarget,
    optimize: std.builtin.Optimize,
    filters: []const []const u8,
) *std.Build.Step.Run {
    // With debug information the allocator of tests unwinds the stack for each piece of memory.
    const how: Layers.How = .{ .target = target, .optimize = optimize, .strip = optimize == .debug };
    const layers: Layers = .create(b, how);
    const abi = onPlatform(b, Layers.layer(b, "src/abi/abi.zig", how), layers, simulated_platform);
    const module = Layers.layer(b, "test/sim/rings/rings_test.zig", how);
    const client = b.createModule(.{ .root_source_file = b.path("test/sim/client.zig") });
    client.addImport("peregrine", layers.peregrine);
    module.addImport("client", client);
    module.addImport("wanted", wantedOf(b));
    module.link_libc = true;
    module.addImport("protocol", layers.protocol);
    module.addImport("peregrine", layers.peregrine);
    module.error_tracing = true;
    module.addImport("platform", abi.import_table.get("platform").?);
    module.addImport("abi", abi);
    module.addImport("hub", layers.hub);
    return runOf(b, addTest(b, "rings-sim", module, filters));
}

/// The package on the systems with kqueue, without TLS: all examples are checked there, and one of
/// them is linked, too.
fn addElsewhere(b: *std.Build) void {
    const step = b.step("elsewhere", "Compile the package, its examples and the C API for macOS and FreeBSD");
    for ([_]std.Target.Query{
        .{ .cpu_arch = .aarch64, .os_tag = .macos },
        .{ .cpu_arch = .x86_64, .os_tag = .freebsd },
    }) |query| {
        const how: Layers.How = .{ .target = b.resolveTargetQuery(query), .optimize = .debug };
        const layers: Layers = .create(b, how);
        const abi = onPlatform(b, Layers.layer(b, "src/abi/abi.zig", how), layers, threads_platform);
        const library_name = b.fmt("peregrine-{t}", .{query.os_tag.?});
        const library = b.addLibrary(.{ .name = library_name, .root_module = abi });
        step.dependOn(&library.step);
        const all = Layers.layer(b, "test/examples.zig", how);
        for (examples) |name| {
            const module = Layers.layer(b, b.fmt("example/{s}.zig", .{name}), how);
            module.addImport("peregrine", layers.peregrine);
            all.addImport(name, module);
        }
        const checked_name = b.fmt("examples-{t}", .{query.os_tag.?});
        const checked = b.addLibrary(.{ .name = checked_name, .root_module = all });
        step.dependOn(&checked.step);
        const linked = Layers.layer(b, "example/dirserver.zig", how);
        linked.strip = true; // takes half as long
        linked.addImport("peregrine", layers.peregrine);
        const program = b.addExecutable(.{
            .name = b.fmt("dirserver-{t}", .{query.os_tag.?}),
            .root_module = linked,
        });
        // The program is never run. A request for its file makes the compiler link it.
        _ = program.getEmittedBin();
        step.dependOn(&program.step);
    }
}

const examples = [_][]const u8{ "hello", "counter", "basic", "dirserver", "fileserver", "websocket" };

/// Commands on their way through a ring pair, which are looked at without the rest of the C API.
fn spokenModule(b: *std.Build, how: Layers.How, layers: Layers) *std.Build.Module {
    return onPlatform(b, Layers.layer(b, "src/abi/spoken.zig", how), layers, threads_platform);
}

/// The fuzz targets as a library for libFuzzer: checked, optimised, and counting what runs.
fn addFuzz(b: *std.Build, target: std.Build.ResolvedTarget) void {
    const how: Layers.How = .{ .target = target, .optimize = .safe, .coverage = true };
    const layers: Layers = .create(b, how);
    const module = Layers.layer(b, "test/fuzz/libfuzzer.zig", how);
    module.link_libc = true;
    module.addImport("protocol", layers.protocol);
    module.addImport("hub", layers.hub);
    module.addImport("peregrine", layers.peregrine);
    module.addImport("peregrine.web", layers.web);
    module.addImport("spoken", spokenModule(b, how, layers));
    const library = b.addLibrary(.{ .name = "fuzz", .linkage = .static, .root_module = module });
    library.bundle_compiler_rt = true;
    b.step("fuzz", "Build the fuzz targets for libFuzzer").dependOn(&b.addInstallArtifact(library, .{}).step);
}

/// With OpenSSL or without: as -Dtls says, else whether this machine has the library to link with.
fn tlsWanted(b: *std.Build, target: std.Build.ResolvedTarget) bool {
    const wanted = b.option(bool, "tls", "TLS by OpenSSL 3 (default: if its library is found)");
    return wanted orelse (isHere(target) and findsLibrary(b, "libssl.so"));
}

/// Whether the target is this machine, whose libraries a program can be linked with.
fn isHere(target: std.Build.ResolvedTarget) bool {
    const query = target.query;
    return query.cpu_arch == null and query.isNativeOs() and query.isNativeAbi();
}

fn findsLibrary(b: *std.Build, name: []const u8) bool {
    const io = b.graph.io;
    for ([_][]const u8{
        "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64",
        "/usr/lib",                  "/usr/local/lib",
    }) |folder| {
        const path = b.pathJoin(&.{ folder, name });
        std.Io.Dir.accessAbsolute(io, path, .{}) catch continue;
        return true;
    }
    return false;
}

/// The layer `tls`. Without OpenSSL it has the same names and says so when it is asked for more.
fn tlsRoom(b: *std.Build, how: Layers.How) *std.Build.Module {
    const options = b.addOptions();
    options.addOption(bool, "enabled", how.tls);
    const tls = Layers.layer(b, "src/tls/tls.zig", how);
    tls.addOptions("tls_options", options);
    if (how.tls) {
        tls.link_libc = true;
        tls.linkSystemLibrary("ssl", .{});
        tls.linkSystemLibrary("crypto", .{});
    }
    return tls;
}

fn addTlsTests(
    b: *std.Build,
    target: std.Build.ResolvedTarget,
    optimize: std.builtin.Optimize,
    layers: Layers,
    enabled: bool,
    filters: []const []const u8,
) void {
    const step = b.step("test-tls", "Run the tests of the TLS layer");
    step.dependOn(&runOf(b, addTest(b, "tls", layers.tls, filters)).step);
    if (!enabled) return;
    const module = b.createModule(.{
        .root_source_file = b.path("test/tls/tls.zig"),
        .target = target,
        .optimize = optimize,
        .strip = layers.peregrine.strip,
    });
    module.addImport("peregrine", layers.peregrine);
    module.addImport("tls", layers.tls);
    module.addImport("wanted", wantedOf(b));
    step.dependOn(&runOf(b, addTest(b, "tls-whole", module, filters)).step);
}

fn abiModule(
    b: *std.Build,
    target: std.Build.ResolvedTarget,
    optimize: std.builtin.Optimize,
    layers: Layers,
) *std.Build.Module {
    const module = b.createModule(.{
        .root_source_file = b.path("src/abi/abi.zig"),
        .target = target,
        .optimize = optimize,
        .strip = layers.peregrine.strip,
        .link_libc = true,
        .pic = true,
    });
    return onPlatform(b, module, layers, threads_platform);
}

/// The platform of the layer `abi`: threads, or the schedule of a simulation.
const threads_platform = "src/abi/platform.zig";
const simulated_platform = "test/sim/rings/platform/platform.zig";

/// Gives a module of the layer `abi` its imports.
fn onPlatform(
    b: *std.Build,
    module: *std.Build.Module,
    layers: Layers,
    platform_path: []const u8,
) *std.Build.Module {
    const platform = b.createModule(.{ .root_source_file = b.path(platform_path) });
    platform.addImport("peregrine", layers.peregrine);
    module.addImport("platform", platform);
    module.addImport("peregrine", layers.peregrine);
    module.addImport("hub", layers.hub);
    return module;
}

/// The C API's own tests, and the comparison with its header.
fn addAbiTests(
    b: *std.Build,
    step: *std.Build.Step,
    programs: Programs,
    target: std.Build.ResolvedTarget,
    optimize: std.builtin.Optimize,
    layers: Layers,
    filters: []const []const u8,
) void {
    const abi = abiModule(b, target, optimize, layers);
    const abi_tests = addTest(b, "abi", abi, filters);
    const abi_run = runOf(b, abi_tests);
    // glibc overwrites memory that is freed, so that a read of it does not find what was there.
    abi_run.setEnvironmentVariable("MALLOC_PERTURB_", "85");
    step.dependOn(&abi_run.step);
    programs.target.dependOn(&b.addInstallArtifact(abi_tests, .{}).step);
    const header = b.addTranslateC(.{
        .root_source_file = b.path("include/peregrine.h"),
        .target = target,
        .optimize = optimize,
        .link_libc = true,
    });
    const module = b.createModule(.{
        .root_source_file = b.path("test/abi.zig"),
        .target = target,
        .optimize = optimize,
        .strip = layers.peregrine.strip,
    });
    module.addImport("abi", abi);
    module.addImport("c", header.createModule());
    module.addImport("peregrine", layers.peregrine);
    const whole_tests = addTest(b, "abi-whole", module, filters);
    step.dependOn(&runOf(b, whole_tests).step);
    programs.target.dependOn(&b.addInstallArtifact(whole_tests, .{}).step);
}

/// Tests of the hub against other programs. hiredis is linked with the tests only.
fn addHubTests(
    b: *std.Build,
    step: *std.Build.Step,
    target: std.Build.ResolvedTarget,
    optimize: std.builtin.Optimize,
    layers: Layers,
    filters: []const []const u8,
) void {
    const module = b.createModule(.{
        .root_source_file = b.path("test/hub/redis_test.zig"),
        .target = target,
        .optimize = optimize,
        .strip = layers.peregrine.strip,
    });
    module.addImport("hub", layers.hub);
    step.dependOn(&runOf(b, addTest(b, "hub-redis", module, filters)).step);
    addHiredis(b, step, target, optimize, layers, filters);
}

fn addHiredis(
    b: *std.Build,
    step: *std.Build.Step,
    target: std.Build.ResolvedTarget,
    optimize: std.builtin.Optimize,
    layers: Layers,
    filters: []const []const u8,
) void {
    const wanted = b.option(bool, "hiredis", "Compare with hiredis (default: if its library is found)");
    if (!(wanted orelse (isHere(target) and findsLibrary(b, "libhiredis.so")))) return;
    const header = b.addTranslateC(.{
        .root_source_file = b.path("test/hub/hiredis.h"),
        .target = target,
        .optimize = optimize,
        .link_libc = true,
    });
    const module = b.createModule(.{
        .root_source_file = b.path("test/hub/hiredis_test.zig"),
        .target = target,
        .optimize = optimize,
        .strip = layers.peregrine.strip,
        .link_libc = true,
    });
    module.linkSystemLibrary("hiredis", .{});
    module.addImport("c", header.createModule());
    module.addImport("hub", layers.hub);
    step.dependOn(&runOf(b, addTest(b, "hub-hiredis", module, filters)).step);
}

fn addAbi(
    b: *std.Build,
    target: std.Build.ResolvedTarget,
    optimize: std.builtin.Optimize,
    layers: Layers,
    with_tls: bool,
) void {
    const module = abiModule(b, target, optimize, layers);
    const library = b.addLibrary(.{ .name = "peregrine", .linkage = .static, .root_module = module });
    library.bundle_compiler_rt = false; // see src/abi/stack_probe.zig
    const step = b.step("abi", "Build the static library and install peregrine.h");
    step.dependOn(&b.addInstallArtifact(library, .{}).step);
    step.dependOn(&b.addInstallHeaderFile(b.path("include/peregrine.h"), "peregrine.h").step);
    if (target.result.os.tag == .linux) addShared(b, step, target, library, with_tls);
}

/// The shared library of the static one's object, linked as a C compiler links it, and peregrine.pc.
fn addShared(
    b: *std.Build,
    abi_step: *std.Build.Step,
    target: std.Build.ResolvedTarget,
    library: *std.Build.Step.Compile,
    with_tls: bool,
) void {
    const soname = "libperegrine.so.2"; // of PEREGRINE_ABI_VERSION, as in include/peregrine.map
    const link = b.addSystemCommand(&.{ b.graph.zig_exe, "cc", "-shared", "-Wl,-soname," ++ soname });
    if (!isHere(target)) {
        link.addArgs(&.{ "-target", target.query.zigTriple(b.graph.arena) catch @panic("OOM") });
    }
    // No C is compiled: without the flag the compiler would make a runtime for its checks, in 20 s.
    link.addArg("-fno-sanitize=undefined");
    link.addPrefixedFileArg("-Wl,--version-script=", b.path("include/peregrine.map"));
    link.addArg("-Wl,--whole-archive");
    link.addFileArg(library.getEmittedBin());
    link.addArg("-Wl,--no-whole-archive");
    if (with_tls) link.addArgs(&.{ "-lssl", "-lcrypto" });
    link.addArg("-o");
    const shared = link.addOutputFileArg(soname);

    const texts = b.addWriteFiles();
    // A script of the linker in place of a link, which a build step cannot install.
    const name = texts.add("libperegrine.so", "INPUT(" ++ soname ++ ")\n");
    var pc: []const u8 = @embedFile("include/peregrine.pc.in");
    for ([_][2][]const u8{
        .{ "@prefix@", "${pcfiledir}/../.." },
        .{ "@libdir@", "${prefix}/lib" },
        .{ "@version@", @import("build.zig.zon").version },
        .{ "@libs@", if (with_tls) "-lssl -lcrypto" else "" },
    }) |pair| pc = std.mem.replaceOwned(u8, b.graph.arena, pc, pair[0], pair[1]) catch @panic("OOM");

    const step = b.step("library", "Build and install libperegrine.so, peregrine.pc and what `abi` does");
    step.dependOn(abi_step);
    step.dependOn(&b.addInstallLibFile(shared, soname).step);
    step.dependOn(&b.addInstallLibFile(name, "libperegrine.so").step);
    step.dependOn(&b.addInstallLibFile(texts.add("peregrine.pc", pc), "pkgconfig/peregrine.pc").step);
}

fn addPrograms(
    b: *std.Build,
    step_name: []const u8,
    description: []const u8,
    comptime folder: []const u8,
    comptime names: []const []const u8,
    target: std.Build.ResolvedTarget,
    optimize: std.builtin.Optimize,
    layers: Layers,
) void {
    const step = b.step(step_name, description);
    inline for (names) |name| {
        const module = b.createModule(.{
            .root_source_file = b.path(folder ++ "/" ++ name ++ ".zig"),
            .target = target,
            .optimize = optimize,
            .strip = layers.peregrine.strip,
        });
        module.addImport("peregrine", layers.peregrine);
        const program = b.addExecutable(.{ .name = name, .root_module = module });
        const install = &b.addInstallArtifact(program, .{}).step;
        step.dependOn(install);
        b.step(folder ++ "-" ++ name, "Build " ++ folder ++ "/" ++ name ++ ".zig").dependOn(install);
        const run = b.addRunArtifact(program);
        run.addPassthruArgs();
        b.step("run-" ++ name, "Run " ++ folder ++ "/" ++ name ++ ".zig").dependOn(&run.step);
    }
}
