"""What a machine can serve, by made-up cards and the configurations of known models."""

import hashlib
import json
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli.diagnose import checks
from cli.hardware import GIB, Gpu, ModelShape, TorchDevices, capacity
from protocol.accounts import Account
from protocol.api.run import PoolAccess
from protocol.errors import ConfigError
from storage.keys import object_key
from storage.weights.manifest import FileDelta, Manifest, Shard, StepDelta, WeightFile, seal
from tests.cli.diagnose.test_views import OWNER
from tests.orchestrator.chain import ScriptedChain
from tests.orchestrator.conftest import Desk
from tests.orchestrator.dashboard.conftest import served
from tests.storage.mirror import mirror, send

SEVEN = {"num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "hidden_size": 3584}
THIRTY_TWO = {
    "num_hidden_layers": 64, "num_attention_heads": 64, "num_key_value_heads": 8, "hidden_size": 5120, "head_dim": 128,
}  # fmt: skip
H100, RTX = Gpu("H100", 80 * GIB), Gpu("RTX 4090", 24 * GIB)


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


@pytest.mark.parametrize(
    ("cards", "rows"),
    [
        (1, (72 - 63) / 8.0566),
        (2, (72 - 32.5) / (8.0566 / 2)),
        (4, (72 - 17.25) / (8.0566 / 4)),
        (8, (72 - 9.625) / (8.0566 / 8)),
    ],
)
def test_cards_share_weights_and_heads_and_keep_room_to_work(cards: int, rows: float) -> None:
    shape = ModelShape.of(THIRTY_TWO, 61 * GIB, "bfloat16", "bfloat16")
    assert shape.position * 33_000 / GIB == pytest.approx(8.0566, abs=1e-4)
    fits, what = capacity(shape, [H100] * cards, 64 * GIB, 33_000)
    assert fits
    assert what.endswith(f"; {int(rows)} such texts at once on {cards} of {cards} cards")


def test_what_fits_is_told_in_one_line() -> None:
    shape = ModelShape.of(SEVEN, 15 * GIB, "bfloat16", "bfloat16")
    fits, what = capacity(shape, [RTX], 64 * GIB, 8192)
    assert (fits, what.endswith("0.44 GiB for a text of 8192 tokens; 10 such texts at once on 1 of 1 cards")) == (
        True,
        True,
    )
    large = ModelShape.of(THIRTY_TWO, 61 * GIB, "bfloat16", "bfloat16")
    fits, what = capacity(large, [RTX], 64 * GIB, 33_000)
    assert (fits, what.endswith("1 of 1 cards need 79 GiB each and have 24 GiB")) == (False, True)
    assert capacity(shape, [], 64 * GIB, 1000)[1].endswith("at once on this machine")
    few_heads = ModelShape(GIB, 1024, 28, 4)
    assert "on 4 of 8 cards" in capacity(few_heads, [H100] * 8, GIB, 10)[1]


def test_a_pool_is_judged_by_its_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    shard = SimpleNamespace(key="shards/1", size=1000)
    files = [
        SimpleNamespace(name="config.json", size=10, shards=[shard]),
        SimpleNamespace(name="model.safetensors", size=15 * GIB, shards=[]),
    ]
    work = SimpleNamespace(max_prompt_tokens=192, max_new_tokens=8000)
    config = SimpleNamespace(work=work, model=SimpleNamespace(dtype="bfloat16"))
    stored: list[Any] = [json.dumps(SEVEN).encode()]
    monkeypatch.setattr(checks, "ask_service", lambda *_: SimpleNamespace(config_hash="00" * 32))
    monkeypatch.setattr(checks, "fetch_pool_config", lambda *_: config)
    monkeypatch.setattr(checks, "service_objects", lambda *_: nullcontext(lambda key, most: stored[0]))
    monkeypatch.setattr(checks, "first_manifest", lambda *_: SimpleNamespace(files=files, dtype="bfloat16"))
    for cards, state in (((RTX,), "ok"), ((Gpu("T4", 16 * GIB),), "failed")):
        monkeypatch.setattr(checks, "torch_devices", lambda cards=cards: TorchDevices(cards))
        found = checks.serving("http://pool")
        assert (found.check, found.state) == ("serves", state), found
    stored[0] = b"{"
    assert checks.serving("http://pool").detail == "the pool's model has no config.json that is one"


def test_a_newest_step_of_deltas_alone_is_served_like_the_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By a real service, in whose bucket are the pool's configuration and the first step's files alone."""
    shape = json.dumps(SEVEN).encode()
    name = hashlib.sha256(shape).hexdigest()
    stored, missing = Shard(sha256=name, size=len(shape)), Shard(sha256="ab" * 32, size=9)
    chain = ScriptedChain()
    chain.create()
    desk = Desk(tmp_path, chain)
    config, objects = desk.service.config, desk.bucket.objects
    objects |= {object_key("configs", config.digest): config.canonical(), stored.key: shape}
    delta = StepDelta(
        step=0, parent="cd" * 32, files=(FileDelta(name="config.json", index="ef" * 32, shards=(missing,)),)
    )
    for step, shard in enumerate((stored, missing)):
        file = WeightFile(name="config.json", size=shard.size, sha256=shard.sha256, shards=(shard,))
        manifest = Manifest(
            chain_id=1, pools=OWNER, pool=1, step=step, parent="cd" * 32 if step else "", dtype="bfloat16",
            files=(file,), snapshot=not step, deltas=(delta,) * step,
        )  # fmt: skip
        objects[object_key("manifests", manifest.digest)] = seal(manifest, Account.from_key(b"\x07" * 32))
        published = {"manifestHash": manifest.digest, "canaryRoot": bytes(32)}
        chain.emit("Pools", "StepPublished", pool=1, step=step, seedBlock=chain.head, **published)
    desk.follow()
    digest = config.digest.hex()
    desk.service.access = PoolAccess(pool=1, rpc=["http://rpc"], config_hash=digest, deployment="{}")
    monkeypatch.setattr(checks, "torch_devices", lambda: TorchDevices((RTX,)))

    def serve(handler: BaseHTTPRequestHandler) -> None:
        found = objects.get(handler.path.partition("?")[0].removeprefix("/pool/"))
        send(handler, *((200, found) if found is not None else (404,)))

    with mirror(serve) as storage, served(desk.app) as url:
        desk.bucket.settings = desk.bucket.settings.model_copy(update={"endpoint": storage})
        found = [checks.serving(url), *checks.service_checks(url)]
        assert [(check.check, check.state) for check in found] == [("serves", "ok"), ("service", "ok")], found
        del objects[stored.key]
        assert checks.serving(url).state == "failed"
    assert checks.keystore(tmp_path / "none.json").state == "note"
