"""What the checks share: the server that they ask, and how they say what they found."""

import os
from dataclasses import dataclass, replace

import servers
import start
from measure import Cores

FOLDER = os.path.dirname(os.path.abspath(__file__))


@dataclass(frozen=True)
class Finding:
    """One figure beside its goal."""

    what: str
    measured: str
    goal: str
    met: bool


def note(what, measured):
    """A figure without a goal, for those who wonder why another one is missed."""
    return Finding(what, measured, "", True)


@dataclass(frozen=True)
class Settings:
    cores: Cores
    short: bool  # a look whether it works, not a measurement

    def seconds(self, full, short):
        return short if self.short else full


def at_least(what, value, goal, unit, form=",.1f"):
    return Finding(what, f"{value:{form}} {unit}", f"at least {goal:{form}} {unit}", value >= goal)


def at_most(what, value, goal, unit, form=",.1f"):
    return Finding(what, f"{value:{form}} {unit}", f"at most {goal:{form}} {unit}", value <= goal)


def exactly(what, value, goal):
    return Finding(what, f"{value:,}", f"{goal:,}", value == goal)


def serving(settings, app, path="/", **options):
    """bin/pagi-server with one of this folder's applications (or another, by its path), as a running Process."""
    command = (*servers.PAGI.command[:-1], os.path.join(FOLDER, app))
    return start.started(replace(servers.PAGI, command=command, path=path, proof=None), settings.cores.server, **options)
