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
    in_turns: bool = True  # all servers are alive, and loaded second by second
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
_UPLOADS = {"connections": 8, "body": s.UPLOAD_BYTES}

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
        " per request under full load allows one core, and latency counts from when a request was due."
        " `late` is what the load generator itself added, on the average. When it finds that it or the"
        " server's core was stopped by the machine for a quarter of a millisecond or longer (a thread that"
        " runs before all others on the server's core wakes late), responses are set aside until the server"
        " has nothing left to do.",
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
        in_turns=False,
    ),
    Scenario(
        "idle",
        "20,000 idle keep-alive connections",
        "Each has had one request answered. Fewer where the descriptor limit of a process does not allow so"
        " many.",
        (s.ZIG_BENCH, s.PAGI, s.NGINX, s.H2O),
        measure.idle,
        (
            Column("connections", "connections"),
            Column("rss_each", "RSS bytes each", spread=True),
            Column("engine_each", "of the engine, bytes each"),
            Column("idle_cpu", "CPU % of a core", ".2f", 0.01),
        ),
        by_server={"zig": {"memory_path": "/memory"}},
        in_turns=False,
        rounds_max=3,
    ),
    Scenario(
        "websocket",
        "WebSocket echo, 64 bytes of text, 64 connections",
        "Each connection sends a message when the last one has come back. `load` is the load generator's"
        " own use of its core.",
        (s.ZIG_BENCH, s.PAGI_WEBSOCKET, s.UVICORN_WEBSOCKET, s.GRANIAN, *s.MOJO_LIVE),
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
        measure.idle_websockets,
        (
            Column("connections", "connections"),
            Column("rss_each", "RSS bytes each", spread=True),
            Column("idle_cpu", "CPU % of a core", ".2f", 0.01),
        ),
        in_turns=False,
        rounds_max=3,
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


GOALS = (
    Goal("keepalive/zig", "cpu_us", 1.05, "keepalive/yardstick"),
    Goal("keepalive/uring", "cpu_us", 0.95, "keepalive/zig"),
    Goal("keepalive/pagi", "cpu_us", 1.6, "keepalive/yardstick"),
    Goal("keepalive/pagi", "cpu_us", 0.65, "keepalive/granian"),
    Goal("keepalive/pagi-log", "cpu_us", 1.03, "keepalive/pagi"),
    Goal("keepalive/pagi-thread", "cpu_us", 1.25, "keepalive/pagi"),
    Goal("keepalive/psgi", "cpu_us", 1.5, "keepalive/yardstick"),
    Goal("keepalive/psgi-process", "cpu_us", 1.85, "keepalive/yardstick"),
    Goal("pipeline/psgi", "cpu_us", 0.8, "pipeline/nginx"),
    Goal("single/zig", "cpu_us", 1.12, "single/yardstick"),
    Goal("single/pagi", "cpu_us", 1.9, "single/yardstick"),
    Goal("json/pagi", "cpu_us", 1.8, "json/yardstick"),
    Goal("upload-echo/zig", "cpu_us", 1.0, "upload-echo/fasthttp"),
    Goal("upload-echo/pagi", "cpu_us", 0.9, "upload-echo/granian"),
    Goal("upload-drop/pagi", "cpu_us", 1.5, "upload-drop/yardstick"),
    Goal("pipeline/zig", "cpu_us", 0.15, "pipeline/nginx"),
    Goal("pipeline/zig", "cpu_us", 1.0, "pipeline/may"),
    Goal("body/zig", "cpu_us", 0.95, "body/h2o"),
    Goal("body/zig", "cpu_us", 0.6, "body/nginx"),
    Goal("body/dirserver", "cpu_us", 1.0, "body/h2o"),
    Goal("http2/zig", "cpu_us", 0.6, "http2/nginx"),
    Goal("http2/zig", "cpu_us", 0.8, "http2/h2o"),
    Goal("http2/zig", "cpu_us", 0.8, "http2/nghttpd"),
    Goal("http2/pagi", "cpu_us", 1.15, "keepalive/pagi"),
    Goal("http2-body/zig", "cpu_us", 1.0, "http2-body/nginx"),
    Goal("latency/zig", "deviation_us", 1.0, "latency/nginx"),
    Goal("latency/zig", "deviation_us", 1.0, "latency/h2o"),
    Goal("latency/zig", "p999_us", 1.0, "latency/nginx"),
    Goal("latency/zig", "p999_us", 1.0, "latency/h2o"),
    Goal("idle/zig", "engine_each", 1024, unit="bytes"),
    Goal("websocket/pagi", "cpu_us", 0.33, "websocket/mojo-daemon"),
    Goal("websocket/mojo", "cpu_us", 0.5, "websocket/mojo-daemon"),
    Goal("mojolicious/mojo", "cpu_us", 0.7, "mojolicious/mojo-daemon"),
    Goal("websocket/pagi", "cpu_us", 0.8, "websocket/uvicorn"),
    # A tenth of a byte for each request: pages that are touched late, not what a request leaves behind.
    Goal("growth/pagi", "growth", 100, unit="KiB", scale=1024),
)
