"""How often and how much one caller may ask: token buckets and bounded bodies."""

import asyncio
import threading
from collections import OrderedDict

from starlette.requests import ClientDisconnect, Request

from orchestrator.bodies import HttpError

BODY_SECONDS = 15.0


class Buckets:
    """Token buckets by key: `rate` a second, `burst` at once. At most `most` keys are remembered, oldest forgotten.

    Safe to share between threads.
    """

    def __init__(self, rate: float, burst: float, most: int = 10_000) -> None:
        self._rate, self._burst, self._most = rate, burst, most
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, key: str, now: float) -> bool:
        """Take one token at `now` (monotonic seconds); False if there is none."""
        with self._lock:
            level, since = self._levels.pop(key, (self._burst, now))
            level = min(self._burst, level + max(0.0, now - since) * self._rate)
            allowed = level >= 1.0
            self._levels[key] = (level - 1.0 if allowed else level, now)
            if len(self._levels) > self._most:
                self._levels.popitem(last=False)
            return allowed


async def read_body(request: Request, limit: int) -> bytes:
    """The body, at most `limit` bytes, within 15 s. Raises HttpError 413, 408 or 400."""
    declared = request.headers.get("content-length", "0")
    if not declared.isdigit() or len(declared) > 18 or int(declared) > limit:
        raise HttpError(413, f"the body is larger than {limit} bytes", "send less")
    data = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                data += chunk
                if len(data) > limit:
                    raise HttpError(413, f"the body is larger than {limit} bytes", "send less")
    except TimeoutError:
        raise HttpError(408, f"the body did not arrive within {BODY_SECONDS:.0f} s", "try again") from None
    except ClientDisconnect:
        raise HttpError(400, "the connection ended before the body") from None
    return bytes(data)
