"""Good clients that check each byte, among bad ones, over workers that are recycled and replaced: nothing may
be wrong, and memory, descriptors and latency stay as they are. With --restarts the servers restart often, and
their workers are killed: nothing may be lost but what was in a worker when it was killed. Exits 1 when a goal
is missed."""

import argparse
import asyncio
import contextlib
import dataclasses
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
import urllib.request

import check
import programs
import servers
import start
from abuse import tls
from check import at_least, at_most, exactly, note
from measure import Cores
from process import any_certificate, family, free_port, rss_of, state

from . import bad, good, kills

WORKERS = 3
REQUESTS_MAX, REQUESTS_SHORT = 300, 30  # of a worker, until it is recycled; in a short time fewer
RESTART_S, RESTART_OFTEN_S = 120, 30  # between two HUPs
KILL_S = 20  # between two kills, with --restarts
WINDOW_S = 10  # of latencies
LOOK_S = 2  # between two looks at memory and descriptors
HTTP_CLIENTS = 4  # of each kind
LIVE_CLIENTS = 3
BAD_CLIENTS = 8
FLAT_S = 300  # a shorter time does not tell what is flat
GROWTH = 1.10  # of what should be flat, from the first quarter to the last one
GROWTH_BYTES = 8_000_000  # growth that is allowed on top of that
P99_FACTOR, P99_MORE_MS = 2, 20


class Look:
    """A server's processes at one moment."""

    def __init__(self, process):
        self.rss = process.rss_bytes()
        self.master_rss = rss_of(process.child.pid)
        self.master_descriptors = process.descriptors()
        self.zombies = sum(state(pid) == "Z" for pid in family(process.child.pid))


def soak(settings, seconds, restarts_often, engine):
    """Good clients among bad ones, over workers that are recycled: nothing wrong, everything flat."""
    with tempfile.TemporaryDirectory(prefix="peregrine-soak-") as folder, contextlib.ExitStack() as stack:
        secure, status = free_port(), free_port()
        cores = os.sched_getaffinity(0)
        most = REQUESTS_MAX if seconds >= FLAT_S else REQUESTS_SHORT
        workers = ("--workers", str(WORKERS), "--max-requests", str(most), "--engine", engine)
        limits = ("--header-timeout", "5", "--body-timeout", "5", "--write-timeout", "10")
        limits += ("--recycle-timeout", "10", "--status", f"127.0.0.1:{status}")
        places = ("--listen", "127.0.0.1:@PORT@")
        places += ("--listen", f"127.0.0.1:{secure},{tls.certificate(folder, 'server')}")
        pagi = stack.enter_context(
            check.serving(settings, "soak/app.pl", "/bytes/0/1", (*workers, *limits, *places), cores)
        )
        command = (*servers.PSGI.command[:-1], *workers, os.path.join(check.BENCH, "soak/app.psgi"))
        psgi = stack.enter_context(
            start.started(
                dataclasses.replace(servers.PSGI, command=command, path="/bytes/0/1", proof=None), cores
            )
        )
        tally, looks = good.Tally(), {"PAGI": [], "PSGI": []}
        places = ((pagi.port, None), (secure, any_certificate()), (psgi.port, None))
        processes = {"PAGI": pagi, "PSGI": psgi}
        deaths = kills.Kills(processes, tally)
        times = (RESTART_OFTEN_S, KILL_S) if restarts_often else (RESTART_S, None)
        asyncio.run(_load(seconds, tally, places, processes, looks, deaths, times, engine != "process"))
        restarts = _restarts(status)
        alive = pagi.alive() + psgi.alive()
        shutil.copy(pagi.log, os.path.join(programs.STATE, f"soak-pagi-{engine}.log"))
        shutil.copy(psgi.log, os.path.join(programs.STATE, f"soak-psgi-{engine}.log"))
    inside = [failure for failure in tally.failures if deaths.explain(failure)]
    failures = [failure for failure in tally.failures if not deaths.explain(failure)]
    return [
        exactly("answers that were wrong or missing", len(failures), 0),
        *(note("  of these", failure.text) for failure in failures[:10]),
        note("HUPs", f"{tally.counts.pop('HUPs', 0):,}"),
        note("workers killed", f"{len(deaths):,}"),
        note("answers lost in these", f"{len(inside):,}"),
        *(note(f"  {what}", f"{count:,}") for what, count in sorted(kills.by_kind(inside).items())),
        *(note(what, f"{count:,}") for what, count in sorted(tally.counts.items())),
        exactly("servers alive", alive, 2),
        at_least("workers of PAGI recycled", restarts["max_requests"], 1, "", ",d"),
        # A worker that was killed while it was leaving had been replaced before.
        at_most("workers that ended otherwise", _unwanted(restarts), deaths.count("PAGI"), "", ",d"),
        note("restarts", json.dumps({reason: count for reason, count in restarts.items() if count})),
        *(
            finding if seconds >= FLAT_S else note(finding.what, finding.measured)
            for finding in (*_flat("PAGI", looks), *_flat("PSGI", looks), *_latency(tally))
        ),
    ]


