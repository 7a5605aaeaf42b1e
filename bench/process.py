"""A server under measurement: started alone on one core, its CPU time and memory read from /proc.

Does not know what is measured with it. Ends only processes that it started: the server's session
and its descendants.
"""

import ctypes
import http.client
import os
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time

START_S = 20  # for the first answer
STOP_S = 5  # from TERM to KILL
SETTLE_S = 5  # for the server to see that connections are gone
PAGE = os.sysconf("SC_PAGE_SIZE")
PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


class CannotRun(Exception):
    """Why a server is left out, in words for the report."""


class NotInstalled(CannotRun):
    """There is no use in trying again."""


def run_on_core(command, core, timeout_s):
    """Runs a load generator on one core to its end: what it has said, as text."""
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _stat(pid):
    """(parent, session) of a process, None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return int(fields[1]), int(fields[3])


def _began(pid):
    """When a process was started, in the kernel's ticks; 0 when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except OSError:
        return 0


def state(pid):
    """`Z` for a zombie and so on; empty when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0].decode()
    except OSError:
        return ""


def rss_of(pid):
    """Resident memory of one process, shared pages included; 0 when it is gone."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * PAGE
    except OSError:
        return 0


def family(leader):
    """The process, its session and all their descendants."""
    known = {int(name): _stat(name) for name in os.listdir("/proc") if name.isdigit()}
    members = {pid for pid, stat in known.items() if stat and (pid == leader or stat[1] == leader)}
    while True:
        more = {pid for pid, stat in known.items() if stat and stat[0] in members} - members
        if not more:
            return members
        members |= more


def descriptors_max():
    """How many descriptors a process may have open, ours and those that we start."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def allow_descriptors():
    """As many for this program as it may have; some systems allow 1,024 until they are asked."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors_max(), descriptors_max()))


def any_certificate():
    """A TLS context that believes every certificate."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class Process:
    """One server, on one core or a set of them. `log` takes what it prints; `descriptors` is its limit, by
    default as many as are allowed; `tls` and `http2` are what its port speaks."""

    def __init__(self, command, core, cwd, port, log, descriptors=None, tls=False, http2=False):
        if not shutil.which(command[0]):
            raise NotInstalled(f"{os.path.basename(command[0])} is not installed")
        limit = descriptors or descriptors_max()

        def prepare():
            # A measurement that is killed cannot stop its server.
            if _LIBC:
                _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            os.sched_setaffinity(0, core if isinstance(core, set) else {core})
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

        self.port = port
        self.log = log
        self.tls = tls
        self.http2 = http2
        with open(log, "wb") as output:
            self.child = subprocess.Popen(
                command,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=prepare,
            )

    def wait_until_it_answers(self, path, proof):
        """Until a GET is answered with a body that has the proof in it, or at all when there is none."""
        deadline = time.monotonic() + START_S
        trouble = "nothing listens"
        while time.monotonic() < deadline:
            if self.child.poll() is not None:
                raise CannotRun(f"exited with {self.child.returncode}: {self._last_words()}")
            try:
                status, body = self.get(path)
                if proof is None or status == 200 and proof in body:
                    return
                trouble = f"answered {status} with {body[:40]!r}"
            except OSError as error:
                trouble = str(error)
            except http.client.HTTPException as error:
                trouble = f"spoke no HTTP: {error!r}"
            time.sleep(0.05)
        raise CannotRun(f"not ready within {START_S} s: {trouble}")

    def get(self, path):
        """(status, body) of one request on a connection of its own."""
        if self.http2:
            return self._get_by_http2(path)
        if self.tls:
            connection = http.client.HTTPSConnection(
                "127.0.0.1", self.port, timeout=2, context=any_certificate()
            )
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def _get_by_http2(self, path):
        """By prior knowledge, with curl."""
        if not shutil.which("curl"):
            raise NotInstalled("curl is not installed")
        done = subprocess.run(
            ["curl", "-s", "--max-time", "2", "--http2-prior-knowledge", "-w", "%{http_code}"]
            + [f"http://127.0.0.1:{self.port}{path}"],
            capture_output=True,
            check=False,
        )
        if done.returncode:
            raise ConnectionError(f"curl ended with {done.returncode}")
        return int(done.stdout[-3:]), done.stdout[:-3]

    def _last_words(self):
        with open(self.log, "rb") as file:
            lines = file.read()[-2000:].decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else "silently"

    def alive(self):
        return self.child.poll() is None

    def descriptors(self):
        """How many the server has open; children that it may have are not counted."""
        return len(os.listdir(f"/proc/{self.child.pid}/fd"))

    def settled_descriptors(self, wanted):
        """How many are open when they are so few, or their deadline has passed."""
        deadline = time.monotonic() + SETTLE_S
        while self.descriptors() > wanted and time.monotonic() < deadline:
            time.sleep(0.05)
        return self.descriptors()

    def cpu_seconds(self):
        """CPU time of all threads of all its processes. Those that ended meanwhile are not counted."""
        return sum(_cpu_seconds(pid) for pid in family(self.child.pid))

    def rss_bytes(self):
        """Resident memory, shared pages counted once: the sum of proportional set sizes."""
        return sum(_rollup_bytes(pid, b"Pss:") or rss_of(pid) for pid in family(self.child.pid))

    def youngest(self, count):
        """The processes that were started last."""
        members = sorted(family(self.child.pid), key=lambda pid: (_began(pid), pid))
        return members[-count:]

    def stop(self):
        members = family(self.child.pid)
        self._signal({self.child.pid} & members, signal.SIGTERM)
        try:
            self.child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            pass
        # Some leave workers behind; their session number tells that they are ours.
        self._signal({pid for pid in members if (_stat(pid) or (0, 0))[1] == self.child.pid}, signal.SIGKILL)
        self.child.wait(STOP_S)

    @staticmethod
    def _signal(pids, number):
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass


def _cpu_seconds(pid):
    total = 0.0
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            total += _task_seconds(f"/proc/{pid}/task/{task}")
    except OSError:
        pass
    return total


def _task_seconds(task):
    """schedstat counts nanoseconds; a kernel without it has only ticks of 10 ms."""
    try:
        with open(f"{task}/schedstat", "rb") as file:
            return int(file.read().split()[0]) / 1e9
    except FileNotFoundError:
        with open(f"{task}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def dirtied_bytes(pid):
    """Memory that a process shares with no other one because it, and it alone, has written there."""
    return _rollup_bytes(pid, b"Private_Dirty:")


def _rollup_bytes(pid, name):
    """A sum over all of a process' memory; 0 when it is gone, or somebody else's."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(name):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0
