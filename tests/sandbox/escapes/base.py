"""What an attempt is, and C's system calls."""

import ctypes
import os
from collections.abc import Callable
from typing import Any

Told = dict[str, Any]
Attempt = Callable[[Told], str | None]
LIBC = ctypes.CDLL(None, use_errno=True)


def checked(result: int, what: str) -> str:
    """The words of a C call that succeeded; OSError of one that did not."""
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return what
