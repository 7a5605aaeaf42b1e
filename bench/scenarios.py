"""What is asked of which servers, and what is printed of it. A row of the benchmark is SCENARIO/SERVER."""

from collections.abc import Callable
from dataclasses import dataclass, field

import measure
import servers as s


@dataclass(frozen=True)
class Column:
    """One number of a measurement in the table."""

    key: str
    head: str
    form: str = ",.0f"
    scale: float = 1
    spread: bool = False  # with the lowest and the highest of the rounds
    total: bool = False  # the rounds are summed: there is no median of errors


@dataclass(frozen=True)
class Scenario:
    name: str  # the first half of a row's name
    title: str
    text: str
    servers: tuple[s.Server, ...]
    measure: Callable
    columns: tuple[Column, ...]
    options: dict = field(default_factory=dict)  # of measure
    by_server: dict = field(default_factory=dict)  # options of one server
    in_turns: bool = True  # all servers are alive, and loaded by turns
    longer: int = 1  # how many turns' time one of them takes
    rounds_max: int | None = None


_RATE = Column("rate", "requests/s")
_P50 = Column("p50_us", "p50 ms", ".2f", 1000)
_P99 = Column("p99_us", "p99 ms", ".2f", 1000)
_ERRORS = Column("errors", "errors", total=True)
_RSS = Column("rss", "RSS MiB", ".1f", 2**20)
_CPU = Column("cpu_us", "CPU µs/request", ".2f", spread=True)
_RATIO = Column("ratio", "× yardstick", ".2f", spread=True)
_BURST = (_RATE, _P50, _P99, _ERRORS, _RSS, _CPU, _RATIO)
_UPLOAD = (_RATE, _P50, _P99, _ERRORS, _RSS, _CPU)

_MEAN = Column("mean_us", "mean ms", ".2f", 1000)
_STREAMS = {"connections": 16, "streams": 32}

_PUBLISH = (
    "40,000 deliveries a second: every subscriber gets each message, or the row has no numbers. Memory is that"
    " of a subscriber before the first message. `load` is the load generator's own use of its core."
)
_PUBLISHED = (
    Column("connections", "subscribers"),
    Column("messages", "messages"),
    Column("cpu_us", "CPU µs/delivery", ".2f", spread=True),
    Column("rss_each", "RSS bytes each", spread=True),
    Column("load_cpu", "load %", ".0f", 0.01),
)
_UPLOADS = {"connections": 8, "body": s.UPLOAD_BYTES}
_WEBSOCKETS = {"path": "/ws", "connections": 5_000, "opened": measure.websockets}
_ENGINE_TELLS = {"zig": {"memory_path": "/memory"}}
_IDLE = (
    Column("connections", "connections"),
    Column("rss_each", "RSS bytes each", spread=True),
    Column("engine_each", "of the engine, bytes each"),
    Column("idle_cpu", "CPU % of a core", ".2f", 0.01),
)


def _bodies(does, words, servers):
    """Bodies of two lengths through each placement; those of 64 KiB and less, which go through the ring, have
    no goal."""
    for length, short in ((100_000, "100k"), (1_000_000, "1m")):
        asked = {"path": f"/answer?{length}"} if does == "answer" else {"path": f"/{does}", "body": length}
        yield Scenario(
            f"{does}-{short}",
            f"PSGI: {length:,} bytes {words}, 2 connections",
            "The same application with the engine in its loop, on a thread and in a process.",
            servers,
            measure.burst,
            _UPLOAD,
            {"connections": 2, **asked},
        )


