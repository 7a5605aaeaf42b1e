//! Parts that most web applications need on top of the server: a router, JSON, cookies, forms, middleware,
//! CORS. They use the package's public face, as any program can, and nothing else. All memory is the
//! request's.
//! Does not know: the engine behind the package's public face.

/// Routes as a type: `handle` and `handleBody` are a handler's hooks.
pub const Router = @import("router.zig").Router;
/// A route of a router, or a group of routes.
pub const Route = @import("router.zig").Route;
/// The answer of a body's producer.
pub const Progress = @import("router.zig").Progress;
pub const Middleware = @import("router.zig").Middleware;
pub const Next = @import("router.zig").Next;
/// A request and its response, with what this module adds to them.
pub const Context = @import("context.zig").Context;
pub const Limits = @import("context.zig").Limits;
/// Bounds on the requests of some routes.
pub const RouteLimits = @import("context.zig").RouteLimits;
pub const Cookie = @import("cookie.zig").Cookie;
pub const Cookies = @import("cookie.zig").Cookies;
pub const Form = @import("form.zig").Form;
pub const Multipart = @import("multipart.zig").Multipart;
pub const Cors = @import("cors.zig").Cors;
/// Middleware that lets pages of other sites use this one.
pub const cors = @import("cors.zig").cors;
pub const Compress = @import("compress.zig").Compress;
/// Middleware that compresses responses with gzip.
pub const compress = @import("compress.zig").compress;
/// Middleware that sends clients without TLS to the port with TLS.
pub const requireTls = @import("require_tls.zig").requireTls;

test {
    _ = @import("bounded.zig");
    _ = @import("compress.zig");
    _ = @import("context.zig");
    _ = @import("cookie.zig");
    _ = @import("cors.zig");
    _ = @import("form.zig");
    _ = @import("gzip.zig");
    _ = @import("json.zig");
    _ = @import("multipart.zig");
    _ = @import("pattern.zig");
    _ = @import("require_tls.zig");
    _ = @import("router.zig");
}
