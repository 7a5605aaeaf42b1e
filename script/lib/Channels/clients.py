"""The subscribers of script/channels: many event streams and WebSockets in one process, which come back with
their positions whenever a connection ends, and write what they get into the log that t/lib/ChannelLogs.pm
describes. Slow ones stop reading for some time, again and again.

    clients.py HOST PORT LOG FIRST END SLOW PROCESSES

It has the subscribers from number FIRST up to END, every other one a WebSocket, and SLOW more of each speed;
PROCESSES of its kind connect at the same time. Commands come by standard input: `phase NAME`, `hurry` (slow
readers read on), `state`, `quit`. `state` is answered with the numbers of subscribers, of those that have
their place, and of those that have the last entry."""

import heapq
import os
import random
import resource
import select
import socket
import sys
import time

CONNECTS_A_ROUND = 40
CONNECTS_A_SECOND = 1600  # of all processes
NO_ANSWER_S = 15  # a connection without an answer is given up
SLOW_READS_S = 2
SLOW_PAUSE_S = (5, 60)
WIDE = "wide"
NEWS = "news"


class Clients:
    """All subscribers, with one epoll and one log."""

    def __init__(self, address, log):
        self.address = address
        self.poll = select.epoll()
        self.by_fd = {}
        self.log = open(log, "w", buffering=1 << 16, encoding="ascii")
        self.timers = []
        self.count = 0
        self.subscribers = []
        self.hurried = False

    def write(self, line):
        """A line of the log."""
        self.log.write(line + "\n")

    def after(self, seconds, call):
        """Calls in some seconds."""
        self.count += 1
        heapq.heappush(self.timers, (time.monotonic() + seconds, self.count, call))

    def turn(self):
        """Waits for what comes next, and does it."""
        now = time.monotonic()
        due = self.timers[0][0] - now if self.timers else 1
        for fd, events in self.poll.poll(max(0, min(due, 1))):
            if fd == 0:
                self.command()
            else:
                subscriber = self.by_fd.get(fd)
                if subscriber is not None:
                    subscriber.ready(events)
        now = time.monotonic()
        done = 0
        while self.timers and self.timers[0][0] <= now and done < CONNECTS_A_ROUND:
            heapq.heappop(self.timers)[2]()
            done += 1

    def command(self):
        """Obeys the driver."""
        text = os.read(0, 4096).decode()
        if not text:
            sys.exit(0)
        for line in text.splitlines():
            word, _, rest = line.partition(" ")
            if word == "phase":
                self.write("# phase " + rest)
            elif word == "hurry":
                self.hurried = True
            elif word == "state":
                placed = sum(s.placed for s in self.subscribers)
                last = sum(s.has_last for s in self.subscribers)
                print(len(self.subscribers), placed, last, flush=True)
            elif word == "quit":
                self.log.close()
                sys.exit(0)


