//! The worker that answers through the C API. The only file that joins `Host` and what it is a host of.
const peregrine = @import("peregrine");
const platform = @import("platform");
const Host = @import("host.zig").Host;

pub const EngineWorker = peregrine.Worker(platform.Io, Host);
