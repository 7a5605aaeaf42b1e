"""The tables of the benchmark: which servers, and what is asked of them. Adding a row adds a line.

In a server's command and files, @PORT@, @WORK@ (a fresh directory), @ROOT@ and @CONNECTIONS@ are
replaced. Each server runs as it would be told to run for speed: one process for the event-driven,
one per connection for the preforking, which otherwise leave the other keep-alive connections waiting.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Server:
    name: str  # what --only takes
    title: str
    command: tuple[str, ...]
    build: tuple[str, ...] = ()  # run in the project's root before, if any
    files: tuple[str, ...] = ()  # of bench/peers, copied into @WORK@ with the replacements made
    version: tuple[str, ...] = ()  # prints a version number somewhere


@dataclass(frozen=True)
class Scenario:
    name: str
    title: str
    depth: int = 1  # requests that a connection sends at once
    path: str = "/"


SCENARIOS = (
    Scenario("keepalive", "Keep-alive, one request at a time"),
    Scenario("pipeline", "Pipelined", depth=16),
)

YARDSTICK = "yardstick"  # the server that the others are divided by

_BUILD = "@ROOT@/.peregrine/engine"
_VENV = "@ROOT@/.peregrine/bench/venv/bin"
_PERL = ("perl", "-I@ROOT@/blib/lib", "-I@ROOT@/blib/arch")


def _zig(step: str, mode: str) -> tuple[str, ...]:
    return ("sh", "-c", f'cd engine && "$PEREGRINE_ZIG" build {step} --release={mode} --prefix {_BUILD}')


SERVERS = (
    Server(YARDSTICK, "yardstick (bare epoll loop)", (f"{_BUILD}/bin/yardstick", "@PORT@"), build=_zig("bench", "fast")),
    Server("zig", "Peregrine, Zig hello", (f"{_BUILD}/bin/hello", "@PORT@"), build=_zig("examples", "safe")),
    Server(
        "pagi",
        "Peregrine, PAGI hello",
        (*_PERL, "@ROOT@/bin/pagi-server", "@ROOT@/examples/pagi/hello/app.pl")
        + ("--no-access-log", "--quiet", "--port", "@PORT@"),
        build=("script/build",),
    ),
    Server(
        "nginx",
        "nginx, `return 200`",
        ("nginx", "-p", "@WORK@", "-c", "@WORK@/nginx.conf"),
        files=("nginx.conf",),
        version=("nginx", "-v"),
    ),
    Server(
        "h2o",
        "h2o, file",
        ("h2o", "-c", "@WORK@/h2o.conf"),
        files=("h2o.conf", "hello.txt"),
        version=("h2o", "-v"),
    ),
    Server(
        "granian",
        "granian, ASGI",
        (f"{_VENV}/granian", "--interface", "asgi", "--workers", "1", "--http", "1", "--loop", "uvloop")
        + ("--log-level", "warning", "--no-access-log", "--working-dir", "@WORK@")
        + ("--host", "127.0.0.1", "--port", "@PORT@", "hello_asgi:app"),
        files=("hello_asgi.py",),
        version=(f"{_VENV}/granian", "--version"),
    ),
    Server(
        "uvicorn",
        "uvicorn (uvloop, httptools), ASGI",
        (f"{_VENV}/uvicorn", "--loop", "uvloop", "--http", "httptools", "--no-access-log")
        + ("--log-level", "warning", "--app-dir", "@WORK@")
        + ("--host", "127.0.0.1", "--port", "@PORT@", "hello_asgi:app"),
        files=("hello_asgi.py",),
        version=(f"{_VENV}/uvicorn", "--version"),
    ),
    Server(
        "mojolicious",
        "Mojolicious daemon",
        ("perl", "@WORK@/mojo.pl", "@PORT@"),
        files=("mojo.pl",),
        version=("perl", "-MMojolicious", "-e", "print Mojolicious->VERSION"),
    ),
    Server(
        "twiggy",
        "Twiggy, PSGI",
        ("twiggy", "--env", "deployment", "--listen", "127.0.0.1:@PORT@", "@WORK@/hello.psgi"),
        files=("hello.psgi",),
        version=("perl", "-MTwiggy", "-e", "print Twiggy->VERSION"),
    ),
    Server(
        "starlet",
        "Starlet, PSGI, a process per connection",
        ("plackup", "-s", "Starlet", "-E", "deployment", "--host", "127.0.0.1", "--port", "@PORT@")
        + ("--max-workers", "@CONNECTIONS@", "--max-keepalive-reqs", "1000000000")
        + ("--max-reqs-per-child", "1000000000", "--keepalive-timeout", "10", "@WORK@/hello.psgi"),
        files=("hello.psgi",),
        version=("perl", "-MStarlet", "-e", "print Starlet->VERSION"),
    ),
    Server(
        "starman",
        "Starman, PSGI, a process per connection",
        ("starman", "--env", "deployment", "--listen", "127.0.0.1:@PORT@", "--workers", "@CONNECTIONS@")
        + ("--max-requests", "1000000000", "--keepalive-timeout", "10", "@WORK@/hello.psgi"),
        files=("hello.psgi",),
        version=("perl", "-MStarman", "-e", "print Starman->VERSION"),
    ),
)
