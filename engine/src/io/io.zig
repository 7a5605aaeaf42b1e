//! Layer `io`: sockets become a handful of events. Imports std and speaks to the kernel.
//! Does not know: HTTP, TLS, connections, who may have which deadline.
//!
//! The contract of an io. `Epoll`, `Kqueue`, `Uring` and `Sim` keep it (contract_test.zig runs one suite
//! against all of them): its verbs fit kernels that report readiness (epoll, kqueue) and kernels that report
//! completion (io_uring) alike.
//!
//! An io belongs to one thread, which makes all calls; only `wake` may come from other threads. Create it
//! after fork.
//! The caller's loop:
//!
//!     while (true) {
//!         _ = try io.wait(timeout_ms);
//!         while (io.next()) |event| switch (event) { … };
//!     }
//!
//! - A *round* is one `wait` and the `next` calls until null. Within it each socket is read at most once more
//!   than it takes to see that it is drained, so that a fast sender cannot starve the others. What is left
//!   comes in the next round, and `wait` does not sleep before that. `wait` may also return early with
//!   nothing to deliver (a signal, a stale report).
//! - An accepted socket does nothing until `add(socket, token)`. The token comes back with each event.
//!   `close` ends that: no event of a closed socket is ever delivered, not even when its number is in use
//!   again within the same round.
//! - `received` bytes live in the io's one receive buffer until the next call of `next` or `wait`. Where the
//!   caller knows a better place it says `askFirst`: then `arrived` comes once, before the bytes, and
//!   `receiveTo` receives them to where the caller likes; or `postpone` leaves them for the next round.
//!   Otherwise they come as `received`. Not under io_uring, which has no such verbs (`hasReceiveTo`).
//! - `ended` comes after all received bytes. `eof` at most once (the peer ended its sending side, we may
//!   still send), then `reset` at most once (the connection is dead: nothing but `close` makes sense), and
//!   nothing after a reset. A paused socket keeps its eof until it is resumed; that there is one, `ending`
//!   tells at most once. A reset may come while paused, or after a failed send, and then overtakes bytes that
//!   were not delivered yet: they are lost, and nobody could be answered anyway.
//! - `send` answers at once. `sent` less than everything, or `blocked`: a `sent` event follows when there is
//!   room again. `failed`: an `ended` reset follows, so that a caller may clean up in one place; one that
//!   closes at once hears nothing more. Under a completion kernel what was sent, and what was closed,
//!   reaches the peer with the next `wait` or `alarm`. The slices' bytes are free again when `send` returns,
//!   under all kernels.
//! - A host loop (IO::Async, EV) watches `fd()`: readable exactly when `wait(0)` has something to deliver.
//!   Before going back to the host, either call `next` until null or call `alarm`; both see to it that
//!   undelivered events keep `fd()` readable.
//! - SIGPIPE: `send` never raises it, `sendFile` may; a process that uses `sendFile` has to
//!   ignore that signal.
//! - Time: an io has the clocks (`now`, `micros`, `wallSeconds`); everybody else gets time as a value.

const std = @import("std");
const builtin = @import("builtin");

const socket = @import("socket.zig");
const sys = @import("sys.zig");

/// Open files, for users of `sendFile`.
pub const file = @import("file.zig");
/// Lines to a file, written by a thread of its own.
pub const LogFile = @import("log_file.zig").LogFile;
pub const LogTarget = @import("log_file.zig").Target;
pub const LogNews = @import("log_file.zig").News;
/// Bytes to temporary files, written by a thread of its own.
pub const Spool = @import("spool.zig").Spool;
pub const SpoolJob = @import("spool.zig").Job;
/// Files on slow storage, read by threads of its own.
pub const Storage = @import("storage.zig").Storage;
pub const StorageTask = @import("storage.zig").Task;
pub const StorageRead = @import("storage.zig").Read;
pub const StorageClose = @import("storage.zig").Close;
pub const StorageOpen = @import("storage.zig").Open;
pub const StorageTasks = @import("storage.zig").Tasks;
/// An errno's meaning, in words.
pub const failureText = @import("failure.zig").text;
/// Threads of the engine's own.
pub const thread = @import("thread.zig");
/// How much memory the process may have, and has.
pub const memory = @import("memory.zig");
/// How threads wake each other.
pub const Wakeup = @import("wakeup.zig").Wakeup;
pub const WakeupOn = @import("wakeup.zig").WakeupOn;
pub const Latch = @import("wakeup.zig").Latch;
pub const LatchOn = @import("wakeup.zig").LatchOn;
/// Raw bytes to and from an application.
pub const streams = @import("streams.zig");
/// A few stream sockets, for code that waits with poll.
pub const polling = @import("polling.zig");
/// Memory and descriptors that processes share.
pub const sharing = @import("sharing.zig");
pub const host_loop = @import("host_loop.zig");
/// Descriptors and mappings that a forked child must not have.
pub const fork = @import("fork.zig");
/// The monotonic clock in microseconds: the same one as an io's, for all processes.
pub const micros = sys.monotonicUs;
/// The time of the monotonic clock in nanoseconds.
pub const nanos = sys.monotonicNs;
/// Lets the calling thread sleep.
pub const sleep = sys.sleep;
/// The number of this process.
pub const processId = sys.processId;
/// Seconds since 1970.
pub const wallSeconds = sys.wallSeconds;
/// A number that nobody can guess; null if the kernel has none.
pub const randomSeed = sys.randomSeed;
/// Lets the sockets that a listener will accept gather small packets.
pub const inheritDelay = socket.inheritDelay;
/// How far local time is ahead of UTC.
pub const zone = @import("zone.zig");
pub const Address = socket.Address;
pub const ListenOptions = socket.ListenOptions;
pub const ListenError = socket.ListenError;
/// A listening socket that belongs to no io yet.
pub const listenSocket = socket.listenSocket;
/// The address of a socket that listens already; an error for a descriptor that is no such socket.
pub const listeningAddress = socket.listeningAddress;
/// Mode and owner of the file of a unix socket.
pub const SocketAccess = @import("socket_file.zig").Access;
/// Whether the kernel makes TLS records (`sealInKernel`).
pub const kernelSeals = @import("kernel_tls.zig").isOffered;
/// The file of a unix socket that listens, to be removed in the end.
pub const SocketFile = @import("socket_file.zig").SocketFile;
pub const Epoll = @import("epoll.zig").Epoll;
pub const Kqueue = @import("kqueue.zig").Kqueue;
/// Whether this system may have io_uring at all.
pub const has_rings = builtin.os.tag == .linux;
pub const Uring = if (has_rings) @import("uring.zig").Uring else @compileError("io_uring is Linux's");
/// Whether the kernel spreads connections over listeners that share an address (`ListenOptions.reuse_port`).
/// macOS gives them all to one: there, threads share one listener instead.
pub const spreads_connections = !builtin.os.tag.isDarwin();
pub const Sim = @import("sim.zig").Sim;
/// The far end of a simulated connection.
pub const SimPeer = @import("sim.zig").Peer;
/// Makes TLS records as the kernel does, for tests.
pub const SimSealer = @import("sim.zig").Sealer;

