"""The transformers engine: proofs, noise, batching, hot reload, and what it refuses."""

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from engines.base import FINISH_EOS, FINISH_LENGTH, Completion, Prefilled, Request, Sampling
from engines.hf import TransformersEngine
from engines.loading import load_model
from protocol.errors import ConfigError, IntegrityError, MusterError
from protocol.toploc import proofs as toploc
from protocol.toploc.codec import proof_count
from tests.engines.models import change_tensors, errors, pairs_of, save_broken, save_tiny
from tests.protocol.sampling.completion import verify_choices

SAMPLING = Sampling(1.0, (1,))


def requests(count: int, seed: int = 0, longest: int = 70) -> list[Request]:
    """Groups of three samples per prompt, prompts and limits of many lengths."""
    source = random.Random(seed)
    out = []
    for group in range(count):
        prompt = tuple(source.randrange(2, 300) for _ in range(source.choice([1, 2, 7, 20])))
        limit = source.choice([1, 2, 31, 32, 33, 64, longest])
        out += [Request(prompt, (seed, group, sample), limit) for sample in range(3)]
    return out


def check_honest(
    engine: TransformersEngine, asked: list[Request], got: list[Completion], limits: tuple[int, float, float, float]
) -> None:
    """Every proof, choice and log-probability agrees with the engine's own prefill."""
    for request, completion, seen in zip(asked, got, engine.prefill(pairs_of(asked, got)), strict=True):
        count = len(completion.tokens)
        assert seen.hidden.shape[0] == seen.logits.shape[0] == len(completion.logprobs) == count
        assert (seen.hidden.dtype, seen.logits.dtype) == (torch.bfloat16, torch.float32)
        assert len(completion.proofs) == proof_count(count)
        assert (completion.finish == FINISH_EOS) == (completion.tokens[-1] == 1)
        assert 1 not in completion.tokens[:-1]
        assert completion.finish == FINISH_EOS or count == request.max_new_tokens
    for worst, most in zip(errors(engine, asked, got).values(), limits, strict=True):
        assert worst <= most


def test_generated_text_verifies(engine: TransformersEngine, folder: Path) -> None:
    asked = requests(30)
    got = engine.generate(asked, SAMPLING)
    assert len({len(completion.tokens) for completion in got}) > 8
    assert {completion.finish for completion in got} == {FINISH_EOS, FINISH_LENGTH}
    check_honest(engine, asked, got, (1, 0.1, 0.001, 0.001))
    half, asked = TransformersEngine("bfloat16"), requests(20, seed=4)
    half.load(folder)
    check_honest(half, asked, half.generate(asked, SAMPLING), (12, 10.0, 0.5, 0.5))


def test_a_tiny_temperature_takes_the_most_likely_token_and_rows_off_by_one_are_seen(
    engine: TransformersEngine,
) -> None:
    """A proof over rows P … P+T−1, or over the row before, fails: the row that produced a token is the one proved."""
    (completion,) = engine.generate([Request((9, 8), (1, 1, 1), 5)], Sampling(1e-3, (1,)))
    (seen,) = engine.prefill([((9, 8), completion.tokens)])
    assert list(completion.tokens) == seen.logits.argmax(1).tolist()
    assert max(map(abs, completion.logprobs)) < 1e-3
    request = Request((5, 6, 7, 8), (1, 2, 3), 64)
    (completion,) = engine.generate([request], Sampling(1.0, ()))
    shifted = (request.prompt + completion.tokens[:1], completion.tokens[1:])
    (right,) = engine.prefill([(request.prompt, completion.tokens)])
    (late,) = engine.prefill([shifted])
    assert max(e.exponent_mismatches for e in toploc.verify(right.hidden, completion.proofs)) == 0
    assert torch.equal(late.hidden[0], right.hidden[1])
    wrong = torch.cat([late.hidden, late.hidden[-1:]])
    assert min(e.exponent_mismatches for e in toploc.verify(wrong, completion.proofs)) > 40
    gaps = verify_choices(late.logits, completion.tokens[:-1], request.noise_key, 1.0).gaps
    assert (gaps > 0.05).mean() > 0.2


def test_result_does_not_depend_on_the_batch(engine: TransformersEngine, folder: Path) -> None:
    asked = requests(12, seed=2)
    whole = engine.generate(asked, SAMPLING)
    small = TransformersEngine(max_batch=5)
    small.load(folder)
    for other in (small.generate(asked, SAMPLING), [engine.generate([one], SAMPLING)[0] for one in asked]):
        assert [c.tokens for c in other] == [c.tokens for c in whole]
    order = list(range(len(asked)))
    random.Random(0).shuffle(order)
    mixed = engine.generate([asked[at] for at in order], SAMPLING)
    assert [c.tokens for c in mixed] == [whole[at].tokens for at in order]


