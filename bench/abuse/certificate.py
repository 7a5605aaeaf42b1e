"""Certificate files that change under load."""

import contextlib
import os
import tempfile
import time

from check import at_least, note, serving

from . import tls
from .normal import Normal, failed

CLIENTS = 4


def certificate(settings):
    """The certificate files swapped every second, 200 new TLS connections and 200 requests on kept ones per second: none fails."""
    swaps = settings.seconds(20, 4)
    with tempfile.TemporaryDirectory(prefix="peregrine-abuse-") as folder:
        place = f"127.0.0.1:@PORT@,{tls.certificate(folder, 'live')}"
        for number in range(swaps):
            tls.certificate(folder, f"{number}")
        with serving(settings, "abuse/app.pl", arguments=("--listen", place), tls=True) as process, contextlib.ExitStack() as stack:
            clients = [stack.enter_context(Normal(process.port, settings.cores.load, tls=True)) for _ in range(CLIENTS)]
            for number in range(swaps):
                for kind in ("key", "pem"):
                    os.replace(os.path.join(folder, f"{number}.{kind}"), os.path.join(folder, f"live.{kind}"))
                time.sleep(1)
            time.sleep(1)
    seen = set().union(*(client.certificates for client in clients))
    return [
        # A look between the two files, or a late one, misses one; the next look does not.
        at_least(f"certificates seen, of {swaps + 1}", len(seen), swaps // 2, "certificates", ",d"),
        note("requests", f"{sum(len(client.latencies) for client in clients):,}"),
        note("p99", f"{max(client.p99_ms() for client in clients):.1f} ms"),
        *failed([failure for client in clients for failure in client.failures]),
    ]
