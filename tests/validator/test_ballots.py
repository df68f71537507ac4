"""Ballots survive a kill, whole and private."""

import dataclasses
import json
from pathlib import Path

import pytest

from protocol.errors import IntegrityError
from validator.ballots import Ballot, BallotBox


def ballot(**changes: object) -> Ballot:
    base = Ballot("lane-1-2-0", 7, "0x" + "11" * 20, b"s" * 32, b"f" * 32, 0x21, b"v" * 32, b"x" * 32, b"c" * 32)
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


def test_a_ballot_is_found_again_after_a_restart(tmp_path: Path) -> None:
    first = ballot()
    BallotBox(tmp_path).keep(first)
    again = BallotBox(tmp_path)
    assert again.ready("lane-1-2-0", 7, b"s" * 32, b"f" * 32) == first
    assert again.committed("lane-1-2-0", 7, b"c" * 32) == first
    assert again.ready("lane-1-2-0", 7, b"t" * 32, b"f" * 32) is None
    assert again.ready("lane-1-2-0", 7, b"s" * 32, b"g" * 32) is None
    assert again.ready("lane-1-2-0", 70, b"s" * 32, b"f" * 32) is None
    assert again.committed("lane-1-2-1", 7, b"c" * 32) is None


def test_both_ballots_of_a_reorganised_round_are_kept(tmp_path: Path) -> None:
    box = BallotBox(tmp_path)
    for seed, commitment in ((b"s", b"c"), (b"t", b"d")):
        box.keep(ballot(seed=seed * 32, commitment=commitment * 32))
    assert len(list(box.of("lane-1-2-0", 7))) == 2
    assert box.committed("lane-1-2-0", 7, b"d" * 32).seed == b"t" * 32  # type: ignore[union-attr]
    box.forget("lane-1-2-0")
    assert not list(box.of("lane-1-2-0", 7))


def test_ballots_are_private_and_damage_is_named(tmp_path: Path) -> None:
    box = BallotBox(tmp_path)
    box.keep(ballot())
    (path,) = tmp_path.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text('{"salt": "zz"}')
    with pytest.raises(IntegrityError, match="damaged"):
        list(box.of("lane-1-2-0", 7))


@pytest.mark.parametrize(
    "change",
    [{"salt": "73" * 31}, {"salt": "zz" * 32}, {"seat": "seven"}, {"codes": None}, {"more": 1}, {"files": 3}],
)
def test_a_changed_ballot_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    box = BallotBox(tmp_path)
    box.keep(ballot())
    (path,) = tmp_path.iterdir()
    path.write_text(json.dumps(json.loads(path.read_bytes()) | change))
    with pytest.raises(IntegrityError, match="damaged"):
        list(box.of("lane-1-2-0", 7))
