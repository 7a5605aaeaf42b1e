"""Certificate files that change under load."""

import contextlib
import os
import signal
import tempfile
import time

from check import at_least, note, serving

from . import tls
from .normal import Normal, failed

CLIENTS = 4


def certificate(settings):
    """The certificate files swapped every second (HUP), 200 new TLS connections and 200 requests on kept
    ones per second: none fails."""
    swaps = settings.seconds(20, 4)
    with tempfile.TemporaryDirectory(prefix="peregrine-abuse-") as folder:
        place = f"127.0.0.1:@PORT@,{tls.certificate(folder, 'live')}"
        for number in range(swaps):
            tls.certificate(folder, f"{number}")
        with serving(
            settings, "abuse/app.pl", arguments=("--listen", place), tls=True
        ) as process, contextlib.ExitStack() as stack:
            clients = [
                stack.enter_context(Normal(process.port, settings.cores.load, tls=True))
                for _ in range(CLIENTS)
            ]
            for number in range(swaps):
                for kind in ("key", "pem"):
                    os.replace(os.path.join(folder, f"{number}.{kind}"), os.path.join(folder, f"live.{kind}"))
                # Without the signal the server would wait until the files have stopped changing.
                process.child.send_signal(signal.SIGHUP)
                time.sleep(1)
            time.sleep(1)
    seen = set().union(*(client.certificates for client in clients))
    return [
        at_least("certificates seen", len(seen), swaps, "certificates", ",d"),
        note("requests", f"{sum(len(client.latencies) for client in clients):,}"),
        note("p99", f"{max(client.p99_ms() for client in clients):.1f} ms"),
        *failed([failure for client in clients for failure in client.failures]),
    ]
