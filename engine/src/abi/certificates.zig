//! Certificates, keys and policy of listeners that speak TLS, shared by engines and C.
const std = @import("std");
const peregrine = @import("peregrine");
const tls = peregrine.tls;

const gpa = std.heap.c_allocator;

/// `peregrine_tls`, which C and the engines whose listeners use it hold together.
pub const Certificates = struct {
    context: *tls.Context,
    references: std.atomic.Value(u32) = .init(1),

    /// Takes `context` over.
    pub fn create(context: *tls.Context) error{OutOfMemory}!*Certificates {
        const certificates = try gpa.create(Certificates);
        certificates.* = .{ .context = context };
        return certificates;
    }

    pub fn retain(certificates: *Certificates) void {
        const before = certificates.references.fetchAdd(1, .monotonic);
        std.debug.assert(before > 0);
    }

    /// Gives a reference back. An engine, and connections that use the certificates, keep them alive.
    pub fn release(certificates: *Certificates) void {
        const before = certificates.references.fetchSub(1, .acq_rel);
        std.debug.assert(before > 0);
        if (before > 1) return;
        certificates.context.deinit();
        gpa.destroy(certificates);
    }
};
