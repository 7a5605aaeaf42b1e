"""The time from a publication at one machine to its delivery at another one, over Redis."""

import contextlib
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass

import servers
import start
from check import Finding, at_most, note
from generator import Generator
from measure import SETTLE_S, Publisher
from process import CannotRun, NotInstalled, Process

from .namespaces import Machine

SUBSCRIBERS = 100
PUBLISHERS = 16
MESSAGE_BYTES = 100
ROUNDS = 5
LOAD = 0.7  # of the publications a second that are delivered at most
TAIL_S = 2  # for the last messages to arrive
SLOWER_MOST = 1.0
REDIS_PORT = 6379


def machines(settings):
    """Publish to delivery over two machines that share a Redis: the p99 at 70 % of the rate that saturates is
    at most that of the best peer. 16 publishers at one machine, 100 WebSockets at the other one, 100 bytes;
    each server's rate is its own. Each machine has a processor, Redis and the clients have both. Rounds in
    turn; the median of the pairs."""
    notes = []
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(_Redis(_both(settings)))
        pairs = {}
        for candidate in CANDIDATES:
            try:
                pairs[candidate] = stack.enter_context(_Pair(candidate, redis, settings))
            except CannotRun as error:
                notes.append(note(f"{candidate.title} is left out", str(error)))
        rounds = [_turns(pairs, number, notes) for number in range(1, settings.seconds(ROUNDS, 1) + 1)]
    ratios = [
        p99[CANDIDATES[0]] / min(p99[peer] for peer in p99 if not peer.is_ours)
        for p99 in rounds
        if CANDIDATES[0] in p99 and any(not peer.is_ours for peer in p99)
    ]
    if not ratios:
        return [Finding("rounds with a peer", "none", "one", False), *notes]
    ratio = statistics.median(ratios)
    return [
        at_most("p99 from publish to delivery over Redis", ratio, SLOWER_MOST, "× the best peer", ".2f"),
        *notes,
    ]


def _both(settings):
    return {settings.cores.server, settings.cores.load}


def _turns(pairs, number, notes):
    """The p99 of each candidate in one round."""
    p99 = {}
    for candidate, pair in pairs.items():
        try:
            words, p99[candidate] = pair.turn()
        except CannotRun as error:
            words = str(error)
        notes.append(note(f"round {number}, {candidate.title}", words))
    return p99


@dataclass(frozen=True)
class _Candidate:
    """A server, and what its subscribers ask for and say."""

    title: str
    entry: servers.Server
    path: str = "/ws"
    says: str = ""
    is_ours: bool = False


_CHANNELS = "redis://@REDIS@:6379?prefix="
# As long as that of nchan: a machine may be behind the publishers at the rate that saturates.
_HISTORY = ("--topics-history-entries", "100000", "--topics-history-size", "64M")


def _over_redis(entry, prefix):
    command = tuple(
        word
        for given in entry.command
        for word in ((given, f"{_CHANNELS}{prefix}:", *_HISTORY) if given == "--channels" else (given,))
    )
    return servers.replace(entry, command=command)


CANDIDATES = (
    _Candidate("Peregrine, engine in a process", _over_redis(servers.TOPICS, "process"), is_ours=True),
    _Candidate("Peregrine, engine inline", _over_redis(servers.TOPICS_INLINE, "inline"), is_ours=True),
    _Candidate("nginx with nchan", servers.NCHAN_REDIS),
    _Candidate(
        "Socket.IO with its adapter for Redis",
        servers.SOCKET_IO_REDIS,
        path="/socket.io/?EIO=4&transport=websocket",
        says="40",
    ),
)


