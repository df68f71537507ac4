"""What `muster verify` says of votes that differ from its own verdict."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from eth_utils.crypto import keccak

from cli.audit import recompute
from cli.options import EngineOptions
from protocol.errors import ConfigError
from protocol.verdict import BallotDocument, Code, Finding
from tests.validator.test_replay import verdict
from validator.replay import Opened, Replayed

OURS = verdict(Finding("toploc", Code.ACCEPT, {"mantissa_mean": 0.001}))
SAME = replace(OURS, engine={"name": "vllm"}, findings=(Finding("toploc", Code.ACCEPT, {"mantissa_mean": 0.004}),))
OTHER = verdict(Finding("toploc", Code.REJECT_WEIGHTS, {"mantissa_mean": 1.5}, "too far"))


def opened(seat: int, code: Code, *documents: Any) -> Opened:
    data = BallotDocument("lane-1-0-0", bytes(32).hex(), documents).canonical() if documents else None
    return Opened(seat, code, keccak(data) if data else bytes(32), data)


def told(*votes: Opened, voted: Code = Code.ACCEPT) -> tuple[dict[str, Any], str]:
    submission: Any = SimpleNamespace(
        sequence=7, node="0x" + "22" * 20, step=3, status=SimpleNamespace(value="accepted")
    )
    row = recompute._row(Replayed(submission, voted, votes, OURS))
    document = recompute.files_document({"name": "transformers", "batch": 64}, [row])
    return document | {"row": row}, recompute.files_text(document)


def test_votes_like_ours_only_count() -> None:
    found, text = told(opened(1, Code.ACCEPT, SAME), opened(2, Code.UNSURE, replace(SAME, code=Code.UNSURE)))
    assert [vote["agrees"] for vote in found["row"]["votes"]] == [True, True]
    assert found["largest_differences"] == {"toploc.mantissa_mean": 0.003}
    assert text.splitlines()[-2:] == [
        "1 verdicts replayed with transformers, batch 64: 0 differ",
        "2 opened votes compared: 0 differ",
    ]
    assert "seat" not in text


def test_a_differing_vote_is_told_with_check_and_figure_and_so_is_a_document_that_is_missing_or_another() -> None:
    found, text = told(opened(3, Code.REJECT_WEIGHTS, OTHER), voted=Code.REJECT_WEIGHTS)
    assert (found["differing"], found["votes_differing"]) == (1, 1)
    assert "7: seat 3 voted reject: weights: toploc.code reject: weights against our accept; " in text
    assert "toploc.mantissa_mean 1.5 against our 0.001" in text
    _, text = told(opened(3, Code.REJECT_WEIGHTS, SAME))
    assert "it voted reject: weights, but its verdict document says accept" in text
    forged = replace(opened(4, Code.ACCEPT, SAME), digest=bytes(32))
    votes = told(opened(3, Code.ACCEPT), forged)[0]["row"]["votes"]
    assert "not published" in votes[0]["note"]
    assert "not the one that was voted with" in votes[1]["note"]


def test_unknown_engines_and_types_are_refused_by_option() -> None:
    for name, dtype, option in (("llama", "float32", "--engine"), ("vllm", "float8", "--dtype")):
        with pytest.raises(ConfigError, match=option):
            EngineOptions(name, 64, dtype).config()
