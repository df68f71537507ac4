"""A disputed outer step of a run of sites on a real chain, judged and executed by validators' processes."""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from chain.contracts.site_runs import RunTerms
from chain.judging import CaseOutcome, StepDispute
from chain.suite import Suite
from protocol.sites.log import Boundary, LogEntry
from protocol.sites.recorded import StepRecord
from protocol.verdict import Code
from tests.conftest import GRAINS, Deployed
from tests.validator.daemon_world import ValidatorWorld, turns, validator_world
from validator.step_judging import StepJudge, StepVerdict, step_verdict

STAKE, DELAY, RUN = 200 * GRAINS, 36_000, 1
WINDOW = 600
WINDOWS = {"juryCommitWindow": WINDOW, "juryRevealWindow": WINDOW}
DISPUTED = StepDispute(1, RUN, 0, 1, "0x" + "11" * 20, bond=0, trials=[1], block=1, time=1)


@pytest.fixture
def world(deployed: Deployed, tmp_path: Path) -> Iterator[ValidatorWorld]:
    with validator_world(deployed, tmp_path, **WINDOWS) as made:
        yield made


def saying(follows: bool, **more: object) -> list[str]:
    """A command that says of every step what `muster site verify --json` would."""
    answer = {"run": RUN, "step": 0, "follows": follows, "faults": [] if follows else ["another state"], **more}
    return [sys.executable, "-c", f"import time; time.sleep(0.3); print({json.dumps(answer)!r})"]


def judging_by(command: Sequence[str]) -> StepJudge:
    return StepJudge({RUN: Path("run.json")}, lambda config, step: command)


def recorded(world: ValidatorWorld, place: int = 0) -> Suite:
    """Its keeper, of a run of one recorded step, which was made of nothing."""
    game = world.game
    keeper = game.deployed.rich()
    suite = game.deployed.suite(keeper)
    terms = RunTerms(b"\x01" * 32, b"\x02" * 32, game.pool, keeper.address, STAKE, STAKE, DELAY)
    assert suite.site_runs.open(terms).send() == RUN
    boundary = Boundary(step=1, digest="ab" * 32)
    entry = LogEntry(run="00" * 32, number=3, previous="cd" * 32, chapter=3, time=1.0, events=[boundary])
    suite.site_runs.record(RUN, StepRecord(0, "ab" * 32, ()), entry).send()
    return suite


def disputed(world: ValidatorWorld) -> tuple[Suite, int]:
    """(disputer, its balance before)."""
    suite = world.game.deployed.suite(world.game.deployed.rich())
    before = suite.token.balance_of(suite.client.address)
    suite.site_runs.dispute(RUN, 0).send()
    world.game.mine_to(world.game.state.trials[world.game.state.step_disputes[1].trial].seed_block + 1)
    return suite, before


def concluded(world: ValidatorWorld) -> StepDispute:
    turns(world.running[0][0], lambda: world.game.state.step_disputes[1].outcome is not CaseOutcome.OPEN)
    return world.game.state.step_disputes[1]


def test_a_step_that_does_not_follow_costs_the_keeper(world: ValidatorWorld) -> None:
    world.steps = judging_by(saying(False))
    world.start()
    keeper = recorded(world)
    suite, before = disputed(world)
    found = concluded(world)
    assert (found.outcome, found.code) == (CaseOutcome.UPHELD, int(Code.REJECT_COMMITMENT))
    trial = world.game.state.trials[found.trial]
    assert {code for code, _ in trial.reveals.values()} == {int(Code.REJECT_COMMITMENT)}
    assert keeper.site_runs.run_of(RUN).stake == 0
    assert suite.token.balance_of(suite.client.address) > before
    assert found.back == found.bond + (STAKE - trial.size * world.game.state.pools[world.game.pool].terms.juryFee) // 10
    turns(world.running[0][0], lambda: not world.game.state.trials[found.trial].duties)


