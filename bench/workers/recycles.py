"""What is left behind by workers that are gone."""

import asyncio
import json
import time
import urllib.request

from check import at_least, at_most, exactly, note, serving
from process import family, free_port, rss_of, state
from soak import good

WORKERS = 4
PROCESSES = WORKERS + 2  # the master, and the one that shows the status
RECYCLES = 1000
REQUESTS_MAX = 10  # of a worker
CLIENTS = 8
PAUSE_S = 0.005
GROWTH_BYTES = 4_000_000
PATIENCE_S = 900
SETTLE_S = 15  # for workers that are on their way


def recycles(settings):
    """1,000 workers recycled by --max-requests 10 under load: no request fails, and no process, descriptor or
    memory is left behind."""
    wanted = settings.seconds(RECYCLES, 30)
    cores = {settings.cores.server, settings.cores.load}
    status = free_port()
    arguments = ("--port", "@PORT@", "--workers", str(WORKERS), "--max-requests", str(REQUESTS_MAX))
    arguments += ("--retire-idle", "1", "--status", f"127.0.0.1:{status}")
    with serving(settings, "soak/app.pl", "/bytes/0/1", arguments, cores) as process:
        before = _settled(process, lambda left: left["processes"] >= PROCESSES)
        begun = time.monotonic()
        tally, restarts = asyncio.run(_load(process.port, status, wanted))
        seconds = time.monotonic() - begun
        after = _settled(
            process, lambda left: all(left[what] <= before[what] for what in left if what != "rss")
        )
    others = {reason: count for reason, count in restarts.items() if count and reason != "max_requests"}
    return [
        at_least("workers recycled", restarts["max_requests"], wanted, "", ",d"),
        note("seconds", f"{seconds:.0f}"),
        note("requests", f"{tally.counts['requests']:,}"),
        exactly("requests that failed", len(tally.failures), 0),
        *(note("  the first", failure.text) for failure in tally.failures[:1]),
        exactly("workers that ended otherwise", sum(others.values()), 0),
        *(
            at_most(f"{what}, more than before", after[what] - before[what], spare, "", ",d")
            for what, spare in (("processes", 0), ("zombies", 0), ("descriptors of the master", 0))
        ),
        at_most("growth of the master", (after["rss"] - before["rss"]) / 1e6, GROWTH_BYTES / 1e6, "MB"),
    ]


async def _load(port, status, wanted):
    tally = good.Tally()
    clients = [
        asyncio.create_task(
            good.forever(
                tally, "PAGI", "HTTP", good.requests, (port, None), number % 2 == 0, pause_s=PAUSE_S
            )
        )
        for number in range(CLIENTS)
    ]
    end = time.monotonic() + PATIENCE_S
    restarts = {}
    while restarts.get("max_requests", 0) < wanted and time.monotonic() < end:
        await asyncio.sleep(0.5)
        restarts = await asyncio.to_thread(_restarts, status)
    for client in clients:
        client.cancel()
    await asyncio.gather(*clients, return_exceptions=True)
    return tally, restarts


def _restarts(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/status.json", timeout=10) as answer:
        return json.load(answer)["restarts"]


def _left(process):
    pids = family(process.child.pid)
    return {
        "processes": len(pids),
        "zombies": sum(state(pid) == "Z" for pid in pids),
        "descriptors of the master": process.descriptors(),
        "rss": rss_of(process.child.pid),
    }


def _settled(process, is_settled):
    """What is there when it is as it should be, or the time is up."""
    end = time.monotonic() + SETTLE_S
    while True:
        left = _left(process)
        if time.monotonic() > end or is_settled(left):
            return left
        time.sleep(0.1)

