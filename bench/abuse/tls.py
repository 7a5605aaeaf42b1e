"""Certificates, and the beginning of a handshake."""

import ssl

from certificate import make
from process import any_certificate


def certificate(folder, name):
    """A fresh certificate and its key, as the words of a place of --listen."""
    pem, key = make(folder, name)
    return f"cert={pem},key={key}"


def client_hello():
    """What a client says first."""
    said = ssl.MemoryBIO()
    session = any_certificate().wrap_bio(ssl.MemoryBIO(), said, server_hostname="localhost")
    try:
        session.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return said.read()
