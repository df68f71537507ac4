"""What `muster validator up` does next: never a bond before the process can judge."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cli.up.steps import UpDo, UpStep, ValidatorFacts
from cli.up.steps import next_validator_step as next_step

NOTHING = ValidatorFacts(1, bond=100, owner_needs=10, voter_needs=5)


def taken(facts: ValidatorFacts, step: UpStep) -> ValidatorFacts:
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


def test_from_nothing_to_judging_in_this_order() -> None:
    facts, order = NOTHING, []
    while (step := next_step(facts)).do is not UpDo.RUN:
        order.append(step.do)
        facts = taken(facts, step)
    assert order == [
        UpDo.MAKE_KEYS, UpDo.ASK, UpDo.ETHER, UpDo.TOKENS, UpDo.ETHER,
        UpDo.ETHER, UpDo.WARM, UpDo.BOND, UpDo.BOND,
    ]  # fmt: skip
    assert (facts.tokens, set(facts.seated)) == (0, {"0xB", "0xC"})


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
        step = next_step(facts)
        if step.do in (UpDo.RUN, UpDo.STOP):
            break
        facts = taken(facts, step)
    assert step.do in (UpDo.RUN, UpDo.STOP)
    if step.do is UpDo.RUN:
        assert facts.warm
        assert {who for who, _ in facts.voters} <= facts.seated
    else:
        assert facts.foreign or facts.pool_status == "closing"


def test_a_restart_of_a_bonded_validator_asks_for_nothing_but_warmth() -> None:
    bonded = replace(NOTHING, owner="0xA", voters=(("0xB", 9),), seated=frozenset({"0xB"}))
    assert next_step(bonded).do is UpDo.WARM
    assert next_step(replace(bonded, warm=True)).do is UpDo.RUN
