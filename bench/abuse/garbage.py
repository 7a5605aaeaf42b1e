"""Connections that say nonsense, to every kind of place a server has."""

import tempfile
import time

from check import at_most, exactly, note, serving
from generator import Generator
from process import free_port

from . import tls
from .normal import Normal, failed

CONNECTIONS = 100_000
AT_ONCE = 200
GROWTH_BYTES = 2_000_000
SHORT_GROWTH_BYTES = 6_000_000  # a short look has not seen every page touched
RUN_S = 300  # at most
REQUEST = b"POST /a?b=c HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello"
PROXY_1 = b"PROXY TCP4 192.0.2.1 198.51.100.2 1234 443\r\n"
PROXY_2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes((192, 0, 2, 1, 198, 51, 100, 2, 4, 210, 1, 187))


def garbage(settings):
    """100,000 connections with random, cut or damaged bytes, plain, TLS and PROXY protocol: descriptors,
    memory and service stay."""
    each = settings.seconds(CONNECTIONS, 2000) // 4
    with tempfile.TemporaryDirectory(prefix="peregrine-abuse-") as folder:
        secure, proxied = free_port(), free_port()
        places = (
            "127.0.0.1:@PORT@,plain",
            f"127.0.0.1:{secure},{tls.certificate(folder, 'server')}",
            f"127.0.0.1:{proxied},proxy=127.0.0.0/8",
        )
        arguments = [word for place in places for word in ("--listen", place)]
        with serving(settings, "abuse/app.pl", arguments=arguments) as process:
            kinds = (
                ("plain", process.port, REQUEST),
                ("TLS", secure, tls.client_hello()),
                ("PROXY 1", proxied, PROXY_1 + REQUEST),
                ("PROXY 2", proxied, PROXY_2 + REQUEST),
            )
            open_before = process.descriptors()
            # Modules that the first clients make the server load are loaded.
            with Normal(process.port, settings.cores.load):
                for kind in kinds:
                    _said(settings, *kind, max(each // 4, 5 * AT_ONCE), settings.seed)
            process.settled_descriptors(open_before)
            rss_before = process.rss_bytes()
            with Normal(process.port, settings.cores.load) as normal:
                findings = [_said(settings, *kind, each, settings.seed + each) for kind in kinds]
            open_after = process.settled_descriptors(open_before)
            growth = process.rss_bytes() - rss_before
            with Normal(process.port, settings.cores.load) as later, Normal(
                secure, settings.cores.load, tls=True
            ) as later_secure:
                time.sleep(1)
    return [
        note("seed", f"{settings.seed}"),
        *(finding for pair in findings for finding in pair),
        at_most("descriptors afterwards, more than before", open_after - open_before, 0, "", ",d"),
        at_most(
            "growth of RSS",
            growth / 1e6,
            settings.seconds(GROWTH_BYTES, SHORT_GROWTH_BYTES) / 1e6,
            "MB",
            ".2f",
        ),
        note("p99 of normal requests meanwhile", f"{normal.p99_ms():.1f} ms"),
        *failed(normal.failures + later.failures + later_secure.failures),
    ]


def _said(settings, name, port, sample, count, seed):
    """Whether so many connections came to the server, and what became of them."""
    options = {"connections": count, "ramp": AT_ONCE, "seed": seed, "sample": sample.hex()}
    with Generator("churn", settings.cores.load, port=port, **options) as load:
        result = load.run(RUN_S)
    words = (
        f"{result['answered']:,.0f} answered, {result['ended_by_server']:,.0f} ended by the server,"
        f" in {result['seconds']:.1f} s"
    )
    return exactly(f"{name}: connections", int(result["finished"] - result["refused"]), count), note(
        f"{name}: of these", words
    )
