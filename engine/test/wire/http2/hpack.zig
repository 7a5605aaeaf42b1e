//! The examples of RFC 7541 appendix C: blocks, the fields in them, and the table behind each.
const std = @import("std");
const hpack = @import("protocol").http2.hpack;
const testing = std.testing;

/// A block in hexadecimal digits; the fields in it; the table then, the newest entry first, and its size.
const Step = struct { block: []const u8, fields: []const u8, table: []const u8, size: u32 };
/// `table_bytes`: of the table, smaller than it is wont.
const Example = struct { name: []const u8, table_bytes: u32 = 4096, steps: []const Step };

const examples = [_]Example{
    .{
        .name = "C.2.1 literal field with indexing",
        .steps = &.{
            .{
                .block = "400a637573746f6d2d6b65790d637573746f6d2d686561646572",
                .fields = "custom-key: custom-header\n",
                .table = "custom-key: custom-header\n",
                .size = 55,
            },
        },
    },
    .{
        .name = "C.2.2 literal field without indexing",
        .steps = &.{
            .{
                .block = "040c2f73616d706c652f70617468",
                .fields = ":path: /sample/path\n",
                .table = "",
                .size = 0,
            },
        },
    },
    .{
        .name = "C.2.3 literal field never indexed",
        .steps = &.{
            .{
                .block = "100870617373776f726406736563726574",
                .fields = "password: secret\n",
                .table = "",
                .size = 0,
            },
        },
    },
    .{
        .name = "C.2.4 indexed field",
        .steps = &.{
            .{
                .block = "82",
                .fields = ":method: GET\n",
                .table = "",
                .size = 0,
            },
        },
    },
    .{
        .name = "C.3 requests without Huffman coding",
        .steps = &.{
            .{
                .block = "828684410f7777772e6578616d706c652e636f6d",
                .fields = ":method: GET\n" ++
                    ":scheme: http\n" ++
                    ":path: /\n" ++
                    ":authority: www.example.com\n",
                .table = ":authority: www.example.com\n",
                .size = 57,
            },
            .{
                .block = "828684be58086e6f2d6361636865",
                .fields = ":method: GET\n" ++
                    ":scheme: http\n" ++
                    ":path: /\n" ++
                    ":authority: www.example.com\n" ++
                    "cache-control: no-cache\n",
                .table = "cache-control: no-cache\n" ++
                    ":authority: www.example.com\n",
                .size = 110,
            },
            .{
                .block = "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
                .fields = ":method: GET\n" ++
                    ":scheme: https\n" ++
                    ":path: /index.html\n" ++
                    ":authority: www.example.com\n" ++
                    "custom-key: custom-value\n",
                .table = "custom-key: custom-value\n" ++
                    "cache-control: no-cache\n" ++
                    ":authority: www.example.com\n",
                .size = 164,
            },
        },
    },
    .{
        .name = "C.4 requests with Huffman coding",
        .steps = &.{
            .{
                .block = "828684418cf1e3c2e5f23a6ba0ab90f4ff",
                .fields = ":method: GET\n" ++
                    ":scheme: http\n" ++
                    ":path: /\n" ++
                    ":authority: www.example.com\n",
                .table = ":authority: www.example.com\n",
                .size = 57,
            },
            .{
                .block = "828684be5886a8eb10649cbf",
                .fields = ":method: GET\n" ++
                    ":scheme: http\n" ++
                    ":path: /\n" ++
                    ":authority: www.example.com\n" ++
                    "cache-control: no-cache\n",
                .table = "cache-control: no-cache\n" ++
                    ":authority: www.example.com\n",
                .size = 110,
            },
            .{
                .block = "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
                .fields = ":method: GET\n" ++
                    ":scheme: https\n" ++
                    ":path: /index.html\n" ++
                    ":authority: www.example.com\n" ++
                    "custom-key: custom-value\n",
                .table = "custom-key: custom-value\n" ++
                    "cache-control: no-cache\n" ++
                    ":authority: www.example.com\n",
                .size = 164,
            },
        },
    },
    .{
        .name = "C.5 responses without Huffman coding",
        .table_bytes = 256,
        .steps = &.{
            .{
                .block = "4803333032580770726976617465611d4d6f6e2c203231204f63742032303133" ++
                    "2032303a31333a323120474d546e1768747470733a2f2f7777772e6578616d70" ++
                    "6c652e636f6d",
                .fields = ":status: 302\n" ++
                    "cache-control: private\n" ++
                    "date: Mon, 21 Oct 2013 20:13:21 GMT\n" ++
                    "location: https://www.example.com\n",
                .table = "location: https://www.example.com\n" ++
                    "date: Mon, 21 Oct 2013 20:13:21 GMT\n" ++
                    "cache-control: private\n" ++
                    ":status: 302\n",
                .size = 222,
            },
            .{
                .block = "4803333037c1c0bf",
                .fields = ":status: 307\n" ++
                    "cache-control: private\n" ++
                    "date: Mon, 21 Oct 2013 20:13:21 GMT\n" ++
                    "location: https://www.example.com\n",
                .table = ":status: 307\n" ++
                    "location: https://www.example.com\n" ++
                    "date: Mon, 21 Oct 2013 20:13:21 GMT\n" ++
                    "cache-control: private\n",
                .size = 222,
            },
            .{
                .block = "88c1611d4d6f6e2c203231204f637420323031332032303a31333a323220474d" ++
                    "54c05a04677a69707738666f6f3d4153444a4b48514b425a584f5157454f5049" ++
                    "5541585157454f49553b206d61782d6167653d333630303b2076657273696f6e" ++
                    "3d31",
                .fields = ":status: 200\n" ++
                    "cache-control: private\n" ++
                    "date: Mon, 21 Oct 2013 20:13:22 GMT\n" ++
                    "location: https://www.example.com\n" ++
                    "content-encoding: gzip\n" ++
                    "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1\n",
                .table = "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1\n" ++
                    "content-encoding: gzip\n" ++
                    "date: Mon, 21 Oct 2013 20:13:22 GMT\n",
                .size = 215,
            },
        },
    },
    .{
        .name = "C.6 responses with Huffman coding",
        .table_bytes = 256,
        .steps = &.{
            .{
                .block = "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a6" ++
                    "2d1bff6e919d29ad171863c78f0b97c8e9ae82ae43d3",
                .fields = ":status: 302\n" ++
                    "cache-control: private\n" ++
                    "date: Mon, 21 Oct 2013 20:13:21 GMT\n" ++
                    "location: https://www.example.com\n",
                .table = "location: https://www.example.com\n" ++
                    "date: Mon, 21 Oct 2013 20:13:21 GMT\n" ++
                    "cache-control: private\n" ++
                    ":status: 302\n",
                .size = 222,
            },
            .{
                .block = "4883640effc1c0bf",
                .fields = ":status: 307\n" ++
                    "cache-control: private\n" ++
                    "date: Mon, 21 Oct 2013 20:13:21 GMT\n" ++
                    "location: https://www.example.com\n",
                .table = ":status: 307\n" ++
                    "location: https://www.example.com\n" ++
                    "date: Mon, 21 Oct 2013 20:13:21 GMT\n" ++
                    "cache-control: private\n",
                .size = 222,
            },
            .{
                .block = "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab" ++
                    "77ad94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f" ++
                    "9587316065c003ed4ee5b1063d5007",
                .fields = ":status: 200\n" ++
                    "cache-control: private\n" ++
                    "date: Mon, 21 Oct 2013 20:13:22 GMT\n" ++
                    "location: https://www.example.com\n" ++
                    "content-encoding: gzip\n" ++
                    "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1\n",
                .table = "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1\n" ++
                    "content-encoding: gzip\n" ++
                    "date: Mon, 21 Oct 2013 20:13:22 GMT\n",
                .size = 215,
            },
        },
    },
};

