//! Job: the submission and the completion ring of io_uring, and the operations of `Uring`, each as a small
//! typed function. Does not know: the purpose of operations, and the owners of sockets. Follows io_uring(7),
//! io_uring_enter(2).
//!
//! Operations are queued here and reach the kernel with the next `enter`, in order. The ring belongs to the
//! thread that enters first: the kernel then does its work only when that thread enters again
//! (IORING_SETUP_DEFER_TASKRUN), and interrupts no thread.
const std = @import("std");
const linux = std.os.linux;
const fork = @import("../fork.zig");
const sys = @import("../sys.zig");
const assert = std.debug.assert;

/// The label of an operation, which its completion returns: the entry and the kind of operation. By
/// `generation` an earlier owner of the index is recognised.
pub const Label = packed struct(u64) {
    index: u32,
    generation: u28 = 0,
    kind: Kind,

    pub const Kind = enum(u4) {
        /// No entry needs the result: a cancellation, a close.
        none,
        accept,
        receive,
        /// A send of which the kernel has not taken all.
        send,
        /// The send of a block (the rest of an earlier send).
        block,
        /// A poll for room to send.
        room,
        /// A poll for an error, a hang-up, or the end of the peer's sending side, on a socket that is not
        /// being read.
        trouble,
        waker,
        timer,
        /// A no-op that keeps `fd` readable because work is left.
        knock,
    };
};

/// The result of an operation: its label, a number, flags.
pub const Completion = linux.io_uring_cqe;

/// The maximum number of operations between two visits to the kernel; one more causes a visit.
const submissions = 512;
/// The number of completions that fit into the ring. The kernel keeps further ones elsewhere, which is
/// slower.
const completions = 4096;

