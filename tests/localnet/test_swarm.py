"""A swarm's run is judged by what it left: each thing that must not be is named."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localnet.swarm import BucketContents, Member, SwarmPhase, SwarmPlan, facts, table

NAMES = ("member-1", "member-2", "member-3")
PLAN = SwarmPlan(Path("nowhere"), 1, 1, NAMES, rounds=4)


def line(number: int, *shared: str, alone: bool = False) -> dict[str, Any]:
    return {"round": number, "own": 2, "shared": list(shared), "alone": alone, "held_out": []}


def good() -> tuple[list[Member], BucketContents]:
    """Three members of four rounds, of which one is alone; each trains on the next one's group of the round before."""
    members = []
    for place, name in enumerate(NAMES):
        other = f"0x{(place + 1) % 3}"
        lines = [line(0), line(1, f"{other}/0/0"), line(2, alone=True), line(3, f"{other}/1/0", f"{other}/2/0")]
        members.append(Member(name, f"0x{place}", Path(), lines, SwarmPhase.BEFORE, 2, 3, (2,), steps=4, restarts=1))
    envelopes = Counter((f"0x{place}", number) for place in range(3) for number in range(4))
    groups = frozenset(f"0x{place}/{number}/0" for place in range(3) for number in range(4))
    return members, BucketContents(envelopes, groups)


def wrong(members: Sequence[Member], contents: BucketContents) -> list[str]:
    return [fact.text for fact in facts(PLAN, members, contents) if not fact.good]


def with_first(**changes: Any) -> tuple[list[Member], BucketContents]:
    members, contents = good()
    return [replace(members[0], **changes), *members[1:]], contents


def test_a_good_run_has_nothing_wrong() -> None:
    members, contents = good()
    assert wrong(members, contents) == []
    assert len(table(members, contents)) == 4


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([line(0), line(1, "0x1/0/0"), line(2, alone=True), line(3, "0x1/0/0")], "member-1 0x1/0/0"),
        ([line(0), line(1, "0x1/0/0", "0x1/0/0"), line(2, alone=True), line(3)], "member-1 0x1/0/0"),
        ([line(0), line(1, "0x1/0/0"), line(1), line(2, alone=True)], "made 4 rounds or more"),
        ([line(0), line(1, "0x1/0/0"), line(2, alone=True)], "made 4 rounds or more"),
        ([line(0), line(1, "0x1/0/0"), line(2), line(3)], "alone"),
        ([line(0), line(1, "0x0/0/0", "0x1/0/0"), line(2, alone=True), line(3)], "own groups for others'"),
        ([line(0), line(1, "0x1/0/7", "0x1/0/0"), line(2, alone=True), line(3)], "0x1/0/7"),
        ([line(0), line(1), line(2, alone=True), line(3)], "every member trained on others' groups"),
    ],
)
def test_a_journal_that_tells_of_something_wrong_is_named(lines: list[dict[str, Any]], words: str) -> None:
    found = wrong(*with_first(lines=lines))
    assert any(words in text for text in found), found


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"steps": 5}, "as many steps"),
        ({"killed": None}, "killed once"),
        ({"restarts": 0}, "came back"),
        ({"made_at_end": 2}, "went on"),
        ({"unsent": (3,)}, "waited for the bucket"),
        ({"breaches": 1}, "found anybody out"),
    ],
)
def test_a_member_that_something_is_wrong_with_is_named(changes: dict[str, Any], words: str) -> None:
    (text,) = wrong(*with_first(**changes))
    assert words in text
    assert "member-1" in text


def test_two_envelopes_of_a_round_and_one_that_never_came() -> None:
    members, contents = good()
    (text,) = wrong(members, contents._replace(envelopes=contents.envelopes + Counter({("0x0", 1): 1})))
    assert "round 1 of 0x0" in text
    (text,) = wrong(members, contents._replace(envelopes=contents.envelopes - Counter({("0x2", 2): 1})))
    assert "member-3 round 2" in text


def test_a_member_whom_nobody_hears_is_named() -> None:
    deaf = wrong(*with_first(lines=[line(0), line(1, "0x2/0/0"), line(2, alone=True), line(3)]))
    assert any("taken by others" in text and "member-2" in text for text in deaf)


def test_without_a_waiting_envelope_the_outage_shows_nothing() -> None:
    members, contents = good()
    none = [replace(one, waiting=()) for one in members]
    assert wrong(none, contents) == ["the 0 envelopes that waited for the bucket were sent"]


def test_everybody_is_killed_once_in_every_phase_by_turns() -> None:
    plan = replace(PLAN, members=tuple(f"member-{number}" for number in range(8)), outage=60, pace=10)
    assert tuple(plan.kills) == plan.members
    times = Counter(phase for phase, _ in plan.kills.values())
    assert times == {SwarmPhase.BEFORE: 3, SwarmPhase.DURING: 3, SwarmPhase.AFTER: 2}
    assert plan.kills == replace(plan).kills != replace(plan, seed=8).kills
    assert all(seconds <= 30 for _, seconds in plan.kills.values())


def test_a_round_alone_counts_from_where_it_is_asked() -> None:
    member = Member("one", "0x", Path(), [line(number, alone=number in (1, 3)) for number in range(5)])
    assert [member.alone(since) for since in (0, 3, 4)] == [2, 1, 0]
