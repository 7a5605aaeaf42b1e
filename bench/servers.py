"""The servers of the benchmark: how each is started. Adding one adds an entry here and its name to
scenarios.py.

In commands and files, @PORT@, @WORK@ (a fresh directory), @STATE@ and @ROOT@ are replaced. Each server runs
as it would be told to run for speed: one process for the event-driven, one per connection for the preforking,
which otherwise leave the other keep-alive connections waiting.
"""

from dataclasses import dataclass, replace

from programs import zig

PREFORKED = 64  # processes: one for each connection of the keep-alive scenario
BODY_BYTES = 6150  # of the larger body, which bench/peers/peregrine.zig knows as well
MIB = 2**20  # bytes of the largest, which it knows, too


@dataclass(frozen=True)
class Server:
    name: str  # the second half of a row's name
    title: str
    command: tuple[str, ...]
    build: tuple[str, ...] = ()  # run in the project's root before, if any
    files: tuple[str, ...] = ()  # of bench/peers, copied into @WORK@ with the replacements made
    version: tuple[str, ...] = ()  # prints a version number somewhere
    path: str = "/"  # answers when the server is ready...
    proof: bytes | None = b"ello"  # ...with this in its body; None: with anything
    http2: bool = False  # that GET is made by HTTP/2 in the clear: it may speak nothing else
    tls: bool = False  # its port speaks TLS, with tls.pem and tls.key in @WORK@


_VENV = "@STATE@/venv/bin"
_PERL = ("perl", "-I@ROOT@/blib/lib", "-I@ROOT@/blib/arch", "@ROOT@/bin/pagi-server", "--quiet")
PAGI_COMMAND = (*_PERL, "--no-access-log")  # before where it listens and the application
_BODY = b"x" * BODY_BYTES

YARDSTICK = Server(
    "yardstick",
    "yardstick (bare epoll loop)",
    ("@STATE@/bin/yardstick", "@PORT@"),
    build=zig("engine", "bench-yardstick", "--release=fast"),
)
# The kernel's share of a server whose application is elsewhere: the floor of our placements.
HOP_PROCESS = replace(
    YARDSTICK,
    name="hop-process",
    title="yardstick with a hop to a process",
    command=("@STATE@/bin/hop", "@PORT@", "process", "counters"),
    build=zig("engine", "bench-hop", "--release=fast"),
)
HOP_THREAD = replace(
    HOP_PROCESS,
    name="hop-thread",
    title="yardstick with a hop to a thread",
    command=(*HOP_PROCESS.command[:-2], "thread", "counters"),
)
HOP_SOCKETS = replace(
    HOP_PROCESS,
    name="hop-sockets",
    title="yardstick with a hop to a process, by sockets",
    command=(*HOP_PROCESS.command[:-1], "sockets"),
)
ZIG = Server(
    "zig",
    "Peregrine, Zig handler",
    ("@STATE@/bin/hello", "@PORT@"),
    build=zig("engine", "example-hello", "--release=safe"),
)
ZIG_UNCHECKED = replace(
    ZIG,
    name="zig-unchecked",
    title="Peregrine, Zig handler, built with -Dunchecked",
    command=("@STATE@/unchecked/bin/hello", "@PORT@"),
    build=zig("engine", "example-hello", "--release=safe -Dunchecked", "@STATE@/unchecked"),
)
URING = replace(
    ZIG,
    name="uring",
    title="Peregrine, Zig handler, io_uring",
    command=("@STATE@/bin/hello", "@PORT@", "1", "uring"),
)
ZIG_BENCH = replace(ZIG, command=("@STATE@/bin/peregrine", "@PORT@"), build=zig("bench", "peregrine"))
ZIG_BODY = replace(ZIG_BENCH, path="/body", proof=_BODY)
DIRSERVER = Server(
    "dirserver",
    "Peregrine, DirServer",
    ("@STATE@/bin/dirserver", "@WORK@", "@PORT@", "1"),
    build=zig("engine", "example-dirserver", "--release=safe"),
    files=("body.txt",),
    path="/body.txt",
    proof=_BODY,
)
PAGI = Server(
    "pagi",
    "Peregrine, PAGI application",
    (*PAGI_COMMAND, "--port", "@PORT@", "@ROOT@/examples/pagi/hello/app.pl"),
    build=("script/build",),
)
PAGI_LOG = replace(
    PAGI,
    name="pagi-log",
    title="Peregrine, PAGI application, access log",
    command=(
        *_PERL,
        "--access-log",
        "@WORK@/access.log",
        "--port",
        "@PORT@",
        "@ROOT@/examples/pagi/hello/app.pl",
    ),
)


