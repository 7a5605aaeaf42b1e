"""The engine from Python, by ctypes and libperegrine.so.2: a greeting, and an echo for WebSockets.

    python3 hello.py 8080

A thread answers what comes: peregrine_post() is safe from every thread. PEREGRINE_LIBRARY names the library
where it is not installed. TERM ends the server with status 0.
"""

import ctypes
import os
import queue
import signal
import sys
import threading
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint16, c_uint32, c_uint64, c_void_p

# Numbers of peregrine.h.
REQUEST, MESSAGE, STOPPED = 1, 7, 9
TEXT, HANDSHAKE = 2, 8


class Response(ctypes.Structure):
    """peregrine_response. Without fields here; Content-Length is the engine's to say."""

    _fields_ = [
        ("size", c_uint32),
        ("status", c_uint16),
        ("flags", c_uint16),
        ("fields", c_void_p),
        ("field_count", c_size_t),
        ("body", c_char_p),
        ("body_len", c_size_t),
    ]


class Event(ctypes.Structure):
    """peregrine_event. Events come with their size: the next one lies behind it."""

    _fields_ = [
        ("kind", c_uint16),
        ("flags", c_uint16),
        ("code", c_uint32),
        ("ticket", c_uint64),
        ("user", c_void_p),
        ("bytes", c_void_p),
        ("len", c_size_t),
        ("request", c_void_p),
        ("reason", c_uint32),
        ("size", c_uint32),
    ]


engine = ctypes.CDLL(os.environ.get("PEREGRINE_LIBRARY", "libperegrine.so.2"))
for name, result, *arguments in [
    ("peregrine_config_new", c_void_p),
    ("peregrine_config_free", None, c_void_p),
    ("peregrine_worker_new", c_void_p, c_void_p),
    ("peregrine_worker_free", None, c_void_p),
    ("peregrine_listen", c_int, c_void_p, c_char_p, c_uint16, c_int, c_uint32),
    ("peregrine_poll", c_int, c_void_p, c_int, POINTER(c_void_p)),
    ("peregrine_wake", None, c_void_p),
    ("peregrine_drain", None, c_void_p),
    ("peregrine_accept_websocket", c_int, c_void_p, c_uint64, c_void_p, c_size_t, c_void_p, c_size_t),
    ("peregrine_mailbox_new", c_void_p, c_void_p),
    ("peregrine_mailbox_free", None, c_void_p),
    ("peregrine_post", c_int, c_void_p, c_uint64, POINTER(Response)),
    ("peregrine_error_text", c_char_p, c_int),
]:
    function = getattr(engine, name)
    function.restype, function.argtypes = result, arguments


def answer(mailbox, work):
    """Answers requests, and sends messages back, until None comes."""
    for ticket, status, flags, body in iter(work.get, None):
        response = Response(ctypes.sizeof(Response), status, flags, None, 0, body, len(body))
        code = engine.peregrine_post(mailbox, ticket, byref(response))
        if code < 0:
            print(engine.peregrine_error_text(code).decode(), file=sys.stderr)


def events(worker):
    """What the next poll gives. It waits half a second at most, so that Python sees its signals."""
    batch = c_void_p()
    count = engine.peregrine_poll(worker, 500, byref(batch))
    if count < 0:
        raise OSError("peregrine_poll failed")
    at = batch.value
    for _ in range(count):
        event = Event.from_address(at)
        at += event.size
        yield event


def main(port):
    config = engine.peregrine_config_new()
    worker = engine.peregrine_worker_new(config)
    engine.peregrine_config_free(config)
    listener = engine.peregrine_listen(worker, b"127.0.0.1", port, 1024, 0)
    if listener < 0:
        sys.exit(f"cannot listen on port {port}: {engine.peregrine_error_text(listener).decode()}")
    mailbox, work = engine.peregrine_mailbox_new(worker), queue.SimpleQueue()
    thread = threading.Thread(target=answer, args=(mailbox, work))
    thread.start()
    signal.signal(signal.SIGTERM, lambda *_: engine.peregrine_drain(worker))
    running = True
    while running:
        for event in events(worker):
            if event.kind == REQUEST and event.flags & HANDSHAKE:
                engine.peregrine_accept_websocket(worker, event.ticket, None, 0, None, 0)
            elif event.kind == REQUEST:
                work.put((event.ticket, 200, 0, b"Hello from Python\n"))
            elif event.kind == MESSAGE:
                work.put((event.ticket, 0, event.flags & TEXT, ctypes.string_at(event.bytes, event.len)))
            elif event.kind == STOPPED:
                running = False
    work.put(None)
    thread.join()
    engine.peregrine_mailbox_free(mailbox)
    engine.peregrine_worker_free(worker)


main(int(sys.argv[1]))
