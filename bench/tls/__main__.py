"""Checks what TLS costs on this machine; exits 1 when a goal is missed. Without a CHECK all are made, one
after the other."""

import argparse
import os
import sys
import tempfile
from dataclasses import replace

import certificate
import servers
import start
from check import Settings, checked
from measure import Cores

from .costs import handshakes, idle, keepalive

CHECKS = {function.__name__: function for function in (keepalive, handshakes, idle)}
HANDSHAKES = replace(
    servers.ZIG,
    build=(
        "sh",
        "-c",
        'cd engine && "$PEREGRINE_ZIG" build bench-handshakes --release=safe --prefix @STATE@',
    ),
)


def main():
    parser = argparse.ArgumentParser(prog="script/bench-tls", description=__doc__)
    parser.add_argument("check", nargs="*", metavar="CHECK", help=", ".join(CHECKS))
    parser.add_argument(
        "--short", action="store_true", help="fewer and shorter rounds: a look whether it works"
    )
    options = parser.parse_args()
    for name in options.check:
        if name not in CHECKS:
            parser.error(f"there is no check {name!r}; known: {', '.join(CHECKS)}")
    for server in (servers.PAGI, servers.ZIG, HANDSHAKES):
        trouble = start.built(server)
        if trouble:
            sys.exit(f"bench-tls: {trouble}")
    cores = sorted(os.sched_getaffinity(0))
    settings = Settings(Cores(cores[0], cores[-1]), options.short)
    with tempfile.TemporaryDirectory(prefix="peregrine-tls-") as folder:
        certificate.make(folder, "ecdsa")
        certificate.make(folder, "rsa", certificate.RSA)
        missed = sum(not checked(CHECKS[name], name, settings, folder) for name in options.check or CHECKS)
    print(f"{missed} missed" if missed else "all met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
