"""Events on their way to webhooks: signed, kept on disk until they are taken, tried again ever more seldom."""

import hashlib
import hmac
import logging
import secrets
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
from pydantic import Field

from protocol.documents import Document, load_document
from protocol.encoding import canonical_json
from protocol.errors import ConfigError, first_line
from protocol.files import write_atomic
from protocol.http.transport import bounded_transport, exchange
from runtime.watch.config import Webhook

log = logging.getLogger("muster.watch")
MOST = 1000
GIVE_UP_SECONDS = 3 * 86_400.0
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 3600.0
_SECONDS, _ANSWER_BYTES = 10.0, 1 << 16

Send = Callable[[str, bytes, Mapping[str, str]], int]


class Letter(Document):
    """One event for one webhook. `made` and `due` in Unix seconds."""

    id: str
    url: str
    body: str
    made: float
    due: float
    tries: int = 0


class OutboxDocument(Document):
    letters: tuple[Letter, ...] = ()
    dropped: int = Field(0, ge=0)


def signature(secret: bytes, time: int, body: bytes) -> str:
    """`t=<Unix seconds>,v1=<hex>`: HMAC-SHA256 over the time, a full stop and the body."""
    digest = hmac.new(secret, f"{time}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={time},v1={digest}"


def pause(tries: int) -> float:
    """Seconds until the next try after so many failed ones."""
    return min(_FIRST_PAUSE * 2.0 ** min(tries - 1, 16), _LONGEST_PAUSE)


class Outbox:
    """Letters in the file `path`, at most MOST: the oldest is dropped for a new one, and counted. Thread-safe. `send`
    posts and returns the status, or raises httpx.HTTPError. Raises ConfigError for a secret that cannot be used."""

    def __init__(self, path: Path, hooks: tuple[Webhook, ...], send: Send | None = None) -> None:
        self._path, self._hooks = path, hooks
        self._secrets = {hook.url: hook.secret() for hook in hooks}
        self._send = send or post
        self._lock = threading.Lock()
        found = load_document(path, OutboxDocument) if path.exists() else OutboxDocument()
        self._letters = {one.id: one for one in found.letters if one.url in self._secrets}
        self.dropped = found.dropped

    @property
    def waiting(self) -> int:
        return len(self._letters)

    def put(self, event: str, fields: Mapping[str, Any], now: float) -> None:
        """A letter for every webhook that wants the event, on disk when this returns."""
        with self._lock:
            for hook in self._hooks:
                if hook.wants(event):
                    name = secrets.token_hex(16)
                    body = canonical_json({**fields, "id": name, "event": event, "time": int(now)}).decode()
                    self._letters[name] = Letter(id=name, url=hook.url, body=body, made=now, due=now)
            while len(self._letters) > MOST:
                del self._letters[next(iter(self._letters))]
                self.dropped += 1
            self._write()

    def deliver(self, now: float) -> None:
        """Try once what is due."""
        with self._lock:
            due = [one for one in self._letters.values() if one.due <= now]
        for one in due:
            problem = self._try(one, now)
            with self._lock:
                self._settle(one, problem, now)

    def _try(self, letter: Letter, now: float) -> str:
        """Why it was not taken, or empty."""
        body = letter.body.encode()
        headers = {
            "Content-Type": "application/json",
            "Muster-Delivery": letter.id,
            "Muster-Signature": signature(self._secrets[letter.url], int(now), body),
        }
        try:
            status = self._send(letter.url, body, headers)
        except httpx.HTTPError as error:
            return first_line(error)
        return "" if 200 <= status < 300 else f"status {status}"

    def _settle(self, letter: Letter, problem: str, now: float) -> None:
        if letter.id not in self._letters:
            return  # dropped for a newer one meanwhile
        if not problem:
            del self._letters[letter.id]
        elif now - letter.made > GIVE_UP_SECONDS:
            log.warning("a webhook took nothing for three days, an event is dropped: %s", problem)
            del self._letters[letter.id]
            self.dropped += 1
        else:
            tries = letter.tries + 1
            if tries == 1:
                log.warning("a webhook does not take an event, which waits: %s", problem)
            changes = {"tries": tries, "due": now + pause(tries)}
            self._letters[letter.id] = letter.model_copy(update=changes)
        self._write()

    def _write(self) -> None:
        document = OutboxDocument(letters=tuple(self._letters.values()), dropped=self.dropped)
        write_atomic(self._path, document.model_dump_json().encode(), mode=0o600)


def post(url: str, body: bytes, headers: Mapping[str, str]) -> int:
    """The answer's status; redirects are not followed, for nobody but the configuration says where events go. Raises
    httpx.HTTPError."""
    with httpx.Client(transport=bounded_transport(), follow_redirects=False, timeout=_SECONDS) as client:
        request = client.build_request("POST", url, content=body, headers=dict(headers))
        return exchange(client, request, _ANSWER_BYTES, _SECONDS).status_code


def check_events(hooks: tuple[Webhook, ...], known: tuple[str, ...]) -> None:
    """Raise ConfigError for an event that there is not."""
    for hook in hooks:
        for name in hook.events:
            if name not in known:
                raise ConfigError(f"`webhooks`: there is no event {name}", f"there are: {', '.join(known)}")
