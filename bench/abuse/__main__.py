"""Lets bad clients loose on a server and looks whether good ones notice; exits 1 when a goal is missed.
Without a CHECK all are made, one after the other. slow-headers, slow-body, slow-read and range need
slowhttptest, which is in bench/debian.packages.
"""

import secrets
import sys

import check

from .bombs import bombs
from .certificate import certificate
from .garbage import garbage
from .handshakes import handshakes
from .slow import ranges, slow_body, slow_headers, slow_read

CHECKS = {
    "slow-headers": slow_headers,
    "slow-body": slow_body,
    "slow-read": slow_read,
    "range": ranges,
    "handshakes": handshakes,
    "bombs": bombs,
    "garbage": garbage,
    "certificate": certificate,
}

if __name__ == "__main__":
    sys.exit(check.main("script/abuse", __doc__, CHECKS, seed=secrets.randbits(32)))
