//! Room `static`: answers requests with files of a folder, or with one file. Imports server (requests and responses) and protocol (dates,
//! percent-encoding), and speaks to the kernel about files.
//! Refuses to know: sockets, connections, workers, how a response is framed.
pub const DirServer = @import("dir_server.zig").DirServer;
pub const DirServerConfig = @import("dir_server.zig").Config;
pub const FileServer = @import("file_server.zig").FileServer;
pub const FileServerConfig = @import("file_server.zig").Config;
pub const Mime = @import("mime.zig").Mime;

test {
    _ = @import("cache.zig");
    _ = @import("conditional.zig");
    _ = @import("dir_server.zig");
    _ = @import("encoding.zig");
    _ = @import("file_server.zig");
    _ = @import("files.zig");
    _ = @import("mime.zig");
    _ = @import("path.zig");
    _ = @import("range.zig");
    _ = @import("representation.zig");
}
