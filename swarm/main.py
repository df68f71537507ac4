"""`run(config_path)`: the process of one member."""

import logging
import os
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from engines.torch_process import torch_environment
from protocol.errors import ScoringUnavailable
from protocol.files import locked
from runtime.process import Daemon, start
from swarm.config import SwarmMemberConfig

if TYPE_CHECKING:
    from swarm.member import Member

log = logging.getLogger("muster.swarm")
_PAUSE_SECONDS = 2.0
_MAX_PAUSES = 60
_LOCK_SECONDS = 10.0


class MemberDaemon:
    """Makes rounds until it is stopped or has made `rounds` of them (0: no limit), each at least `round_seconds` long.
    `held` is what keeps other processes out of its home. A round that cannot be scored is tried again for two minutes.
    Any other failure ends the process, which resumes from its last checkpoint."""

    def __init__(self, member: "Member", rounds: int, round_seconds: float, held: ExitStack) -> None:
        self._member, self._rounds, self._round_seconds, self._held = member, rounds, round_seconds, held
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> int:
        member, progress, pauses = self._member, self._member.progress, 0
        while not self._stopping.is_set() and not self._over:
            number, began = progress.next, time.monotonic()
            try:
                result = member.advance()
            except ScoringUnavailable as error:  # nothing was trained yet, so the same round can be tried again
                pauses += 1
                if pauses > _MAX_PAUSES:
                    raise
                log.warning("round %d waits: %s", number, error)
                self._stopping.wait(_PAUSE_SECONDS)
                continue
            seconds, pauses = round(time.monotonic() - began, 3), 0
            progress.show({**member.status(number), "reward": result.reward, "seconds": seconds})
            if seconds < self._round_seconds and not self._over:
                log.info("the next round begins in %.0f s", self._round_seconds - seconds)
                self._stopping.wait(self._round_seconds - seconds)
        return 0

    @property
    def _over(self) -> bool:
        return 0 < self._rounds <= self._member.progress.next


def run(config_path: Path) -> None:
    """Take part until SIGINT or SIGTERM, or the last round."""
    start(config_path, SwarmMemberConfig, _build, grace=None)


def _build(config: SwarmMemberConfig) -> Daemon:
    """Raise MusterError if another process works in the member's home: two would sign rounds twice."""
    held = ExitStack()
    held.enter_context(locked(config.home / "member.lock", f"the other process in {config.home} to end", _LOCK_SECONDS))
    for name, value in torch_environment(config.engine.threads).items():
        os.environ.setdefault(name, value)
    from swarm.member import assemble

    member = assemble(config, config.engine.make())
    return MemberDaemon(member, config.rounds, config.round_seconds, held)
