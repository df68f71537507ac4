"""Ballots survive a kill, whole and private."""

import dataclasses
import json
from pathlib import Path

import pytest

from validator.ballots import Ballot, BallotStore

VOTER = "0x" + "11" * 20


def ballot(**changes: object) -> Ballot:
    base = Ballot("lane-1-2-0", 7, VOTER, b"s" * 32, b"f" * 32, 0x21, b"v" * 32, b"x" * 32, b"c" * 32)
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


def test_a_ballot_is_found_again_after_a_restart(tmp_path: Path) -> None:
    first = ballot()
    BallotStore(tmp_path).keep(first)
    again = BallotStore(tmp_path)
    assert again.ready("lane-1-2-0", 7, b"s" * 32, b"f" * 32, VOTER) == first
    assert again.committed("lane-1-2-0", 7, b"c" * 32) == first
    assert again.ready("lane-1-2-0", 7, b"t" * 32, b"f" * 32, VOTER) is None
    assert again.ready("lane-1-2-0", 7, b"s" * 32, b"g" * 32, VOTER) is None
    assert again.ready("lane-1-2-0", 70, b"s" * 32, b"f" * 32, VOTER) is None
    assert again.committed("lane-1-2-1", 7, b"c" * 32) is None


def test_both_ballots_of_a_reorganised_round_are_kept(tmp_path: Path) -> None:
    store = BallotStore(tmp_path)
    for seed, commitment in ((b"s", b"c"), (b"t", b"d")):
        store.keep(ballot(seed=seed * 32, commitment=commitment * 32))
    found = [store.committed("lane-1-2-0", 7, commitment * 32) for commitment in (b"c", b"d")]
    assert [one and one.seed for one in found] == [b"s" * 32, b"t" * 32]
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}, "nobody else may read them"
    store.forget("lane-1-2-0")
    assert (store.names, [*tmp_path.iterdir()]) == (set(), [])


@pytest.mark.parametrize(
    "change",
    [
        {"salt": "73" * 31}, {"salt": "zz" * 32}, {"seat": "seven"}, {"codes": None}, {"more": 1}, {"files": 3},
        {"seat": 8}, {"commitment": "dd" * 32}, None,
    ],
)  # fmt: skip
def test_a_damaged_ballot_is_set_aside_and_costs_no_other(
    tmp_path: Path, change: dict[str, object] | None, caplog: pytest.LogCaptureFixture
) -> None:
    store = BallotStore(tmp_path)
    store.keep(ballot())
    store.keep(ballot(where="lane-1-3-0", commitment=b"d" * 32))
    path = tmp_path / ballot().file_name
    path.write_bytes(b"\0" if change is None else json.dumps(json.loads(path.read_bytes()) | change).encode())
    again = BallotStore(tmp_path)
    assert again.committed("lane-1-3-0", 7, b"d" * 32) is not None
    assert again.committed("lane-1-2-0", 7, b"c" * 32) is None
    assert again.ready("lane-1-2-0", 7, b"s" * 32, b"f" * 32, VOTER) is None, "it is judged anew"
    assert "is damaged" in caplog.text
    assert "damaged/lane-1-2-0-seat7" in again.why_lost("lane-1-2-0", 7, b"c" * 32)
    again.keep(ballot())
    assert BallotStore(tmp_path).committed("lane-1-2-0", 7, b"c" * 32) == ballot()


def test_a_lookup_does_not_read_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy validator has a hundred thousand ballots: scanning them each turn would make it miss reveals."""
    store = BallotStore(tmp_path)
    store.keep(ballot())

    def scanned(*_: object) -> None:
        raise AssertionError("the folder was read")

    for name in ("glob", "iterdir", "read_bytes"):
        monkeypatch.setattr(Path, name, scanned)
    assert store.ready("lane-1-2-0", 7, b"s" * 32, b"f" * 32, VOTER) == ballot()
    assert store.committed("lane-1-2-0", 7, b"c" * 32) == ballot()
    assert store.names == {"lane-1-2-0"}
    store.forget("lane-1-2-0")
    assert store.names == set()
