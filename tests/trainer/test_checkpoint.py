"""Checkpoints: complete or absent, whatever happens to disks and ranks, and readable by any number of ranks."""

import json
import resource
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from protocol.errors import ConfigError, IntegrityError, MusterError
from tests.trainer.crew import on_ranks
from tests.trainer.helpers import learner_of
from trainer.checkpoint import checkpoint_path, checkpoints
from trainer.distributed import Ranks
from trainer.learner import Learner
from trainer.model.sharding import whole


def drift(learner: Learner) -> None:
    """One optimizer step on made-up gradients that do not depend on the number of ranks."""
    for parameter in learner.policy.model.parameters():
        parameter.grad = torch.sin(3 * parameter.detach()).to(parameter.dtype)
    for optimizer in learner.optimizers:
        optimizer.step()
        optimizer.zero_grad()
    learner.step += 1


def state_of(learner: Learner) -> list[torch.Tensor]:
    """Weights and moments, whole."""
    parameters = list(learner.policy.model.parameters())
    (adamw,) = learner.optimizers
    moments = [adamw.state[one][name] for one in parameters for name in ("exp_avg", "exp_avg_sq")]
    return [whole(value.detach()).clone() for value in (*parameters, *moments)]


def resume(ranks: Ranks, base: Path, folder: Path) -> tuple[Any, int, list[torch.Tensor]]:
    learner = learner_of(base, ranks)
    return learner.load_checkpoint(folder), learner.step, state_of(learner)


def lose_a_disk(ranks: Ranks, base: Path, home: Path) -> tuple[str, list[str]]:
    """The last rank may write no more than a kilobyte to a file, and then may again."""
    learner = learner_of(base, ranks)
    drift(learner)
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    if ranks.rank == ranks.world - 1:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, unlimited[1]))
    with pytest.raises(MusterError) as caught:
        learner.start_checkpoint(checkpoint_path(home, 1)).wait()
    ranks.barrier()
    left = [path.name for path in home.iterdir()]
    resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    learner.start_checkpoint(checkpoint_path(home, 1)).wait()
    return str(caught.value), left


@pytest.mark.parametrize("world", [1, 2])
def test_a_full_disk_of_any_rank_leaves_nothing_behind_and_the_next_try_succeeds(
    base: Path, tmp_path: Path, world: int
) -> None:
    answers = on_ranks(world, lose_a_disk, base, tmp_path)
    assert all(left == [] for _, left in answers)
    assert all(message.startswith(f"cannot write the checkpoint {tmp_path}/step-000001:") for message, _ in answers)
    assert any("File too large" in message for message, _ in answers)
    assert [path.name for path in checkpoints(tmp_path)] == ["step-000001"]


def test_a_checkpoint_is_of_the_moment_it_was_started_at(base: Path, tmp_path: Path) -> None:
    learner = learner_of(base)
    drift(learner)
    before = state_of(learner)
    pending = learner.start_checkpoint(checkpoint_path(tmp_path, 1))
    drift(learner)
    pending.wait()
    _, _, found = resume(Ranks(), base, checkpoint_path(tmp_path, 1))
    assert all(torch.equal(left, right) for left, right in zip(before, found, strict=True))


def test_another_versions_checkpoint_is_refused_and_not_called_damaged(base: Path, tmp_path: Path) -> None:
    folder = checkpoint_path(tmp_path, 1)
    folder.mkdir()
    (folder / "state.json").write_text(json.dumps({"state": {"version": 1, "step": 1}, "sha256": ""}))
    with pytest.raises(ConfigError, match="has format 1, this muster reads 2; finish the run with the muster that"):
        learner_of(base).load_checkpoint(folder)


@pytest.mark.parametrize("name", ["__0_0.distcp", ".metadata", "state.json"])
@pytest.mark.parametrize("damage", ["flip", "remove"])
def test_a_damaged_checkpoint_is_refused_in_one_line(base: Path, tmp_path: Path, name: str, damage: str) -> None:
    folder = checkpoint_path(tmp_path, 1)
    learner_of(base).start_checkpoint(folder).wait()
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / name).write_bytes(data)
    if damage == "remove":
        (folder / name).unlink()
    said = "" if name == "state.json" else "its files differ from their recorded hashes"
    with pytest.raises(IntegrityError, match=f"damaged: {said}"):
        learner_of(base).load_checkpoint(folder)


def test_unfinished_checkpoints_do_not_count(base: Path, tmp_path: Path) -> None:
    learner = learner_of(base)
    for step in (2, 1):
        learner.start_checkpoint(checkpoint_path(tmp_path, step)).wait()
    (tmp_path / "step-000003").mkdir()
    (tmp_path / ".step-000004.abc").mkdir()
    assert [path.name for path in checkpoints(tmp_path)] == ["step-000001", "step-000002"]
