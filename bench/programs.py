"""The programs in Zig: where they are built, and how.

PEREGRINE_BENCH_DEBUG=1 has them compiled without optimising and without debug information, in a folder of
their own: for tests of the tools, which measure nothing in earnest.
"""

import os

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
IS_DEBUG = bool(os.environ.get("PEREGRINE_BENCH_DEBUG"))
STATE = os.path.join(ROOT, ".peregrine", "bench-debug" if IS_DEBUG else "bench")


def zig(folder, step, mode="", prefix="@STATE@"):
    """The command that builds one program with its package's build file, run in the project's root."""
    mode = "-Doptimize=debug -Dstrip" if IS_DEBUG else mode
    return ("sh", "-c", f'cd {folder} && "$PEREGRINE_ZIG" build {step} {mode} --prefix {prefix}')
