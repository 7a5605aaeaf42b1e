"""What long bodies of requests and responses cost a PSGI application whose engine is on another thread or in
another process, beside the engine in the application's loop and beside Starlet: CPU time of all processes
of a server per request. All servers are alive all the time and are loaded in turns; exits 1 when a goal is
missed. Without a CHECK all are made, one after the other."""

import contextlib
import statistics
import sys

import check
import servers
import start
import wrk
from check import at_most, note
from process import CannotRun

CONNECTIONS = 2
ROUNDS = 5
PLACED_MOST = 1.4  # times inline
STARLET_MOST = 0.8  # times Starlet


SERVERS = dict(zip(("inline", "thread", "process", "starlet"), (*servers.BODIES, servers.BODIES_STARLET)))


def drop(settings):
    """Bodies that the application reads and drops."""
    return _rows(settings, "/drop", body=True, against_starlet=True)


def echo(settings):
    """Bodies that come back."""
    return _rows(settings, "/echo", body=True)


def answer(settings):
    """Responses of that length, from a string that is there."""
    return _rows(settings, "/answer", body=False)


def _rows(settings, path, body, against_starlet=False):
    findings = []
    rounds = settings.seconds(ROUNDS, 1)
    with contextlib.ExitStack() as stack:
        running = {}
        for name, server in SERVERS.items():
            try:
                running[name] = stack.enter_context(start.started(server, settings.cores.server))
            except CannotRun as trouble:
                if name != "starlet":
                    raise
                findings.append(note(name, f"left out: {str(trouble)[:60]}"))
        for length in (100_000, 1_000_000) if settings.short else (60_000, 100_000, 1_000_000):
            # The first round warms the servers up. A short run, which measures nothing, has no such round.
            warm_up = settings.seconds(1, 0)
            numbers = range(rounds + warm_up)
            turns = [_turn(settings, running, path, length, body, number) for number in numbers][warm_up:]
            for name in ("thread", "process"):
                ratio = statistics.median(turn[name] / turn["inline"] for turn in turns)
                what = f"{length:,} bytes, {name}"
                # A body of 64 KiB and less goes through the ring, which is no goal here.
                if length < 64 * 1024:
                    findings.append(note(what, f"{ratio:.2f} × inline"))
                else:
                    findings.append(at_most(what, ratio, PLACED_MOST, "× inline", ".2f"))
                if against_starlet and "starlet" in running and length > 64 * 1024:
                    ratio = statistics.median(turn[name] / turn["starlet"] for turn in turns)
                    findings.append(at_most(what, ratio, STARLET_MOST, "× Starlet", ".2f"))
            medians = {name: statistics.median(turn[name] for turn in turns) for name in running}
            words = ", ".join(f"{name} {value:.0f}" for name, value in medians.items())
            findings.append(note(f"{length:,} bytes, µs", words))
    return findings


def _turn(settings, running, path, length, body, number):
    """Each server's CPU time per request in microseconds, in another order each time."""
    order = list(running)
    order = order[number % len(order) :] + order[: number % len(order)]
    return {name: _per_request_us(settings, running[name], path, length, body) for name in order}


def _per_request_us(settings, process, path, length, body):
    url = f"http://127.0.0.1:{process.port}{path}"
    before = process.cpu_seconds()
    if body:
        result = wrk.run(url, settings.cores.load, CONNECTIONS, 1, body=length)
    else:
        result = wrk.run(f"{url}?{length}", settings.cores.load, CONNECTIONS, 1)
    if result.errors or not result.requests:
        raise ValueError(f"{result.errors} errors, {result.requests} requests")
    return (process.cpu_seconds() - before) * 1e6 / result.requests


CHECKS = {function.__name__: function for function in (drop, echo, answer)}

if __name__ == "__main__":
    sys.exit(check.main("script/bench-bodies", __doc__, CHECKS))
