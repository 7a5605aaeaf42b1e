//! The engine's options as a C table, made from config.zig at compile time.
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
