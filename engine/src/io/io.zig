//! Layer `io`: sockets become a handful of events. Imports std and speaks to the kernel.
//! Does not know: HTTP, TLS, connections, deadlines.
//!
//! The contract of an io, which `Epoll`, `Kqueue`, `Uring` and `Sim` keep (contract_test.zig tests all of
//! them). Its functions suit kernels that report readiness (epoll, kqueue) and kernels that report completion
//! (io_uring).
//!
//! An io belongs to one thread, which makes all calls; only `wake` may be called by other threads. An io is
//! created after fork.
//! The caller's loop:
//!
//!     while (true) {
//!         _ = try io.wait(timeout_ms);
//!         while (io.next()) |event| switch (event) { … };
//!     }
//!
//! - A *round* is one `wait`, and the calls of `next` until it returns null. In a round each socket is read
//!   at most once more than it takes to see that it is drained, so that a fast sender cannot starve others.
//!   Remaining bytes come in the next round, before which `wait` does not sleep. `wait` may return early
//!   without an event (after a signal or a stale report).
//! - An accepted socket has no events until `add(socket, token)`. Each event has the token. After `close` no
//!   event of the socket comes, even if its number is used again in the same round.
//! - The bytes of `received` lie in the io's only receive buffer until the next call of `next` or `wait`. A
//!   caller with a better place calls `askFirst`. Then one `arrived` comes before the bytes, and `receiveTo`
//!   receives them to the caller's memory, or `postpone` leaves them for the next round; without either call
//!   they come as `received`. io_uring has no such functions (`hasReceiveTo`).
//! - `ended` comes after all received bytes: `eof` at most once (the peer has ended its sending side, and can
//!   still be sent to), then `reset` at most once (the connection is dead, and only `close` makes sense),
//!   then nothing. A paused socket has its eof when it is resumed; `ending` reports at most once that there
//!   is one. A reset may come during a pause or after a failed send. Bytes that were not delivered before it
//!   are lost, because they could not be answered.
//! - `send` returns at once. `sent` with fewer bytes, or `blocked`: a `sent` event follows when there is
//!   room. `failed`: an `ended` reset follows, unless the caller closes the socket, so that callers can clean
//!   up in one place. With a completion kernel, sent bytes and closed sockets reach the peer with the next
//!   `wait` or `alarm`. With all kernels, the slices may be reused when `send` returns.
//! - A host's loop (IO::Async, EV) watches `fd()`, which is readable exactly while `wait(0)` would have an
//!   event. Before it returns to the host, the caller calls `next` until null, or `alarm`; both keep `fd()`
//!   readable if events were not delivered.
//! - SIGPIPE: `send` never raises it, `sendFile` may, so a process that uses `sendFile` must ignore this
//!   signal.
//! - An io has the clocks (`now`, `micros`, `wallSeconds`); all other code gets times as values.

const std = @import("std");
const builtin = @import("builtin");

const socket = @import("socket.zig");
const sys = @import("sys.zig");

