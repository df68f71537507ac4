"""How the interpreter shares its one lock and collects garbage in a process whose event loop must not be held up."""

import gc
import sys

SWITCH_SECONDS = 0.0005
"""Whenever the event loop has waited for its sockets it asks for the lock again. While another thread computes a view,
that costs as long as that thread may then keep it: 5 ms by default, for every few requests."""
THRESHOLDS = (10_000, 50, 50)
"""Objects, and younger collections, between two collections of each generation."""


def settle() -> None:
    """To be called once, when everything that lives as long as the process is there: it is never looked at again."""
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
