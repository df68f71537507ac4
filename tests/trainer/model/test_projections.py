"""LoRA: what is trained, what is published, and how little a checkpoint holds."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from engines.loading import load_model, set_threads
from protocol.config import AdamWConfig, LoraConfig, OptimizerConfig, ScheduleConfig, TrainConfig
from protocol.errors import ConfigError
from tests.trainer.crew import on_ranks
from tests.trainer.helpers import small_model, some_groups
from tests.trainer.model.architectures import architecture
from trainer.checkpoint import checkpoint_path
from trainer.config import MemoryConfig, ParallelConfig
from trainer.distributed import Ranks
from trainer.learner import Learner
from trainer.model import policy as policies
from trainer.model.policy import Policy
from trainer.model.projections import (
    GRADIENTS,
    VALUES,
    Float8Linear,
    _rounded,
    _transposed,
    check_float8,
    install_float8,
)
from trainer.model.sharding import Placement, make_placement, whole
from trainer.sft import Example, SftLearner

LORA = LoraConfig(rank=2, alpha=8.0)
FAST = OptimizerConfig(method=AdamWConfig(learning_rate=1e-2), schedule=ScheduleConfig(warmup_updates=0))
PROJECTIONS = 7


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    set_threads(1)
    return small_model(tmp_path_factory.mktemp("model") / "base")


def learner_of(base: Path, ranks: Ranks | None = None) -> Learner:
    placement = make_placement(ParallelConfig(), MemoryConfig(), "cpu", ranks or Ranks())
    return Learner(base, TrainConfig(lora=LORA, optimizer=FAST), 1.0, placement=placement)


def train(ranks: Ranks, base: Path, folder: Path) -> dict[str, torch.Tensor]:
    """The additions after three steps, the last one after a resume; exported to `folder`/policy."""
    learner = learner_of(base, ranks)
    for number in range(2):
        learner.train_step(some_groups(number))
    learner.start_checkpoint(checkpoint_path(folder, 2)).wait()
    learner = learner_of(base, ranks)
    learner.load_checkpoint(checkpoint_path(folder, 2))
    learner.train_step(some_groups(2))
    learner.policy.export(folder / "policy")
    return {name: whole(value.detach()).clone() for name, value in learner.policy.model.named_parameters()}


def test_training_begins_at_the_model(base: Path) -> None:
    tokens = torch.arange(12)[None]
    plain = load_model(base, "float32").model(input_ids=tokens).last_hidden_state
    assert torch.equal(learner_of(base).policy.model.model(input_ids=tokens).last_hidden_state, plain)


def test_only_the_additions_are_trained(base: Path, tmp_path: Path) -> None:
    before = dict(load_model(base, "float32").named_parameters())
    after = train(Ranks(), base, tmp_path)
    additions = {name for name in after if ".lora_" in name}
    assert len(additions) == 2 * PROJECTIONS
    assert all(float(after[name].abs().max()) > 0 for name in additions)
    assert all(torch.equal(after[name], before[name]) for name in after.keys() - additions)


def test_published_weights_contain_the_additions_and_need_no_lora(base: Path, tmp_path: Path) -> None:
    after = train(Ranks(), base, tmp_path)
    published = load_model(tmp_path / "policy", "float32")
    name = "model.layers.0.mlp.up_proj"
    wanted = after[f"{name}.weight"] + LORA.alpha / LORA.rank * after[f"{name}.lora_b"] @ after[f"{name}.lora_a"]
    assert torch.equal(dict(published.named_parameters())[f"{name}.weight"], wanted)
    assert not torch.equal(wanted, after[f"{name}.weight"])
    assert {key for key in published.state_dict() if "lora" in key} == set()


def test_two_ranks_make_what_one_process_makes(base: Path, tmp_path: Path) -> None:
    alone = train(Ranks(), base, tmp_path / "alone")
    together = on_ranks(2, train, base, tmp_path / "together")[0]
    assert alone.keys() == together.keys()
    assert max(float((alone[name] - together[name]).abs().max()) for name in alone) < 1e-5
    one, other = (load_model(tmp_path / name / "policy", "float32").state_dict() for name in ("alone", "together"))
    assert max(float((one[name] - other[name]).abs().max()) for name in one) < 1e-5


def test_a_checkpoint_holds_what_is_trained_and_not_the_model(base: Path, tmp_path: Path) -> None:
    lora, full = learner_of(base), Learner(base, TrainConfig(), 1.0)
    sizes = []
    for name, learner in (("lora", lora), ("full", full)):
        folder = checkpoint_path(tmp_path / name, 0)
        learner.start_checkpoint(folder).wait()
        sizes.append((folder / "__0_0.distcp").stat().st_size)
    assert sizes[0] < 0.9 * sizes[1]
    names = (checkpoint_path(tmp_path / "lora", 0) / ".metadata").read_bytes()
    assert b"q_proj.lora_a" in names
    assert b"q_proj.weight" not in names


CPU, CUDA = torch.device("cpu"), torch.device("cuda")
FLOAT8 = MemoryConfig(float8=True)
RATES = OptimizerConfig(method=AdamWConfig(learning_rate=1e-2), schedule=ScheduleConfig(warmup_updates=0))
FLOAT8_PROJECTIONS = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
on_cpu_and_gpu = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])


@pytest.fixture(scope="module")
def float8_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    set_threads(1)
    return small_model(tmp_path_factory.mktemp("model") / "base")


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the device: torch's kernels for the CPU are too slow to train by, and good enough to test by."""
    monkeypatch.setattr(policies, "check_float8", lambda *_: None)


