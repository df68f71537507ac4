"""A real model through the network: what is kept, what goes on, and how the model folder comes out of its package."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import localnet.real as real
from cli.main import app
from environments.prompts import completion_text
from environments.registry import load_environment
from localnet.plan import DemoPlan
from localnet.real import real_config
from protocol.config import BF16_CHECKS, EnvironmentConfig, PoolConfig
from protocol.errors import MusterError
from tests.localnet.test_outcome import CHEATER, GOOD

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
    task = load_environment(CONFIG.environments[0])
    problem = task.problem(11)
    one, other = problem.question.removeprefix("Calculate ").removesuffix(".").split(" + ")
    tokens = [ord(letter) for letter in said.format(one, other, int(one) + int(other))]
    answer = completion_text(Letters(), tokens, (0,), CONFIG.model.answer_after)  # type: ignore[arg-type]
    assert task.score(problem, answer) == float(right)


RISEN = GOOD.model_copy(update={"reward_first": 0.25, "reward_last": 0.61, "seed": 1})


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Folders whose run was started; a run leaves a summary."""
    started: list[Path] = []

    class StartedRun:
        def __init__(self, plan: DemoPlan, config: PoolConfig, base: Path) -> None:
            assert list(plan.root.iterdir()) == [], "a run that was interrupted begins anew"
            self.plan = plan

        def run(self) -> None:
            started.append(self.plan.root)
            (self.plan.root / "summary.json").touch()

    monkeypatch.setattr(real, "Demo", StartedRun)
    monkeypatch.setattr(real, "read_results", lambda _root: (RISEN, None, None))
    return started


def test_a_finished_seed_is_not_run_again_and_an_interrupted_one_begins_anew(tmp_path: Path, runs: list[Path]) -> None:
    root = tmp_path / "seed-1"
    (root / "homes" / "chain").mkdir(parents=True)
    first, second = (real.run_seed(root, 1, 24, root, BF16_CHECKS) for _ in range(2))
    assert first == second
    assert runs == [root]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"reward_last": 0.59}, "its held-out reward rose by 0.340, less than 0.35"),
        ({"reward_first": None}, "its held-out reward was not measured twice"),
        ({"honest_rejected": 1}, "1 honest files were rejected"),
        ({"cheaters": [CHEATER.model_copy(update={"slashed": False})]}, "the cheater 0xM got away"),
    ],
)
def test_a_seed_that_did_not_learn_or_let_a_cheater_go_fails_the_command_and_says_why(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    lines = list[str]()
    assert not real.report(tmp_path, {1: RISEN, 2: RISEN.model_copy(update=change)}, lines.append)
    assert [line for line in lines if "NOT GOOD" in line] == [f"seed 2: NOT GOOD: {said}"]


def test_results_have_every_seed(tmp_path: Path) -> None:
    assert real.report(tmp_path, {1: RISEN, 2: RISEN}, lambda _line: None)
    assert json.loads((tmp_path / "results.json").read_text())["seeds"]["2"]["reward_last"] == 0.61


def test_thresholds_are_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def command(_what: str, argv: list[str]) -> None:
        """Stands for `muster pool calibrate --apply`, which rewrites the draft."""
        asked.append(argv)
        draft = Path(argv[argv.index("--apply") + 1])
        found = PoolConfig.load(draft)
        draft.write_bytes(found.model_copy(update={"checks": BF16_CHECKS}).canonical())

    monkeypatch.setattr(real, "_command", command)
    model = tmp_path / "model"
    assert real.calibrated(tmp_path, model) == real.calibrated(tmp_path, model) == BF16_CHECKS
    assert len(asked) == 1
    assert asked[0].count("--worker") == asked[0].count("--verifier")
    options = {word for word in asked[0] if word.startswith("--")}
    assert asked[0][:4] == ["-m", "cli.main", "pool", "calibrate"]
    calibrate = get_command(app).commands["pool"].commands["calibrate"]  # type: ignore[attr-defined]
    assert options <= {flag for parameter in calibrate.params for flag in parameter.opts}


def test_thresholds_of_something_else_are_measured_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where figures were left that were never applied."""
    measured: list[Path] = []

    def command(_what: str, argv: list[str]) -> None:
        figures = Path(argv[argv.index("--out") + 1])
        figures.touch(exist_ok=False)
        measured.append(figures)
        if len(measured) == 1:
            raise MusterError("stopped")

    monkeypatch.setattr(real, "_command", command)
    with pytest.raises(MusterError, match="stopped"):
        real.calibrated(tmp_path, tmp_path / "model")
    real.calibrated(tmp_path, tmp_path / "model")
    monkeypatch.setattr(real, "ENVIRONMENT", EnvironmentConfig(name="reasoning_gym/chain_sum"))
    real.calibrated(tmp_path, tmp_path / "model")
    assert measured[0] == measured[1] != measured[2]