def test_the_passes_of_a_prefill_follow_from_its_rows_alone(
    folder: Path, engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = requests(8, seed=7)
    pairs = pairs_of(asked, engine.generate(asked, SAMPLING))
    small = TransformersEngine(max_batch=3)
    small.load(folder)

    def passes(of: TransformersEngine) -> tuple[list[int], list[Prefilled]]:
        rows: list[int] = []
        hook = of.model.get_decoder().register_forward_pre_hook(
            lambda _, __, given: rows.append(len(given["input_ids"])), with_kwargs=True
        )
        prefilled = list(of.prefill(pairs))
        hook.remove()
        return rows, prefilled

    (rows, whole), (small_rows, parts) = passes(engine), passes(small)
    assert rows == small_rows, "whatever the engine's batch for generating is"
    monkeypatch.setattr("engines.prefill.PREFILL_TOKENS", 90)
    monkeypatch.setattr("engines.hf.HIDDEN_BYTES", 128 * 4 * 100)
    for one, other, third in zip(whole, parts, engine.prefill(pairs), strict=True):
        assert torch.equal(one.logits, other.logits)
        assert torch.allclose(one.logits, third.logits, atol=1e-4)
        assert one.hidden.shape == third.hidden.shape


LOADS = """
import sys
from pathlib import Path
from engines.hf import TransformersEngine
engine = TransformersEngine()
before = set(sys.modules)
engine.load(Path(sys.argv[1]))
print(*{name for name in set(sys.modules) - before if not name.startswith("transformers.")})
"""


def test_the_first_load_imports_little_that_the_engine_had_not(folder: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LOADS, str(folder)], capture_output=True, text=True, check=True)
    later = {name.partition(".")[0] for name in done.stdout.split()}
    assert not later & {"sympy", "pandas", "sklearn"}
    assert len(done.stdout.split()) < 60


Spoil = Callable[[Path], object]


def _changed(change: Callable[[dict[str, torch.Tensor]], object]) -> Spoil:
    return lambda path: change_tensors(path, change)


@pytest.mark.parametrize(
    "spoil",
    [
        Path.unlink,
        lambda path: path.write_bytes(b"\x80\x04"),
        lambda path: path.write_bytes(path.read_bytes()[:-100]),
        _changed(lambda tensors: tensors.pop("model.layers.1.mlp.up_proj.weight")),
        _changed(lambda tensors: tensors.update({"model.norm.weight": torch.ones(64)})),
    ],
)
def test_bad_weights_change_nothing(engine: TransformersEngine, tmp_path: Path, spoil: Spoil) -> None:
    asked = requests(2, seed=6)
    before = engine.generate(asked, SAMPLING)
    bad = tmp_path / "bad"
    shutil.copytree(save_tiny(tmp_path / "other", seed=8), bad)
    spoil(bad / "model.safetensors")
    with pytest.raises(IntegrityError):
        TransformersEngine().load(bad)
    with pytest.raises(IntegrityError):
        engine.load(bad)
    assert engine.generate(asked, SAMPLING) == before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"auto_map": {"AutoModel": "evil.Model"}}, "auto_map"),
        ({"final_logit_softcapping": 30.0}, "softcapping"),
        ({"text_config": {"final_logit_softcapping": 30.0}}, "softcapping"),
        ({"model_type": None}, "model_type"),
        ({"model_type": "no-such-model"}, "not a usable model"),
        ({"hidden_size": 256}, "fit|usable"),
    ],
)
def test_bad_config_is_named(folder: Path, tmp_path: Path, change: dict[str, Any], said: str) -> None:
    bad = tmp_path / "bad"
    shutil.copytree(folder, bad)
    config = json.loads((bad / "config.json").read_text()) | change
    (bad / "config.json").write_text(json.dumps(config))
    with pytest.raises(IntegrityError, match=said):
        load_model(bad, "float32")


def test_logits_changed_after_the_projection_are_refused_whatever_the_setting_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import Gemma2Config, Gemma2ForCausalLM

    small: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "head_dim": 16}
    config = Gemma2Config(vocab_size=50, num_attention_heads=2, num_key_value_heads=1, **small)
    config.final_logit_softcapping = 0.5
    Gemma2ForCausalLM(config).save_pretrained(str(tmp_path / "capped"))  # type: ignore[no-untyped-call]
    monkeypatch.setattr("engines.loading.UNSUPPORTED", ())
    with pytest.raises(IntegrityError, match="changes logits after its output projection"):
        load_model(tmp_path / "capped", "float32")


def test_bad_requests_are_named(engine: TransformersEngine) -> None:
    for request, said in (
        (Request((), (1, 2, 3), 5), "empty prompt"),
        (Request((2,), (1, 2, 3), 0), "no output"),
        (Request((2,) * 250, (1, 2, 3), 10), "positions"),
        (Request((300,), (1, 2, 3), 10), "vocabulary"),
        (Request((-1,), (1, 2, 3), 10), "vocabulary"),
    ):
        with pytest.raises(MusterError, match=said):
            engine.generate([request], SAMPLING)
    for pair in (((2,), ()), ((2,), (300,)), ((2,), (-5,)), ((), (2,)), ((2,), (2,) * 300)):
        with pytest.raises(MusterError):
            list(engine.prefill([pair]))
    assert engine.generate([], SAMPLING) == []
    assert list(engine.prefill([])) == []
    with pytest.raises(MusterError, match="no weights"):
        TransformersEngine().generate([Request((2,), (1, 2, 3), 1)], SAMPLING)
    with pytest.raises(ConfigError, match="dtype"):
        TransformersEngine("float8")


def test_hostile_and_broken_models_are_one_clear_error(folder: Path, tmp_path: Path) -> None:
    """Else whoever owns a pool ends the process of every worker that looks at it."""
    with pytest.raises(IntegrityError, match=r"(not a|no) model folder"):
        load_model(tmp_path / "nowhere", "float32")
    shutil.copy(folder / "config.json", tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04")
    with pytest.raises(IntegrityError, match="no safetensors"):
        load_model(tmp_path, "float32")
    engine = TransformersEngine()
    engine.load(save_broken(tmp_path / "nan", save_tiny(tmp_path / "good")))
    with pytest.raises(MusterError, match=r"not finite|NaN"):
        engine.generate([Request((2,), (1, 2, 3), 3)], SAMPLING)
    save_tiny(tmp_path / "model", vocab=3)
    with pytest.raises(IntegrityError, match="the model cannot be run"):
        load_model(tmp_path / "model", "float32")
