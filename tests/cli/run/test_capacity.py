"""What a machine can serve, by made-up cards and the configurations of known models."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli.diagnose import checks
from cli.hardware import Gpu, gpus, visible
from cli.run.capacity import GIB, ModelShape, capacity, servings
from protocol.errors import ConfigError

SEVEN = {"num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "hidden_size": 3584}
THIRTY_TWO = {
    "num_hidden_layers": 64, "num_attention_heads": 64, "num_key_value_heads": 8, "hidden_size": 5120, "head_dim": 128,
}  # fmt: skip
H100, RTX = Gpu("H100", 80 * GIB, "580", "GPU-aa"), Gpu("RTX 4090", 24 * GIB, "580", "GPU-ab")


def test_memory_is_that_of_the_compute_dtype() -> None:
    stored = 15 * GIB
    half = ModelShape.of(SEVEN, stored, "bfloat16", "bfloat16")
    assert (half.weights, half.position) == (stored, 2 * 28 * 4 * 128 * 2)
    whole = ModelShape.of({"text_config": SEVEN}, stored, "bfloat16", "float32")
    assert (whole.weights, whole.position) == (2 * stored, 2 * half.position)
    for config in ({}, SEVEN | {"num_attention_heads": 0, "num_key_value_heads": 0}, SEVEN | {"hidden_size": None}):
        with pytest.raises(ConfigError, match="does not give its layers and heads"):
            ModelShape.of(config, stored, "bfloat16", "bfloat16")
    with pytest.raises(ConfigError, match="quantised"):
        ModelShape.of(SEVEN | {"quantization_config": {}}, stored, "bfloat16", "bfloat16")


def test_cards_share_weights_and_heads_and_keep_room_to_work() -> None:
    shape = ModelShape.of(THIRTY_TWO, 61 * GIB, "bfloat16", "bfloat16")
    found = {one.cards: one.rows for one in servings(shape, 80 * GIB, 8, 33_000)}
    cache = shape.position * 33_000
    assert cache / GIB == pytest.approx(8.06, abs=0.01)
    assert found == {
        1: int((72 * GIB - 63 * GIB) // cache),
        2: int((72 * GIB - 32.5 * GIB) // (cache / 2)),
        4: int((72 * GIB - 17.25 * GIB) // (cache / 4)),
        8: int((72 * GIB - 9.625 * GIB) // (cache / 8)),
    }
    few_heads = ModelShape(GIB, 1024, 28, 4)
    assert [one.cards for one in servings(few_heads, GIB, 8, 10)] == [1, 2, 4]


def test_what_fits_is_told_in_one_line() -> None:
    shape = ModelShape.of(SEVEN, 15 * GIB, "bfloat16", "bfloat16")
    fits, what = capacity(shape, [RTX], 64 * GIB, 8192)
    assert fits
    assert what.endswith("0.44 GiB for a text of 8192 tokens; 10 such texts at once on 1 card")
    large = ModelShape.of(THIRTY_TWO, 61 * GIB, "bfloat16", "bfloat16")
    fits, what = capacity(large, [RTX], 64 * GIB, 33_000)
    assert (fits, what.endswith("each of 1 cards together needs 79 GiB and has 24 GiB")) == (False, True)
    fits, what = capacity(large, [H100, H100], 64 * GIB, 33_000)
    assert fits
    assert "1 such texts at once on 1 card (of 2: one node each), or 9 such texts at once on 2 cards" in what
    assert capacity(shape, [], 64 * GIB, 1000)[1].endswith("at once in this machine's memory")


def test_the_variable_hides_cards_as_it_does_from_cuda() -> None:
    cards = (H100, RTX)
    assert visible(cards, None) == cards
    assert visible(cards, "1,0") == (RTX, H100)
    assert visible(cards, "GPU-ab") == (RTX,)
    assert visible(cards, "1,7,0") == (RTX,)
    for hidden in ("", "-1", "GPU-a", "none"):
        assert visible(cards, hidden) == ()


def test_cards_are_those_that_the_driver_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text(
        "#!/bin/sh\necho 'NVIDIA H100 80GB HBM3, 81559, 580.65, GPU-aa'\necho 'RTX, 24564, 580.65, GPU-ab'\n"
    )
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [one.memory >> 20 for one in gpus()] == [81559, 24564]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert [one.name for one in gpus()] == ["RTX"]


def test_a_pool_is_judged_by_its_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    shard = SimpleNamespace(key="shards/1", size=1000)
    files = [
        SimpleNamespace(name="config.json", size=10, shards=[shard]),
        SimpleNamespace(name="model.safetensors", size=15 * GIB, shards=[]),
    ]
    work = SimpleNamespace(max_prompt_tokens=192, max_new_tokens=8000)
    config = SimpleNamespace(work=work, model=SimpleNamespace(dtype="bfloat16"))
    document: list[Any] = [json.dumps(SEVEN).encode()]
    monkeypatch.setattr("cli.session.ask_service", lambda *_: SimpleNamespace(config_hash="00" * 32))
    monkeypatch.setattr("cli.pool.document.fetch_pool_config", lambda *_: config)
    monkeypatch.setattr("cli.pool.document.service_objects", lambda *_: _Objects(lambda key, most: document[0]))
    monkeypatch.setattr(checks, "published_manifest", lambda *_: SimpleNamespace(files=files, dtype="bfloat16"))
    for cards, state in (((RTX,), "ok"), ((Gpu("T4", 16 * GIB, "580"),), "failed")):
        monkeypatch.setattr(checks, "gpus", lambda cards=cards: cards)
        found = checks.serving("http://pool")
        assert (found.check, found.state) == ("serves", state), found
    document[0] = b"{"
    assert checks.serving("http://pool").detail == "the pool's model has no config.json that is one"


class _Objects:
    def __init__(self, read: Any) -> None:
        self.read = read

    def __enter__(self) -> Any:
        return self.read

    def __exit__(self, *_: object) -> None:
        pass
