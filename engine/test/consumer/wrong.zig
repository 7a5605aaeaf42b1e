//! A handler that forgets the response: does not compile, and the compiler says what to write.
const std = @import("std");
const per = @import("peregrine");

const App = struct {
    pub fn handleRequest(_: *App, _: *per.Request) void {}
};

pub fn main(init: std.process.Init) u8 {
    const server = per.Server(App).initWith(init.gpa, 3000, .{}, .{}) catch return 1;
    server.start() catch return 1;
    return 0;
}
