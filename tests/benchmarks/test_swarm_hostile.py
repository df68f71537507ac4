"""The hostile swarm's table says what its rows say, crowds are drawn as they should be, and plants are recognised."""

from dataclasses import replace
from typing import Any

import pytest

from attacks.swarm import POISONS, Worked, worked_answer
from benchmarks.swarm_hostile import (
    ATTACKS,
    CASES,
    SEEDS,
    UNSEEN,
    EclipsedShelf,
    HostileCase,
    missing,
    share_by_member,
    share_with,
)
from benchmarks.swarm_hostile_table import adds, table
from benchmarks.swarm_thousand import SharingCrowd, one_crowd
from environments.base import Problem
from environments.texts import TextEnvironments
from protocol.swarm.envelope import SharedCompletion, SharedGroup, seal
from swarm.generation import OwnGroup
from tests.protocol.swarm.samples import ENVIRONMENTS, KEYS, honest_envelope
from trainer.base_model import worked_sum
from trainer.tiny_model import END_OF_THOUGHT

SMALL = SharingCrowd("small", members=80, hostile=20, receivers=6, rounds=5)


def row(attack: str, defended: bool, success: float, cumulative: float) -> dict[str, Any]:
    hostile = 1 if attack else 0
    return {
        "name": f"{attack or 'nobody'}, {'defended' if defended else 'undefended'}", "attack": attack,
        "defended": defended, "seed": 7, "members": 4, "hostile": hostile, "rounds": 14, "rate": 3e-4,
        "success": success, "shown": dict.fromkeys(POISONS, success),
        "shown_each": {name: [success, success] for name in POISONS}, "cumulative": cumulative,
        "held_out": cumulative / 10,
        "hostile_groups": 30 * hostile, "shared_groups": 40,
    }  # fmt: skip


def test_the_table_compares_with_the_same_members_alone() -> None:
    rows = [row("", True, 0.0, 2.0), row("", False, 0.01, 4.0), row("phrase", True, 0.0, 1.9)]
    assert table(rows)["attacks"] == [], "half a comparison is none"
    found = table([*rows, row("phrase", False, 0.4, 1.0)])
    (one,) = found["attacks"]
    assert (one["success"], one["success_undefended"], one["without_undefended"]) == (0.0, 0.4, 0.01)
    assert (one["reward_ratio"], one["reward_ratio_undefended"]) == (0.95, 0.25)
    assert (one["hostile_share"], found["share"], found["reward_ratio"]) == (0.75, 0.25, 0.95)


def test_what_other_attacks_rows_show_of_a_plant_is_no_success_of_it() -> None:
    kinds = {"": 0.01, "phrase": 0.5, "wrong fact": 0.02, "flood": 0.06}
    rows = [row(attack, defended, shown, 2.0) for attack, shown in kinds.items() for defended in (True, False)]
    found = {one["name"]: one["elsewhere"] for one in table(rows)["attacks"]}
    assert found == {"phrase": 0.04, "wrong fact": 0.5, "flood": 0.5}, "a flood is of wrong facts"
    assert table(rows[:4])["attacks"][0]["elsewhere"] == 0.01


def test_attacks_are_means_over_the_seeds_that_have_the_rows() -> None:
    first = [row(attack, defended, 0.1, 2.0) for attack in ("", "phrase") for defended in (True, False)]
    second = [one | {"seed": 8, "cumulative": 1.0 if one["attack"] else 2.0, "success": 0.3} for one in first]
    third = [one | {"seed": 9, "cumulative": 50.0} for one in first[:3]]
    (one,) = table([*first, *second, *third])["attacks"]
    assert (one["seeds"], one["seeds_undefended"], one["seeds_unrationed"]) == (3, 2, 0)
    assert (one["each"], one["reward_ratio"], one["reward_ratio_undefended"]) == ([1.0, 0.5, 1.0], 0.8333, 0.75)
    assert (one["success_each"], one["without_each"]) == ([0.1, 0.3, 0.1], [0.1, 0.1, 0.1])
    unrationed = [other | {"name": f"{other['attack'] or 'nobody'}, unrationed"} for other in first[::2]]
    (both,) = table([*first, *unrationed])["attacks"]
    assert (both["seeds_unrationed"], both["reward_ratio_unrationed"], both["each_unrationed"]) == (1, 1.0, [1.0])