/// Functions for open files, for users of `sendFile`.
pub const file = @import("file.zig");
/// A file to which a thread writes lines.
pub const LogFile = @import("log_file.zig").LogFile;
pub const LogTarget = @import("log_file.zig").Target;
pub const LogNews = @import("log_file.zig").News;
/// Temporary files to which a thread writes bytes.
pub const Spool = @import("spool.zig").Spool;
pub const SpoolJob = @import("spool.zig").Job;
/// Threads that read files on slow storage.
pub const Storage = @import("storage.zig").Storage;
pub const StorageTask = @import("storage.zig").Task;
pub const StorageRead = @import("storage.zig").Read;
pub const StorageClose = @import("storage.zig").Close;
pub const StorageOpen = @import("storage.zig").Open;
pub const StorageTasks = @import("storage.zig").Tasks;
/// The meaning of an errno, in words.
pub const failureText = @import("failure.zig").text;
/// Threads of the engine's own.
pub const thread = @import("thread.zig");
/// The limits and the size of the process's memory.
pub const memory = @import("memory.zig");
/// Waiting and waking between threads.
pub const Wakeup = @import("wakeup.zig").Wakeup;
pub const WakeupOn = @import("wakeup.zig").WakeupOn;
pub const Latch = @import("wakeup.zig").Latch;
pub const LatchOn = @import("wakeup.zig").LatchOn;
/// Socket pairs for bytes to and from an application.
pub const streams = @import("streams.zig");
/// Stream sockets for code that waits with poll.
pub const polling = @import("polling.zig");
/// Memory and descriptors that processes share.
pub const sharing = @import("sharing.zig");
pub const host_loop = @import("host_loop.zig");
/// Descriptors and mappings that a forked child must not have.
pub const fork = @import("fork.zig");
/// The monotonic clock in microseconds, which is the clock of every io in every process.
pub const micros = sys.monotonicUs;
/// The time of the monotonic clock in nanoseconds.
pub const nanos = sys.monotonicNs;
/// Puts the calling thread to sleep.
pub const sleep = sys.sleep;
pub const processId = sys.processId;
/// Seconds since 1970.
pub const wallSeconds = sys.wallSeconds;
/// An unpredictable number; null: the kernel has none.
pub const randomSeed = sys.randomSeed;
/// Lets the sockets that a listener accepts gather small packets.
pub const inheritDelay = socket.inheritDelay;
/// The offset of local time from UTC, in seconds.
pub const zone = @import("zone.zig");
pub const Address = socket.Address;
pub const ListenOptions = socket.ListenOptions;
pub const ListenError = socket.ListenError;
/// A listening socket that belongs to no io yet.
pub const listenSocket = socket.listenSocket;
/// The address of a listening socket. An error: the descriptor is none.
pub const listeningAddress = socket.listeningAddress;
/// The mode and the owner of the file of a Unix socket.
pub const SocketAccess = @import("socket_file.zig").Access;
/// Whether the kernel makes TLS records (`sealInKernel`).
pub const kernelSeals = @import("kernel_tls.zig").isOffered;
/// The file of a listening Unix socket, to be removed in the end.
pub const SocketFile = @import("socket_file.zig").SocketFile;
pub const Epoll = @import("epoll.zig").Epoll;
pub const Kqueue = @import("kqueue.zig").Kqueue;
/// Whether this system can have io_uring.
pub const has_rings = builtin.os.tag == .linux;
pub const Uring = if (has_rings) @import("uring.zig").Uring else @compileError("io_uring is Linux's");
/// Whether the kernel spreads connections over listeners with one address (`ListenOptions.reuse_port`). macOS
/// gives all connections to one of them, so threads share one listener there.
pub const spreads_connections = !builtin.os.tag.isDarwin();
pub const Sim = @import("sim.zig").Sim;
/// The other end of a simulated connection.
pub const SimPeer = @import("sim.zig").Peer;
/// Makes TLS records like the kernel, for tests.
pub const SimSealer = @import("sim.zig").Sealer;

/// The io of this platform.
pub const Native = switch (builtin.os.tag) {
    .linux => Epoll,
    .freebsd, .macos => Kqueue,
    else => @compileError(
        "layer io has no backend for this system yet; see readiness.zig for what one has to do",
    ),
};

/// The name of a socket in its events, which the caller of `add` has chosen.
pub const Token = u64;

/// The name of a socket: the kernel's descriptor, or an index in `Sim`.
pub const Socket = enum(i32) {
    none = -1,
    _,
};

/// A piece of memory to send, which is borrowed during `send`.
pub const Slice = sys.Slice;

/// The most slices of one `send`.
pub const slices_max = sys.slices_max;

/// Whether an io has `askFirst`, `receiveTo` and `postpone`.
pub fn hasReceiveTo(comptime Io: type) bool {
    return @hasDecl(Io, "receiveTo");
}

pub fn slice(bytes: []const u8) Slice {
    return .{ .base = bytes.ptr, .len = bytes.len };
}

