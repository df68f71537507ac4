"""What a part of the network said when it last answered, kept in the user's cache: so that `status` can say since when
something is down, and what was true before. A cache that cannot be read or written costs no more than that."""

import hashlib
import json
import logging
import time
from typing import Any

from protocol.encoding import parse_json
from protocol.files import user_cache, write_atomic

log = logging.getLogger("muster.cli")


class LastSeen:
    """Of one question to one part, such as a node's standing by one chain: `of` names both."""

    def __init__(self, *of: object) -> None:
        name = hashlib.sha256(json.dumps([str(one) for one in of]).encode()).hexdigest()[:32]
        self._path = user_cache("status") / f"{name}.json"

    def keep(self, facts: dict[str, Any]) -> None:
        """It answered now, and said this."""
        try:
            write_atomic(self._path, json.dumps({"time": time.time(), "facts": facts}).encode(), 0o600)
        except OSError as error:
            log.info("cannot remember %s: %s", self._path, error)

    def recall(self) -> tuple[float, dict[str, Any] | None]:
        """(Unix seconds, facts) of its last answer; (0, None) if there was none."""
        try:
            kept = parse_json(self._path.read_bytes())
            return float(kept["time"]), dict(kept["facts"])
        except (OSError, ValueError, KeyError, TypeError):
            return 0.0, None
