"""What a process answers that its program may have taken over."""

import pytest

from environments.sandbox.frames import pack_outcome, unpack_outcome
from environments.sandbox.program import Ending, SandboxLimits, SandboxOutcome

LIMITS = SandboxLimits(fuel=100, output=10)
OUTCOME = SandboxOutcome(Ending.EXITED, 0, b"out", b"err", 7, 65536)


def test_an_outcome_comes_through_whole_however_it_is_cut() -> None:
    data = pack_outcome(OUTCOME)
    assert unpack_outcome(data, LIMITS) == OUTCOME
    assert all(unpack_outcome(data[:end], LIMITS) is None for end in range(len(data)))


@pytest.mark.parametrize(
    "data",
    [
        b"9999999999",
        b"abcdefghij",
        b"         2{}",
        b"         3[1]",
        pack_outcome(OUTCOME) + b"more",
        pack_outcome(SandboxOutcome(Ending.EXITED, 0, b"x" * 11, b"", 7, 0)),
        pack_outcome(SandboxOutcome(Ending.EXITED, 0, b"", b"", 101, 0)),
        pack_outcome(OUTCOME).replace(b'"exited"', b'"melted"'),
        pack_outcome(OUTCOME).replace(b'"fuel": 7', b'"fuel": 1e999').replace(b"        76", b"        80"),
    ],
)
def test_what_cannot_be_an_outcome_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        unpack_outcome(data, LIMITS)