def both(device: str, values: Tensor, weight: Tensor, gradient: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Product, and gradients by values and weight: in 8 bits, and in float64."""
    rows, columns = weight.shape
    layer = nn.Linear(columns, rows, bias=False, device=device)
    layer.weight.data.copy_(weight)
    narrow = Float8Linear(layer)
    given = values.to(device, copy=True).requires_grad_()
    out = narrow(given)
    found = [out, *torch.autograd.grad(out, [given, narrow.weight], gradient.to(device))]
    exact = [values.double() @ weight.double().T, gradient.double() @ weight.double()]
    return [one.detach().cpu() for one in found], [*exact, gradient.double().T @ values.double()]


def of_format(kind: torch.dtype, *shape: int) -> Tensor:
    """Numbers that 8 bits hold, of which sums of products fit into float32, and the largest of them."""
    largest = torch.finfo(kind).max
    found = torch.randint(-3, 4, shape) * 2.0 ** math.floor(math.log2(largest) - 2)
    found.view(-1)[0] = largest
    return found


@on_cpu_and_gpu
@pytest.mark.parametrize("tokens", [1, 5, 16, 37])
def test_what_8_bits_hold_is_multiplied_exactly(device: str, tokens: int) -> None:
    torch.manual_seed(tokens)
    found, exact = both(
        device, of_format(VALUES, tokens, 48), of_format(VALUES, 32, 48), of_format(GRADIENTS, tokens, 32)
    )
    for one, other in zip(found, exact, strict=True):
        assert torch.equal(one.double(), other)


@on_cpu_and_gpu
@pytest.mark.parametrize("scale", [1.0, 1e-12, 1e12])
def test_other_numbers_within_the_formats_error_at_any_scale(device: str, scale: float) -> None:
    """Rounding leaves an error of 2.6% of a normal number in e4m3 and 5.2% in e5m2, in root mean square."""
    torch.manual_seed(0)
    values, weight, gradient = torch.randn(200, 64) * scale, torch.randn(96, 64) / 8, torch.randn(200, 96) / scale
    found, exact = both(device, values, weight, gradient)
    errors = [float((one - other).norm() / other.norm()) for one, other in zip(found, exact, strict=True)]
    assert errors == pytest.approx([0.037, 0.058, 0.058], abs=0.006)


def test_what_is_summed_over_is_padded_with_zeros() -> None:
    """To lengths that a GPU's kernels have; those of the CPU have all, and take matrices in any order."""
    for rows, padded in ((1, 16), (16, 16), (17, 32)):
        matrix = of_format(VALUES, rows, 3)
        found = _transposed(matrix.to(VALUES))
        assert found.is_contiguous()
        assert found.shape == (3, padded)
        assert torch.equal(found.float(), nn.functional.pad(matrix.T, (0, padded - rows)))
    for turned in (torch.randn(3, 5).T, torch.ones(1, 1).expand(5, 3)):
        assert _rounded(turned, GRADIENTS)[0].is_contiguous()


def test_what_is_not_finite_is_not_hidden() -> None:
    layer = Float8Linear(nn.Linear(16, 16))
    for bad in (float("nan"), float("inf")):
        values = torch.ones(3, 16)
        values[1, 4] = bad
        assert layer(values).isnan().all()
    assert torch.equal(layer(torch.zeros(3, 16)), layer.bias.expand(3, 16)), "nothing but zeros has a scale, too"


def test_a_layer_is_the_one_whose_place_it_takes() -> None:
    """Bias, autocast's dtype, shapes with any number of axes, none of the tokens."""
    old = nn.Linear(32, 16)
    layer = Float8Linear(old)
    assert layer.weight is old.weight
    assert layer.bias is old.bias
    values = torch.randn(2, 3, 32)
    assert torch.allclose(layer(values), old(values), atol=0.1)
    assert not torch.equal(layer(values), old(values))
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(values).dtype == torch.bfloat16
    assert layer(values[:0]).shape == (0, 3, 16)


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        ("llama untied", FLOAT8_PROJECTIONS),
        ("qwen2 tied", FLOAT8_PROJECTIONS),
        ("phi bias", {"q_proj", "k_proj", "v_proj", "dense", "fc1", "fc2"}),
        ("qwen3 mixture", {"q_proj", "k_proj", "v_proj", "o_proj"}),
    ],
)
def test_the_blocks_projections_change_and_nothing_else(kind: str, changed: set[str]) -> None:
    model = architecture(kind)
    names = list(model.state_dict())
    install_float8(model)
    found = [name for name, one in model.named_modules() if isinstance(one, Float8Linear)]
    assert {name.rsplit(".", 1)[1] for name in found} == changed
    assert len(found) == 2 * len(changed), "of both layers"
    assert list(model.state_dict()) == names