/// The submission and the completion ring.
pub const Ring = struct {
    plumbing: linux.IoUring,
    /// The length of the kernel's table of files (see `attach`); 0: no table.
    table_len: u32 = 0,
    /// The ring belongs to a thread.
    enabled: bool = false,
    /// The ring's thread has ended and another thread cleans up: nothing is submitted any more.
    orphaned: bool = false,
    /// Receives the operations of an orphaned ring, which are not submitted.
    nowhere: linux.io_uring_sqe = undefined,
    /// The ring's index in the kernel, which is faster than its descriptor; null: none.
    registered: ?u32 = null,

    /// Reasons why a ring cannot be made.
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
        // The kernel reads operations by a list of their places, which never changes here.
        for (ring.plumbing.sq.array, 0..) |*place, number| place.* = @intCast(number);
        // Without a table of files everything works, but slower.
        if (ring.plumbing.register_files_sparse(identity.len)) ring.table_len = identity.len else |_| {}
        return ring;
    }

    const identity: [4096]sys.Fd = numbers: {
        @setEvalBranchQuota(10_000);
        var list: [4096]sys.Fd = undefined;
        for (&list, 0..) |*fd, number| fd.* = number;
        break :numbers list;
    };

    /// Closes the ring. The kernel drops pending operations later (see `abandon`).
    pub fn deinit(ring: *Ring) void {
        ring.plumbing.deinit();
    }

    // ---- Operations

    /// Accepts connections, with one completion each, until cancelled or failed.
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

    /// Puts a descriptor into the kernel's table of files, at its own number: operations are faster then. The
    /// file stays open until `detach`. False: the table is too short.
    pub fn attach(ring: *Ring, fd: sys.Fd) bool {
        if (fd >= ring.table_len) return false;
        ring.updateTable(fd, fd);
        return true;
    }

    /// Removes a descriptor from the kernel's table of files.
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

    /// Sends as many bytes as the kernel has room for at the next visit. There is a completion only if these
    /// are not all.
    pub fn send(ring: *Ring, fd: sys.Fd, attached: bool, bytes: []const u8, label: Label) void {
        const sqe = ring.prepareSend(fd, bytes, label);
        sqe.flags = linux.IOSQE_CQE_SKIP_SUCCESS | @as(u8, if (attached) linux.IOSQE_FIXED_FILE else 0);
        sqe.rw_flags |= linux.MSG.DONTWAIT;
    }

    /// Sends all of `bytes`, which must stay valid until the completion, even if the peer is slow.
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

    /// The state that a poll waits for.
    pub const Poll = enum {
        /// The socket has room to send; one completion.
        room,
        /// The descriptor is readable; a completion each time.
        readable,
        /// An error, a hang-up or the end of the peer's sending side; a completion each time.
        trouble,
    };

    /// The flag of a poll's result for a peer that has ended its sending side.
    pub const peer_shut = 0x2000; // POLLRDHUP, which std.os.linux.POLL lacks

    /// Watches a descriptor, with a completion when it is ready.
    pub fn poll(ring: *Ring, fd: sys.Fd, what: Poll, label: Label) void {
        const sqe = ring.prepare(.POLL_ADD, fd, label);
        const mask: u32 = switch (what) {
            .room => linux.POLL.OUT,
            .readable => linux.POLL.IN,
            .trouble => peer_shut, // errors are always reported
        };
        // On big-endian machines the kernel expects the halves of the poll mask swapped.
        sqe.rw_flags = if (@import("builtin").cpu.arch.endian() == .big)
            std.math.rotl(u32, mask, 16)
        else
            mask;
        if (what != .room) sqe.len = linux.IORING_POLL_ADD_MULTI;
    }

    /// Cancels the operation with this label; its last completion says so.
    pub fn cancel(ring: *Ring, label: Label) void {
        const sqe = ring.prepare(.ASYNC_CANCEL, -1, .{ .index = 0, .kind = .none });
        sqe.flags = linux.IOSQE_CQE_SKIP_SUCCESS;
        sqe.addr = @bitCast(label);
    }

    /// Closes a descriptor after all operations queued before.
    pub fn close(ring: *Ring, fd: sys.Fd) void {
        if (ring.orphaned) return sys.close(fd);
        fork.forget(fd);
        const sqe = ring.prepare(.CLOSE, fd, .{ .index = 0, .kind = .none });
        sqe.flags = linux.IOSQE_CQE_SKIP_SUCCESS;
    }

    /// Causes a completion when the monotonic clock reaches `at`, which must stay valid until then.
    pub fn timer(ring: *Ring, at: *const linux.kernel_timespec, label: Label) void {
        const sqe = ring.prepare(.TIMEOUT, -1, label);
        sqe.addr = @intFromPtr(at);
        sqe.len = 1;
        sqe.rw_flags = linux.IORING_TIMEOUT_ABS;
    }

    /// Causes a completion at once, which makes the ring's descriptor readable.
    pub fn knock(ring: *Ring, label: Label) void {
        _ = ring.prepare(.NOP, -1, label);
    }

    fn prepare(ring: *Ring, operation: linux.IORING_OP, fd: sys.Fd, label: Label) *linux.io_uring_sqe {
        const sqe = while (!ring.orphaned) break ring.plumbing.get_sqe() catch {
            // The kernel takes all queued operations, unless it is out of memory at the moment.
            ring.submit();
            continue;
        } else &ring.nowhere;
        sqe.prep_rw(operation, fd, 0, 0, 0);
        sqe.user_data = @bitCast(label);
        return sqe;
    }

    // ---- Visits to the kernel

    /// Submits the queued operations without waiting for completions.
    pub fn submit(ring: *Ring) void {
        if (ring.orphaned) return;
        const count = ring.show();
        if (count > 0) ring.enter(count, 0, 0, 0, 0);
    }

    /// Submits the queued operations and waits for a completion, at most `timeout_ms` (-1: for ever). A
    /// signal ends the wait early.
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

    /// Makes the queued operations visible to the kernel; returns the number that it has not taken.
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
                // If completions are present, the kernel does not wait for more, and takes the submissions
                // nevertheless.
                .SUCCESS => left -= @intCast(rc),
                // The time is over, a signal came, or the kernel wants completions to be taken first.
                .TIME, .INTR, .BUSY, .AGAIN => return,
                // The call comes from a thread other than the ring's, which cleans up after that thread.
                .EXIST => return ring.abandon(),
                else => unreachable, // arguments that the kernel cannot refuse
            }
            if (left == 0 or wanted > 0) return;
        }
    }

    /// Makes the ring the calling thread's.
    fn enable(ring: *Ring) void {
        ring.enabled = true;
        const fd = ring.plumbing.fd;
        assert(linux.errno(linux.io_uring_register(fd, .REGISTER_ENABLE_RINGS, null, 0)) == .SUCCESS);
        var update: linux.io_uring_rsrc_update = .{
            .offset = std.math.maxInt(u32),
            .resv = 0,
            .data = @intCast(fd),
        };
        // Without the registration each visit looks the descriptor up, which takes a few nanoseconds.
        if (linux.io_uring_register(fd, .REGISTER_RING_FDS, &update, 1) == 1) ring.registered = update.offset;
    }

    /// Must be called when no thread will enter any more. Drops operations that were not submitted, but
    /// closes the descriptors of queued closes. Cancels pending operations, so that the kernel holds no
    /// descriptor; after the ring's thread has ended, the kernel has done that itself.
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

    /// Whether the kernel has taken all queued operations.
    pub fn isHandedOver(ring: *Ring) bool {
        return ring.plumbing.sq_ready() == 0;
    }

    /// Moves completions into `into`, as many as are there and fit.
    pub fn take(ring: *Ring, into: []Completion) []Completion {
        const count = ring.plumbing.copy_cqes(into, 0) catch 0;
        return into[0..count];
    }
};
