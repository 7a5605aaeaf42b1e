"""Our own load generator (bench/load) as a process: its connections are open between `with` and its end.

Does not know the server.
"""

import os
import select
import subprocess
import time

from programs import ROOT, STATE, zig

PROGRAM = os.path.join(STATE, "bin", "load")
BUILD = zig(f"{ROOT}/bench", "load", prefix=STATE)
READY_S = 60  # to open all connections
GRACE_S = 30  # beyond the seconds of a run


class Failed(RuntimeError):
    """What the generator said before it ended."""


class Generator:
    """`with Generator("echo", core, port=..., connections=...) as load: load.run(4)`, on a core or a set."""

    def __init__(self, kind, core, **options):
        self.child = subprocess.Popen(
            [PROGRAM, kind, *(f"{key}={value}" for key, value in options.items())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: os.sched_setaffinity(0, core if isinstance(core, set) else {core}),
        )
        self.pending = b""
        try:
            self._answer("READY", READY_S)
        except BaseException:
            self.close()
            raise

    def run(self, seconds):
        """Loads the server for so long; the result's numbers by name."""
        self.begin(seconds)
        return self.end(seconds)

    def begin(self, seconds):
        """The first half of run, for callers that have something to do meanwhile. Counts that are of the run
        only are zero when it returns."""
        self.child.stdin.write(f"run {seconds}\n".encode())
        self.child.stdin.flush()
        self._answer("BEGUN", GRACE_S)

    def end(self, seconds):
        words = self._answer("RESULT", seconds + GRACE_S)
        return {key: float(value) for key, value in (word.split("=") for word in words)}

    def _answer(self, wanted, patience):
        """The words after the wanted one of the next line."""
        deadline = time.monotonic() + patience
        while b"\n" not in self.pending:
            ready, _, _ = select.select([self.child.stdout], [], [], max(deadline - time.monotonic(), 0))
            if not ready:
                raise Failed(f"load said no {wanted} within {patience:g} s")
            piece = os.read(self.child.stdout.fileno(), 4096)
            if not piece:
                self.child.kill()
                words = self.child.stderr.read().decode("utf-8", "replace").strip().splitlines()
                raise Failed(words[-1] if words else "load ended silently")
            self.pending += piece
        line, _, self.pending = self.pending.partition(b"\n")
        word, *rest = line.decode().split()
        if word != wanted:
            raise Failed(f"load said {word} instead of {wanted}")
        return rest

    def close(self):
        self.child.kill()
        self.child.communicate()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
