"""Checks what topics cost a server on this machine: memory of messages that wait for slow clients, and
ordinary requests beside event streams that are held; exits 1 when a goal is missed. Without a CHECK all are
made, one after the other. The comparison with other servers is `script/bench publish-websocket publish-
deflated publish-events`."""

import sys

import check

from .beside import beside
from .flight import flight

CHECKS = {function.__name__: function for function in (flight, beside)}

if __name__ == "__main__":
    sys.exit(check.main("script/bench-channels", __doc__, CHECKS))
