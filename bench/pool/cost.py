"""What an empty call costs, on both sides together."""

from check import at_most

from .serving import serving

CALLS = 20_000
CPU_US = 60


def cost(settings):
    """The processor time of an empty call, of the interpreter and of the pool together."""
    calls = settings.seconds(CALLS, CALLS // 20)
    with serving(settings) as process:
        process.get("/calls/100/8")
        return [_measured(process, calls, together) for together in (1, 8, 50)]


def _measured(process, calls, together):
    before = process.cpu_seconds()
    done = 0
    while done < calls:
        status, _ = process.get(f"/calls/{min(calls, 1000)}/{together}")
        if status != 200:
            raise ValueError(f"calls: answered {status}")
        done += min(calls, 1000)
    cpu_us = 1e6 * (process.cpu_seconds() - before) / done
    return at_most(f"an empty call, {together} at a time", cpu_us, CPU_US, "µs")
