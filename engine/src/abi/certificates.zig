//! Certificates, keys and policy of listeners that speak TLS, shared by engines and C.
const std = @import("std");
const peregrine = @import("peregrine");
const tls = peregrine.tls;

const gpa = std.heap.c_allocator;

/// The `peregrine_tls` of C, with a reference of C's and one of each engine whose listeners use it.
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

    /// Gives a reference back. The last one frees the context; sessions keep the certificates that they use.
    pub fn release(certificates: *Certificates) void {
        const before = certificates.references.fetchSub(1, .acq_rel);
        std.debug.assert(before > 0);
        if (before > 1) return;
        certificates.context.deinit();
        gpa.destroy(certificates);
    }
};
