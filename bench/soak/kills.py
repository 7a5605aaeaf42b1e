"""Workers that are killed, and what may be lost by that."""

import asyncio
import os
import signal
import time
from dataclasses import dataclass

from process import state

# A client whose request was in a worker that was killed hears of that within so long.
HEARD_S = 5
LOOK_S = 0.01


@dataclass(frozen=True)
class Kill:
    server: str
    process: int
    at: float
    gone: float


class Kills:
    def __init__(self, processes, tally):
        self._processes, self._tally, self._kills = processes, tally, []

    def __len__(self):
        return len(self._kills)

    def count(self, server):
        return sum(kill.server == server for kill in self._kills)

    async def kill(self, server):
        """Kills the worker of a server that has answered last. The process of an engine never says its number."""
        victim = self._tally.last_process.get(server)
        if victim not in _children(self._processes[server].child.pid):
            return
        at = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        while state(victim) not in ("", "Z"):
            await asyncio.sleep(LOOK_S)
        self._kills.append(Kill(server, victim, at, time.monotonic()))

    def explain(self, failure):
        """The kill by which a client has lost what it has lost; None when there is none."""
        for kill in self._kills:
            if _explains(kill, failure):
                return kill
        return None


def _explains(kill, failure):
    turn = failure.turn
    return (
        kill.server == turn.server
        and turn.process in (None, kill.process)
        and turn.begun <= kill.gone
        and kill.at <= failure.failed <= kill.gone + HEARD_S
    )


def by_kind(failures):
    """How many of them there are of each text, without its time."""
    kinds = {}
    for failure in failures:
        kind = failure.text.split(" ", 1)[1]
        kinds[kind] = kinds.get(kind, 0) + 1
    return kinds


def _children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(child) for child in file.read().split()]
