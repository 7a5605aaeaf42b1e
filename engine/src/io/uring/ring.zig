//! Job: the submission and the completion ring of io_uring, and the operations that `Uring` asks for, each as
//! a small typed function. Does not know: what the operations are good for, and whose sockets they are.
//! Follows io_uring(7), io_uring_enter(2).
//!
//! Operations are queued here and reach the kernel with the next `enter`, in order. The ring belongs to the
//! thread that enters first: the kernel then keeps its work for us until that thread enters again
//! (IORING_SETUP_DEFER_TASKRUN), and interrupts no thread.
const std = @import("std");
const linux = std.os.linux;
const fork = @import("../fork.zig");
const sys = @import("../sys.zig");
const assert = std.debug.assert;

/// The label that a completion gives back: it names the entry and the kind of operation. `generation` tells
/// later owners of a number apart.
pub const Label = packed struct(u64) {
    index: u32,
    generation: u28 = 0,
    kind: Kind,

    /// The kind of operation.
    pub const Kind = enum(u4) {
        /// No entry waits for the result: a cancellation, a close.
        none,
        accept,
        receive,
        /// The kernel has not taken all of a send.
        send,
        /// The rest of a send.
        block,
        /// The socket has room to send.
        room,
        /// An error or hang-up on a socket that is not being read, or the end of what its peer sends.
        trouble,
        waker,
        timer,
        /// `fd` is readable because something was left over.
        knock,
    };
};

/// The kernel's answer to an operation: a label, a result, flags.
pub const Completion = linux.io_uring_cqe;

/// Operations that fit between two visits to the kernel; one more costs a visit of its own.
const submissions = 512;
/// Completions that the kernel has room for. What exceeds them it keeps elsewhere, which is slower.
const completions = 4096;

