"""The ways to measure a running server. Each takes (process, cores, seconds, ...) and returns numbers by
name.

Does not know which server it is, and how the numbers are printed.
"""

import time
from dataclasses import dataclass

import h2load
import wrk
from generator import Generator
from process import CannotRun, descriptors_max

WARM_UP_S = 1
SETTLE_S = 1  # for a server to finish what opening connections began
LOAD = 0.7  # of a core: the load under which latency is measured
ASIDE_PERMILLE_MAX = 250  # of the responses: more says that this machine cannot show latencies now
SPARE_DESCRIPTORS = 100  # of the server's own


@dataclass(frozen=True)
class Cores:
    server: int
    load: int


def burst(process, cores, seconds, path="/", connections=64, **requests):
    """As many requests as the server answers, by wrk. `requests`: what they look like, see wrk.run."""
    url = f"http://127.0.0.1:{process.port}{path}"
    before = process.cpu_seconds()
    result = wrk.run(url, cores.load, connections, seconds, **requests)
    cpu_s = process.cpu_seconds() - before
    if not process.alive():
        raise CannotRun("died under load")
    if not result.requests:
        raise CannotRun("completed no request")
    numbers = {
        "rate": result.requests * 1e6 / result.duration_us,
        "errors": result.errors,
        "rss": process.rss_bytes(),
        "cpu_us": cpu_s * 1e6 / result.requests,
    }
    # wrk corrects its histogram as though one request were under way, so pipelined it means nothing.
    alone = requests.get("depth", 1) == 1
    return numbers | ({"p50_us": result.p50_us, "p99_us": result.p99_us} if alone else {})


def streams(process, cores, seconds, path="/", **load):
    """As many requests as the server answers over HTTP/2, by h2load. `load`: see h2load.run."""
    before = process.cpu_seconds()
    result = h2load.run(f"http://127.0.0.1:{process.port}{path}", cores.load, seconds, **load)
    cpu_s = process.cpu_seconds() - before
    if not process.alive():
        raise CannotRun("died under load")
    if not result.requests:
        raise CannotRun("completed no request")
    return {
        "rate": result.rate,
        "mean_us": result.mean_us,
        "errors": result.errors,
        "rss": process.rss_bytes(),
        "cpu_us": cpu_s * 1e6 / result.requests,
    }


def latency(process, cores, seconds, path="/", connections=64):
    """At 70 % of what one core can do: the rate follows from the CPU time per request under full load."""
    burst(process, cores, WARM_UP_S, path, connections)
    full = burst(process, cores, 1, path, connections)
    rate = LOAD * 1e6 / full["cpu_us"]
    with Generator(
        "rate",
        cores.load,
        port=process.port,
        path=path,
        connections=connections,
        rate=round(rate),
        watch=cores.server,
    ) as load:
        load.run(WARM_UP_S)
        before = process.cpu_seconds()
        result = load.run(seconds)
        cpu_s = process.cpu_seconds() - before
    if result["unanswered"]:
        raise CannotRun(
            f"did not keep up: {result['unanswered']:,.0f} of {seconds * rate:,.0f} requests were not"
            " answered"
        )
    if result["aside_permille"] > ASIDE_PERMILLE_MAX:
        raise CannotRun(
            f"the machine did not run it: {result['aside_permille'] / 10:.0f} % had to be set aside"
        )
    return result | {
        "rate": result["responses"] / result["seconds"],
        "server_load": cpu_s / result["seconds"],
    }


def idle(process, cores, seconds, path="/", connections=20_000, memory_path=None):
    """What connections cost that have nothing to say: memory of each, CPU time of all."""
    connections = min(connections, descriptors_max() - SPARE_DESCRIPTORS)

    def engine_bytes():
        return int(process.get(memory_path)[1]) if memory_path else None

    rss, engine = process.rss_bytes(), engine_bytes()
    with Generator("rate", cores.load, port=process.port, path=path, connections=connections):
        each, busy = at_rest(process, rss, connections, seconds)
        numbers = {"connections": connections, "rss_each": each, "idle_cpu": busy}
        if memory_path:
            numbers["engine_each"] = (engine_bytes() - engine) / connections
    return numbers


def idle_websockets(process, cores, seconds, path="/ws", connections=5_000):
    """The same of WebSockets after their handshakes."""
    rss = process.rss_bytes()
    with Generator("echo", cores.load, port=process.port, path=path, connections=connections, bytes=64):
        each, busy = at_rest(process, rss, connections, seconds)
    return {"connections": connections, "rss_each": each, "idle_cpu": busy}


def at_rest(process, rss_before, connections, seconds):
    """(RSS bytes of each connection, the part of a core) of a server whose connections are silent."""
    time.sleep(SETTLE_S)
    each = (process.rss_bytes() - rss_before) / connections
    before = process.cpu_seconds()
    time.sleep(seconds)
    busy = (process.cpu_seconds() - before) / seconds
    if not process.alive():
        raise CannotRun("died with the connections")
    return each, busy


def echo(process, cores, seconds, path="/ws", connections=64, size=64):
    """WebSockets that send a text message, wait for its echo, and send it again."""
    with Generator(
        "echo", cores.load, port=process.port, path=path, connections=connections, bytes=size
    ) as load:
        before = process.cpu_seconds()
        result = load.run(seconds)
        cpu_s = process.cpu_seconds() - before
    if not result["messages"]:
        raise CannotRun("echoed nothing")
    return result | {
        "cpu_us": cpu_s * 1e6 / result["messages"],
        "load_cpu": result["cpu_seconds"] / result["seconds"],
        "rss": process.rss_bytes(),
    }


def growth(process, cores, _seconds, path="/", connections=64, requests=1_000_000):
    """Memory after a tenth of the requests, and after all."""
    url = f"http://127.0.0.1:{process.port}{path}"
    done, early = 0, None
    while done < requests:
        done += wrk.run(url, cores.load, connections, 1).requests
        if early is None and done >= requests / 10:
            early = process.rss_bytes()
        if not done:
            raise CannotRun("completed no request")
    late = process.rss_bytes()
    return {"requests": done, "rss_early": early, "rss_late": late, "growth": late - early}
