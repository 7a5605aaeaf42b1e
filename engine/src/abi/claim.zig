//! The owner of a request, where several interpreters share an engine. A word of the exchange
//! (`Exchange.word`) holds it, and only the functions here write the word, so that `Work.load`, the number of
//! exchanges that an interpreter has, always agrees with the claims.
//! Does not know: which interpreter gets a request (pool.zig), and what the interpreter sees (slots.zig).
const std = @import("std");
const assert = std.debug.assert;
const peregrine = @import("peregrine");
const Subscriber = @import("delivery.zig").Subscriber;
const Offer = @import("offer.zig").Offer;
const Work = @import("offer.zig").Work;
const Exchange = peregrine.Exchange;
const HostWord = peregrine.HostWord;

/// The owner of a request.
pub const Claim = union(enum) {
    /// The request waits in the pool's queue for an interpreter.
    waiting: *Offer,
    /// The request was offered to the interpreter of `Offer.work`, which has not been seen to take it.
    offered: *Offer,
    /// An interpreter works on the request, has given no command for it, and may hand it over.
    kept: *Offer,
    /// An interpreter works on the request.
    taken: *Work,
    /// Like `taken`, and the engine delivers topics to the exchange, without an interpreter until its client
    /// leaves. Also the claim of an exchange of a lone application while it reads topics.
    subscribed: *Subscriber,
    /// An interpreter has given the whole response, and hears when it was sent or why it was not.
    answered: *Work,
    /// No interpreter hears of the request: the engine answers it, or has yet to announce it.
    answered_by_engine,

    /// The lowest bits of a word say what the pointer in its other bits is.
    const Tag = enum(u3) { offer = 1, taken = 2, answered = 3, kept = 4, subscribed = 5 };
    const tag_bits: usize = 7;

    comptime {
        assert(@alignOf(Offer) > tag_bits and @alignOf(Work) > tag_bits and @alignOf(Subscriber) > tag_bits);
    }

    /// Reads an exchange's claim from its word.
    pub inline fn of(exchange: *const Exchange) Claim {
        const word = @backingInt(exchange.word);
        if (word == 0 or !exchange.isHeard()) return .answered_by_engine;
        const tag: Tag = @fromBackingInt(@as(u3, @intCast(word & tag_bits)));
        const address = word & ~tag_bits;
        switch (tag) {
            .offer => {
                const offer: *Offer = @ptrFromInt(address);
                return if (offer.work == null) .{ .waiting = offer } else .{ .offered = offer };
            },
            .kept => return .{ .kept = @ptrFromInt(address) },
            .taken => return .{ .taken = @ptrFromInt(address) },
            .answered => return .{ .answered = @ptrFromInt(address) },
            .subscribed => return .{ .subscribed = @ptrFromInt(address) },
        }
    }

    fn wordOf(tag: Tag, pointer: anytype) HostWord {
        assert(@intFromPtr(pointer) & tag_bits == 0);
        return @fromBackingInt(@intFromPtr(pointer) | @backingInt(tag));
    }

    /// The work of the interpreter that hears of an exchange; null: none does.
    pub inline fn workOf(claim: Claim) ?*Work {
        return switch (claim) {
            .offered, .kept => |offer| offer.work.?,
            .taken, .answered => |work| work,
            .subscribed => |subscriber| subscriber.work,
            .waiting, .answered_by_engine => null,
        };
    }

    /// Whether an interpreter works on the request, or will do so after earlier requests.
    pub fn isLoad(claim: Claim) bool {
        return switch (claim) {
            .offered, .kept, .taken => true,
            .subscribed => |subscriber| subscriber.work != null,
            .waiting, .answered, .answered_by_engine => false,
        };
    }

    /// A request has come: it waits.
    pub fn wait(exchange: *Exchange, offer: *Offer) void {
        assert(exchange.word == .none and offer.work == null and offer.ticket == exchange.ticket);
        exchange.word = wordOf(.offer, offer);
    }

    /// Offers a waiting request to an interpreter.
    pub fn offerTo(offer: *Offer, work: *Work) void {
        assert(offer.work == null);
        offer.work = work;
        work.offered.append(offer);
        work.load += 1;
        work.load_max = @max(work.load_max, work.load);
        work.invariants();
    }

    /// The interpreter has not taken the request, and cannot any more: the request waits again.
    pub fn recall(offer: *Offer) void {
        const work = forgetOffer(offer);
        work.load -= 1;
        work.invariants();
    }

    /// The interpreter was seen to have taken the request. The offer is free.
    pub fn take(exchange: *Exchange, offer: *Offer) void {
        assert(exchange.word == wordOf(.offer, offer) and offer.work != null);
        exchange.word = wordOf(.taken, forgetOffer(offer));
    }

    /// Like `take`. The offer stays, so that the interpreter can hand the request over.
    pub fn keep(exchange: *Exchange, offer: *Offer) void {
        assert(exchange.word == wordOf(.offer, offer));
        const work = forgetOffer(offer);
        offer.work = work;
        exchange.word = wordOf(.kept, offer);
    }

    /// The interpreter has given a command for the request, which is its own from now on. The offer is free.
    pub fn settle(exchange: *Exchange, offer: *Offer) void {
        assert(exchange.word == wordOf(.kept, offer));
        exchange.word = wordOf(.taken, offer.work.?);
        offer.work = null;
    }

    /// The interpreter hands the request over: it waits again, for an interpreter of another kind.
    pub fn handOver(exchange: *Exchange, offer: *Offer) void {
        assert(exchange.word == wordOf(.kept, offer));
        const work = offer.work.?;
        assert(work.load > work.offered.count);
        work.load -= 1;
        offer.work = null;
        exchange.word = wordOf(.offer, offer);
        work.invariants();
    }

    /// The exchange, which an interpreter works on, reads topics.
    pub fn subscribe(exchange: *Exchange, subscriber: *Subscriber) void {
        assert(exchange.word == wordOf(.taken, subscriber.work.?));
        exchange.word = wordOf(.subscribed, subscriber);
    }

    /// Subscribes an exchange of a lone application, which no interpreter has taken.
    pub fn subscribeLone(exchange: *Exchange, subscriber: *Subscriber) void {
        assert(exchange.word == .none and subscriber.work == null);
        exchange.word = wordOf(.subscribed, subscriber);
    }

    /// The exchange, which an interpreter works on, reads no topic any more. The subscriber is the caller's.
    pub fn unsubscribe(exchange: *Exchange, subscriber: *Subscriber) void {
        assert(exchange.word == wordOf(.subscribed, subscriber));
        exchange.word = if (subscriber.work) |work| wordOf(.taken, work) else .none;
    }

    /// The interpreter has gone, and the exchange reads on without it.
    pub fn orphan(exchange: *Exchange, subscriber: *Subscriber) void {
        assert(exchange.word == wordOf(.subscribed, subscriber));
        const work = subscriber.work.?;
        assert(work.load > work.offered.count);
        work.load -= 1;
        subscriber.work = null;
        work.invariants();
    }

    /// The interpreter is done with the request.
    pub fn answer(exchange: *Exchange, work: *Work) void {
        assert(exchange.word == wordOf(.taken, work) and exchange.isEnded());
        assert(work.load > 0);
        work.load -= 1;
        exchange.word = wordOf(.answered, work);
        work.invariants();
    }

    /// No interpreter hears of the exchange from now on. Returns the claim that ends: its offer, if there is
    /// one, or its subscriber is the caller's.
    pub fn release(exchange: *Exchange) Claim {
        const claim = of(exchange);
        switch (claim) {
            .waiting, .answered => {},
            .offered => |offer| forgetOffer(offer).load -= 1,
            .kept => |offer| {
                const work = offer.work.?;
                assert(work.load > work.offered.count);
                work.load -= 1;
                offer.work = null;
            },
            .taken => |work| {
                assert(work.load > work.offered.count);
                work.load -= 1;
            },
            .subscribed => |subscriber| if (subscriber.work) |work| {
                assert(work.load > work.offered.count);
                work.load -= 1;
            },
            .answered_by_engine => return claim,
        }
        exchange.word = .none;
        return claim;
    }

    fn forgetOffer(offer: *Offer) *Work {
        const work = offer.work.?;
        assert(work.load > 0);
        work.offered.remove(offer);
        offer.work = null;
        return work;
    }
};