def test_widths_that_the_kernels_lack_are_left_alone() -> None:
    model = architecture("llama untied")
    model.model.layers[0].mlp.up_proj = nn.Linear(32, 40)
    install_float8(model)
    assert not isinstance(model.model.layers[0].mlp.up_proj, Float8Linear)
    assert isinstance(model.model.layers[1].mlp.up_proj, Float8Linear)
    with pytest.raises(ConfigError, match="multiples of 16"):
        install_float8(model)


def test_who_has_no_such_products_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    def refused(match: str, dtype: str = "bfloat16", lora: LoraConfig | None = None) -> None:
        with pytest.raises(ConfigError, match=match) as caught:
            Policy(tmp_path / "nothing", dtype, Placement(memory=FLOAT8), lora=lora)
        assert "leave it out" in str(caught.value)

    refused("device cpu has no products in 8 bits")
    refused("compute in bfloat16, not float32", dtype="float32")
    refused("do not go together", lora=LoraConfig())


def test_an_older_gpu_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA A100")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    with pytest.raises(ConfigError, match=r"NVIDIA A100 \(compute capability 8.0\)"):
        check_float8(CUDA, torch.bfloat16)
    for able in ((8, 9), (9, 0), (12, 0)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _, able=able: able)
        check_float8(CUDA, torch.bfloat16)
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(ConfigError, match="no products in 8 bits"):
        check_float8(CUDA, torch.bfloat16)


def examples(seed: int) -> list[Example]:
    """Sixteen times a letter and the next ones, from one of two."""
    found = []
    for number in range(16):
        letters = tuple(97 + (seed + number + at) % 2 for at in range(24))
        found.append(Example(letters, (False, *(True for _ in letters[1:]))))
    return found


