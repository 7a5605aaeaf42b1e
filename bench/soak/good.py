"""Clients that ask for what they can reckon, and compare each byte of it."""

import asyncio
import dataclasses
import random
import time

from .wire import Connection, Ended, Wrong, frame, message, websocket

LETTERS = (
    b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789" * 20_000
)  # as the applications have them
PAUSE_S = 0.2  # of a client between two requests
LARGE_PART = 20  # each 20th request is large
CLOSING = (1001, 1012)  # of a WebSocket whose worker leaves


@dataclasses.dataclass
class Turn:
    """What one client has under way: since when, and in which process as far as an answer has told it."""

    server: str
    begun: float = 0.0
    process: int | None = None

    def begin(self):
        self.begun, self.process = time.monotonic(), None

    def answered(self, fields):
        self.process = int(fields["x-process"])


@dataclasses.dataclass(frozen=True)
class Failure:
    text: str
    turn: Turn
    failed: float


class Tally:
    """What all of them have found."""

    def __init__(self):
        self.counts = {}
        self.failures = []
        self.last_process = {}  # of each server, the process that has answered last
        self.latencies = []  # (when, seconds) of small answers
        self.late = []  # the same of these clients' own timers

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1


def size_of(numbers):
    return numbers.randrange(400_000) if numbers.randrange(LARGE_PART) == 0 else numbers.randrange(2000)


async def forever(tally, server, name, client, *arguments, **options):
    """Runs a client again and again; what is wrong is noted, and it goes on."""
    while True:
        turn = Turn(server)
        try:
            await client(tally, turn, *arguments, **options)
        except (Wrong, OSError, ValueError, IndexError) as error:
            text = f"{time.strftime('%H:%M:%S')} {name}: {error}"
            tally.failures.append(Failure(text, turn, time.monotonic()))
            await asyncio.sleep(1)


async def requests(tally, turn, place, keeps, belongs=True, pause_s=PAUSE_S):
    """Requests on a connection that stays until the server says that it closes, or each on one of its own. A
    connection belongs to one process, or each request may be another process's."""
    numbers = random.Random()
    connection = None
    try:
        while True:
            due = time.monotonic() + numbers.uniform(0, 2 * pause_s)
            await asyncio.sleep(due - time.monotonic())
            tally.late.append((due, time.monotonic() - due))
            if not (connection and belongs):
                turn.begin()
            if not connection:
                connection = await Connection.open(place)
            begun = time.monotonic()
            size = size_of(numbers)
            goes_on = await _ask(connection, turn, numbers, size, keeps)
            tally.last_process[turn.server] = turn.process
            if size < 2000:
                tally.latencies.append((begun, time.monotonic() - begun))
            tally.count("requests")
            if not goes_on:
                connection.close()
                connection = None
    finally:
        if connection:
            connection.close()


async def _ask(connection, turn, numbers, size, keeps):
    first = numbers.randrange(62)
    body = LETTERS[first : first + size]
    close = b"" if keeps else b"Connection: close\r\n"
    if numbers.randrange(4) == 0:
        length = f"Content-Length: {size}\r\n\r\n".encode()
        await connection.send(b"POST / HTTP/1.1\r\nHost: localhost\r\n" + close + length + body)
    else:
        target = f"GET /bytes/{first}/{size} HTTP/1.1\r\nHost: localhost\r\n".encode()
        await connection.send(target + close + b"\r\n")
    status, fields = await connection.head("answer")
    if status != 200:
        raise Wrong(f"answered {status}")
    turn.answered(fields)
    if await connection.exactly("body", int(fields["content-length"])) != body:
        raise Wrong("the body is wrong")
    return keeps and fields.get("connection", "").lower() != "close"


def code_of(payload):
    return int.from_bytes(payload[:2], "big")


def is_leaving(payload):
    """Whether a close frame says that the worker leaves."""
    return code_of(payload) in CLOSING


async def sockets(tally, turn, place):
    """Messages of every size that must come back, on a WebSocket that lasts a minute or until its worker
    leaves."""
    numbers = random.Random()
    turn.begin()
    connection, fields = await websocket(place)
    turn.answered(fields)
    try:
        for _ in range(numbers.randrange(100, 300)):
            await asyncio.sleep(numbers.uniform(0, 2 * PAUSE_S))
            size, kind = min(size_of(numbers), 60_000), numbers.choice((1, 2))
            await connection.send(frame(kind, LETTERS[:size]))
            opcode, payload = await message(connection)
            if opcode == 8:
                if not is_leaving(payload):
                    raise Wrong(f"closed with {code_of(payload)}")
                await connection.send(frame(8, payload))
                return tally.count("WebSockets closed for a new worker")
            if (opcode, payload) != (kind, LETTERS[:size]):
                raise Wrong(f"a message of {size} bytes came back as {opcode} with {len(payload)}")
            tally.count("messages")
        await connection.send(frame(8, b"\x03\xe8"))
        opcode, payload = await message(connection)
        # A worker that leaves may have closed at the same moment (RFC 6455 section 7.1.5).
        if opcode != 8 or code_of(payload) != 1000 and not is_leaving(payload):
            raise Wrong("the close frame was not answered")
        return tally.count("WebSockets")
    finally:
        connection.close()


async def events(tally, turn, place):
    """An event stream, each number of which comes once and in order, until its worker leaves or half a minute
    has passed."""
    numbers = random.Random()
    due = numbers.randrange(1_000_000)
    turn.begin()
    connection = await Connection.open(place)
    try:
        await connection.send(
            f"GET /events/{due} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n".encode()
        )
        status, fields = await connection.head("event stream")
        if status != 200:
            raise Wrong(f"event stream: answered {status}")
        turn.answered(fields)
        text = b""
        end = time.monotonic() + numbers.uniform(5, 30)
        while time.monotonic() < end:
            chunk = await connection.chunk("event stream")
            if not chunk:
                return tally.count("event streams ended for a new worker")
            *whole, text = (text + chunk).split(b"\n\n")
            for event in whole:
                if event != f"data: {due}".encode():
                    raise Wrong(f"event {due} is {event!r}")
                due += 1
                tally.count("events")
        return tally.count("event streams")
    except Ended as error:
        raise Wrong(f"event stream: {error}") from None
    finally:
        connection.close()
