"""CPU time of a request with the engine on a thread of its own beside that with the engine in the loop.

Both servers are alive all the time and are loaded in turns of a second, so that a machine whose speed changes
changes both.
"""

import os
import statistics

import wrk
from check import at_most, note

from .serving import serving

ROUNDS = 9
HELLO, LARGE = "/", "/large"  # 13 bytes and 64 KiB
NAMES = {HELLO: "hello", LARGE: "64 KiB"}
MOST = 1.25  # times inline, for hello with 64 connections


def cost(settings):
    """CPU time of a request, of both threads and in the kernel, to that with --engine inline: median of
    turns."""
    rounds = settings.seconds(ROUNDS, 2)
    findings = []
    with serving(settings, "inline") as inline, serving(settings, "thread") as thread:
        for path, connections in ((HELLO, 64), (HELLO, 8), (HELLO, 1), (LARGE, 64), (LARGE, 8), (LARGE, 1)):
            what = f"{NAMES[path]}, {connections} connection{'s'[: connections > 1]}"
            ratio, words = _compared(settings, inline, thread, path, connections, rounds)
            figure = note(what, f"{ratio:.2f} × inline")
            if (path, connections) == (HELLO, 64):
                figure = at_most(what, ratio, MOST, "× inline", ".2f")
            findings += [figure, note(f"{what}, µs", words)]
        # Two threads on two cores: bytes that one thread has written come from the caches of its core, and
        # two logical processors of one core slow each other down.
        for process in (inline, thread):
            _allow(process, {settings.cores.server, settings.cores.load})
        ratio, words = _compared(settings, inline, thread, HELLO, 64, rounds)
        what = "hello, 64 connections, the server on the load's core as well"
        findings += [note(what, f"{ratio:.2f} × inline"), note(f"{what}, µs", words)]
    return findings


def _compared(settings, inline, thread, path, connections, rounds):
    """(The median ratio, the medians in words) of CPU time per request, after a turn to warm up."""
    turns = []
    for number in range(rounds + 1):
        order = (inline, thread) if number % 2 else (thread, inline)
        turns.append({process: _per_request_us(settings, process, path, connections) for process in order})
    turns = turns[1:]
    ratio = statistics.median(turn[thread] / turn[inline] for turn in turns)
    medians = [statistics.median(turn[process] for turn in turns) for process in (inline, thread)]
    return ratio, f"inline {medians[0]:.2f}, thread {medians[1]:.2f}"


def _per_request_us(settings, process, path, connections):
    before = process.cpu_seconds()
    result = wrk.run(f"http://127.0.0.1:{process.port}{path}", settings.cores.load, connections, 1)
    if result.errors or not result.requests:
        raise ValueError(f"{result.errors} errors, {result.requests} requests")
    return (process.cpu_seconds() - before) * 1e6 / result.requests


def _allow(process, cores):
    for task in os.listdir(f"/proc/{process.child.pid}/task"):
        os.sched_setaffinity(int(task), cores)
