"""The network that benchmarks/joiner.py joins: chain, S3 server and service, and a pool with a history of policy steps.

No trainer runs: the steps are published by its own code, from a random model in which one weight of a hundred moves by
an ulp at each step, as at a small learning rate.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from localnet.background import SEATS
from localnet.demo import Demo
from localnet.plan import DEMO_ENVIRONMENT, POOL, DemoPlan, NodeSpec, ValidatorSpec, training
from localnet.ports import claim_port
from protocol.config import ModelConfig, PoolConfig, WeightsConfig, WorkConfig
from protocol.identity import PoolId
from protocol.models import save_byte_tokenizer
from storage.s3 import Bucket
from storage.weights.manifest import ManifestScope
from storage.weights.publish import send
from trainer.publish import StepEncoder
from trainer.tiny_model import END_OF_THOUGHT, PHRASES, START_OF_THOUGHT

SHAPES: dict[int, dict[str, int]] = {
    1: {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 1024},
    269: {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
          "num_key_value_heads": 3, "vocab_size": 49_152},
    988: {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
          "num_key_value_heads": 2, "vocab_size": 151_936},
}  # fmt: skip
"""By megabytes in bf16: about a tiny one, SmolLM2-135M's, Qwen2.5-0.5B's."""
MOVED = 0.01
FILES_PER_STEP = 256
"""Far more than are made: nobody trains on them, and a pool that has as many as it can use gives no more slots."""


def config_of(rows: int) -> PoolConfig:
    """A pool whose files have `rows` short rollouts."""
    model = ModelConfig(
        source="random", dtype="bfloat16", prompt_template="{question}" + START_OF_THOUGHT, answer_after=END_OF_THOUGHT
    )
    return PoolConfig(
        name="joiner",
        model=model,
        environments=(DEMO_ENVIRONMENT,),
        work=WorkConfig(problems_per_file=rows // 8, samples_per_problem=8, max_new_tokens=16, max_prompt_tokens=96),
        train=training(5000).model_copy(update={"files_per_step": FILES_PER_STEP}),
        weights=WeightsConfig(delta_min_bytes=0),
    )


class JoinerNetwork(Demo):
    """Up to the service. `joiners`: (node's name, engine)."""

    def __init__(self, root: Path, size: int, joiners: list[tuple[str, str]]) -> None:
        plan = DemoPlan(
            root=root,
            seed=7,
            steps=5000,
            chain_port=claim_port("chain", 0),
            s3_port=claim_port("s3", 0),
            http_port=claim_port("http", 0),
            nodes=tuple(NodeSpec(name, engine) for name, engine in joiners),
            validators=(ValidatorSpec("xena", SEATS),),
            absentee="",
            dtype="bfloat16",
            patience=4,
        )
        super().__init__(plan, config_of(8 if size == 1 else 16))
        self._size, self._digests = size, list[bytes]()

    def start_nodes(self) -> None:
        """They come when they are measured; nobody judges."""

    def up(self) -> None:
        self.start_services()
        self.open_pool()
        owner = self.ring["owner"].account
        pools = self.onboarding.suite("owner").pools
        self._bucket = Bucket(self.network.s3_settings())
        scope = ManifestScope(PoolId(self.plan.chain_id, pools.address, POOL), str(owner.address))
        folder = self.plan.root / "policies"
        self._encoder = StepEncoder(self._bucket.get, scope, "bfloat16", self.config.weights, folder)

    def publish(self, steps: int, progress: Callable[[str], None]) -> None:
        """So many further policy steps."""
        for step in range(len(self._digests), len(self._digests) + steps):
            folder = self._encoder.folder(step)
            if step:
                shutil.copytree(self._encoder.folder(step - 1), folder)
                move(folder / "model.safetensors", step)
            else:
                save_random(folder, SHAPES[self._size])
            prepared = self._encoder.prepared(step, self._digests)
            send(folder, prepared, self._bucket, self.ring["owner"].account)
            self._digests.append(prepared.manifest.digest)
            self.onboarding.suite("owner").pools.ensure_step(POOL, step, self._digests[-1])
            needed = self._encoder.needed(step)
            for old in (one for one in folder.parent.iterdir() if one not in needed):
                shutil.rmtree(old)
            sizes = {delta.step: sum(file.size for file in delta.files) for delta in prepared.manifest.deltas}
            progress(f"step {step} is published, deltas {sizes}")
            self.network.check()

    @property
    def newest(self) -> Path:
        return self._encoder.folder(len(self._digests) - 1)

    def worker_config(self, name: str, engine: str, home: str) -> Path:
        """A worker's configuration file, as the demo writes it."""
        values: dict[str, Any] = self.network._client_settings(POOL, home)
        values |= {"node": self.ring[f"node-{name}"].reference(), "isolation": "none", "allow_private_sources": True}
        values["engine"] = {"name": engine, "dtype": "bfloat16", "threads": 1, "batch": 16}
        return self.plan.write_config(home, values)

    def down(self) -> None:
        self.network.supervisor.stop()


def save_random(folder: Path, shape: dict[str, int]) -> None:
    """A random model of this shape, with a tokenizer of bytes."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    folder.mkdir(parents=True)
    size = save_byte_tokenizer(folder, PHRASES)
    torch.manual_seed(7)
    config = Qwen2Config(**shape, tie_word_embeddings=True, eos_token_id=size - 2, pad_token_id=size - 1)  # type: ignore[arg-type]
    model: Any = Qwen2ForCausalLM(config)  # type: ignore[no-untyped-call]
    model.to(torch.bfloat16).save_pretrained(folder)


def move(path: Path, seed: int) -> None:
    """Move MOVED of the bf16 weights of a safetensors file by an ulp."""
    head = int.from_bytes(path.read_bytes()[:8], "little")
    data = np.memmap(path, dtype=np.uint16, mode="r+", offset=8 + head)
    places = np.random.default_rng(seed).integers(0, len(data), int(len(data) * MOVED))
    data[np.unique(places)] ^= 1
    data.flush()
