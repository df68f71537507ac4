"""What the watch remembers over restarts: which events it told, which alarms are raised. Pure but for reading it."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import Field

from protocol.documents import Document, load_document
from protocol.files import write_atomic
from runtime.watch.alarms import NAMES, Alarm
from runtime.watch.facts import Facts
from runtime.watch.news import NewsItem

CLEAR_AFTER = 3
"""Looks without an alarm until it is over: what flutters is told once."""
_POOL = ("stake_low", "stake_frozen", "ejected", "seat_out", "key_stale", "run_stalled")
_CHAIN = ("chain_stale", "gas_low")
_SERVICE = (
    "clock_wrong",
    "database_lost",
    "service_trouble",
    "storage_lost",
    "version_behind",
    "process_gone",
    "process_in_trouble",
    "process_stalled",
    "training_unstable",
)


class WatchMemory(Document):
    """`told`: keys of events, None before the first look at the chain: what happened before is no news. `raised`:
    alarm → since (Unix seconds); `quiet`: alarm → looks without it."""

    told: frozenset[str] | None = None
    raised: dict[str, float] = Field(default_factory=dict)
    quiet: dict[str, int] = Field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> "WatchMemory":
        return load_document(path, cls) if path.exists() else cls()

    def save(self, path: Path) -> None:
        write_atomic(path, self.model_dump_json().encode())


def unknown(facts: Facts) -> frozenset[str]:
    """Alarms about which a look could not tell."""
    out: tuple[str, ...] = ()
    if facts.chain_error:
        out += _CHAIN
    if facts.pool is None:
        out += _POOL
    if facts.service is None:
        out += _SERVICE
    return frozenset(out)


def with_alarms(
    memory: WatchMemory, found: Iterable[Alarm], undecided: frozenset[str], now: float
) -> tuple[WatchMemory, list[str], list[str]]:
    """The memory after a look, with the names of alarms that begin and that are over."""
    present = {alarm.name for alarm in found}
    begun = [name for name in NAMES if name in present and name not in memory.raised]
    quiet = {name: memory.quiet.get(name, 0) + (name not in undecided) for name in memory.raised if name not in present}
    over = [name for name, looks in quiet.items() if looks >= CLEAR_AFTER]
    raised = {name: since for name, since in memory.raised.items() if name not in over} | dict.fromkeys(begun, now)
    rest = {name: looks for name, looks in quiet.items() if name not in over}
    return memory.model_copy(update={"raised": raised, "quiet": rest}), begun, over


def with_news(memory: WatchMemory, items: Iterable[NewsItem]) -> tuple[WatchMemory, list[NewsItem]]:
    """The memory after a look at the chain, with what is news."""
    every = list(items)
    fresh = [] if memory.told is None else [item for item in every if item.key not in memory.told]
    told = (memory.told or frozenset()) | {item.key for item in every}
    return memory.model_copy(update={"told": told}), fresh


def alarm_gauges(raised: Mapping[str, float]) -> dict[str, int]:
    """Every alarm's name → 1 while it is raised."""
    return {name: int(name in raised) for name in NAMES}
