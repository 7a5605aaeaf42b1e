"""A million requests and ten thousand that their clients abandon leave nothing behind at either end of the
ring pair."""

import os
import re
import socket
import struct
import time

import wrk
from check import at_most, exactly, note

from .serving import serving

REQUESTS = 1_000_000
ABANDONED = 10_000
AT_ONCE = 20  # abandoned connections that are open together
LATER = b"GET /later HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
BODY = b"POST /upload HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000\r\n\r\n" + b"x" * 5000
STREAM = b"GET /stream HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
# Left before the answer, in the middle of the request's body, in the middle of the response.
WAYS = ((LATER, 0), (BODY, 0), (STREAM, 1000))
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing is a reset
SETTLE_S = 20
KIB_MOST = 1024  # heap that was divided otherwise; a leak of 2 bytes a request would be twice as much
VALUES_MOST = 50
ENGINE_BYTES_MOST = 128 * 1024  # memory of the busiest moment is kept; a bit per request would be as much


def growth(settings):
    """What the process holds after a million requests and ten thousand abandoned ones, to a tenth of both before."""
    requests, abandoned = settings.seconds(REQUESTS, 50_000), settings.seconds(ABANDONED, 600)
    with serving(settings) as process:
        _load(process, settings, requests // 10, abandoned // 10)
        before = _settled(process)
        done = _load(process, settings, requests, abandoned)
        after = _settled(process)
    grown = {key: after[key] - before[key] for key in before}
    return [
        note("requests", f"{done:,} and {abandoned:,} abandoned"),
        note("RSS", f"{before['kib']:,} KiB, then {after['kib']:,}"),
        at_most("RSS, growth", grown["kib"], KIB_MOST, "KiB", ",d"),
        at_most("Perl values, growth", grown["values"], VALUES_MOST, "values", ",d"),
        at_most("buffers and slots, growth", grown["memory_bytes"], ENGINE_BYTES_MOST, "bytes", ",d"),
        exactly("descriptors, growth", grown["descriptors"], 0),
        # With the request that asks.
        exactly("exchanges of the engine", after["exchanges"], 1),
        exactly("exchanges that the application's end of the ring pair knows", after["ledger"], 1),
        exactly("exchanges of the Perl side", after["live"], 1),
    ]


def _load(process, settings, requests, abandoned):
    """So many of both, by turns; how many requests were answered."""
    os.sched_setaffinity(0, {settings.cores.load})
    url, done, left = f"http://127.0.0.1:{process.port}/", 0, abandoned
    while done < requests or left > 0:
        result = wrk.run(url, settings.cores.load, 64, 1)
        if not result.requests or result.errors:
            raise ValueError(f"{result.requests} requests, {result.errors} errors")
        done += result.requests
        # As much of the abandoned as is done of the others.
        wanted = abandoned - abandoned * min(done, requests) // requests
        while left > wanted:
            left -= _abandon(process.port, min(AT_ONCE, left - wanted), left)
    return done


def _abandon(port, count, number):
    """Opens so many connections, says something on each, and leaves."""
    connections = []
    for place in range(count):
        request, enough = WAYS[(number + place) % len(WAYS)]
        connection = socket.create_connection(("127.0.0.1", port), timeout=SETTLE_S)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        connection.sendall(request)
        connections.append((connection, enough))
    for connection, enough in connections:
        if enough and len(connection.recv(enough, socket.MSG_WAITALL)) < enough:
            raise ValueError("the server has ended a response first")
        connection.close()
    return count


def _settled(process):
    """What /usage says once nothing is under way but the request that asks."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        _, text = process.get("/usage")
        now = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", text.decode())}
        if now["live"] == 1 and now["connections"] == 1:
            return now
        if time.monotonic() > deadline:
            raise ValueError(f"after {SETTLE_S} s there is still something: {text.decode()}")
        time.sleep(0.05)
