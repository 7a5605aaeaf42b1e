//! Wire fixtures for HTTP/1 requests: bytes as a peer sends them, and the transcript of what the session says
//! to them. Each fixture runs whole, byte by byte and cut at every place; the transcripts must be the same. A
//! seeded fuzz does the same with broken copies of the fixtures, where only the agreement counts. RFC 9112.
const std = @import("std");
const http1 = @import("protocol").http1;
const FieldSpan = @import("protocol").http.FieldSpan;

const limits: http1.Limits = .{
    .request_line_bytes_max = 40,
    .head_bytes_max = 160,
    .header_count_max = 5,
    .body_bytes_max = 32,
    .trailer_bytes_max = 48,
    .chunk_line_bytes_max = 20,
};

/// A transcript has one line per event: `METHOD target version body keep|close[ continue][ upgrade]
/// [name=value ...]`, `body ...` (adjacent pieces joined), `trailers ...`, `end`, `refused status detail`; at
/// the end `left n` if n bytes wait.
const Fixture = struct { name: []const u8, wire: []const u8, transcript: []const u8 };

const fixtures = [_]Fixture{
    // Requests that are accepted.
    .{
        .name = "shortest",
        .wire = "GET / HTTP/1.1\r\nHost:\r\n\r\n",
        .transcript = "GET / 1.1 none keep Host=\n",
    },
    .{
        .name = "fields are trimmed, HTAB and raw bytes stay",
        .wire = "GET-X /a?b HTTP/1.1\r\nhOST: \t a:80 \t\r\nX!: \xff\t y\r\n\r\n",
        .transcript = "GET-X /a?b 1.1 none keep hOST=a:80 X!=\xff\t y\n",
    },
    .{
        .name = "empty lines before the request line",
        .wire = "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
        .transcript = "GET / 1.1 none keep Host=a\nGET /2 1.1 none keep Host=a\n",
    },
    .{
        .name = "pipelining",
        .wire = "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n" ++
            "POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc" ++
            "POST /3 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n" ++
            "GET /4 HTTP/1.1\r\nHost: a\r\n\r\nG",
        .transcript = "GET /1 1.1 none keep Host=a\nPOST /2 1.1 counted 3 keep Host=a Content-Length=3\n" ++
            "body abc\nend\n" ++
            "POST /3 1.1 chunked keep Host=a Transfer-Encoding=chunked\nbody x\nend\n" ++
            "GET /4 1.1 none keep Host=a\nleft 1\n",
    },
    .{
        .name = "connection close ends it",
        .wire = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" ++
            "GET /never HTTP/1.1\r\nHost: a\r\n\r\n",
        .transcript = "GET / 1.1 none close Host=a Connection=close\nleft 32\n",
    },
    .{
        .name = "HTTP/1.0 without Host",
        .wire = "GET / HTTP/1.0\r\n\r\n",
        .transcript = "GET / 1.0 none close\n",
    },
    .{
        .name = "HTTP/1.0 kept alive",
        .wire = "POST / HTTP/1.0\r\nConnection: Keep-Alive\r\nContent-Length: 1\r\n\r\n" ++
            "aGET / HTTP/1.0\r\n\r\n",
        .transcript = "POST / 1.0 counted 1 keep Connection=Keep-Alive Content-Length=1\nbody a\nend\n" ++
            "GET / 1.0 none close\n",
    },
    .{
        .name = "length zero is no body",
        .wire = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
        .transcript = "POST / 1.1 none keep Host=a Content-Length=0\n",
    },
    .{
        .name = "identical lengths",
        .wire = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\nContent-Length: 1\r\n\r\nx",
        .transcript = "POST / 1.1 counted 1 keep Host=a Content-Length=1\nbody x\nend\n",
    },
    .{
        .name = "... are delivered as one, and the rest in order",
        .wire = "POST http://b/ HTTP/1.0\r\nContent-Length: 01 ,1\r\nA: 1\r\nHost: a\r\n" ++
            "Content-Length: 1\r\nB: 2\r\n\r\nx",
        .transcript = "POST http://b/ 1.0 counted 1 close Content-Length=01 A=1 Host=b B=2\nbody x\nend\n",
    },
    .{
        .name = "expectation",
        .wire = "PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nab",
        .transcript = "PUT / 1.1 counted 2 keep continue Host=a Expect=100-continue Content-Length=2\n" ++
            "body ab\nend\n",
    },
    .{
        .name = "upgrade offered and not taken",
        .wire = "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nConnection: x, upgrade\r\n\r\n",
        .transcript = "GET / 1.1 none keep upgrade Host=a Upgrade=h2c Connection=x, upgrade\n",
    },
    .{
        .name = "all forms of a target",
        .wire = "GET http://b:1/p?q HTTP/1.1\r\nHost: a\r\n\r\nOPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
        .transcript = "GET http://b:1/p?q 1.1 none keep Host=b:1\nOPTIONS * 1.1 none keep Host=a\n",
    },
    .{
        .name = "an absolute-form target takes the place of Host, wherever that stands",
        .wire = "GET http://b HTTP/1.1\r\nA: 1\r\nhost:\r\nB: 2\r\n\r\n" ++
            "GET HTTP://[::1]:8/ HTTP/1.0\r\nHost: other.example\r\n\r\n",
        .transcript = "GET http://b 1.1 none keep A=1 host=b B=2\n" ++
            "GET HTTP://[::1]:8/ 1.0 none close Host=[::1]:8\n",
    },
    .{
        .name = "... or of a Host that HTTP/1.0 did without",
        .wire = "GET http://b/ HTTP/1.0\r\na:\r\nc:\r\n\r\n",
        .transcript = "GET http://b/ 1.0 none close a= c= host=b\n",
    },
    .{
        .name = "... if there is room for it",
        .wire = "GET http://b/ HTTP/1.0\r\na:\r\na:\r\na:\r\na:\r\na:\r\n\r\n",
        .transcript = "refused 431 too many fields\n",
    },
    .{
        .name = "HTTP/1.1 needs Host for absolute-form, too",
        .wire = "GET http://b/ HTTP/1.1\r\n\r\n",
        .transcript = "refused 400 missing Host field\n",
    },
    .{
        .name = "... and a good one, though nobody will see it",
        .wire = "GET http://b/ HTTP/1.1\r\nHost: u@a\r\n\r\n",
        .transcript = "refused 400 malformed Host field\n",
    },
    .{
        .name = "... and only one",
        .wire = "GET http://b/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        .transcript = "refused 400 repeated Host field\n",
    },
    .{
        .name = "absolute-form without a host",
        .wire = "GET http://:80/ HTTP/1.1\r\n",
        .transcript = "refused 400 malformed authority in request target\n",
    },
    .{
        .name = "absolute-form without anything",
        .wire = "GET http:/// HTTP/1.1\r\n",
        .transcript = "refused 400 malformed authority in request target\n",
    },
    .{
        .name = "methods that nobody knows",
        .wire = "M-SEARCH /1 HTTP/1.1\r\nHost: a\r\n\r\nVERSION-CONTROL /2 HTTP/1.1\r\nHost: a\r\n\r\n" ++
            "X_2.~ /3 HTTP/1.0\r\n\r\n",
        .transcript = "M-SEARCH /1 1.1 none keep Host=a\nVERSION-CONTROL /2 1.1 none keep Host=a\n" ++
            "X_2.~ /3 1.0 none close\n",
    },
    // Chunks.
    .{
        .name = "chunk extensions, capitals, leading zeros",
        .wire = chunked ++ "00A;n=\"v;\"\r\n0123456789\r\n1 ;x\r\nz\r\n0;last\r\n\r\n",
        .transcript = chunked_head ++ "body 0123456789z\nend\n",
    },
    .{
        .name = "trailers, those that frame dropped",
        .wire = chunked ++
            "1\r\nx\r\n0\r\nHost: evil\r\nSum: 1\r\nTE: x\r\nT: 2\r\n\r\nGET / HTTP/1.0\r\n\r\n",
        .transcript = chunked_head ++ "body x\ntrailers Sum=1 T=2\nend\nGET / 1.0 none close\n",
    },
    .{
        .name = "nothing but dropped trailers",
        .wire = chunked ++ "0\r\nContent-Length: 3\r\n\r\n",
        .transcript = chunked_head ++ "end\n",
    },
    .{
        .name = "chunk size missing",
        .wire = chunked ++ "\r\n",
        .transcript = chunked_head ++ "refused 400 malformed chunk size\n",
    },
    .{
        .name = "chunk size signed",
        .wire = chunked ++ "+1\r\n",
        .transcript = chunked_head ++ "refused 400 malformed chunk size\n",
    },
    .{
        .name = "space behind chunk size",
        .wire = chunked ++ "1 \r\n",
        .transcript = chunked_head ++ "refused 400 malformed chunk size\n",
    },
    .{
        .name = "bare LF behind chunk size",
        .wire = chunked ++ "1\nx",
        .transcript = chunked_head ++ "refused 400 malformed chunk size\n",
    },
    .{
        .name = "bare CR behind chunk size",
        .wire = chunked ++ "1\rx",
        .transcript = chunked_head ++ "refused 400 bare CR in chunk line\n",
    },
    .{
        .name = "control byte in extension",
        .wire = chunked ++ "1;\nx",
        .transcript = chunked_head ++ "refused 400 control byte in chunk extension\n",
    },
    .{
        .name = "chunk line too long",
        .wire = chunked ++ "1;34567890123456789\r\n",
        .transcript = chunked_head ++ "refused 400 chunk line too long\n",
    },
    .{
        .name = "chunk longer than its size",
        .wire = chunked ++ "2\r\nabc",
        .transcript = chunked_head ++ "body ab\nrefused 400 chunk data without CRLF at its end\n",
    },
    .{
        .name = "chunks add up to too much",
        .wire = chunked ++ "1f\r\n0123456789012345678901234567890\r\n2\r\n",
        .transcript = chunked_head ++ "body 0123456789012345678901234567890\nrefused 413 content too large\n",
    },
    .{
        .name = "chunk size overflows",
        .wire = chunked ++ "10000000000000001\r\n",
        .transcript = chunked_head ++ "refused 413 content too large\n",
    },
    .{
        .name = "trailer section too large",
        .wire = chunked ++ "0\r\nA: 4567890123456789012345678901234567890123xx\r\n\r\n",
        .transcript = chunked_head ++ "refused 431 header section too large\n",
    },
    .{
        .name = "too many trailers",
        .wire = chunked ++ "0\r\na:\r\na:\r\na:\r\na:\r\na:\r\na:\r\n\r\n",
        .transcript = chunked_head ++ "refused 431 too many fields\n",
    },
    .{
        .name = "folded trailer",
        .wire = chunked ++ "0\r\na: b\r\n c\r\n\r\n",
        .transcript = chunked_head ++ "refused 400 folded field line\n",
    },
    // Request lines that are refused.
    .{
        .name = "TLS greeting",
        .wire = "\x16\x03\x01\x02\x00",
        .transcript = "refused 400 malformed request line\n",
    },
    .{
        .name = "bare LF first",
        .wire = "\nGET / HTTP/1.1\r\n",
        .transcript = "refused 400 malformed request line\n",
    },
    .{
        .name = "bare CR first",
        .wire = "\rGET / HTTP/1.1\r\n",
        .transcript = "refused 400 bare CR before request line\n",
    },
    .{
        .name = "many empty lines",
        .wire = "\r\n\r\n\r\n\r\n\r\n",
        .transcript = "refused 400 too many empty lines before request line\n",
    },
    .{
        .name = "leading space",
        .wire = " GET / HTTP/1.1\r\n",
        .transcript = "refused 400 malformed request line\n",
    },
    .{
        .name = "method is no token",
        .wire = "GE(T / HTTP/1.1\r\n",
        .transcript = "refused 400 malformed request line\n",
    },
    .{
        .name = "two spaces",
        .wire = "GET  / HTTP/1.1\r\n",
        .transcript = "refused 400 empty request target\n",
    },
    .{
        .name = "tab between",
        .wire = "GET\t/ HTTP/1.1\r\n",
        .transcript = "refused 400 malformed request line\n",
    },
    .{ .name = "HTTP/0.9", .wire = "GET /\r\n", .transcript = "refused 400 malformed request line\n" },
    .{
        .name = "space behind the version",
        .wire = "GET / HTTP/1.1 \r\n",
        .transcript = "refused 400 malformed HTTP version or line end\n",
    },
    .{
        .name = "bare LF ends it",
        .wire = "GET / HTTP/1.1\nHost: a\n\n",
        .transcript = "refused 400 malformed HTTP version or line end\n",
    },
    .{
        .name = "lower-case version",
        .wire = "GET / http/1.1\r\n",
        .transcript = "refused 400 malformed HTTP version or line end\n",
    },
    .{
        .name = "version with two digits",
        .wire = "GET / HTTP/1.10\r\n",
        .transcript = "refused 400 malformed HTTP version or line end\n",
    },
    .{
        .name = "HTTP/2.0",
        .wire = "GET / HTTP/2.0\r\n",
        .transcript = "refused 505 unsupported HTTP version\n",
    },
    .{
        .name = "HTTP/1.2 is read as HTTP/1.1",
        .wire = "GET / HTTP/1.2\r\nHost: a\r\n\r\n",
        .transcript = "GET / 1.1 none keep Host=a\n",
    },
    .{
        .name = "... with its rules",
        .wire = "GET / HTTP/1.9\r\n\r\n",
        .transcript = "refused 400 missing Host field\n",
    },
    .{
        .name = "HTTP/0.9 spelled out",
        .wire = "GET / HTTP/0.9\r\n",
        .transcript = "refused 505 unsupported HTTP version\n",
    },
    .{
        .name = "control in target",
        .wire = "GET /\x01 HTTP/1.1\r\n",
        .transcript = "refused 400 malformed request line\n",
    },
    .{
        .name = "fragment",
        .wire = "GET /#f HTTP/1.1\r\n",
        .transcript = "refused 400 fragment in request target\n",
    },
    .{
        .name = "broken percent",
        .wire = "GET /%4x HTTP/1.1\r\n",
        .transcript = "refused 400 malformed percent-encoding in request target\n",
    },
    .{
        .name = "asterisk",
        .wire = "GET * HTTP/1.1\r\n",
        .transcript = "refused 400 request target '*' is for OPTIONS only\n",
    },
    // Methods that no host serves are refused when their head is complete, so that the log can tell of the
    // whole request.
    .{
        .name = "lower-case method",
        .wire = "head / HTTP/1.1\r\nHost: a\r\n\r\n",
        .transcript = "refused 501 method in lower case\n",
    },
    .{
        .name = "one lower-case letter",
        .wire = "DELETe / HTTP/1.1\r\nHost: a\r\n\r\n",
        .transcript = "refused 501 method in lower case\n",
    },
    .{
        .name = "lower-case method, and what follows would be smuggled",
        .wire = "post / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
        .transcript = "refused 501 method in lower case\n",
    },
    .{
        .name = "CONNECT",
        .wire = "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\nx",
        .transcript = "refused 501 CONNECT is not supported\n",
    },
    .{
        .name = "CONNECT to a path",
        .wire = "CONNECT / HTTP/1.1\r\nHost: a\r\n\r\n",
        .transcript = "refused 501 CONNECT is not supported\n",
    },
    .{
        .name = "lower-case connect",
        .wire = "connect a:443 HTTP/1.1\r\n",
        .transcript = "refused 400 malformed request target\n",
    },
    .{
        .name = "authority-form without CONNECT",
        .wire = "GET a:443 HTTP/1.1\r\n",
        .transcript = "refused 400 malformed request target\n",
    },
    .{
        .name = "user information",
        .wire = "GET http://u@a/ HTTP/1.1\r\n",
        .transcript = "refused 400 malformed authority in request target\n",
    },
    .{
        .name = "longest request line",
        .wire = "GET /" ++ repeat('x', 26) ++ " HTTP/1.0\r\n\r\n",
        .transcript = "GET /" ++ repeat('x', 26) ++ " 1.0 none close\n",
    },
    .{
        .name = "request line one too long",
        .wire = "GET /" ++ repeat('x', 27) ++ " HTTP/1.0\r\n\r\n",
        .transcript = too_long,
    },
    .{ .name = "target without end", .wire = "GET /" ++ repeat('x', 36), .transcript = too_long },
    .{ .name = "method without end", .wire = repeat('X', 41), .transcript = "refused 501 method too long\n" },
    .{ .name = "longest method", .wire = repeat('X', 40) ++ " ", .transcript = too_long },
    // Field lines that are refused.
    .{
        .name = "folded",
        .wire = get ++ "A: b\r\n c\r\n\r\n",
        .transcript = "refused 400 folded field line\n",
    },
    .{
        .name = "first line indented",
        .wire = get ++ "\tA: b\r\n\r\n",
        .transcript = "refused 400 folded field line\n",
    },
    .{
        .name = "space before colon",
        .wire = get ++ "Host : a\r\n\r\n",
        .transcript = "refused 400 malformed field name\n",
    },
    .{
        .name = "empty name",
        .wire = get ++ ": a\r\n\r\n",
        .transcript = "refused 400 malformed field name\n",
    },
    .{
        .name = "name is no token",
        .wire = get ++ "A@b: a\r\n\r\n",
        .transcript = "refused 400 malformed field name\n",
    },
    .{
        .name = "no colon",
        .wire = get ++ "Host\r\n\r\n",
        .transcript = "refused 400 field line without colon\n",
    },
    .{
        .name = "bare LF",
        .wire = get ++ "A: b\nC: d\r\n\r\n",
        .transcript = "refused 400 bare LF in field line\n",
    },
    .{
        .name = "bare LF for the blank line",
        .wire = get ++ "A: b\r\n\n",
        .transcript = "refused 400 bare LF in field line\n",
    },
    .{
        .name = "bare CR",
        .wire = get ++ "A: b\rc\r\n\r\n",
        .transcript = "refused 400 bare CR in field line\n",
    },
    .{
        .name = "two CR",
        .wire = get ++ "A: b\r\r\n\r\n",
        .transcript = "refused 400 bare CR in field line\n",
    },
    .{
        .name = "NUL",
        .wire = get ++ "A: b\x00\r\n\r\n",
        .transcript = "refused 400 control byte in field line\n",
    },
    .{
        .name = "DEL",
        .wire = get ++ "A: b\x7f\r\n\r\n",
        .transcript = "refused 400 control byte in field line\n",
    },
    .{
        .name = "too many fields",
        .wire = get ++ "a:\r\na:\r\na:\r\na:\r\na:\r\n" ++ "b",
        .transcript = "refused 431 too many fields\n",
    },
    .{
        .name = "longest head",
        .wire = get_1_0 ++ "a:" ++ repeat('x', 138) ++ "\r\n\r\n",
        .transcript = "GET / 1.0 none close a=" ++ repeat('x', 138) ++ "\n",
    },
    .{
        .name = "head one too long",
        .wire = get_1_0 ++ "a:" ++ repeat('x', 139) ++ "\r\n\r\n",
        .transcript = "refused 431 header section too large\n",
    },
    .{
        .name = "field without end",
        .wire = get_1_0 ++ "a:" ++ repeat('x', 142),
        .transcript = "refused 431 header section too large\n",
    },
    // Framing that is refused.
    .{ .name = "no Host", .wire = get ++ "\r\n", .transcript = "refused 400 missing Host field\n" },
    .{
        .name = "two Hosts",
        .wire = get ++ "Host: a\r\nhost: a\r\n\r\n",
        .transcript = "refused 400 repeated Host field\n",
    },
    .{
        .name = "no address in brackets",
        .wire = get ++ "Host: [zz]\r\n\r\n",
        .transcript = "refused 400 malformed Host field\n",
    },
    .{
        .name = "no address in a target",
        .wire = "GET http://[1:2]/ HTTP/1.1\r\n",
        .transcript = "refused 400 malformed authority in request target\n",
    },
    .{
        .name = "a target that we are no origin of",
        .wire = "GET ftp://a/ HTTP/1.1\r\n",
        .transcript = "refused 421 neither http nor https in request target\n",
    },
    .{
        .name = "bad Host",
        .wire = get ++ "Host: a/b\r\n\r\n",
        .transcript = "refused 400 malformed Host field\n",
    },
    .{
        .name = "both framings",
        .wire = get ++ "Host: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        .transcript = "refused 400 both Transfer-Encoding and Content-Length\n",
    },
    .{
        .name = "two lengths",
        .wire = get ++ "Host: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
        .transcript = "refused 400 contradictory Content-Length\n",
    },
    .{
        .name = "two lengths, the smaller one last",
        .wire = get ++ "Host: a\r\nContent-Length: 4\r\nContent-Length: 3\r\n\r\n",
        .transcript = "refused 400 contradictory Content-Length\n",
    },
    .{
        .name = "two lengths in a list, the smaller one last",
        .wire = get ++ "Host: a\r\nContent-Length: 4, 3\r\n\r\n",
        .transcript = "refused 400 contradictory Content-Length\n",
    },
    .{
        .name = "bad length",
        .wire = get ++ "Host: a\r\nContent-Length: 3x\r\n\r\n",
        .transcript = "refused 400 malformed Content-Length\n",
    },
    .{
        .name = "length over the limit",
        .wire = get ++ "Host: a\r\nContent-Length: 33\r\n\r\n",
        .transcript = "refused 413 content too large\n",
    },
    .{
        .name = "length over 64 bits",
        .wire = get ++ "Host: a\r\nContent-Length: 18446744073709551616\r\n\r\n",
        .transcript = "refused 413 Content-Length too large\n",
    },
    .{
        .name = "unknown coding",
        .wire = get ++ "Host: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        .transcript = "refused 501 unknown transfer coding\n",
    },
    .{
        .name = "identity",
        .wire = get ++ "Host: a\r\nTransfer-Encoding: identity\r\n\r\n",
        .transcript = "refused 400 chunked is not the last transfer coding\n",
    },
    .{
        .name = "chunked twice",
        .wire = get ++ "Host: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        .transcript = "refused 400 transfer coding after chunked\n",
    },
    .{
        .name = "chunked in HTTP/1.0",
        .wire = get_1_0 ++ "Transfer-Encoding: chunked\r\n\r\n",
        .transcript = "refused 400 Transfer-Encoding in HTTP/1.0\n",
    },
};