/// An event that the io reports to its owner.
pub const Event = union(enum) {
    /// A connection was accepted. The caller owns the socket, and must `add` or `close` it.
    accepted: struct { listener: u32, socket: Socket, peer: Address },
    /// Accepting failed. The io has paused the listener, because it would fail again and again. The caller
    /// calls `resumeAccept` after it has closed something or some time has passed. `exhausted`: descriptors
    /// or kernel memory ran out (EMFILE, ENFILE, ENOBUFS, ENOMEM).
    accept_failed: struct { listener: u32, exhausted: bool, errno: u16 },
    /// The peer has sent at least one byte. The bytes are valid until the next call of `next` or `wait`.
    received: struct { token: Token, bytes: []u8 },
    /// Bytes may have come, which `receiveTo` can receive.
    arrived: struct { token: Token },
    /// The peer of a paused socket has ended its sending side. Earlier bytes, and the eof behind them, wait
    /// until reading is resumed.
    ending: struct { token: Token },
    /// The peer sends no more. `errno` is 0 for eof.
    ended: struct { token: Token, how: Ended, errno: u16 },
    /// There is room again, after a send that was cut short.
    sent: struct { token: Token },
    /// Another thread has called `wake`. Several calls may be one event.
    woken,
};

/// The ways in which a peer stops to send.
pub const Ended = enum {
    /// The peer has ended its sending side, and can still be sent to.
    eof,
    /// The connection is dead.
    reset,
};

pub const SendResult = union(enum) {
    /// The number of bytes that the kernel has taken. If these are not all, a `sent` event follows.
    sent: usize,
    /// The kernel has taken no byte; a `sent` event follows when it has room.
    blocked,
    /// The connection is dead, with this errno. An `ended` event follows.
    failed: u16,
    /// `sendFile` only: the file ends before the offset. Nothing was sent, and no event follows.
    end_of_file,
    /// `sendFile` only: the file could not be read, with this errno. Nothing was sent, no event follows, and
    /// the connection is intact.
    file_failed: u16,
};

/// Reasons why a `wait` fails. With epoll and kqueue it never does.
pub const WaitError = error{SystemResources};

/// The interface of the kernel with which a server waits.
pub const Backend = enum {
    /// Readiness: epoll on Linux, kqueue elsewhere.
    native,
    /// io_uring, if the kernel has it and allows it; otherwise `native`.
    uring,
};

/// Limits of an io.
pub const Options = struct {
    /// The size of the receive buffer that all sockets of an io share, and the most bytes of one `received`.
    /// With 64 KiB fast senders cost few system calls, and the buffer fits the second-level cache.
    receive_buffer_bytes: u32 = 64 * 1024,
    /// Reports that one `wait` takes from the kernel, 12 bytes each; others come with the next one.
    events_per_wait: u16 = 256,
    /// Connections that one listener accepts in a round, so that a storm of new connections leaves time for
    /// others.
    accepts_per_wait: u16 = 64,
    /// Bytes that one `sendFile` may send before other sockets have their turn. A peer that reads as fast as
    /// the server sends would otherwise hold the thread for the whole file.
    send_file_bytes_max: u32 = 1024 * 1024,
};

test {
    _ = sys;
    _ = fork;
    _ = file;
    _ = socket;
    _ = @import("socket_file.zig");
    _ = zone;
    _ = @import("kernel_tls.zig");
    _ = @import("log_file.zig");
    _ = @import("spool.zig");
    _ = @import("storage.zig");
    _ = @import("streams.zig");
    _ = @import("sys/temporary.zig");
    _ = @import("wakeup.zig");
    _ = sharing;
    _ = host_loop;
    _ = @import("failure.zig");
    _ = @import("queue.zig");
    _ = @import("readiness.zig");
    _ = @import("epoll.zig");
    _ = @import("kqueue.zig");
    _ = @import("uring.zig");
    _ = @import("sim.zig");
    _ = @import("contract_test.zig");
}
