"""Checks the article's figures on this machine; exits 1 when one is missed. Without a CHECK all are made, one after the other."""

import argparse
import os
import subprocess
import sys

import servers
import start
from measure import Cores
from process import CannotRun

from .check import Settings
from .live import subscribers_1000, websockets_10000
from .overload import overload
from .slow import slow_1, slow_200
from .streams import streams_500, streams_2500

CHECKS = {
    function.__name__.replace("_", "-"): function
    for function in (streams_500, streams_2500, slow_1, slow_200, overload, websockets_10000, subscribers_1000)
}


def main():
    parser = argparse.ArgumentParser(prog="script/bench-article", description=__doc__)
    parser.add_argument("check", nargs="*", metavar="CHECK", help=", ".join(CHECKS))
    parser.add_argument("--short", action="store_true", help="less of each (seconds, megabytes): a look whether it works")
    options = parser.parse_args()
    for name in options.check:
        if name not in CHECKS:
            parser.error(f"there is no check {name!r}; known: {', '.join(CHECKS)}")
    cores = sorted(os.sched_getaffinity(0))
    trouble = start.built(servers.PAGI)
    if trouble:
        sys.exit(f"bench-article: {trouble}")
    settings = Settings(Cores(cores[0], cores[-1]), options.short)
    missed = sum(not checked(CHECKS[name], name, settings) for name in options.check or CHECKS)
    print(f"{missed} missed" if missed else "all met")
    return 1 if missed else 0


def checked(check, name, settings):
    """Whether all goals of a check are met; prints them."""
    print(f"{name}: {check.__doc__}", flush=True)
    try:
        findings = check(settings)
    except (CannotRun, OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
        print(f"  MISSED  {error}", flush=True)
        return False
    for finding in findings:
        verdict, goal = ("met" if finding.met else "MISSED", f" (goal: {finding.goal})") if finding.goal else ("", "")
        print(f"  {verdict:6}  {finding.what}: {finding.measured}{goal}", flush=True)
    return all(finding.met for finding in findings)


if __name__ == "__main__":
    sys.exit(main())
