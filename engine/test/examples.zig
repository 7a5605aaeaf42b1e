//! All examples in one program, for systems where they are only checked: in programs of their own the engine
//! would be analysed again for each.
export const mains = [_]*const anyopaque{
    @ptrCast(&@import("hello").main),
    @ptrCast(&@import("counter").main),
    @ptrCast(&@import("basic").main),
    @ptrCast(&@import("dirserver").main),
    @ptrCast(&@import("fileserver").main),
    @ptrCast(&@import("websocket").main),
};
