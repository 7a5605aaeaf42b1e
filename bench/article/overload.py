"""More connections than descriptors: whoever is too many is told so, whoever is in is served, and then all
is as before."""

import asyncio

from check import at_least, exactly, serving

DESCRIPTORS = 512  # the server's limit
RESERVED = 100  # at most, for what is no connection
WAVE = 800  # connections at once
AFTER = 400  # connections when the wave is over
BODY_BYTES = 10 * 1024
PATIENCE_S = 30


def overload(settings):
    """800 clients and 512 descriptors: a clean 503 with Retry-After for each excess one; those within, and
    those after, are served."""
    with serving(settings, "article/streams.pl", descriptors=DESCRIPTORS) as process:
        answers = asyncio.run(_wave(process.port, WAVE))
        later = asyncio.run(_wave(process.port, AFTER))
        alive = process.alive()
    served = answers.count("served")
    return [
        at_least("served", served, DESCRIPTORS - RESERVED, "connections", ",d"),
        exactly("clean 503 with Retry-After, of the others", answers.count("refused"), WAVE - served),
        exactly("anything else", len(answers) - served - answers.count("refused"), 0),
        exactly("served afterwards", later.count("served"), AFTER),
        exactly("servers alive", int(alive), 1),
    ] + [exactly(word, 0, 1) for word in sorted(set(answers + later) - {"served", "refused"})]


async def _wave(port, count):
    return await asyncio.gather(*(_ask(port) for _ in range(count)))


async def _ask(port):
    """`served`, `refused`, or what went wrong."""
    writer = None
    try:
        async with asyncio.timeout(PATIENCE_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            answer = await reader.read(-1)
    except TimeoutError:
        return "no end within 30 s"
    except OSError as error:
        return str(error)
    finally:
        if writer:
            writer.close()
    return _judged(answer)


def _judged(answer):
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.lower().split(b"\r\n")
    fields = dict(line.split(b":", 1) for line in lines if b":" in line)
    if status.startswith(b"http/1.1 200 "):
        return "served" if _unchunked(body) == BODY_BYTES else "cut response"
    if not status.startswith(b"http/1.1 503 "):
        return f"answered {status[:40]!r}"
    if b"retry-after" not in fields:
        return "503 without Retry-After"
    if fields.get(b"connection", b"").strip() != b"close":
        return "503 that does not say that the connection closes"
    return "refused" if int(fields.get(b"content-length", b"-1")) == len(body) else "cut 503"


def _unchunked(body):
    """Bytes in the chunks of a body; -1 when it has no end."""
    total = 0
    while body:
        line, _, body = body.partition(b"\r\n")
        size = int(line, 16)
        if size == 0:
            return total
        total, body = total + size, body[size + 2 :]
    return -1
