//! A whole answer of Redis as values, in memory that the caller provides. Does not know: where events come
//! from (resp.zig), and what an answer means.
const std = @import("std");
const assert = std.debug.assert;
const resp = @import("resp.zig");

/// Collects events until an answer, or an element of an answer, is complete.
pub const Tree = struct {
    nodes: []Node,
    text: []u8,
    /// The numbers of nodes and of bytes of text in use.
    node_count: u32 = 0,
    text_len: u32 = 0,
    /// Indices of open aggregates.
    open: [resp.depth_ceiling]u32 = undefined,
    open_count: u8 = 0,
    /// A string is incomplete.
    in_text: bool = false,
    /// The depth within an attribute, which is left out; 0: the tree is in none.
    ignored: u8 = 0,

    const Node = struct {
        value: Value,
        /// The index of the node behind this one and its values.
        next: u32,
    };

    const Value = union(enum) {
        status: Range,
        failure: Range,
        text: Range,
        integer: i64,
        nothing,
        boolean: bool,
        number: f64,
        list: struct { kind: resp.Aggregate.Kind, count: u32 },
    };

    const Range = struct { at: u32, len: u32 };

    /// The result of adding an event.
    pub const Outcome = enum {
        /// More events belong to the value.
        more,
        /// `root` is the value, until the next event.
        complete,
        /// The memory does not suffice. The tree may not be used before `clear`.
        full,
    };

    /// Creates a tree in memory of the caller.
    pub fn init(nodes: []Node, text: []u8) Tree {
        return .{ .nodes = nodes, .text = text };
    }

    /// Creates a tree with memory for `nodes_max` values and `text_max` bytes.
    pub fn alloc(gpa: std.mem.Allocator, nodes_max: u32, text_max: u32) std.mem.Allocator.Error!Tree {
        const nodes = try gpa.alloc(Node, nodes_max);
        errdefer gpa.free(nodes);
        return .init(nodes, try gpa.alloc(u8, text_max));
    }

    /// Frees the memory of `alloc`.
    pub fn free(tree: *Tree, gpa: std.mem.Allocator) void {
        gpa.free(tree.nodes);
        gpa.free(tree.text);
        tree.* = undefined;
    }

    /// Forgets all values.
    pub fn clear(tree: *Tree) void {
        tree.* = .{ .nodes = tree.nodes, .text = tree.text };
    }

    pub fn invariants(tree: *const Tree) void {
        assert(tree.node_count <= tree.nodes.len and tree.text_len <= tree.text.len);
        for (tree.open[0..tree.open_count]) |index| assert(index < tree.node_count);
        assert(!(tree.in_text and tree.node_count == 0 and tree.ignored == 0));
    }

    /// Adds an event other than `need_more` and `malformed`.
    pub fn add(tree: *Tree, event: resp.Event) Outcome {
        if (tree.ignored > 0) return tree.ignore(event);
        tree.addValue(event) catch return .full;
        tree.invariants();
        return if (tree.isComplete()) .complete else .more;
    }

    /// Whether `root` is a complete value.
    pub fn isComplete(tree: *const Tree) bool {
        return tree.open_count == 0 and !tree.in_text and tree.node_count > 0;
    }

    /// Whether no value has begun.
    pub fn isEmpty(tree: *const Tree) bool {
        return tree.node_count == 0 and tree.ignored == 0;
    }

    fn ignore(tree: *Tree, event: resp.Event) Outcome {
        switch (event) {
            .begin => tree.ignored += 1,
            .end => tree.ignored -= 1,
            else => {},
        }
        return .more;
    }

    fn addValue(tree: *Tree, event: resp.Event) error{Full}!void {
        switch (event) {
            .need_more, .malformed => unreachable,
            .status => |text| try tree.push(.{ .status = try tree.keep(text) }),
            .failure => |text| try tree.push(.{ .failure = try tree.keep(text) }),
            .digits => |text| try tree.push(.{ .text = try tree.keep(text) }),
            .integer => |value| try tree.push(.{ .integer = value }),
            .nothing => try tree.push(.nothing),
            .boolean => |value| try tree.push(.{ .boolean = value }),
            .number => |value| try tree.push(.{ .number = value }),
            .text => |text| try tree.addText(text),
            .begin => |aggregate| {
                if (aggregate.kind == .attribute) {
                    tree.ignored = 1;
                    return;
                }
                const index = tree.node_count;
                try tree.push(.{ .list = .{ .kind = aggregate.kind, .count = aggregate.count } });
                tree.open[tree.open_count] = index;
                tree.open_count += 1;
            },
            .end => {
                tree.open_count -= 1;
                tree.nodes[tree.open[tree.open_count]].next = tree.node_count;
            },
        }
    }

    fn addText(tree: *Tree, piece: resp.Text) error{Full}!void {
        assert(tree.in_text != piece.first);
        if (piece.first) {
            // A string that does not fit is refused before its first byte is copied.
            if (piece.len > tree.text.len - tree.text_len) return error.Full;
            const empty: Range = .{ .at = tree.text_len, .len = 0 };
            try tree.push(if (piece.kind == .failure) .{ .failure = empty } else .{ .text = empty });
        }
        _ = try tree.keep(piece.bytes);
        switch (tree.nodes[tree.node_count - 1].value) {
            .text, .failure => |*range| range.len += @intCast(piece.bytes.len),
            else => unreachable,
        }
        tree.in_text = !piece.last;
    }

    fn push(tree: *Tree, value: Value) error{Full}!void {
        if (tree.node_count == tree.nodes.len) return error.Full;
        tree.nodes[tree.node_count] = .{ .value = value, .next = tree.node_count + 1 };
        tree.node_count += 1;
    }

    fn keep(tree: *Tree, bytes: []const u8) error{Full}!Range {
        if (bytes.len > tree.text.len - tree.text_len) return error.Full;
        const range: Range = .{ .at = tree.text_len, .len = @intCast(bytes.len) };
        @memcpy(tree.text[range.at..][0..bytes.len], bytes);
        tree.text_len += range.len;
        return range;
    }

    /// The complete value.
    pub fn root(tree: *const Tree) View {
        assert(tree.node_count > 0 and tree.open_count == 0 and !tree.in_text);
        return .{ .tree = tree, .index = 0 };
    }

    /// A value in a tree, valid until the next event.
    pub const View = struct {
        tree: *const Tree,
        index: u32,

        fn value(view: View) *const Value {
            return &view.tree.nodes[view.index].value;
        }

        fn slice(view: View, range: Range) []const u8 {
            return view.tree.text[range.at..][0..range.len];
        }

        /// The text of an error; null: the value is no error.
        pub fn failure(view: View) ?[]const u8 {
            return switch (view.value().*) {
                .failure => |range| view.slice(range),
                else => null,
            };
        }

        /// The bytes of a string or a status; null: the value is neither.
        pub fn bytes(view: View) ?[]const u8 {
            return switch (view.value().*) {
                .text, .status => |range| view.slice(range),
                else => null,
            };
        }

        /// Whether the value is a string or a status with these bytes.
        pub fn is(view: View, expected: []const u8) bool {
            return std.mem.eql(u8, view.bytes() orelse return false, expected);
        }

        /// The value of an integer; null: the value is no integer.
        pub fn integer(view: View) ?i64 {
            return switch (view.value().*) {
                .integer => |number| number,
                else => null,
            };
        }

        /// Whether the value is RESP's null.
        pub fn isNothing(view: View) bool {
            return view.value().* == .nothing;
        }

        /// Whether the value is a push.
        pub fn isPush(view: View) bool {
            return switch (view.value().*) {
                .list => |list| list.kind == .push,
                else => false,
            };
        }

        /// The number of values in an aggregate; null: the value is no aggregate.
        pub fn count(view: View) ?u32 {
            return switch (view.value().*) {
                .list => |list| list.count,
                else => null,
            };
        }

        /// The values of an aggregate; none if the value is no aggregate.
        pub fn items(view: View) Items {
            return .{
                .tree = view.tree,
                .index = view.index + 1,
                .left = view.count() orelse 0,
            };
        }

        /// The value at index `place` of an aggregate; null: there is none.
        pub fn item(view: View, place: u32) ?View {
            var all = view.items();
            for (0..place) |_| _ = all.next() orelse return null;
            return all.next();
        }
    };

    /// An iterator over the values of an aggregate.
    pub const Items = struct {
        tree: *const Tree,
        index: u32,
        left: u32,

        pub fn next(all: *Items) ?View {
            if (all.left == 0) return null;
            all.left -= 1;
            defer all.index = all.tree.nodes[all.index].next;
            return .{ .tree = all.tree, .index = all.index };
        }
    };
};