const get = "GET / HTTP/1.1\r\n";
const get_1_0 = "GET / HTTP/1.0\r\n";
const chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
const chunked_head = "POST / 1.1 chunked keep Host=a Transfer-Encoding=chunked\n";
fn repeat(comptime byte: u8, comptime count: usize) *const [count]u8 {
    const bytes: [count]u8 = @splat(byte);
    return &bytes;
}

const too_long = "refused 414 request line too long\n";

/// A connection in miniature: it keeps what was not consumed, answers every complete request with 204 and
/// writes the transcript.
const Recorder = struct {
    session: http1.Session = .init(&limits),
    storage: [8]FieldSpan = undefined,
    text: [4096]u8 = undefined,
    len: usize = 0,
    in_body: bool = false,
    over: bool = false,
    consumed: usize = 0,

    /// The first `arrived` bytes of `wire` are there.
    fn receive(r: *Recorder, wire: []const u8, arrived: usize) !void {
        // Each call must consume or say something new, so that this many steps are enough.
        for (0..3 * wire.len + 3) |_| {
            if (r.over) return;
            // The scratch is shared by connections: what it held before must not matter.
            @memset(&r.storage, .{
                .name_at = 7777,
                .value_at = 7777,
                .value_len = 7,
                .name_len = 7,
                .id = .host,
            });
            var head: http1.Head = .{ .storage = &r.storage };
            const step = r.session.feed(wire[r.consumed..arrived], &head);
            r.consumed += step.consumed;
            if (step.event == .need_more) return;
            try r.record(step.event, &head);
            if (!r.over and r.session.inputComplete()) try r.answer();
        }
        return error.SessionDoesNotAdvance;
    }

    fn answer(r: *Recorder) !void {
        var out: [http1.startSize(&.{})]u8 = undefined;
        r.session.apply(try r.session.planStart(.{ .status = 204, .fields = &.{} }, &out));
        r.session.apply(try r.session.planEnd(&.{}, &out));
        if (r.session.disposition() == .keep_alive) r.session.next() else r.over = true;
    }

    fn record(r: *Recorder, event: http1.Event, head: *const http1.Head) !void {
        if (event == .body) {
            if (!r.in_body) try r.print("body ", .{});
            r.in_body = true;
            return r.print("{s}", .{event.body});
        }
        if (r.in_body) try r.print("\n", .{});
        r.in_body = false;
        switch (event) {
            .need_more, .body => unreachable,
            .request => {
                const version = if (head.version == .http_1_1) "1.1" else "1.0";
                try r.print(
                    "{s} {s} {s} {s}",
                    .{
                        head.method_text.of(head.text), head.target.of(head.text),
                        version,                        @tagName(head.body),
                    },
                );
                if (head.body == .counted) try r.print(" {d}", .{head.body.counted});
                try r.print(" {s}", .{if (head.keep_alive) "keep" else "close"});
                if (head.expect_continue) try r.print(" continue", .{});
                if (head.upgrade) try r.print(" upgrade", .{});
                try r.fields(head);
            },
            .trailers => {
                try r.print("trailers", .{});
                try r.fields(head);
            },
            .end => try r.print("end\n", .{}),
            .refused => |refusal| {
                r.over = true;
                try r.print("refused {d} {s}\n", .{ refusal.status, refusal.detail });
            },
        }
    }

    fn fields(r: *Recorder, head: *const http1.Head) !void {
        for (head.fields) |field| try r.print(" {s}={s}", .{ field.name(head.text), field.value(head.text) });
        try r.print("\n", .{});
    }

    fn finish(r: *Recorder, wire: []const u8) ![]const u8 {
        if (r.in_body) try r.print("\n", .{});
        const refused = r.over and r.session.responseStarted() == false;
        if (!refused and r.consumed < wire.len) try r.print("left {d}\n", .{wire.len - r.consumed});
        return r.text[0..r.len];
    }

    fn print(r: *Recorder, comptime format: []const u8, arguments: anytype) !void {
        r.len += (try std.fmt.bufPrint(r.text[r.len..], format, arguments)).len;
    }
};

