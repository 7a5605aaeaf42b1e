"""bench/pool/app.pl with the pool of bench/pool/handlers.pl as a running Process."""

import os

import check

HANDLERS = os.path.join(check.BENCH, "pool", "handlers.pl")
PROCESSES = 4


def serving(settings):
    pool = ("--worker-pool", HANDLERS, "--pool-workers", str(PROCESSES), "--pool-max-calls", "0")
    return check.serving(settings, "pool/app.pl", "/quick", ("--port", "@PORT@", *pool))
