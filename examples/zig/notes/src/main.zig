//! A service with everything that one needs: notes as JSON, uploads that never lie in memory, a page that
//! hears of news as they come, a report that takes its time, TLS with a redirect, and an end that waits for
//! those who are being served.
//!
//!     notes [--ip ADDRESS] [--port N] [--folder FOLDER] [--cert FILE --key FILE --tls-port N]
//!
//! With a certificate everything is served at --tls-port, and --port sends clients there. SIGTERM stops it.
const std = @import("std");
const per = @import("peregrine");
const App = @import("app.zig").App;

const usage = "usage: notes [--ip ADDRESS] [--port N] [--folder FOLDER] " ++
    "[--cert FILE --key FILE --tls-port N]";

const Options = struct {
    ip: [:0]const u8 = "127.0.0.1",
    port: u16 = 3000,
    folder: [:0]const u8 = ".",
    cert: ?[:0]const u8 = null,
    key: ?[:0]const u8 = null,
    @"tls-port": u16 = 3443,

    fn parse(args: []const [:0]const u8) error{Usage}!Options {
        var options: Options = .{};
        if (args.len % 2 == 0) return error.Usage;
        for (0..args.len / 2) |pair| try options.set(args[1 + 2 * pair], args[2 + 2 * pair]);
        if ((options.cert == null) != (options.key == null)) return error.Usage;
        return options;
    }

    fn set(options: *Options, argument: []const u8, value: [:0]const u8) error{Usage}!void {
        if (!std.mem.startsWith(u8, argument, "--")) return error.Usage;
        inline for (@typeInfo(Options).@"struct".field_names) |name| {
            if (std.mem.eql(u8, argument[2..], name)) {
                @field(options, name) = if (@TypeOf(@field(options, name)) == u16)
                    std.fmt.parseInt(u16, value, 10) catch return error.Usage
                else
                    value;
                return;
            }
        }
        return error.Usage;
    }
};

pub fn main(init: std.process.Init) u8 {
    run(init) catch |err| {
        // The server has said itself what kept it from starting.
        if (err == error.Usage) std.log.err(usage, .{});
        if (err == error.FileNotFound) std.log.err("there is no such folder", .{});
        return 1;
    };
    return 0;
}

fn run(init: std.process.Init) !void {
    const options: Options = try .parse(try init.minimal.args.toSlice(init.arena.allocator()));
    const certificates = [_]per.tls.CertificateFiles{.{
        .cert_file = options.cert orelse "",
        .key_file = options.key orelse "",
    }};
    const has_tls = options.cert != null;
    const redirecting: per.ServerConfig.Place = .{
        .ip = .{ .address = options.ip, .port = options.port, .plain = true },
    };
    const config: per.ServerConfig = .{
        .ip = options.ip,
        .tls = if (has_tls) .{ .certificates = &certificates } else null,
        .listeners = if (has_tls) &.{redirecting} else &.{},
        // Uploads come in pieces and go to a disk; all other bodies are put together, up to 1 MiB.
        .limits = .{ .body_bytes_max = 1 << 30 },
    };

    var app: App = try .init(init.gpa, init.io, options.folder);
    errdefer app.deinit();
    const port = if (has_tls) options.@"tls-port" else options.port;
    const server = try per.Server(App).initWith(init.gpa, port, config, app);
    server.handler().server = server;
    if (has_tls) server.handler().tls_port = server.port();
    std.log.info("http{s}://{s}:{d}/", .{ if (has_tls) "s" else "", options.ip, server.port() });
    try server.start();
}

test {
    _ = @import("app.zig");
}
