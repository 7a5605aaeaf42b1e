"""How much more two workers do than one, where the work is the application's."""

import resource

from check import at_least, at_most, note, serving
from generator import Generator

CONNECTIONS = 16
GAIN = 1.8
LOAD_MAX = 5  # per cent of a core
ROUNDS = 3


def scale(settings):
    """A handler that computes for 2 ms: two workers on two cores serve at least 1.8 times the requests of
    one."""
    cores = {settings.cores.server, settings.cores.load}
    best, load = {}, 0
    # Both servers by turns. The best round of each counts: other work of the machine makes rounds slower.
    for _ in range(ROUNDS):
        for workers in (1, 2):
            rate, busy = _rate(settings, cores, workers)
            best[workers] = max(best.get(workers, 0), rate)
            load = max(load, busy)
    return [
        note("cores", len(cores)),
        note("one worker", f"{best[1]:,.0f} /s"),
        note("two workers", f"{best[2]:,.0f} /s"),
        at_least("two workers, of one's requests", best[2] / best[1], GAIN, "times", ".2f"),
        at_most("the load generator at most", 100 * load, LOAD_MAX, "% of a core"),
    ]


def _rate(settings, cores, workers):
    """(requests per second, the load generator's part of a core)"""
    seconds = settings.seconds(4, 1)
    arguments = ("--port", "@PORT@", "--workers", str(workers), "--reuseport")
    with serving(settings, "workers/app.pl", arguments=arguments, cores=cores) as process:
        before = _children_seconds()
        with Generator(
            "streams",
            settings.cores.load,
            port=process.port,
            path="/compute",
            connections=CONNECTIONS * workers,
        ) as load:
            load.run(0.5)
            rate = load.run(seconds)["rate"]
        # The load generator is the only child that has been waited for meanwhile.
        busy = (_children_seconds() - before) / seconds
    return rate, busy


def _children_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
