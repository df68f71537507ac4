"""The relays and peers that announced themselves as sources of weights, in memory: an announcement lasts minutes and is
repeated. Each participant has one entry, so a crowd of entries costs a crowd of stakes. A URL is listed only once it
answers with the same announcement: nobody can send the pool's nodes to somebody else's machine."""

import logging
import math
import random
import threading
import time
from collections.abc import Callable

import httpx

from orchestrator.auth import HttpError
from protocol.api.endpoints import ANNOUNCEMENT
from protocol.api.work import MAX_LISTED, Announcement, AnnouncementTaken
from protocol.encoding import parse_json
from protocol.errors import MusterError
from protocol.http.reach import Reach
from protocol.http.transport import bounded_transport, exchange
from protocol.identity import PoolId

log = logging.getLogger("muster.sources")
RENEW_SECONDS = 120.0
# Shortest time between two announcements of one address.
ASKED_AGAIN_SECONDS = 10.0
CHECK_SECONDS = 5.0
CHECKS_AT_ONCE = 4
# An address waits for this many times its last check's duration, so that a few slow URLs do not occupy every check.
REST = 40
MAX_KEPT = 16_384


class AnnouncedSources:
    """Announced sources of one pool. `private`: URLs may lead into private networks. `workers` share the port, and each
    announcement reaches one of them, so it is asked for that many times as often. Thread-safe."""

    def __init__(self, pool: PoolId, private: bool, clock: Callable[[], float] = time.time, workers: int = 1) -> None:
        self._renew = max(ASKED_AGAIN_SECONDS, RENEW_SECONDS / workers)
        self._pool, self._clock = pool, clock
        self._http = httpx.Client(transport=bounded_transport(Reach(private=private)), trust_env=False)
        self._lock, self._dice = threading.Lock(), random.SystemRandom()
        self._checks = threading.BoundedSemaphore(CHECKS_AT_ONCE)
        self._listed: dict[str, Announcement] = {}
        self._held_back: dict[str, float] = {}

    def take(self, sender: str, body: Announcement) -> AnnouncementTaken:
        """List a participant's announcement once its URL answers with it. Raises HttpError, IntegrityError."""
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
            self._listed = {
                who: announcement
                for who, announcement in self._listed.items()
                if announcement.until > now and announcement.url != body.url
            }
            if sender not in self._listed and len(self._listed) >= MAX_KEPT:
                raise HttpError(503, "the list of sources is full", "announce again", 60)
            self._listed[sender] = body
        return AnnouncementTaken(next=self._renew)

    def live(self) -> list[Announcement]:
        """Return the valid announcements; of more than MAX_LISTED a random sample."""
        held = self._valid()
        return held if len(held) <= MAX_LISTED else self._dice.sample(held, MAX_LISTED)

    def steps(self) -> list[int | None]:
        """Return the newest policy step that each listed source says it has."""
        return [announcement.step for announcement in self._valid()]

    def _valid(self) -> list[Announcement]:
        now = self._clock()
        with self._lock:
            return [announcement for announcement in self._listed.values() if announcement.until > now]

    def _hold_back(self, sender: str, now: float) -> None:
        with self._lock:
            longest = now + 2 * REST * CHECK_SECONDS  # beyond: the clock was set back
            self._held_back = {who: until for who, until in self._held_back.items() if now < until <= longest}
            if (until := self._held_back.get(sender)) is not None:
                raise HttpError(429, f"{sender} announced a moment ago", "slow down", math.ceil(until - now))
            self._held_back[sender] = now + ASKED_AGAIN_SECONDS

    def _answers(self, body: Announcement) -> None:
        try:
            request = self._http.build_request("GET", body.url + ANNOUNCEMENT)
            answer = exchange(self._http, request, Announcement.MAX_BYTES, CHECK_SECONDS)
            if answer.status_code == 200 and Announcement.model_validate(parse_json(answer.content)) == body:
                return
        except (httpx.HTTPError, httpx.InvalidURL, MusterError, ValueError) as error:
            log.info("%s announced %s, which does not answer: %s", body.address, body.url, error)
        hint = "the relay must run and be reachable from the service before it announces itself"
        raise HttpError(400, f"{body.url} does not answer with the announcement", hint)
