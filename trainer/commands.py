"""One learner on every rank, driven by rank 0: what it does, all do, and all agree on whether it worked."""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import torch

from protocol.errors import MusterError
from trainer.learner import Learner
from trainer.ranks import Ranks, RanksLostError
from trainer.rollouts import Group
from trainer.state.checkpoint import PendingCheckpoint
from trainer.step_metrics import StepMetrics

log = logging.getLogger("muster.trainer")
_END = "end"


class LearnerGroup:
    """The learners of all ranks. Rank 0 calls the methods, the others are in `follow` meanwhile.

    A MusterError or OSError on any rank becomes a MusterError on rank 0; the group goes on. Anything else ends the
    process in which it happens, and with it, as a RanksLostError, the others.
    """

    def __init__(self, ranks: Ranks, make: Callable[[], Learner]) -> None:
        self._ranks, self._make = ranks, make
        self._pending: PendingCheckpoint | None = None
        self.learner = make()

    def train_step(self, groups: Sequence[Group]) -> StepMetrics:
        """One training step on every rank; see Learner."""
        return cast(StepMetrics, self._everywhere("train_step", groups))

    def start_checkpoint(self, folder: Path, extra: dict[str, Any]) -> None:
        """Begin to write a checkpoint; see Learner."""
        self._everywhere("start_checkpoint", folder, extra)

    def finish_checkpoint(self) -> None:
        """Wait until the checkpoint begun last is complete. Raises MusterError if it cannot be written."""
        self._everywhere("finish_checkpoint")

    def load_checkpoint(self, folder: Path) -> dict[str, Any]:
        """Restore a checkpoint on every rank; see Learner."""
        return cast(dict[str, Any], self._everywhere("load_checkpoint", folder))

    def export(self, folder: Path) -> None:
        """Write the policy's weights to `folder`; see Policy."""
        self._everywhere("export", folder)

    def renew(self) -> None:
        """Start with fresh learners at policy step 0."""
        self._everywhere("renew")

    def end(self, code: int) -> None:
        """Let the other ranks, if they are still there, end with this exit code."""
        with suppress(RanksLostError):
            self._ranks.command((_END, (code,)))

    def follow(self) -> int:
        """Do what rank 0 says until it ends; returns the exit code. For every other rank."""
        while True:
            name, arguments = self._ranks.command()
            if name == _END:
                return int(arguments[0])
            try:
                self._together(name, arguments)
            except RanksLostError:
                raise
            except MusterError as error:
                log.debug("rank 0 decides about: %s", error)

    def _everywhere(self, name: str, *arguments: Any) -> Any:
        self._ranks.command((name, arguments))
        return self._together(name, arguments)

    def _together(self, name: str, arguments: tuple[Any, ...]) -> Any:
        result, failure = None, None
        try:
            result = self._do(name, arguments)
        except RanksLostError:
            raise
        except MusterError as error:
            failure = error
        except OSError as error:
            failure = MusterError(
                f"cannot use {error.filename}: {error.strerror}", "look at the disk and its permissions"
            )
        if self._ranks.sum(torch.tensor(float(failure is not None))).item():
            raise failure or MusterError(f"{name} failed on another rank", "its log says why")
        return result

    def _do(self, name: str, arguments: tuple[Any, ...]) -> Any:
        match name:
            case "train_step":
                return self.learner.train_step(*arguments)
            case "start_checkpoint":
                self._pending = self.learner.start_checkpoint(*arguments)
            case "finish_checkpoint":
                assert self._pending is not None, "no checkpoint was begun"
                self._pending.wait()
            case "load_checkpoint":
                return self.learner.load_checkpoint(*arguments)
            case "export":
                self.learner.policy.export(*arguments)
            case "renew":
                self.learner = self._make()
            case _:
                raise AssertionError(f"no command {name!r}")
        return None
