"""Connections of HTTP/2 that have had one request answered and keep still: open between `with` and its end.

By prior knowledge, in the clear. Does not know the server.
"""

import contextlib
import socket

from process import allow_descriptors

READY_S = 10  # for the answer on one connection
END_STREAM = 1
DATA, HEADERS, RST_STREAM, SETTINGS, GOAWAY = 0, 1, 3, 4, 7
# RFC 7541, appendix A: GET, http, / by their numbers; the authority as a name by its number and a text that
# nobody has to remember, so that a connection's table of fields costs nothing.
_FIELDS = b"\x82\x86\x84\x01\x09127.0.0.1"


class Failed(RuntimeError):
    """What kept a connection from being ready."""


def frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


# END_STREAM and END_HEADERS.
ASKED = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0) + frame(HEADERS, 5, 1, _FIELDS)
ACKNOWLEDGED = frame(SETTINGS, 1, 0)


class Http2:
    """`with Http2(port, 1000): ...`."""

    def __init__(self, port, connections):
        allow_descriptors()
        with contextlib.ExitStack() as stack:
            for _ in range(connections):
                plain = stack.enter_context(socket.create_connection(("127.0.0.1", port), READY_S))
                plain.sendall(ASKED)
                _read_answer(plain)
                plain.sendall(ACKNOWLEDGED)
            self._open = stack.pop_all()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._open.close()


def _read_answer(connection):
    """Takes whole frames until the stream has ended."""
    pending = b""
    while True:
        while len(pending) >= 9 and len(pending) >= 9 + int.from_bytes(pending[:3], "big"):
            kind, flags, end = pending[3], pending[4], 9 + int.from_bytes(pending[:3], "big")
            pending = pending[end:]
            if kind in (RST_STREAM, GOAWAY):
                raise Failed(f"a frame of kind {kind} instead of an answer")
            if kind in (DATA, HEADERS) and flags & END_STREAM:
                return
        piece = connection.recv(65536)
        if not piece:
            raise Failed("closed before the answer")
        pending += piece
