"""Instructions of user space per request, by callgrind. Each server runs under valgrind; after some requests
as a warm-up its counters are written out, and once more after those that count: what lies between is divided
by their number. Connections take turns, so that the same requests come in the same order each time, and a
server finds as many of them at once as there are connections. With several processes their sum is printed.
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

import programs
import servers as s
from process import free_port
from start import replaced, replace_words

READY_S = 180  # valgrind is slow, and the machine may be busy
ANSWER_S = 120
HEADS_MAX = 64 * 1024
SERVERS = {
    "pagi": s.PAGI,
    "pagi-json": next(server for server in s.JSONS if server.name == "pagi"),
    "pagi-drop": next(server for server in s.DROPS if server.name == "pagi"),
    "psgi": s.PSGI,
    "psgi-process": s.PSGI_PROCESS,
    "pagi-channels": s.PAGI_CHANNELS,
    "psgi-process-channels": s.PSGI_PROCESS_CHANNELS,
    "sync": s.SYNC,
    "sync-handler": s.SYNC_HANDLER,
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


class Client:
    """Some connections that take turns with the same request."""

    def __init__(self, port, connections, request):
        self.request = request
        self.sockets = [_connected(port) for _ in range(connections)]

    def send(self, count):
        """So many requests at least."""
        for _ in range(-(-count // len(self.sockets))):
            for connection in self.sockets:
                connection.sendall(self.request)
            for connection in self.sockets:
                _read_answer(connection)

    def close(self):
        for connection in self.sockets:
            connection.close()


def _connected(port):
    connection = socket.create_connection(("127.0.0.1", port), ANSWER_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _read_answer(connection):
    answer = b""
    while b"\r\n\r\n" not in answer and len(answer) < HEADS_MAX:
        answer += _some(connection)
    head, _, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)^content-length: *(\d+)", head, re.MULTILINE)
    if not head.startswith(b"HTTP/1.1 200 ") or not length:
        sys.exit(f"an answer without a length, or not with 200: {head[:80]!r}")
    left = int(length[1]) - len(body)
    while left > 0:
        left -= len(_some(connection))


def _some(connection):
    some = connection.recv(64 * 1024)
    if not some:
        sys.exit("the server has closed a connection")
    return some


def _wait_until_ready(child, port, path):
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        if child.poll() is not None:
            sys.exit(f"the server exited with {child.returncode}")
        try:
            client = Client(port, 1, _request(path, {}))
            client.send(1)
            client.close()
            return
        except OSError:
            time.sleep(0.2)
    sys.exit(f"the server is not ready within {READY_S} s")


def _request(path, fields, body=b""):
    if body:
        fields = {**fields, "Content-Length": len(body)}
    lines = "".join(f"{name}: {value}\r\n" for name, value in {"Host": "127.0.0.1", **fields}.items())
    return f"{'POST' if body else 'GET'} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body


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
    fields = BROWSER if server.path == "/json" else {}
    body = b"x" * s.UPLOAD_BYTES if server.path == "/drop" else b""
    with tempfile.TemporaryDirectory(prefix="peregrine-instructions-") as work:
        port = free_port()
        words = {"@PORT@": str(port), "@WORK@": work}
        for name in server.files:
            with open(os.path.join(programs.ROOT, "bench", "peers", name), encoding="utf-8") as file:
                text = replace_words(file.read(), words)
            with open(os.path.join(work, name), "w", encoding="utf-8") as file:
                file.write(text)
        command = ("valgrind", "--tool=callgrind", "--trace-children=yes", f"--log-file={work}/log.%p")
        command += (f"--callgrind-out-file={work}/costs.%p", *replaced(server.command, words))
        # Otherwise hashes are laid out anew each time.
        environment = os.environ | {"PERL_HASH_SEED": "0", "PERL_PERTURB_KEYS": "0"}
        child = subprocess.Popen(command, cwd=work, env=environment)
        try:
            _wait_until_ready(child, port, server.path)
            client = Client(port, connections, _request(server.path, fields, body))
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


def main():
    """The command line."""
    parser = argparse.ArgumentParser(prog="script/bench-instructions", description=__doc__)
    parser.add_argument("servers", nargs="*", metavar="SERVER", help=f"{', '.join(SERVERS)}; default: all")
    parser.add_argument("--connections", type=int, default=64, help="64 unless said otherwise")
    parser.add_argument("--requests", type=int, default=3200, help="3,200 unless said otherwise")
    parser.add_argument("--top", type=int, default=0, help="so many functions with their costs")
    parser.add_argument("--owners", action="store_true", help="how much of it is whose code")
    options = parser.parse_args()
    if unknown := set(options.servers) - set(SERVERS):
        parser.error(f"no server is called {unknown.pop()}: there are {', '.join(SERVERS)}")
    if options.connections < 1 or options.requests < options.connections:
        parser.error("at least one connection, and a request for each")
    for name in options.servers or SERVERS:
        measure(SERVERS[name], options.connections, options.requests, options.top, options.owners)


if __name__ == "__main__":
    main()
