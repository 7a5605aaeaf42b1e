"""Checks the article's figures on this machine; exits 1 when one is missed. Without a CHECK all are made,
one after the other."""

import sys

import check

from .live import subscribers_1000, websockets_10000
from .overload import overload
from .slow import slow_1, slow_200
from .streams import streams_16_workers, streams_500, streams_2500

CHECKS = {
    function.__name__.replace("_", "-"): function
    for function in (
        streams_500,
        streams_2500,
        streams_16_workers,
        slow_1,
        slow_200,
        overload,
        websockets_10000,
        subscribers_1000,
    )
}

if __name__ == "__main__":
    sys.exit(check.main("script/bench-article", __doc__, CHECKS))
