"""Self-signed certificates for servers under measurement."""

import os
import subprocess

EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
RSA = ("-newkey", "rsa:2048")


def make(folder, name, key=EC):
    """NAME.pem and NAME.key in the folder; their paths."""
    pem, secret = (os.path.join(folder, f"{name}.{kind}") for kind in ("pem", "key"))
    subprocess.run(
        ("openssl", "req", "-x509", *key, "-noenc", "-days", "2", "-subj", f"/CN={name}")
        + ("-addext", "subjectAltName=DNS:localhost", "-out", pem, "-keyout", secret),
        check=True,
        capture_output=True,
        timeout=60,
    )
    return pem, secret
