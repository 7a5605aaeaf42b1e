"""Many responses of two seconds at once, in one process: a server that waits for anybody falls behind the
arithmetic."""

from check import at_least, at_most, exactly, note, serving
from generator import Generator

RESPONSE_S = 2
BODY_BYTES = 10 * 1024


def streams_500(settings):
    """500 two-second streams at once: at least 97 % of 250 responses per second, p99 at most 2.3 s."""
    result, findings = _streams(settings, 500, 0.97)
    return findings + [at_most("p99", result["p99_us"] / 1e6, 2.3, "s", ".3f")]


def streams_2500(settings):
    """2,500 two-second streams at once, the descriptor limit raised: at least 96 % of 1,250 responses per
    second."""
    return _streams(settings, 2500, 0.96)[1]


def streams_16_workers(settings):
    """2,500 two-second streams at once in 16 workers: at least 97 % of 1,250 responses per second, p99 at
    most 2.2 s."""
    cores = {settings.cores.server, settings.cores.load}
    arguments = ("--port", "@PORT@", "--workers", "16")
    result, findings = _streams(settings, 2500, 0.97, arguments=arguments, cores=cores)
    return findings + [at_most("p99", result["p99_us"] / 1e6, 2.2, "s", ".3f")]


def _streams(settings, connections, part, **options):
    # Ten rounds, the last of which begins before the time is up.
    seconds = settings.seconds(9.5, 1.5) * RESPONSE_S
    with serving(settings, "article/streams.pl", **options) as process:
        with Generator(
            "streams", settings.cores.load, port=process.port, connections=connections, bytes=BODY_BYTES
        ) as load:
            before = process.cpu_seconds()
            result = load.run(seconds)
            busy = (process.cpu_seconds() - before) / result["seconds"]
    possible = connections / RESPONSE_S
    return result, [
        at_least(f"responses/s, of {possible:g} that are possible", result["rate"], part * possible, "/s"),
        exactly("failed, refused or unfinished", int(result["errors"] + result["unfinished"]), 0),
        note("CPU", f"{100 * busy:.0f} % of a core"),
    ]
