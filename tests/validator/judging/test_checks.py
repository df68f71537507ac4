"""Every check accepts the honest file, and refuses what it is there for with the right code."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from protocol.config import ChecksConfig
from protocol.evidence.null_model import EvidenceConfig
from protocol.seeds import assignments
from protocol.verdict import Code
from tests.validator import world
from tests.validator.world import BY_NAME, context, with_measurements, with_row
from validator.judging.checks import CheckContext, largest


@pytest.mark.parametrize("name", BY_NAME)
def test_the_honest_case_is_accepted(name: str) -> None:
    finding = BY_NAME[name](context())
    assert finding.code is Code.ACCEPT
    assert finding.check == name
    assert finding.measurements


def committed(base: CheckContext, **changes: object) -> CheckContext:
    commitment = replace(base.facts.commitment, **changes)  # type: ignore[arg-type]
    return replace(base, facts=replace(base.facts, commitment=commitment))


def header(base: CheckContext, **changes: Any) -> CheckContext:
    """A header that names other work, by the names of its document."""
    work, taken = base.header.work, dict(changes)
    pool = replace(work.id.pool, **{name: taken.pop(name) for name in ("chain_id", "pools", "pool") if name in taken})
    work_id = replace(work.id, pool=pool, **{n: taken.pop(n) for n in ("node", "step", "counter") if n in taken})
    work = replace(work, id=work_id, **taken)
    return replace(base, header=replace(base.header, work=work))


def swapped_slots(base: CheckContext) -> CheckContext:
    rows = list(base.rollouts)
    rows[0], rows[2] = replace(rows[2], slot=0), replace(rows[0], slot=1)
    return world.with_rows(base, rows)


def of_class(base: CheckContext, number: int) -> CheckContext:
    """A file whose targets are those of class `number`, in a pool of three; its node is of the first, 0x11…."""
    shape = world.CONFIG.work.model_copy(update={"targets": (), "length_tiers": ((16, 24), (28, 30), (34, 36))})
    asked = shape.model_copy(update={"targets": shape.length_tiers[number], "length_tiers": ()})
    pool = base.config.model_copy(update={"work": shape})
    drawn = assignments(base.facts.work, pool.model_copy(update={"work": asked}))
    rows = [replace(row, target_length=drawn[row.slot].target_length) for row in base.rollouts]
    return replace(world.with_rows(base, rows), config=pool)


def early_eos(base: CheckContext) -> CheckContext:
    row = base.rollouts[1]
    return with_row(base, 1, output_tokens=(*row.output_tokens[:3], world.EOS, *row.output_tokens[4:]))


def spread(base: CheckContext, **changes: object) -> CheckContext:
    """The same change of measurements in every row."""
    for number in range(len(base.rollouts)):
        base = with_measurements(base, number, **changes)
    return base


def shifted_logprobs(base: CheckContext, by: float) -> CheckContext:
    for number, row in enumerate(base.rollouts):
        base = with_measurements(base, number, logprobs=tuple(value + by for value in row.logprobs))
    return base


def missing_tokens(base: CheckContext, every: int, gap: float) -> CheckContext:
    for number, row in enumerate(base.rollouts):
        gaps = tuple(gap if place % every == 0 else 0.0 for place in range(len(row.output_tokens)))
        base = with_measurements(base, number, gaps=gaps)
    return base


def one_gap(base: CheckContext, gap: float) -> CheckContext:
    return with_measurements(base, 2, gaps=(gap, *base.measured[2].gaps[1:]))


def copied_sample(base: CheckContext, logprob: float) -> CheckContext:
    """Sample 1 of a problem hands in what sample 0 made; every token has the given log-probability."""
    row = base.rollouts[1]
    row = replace(row, logprobs=(logprob,) * len(row.output_tokens))
    return world.with_rows(base, [replace(row, sample=0), row])


def improbable_eos(base: CheckContext, gap: float) -> CheckContext:
    return with_measurements(base, 0, eos_probability=1e-6, gaps=(*base.measured[0].gaps[:-1], gap))


BAD_PROOF = b"\x00\x00" + b"\x00" * 256

REFUSALS: list[tuple[str, Callable[[CheckContext], CheckContext], Code]] = [
    ("schema", lambda c: with_row(c, 1, output_tokens=(99999,) * 40), Code.MALFORMED),
    ("schema", lambda c: with_row(c, 1, logprobs=(0.5,) * 40), Code.MALFORMED),
    ("header", lambda c: header(c, node="0x" + "33" * 20), Code.REJECT_ASSIGNMENT),
    ("header", lambda c: header(c, step=2), Code.REJECT_ASSIGNMENT),
    ("header", lambda c: header(c, counter=4), Code.REJECT_ASSIGNMENT),
    ("header", lambda c: header(c, step_seed=b"\x01" * 32), Code.MALFORMED),
    ("header", lambda c: header(c, manifest=b"\x01" * 32), Code.MALFORMED),
    ("header", lambda c: header(c, chain_id=1), Code.MALFORMED),
    ("header", lambda c: header(c, pool=2), Code.MALFORMED),
    ("commitment", lambda c: committed(c, root=b"\x01" * 32), Code.REJECT_COMMITMENT),
    ("commitment", lambda c: committed(c, units=100_000), Code.REJECT_REWARD),
    ("commitment", lambda c: committed(c, units=1), Code.MALFORMED),
    ("commitment", lambda c: committed(c, rows=5), Code.MALFORMED),
    ("assignment", lambda c: with_row(c, 0, problem_seed=1), Code.REJECT_ASSIGNMENT),
    ("assignment", lambda c: with_row(c, 0, target_length=17), Code.REJECT_ASSIGNMENT),
    ("assignment", swapped_slots, Code.REJECT_ASSIGNMENT),
    ("prompts", lambda c: with_row(c, 3, prompt_tokens=c.rollouts[3].prompt_tokens[:-1]), Code.REJECT_ASSIGNMENT),
    ("prompts", lambda c: with_row(c, 3, prompt_tokens=c.rollouts[0].prompt_tokens), Code.REJECT_ASSIGNMENT),
    ("termination", early_eos, Code.REJECT_TERMINATION),
    ("termination", lambda c: with_row(c, 1, output_tokens=(65,) * 39), Code.REJECT_TERMINATION),
    ("termination", lambda c: with_row(c, 1, finish=0), Code.REJECT_TERMINATION),
    ("termination", lambda c: with_row(c, 0, finish=1), Code.REJECT_TERMINATION),
    ("rewards", lambda c: with_row(c, 0, task_reward=0.5), Code.REJECT_REWARD),
    ("rewards", lambda c: with_row(c, 0, length_penalty=0.0), Code.REJECT_REWARD),
    ("rewards", lambda c: with_row(c, 0, reward=1.0), Code.REJECT_REWARD),
    ("proofs", lambda c: with_row(c, 0, proofs=(BAD_PROOF, *c.rollouts[0].proofs[1:])), Code.REJECT_WEIGHTS),
    ("proofs", lambda c: with_row(c, 1, proofs=(b"\xff\xff" * 129,) * 2), Code.REJECT_WEIGHTS),
    ("proofs", lambda c: with_row(c, 1, proofs=c.rollouts[1].proofs[:1]), Code.REJECT_WEIGHTS),
    ("duplicates", lambda c: copied_sample(c, -1.5), Code.REJECT_DUPLICATE),
    ("logprobs", lambda c: shifted_logprobs(c, 1e-3), Code.REJECT_WEIGHTS),
    ("logprobs", lambda c: with_measurements(c, 0, logprobs=(0.0,) * len(c.measured[0].logprobs)), Code.REJECT_WEIGHTS),
    (
        "toploc",
        lambda c: with_measurements(c, 0, mismatches=(20,) * len(c.measured[0].mismatches)),
        Code.REJECT_WEIGHTS,
    ),
    ("toploc", lambda c: with_measurements(c, 1, mantissas=(0.0, 30.0)), Code.REJECT_WEIGHTS),
    ("toploc", lambda c: with_measurements(c, 1, mantissas=(0.0, float("nan"))), Code.REJECT_WEIGHTS),
    ("eos", lambda c: improbable_eos(c, 3.0), Code.REJECT_TERMINATION),
    ("sampling", lambda c: one_gap(c, 1.0), Code.REJECT_SAMPLING),
    ("sampling", lambda c: one_gap(c, float("inf")), Code.REJECT_SAMPLING),
    ("sampling", lambda c: missing_tokens(c, 10, 1e-6), Code.REJECT_SAMPLING),
    ("distribution", lambda c: spread(c, surprise=10.0), Code.REJECT_SAMPLING),
    ("distribution", lambda c: spread(c, overconfidence=10.0), Code.REJECT_SAMPLING),
]


@pytest.mark.parametrize(("name", "make", "code"), REFUSALS)
def test_refusals(name: str, make: Callable[[CheckContext], CheckContext], code: Code) -> None:
    finding = BY_NAME[name](make(context()))
    assert finding.code is code
    assert finding.note


def test_every_check_has_a_refusal() -> None:
    assert {name for name, _, _ in REFUSALS} == set(BY_NAME)


@pytest.mark.parametrize(
    ("name", "make", "code"),
    [
        ("logprobs", lambda c: shifted_logprobs(c, 3e-5), Code.UNSURE),
        ("sampling", lambda c: one_gap(c, 0.006), Code.UNSURE),
        ("distribution", lambda c: spread(c, surprise=2.2), Code.UNSURE),
        ("eos", lambda c: improbable_eos(c, 0.0), Code.ACCEPT),  # the noise picked it
        ("sampling", lambda c: one_gap(c, 1e-6), Code.ACCEPT),  # a single near-tie is no rate
        ("duplicates", lambda c: copied_sample(c, -1e-4), Code.ACCEPT),  # as a peaked model answers an easy problem
        # A node cannot take the targets of another class.
        ("assignment", lambda c: of_class(c, 0), Code.ACCEPT),
        ("assignment", lambda c: of_class(c, 1), Code.REJECT_ASSIGNMENT),
        ("assignment", lambda c: of_class(c, 2), Code.REJECT_ASSIGNMENT),
    ],
)
def test_on_the_border(name: str, make: Callable[[CheckContext], CheckContext], code: Code) -> None:
    assert BY_NAME[name](make(context())).code is code


def of_row(base: CheckContext, number: int, **changes: object) -> CheckContext:
    """An audit that drew one row alone, with these measurements."""
    base = with_measurements(base, number, **changes)
    return replace(base, measurements=base.measured[number : number + 1])


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("logprobs", {"logprobs": 0.9 * ChecksConfig().logprob_error_reject}),
        ("toploc", {"mismatches": 3}),
        ("toploc", {"mantissas": 0.9 * ChecksConfig().mantissa_mean_chunk_reject}),
        ("sampling", {"gaps": 1e-6}),
    ],
)
def test_a_mean_of_one_row_refuses_nothing_that_a_chunk_or_token_may_honestly_be(
    name: str, changes: dict[str, float]
) -> None:
    """A file of 1/16 audits is judged by one row now and then, and a row of ten tokens has one chunk."""
    ((field, value),) = changes.items()
    base, number = context(), next(row.row for row in context().measured if row.eos_probability is not None)
    known = getattr(base.measured[number], field)
    few = 7 if field == "gaps" else 1
    assert len(known) < 40
    changed = tuple(a + value if place < few else a for place, a in enumerate(known))
    assert not BY_NAME[name](of_row(base, number, **{field: changed})).code.is_reject
    every = tuple(a + value for a in known)
    assert len(known) == 1 or BY_NAME[name](of_row(base, number, **{field: every})).code.is_reject


def test_only_the_common_part_must_be_improbable() -> None:
    """Two samples that begin alike and go on differently share their first proof, however long they are."""
    base = copied_sample(context(), -1e-4)
    first, second = base.rollouts
    surprising = (*first.logprobs[:32], *(-20.0 for _ in first.logprobs[32:]))
    other = (*first.output_tokens[:32], *(token + 1 for token in first.output_tokens[32:]))
    rows = [
        replace(first, logprobs=surprising),
        replace(second, logprobs=surprising, output_tokens=other, proofs=(first.proofs[0], b"\1" * 258)),
    ]
    finding = BY_NAME["duplicates"](world.with_rows(base, rows))
    assert finding.code is Code.ACCEPT
    assert finding.measurements["ambiguous"] == []


def test_ambiguous_proofs_are_named_not_judged() -> None:
    base = context()
    forged = with_row(base, 2, proofs=base.rollouts[0].proofs[:1] + base.rollouts[2].proofs[1:])
    forged = replace(forged, facts=replace(forged.facts, audit_rate=1), measurements=None)
    finding = BY_NAME["duplicates"](forged)
    assert finding.code is Code.ACCEPT
    assert finding.measurements["ambiguous"] == [0, 2]
    assert {0, 2} <= set(forged.audited)


def test_a_nan_among_measurements_is_not_hidden() -> None:
    assert largest([1.0, float("nan"), 0.5]) != largest([1.0, float("nan"), 0.5])


def test_a_pool_with_evidence_takes_no_files_of_an_engine_that_it_does_not_list() -> None:
    """They would add up to nothing, and who cheats would name that engine."""
    base = context()
    for worker, code in (("hf:float32:cpu", Code.ACCEPT), ("vllm:float32:cpu", Code.MALFORMED)):
        config = base.config.model_copy(update={"evidence": EvidenceConfig(engines=(worker,))})
        assert BY_NAME["header"](replace(base, config=config)).code is code


def test_what_a_pools_owner_calls_engines_floods_no_verdict() -> None:
    """The note stands in every verdict document and log line; names are an owner's words."""
    base, names = context(), tuple(f"{number}:" + "x" * 190 for number in range(64))
    config = base.config.model_copy(update={"evidence": EvidenceConfig(engines=names)})
    assert len(BY_NAME["header"](replace(base, config=config)).note) <= 300
    for worker in ("a\x1b[2J", "a\nb", "\u202e"):
        with pytest.raises(ValueError, match="engines"):
            EvidenceConfig(engines=(worker,))
