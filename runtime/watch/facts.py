"""What a look at machine, chain and service found. What could not be asked is None or says why."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from chain.standing import Standing


@dataclass(frozen=True)
class WatchedPool:
    """From the chain: `step` is the newest policy step (-1: none) and `step_time` its time; amounts in grains. `stake`
    and `standing` of the node that is watched; `least_stake` is the pool's. `seats`: number → why it cannot judge, or
    empty. `service_key_current`: whether the chain names the key that is watched."""

    step: int = -1
    step_time: int = 0
    running: bool = True
    stake: int | None = None
    least_stake: int = 0
    standing: Standing | None = None
    seats: Mapping[int, str] = field(default_factory=dict)
    service_key_current: bool | None = None


@dataclass(frozen=True)
class ServiceFacts:
    """From the pool's service: `problems` that it tells itself, its `version`, how far our clock is ahead of its own in
    seconds, whether the run has `finished`. `state` and `phase`: what it last heard of the process that is watched,
    which got `done` that many files; `trouble`: what that lacks; `trainer`: the trainer's phase."""

    ready: bool = True
    problems: tuple[str, ...] = ()
    version: str = ""
    clock_offset: float = 0.0
    finished: bool = False
    state: str = ""
    phase: str = ""
    trouble: str = ""
    done: float | None = None
    trainer: str = ""


@dataclass(frozen=True)
class Facts:
    """`now` in Unix seconds. `free`: folder's name → bytes, None for one that is not there. `transactions_left`:
    account's name → for how many transactions its gas is enough. `process_gone`: why the watched process is known
    not to run on this machine, `process_stalled`: that its computation does not move. `progressed`: when it last got
    something done."""

    now: float
    free: Mapping[str, int | None] = field(default_factory=dict)
    chain_error: str = ""
    head_age: float | None = None
    transactions_left: Mapping[str, int] = field(default_factory=dict)
    pool: WatchedPool | None = None
    process_gone: str = ""
    process_stalled: str = ""
    service_error: str = ""
    service: ServiceFacts | None = None
    storage_error: str = ""
    progressed: float | None = None
