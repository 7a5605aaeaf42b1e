"""TLS handshakes that lead nowhere: half of the connections stop in the middle and wait, the other half
leave in the middle and come back."""

import random
import select
import socket
import tempfile
import time

from check import at_most, exactly, note, serving
from generator import Generator

from . import tls
from .normal import Normal

GRACE_S = 2  # beyond the deadline
STALLED_PER_S = 200  # as they come
REST_MS = 500  # from leaving to coming back


def handshakes(settings):
    """500 TLS handshakes that stall (--tls-handshake-timeout 10), 500 that are left and come back: good
    clients are answered, the bad are gone."""
    half, deadline_s = settings.seconds(500, 100), settings.seconds(10, 2)
    hello = tls.client_hello()
    with tempfile.TemporaryDirectory(prefix="peregrine-abuse-") as folder:
        place = f"127.0.0.1:@PORT@,{tls.certificate(folder, 'server')}"
        arguments = ("--listen", place, "--tls-handshake-timeout", str(deadline_s))
        with serving(settings, "abuse/app.pl", arguments=arguments, tls=True) as process:
            before = process.descriptors()
            with (
                Normal(process.port, settings.cores.load, tls=True) as normal,
                Generator(
                    "churn",
                    settings.cores.load,
                    port=process.port,
                    connections=10**9,
                    ramp=half,
                    manner="leave",
                    rest=REST_MS,
                    sample=hello.hex(),
                ) as load,
            ):
                seconds = half / STALLED_PER_S + deadline_s + GRACE_S
                load.begin(seconds)
                stalled, last_s = _stall(process.port, half, hello, settings.seed, deadline_s + GRACE_S)
                left = load.end(seconds)
            after = process.settled_descriptors(before)
    return [
        exactly("stalled handshakes that the server did not end", stalled, 0),
        at_most("the last one of them", last_s, deadline_s + GRACE_S, "s"),
        note(
            "handshakes left in the middle",
            f"{left['finished'] / left['seconds']:,.0f} /s, {left['answered']:,.0f} after the server's part",
        ),
        *normal.findings(),
        at_most("descriptors afterwards, more than before", after - before, 0, "", ",d"),
    ]


def _stall(port, count, hello, seed, patience_s):
    """(how many are open in the end, after what time the last one of the others was ended) of handshakes
    that stop somewhere."""
    numbers = random.Random(seed)
    opened = {}
    for _ in range(count):
        time.sleep(1 / STALLED_PER_S)
        stalled = socket.create_connection(("127.0.0.1", port), timeout=5)
        stalled.sendall(hello[: numbers.choice((0, numbers.randrange(len(hello)), len(hello)))])
        opened[stalled] = time.monotonic()
    end, last_s = time.monotonic() + patience_s, 0
    while opened and time.monotonic() < end:
        for stalled in _readable(opened, 0.1):
            if _ended(stalled):
                last_s = max(last_s, time.monotonic() - opened.pop(stalled))
                stalled.close()
    for stalled in opened:
        stalled.close()
    return len(opened), last_s


def _readable(sockets, seconds):
    poll = select.poll()
    by_number = {each.fileno(): each for each in sockets}
    for number in by_number:
        poll.register(number, select.POLLIN)
    return [by_number[number] for number, _ in poll.poll(1000 * seconds)]


def _ended(stalled):
    """Takes what the server says meanwhile."""
    try:
        return not stalled.recv(65536)
    except OSError:
        return True
