"""Checks what a worker pool costs and gives on this machine; exits 1 when a goal is missed. Without a CHECK
all are made, one after the other."""

import sys

import check

from .beside import beside
from .cost import cost
from .mounts import crash, reloads
from .sync import sync

CHECKS = {function.__name__: function for function in (cost, sync, beside, crash, reloads)}

if __name__ == "__main__":
    sys.exit(check.main("script/bench-pool", __doc__, CHECKS))
