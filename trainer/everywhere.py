"""Something that every rank has, driven by rank 0: what it does, all do, and all agree on whether it worked."""

import logging
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any

import torch

from protocol.errors import MusterError
from trainer.exits import RanksLostError
from trainer.ranks import Ranks

log = logging.getLogger("muster.trainer")
_END = "end"


class Everywhere(ABC):
    """Rank 0 calls the methods, the others are in `follow` meanwhile.

    A MusterError or OSError on any rank becomes a MusterError on rank 0; the group goes on. Anything else ends the
    process in which it happens, and with it, as a RanksLostError, the others.
    """

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks

    def end(self, code: int) -> None:
        """Let the other ranks, if they are still there, end with this exit code."""
        with suppress(RanksLostError):
            self.ranks.command((_END, (code,)))

    def follow(self) -> int:
        """Do what rank 0 says until it ends; returns the exit code. For every other rank."""
        while True:
            name, arguments = self.ranks.command()
            if name == _END:
                return int(arguments[0])
            try:
                self._together(name, arguments)
            except RanksLostError:
                raise
            except MusterError as error:
                log.debug("rank 0 decides about: %s", error)

    def _everywhere(self, name: str, *arguments: Any) -> Any:
        self.ranks.command((name, arguments))
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
        if self.ranks.sum(torch.tensor(float(failure is not None))).item():
            raise failure or MusterError(f"{name} failed on another rank", "its log says why")
        return result

    @abstractmethod
    def _do(self, name: str, arguments: tuple[Any, ...]) -> Any:
        """This rank's part of a command."""
