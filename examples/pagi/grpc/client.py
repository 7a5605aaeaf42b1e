"""Calls the service of app.pl in all four ways: python3 client.py HOST:PORT [CERTIFICATE]"""
import sys

import grpc


def number(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def encode(text):
    data = text.encode()
    return b"\x0a" + number(len(data)) + data if data else b""


def decode(message):
    if not message:
        return ""
    at = 1
    while message[at] > 127:
        at += 1
    return message[at + 1 :].decode()


def main(target, certificate=None):
    if certificate:
        with open(certificate, "rb") as file:
            trusted = grpc.ssl_channel_credentials(file.read())
        channel = grpc.secure_channel(target, trusted)
    else:
        channel = grpc.insecure_channel(target)
    how = {"request_serializer": encode, "response_deserializer": decode}
    say_hello = channel.unary_unary("/Greeter/SayHello", **how)
    countdown = channel.unary_stream("/Greeter/Countdown", **how)
    join = channel.stream_unary("/Greeter/Join", **how)
    shout = channel.stream_stream("/Greeter/Shout", **how)
    nothing = channel.unary_unary("/Greeter/Nothing", **how)

    print(say_hello("Perl", timeout=30))
    print(len(say_hello("x" * 300_000, timeout=30)))
    print(" ".join(countdown("5", timeout=30)))
    print(join(iter(["one", "two", "three"]), timeout=30))
    print(" ".join(shout(iter(["loud", "and", "clear"]), timeout=30)))
    calls = [say_hello.future(str(i), timeout=60) for i in range(300)]
    print(sum(call.result() == f"Hello, {i}!" for i, call in enumerate(calls)))
    for failing in (lambda: list(countdown("many", timeout=30)),
                    lambda: nothing("x", timeout=30)):
        try:
            failing()
        except grpc.RpcError as error:
            print(error.code().name, error.details())


main(*sys.argv[1:])
