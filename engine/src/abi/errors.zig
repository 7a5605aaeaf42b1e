//! Zig errors as codes of peregrine.h, and codes as words.
const std = @import("std");
const peregrine = @import("peregrine");
const types = @import("types.zig");
const Code = types.Code;

/// Every error that a command gives.
pub const Any = peregrine.StartError || peregrine.BodyError || peregrine.EndError ||
    peregrine.Config.SetError || peregrine.io.file.Error ||
    error{
        Gone,
        NotWebSocket,
        ReservedField,
        NotOpen,
        NotUtf8,
        CodeNotAllowed,
        ReasonTooLong,
        ReasonNotUtf8,
        ReasonWithoutCode,
        AlreadyClosed,
    };

/// The number that C gets for an error.
pub fn code(err: Any) c_int {
    return switch (err) {
        error.Gone => Code.gone,
        error.OutOfOrder => Code.out_of_order,
        error.InvalidStatus => Code.status,
        error.InvalidFieldName => Code.field_name,
        error.InvalidFieldValue => Code.field_value,
        error.InvalidContentLength => Code.content_length,
        error.HeadTooLarge => Code.head_too_large,
        error.TooLong => Code.too_long,
        error.TooShort => Code.too_short,
        error.TrailersNotAllowed => Code.trailers,
        error.OutOfMemory => Code.memory,
        error.UnknownOption => Code.unknown,
        error.OutOfRange => Code.range,
        error.NotWebSocket => Code.not_websocket,
        error.ReservedField => Code.reserved,
        error.NotOpen, error.AlreadyClosed => Code.out_of_order,
        error.NotUtf8, error.ReasonNotUtf8 => Code.utf8,
        error.CodeNotAllowed, error.ReasonWithoutCode => Code.close_code,
        error.ReasonTooLong => Code.close_reason,
        error.DescriptorsExhausted => blk: {
            setErrno(.MFILE);
            break :blk Code.system;
        },
        error.NotAFile => blk: {
            setErrno(.BADF);
            break :blk Code.system;
        },
    };
}

/// The text of `peregrine_error_text` for a code.
pub fn text(number: c_int) [*:0]const u8 {
    return switch (number) {
        Code.ok, Code.done, Code.blocked => "",
        Code.gone => "the exchange has ended",
        Code.out_of_order => "out of order: the response has not started, or has already started or ended",
        Code.status => "status is outside 200..599",
        Code.field_name => "header name is not a token (RFC 9110 section 5.6.2)",
        Code.field_value => "header value holds CR, LF, NUL or another control byte",
        Code.content_length => "content-length is not a number, or is given twice",
        Code.too_long => "body is longer than its content-length",
        Code.too_short => "body is shorter than its content-length",
        Code.trailers => "trailers need chunked framing: no content-length, HTTP/1.1, " ++
            "and trailers promised at the start",
        Code.memory => "out of memory",
        Code.unknown => "no option of that name",
        Code.range => "value out of range",
        Code.system => "a system call failed",
        Code.address => "not a numeric address, or not a list of networks",
        Code.close_code => "close code may not be sent (RFC 6455 section 7.4)",
        Code.close_reason => "close reason is over 123 bytes",
        Code.utf8 => "text is not UTF-8",
        Code.not_websocket => "not an open WebSocket",
        Code.reserved => "the handshake itself has the field of that name",
        Code.head_too_large => std.fmt.comptimePrint(
            "headers or trailers are longer than {d} KiB",
            .{peregrine.head_bytes_max / 1024},
        ),
        Code.full => "too many bytes wait for the worker",
        Code.format => "not a format of the access log",
        Code.tls => "TLS: the configuration cannot be used, or the connection does not speak it",
        else => "unknown error",
    };
}

/// The text of `peregrine_reason_text` for a reason.
pub fn reasonText(number: u32) [*:0]const u8 {
    inline for (@typeInfo(peregrine.Reason).@"enum".field_names) |name| {
        if (number == @backingInt(@field(peregrine.Reason, name))) return name;
    }
    return "";
}

/// Leaves the cause in C's errno.
pub fn setErrno(errno: std.c.E) void {
    std.c._errno().* = @backingInt(errno);
}

/// Leaves the errno of an error of io; EIO for errors that have none.
pub fn setErrnoOf(err: anyerror) void {
    setErrno(switch (err) {
        error.OutOfMemory, error.SystemResources => .NOMEM,
        error.AddressInUse => .ADDRINUSE,
        error.AddressUnavailable => .ADDRNOTAVAIL,
        error.AccessDenied, error.PermissionDenied => .ACCES,
        error.ProcessDescriptorsExhausted => .MFILE,
        error.SystemDescriptorsExhausted => .NFILE,
        error.FileTooLarge => .FBIG,
        error.PathUnusable => .NOENT,
        error.FamilyUnsupported => .AFNOSUPPORT,
        error.NotListening => .NOTSOCK,
        error.VersionDiffers => .PROTO,
        error.Refused => .CONNREFUSED,
        error.TimedOut => .TIMEDOUT,
        error.Unsupported => .OPNOTSUPP,
        else => .IO,
    });
}