def _on_thread(server):
    """The same server of ours whose engine is on a thread of its own."""
    return _placed(server, "thread", "engine on a thread", "--engine", "thread")


def _in_process(server, interpreters=1, more=()):
    """The same with the engine in a process, and so many interpreters."""
    workers = ("--workers", str(interpreters), *more)
    return _placed(server, "process", "engine in a process", "--engine", "process", *workers)


def _placed(server, name, words, *arguments):
    return replace(
        server,
        name=f"{server.name}-{name}",
        title=f"{server.title}, {words}",
        command=(*server.command[:-1], *arguments, server.command[-1]),
    )


PAGI_THREAD = _on_thread(PAGI)
PAGI_PROCESS = _in_process(PAGI)
PSGI = Server(
    "psgi",
    "Peregrine, PSGI application",
    (
        *("perl", "-I@ROOT@/blib/lib", "-I@ROOT@/blib/arch", "-S", "plackup", "-s", "Peregrine"),
        *("-E", "production", "--quiet", "1", "--listen", "127.0.0.1:@PORT@"),
        "@ROOT@/examples/psgi/hello/app.psgi",
    ),
    build=("script/build",),
)
PSGI_PROCESS = _in_process(PSGI)
# Handlers that block, in a process of their own: an application that is such a handler, and a handler behind
# an asynchronous application.
SYNC = replace(
    PAGI,
    name="sync",
    title="Peregrine, PAGI, sync",
    command=(*PAGI_COMMAND, "--engine", "process", "--workers", "1", "--sync-workers", "1")
    + ("--port", "@PORT@", "@ROOT@/bench/pool/sync_whole.pl"),
)
SYNC_HANDLER = replace(
    SYNC,
    name="sync-handler",
    title="Peregrine, PAGI, sync behind an application",
    command=(*SYNC.command[:-1], "@ROOT@/bench/pool/sync.pl"),
)
PAGI_WEBSOCKET = replace(
    PAGI,
    command=(*PAGI_COMMAND, "--port", "@PORT@", "@WORK@/echo.pagi.pl"),
    files=("echo.pagi.pl",),
    proof=None,
)
NGINX = Server(
    "nginx",
    "nginx, `return 200`",
    ("nginx", "-p", "@WORK@", "-c", "@WORK@/nginx.conf"),
    files=("nginx.conf", "body.txt"),
    version=("nginx", "-v"),
)
NGINX_BODY = replace(NGINX, title="nginx, file", path="/body.txt", proof=_BODY)
H2O = Server(
    "h2o",
    "h2o, file",
    ("h2o", "-c", "@WORK@/h2o.conf"),
    files=("h2o.conf", "hello.txt", "body.txt"),
    version=("h2o", "-v"),
)
H2O_BODY = replace(H2O, path="/body.txt", proof=_BODY)
GRANIAN = Server(
    "granian",
    "granian, ASGI",
    (f"{_VENV}/granian", "--interface", "asgi", "--workers", "1", "--http", "1", "--loop", "uvloop")
    + ("--log-level", "warning", "--no-access-log", "--working-dir", "@WORK@")
    + ("--host", "127.0.0.1", "--port", "@PORT@", "hello_asgi:app"),
    files=("hello_asgi.py",),
    version=(f"{_VENV}/granian", "--version"),
)
UVICORN = Server(
    "uvicorn",
    "uvicorn (uvloop, httptools), ASGI",
    (f"{_VENV}/uvicorn", "--loop", "uvloop", "--http", "httptools", "--ws", "websockets", "--no-access-log")
    + ("--log-level", "warning", "--app-dir", "@WORK@")
    + ("--host", "127.0.0.1", "--port", "@PORT@", "hello_asgi:app"),
    files=("hello_asgi.py",),
    version=(f"{_VENV}/uvicorn", "--version"),
)
UVICORN_WEBSOCKET = replace(UVICORN, title="uvicorn (uvloop, websockets), ASGI")
MOJOLICIOUS = Server(
    "mojolicious",
    "Mojolicious daemon",
    ("perl", "@WORK@/mojo.pl", "@PORT@"),
    files=("mojo.pl",),
    version=("perl", "-MMojolicious", "-e", "print Mojolicious->VERSION"),
)

