"""Every attack is caught, for the right reason where there is one; and the honest producer is not."""

import dataclasses

import pytest

from attacks.base import Cheat, other_work
from attacks.registry import REGISTRY, find
from attacks.subtle import SMALL_ATTACKS
from engines.hf import TransformersEngine
from protocol.errors import ConfigError
from protocol.verdict import Code
from tests.validator import tiny

W, S, A = Code.REJECT_WEIGHTS, Code.REJECT_SAMPLING, Code.REJECT_ASSIGNMENT
R, D, T = Code.REJECT_REWARD, Code.REJECT_DUPLICATE, Code.REJECT_TERMINATION
C, M, U = Code.REJECT_COMMITMENT, Code.MALFORMED, Code.UNAVAILABLE

CAUGHT_BY: dict[tuple[Code, ...], str] = {
    (W,): """weights-noise weights-int8 weights-bf16 weights-stale weights-small compute-bf16 temperature hidden-prompt
        early-eos edited-copy proofs-zero proofs-modulus-0 proofs-random proofs-other-file""",
    (W, D): "padding proofs-constant proofs-swapped",
    (W, T): "token-swap",
    (S,): """reroll seed old-completions other-lane fabricate ghostwriter ghostwriter-int8 gibberish partial""",
    (S, D): "greedy copied-samples",
    (A,): """chosen-problems repeated-problem wrong-target truncated-prompt altered-prompt other-file own-old-file
        own-old-step relabelled-file""",
    (T,): "truncated",
    (R,): "inflated-reward inflated-units",
    (C,): "wrong-root",
    (U,): "changed-file",
    (M,): "proofs-too-few proofs-too-many",
}
EXPECTED = {name: codes for codes, names in CAUGHT_BY.items() for name in names.split()}
# Cheats that are too small for one file of a bf16 pool, by strengths at which one file in float32 shows them.
SMALL = dict.fromkeys(("layer-int8", "kv-int8", "stale-prefill"), 0.0)
SMALL |= dict.fromkeys(("top-p", "temperature-proven", "greedy-rows"), 0.5) | {"lora": 0.01}


def cheat(name: str, strength: float | None = None) -> Cheat:
    attack = (REGISTRY | SMALL_ATTACKS)[name]
    made = attack.build(tiny.CONFIG, TransformersEngine(max_batch=8), attack.default if strength is None else strength)
    if name in ("weights-stale", "stale-prefill"):
        made.load(tiny.model_folder(seed=1))
    made.load(tiny.model_folder())
    assert isinstance(made, Cheat)
    return made


def test_every_attack_is_expected() -> None:
    assert set(EXPECTED) == set(REGISTRY)
    assert set(SMALL) == set(SMALL_ATTACKS)


@pytest.mark.parametrize("name", sorted(SMALL))
def test_small_cheats_are_there(name: str) -> None:
    made = cheat(name, SMALL[name]).make(tiny.work_of(2))
    assert tiny.verdict_on(made, tiny.work_of(2)).code.is_reject


@pytest.mark.parametrize(("name", "strength"), [("top-p", 1.0), ("stale-prefill", 0.0), ("weights-noise", 0.0)])
def test_without_its_change_the_work_is_honest(name: str, strength: float) -> None:
    """All of the probability; a first step, before which there was none; no noise."""
    made = (REGISTRY | SMALL_ATTACKS)[name].build(tiny.CONFIG, TransformersEngine(max_batch=8), strength)
    made.load(tiny.model_folder())
    assert tiny.verdict_on(made.make(tiny.work_of(3)), tiny.work_of(3)).code is Code.ACCEPT


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_attacks_are_caught(name: str) -> None:
    made = cheat(name).make(tiny.work_of(2))
    assert tiny.verdict_on(made, tiny.work_of(2)).code in EXPECTED[name]


@pytest.mark.parametrize(
    ("name", "codes"), [("token-swap", (S, T)), ("early-eos", (S, T)), ("padding", (S,)), ("edited-copy", (S,))]
)
def test_edits_that_are_proven_anew_are_caught_by_the_noise(name: str, codes: tuple[Code, ...]) -> None:
    made = cheat(name, strength=1).make(tiny.work_of(2))
    assert tiny.verdict_on(made, tiny.work_of(2)).code in codes


@pytest.mark.parametrize("strength", [0.02, 0.01, 0.001])
def test_small_noise_on_weights(strength: float) -> None:
    made = cheat("weights-noise", strength).make(tiny.work_of(3))
    assert tiny.verdict_on(made, tiny.work_of(3)).code is W


def test_unaudited_cheating_escapes_and_audited_does_not() -> None:
    """One cheated rollout of six: caught exactly when the audit draws it."""
    made = cheat("partial", strength=1 / 6).make(tiny.work_of(4))
    for sequence in range(8):
        verdict = tiny.verdict_on(made, tiny.work_of(4), sequence=sequence, audit_rate=20000)
        assert (verdict.code is S) == (0 in verdict.audited)


def test_finding_attacks_by_text() -> None:
    attack, strength = find("weights-noise=0.5")
    assert (attack.name, strength) == ("weights-noise", 0.5)
    assert find("greedy")[1] == 0.0
    for text in ("nonsense", "weights-noise=much"):
        with pytest.raises(ConfigError):
            find(text)


def test_attacks_leave_the_honest_stages_alone() -> None:
    honest = tiny.honest(2)
    noisy = cheat("weights-noise").make(tiny.work_of(2))
    assert [r.prompt_tokens for r in noisy.rollouts] == [r.prompt_tokens for r in honest.rollouts]
    assert dataclasses.replace(noisy.header, engine=honest.header.engine) == honest.header


@pytest.mark.parametrize("anew", [False, True])
def test_a_swapped_token_is_caught_wherever_it_stands(anew: bool) -> None:
    """Every place of the longest completion of an honest file, the last one included."""
    honest, producer, of = tiny.honest(2), cheat("seed"), tiny.work_of(2)
    row = max(range(len(honest.rollouts)), key=lambda n: len(honest.rollouts[n].output_tokens))
    good = honest.rollouts[row]
    for place in range(0, len(good.output_tokens), 3) if anew else range(len(good.output_tokens)):
        token = (good.output_tokens[place] + 1) % 256
        tokens = (*good.output_tokens[:place], token, *good.output_tokens[place + 1 :])
        score = producer.environment.score(good.problem_seed, good.target_length, tokens)
        swapped = dataclasses.replace(good, output_tokens=tokens, **dataclasses.asdict(score))
        if anew:
            (proven,) = producer.prove([(good.prompt_tokens, tokens, good.finish)])
            swapped = dataclasses.replace(swapped, logprobs=proven.logprobs, proofs=proven.proofs)
        rows = [swapped if n == row else honest.rollouts[n] for n in range(len(honest.rollouts))]
        code = tiny.verdict_on(producer.seal(of, rows), of).code
        assert code in ((S, T) if anew else (W, T)), (place, code)


def test_nobody_is_blamed_for_what_a_thief_handed_in_before() -> None:
    """A thief copies a victim's file, proofs and all, and commits first: the victim's verdict does not depend on it."""
    victim, of = tiny.honest(3), tiny.work_of(3)
    alone = tiny.verdict_on(victim, of).canonical()
    thief = other_work(of, node="0x" + "33" * 20)
    stolen = cheat("seed").seal(thief, victim.rollouts)
    assert tiny.verdict_on(stolen, thief, sequence=4).code is A
    assert tiny.verdict_on(victim, of).canonical() == alone
