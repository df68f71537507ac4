"""Verdict documents of strangers: bound to their vote, whole, and harmless on a terminal."""

import json
from dataclasses import asdict

import pytest
from eth_utils.crypto import keccak
from hypothesis import given
from hypothesis import strategies as st

from protocol.encoding import canonical_json
from protocol.errors import MusterError, printable
from protocol.verdict import BallotDocument, Code, Finding, Verdict

FINDING = Finding("toploc", Code.REJECT_WEIGHTS, {"exponent_mismatches": 12.0}, "row 3: the weights differ")
VERDICT = Verdict(
    31337, "0x" + "11" * 20, 1, 5, "0x" + "22" * 20, 0, 5, "aa" * 32, "bb" * 32, "cc" * 32,
    Code.REJECT_WEIGHTS, {"dtype": "float32"}, [3], (FINDING,),
)  # fmt: skip
BALLOT = canonical_json({"version": 1, "where": "lane", "seed": "00", "verdicts": [asdict(VERDICT)]})


def test_a_ballots_verdict_is_found() -> None:
    assert BallotDocument.parse(BALLOT, keccak(BALLOT)).on(5) == VERDICT


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"[]", b"null", b'{"verdicts": 5}', b'{"verdicts": [5]}', b'{"verdicts": [{"sequence": 5}]}',
        b'{"verdicts": [{"sequence": 5, "x": NaN}]}', b"[" * 100_000, b"\xff\xfe",
        json.dumps({"verdicts": [asdict(VERDICT), asdict(VERDICT)]}).encode(),
        json.dumps({"verdicts": [asdict(VERDICT) | {"code": 99}]}).encode(),
    ],
)  # fmt: skip
def test_a_malformed_ballot_is_a_clear_error(data: bytes) -> None:
    with pytest.raises(MusterError):
        BallotDocument.parse(data, keccak(data)).on(5)


def test_other_bytes_than_the_votes_are_refused() -> None:
    with pytest.raises(MusterError, match="not the one"):
        BallotDocument.parse(BALLOT + b" ", keccak(BALLOT)).on(5)


@given(st.binary(max_size=300))
def test_no_bytes_crash_the_reader(data: bytes) -> None:
    with pytest.raises(MusterError):
        BallotDocument.parse(data, keccak(data)).on(5)


@given(st.text())
def test_shown_text_is_one_harmless_line(text: str) -> None:
    shown = printable(text + "\x1b[2J\r\n" + text)
    assert shown.isprintable()
    assert len(shown) <= 161
