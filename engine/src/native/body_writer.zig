//! A `std.Io.Writer` whose bytes become pieces of a response's body. Does not know: framing, and who waits
//! for slow clients (`Response.write` does).
const std = @import("std");
const response_file = @import("response.zig");
const Flow = response_file.Flow;
const Response = response_file.Response;
const SendError = response_file.SendError;

/// A `std.Io.Writer`, `interface`, for a response's body. Its buffer becomes a piece when it is full, or by
/// `interface.flush()`. Does not move while `interface` is in use.
pub const BodyWriter = struct {
    response: *Response,
    interface: std.Io.Writer,
    sent_bytes: u64 = 0,
    /// The answer of `Response.write` to the last piece.
    flow: Flow = .ready,
    /// Why the last piece was not taken, behind `error.WriteFailed`.
    failure: ?SendError = null,

    /// `buffer` must not be empty: each byte would be a piece.
    pub fn init(response: *Response, buffer: []u8) BodyWriter {
        std.debug.assert(buffer.len > 0);
        return .{
            .response = response,
            .interface = .{ .vtable = &.{ .drain = drain }, .buffer = buffer },
        };
    }

    /// Bytes that were written, those in the buffer included.
    pub fn written(writer: *const BodyWriter) u64 {
        return writer.sent_bytes + writer.interface.end;
    }

    /// Sends the rest of the buffer, and ends the response. A body that has not left the buffer is sent
    /// whole, with its Content-Length.
    pub fn end(writer: *BodyWriter) SendError!void {
        const response = writer.response;
        if (response.state == .collecting and response.body == .none) {
            response.setBody(writer.interface.buffered()) catch |err| switch (err) {
                error.AlreadyStarted => unreachable,
                else => |same| return same,
            };
            writer.interface.end = 0;
            return response.send();
        }
        writer.interface.flush() catch return writer.failure.?;
        try response.end();
    }

    fn drain(interface: *std.Io.Writer, data: []const []const u8, splat: usize) std.Io.Writer.Error!usize {
        const writer: *BodyWriter = @alignCast(@fieldParentPtr("interface", interface));
        try writer.sendBuffer();
        var taken: usize = 0;
        for (data[0 .. data.len - 1]) |bytes| {
            try writer.take(bytes);
            taken += bytes.len;
        }
        const repeated = data[data.len - 1];
        for (0..splat) |_| try writer.take(repeated);
        return taken + repeated.len * splat;
    }

    /// Few bytes wait in the buffer for others, many go as they are.
    fn take(writer: *BodyWriter, bytes: []const u8) std.Io.Writer.Error!void {
        const interface = &writer.interface;
        if (bytes.len > interface.unusedCapacityLen()) try writer.sendBuffer();
        if (bytes.len > interface.unusedCapacityLen()) return writer.send(bytes);
        @memcpy(interface.unusedCapacitySlice()[0..bytes.len], bytes);
        interface.advance(bytes.len);
    }

    fn sendBuffer(writer: *BodyWriter) std.Io.Writer.Error!void {
        if (writer.interface.end == 0) return;
        try writer.send(writer.interface.buffered());
        writer.interface.end = 0;
    }

    fn send(writer: *BodyWriter, bytes: []const u8) std.Io.Writer.Error!void {
        writer.flow = writer.response.write(bytes) catch |err| {
            writer.failure = err;
            return error.WriteFailed;
        };
        writer.sent_bytes += bytes.len;
    }
};
