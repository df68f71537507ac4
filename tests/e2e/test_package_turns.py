"""A package of the verifiers library with a tool and three turns, run by the library itself as an index has it, in a
pool on the whole local network: honest files are accepted and trained on, who forges the tool's answers is slashed."""

from pathlib import Path

import pytest

from environments.base import InTurns, Problem
from environments.registry import data_folder, load_environment
from environments.verifiers.environment import lock_package
from environments.verifiers.install import wheel_requirement
from localnet.plan import NodeSpec, ValidatorSpec
from protocol.config import EnvironmentConfig
from tests.e2e.networks import PlainDemo, check_nodes, count_turns, network_plan, small_files
from tests.e2e.test_package import check_seats, check_training
from tests.environments.verifiers.boxes import boxes_wheel
from trainer.model.base_model import Recipe, warm_up
from trainer.model.tiny_model import END_OF_THOUGHT
from trainer.sft import Message

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(2400)]
STEPS = 2
ROWS = 64


def test_a_tool_of_strangers_answers_pays_and_teaches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = boxes_wheel(tmp_path)
    lock = lock_package(data_folder(), wheel_requirement(wheel), arguments={"count": ROWS}, wheels=(wheel,))
    params = {"score_threshold": 0, "reply_tokens": 16}
    package = EnvironmentConfig(name="verifiers", label="package", content=lock.content, rows=ROWS, params=params)
    nodes = NodeSpec("ada", "transformers"), NodeSpec("mallory", "transformers", "forged-reply")
    judges = (ValidatorSpec("xena", 6), ValidatorSpec("wanda", 6, engine="transformers", batch=16))
    plan = network_plan(tmp_path, STEPS, nodes, judges, worker_batch=128, patience=6)
    base = tmp_path / "base"
    monkeypatch.setattr("trainer.model.base_model.worked_turns", called_turns)
    warm_up(base, load_environment(EnvironmentConfig(name="lookup")), plan.seed, Recipe())
    # Every row of a file costs three replays of each seat.
    sizes = {"problems_per_file": 4, "samples_per_problem": 8, "max_new_tokens": 96}
    config = small_files(base, STEPS, package, **sizes)
    demo = PlainDemo(plan, config)
    with demo.settled() as state:
        check_nodes(demo, state)
        check_seats(state)
        turns, solved = count_turns(plan, config, base, state, "package")
        assert turns[3] > 10, turns
        assert solved > 0, "right sums of what the tool said"
        check_training(plan)


def called_turns(task: InTurns, problem: Problem, prompt: str) -> tuple[Message, ...]:
    """What the tiny model is warmed up on: the built-in boxes, opened by calls as the package's tool wants them."""
    question = prompt.partition(" Open")[0] + prompt[prompt.index("<think>") :]
    messages, said = [Message(role="user", content=question)], list[str]()
    for box in problem.metadata["asked"]:
        said.append(f'{{"name":"open","arguments":{{"box":"{box}"}}}}')
        reply = task.reply(problem, said) or ""
        messages += [Message(role="assistant", content=said[-1]), Message(role="user", content=reply)]
    return (*messages, Message(role="assistant", content=f"{END_OF_THOUGHT}{problem.answer}"))