/// The io of this platform.
pub const Native = switch (builtin.os.tag) {
    .linux => Epoll,
    .freebsd, .macos => Kqueue,
    else => @compileError(
        "layer io has no backend for this system yet; see readiness.zig for what one has to do",
    ),
};

/// Chosen by the caller of `add`, given back with every event of that socket.
pub const Token = u64;

/// Names a socket: the kernel's descriptor, or an index under `Sim`.
pub const Socket = enum(i32) {
    none = -1,
    _,
};

/// A piece of memory to send. It is borrowed for the duration of `send`.
pub const Slice = sys.Slice;

/// The most slices that one `send` takes.
pub const slices_max = sys.slices_max;

/// Whether an io has `askFirst`, `receiveTo` and `postpone`.
pub fn hasReceiveTo(comptime Io: type) bool {
    return @hasDecl(Io, "receiveTo");
}

/// Makes a `Slice` of bytes.
pub fn slice(bytes: []const u8) Slice {
    return .{ .base = bytes.ptr, .len = bytes.len };
}

/// An event that the io reports to its owner.
pub const Event = union(enum) {
    /// A connection came in. The socket is the caller's: `add` it or `close` it.
    accepted: struct { listener: u32, socket: Socket, peer: Address },
    /// Accepting does not work for now. The io paused that listener (it would fail in a tight circle
    /// otherwise); the caller calls `resumeAccept`, when it closed something or some time has passed.
    /// `exhausted`: descriptors or kernel memory ran out (EMFILE, ENFILE, ENOBUFS, ENOMEM).
    accept_failed: struct { listener: u32, exhausted: bool, errno: u16 },
    /// The peer sent bytes (at least one). They live until the next call of `next` or `wait`.
    received: struct { token: Token, bytes: []u8 },
    /// Bytes may have come, for `receiveTo` to receive.
    arrived: struct { token: Token },
    /// A paused socket's peer has ended its sending side. What it sent before waits, if there is anything,
    /// and the eof behind it.
    ending: struct { token: Token },
    /// The peer will send nothing more. `errno` is 0 for eof.
    ended: struct { token: Token, how: Ended, errno: u16 },
    /// After a send that was cut short: there is room again.
    sent: struct { token: Token },
    /// Another thread called `wake`; any number of calls may become one event.
    woken,
};

/// How a peer stopped sending.
pub const Ended = enum {
    /// The peer has ended its sending side. We may still send.
    eof,
    /// The connection is dead.
    reset,
};

/// The answer to a send.
pub const SendResult = union(enum) {
    /// The number of bytes that were taken. After less than all of them a `sent` event follows.
    sent: usize,
    /// The kernel has taken no byte; a `sent` event follows when it has room.
    blocked,
    /// The connection is dead; the errno. An `ended` event follows.
    failed: u16,
    /// `sendFile` only: the file ends before that offset. Nothing was sent and nothing follows.
    end_of_file,
    /// `sendFile` only: the file could not be read; the errno. The connection lives. Nothing was sent
    /// and nothing follows.
    file_failed: u16,
};

/// Why a `wait` may fail. Under epoll and kqueue it never does.
pub const WaitError = error{SystemResources};

/// The kernel interface that a server waits with.
pub const Backend = enum {
    /// Readiness: epoll on Linux, kqueue elsewhere.
    native,
    /// io_uring, if the kernel has it and nobody forbids it; otherwise `native`.
    uring,
};

/// Limits of an io.
pub const Options = struct {
    /// The size of the receive buffer that all sockets of an io share: the most that one `received` event
    /// carries. With 64 KiB a bulk sender costs few system calls, and the buffer fits the second cache level.
    receive_buffer_bytes: u32 = 64 * 1024,
    /// Reports that one `wait` takes from the kernel; the rest comes with the next. Each takes 12 bytes.
    events_per_wait: u16 = 256,
    /// Connections that one listener gets per round, so that a storm of new ones leaves time for the old
    /// ones.
    accepts_per_wait: u16 = 64,
    /// Bytes that one `sendFile` may hand over before the other sockets get their turn. A peer that reads as
    /// fast as we send would otherwise hold the thread for the whole file.
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
