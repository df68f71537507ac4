"""Unlike models read one another's texts, one run trains each on the others', and the table says what rows say."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks import swarm_mixed
from benchmarks.swarm_members import SwarmCase, swarm_model
from benchmarks.swarm_models import MODELS
from protocol.models import load_tokenizer
from protocol.swarm.envelope import SharedCompletion, SharedGroup
from protocol.swarm.plausibility import PlausibilityConfig
from protocol.swarm.sampling import Offer
from swarm.inspection import FoundGroup
from swarm.retokenising import Retokeniser
from trainer.tiny_model import END_OF_THOUGHT


def test_three_sizes_two_architectures_two_tokenizers_that_read_the_same_texts(tmp_path: Path) -> None:
    text = f"14+7=21\n21-3=18{END_OF_THOUGHT}18"
    sizes, lengths = set(), set()
    for number, model in enumerate(MODELS):
        folder = model.fresh(tmp_path / str(number), 1)
        tokenizer: Any = load_tokenizer(folder)
        tokens = tokenizer.encode(text, add_special_tokens=False)
        assert tokenizer.decode(tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False) == text
        assert [tokenizer.decode([token]) for token in tokens[:4]] == list("14+7"), "digits are not single"
        lengths.add(len(tokenizer.encode("State the final answer to the following arithmetic problem: 4 + 7 =")))
        sizes.add(sum(path.stat().st_size for path in folder.glob("*.safetensors")))
    assert len(sizes) == 3
    assert len({model.architecture for model in MODELS}) == 2
    assert len(lengths) == 2


def test_every_model_can_train_on_a_text_of_any_other(tmp_path: Path) -> None:
    said = [(f"14+7=21\n21-3=18{END_OF_THOUGHT}18", 1.0), (f"{END_OF_THOUGHT}9", 0.0)]
    texts = [SharedCompletion(text=text, ended=True, reward=reward, logprob=-1) for text, reward in said]
    shared = SharedGroup(slot=0, question="0" * 64, completions=texts)
    for number, kind in enumerate(MODELS):
        model = swarm_model(SwarmCase(4, 4), kind.fresh(tmp_path / str(number), 1))
        for seed in range(30):  # of all nine sums
            group = Retokeniser(model, None).group(FoundGroup(Offer("", 0, 0, "p", shared.rewards), seed, shared))
            assert group is not None, (kind.name, seed)


def row(mix: str, seed: int, **end: float) -> dict[str, Any]:
    ends = {name.replace("_", " "): one for name, one in end.items()}
    halves = {name: one / 2 for name, one in ends.items()}
    return {
        "mix": mix, "seed": seed, "rounds": swarm_mixed.ROUNDS, "end": ends,
        "curves": [[0, dict.fromkeys(ends, 9.0)], [10, halves], [20, ends]],
    }  # fmt: skip


def test_the_table_compares_seeds_that_have_all_arms(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        row("8/0", 7, small_Qwen2=0.1, Qwen2=0.2, Llama=0.4),
        row("4/4", 7, small_Qwen2=0.3, Qwen2=0.3, Llama=0.4),
        row("4/4, defended", 7, small_Qwen2=0.2, Qwen2=0.2, Llama=0.3),
        row("8/0", 1, small_Qwen2=0.9, Qwen2=0.9, Llama=0.9),
    ]
    found = swarm_mixed.table(rows)
    assert found["seeds"] == [7]
    assert found["weakest"] == "small Qwen2"
    assert found["gains"] == {"small Qwen2": 0.2, "Qwen2": 0.1, "Llama": 0.0}
    assert found["gains_defended"] == {"small Qwen2": 0.1, "Qwen2": 0.0, "Llama": -0.1}
    assert found["gains_mean"] == {"small Qwen2": 0.15, "Qwen2": 0.075, "Llama": 0.0}
    assert found["log_odds"] == {"small Qwen2": [1.35], "Qwen2": [0.539], "Llama": [0.0]}
    assert found["log_odds_defended"]["Llama"] == [-0.442]
    assert swarm_mixed.table(rows[:2]) == {"rows": rows[:2]}

    monkeypatch.setattr(swarm_mixed, "one_run", lambda arm, seed, progress: {"arm": (arm.name, seed)})
    made = [one["arm"] for one in swarm_mixed.missing(rows, print, None)]
    assert made == [("4/4", 1), ("4/4, defended", 1), ("8/0", 42), ("4/4", 42), ("4/4, defended", 42)]


def test_a_reward_of_nothing_has_log_odds_too() -> None:
    assert swarm_mixed.log_odds(0.5) == 0.0
    assert swarm_mixed.log_odds(0.2) == pytest.approx(-1.386, abs=1e-3)
    assert -8 < swarm_mixed.log_odds(0.0) < swarm_mixed.log_odds(1 / 1024) < -6
    assert swarm_mixed.log_odds(1.0) == pytest.approx(-swarm_mixed.log_odds(0.0))


def test_arms_differ_in_what_they_say_they_do() -> None:
    alone, shared, defended = swarm_mixed.ARMS
    assert {arm.case.own + arm.case.shared for arm in swarm_mixed.ARMS} == {8}
    assert (alone.shared, shared.shared, defended.shared) == (0, 4, 4)
    assert (shared.settings.mix.certainty, shared.settings.mix.plausibility) == (None, None)
    assert (defended.settings.mix.certainty, defended.settings.mix.plausibility) == (1.0, PlausibilityConfig())