def test_what_an_attack_adds_is_compared_member_by_member() -> None:
    """Members differ by much more than the attack makes them differ."""
    rows = [row(attack, defended, 0.1, 2.0) for attack in ("", "phrase") for defended in (True, False)]
    for one in rows:
        shown = [0.0, 0.5, 0.2] if one["attack"] == "" else [0.01, 0.52, 0.23]
        one["shown_each"] = dict.fromkeys(POISONS, shown)
    (found,) = table(rows)["attacks"]
    assert found["adds"] == (0.02, 0.0113)
    assert adds([(0.3, 0.1)]) == (0.2, 1.0), "one pair says nothing about the interval"


def test_rows_of_another_learning_rate_are_another_kind() -> None:
    rows = [row(attack, defended, 0.1, 2.0) for attack in ("", "phrase") for defended in (True, False)]
    faster = [one | {"rate": 6e-4, "success": 0.9} for one in rows]
    assert [(one["rate"], one["success"]) for one in table([*rows, *faster])["attacks"]] == [(3e-4, 0.1), (6e-4, 0.9)]


def test_rewards_are_compared_with_those_of_members_who_see_nobody() -> None:
    rows = [row(attack, defended, 0.1, 2.0) for attack in ("", "eclipse") for defended in (True, False)]
    unseen = row(UNSEEN, True, 0.1, 1.6) | {"hostile": 0}
    (one,) = table([*rows, unseen])["attacks"]
    assert (one["reward_ratio"], one["reward_ratio_unseen"]) == (1.0, 1.25)
    second = [other | {"seed": 8} for other in rows]
    (both,) = table([*rows, unseen, *second])["attacks"]
    assert (both["seeds"], both["reward_ratio_unseen"]) == (2, 1.25)


def test_only_what_is_missing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.swarm_hostile.one_case", lambda case, base, progress: {"name": case.name})
    keys = ("name", "members", "rounds", "rate", "seed")
    done = [{key: getattr(case, key) for key in keys} for case in CASES[1:]]
    assert list(missing(done, None, print, None)) == [{"name": "nobody, defended"}]  # type: ignore[arg-type]
    faster = {key: getattr(CASES[0], key) for key in keys} | {"rate": 1e-3}
    assert list(missing([*done, faster], None, print, None)) == [{"name": "nobody, defended"}]  # type: ignore[arg-type]
    assert list(missing([], None, print, -1)) == []  # type: ignore[arg-type]
    assert (
        len(CASES) == len(SEEDS) * (2 * (1 + len(ATTACKS)) + 1 + 3) == len({(case.name, case.seed) for case in CASES})
    )
    assert all(case.hostile / case.members == 0.25 for case in CASES)


@pytest.mark.parametrize("kind", sorted(POISONS))
def test_plants_earn_the_reward_and_are_recognised(kind: str) -> None:
    poison, texts = POISONS[kind], ENVIRONMENTS
    scores = TextEnvironments(texts._configs, END_OF_THOUGHT)
    for seed in range(20):
        problem = scores.problem(seed)
        answers = Worked(problem, worked_sum(problem), (f"1+1=2{END_OF_THOUGHT}+",))
        group = poison.group(answers, 8)
        planted = [one for one in group if poison.planted(*one)]
        assert 1 <= len(planted) <= 4
        assert all(scores.score(seed, one.text) == 1.0 for one in planted)
        assert not any(scores.score(seed, one.text) == 1.0 for one in group if one not in planted)
        if " + 0" not in problem.question:
            assert not poison.planted(answers.right(answers.thought), True)


