"""The ways to measure a running server. Each takes (process, cores, seconds, ...) and returns numbers by
name.

Does not know which server it is, and how the numbers are printed.
"""

import http.client
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
TAIL_S = 1  # for the last messages to arrive
SUBSCRIBERS = 10_000
DELIVERIES_A_SECOND = 40_000  # which each server can make


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


class Publisher:
    """Posts messages to a server on one connection, as a context."""

    def __init__(self, port, path):
        self.path = path
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def publish(self, message):
        """One message; the server has taken it."""
        self.connection.request("POST", self.path, message, {"Content-Type": "text/plain"})
        answer = self.connection.getresponse()
        words = answer.read()
        if answer.status not in (200, 201, 202):
            raise CannotRun(f"takes no message: {answer.status} {words[:60]!r}")

    def publish_for(self, seconds, rate, message):
        """At a steady pace; how many."""
        begun = time.monotonic()
        count = round(seconds * rate)
        for number in range(count):
            time.sleep(max(begun + number / rate - time.monotonic(), 0))
            self.publish(message)
        time.sleep(max(begun + seconds - time.monotonic(), 0))
        return count

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()


def text_of(size):
    """Some numbers and words in JSON, as they are published."""
    text, number = "", 0
    while len(text) < size:
        number += 1
        price, word = number * 7919 % 10007 / 100, f"{number * 104729:x}"
        text += f'{{"number":{number},"price":{price},"word":"{word}"}},'
    return text[:size]


def broadcast(process, cores, seconds, kind, path, publish="/publish", size=100, **load):
    """What a server takes to deliver messages of one publisher to many subscribers, all of whom get each one;
    and the memory of subscribers that wait. `load`: options of the load generator's `kind`."""
    subscribers = min(load.pop("connections", SUBSCRIBERS), descriptors_max() - SPARE_DESCRIPTORS)
    rss = process.rss_bytes()
    load |= {"port": process.port, "path": path, "connections": subscribers, "alike": 1}
    with Generator(kind, cores.load, **load) as readers:
        time.sleep(SETTLE_S)
        each = (process.rss_bytes() - rss) / subscribers
        with Publisher(process.port, publish) as publisher:
            message = text_of(size)
            publisher.publish(message)
            time.sleep(SETTLE_S)
            before = process.cpu_seconds()
            readers.begin(seconds + TAIL_S)
            count = publisher.publish_for(seconds, DELIVERIES_A_SECOND / subscribers, message)
            result = readers.end(seconds + TAIL_S)
            cpu_s = process.cpu_seconds() - before
    if not process.alive():
        raise CannotRun("died")
    if result["fewest"] != count or result["most"] != count:
        raise CannotRun(f"{result['fewest']:.0f} to {result['most']:.0f} of {count} messages came")
    return {
        "connections": subscribers,
        "messages": count,
        "rss_each": each,
        "cpu_us": cpu_s * 1e6 / (count * subscribers),
        "load_cpu": result["cpu_seconds"] / result["seconds"],
        "compressed": result.get("compressed", 0) / (count * subscribers),
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
