"""Ordinary requests beside event streams that the engine holds."""

import statistics

import servers
import start
from check import at_most, exactly, note
from generator import Generator
from measure import Publisher

STREAMS = 5000
RATE = 2000
CONNECTIONS = 16
ROUNDS = 5
SLOWER_MOST = 1.2


def beside(settings):
    """The p99 of 2,000 ordinary requests a second is at most 1.2 times higher beside 5,000 event streams that
    wait, with two workers: the median of the rounds, in each of which the streams are opened anew."""
    return _beside(settings, servers.TOPICS)


def held(settings):
    """The p99 of 2,000 ordinary requests of PSGI a second is at most 1.2 times higher beside 5,000 event
    streams of PSGI that the engine holds (GRIP), with two workers, which hold none."""
    return _beside(settings, servers.HELD)


def _beside(settings, server):
    streams = settings.seconds(STREAMS, STREAMS // 10)
    command = list(server.command)
    command[command.index("--workers") + 1] = "2"
    server = servers.replace(server, command=tuple(command))
    ratios, shown, busy, unanswered = [], [], [], 0
    with start.started(server, settings.cores.server) as process:
        for number in range(settings.seconds(ROUNDS, 1) + 1):
            alone = _requests(process, settings)
            with Generator(
                "subscribe", settings.cores.load, port=process.port, path="/events", connections=streams
            ):
                held = _requests(process, settings)
                with Publisher(process.port, "/publish") as publisher:
                    busy.append(_requests(process, settings, publisher)["p99_us"])
            unanswered += alone["unanswered"] + held["unanswered"]
            if number:  # the first round warms the server up
                ratios.append(held["p99_us"] / alone["p99_us"])
                shown.append((alone["p99_us"], held["p99_us"]))
    words = ", ".join(f"{before:.0f} and {after:.0f}" for before, after in shown)
    return [
        at_most(f"p99 beside {streams:,} streams", statistics.median(ratios), SLOWER_MOST, "× alone", ".2f"),
        note("p99 in µs, alone and beside them, by round", words),
        note("p99 in ms while each of them gets a message a second", f"{statistics.median(busy) / 1000:.1f}"),
        exactly("requests without an answer", int(unanswered), 0),
    ]


def _requests(process, settings, publisher=None):
    seconds = settings.seconds(3, 1)
    asked = {"port": process.port, "path": "/", "connections": CONNECTIONS, "rate": RATE}
    with Generator("rate", settings.cores.load, **asked) as load:
        load.begin(seconds)
        if publisher:
            publisher.publish_for(seconds, 1, b"x" * 100)
        return load.end(seconds)