class Subscriber:
    """A reader of a topic, over one connection after the other."""

    def __init__(self, clients, number, kind, topic, slow):
        self.clients = clients
        self.head = f"{number} {kind} {topic} "
        self.kind = kind
        self.topic = topic
        self.slow = slow
        self.since = None
        self.socket = None
        self.placed = False
        self.has_last = False
        self.tries = 0
        self.generation = 0
        self.answered = False
        self.buffer = b""  # of the connection
        self.text = b""  # of an event stream, without its chunks
        self.chunk = 0  # bytes of the chunk that have not come
        self.seen = {}  # the number of each publisher's latest entry

    def say(self, line):
        self.clients.write(self.head + line)

    def connect(self):
        """The next connection."""
        self.generation += 1
        self.buffer = b""
        self.text = b""
        self.answered = False
        self.chunk = 0
        own = socket.socket()
        own.setblocking(False)
        if self.slow:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket = own
        try:
            own.connect(self.clients.address)
        except BlockingIOError:
            pass
        except OSError:
            self.again()
            return
        self.clients.by_fd[own.fileno()] = self
        self.clients.poll.register(own.fileno(), select.EPOLLOUT)
        generation = self.generation
        self.clients.after(NO_ANSWER_S, lambda: self.give_up(generation))

    def give_up(self, generation):
        if self.generation == generation and not self.placed and self.socket is not None:
            self.again()

    def request(self):
        lines = [f"GET /{self.topic_path()} HTTP/1.1", "Host: channels"]
        if self.kind == "s":
            lines.append("Accept: text/event-stream")
        else:
            lines += ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
                      "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def topic_path(self):
        return f"read/{self.topic}?{self.since or ''}"

    def ready(self, events):
        """The socket can be written, or read."""
        try:
            if events & select.EPOLLOUT:
                error = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if error:
                    self.again()
                    return
                self.socket.send(self.request())
                self.clients.poll.modify(self.socket.fileno(), select.EPOLLIN)
                return
            got = self.socket.recv(4096 if self.slow else 65536)
        except BlockingIOError:
            return
        except OSError:
            self.again()
            return
        if not got:
            self.again()
            return
        self.take(got)

    def take(self, got):
        self.buffer += got
        if not self.answered:
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            status = self.buffer[9:12]
            if status != (b"200" if self.kind == "s" else b"101"):
                self.again()
                return
            self.answered = True
            self.buffer = self.buffer[end + 4:]
            self.say("since " + (self.since or "now"))
        if self.kind == "s":
            self.take_chunks()
        else:
            self.take_frames()

    def take_chunks(self):
        """The content of an event stream, which comes in chunks."""
        while True:
            if self.chunk == 0:
                end = self.buffer.find(b"\r\n")
                if end < 0:
                    break
                size = int(self.buffer[:end].split(b";")[0], 16)
                if size == 0:
                    self.again()
                    return
                self.buffer = self.buffer[end + 2:]
                self.chunk = size + 2
            part = self.buffer[:self.chunk]
            if not part:
                break
            self.text += part[:max(0, self.chunk - 2)] if len(part) >= self.chunk - 1 else part
            self.chunk -= len(part)
            self.buffer = self.buffer[len(part):]
        while True:
            end = self.text.find(b"\n\n")
            if end < 0:
                return
            event = {}
            for line in self.text[:end].split(b"\n"):
                name, _, value = line.partition(b": ")
                event[name] = value
            self.text = self.text[end + 2:]
            self.take_event(event)

    def take_event(self, event):
        kind = event.get(b"event")
        data = event.get(b"data", b"").decode()
        place = event.get(b"id", b"").decode()
        if kind == b"from":
            self.begin(data)
        elif kind == b"reset":
            self.since = place
            self.say("reset " + place)
        elif place:
            self.entry(data, place)

    def take_frames(self):
        """The frames of a WebSocket."""
        while self.socket is not None:
            buffer = self.buffer
            if len(buffer) < 2:
                return
            size, at = buffer[1], 2
            if size == 126:
                size, at = int.from_bytes(buffer[2:4], "big"), 4
            elif size == 127:
                size, at = int.from_bytes(buffer[2:10], "big"), 10
            if len(buffer) < at + size:
                return
            content = buffer[at:at + size]
            opcode = buffer[0] & 15
            self.buffer = buffer[at + size:]
            if opcode == 8:
                self.again()
            elif opcode == 1:
                self.take_message(content.decode())

    def take_message(self, text):
        word, _, rest = text.partition(" ")
        if word == "from":
            self.begin(rest)
        elif word == "reset":
            self.say("reset " + rest)
            self.since = rest
            self.seen = {}
        else:
            self.entry(text, None)

    def begin(self, place):
        self.say("from " + place)
        self.placed = True
        self.seen = {}
        self.tries = 0
        if self.kind == "w" or self.since is None:
            self.since = place
        if self.slow:
            generation = self.generation
            self.clients.after(random.uniform(0, SLOW_READS_S), lambda: self.pause(generation))

    def entry(self, text, place):
        """Publisher, number, and the position of the publisher's entry before."""
        publisher, number, before, _ = text.split(" ", 3)
        if place is None:
            self.say(f"+ {publisher} {number}")
            # The entry has come here as well, so its place is one of this sequence.
            if before != "-" and self.seen.get(publisher) == int(number) - 1:
                self.since = before
            self.seen[publisher] = int(number)
        else:
            self.say(f"+ {publisher} {number} {place}")
            self.since = place
        if publisher == "z":
            self.has_last = True

    def pause(self, generation):
        """A slow reader reads no more for some time."""
        if self.generation != generation or self.socket is None or self.clients.hurried:
            return
        self.clients.poll.modify(self.socket.fileno(), 0)
        until = time.monotonic() + random.uniform(*SLOW_PAUSE_S)
        self.clients.after(1, lambda: self.go_on(generation, until))

    def go_on(self, generation, until):
        if self.generation != generation or self.socket is None:
            return
        if time.monotonic() < until and not self.clients.hurried:
            self.clients.after(1, lambda: self.go_on(generation, until))
            return
        self.clients.poll.modify(self.socket.fileno(), select.EPOLLIN)
        self.clients.after(SLOW_READS_S, lambda: self.pause(generation))

    def again(self):
        """The connection has ended: the next one follows."""
        if self.socket is not None:
            self.clients.by_fd.pop(self.socket.fileno(), None)
            self.socket.close()
            self.socket = None
            if self.answered:
                self.say("end")
        self.placed = False
        self.generation += 1
        self.tries += 1
        self.clients.after(random.uniform(0.05, min(2, 0.2 * self.tries)), self.connect)


def main():
    host, port, log, first, end, slow, processes = sys.argv[1:]
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    clients = Clients((host, int(port)), log)
    for number in range(int(first), int(end)):
        clients.subscribers.append(Subscriber(clients, number, "sw"[number % 2], NEWS, False))
    # As many fast readers of the topic with long entries as slow ones.
    for number in range(int(slow)):
        kind = "sw"[number % 2]
        clients.subscribers.append(Subscriber(clients, f"x{number}", kind, WIDE, True))
        clients.subscribers.append(Subscriber(clients, f"y{number}", kind, WIDE, False))
    for number, subscriber in enumerate(clients.subscribers):
        clients.after(number * int(processes) / CONNECTS_A_SECOND, subscriber.connect)
    clients.poll.register(0, select.EPOLLIN)
    while True:
        clients.turn()


main()
