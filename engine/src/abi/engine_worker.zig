//! The worker that answers through the C API. Only this file ties the worker to its `Host`.
const peregrine = @import("peregrine");
const platform = @import("platform");
const Host = @import("host.zig").Host;

pub const EngineWorker = peregrine.Worker(platform.Io, Host);