fn whole(wire: []const u8, r: *Recorder) ![]const u8 {
    return split(wire, wire.len, r);
}

fn split(wire: []const u8, at: usize, r: *Recorder) ![]const u8 {
    r.* = .{};
    try r.receive(wire, at);
    try r.receive(wire, wire.len);
    return r.finish(wire);
}

fn byteByByte(wire: []const u8, r: *Recorder) ![]const u8 {
    r.* = .{};
    for (0..wire.len + 1) |arrived| try r.receive(wire, arrived);
    return r.finish(wire);
}

test "fixtures: whole, byte by byte, and cut at every place" {
    for (fixtures) |fixture| {
        errdefer std.debug.print("fixture: {s}\n", .{fixture.name});
        var r: Recorder = undefined;
        try std.testing.expectEqualStrings(fixture.transcript, try whole(fixture.wire, &r));
        try std.testing.expectEqualStrings(fixture.transcript, try byteByByte(fixture.wire, &r));
        for (0..fixture.wire.len) |at| {
            errdefer std.debug.print("cut at {d}\n", .{at});
            try std.testing.expectEqualStrings(fixture.transcript, try split(fixture.wire, at, &r));
        }
    }
}

/// Bytes that mean something to the parser, so that damage is interesting.
const spice = "\r\n :;,\t\x00\x7f\xff%#?/*0159afFG\"\\-+.HTPhx@[]";

