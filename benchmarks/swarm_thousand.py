"""A thousand members whose envelopes are made up, and receivers with the real inbox, filters, weights and draw.

What is shared is not text here but what reading it comes to: an envelope of so many groups, or none. So what is
measured is order, bounds and chances: which share of the groups that receivers draw is hostile, and how evenly the
honest members are drawn.
"""

import hashlib
import math
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from protocol.swarm.envelope import Envelope, EnvelopeLimits, MalformedEnvelope, SharedCompletion, SharedGroup
from protocol.swarm.identity import NO_CHAIN
from protocol.swarm.places import RoundPlaces
from protocol.swarm.sampling import Offer
from storage.keys import object_key
from swarm.config import MixConfig
from swarm.inbox import EnvelopeInbox
from swarm.inspection import Allow, FoundGroup, Inspected
from swarm.listing import ListingEntry
from swarm.member import in_order, usual_filters

GROUPS, SHARED = 8, 4
ADVANTAGE = 0.3
"""Share of an honest member's groups that have one; a poisoner's all have."""
LIMITS = EnvelopeLimits(NO_CHAIN, "00" * 32, GROUPS, 2, 64, 1 << 16)
_PAIR = [SharedCompletion(text=text, ended=True, reward=reward) for text, reward in (("1", 1.0), ("2", 0.0))]
_GROUPS = [SharedGroup(slot=slot, question="00" * 32, completions=_PAIR) for slot in range(GROUPS)]
_NOBODY = "0x" + "00" * 20
_ENVELOPE = Envelope(chain_id=0, swarms=_NOBODY, swarm=0, document="00" * 32, member=_NOBODY, round=0, groups=_GROUPS)


@dataclass(frozen=True)
class SharingCrowd:
    """`hostile` of `members` are; each of these has so many `keys` and leaves so many envelopes a round under each
    (`flood`), and so many objects that are none (`junk`), each below an address of its own if `invented`. `said`:
    whether listings say whose an envelope is, as those of gates, folders and buckets do. `doubted`: whether receivers
    doubt what hostile keys share. `receivers` of the honest members are looked at."""

    name: str
    keys: int = 1
    flood: int = 1
    junk: int = 0
    invented: bool = False
    said: bool = True
    doubted: bool = False
    members: int = 1000
    hostile: int = 250
    receivers: int = 8
    rounds: int = 10


CROWDS = (
    SharingCrowd("one envelope a round, as everybody"),
    SharingCrowd("the same, doubted", doubted=True),
    SharingCrowd("flood: eight envelopes a round", flood=8),
    SharingCrowd("flood, doubted", flood=8, doubted=True),
    SharingCrowd("flood, where listings do not say whose an envelope is", flood=8, said=False),
    SharingCrowd("sybils: eight keys each", keys=8),
    SharingCrowd("sybils, doubted", keys=8, doubted=True),
    SharingCrowd("junk: eight objects that are no envelopes", junk=8),
    SharingCrowd("junk below eight invented addresses", junk=8, invented=True),
)


class CrowdExchange:
    """Lists what the crowd left so far, whose it is said to be; the bytes of an object are its key."""

    def __init__(self, crowd: SharingCrowd) -> None:
        self._crowd = crowd
        self.envelopes: dict[str, tuple[str, int, int]] = {}
        self._junk: list[ListingEntry] = []

    def next_round(self, number: int) -> None:
        crowd = self._crowd
        for member in range(crowd.members):
            if member >= crowd.hostile:
                self._leave(f"honest-{member}", number, _with_advantage(member, number))
                continue
            for key in range(crowd.keys):
                for at in range(number * crowd.flood, (number + 1) * crowd.flood):
                    self._leave(f"hostile-{member}-{key}", at, GROUPS)
            for at in range(crowd.junk):
                sharer = f"nobody-{member}-{number}-{at}" if crowd.invented else f"hostile-{member}-0"
                self._junk.append(ListingEntry(object_key("envelopes", _hash("junk", member, number, at)), sharer))

    def _leave(self, member: str, number: int, groups: int) -> None:
        if groups:
            self.envelopes[object_key("envelopes", _hash(member, number))] = member, number, groups

    def listed(self) -> Iterator[ListingEntry]:
        for key, (member, _, _) in self.envelopes.items():
            yield ListingEntry(key, member if self._crowd.said else "")
        yield from self._junk

    def get(self, entry: ListingEntry, limit: int) -> bytes:
        return entry.key.encode()


