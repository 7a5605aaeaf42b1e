"""A client as it should be, in a thread of its own: it asks a hundred times per second, by turns on a
connection that stays and on a new one. While it waits for an answer, others of its kind would have asked:
each of them is counted with what was left of the wait, so a server that stalls is charged for everybody
whom it made wait."""

import hashlib
import http.client
import os
import threading
import time

from check import at_most, exactly, note
from process import any_certificate

PACE_S = 0.01
PATIENCE_S = 5
P99_MS = 100


class Normal:
    """`with Normal(port, core) as normal: ...`, and then normal.findings(). With tls it speaks that,
    whatever the certificate says."""

    def __init__(self, port, core, tls=False):
        self.port = port
        self.core = core
        self.context = any_certificate() if tls else None
        self.latencies = []
        self.failures = []
        self.certificates = set()
        self.kept = None
        self.going = True
        self.thread = threading.Thread(target=self._ask_again_and_again)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self.going = False
        self.thread.join()

    def p99_ms(self):
        ordered = sorted(self.latencies)
        return 1000 * ordered[len(ordered) * 99 // 100] if ordered else float("inf")

    def findings(self):
        worst = 1000 * max(self.latencies, default=0)
        return [
            at_most(f"p99 of {len(self.latencies):,} normal requests", self.p99_ms(), P99_MS, "ms"),
            note("the slowest of them", f"{worst:.1f} ms"),
            *failed(self.failures),
        ]

    def _ask_again_and_again(self):
        os.sched_setaffinity(0, {self.core})  # of this thread
        due, fresh = time.monotonic(), False
        while self.going:
            time.sleep(max(due - time.monotonic(), 0))
            due = time.monotonic()
            try:
                self._ask(fresh)
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(f"{type(error).__name__}: {error}")
            answered = time.monotonic()
            while due < answered:
                self.latencies.append(answered - due)
                due += PACE_S
            fresh = not fresh
        if self.kept:
            self.kept.close()

    def _ask(self, fresh):
        connection = self._connected() if fresh or not self.kept else self.kept
        if not fresh:
            self.kept = None  # until it is known to be good
        try:
            connection.request("GET", "/")
            answer = connection.getresponse()
            if answer.status != 200 or b"ello" not in answer.read():
                raise http.client.HTTPException(f"answered {answer.status}")
            if not fresh:
                self.kept = connection
        finally:
            if connection is not self.kept:
                connection.close()

    def _connected(self):
        if not self.context:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=PATIENCE_S, context=self.context
        )
        connection.connect()
        self.certificates.add(hashlib.sha256(connection.sock.getpeercert(binary_form=True)).digest())
        return connection


def failed(failures):
    """That nothing failed; if something did, what it was at first."""
    first = [note("the first failure", failures[0])] if failures else []
    return [exactly("normal requests that failed", len(failures), 0), *first]