test "RFC 7541 appendix C" {
    for (examples) |example| {
        errdefer std.debug.print("{s}\n", .{example.name});
        var decoder: hpack.Decoder = .{};
        var bench: hpack.Bench = undefined;
        decoder.table.resize(example.table_bytes);
        for (example.steps) |step| {
            var bytes: [256]u8 = undefined;
            try expectStep(&decoder, &bench, try std.fmt.hexToBytes(&bytes, step.block), step);
        }
    }
}

fn expectStep(decoder: *hpack.Decoder, bench: *hpack.Bench, bytes: []const u8, step: Step) !void {
    var room: [hpack.table_bytes_max]u8 = undefined;
    var out: [1024]u8 = undefined;
    var fields: std.Io.Writer = .fixed(&out);
    var block = decoder.begin(bytes, bench);
    while (try block.next(&room)) |field| try fields.print("{s}: {s}\n", .{ field.name, field.value });
    try testing.expectEqualStrings(step.fields, fields.buffered());
    var table: std.Io.Writer = .fixed(&out);
    var index: u32 = 0;
    while (decoder.table.at(index)) |entry| : (index += 1) {
        const len = @as(usize, entry.name_len) + entry.value_len;
        decoder.table.copy(index, len, &room);
        try table.print("{s}: {s}\n", .{ room[0..entry.name_len], room[entry.name_len..len] });
    }
    try testing.expectEqualStrings(step.table, table.buffered());
    try testing.expectEqual(step.size, decoder.table.size);
}

test "a block that ends early is refused, wherever that is" {
    for (examples) |example| for (example.steps[0..1]) |step| {
        var bytes: [256]u8 = undefined;
        const block = try std.fmt.hexToBytes(&bytes, step.block);
        for (0..block.len) |len| {
            var decoder: hpack.Decoder = .{};
            var bench: hpack.Bench = undefined;
            var room: [hpack.table_bytes_max]u8 = undefined;
            var part = decoder.begin(block[0..len], &bench);
            // A block that is cut ends between two fields, or is refused.
            while (part.next(&room) catch null) |_| {}
            decoder.table.invariants();
        }
    };
}