def losses(policy: Policy, updates: int = 12) -> list[float]:
    learner = SftLearner(policy, RATES, 100, max_z_loss=1e-4)
    return [learner.update(examples(number)).loss for number in range(updates)]


def trained(ranks: Ranks, float8_base: Path, float8: bool) -> Any:
    """Losses, and whether it multiplies in 8 bits; each rank is a process on a CPU."""
    memory = MemoryConfig(float8=float8, checkpoint_activations=True, row_tokens=100)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(policies, "check_float8", lambda *_: None)
        policy = Policy(float8_base, "bfloat16", make_placement(ParallelConfig(), memory, "cpu", ranks))
    return losses(policy), any(isinstance(one, Float8Linear) for one in policy.model.modules())


@pytest.mark.usefixtures("unchecked")
def test_it_learns_as_in_bfloat16_and_keeps_float32_weights(float8_base: Path, tmp_path: Path) -> None:
    narrow = Policy(float8_base, "bfloat16", Placement(memory=FLOAT8))
    found, wide = losses(narrow), losses(Policy(float8_base, "bfloat16"))
    assert found[-1] < 0.5 * found[0]
    assert found == pytest.approx(wide, rel=0.05)
    assert found != wide
    assert {one.dtype for one in narrow.model.parameters()} == {torch.float32}
    narrow.export(tmp_path / "policy")
    published = load_model(tmp_path / "policy", "float32").state_dict()
    for name, value in narrow.model.state_dict().items():
        assert torch.equal(published[name], value.bfloat16().float()), "what is published is rounded once, to bfloat16"


@pytest.mark.usefixtures("unchecked")
def test_one_policy_says_the_same_frozen_and_in_training(float8_base: Path) -> None:
    """So a penalty on leaving the base model begins at zero."""
    own, reference = (
        Policy(float8_base, "bfloat16", Placement(memory=FLOAT8), frozen=frozen) for frozen in (False, True)
    )
    assert SftLearner(own, RATES, 1).loss(examples(0)) == SftLearner(reference, RATES, 1).loss(examples(0))


def test_two_ranks_learn_as_one(float8_base: Path) -> None:
    alone = on_ranks(1, trained, float8_base, True)[0]
    first, second = on_ranks(2, trained, float8_base, True)
    assert alone[1]
    assert first == second
    assert first[0] == pytest.approx(alone[0], rel=0.05)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_compiled_blocks_learn_as_plain_ones(float8_base: Path) -> None:
    plain, compiled = (MemoryConfig(float8=True, compile=one) for one in (False, True))
    wanted = losses(Policy(float8_base, "bfloat16", Placement(memory=plain)), 4)
    assert losses(Policy(float8_base, "bfloat16", Placement(memory=compiled)), 4) == pytest.approx(wanted, rel=1e-2)


@pytest.mark.gpu
def test_a_gpu_learns_as_a_cpu(float8_base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = losses(Policy(float8_base, "bfloat16", Placement(device="cuda", memory=FLOAT8)))
    monkeypatch.setattr(policies, "check_float8", lambda *_: None)
    assert here == pytest.approx(losses(Policy(float8_base, "bfloat16", Placement(memory=FLOAT8))), rel=0.05)


def test_it_is_what_torchao_computes() -> None:
    """Its tensorwise recipe, emulated: make peers."""
    float8 = pytest.importorskip("torchao.float8")
    torch.manual_seed(0)
    values, weight, gradient = torch.randn(32, 64), torch.randn(96, 64), torch.randn(32, 96)
    found, _ = both("cpu", values, weight, gradient)
    layer = nn.Linear(64, 96, bias=False)
    layer.weight.data.copy_(weight)
    peer: nn.Module = nn.Sequential(layer)
    float8.convert_to_float8_training(peer, config=float8.Float8LinearConfig(emulate=True))
    given = values.clone().requires_grad_()
    out = peer(given)
    theirs = [out.detach(), *torch.autograd.grad(out, [given, layer.weight], gradient)]
    for one, other in zip(found, theirs, strict=True):
        assert float((one - other).norm() / other.norm()) < 1e-6
