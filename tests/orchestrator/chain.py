"""A chain written by hand: the events that the contracts would emit, in the forms the follower gives."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from chain.indexer.logs import Batch, Event
from chain.indexer.records import Terms, pack_work
from chain.indexer.reducers import apply
from chain.indexer.state import State
from chain.indexer.store import Archive
from protocol.accounts import Account as Key
from protocol.accounts import LocalAccount
from protocol.verdict import Code

POOLS = "0x" + "11" * 20
RATE, FEE, COMMITTEE, WINDOW = 10, 1001, 3, 20
TERMS = Terms(
    committee=COMMITTEE,
    drawBlocks=100,
    commitWindow=10,
    revealWindow=10,
    challengeWindow=WINDOW,
    receiptWindow=10,
    fee=FEE,
    group=0,
    auditRate=65536,
    maxLag=4,
    jury=5,
    rate=RATE,
    juryFee=500,
    minStake=1000,
    leverage=10,
    maxUnits=100_000,
    appealJury=0,
    appealWindow=10,
    juryCommitWindow=10,
    juryRevealWindow=10,
    inviteOnly=False,
    configHash=b"\1" * 32,
)
OWNER, NODE, CHEAT, VOTER, STRANGER = (Key.from_key(bytes([n]) * 32) for n in range(1, 6))


def replay(events: Iterable[Event]) -> State:
    """The state after `events`, in chain order."""
    state = State()
    for event in events:
        apply(state, event)
    return state


class ScriptedChain:
    """An event source; one call, one event, one block of one second (from time 1,000)."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.head = 0
        self._polled = 0
        self._rollback: int | None = None
        self.sequence = 0
        self.drawn: set[int] = set()
        self.archive = Archive()

    def history(self, after: int = -1) -> Iterable[Event]:
        self._polled = len(self.events)
        return [event for event in self.events if event.block > after]

    def poll(self) -> Batch:
        new, rollback = self.events[self._polled :], self._rollback
        self._polled, self._rollback = self._polled + len(new), None
        return Batch(rollback, new, self.head)

    def emit(self, contract: str, name: str, **args: Any) -> None:
        self.head += 1
        event = Event(self.head, bytes(32), f"0x{self.head:064x}", 0, contract, name, args, 1000 + self.head)
        self.events.append(event)

    def rewind(self, count: int) -> None:
        """A reorganisation that drops the last `count` events and blocks."""
        del self.events[len(self.events) - count :]
        self.head -= count
        self._rollback, self._polled = self.head, min(self._polled, len(self.events))

    # what actors do

    def create(self, budget: int = 10_000_000, pool: int = 1, **terms: Any) -> None:
        created = {"owner": OWNER.address, "configHash": b"\1" * 32, "terms": vars(replace(TERMS, **terms))}
        self.emit("Pools", "PoolCreated", pool=pool, unbonding=9, **created)
        self.emit("Pools", "PoolFunded", pool=pool, amount=budget, **{"from": OWNER.address})

    def join(self, key: LocalAccount, step: int = 0, pool: int = 1) -> None:
        node, operator = key.address, OWNER.address
        self.emit("Stakes", "NodeRegistered", node=node, operator=operator, stake=5000)
        self.emit("Pools", "NodeJoined", pool=pool, node=node, operator=operator, joinedStep=step, limit=10**9)

    def seat(self, key: LocalAccount, seat: int = 1) -> None:
        self.emit("Seats", "SeatOpened", seat=seat, owner=key.address, voter=key.address, bond=9000, activeFrom=1)

    def publish(self, step: int, pool: int = 1) -> None:
        seed = self.head + 2
        hashes = {"manifestHash": b"\2" * 32, "canaryRoot": b"\3" * 32}
        self.emit("Pools", "StepPublished", pool=pool, step=step, seedBlock=seed, **hashes)
        self.head += 3

    def submit(self, key: LocalAccount, counter: int, step: int = 0, units: int = 100, sha: bytes | None = None) -> int:
        sequence, self.sequence = self.sequence, self.sequence + 1
        placed, name = sequence << 104 | pack_work(1, step, counter, units, 8), sequence.to_bytes(32, "big")
        hashes = {"root": b"\4" * 32, "fileHash": name if sha is None else sha}
        self.emit("Pools", "WorkSubmitted", node=key.address, placed=placed, **hashes)
        return sequence

    def settle(self, key: LocalAccount, sequence: int, code: Code, units: int = 100) -> None:
        lane = sequence >> 4
        if lane not in self.drawn:
            self.drawn.add(lane)
            self.emit("Court", "CommitteeDrawn", which=1 << 64 | lane << 32, seedBlock=self.head, drawn=1 << 64 | 1)
        time = 1001 + self.head + WINDOW
        self.settled(sequence, int(code), time)

    def settled(self, sequence: int, code: int, time: int) -> None:
        word = int(code) << 240 | time << 208
        words = [0] * (sequence & 15) + [word]
        self.emit("Pools", "FilesSettled", file=1 << 32 | sequence & ~15, words=words)

    def finalize(self, key: LocalAccount, sequence: int, code: Code, taken: int, fees: int) -> None:
        if taken:
            left = {"stake": 5000 - taken, "frozen": 0}
            self.emit("Stakes", "NodeSlashed", node=key.address, amount=taken, fees=fees, reward=0, **left)
        self.emit("Pools", "FileFinalized", file=1 << 32 | sequence, code=int(code), slashed=taken)

    def claim(self, key: LocalAccount, units: int) -> None:
        self.emit("Pools", "Claimed", pool=1, node=key.address, units=units, amount=units * RATE)

    def fee(self, paid: int, burnt: int) -> None:
        """To the seat that judges all lanes, for the first one."""
        if all(event.name != "SeatOpened" for event in self.events):
            self.seat(OWNER)
        amounts = {"paid": paid, "burnt": burnt, "penalty": 0}
        self.emit("Court", "MemberClosed", ballot=1 << 64 | min(self.drawn) << 32 | 1 << 16, **amounts)


def started(*nodes: LocalAccount, voters: Iterable[LocalAccount] = (), budget: int = 10_000_000) -> ScriptedChain:
    """A chain with a pool whose step 0 is published, which these nodes joined."""
    chain = ScriptedChain()
    chain.create(budget)
    for key in voters:
        chain.seat(key)
    for key in nodes:
        chain.join(key)
    chain.publish(0)
    return chain
