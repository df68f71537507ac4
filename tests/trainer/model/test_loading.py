"""Loading into shards: the library's own weights, in a share of its memory, and what is frozen in half of that."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import save_file

from engines.loading import load_model
from protocol.config import LoraConfig
from protocol.errors import IntegrityError
from tests.trainer.crew import on_ranks
from tests.trainer.helpers import some_groups
from tests.trainer.model.architectures import architecture
from trainer.config import MemoryConfig, ParallelConfig
from trainer.data.batch import micro_batch
from trainer.distributed import Ranks
from trainer.model import policy as policies
from trainer.model.base_model import fresh_model
from trainer.model.loading import empty_model, fill_model
from trainer.model.policy import Policy
from trainer.model.sharding import make_placement, whole
from trainer.reports.bench import peak_bytes, reset_peak

CPU = torch.device("cpu")
WIDE = {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 8}


def placed(ranks: Ranks, folder: Path, dtype: str = "float32", **options: Any) -> Policy:
    return Policy(folder, dtype, make_placement(ParallelConfig(), MemoryConfig(), "cpu", ranks), **options)


def weights(ranks: Ranks, folder: Path) -> dict[str, torch.Tensor]:
    return {name: whole(value.detach()) for name, value in placed(ranks, folder).model.named_parameters()}


@pytest.mark.parametrize("kind", ["qwen2 tied", "qwen3 mixture", "llama untied", "gemma3 windows", "phi bias"])
def test_shards_hold_what_the_library_loads(tmp_path: Path, kind: str) -> None:
    """Also where the file keeps each expert apart, and the model all of them in one tensor."""
    architecture(kind).save_pretrained(tmp_path)
    wanted = dict(load_model(tmp_path, "float32").named_parameters())
    for world in (1, 2):
        found = on_ranks(world, weights, tmp_path)[0]
        assert found.keys() == wanted.keys()
        assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def growth(ranks: Ranks, folder: Path) -> int:
    """By how much the process' memory grew while it read a model's weights for the second time, at the highest."""
    grown = 0
    for _ in range(2):
        model = make_placement(ParallelConfig(), MemoryConfig(), "cpu", ranks).place(empty_model(folder), torch.float32)
        reset_peak(CPU)
        before = peak_bytes(CPU)
        fill_model(model, folder, CPU)
        grown = peak_bytes(CPU) - before
    return grown


def test_a_rank_takes_the_memory_of_its_shards(tmp_path: Path) -> None:
    """A quarter each, and pages of the file that it reads, where a process alone takes 1.5 times the model."""
    model: Any = load_model(fresh_model(tmp_path / "base", 0, **WIDE), "bfloat16")
    model.save_pretrained(tmp_path / "base")
    size = 4 * sum(value.numel() for value in model.parameters())
    assert max(on_ranks(4, growth, tmp_path / "base")) < 0.75 * size


def types(ranks: Ranks, folder: Path) -> tuple[set[torch.dtype], torch.Tensor]:
    """Of frozen matrices in the blocks, beside log-probabilities of a base with additions."""
    policy = placed(ranks, folder, "bfloat16", lora=LoraConfig(rank=2, alpha=8.0))
    frozen = {value.dtype for name, value in policy.model.named_parameters() if name.endswith("proj.weight")}
    group = some_groups(0)[0]
    logp, _ = policy.logprobs(micro_batch(group, range(len(group)), CPU), 1.0)
    logp.sum().backward()  # type: ignore[no-untyped-call]
    grown = [value.grad for name, value in policy.model.named_parameters() if name.endswith("lora_b")]
    assert all(grad is not None and grad.dtype == torch.float32 and whole(grad).abs().max() > 0 for grad in grown)
    return frozen, logp.detach()


@pytest.mark.parametrize("world", [0, 2])
def test_what_is_frozen_takes_half_and_answers_the_same(
    base: Path, monkeypatch: pytest.MonkeyPatch, world: int
) -> None:
    found, logp = on_ranks(world, types, base)[0] if world else types(Ranks(), base)
    assert found == {torch.bfloat16}
    if not world:
        monkeypatch.setattr(policies, "_narrow_frozen", lambda *_: None)
        assert types(Ranks(), base)[0] == {torch.float32}
        assert torch.equal(types(Ranks(), base)[1], logp)


def test_a_folder_that_is_no_model_and_one_with_other_weights_are_refused(base: Path, tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match="not a model folder"):
        Policy(tmp_path)
    whole_model = architecture("llama untied")
    whole_model.save_pretrained(tmp_path)
    weights = whole_model.state_dict()
    for wrong, kind in (({"model.norm.weight": None}, "missing"), ({"more": torch.zeros(2)}, "unexpected")):
        kept = {name: value for name, value in (weights | wrong).items() if value is not None}
        whole_model.config.save_pretrained(tmp_path)
        save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises(IntegrityError, match=f"do not fit their config: {kind}_keys"):
            Policy(tmp_path)


def test_a_family_that_changes_its_logits_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    architecture("llama untied").save_pretrained(tmp_path)
    forward = transformers.LlamaForCausalLM.forward

    def scaled(*arguments: Any, **options: Any) -> Any:
        made = forward(*arguments, **options)
        made.logits = 2 * made.logits
        return made

    monkeypatch.setattr(transformers.LlamaForCausalLM, "forward", scaled)
    with pytest.raises(IntegrityError, match="changes logits after its output projection"):
        Policy(tmp_path)