async def _load(seconds, tally, places, processes, looks, deaths, times, belongs):
    """`times`: seconds between two HUPs, and between two kills; `belongs`: whether a connection is a worker's."""
    plain, secure, psgi = places
    hello = tls.client_hello()
    clients = [
        good.forever(
            tally,
            "PSGI" if place == psgi else "PAGI",
            f"{name}, {'kept' if keeps else 'new'} connections",
            good.requests,
            place,
            keeps,
            belongs,
        )
        for name, place in (("HTTP", plain), ("HTTPS", secure), ("PSGI", psgi))
        for keeps in (True, False)
        for _ in range(HTTP_CLIENTS // 2)
    ]
    for kind in (good.sockets, good.events):
        clients += [
            good.forever(tally, "PAGI", kind.__name__, kind, place)
            for place in (plain, secure)
            for _ in range(LIVE_CLIENTS)
        ]
    vices = [(vice, place) for vice in bad.HTTP for place in places]
    vices += [(vice, place) for vice in bad.LIVE for place in (plain, secure)]
    vices += [(bad.stalls_its_handshake, secure[0], hello)]
    clients += [bad.forever(vices) for _ in range(BAD_CLIENTS)]
    tasks = [asyncio.create_task(client) for client in clients]
    restarts_s, kills_s = times
    events = [_each(restarts_s, _restart, processes, tally)]
    events += [_each(kills_s, deaths.kill, name) for name in processes if kills_s]
    tasks += [asyncio.create_task(event) for event in events]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await asyncio.sleep(LOOK_S)
        for name, process in processes.items():
            looks[name].append(Look(process))
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if not isinstance(outcome, asyncio.CancelledError):
            raise outcome


async def _each(seconds, act, *arguments):
    due = time.monotonic()
    while True:
        due += seconds
        await asyncio.sleep(due - time.monotonic())
        await act(*arguments)


async def _restart(processes, tally):
    for process in processes.values():
        process.child.send_signal(signal.SIGHUP)
    tally.count("HUPs")


def _restarts(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/status.json", timeout=10) as answer:
        return json.load(answer)["restarts"]


def _unwanted(restarts):
    return sum(count for reason, count in restarts.items() if reason not in ("max_requests", "restart"))


def _quarters(values):
    """The first quarter, and the last one."""
    count = max(len(values) // 4, 1)
    return values[:count], values[-count:]


def _flat(name, seen):
    looks = seen[name]
    findings = []
    for what, of, spare in (
        ("memory of all", lambda look: look.rss, GROWTH_BYTES),
        ("the master's memory", lambda look: look.master_rss, GROWTH_BYTES),
    ):
        first, last = (statistics.median(values) for values in _quarters([of(look) for look in looks]))
        goal = first * GROWTH + spare
        findings.append(
            at_most(f"{name}: {what}, {first / 1e6:.1f} MB at first", last / 1e6, goal / 1e6, "MB")
        )
    # Each worker that is on its way has one.
    first, last = (min(values) for values in _quarters([look.master_descriptors for look in looks]))
    findings.append(at_most(f"{name}: descriptors of the master", last, first, "", ",d"))
    # A process that has just ended may not have been waited for yet.
    zombies = min(look.zombies for look in looks[-5:])
    findings.append(at_most(f"{name}: zombies at the end", zombies, 0, "", ",d"))
    return findings


def _p99_ms(latencies):
    """(of the first quarter, of the last one), by windows of some seconds, since a machine has moments of its
    own."""
    windows = {}
    for when, seconds in latencies:
        windows.setdefault(when // WINDOW_S, []).append(1000 * seconds)
    p99 = [sorted(windows[window])[len(windows[window]) * 99 // 100] for window in sorted(windows)]
    return tuple(statistics.median(values) for values in _quarters(p99))


def _latency(tally):
    first, last = _p99_ms(tally.latencies)
    late = _p99_ms(tally.late)
    # When others want the processors as well, answers are as late as the clients' own timers.
    goal = P99_FACTOR * max(first, late[1]) + P99_MORE_MS
    return [
        note("p99 of how late the clients' timers were", f"{late[0]:.1f} ms at first, {late[1]:.1f} ms"),
        at_most(f"p99 of small answers, {first:.1f} ms at first", last, goal, "ms"),
    ]


def main():
    parser = argparse.ArgumentParser(prog="script/soak", description=__doc__)
    parser.add_argument("seconds", nargs="?", type=int, default=3600, help="how long; 3600 by default")
    parser.add_argument(
        "--restarts",
        action="store_true",
        help=f"restart each server every {RESTART_OFTEN_S} s, kill one of its workers every {KILL_S} s",
    )
    parser.add_argument("--engine", choices=("inline", "thread", "process"), default="inline")
    options = parser.parse_args()
    seconds = options.seconds
    if seconds < 4:
        parser.error("less than four seconds tell nothing")
    trouble = start.built(servers.PAGI)
    if trouble:
        sys.exit(f"soak: {trouble}")
    cores = sorted(os.sched_getaffinity(0))
    settings = check.Settings(Cores(cores[0], cores[-1]), False)
    return 0 if check.checked(soak, "soak", settings, seconds, options.restarts, options.engine) else 1


if __name__ == "__main__":
    sys.exit(main())
