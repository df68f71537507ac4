"""Which submissions belong into a data set, and what the chain says of each: pure functions of the projected state."""

from dataclasses import dataclass

from chain.records import Submission
from chain.state import State
from protocol.verdict import Code, code_at


@dataclass(frozen=True)
class AcceptedFile:
    """A submission that was accepted for good. `votes`: the opened ones on it, of every round of its lane in order of
    membership, each with the hash of the document behind it."""

    submission: Submission
    manifest: bytes
    votes: tuple[tuple[Code, bytes], ...]

    @property
    def verdict(self) -> str:
        return Code(self.submission.code).label


def accepted_files(state: State, pool: int, time: int) -> list[AcceptedFile]:
    """Those that were final at chain time `time`, by sequence."""
    return [_file(state, sub) for sub in state.accepted(pool) if sub.is_final(time)]


def certain(state: State, file: AcceptedFile) -> bool:
    """Whether a file's finality follows from the clock alone. The end of a dispute or of a canary's trial has no time
    of its own in the state: such a file may or may not have been final at an earlier block."""
    place = (file.submission.pool, file.submission.sequence)
    return place not in state.disputes and place not in state.canaries


def _file(state: State, sub: Submission) -> AcceptedFile:
    votes = [
        (Code(code_at(codes, sub.place)), digest)
        for turn in state.lane_of(sub).rounds
        for _, (codes, digest) in sorted(turn.reveals.items())
        if code_at(codes, sub.place)
    ]
    return AcceptedFile(sub, state.pools[sub.pool].steps[sub.step].manifest, tuple(votes))
