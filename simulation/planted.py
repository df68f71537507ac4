"""Faults put back into the roles on purpose, to see that the simulator finds them. Each takes one safeguard away."""

from collections.abc import Callable
from functools import partial
from typing import Any

from chain.transactions import Sender
from orchestrator.relay import Relay
from protocol.verdict import Code
from simulation import world
from trainer.data import files
from validator.ballots import BallotStore
from validator.judging import checks, pipeline
from validator.tasks import TransactionTasks
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


def _remember_tasks() -> None:
    """A validator takes a vote that a reorganisation undid for sent."""
    library: Any = TransactionTasks
    library.forget = lambda self: None


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
    """A worker does not hand in again what a reorganisation took off the chain, nor what the service lost."""
    library: Any = Submitter
    follow = Submitter.follow

    def keeping(self: Submitter, state: Any) -> None:
        kept = set(self.handed_in)
        follow(self, state)
        self.handed_in |= kept

    library.follow, library.ask = keeping, lambda self, entry: None


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


PLANTED: dict[str, Callable[[], None]] = {
    plant.__name__.strip("_").replace("_", "-"): partial(plant)
    for plant in (
        _trust_proofs, _refuse_endings, _forget_ballots, _remember_tasks, _train_again, _leave_gaps, _hand_in_once,
        _relay_nothing_twice,
    )
}  # fmt: skip


def plant(name: str) -> None:
    """Put a fault in. Raises KeyError for an unknown one."""
    PLANTED[name]()
