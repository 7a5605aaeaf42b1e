"""The ASGI peers' application: the shape of examples/pagi/hello, and a WebSocket that echoes; /echo sends a
body back, /drop reads it and lets go of it, /json answers with an object. No framework."""

import json

BODY = b"Hello, World!\n"
START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"text/plain"), (b"content-length", b"14")],
}


async def app(scope, receive, send):
    if scope["type"] == "http":
        page = PAGES.get(scope["path"])
        if page:
            await page(receive, send)
        else:
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


async def echo_body(receive, send):
    pieces, more = [], True
    while more:
        event = await receive()
        pieces.append(event["body"])
        more = event["more_body"]
    await answer(send, b"application/octet-stream", b"".join(pieces))


async def drop_body(receive, send):
    while (await receive())["more_body"]:
        pass
    await answer(send, b"text/plain", BODY)


async def an_object(_receive, send):
    await answer(send, b"application/json", json.dumps({"message": "Hello, World!"}).encode())


async def answer(send, kind, body):
    headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


PAGES = {"/echo": echo_body, "/drop": drop_body, "/json": an_object}
