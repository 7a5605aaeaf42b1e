"""One burst of load by h2load (HTTP/2 in the clear), pinned to its own core, as a value. Does not know the
server."""

import re
import shutil
from dataclasses import dataclass

from process import NotInstalled, run_on_core

GRACE_S = 60  # h2load ends by itself; this is for the day it does not
_UNIT_US = {"us": 1, "ms": 1000, "s": 1_000_000}


class Failed(RuntimeError):
    """What h2load said instead of a result."""


@dataclass(frozen=True)
class Burst:
    requests: int  # that were answered
    errors: int
    rate: float
    mean_us: float


def run(url, core, seconds, connections, streams, requests=None):
    """`streams` requests at a time on each connection: for so many seconds, or so many requests."""
    if not shutil.which("h2load"):
        raise NotInstalled("h2load is not installed; run script/bench --install")
    much = [f"-n{requests}"] if requests else [f"-D{round(seconds * 1000)}ms"]
    command = ["h2load", "-t1", f"-c{connections}", f"-m{streams}", *much, url]
    done = run_on_core(command, core, seconds + GRACE_S)
    counts = re.search(r"^requests: .* (\d+) succeeded, (\d+) failed,", done.stdout, re.M)
    rate = re.search(r"^finished in .*?, ([\d.]+) req/s", done.stdout, re.M)
    mean = re.search(r"^time for request: +(?:\S+ +){2}([\d.]+)(us|ms|s)\b", done.stdout, re.M)
    if not (counts and rate and mean):
        words = (done.stderr + done.stdout).strip().splitlines() or ["no result"]
        raise Failed(f"h2load: {words[-1]}")
    return Burst(
        requests=int(counts[1]),
        errors=int(counts[2]),
        rate=float(rate[1]),
        mean_us=float(mean[1]) * _UNIT_US[mean[2]],
    )
