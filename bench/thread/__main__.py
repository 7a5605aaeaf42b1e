"""Checks what --engine thread costs and gives on this machine; exits 1 when a goal is missed. Without a
CHECK all are made, one after the other."""

import sys

import check

from .blocked import blocked
from .cost import cost
from .growth import growth

CHECKS = {function.__name__: function for function in (cost, blocked, growth)}

if __name__ == "__main__":
    sys.exit(check.main("script/bench-thread", __doc__, CHECKS))