const testing = std.testing;

fn collect(tree: *Tree, wire: []const u8) !Tree.Outcome {
    var parser: resp.Parser = .init(.of(&.{}));
    parser.dialect = .resp3;
    var at: usize = 0;
    var outcome: Tree.Outcome = .more;
    while (true) {
        // Bytes are fed one by one, so that strings come in pieces.
        var len: usize = 0;
        const step = while (true) : (len += 1) {
            const step = parser.feed(wire[at..][0..len]);
            if (step.event != .need_more or at + len == wire.len) break step;
            at += step.consumed;
            if (step.consumed > 0) len = 0;
        };
        at += step.consumed;
        switch (step.event) {
            .need_more => return outcome,
            .malformed => return error.Malformed,
            else => outcome = tree.add(step.event),
        }
        if (outcome == .full) return outcome;
    }
}

test "an answer as values" {
    var tree: Tree = try .alloc(testing.allocator, 32, 64);
    defer tree.free(testing.allocator);
    const wire = "|1\r\n+ttl\r\n:3\r\n*5\r\n$5\r\nhello\r\n*2\r\n:1\r\n*0\r\n-ERR no\r\n_\r\n+OK\r\n";
    try testing.expectEqual(.complete, try collect(&tree, wire));
    const root = tree.root();
    try testing.expectEqual(5, root.count());
    try testing.expectEqualStrings("hello", root.item(0).?.bytes().?);
    try testing.expectEqual(1, root.item(1).?.item(0).?.integer());
    try testing.expectEqual(0, root.item(1).?.item(1).?.count());
    try testing.expectEqualStrings("ERR no", root.item(2).?.failure().?);
    try testing.expect(root.item(3).?.isNothing());
    try testing.expect(root.item(4).?.is("OK") and !root.item(4).?.is("O"));
    try testing.expectEqual(null, root.item(5));
    try testing.expectEqual(null, root.item(0).?.item(0));
    try testing.expectEqual(null, root.integer());
    tree.clear();
    try testing.expectEqual(.complete, try collect(&tree, "!5\r\nERR x\r\n"));
    try testing.expectEqualStrings("ERR x", tree.root().failure().?);
    tree.clear();
    try testing.expectEqual(.complete, try collect(&tree, ">1\r\n+x\r\n"));
    try testing.expect(tree.root().isPush());
}

test "an answer that does not fit" {
    var tree: Tree = try .alloc(testing.allocator, 3, 8);
    defer tree.free(testing.allocator);
    try testing.expectEqual(.complete, try collect(&tree, "*2\r\n$4\r\nabcd\r\n$4\r\nefgh\r\n"));
    tree.clear();
    try testing.expectEqual(.full, try collect(&tree, "*3\r\n:1\r\n:2\r\n:3\r\n"));
    tree.clear();
    // The announced length decides.
    try testing.expectEqual(.full, try collect(&tree, "$9\r\na"));
    tree.clear();
    try testing.expectEqual(.full, try collect(&tree, "+123456789\r\n"));
}
