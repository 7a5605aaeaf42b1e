"""The checks: what TLS adds to a request, what a handshake costs beside nginx, and what an idle connection
holds.

Everything is CPU time of the server and a ratio of two that take turns, because a machine's speed changes
while it works.
"""

import contextlib
import os
import socket
import ssl
import statistics
import subprocess
import time

import programs
import servers
import start
import wrk
from check import at_least, at_most, note
from process import Process, free_port

ROUNDS = 5
BURST_S = 4  # the 64 handshakes that a burst begins with are then less than 3 % of it
REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
IDLE_CONNECTIONS = 1000
NGINX_TLS = "ssl; ssl_certificate {name}.pem; ssl_certificate_key {name}.key; ssl_protocols TLSv1.2 TLSv1.3"
HANDSHAKES = 400
HANDSHAKE_S = 120

NGINX = """
daemon off;
worker_processes 1;
pid {work}/nginx-{port}.pid;
error_log stderr error;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    server {{
        listen 127.0.0.1:{port} {tls};
        location / {{ default_type text/plain; return 200 "Hello, World!\\n"; }}
    }}
}}
"""


def keepalive(settings, folder):
    """A request over TLS against one without, 64 keep-alive connections: CPU time, the median of rounds in
    turns."""
    findings = []
    for title, command in (("Zig handler", zig), ("PAGI application", pagi), ("nginx", nginx)):
        with running(settings, folder, command(None)) as plain, running(
            settings, folder, command(f"{folder}/ecdsa")
        ) as secure:
            for process, scheme in ((plain, "http"), (secure, "https")):
                per_request(settings, process, scheme)  # the first connections, and memory to grow into
            rounds = [
                (per_request(settings, plain, "http"), per_request(settings, secure, "https"))
                for _ in range(settings.seconds(ROUNDS, 2))
            ]
        ratio = statistics.median(secure / plain for plain, secure in rounds)
        finding = (
            note(title, f"{ratio:.2f} × plain")
            if command is nginx
            else at_most(title, ratio, 1.3, "× plain", ".2f")
        )
        added = statistics.median(secure - plain for plain, secure in rounds)
        findings += [finding, note(f"{title}, what TLS adds", f"{added * 1e6:.1f} µs")]
    return findings


def per_request(settings, process, scheme):
    before = process.cpu_seconds()
    result = wrk.run(
        f"{scheme}://127.0.0.1:{process.port}/", settings.cores.load, 64, settings.seconds(BURST_S, 1)
    )
    return (process.cpu_seconds() - before) / result.requests


def handshakes(settings, folder):
    """Handshakes for each CPU second against nginx, full and resumed, with each kind of key and version."""
    findings = []
    for name in ("ecdsa", "rsa"):
        with running(settings, folder, zig(f"{folder}/{name}")) as ours, running(
            settings, folder, nginx(f"{folder}/{name}")
        ) as theirs:
            for kind in ("full", "resumed"):
                for version in ("1.3", "1.2"):
                    ratios = []
                    for _ in range(settings.seconds(ROUNDS, 2)):
                        expected = per_handshake(settings, theirs, kind, version)
                        ratios.append(expected / per_handshake(settings, ours, kind, version))
                    findings.append(
                        at_least(
                            f"{name}, TLS {version}, {kind}", statistics.median(ratios), 0.9, "× nginx", ".2f"
                        )
                    )
    return findings


def per_handshake(settings, process, kind, version):
    count = settings.seconds(HANDSHAKES, 300)
    program = os.path.join(programs.STATE, "bin", "handshakes")
    command = (program, str(process.port), str(count), kind, version)
    before = process.cpu_seconds()
    subprocess.run(
        command,
        check=True,
        capture_output=True,
        timeout=HANDSHAKE_S,
        preexec_fn=lambda: os.sched_setaffinity(0, {settings.cores.load}),
    )
    time.sleep(0.1)  # the last connections are being closed
    return (process.cpu_seconds() - before) / count


def idle(settings, folder):
    """Memory of 1,000 connections that have had an answer each and keep still."""
    context = ssl._create_unverified_context()
    with running(settings, folder, pagi(f"{folder}/ecdsa")) as process, contextlib.ExitStack() as stack:

        def connect():
            plain = stack.enter_context(socket.create_connection(("127.0.0.1", process.port), timeout=10))
            secure = stack.enter_context(context.wrap_socket(plain))
            secure.sendall(REQUEST)
            secure.recv(4096)

        for _ in range(50):
            connect()
        before = process.rss_bytes()
        for _ in range(IDLE_CONNECTIONS):
            connect()
        time.sleep(1)
        each = (process.rss_bytes() - before) / IDLE_CONNECTIONS
    return [at_most("each", each / 1024, 40, "KiB")]


def zig(certificate):
    files = (f"{certificate}.pem", f"{certificate}.key") if certificate else ()
    return lambda port, _work: (os.path.join(programs.STATE, "bin", "hello"), str(port), "1", *files)


def pagi(certificate):
    flags = ("--ssl-cert", f"{certificate}.pem", "--ssl-key", f"{certificate}.key") if certificate else ()
    return lambda port, _work: start.replaced(
        (*servers.PAGI.command[:-1], *flags, servers.PAGI.command[-1]), {"@PORT@": str(port)}
    )


def nginx(certificate):
    tls = NGINX_TLS.format(name=certificate) if certificate else "backlog=1024"

    def command(port, work):
        path = os.path.join(work, f"nginx-{port}.conf")
        with open(path, "w", encoding="utf-8") as file:
            file.write(NGINX.format(port=port, tls=tls, work=work))
        return ("nginx", "-p", work, "-c", path)

    return command


@contextlib.contextmanager
def running(settings, folder, command):
    """A server as a Process that answers; over TLS a plain request is answered, too, with a 400."""
    port = free_port()
    process = Process(
        command(port, folder), settings.cores.server, folder, port, os.path.join(folder, f"log-{port}")
    )
    try:
        process.wait_until_it_answers("/", None)
        yield process
    finally:
        process.stop()