class _Redis:
    """A machine with a redis-server, as a context, to which others have cables."""

    def __init__(self, cores):
        self.machine = Machine()
        self.cores = cores
        self.cables = 0

    def __enter__(self):
        self.work = tempfile.TemporaryDirectory(prefix="peregrine-bench-")
        work = self.work.name
        command = ("redis-server", "--bind", "0.0.0.0", "--protected-mode", "no", "--save", "", "--dir", work)
        with self.machine.inside():
            self.process = Process(command, self.cores, work, REDIS_PORT, f"{work}/log")
            _wait_for_redis()
        return self

    def joined(self, machine):
        """The address of Redis for another machine."""
        self.cables += 1
        net = f"10.79.{self.cables}"
        self.machine.join(machine, net)
        return f"{net}.1"

    def __exit__(self, *_):
        self.process.stop()
        self.machine.close()
        self.work.cleanup()


def _wait_for_redis():
    for _ in range(200):
        done = subprocess.run(("redis-cli", "ping"), capture_output=True, check=False)
        if done.stdout == b"PONG\n":
            return
        time.sleep(0.05)
    raise NotInstalled("redis-server does not answer")


class _Pair:
    """A candidate on two machines, with its subscribers, as a context."""

    def __init__(self, candidate, redis, settings):
        self.candidate, self.redis, self.settings = candidate, redis, settings
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        trouble = start.built(self.candidate.entry)
        if trouble:
            raise CannotRun(trouble)
        with self.stack:
            self.here, publishing = self._machine(self.settings.cores.server)
            there, delivering = self._machine(self.settings.cores.load)
            self.port = publishing.port
            self.processes = (publishing, self.redis.process, delivering)
            load = {"port": delivering.port, "path": self.candidate.path, "connections": SUBSCRIBERS}
            if self.candidate.says:
                load["says"] = self.candidate.says
            with there.inside():
                self.subscribers = self.stack.enter_context(
                    Generator("arrive", _both(self.settings), **load)
                )
            time.sleep(SETTLE_S)
            with self.here.inside(), Publisher(self.port, "/publish") as publisher:
                publisher.publish(b"the first one")
            time.sleep(SETTLE_S)
            self.stack = self.stack.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    def _machine(self, core):
        machine = Machine()
        self.stack.callback(machine.close)
        words = {"@REDIS@": self.redis.joined(machine)}
        with machine.inside():
            process = self.stack.enter_context(
                start.started(self.candidate.entry, core, words=words)
            )
        return machine, process

    def turn(self):
        """The figures in words, and the p99 alone. Processors' time: the publishers' machine, Redis, the
        subscribers' machine."""
        seconds = self.settings.seconds(4, 1)
        before = [process.cpu_seconds() for process in self.processes]
        count, result = self._published(0, seconds)
        after = [process.cpu_seconds() for process in self.processes]
        each = ", ".join(f"{(end - begin) * 1e6 / count:.0f}" for begin, end in zip(before, after))
        rate = count / result["last_s"]
        _, result = self._published(LOAD * rate, 2 * seconds)
        words = (
            f"saturated {rate:,.0f} a second, at 70 % p50 {result['p50_us']:,.0f},"
            f" p99 {result['p99_us']:,.0f} µs; processors {each} µs each"
        )
        return words, result["p99_us"]

    def _published(self, rate, seconds):
        """How many were published, and what the subscribers saw."""
        load = {"port": self.port, "path": "/publish", "connections": PUBLISHERS, "bytes": MESSAGE_BYTES}
        with (
            self.here.inside(),
            Generator("rate", _both(self.settings), rate=round(rate), **load) as publisher,
        ):
            self.subscribers.begin(seconds + TAIL_S + 1)
            publisher.begin(seconds)
            published = publisher.end(seconds)
            result = self.subscribers.end(seconds + TAIL_S + 1)
        # Publications that were under way at the end may have been made.
        came = result["messages"] / SUBSCRIBERS
        if not published["responses"] <= came <= published["responses"] + published["unanswered"]:
            raise CannotRun(f"{came:,.2f} of {published['responses']:,.0f} publications came")
        if not came:
            raise CannotRun("takes no publication")
        return came, result
