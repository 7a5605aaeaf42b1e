"""Clients that read slowly: the server has to wait for them, and must not keep what they have not read."""

import socket
import time

from check import Finding, at_most, serving

MIB = 1 << 20
RATE = MIB  # bytes per second that a client reads
TICK_S = 0.05
GROWTH_BYTES = 2_000_000
EACH_BYTES = 128 * 1024  # more, for each client when they are many


def slow_1(settings):
    """A client that reads 1 MB/s pulls 50 MB: about 50 s, and memory grows by less than 2 MB."""
    return _pull(settings, 1, GROWTH_BYTES)


def slow_200(settings):
    """200 such clients at once: memory grows by less than 2 MB and 128 KiB for each."""
    return _pull(settings, 200, GROWTH_BYTES + 200 * EACH_BYTES)


def _pull(settings, clients, growth):
    size = settings.seconds(50, 4) * MIB
    path = f"/{size // MIB}"
    with serving(settings, "article/large.pl", "/1") as process:
        process.get("/20")  # whatever the first responses load is loaded
        before = process.rss_bytes()
        seconds, most, whole = _read_slowly(process, path, clients, size)
    wanted = size / RATE
    return [
        Finding("whole responses", f"{whole}", f"{clients}", whole == clients),
        Finding(
            "time", f"{seconds:.1f} s", f"{wanted:.0f} s, within 5 %", abs(seconds - wanted) <= wanted / 20
        ),
        at_most("growth of RSS", (most - before) / 1e6, growth / 1e6, "MB", ".2f"),
    ]


class Client:
    """One response being read."""

    def __init__(self, port, path):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.socket.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        self.socket.setblocking(False)
        self.head = b""
        self.body = None  # bytes, once the head is over
        self.ended = False

    def read(self, most):
        """Up to so many bytes more."""
        try:
            data = self.socket.recv(most)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.ended = True
        elif self.body is not None:
            self.body += len(data)
        else:
            self.head += data
            _, blank, rest = self.head.partition(b"\r\n\r\n")
            self.body = len(rest) if blank else None


def _read_slowly(process, path, clients, size):
    """(seconds, the most memory seen, how many got a whole 200)."""
    opened = [Client(process.port, path) for _ in range(clients)]
    begin = time.monotonic()
    reading, most, looked = opened, 0, begin
    while reading and time.monotonic() - begin < 2 * size / RATE + 10:
        time.sleep(TICK_S)
        now = time.monotonic()
        for client in reading:
            # As a bucket with a hole, so that who is late once does not catch up in a gulp.
            client.read(min(int((now - begin) * RATE) - (client.body or 0), int(2 * TICK_S * RATE)))
        reading = [client for client in reading if not client.ended and client.body != size]
        if now - looked >= 0.5:
            most, looked = max(most, process.rss_bytes()), now
    whole = sum(client.body == size and client.head.startswith(b"HTTP/1.1 200 ") for client in opened)
    return time.monotonic() - begin, most, whole
