"""Measurements become a Markdown page: medians over the rounds, and the goals. Does not know how they were
taken."""

import datetime
import os
import platform
from statistics import median, quantiles

YARDSTICK = "yardstick"
MOST = 0.75  # of the rounds: that many decide whether a goal is met or missed


class Results:
    """What the rounds gave: numbers by row, and words about what failed."""

    def __init__(self):
        self.samples = {}  # row: {round: numbers}
        self.words = {}  # row: the last failure's words
        self.failures = {}  # row: how many of its rounds failed
        self.hopeless = set()  # rows that will not work in another round either

    def add(self, row, number, numbers):
        self.samples.setdefault(row, {})[number] = numbers

    def fail(self, row, words, for_good=False):
        self.words[row] = words
        self.failures[row] = self.failures.get(row, 0) + 1
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
            failed = results.failures[row]
            notes.append(f"{title}, in {failed} of {failed + len(results.samples[row])} rounds: {words}.")
    return lines + ([""] + notes if notes else [])


def goals(wanted, results):
    """A goal is met or missed when most rounds say so, else undecided: the middle half of them lies on both
    sides."""
    lines = [
        "## Goals",
        "",
        "Ratios are those of paired rounds. A goal is met when it is met in three quarters of the rounds, missed"
        " when it is met in no more than a quarter; between these it is undecided, for the middle half of the"
        " rounds lies on both sides of it.",
        "",
        "| Figure | goal | median | middle half | lowest to highest | rounds that met it | |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for goal in wanted:
        found = (
            results.ratios(goal.row, goal.to, goal.key) if goal.to else results.numbers(goal.row, goal.key)
        )
        values = [value / goal.scale for value in found.values()]
        name = f"{goal.row}, {goal.key}" + (f", to {goal.to}" if goal.to else "")
        form = ".2f" if goal.to else ",.0f"
        cells = [name, f"≤ {goal.most:g} {goal.unit}"]
        if values:
            low, _, high = quantiles(values, method="inclusive") if len(values) > 1 else values * 3
            met = sum(value <= goal.most for value in values)
            cells += [
                f"{median(values):{form}}",
                f"{low:{form}} to {high:{form}}",
                f"{min(values):{form}} to {max(values):{form}}",
                f"{met} of {len(values)}",
                verdict(met, len(values)),
            ]
        else:
            cells += ["–", "", "", "", "not measured"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def verdict(met, rounds):
    if met >= MOST * rounds:
        return "met"
    return "**missed**" if rounds - met >= MOST * rounds else "undecided"


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
        f" {settings['cores'].load}. The servers of a scenario are alive together and loaded in turns of"
        f" {settings['turn']:g} s, which are its rounds, those that no goal needs in every"
        f" {settings['sparse']}th turn only; for memory they run one at a time.",
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
