"""What goes on while the application blocks: for 50 ms in each hundredth request, under two loads.

As many requests as there can be: then Perl sleeps nearly all the time. Two hundred a second: then it
sleeps for a tenth of it.
"""

import contextlib
import os
import socket
import statistics
import subprocess
import threading
import time

import wrk
from check import at_least, at_most, note
from generator import Generator

from .serving import serving

PATH = "/sometimes"
BLOCKED_MS = 50
P99_MS = 2
MALFORMED = b"GET / HTTP/1.1\r\n\r\n"
HEALTH = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
PACE_S = 0.005
PATIENCE_S = 10
UPLOAD_BYTES = 10_000_000
UPLOAD_RATE = 20_000_000  # bytes a second
UPLOADS = 9
SLOWER_MOST = 1.05


def blocked(settings):
    """Refusals and the health path within 2 ms, uploads as fast as ever, while one request of a hundred
    blocks for 50 ms."""
    with serving(settings) as process:
        quiet = _upload_s(process.port, settings)
        still = _ask(process.port, settings)
        slowly = {"port": process.port, "path": PATH, "connections": 8, "rate": 200}
        with Generator("rate", settings.cores.load, **slowly) as load:
            seconds = settings.seconds(15, 5)
            load.begin(seconds)
            beside = _upload_s(process.port, settings)
            waited = load.end(seconds)["p99_us"] / 1000
        with _as_many_as_there_can_be(process, settings) as results:
            latencies = _ask(process.port, settings)
        with _as_many_as_there_can_be(process, settings):
            worst = _upload_s(process.port, settings)
    own_ms = results[0].p99_us / 1000
    return [
        at_least("p99 of the application's own requests, two hundred a second", waited, BLOCKED_MS / 2, "ms"),
        at_most(
            f"an upload at {UPLOAD_RATE // 10**6} MB/s meanwhile",
            beside / quiet,
            SLOWER_MOST,
            "× without",
            ".3f",
        ),
        at_least(
            "p99 of the application's own requests, as many as there can be", own_ms, BLOCKED_MS / 2, "ms"
        ),
        *[
            at_most(f"p99 of {len(times):,} times {what}", _p99_ms(times), P99_MS, "ms", ".2f")
            for what, times in latencies.items()
        ],
        note("the slowest of all", f"{1000 * max(max(times) for times in latencies.values()):.1f} ms"),
        # A machine that is busy with something else has slow answers here already.
        *[
            note(f"p99 of {what} while nothing else is asked", f"{_p99_ms(times):.2f} ms")
            for what, times in still.items()
        ],
        note("the same upload then, when Perl hardly ever is awake", f"{worst / quiet:.2f} × without"),
    ]


@contextlib.contextmanager
def _as_many_as_there_can_be(process, settings):
    """wrk beside what is inside; its result is in the list when that is over."""
    results = []
    url = f"http://127.0.0.1:{process.port}{PATH}"

    def run():
        with contextlib.suppress(RuntimeError, subprocess.SubprocessError):
            results.append(wrk.run(url, settings.cores.load, 16, settings.seconds(12, 4)))

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(0.5)
    try:
        yield results
    finally:
        thread.join()
    if not results:
        raise ValueError("the load did not come to its end")


def _ask(port, settings):
    """Seconds from before the connection to after its end, by what was asked for."""
    os.sched_setaffinity(0, {settings.cores.load})  # of this thread
    latencies = {"malformed": [], "the health path": []}
    end = time.monotonic() + settings.seconds(10, 3)
    while time.monotonic() < end:
        for what, request, wanted in (
            ("malformed", MALFORMED, b" 400 "),
            ("the health path", HEALTH, b" 200 "),
        ):
            time.sleep(PACE_S)
            before = time.monotonic()
            with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
                connection.sendall(request)
                answer = b"".join(iter(lambda: connection.recv(4096), b""))
            latencies[what].append(time.monotonic() - before)
            if wanted not in answer[:20]:
                raise ValueError(f"{what}: answered {answer[:40]!r}")
    return latencies


def _upload_s(port, settings):
    """Seconds from the first byte of an upload to its answer: the median of some."""
    return statistics.median(_one_upload_s(port) for _ in range(settings.seconds(UPLOADS, 3)))


def _one_upload_s(port):
    block = b"x" * 65_536
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        head = f"POST /upload HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {UPLOAD_BYTES}\r\n\r\n"
        connection.sendall(head.encode())
        begun, sent = time.monotonic(), 0
        while sent < UPLOAD_BYTES:
            piece = block[: UPLOAD_BYTES - sent]
            connection.sendall(piece)
            sent += len(piece)
            time.sleep(max(begun + sent / UPLOAD_RATE - time.monotonic(), 0))
        answer = connection.recv(4096)
        if not answer.endswith(b"took %d" % UPLOAD_BYTES):
            raise ValueError(f"answered {answer[-60:]!r}")
        return time.monotonic() - begun


def _p99_ms(times):
    return 1000 * sorted(times)[len(times) * 99 // 100]
