"""HTTP and WebSocket as far as the clients of the soak need them, on asyncio's streams. Whatever is not as it
must be is a Wrong."""

import asyncio
import base64
import os
import struct

PATIENCE_S = 30


class Wrong(Exception):
    """What a good client did not get, in words."""


class Ended(Wrong):
    """The connection was closed before an answer began."""


async def within(what, awaitable):
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await awaitable
    except TimeoutError:
        raise Wrong(f"{what}: nothing for {PATIENCE_S} s") from None
    except asyncio.IncompleteReadError as error:
        kind = Wrong if error.partial else Ended
        raise kind(f"{what}: the connection ended after {len(error.partial)} bytes") from None
    except OSError as error:
        raise Wrong(f"{what}: {error}") from None


class Connection:
    """One connection, to be closed by its user."""

    @classmethod
    async def open(cls, place):
        """A place is (port, TLS context or None)."""
        port, context = place
        self = cls()
        self.reader, self.writer = await within(
            "connect", asyncio.open_connection("127.0.0.1", port, ssl=context, limit=1 << 22)
        )
        return self

    async def send(self, data):
        self.writer.write(data)
        await within("send", self.writer.drain())

    async def head(self, what):
        """(status, fields by their names in lower case)."""
        head = await within(what, self.reader.readuntil(b"\r\n\r\n"))
        status, *lines = head.decode("latin-1").split("\r\n")[:-2]
        fields = dict((name.lower(), value.strip()) for name, value in (line.split(":", 1) for line in lines))
        return int(status.split()[1]), fields

    async def exactly(self, what, count):
        return await within(what, self.reader.readexactly(count))

    async def chunk(self, what):
        """The next chunk of a chunked body; empty at its end."""
        size = int(await within(what, self.reader.readuntil(b"\r\n")), 16)
        return (await self.exactly(what, size + 2))[:-2]

    def close(self):
        self.writer.close()

    def reset(self):
        self.writer.transport.abort()


async def websocket(place):
    """A connection after the handshake, and the fields of the answer."""
    connection = await Connection.open(place)
    key = base64.b64encode(os.urandom(16)).decode()
    await connection.send(
        b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + key.encode() + b"\r\n\r\n"
    )
    status, fields = await connection.head("handshake")
    if status != 101:
        connection.close()
        raise Wrong(f"handshake: answered {status}")
    return connection, fields


def frame(opcode, payload):
    """A whole message, or a control frame, masked with zeros."""
    size = len(payload)
    if size < 126:
        head = struct.pack("!BB", 0x80 | opcode, 0x80 | size)
    elif size < 65536:
        head = struct.pack("!BBH", 0x80 | opcode, 0x80 | 126, size)
    else:
        head = struct.pack("!BBQ", 0x80 | opcode, 0x80 | 127, size)
    return head + bytes(4) + payload


async def message(connection):
    """(opcode, payload) of the next frame, which must be a whole one."""
    first, size = await connection.exactly("frame", 2)
    if size == 126:
        (size,) = struct.unpack("!H", await connection.exactly("frame", 2))
    elif size == 127:
        (size,) = struct.unpack("!Q", await connection.exactly("frame", 8))
    if not first & 0x80 or size > 1 << 24:
        raise Wrong(f"a frame that begins with {first} and is {size} long")
    return first & 0x0F, await connection.exactly("frame", size)
