"""One burst of load by wrk, pinned to its own core, as a value. Does not know the server."""

import os
import re
import shutil
from dataclasses import dataclass

from process import run_on_core

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "requests.lua")
GRACE_S = 20  # wrk ends by itself; this is for the day it does not


class Failed(RuntimeError):
    """What wrk said instead of a result."""


@dataclass(frozen=True)
class Burst:
    requests: int
    duration_us: int
    p50_us: int
    p99_us: int
    status: int  # answers that are no success
    socket: int  # connections that failed
    timeout: int

    @property
    def errors(self):
        return self.status + self.socket + self.timeout


def run(url, core, connections, seconds, depth=1, body=0, headers="few"):
    """`body`: bytes of each request's; `headers`: "browser" for those that one sends. wrk knows whole seconds
    only, but tells at an interrupt as well how long it has run and what it has got."""
    if not shutil.which("wrk"):
        raise Failed("wrk is not installed; run script/bench --install")
    command = [
        *("timeout", "--foreground", "--signal=INT", f"{seconds}"),
        "wrk",
        "-t1",
        f"-c{connections}",
        f"-d{int(seconds) + 1}s",
        "--latency",
        "-s",
        SCRIPT,
        url,
        "--",
        str(depth),
        str(body),
        headers,
    ]
    done = run_on_core(command, core, seconds + GRACE_S)
    result = re.search(r"^RESULT (.*)$", done.stdout, re.M)
    if not result:
        raise Failed(f"wrk: {(done.stderr.strip() or done.stdout.strip() or 'no result').splitlines()[-1]}")
    return Burst(**{key: int(value) for key, value in (pair.split("=") for pair in result[1].split())})
