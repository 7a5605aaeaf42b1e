"""Which workers connections come to."""

import asyncio
import signal

from check import at_least, at_most, exactly, note, serving
from soak.wire import Connection, Wrong

WORKERS = 4
CONNECTIONS = 10_000
AT_ONCE = 50
PART = 0.15
SHORT_PART = 0.4  # of fewer connections, chance has more to say
REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
RESTART_S = 1


def spread(settings):
    """10,000 short connections over 4 workers with --reuseport: each gets a quarter within 15 %, also while
    workers are replaced."""
    cores = {settings.cores.server, settings.cores.load}
    count = settings.seconds(CONNECTIONS, 1000)
    arguments = ("--port", "@PORT@", "--workers", str(WORKERS), "--reuseport")
    findings = []
    with serving(settings, "workers/app.pl", arguments=arguments, cores=cores) as process:
        for name, replaces in (("at rest", False), ("while workers are replaced", True)):
            answers, failures, restarts = asyncio.run(_ask(process, count, replaces))
            even, part = count / WORKERS, settings.seconds(PART, SHORT_PART)
            numbers = [answers.get(number, 0) for number in range(1, WORKERS + 1)]
            findings += [
                exactly(f"{name}: connections that failed", len(failures), 0),
                *(note("  the first", failure) for failure in failures[:1]),
                at_least(f"{name}: the fewest of {numbers}", min(numbers), even * (1 - part), "", ",.0f"),
                at_most(f"{name}: the most", max(numbers), even * (1 + part), "", ",.0f"),
            ]
            if replaces:
                findings.append(at_least("rolling restarts meanwhile", restarts, 1, "", ",d"))
    return findings


async def _ask(process, count, replaces):
    """(answers by the worker's number, failures, restarts asked for)"""
    answers, failures, restarts = {}, [], 0
    left = iter(range(count))

    async def client():
        for _ in left:
            try:
                number = await _number((process.port, None))
                answers[number] = answers.get(number, 0) + 1
            except (Wrong, ValueError) as error:
                failures.append(str(error))

    clients = asyncio.gather(*(client() for _ in range(AT_ONCE)))
    while replaces and not clients.done():
        process.child.send_signal(signal.SIGHUP)
        restarts += 1
        await asyncio.wait([clients], timeout=RESTART_S)
    await clients
    return answers, failures, restarts


async def _number(place):
    connection = await Connection.open(place)
    try:
        await connection.send(REQUEST)
        status, fields = await connection.head("answer")
        if status != 200:
            raise Wrong(f"answered {status}")
        return int(await connection.exactly("body", int(fields["content-length"])))
    finally:
        connection.close()
