"""Which workers connections come to that stay."""

import asyncio
from collections import Counter

from check import at_least, at_most, exactly, note, serving
from soak.wire import Connection, websocket

WEBSOCKETS = 400
SHARE = 1.3  # of a worker's even part
CONNECTIONS = 32
APART_S = 0.002
COMPUTE_MS = 10
GAIN = 1.9
ROUNDS = 3
COMPUTE = f"GET /compute?ms={COMPUTE_MS} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def kept(settings):
    """Four workers that share their listening socket: of 400 WebSockets, opened at once or 2 ms apart, none
    has more than 1.3 times its part. Two workers answer at least 1.9 times as many requests as one on 32
    connections that are opened 2 ms apart and compute for 10 ms in each."""
    cores = {settings.cores.server, settings.cores.load}
    return [*_websockets(settings, cores), *_gain(settings, cores)]


def _websockets(settings, cores):
    even = WEBSOCKETS / 4
    for name, apart in (("at once", 0), ("2 ms apart", APART_S)):
        with _workers(settings, cores, 4) as process:
            counts = asyncio.run(_opened(process.port, apart))
        numbers = [counts.get(number, 0) for number in range(1, 5)]
        yield exactly(f"WebSockets {name}: open", sum(numbers), WEBSOCKETS)
        yield at_most(f"WebSockets {name}: the most of {numbers}", max(numbers), even * SHARE, "", ",.0f")


def _gain(settings, cores):
    seconds = settings.seconds(4, 1)
    best = {}
    # Both servers by turns; the best round of each counts, as in scale.py.
    for number in range(settings.seconds(ROUNDS, 1)):
        for workers in (1, 2):
            with _workers(settings, cores, workers) as process:
                answers = asyncio.run(_computed(process.port, seconds))
            best[workers] = max(best.get(workers, 0), answers.total())
        yield note(f"round {number + 1}: answers by worker", [answers[worker] for worker in (1, 2)])
    yield at_least("two workers, of one's answers", best[2] / best[1], GAIN, "times", ".2f")


def _workers(settings, cores, count):
    arguments = ("--port", "@PORT@", "--workers", str(count))
    return serving(settings, "workers/app.pl", arguments=arguments, cores=cores)


async def _opened(port, apart):
    """WebSockets by the number of the worker that has them."""
    connections = []

    async def opened():
        connection, _ = await websocket((port, None))
        connections.append(connection)
        # A text message of one digit.
        return int((await connection.exactly("message", 3))[2:])

    try:
        return Counter(await _apart(opened, WEBSOCKETS, apart))
    finally:
        for connection in connections:
            connection.close()


async def _computed(port, seconds):
    """Answers within a time by the number of the worker that gave them."""
    answers = Counter()
    loop = asyncio.get_running_loop()
    end = loop.time() + CONNECTIONS * APART_S + 0.5 + seconds
    begin = end - seconds

    async def client():
        connection = await Connection.open((port, None))
        try:
            while loop.time() < end:
                await connection.send(COMPUTE)
                _, fields = await connection.head("answer")
                number = int(await connection.exactly("body", int(fields["content-length"])))
                if begin <= loop.time() < end:
                    answers[number] += 1
        finally:
            connection.close()

    await _apart(client, CONNECTIONS, APART_S)
    return answers


async def _apart(client, count, apart):
    """The results of as many clients, which begin one after the other."""
    tasks = []
    for _ in range(count):
        tasks.append(asyncio.create_task(client()))
        await asyncio.sleep(apart)
    return await asyncio.gather(*tasks)
