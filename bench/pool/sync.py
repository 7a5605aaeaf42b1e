"""What a hello of a handler that blocks costs, beside one of PSGI."""

import os
from dataclasses import replace

import check
import servers
import start
from check import at_most, note
from instructions import Client

REQUESTS = 20_000
ROUNDS = 3
RATIO = 1.2
HANDLERS = {"whole": "pool/sync_whole.pl", "handler": "pool/sync.pl"}
APPS = HANDLERS | {"asynchronous": "pool/hello.pl"}
GET = b"GET /sync HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
PROCESS = ("--port", "@PORT@", "--engine", "process", "--workers", "1")
ARGUMENTS = {name: (*PROCESS, *(("--sync-workers", "1") if name in HANDLERS else ())) for name in APPS}


def sync(settings):
    """The processor time of a hello in a process for handlers, of all processes of the server, is at most 1.2
    times that of PSGI with the engine in a process: of an application that is marked as a whole, and of a
    handler behind an asynchronous application. An asynchronous hello beside them shows what PAGI itself
    costs."""
    psgi = replace(servers.PSGI_PROCESS, command=_any_path(servers.PSGI_PROCESS.command))
    findings = []
    for connections in (1, 16):
        spent = dict.fromkeys((*APPS, "psgi"), 0.0)
        requests = settings.seconds(REQUESTS, REQUESTS // 20)
        for _ in range(ROUNDS):
            for name, app in APPS.items():
                with check.serving(settings, app, "/", ARGUMENTS[name]) as process:
                    spent[name] += _measured(process, connections, requests)
            with start.started(psgi, settings.cores.server) as process:
                spent["psgi"] += _measured(process, connections, requests)
        for name in HANDLERS:
            said = f"a sync hello, {name}, connections: {connections}"
            findings.append(at_most(said, spent[name] / spent["psgi"], RATIO, "× PSGI", ".2f"))
        ratio = spent["asynchronous"] / spent["psgi"]
        findings.append(note(f"an asynchronous hello, connections: {connections}", f"{ratio:.2f} × PSGI"))
        each = ", ".join(f"{name} {1e6 * all_s / ROUNDS / requests:.0f} µs" for name, all_s in spent.items())
        findings.append(note("processor time of a request", each))
    return findings


def _any_path(command):
    words = (word for word in command if not word.endswith(".psgi"))
    return (*words, os.path.join(check.BENCH, "pool", "sync.psgi"))


def _measured(process, connections, requests):
    """The seconds of processor time of so many requests."""
    client = Client(process.port, connections, GET)
    client.send(connections * 20)
    before = process.cpu_seconds()
    client.send(requests)
    spent = process.cpu_seconds() - before
    client.close()
    return spent