SCENARIOS = (
    Scenario(
        "keepalive",
        "Hello, 64 keep-alive connections",
        "Each connection sends a request when the last one is answered.",
        s.HELLOS,
        measure.burst,
        _BURST,
    ),
    Scenario(
        "single",
        "Hello, one connection",
        "With one request at a time, a server cannot share its work between several requests.",
        s.HELLOS_ALONE,
        measure.burst,
        _BURST,
        {"connections": 1},
    ),
    Scenario(
        "tls",
        "Hello over TLS, 64 keep-alive connections",
        "TLS 1.3 with the cipher that wrk prefers, a key of P-256. The yardstick speaks plain HTTP here as"
        " well. Turns of a second, as each begins with 64 handshakes, some hundredths of the figures.",
        s.HELLOS_TLS,
        measure.burst,
        _BURST,
        longer=2,
    ),
    Scenario(
        "json",
        "JSON, 64 connections, requests with 15 header fields",
        "An object of one string, encoded for each request; a browser's header fields. The yardstick says"
        " its constant hello.",
        s.JSONS,
        measure.burst,
        _BURST,
        {"headers": "browser"},
    ),
    Scenario(
        "upload-echo",
        "A request body of 1 MB, echoed, 8 connections",
        "The body is read to its end, then sent back.",
        s.ECHOES,
        measure.burst,
        _UPLOAD,
        _UPLOADS,
    ),
    Scenario(
        "upload-drop",
        "A request body of 1 MB, dropped, 8 connections",
        "The body is read to its end. The yardstick reads it, too, and counts its bytes.",
        s.DROPS,
        measure.burst,
        (*_UPLOAD, _RATIO),
        _UPLOADS,
    ),
    *_bodies("drop", "in requests, dropped", (*s.BODIES, s.BODIES_STARLET)),
    *_bodies("echo", "in requests, echoed", s.BODIES),
    *_bodies("answer", "in responses, from a string that is there", s.BODIES),
    Scenario(
        "pipeline",
        "Hello, 64 connections, pipelined by 16",
        "Each connection sends 16 requests at once. No latencies: wrk does not measure those of pipelined"
        " requests.",
        s.HELLOS,
        measure.burst,
        (_RATE, _ERRORS, _RSS, _CPU, _RATIO),
        {"depth": 16},
    ),
    Scenario(
        "body",
        f"A body of {s.BODY_BYTES:,} bytes, 1,000 connections",
        "The yardstick answers with its 14 bytes here as well.",
        (s.YARDSTICK, s.ZIG_BODY, s.DIRSERVER, s.NGINX_BODY, s.H2O_BODY),
        measure.burst,
        _BURST,
        {"connections": 1000},
    ),
    Scenario(
        "http2",
        "Hello over HTTP/2, 16 connections of 32 streams each",
        "In the clear, by prior knowledge; h2load asks.",
        s.HELLOS_HTTP2,
        measure.streams,
        (_RATE, _MEAN, _ERRORS, _RSS, _CPU),
        _STREAMS,
    ),
    Scenario(
        "http2-body",
        "A body of 1 MiB over HTTP/2, 16 connections of 32 streams each",
        "In the clear, by prior knowledge; 1,024 requests in each turn, so that none is under way at its end.",
        s.MIBS_HTTP2,
        measure.streams,
        (_RATE, _MEAN, _ERRORS, _RSS, _CPU),
        {**_STREAMS, "requests": 1024},
    ),
    Scenario(
        "latency",
        "Hello, 64 connections, latency at 70 % load",
        "An open loop: requests are due at random times, at 70 % of the rate that each server's CPU time"
        " per request under full load, measured just before, allows one core, and latency counts from when a"
        " request was due. `late` is what the load generator itself added, on the average. When it finds that"
        " it or the server's core was stopped by the machine for a quarter of a millisecond or longer (a thread"
        " that runs before all others on the server's core wakes late), responses are set aside until the"
        " server has nothing left to do. A turn in which that is more than a quarter of them does not count.",
        (s.ZIG, s.NGINX, s.H2O),
        measure.latency,
        (
            _RATE,
            Column("server_load", "server's core %", ".0f", 0.01),
            Column("mean_us", "mean µs", ".0f"),
            Column("deviation_us", "standard deviation µs", ".0f", spread=True),
            Column("p50_us", "p50 µs", ".0f"),
            Column("p99_us", "p99 µs", ".0f"),
            Column("p999_us", "p99.9 µs", ".0f", spread=True),
            Column("late_us", "late µs", ".1f"),
            Column("aside_permille", "set aside %", ".1f", 10),
            _ERRORS,
        ),
    ),
    Scenario(
        "idle",
        "20,000 idle keep-alive connections",
        "Each has had one request answered. Fewer where the descriptor limit of a process does not allow so"
        " many.",
        s.IDLE,
        measure.idle,
        _IDLE,
        by_server=_ENGINE_TELLS,
        in_turns=False,
        rounds_max=2,
    ),
    Scenario(
        "idle-http2",
        "5,000 idle connections of HTTP/2",
        "In the clear, by prior knowledge; each has had one request answered, which left nothing in the table of"
        " header fields that a server keeps for a connection.",
        s.IDLE_HTTP2,
        measure.idle,
        _IDLE,
        {"connections": 5_000, "opened": measure.http2},
        by_server=_ENGINE_TELLS,
        in_turns=False,
        rounds_max=2,
    ),
    Scenario(
        "idle-websocket",
        "5,000 idle WebSockets",
        "Each has had its handshake, and nothing else. An echo that waits for its next message.",
        s.WEBSOCKETS_IDLE,
        measure.idle,
        _IDLE,
        _WEBSOCKETS,
        by_server=_ENGINE_TELLS,
        in_turns=False,
        rounds_max=2,
    ),
    Scenario(
        "begun",
        "An interpreter before its first request",
        "Memory that a forked interpreter, or a worker of Starman, has written to since it was forked"
        " (Private_Dirty); RSS is that of all processes of the server, two interpreters among them.",
        s.BEGUN,
        measure.dirtied,
        (Column("dirtied", "written to, KiB", ",.0f", 1024, spread=True), _RSS),
        {"interpreters": s.STARTED},
        in_turns=False,
        rounds_max=2,
    ),
    Scenario(
        "websocket",
        "WebSocket echo, 64 bytes of text, 64 connections",
        "Each connection sends a message when the last one has come back. `load` is the load generator's"
        " own use of its core.",
        s.WEBSOCKETS,
        measure.echo,
        (
            Column("rate", "messages/s"),
            _P50,
            _P99,
            _ERRORS,
            _RSS,
            Column("cpu_us", "CPU µs/message", ".2f", spread=True),
            Column("load_cpu", "load %", ".0f", 0.01),
        ),
    ),
    Scenario(
        "publish-websocket",
        "One publisher, 10,000 WebSockets, messages of 100 bytes",
        _PUBLISH,
        s.PUBLISHERS,
        measure.broadcast,
        _PUBLISHED,
        {"kind": "listen", "path": "/ws"},
        by_server={"socket.io": {"path": "/socket.io/?EIO=4&transport=websocket", "says": "40"}},
        in_turns=False,
        rounds_max=3,
    ),
    Scenario(
        "publish-deflated",
        "One publisher, 10,000 WebSockets that take compressed messages, 4,000 bytes of JSON",
        _PUBLISH,
        s.PUBLISHERS_TO_EVENTS,
        measure.broadcast,
        (*_PUBLISHED, Column("compressed", "compressed %", ".0f", 0.01)),
        {"kind": "listen", "path": "/ws", "offer": "deflate", "size": 4000},
        by_server={"nchan": {"publish": "/publish-deflated"}},
        in_turns=False,
        rounds_max=3,
    ),
    Scenario(
        "publish-events",
        "One publisher, 10,000 event streams, messages of 100 bytes",
        _PUBLISH,
        s.PUBLISHERS_TO_EVENTS,
        measure.broadcast,
        _PUBLISHED,
        {"kind": "subscribe", "path": "/events"},
        in_turns=False,
        rounds_max=3,
    ),
    Scenario(
        "mojolicious",
        "Mojolicious::Lite: hello, 64 keep-alive connections",
        "`render(text => ...)`, by this server natively and by PSGI, and by Mojolicious' own.",
        s.MOJO_HELLOS,
        measure.burst,
        _UPLOAD,
    ),
    Scenario(
        "mojolicious-json",
        "Mojolicious::Lite: JSON, 64 connections, requests with 15 header fields",
        "`render(json => ...)` of an object of one string; a browser's header fields.",
        s.MOJO_JSONS,
        measure.burst,
        _UPLOAD,
        {"headers": "browser"},
    ),
    Scenario(
        "mojolicious-template",
        "Mojolicious::Lite: a template in a layout, 64 connections, requests with 15 header fields",
        "Ten lines of a table are rendered; a browser's header fields.",
        s.MOJO_TEMPLATES,
        measure.burst,
        _UPLOAD,
        {"headers": "browser"},
    ),
    Scenario(
        "mojolicious-idle",
        "Mojolicious::Lite: 5,000 idle WebSockets",
        "Each has its action's subscription to messages.",
        s.MOJO_LIVE,
        measure.idle,
        tuple(column for column in _IDLE if column.key != "engine_each"),
        _WEBSOCKETS,
        in_turns=False,
        rounds_max=2,
    ),
    Scenario(
        "growth",
        "Memory after a million requests",
        "Hello, 64 keep-alive connections; the first figure is taken after 100,000 requests.",
        (s.ZIG, s.PAGI),
        measure.growth,
        (
            Column("requests", "requests"),
            Column("rss_early", "RSS KiB early", ",.0f", 1024),
            Column("rss_late", "RSS KiB late", ",.0f", 1024),
            Column("growth", "growth KiB", ",.0f", 1024),
        ),
        in_turns=False,
        rounds_max=1,
    ),
)


