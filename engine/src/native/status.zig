//! Status codes by name, for handlers (RFC 9110 section 15, IANA HTTP status code registry).
//! Does not know: what a status does to framing.
const std = @import("std");
const registry = @import("protocol").http.status;

/// A response's status. All registered codes have names; any other from 200 to 599 is
/// `Status.fromCode(code)`.
pub const Status = enum(u16) {
    @"continue" = 100,
    switching_protocols = 101,
    processing = 102,
    early_hints = 103,
    upload_resumption_supported = 104,
    ok = 200,
    created = 201,
    accepted = 202,
    non_authoritative_information = 203,
    no_content = 204,
    reset_content = 205,
    partial_content = 206,
    multi_status = 207,
    already_reported = 208,
    im_used = 226,
    multiple_choices = 300,
    moved_permanently = 301,
    found = 302,
    see_other = 303,
    not_modified = 304,
    use_proxy = 305,
    temporary_redirect = 307,
    permanent_redirect = 308,
    bad_request = 400,
    unauthorized = 401,
    payment_required = 402,
    forbidden = 403,
    not_found = 404,
    method_not_allowed = 405,
    not_acceptable = 406,
    proxy_authentication_required = 407,
    request_timeout = 408,
    conflict = 409,
    gone = 410,
    length_required = 411,
    precondition_failed = 412,
    content_too_large = 413,
    uri_too_long = 414,
    unsupported_media_type = 415,
    range_not_satisfiable = 416,
    expectation_failed = 417,
    /// Registered as unused: a joke of RFC 2324.
    teapot = 418,
    misdirected_request = 421,
    unprocessable_content = 422,
    locked = 423,
    failed_dependency = 424,
    too_early = 425,
    upgrade_required = 426,
    precondition_required = 428,
    too_many_requests = 429,
    request_header_fields_too_large = 431,
    unavailable_for_legal_reasons = 451,
    internal_server_error = 500,
    not_implemented = 501,
    bad_gateway = 502,
    service_unavailable = 503,
    gateway_timeout = 504,
    http_version_not_supported = 505,
    variant_also_negotiates = 506,
    insufficient_storage = 507,
    loop_detected = 508,
    not_extended = 510,
    network_authentication_required = 511,
    _,

    /// The status that answers a request whose handler returned `err`: errors that are named like one of the
    /// client's mistakes say so, `error.NotFound` for example; everything else is a 500.
    pub fn ofError(err: anyerror) Status {
        return switch (err) {
            error.BadRequest => .bad_request,
            error.Unauthorized => .unauthorized,
            error.Forbidden => .forbidden,
            error.NotFound => .not_found,
            error.MethodNotAllowed => .method_not_allowed,
            error.NotAcceptable => .not_acceptable,
            error.Conflict => .conflict,
            error.Gone => .gone,
            error.PreconditionFailed => .precondition_failed,
            error.ContentTooLarge => .content_too_large,
            error.UnsupportedMediaType => .unsupported_media_type,
            error.UnprocessableContent => .unprocessable_content,
            error.TooManyRequests => .too_many_requests,
            error.NotImplemented => .not_implemented,
            error.ServiceUnavailable, error.QueueFull => .service_unavailable,
            else => .internal_server_error,
        };
    }

    /// The status with this number. Numbers outside 100..599 cannot be sent: the response becomes a 500.
    pub fn fromCode(number: u16) Status {
        return @fromBackingInt(number);
    }

    pub fn code(status: Status) u16 {
        return @backingInt(status);
    }

    /// Number and reason phrase as they stand in a status line: "200 OK".
    pub fn toString(status: Status) []const u8 {
        const number = status.code();
        if (number < registry.code_min or number > registry.code_max) return "000 Unknown";
        const line = registry.line(number);
        return line["HTTP/1.1 ".len .. line.len - "\r\n".len];
    }
};

test "every named status is registered under its number" {
    const names = @typeInfo(Status).@"enum".field_names;
    inline for (names) |name| {
        const status = @field(Status, name);
        const text = status.toString();
        var digits: [3]u8 = undefined;
        try std.testing.expectEqualStrings(
            try std.fmt.bufPrint(&digits, "{d}", .{status.code()}),
            text[0..3],
        );
        try std.testing.expect(!std.mem.eql(u8, text[4..], "Unknown"));
    }
    try std.testing.expectEqualStrings("200 OK", Status.ok.toString());
    try std.testing.expectEqualStrings("299 Unknown", Status.fromCode(299).toString());
    try std.testing.expectEqualStrings("000 Unknown", Status.fromCode(7).toString());
}

test "errors that are named like a status are answered with it" {
    for ([_]anyerror{
        error.BadRequest,      error.Unauthorized,         error.Forbidden,
        error.NotFound,        error.MethodNotAllowed,     error.NotAcceptable,
        error.Conflict,        error.Gone,                 error.PreconditionFailed,
        error.ContentTooLarge, error.UnsupportedMediaType, error.UnprocessableContent,
        error.TooManyRequests, error.NotImplemented,       error.ServiceUnavailable,
    }) |err| {
        var name: [40]u8 = undefined;
        const len = std.mem.replacementSize(u8, @tagName(Status.ofError(err)), "_", "");
        _ = std.mem.replace(u8, @tagName(Status.ofError(err)), "_", "", &name);
        try std.testing.expect(std.ascii.eqlIgnoreCase(@errorName(err), name[0..len]));
    }
    try std.testing.expectEqual(.internal_server_error, Status.ofError(error.FileNotFound));
    try std.testing.expectEqual(.service_unavailable, Status.ofError(error.QueueFull));
}

test "every registered code has a name" {
    for (registry.code_min..registry.code_max + 1) |code| {
        const phrase = registry.reason(@intCast(code));
        if (std.mem.eql(u8, phrase, "Unknown") or code == 306) continue;
        const status: Status = .fromCode(@intCast(code));
        const named = inline for (@typeInfo(Status).@"enum".field_names) |name| {
            if (@field(Status, name) == status) break true;
        } else false;
        try std.testing.expect(named);
    }
}
