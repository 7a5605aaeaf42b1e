//! The part of the C API about traces: memory that all processes of a server share, and the records of a
//! face.
const std = @import("std");
const peregrine = @import("peregrine");
const errors = @import("errors.zig");
const Handle = @import("handle.zig").Handle;
const types = @import("types.zig");
const Code = types.Code;
const io = peregrine.io;
const sharing = io.sharing;
const trace = peregrine.trace;
const Area = trace.Area;

/// The name of the trace's memory, by which readers find it in /proc.
const name = "peregrine-trace";

/// The trace's memory in this process, and its descriptor; null: the process has none.
var opened: ?struct { memory: sharing.Memory, fd: i32 } = null;

pub export fn peregrine_trace_open(given: c_int) callconv(.c) c_int {
    if (opened) |own| return own.fd;
    const memory, const fd = (if (given < 0) create() else adopt(given)) catch |err| switch (err) {
        error.Malformed => return Code.format,
        else => |problem| {
            errors.setErrnoOf(problem);
            return Code.system;
        },
    };
    trace.use(areaOf(memory));
    opened = .{ .memory = memory, .fd = fd };
    return fd;
}

fn areaOf(memory: sharing.Memory) *Area {
    return @ptrCast(memory.bytes.ptr);
}

fn create() sharing.Error!struct { sharing.Memory, i32 } {
    const memory, const fd = try sharing.Memory.createForChildren(name, @sizeOf(Area));
    _ = Area.init(memory.bytes);
    return .{ memory, fd };
}

fn adopt(fd: i32) (sharing.Error || error{Malformed})!struct { sharing.Memory, i32 } {
    const memory = try sharing.Memory.openForChildren(fd, @sizeOf(Area));
    if (areaOf(memory).layout == Area.layout_now) return .{ memory, fd };
    memory.close();
    return error.Malformed;
}

pub export fn peregrine_trace_close() callconv(.c) void {
    const own = opened orelse return;
    trace.use(null);
    own.memory.close();
    opened = null;
}

pub export fn peregrine_trace_wanted() callconv(.c) *const u64 {
    return &trace.wantedUntil().raw;
}

pub export fn peregrine_trace(
    handle: *Handle,
    ticket: types.Ticket,
    kind: u32,
    size: u64,
    code: u32,
    text: ?[*]const u8,
    len: usize,
) callconv(.c) void {
    const step: trace.Kind, const way: trace.Way = switch (kind) {
        types.TraceKind.call => .{ .call, .in },
        types.TraceKind.receive => .{ .receive, .in },
        types.TraceKind.send => .{ .send, .out },
        types.TraceKind.returned => .{ .returned, .out },
        types.TraceKind.died => .{ .died, .out },
        else => return,
    };
    trace.write(&.{
        .place = .face,
        .way = way,
        .kind = step,
        .ticket = ticket,
        .engine = handle.engineProcess(),
        .size = size,
        .code = code,
        .text = if (text) |bytes| bytes[0..len] else "",
    });
}

pub export fn peregrine_trace_layout(layout: *types.TraceMemory) callconv(.c) void {
    layout.* = .{
        .layout = Area.layout_now,
        .bytes = @sizeOf(Area),
        .until = @offsetOf(Area, "until"),
        .server = @offsetOf(Area, "server"),
        .next = @offsetOf(Area, "next"),
        .records = @offsetOf(Area, "records"),
        .record_bytes = @sizeOf(trace.Record),
        .count = Area.count_max,
        .text_max = trace.Record.text_max,
    };
}

pub export fn peregrine_trace_name(list: u32, index: usize) callconv(.c) ?[*:0]const u8 {
    return switch (list) {
        0 => nameOf(trace.Place, index),
        1 => nameOf(trace.Kind, index),
        else => null,
    };
}

fn nameOf(comptime Names: type, index: usize) ?[*:0]const u8 {
    const all = comptime std.enums.values(Names);
    if (index >= all.len) return null;
    return @tagName(all[index]).ptr;
}
