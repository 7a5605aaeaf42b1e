"""Samples become a Markdown page: medians over the rounds. Refuses to know how they were taken."""

import datetime
import os
import platform
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Sample:
    """One server in one scenario of one round."""

    requests_per_s: float
    p50_us: int | None  # None: not measured
    p99_us: int | None
    errors: int
    rss_bytes: int
    cpu_us: float  # of the server, per request
    ratio: float | None  # cpu_us to the yardstick's in the same round

    HEAD = ("requests/s", "p50 ms", "p99 ms", "errors", "RSS MiB", "CPU µs/request", "× yardstick")

    @staticmethod
    def cells(samples):
        """The row's cells, in the order of HEAD."""

        def middle(field, form, scale=1):
            values = [getattr(sample, field) for sample in samples]
            values = [value for value in values if value is not None]
            return format(median(values) / scale, form) if values else "–"

        return (
            middle("requests_per_s", ",.0f"),
            middle("p50_us", ".2f", 1000),
            middle("p99_us", ".2f", 1000),
            str(sum(sample.errors for sample in samples)),
            middle("rss_bytes", ".1f", 2**20),
            middle("cpu_us", ".2f"),
            middle("ratio", ".2f") + _range([sample.ratio for sample in samples]),
        )


def _range(ratios):
    """How far the rounds lie apart: a wide range says that the machine had other things to do."""
    ratios = [ratio for ratio in ratios if ratio is not None]
    return f" ({min(ratios):.2f} to {max(ratios):.2f})" if len(ratios) > 1 else ""


def machine():
    model = "unknown CPU"
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith(("model name", "Model")):
                model = line.partition(":")[2].strip()
                break
    return f"{model}, {os.cpu_count()} cores, {platform.system()} {platform.release()}"


def page(rows, scenarios, left_out, command, settings):
    """rows: {(server title, scenario name): [Sample]}, in the order to print."""
    lines = [
        "# Benchmarks",
        "",
        f"{datetime.date.today()}, {machine()}, load before the run {settings['load']:.2f}.",
        f"`{command}`: {settings['seconds']} s a round, rounds: {settings['rounds']},"
        f" {settings['connections']} connections; server on core {settings['server_core']},"
        f" wrk on core {settings['load_core']}. Medians; errors are summed.",
        "RSS counts shared pages once. CPU is that of all the server's processes, kernel work included.",
        "The ratio is taken within each round, against a bare epoll loop with a constant answer; its range follows.",
    ]
    for scenario in scenarios:
        lines += ["", f"## {scenario.title}" + (f" by {scenario.depth}" if scenario.depth > 1 else ""), ""]
        lines += ["| Server | " + " | ".join(Sample.HEAD) + " |", "|---|" + "---:|" * len(Sample.HEAD)]
        for (title, name), samples in rows.items():
            if name == scenario.name and samples:
                lines.append(f"| {title} | " + " | ".join(Sample.cells(samples)) + " |")
    if left_out:
        lines += ["", "Left out:", ""] + [f"- {title}: {why}" for title, why in left_out.items()]
    return "\n".join(lines) + "\n"
