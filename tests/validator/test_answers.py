"""When a seat answers `unavailable` for what it could not judge, and when its silence is more honest."""

import dataclasses
from typing import cast

import pytest

from chain.indexer.records import Pool, Round, Submission
from protocol.identity import PoolId
from protocol.verdict import BallotDocument, Code
from tests.chain.game import terms
from tests.validator.daemon_world import FAMILY
from tests.validator.scripted import ScriptedJudge
from tests.validator.tiny import facts, honest, work_of
from validator.voting import fallback_document, fallback_due, fallback_honest, fallback_margin

UNTIL = 1000


def pool(family: int = FAMILY) -> Pool:
    return Pool(7, "0x", b"", terms(**{"group": family}), 0, 0)


def drawn(**changes: object) -> Round:
    panel = Round(0, seed_block=1, seats=(4, 5, 6), drawn_time=UNTIL - 100, commit_until=UNTIL, reveal_until=2000)
    return dataclasses.replace(panel, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("window", "block_seconds", "margin"),
    [
        (3600, 4, 360),  # a tenth, where that is more
        (60, 4, 24),  # six blocks
        (25, 1, 6),
        (30, 4, 15),  # never more than half
        (1, 1, 0),
    ],
)
def test_the_margin_follows_from_window_and_block_time(window: int, block_seconds: int, margin: int) -> None:
    assert fallback_margin(window, block_seconds) == margin


@pytest.mark.parametrize(
    ("of", "panel", "now", "due"),
    [
        (pool(), drawn(), UNTIL - 11, False),
        (pool(), drawn(), UNTIL - 10, True),
        (pool(), drawn(), UNTIL - 1, True),
        (pool(), drawn(), UNTIL, False),
        (pool(), drawn(seats=()), UNTIL - 1, False),  # nobody drew it: silence is free
        (pool(), drawn(settled=True), UNTIL - 1, False),
        (pool(0), drawn(), UNTIL - 1, False),  # chosen by its number
        (pool(7), drawn(), UNTIL - 1, False),  # which is how the chain writes it
    ],
)
def test_an_answer_is_due_in_a_familys_pool_shortly_before_the_commits_end(
    of: Pool, panel: Round, now: int, due: bool
) -> None:
    assert fallback_due(of, panel, now, 1) is due


def test_a_case_is_answered_in_every_pool_and_not_before_it_is_drawn() -> None:
    assert fallback_due(pool(7), drawn(), UNTIL - 10, 1, always=True)
    assert not fallback_due(pool(7), drawn(), UNTIL - 11, 1, always=True)
    assert not fallback_due(pool(7), drawn(seats=()), UNTIL - 1, 1, always=True)


@pytest.mark.parametrize(
    ("lacking", "needs_bytes", "blames", "honest"),
    [
        (("no source", ""), False, False, True),  # a committee, also of what it had and did not judge
        (("no source",), True, False, True),  # a jury of what it could not get
        (("",), True, False, False),  # of what was shown to it
        (("no source",), True, True, False),  # others would pay
        ((), True, True, True),  # all was judged after all
    ],
)
def test_a_jury_calls_unavailable_only_what_it_could_not_get_and_nobody_pays_for(
    lacking: tuple[str, ...], needs_bytes: bool, blames: bool, honest: bool
) -> None:
    assert fallback_honest(lacking, needs_bytes, blames) is honest


def test_the_document_keeps_verdicts_and_says_why_the_rest_is_unavailable() -> None:
    work, at = work_of(), PoolId(31337, "0x" + "22" * 20, 1)
    node, sha256 = work.id.node, b"\x05" * 32
    files = [
        cast(Submission, dataclasses.make_dataclass("File", ["sequence", "node", "step", "counter", "sha256"])(
            number, node, 0, number, sha256
        ))
        for number in range(2)
    ]  # fmt: skip
    judged = ScriptedJudge()(facts(work, honest(), sequence=0), b"bytes")
    document = fallback_document(
        "lane-1-0-0", b"s" * 32, at, b"c" * 32, files, b"a" * 32, {0: judged}, {1: "it was not judged in time"}
    )
    again = BallotDocument.parse(document.canonical(), document.digest)
    assert again.on(0) == judged
    assert again.on(1).code is Code.UNAVAILABLE
    assert again.on(1).sha256 == sha256.hex()
    assert [finding.note for finding in again.on(1).findings] == ["it was not judged in time"]
