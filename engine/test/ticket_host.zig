//! The host of tests whose answers the test itself gives, over the simulated network.
const per = @import("peregrine");

pub const SimWorker = per.Worker(per.io.Sim, Host);

/// Keeps the tickets of requests by the last letter of their path, and counts what it is told.
pub const Host = struct {
    pub const demand: per.Demand = .pull;

    /// Whether the application of every request is at work in another thread.
    is_elsewhere: bool = false,
    tickets: [256]?per.Ticket = @splat(null),
    finished_count: usize = 0,
    reason: ?per.Reason = null,
    relieved_count: usize = 0,

    pub fn isElsewhere(host: *const Host) bool {
        return host.is_elsewhere;
    }
    pub fn waiting(_: *const Host) bool {
        return false;
    }
    pub fn waitingOf(host: *Host, _: *const per.Exchange) bool {
        return host.is_elsewhere;
    }
    pub fn request(host: *Host, _: *SimWorker, exchange: *per.Exchange, head: *const per.Head) void {
        const target = head.target.of(head.text);
        host.tickets[target[target.len - 1]] = exchange.ticket;
    }
    pub fn finished(host: *Host, _: *SimWorker, _: *per.Exchange) void {
        host.finished_count += 1;
    }
    pub fn aborted(host: *Host, _: *SimWorker, _: *per.Exchange, reason: per.Reason) void {
        host.reason = reason;
    }
    pub fn relieve(host: *Host) bool {
        host.relieved_count += 1;
        return host.relieved_count > 2;
    }
    pub fn body(_: *Host, _: *SimWorker, _: *per.Exchange, _: []const u8) void {}
    pub fn trailers(_: *Host, _: *SimWorker, _: *per.Exchange, _: *const per.Head) void {}
    pub fn bodyEnd(_: *Host, _: *SimWorker, _: *per.Exchange) void {}
    pub fn drained(_: *Host, _: *SimWorker, _: *per.Exchange) void {}
    pub fn message(_: *Host, _: *SimWorker, _: *per.Exchange, _: per.WebSocketKind, _: []const u8) void {}
    pub fn closed(
        host: *Host,
        _: *SimWorker,
        _: *per.Exchange,
        _: per.WebSocketClose,
        reason: ?per.Reason,
    ) void {
        host.reason = reason;
    }
    pub fn halfClosed(_: *Host, _: *SimWorker, _: *per.Exchange) void {}
    pub fn stopped(_: *Host, _: *SimWorker) void {}
    pub fn notice(_: *Host, _: *SimWorker, _: ?*per.Exchange, _: per.Level, _: []const u8) void {}
};