@dataclass(frozen=True)
class Goal:
    """A row's number, to another row's number of the same round if there is one, has to be at most so
    much."""

    row: str
    key: str
    most: float
    to: str | None = None
    unit: str = "×"
    scale: float = 1


def _placed_goals():
    """What a body of a PSGI application may cost through a thread or a process."""
    for length in ("100k", "1m"):
        for server in ("psgi-thread", "psgi-process"):
            for does in ("drop", "echo", "answer"):
                yield Goal(f"{does}-{length}/{server}", "cpu_us", 1.4, f"{does}-{length}/psgi")
            yield Goal(f"drop-{length}/{server}", "cpu_us", 0.8, f"drop-{length}/starlet")


GOALS = (
    Goal("keepalive/zig", "cpu_us", 1.05, "keepalive/yardstick"),
    Goal("keepalive/uring", "cpu_us", 0.95, "keepalive/zig"),
    Goal("keepalive/pagi", "cpu_us", 1.35, "keepalive/yardstick"),
    Goal("keepalive/pagi", "cpu_us", 0.65, "keepalive/granian"),
    Goal("keepalive/pagi-log", "cpu_us", 1.03, "keepalive/pagi"),
    Goal("keepalive/pagi-thread", "cpu_us", 1.25, "keepalive/pagi"),
    Goal("keepalive/psgi", "cpu_us", 1.5, "keepalive/yardstick"),
    Goal("keepalive/psgi-process", "cpu_us", 1.85, "keepalive/yardstick"),
    Goal("single/zig", "cpu_us", 1.12, "single/yardstick"),
    Goal("single/pagi", "cpu_us", 1.6, "single/yardstick"),
    Goal("single/pagi-thread", "cpu_us", 2.3, "single/yardstick"),
    Goal("single/pagi-process", "cpu_us", 2.3, "single/yardstick"),
    Goal("single/psgi-process", "cpu_us", 2.3, "single/yardstick"),
    Goal("tls/zig", "cpu_us", 1.0, "tls/uws"),
    Goal("json/pagi", "cpu_us", 1.8, "json/yardstick"),
    Goal("upload-echo/zig", "cpu_us", 1.0, "upload-echo/fasthttp"),
    Goal("upload-echo/pagi", "cpu_us", 0.9, "upload-echo/granian"),
    Goal("upload-drop/pagi", "cpu_us", 1.5, "upload-drop/yardstick"),
    *_placed_goals(),
    Goal("pipeline/psgi", "cpu_us", 0.8, "pipeline/nginx"),
    Goal("pipeline/zig", "cpu_us", 0.15, "pipeline/nginx"),
    Goal("pipeline/zig", "cpu_us", 1.0, "pipeline/may"),
    Goal("pipeline/pagi-thread", "cpu_us", 8.0, "pipeline/yardstick"),
    Goal("pipeline/psgi-process", "cpu_us", 8.0, "pipeline/yardstick"),
    Goal("body/zig", "cpu_us", 0.95, "body/h2o"),
    Goal("body/zig", "cpu_us", 0.6, "body/nginx"),
    Goal("body/dirserver", "cpu_us", 1.0, "body/h2o"),
    Goal("http2/zig", "cpu_us", 0.6, "http2/nginx"),
    Goal("http2/zig", "cpu_us", 0.8, "http2/h2o"),
    Goal("http2/zig", "cpu_us", 0.8, "http2/nghttpd"),
    Goal("http2/pagi", "cpu_us", 1.15, "keepalive/pagi"),
    Goal("http2-body/zig", "cpu_us", 1.0, "http2-body/nginx"),
    Goal("http2-body/pagi", "cpu_us", 1.0, "http2-body/h2o"),
    Goal("latency/zig", "deviation_us", 1.0, "latency/nginx"),
    Goal("latency/zig", "deviation_us", 1.0, "latency/h2o"),
    Goal("latency/zig", "p999_us", 1.0, "latency/nginx"),
    Goal("latency/zig", "p999_us", 1.0, "latency/h2o"),
    Goal("idle/zig", "engine_each", 400, unit="bytes"),
    Goal("idle/pagi", "rss_each", 400, unit="bytes"),
    Goal("idle-http2/zig", "engine_each", 1700, unit="bytes"),
    Goal("idle-http2/pagi", "rss_each", 1700, unit="bytes"),
    Goal("idle-websocket/pagi", "rss_each", 4000, unit="bytes"),
    Goal("begun/pagi-process", "dirtied", 1536, unit="KiB", scale=1024),
    Goal("begun/psgi-process", "dirtied", 1536, unit="KiB", scale=1024),
    Goal("websocket/zig", "cpu_us", 1.0, "websocket/uws"),
    Goal("websocket/pagi", "cpu_us", 1.6, "websocket/uws"),
    Goal("websocket/pagi", "cpu_us", 0.33, "websocket/mojo-daemon"),
    Goal("websocket/mojo", "cpu_us", 0.5, "websocket/mojo-daemon"),
    Goal("mojolicious/mojo", "cpu_us", 0.7, "mojolicious/mojo-daemon"),
    Goal("websocket/pagi", "cpu_us", 0.8, "websocket/uvicorn"),
    Goal("publish-websocket/topics", "cpu_us", 0.8, "publish-websocket/nchan"),
    Goal("publish-websocket/topics", "cpu_us", 0.8, "publish-websocket/bun"),
    Goal("publish-websocket/topics", "cpu_us", 0.8, "publish-websocket/socket.io"),
    Goal("publish-websocket/topics", "rss_each", 1.0, "publish-websocket/nchan"),
    Goal("publish-deflated/topics", "cpu_us", 0.8, "publish-deflated/nchan"),
    Goal("publish-events/topics", "cpu_us", 0.8, "publish-events/nchan"),
    Goal("publish-events/topics", "rss_each", 1.0, "publish-events/nchan"),
    # A tenth of a byte for each request: pages that are touched late, not what a request leaves behind.
    Goal("growth/pagi", "growth", 100, unit="KiB", scale=1024),
)
# Rows that ratios are made of: each needs every turn.
COMPARED = {row for goal in GOALS for row in (goal.row, goal.to)}
COMPARED |= {f"{scenario.name}/{anchor.name}" for scenario in SCENARIOS for anchor in (s.YARDSTICK, s.UWS)}
