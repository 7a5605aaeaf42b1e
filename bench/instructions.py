"""Instructions of user space per request, or per message of a WebSocket, by callgrind. Each server runs under
valgrind; after some requests as a warm-up its counters are written out, and once more after those that count:
what lies between is divided by their number. Connections take turns, so that the same requests come in the
same order each time, and a server finds as many of them at once as there are connections. With several
processes their sum is printed. A peer is there when `script/bench --install` has built it.
"""

import argparse
import collections
import glob
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import replace

import certificate
import programs
import servers as s
from process import any_certificate, free_port
from start import built_alone, replaced, replace_words

READY_S = 180  # valgrind is slow, and the machine may be busy
ANSWER_S = 120
HEADS_MAX = 64 * 1024
MESSAGE_BYTES = 64  # as in measure.echo
WARM_CALLS = 100  # of the application without a server
_TLS = {server.name: server for server in s.HELLOS_TLS}
# Valgrind does not know the processor's instructions for SHA.
_TLS_ZIG = replace(
    _TLS["zig"],
    command=("@STATE@/countable/bin/hello", *_TLS["zig"].command[1:]),
    build=programs.zig(
        "engine", "example-hello", "--release=safe -Dcpu=native-sha", "@STATE@/countable"
    ),
)
SERVERS = {
    "zig": s.ZIG,
    "uws": s.UWS,
    "pagi": s.PAGI,
    "pagi-json": next(server for server in s.JSONS if server.name == "pagi"),
    "pagi-drop": next(server for server in s.DROPS if server.name == "pagi"),
    "psgi": s.PSGI,
    "psgi-process": s.PSGI_PROCESS,
    "pagi-channels": s.PAGI_CHANNELS,
    "psgi-process-channels": s.PSGI_PROCESS_CHANNELS,
    "sync": s.SYNC,
    "sync-handler": s.SYNC_HANDLER,
    "tls-zig": _TLS_ZIG,
    "tls-pagi": _TLS["pagi"],
    "tls-uws": _TLS["uws"],
    "websocket-zig": replace(s.ZIG_BENCH, path="/ws"),
    "websocket-pagi": replace(s.PAGI_WEBSOCKET, path="/ws"),
    "websocket-uws": replace(s.UWS, path="/ws"),
}
# As in bench/requests.lua.
BROWSER = {
    "Accept": "application/json, text/plain, */*",
    "Accept-Encoding": "gzip, deflate, br, zstd",
    "Accept-Language": "en-GB,en;q=0.9,de;q=0.8",
    "Cache-Control": "no-cache",
    "Cookie": "session=8f14e45fceea167a5a36dedd4bea2543; theme=dark; consent=1",
    "Pragma": "no-cache",
    "Referer": "https://www.example.com/dashboard?tab=overview",
    "Sec-Ch-Ua": '"Chromium";v="140", "Not=A?Brand";v="24", "Google Chrome";v="140"',
    "Sec-Ch-Ua-Mobile": "?0",
    "Sec-Ch-Ua-Platform": '"Linux"',
    "Sec-Fetch-Dest": "empty",
    "Sec-Fetch-Mode": "cors",
    "Sec-Fetch-Site": "same-origin",
    "User-Agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) "
    "Chrome/140.0.0.0 Safari/537.36",
}

UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
}


