"""Checks what topics cost a server on this machine: memory of messages that wait for slow clients, ordinary
requests beside event streams that are held, and the time from a publication to its delivery at another
machine, over Redis; exits 1 when a goal is missed. Without a CHECK all are made, one after the other. The
comparison with other servers on one machine is `script/bench publish-websocket publish-deflated
publish-events`."""

import sys

import check

from .beside import beside, held
from .flight import flight
from .machines import machines

CHECKS = {function.__name__: function for function in (flight, beside, held, machines)}

if __name__ == "__main__":
    sys.exit(check.main("script/bench-channels", __doc__, CHECKS))
