"""Faults put back into the roles on purpose, to see that the simulator finds them. Each takes one safeguard away."""

import os
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import protocol.files
from chain.indexer.store import EventStore
from chain.transactions import Sender
from orchestrator.background import BackgroundTask
from orchestrator.relay import Claims, Relay
from protocol.http import transport
from protocol.verdict import Code
from simulation import world
from trainer.data import files
from validator.ballots import BallotStore
from validator.duties import Keeper
from validator.judging import checks, pipeline
from validator.tasks import TransactionTasks
from worker.journal import Journal
from worker.submit import Submitter


def _trust_proofs() -> None:
    """Judges accept whatever activations a file claims."""
    library: Any = pipeline
    library.PREFILL_CHECKS = tuple(check for check in checks.PREFILL_CHECKS if check is not checks.check_toploc)


def _refuse_endings() -> None:
    """Judges take an answer that ends by itself for one that was cut."""

    def refuse(context: checks.CheckContext) -> Any:
        ended = any(measured.eos_probability is not None for measured in context.measured)
        return checks.refuse("eos", Code.REJECT_TERMINATION, "it ends") if ended else checks.accept("eos")

    library: Any = pipeline
    library.PREFILL_CHECKS = (*checks.PREFILL_CHECKS, refuse)


def _forget_ballots() -> None:
    """A validator that is killed between its vote and the opening does not know its salt any more."""
    library: Any = BallotStore
    begin = BallotStore.__init__

    def init(self: BallotStore, folder: Any) -> None:
        for path in folder.glob("*.json"):
            path.unlink()
        begin(self, folder)

    library.__init__ = init


def _freeze_tasks() -> None:
    """A validator does not try again what failed once."""
    library: Any = TransactionTasks
    run = TransactionTasks._run

    def once(self: TransactionTasks, key: Any, *rest: Any) -> None:
        run(self, key, *rest)
        if key in self._failed:
            self._running.add(key)

    library._run = once


def _train_again() -> None:
    """The trainer takes files that it was trained on already."""
    select: Any = files.select_files
    library: Any = world

    def forgetful(state: Any, pool: int, step: int, lag: int, confirmations: int, consumed: Any) -> Any:
        return select(state, pool, step, lag, confirmations, ())

    library.select_files = forgetful


def _leave_gaps() -> None:
    """A transaction that waits behind one that the chain forgot is waited for, and nothing else."""
    library: Any = Sender
    library._track = lambda self, pending: None
    library._bump = lambda self, pending: None


def _hand_in_once() -> None:
    """A worker does nothing more for a file that it handed in: not when a reorganisation took it off the chain or the
    service lost it, and it does not submit it either."""
    library: Any = Submitter
    follow = Submitter.follow

    def keeping(self: Submitter, state: Any) -> None:
        kept = set(self.handed_in)
        follow(self, state)
        self.handed_in |= kept

    library.follow, library.ask = keeping, lambda self, entry: None
    library.submit = library.ask


def _relay_nothing_twice() -> None:
    """The service gives up relaying after a lane that failed."""
    library: Any = Relay
    turn = Relay.turn

    def once(self: Any) -> None:
        if getattr(self, "gave_up", False):
            return
        try:
            turn(self)
        except Exception:
            self.gave_up = True
            raise

    library.turn = once


def _sync_nothing() -> None:
    """What is written is not on the disk when others hear of it."""
    library: Any = protocol.files
    library.os = SimpleNamespace(**vars(os) | {"fsync": lambda descriptor: None})


def _vote_before_writing() -> None:
    """A validator keeps its ballots in memory."""
    library: Any = BallotStore
    library.keep = lambda self, ballot: self._ballots.setdefault(ballot.where, []).append(ballot)


def _reveal_nothing() -> None:
    """A validator takes its votes for opened."""
    library: Any = TransactionTasks
    run = TransactionTasks.run

    def forgetful(self: TransactionTasks, key: Any, *rest: Any, **options: Any) -> bool:
        return False if key[-1] == "reveal" else run(self, key, *rest, **options)

    library.run = forgetful


def _lose_receipts() -> None:
    """A worker does not keep the service's receipts."""
    library: Any = Journal
    library.change = lambda self, entry, **changes: entry


def _relay_stale_files() -> None:
    """The service relays files whose step has another seed since a reorganisation."""
    library: Any = Relay
    library._without_stale = lambda self, rows, pool: rows


def _move_cursor_first() -> None:
    """A follower writes how far it is before it writes what it read."""
    library: Any = EventStore
    append = EventStore.append

    def ahead(self: EventStore, logs: Any, blocks: Any) -> None:
        append(self, [], blocks)
        time.sleep(0.1)
        append(self, logs, blocks)

    library.append = ahead


def _end_background_work() -> None:
    """A thread of the service ends silently at its first failure."""
    library: Any = BackgroundTask

    def run(self: Any) -> None:
        try:
            while not self._stop.is_set():
                self._work()
                self._stop.wait(self._pause)
        except Exception:
            self._stop.wait()

    library._run = run


def _settle_nothing() -> None:
    """Nobody tallies votes."""
    library: Any = Keeper
    library.settle = lambda self, *lane: None


def _claim_nothing() -> None:
    """Nobody claims for operators."""
    library: Any = Claims
    library.turn = lambda self: None


def _wait_without_limit() -> None:
    """Clients wait for answers as long as it takes."""
    library: Any = transport
    library._left = lambda seconds: 1e9


PLANTED: dict[str, Callable[[], None]] = {
    plant.__name__.strip("_").replace("_", "-"): partial(plant)
    for plant in (
        _trust_proofs, _refuse_endings, _forget_ballots, _freeze_tasks, _train_again, _leave_gaps, _hand_in_once,
        _relay_nothing_twice, _sync_nothing, _vote_before_writing, _reveal_nothing, _lose_receipts, _relay_stale_files,
        _move_cursor_first, _end_background_work, _settle_nothing, _claim_nothing, _wait_without_limit,
    )
}  # fmt: skip


def plant(name: str) -> None:
    """Put a fault in. Raises KeyError for an unknown one."""
    PLANTED[name]()
