"""Files of the step before, for nodes that still download the newest one: no pause for the honest, no way to lag."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chain.indexer.records import Status
from orchestrator.scheduler import Grant, Keep, Lease, QueuedFile, QueueState, Requester, Rule, Wait, decide
from protocol.api.work import LeaseRequest
from tests.orchestrator.chain import CHEAT, NODE
from tests.orchestrator.conftest import Desk, is_error

RULE = Rule(files_per_step=2, max_off_policy_steps=2, steps=50, lease_seconds=30.0)
SUPPLY = QueueState(
    published=5, usable=5, trained=5, consumed=(), files=(), leases=(), asked={}, granted={}, reached={"0xa": 4}
)
LATE = Requester("0xa", 7, 0, ready=4)
"""Has step 4 while step 5 is the newest."""


def lease(node: str, counter: int, step: int) -> Lease:
    return Lease(f"{node}/{counter}", node, step, counter, 0.0, 30.0, 600.0)


def granted(queue: QueueState, node: Requester, rule: Rule = RULE) -> int:
    decision = decide(rule, queue, node, None, 1.0)
    assert isinstance(decision, Grant | Keep)
    return decision.step if isinstance(decision, Grant) else decision.lease.step


def test_the_step_before_is_granted_until_the_newest_is_here() -> None:
    assert granted(SUPPLY, LATE) == 4
    assert granted(SUPPLY, replace(LATE, ready=5)) == 5


def test_who_says_nothing_gets_the_newest() -> None:
    assert granted(SUPPLY, replace(LATE, ready=None)) == 5


@pytest.mark.parametrize("ready", [0, 3, 6, (1 << 20) - 1])
def test_any_other_word_gains_nothing(ready: int) -> None:
    assert granted(SUPPLY, replace(LATE, ready=ready)) == 5


@pytest.mark.parametrize("reached", [{}, {"0xa": 3}, {"0xa": 5}, {"0xb": 4}])
def test_only_who_worked_with_the_step_before_while_it_was_the_newest(reached: dict[str, int]) -> None:
    assert granted(replace(SUPPLY, reached=reached), LATE) == 5


def test_never_a_step_that_the_node_or_the_trainer_does_not_take() -> None:
    assert granted(SUPPLY, replace(LATE, joined_step=5)) == 5
    assert granted(SUPPLY, LATE, replace(RULE, max_off_policy_steps=0)) == 5
    # Step 6 is published, its seed not confirmed: step 4 is two behind then.
    assert granted(replace(SUPPLY, published=6), LATE, replace(RULE, max_off_policy_steps=1)) == 5
    assert granted(replace(SUPPLY, published=6), LATE) == 4


def test_there_are_fewer_places_for_it_and_then_the_newest_is_granted() -> None:
    others = [lease("0xb", number, 5) for number in range(3)]
    assert granted(replace(SUPPLY, leases=others), LATE) == 4
    others.append(lease("0xb", 3, 5))
    assert granted(replace(SUPPLY, leases=others), LATE) == 5
    full = [*others, lease("0xc", 0, 5), lease("0xc", 1, 5)]
    assert isinstance(decide(RULE, replace(SUPPLY, leases=full), LATE, None, 1.0), Wait)


def test_a_lease_of_the_step_before_is_kept_and_one_of_the_newest_not_given_back() -> None:
    held = lease("0xa", 7, 4)
    queue, late = replace(SUPPLY, leases=[held]), replace(LATE, leases=[held])
    assert decide(RULE, queue, late, 7, 1.0) == Keep(held, 31.0)
    decision = decide(RULE, queue, replace(late, ready=5), 7, 1.0)
    assert isinstance(decision, Grant)
    assert (decision.step, decision.replaces) == (5, held.id)
    newest = lease("0xa", 7, 5)
    reached = replace(SUPPLY, leases=[newest], reached={"0xa": 5})
    assert decide(RULE, reached, replace(LATE, leases=[newest]), 7, 1.0) == Keep(newest, 31.0)


def test_stale_leases_are_replaced_by_the_step_that_is_here() -> None:
    held = [lease("0xa", 7, 3)]
    decision = decide(RULE, replace(SUPPLY, leases=held), replace(LATE, leases=held), 7, 1.0)
    assert isinstance(decision, Grant)
    assert (decision.step, decision.replaces) == (4, "0xa/7")


@dataclass
class LonelyPool:
    """One node whose files are trained on at once; `said`: what it claims to have, by the newest step."""

    usable: int = 0
    reached: int = -1
    counter: int = 0
    made: list[tuple[int, int]] = field(default_factory=list)
    files: list[QueuedFile] = field(default_factory=list)

    def ask(self, ready: int) -> None:
        queue = replace(
            SUPPLY,
            published=self.usable,
            usable=self.usable,
            trained=self.usable,
            files=self.files,
            reached={"0xa": self.reached} if self.reached >= 0 else {},
        )
        step = granted(queue, Requester("0xa", self.counter, 0, ready=ready))
        self.files = [QueuedFile(0, "0xa", step, Status.PENDING)]
        self.made.append((self.usable, step))
        self.reached, self.counter = max(self.reached, step), self.counter + 1


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 60)), max_size=80))
def test_whatever_it_says_nobody_is_behind_for_two_steps_running(script: list[tuple[bool, int]]) -> None:
    """Nor ever by more than one step. `script`: whether a step is published first, and by how much the claim lags."""
    pool = LonelyPool()
    for publish, lag in script:
        pool.usable += publish and pool.usable < 40
        pool.ask(max(0, pool.usable - lag))
    assert all(newest - step <= 1 for newest, step in pool.made)
    behind = {newest for newest, step in pool.made if step < newest}
    assert all(step + 1 not in behind for step in behind)


def test_a_liar_works_with_the_newest_step_every_other_step() -> None:
    pool = LonelyPool()
    pool.ask(0)
    for _ in range(20):
        pool.usable += 1
        pool.ask(pool.usable - 1)
    assert [newest - step for newest, step in pool.made] == [0, *[1, 0] * 10]


@pytest.mark.parametrize("ready", [-1, 1 << 20, 1 << 70, 1.5, "4", True, [4]])
def test_nonsense_is_refused_by_its_field(desk: Desk, ready: object) -> None:
    assert is_error(desk.post(NODE, "/v1/leases", {"counter": 0, "ready": ready}), 422, "field `ready`")


def test_over_http_and_after_a_restart(desk: Desk) -> None:
    assert desk.post(NODE, "/v1/leases", {"counter": 0, "ready": None}).json()["step"] == 0
    desk.follow(lambda: desk.chain.submit(NODE, 0))
    desk.follow(lambda: desk.chain.publish(1))
    desk.restart()
    lease = desk.post(NODE, "/v1/leases", {"counter": 1, "ready": 0}).json()
    assert lease["step"] == 0
    assert desk.post(NODE, "/v1/leases", {"counter": 1, "ready": 0}).json()["lease"] == lease["lease"]
    assert desk.post(NODE, "/v1/leases", {"counter": 1, "ready": 1}).json()["step"] == 1
    assert desk.post(CHEAT, "/v1/leases", {"counter": 0, "ready": 0}).json()["step"] == 1, "it never made one of step 0"


def test_nodes_of_before_send_what_they_always_did() -> None:
    assert LeaseRequest.model_validate({"counter": 3}).ready is None
