"""The ways to measure a running server. Each takes (process, cores, seconds, ...) and returns numbers by
name.

Does not know which server it is, and how the numbers are printed.
"""

import time
from dataclasses import dataclass

import h2load
import wrk
from generator import Generator
from process import CannotRun, descriptors_max, dirtied_bytes
from quiet import Http2

WARM_UP_S = 0.2  # of the open loop
SETTLE_S = 1  # for a server to finish what opening connections, or starting, began
LOAD = 0.7  # of a core: the load under which latency is measured
BUSY = 0.95  # of a core: a server that uses less is not what is slow
ASIDE_PERMILLE_MAX = 250  # of the responses: more says that this machine cannot show latencies now
SPARE_DESCRIPTORS = 100  # of the server's own


@dataclass(frozen=True)
class Cores:
    server: int
    load: int


def burst(process, cores, seconds, path="/", connections=64, **requests):
    """As many requests as the server answers, by wrk. `requests`: what they look like, see wrk.run."""
    scheme = "https" if process.tls else "http"
    url = f"{scheme}://127.0.0.1:{process.port}{path}"
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
    rate = LOAD * 1e6 / burst(process, cores, seconds, path, connections)["cpu_us"]
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
    busy = cpu_s / result["seconds"]
    if result["aside_permille"] > ASIDE_PERMILLE_MAX:
        raise CannotRun(
            f"the machine did not run it: {result['aside_permille'] / 10:.0f} % had to be set aside"
        )
    if result["unanswered"]:
        unanswered = f"{result['unanswered']:,.0f} of {seconds * rate:,.0f} requests were not answered"
        # A server that can do no more uses all of its core.
        reason = "did not keep up" if busy > BUSY else f"the machine gave it {busy:.0%} of a core"
        raise CannotRun(f"{reason}: {unanswered}")
    return result | {"rate": result["responses"] / result["seconds"], "server_load": busy}


def keepalive(process, cores, path, connections):
    """Connections of HTTP/1.1 after one answered request each."""
    return Generator("rate", cores.load, port=process.port, path=path, connections=connections)


def websockets(process, cores, path, connections):
    """WebSockets after their handshakes."""
    return Generator("echo", cores.load, port=process.port, path=path, connections=connections)


def http2(process, _cores, _path, connections):
    """Connections of HTTP/2 after one answered request each, for /."""
    return Http2(process.port, connections)


def idle(process, cores, seconds, path="/", connections=20_000, opened=keepalive, memory_path=None):
    """What connections cost that have nothing to say: memory of each, CPU time of all."""
    connections = min(connections, descriptors_max() - SPARE_DESCRIPTORS)

    def engine_bytes():
        return int(process.get(memory_path)[1]) if memory_path else 0

    rss, engine = process.rss_bytes(), engine_bytes()
    with opened(process, cores, path, connections):
        time.sleep(SETTLE_S)
        numbers = {"connections": connections, "rss_each": (process.rss_bytes() - rss) / connections}
        if memory_path:
            numbers["engine_each"] = (engine_bytes() - engine) / connections
        before = process.cpu_seconds()
        time.sleep(seconds)
        numbers["idle_cpu"] = (process.cpu_seconds() - before) / seconds
        if not process.alive():
            raise CannotRun("died with the connections")
    return numbers


def dirtied(process, _cores, _seconds, interpreters):
    """What an interpreter, or a worker, has written to memory before its first request. So many were started
    last of all; one of them has answered the request by which it was seen that the server is ready."""
    time.sleep(SETTLE_S)
    each = [dirtied_bytes(pid) for pid in process.youngest(interpreters)]
    if not all(each):
        raise CannotRun("its memory cannot be read")
    return {"dirtied": min(each), "rss": process.rss_bytes()}


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
