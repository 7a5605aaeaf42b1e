"""Worker processes: what they gain, how connections spread over them, and what they leave behind. Exits 1
when a goal is missed. Without a CHECK all are made, one after the other."""

import sys

import check

from .kept import kept
from .recycles import recycles
from .scale import scale
from .spread import spread

CHECKS = {"scale": scale, "spread": spread, "kept": kept, "recycles": recycles}

if __name__ == "__main__":
    sys.exit(check.main("script/bench-workers", __doc__, CHECKS))
