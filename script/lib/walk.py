"""Run by gdb for script/walk: appends the stack of each point that a process reaches to WALK_STACKS."""
import os
import re

import gdb

TREE = os.environ["WALK_TREE"]
POINTS = """
    engine/src/abi/batch.zig:keepHead engine/src/abi/host.zig:addBody
    engine/src/abi/host.zig:body engine/src/abi/slots.zig:begin engine/src/abi/encoded_event.zig:encodeHead
    engine/src/abi/encoded_event.zig:encode
    engine/src/abi/ledger.zig:open engine/src/abi/ledger.zig:take engine/src/abi/spoken.zig:encode
    engine/src/protocol/http1/session.zig:planStart engine/src/protocol/http1/session.zig:planBody
    engine/src/protocol/http2/session.zig:start engine/src/protocol/http2/session.zig:planBody
    engine/src/protocol/http2/session.zig:emit engine/src/io/sys.zig:send
    xs/pagi/exchange.c:pagi_exchange_call_app xs/psgi/exchange.c:call_app
    xs/psgi/exchange.c:psgi_exchange_call_app
""".split()
# Lines of a function that are tried: an inlined function has no code at its first ones.
LINES = 9


def places(point):
    """The first lines of a function; none if the tree has no such function."""
    path, name = point.split(":")
    begins = re.compile(rf"(\s*).*\bfn {name}\(|()\S.*\b{name}\(.*{{$")
    with open(os.path.join(TREE, path), encoding="utf-8") as source:
        lines = source.read().split("\n")
    for number, line in enumerate(lines):
        match = begins.match(line)
        if match:
            end = lines.index((match[1] or "") + "}", number)
            return [f"{path}:{place + 1}" for place in range(number, min(number + LINES, end))]
    return []


def stop_of(frame):
    """The folder, file and name of a frame's function; None for one of Perl or of a library."""
    function, line = frame.function(), frame.find_sal()
    if not function:
        return None
    # An inlined function's own file is known by the line alone.
    path = (line.symtab or function.symtab).fullname()
    if not re.search(rf"{TREE}/(?:engine/src|xs)/", path) or path.endswith((".xs", "Peregrine.c")):
        return None
    name = re.sub(r"__(?:func|anon|struct)_\d+", "", function.name.split(".")[-1])
    return "/".join(path.split("/")[-2:]) + ":" + name


class Point(gdb.Breakpoint):
    """A place where the stack is noted, and the process goes on."""

    def stop(self):
        """Notes the stack, the outermost function first."""
        stops, frame = [], gdb.newest_frame()
        while frame:
            stops.append(stop_of(frame))
            frame = frame.older()
        with open(os.environ["WALK_STACKS"], "a", encoding="utf-8") as stacks:
            stacks.write(" > ".join(reversed([stop for stop in stops if stop])) + "\n")
        return False


gdb.execute("set pagination off")
gdb.execute("handle SIGPIPE SIGALRM SIGCHLD SIGUSR1 nostop noprint pass")
for place in [place for point in POINTS for place in places(point)]:
    Point(place)
with open(os.environ["WALK_STACKS"], "a", encoding="utf-8") as ready:
    ready.write("ready\n")
gdb.execute("continue")