def test_a_false_dispute_costs_its_bond(world: ValidatorWorld) -> None:
    world.steps = judging_by(saying(True))
    world.start()
    keeper = recorded(world)
    suite, before = disputed(world)
    found = concluded(world)
    assert found.outcome is CaseOutcome.REFUTED
    assert keeper.site_runs.run_of(RUN).stake == STAKE
    assert suite.token.balance_of(suite.client.address) == before - found.bond


def test_who_cannot_judge_answers_unavailable(world: ValidatorWorld) -> None:
    world.start()
    keeper = recorded(world)
    suite, before = disputed(world)
    game, trial = world.game, world.game.state.step_disputes[1].trial
    game.suite.juries.draw(trial).send()  # until then silence is free
    game.deployed.chain.later(game.state.trials[trial].commit_until - suite.client.now() - WINDOW // 11)
    found = concluded(world)
    assert (found.outcome, found.code) == (CaseOutcome.DISMISSED, int(Code.UNAVAILABLE))
    assert keeper.site_runs.run_of(RUN).stake == STAKE
    fees = world.game.state.trials[found.trial].size * world.game.state.pools[world.game.pool].terms.juryFee
    assert suite.token.balance_of(suite.client.address) == before - fees


def test_what_is_no_answer_about_the_step_is_no_vote() -> None:
    accept, reject = step_verdict(_said(True), DISPUTED), step_verdict(_said(False), DISPUTED)
    assert accept is not None
    assert reject is not None
    assert (accept.code, reject.code) == (Code.ACCEPT, Code.REJECT_COMMITMENT)
    for wrong in (
        b"",
        b"[]",
        b"{}",
        b"no JSON",
        _said(True, run=2),
        _said(True, step=1),
        _said(True, faults=["x"]),
        _said(False, faults=[]),
    ):
        assert step_verdict(wrong, DISPUTED) is None, wrong


def _said(follows: bool, **more: object) -> bytes:
    answer = {"run": RUN, "step": 0, "follows": follows, "faults": [] if follows else ["another state"], **more}
    return json.dumps(answer).encode()


def waited(judge: StepJudge) -> StepVerdict | None:
    for _ in range(200):
        if (found := judge.verdict(DISPUTED)) is not None or "no answer" in judge.problem(DISPUTED):
            return found
        time.sleep(0.05)
    return None


def test_a_command_that_fails_is_no_vote() -> None:
    judge = judging_by([sys.executable, "-c", "raise SystemExit(1)"])
    assert waited(judge) is None
    assert judge.problem(DISPUTED) == "no answer"
    assert waited(judging_by(saying(True))) == StepVerdict(Code.ACCEPT, "it follows from what was published")
    judge = judging_by([sys.executable, "-c", "import time; time.sleep(600)"])
    assert judge.verdict(DISPUTED) is None
    judge.close()


def test_a_step_that_takes_for_ever_keeps_no_other_from_being_judged() -> None:
    """Its jury's time is over meanwhile, so nobody asks about it any more."""
    slow, other = [sys.executable, "-c", "import time; time.sleep(600)"], replace(DISPUTED, dispute=2, step=1)
    judge = StepJudge({RUN: Path("run.json")}, lambda _, step: saying(True, step=step) if step else slow, seconds=2.0)
    assert judge.verdict(DISPUTED) is None
    end = time.monotonic() + 120
    while (found := judge.verdict(other)) is None:
        assert time.monotonic() < end, judge.problem(other)
        time.sleep(0.05)
    assert found.code is Code.ACCEPT
    assert "took more than 2 s" in judge.problem(DISPUTED)
    unasked, last = replace(DISPUTED, dispute=3, step=1), replace(DISPUTED, dispute=4, step=1)
    assert judge.verdict(unasked) is None
    while judge.verdict(last) is None:  # what came to its end, and nobody took
        assert time.monotonic() < end
        time.sleep(0.05)
