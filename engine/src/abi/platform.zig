//! The platform of the C API: memory, sockets, threads and what they share. The files of this layer import it
//! by name, because the simulation of a ring pair (test/sim/rings/platform/platform.zig) has another one with
//! the same declarations: a schedule in place of threads.
const std = @import("std");
const peregrine = @import("peregrine");
const io = peregrine.io;

/// The C library's heap: that of the whole process.
pub const gpa = std.heap.c_allocator;
pub const Io = io.Native;
pub const Wakeup = io.Wakeup;
pub const Latch = io.Latch;
pub const Thread = std.Thread;
pub const spawn = io.thread.spawn;
/// A value that two threads use.
pub const Atomic = std.atomic.Value;