# Mojolicious::Lite by each server in production mode. The servers of Mojolicious end a connection after 100
# requests, and a worker after 10,000 connections, unless options say otherwise.
_LITE = "@WORK@/mojo_lite.pl"
_MANY = "1000000000"
_LITE_OURS = (*("perl", "-I@ROOT@/blib/lib", "-I@ROOT@/blib/arch", "@ROOT@/bin/peregrine", "--quiet"),) + (
    *("--no-access-log", "-E", "production", "--listen", "127.0.0.1:@PORT@"),
)
_LITE_THEIRS = ("-m", "production", "-l", "http://127.0.0.1:@PORT@", "-r", _MANY, "-c", "30000")
MOJO = Server(
    "mojo",
    "Peregrine, Mojolicious::Lite",
    (*_LITE_OURS, _LITE),
    build=("script/build",),
    files=("mojo_lite.pl",),
)
MOJO_PROCESS = _in_process(MOJO)
MOJO_PSGI = replace(
    MOJO,
    name="mojo-psgi",
    title="Peregrine, Mojolicious::Lite by PSGI",
    command=(*_LITE_OURS, "--mount", f"/={_LITE},psgi"),
)
MOJO_DAEMON = replace(
    MOJO,
    name="mojo-daemon",
    title="Mojolicious::Lite, daemon",
    command=("perl", _LITE, "daemon", *_LITE_THEIRS),
    build=(),
    version=MOJOLICIOUS.version,
)
MOJO_PREFORK = replace(
    MOJO_DAEMON,
    name="mojo-prefork",
    title="Mojolicious::Lite, prefork of one",
    command=("perl", _LITE, "prefork", *_LITE_THEIRS, "-w", "1", "-a", _MANY),
)
MOJO_LIVE = (MOJO, MOJO_PROCESS, MOJO_DAEMON, MOJO_PREFORK)
TWIGGY = Server(
    "twiggy",
    "Twiggy, PSGI",
    ("twiggy", "--env", "deployment", "--listen", "127.0.0.1:@PORT@", "@WORK@/hello.psgi"),
    files=("hello.psgi",),
    version=("perl", "-MTwiggy", "-e", "print Twiggy->VERSION"),
)
STARLET = Server(
    "starlet",
    "Starlet, PSGI, a process per connection",
    ("plackup", "-s", "Starlet", "-E", "deployment", "--host", "127.0.0.1", "--port", "@PORT@")
    + ("--max-workers", str(PREFORKED), "--max-keepalive-reqs", "1000000000")
    + ("--max-reqs-per-child", "1000000000", "--keepalive-timeout", "10", "@WORK@/hello.psgi"),
    files=("hello.psgi",),
    version=("perl", "-MStarlet", "-e", "print Starlet->VERSION"),
)


def _starman(title, workers, more=()):
    return Server(
        "starman",
        title,
        ("starman", "--env", "deployment", "--listen", "127.0.0.1:@PORT@", "--workers", str(workers))
        + ("--max-requests", "1000000000", "--keepalive-timeout", "10", *more, "@WORK@/hello.psgi"),
        files=("hello.psgi",),
        version=("perl", "-MStarman", "-e", "print Starman->VERSION"),
    )


STARMAN = _starman("Starman, PSGI, a process per connection", PREFORKED)
UPLOAD_BYTES = 1_000_000


def _asked_for(server, path, proof):
    """The same server asked for another page."""
    return replace(server, path=path, proof=proof)


# Peers that script/bench --install builds or fetches into @STATE@.
HYPER = Server("hyper", "hyper with tokio (Rust)", ("@STATE@/rust/hyper", "@PORT@"))
MAY = Server("may", "may_minihttp (Rust)", ("@STATE@/rust/may", "@PORT@"))
NTEX = Server("ntex", "ntex (Rust)", ("@STATE@/rust/ntex", "@PORT@"))
FASTHTTP = Server("fasthttp", "fasthttp (Go)", ("@STATE@/go/fasthttp", "@PORT@"))
BUN = Server(
    "bun",
    "Bun (JavaScript)",
    ("@STATE@/npm/node_modules/.bin/bun", "@WORK@/bun.js", "@PORT@"),
    files=("bun.js",),
    version=("@STATE@/npm/node_modules/.bin/bun", "--version"),
)
UWS = Server("uws", "uWebSockets (C++)", ("@STATE@/uws/uws", "@PORT@"))
_FETCHED = (HYPER, MAY, NTEX, FASTHTTP, BUN, UWS)

