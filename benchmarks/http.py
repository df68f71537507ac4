"""100,000 hostile requests against a process of the service: nothing may fail it, and nothing wrong be accepted.

`python -m benchmarks http [--quick] [--count N] [--seed S]`. Keys: `requests` sent; `server_errors`: answers of 5xx,
and times that the process did not answer a sound request; `wrongly_accepted`: answers of 2xx or 3xx to what had to be
refused, replays included; `sound`: [sound requests, of which were answered with 200]; `kinds`: kind → requests;
`statuses`: how often each was answered (0: the connection was ended without an answer); `slow`: connections that sent
a body or a head a byte at a time, and how many of them were ended; `examples`: of what should not have happened;
`seconds`, `rss_mb`: of the process, at the end; `document`: what schemathesis found (benchmarks/http_schema.py).
"""

import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import psutil

from benchmarks.http_requests import Expect, HostileRequests, Made
from benchmarks.http_schema import against_document
from benchmarks.load import Fleet
from benchmarks.load_pool import CHAIN_ID, POOLS, node_keys
from protocol.http.signing import Realm

REQUESTS, QUICK_REQUESTS = 100_000, 3_000
NODES, LINES, SLOW = 200, 16, 40
PATIENCE = 60.0


@dataclass
class Findings:
    """What came back."""

    kinds: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    server_errors: int = 0
    wrongly_accepted: int = 0
    sound: list[int] = field(default_factory=lambda: [0, 0])
    slow: list[int] = field(default_factory=lambda: [0, 0])
    examples: list[str] = field(default_factory=list)

    def judge(self, made: Made, status: int) -> None:
        kind, expected, data = made
        self.kinds[kind] += 1
        self.statuses[status] += 1
        failed = status >= 500 or (expected is Expect.TAKEN and status != 200)
        wrong = expected is Expect.REFUSED and 200 <= status < 400
        self.server_errors += failed
        self.wrongly_accepted += wrong
        if expected is Expect.TAKEN:
            self.sound[0] += 1
            self.sound[1] += status == 200
        if (failed or wrong) and len(self.examples) < 10:
            self.examples.append(f"{kind}: {status} to {data[:300]!r}")


def run(
    quick: bool, progress: Callable[[str], None] = lambda line: None, count: int | None = None, seed: int = 1
) -> dict[str, Any]:
    """Send them; returns the keys of the module's docstring."""
    wanted = count or (QUICK_REQUESTS if quick else REQUESTS)
    keys = node_keys(NODES)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "bucket").mkdir()
        fleet = Fleet(Path(folder), f"sqlite:///{folder}/shared.db", 1, keys)
        try:
            fleet.start()
            requests = HostileRequests(keys, Realm.of(fleet.url, CHAIN_ID, POOLS), seed)
            began = time.monotonic()
            found = asyncio.run(_through(requests, wanted, fleet.ports[0], progress))
            seconds = time.monotonic() - began
            resident = psutil.Process(fleet.pids[0]).memory_info().rss
            progress("requests made from the OpenAPI document")
            document = against_document(fleet.url, Path(folder), quick, seed)
        finally:
            fleet.stop()
    return {
        "requests": sum(found.kinds.values()),
        "server_errors": found.server_errors,
        "wrongly_accepted": found.wrongly_accepted,
        "sound": found.sound,
        "kinds": dict(sorted(found.kinds.items())),
        "statuses": {str(status): number for status, number in sorted(found.statuses.items())},
        "slow": found.slow,
        "examples": found.examples,
        "seconds": round(seconds),
        "rss_mb": round(resident / (1 << 20)),
        "document": document,
    }


async def _through(requests: HostileRequests, wanted: int, port: int, progress: Callable[[str], None]) -> Findings:
    found = Findings()
    stream = islice(iter(requests), wanted)

    async def lane() -> None:
        for made in stream:
            status = await exchange(port, made[2])
            found.judge(made, status)
            if made[1] is Expect.TAKEN and status == 200:
                found.judge(("replay", Expect.REFUSED, made[2]), await exchange(port, made[2]))
            if sum(found.kinds.values()) % 5000 == 0:
                progress(f"{sum(found.kinds.values())} requests, {dict(found.statuses)}")

    await asyncio.gather(*(lane() for _ in range(LINES)), *(_slow(port, requests, n, found) for n in range(SLOW)))
    return found


async def exchange(port: int, data: bytes) -> int:
    """The status of the first answer on a connection of its own; 0 if it ended without one, 599 if nothing came."""
    try:
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(data)
                line = await reader.readline()
                while line.startswith(b"HTTP/1.1 100"):
                    await reader.readline()
                    line = await reader.readline()
                return int(line[9:12]) if line.startswith(b"HTTP/") else 0
            finally:
                writer.close()
    except TimeoutError:
        return 599
    except OSError:
        return 0


async def _slow(port: int, requests: HostileRequests, number: int, found: Findings) -> None:
    """A body (or, every other time, a head) that comes a byte a second; it must be ended, and never be believed."""
    whole = requests.sound().wire()
    quick = whole.index(b"\r\n\r\n") + 5 if number % 2 else 20
    found.slow[0] += 1
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(whole[:quick])
    try:
        async with asyncio.timeout(PATIENCE):
            ended = asyncio.create_task(reader.read())
            for byte in whole[quick:]:
                await asyncio.wait([ended], timeout=1.0)
                if ended.done():
                    break
                writer.write(bytes([byte]))
            answer = await ended
    except TimeoutError:
        return
    except OSError:
        answer = b""
    finally:
        writer.close()
    found.slow[1] += 1
    status = int(answer[9:12]) if answer.startswith(b"HTTP/") else 0
    found.judge(("slow", Expect.REFUSED, whole), status)