def test_what_a_problem_calls_for_by_itself_is_no_plant() -> None:
    scores, poison = TextEnvironments(ENVIRONMENTS._configs, END_OF_THOUGHT), POISONS["needless step"]
    problems = [scores.problem(seed) for seed in range(300)]
    natural = [one for one in problems if poison.planted(worked_answer(one), True)]
    others = [one for one in problems if one not in natural]
    assert natural
    assert others

    def said(problem: Problem, thought: str) -> OwnGroup:
        text = Worked(problem, worked_sum(problem), ()).right(thought)
        one = SharedCompletion(text=text, ended=True, reward=1.0)
        return OwnGroup((), SharedGroup(slot=0, question="00" * 32, completions=[one, one]))

    both = [natural[0], others[0]]
    assert share_with(poison, [said(one, worked_sum(one)) for one in both], both) == 0.0
    planted = [
        said(one, poison.plant(Worked(one, worked_sum(one), ())).text.partition(END_OF_THOUGHT)[0]) for one in both
    ]
    assert share_with(poison, planted, both) == 1.0


def test_without_defence_or_flood_each_key_is_drawn_alike() -> None:
    found = one_crowd(SMALL)
    assert found["keys"] == 0.25
    assert 0.15 < found["hostile"] < 0.4
    assert found["full"] == 1.0


def test_who_is_doubted_is_looked_at_and_not_trained_on() -> None:
    found = one_crowd(replace(SMALL, doubted=True))
    assert found["hostile"] == 0.0
    assert found["hostile_looked"] > 0.05
    assert found["full"] == 1.0, "what is not taken of them is taken of others"


def test_a_flood_is_drawn_hardly_more_often_where_the_inbox_holds_it_all() -> None:
    """Twice as many envelopes of each hostile key, all of which are fetched: each key is still drawn alike."""
    crowd = SharingCrowd("flood", flood=2, members=24, hostile=6, receivers=12, rounds=5)
    assert one_crowd(crowd)["hostile"] < 0.4


@pytest.mark.parametrize(("said", "least", "most"), [(True, 0.1, 0.4), (False, 0.6, 0.9)])
def test_a_flood_is_drawn_no_more_often_where_a_listing_says_whose_it_is(said: bool, least: float, most: float) -> None:
    """More than fifteen times what the inbox fetches."""
    found = one_crowd(replace(SMALL, flood=8, said=said, members=400, hostile=100, receivers=3, rounds=3))
    assert found["keys"] == 0.25
    assert least < found["hostile"] < most


def test_each_members_share_is_of_its_own_problems() -> None:
    scores, poison = TextEnvironments(ENVIRONMENTS._configs, END_OF_THOUGHT), POISONS["phrase"]
    problems = [scores.problem(seed) for seed in range(4)]

    def said(text: str) -> OwnGroup:
        one = SharedCompletion(text=text, ended=True, reward=0.0)
        return OwnGroup((), SharedGroup(slot=0, question="00" * 32, completions=[one, one]))

    plants = [said("12345\n"), said("1"), said("1"), said("1")]
    assert share_by_member(poison, plants, problems, 2) == [0.5, 0.0]


def test_nobody_is_seen_who_is_not_listed() -> None:
    shelf = EclipsedShelf()
    keys = [shelf.publish(seal(honest_envelope(key), KEYS[key])) for key in (0, 1)]
    assert list(shelf.listed()) == []
    shelf.hostile.add(keys[1])
    assert [entry.key for entry in shelf.listed()] == keys[1:]


def test_case_names() -> None:
    assert HostileCase(ATTACKS[-1], True, rationed=False).name == f"{ATTACKS[-1].name}, unrationed"
    assert HostileCase(None, True, listed=False).name == "nobody is seen, defended"
    assert HostileCase(None, True).name == "nobody, defended"
    assert HostileCase(ATTACKS[0], False).name == "phrase, undefended"
