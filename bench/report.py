"""Measurements become a Markdown page: medians over the rounds, and the goals. Does not know how they were
taken."""

import datetime
import os
import platform
from statistics import median

YARDSTICK = "yardstick"


class Results:
    """What the rounds gave: numbers by row, and words about what failed."""

    def __init__(self):
        self.samples = {}  # row: {round: numbers}
        self.words = {}  # row: the last failure's words
        self.hopeless = set()  # rows that will not work in another round either

    def add(self, row, number, numbers):
        self.samples.setdefault(row, {})[number] = numbers

    def fail(self, row, words, for_good=False):
        self.words[row] = words
        if for_good:
            self.hopeless.add(row)

    def numbers(self, row, key):
        """{round: number}; `ratio` is CPU time to the yardstick's in the same round and scenario."""
        if key == "ratio":
            return self.ratios(row, f"{row.partition('/')[0]}/{YARDSTICK}", "cpu_us")
        return {
            number: sample[key]
            for number, sample in self.samples.get(row, {}).items()
            if sample.get(key) is not None
        }

    def ratios(self, row, other, key):
        ours, theirs = self.numbers(row, key), self.numbers(other, key)
        return {number: ours[number] / theirs[number] for number in ours if theirs.get(number)}


def cell(column, values):
    """A column's median, with its range if it is wanted: a wide one says that the machine had other things
    to do."""
    if not values:
        return "–"
    if column.total:
        return format(sum(values), column.form)
    shown = [
        format(value / column.scale, column.form) for value in (median(values), min(values), max(values))
    ]
    return f"{shown[0]} ({shown[1]} to {shown[2]})" if column.spread and len(values) > 1 else shown[0]


def table(scenario, rows, results):
    """rows: (row name, title) in the order to print. A row without numbers says why."""
    heads = [column.head for column in scenario.columns]
    lines = [f"## {scenario.title}", "", scenario.text, ""]
    lines += ["| Server | " + " | ".join(heads) + " |", "|---|" + "---:|" * len(heads)]
    notes = []
    for row, title in rows:
        words = results.words.get(row)
        if not results.samples.get(row):
            lines.append(
                f"| {title} | " + " | ".join([words or "not measured"] + [""] * (len(heads) - 1)) + " |"
            )
            continue
        cells = [cell(column, list(results.numbers(row, column.key).values())) for column in scenario.columns]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
        if words:
            notes.append(f"{title}, in one round: {words}.")
    return lines + ([""] + notes if notes else [])


def goals(wanted, results):
    lines = ["## Goals", "", "| Figure | goal | median (lowest to highest) | |", "|---|---:|---:|---|"]
    for goal in wanted:
        found = (
            results.ratios(goal.row, goal.to, goal.key) if goal.to else results.numbers(goal.row, goal.key)
        )
        values = [value / goal.scale for value in found.values()]
        name = f"{goal.row}, {goal.key}" + (f", to {goal.to}" if goal.to else "")
        form = ".2f" if goal.to else ",.0f"
        if not values:
            lines.append(f"| {name} | ≤ {goal.most:g} {goal.unit} | – | not measured |")
            continue
        verdict = "met" if median(values) <= goal.most else "**missed**"
        spread = f" ({min(values):{form}} to {max(values):{form}})" if len(values) > 1 else ""
        lines.append(
            f"| {name} | ≤ {goal.most:g} {goal.unit} | {median(values):{form}}{spread} | {verdict} |"
        )
    return lines


def machine():
    model = "unknown CPU"
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith(("model name", "Model")):
                model = line.partition(":")[2].strip()
                break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} {platform.release()}"


def head(command, settings):
    return [
        "# Benchmarks",
        "",
        f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC, {machine()}, load before the"
        f" run {settings['load']:.2f}.",
        f"Peregrine {settings['revision']}. `{command}`: {settings['rounds']} rounds of"
        f" {settings['seconds']} s each; servers on core {settings['cores'].server}, the load on core"
        f" {settings['cores'].load}. The servers of a scenario are alive together and loaded in turns of a second,"
        " which are its rounds; for latency, idle connections and growth they run one at a time.",
        "",
        "Figures are medians over the rounds, in brackets the lowest and the highest; errors are summed."
        " CPU is that of all the server's processes, the kernel's work for them included. RSS counts shared"
        " pages once. Ratios are taken within each round, `× yardstick` against a bare epoll loop with a"
        " constant answer.",
    ]


def commands(servers):
    """How each server was started."""
    lines = [
        "## Commands",
        "",
        "In each row's own directory with the files of `bench/peers`; `$PORT` is a free port.",
        "",
    ]
    return lines + [f"- {title}: `{command}`" for title, command in servers]
