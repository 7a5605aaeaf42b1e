"""WebSockets that echo while one request of five blocks for 50 ms: in the pool, and in the interpreter."""

from check import at_most, exactly, note
from generator import Generator

from .serving import serving

WEBSOCKETS = 1000
RATE = 100
SLOWER_MOST = 1.5


def beside(settings):
    """The p99 of 1,000 WebSockets that echo is at most 1.5 times higher when one request of five blocks for
    50 ms, of a hundred a second, in a pool of four processes."""
    with serving(settings) as process:
        quick, _ = _echoes(process, settings, "/quick")
        called, requests = _echoes(process, settings, "/called")
        blocking, _ = _echoes(process, settings, "/blocking")
    return [
        at_most(
            f"p99 of an echo beside calls in the pool ({_shown(called)}; {_shown(quick)} without)",
            called["p99_us"] / quick["p99_us"],
            SLOWER_MOST,
            "× without",
            ".2f",
        ),
        exactly("requests without an answer", int(requests["unanswered"]), 0),
        note("requests with one", f"{requests['responses']:,.0f}"),
        note("p99 of an echo when the interpreter blocks itself", _shown(blocking)),
    ]


def _echoes(process, settings, path):
    seconds = settings.seconds(12, 1)
    asked = {"port": process.port, "path": path, "connections": 16, "rate": RATE}
    with (
        Generator("echo", settings.cores.load, port=process.port, connections=WEBSOCKETS) as echo,
        Generator("rate", settings.cores.load, **asked) as load,
    ):
        load.begin(seconds)
        echo.begin(seconds)
        return echo.end(seconds), load.end(seconds)


def _shown(result):
    return f"{result['p99_us'] / 1000:.1f} ms at {result['rate']:,.0f} a second"
