"""Machines as network namespaces of this one, which end with this process. Does not know the programs in
them."""

import contextlib
import ctypes
import os
import subprocess

_CLONE_NEWNET = 0x40000000  # linux/sched.h
_LIBC = ctypes.CDLL(None, use_errno=True)


class Machine:
    """A network of its own for what is started `with machine.inside(): ...`."""

    def __init__(self):
        with self._going_back():
            _checked(_LIBC.unshare(_CLONE_NEWNET), "unshare")
            self.network = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            _ip("link", "set", "lo", "up")

    @contextlib.contextmanager
    def inside(self):
        with self._going_back():
            _checked(_LIBC.setns(self.network, _CLONE_NEWNET), "setns")
            yield

    def join(self, other, net):
        """A cable to another machine: this one is NET.1, the other one NET.2."""
        path = f"/proc/{os.getpid()}/fd/{other.network}"
        own, others = (f"{net}.{number}".replace(".", "-") for number in (1, 2))
        with self.inside():
            _ip("link", "add", own, "type", "veth", "peer", "name", others, "netns", path)
            _attach(own, f"{net}.1/24")
        with other.inside():
            _attach(others, f"{net}.2/24")

    def close(self):
        os.close(self.network)

    @staticmethod
    @contextlib.contextmanager
    def _going_back():
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield
        finally:
            _checked(_LIBC.setns(home, _CLONE_NEWNET), "setns")
            os.close(home)


def _attach(link, address):
    _ip("addr", "add", address, "dev", link)
    _ip("link", "set", link, "up")


def _ip(*words):
    subprocess.run(("ip", *words), check=True, capture_output=True)


def _checked(result, call):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call} (network namespaces need root): {os.strerror(number)}")