class CrowdInspector:
    """What reading an object comes to, without reading it."""

    limits = LIMITS

    def __init__(self, exchange: CrowdExchange) -> None:
        self._exchange = exchange

    def inspect(self, data: bytes, allow: Allow = lambda _: math.inf) -> Inspected:
        known = self._exchange.envelopes.get(data.decode())
        if known is None:
            raise MalformedEnvelope("junk")
        member, number, count = known
        groups = _GROUPS[:count]
        envelope = _ENVELOPE.model_copy(update={"member": member, "round": number, "groups": groups})
        allow(envelope)
        found = [
            FoundGroup(Offer(member, number, one.slot, f"{member}/{number}/{one.slot}", (1.0, 0.0)), 0, one)
            for one in groups
        ]
        return Inspected(envelope, tuple(found))


def one_crowd(crowd: SharingCrowd) -> dict[str, Any]:
    """Rounds of the receivers, one after another in each."""
    exchange, mix = CrowdExchange(crowd), MixConfig(own=4, shared=SHARED, seconds=3600.0)
    inspector = CrowdInspector(exchange)
    secrets = [_hash("secret", number) for number in range(crowd.receivers)]
    inboxes = [EnvelopeInbox(inspector, mix, f"receiver-{n}", secret) for n, secret in enumerate(secrets)]  # type: ignore[arg-type]
    times: Counter[str] = Counter()
    looked = hostile_looked = 0
    began, spent = time.process_time(), 0.0
    for number in range(crowd.rounds):
        exchange.next_round(number)
        began = time.process_time()
        for secret, inbox in zip(secrets, inboxes, strict=True):
            inbox.collect(exchange, number)
            drawn, doubted = _draw(inbox, mix, _hash(secret, number), crowd)
            inbox.use(drawn, [], doubted)
            times.update(name.partition("/")[0] for name in drawn)
            looked += len(drawn) + len(doubted)
            hostile_looked += sum(name.startswith("hostile") for name in (*drawn, *doubted))
        spent += time.process_time() - began
    honest = [times[f"honest-{member}"] for member in range(crowd.hostile, crowd.members)]
    hostile = sum(count for name, count in times.items() if name.startswith("hostile"))
    return {
        "name": crowd.name,
        "keys": round(crowd.keys * crowd.hostile / (crowd.keys * crowd.hostile + len(honest)), 4),
        "drawn": sum(times.values()),
        "full": round(sum(times.values()) / (crowd.receivers * crowd.rounds * SHARED), 4),
        "hostile": round(hostile / max(1, sum(times.values())), 4),
        "hostile_looked": round(hostile_looked / max(1, looked), 4),
        "most": max(honest),
        "mean": round(statistics.fmean(honest), 3),
        "variance_ratio": round(statistics.pvariance(honest) / max(1e-9, statistics.fmean(honest)), 3),
        "milliseconds": round(1000 * spent / (crowd.receivers * crowd.rounds), 2),
    }


def _draw(inbox: EnvelopeInbox, mix: MixConfig, seed: bytes, crowd: SharingCrowd) -> tuple[list[str], list[str]]:
    """As a member's round does it, with a judge that knows who is hostile."""
    drawn: list[str] = []
    doubted: list[str] = []
    places = RoundPlaces(mix.shared, inbox.sharers, inbox.lately())
    for found in in_order(inbox, usual_filters(mix)(inbox), seed, mix):
        sharer, name = found.offer.sharer, found.offer.name
        if not places.left:
            break
        if not places.open_to(sharer):
            continue
        if crowd.doubted and sharer.startswith("hostile"):
            doubted.append(name)
        else:
            drawn.append(name)
            places.take(sharer)
    return drawn, doubted


def _with_advantage(member: int, number: int) -> int:
    return sum(byte < 256 * ADVANTAGE for byte in _hash("advantage", member, number)[:GROUPS])


def _hash(*parts: object) -> bytes:
    return hashlib.sha256(repr(parts).encode()).digest()
