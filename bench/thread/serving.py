"""bench/thread/server.pl as a running Process."""

import os
from dataclasses import replace

import programs
import servers
import start

PROGRAM = os.path.join(programs.ROOT, "bench", "thread", "server.pl")


def serving(settings, engine="thread"):
    command = ("perl", "-I@ROOT@/blib/lib", "-I@ROOT@/blib/arch", PROGRAM, "@PORT@", engine)
    return start.started(replace(servers.PAGI, command=command), settings.cores.server)
