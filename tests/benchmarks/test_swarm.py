"""The simulation is a swarm: the mixes train on as much, what one shares others take, and the same seed repeats."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import swarm
from benchmarks.swarm import spread, summary
from benchmarks.swarm_members import HeldOutMeasure, SwarmCase, make_members, nine_sums
from environments.registry import load_environment
from localnet.plan import DEMO_ENVIRONMENT
from protocol.files import write_folder
from trainer.base_model import Recipe, warm_up


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few seconds of the warm-up."""
    task, recipe = load_environment(DEMO_ENVIRONMENT), Recipe(worked_steps=50, mixed_steps=30)
    return write_folder(tmp_path_factory.mktemp("model") / "tiny", lambda to: warm_up(to, task, 3, recipe))


def test_nine_tasks_of_distinct_names() -> None:
    assert len({one.called for one in nine_sums()}) == 9


def test_members_take_what_others_share_and_repeat_it(base: Path, tmp_path: Path) -> None:
    case = SwarmCase(2, 2, members=3, rounds=10)
    runs = []
    for attempt in range(2):
        members = make_members(case, base, 1, tmp_path / str(attempt))
        runs.append([member.round(number) for number in range(case.rounds) for member in members])
    assert runs[0] == runs[1]
    assert all(one.own == 2 and len(one.shared) <= 2 for one in runs[0])
    assert any(one.shared for one in runs[0])


def test_all_mixes_are_measured_alike_and_by_what_members_learnt(base: Path, tmp_path: Path) -> None:
    found = []
    for own, shared in ((1, 1), (3, 0)):
        case, folder = SwarmCase(own, shared, members=2, rounds=1), tmp_path / str(own)
        members, measure = make_members(case, base, 1, folder), HeldOutMeasure(case, base, folder)
        found.append(measure())
        for number, member in enumerate(members):
            member.round(0)
            weights = folder / str(number) / "policy" / "model.safetensors"
            weights.write_bytes((base / "model.safetensors").read_bytes())
        found.append(measure())
    assert len(set(found)) == 1


def test_spread_is_what_oscillates() -> None:
    assert spread([0.5] * 30) == 0
    assert spread([0.4, 0.6] * 15) > 0.09


def test_finished_runs_are_kept_and_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def one_run(case: SwarmCase, seed: int, progress: object) -> dict[str, Any]:
        made.append(f"{case.name} {seed}")
        if len(made) == 3:
            raise KeyboardInterrupt
        return {
            "mix": case.name,
            "seed": seed,
            "rounds": case.rounds,
            "cumulative": float(len(made)),
            "held_out": [(40, 0.5)],
        }

    monkeypatch.setattr(swarm, "one_run", one_run)
    monkeypatch.setattr(swarm, "KEPT", tmp_path / "swarm.json")
    monkeypatch.setattr(swarm, "KEPT_RUNS", tmp_path / "swarm_runs.jsonl")
    monkeypatch.setattr(swarm, "KEPT_HOSTILE", tmp_path / "swarm_hostile.json")
    with pytest.raises(KeyboardInterrupt):
        swarm.run(False, print, resume=True)
    assert json.loads((tmp_path / "swarm.json").read_bytes())["mixes"] == {"8/0": [1.0], "4/4": [2.0]}
    assert (tmp_path / "swarm_runs.jsonl").read_bytes().count(b"\n") == 2
    with (tmp_path / "swarm_runs.jsonl").open("ab") as file:
        file.write(b'{"mix": "6/2", "seed": 7, "rou')
    found = swarm.run(False, print, resume=True)
    assert swarm.kept(tmp_path / "swarm_runs.jsonl") == json.loads(json.dumps(found["runs"]))
    assert made == [*made[:3], made[2], *made[4:]]
    assert len(made) == 13
    assert found == summary(found["runs"])
    attacks = {"share": 0.25, "reward_ratio": 1.0, "attacks": []}
    (tmp_path / "swarm_hostile.json").write_text(json.dumps({"hostile": attacks | {"rows": [1]}}))
    again = swarm.run(False, print, resume=True)
    assert again == json.loads(json.dumps(found)) | {"hostile": attacks}
    assert {name: len(values) for name, values in found["mixes"].items()} == dict.fromkeys(found["mixes"], 3)