class Client:
    """Some connections that take turns with the same request."""

    def __init__(self, port, connections, server):
        self.request = _request_of(server)
        self.read = _read_answer
        self.sockets = [_connected(port, server.tls) for _ in range(connections)]
        if server.path == "/ws":
            self._upgrade()

    def _upgrade(self):
        """Makes WebSockets of the connections. From here on messages go for requests."""
        for connection in self.sockets:
            connection.sendall(self.request)
            _read_head(connection, b"HTTP/1.1 101 ")
        # With a mask of zeros the payload is as it was.
        self.request = bytes((0x81, 0x80 | MESSAGE_BYTES, 0, 0, 0, 0)) + b"x" * MESSAGE_BYTES
        self.read = _read_message

    def send(self, count):
        """So many requests at least."""
        for _ in range(-(-count // len(self.sockets))):
            for connection in self.sockets:
                connection.sendall(self.request)
            for connection in self.sockets:
                self.read(connection)

    def close(self):
        for connection in self.sockets:
            connection.close()


def _connected(port, tls):
    connection = socket.create_connection(("127.0.0.1", port), ANSWER_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return any_certificate().wrap_socket(connection) if tls else connection


def _read_head(connection, begins):
    """The head of an answer, and the bytes behind it."""
    answer = b""
    while b"\r\n\r\n" not in answer and len(answer) < HEADS_MAX:
        answer += _some(connection)
    head, _, rest = answer.partition(b"\r\n\r\n")
    if not head.startswith(begins):
        sys.exit(f"an answer that does not begin with {begins!r}: {head[:80]!r}")
    return head, rest


def _read_answer(connection):
    head, body = _read_head(connection, b"HTTP/1.1 200 ")
    length = re.search(rb"(?i)^content-length: *(\d+)", head, re.MULTILINE)
    if not length:
        sys.exit(f"an answer without a length: {head[:80]!r}")
    left = int(length[1]) - len(body)
    while left > 0:
        left -= len(_some(connection))


def _read_message(connection):
    frame = b""
    while len(frame) < 2 + MESSAGE_BYTES:
        frame += _some(connection)
    if frame != bytes((0x81, MESSAGE_BYTES)) + b"x" * MESSAGE_BYTES:
        sys.exit(f"not the echo of the message: {frame[:80]!r}")


def _some(connection):
    some = connection.recv(64 * 1024)
    if not some:
        sys.exit("the server has closed a connection")
    return some


def _wait_until_ready(child, port, server):
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        if child.poll() is not None:
            sys.exit(f"the server exited with {child.returncode}")
        try:
            client = Client(port, 1, server)
            client.send(1)
            client.close()
            return
        except OSError:
            time.sleep(0.2)
    sys.exit(f"the server is not ready within {READY_S} s")


def _request_of(server):
    """The request of a client for the server's path."""
    fields = {"/json": BROWSER, "/ws": UPGRADE}.get(server.path, {})
    body = b"x" * s.UPLOAD_BYTES if server.path == "/drop" else b""
    if body:
        fields = {"Content-Length": len(body)}
    lines = "".join(f"{name}: {value}\r\n" for name, value in {"Host": "127.0.0.1", **fields}.items())
    return f"{'POST' if body else 'GET'} {server.path} HTTP/1.1\r\n{lines}\r\n".encode() + body


def _dump(work):
    """Has each process write its counters to a file, and begin anew."""
    for log in glob.glob(f"{work}/log.*"):
        command = ["callgrind_control", "--dump", log.rpartition(".")[2]]
        subprocess.run(command, check=True, capture_output=True, timeout=ANSWER_S)


class _Names:
    """The names of a dump's objects, files and functions, which have numbers from their second use on."""

    def __init__(self):
        self.known = {}

    def read(self, line):
        """Its keyword and the name that it tells; None for any other line."""
        match = re.match(r"(ob|cob|fl|fi|fe|cfi|cfl|fn|cfn)=\((\d+)\)(?: (.*))?$", line)
        if not match:
            return None, None
        kind = {"b": "ob", "n": "fn"}.get(match[1][-1], "fl")
        if match[3]:
            self.known[kind, match[2]] = match[3]
        return match[1], self.known.get((kind, match[2]), "?")


def _owner(binary, file):
    """Who a function belongs to: a room of ours, or the name of its library or program."""
    if os.path.basename(binary) != "Peregrine.so":
        return os.path.basename(binary)
    room = re.search(r"(?:^|/)(xs/(?:bridge|pagi|psgi))/", file)
    return room[1] if room else "xs" if "xs/" in file or "Peregrine.c" in file else "engine"


def _costs(name):
    """By owner and function, of a second dump, whose names the first one tells."""
    names, costs = _Names(), collections.Counter()
    for part in (1, 2):
        binary, source, function, is_call = "", "", "", False
        with open(f"{name}.{part}", encoding="utf-8", errors="replace") as file:
            for line in file:
                kind, value = names.read(line)
                if kind == "ob":
                    binary = value
                elif kind == "fl":
                    source = value
                elif kind == "fn":
                    function = value
                elif line.startswith("calls="):
                    is_call = True
                elif line[:1] in "0123456789+-*":
                    if part == 2 and not is_call:
                        costs[_owner(binary, source), function] += int(line.split()[-1])
                    is_call = False
    return costs


def _print_most(costs, requests, top):
    for name, cost in costs.most_common(top):
        if cost >= requests:
            print(f"  {cost / requests:10,.1f}  {100 * cost / sum(costs.values()):4.1f} %  {name}")


def _by(costs, part):
    sums = collections.Counter()
    for key, cost in costs.items():
        sums[key[part]] += cost
    return sums


def measure(server, connections, requests, top, owners):
    """Prints what a request costs, whose code that is, and the functions that cost most."""
    if trouble := built_alone(server):
        sys.exit(f"{server.title}: {trouble}")
    with tempfile.TemporaryDirectory(prefix="peregrine-instructions-") as work:
        port = free_port()
        words = {"@PORT@": str(port), "@WORK@": work}
        for name in server.files:
            with open(os.path.join(programs.ROOT, "bench", "peers", name), encoding="utf-8") as file:
                text = replace_words(file.read(), words)
            with open(os.path.join(work, name), "w", encoding="utf-8") as file:
                file.write(text)
        if server.tls:
            certificate.make(work, "tls")
        command = ("valgrind", "--tool=callgrind", "--trace-children=yes", f"--log-file={work}/log.%p")
        command += (f"--callgrind-out-file={work}/costs.%p", *replaced(server.command, words))
        # Otherwise hashes are laid out anew each time.
        environment = os.environ | {"PERL_HASH_SEED": "0", "PERL_PERTURB_KEYS": "0"}
        child = subprocess.Popen(command, cwd=work, env=environment)
        try:
            _wait_until_ready(child, port, server)
            client = Client(port, connections, server)
            client.send(requests // 4)
            _dump(work)
            client.send(requests)
            _dump(work)
            client.close()
        finally:
            child.terminate()
            child.wait(READY_S)
        costs = collections.Counter()
        for name in glob.glob(f"{work}/costs.*.2"):
            costs += _costs(name[:-2])
    requests = -(-requests // connections) * connections
    print(f"{server.title}, {connections} connections: {sum(costs.values()) / requests:,.0f} a request")
    if owners:
        _print_most(_by(costs, 0), requests, None)
    _print_most(_by(costs, 1), requests, top)


def _instructions_of(command):
    """Instructions of a program that comes to its end."""
    with tempfile.TemporaryDirectory(prefix="peregrine-instructions-") as work:
        valgrind = ("valgrind", "--tool=callgrind", f"--callgrind-out-file={work}/costs")
        environment = os.environ | {"PERL_HASH_SEED": "0", "PERL_PERTURB_KEYS": "0"}
        ended = subprocess.run(
            (*valgrind, *command), capture_output=True, text=True, env=environment, timeout=READY_S
        )
    collected = re.search(r"Collected : (\d+)", ended.stderr)
    if ended.returncode or not collected:
        sys.exit(ended.stderr)
    return int(collected[1])


def measure_alone(calls):
    """Prints what a call of the application of the PAGI rows costs without a server."""
    program = os.path.join(programs.ROOT, "bench", "alone.pl")
    application = os.path.join(programs.ROOT, "examples", "pagi", "hello", "app.pl")
    for title, words in (("Future::AsyncAwait's `async` and `await`", ()), ("neither", ("plain",))):
        few, many = (
            _instructions_of(("perl", program, application, str(count), *words))
            for count in (WARM_CALLS, WARM_CALLS + calls)
        )
        print(f"PAGI application without a server, {title}: {(many - few) / calls:,.0f} a call")


def main():
    """The command line."""
    parser = argparse.ArgumentParser(prog="script/bench-instructions", description=__doc__)
    names = f"{', '.join(SERVERS)}; default: all of ours"
    parser.add_argument("servers", nargs="*", metavar="SERVER", help=names)
    parser.add_argument("--connections", type=int, default=64, help="64 unless said otherwise")
    parser.add_argument("--requests", type=int, default=3200, help="3,200 unless said otherwise")
    parser.add_argument("--top", type=int, default=0, help="so many functions with their costs")
    parser.add_argument("--owners", action="store_true", help="how much of it is whose code")
    help_alone = "the application of the PAGI rows without a server, and nothing else"
    parser.add_argument("--alone", action="store_true", help=help_alone)
    options = parser.parse_args()
    if options.requests < 1 or options.alone and options.servers:
        parser.error("at least one request; --alone takes no server")
    if options.alone:
        measure_alone(options.requests)
        return
    if unknown := set(options.servers) - set(SERVERS):
        parser.error(f"no server is called {unknown.pop()}: there are {', '.join(SERVERS)}")
    if options.connections < 1 or options.requests < options.connections:
        parser.error("at least one connection, and a request for each")
    for name in options.servers or (name for name in SERVERS if not name.endswith("uws")):
        measure(SERVERS[name], options.connections, options.requests, options.top, options.owners)


if __name__ == "__main__":
    main()
