"""From a server's entry in servers.py to a running process: builds, files, commands, versions.

Does not know what is measured.
"""

import contextlib
import functools
import os
import re
import subprocess
import sys
import tempfile

import certificate
import generator
from process import Process, free_port
from programs import ROOT, STATE
from servers import BODY_BYTES, MIB

BUILD_S = 900
_LENGTHS = {"body.txt": BODY_BYTES, "mib.txt": MIB}  # of files that are made


def built(server):
    """Builds what the server needs and the load generator; the words of what went wrong, or None."""
    return _build(generator.BUILD) or built_alone(server)


def built_alone(server):
    """The same without the load generator."""
    return _build(server.build) if server.build else None


@functools.cache
def _build(command):
    print(f"building: {replaced(command)[-1]}", file=sys.stderr, flush=True)
    try:
        done = subprocess.run(
            replaced(command),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BUILD_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"does not build: {error}"
    if done.returncode == 0:
        return None
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line] or lines[-1:]
    return f"does not build: {errors[0] if errors else f'exit status {done.returncode}'}"


@contextlib.contextmanager
def started(server, core, words=None, **options):
    """The server as a Process that answers, in a fresh directory; stopped at the end. `words`: further ones
    that its command and files have replaced."""
    with tempfile.TemporaryDirectory(prefix="peregrine-bench-") as work:
        os.chmod(work, 0o755)
        port = free_port()
        words = {"@PORT@": str(port), "@WORK@": work} | (words or {})
        for name in server.files:
            _place(name, work, words)
        if server.tls:
            certificate.make(work, "tls")
        options = {"http2": server.http2, "tls": server.tls} | options
        process = Process(
            replaced(server.command, words), core, work, port, os.path.join(work, "log"), **options
        )
        try:
            process.wait_until_it_answers(server.path, server.proof)
            yield process
        finally:
            process.stop()


def _place(name, work, words):
    target = os.path.join(work, name)
    if name in _LENGTHS:
        text = "x" * _LENGTHS[name]
    else:
        with open(os.path.join(ROOT, "bench", "peers", name), encoding="utf-8") as file:
            text = replace_words(file.read(), words)
    with open(target, "w", encoding="utf-8") as file:
        file.write(text)


@functools.cache
def title_of(server):
    """With the version number, if the server is there to tell it."""
    if not server.version:
        return server.title
    try:
        done = subprocess.run(
            replaced(server.version), capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return server.title
    number = re.search(r"\d+(\.\d+)+", done.stdout + done.stderr)
    return f"{server.title} {number[0]}" if number and done.returncode == 0 else server.title


def shown(server):
    """The command for a reader."""
    words = {"@PORT@": "$PORT", "@WORK@": ".", "@ROOT@": "$ROOT", "@STATE@": "$ROOT/.peregrine/bench"}
    return " ".join(replaced(server.command, words))


def replaced(command, words=None):
    words = {"@ROOT@": ROOT, "@STATE@": STATE} | (words or {})
    return tuple(replace_words(argument, words) for argument in command)


def replace_words(text, words):
    return re.sub(r"@[A-Z]+@", lambda match: words.get(match[0], match[0]), text)