PAGI_REQUESTS = replace(
    PAGI,
    command=(*PAGI_COMMAND, "--port", "@PORT@", "@WORK@/requests.pagi.pl"),
    files=("requests.pagi.pl",),
)
_WITH_PAGES = (ZIG_BENCH, PAGI_REQUESTS, HYPER, NTEX, FASTHTTP, BUN, GRANIAN, UVICORN)
JSONS = (YARDSTICK, *(_asked_for(server, "/json", b"ello") for server in (*_WITH_PAGES, MAY)))
# Without a body there is nothing to echo.
ECHOES = tuple(_asked_for(server, "/echo", None) for server in _WITH_PAGES)
DROPS = (
    replace(YARDSTICK, command=(*YARDSTICK.command, str(UPLOAD_BYTES)), proof=None),
    *(_asked_for(server, "/drop", b"ello") for server in _WITH_PAGES),
)
_OURS = (ZIG, ZIG_UNCHECKED, URING, PAGI, PAGI_LOG, PAGI_THREAD, PSGI, PSGI_PROCESS)
HELLOS = (
    *(YARDSTICK, *_OURS, NGINX, H2O, *_FETCHED),
    *(GRANIAN, UVICORN, MOJOLICIOUS, TWIGGY, STARLET, STARMAN),
)
HELLOS_ALONE = (
    *(YARDSTICK, HOP_PROCESS, HOP_THREAD, HOP_SOCKETS),
    *(ZIG, PAGI, PAGI_THREAD, PAGI_PROCESS, PSGI, PSGI_PROCESS),
    *(NGINX, H2O, *_FETCHED, GRANIAN, UVICORN),
)

# Hello over TLS.
_FILES = ("@WORK@/tls.pem", "@WORK@/tls.key")
_SSL = ("--ssl-cert", _FILES[0], "--ssl-key", _FILES[1])


def _over_tls(server, command, **changes):
    return replace(server, command=command, tls=True, **changes)


HELLOS_TLS = (
    YARDSTICK,
    _over_tls(ZIG, (*ZIG.command, "1", *_FILES)),
    _over_tls(PAGI, (*PAGI.command[:-1], *_SSL, PAGI.command[-1])),
    _over_tls(PSGI, (*PSGI.command[:-1], *_SSL, PSGI.command[-1])),
    _over_tls(HYPER, (*HYPER.command, *_FILES), title="hyper with tokio and rustls (Rust)"),
    _over_tls(
        NGINX, ("nginx", "-p", "@WORK@", "-c", "@WORK@/nginx_tls.conf"), files=("nginx_tls.conf",)
    ),
    _over_tls(UWS, (*UWS.command, *_FILES)),
)

# Bodies through each placement; no more connections than keep an interpreter busy.
_BODIES = replace(PSGI, command=(*PSGI.command[:-1], "@ROOT@/bench/bodies/app.psgi"))
BODIES = (_BODIES, _on_thread(_BODIES), _in_process(_BODIES))
BODIES_STARLET = replace(
    STARLET, command=(*STARLET.command[:-1], "@ROOT@/bench/bodies/app.psgi"), files=()
)

_MOJO_ALL = (MOJO, MOJO_PROCESS, MOJO_PSGI, MOJO_DAEMON, MOJO_PREFORK)
MOJO_HELLOS = _MOJO_ALL
MOJO_JSONS = tuple(_asked_for(server, "/json", b"ello") for server in _MOJO_ALL)
MOJO_TEMPLATES = tuple(_asked_for(server, "/template", b"ello") for server in _MOJO_ALL)

# Servers with channels, which a hello does not use.
PAGI_CHANNELS = replace(
    PAGI,
    title=f"{PAGI.title}, with --channels",
    command=(*PAGI.command[:-1], "--channels", PAGI.command[-1]),
)
PSGI_PROCESS_CHANNELS = replace(
    PSGI_PROCESS,
    title=f"{PSGI_PROCESS.title}, with --channels",
    command=(*PSGI_PROCESS.command, "--channels"),
)

