//! The part of the C API about listeners: sockets that are made without a worker, and the proxies that a
//! worker believes when they tell of clients.
const std = @import("std");
const peregrine = @import("peregrine");
const EngineWorker = @import("engine_worker.zig").EngineWorker;
const Handle = @import("handle.zig").Handle;
const errors = @import("errors.zig");
const sized = @import("sized.zig");
const types = @import("types.zig");
const Code = types.Code;
const io = peregrine.io;
const Networks = peregrine.Networks;
const gpa = std.heap.c_allocator;

pub export fn peregrine_open_unix(given: *const sized.Header) callconv(.c) c_int {
    const wanted = sized.read(types.UnixSocket, given);
    const path = wanted.path orelse return Code.address;
    const address = io.Address.unixPath(std.mem.span(path)) catch return Code.address;
    const access: io.SocketAccess = .{
        .mode = optional(u12, wanted.mode) catch return Code.range,
        .uid = optional(u32, wanted.uid) catch return Code.range,
        .gid = optional(u32, wanted.gid) catch return Code.range,
    };
    const backlog = std.math.cast(u31, wanted.backlog) orelse return Code.range;
    return io.listenSocket(&address, .{ .backlog = backlog, .access = access }) catch |err| {
        errors.setErrnoOf(err);
        return Code.system;
    };
}

/// A number from C, where negative numbers stand for null.
fn optional(comptime T: type, value: i64) error{OutOfRange}!?T {
    if (value < 0) return null;
    return std.math.cast(T, value) orelse error.OutOfRange;
}

pub export fn peregrine_listener_proxies(
    handle: *Handle,
    listener: c_int,
    proxies: ?[*:0]const u8,
) callconv(.c) c_int {
    const engine = handle.ownEngine() orelse return Code.gone;
    const number = std.math.cast(u32, listener) orelse return Code.range;
    return handle.call(setProxies, .{ &engine.worker, number, proxies });
}

fn setProxies(worker: *EngineWorker, listener: u32, proxies: ?[*:0]const u8) c_int {
    if (listener >= worker.listeners.items.len) return Code.range;
    const networks: ?Networks = if (proxies) |text| parse(text) catch |err| return codeOf(err) else null;
    worker.proxyListener(listener, networks);
    return Code.ok;
}

pub export fn peregrine_trusted_proxies(
    handle: *Handle,
    proxies: ?[*:0]const u8,
    header: c_int,
) callconv(.c) c_int {
    const engine = handle.ownEngine() orelse return Code.gone;
    const known: peregrine.ForwardedHeader = switch (header) {
        types.ForwardedHeader.x_forwarded => .x_forwarded,
        types.ForwardedHeader.forwarded => .forwarded,
        else => return Code.range,
    };
    return handle.call(setTrust, .{ &engine.worker, proxies, known });
}

fn setTrust(worker: *EngineWorker, proxies: ?[*:0]const u8, known: peregrine.ForwardedHeader) c_int {
    const text = proxies orelse {
        worker.clients.setTrust(null);
        return Code.ok;
    };
    worker.clients.setTrust(.{ .networks = parse(text) catch |err| return codeOf(err), .header = known });
    return Code.ok;
}

pub export fn peregrine_networks_fault(
    text: [*:0]const u8,
    at: *usize,
    len: *usize,
) callconv(.c) ?[*:0]const u8 {
    var fault: Networks.Fault = .{};
    var networks = Networks.parse(gpa, std.mem.span(text), &fault) catch |err| {
        at.* = fault.at;
        len.* = fault.len;
        return if (err == error.BadNetwork) fault.reason.ptr else "cannot be checked: out of memory";
    };
    networks.deinit();
    return null;
}

fn parse(text: [*:0]const u8) Networks.ParseError!Networks {
    var fault: Networks.Fault = .{};
    return Networks.parse(gpa, std.mem.span(text), &fault);
}

fn codeOf(err: Networks.ParseError) c_int {
    return switch (err) {
        error.OutOfMemory => Code.memory,
        error.BadNetwork => Code.address,
    };
}
