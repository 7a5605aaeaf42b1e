//! Peers whose request no session has read: facts about them, and the responses to them. These are HTTP/1,
//! which every client understands.
const encode = @import("http1/encode.zig");
const Family = @import("session.zig").Family;
const head = @import("http1/head.zig");

/// The protocol by which counters count a peer without a session.
pub const family: Family = .@"HTTP/1";

pub const glimpse = head.glimpse;
pub const asksForHead = head.asksForHead;

/// The maximum length of `refusalResponse` and `aliveResponse`, in bytes.
pub const response_bytes_max = encode.refusal_bytes_max;
pub const refusalResponse = encode.refusalResponse;
pub const RefusalExtras = encode.RefusalExtras;
pub const Page = encode.Page;
/// The number of bytes of content in the response of a refusal.
pub const refusalBodyBytes = encode.refusalBodyBytes;
pub const aliveResponse = encode.aliveResponse;
