"""What the checks of script/bench-article and script/abuse share: their command line, the server that they
ask, and how they say what they found."""

import argparse
import os
import subprocess
import sys
from dataclasses import dataclass, replace

import servers
import start
from measure import Cores
from process import CannotRun

BENCH = os.path.dirname(os.path.abspath(__file__))


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
    seed: int = 0  # of what is random

    def seconds(self, full, short):
        return short if self.short else full


def at_least(what, value, goal, unit, form=",.1f"):
    return Finding(what, f"{value:{form}} {unit}", f"at least {goal:{form}} {unit}", value >= goal)


def at_most(what, value, goal, unit, form=",.1f"):
    return Finding(what, f"{value:{form}} {unit}", f"at most {goal:{form}} {unit}", value <= goal)


def exactly(what, value, goal):
    return Finding(what, f"{value:,}", f"{goal:,}", value == goal)


def serving(settings, app, path="/", arguments=("--port", "@PORT@"), cores=None, **options):
    """bin/pagi-server with an application, by its path in bench, and these arguments, as a running
    Process on one core or on a set of them."""
    command = (*servers.PAGI_COMMAND, *arguments, os.path.join(BENCH, app))
    server = replace(servers.PAGI, command=command, path=path, proof=None)
    return start.started(server, cores or settings.cores.server, **options)


def main(program, about, checks, seed=None):
    """Makes the checks that the command line names, or all; the exit status. With a seed the command line
    may set it."""
    parser = argparse.ArgumentParser(prog=program, description=about)
    parser.add_argument("check", nargs="*", metavar="CHECK", help=", ".join(checks))
    parser.add_argument(
        "--short", action="store_true", help="less of each (seconds, megabytes): a look whether it works"
    )
    if seed is not None:
        parser.add_argument("--seed", type=int, default=seed, help="of what is random, to do the same again")
    options = parser.parse_args()
    for name in options.check:
        if name not in checks:
            parser.error(f"there is no check {name!r}; known: {', '.join(checks)}")
    cores = sorted(os.sched_getaffinity(0))
    trouble = start.built(servers.PAGI)
    if trouble:
        sys.exit(f"{os.path.basename(program)}: {trouble}")
    settings = Settings(Cores(cores[0], cores[-1]), options.short, getattr(options, "seed", 0))
    missed = sum(not checked(checks[name], name, settings) for name in options.check or checks)
    print(f"{missed} missed" if missed else "all met")
    return 1 if missed else 0


def checked(check, name, settings, *more):
    """Whether all goals of a check, called with the settings and what else it takes, are met; prints them."""
    print(f"{name}: {' '.join(check.__doc__.split())}", flush=True)
    try:
        findings = check(settings, *more)
    except (CannotRun, OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
        print(f"  MISSED  {error}", flush=True)
        return False
    for finding in findings:
        verdict, goal = (
            ("met" if finding.met else "MISSED", f" (goal: {finding.goal})") if finding.goal else ("", "")
        )
        print(f"  {verdict:6}  {finding.what}: {finding.measured}{goal}", flush=True)
    return all(finding.met for finding in findings)
