"""Processes that must not outlive those that started them.

At the bottom, because every room starts some.
"""

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def die_with_parent(parent: int | None = None) -> None:
    """Ask the kernel (Linux) to kill us when our parent ends, however it ends; end at once if the process `parent`,
    which started us, has ended already."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os._exit(1)
