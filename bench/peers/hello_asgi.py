"""The ASGI peers' application: the shape of examples/pagi/hello, no framework."""

BODY = b"Hello, World!\n"
START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"text/plain"), (b"content-length", b"14")],
}


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    await send(START)
    await send({"type": "http.response.body", "body": BODY})
