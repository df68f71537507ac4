"""Somebody's tasks through everything a data pool does with them: screened, filtered by a real model, sold by a real
worker, judged by a real validator, exported, verified; rows altered afterwards are found."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from cli.pool.env_target import keep_file
from dataset.rows import DatasetRow
from environments.checking import Screen, screen_file
from environments.pool import PoolEnvironments
from environments.registry import data_folder
from protocol.config import DataConfig, EnvironmentConfig, PoolConfig
from protocol.files import file_sha256
from protocol.rollout_file.rows import Commitment
from protocol.seeds import Work
from protocol.verdict import Code
from tests.dataset.world import SoldWork, contracts_and_bucket, forged
from tests.validator import tiny
from trainer.data.problem_filter import FilterPlan, run_filter
from validator.judging.pipeline import judge
from worker.produce import Producer

TASKS, FILES, HELD_OUT = 48, 3, 8
CONTENT = "its content is not the one of its leaf"
SPOILT: list[tuple[Callable[[DatasetRow], DatasetRow], str]] = [
    (lambda row: replace(row, prompt=row.prompt + " "), "`prompt` is not the text of its tokens"),
    (lambda row: replace(row, output_tokens=(*row.output_tokens[:-1], row.output_tokens[-1] ^ 1)), CONTENT),
    (lambda row: replace(row, task_reward=1.0 - row.task_reward), CONTENT),
    (lambda row: replace(row, node=row.pools), "`node` is not what the chain says"),
    (lambda row: replace(row, file_sha256=row.file_root), "`file_sha256` is not what the chain says"),
]


def spoilt(rows: list[DatasetRow]) -> list[DatasetRow]:
    """One row altered in each of these ways, far apart."""
    rows = list(rows)
    for place, (change, _) in enumerate(SPOILT, 1):
        number = len(rows) * place // (len(SPOILT) + 1)
        rows[number] = change(rows[number])
    return rows


@dataclass
class RealWork(SoldWork):
    """Files of a real producer, each judged by the validator's own code."""

    verdicts: list[Code] = field(default_factory=list)

    def file(self, work: Work, seed: int) -> tuple[bytes, Commitment]:
        producer = Producer(self.config, tiny.engine(0))
        producer.load(self.folder)
        made = producer.make(work)
        environment = PoolEnvironments.of(self.config, self.folder)
        verdict = judge(tiny.facts(work, made), made.data, self.config, environment, tiny.engine(1))
        self.verdicts.append(verdict.code)
        return made.data, made.commitment


@pytest.fixture
def filtered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PoolConfig:
    """A pool of tasks that the tiny model never always solves, of rows of which some were spoilt."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rows = [task(number) for number in range(TASKS)]
    rows[1] |= {"problem_id": rows[0]["problem_id"]}
    rows[2] |= {"task_type": "llm_judgeable"}
    rows[3] |= {"prompt": rows[3]["prompt"] * 9}
    raw, out = tmp_path / "raw.jsonl", tmp_path / "rows.jsonl"
    raw.write_text("".join(json.dumps(row) + "\n" for row in rows))
    _, dropped = screen_file(raw, out, tmp_path / "refused", Screen(lambda one: len(one.question) < 400, True), print)
    assert dropped == {"repeated": 1, "schema": 1, "long": 1}
    content = file_sha256(out)
    keep_file(out, content)
    assert (data_folder() / content).is_file()
    environment = EnvironmentConfig(name="genesys", content=content, rows=TASKS - 3, held_out=HELD_OUT)
    work = tiny.CONFIG.work.model_copy(
        update={"max_prompt_tokens": 440, "max_new_tokens": 16, "samples_per_problem": 1, "targets": ()}
    )
    model = tiny.CONFIG.model.model_copy(update={"answer_after": ""})
    update: dict[str, Any] = {"environments": (environment,), "work": work, "model": model}
    config = tiny.CONFIG.model_copy(update=update | {"data": DataConfig(rollouts=FILES * work.rows)})
    plan = FilterPlan(TASKS - 3 - HELD_OUT, samples=2, lowest=0.0, highest=0.9)
    kept = run_filter(tiny.engine(0), config, tiny.model_folder(), plan, tmp_path / "tries.jsonl")
    chosen = environment.model_copy(update={"problems": kept.problems})
    return config.model_copy(update={"environments": (chosen,)})


def task(number: int) -> dict[str, Any]:
    truth = number * (number + 7)
    return {
        "problem_id": f"product-{number}",
        "source": "muster",
        "task_type": "code_output_prediction",
        "prompt": f"What does `print({number} * {number + 7})` print? Answer as JSON with the key `output`.",
        "gold_standard_solution": json.dumps({"output": truth}),
        "verification_info": {"ground_truth": truth},
    }


def test_tasks_become_a_data_set_in_which_every_altered_row_is_found(filtered: PoolConfig, tmp_path: Path) -> None:
    with contracts_and_bucket(tmp_path, filtered) as (game, bucket):
        sold = RealWork(game, bucket, filtered, folder=tiny.model_folder())
        (_, node), _ = game.node(), game.node()
        sold.begin()
        for number in range(FILES):
            lane = sold.submit(node, number)
            sold.judge(lane, sold.verdicts[number])
        game.deployed.chain.later(61)
        sold.judge(sold.submit(node, FILES), Code.ACCEPT)
        assert sold.verdicts == [Code.ACCEPT] * (FILES + 1)
        made = sold.export(tmp_path / "data-set").dataset
        assert made.totals.rows == FILES * filtered.work.rows
        assert sold.verify(tmp_path / "data-set").findings.messages == []
        messages = sold.verify(forged(tmp_path / "data-set", tmp_path / "forged", spoilt)).findings.messages
        assert [line.partition("): ")[2] for line in messages] == [words for _, words in SPOILT]
