"""Servers one after the other on one core, wrk on the other: requests/s, latency, CPU per request.

Every round takes each server once, in another order, so that a machine whose mood changes troubles
all alike; the yardstick of the same round is what a server's CPU time is divided by.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

import load
import report
from process import CannotRun, Process, free_port
from table import SCENARIOS, SERVERS, YARDSTICK

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD_S = 900
WARM_UP_S = 1


def main():
    options = parse_options()
    if not shutil.which("wrk"):
        sys.exit("bench: wrk is not installed; run script/bench --install")
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        sys.exit("bench: two cores are needed, one for the server and one for wrk")
    settings = vars(options) | {"server_core": cores[0], "load_core": cores[-1], "load": os.getloadavg()[0]}

    left_out = {}
    servers = [server for server in SERVERS if server.name in options.only]
    servers = [server for server in servers if prepared(server, left_out)]
    titles = {server.name: title_of(server) for server in servers}
    scenarios = [scenario for scenario in SCENARIOS if scenario.name in options.scenarios]
    bursts = {}
    for number in range(options.rounds):
        turn = number % max(len(servers), 1)
        for server in servers[turn:] + servers[:turn]:
            if server.title in left_out:
                continue
            say(f"round {number + 1}/{options.rounds}: {titles[server.name]}")
            try:
                measure(server, scenarios, settings, number, bursts)
            except (CannotRun, subprocess.TimeoutExpired, RuntimeError) as error:
                left_out[server.title] = str(error)
                say(f"  left out: {error}")

    rows = {
        (titles[server.name], scenario.name): samples_of(server, scenario, bursts)
        for server in servers
        for scenario in scenarios
    }
    text = report.page(rows, scenarios, left_out, command_line(), settings)
    print(text, end="")
    if options.out:
        os.makedirs(os.path.dirname(os.path.abspath(options.out)), exist_ok=True)
        with open(options.out, "w", encoding="utf-8") as file:
            file.write(text)
    return 0 if bursts else 1


def parse_options():
    parser = argparse.ArgumentParser(prog="script/bench", description=__doc__)
    parser.add_argument("--install", action="store_true", help="install missing peers first (Debian)")
    parser.add_argument("--only", metavar="A,B", help="servers: " + ", ".join(server.name for server in SERVERS))
    parser.add_argument("--scenarios", metavar="A,B", help=", ".join(scenario.name for scenario in SCENARIOS))
    parser.add_argument("--rounds", type=at_least_one, default=3)
    parser.add_argument("--seconds", type=at_least_one, default=4, help="of load in each round")
    parser.add_argument("--connections", type=at_least_one, default=64)
    parser.add_argument("--pipeline", type=at_least_one, help="requests sent at once, instead of 16")
    parser.add_argument("--out", help="Markdown file; docs/BENCHMARKS.md when all servers and scenarios run")
    options = parser.parse_args()
    whole = not (options.only or options.scenarios)
    options.only = names(parser, options.only, [server.name for server in SERVERS])
    options.scenarios = names(parser, options.scenarios, [scenario.name for scenario in SCENARIOS])
    if options.out is None and whole:
        options.out = os.path.join(ROOT, "docs", "BENCHMARKS.md")
    return options


def at_least_one(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def names(parser, text, known):
    wanted = text.split(",") if text else known
    for name in wanted:
        if name not in known:
            parser.error(f"there is no {name!r}; known: {', '.join(known)}")
    return wanted


def prepared(server, left_out):
    """Builds what the server needs; one that cannot be built is left out."""
    if not server.build:
        return True
    say(f"building {server.name}")
    done = subprocess.run(
        replaced(server.build), cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BUILD_S, check=False
    )
    if done.returncode == 0:
        return True
    errors = [line for line in (done.stderr + done.stdout).splitlines() if "error:" in line]
    left_out[server.title] = "does not build: " + (errors[0].strip() if errors else "no reason given")
    return False


def title_of(server):
    if not server.version:
        return server.title
    try:
        done = subprocess.run(replaced(server.version), capture_output=True, text=True, timeout=20, check=False)
    except OSError:
        return server.title
    number = re.search(r"\d+(\.\d+)+", done.stdout + done.stderr)
    return f"{server.title} {number[0]}" if number and done.returncode == 0 else server.title


def measure(server, scenarios, settings, number, bursts):
    """One server through all scenarios; adds (Burst, CPU seconds, RSS) to bursts."""
    with tempfile.TemporaryDirectory(prefix="peregrine-bench-") as work:
        os.chmod(work, 0o755)
        port = free_port()
        words = {"@PORT@": str(port), "@WORK@": work, "@CONNECTIONS@": str(settings["connections"])}
        for name in server.files:
            copy_replaced(os.path.join(ROOT, "bench", "peers", name), os.path.join(work, name), words)
        log = os.path.join(work, "log")
        process = Process(replaced(server.command, words), settings["server_core"], work, port, log)
        try:
            for scenario in scenarios:
                process.wait_until_it_answers(scenario.path)
                bursts[server.name, scenario.name, number] = one_burst(process, scenario, settings)
        finally:
            process.stop()


def one_burst(process, scenario, settings):
    url = f"http://127.0.0.1:{process.port}{scenario.path}"
    depth = settings["pipeline"] or scenario.depth if scenario.depth > 1 else 1
    core, connections = settings["load_core"], settings["connections"]
    load.run(url, core, connections, WARM_UP_S, depth)
    before = process.cpu_seconds()
    burst = load.run(url, core, connections, settings["seconds"], depth)
    cpu_s = process.cpu_seconds() - before
    if not process.alive():
        raise CannotRun("died under load")
    if not burst.requests:
        raise CannotRun("completed no request")
    return burst, cpu_s, process.rss_bytes()


def samples_of(server, scenario, bursts):
    samples = []
    for (name, scenario_name, number), (burst, cpu_s, rss) in bursts.items():
        if (name, scenario_name) != (server.name, scenario.name):
            continue
        cpu_us = cpu_s * 1e6 / burst.requests
        yardstick = bursts.get((YARDSTICK, scenario.name, number))
        ratio = cpu_us / (yardstick[1] * 1e6 / yardstick[0].requests) if yardstick else None
        rate = burst.requests * 1e6 / burst.duration_us
        # wrk corrects its histogram as though one request were under way, so pipelined it means nothing.
        p50_us, p99_us = (burst.p50_us, burst.p99_us) if scenario.depth == 1 else (None, None)
        samples.append(report.Sample(rate, p50_us, p99_us, burst.errors, rss, cpu_us, ratio))
    return samples


def replaced(command, words=None):
    words = {"@ROOT@": ROOT} | (words or {})
    return [replace_words(argument, words) for argument in command]


def replace_words(text, words):
    return re.sub(r"@[A-Z]+@", lambda match: words.get(match[0], match[0]), text)


def copy_replaced(source, target, words):
    with open(source, encoding="utf-8") as file:
        text = file.read()
    with open(target, "w", encoding="utf-8") as file:
        file.write(replace_words(text, words))


def command_line():
    return " ".join(["script/bench", *sys.argv[1:]])


def say(text):
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
