//! Answers requests with the files of a folder, or with one file. Uses requests and responses as a handler
//! does, and calls the kernel for files. Does not know: sockets, connections, workers, how a response is
//! framed.
pub const DirServer = @import("static/dir_server.zig").DirServer;
pub const DirServerConfig = @import("static/dir_server.zig").Config;
pub const FileServer = @import("static/file_server.zig").FileServer;
pub const FileServerConfig = @import("static/file_server.zig").Config;
pub const ranges_max = @import("static/range.zig").parts_max;
pub const AcceptedCodings = @import("static/encoding.zig").Accepted;
pub const Mime = @import("static/mime.zig").Mime;

test {
    _ = @import("static/cache.zig");
    _ = @import("static/conditional.zig");
    _ = @import("static/dir_server.zig");
    _ = @import("static/encoding.zig");
    _ = @import("static/file_server.zig");
    _ = @import("static/files.zig");
    _ = @import("static/mime.zig");
    _ = @import("static/path.zig");
    _ = @import("static/range.zig");
    _ = @import("static/representation.zig");
}
