"""Compressed WebSocket messages of 16 KB that inflate to 16 MiB each."""

import base64
import contextlib
import os
import socket
import struct
import threading
import zlib

from check import at_most, exactly, note, serving

from .normal import Normal, failed

CONNECTIONS = 40
MESSAGES = 10
MESSAGE_BYTES = 16 * 1024 * 1024
GROWTH_BYTES = 64 * 1024 * 1024
PATIENCE_S = 120


def bombs(settings):
    """40 WebSockets send 10 messages of 16 KB each that inflate to 16 MiB: memory grows by no more than
    four of them, and nobody waits."""
    connections = settings.seconds(CONNECTIONS, 8)
    messages = settings.seconds(MESSAGES, 3)
    frame = _bomb()
    with serving(settings, "abuse/app.pl") as process, contextlib.ExitStack() as stack:
        before = process.rss_bytes()
        sockets = [stack.enter_context(_websocket(process.port)) for _ in range(connections)]
        answered = []
        threads = [threading.Thread(target=_send, args=(each, frame, messages, answered)) for each in sockets]
        with Normal(process.port, settings.cores.load) as normal:
            cpu = process.cpu_seconds()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            cpu = process.cpu_seconds() - cpu
        growth = _most_bytes(process.child.pid) - before
    return [
        exactly("messages answered", sum(answered), connections * messages),
        note(
            "sent and inflated",
            f"{len(frame) * connections * messages / 1e6:.1f} MB and"
            f" {MESSAGE_BYTES * connections * messages / 1e9:.1f} GB",
        ),
        note("CPU", f"{cpu:.2f} s"),
        at_most("growth of RSS at its peak", growth / 1e6, GROWTH_BYTES / 1e6, "MB"),
        # A short look does not have the machine for itself.
        *(failed(normal.failures) if settings.short else normal.findings()),
    ]


def _bomb():
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    payload = deflate.compress(bytes(MESSAGE_BYTES)) + deflate.flush(zlib.Z_SYNC_FLUSH)[:-4]
    return struct.pack("!BBHI", 0xC2, 0x80 | 126, len(payload), 0) + payload


def _websocket(port):
    connection = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
    key = base64.b64encode(os.urandom(16)).decode()
    connection.sendall(
        "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n".encode()
    )
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        answer += connection.recv(1)
    if not answer.startswith(b"HTTP/1.1 101 "):
        raise ConnectionError(answer.decode())
    return connection


def _send(connection, frame, count, answered):
    """Sends all of them, then reads an answer to each: its length as text."""
    with contextlib.suppress(OSError):
        connection.sendall(frame * count)
        expected = f"{MESSAGE_BYTES}".encode()
        answer = struct.pack("!BB", 0x81, len(expected)) + expected
        for _ in range(count):
            if connection.recv(len(answer), socket.MSG_WAITALL) != answer:
                return
            answered.append(1)


def _most_bytes(pid):
    with open(f"/proc/{pid}/status", "r", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:"))
