"""A real model through the network: what is kept, what goes on, and how the model folder comes out of its package."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import demo.real as real
from demo.plan import DemoPlan
from demo.pool import pool_terms
from demo.real_model import unpermuted
from demo.real_pool import real_config, real_plan
from protocol.config import BF16_CHECKS, PoolConfig
from protocol.tasks import load_task
from protocol.tasks.prompts import completion_text

CONFIG = real_config("a model", 1, 24, BF16_CHECKS)


class Letters:
    """A tokenizer of letters."""

    def __len__(self) -> int:
        return 256

    def decode(self, token_ids: list[int], **_: object) -> str:
        return "".join(map(chr, token_ids))


@pytest.mark.parametrize(
    ("said", "right"),
    [
        ("{0} + {1} = {2}", True),
        ("{0} + {1} = {2}.", True),
        ("{2}", False),
        ("{0} + {1} = 1{2}{2}", False),
        ("{0} + {1} = {2} or perhaps 7", False),
    ],
)
def test_a_sum_counts_when_its_right_side_is_the_number_and_hardly_more(said: str, right: bool) -> None:
    task = load_task(CONFIG.task)
    problem = task.problem(11)
    one, other = problem.question.removeprefix("Calculate ").removesuffix(".").split(" + ")
    tokens = [ord(letter) for letter in said.format(one, other, int(one) + int(other))]
    answer = completion_text(Letters(), tokens, (0,), CONFIG.model.answer_after)  # type: ignore[arg-type]
    assert task.score(problem, answer) == float(right)


def test_the_plan_computes_in_bf16_and_gives_the_larger_model_time() -> None:
    plan = real_plan(Path("x"), 1, 24, (1, 2, 3))
    assert (plan.dtype, CONFIG.model.dtype) == ("bfloat16", "bfloat16")
    assert {node.name for node in plan.nodes if node.cheats} == {"mallory"}
    slow, quick = pool_terms(CONFIG, plan.patience), pool_terms(CONFIG)
    assert slow.commitWindow == plan.patience * quick.commitWindow
    assert slow.maxLag == quick.maxLag


def test_rows_of_queries_come_back_from_llama_cpps_order() -> None:
    heads, size = 3, 8
    rows = np.arange(heads * size * 5).reshape(heads * size, 5)
    # As llama.cpp's converter writes them.
    theirs = rows.reshape(heads, 2, size // 2, 5).swapaxes(1, 2).reshape(rows.shape)
    assert not np.array_equal(theirs, rows)
    assert np.array_equal(unpermuted(theirs, heads), rows)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Folders whose run was started; a run leaves a summary."""
    started: list[Path] = []

    class StartedRun:
        def __init__(self, plan: DemoPlan, config: PoolConfig, base: Path) -> None:
            self.plan = plan

        def run(self) -> None:
            started.append(self.plan.root)
            (self.plan.root / "summary.json").write_text(json.dumps({"reward_first": 0.25, "reward_last": 0.65}))

    monkeypatch.setattr(real, "RealDemo", StartedRun)
    return started


def seed(root: Path) -> dict[str, Any]:
    return real.run_seed(root, 1, 24, root, BF16_CHECKS)


def test_a_finished_seed_is_not_run_again(tmp_path: Path, runs: list[Path]) -> None:
    assert seed(tmp_path / "seed-1") == seed(tmp_path / "seed-1")
    assert runs == [tmp_path / "seed-1"]


def test_an_interrupted_run_keeps_its_folder_and_ports_once_there_is_a_pool(tmp_path: Path, runs: list[Path]) -> None:
    root = tmp_path / "seed-1"
    seed(root)
    ports = (root / "ports.json").read_text()
    (root / "summary.json").unlink()
    (root / "opened").touch()
    seed(root)
    assert (root / "ports.json").read_text() == ports
    assert (root / "opened").exists()


def test_a_run_interrupted_before_its_pool_starts_afresh(tmp_path: Path, runs: list[Path]) -> None:
    root = tmp_path / "seed-1"
    (root / "homes").mkdir(parents=True)
    seed(root)
    assert not (root / "homes").exists()


def test_every_seed_has_to_rise_and_be_measured(tmp_path: Path) -> None:
    good = {"reward_first": 0.25, "reward_last": 0.61}
    assert real.report(tmp_path, {1: good, 2: good})
    assert not real.report(tmp_path, {1: good, 2: good | {"reward_last": 0.59}})
    assert not real.report(tmp_path, {1: good, 2: good | {"reward_first": None}})
    assert json.loads((tmp_path / "results.json").read_text())["seeds"]["1"] == good


def test_thresholds_are_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def command(_what: str, argv: list[str]) -> None:
        """Stands for `muster calibrate --apply`, which rewrites the draft."""
        asked.append(argv)
        draft = Path(argv[argv.index("--apply") + 1])
        found = PoolConfig.load(draft)
        draft.write_bytes(found.model_copy(update={"checks": BF16_CHECKS}).canonical())

    monkeypatch.setattr(real, "_command", command)
    model = tmp_path / "model"
    assert real.calibrated(tmp_path, model) == real.calibrated(tmp_path, model) == BF16_CHECKS
    assert len(asked) == 1
    assert asked[0].count("--worker") == asked[0].count("--verifier")
    shutil.rmtree(tmp_path / "keys")
