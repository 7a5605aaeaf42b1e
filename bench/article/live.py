"""Connections that are open for long: WebSockets that say nothing, and subscribers of events."""

import measure
from check import Finding, at_least, at_most, exactly, serving
from generator import Generator

SOCKETS = 10_000
SUBSCRIBERS = 1000
EVENTS_PER_S = 10


def websockets_10000(settings):
    """10,000 idle WebSockets in one process: at most 10 KiB of RSS each, less than 1 % of a core, and all
    alive."""
    with serving(settings, "peers/echo.pagi.pl") as process:
        before = process.rss_bytes()
        with Generator("echo", settings.cores.load, port=process.port, connections=SOCKETS, bytes=64) as load:
            idle_s = settings.seconds(20, 3)
            each, busy = measure.at_rest(process, before, SOCKETS, idle_s)
            echoed = load.run(settings.seconds(4, 2))
    return [
        at_most("RSS each", each / 1024, 10, "KiB", ".2f"),
        Finding("idle CPU", f"{100 * busy:.2f} % of a core", "below 1 %", busy < 0.01),
        at_least("messages echoed afterwards", int(echoed["messages"]), SOCKETS, "messages", ",d"),
        exactly("connections lost", int(echoed["errors"]), 0),
    ]


def subscribers_1000(settings):
    """1,000 subscribers of 10 events per second: within 25 % of one core, and nobody misses an event."""
    seconds = settings.seconds(20, 3)
    with serving(settings, "article/ticker.pl") as process:
        with Generator("subscribe", settings.cores.load, port=process.port, connections=SUBSCRIBERS) as load:
            load.run(1)
            before = process.cpu_seconds()
            result = load.run(seconds)
            busy = (process.cpu_seconds() - before) / seconds
    return [
        at_most("CPU", 100 * busy, 25, "% of a core", ".1f"),
        # The last tick of the time may be on its way.
        at_least(
            "events of each subscriber", int(result["fewest"]), seconds * EVENTS_PER_S - 1, "events", ",d"
        ),
        exactly("connections lost", int(result["errors"]), 0),
    ]
