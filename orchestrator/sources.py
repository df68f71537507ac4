"""The relays and peers that announced themselves: in memory, bounded, and only those that answer for themselves.

An announcement lasts minutes and is repeated, so nothing is stored: after a restart the list fills by itself. Each
participant has one entry, so a crowd of them costs a crowd of stakes. Before a URL is listed it must answer with the
very announcement: nobody can send the pool's nodes to somebody else's machine.
"""

import logging
import math
import random
import threading
import time
from collections.abc import Callable

import httpx

from orchestrator.auth import HttpError
from protocol.announcements import MAX_LISTED, Announcement, AnnouncementTaken
from protocol.api.endpoints import ANNOUNCEMENT
from protocol.encoding import parse_json
from protocol.errors import MusterError
from protocol.http.reach import Reach
from protocol.http.transport import bounded_transport, exchange
from protocol.identity import PoolId

log = logging.getLogger("muster.sources")
RENEW_SECONDS = 120.0
ASKED_AGAIN_SECONDS = 10.0
"""Between two announcements of one address, at least."""
CHECK_SECONDS = 5.0
CHECKS_AT_ONCE = 4
REST = 40
"""So many times as long as its last check took is an address held back: a few whose URLs answer as slowly as they may
would take every check from all others."""
MAX_KEPT = 16_384


class AnnouncedSources:
    """Safe to share between threads. `private`: URLs may lead into private networks. `processes` share the port, and
    each announcement reaches one of them: it is to be repeated so much more often."""

    def __init__(self, pool: PoolId, private: bool, clock: Callable[[], float] = time.time, processes: int = 1) -> None:
        self._renew = max(ASKED_AGAIN_SECONDS, RENEW_SECONDS / processes)
        self._pool, self._clock = pool, clock
        self._http = httpx.Client(transport=bounded_transport(Reach(private=private)), trust_env=False)
        self._lock, self._dice = threading.Lock(), random.SystemRandom()
        self._checks = threading.BoundedSemaphore(CHECKS_AT_ONCE)
        self._listed: dict[str, Announcement] = {}
        self._held_back: dict[str, float] = {}

    def take(self, sender: str, body: Announcement) -> AnnouncementTaken:
        """List what a participant announced, once its URL answers for itself. Raises HttpError, IntegrityError."""
        now = self._clock()
        if body.address != sender:
            raise HttpError(403, f"{sender} announces for {body.address}", "announce with the key that serves")
        body.check(self._pool, now)
        self._hold_back(sender, now)
        if not self._checks.acquire(blocking=False):
            raise HttpError(503, "many announcements are being checked", "announce again", 5)
        began = time.monotonic()
        try:
            self._answers(body)
        finally:
            self._checks.release()
            with self._lock:
                self._held_back[sender] = now + max(ASKED_AGAIN_SECONDS, REST * (time.monotonic() - began))
        with self._lock:
            self._listed = {who: one for who, one in self._listed.items() if one.until > now and one.url != body.url}
            if sender not in self._listed and len(self._listed) >= MAX_KEPT:
                raise HttpError(503, "the list of sources is full", "announce again", 60)
            self._listed[sender] = body
        return AnnouncementTaken(next=self._renew)

    def live(self) -> list[Announcement]:
        """Those that hold now; of many some, others each time."""
        now = self._clock()
        with self._lock:
            held = [one for one in self._listed.values() if one.until > now]
        return held if len(held) <= MAX_LISTED else self._dice.sample(held, MAX_LISTED)

    def steps(self) -> list[int | None]:
        """The newest policy step that each of those who are listed says it holds."""
        now = self._clock()
        with self._lock:
            return [one.step for one in self._listed.values() if one.until > now]

    def close(self) -> None:
        self._http.close()

    def _hold_back(self, sender: str, now: float) -> None:
        with self._lock:
            longest = now + 2 * REST * CHECK_SECONDS  # beyond: the clock was set back
            self._held_back = {who: until for who, until in self._held_back.items() if now < until <= longest}
            if (until := self._held_back.get(sender)) is not None:
                raise HttpError(429, f"{sender} announced a moment ago", "slow down", math.ceil(until - now))
            self._held_back[sender] = now + ASKED_AGAIN_SECONDS

    def _answers(self, body: Announcement) -> None:
        """Raise HttpError unless the URL serves this announcement."""
        hint = "the relay must run and be reachable from the service before it announces itself"
        try:
            request = self._http.build_request("GET", body.url + ANNOUNCEMENT)
            answer = exchange(self._http, request, Announcement.MAX_BYTES, CHECK_SECONDS)
            said = Announcement.model_validate(parse_json(answer.content)) if answer.status_code == 200 else None
        except (httpx.HTTPError, httpx.InvalidURL, MusterError, ValueError) as error:
            log.info("%s announced %s, which does not answer: %s", body.address, body.url, error)
            raise HttpError(400, f"{body.url} does not answer with the announcement", hint) from None
        if said != body:
            raise HttpError(400, f"{body.url} does not answer with the announcement", hint)
