"""What a pool's service says of itself, of the process that is looked after, and whether its storage answers."""

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from protocol.api.endpoints import DASHBOARD, HEALTH, NODES, OBJECTS, READY, STATUS, VALIDATORS
from protocol.encoding import parse_json
from protocol.errors import MusterError, UnreachableError, first_line, printable
from protocol.http.signing import service_url
from protocol.http.transport import bounded_transport, exchange
from runtime.watch.facts import ServiceFacts
from storage.download import HttpObjects
from storage.keys import object_key

_SECONDS = 4.0
_ANSWER_BYTES = 8 << 20
_CONFIG_BYTES = 1 << 20
_PROBLEMS, LONGEST = 5, 400
"""The most problems of a service's own words, and characters of each, that go into an alarm."""


class ServiceView:
    """The service at `url`. Of whom it is asked: `node`, an address, or `seats_of`, an owner of seats; with `owner` of
    the trainer too."""

    def __init__(
        self,
        url: str,
        node: str | None = None,
        seats_of: str | None = None,
        owner: bool = False,
        allow_private: bool = False,
    ) -> None:
        self._url, self._owner = service_url(url), owner
        who = f"{NODES.path}/{node}" if node else f"{VALIDATORS.path}/{seats_of}" if seats_of else ""
        self._own = who
        self._http = httpx.Client(transport=bounded_transport(), timeout=_SECONDS)
        self._objects = HttpObjects([self._url + OBJECTS], timeout=_SECONDS, allow_private=allow_private)

    def look(self) -> ServiceFacts:
        """Raises UnreachableError. A service without its database says little else, and that much is enough."""
        try:
            asked = time.time()
            health = self._get(HEALTH.path)
            answered = time.time()
            ready = self._get(READY.path)
            version = printable(str(parse_json(health.content)["version"]), 32)
            told = parse_json(ready.content)["problems"][:_PROBLEMS] if ready.status_code == 200 else ()
            problems = tuple(printable(str(one), LONGEST) for one in told)
            offset = clock_offset(health.headers.get("date", ""), asked, answered)
            if ready.status_code != 200:
                return ServiceFacts(ready=False, version=version, clock_offset=offset)
            return ServiceFacts(problems=problems, version=version, clock_offset=offset, **self._run())
        except MusterError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UnreachableError(f"{self._url} answers what no service does", "check the URL") from None

    def storage_error(self, config_hash: bytes) -> str:
        """Why the pool's configuration cannot be had from its storage, or empty."""
        try:
            self._objects(object_key("configs", config_hash), _CONFIG_BYTES)
        except MusterError as error:
            return error.what
        return ""

    def close(self) -> None:
        self._http.close()
        self._objects.close()

    def _run(self) -> dict[str, Any]:
        """How the run stands, and the process that is looked after."""
        status = self._document(STATUS.path)
        own = self._document(self._own, missing=True) if self._own else {}
        others = self._document(DASHBOARD.path)["others"] if self._owner else []
        trainer = [printable(str(one.get("phase", "")), LONGEST) for one in others if one.get("role") == "trainer"]
        return {
            "finished": status.get("phase") == "finished",
            "state": str(own.get("state", "")),
            "phase": str(own.get("phase", "")),
            "trouble": printable(str(own.get("trouble", "")), LONGEST),
            "done": own.get("metrics", {}).get("made", own.get("metrics", {}).get("judged")),
            "trainer": trainer[0] if trainer else "",
        }

    def _document(self, path: str, missing: bool = False) -> Mapping[str, Any]:
        answer = self._get(path)
        if missing and answer.status_code == 404:
            return {}
        if answer.status_code != 200:
            raise UnreachableError(f"{self._url}{path} answers {answer.status_code}", "see the service's log")
        found: dict[str, Any] = parse_json(answer.content)
        return found

    def _get(self, path: str) -> httpx.Response:
        try:
            return exchange(self._http, self._http.build_request("GET", self._url + path), _ANSWER_BYTES, _SECONDS)
        except httpx.HTTPError as error:
            raise UnreachableError(f"{self._url} does not answer: {first_line(error)}", "see its log") from None


def clock_offset(date: str, asked: float, answered: float) -> float:
    """How far our clock is ahead of a `Date` header, which has whole seconds and was written between `asked` and
    `answered` (Unix seconds here); 0 without one that can be read."""
    try:
        theirs = parsedate_to_datetime(date).timestamp() + 0.5
    except (ValueError, TypeError):
        return 0.0
    ours = min(max(theirs, asked), answered)
    return ours - theirs if abs(ours - theirs) > 1.0 else 0.0
