"""The ASGI peers' application: the shape of examples/pagi/hello, and a WebSocket that echoes. No
framework."""

BODY = b"Hello, World!\n"
START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"text/plain"), (b"content-length", b"14")],
}


async def app(scope, receive, send):
    if scope["type"] == "http":
        await send(START)
        await send({"type": "http.response.body", "body": BODY})
    elif scope["type"] == "websocket":
        await echo(receive, send)


async def echo(receive, send):
    await receive()  # websocket.connect
    await send({"type": "websocket.accept"})
    while True:
        event = await receive()
        if event["type"] != "websocket.receive":
            return
        await send({"type": "websocket.send", "text": event["text"]})