# One publisher: the engine delivers with a process of its own, with `inline` an interpreter does.
TOPICS = replace(
    PAGI,
    name="topics",
    title="Peregrine, topics, engine in a process",
    command=(*PAGI_COMMAND, "--engine", "process", "--workers", "1", "--channels")
    + ("--port", "@PORT@", "@WORK@/topics.pagi.pl"),
    files=("topics.pagi.pl",),
)
TOPICS_INLINE = replace(
    TOPICS,
    name="topics-inline",
    title="Peregrine, topics, engine inline",
    command=(*PAGI_COMMAND, "--channels", "--port", "@PORT@", "@WORK@/topics.pagi.pl"),
)
# An application of PSGI whose event streams the engine holds.
HELD = replace(
    PSGI_PROCESS,
    name="held",
    title="Peregrine, held responses of PSGI",
    command=(*PSGI_PROCESS.command[:-1], "--channels=1", "--grip=app.", "@WORK@/held.psgi"),
    files=("held.psgi",),
)
NCHAN = replace(
    NGINX,
    name="nchan",
    title="nginx with nchan",
    command=("nginx", "-p", "@WORK@", "-c", "@WORK@/nchan.conf"),
    files=("nchan.conf",),
)
BUN_TOPICS = replace(
    BUN,
    command=("@STATE@/npm/node_modules/.bin/bun", "@WORK@/bun_topics.js", "@PORT@"),
    files=("bun_topics.js",),
)
SOCKET_IO = Server(
    "socket.io",
    "Socket.IO (Node)",
    ("node", "@WORK@/socketio.js", "@STATE@/npm/node_modules", "@PORT@"),
    files=("socketio.js",),
    version=("node", "-p", "require('@STATE@/npm/node_modules/socket.io/package.json').version"),
)
# @REDIS@ is the address of a redis-server that machines share.
NCHAN_REDIS = replace(
    NCHAN,
    command=("nginx", "-p", "@WORK@", "-c", "@WORK@/nchan_redis.conf"),
    files=("nchan_redis.conf",),
)
SOCKET_IO_REDIS = replace(SOCKET_IO, command=(*SOCKET_IO.command, "redis://@REDIS@:6379"))
PUBLISHERS_TO_EVENTS = (TOPICS, TOPICS_INLINE, NCHAN)
PUBLISHERS = (*PUBLISHERS_TO_EVENTS, BUN_TOPICS, SOCKET_IO)

# HTTP/2 in the clear, by prior knowledge.
_ZIG_HTTP2 = replace(ZIG, http2=True)
_PAGI_HTTP2 = replace(
    PAGI,
    command=(*PAGI_COMMAND, "--http2", "--port", "@PORT@", "@ROOT@/examples/pagi/hello/app.pl"),
    http2=True,
)
_NGINX_HTTP2 = replace(
    NGINX,
    command=("nginx", "-p", "@WORK@", "-c", "@WORK@/nginx_http2.conf"),
    files=("nginx_http2.conf", "mib.txt"),
    http2=True,
)
_H2O_HTTP2 = replace(H2O, files=("h2o.conf", "hello.txt", "mib.txt"), http2=True)
_NGHTTPD = Server(
    "nghttpd",
    "nghttpd, file",
    ("nghttpd", "--no-tls", "-n1", "-a", "127.0.0.1", "-d", "@WORK@", "@PORT@"),
    files=("hello.txt", "mib.txt"),
    version=("nghttpd", "--version"),
    path="/hello.txt",
    http2=True,
)
HELLOS_HTTP2 = (_ZIG_HTTP2, _PAGI_HTTP2, _NGINX_HTTP2, _H2O_HTTP2, _NGHTTPD)
_MIB = {"path": "/mib.txt", "proof": b"x" * MIB}
_PAGI_MIB = replace(
    PAGI,
    command=(*PAGI_COMMAND, "--http2", "--port", "@PORT@", "@WORK@/requests.pagi.pl"),
    files=("requests.pagi.pl",),
    http2=True,
    **_MIB,
)
_PSGI_MIB = replace(
    PSGI,
    command=(*PSGI.command[:-1], "--http2=1", "@WORK@/mib.psgi"),
    files=("mib.psgi",),
    http2=True,
    **_MIB,
)
MIBS_HTTP2 = (
    replace(ZIG_BENCH, title="Peregrine, Zig handler, a shared body", http2=True, **_MIB),
    *(_PAGI_MIB, _in_process(_PAGI_MIB), _PSGI_MIB, _in_process(_PSGI_MIB)),
    replace(_NGINX_HTTP2, title="nginx, file", **_MIB),
    *(replace(server, **_MIB) for server in (_H2O_HTTP2, _NGHTTPD)),
)

# Memory.
IDLE = (ZIG_BENCH, PAGI, NGINX, H2O, UWS)
IDLE_HTTP2 = (ZIG_BENCH, _PAGI_HTTP2, _NGINX_HTTP2, _H2O_HTTP2)
STARTED = 2  # interpreters: one has answered that the server is ready, the other one has done nothing
# Forked from a process that has loaded the application: plackup's has at any rate.
_PRELOADED = ("--preload-app",)
BEGUN = (
    _in_process(PAGI, STARTED, _PRELOADED),
    _in_process(PSGI, STARTED),
    _starman("Starman, PSGI", STARTED, _PRELOADED),
)
WEBSOCKETS_IDLE = (ZIG_BENCH, PAGI_WEBSOCKET, UWS)
WEBSOCKETS = (
    *(ZIG_BENCH, PAGI_WEBSOCKET, _in_process(PAGI_WEBSOCKET)),
    *(UWS, UVICORN_WEBSOCKET, GRANIAN, *MOJO_LIVE),
)
