"""The loops of keeper and site as processes: a turn after the other, waits that have a name, and an end."""

import logging
import threading
import time
from collections.abc import Callable

from protocol.errors import MusterError, UnreachableError
from protocol.waits import WAITS
from trainer.sites.keeper import SitesKeeper
from trainer.sites.site import Site

log = logging.getLogger("muster.sites")
_TIMES, _LONGEST = 1.5, 1.0
_GATHERING = 1.0
"""Seconds for which the keeper gathers what nobody acts on before the last has come, for one entry of the log."""


def _pause(poll_seconds: float, looked: float) -> float:
    """Until the next turn after one in which nothing could be done, which took `looked` seconds: longer where bucket or
    processor are busy, up to `_LONGEST` seconds, so that looking does not keep them busy."""
    return max(poll_seconds, min(_TIMES * looked, _LONGEST))


def keep(
    keeper: SitesKeeper, stopping: threading.Event, poll_seconds: float, shown: Callable[[], None], steps: int = 0
) -> None:
    """Keep the log until `stopping`, or until there are `steps` outer steps (0: without an end); a bucket that cannot
    be reached is waited for."""
    waiting = ""
    while not stopping.is_set() and not 0 < steps <= keeper.state.step:
        began = time.monotonic()
        wrote = False
        try:
            wrote = keeper.turn(_GATHERING)
            why = keeper.waiting_for()
        except UnreachableError as error:
            why = f"the bucket: {error.what}"
        if why != waiting:
            log.info("waiting for %s", why)
        waiting = why
        shown()
        with WAITS.on(why):  # also after an entry: nobody has read it yet
            stopping.wait(poll_seconds if wrote else _pause(poll_seconds, time.monotonic() - began))


def take_part(
    site: Site, stopping: threading.Event, poll_seconds: float, shown: Callable[[], None], steps: int = 0
) -> None:
    """Take part until `stopping`, or until `steps` outer steps exist (0: without an end). Raises MusterError where no
    outer step is made within the run's standstill time."""
    patience, since, newest, waiting = site.timeouts.standstill, time.monotonic(), site.state.step, ""
    while not stopping.is_set() and not 0 < steps <= site.state.step:
        began = time.monotonic()
        try:
            why = site.turn()
        except UnreachableError as error:
            why = f"the bucket: {error.what}"
        if site.state.step > newest or site.awaits_work:
            newest, since = site.state.step, time.monotonic()
        if time.monotonic() - since > patience:
            raise MusterError(f"no outer step in {patience:.0f} s, waiting for {why}", "look at the run's keeper")
        if why and why != waiting:
            log.info("waiting for %s", why)
        waiting = why
        shown()
        if why:
            with WAITS.on(why):
                stopping.wait(_pause(poll_seconds, time.monotonic() - began))
