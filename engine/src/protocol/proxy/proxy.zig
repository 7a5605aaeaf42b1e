//! Facts from proxies about the clients whose connections and requests they forward.
const endpoint = @import("endpoint.zig");
const header = @import("header.zig");

/// The header fields of proxies: Forwarded, X-Forwarded-For.
pub const forwarded = @import("forwarded.zig");
pub const Address = endpoint.Address;
pub const Endpoint = endpoint.Endpoint;

/// The header of the PROXY protocol, which comes before all other bytes of a connection.
pub const Header = header.Header;
pub const Verdict = header.Verdict;
pub const bytes_max = header.bytes_max;
pub const parse = header.parse;

test {
    _ = endpoint;
    _ = header;
    _ = forwarded;
}
