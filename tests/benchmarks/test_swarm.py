"""The simulated swarm is a swarm, poisoners share what the others would train on, and the table compares like with
like."""

from pathlib import Path
from typing import Any

import pytest

from attacks.swarm import POISONS
from benchmarks.support.kept import keep, kept
from benchmarks.swarm import ATTACKS, UNDEFENDED, MemoryExchange, Simulation, poison_run, table
from environments.registry import load_environment
from localnet.plan import DEMO_ENVIRONMENT
from protocol.files import write_folder
from trainer.model.base_model import Recipe, warm_up


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few seconds of the warm-up."""
    task, recipe = load_environment(DEMO_ENVIRONMENT), Recipe(worked_steps=50, mixed_steps=30)
    return write_folder(tmp_path_factory.mktemp("model") / "tiny", lambda to: warm_up(to, task, 3, recipe))


def test_members_take_what_others_share_and_repeat_it(base: Path, tmp_path: Path) -> None:
    mix, runs = UNDEFENDED.model_copy(update={"own": 2, "shared": 2, "fill": False}), []
    for attempt in range(2):
        simulation = Simulation(base, tmp_path / str(attempt), 1, mix, 10, 1.5e-4, MemoryExchange())
        members = [simulation.member(number) for number in range(3)]
        runs.append([member.run_round(number) for number in range(10) for member in members])
    assert runs[0] == runs[1]
    assert all(one.own == 2 and len(one.shared) <= 2 for one in runs[0])
    assert any(one.shared for one in runs[0])


@pytest.mark.parametrize("attack", [ATTACKS[0], ATTACKS[-1]], ids=lambda attack: attack.name)
def test_without_defences_poison_is_trained_on(base: Path, attack: Any) -> None:
    row = poison_run(attack, False, 7, print, members=3, rounds=4, problems=4, base=base)
    assert row["hostile_groups"] > 0
    assert set(row["shown"]) == set(POISONS)


def row(attack: str, defended: bool, success: float, cumulative: float, seed: int = 7) -> dict[str, Any]:
    return {
        "attack": attack, "defended": defended, "seed": seed, "members": 8, "hostile": 2 if attack else 0,
        "success": success, "shown": dict.fromkeys(POISONS, success), "cumulative": cumulative,
        "hostile_groups": 30 if attack else 0, "shared_groups": 40,
    }  # fmt: skip


def test_the_table_compares_with_the_same_members_without_the_attack() -> None:
    rows = [row("", True, 0.0, 2.0), row("", False, 0.01, 4.0), row("phrase", True, 0.0, 1.9)]
    rows += [row("phrase", False, 0.4, 1.0), row("phrase", True, 0.0, 1.9, seed=8)]
    (one,) = table(rows)["attacks"]
    assert (one["success"], one["success_undefended"], one["without_undefended"]) == (0.0, 0.4, 0.01)
    assert (one["reward_ratio"], one["reward_ratio_undefended"], one["hostile_share"]) == (0.95, 0.25, 0.75)
    assert (one["seeds"], one["seeds_undefended"]) == (1, 1), "half a comparison is none"
    assert (table(rows)["share"], table(rows)["reward_ratio"]) == (0.25, 0.95)


def test_a_line_that_a_kill_cut_off_costs_that_line_alone(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    keep(path, {"mix": "8/0"})
    with path.open("a") as file:
        file.write('{"mix": "4/')
    keep(path, {"mix": "6/2"})
    assert kept(path) == [{"mix": "8/0"}, {"mix": "6/2"}]