test "damaged fixtures: no cut changes the transcript" {
    const seed = 0x9112;
    var prng: std.Random.DefaultPrng = .init(seed);
    const random = prng.random();
    for (0..20_000) |round| {
        var buffer: [512]u8 = undefined;
        const original = fixtures[random.uintLessThan(usize, fixtures.len)].wire;
        @memcpy(buffer[0..original.len], original);
        var wire: []u8 = buffer[0..original.len];
        for (0..random.uintLessThan(usize, 4)) |_| wire = damage(random, &buffer, wire.len);
        errdefer std.debug.print("seed {x} round {d}: \"{f}\"\n", .{ seed, round, std.zig.fmtString(wire) });
        var first: Recorder = undefined;
        var second: Recorder = undefined;
        const expected = try whole(wire, &first);
        try std.testing.expectEqualStrings(expected, try byteByByte(wire, &second));
        try std.testing.expectEqualStrings(
            expected,
            try split(wire, random.uintAtMost(usize, wire.len), &second),
        );
    }
}

fn damage(random: std.Random, buffer: *[512]u8, len: usize) []u8 {
    const at = random.uintAtMost(usize, len);
    const byte = spice[random.uintLessThan(usize, spice.len)];
    switch (random.uintLessThan(u8, 3)) {
        0 => if (at < len) {
            buffer[at] = byte;
        },
        1 => if (at < len) {
            std.mem.copyForwards(u8, buffer[at .. len - 1], buffer[at + 1 .. len]);
            return buffer[0 .. len - 1];
        },
        else => if (len < buffer.len) {
            std.mem.copyBackwards(u8, buffer[at + 1 .. len + 1], buffer[at..len]);
            buffer[at] = byte;
            return buffer[0 .. len + 1];
        },
    }
    return buffer[0..len];
}

test "random bytes" {
    var prng: std.Random.DefaultPrng = .init(0x9110);
    const random = prng.random();
    for (0..20_000) |_| {
        var buffer: [96]u8 = undefined;
        const wire = buffer[0..random.uintAtMost(usize, buffer.len)];
        const plain = random.boolean();
        for (wire) |*byte| byte.* = if (plain)
            spice[random.uintLessThan(usize, spice.len)]
        else
            random.int(u8);
        var first: Recorder = undefined;
        var second: Recorder = undefined;
        try std.testing.expectEqualStrings(try whole(wire, &first), try byteByByte(wire, &second));
    }
}
