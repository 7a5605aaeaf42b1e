"""Mounts with interpreters of their own: one whose interpreters crash, and one that gets new code again and
again, beside one that has nothing to do with that."""

import contextlib
import os
import subprocess
import time
from dataclasses import replace

import check
import servers
import start
from check import at_least, exactly, note

from .clients import Clients

PEREGRINE = ("perl", "-I@ROOT@/blib/lib", "-I@ROOT@/blib/arch", "@ROOT@/bin/peregrine")
HELLO = os.path.join(check.BENCH, "pool", "sync.psgi")
CRASHES = os.path.join(check.BENCH, "pool", "crash.psgi")
RELOAD_S = 120


@contextlib.contextmanager
def _mounted(settings, other):
    """Two mounts, each with two interpreters of its own, and one that shares those of --workers."""
    command = (*PEREGRINE, "-E", "production", "--no-access-log", "--engine", "process", "--workers", "2")
    command += ("--port", "@PORT@", "--queue-timeout", "10", "--mount", f"/={HELLO}")
    command += ("--mount", f"/healthy={HELLO},workers=2", "--mount", f"/other={other},workers=2")
    server = replace(servers.PSGI_PROCESS, command=command, path="/", proof=None)
    with start.started(server, {settings.cores.server, settings.cores.load}) as process:
        yield process


def _findings(healthy, named):
    failures = [note("", failure) for failure in healthy.failures]
    return [
        exactly(f"failed requests of {named}", healthy.failed, 0),
        note("requests that were answered", f"{healthy.asked - healthy.failed:,}"),
        *failures,
    ]


def crash(settings):
    """Interpreters of one mount end at each of its requests, for ten minutes: no request of another mount
    with interpreters of its own fails, and none of the mounts that have none."""
    seconds = settings.seconds(600, 5)
    with _mounted(settings, CRASHES) as process:
        healthy = Clients(process.port, {"/healthy": (200,), "/": (200,)})
        crashing = Clients(process.port, {"/other": (502, 503)})
        with healthy, crashing:
            time.sleep(seconds)
    crashed = crashing.by_status.get(502, 0)
    return [
        *_findings(healthy, "mounts beside one that crashes"),
        exactly("requests of that mount with another answer than 502 or 503", crashing.failed, 0),
        at_least("interpreters that have crashed", crashed, settings.seconds(50, 1), "", ",.0f"),
    ]


def reloads(settings):
    """`peregrine reload` replaces the interpreters of one mount a hundred times while clients ask all mounts:
    no request is lost, of that mount or of another one."""
    count = settings.seconds(100, 3)
    with _mounted(settings, HELLO) as process:
        with Clients(process.port, {"/other": (200,), "/healthy": (200,), "/": (200,)}, 4) as clients:
            replaced = sum(_reloaded(process.child.pid) for _ in range(count))
    return [*_findings(clients, "all mounts"), exactly("reloads that were done", replaced, count)]


def _reloaded(master):
    command = start.replaced((*PEREGRINE, "reload", "/other", str(master)))
    done = subprocess.run(command, capture_output=True, text=True, timeout=RELOAD_S, check=False)
    return done.returncode == 0
