//! The part of the C API about requests that are served: routes, folders of files, the way to https, and the
//! folder of long bodies. C calls all of it before the first poll.
const std = @import("std");
const peregrine = @import("peregrine");
const Engine = @import("engine.zig").Engine;
const errors = @import("errors.zig");
const Handle = @import("handle.zig").Handle;
const sized = @import("sized.zig");
const types = @import("types.zig");
const Code = types.Code;
const Demand = peregrine.Demand;

pub export fn peregrine_add_route(handle: *Handle, given: *const sized.Header) callconv(.c) c_int {
    const engine = switch (handle.place()) {
        .here => |here| here.engine,
        .thread => |pair| pair.local,
        .joined => |interpreter| return interpreter.countRoute() orelse Code.range,
        .gone => return Code.gone,
    };
    if (engine.polled) return Code.out_of_order;
    const wanted = sized.read(types.Route, given);
    if (wanted.flags & ~@as(u32, types.RouteFlag.whole_body) != 0) return Code.range;
    const path = if (wanted.path) |text| std.mem.span(text) else "";
    const host = if (wanted.host) |text| std.mem.span(text) else "";
    const body: Demand.Body = if (wanted.flags & types.RouteFlag.whole_body != 0) .whole else .streamed;
    if (wanted.group >= peregrine.api_limits.groups_max) return Code.range;
    const group: u8 = @intCast(wanted.group);
    const number = engine.host.routes.add(path, host, body, group) catch |err| return switch (err) {
        error.OutOfMemory => Code.memory,
        error.TooMany => Code.range,
        error.BadPath => Code.address,
    };
    return number;
}

pub export fn peregrine_body_folder(handle: *Handle, path: [*:0]const u8) callconv(.c) c_int {
    const engine = handle.ownEngine() orelse return Code.gone;
    if (engine.polled) return Code.out_of_order;
    engine.worker.setBodyFolder(std.mem.span(path)) catch return Code.memory;
    return Code.ok;
}

pub export fn peregrine_add_folder(handle: *Handle, given: *const sized.Header) callconv(.c) c_int {
    const engine = switch (ownerOfAsides(handle)) {
        .engine => |engine| engine,
        .code => |code| return code,
    };
    const wanted = sized.read(types.Folder, given);
    if (wanted.flags != 0) return Code.range;
    const path = if (wanted.path) |text| std.mem.span(text) else "";
    const host = if (wanted.host) |text| std.mem.span(text) else "";
    const folder = if (wanted.folder) |text| std.mem.span(text) else "";
    const cache_control = if (wanted.cache_control) |text| std.mem.span(text) else null;
    engine.host.asides.addFolder(path, host, folder, cache_control) catch |err| switch (err) {
        error.OutOfMemory => return Code.memory,
        error.TooMany => return Code.range,
        error.BadPath, error.PathNotAbsolute, error.NameTooLong => return Code.address,
        error.NotFound => {
            errors.setErrno(.NOENT);
            return Code.system;
        },
        error.Exhausted, error.Busy => {
            errors.setErrno(.MFILE);
            return Code.system;
        },
    };
    return Code.ok;
}

pub export fn peregrine_redirect_to_https(handle: *Handle, port: c_uint) callconv(.c) c_int {
    const engine = switch (ownerOfAsides(handle)) {
        .engine => |engine| engine,
        .code => |code| return code,
    };
    const checked = std.math.cast(u16, port) orelse return Code.range;
    if (checked == 0) return Code.range;
    engine.host.asides.addRedirect(.{ .port = checked }) catch |err| switch (err) {
        error.OutOfMemory => return Code.memory,
        error.TooMany => return Code.range,
    };
    return Code.ok;
}

/// The engine that answers beside the application of a handle, or the code that the calling function returns.
const OwnerOfAsides = union(enum) { engine: *Engine, code: c_int };

fn ownerOfAsides(handle: *Handle) OwnerOfAsides {
    const engine = switch (handle.place()) {
        .here => |here| here.engine,
        .thread => |pair| pair.local,
        // The engine that the interpreter has joined answers beside it.
        .joined => return .{ .code = Code.ok },
        .gone => return .{ .code = Code.gone },
    };
    return if (engine.polled) .{ .code = Code.out_of_order } else .{ .engine = engine };
}
