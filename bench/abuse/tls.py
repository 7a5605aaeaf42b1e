"""Certificates, and the beginning of a handshake."""

import os
import ssl
import subprocess

from process import any_certificate


def certificate(folder, name):
    """A fresh self-signed certificate and its key, as the words of a place of --listen."""
    files = [os.path.join(folder, f"{name}.{kind}") for kind in ("pem", "key")]
    subprocess.run(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -noenc -days 2".split()
        + f"-subj /CN={name} -addext subjectAltName=DNS:localhost".split()
        + ["-out", files[0], "-keyout", files[1]],
        check=True,
        capture_output=True,
        timeout=60,
    )
    return f"cert={files[0]},key={files[1]}"


def client_hello():
    """What a client says first."""
    said = ssl.MemoryBIO()
    session = any_certificate().wrap_bio(ssl.MemoryBIO(), said, server_hostname="localhost")
    try:
        session.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return said.read()
