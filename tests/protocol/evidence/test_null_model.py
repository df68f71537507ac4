"""The e-process: no bet pays on average under any law of its envelope, lives end as Ville's bound says, cheats show."""

import math
import random
from collections.abc import Sequence

import pytest

from protocol.evidence.figures import BETS, FIGURES, FileFigures, Sum
from protocol.evidence.null_model import (
    LIMIT_NATS,
    Bet,
    EvidenceConfig,
    NodeEvidence,
    PairNullModel,
    StepNullModels,
    least,
)

MOST = 1.5


def edge(tilt: float, down: float, up: float) -> float:
    """Probability of `up` (else −`down`) with which a bet of rate 0 pays exactly 1 on average: the envelope's edge."""
    paid, lost = math.exp(tilt * min(up, MOST)), math.exp(-tilt * down)
    return (1 - lost) / (paid - lost)


def one_bet(tilt: float) -> PairNullModel:
    """A null model that bets on mantissas alone, twice the same."""
    return PairNullModel(worker="w", verifier="v", bets={"mantissas": (Bet(tilt=tilt, rate=0, most=MOST),) * BETS})


def problems(source: random.Random, count: int, down: float, up: float, chance: float) -> FileFigures:
    return {"mantissas": [Sum(up if source.random() < chance else -down, 1.0) for _ in range(count)]}


def life(source: random.Random, law: PairNullModel, files: int, draw: Sequence[float]) -> NodeEvidence:
    evidence = NodeEvidence()
    for _ in range(files):
        evidence.add(law.nats(problems(source, 4, *draw)))
    return evidence


@pytest.mark.parametrize("up", [0.1, 1.0, 50.0])
@pytest.mark.parametrize("down", [0.05, 0.5, 3.0])
@pytest.mark.parametrize("tilt", [0.2, 0.4, 0.8, 1.2, 1.6])
def test_no_bet_pays_on_average_at_the_edge_of_its_envelope(tilt: float, down: float, up: float) -> None:
    """Exactly, by the two outcomes; the clip is part of it: however large `up`, a problem pays exp(λb) at most."""
    chance, bet = edge(tilt, down, up), Bet(tilt=tilt, rate=0, most=MOST)
    up_pays, down_pays = (math.exp(bet.nats([Sum(value, 1.0)])) for value in (up, -down))
    assert chance * up_pays + (1 - chance) * down_pays == pytest.approx(1.0)
    assert up_pays <= math.exp(tilt * MOST) + 1e-9


def test_lives_at_the_edge_reach_a_level_as_seldom_as_villes_bound_says() -> None:
    """Level 20 in at most one life of twenty, at the worst law there is; with the weights' margin in fact far less."""
    source, law = random.Random(1), one_bet(0.8)
    draw = (0.5, 1.0, edge(0.8, 0.5, 1.0))
    peaks = [life(source, law, 60, draw).peak for _ in range(400)]
    alone = sum(peak + math.log(len(FIGURES)) >= math.log(20) for peak in peaks)
    assert alone <= 400 / 20 + 3 * math.sqrt(400 / 20)
    assert not any(peak >= LIMIT_NATS for peak in peaks)


def test_the_mixture_over_starts_keeps_its_mean() -> None:
    """M_n = A_n + 1/(n+1) with e-values of mean 1: by all paths of four files, exactly."""
    high, low = math.log(1.5), math.log(0.5)
    total = 0.0
    for path in range(16):
        evidence = NodeEvidence()
        for place in range(4):
            paid = high if path >> place & 1 else low
            evidence.add(dict.fromkeys(FIGURES, (paid,) * BETS))
        total += math.exp(evidence.total) / 16
    assert total == pytest.approx(1.0)


def test_a_cheat_that_begins_late_is_found() -> None:
    source, law = random.Random(2), one_bet(0.8)
    evidence = life(source, law, 500, (0.5, 1.0, 0.2))
    assert not evidence.accused
    files = 0
    while not evidence.accused and files < 12:
        evidence.add(law.nats(problems(source, 16, 0.5, 1.0, 0.7)))
        files += 1
    assert evidence.accused
    for _ in range(200):
        evidence.add(law.nats(problems(source, 16, 0.5, 1.0, 0.2)))
    assert evidence.accused, "honest work afterwards does not undo it"


def test_one_honest_document_keeps_a_file_from_accusing_also_where_others_lack_a_figure() -> None:
    """An older program's lacks one, and so may a liar's: what an honest one says against it must still count."""
    honest = dict.fromkeys(FIGURES, (0.5, -0.5))
    lie = dict.fromkeys(FIGURES, (50.0,) * BETS)
    assert least([lie, honest, lie]) == honest
    assert least([]) == {}
    said = {"unexplained": (0.5, -0.5), "coherence": (-0.5, 0.3)}
    assert least([said, {"unexplained": (9.0,) * BETS}]) == {"unexplained": (0.5, -0.5), "coherence": (-0.5, 0.0)}


def test_a_liar_that_lacks_what_clears_a_node_does_not_accuse_an_honest_one() -> None:
    source, evidence = random.Random(5), NodeEvidence()
    for _ in range(400):
        pays = (math.log(1.9) if source.random() < 0.5 else math.log(0.1),) * BETS
        honest = {"coherence": pays}
        evidence.add(least([honest] if pays[0] > 0 else [honest, {}]))
    assert not evidence.accused


NEGATIVE = Bet.model_construct(tilt=1, rate=-1e-9, most=1)
PAIR = PairNullModel(worker="w", verifier="v", bets={"gaps": (Bet(tilt=1, rate=0, most=1),) * BETS})


@pytest.mark.parametrize(
    ("pairs", "why"),
    [
        ((PAIR, PAIR), "two null models are of one pair"),
        ((PAIR.model_copy(update={"bets": {"luck": PAIR.bets["gaps"]}}),), "no figure is called luck"),
        ((PAIR.model_copy(update={"worker": "a\nb"}),), "worker"),
        ((PAIR.model_copy(update={"bets": {"gaps": (NEGATIVE,) * BETS}}),), "rate"),
        ((), "at least 1 item"),
    ],
)
def test_null_models_that_nobody_could_apply_are_refused(pairs: tuple[PairNullModel, ...], why: str) -> None:
    """A negative rate among them: it would be learned from one policy's entropy and accuse honest nodes of the next."""
    with pytest.raises(ValueError, match=why):
        StepNullModels.model_validate({"audit_rate": 1, "pairs": [pair.model_dump() for pair in pairs]})


def test_a_pool_takes_the_labels_that_it_lists_and_one_without_attributes_stands_for_all() -> None:
    config = EvidenceConfig(engines=("transformers:bfloat16:cpu", "vllm:bfloat16:cuda:tp=1"))
    taken = ("transformers:bfloat16:cpu", "transformers:bfloat16:cpu:kernels=x86_64-avx2", "vllm:bfloat16:cuda:tp=1")
    assert [config.refuses(label) for label in taken] == ["", "", ""]
    for label in ("vllm:bfloat16:cuda", "vllm:bfloat16:cuda:tp=2", "transformers:bfloat16:cpu2", ""):
        assert "cannot measure files of" in config.refuses(label)
