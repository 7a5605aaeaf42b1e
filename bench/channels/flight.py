"""The memory of messages on their way to clients that do not read."""

import signal
import time

import servers
import start
from check import at_most, exactly, note
from generator import Generator
from measure import SETTLE_S, Publisher

MESSAGES = 50
MESSAGE_BYTES = 20_000
READ_S = 15  # from the first message on; longer if the last one has not come then
# Of a message's bytes, for each subscriber that it waits for. A copy for each would be 100.
PERCENT_MOST = 1


def flight(settings):
    """Messages that wait for a thousand WebSockets whose clients do not read: the second half of a million
    bytes grows the memory of all processes by at most a hundredth of what copies for each would take."""
    subscribers = settings.seconds(1000, 500)
    with (
        start.started(servers.TOPICS, settings.cores.server) as process,
        Generator(
            "listen",
            settings.cores.load,
            port=process.port,
            path="/ws",
            connections=subscribers,
            alike=MESSAGES,
        ) as readers,
        Publisher(process.port, "/publish") as publisher,
    ):
        readers.begin(READ_S)
        readers.child.send_signal(signal.SIGSTOP)
        sizes = []
        for half in range(2):
            for _ in range(MESSAGES // 2):
                publisher.publish(b"x" * MESSAGE_BYTES)
            time.sleep(SETTLE_S)
            sizes.append(process.rss_bytes())
        readers.child.send_signal(signal.SIGCONT)
        result = readers.end(READ_S)
    grown = sizes[1] - sizes[0]
    each = grown / (MESSAGES / 2) / subscribers
    return [
        at_most(
            f"memory of a message of {MESSAGE_BYTES:,} bytes for each of {subscribers:,} subscribers",
            100 * each / MESSAGE_BYTES,
            PERCENT_MOST,
            "% of it",
            ".2f",
        ),
        note(f"growth by {MESSAGES // 2} messages", f"{grown / 2**20:.1f} MiB"),
        exactly("messages that a subscriber got, at least", int(result["fewest"]), MESSAGES),
        exactly("messages that a subscriber got, at most", int(result["most"]), MESSAGES),
    ]
