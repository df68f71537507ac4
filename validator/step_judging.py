"""What a juror says of a disputed outer step of a run of sites: `muster site verify` makes the step again, in a process
of its own, so that neither the votes on files nor this process's memory wait for a model.

Whoever has not the run's configuration, or cannot get what was published, answers `unavailable` when an answer is due:
nobody loses by it but the disputer, who must see to it that jurors can judge, its jury's fees.
"""

import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from chain.judging import StepDispute
from protocol.errors import printable
from protocol.verdict import Code

log = logging.getLogger("muster.validator")
_AGAIN_SECONDS, _MOST_BYTES = 30.0, 1 << 20
_MOST_SECONDS = 1800.0
"""A run whose bucket gives its bytes by drips must not keep the juror from other runs' steps."""


@dataclass(frozen=True)
class StepVerdict:
    """`code`: the vote; `why`: for the log."""

    code: Code
    why: str


@dataclass
class _Judging:
    """One run of the command, and where it writes its answer and its errors. `ends`: when it is ended (monotonic)."""

    process: "subprocess.Popen[bytes]"
    out: IO[bytes]
    err: IO[bytes]
    ends: float

    @property
    def running(self) -> bool:
        return self.process.poll() is None


@dataclass
class _Judged:
    verdict: StepVerdict | None = None
    attempt: _Judging | None = None
    not_before: float = 0.0
    problem: str = field(default="")


class StepJudge:
    """`runs`: by a run's number on chain, a site's or keeper's configuration. `command`: what is run, for a
    configuration and a step, for so many `seconds` at most. One process at a time; one thread."""

    def __init__(
        self,
        runs: Mapping[int, Path],
        command: Callable[[Path, int], Sequence[str]] | None = None,
        seconds: float = _MOST_SECONDS,
    ) -> None:
        self._runs, self._command, self._seconds = dict(runs), command or verify_command, seconds
        self._judged: dict[int, _Judged] = {}

    def verdict(self, dispute: StepDispute) -> StepVerdict | None:
        """On a dispute; None while it is being judged, and where it cannot be judged yet."""
        self._end_overdue()
        known = self._judged.setdefault(dispute.dispute, _Judged())
        if known.verdict is None and known.attempt is not None and not known.attempt.running:
            self._take(dispute, known, known.attempt)
        if known.verdict is None and known.attempt is None and time.monotonic() >= known.not_before:
            self._begin(dispute, known)
        return known.verdict

    def problem(self, dispute: StepDispute) -> str:
        """What last kept it from its end, for the log."""
        known = self._judged.get(dispute.dispute)
        return (known.problem if known else "") or "it was not judged in time"

    def close(self) -> None:
        """End what is running."""
        for known in self._judged.values():
            if known.attempt is not None:
                known.attempt.process.kill()
                known.attempt.process.wait()

    def _end_overdue(self) -> None:
        """Also of disputes that nobody asks about any more."""
        for number, known in self._judged.items():
            attempt = known.attempt
            if attempt is None or not attempt.running or time.monotonic() < attempt.ends:
                continue
            attempt.process.kill()
            attempt.process.wait()
            attempt.out.close()
            attempt.err.close()
            known.attempt, known.not_before = None, time.monotonic() + _AGAIN_SECONDS
            known.problem = f"making the step again took more than {self._seconds:.0f} s"
            log.warning("dispute %d cannot be judged yet: %s", number, known.problem)

    def _begin(self, dispute: StepDispute, known: _Judged) -> None:
        config = self._runs.get(dispute.run)
        if config is None:
            known.problem = f"`runs` of this validator's configuration names no configuration of run {dispute.run}"
            known.not_before = float("inf")
            return
        if any(one.attempt is not None and one.attempt.running for one in self._judged.values()):
            return
        out, err = TemporaryFile(), TemporaryFile()  # noqa: SIM115 - closed with the attempt
        argv = list(self._command(config, dispute.step))
        log.info("dispute %d: outer step %d of run %d is made again", dispute.dispute, dispute.step, dispute.run)
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        known.attempt = _Judging(process, out, err, time.monotonic() + self._seconds)

    def _take(self, dispute: StepDispute, known: _Judged, attempt: _Judging) -> None:
        known.attempt = None
        said, complaint = _read(attempt.out), _read(attempt.err)
        known.verdict = step_verdict(said, dispute)
        if known.verdict is None:
            known.problem = printable(complaint.decode(errors="replace").strip() or "no answer", 300)
            known.not_before = time.monotonic() + _AGAIN_SECONDS
            log.warning("dispute %d cannot be judged yet: %s", dispute.dispute, known.problem)
            return
        log.info("dispute %d: %s: %s", dispute.dispute, known.verdict.code.label, known.verdict.why)


def step_verdict(said: bytes, dispute: StepDispute) -> StepVerdict | None:
    """The vote by what `muster site verify --json` said; None where it is no answer about that step."""
    try:
        document = json.loads(said)
        about, follows, faults = (document["run"], document["step"]), document["follows"], document["faults"]
    except (ValueError, KeyError, TypeError):
        return None
    if about != (dispute.run, dispute.step) or follows is not (not faults):
        return None
    if follows:
        return StepVerdict(Code.ACCEPT, "it follows from what was published")
    return StepVerdict(Code.REJECT_COMMITMENT, printable("; ".join(map(str, faults)), 300))


def verify_command(config: Path, step: int) -> list[str]:
    return [sys.executable, "-P", "-m", "cli.main", "site", "verify", str(step), "--config", str(config), "--json"]


def _read(file: IO[bytes]) -> bytes:
    with file:
        file.seek(0)
        return file.read(_MOST_BYTES)
