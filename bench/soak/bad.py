"""Clients that nobody wants: each does one thing that is wrong, slowly or rudely, and goes."""

import asyncio
import contextlib
import random

from .wire import Connection, websocket

WAIT_S = 20  # the longest that one of them hangs about


async def forever(clients):
    """Bad clients one after the other; whatever becomes of them is no matter."""
    while True:
        client, *arguments = random.choice(clients)
        with contextlib.suppress(Exception):
            async with asyncio.timeout(WAIT_S):
                await client(*arguments)
        await asyncio.sleep(random.uniform(0, 1))


@contextlib.asynccontextmanager
async def _connected(place):
    connection = await Connection.open(place)
    try:
        yield connection
    finally:
        connection.reset()


async def says_nonsense(place):
    async with _connected(place) as bad:
        await bad.send(random.randbytes(random.randrange(1, 2000)))
        await bad.reader.read(1000)


async def trickles(place):
    async with _connected(place) as bad:
        await bad.send(b"GET / HTTP/1.1\r\nHost: h\r\n")
        while True:
            await bad.send(b"X: y\r\n")
            await asyncio.sleep(0.5)


async def breaks_off(place):
    async with _connected(place) as bad:
        await bad.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n" + bytes(50_000))
        await asyncio.sleep(random.uniform(0, 1))


async def stalls_in_chunks(place):
    async with _connected(place) as bad:
        await bad.send(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel")
        await bad.reader.read(1000)


async def says_too_much(place):
    async with _connected(place) as bad:
        await bad.send(b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n")
        await bad.reader.read(1000)


async def does_not_read(place):
    async with _connected(place) as bad:
        bad.reader._transport.pause_reading()
        await bad.send(b"GET /bytes/0/1000000 HTTP/1.1\r\nHost: h\r\n\r\n" * 20)
        await asyncio.sleep(random.uniform(1, WAIT_S))


async def frames_nonsense(place):
    bad, _ = await websocket(place)
    try:
        await bad.send(random.randbytes(500))
        await bad.reader.read(1000)
    finally:
        bad.reset()


async def leaves_a_stream(place):
    async with _connected(place) as bad:
        await bad.send(b"GET /events/0 HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n")
        await asyncio.sleep(random.uniform(0, 3))


async def stalls_its_handshake(port, hello):
    async with _connected((port, None)) as bad:
        await bad.send(hello[: random.randrange(len(hello))])
        await bad.reader.read(1000)


HTTP = (says_nonsense, trickles, breaks_off, stalls_in_chunks, says_too_much, does_not_read)
LIVE = (frames_nonsense, leaves_a_stream)
