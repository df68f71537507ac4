"""Codes equal those of the contracts; documents survive a round trip; the worst finding decides."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.encoding import keccak
from protocol.errors import IntegrityError, MusterError, printable
from protocol.verdict import BallotDocument, Code, Finding, Verdict, combine, pack, tally, unpack

CODES = Path(__file__).parents[2] / "contracts/src/libraries/Codes.sol"


def verdict(**changes: Any) -> Verdict:
    base = Verdict(
        31337, "0x" + "11" * 20, 1, 5, "0x" + "22" * 20, 3, 4, "ab" * 32, "cd" * 32, "ef" * 32, Code.ACCEPT,
        {"name": "transformers"}, [0, 2], (Finding("toploc", Code.ACCEPT, {"mean": 0.1, "rows": [1, 2]}),),
    )  # fmt: skip
    return dataclasses.replace(base, **changes)


def test_codes_and_kinds_mirror_the_contract() -> None:
    constants = dict(re.findall(r"uint256 internal constant (?!KIND_)([A-Z_]+) = (\d+);", CODES.read_text()))
    assert {name: int(value) for name, value in constants.items()} == {code.name: int(code) for code in Code}
    assert [c for c in Code if c.is_accept] == [Code.ACCEPT, Code.UNSURE]
    assert [int(c) for c in Code if c.is_reject] == list(range(3, 10))


def test_document_round_trip() -> None:
    one = verdict()
    assert Verdict.parse(one.canonical()) == one
    ballot, other = (BallotDocument("lane", "00", (each,)) for each in (one, verdict(code=Code.UNSURE)))
    assert BallotDocument.parse(ballot.canonical(), ballot.digest).on(5) == one
    assert len(ballot.digest) == 32
    with pytest.raises(IntegrityError, match="not the one"):
        BallotDocument.parse(ballot.canonical() + b" ", ballot.digest).on(5)
    assert other.digest != ballot.digest


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"[]", b"null", b'{"verdicts": 5}', b'{"verdicts": [5]}', b'{"verdicts": [{"sequence": 5}]}',
        b'{"verdicts": [{"sequence": 5, "x": NaN}]}', b"[" * 100_000, b"\xff\xfe",
        BallotDocument("lane", "00", (verdict(), verdict())).canonical(),
        BallotDocument("lane", "00", (verdict(),)).canonical().replace(b'"code":1', b'"code":99'),
    ],
)  # fmt: skip
def test_a_malformed_ballot_is_a_clear_error(data: bytes) -> None:
    with pytest.raises(MusterError):
        BallotDocument.parse(data, keccak(data)).on(5)


@given(st.binary(max_size=300))
def test_no_bytes_crash_the_reader_of_ballots(data: bytes) -> None:
    with pytest.raises(MusterError):
        BallotDocument.parse(data, keccak(data)).on(5)


@given(st.text())
def test_shown_text_is_one_harmless_line(text: str) -> None:
    shown = printable(text + "\x1b[2J\r\n" + text)
    assert shown.isprintable()
    assert len(shown) <= 161


def test_nan_figures_are_written_as_text() -> None:
    one = verdict(findings=(Finding("x", Code.UNSURE, {"a": float("nan"), "b": float("inf")}),))
    assert b'"nan"' in one.canonical()


def test_a_verdict_of_another_version_or_form_is_refused() -> None:
    with pytest.raises(IntegrityError, match="not a verdict"):
        Verdict.parse(b'{"version":2,"findings":[]}')
    with pytest.raises(IntegrityError, match="canonical"):
        Verdict.parse(verdict().canonical().replace(b'{"audited"', b'{ "audited"'))


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([], Code.ACCEPT),
        ([Code.ACCEPT, Code.UNSURE, Code.ACCEPT], Code.UNSURE),
        ([Code.UNSURE, Code.MALFORMED], Code.MALFORMED),
        ([Code.MALFORMED, Code.REJECT_SAMPLING, Code.REJECT_WEIGHTS], Code.REJECT_SAMPLING),
        ([Code.UNAVAILABLE, Code.UNSURE], Code.UNAVAILABLE),
    ],
)
def test_worst_finding_decides(codes: list[Code], expected: Code) -> None:
    assert combine([Finding("c", code, {}) for code in codes]) is expected


@given(st.lists(st.sampled_from(sorted(Code)), max_size=16))
def test_packing(codes: list[Code]) -> None:
    assert unpack(pack(codes))[: len(codes)] == codes
    assert pack(codes) < 2**64
    with pytest.raises(ValueError, match="at most 16"):
        pack([Code.ACCEPT] * 17)


def test_votes_are_counted_as_the_contract_counts_them() -> None:
    accept, unsure, weights, sampling = Code.ACCEPT, Code.UNSURE, Code.REJECT_WEIGHTS, Code.REJECT_SAMPLING
    malformed, unavailable = Code.MALFORMED, Code.UNAVAILABLE
    assert tally([accept, unsure, weights], 3) is Code.ACCEPT
    assert tally([weights, sampling, accept], 3) is weights
    assert tally([sampling, sampling, weights], 3) is sampling
    assert tally([malformed, weights, accept], 3) is malformed
    assert tally([unavailable, unavailable, accept], 3) is unavailable
    assert tally([unavailable, weights, accept], 3) is Code.UNDECIDED
    # A majority is one of all seats, also of those that were silent.
    assert tally([accept, accept], 5) is Code.UNDECIDED
