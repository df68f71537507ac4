"""What `muster node up` and `validator up` do next, whatever is there: never a bond before the process can judge."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chain.indexer.state import Standing
from cli.run.steps import NodeFacts, UpDo, UpStep, ValidatorFacts, next_node_step, next_validator_step

NOTHING = NodeFacts(1, least=200, wanted=0, operator_needs=10)
READY = replace(
    NOTHING, operator="0xA", node="0xB", agreed=True, operator_wei=10, registered_to="0xA", stake=200,
    standing=Standing.MEMBER,
)  # fmt: skip


def taken(facts: NodeFacts, step: UpStep) -> NodeFacts:
    """What is there once a step was taken."""
    match step.do:
        case UpDo.MAKE_KEYS:
            return replace(facts, operator="0xA", node="0xB")
        case UpDo.ASK:
            return replace(facts, agreed=True)
        case UpDo.ETHER:
            return replace(facts, operator_wei=facts.operator_wei + step.amount)
        case UpDo.TOKENS:
            return replace(facts, tokens=facts.tokens + step.amount)
        case UpDo.REGISTER:
            assert facts.tokens >= step.amount
            return replace(facts, registered_to="0xA", stake=step.amount, tokens=facts.tokens - step.amount)
        case UpDo.DEPOSIT:
            assert facts.tokens >= step.amount
            return replace(facts, stake=facts.stake + step.amount, tokens=facts.tokens - step.amount)
        case UpDo.SPONSOR:
            assert facts.sponsored
            assert not facts.invite_only
            assert facts.operator_wei < 10 or facts.tokens < 200
            return replace(facts, registered_to="0xA", stake=facts.least, standing=Standing.MEMBER)
        case UpDo.JOIN:
            assert facts.stake >= facts.least
            return replace(facts, standing=Standing.MEMBER)
    raise AssertionError(f"nothing follows {step}")


@given(
    st.builds(
        NodeFacts,
        pool=st.just(1),
        operator=st.sampled_from(["", "0xA"]),
        node=st.sampled_from(["", "0xB"]),
        agreed=st.booleans(),
        operator_wei=st.integers(0, 12),
        operator_needs=st.just(10),
        sponsored=st.booleans(),
        tokens=st.integers(0, 400),
        registered_to=st.sampled_from(["", "0xA", "0xC"]),
        stake=st.integers(0, 400),
        least=st.just(200),
        wanted=st.integers(0, 400),
        standing=st.sampled_from(Standing),
        pool_status=st.sampled_from(["open", "paused", "closing", "settled", "understaffed"]),
        invite_only=st.booleans(),
        invited=st.booleans(),
        elsewhere=st.sampled_from([0, 2]),
    )
)
def test_whatever_is_there_it_ends_at_work_or_at_a_reason(facts: NodeFacts) -> None:
    for _ in range(12):
        step = next_node_step(facts)
        if step.do in (UpDo.RUN, UpDo.STOP):
            break
        facts = taken(facts, step)
    assert step.do in (UpDo.RUN, UpDo.STOP)
    assert step.why
    if step.do is UpDo.RUN:
        assert facts.registered_to == facts.operator == "0xA"
        assert facts.standing in (Standing.MEMBER, Standing.FROZEN)
        assert facts.stake >= facts.least


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"registered_to": "0xC"}, "belongs to operator 0xC"),
        ({"standing": Standing.EJECTED}, "ejected"),
        ({"standing": Standing.REMOVED}, "removed"),
        ({"pool_status": "closing"}, "takes no more work"),
        ({"pool_status": "paused", "standing": Standing.NOT_JOINED}, "run this again once it goes on"),
        ({"elsewhere": 2, "standing": Standing.NOT_JOINED}, "in pool 2; leave it first: muster node leave"),
        ({"invite_only": True, "standing": Standing.NOT_JOINED}, "--invite"),
    ],
)
def test_what_cannot_be_mended_is_said_with_its_cure(change: dict[str, object], words: str) -> None:
    step = next_node_step(replace(READY, **change))  # type: ignore[arg-type]
    assert step.do is UpDo.STOP
    assert words in step.why


def test_money_is_asked_for_exactly_and_only_after_the_terms() -> None:
    fresh = replace(READY, registered_to="", stake=0, standing=Standing.NOT_JOINED, agreed=False)
    assert next_node_step(fresh).do is UpDo.ASK
    assert next_node_step(replace(fresh, agreed=True)) == UpStep(
        UpDo.TOKENS, "the stake is 0.0000002 tokens", 200, "0xA"
    )
    more = replace(fresh, agreed=True, wanted=300, tokens=250)
    assert next_node_step(more).amount == 50
    slashed = replace(READY, stake=150, tokens=50)
    assert next_node_step(slashed).do is UpDo.DEPOSIT
    assert next_node_step(slashed).amount == 50
    assert next_node_step(replace(READY, wanted=300)).do is UpDo.RUN, "a node at work is not asked for more"


UNSEATED = ValidatorFacts(1, bond=100, owner_needs=10, voter_needs=5)


def taken_by_validator(facts: ValidatorFacts, step: UpStep) -> ValidatorFacts:
    """What is there once a step was taken."""
    match step.do:
        case UpDo.MAKE_KEYS:
            return replace(facts, owner="0xA", voters=facts.voters or (("0xB", 0), ("0xC", 0)))
        case UpDo.ASK:
            return replace(facts, agreed=True)
        case UpDo.ETHER if step.address == facts.owner:
            return replace(facts, owner_wei=facts.owner_wei + step.amount)
        case UpDo.ETHER:
            voters = ((who, wei + step.amount * (who == step.address)) for who, wei in facts.voters)
            return replace(facts, voters=tuple(voters))
        case UpDo.TOKENS:
            return replace(facts, tokens=facts.tokens + step.amount)
        case UpDo.WARM:
            return replace(facts, warm=True)
        case UpDo.BOND:
            assert facts.warm, "a seat is bonded only once the process can judge"
            assert facts.tokens >= step.amount == facts.bond
            return replace(facts, tokens=facts.tokens - step.amount, seated=facts.seated | {step.address})
        case UpDo.OPT_IN:
            assert facts.warm
            return replace(facts, seated=facts.seated | {step.address}, idle=facts.idle - {step.address})
    raise AssertionError(f"nothing follows {step}")


@given(
    st.builds(
        ValidatorFacts,
        pool=st.just(1),
        owner=st.sampled_from(["", "0xA"]),
        voters=st.sampled_from([(), (("0xB", 0),), (("0xB", 9), ("0xC", 0))]),
        agreed=st.booleans(),
        owner_wei=st.integers(0, 12),
        owner_needs=st.just(10),
        voter_needs=st.just(5),
        tokens=st.integers(0, 300),
        bond=st.just(100),
        seated=st.sampled_from([frozenset(), frozenset({"0xB"})]),
        idle=st.sampled_from([frozenset(), frozenset({"0xC"})]),
        foreign=st.sampled_from([frozenset(), frozenset({"0xB"})]),
        warm=st.booleans(),
        pool_status=st.sampled_from(["open", "paused", "understaffed", "closing"]),
    )
)
def test_whatever_is_there_it_ends_at_judging_or_at_a_reason(facts: ValidatorFacts) -> None:
    for _ in range(12):
        step = next_validator_step(facts)
        if step.do in (UpDo.RUN, UpDo.STOP):
            break
        facts = taken_by_validator(facts, step)
    assert step.do in (UpDo.RUN, UpDo.STOP)
    if step.do is UpDo.RUN:
        assert facts.warm
        assert {who for who, _ in facts.voters} <= facts.seated
    else:
        assert facts.foreign or facts.pool_status == "closing"


def test_a_restart_of_a_bonded_validator_asks_for_nothing_but_warmth() -> None:
    bonded = replace(UNSEATED, owner="0xA", voters=(("0xB", 9),), seated=frozenset({"0xB"}))
    assert next_validator_step(bonded).do is UpDo.WARM
    assert next_validator_step(replace(bonded, warm=True)).do is UpDo.RUN
