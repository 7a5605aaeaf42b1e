"""The four modes of slowhttptest: heads, bodies and readers that never come to an end, and ranges without
number."""

import contextlib
import os
import shutil
import subprocess
import time

from check import at_least, at_most, serving
from process import NotInstalled

from .normal import Normal

ATTACK_S = 60  # at most
WATCH_S = 0.05
GRACE_S = 2  # beyond a deadline, for opening the connections and for what paid for itself
SPARE = 4  # connections that may be the good client's and slowhttptest's probe


def slow_headers(settings):
    """1,000 heads that do not end (--header-timeout 5): good clients are answered, the bad ones are gone
    in time."""
    return _attacked(settings, "-H", "--header-timeout")


def slow_body(settings):
    """1,000 request bodies that trickle (--body-timeout 5): good clients are answered, the bad ones are
    gone in time."""
    return _attacked(settings, "-B", "--body-timeout", "-s", "8192")


def slow_read(settings):
    """1,000 clients that hardly read 8 MiB (--write-timeout 25): good clients are answered, the bad ones
    are gone in time."""
    flags = ("-w", "10", "-y", "20", "-n", "1", "-z", "16")
    # Each makes the server fill a socket's buffers first, megabytes. All of them at once would
    # measure how fast that is.
    return _attacked(
        settings, "-X", "--write-timeout", *flags, path="/large", seconds=settings.seconds(25, 5), rate=50
    )


def ranges(settings):
    """1,000 requests per second for 500 ranges each: they get plain answers, and good clients theirs in
    time."""
    with _attack(settings, "-R", "-a", "5", "-b", "500") as (process, normal, attack, before):
        attack.wait(ATTACK_S)
        after = process.settled_descriptors(before)
    return [
        at_most("descriptors afterwards, more than before", after - before, SPARE, "", ",d"),
        *normal.findings(),
    ]


def _attacked(settings, mode, deadline, *flags, path="/", seconds=None, rate=None):
    """With a deadline, an option of the server, within which the connections have to be gone."""
    seconds = seconds or settings.seconds(5, 2)
    with _attack(settings, mode, *flags, path=path, rate=rate, arguments=(deadline, str(seconds))) as (
        process,
        normal,
        _,
        before,
    ):
        most, gone_s = _watched(process, before + SPARE)
    return [
        at_least(
            "bad connections open at once", most - before, _count(settings) * 9 // 10, "connections", ",d"
        ),
        at_most("from then until the last one is gone", gone_s, seconds + GRACE_S, "s"),
        *normal.findings(),
    ]


def _count(settings):
    return settings.seconds(1000, 200)


@contextlib.contextmanager
def _attack(settings, mode, *flags, path="/", rate=None, arguments=()):
    """(the server, a good client, slowhttptest's process, the server's descriptors before it)."""
    if not shutil.which("slowhttptest"):
        raise NotInstalled("slowhttptest is not installed (script/bench --install)")
    count = _count(settings)
    arguments = (*arguments, "--port", "@PORT@")
    with serving(settings, "abuse/app.pl", arguments=arguments) as process, Normal(
        process.port, settings.cores.load
    ) as normal:
        time.sleep(0.5)
        before = process.descriptors()
        options = f"-c {count} -r {rate or count} -i 1 -x 8 -l {ATTACK_S} -v 0"
        command = ["slowhttptest", mode, *options.split()]
        attack = subprocess.Popen(
            (*command, *flags, "-u", f"http://127.0.0.1:{process.port}{path}"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: os.sched_setaffinity(0, {settings.cores.load}),
        )
        try:
            yield process, normal, attack, before
        finally:
            # the kernel has to free megabytes for each connection that dies now, on the good client's core
            normal.stop()
            attack.kill()
            attack.wait()


def _watched(process, few):
    """(the most descriptors seen, seconds from when they were that many until they are few)."""
    begin = time.monotonic()
    most, most_at = 0, begin
    while time.monotonic() - begin < ATTACK_S:
        time.sleep(WATCH_S)
        now, count = time.monotonic(), process.descriptors()
        if count > most:
            most, most_at = count, now
        elif most > few and count <= few:
            return most, now - most_at
    return most, float("inf")
