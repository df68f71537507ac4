"""What each attack of the table can gain at most, and why: shares of the pay of a file.

Bounds, not estimates: a cheat saves no more than the work that it does not do. What a pass over finished text costs
beside generating it is measured where the price is computed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from benchmarks.price_value import Gain

BITS = {"float32": 32, "bfloat16": 16}


@dataclass(frozen=True)
class Costs:
    """`prefill`: what a pass over finished text costs, as a share of generating it; `samples`: of a problem."""

    prefill: Fraction
    samples: int


@dataclass(frozen=True)
class Motive:
    """Why somebody might, and how much that is at most in a pool of a dtype."""

    why: str
    gain: Callable[[Costs, str], Gain]


def _saves(share: Fraction) -> Callable[[Costs, str], Gain]:
    return lambda costs, dtype: Gain(saved=share)


def _bits(bits: int) -> Callable[[Costs, str], Gain]:
    return lambda costs, dtype: Gain(saved=max(Fraction(0), 1 - Fraction(bits, BITS[dtype])))


NOTHING = Motive("spares no work", _saves(Fraction(0)))
ALL = Motive("all work", _saves(Fraction(1)))
PROVEN = Motive("all work but a pass that proves the text", lambda costs, dtype: Gain(saved=1 - costs.prefill))
PROMPTS = Motive("passes over prompts, from an older cache", lambda costs, dtype: Gain(saved=costs.prefill))
ONE_SAMPLE = Motive("all samples of a problem but one", lambda costs, dtype: Gain(saved=1 - Fraction(1, costs.samples)))
IN_SOME_ROWS = Motive(
    "the same in one row of sixteen", lambda costs, dtype: Gain(saved=(1 - Fraction(1, costs.samples)) / 16)
)
EIGHT_BITS = Motive("weights in 8 bits: work in proportion", _bits(8))
SIXTEEN_BITS = Motive("16 bits instead of 32: work in proportion", _bits(16))
WRITTEN_IN_8_BITS = Motive(
    "writes in 8 bits and proves that: work in proportion, and a pass",
    lambda costs, dtype: Gain(saved=max(Fraction(0), 1 - Fraction(8, BITS[dtype]) - costs.prefill)),
)
HALF_MORE_PAY = Motive("half more pay", lambda costs, dtype: Gain(extra=Fraction(1, 2)))
_ALL = (
    "chosen-problems", "repeated-problem", "changed-file", "early-eos", "padding", "edited-copy", "other-file",
    "own-old-file", "own-old-step", "relabelled-file", "proofs-constant", "proofs-modulus-0", "proofs-other-file",
    "proofs-random", "proofs-swapped", "proofs-too-few", "proofs-too-many", "proofs-zero", "weights-small",
    "hidden-prompt", "altered-prompt", "truncated-prompt", "truncated", "wrong-target", "other-lane",
)  # fmt: skip
_PROVEN = ("fabricate", "gibberish", "ghostwriter", "old-completions")
_NOTHING = (
    "weights-noise",
    "weights-stale",
    "temperature",
    "seed",
    "reroll",
    "token-swap",
    "inflated-reward",
    "wrong-root",
    "top-p",
    "temperature-proven",
)
MOTIVES: Mapping[str, Motive] = {
    **dict.fromkeys(_ALL, ALL),
    **dict.fromkeys(_PROVEN, PROVEN),
    **dict.fromkeys(_NOTHING, NOTHING),
    "greedy": ONE_SAMPLE,
    "copied-samples": ONE_SAMPLE,
    "greedy-rows": IN_SOME_ROWS,
    "weights-int8": EIGHT_BITS,
    "layer-int8": EIGHT_BITS,
    "kv-int8": EIGHT_BITS,
    "stale-prefill": PROMPTS,
    "weights-bf16": SIXTEEN_BITS,
    "compute-bf16": SIXTEEN_BITS,
    "ghostwriter-int8": WRITTEN_IN_8_BITS,
    "inflated-units": HALF_MORE_PAY,
}
"""Attack → its motive. What spares next to nothing itself but lets a file through without any work counts as all."""
PROVEN_ANEW = ("token-swap", "early-eos", "padding", "edited-copy", "altered-prompt")
"""Attacks whose strength 1 proves the changed text with a pass of the true model."""


def motive(label: str) -> Motive:
    """Of a row of the table by its name, such as `padding=1`. Raises KeyError for an attack without one."""
    name, _, strength = label.split(" ")[0].partition("=")
    found = MOTIVES[name]
    return PROVEN if found is ALL and strength == "1" and name in PROVEN_ANEW else found
