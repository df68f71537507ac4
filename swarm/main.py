"""`run(config_path)`: one member's process."""

import logging
import os
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from engines.runtime import torch_environment
from protocol.errors import ScoringUnavailable
from protocol.files import locked
from runtime.process import Daemon, start
from swarm.config import SwarmMemberConfig

if TYPE_CHECKING:
    from swarm.assembly import AssembledMember

log = logging.getLogger("muster.swarm")
_PAUSE_SECONDS = 2.0
_MAX_PAUSES = 60
_LOCK, _LOCK_SECONDS = "member.lock", 10.0


class MemberDaemon:
    """Rounds until it is stopped or has made `rounds` of them. A round that cannot be scored now is tried again, for
    two minutes at most; whatever else fails ends the process, which resumes from what it wrote down. `pace`: least
    seconds of a round; `held`: what keeps other processes out of its home."""

    def __init__(self, assembled: "AssembledMember", rounds: int, pace: float, held: ExitStack) -> None:
        self._assembled, self._rounds, self._pace, self._held = assembled, rounds, pace, held
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> int:
        made, pauses = self._assembled, 0
        while not self._stopping.is_set() and not self._over:
            number = made.progress.state.next
            try:
                began = time.monotonic()
                done = made.round(number)
                made.progress.finished(made.learner, made.inbox, done)
                seconds = round(time.monotonic() - began, 3)
                made.progress.show({**made.member.status(number), "reward": done.reward, "seconds": seconds})
                pauses = 0
                self._rest(self._pace - seconds)
            except ScoringUnavailable as error:
                # Nothing was trained yet, so the same round can be tried again.
                pauses += 1
                if pauses > _MAX_PAUSES:
                    raise
                log.warning("round %d waits: %s", number, error)
                self._stopping.wait(_PAUSE_SECONDS)
        made.progress.keep(made.learner, made.inbox)
        return 0

    def _rest(self, seconds: float) -> None:
        """Before the next round, if there is one."""
        if seconds > 0 and not self._over:
            log.info("the next round begins in %.0f s", seconds)
            self._stopping.wait(seconds)

    @property
    def _over(self) -> bool:
        return 0 < self._rounds <= self._assembled.progress.state.next


def run(config_path: Path) -> None:
    """Take part until SIGINT or SIGTERM, or the last round."""
    start(config_path, SwarmMemberConfig, _build, grace=None)


def _build(config: SwarmMemberConfig) -> Daemon:
    """Raises MusterError where another process works in the member's home: two would sign rounds twice."""
    held = ExitStack()
    held.enter_context(locked(config.home / _LOCK, f"the other process in {config.home} to end", _LOCK_SECONDS))
    for name, value in torch_environment(config.engine.threads).items():
        os.environ.setdefault(name, value)
    from swarm.assembly import assemble, exchange_of

    return MemberDaemon(assemble(config, config.engine.make(), exchange_of(config)), config.rounds, config.pace, held)
