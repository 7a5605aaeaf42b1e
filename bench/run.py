"""Measures our servers and their peers, on one core, with the load on another. The servers of a scenario are
alive all the time and are loaded in turns of half a second, so that a machine whose speed changes changes all
of them; where memory is measured, they run one at a time.

ROW is SCENARIO, SERVER or SCENARIO/SERVER; without one all rows are measured and docs/BENCHMARKS.md is
written.
"""

import argparse
import contextlib
import os
import subprocess
import sys

import report
import start
from measure import Cores
from process import CannotRun, NotInstalled
from programs import ROOT
from scenarios import COMPARED, GOALS, SCENARIOS

PAGE = os.path.join(ROOT, "docs", "BENCHMARKS.md")
TURN_S = 0.5  # long enough for thousands of requests, short enough for a machine whose speed changes
SPARSE = 4  # a row that no goal needs is loaded in every fourth turn


def main():
    options = parse_options()
    if options.list:
        print(
            "\n".join(
                f"{scenario.name}/{server.name}" for scenario in SCENARIOS for server in scenario.servers
            )
        )
        return 0
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        sys.exit("bench: two cores are needed, one for the server and one for the load")
    settings = {
        "rounds": options.rounds,
        "seconds": options.seconds,
        "turn": TURN_S,
        "sparse": SPARSE,
        "cores": Cores(allowed[0], allowed[-1]),
        "load": os.getloadavg()[0],
        "revision": revision(),
    }
    results = report.Results()
    rows = {(scenario.name, server.name) for scenario, server in options.rows}
    for scenario, server in options.rows:
        trouble = start.built(server)
        if trouble:
            results.fail(f"{scenario.name}/{server.name}", trouble, for_good=True)
    for scenario in SCENARIOS:
        servers = [server for server in scenario.servers if (scenario.name, server.name) in rows]
        if not servers:
            continue
        if scenario.in_turns:
            all_turns(scenario, servers, settings, results)
        else:
            for number in range(min(options.rounds, scenario.rounds_max or options.rounds)):
                one_round(scenario, servers, number, settings, results)
    text = page(options.rows, settings, results)
    print(text, end="")
    if options.out:
        os.makedirs(os.path.dirname(os.path.abspath(options.out)), exist_ok=True)
        with open(options.out, "w", encoding="utf-8") as file:
            file.write(text)
    return 0 if results.samples else 1


def parse_options():
    parser = argparse.ArgumentParser(
        prog="script/bench", description=__doc__, epilog="--list prints all rows."
    )
    parser.add_argument("row", nargs="*", metavar="ROW", help="what to measure")
    parser.add_argument("--list", action="store_true", help="print the rows and end")
    parser.add_argument("--install", action="store_true", help="install missing peers first (Debian)")
    parser.add_argument("--rounds", type=at_least_one, default=4)
    parser.add_argument("--seconds", type=at_least_one, default=1, help="of load in each round")
    parser.add_argument("--out", metavar="FILE", help="write the page there")
    options = parser.parse_args()
    options.rows = chosen(parser, options.row)
    if not options.row and not options.out:
        options.out = PAGE
    return options


def at_least_one(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def chosen(parser, words):
    """The (scenario, server) pairs that the words name."""
    pairs = [(scenario, server) for scenario in SCENARIOS for server in scenario.servers]

    def named(word):
        found = [(c, s) for c, s in pairs if word in (c.name, s.name, f"{c.name}/{s.name}")]
        return found or parser.error(f"there is no row {word!r}; --list prints them")

    wanted = [pair for word in words for pair in named(word)] if words else pairs
    return [pair for pair in pairs if pair in wanted]


TROUBLES = (OSError, RuntimeError, ValueError, CannotRun, subprocess.SubprocessError)


def all_turns(scenario, servers, settings, results):
    """All servers at once, each loaded in each turn, or in some; the first turn warms them up."""
    with contextlib.ExitStack() as stack:
        alive = {}
        for server in servers:
            row = f"{scenario.name}/{server.name}"
            if row in results.hopeless:
                continue
            try:
                alive[server] = stack.enter_context(start.started(server, settings["cores"].server))
            except TROUBLES as error:
                failed(row, error, results)
        turn_s = TURN_S * scenario.longer
        turns = round(settings["rounds"] * settings["seconds"] / TURN_S)
        say(f"{scenario.name}: {turns} turns of {', '.join(server.name for server in alive)}")
        for number in range(-1, turns):
            for server in rotated([server for server in servers if server in alive], number):
                row = f"{scenario.name}/{server.name}"
                if number > 0 and number % SPARSE and row not in COMPARED:
                    continue
                try:
                    numbers = measured(scenario, server, alive[server], settings, turn_s)
                except TROUBLES as error:
                    failed(row, error, results)
                    if not alive[server].alive():
                        del alive[server]
                else:
                    if number >= 0:
                        results.add(row, number, numbers)


def one_round(scenario, servers, number, settings, results):
    """Each server once, alone."""
    for server in rotated(servers, number):
        row = f"{scenario.name}/{server.name}"
        if row in results.hopeless:
            continue
        say(f"round {number + 1}/{settings['rounds']}: {row}")
        try:
            with start.started(server, settings["cores"].server) as process:
                results.add(
                    row, number, measured(scenario, server, process, settings, settings["seconds"])
                )
        except TROUBLES as error:
            failed(row, error, results)


def rotated(servers, number):
    """In another order each time: none always comes after the same one."""
    turn = number % max(len(servers), 1)
    return servers[turn:] + servers[:turn]


def measured(scenario, server, process, settings, seconds):
    options = scenario.options | scenario.by_server.get(server.name, {})
    path = {"path": server.path} if server.path != "/" else {}
    return scenario.measure(process, settings["cores"], seconds, **path | options)


def failed(row, error, results):
    results.fail(row, str(error) or type(error).__name__, for_good=isinstance(error, NotInstalled))
    say(f"{row} failed: {error}")


def page(rows, settings, results):
    lines = report.head(" ".join(["script/bench", *sys.argv[1:]]), settings)
    servers = {}
    for scenario in SCENARIOS:
        chosen_rows = [(f"{scenario.name}/{s.name}", start.title_of(s)) for c, s in rows if c is scenario]
        if chosen_rows:
            lines += ["", *report.table(scenario, chosen_rows, results)]
    for _, server in rows:
        servers[start.shown(server)] = start.title_of(server)
    names = {row for row, _ in results.samples.items()}
    wanted = [goal for goal in GOALS if goal.row in names]
    if wanted:
        lines += ["", *report.goals(wanted, results)]
    lines += ["", *report.commands([(title, command) for command, title in servers.items()])]
    return "\n".join(lines) + "\n"


def revision():
    done = subprocess.run(
        ["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "of unknown revision"


def say(text):
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
