//! Peers whose request no session has read: what can be seen of it, and what they are answered. It is HTTP/1,
//! which every client understands.
const encode = @import("http1/encode.zig");
const Family = @import("session.zig").Family;
const head = @import("http1/head.zig");

/// The protocol under which counters count a peer that has no session yet.
pub const family: Family = .@"HTTP/1";

pub const glimpse = head.glimpse;
pub const asksForHead = head.asksForHead;

/// Upper bound of `refusalResponse` and `aliveResponse`, in bytes.
pub const response_bytes_max = encode.refusal_bytes_max;
pub const refusalResponse = encode.refusalResponse;
pub const RefusalExtras = encode.RefusalExtras;
pub const Page = encode.Page;
/// The bytes of content in a refusal's response.
pub const refusalBodyBytes = encode.refusalBodyBytes;
pub const aliveResponse = encode.aliveResponse;
