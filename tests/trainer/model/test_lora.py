"""LoRA: what is trained, what is published, and how little a checkpoint holds."""

from pathlib import Path

import torch

from engines.loading import load_model
from protocol.config import AdamWConfig, LoraConfig, OptimizerConfig, ScheduleConfig, TrainConfig
from tests.trainer.crew import on_ranks
from tests.trainer.helpers import largest_difference, learner_of, some_groups
from trainer.checkpoint import checkpoint_path
from trainer.distributed import Ranks
from trainer.model.sharding import whole

LORA = LoraConfig(rank=2, alpha=8.0)
FAST = OptimizerConfig(method=AdamWConfig(learning_rate=1e-2), schedule=ScheduleConfig(warmup_updates=0))
PROJECTIONS = 7
LORA_CONFIG = TrainConfig(lora=LORA, optimizer=FAST)


def train(ranks: Ranks, base: Path, folder: Path) -> dict[str, torch.Tensor]:
    """The weights and additions after three steps, the last one after a resume; exported to `folder`/policy."""
    learner = learner_of(base, ranks, LORA_CONFIG)
    for number in range(2):
        learner.train_step(some_groups(number))
    learner.start_checkpoint(checkpoint_path(folder, 2)).wait()
    learner = learner_of(base, ranks, LORA_CONFIG)
    learner.load_checkpoint(checkpoint_path(folder, 2))
    learner.train_step(some_groups(2))
    learner.policy.export(folder / "policy")
    return {name: whole(value.detach()).clone() for name, value in learner.policy.model.named_parameters()}


def test_training_begins_at_the_model(base: Path) -> None:
    tokens = torch.arange(12)[None]
    plain = load_model(base, "float32").model(input_ids=tokens).last_hidden_state
    model = learner_of(base, None, LORA_CONFIG).policy.model
    assert torch.equal(model.model(input_ids=tokens).last_hidden_state, plain)


def test_only_the_additions_are_trained_and_published_weights_contain_them(base: Path, tmp_path: Path) -> None:
    before = dict(load_model(base, "float32").named_parameters())
    after = train(Ranks(), base, tmp_path)
    additions = {name for name in after if ".lora_" in name}
    assert len(additions) == 2 * PROJECTIONS
    assert all(float(after[name].abs().max()) > 0 for name in additions)
    assert all(torch.equal(after[name], before[name]) for name in after.keys() - additions)
    published = load_model(tmp_path / "policy", "float32")
    name = "model.layers.0.mlp.up_proj"
    wanted = after[f"{name}.weight"] + LORA.alpha / LORA.rank * after[f"{name}.lora_b"] @ after[f"{name}.lora_a"]
    assert torch.equal(dict(published.named_parameters())[f"{name}.weight"], wanted)
    assert not torch.equal(wanted, after[f"{name}.weight"])
    assert {key for key in published.state_dict() if "lora" in key} == set()


def test_two_ranks_make_what_one_process_makes(base: Path, tmp_path: Path) -> None:
    alone = train(Ranks(), base, tmp_path / "alone")
    together = on_ranks(2, train, base, tmp_path / "together")[0]
    assert largest_difference(alone, together) < 1e-5
    one, other = (load_model(tmp_path / name / "policy", "float32").state_dict() for name in ("alone", "together"))
    assert largest_difference(one, other) < 1e-5


def test_a_checkpoint_holds_what_is_trained_and_not_the_model(base: Path, tmp_path: Path) -> None:
    sizes = []
    for name, config in (("lora", LORA_CONFIG), ("full", TrainConfig())):
        folder = checkpoint_path(tmp_path / name, 0)
        learner_of(base, None, config).start_checkpoint(folder).wait()
        sizes.append((folder / "__0_0.distcp").stat().st_size)
    assert sizes[0] < 0.9 * sizes[1]
    names = (checkpoint_path(tmp_path / "lora", 0) / ".metadata").read_bytes()
    assert b"q_proj.lora_a" in names
    assert b"q_proj.weight" not in names
