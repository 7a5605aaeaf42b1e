//! The engine's options and counters as C tables, made from config.zig and counters.zig at compile time.
const peregrine = @import("peregrine");
const types = @import("types.zig");

pub const table: [peregrine.Config.options.len]types.Option = blk: {
    var list: [peregrine.Config.options.len]types.Option = undefined;
    for (peregrine.Config.options, &list) |option, *out| {
        out.* = .{
            .name = option.name ++ "",
            .unit = @tagName(option.rule.unit),
            .summary = option.rule.summary ++ "",
            .fallback = option.default,
            .min = option.rule.min,
            .max = option.rule.max,
        };
    }
    break :blk list;
};

pub const counters: [peregrine.counter_table.len]types.Counter = blk: {
    var list: [peregrine.counter_table.len]types.Counter = undefined;
    for (peregrine.counter_table, &list) |word, *out| {
        out.* = .{
            .name = word.name,
            .label = word.label,
            .value = word.value,
            .summary = word.summary,
            .kind = @backingInt(word.kind),
        };
    }
    break :blk list;
};