/// The submission and the completion ring.
pub const Ring = struct {
    plumbing: linux.IoUring,
    /// Descriptors that can be known by a number in the kernel's table.
    table_len: u32 = 0,
    /// Owned by a thread.
    enabled: bool = false,
    /// The ring's thread is gone, and somebody else cleans up: nothing is handed over any more.
    orphaned: bool = false,
    /// Takes the operations of an orphaned ring, which reach no kernel.
    nowhere: linux.io_uring_sqe = undefined,
    /// The kernel knows the ring by an index, which is quicker than by its descriptor.
    registered: ?u32 = null,

    /// Why a ring cannot be made.
    pub const InitError = error{
        /// A policy forbids io_uring (EPERM, EACCES).
        AccessDenied,
        /// The kernel has no io_uring, or is older than 6.1.
        Unsupported,
    } || sys.ResourceError;

    pub fn init() InitError!Ring {
        var params = std.mem.zeroInit(linux.io_uring_params, .{
            .flags = linux.IORING_SETUP_CLAMP | linux.IORING_SETUP_CQSIZE | linux.IORING_SETUP_SUBMIT_ALL |
                linux.IORING_SETUP_R_DISABLED | linux.IORING_SETUP_SINGLE_ISSUER |
                linux.IORING_SETUP_DEFER_TASKRUN,
            .cq_entries = completions,
        });
        const plumbing = linux.IoUring.init_params(submissions, &params) catch |err| return switch (err) {
            error.PermissionDenied, error.AccessDenied => error.AccessDenied,
            error.ArgumentsInvalid, error.SystemOutdated => error.Unsupported,
            error.ProcessFdQuotaExceeded => error.ProcessDescriptorsExhausted,
            error.SystemFdQuotaExceeded => error.SystemDescriptorsExhausted,
            error.SystemResources, error.OutOfMemory => error.SystemResources,
            else => error.Unexpected,
        };
        var ring: Ring = .{ .plumbing = plumbing };
        // The kernel reads operations by way of a list of their places, which is the same for ever.
        for (ring.plumbing.sq.array, 0..) |*place, number| place.* = @intCast(number);
        // Without a table of registered files everything works, only slower.
        if (ring.plumbing.register_files_sparse(identity.len)) ring.table_len = identity.len else |_| {}
        return ring;
    }

    const identity: [4096]sys.Fd = numbers: {
        @setEvalBranchQuota(10_000);
        var list: [4096]sys.Fd = undefined;
        for (&list, 0..) |*fd, number| fd.* = number;
        break :numbers list;
    };

    /// The kernel drops operations under way, sooner or later: see `cancelAll`.
    pub fn deinit(ring: *Ring) void {
        ring.plumbing.deinit();
    }

    // ---- What is asked for

    /// Takes connections, one completion each, until cancelled or failed.
    pub fn accept(ring: *Ring, fd: sys.Fd, label: Label) void {
        const sqe = ring.prepare(.ACCEPT, fd, label);
        sqe.rw_flags = linux.SOCK.NONBLOCK | linux.SOCK.CLOEXEC;
        sqe.ioprio = linux.IORING_ACCEPT_MULTISHOT;
    }

    /// Receives into the buffers of a group, one completion per buffer, until cancelled, failed
    /// or out of buffers.
    pub fn receive(ring: *Ring, fd: sys.Fd, group: u16, label: Label) void {
        const sqe = ring.prepare(.RECV, fd, label);
        sqe.flags = linux.IOSQE_BUFFER_SELECT;
        sqe.buf_index = group;
        sqe.ioprio = linux.IORING_RECV_MULTISHOT;
    }

    /// Lets the kernel know a descriptor by its number in a table of ours, which is quicker. It keeps the
    /// file open until `detach`. False: the table does not go so far.
    pub fn attach(ring: *Ring, fd: sys.Fd) bool {
        if (fd >= ring.table_len) return false;
        ring.updateTable(fd, fd);
        return true;
    }

    /// Takes a descriptor out of the kernel's table.
    pub fn detach(ring: *Ring, fd: sys.Fd) void {
        ring.updateTable(fd, -1);
    }

    fn updateTable(ring: *Ring, slot: sys.Fd, fd: sys.Fd) void {
        const sqe = ring.prepare(.FILES_UPDATE, -1, .{ .index = 0, .kind = .none });
        sqe.flags = linux.IOSQE_CQE_SKIP_SUCCESS;
        sqe.off = @intCast(slot);
        sqe.addr = @intFromPtr(if (fd < 0) &no_fd else &identity[@intCast(fd)]);
        sqe.len = 1;
    }

    const no_fd: sys.Fd = -1;

    /// Sends what the kernel has room for, when it is asked. Only if that is not all of `bytes`
    /// there is a completion.
    pub fn send(ring: *Ring, fd: sys.Fd, attached: bool, bytes: []const u8, label: Label) void {
        const sqe = ring.prepareSend(fd, bytes, label);
        sqe.flags = linux.IOSQE_CQE_SKIP_SUCCESS | @as(u8, if (attached) linux.IOSQE_FIXED_FILE else 0);
        sqe.rw_flags |= linux.MSG.DONTWAIT;
    }

    /// Sends all of `bytes`, which must stay until the completion, however long the peer takes.
    pub fn sendPatiently(ring: *Ring, fd: sys.Fd, bytes: []const u8, label: Label) void {
        _ = ring.prepareSend(fd, bytes, label);
    }

    fn prepareSend(ring: *Ring, fd: sys.Fd, bytes: []const u8, label: Label) *linux.io_uring_sqe {
        const sqe = ring.prepare(.SEND, fd, label);
        sqe.addr = @intFromPtr(bytes.ptr);
        sqe.len = @intCast(bytes.len);
        sqe.rw_flags = linux.MSG.NOSIGNAL | linux.MSG.WAITALL;
        return sqe;
    }

    /// The state of a descriptor that a poll waits for.
    pub const Poll = enum {
        /// Reports once, when the socket has room to send.
        room,
        /// Each time that something becomes readable.
        readable,
        /// Each time that an error, a hang-up or the end of what the peer sends is reported.
        trouble,
    };

    /// The flag of a poll's result for a peer that has ended its sending side.
    pub const peer_shut = 0x2000; // POLLRDHUP, which std.os.linux.POLL does not have

    /// A completion when a descriptor is ready.
    pub fn poll(ring: *Ring, fd: sys.Fd, what: Poll, label: Label) void {
        const sqe = ring.prepare(.POLL_ADD, fd, label);
        const mask: u32 = switch (what) {
            .room => linux.POLL.OUT,
            .readable => linux.POLL.IN,
            .trouble => peer_shut, // errors are always reported
        };
        // On big-endian machines the kernel wants the two halves of the poll mask swapped.
        sqe.rw_flags = if (@import("builtin").cpu.arch.endian() == .big)
            std.math.rotl(u32, mask, 16)
        else
            mask;
        if (what != .room) sqe.len = linux.IORING_POLL_ADD_MULTI;
    }

    /// Ends the operation with this label; its last completion says so.
    pub fn cancel(ring: *Ring, label: Label) void {
        const sqe = ring.prepare(.ASYNC_CANCEL, -1, .{ .index = 0, .kind = .none });
        sqe.flags = linux.IOSQE_CQE_SKIP_SUCCESS;
        sqe.addr = @bitCast(label);
    }

    /// Closes a descriptor, behind everything that was asked for before.
    pub fn close(ring: *Ring, fd: sys.Fd) void {
        if (ring.orphaned) return sys.close(fd);
        fork.forget(fd);
        const sqe = ring.prepare(.CLOSE, fd, .{ .index = 0, .kind = .none });
        sqe.flags = linux.IOSQE_CQE_SKIP_SUCCESS;
    }

    /// A completion when the monotonic clock reaches `at`, which must stay until then.
    pub fn timer(ring: *Ring, at: *const linux.kernel_timespec, label: Label) void {
        const sqe = ring.prepare(.TIMEOUT, -1, label);
        sqe.addr = @intFromPtr(at);
        sqe.len = 1;
        sqe.rw_flags = linux.IORING_TIMEOUT_ABS;
    }

    /// A completion at once: whoever watches the ring's descriptor wakes up.
    pub fn knock(ring: *Ring, label: Label) void {
        _ = ring.prepare(.NOP, -1, label);
    }

    fn prepare(ring: *Ring, operation: linux.IORING_OP, fd: sys.Fd, label: Label) *linux.io_uring_sqe {
        const sqe = while (!ring.orphaned) break ring.plumbing.get_sqe() catch {
            // The kernel takes all queued operations, unless it has no memory left for the moment.
            ring.submit();
            continue;
        } else &ring.nowhere;
        sqe.prep_rw(operation, fd, 0, 0, 0);
        sqe.user_data = @bitCast(label);
        return sqe;
    }

    // ---- Visits to the kernel

    /// Hands the queued operations over, and does not look for completions.
    pub fn submit(ring: *Ring) void {
        if (ring.orphaned) return;
        const count = ring.show();
        if (count > 0) ring.enter(count, 0, 0, 0, 0);
    }

    /// Hands over what was asked for, and waits for a completion, at most `timeout_ms` (-1: for ever). A
    /// signal ends it early.
    pub fn wait(ring: *Ring, timeout_ms: i32) void {
        const count = ring.show();
        const idle = timeout_ms != 0 and ring.plumbing.cq_ready() == 0;
        var time: linux.kernel_timespec = .{
            .sec = @divTrunc(@max(timeout_ms, 0), std.time.ms_per_s),
            .nsec = @rem(@max(timeout_ms, 0), std.time.ms_per_s) * std.time.ns_per_ms,
        };
        const argument: linux.io_uring_getevents_arg = .{
            .sigmask = 0,
            .sigmask_sz = linux.NSIG / 8,
            .pad = 0,
            .ts = if (idle and timeout_ms > 0) @intFromPtr(&time) else 0,
        };
        const flags: u32 = linux.IORING_ENTER_GETEVENTS | linux.IORING_ENTER_EXT_ARG;
        ring.enter(
            count,
            @intFromBool(idle),
            flags,
            @intFromPtr(&argument),
            @sizeOf(linux.io_uring_getevents_arg),
        );
    }

    /// Lets the kernel see what was asked for; how many operations it has not taken.
    fn show(ring: *Ring) u32 {
        const sq = &ring.plumbing.sq;
        if (sq.sqe_head != sq.sqe_tail) {
            sq.sqe_head = sq.sqe_tail;
            @atomicStore(u32, sq.tail, sq.sqe_tail, .release);
        }
        return ring.plumbing.sq_ready();
    }

    fn enter(ring: *Ring, count: u32, wanted: u32, flags: u32, argument: usize, size: usize) void {
        if (!ring.enabled) ring.enable();
        const fd: u32, const how: u32 = if (ring.registered) |index|
            .{ index, flags | linux.IORING_ENTER_REGISTERED_RING }
        else
            .{ @bitCast(ring.plumbing.fd), flags };
        var left = count;
        while (true) {
            const rc = linux.syscall6(.io_uring_enter, fd, left, wanted, how, argument, size);
            switch (linux.errno(rc)) {
                // With completions to be had the kernel does not wait for more of them, and takes the
                // submissions all the same.
                .SUCCESS => left -= @intCast(rc),
                // The time is over, or a signal came; or the kernel wants us to look at completions first.
                .TIME, .INTR, .BUSY, .AGAIN => return,
                // The call comes from another thread than the ring's, which frees what that thread has left.
                .EXIST => return ring.abandon(),
                else => unreachable, // arguments that the kernel must take
            }
            if (left == 0 or wanted > 0) return;
        }
    }

    /// From here on the ring is this thread's.
    fn enable(ring: *Ring) void {
        ring.enabled = true;
        const fd = ring.plumbing.fd;
        assert(linux.errno(linux.io_uring_register(fd, .REGISTER_ENABLE_RINGS, null, 0)) == .SUCCESS);
        var update: linux.io_uring_rsrc_update = .{
            .offset = std.math.maxInt(u32),
            .resv = 0,
            .data = @intCast(fd),
        };
        // Without the registration every visit looks the descriptor up, which costs a few nanoseconds.
        if (linux.io_uring_register(fd, .REGISTER_RING_FDS, &update, 1) == 1) ring.registered = update.offset;
    }

    /// To be called when no thread will enter any more: operations that were not handed over are forgotten,
    /// but descriptors that were to be closed are closed. Operations under way are cancelled, so that the
    /// kernel holds no descriptor any longer; after the end of the ring's thread it has done that by itself.
    pub fn abandon(ring: *Ring) void {
        if (ring.orphaned) return;
        ring.orphaned = true;
        const sq = &ring.plumbing.sq;
        var at = @atomicLoad(u32, sq.head, .acquire);
        while (at != sq.sqe_tail) : (at +%= 1) {
            const sqe = &sq.sqes[at & sq.mask];
            if (sqe.opcode == .CLOSE) sys.close(sqe.fd);
        }
        if (!ring.enabled) return;
        const fd = ring.plumbing.fd;
        if (ring.registered) |index| {
            // A registered ring descriptor would keep the ring alive.
            var update: linux.io_uring_rsrc_update = .{ .offset = index, .resv = 0, .data = 0 };
            _ = linux.io_uring_register(fd, .UNREGISTER_RING_FDS, &update, 1);
        }
        var request = std.mem.zeroes(linux.io_uring_sync_cancel_reg);
        request.fd = -1;
        request.flags = linux.IORING_ASYNC_CANCEL_ANY | linux.IORING_ASYNC_CANCEL_ALL;
        request.timeout = .{ .sec = -1, .nsec = -1 };
        _ = linux.io_uring_register(fd, .REGISTER_SYNC_CANCEL, &request, 1);
    }

    /// Whether the kernel has got everything that was asked for.
    pub fn isHandedOver(ring: *Ring) bool {
        return ring.plumbing.sq_ready() == 0;
    }

    /// Takes completions over, as many as are there and fit.
    pub fn take(ring: *Ring, into: []Completion) []Completion {
        const count = ring.plumbing.copy_cqes(into, 0) catch 0;
        return into[0..count];
    }
};
