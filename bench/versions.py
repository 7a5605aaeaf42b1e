"""CPU time per request of this tree beside that of another one: `script/bench-versions TREE`.

Both servers of a row are alive all the time, on one core, and are loaded in turns of a second, so that a
machine whose speed changes changes both. TREE is a clone at another commit, in which script/build has run.
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
from dataclasses import replace

import generator
import measure
import programs
import servers as s
import start
import wrk
from process import CannotRun

ROUNDS = 9
MOST = 1.02  # times the other tree's, median of the turns


def _requests(connections=64, depth=1):
    def turn(process, cores):
        before = process.cpu_seconds()
        result = wrk.run(f"http://127.0.0.1:{process.port}/", cores.load, connections, 1, depth)
        if result.errors or not result.requests:
            raise CannotRun(f"{result.errors} errors, {result.requests} requests")
        return (process.cpu_seconds() - before) * 1e6 / result.requests

    return turn


def _messages(process, cores):
    options = {"port": process.port, "path": "/ws", "connections": 64, "bytes": 64}
    with generator.Generator("echo", cores.load, **options) as load:
        before = process.cpu_seconds()
        result = load.run(1)
        return (process.cpu_seconds() - before) * 1e6 / result["messages"]


ROWS = {
    "zig-hello": (s.ZIG, _requests()),
    "zig-hello-1": (s.ZIG, _requests(1)),
    "zig-pipelined": (s.ZIG, _requests(64, 16)),
    "zig-body": (s.ZIG_BODY, _requests(1000)),
    "zig-echo": (s.ZIG_BENCH, _messages),
    "pagi-hello": (s.PAGI, _requests()),
    "pagi-hello-1": (s.PAGI, _requests(1)),
    "pagi-pipelined": (s.PAGI, _requests(64, 16)),
    "pagi-echo": (s.PAGI_WEBSOCKET, _messages),
}
IDLE = {"zig-idle": s.ZIG_BENCH, "pagi-idle": s.PAGI}


def main():
    parser = argparse.ArgumentParser(prog="script/bench-versions", description=__doc__)
    parser.add_argument("tree", metavar="TREE", help="the other tree, built")
    parser.add_argument("row", nargs="*", metavar="ROW", help=f"what to measure: {', '.join([*ROWS, *IDLE])}")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    unknown = [name for name in options.row if name not in ROWS and name not in IDLE]
    if unknown:
        parser.error(f"there is no row {unknown[0]!r}")
    other = os.path.realpath(options.tree)
    cores = sorted(os.sched_getaffinity(0))
    cores = measure.Cores(cores[0], cores[-1])
    print(f"This tree is {_commit(programs.ROOT)}, the other one {_commit(other)}.")
    print(f"{options.rounds} turns of a second each.\n")
    print("| Row | the other, µs | this one, µs | ratio (lowest to highest) |\n|---|---:|---:|---:|")
    missed = 0
    for name in options.row or [*ROWS, *IDLE]:
        try:
            measured = _idle(name, other, cores) if name in IDLE else _row(name, other, cores, options.rounds)
            line, ratio = measured
            missed += ratio > MOST
        except (CannotRun, OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
            line = f"| {name} | {error} | | |"
            missed += 1
        print(line, flush=True)
    print(f"\n{missed} above {MOST} ×" if missed else f"\nnone above {MOST} ×")
    return 1 if missed else 0


def _row(name, other, cores, rounds):
    server, turn = ROWS[name]
    with _both(server, other, cores) as (here, there):
        turns = []
        for number in range(rounds + 1):
            order = (here, there) if number % 2 else (there, here)
            turns.append({process: turn(process, cores) for process in order})
    turns = turns[1:]  # the first one warms up
    before, now = (statistics.median(each[process] for each in turns) for process in (there, here))
    ratios = sorted(each[here] / each[there] for each in turns)
    ratio = statistics.median(ratios)
    return f"| {name} | {before:.2f} | {now:.2f} | {ratio:.3f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) |", ratio


def _idle(name, other, cores):
    with _both(IDLE[name], other, cores) as (here, there):
        now, before = (measure.idle(process, cores, 1)["rss_each"] for process in (here, there))
    return f"| {name}, RSS bytes of each | {before:,.0f} | {now:,.0f} | {now / before:.3f} |", now / before


@contextlib.contextmanager
def _both(server, other, cores):
    """The server of this tree and that of the other one, both as running Processes."""
    trouble = start.built(server)
    if trouble:
        raise CannotRun(trouble)
    theirs = _of(server, other)
    if theirs.build:
        subprocess.run(theirs.build, cwd=other, check=True, capture_output=True, timeout=start.BUILD_S)
    with start.started(server, cores.server) as here, start.started(theirs, cores.server) as there:
        yield here, there


def _of(server, tree):
    """The same server, of another tree."""
    state = os.path.join(tree, ".peregrine", "bench")

    def there(words):
        return tuple(start.replace_words(word, {"@ROOT@": tree, "@STATE@": state}) for word in words)

    return replace(server, command=there(server.command), build=there(server.build))


def _commit(tree):
    command = ["git", "-C", tree, "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or tree


if __name__ == "__main__":
    sys.exit(main())
